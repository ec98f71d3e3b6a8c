import assert from "node:assert/strict";
import { after, test } from "node:test";
import { noPostgres, stopTestDatabases } from "../support/postgres.ts";
import { seeded } from "./kill-loop.ts";
import { replicaKillLoop, spread } from "./replica-kill-loop.ts";

after(stopTestDatabases);

const options = { skip: noPostgres, timeout: 115_000 };

test(
  "where one of two servers is killed in the middle of a turn the other goes on with it",
  options,
  async (context) => {
    const blows = Array.from({ length: 8 }, () => "kill" as const);
    const report = await replicaKillLoop(blows, seeded(20_262));
    context.diagnostic(
      JSON.stringify({ ...report, takeoverMs: spread(report.takeoverMs), frozenTakeoverMs: undefined }),
    );
    assert.ok(report.changes > 0, "tools ran");
    assert.equal(report.changedTwice, 0);
    assert.ok(spread(report.takeoverMs).p50 < 5000, "the death is noticed before the time to live is over");
  },
);

test("a server that was frozen and comes back writes nothing and runs nothing again", options, async (context) => {
  const report = await replicaKillLoop(["freeze", "freeze", "freeze"], seeded(20_263));
  context.diagnostic(JSON.stringify({ ...report, frozenTakeoverMs: spread(report.frozenTakeoverMs) }));
  assert.ok(report.changes > 0, "tools ran");
  assert.equal(report.changedTwice, 0);
});
