import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Client } from "@connectrpc/connect";
import type { CodeAgentService } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { startTestApp, user } from "../support/test-app.ts";
import { type LegacyClient, legacyClients } from "./legacy-client.ts";

const script = `
- { when: { role: tool }, text: noted }
- when: { text: plan }
  tool_calls:
    - name: update_todos
      arguments: { todos: [{ content: one, status: completed }, { content: two, status: pending }] }
- { text: answered }
`;

const cleanups: (() => unknown)[] = [];
const shared = { after: (cleanup: () => unknown) => void cleanups.push(cleanup) };
let client: LegacyClient;
let v1: Client<typeof CodeAgentService>;

describe("todos of the earlier service", { timeout: 30_000 }, () => {
  before(async () => {
    const sample = await startTestApp(shared, { script });
    v1 = sample.client;
    client = legacyClients(shared, sample.app.url).L2;
  });
  after(async () => {
    for (const cleanup of cleanups.toReversed()) await cleanup();
  });

  test("are what the agent wrote down, and what a caller set in its place", async () => {
    const { sessionId } = await v1.createSession({});
    const call = { session_id: sessionId };
    assert.deepEqual(await client.call("GetTodos", call), { todos: [] });
    await v1.generate({ sessionId, messages: [user("plan")] });
    assert.deepEqual(await client.call("GetTodos", call), {
      todos: [
        { id: "1", content: "one", status: "completed", priority: "medium" },
        { id: "2", content: "two", status: "pending", priority: "medium" },
      ],
    });
    const todos = [
      { id: "a", content: "first", status: "in_progress", priority: "high" },
      { id: "", content: "second", status: "", priority: "" },
      { id: "c", content: "third", status: "cancelled", priority: "low" },
    ];
    const shown = [todos[0], { id: "2", content: "second", status: "pending", priority: "medium" }, todos[2]];
    assert.deepEqual(await client.call("SetTodos", { ...call, todos }), { success: true, todos: shown });
    assert.deepEqual(await client.call("GetTodos", call), { todos: shown });
    const { todos: ours } = await v1.listTodos({ sessionId });
    assert.deepEqual(
      ours.map(({ id, content, status, priority }) => [id, content, status, priority]),
      [
        ["a", "first", "in_progress", "high"],
        ["", "second", "pending", ""],
        ["c", "third", "cancelled", "low"],
      ],
    );
    // The agent goes on with that list, and with its own again when it has written one.
    await v1.generate({ sessionId, messages: [user("plan")] });
    assert.equal((await v1.listTodos({ sessionId })).todos.length, 2);
    assert.deepEqual(await client.call("SetTodos", { ...call, todos: [] }), { success: true, todos: [] });
  });

  test("are refused with the field that is wrong", async () => {
    const { sessionId } = await v1.createSession({});
    const item = { id: "a", content: "x", status: "pending", priority: "low" };
    const refused: [todos: object[], message: RegExp][] = [
      [[{ ...item, status: "done" }], /todos\[0\]\.status.* "done".*pending.*cancelled/],
      [[item, { ...item, id: "b", priority: "urgent" }], /todos\[1\]\.priority/],
      [[{ ...item, content: " " }], /todos\[0\]\.content.* is empty/],
      [[{ ...item, content: "x".repeat(501) }], /todos\[0\]\.content.* has 501 characters; 500 is the most/],
      [[{ ...item, id: "x".repeat(65) }], /todos\[0\]\.id.* has 65 characters; 64 is the most/],
      [[item, item], /todos\[1\]\.id/],
      [
        Array.from({ length: 101 }, (_, index) => ({ ...item, id: `i${index}` })),
        /todos.* has 101 items; 100 is the most/,
      ],
    ];
    for (const [todos, message] of refused)
      await assert.rejects(client.call("SetTodos", { session_id: sessionId, todos }), { code: 3, message });
    assert.deepEqual(await client.call("GetTodos", { session_id: sessionId }), { todos: [] });
    for (const rpc of ["GetTodos", "SetTodos"])
      await assert.rejects(client.call(rpc, { session_id: "nobody" }), { code: 5, message: /nobody/ }, rpc);
  });
});
