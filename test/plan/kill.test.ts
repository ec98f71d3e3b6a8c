import assert from "node:assert/strict";
import { test } from "node:test";
import { seeded } from "../session/kill-loop.ts";
import { planKillLoop } from "./plan-kill-loop.ts";

test("killed in the middle of executions, the service loses no event and runs no changing step twice", async () => {
  const { kills, states, tools } = await planKillLoop(3, seeded(20_266));
  assert.equal(kills, 3);
  assert.deepEqual([...new Set(states)], ["completed"]);
  assert.equal(tools.toolsTwice, 0);
  assert.ok(tools.toolsBegun > 0);
});
