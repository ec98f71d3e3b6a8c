import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { start, temporaryFolder } from "./start-codeagent.ts";

const program = fileURLToPath(new URL("../../examples/plan/run.ts", import.meta.url));

test("the example of a plan runs a skill, an MCP server and tools, and leaves nothing behind", async (context) => {
  const folder = temporaryFolder(context);
  const example = start(context, [], { folder, program });
  assert.equal(await example.ended, 0, example.stderr());
  const shown = example.stdout();
  assert.match(shown, /^report\.md says which notes are long\. \(ready\)$/m);
  for (const key of ["count", "bound", "name\\[0\\]", "read\\[1\\]", "read\\[2\\]", "sum", "report", "write"])
    assert.match(shown, new RegExp(`^✓ ${key} completed`, "m"));
  assert.match(shown, /^you: \{"words":20\}$/m);
  assert.match(shown, /^✓ report\.md names each note\.: Step write /m);
  assert.match(shown, /^completed · 13 completed · /m);
  assert.match(shown, /^report\.md: Notes: bicycle is short; garden and reading are long\.$/m);
  assert.equal(example.hasLeftProcesses(), false);
  assert.deepEqual(readdirSync(folder), []);
});
