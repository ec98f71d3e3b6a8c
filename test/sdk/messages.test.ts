import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { create, fromJson, toJson } from "@bufbuild/protobuf";
import type OpenAI from "openai";
import { GenerateResponseSchema, type Message, MessageSchema } from "../../gen/codeagent/v1/code_agent_pb.ts";
import {
  type AnyMessage,
  CodeAgentError,
  chatCompletion,
  createCodeAgentClient,
  hasToolCalls,
  messageFromResponse,
  messagesFrom,
  responseText,
  responseThinking,
} from "../../sdk/index.ts";
import { sealDetails } from "../../src/convert/openai/reasoning-details.ts";
import { startTestServer } from "./start-app.ts";

const signature = "c2lnbmVk";
const thinking = create(MessageSchema, {
  role: "assistant",
  blocks: [
    { block: { case: "thinking", value: { thinking: "hm", signature, provider: "anthropic", model: "m" } } },
    { block: { case: "redactedThinking", value: { data: "x", provider: "anthropic", model: "m" } } },
    { block: { case: "text", value: { text: "hello" } } },
    { block: { case: "toolUse", value: { id: "c1", name: "look", input: '{"a": 1.0}' } } },
  ],
});
const call = { id: "c1", type: "function", function: { name: "look", arguments: "{}" } } as const;

/** Messages of every shape, and the role and text they say. */
const shapes: [name: string, message: AnyMessage, role: string, text: string, calls?: number][] = [
  ["OpenAI's, text", { role: "user", content: "hello" }, "user", "hello"],
  ["OpenAI's, parts", { role: "user", content: [{ type: "text", text: "hello" }] }, "user", "hello"],
  ["OpenAI's, developer", { role: "developer", content: "hello" }, "developer", "hello"],
  ["OpenAI's, calls", { role: "assistant", content: "hello", tool_calls: [call] }, "assistant", "hello", 1],
  ["OpenAI's, a result", { role: "tool", content: "hello", tool_call_id: "c1" }, "tool", "hello"],
  ["an enum's name", { role: "ROLE_USER", content: "hello" }, "user", "hello"],
  ["an enum's name, system", { role: "ROLE_SYSTEM", content: "hello" }, "system", "hello"],
  ["an enum's number", { role: 2, content: "hello" }, "assistant", "hello"],
  ["an enum's name, other fields", { role: "ROLE_USER", content: "hello", metadata: { a: "b" } }, "user", "hello"],
  [
    "the contract's, made",
    create(MessageSchema, { role: "user", contentType: { case: "content", value: "hello" } }),
    "user",
    "hello",
  ],
  ["the contract's, with blocks", thinking, "assistant", "hello", 1],
  [
    "the contract's, as its fields",
    { role: "user", contentType: { case: "content", value: "hello" } },
    "user",
    "hello",
  ],
  [
    "the contract's, content parts",
    { role: "user", contentParts: { parts: [{ text: { type: "text", text: "hello" } }] } },
    "user",
    "hello",
  ],
  ["the contract's JSON, with blocks", toJson(MessageSchema, thinking), "assistant", "hello", 1],
  ["the contract's JSON, a result", { role: "tool", content: "hello", toolCallId: "c1" }, "tool", "hello"],
  [
    "the contract's JSON, calls",
    { role: "assistant", content: "hello", toolCalls: [{ id: "c1", name: "look", arguments: "{}" }] },
    "assistant",
    "hello",
    1,
  ],
];

function contentOf({ contentType }: Message): string {
  return contentType.case === "content" ? contentType.value : "";
}

/** What browsers have of Node.js, for as long as the call takes: Node's own test runner needs it. */
function withoutBuffer<Value>(work: () => Value): Value {
  const { Buffer } = globalThis;
  Reflect.set(globalThis, "Buffer", undefined);
  try {
    return work();
  } finally {
    Reflect.set(globalThis, "Buffer", Buffer);
  }
}

describe("messages of any shape", () => {
  for (const [name, message, role, text, calls = 0] of shapes)
    test(name, () => {
      const [read] = messagesFrom([message]);
      assert.ok(read);
      assert.deepEqual([read.role, contentOf(read), read.toolCalls.length], [role, text, calls]);
    });

  test("blocks stay byte for byte", () => {
    for (const message of [thinking, toJson(MessageSchema, thinking)]) {
      const [read] = messagesFrom([message]);
      assert.deepEqual(read?.blocks, thinking.blocks);
    }
  });

  test("OpenAI's with what goes along are the messages they were, in browsers too", () => {
    const read = withoutBuffer(() => {
      const details = sealDetails(
        [
          { block: { type: "tool_use", id: "s1", name: "look", input: "{}" }, isShown: false },
          { block: { type: "tool_result", toolUseId: "s1", content: "seen" }, isShown: false },
          { block: { type: "text", text: "hello" }, isShown: true },
        ],
        "rd",
      );
      return messagesFrom([{ role: "assistant", content: "hello", reasoning_details: details ?? [] }]);
    });
    assert.deepEqual(
      read.map(({ role, blocks }) => [role, ...blocks.map(({ block }) => block.case)]),
      [
        ["assistant", "toolUse"],
        ["tool", "toolResult"],
        ["assistant", "text"],
      ],
    );
  });

  const broken: [name: string, message: unknown, field: string][] = [
    ["no object", "hello", "messages[0]"],
    ["a role nobody knows", { role: "ROLE_ROBOT", content: "x" }, "messages[0].role"],
    ["an enum's number beyond", { role: 9, content: "x" }, "messages[0].role"],
    ["an enum's zero", { role: 0, content: "x" }, "messages[0].role"],
    ["blocks of no kind", { role: "user", blocks: [{ what: {} }] }, "messages[0]"],
    ["the contract's, empty", { role: "user", contentType: { case: "content", value: "" } }, "messages[0].content"],
  ];
  for (const [name, message, field] of broken)
    test(`refuses ${name}`, () =>
      assert.throws(
        // A caller without types can hand over anything.
        () => messagesFrom([JSON.parse(JSON.stringify(message))]),
        (error) => error instanceof CodeAgentError && error.fieldViolations[0]?.field === field,
      ));
});

test("what an answer says, from either shape", () => {
  const response = fromJson(GenerateResponseSchema, {
    message: toJson(MessageSchema, thinking),
    toolCalls: [{ id: "c1", name: "look", arguments: "{}" }],
  });
  assert.equal(responseText(response), "hello");
  assert.equal(responseThinking(response), "hm");
  assert.equal(hasToolCalls(response), true);
  assert.deepEqual(messageFromResponse(response), thinking);
  assert.throws(() => messageFromResponse(create(GenerateResponseSchema)), TypeError);
  assert.equal(hasToolCalls(create(GenerateResponseSchema)), false);
  assert.equal(responseText(create(GenerateResponseSchema)), "");
});

const script = `
- when: { text: { contains: "in all" } }
  text: That was two.
- when: { tool: get_time }
  thinking: I know now.
  text: It is noon.
- when: { text: { contains: time } }
  thinking: where?
  text: One moment.
  tool_calls: [{ id: call_a, name: get_time, arguments: {} }]
- text: hi
`;
const clock = {
  type: "function",
  function: { name: "get_time", parameters: {} },
} as const satisfies OpenAI.ChatCompletionFunctionTool;

test("answers of generate and of chatCompletion go back to either", { timeout: 30_000 }, async () => {
  await using server = await startTestServer(script);
  using client = createCodeAgentClient({ baseUrl: server.url });
  const messages: AnyMessage[] = [{ role: "ROLE_USER", content: "What time is it?" }];
  const tools = [{ name: "get_time", parameters: "{}" }];
  const first = await client.generate({ messages: messagesFrom(messages), tools });
  assert.deepEqual(
    [responseText(first), responseThinking(first), hasToolCalls(first)],
    ["One moment.", "where?", true],
  );
  messages.push(messageFromResponse(first), { role: "tool", content: "12:00", tool_call_id: "call_a" });
  const second = await chatCompletion(client, { messages, tools: [clock] });
  assert.deepEqual(
    [responseText(second), responseThinking(second), hasToolCalls(second)],
    ["It is noon.", "I know now.", false],
  );
  messages.push(messageFromResponse(second), { role: 1, content: "And in all?" });
  const third = await client.generate({ messages: messagesFrom(messages) });
  assert.equal(responseText(third), "That was two.");
});
