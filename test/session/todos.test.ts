import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { ToolService } from "../../gen/codeagent/v1/tool_service_pb.ts";
import { collect } from "../support/grammar.ts";
import { readAlong } from "../support/read-along.ts";
import { startTestApp, type TestAppOptions, user } from "../support/test-app.ts";

const plan = [
  { content: "look around", status: "completed" },
  { content: "write\n  it down", status: "in_progress" },
  { content: "say so", status: "pending" },
];
const planText = "1. [x] look around\n2. [>] write it down\n3. [ ] say so";
const shorter = [{ content: "say so", status: "completed" }];

/** A turn for each list, whose user message is its place from 1; after a result comes an end. */
function planning(...lists: readonly unknown[]): string {
  const turns = lists.map(
    (todos, index) =>
      `- { when: { role: user, text: turn ${index + 1} }, text: so, tool_calls: [{ name: update_todos, arguments: ${JSON.stringify({ todos })} }] }\n`,
  );
  return `- { when: { role: tool }, text: done }\n- { when: { text: Summarise }, text: we planned }\n${turns.join("")}- text: "no"\n`;
}

async function startPlanning(context: TestContext, lists: readonly unknown[], options: TestAppOptions = {}) {
  const sample = await startTestApp(context, { script: planning(...lists), ...options });
  const { client } = sample;
  return {
    ...sample,
    turn: (sessionId: string, place: number) =>
      collect(client.streamGenerate({ sessionId, messages: [user(`turn ${place}`)] })),
    todos: async (sessionId: string) =>
      (await client.listTodos({ sessionId })).todos.map(({ content, status }) => ({ content, status })),
    async told(sessionId: string) {
      const { messages } = await client.listMessages({ sessionId });
      return messages.filter(({ role }) => role === "tool").map(({ contentType }) => String(contentType.value));
    },
  };
}

test("each call replaces the list, and the model reads it in short", async (context) => {
  const { client, turn, todos, told } = await startPlanning(context, [plan, shorter, []]);
  const { sessionId } = await client.createSession({ permissions: { mode: "read-only" } });
  assert.deepEqual(await todos(sessionId), []);
  const lists = [];
  for (const place of [1, 2, 3]) {
    await turn(sessionId, place);
    lists.push(await todos(sessionId));
  }
  assert.deepEqual(lists, [plan, shorter, []]);
  assert.deepEqual(await told(sessionId), [
    `${planText}\n1 of 3 done`,
    "1. [x] say so\n1 of 1 done",
    "the list is empty",
  ]);
});

describe("a list that can't be taken leaves the one before", () => {
  const rows: [name: string, todos: unknown][] = [
    ["another status", [{ content: "a", status: "doing" }]],
    ["no words", [{ content: "", status: "pending" }]],
    ["too many", Array.from({ length: 101 }, (_, index) => ({ content: `item ${index}`, status: "pending" }))],
    ["long words", [{ content: "a".repeat(501), status: "pending" }]],
    ["something more", [{ content: "a", status: "pending", id: "x" }]],
    ["no list", "a, b"],
  ];
  for (const [name, bad] of rows) {
    test(name, async (context) => {
      const { client, turn, todos, told } = await startPlanning(context, [plan, bad]);
      const { sessionId } = await client.createSession({});
      await turn(sessionId, 1);
      await turn(sessionId, 2);
      assert.deepEqual(await todos(sessionId), plan);
      assert.match((await told(sessionId))[1] ?? "", /^error: /);
    });
  }
});

test("the list outlasts a restart, a fork has that of its time, and a deletion takes it", async (context) => {
  const first = await startPlanning(context, [plan, shorter]);
  const { sessionId } = await first.client.createSession({});
  const end = (await first.turn(sessionId, 1)).at(-1)?.seq ?? 0n;
  await first.turn(sessionId, 2);
  await first.app.close(0);

  const { client, todos } = await startPlanning(context, [], { dataDir: first.dataDir });
  assert.deepEqual(await todos(sessionId), shorter);
  const fork = await client.forkSession({ sessionId, throughSeq: end });
  assert.deepEqual(await todos(fork.sessionId), plan);
  await client.deleteSession({ sessionId });
  await assert.rejects(todos(sessionId), (error) => error instanceof ConnectError && error.code === Code.NotFound);
  assert.deepEqual(await todos(fork.sessionId), plan);
});

test("after a compaction the model reads the list with the summary", async (context) => {
  const { client, turn, todos } = await startPlanning(context, [plan]);
  const { sessionId } = await client.createSession({});
  await turn(sessionId, 1);
  await turn(sessionId, 9);
  const { compacted } = await client.compactSession({ sessionId });
  assert.notEqual(compacted?.droppedMessages, 0);
  assert.deepEqual(await todos(sessionId), plan);
  const { messages } = await client.listMessages({ sessionId });
  const summary = messages.find(({ id }) => id.startsWith("compacted-"));
  const text = String(summary?.contentType.value);
  assert.match(text, /we planned\n\nThe todo list of this session as it was then/);
  assert.ok(text.endsWith(`:\n${planText}`), text);
});

test("a one-off turn has a list while it can be read", async (context) => {
  const { client, todos } = await startPlanning(context, [plan]);
  const reading = readAlong(client.streamGenerate({ messages: [user("turn 1")] }));
  const [first] = await reading.end();
  assert.deepEqual(await todos(first?.sessionId ?? ""), plan);
});

test("outside a turn there is no list to change", async (context) => {
  const { transport } = await startPlanning(context, []);
  const tools = createClient(ToolService, transport);
  const { result } = await tools.executeTool({ name: "update_todos", arguments: JSON.stringify({ todos: plan }) });
  assert.match(result?.error ?? "", /inside a turn only/);
});

test("a function of somebody else with that name changes no list", async (context) => {
  const { client, turn, todos } = await startPlanning(context, [plan], {
    functions: [
      {
        source: "embedded",
        list: async () => [
          {
            name: "update_todos",
            description: "",
            parameters: "",
            source: "embedded",
            readOnly: true,
            timeoutMs: 1000,
          },
        ],
        call: async () => ({ success: true, output: "mine" }),
        close: async () => undefined,
      },
    ],
  });
  const { sessionId } = await client.createSession({});
  await turn(sessionId, 1);
  assert.deepEqual(await todos(sessionId), []);
});
