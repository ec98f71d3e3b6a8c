import assert from "node:assert/strict";
import { test } from "node:test";
import { killLoop, seeded } from "./kill-loop.ts";

test("100 kills: no event lost, every turn finished, no changing tool run twice", async () => {
  const seed = Date.now() % 1_000_000;
  const report = await killLoop(100, seeded(seed));
  const start = report.startMs.toSorted((left, right) => left - right);
  console.log({ seed, ...report, startMs: { p50: start[start.length >> 1], max: start.at(-1) } });
  assert.equal(report.changedTwice, 0);
});
