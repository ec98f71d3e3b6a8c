import { after, test } from "node:test";
import { assertUnharmed, tableRow } from "../support/counted-log.ts";
import { noPostgres, stopTestDatabases } from "../support/postgres.ts";
import { cronKillLoop } from "./cron-kill-loop.ts";
import { approvalRestartLoop } from "./database-kill-loop.ts";
import { seeded } from "./kill-loop.ts";

after(stopTestDatabases);

const options = { skip: noPostgres, timeout: 110_000 };

test("schedules run each of their minutes once while servers are killed", options, async (context) => {
  const report = await cronKillLoop(4, seeded(20_264));
  context.diagnostic(JSON.stringify(tableRow(report)));
  assertUnharmed(report);
});

test("what waits to be approved is approved after everything was killed", options, async (context) => {
  const report = await approvalRestartLoop(2, seeded(20_265));
  context.diagnostic(JSON.stringify(tableRow(report)));
  assertUnharmed(report);
});
