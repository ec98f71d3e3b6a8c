import assert from "node:assert/strict";
import { after, test } from "node:test";
import { noPostgres, stopTestDatabases } from "../support/postgres.ts";
import { killLoop, seeded } from "./kill-loop.ts";
import { replicaKillLoop, spread } from "./replica-kill-loop.ts";

after(stopTestDatabases);

test("100 kills: no event lost, every turn finished, no changing tool run twice", async () => {
  const seed = Date.now() % 1_000_000;
  const report = await killLoop(100, seeded(seed));
  console.log({ seed, ...report, startMs: spread(report.startMs) });
  assert.equal(report.changedTwice, 0);
});

test("100 kills and 20 freezes of one of two servers: the other goes on", { skip: noPostgres }, async () => {
  const seed = Date.now() % 1_000_000;
  const killed = await replicaKillLoop(
    Array.from({ length: 100 }, () => "kill" as const),
    seeded(seed),
  );
  const frozen = await replicaKillLoop(
    Array.from({ length: 20 }, () => "freeze" as const),
    seeded(seed),
  );
  console.table({
    kill: { times: killed.kills, doubles: killed.changedTwice, ...spread(killed.takeoverMs), events: killed.events },
    freeze: {
      times: frozen.freezes,
      doubles: frozen.changedTwice,
      ...spread(frozen.frozenTakeoverMs),
      events: frozen.events,
    },
  });
  assert.equal(killed.changedTwice + frozen.changedTwice, 0);
});
