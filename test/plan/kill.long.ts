import assert from "node:assert/strict";
import { test } from "node:test";
import { seeded } from "../session/kill-loop.ts";
import { planKillLoop } from "./plan-kill-loop.ts";

test("killed sixty times in the middle of executions, the service runs no changing step twice", async () => {
  const { kills, states, tools } = await planKillLoop(60, seeded(66));
  assert.equal(kills, 60);
  assert.deepEqual([...new Set(states)], ["completed"]);
  assert.equal(tools.toolsTwice, 0);
});
