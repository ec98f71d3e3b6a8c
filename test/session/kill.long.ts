import { after, test } from "node:test";
import { assertUnharmed, type BlowReport, tableRow } from "../support/counted-log.ts";
import { noPostgres, stopTestDatabases } from "../support/postgres.ts";
import { cronKillLoop } from "./cron-kill-loop.ts";
import { approvalRestartLoop, databaseKillLoop } from "./database-kill-loop.ts";
import { seeded } from "./kill-loop.ts";
import { replicaKillLoop } from "./replica-kill-loop.ts";
import { restartKillLoop } from "./restart-kill-loop.ts";

type Loop = (random: () => number) => Promise<BlowReport>;

const loops: readonly (readonly [name: string, loop: Loop, skip?: string | false])[] = [
  ["SQLite: server killed, restarted", (random) => restartKillLoop(100, random)],
  ["PostgreSQL: one of two servers killed", (random) => replicaKillLoop("kill", 100, random), noPostgres],
  ["PostgreSQL: one of two servers frozen", (random) => replicaKillLoop("freeze", 20, random), noPostgres],
  ["PostgreSQL itself killed in a turn", (random) => databaseKillLoop(10, random), noPostgres],
  ["approval after everything was killed", (random) => approvalRestartLoop(6, random), noPostgres],
  ["schedules while servers are killed", (random) => cronKillLoop(20, random), noPostgres],
];

const rows: Record<string, ReturnType<typeof tableRow> & { readonly seconds: number }> = {};
const seed = Date.now() % 1_000_000;

for (const [name, loop, skip = false] of loops) {
  test(`${name}: nothing lost, nothing repeated, no changing tool run twice`, { skip }, async () => {
    const began = performance.now();
    const report = await loop(seeded(seed));
    rows[name] = { ...tableRow(report), seconds: Math.round((performance.now() - began) / 1000) };
    assertUnharmed(report);
  });
}

after(async () => {
  await stopTestDatabases();
  console.log(`seed ${seed}`);
  console.table(rows);
});
