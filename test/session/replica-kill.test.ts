import assert from "node:assert/strict";
import { after, test } from "node:test";
import { assertUnharmed, spread, tableRow } from "../support/counted-log.ts";
import { noPostgres, stopTestDatabases } from "../support/postgres.ts";
import { seeded } from "./kill-loop.ts";
import { replicaKillLoop } from "./replica-kill-loop.ts";

after(stopTestDatabases);

const options = { skip: noPostgres, timeout: 115_000 };

test(
  "where one of two servers is killed in the middle of a turn the other goes on with it",
  options,
  async (context) => {
    const report = await replicaKillLoop("kill", 6, seeded(20_262));
    context.diagnostic(JSON.stringify(tableRow(report)));
    assertUnharmed(report);
    assert.ok(spread(report.takeoverMs).p50 < 5000, "the death is noticed before the time to live is over");
  },
);

test("a server that was frozen and comes back writes nothing and runs nothing again", options, async (context) => {
  const report = await replicaKillLoop("freeze", 3, seeded(20_263));
  context.diagnostic(JSON.stringify(tableRow(report)));
  assertUnharmed(report);
});
