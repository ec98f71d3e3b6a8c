import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { readAlong } from "../support/read-along.ts";
import { startTestApp, user } from "../support/test-app.ts";

const patch = "*** Begin Patch\n*** Update File: src/a.txt\n-three\n+four\n*** Delete File: README.md\n*** End Patch";
const calls = [
  ["write_file", { path: "src/a.txt", content: "one\ntwo\n" }],
  ["edit_file", { path: "src/a.txt", old_text: "two", new_text: "three" }],
  ["apply_patch", { patch }],
] as const;
const script = [
  ...calls.map(
    ([name, given], index) =>
      `- { when: { nth: ${index + 1} }, tool_calls: [{ name: ${name}, arguments: ${JSON.stringify(given)} }] }`,
  ),
  "- { when: { nth: 4 }, text: done }",
].join("\n");

test("a turn that may edit writes, edits and patches without a question, and its log has what changed", async (context) => {
  const { client, workspace } = await startTestApp(context, { script });
  const { sessionId } = await client.createSession({ permissions: { mode: "accept-edits" } });
  const seen = await readAlong(client.streamGenerate({ sessionId, messages: [user("go")] })).end();
  const results = seen.flatMap(({ event }) => (event.case === "toolFinished" ? [event.value.result] : []));
  assert.deepEqual(
    results.map((result) => result?.output),
    [
      "created src/a.txt: 8 bytes, 2 lines",
      "edited src/a.txt: line 2 (+1 -1)",
      "M src/a.txt (+1 -1)\nD README.md (+0 -1)",
    ],
  );
  assert.deepEqual(
    results.map((result) => result?.metadata["diff"]),
    [
      "--- /dev/null\n+++ b/src/a.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n",
      "--- a/src/a.txt\n+++ b/src/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n",
      "--- a/src/a.txt\n+++ b/src/a.txt\n@@ -1,2 +1,2 @@\n one\n-three\n+four\n" +
        "--- a/README.md\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-# a sample\n",
    ],
  );
  assert.equal(readFileSync(join(workspace, "src/a.txt"), "utf8"), "one\nfour\n");
  assert.deepEqual(readdirSync(workspace), ["src"]);
});

test("elsewhere each of them is asked for, and nothing is written before the answer", async (context) => {
  const { client, workspace } = await startTestApp(context, { script });
  const { sessionId } = await client.createSession({});
  const reading = readAlong(client.streamGenerate({ sessionId, messages: [user("go")] }));
  const [request] = await reading.requests(1);
  assert.equal(request?.toolName, "write_file");
  assert.deepEqual(readdirSync(workspace), ["README.md"]);
  await client.cancelTurn({ sessionId, turnId: request?.turnId ?? "" });
  await reading.end();
  assert.deepEqual(readdirSync(workspace), ["README.md"]);
});
