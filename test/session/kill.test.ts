import assert from "node:assert/strict";
import { test } from "node:test";
import { assertUnharmed } from "../support/counted-log.ts";
import { seeded } from "./kill-loop.ts";
import { restartKillLoop } from "./restart-kill-loop.ts";

test("killed in the middle of its turns, the service loses no event and runs no changing tool twice", async () => {
  const report = await restartKillLoop(6, seeded(20_261));
  assert.equal(report.times, 6);
  assertUnharmed(report);
});
