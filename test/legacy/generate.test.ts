import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { status } from "@grpc/grpc-js";
import { AgentError } from "../../src/chat/error.ts";
import type { LogEvent } from "../../src/chat/log-event.ts";
import type { ContentBlock } from "../../src/chat/message.ts";
import type { Chunk } from "../../src/rpc/legacy/era.ts";
import { legacyTurn } from "../../src/rpc/legacy/legacy-turn.ts";
import { fileContext } from "../support/file-context.ts";
import { startTestApp } from "../support/test-app.ts";
import { at, type Era, type LegacyClient, type LegacyMessage, legacyClients } from "./legacy-client.ts";

const script = `
- when: { text: { contains: think } }
  thinking: Deep thoughts.
  text: Thought.
- when: { text: { contains: loop } }
  tool_calls: [{ name: list_files, arguments: {} }]
- when: { tool: list_files }
  tool_calls: [{ name: list_files, arguments: { pattern: "*.md" } }]
- when: { text: { contains: wrong form } }
  text: "no JSON at all"
- when: { text: { contains: can't be used } }
  text: '{"name": "Ada", "age": 36}'
- when: { text: { contains: a person } }
  text: '{"name": "Ada", "age": 36}'
- when: { text: { contains: fail } }
  error: { status: 400, message: broken }
- when: { text: { contains: stumble } }
  text: half of it
  chunk: 4
  cut_after: 1
  once: true
- when: { text: { contains: stumble } }
  text: The whole.
- when: { text: { contains: long } }
  text: "long "
  finish_reason: length
- text: hello
`;

const schema = JSON.stringify({
  type: "object",
  properties: { name: { type: "string" }, age: { type: "integer" } },
  required: ["name", "age"],
});

describe("turns of the earlier service", () => {
  const shared = fileContext();
  let clients: Record<Era, LegacyClient>;

  before(async () => {
    const { app } = await startTestApp(shared, { script, flags: { "limits.max_steps": 3 } });
    clients = legacyClients(shared, app.url);
    await clients.L2.call("CreateSession", { session_id: "s1" });
  });

  const asking = (content: string, more: LegacyMessage = {}) => ({ messages: [{ role: "user", content }], ...more });

  test("thinking is no part of what is told", async () => {
    const chunks = await Array.fromAsync(clients.L2.stream("StreamGenerate", asking("think")));
    const told = chunks.map(({ type, content }) => [type, content]);
    assert.deepEqual(told, [
      ["content", "Thought."],
      ["done", "Thought."],
    ]);
    const answer = await clients.L2.call("Generate", asking("think"));
    assert.equal(at(answer, "message.content"), "Thought.");
  });

  test("a turn without a session has an id of its own, and turns of a session its id", async () => {
    const alone = await clients.L2.call("Generate", asking("hello"));
    assert.match(String(alone["session_id"]), /./);
    const inSession = await clients.L2.call("Generate", asking("hello", { session_id: "s1" }));
    assert.equal(inSession["session_id"], "s1");
    assert.match(String(at(inSession, "metadata.turn_id")), /^turn_/);
    assert.equal(at(inSession, "metadata.model"), "scripted/test");
  });

  test("reasons of the end", async () => {
    const bounded = await clients.L2.call("Generate", asking("loop"));
    assert.equal(bounded["finish_reason"], "length");
    assert.equal(at(bounded, "metadata.finish_reason"), "max_steps");
    const { tool_calls: calls } = bounded;
    assert.ok(Array.isArray(calls) && calls.length >= 2);
    const cut = await clients.L1.call("Generate", { messages: [{ role: "ROLE_USER", content: "long" }] });
    assert.equal(cut["finish_reason"], "FINISH_REASON_LENGTH");
    assert.equal(at(cut, "metadata.finish_reason"), undefined);
  });

  test("what a broken attempt showed stays, and done is without it", async () => {
    const chunks = await Array.fromAsync(clients.L2.stream("StreamGenerate", asking("stumble")));
    const shown = chunks.flatMap(({ type, content }) => (type === "content" ? [content] : []));
    assert.equal(shown.join(""), "halfThe whole.");
    assert.equal(chunks.at(-1)?.["content"], "The whole.");
  });

  test("a model that refuses is an error of the call", async () => {
    const isRefusal = (error: unknown) => {
      assert.notEqual(at(error, "code"), status.INTERNAL);
      return at(error, "code") !== undefined;
    };
    await assert.rejects(clients.L2.call("Generate", asking("fail")), isRefusal);
    await assert.rejects(Array.fromAsync(clients.L2.stream("StreamGenerate", asking("fail"))), isRefusal);
  });

  for (const words of ["a person", "wrong form"]) {
    test(`a structured answer: ${words}`, async () => {
      for (const era of ["L1", "L2"] as const) {
        const request = { messages: [{ role: era === "L1" ? "ROLE_USER" : "user", content: words }], schema };
        const { data } = await clients[era].call("GenerateStructured", request);
        assert.deepEqual(JSON.parse(String(data)), { name: "Ada", age: 36 });
        const chunks = await Array.fromAsync(clients[era].stream("StreamGenerateStructured", request));
        assert.deepEqual(JSON.parse(chunks.map((chunk) => chunk["data"]).join("")), { name: "Ada", age: 36 });
        assert.deepEqual(chunks.map(({ done }) => done).findIndex(Boolean), chunks.length - 1);
      }
    });
  }

  const badRequests: { name: string; rpc: string; request: LegacyMessage; says: RegExp }[] = [
    { name: "no schema", rpc: "GenerateStructured", request: asking("a"), says: /^schema: is empty/ },
    {
      name: "no JSON",
      rpc: "GenerateStructured",
      request: asking("a", { schema: "{" }),
      says: /^schema: can't be used/,
    },
    { name: "no messages", rpc: "GenerateStructured", request: { schema }, says: /^messages: is empty/ },
    { name: "id", rpc: "Generate", request: asking("a", { session_id: "../x" }), says: /^session_id: / },
  ];
  for (const { name, rpc, request, says } of badRequests) {
    test(`a bad request: ${name}`, async () => {
      await assert.rejects(clients.L2.call(rpc, request), (error) => {
        assert.match(String(at(error, "details")), says);
        return at(error, "code") === status.INVALID_ARGUMENT;
      });
    });
  }
});

describe("a turn told in chunks", () => {
  const step = (number: number, attempt: number): LogEvent => ({
    type: "step-started",
    step: number,
    attempt,
    model: "m",
    provider: "p",
  });
  const stepEnd = (number: number): LogEvent => ({
    type: "step-finished",
    step: number,
    attempt: 1,
    finishReason: "stop",
    rawFinishReason: "",
  });
  const say = (text: string, index = 0): LogEvent => ({ type: "block-delta", index, delta: { type: "text", text } });
  const stop = (block: ContentBlock, index = 0): LogEvent => ({ type: "block-stop", index, block });
  const call: ContentBlock = { type: "tool_use", id: "c1", name: "list_files", input: "{}" };
  const result: LogEvent = {
    type: "tool-finished",
    toolCallId: "c1",
    name: "list_files",
    result: { success: false, output: "", error: "no such folder", metadata: { code: "2" } },
  };
  const end: LogEvent = { type: "turn-finished", finishReason: "stop", steps: 1 };

  const rows: { name: string; events: LogEvent[]; told: string[]; text: string }[] = [
    {
      name: "text of a block that came whole",
      events: [step(1, 1), stop({ type: "text", text: "all" }), stepEnd(1), end],
      told: ["content all", "done"],
      text: "all",
    },
    {
      name: "the rest of a block of which a part was streamed",
      events: [step(1, 1), say("a"), stop({ type: "text", text: "abc" }), stepEnd(1), end],
      told: ["content a", "content bc", "done"],
      text: "abc",
    },
    {
      name: "two blocks and two steps",
      events: [step(1, 1), say("a"), say("b", 1), stepEnd(1), step(2, 1), say("c"), stepEnd(2), end],
      told: ["content a", "content b", "content c", "done"],
      text: "abc",
    },
    {
      name: "a voided attempt: its text was shown, done is without it, its call is never told",
      events: [step(1, 1), say("gone"), stop(call, 1), step(1, 2), say("kept"), stepEnd(1), end],
      told: ["content gone", "content kept", "done"],
      text: "kept",
    },
    {
      name: "a call and its result",
      events: [step(1, 1), stop(call), stepEnd(1), result, step(2, 1), say("x"), stepEnd(2), end],
      told: ["tool_call c1", "tool_result no such folder", "content x", "done"],
      text: "x",
    },
    {
      name: "a turn that was cancelled in the middle of a step",
      events: [step(1, 1), say("half"), { ...end, finishReason: "cancelled" }],
      told: ["content half", "done"],
      text: "half",
    },
  ];
  for (const { name, events, told, text } of rows) {
    test(name, () => {
      const turn = legacyTurn();
      const chunks = events.flatMap((event) => turn.add(event));
      assert.deepEqual(chunks.map(inShort), told);
      assert.equal(chunks.at(-1)?.content, text);
    });
  }

  test("results are told with their calls at the end", () => {
    const turn = legacyTurn();
    for (const event of [step(1, 1), stop(call), stepEnd(1), result]) turn.add(event);
    assert.equal(turn.toolCalls.length, 1);
    assert.equal(turn.toolCalls[0]?.result?.error, "no such folder");
    assert.deepEqual(turn.toolCalls[0]?.result?.metadata, { code: "2" });
  });

  test("usage, also where the provider told none", () => {
    const usage = { inputTokens: 3, outputTokens: 2 };
    const told = legacyTurn().add({ type: "turn-finished", finishReason: "budget", steps: 1, usage });
    const finish_reason = "budget";
    const metadata = { prompt_tokens: "3", completion_tokens: "2", total_tokens: "5", finish_reason };
    assert.deepEqual(told, [{ type: "done", content: "", metadata, finishReason: "length" }]);
    const [none] = legacyTurn().add({ type: "turn-finished", finishReason: "stop", steps: 1 });
    assert.deepEqual(none?.metadata, { prompt_tokens: "0", completion_tokens: "0", total_tokens: "0" });
  });

  test("a turn that failed ends with its error", () => {
    const error = { kind: "rate_limited", reason: "SLOW", message: "slow down", detail: {} } as const;
    const add = () => legacyTurn().add({ type: "turn-finished", finishReason: "error", steps: 1, error });
    assert.throws(add, (thrown) => thrown instanceof AgentError && thrown.kind === "rate_limited");
  });
});

function inShort({ type, content, toolCall, toolResult }: Chunk): string {
  if (type === "done") return type;
  return `${type} ${content ?? toolCall?.id ?? toolResult?.error}`;
}
