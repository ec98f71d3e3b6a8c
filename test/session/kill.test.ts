import assert from "node:assert/strict";
import { test } from "node:test";
import { killLoop, seeded } from "./kill-loop.ts";

test("killed in the middle of its turns, the service loses no event and runs no changing tool twice", async () => {
  const report = await killLoop(8, seeded(20_261));
  assert.equal(report.kills, 8);
  assert.ok(report.changes > 0, "tools ran");
  assert.equal(report.changedTwice, 0);
});
