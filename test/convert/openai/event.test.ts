import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { finishReasons } from "../../../src/chat/finish-reason.ts";
import type { LogEvent } from "../../../src/chat/log-event.ts";
import { chunksFromLogEvents } from "../../../src/convert/openai/event.ts";
import { completionFinishReasons, completionFromResponse } from "../../../src/convert/openai/response.ts";
import type { TurnAnswer } from "../../../src/convert/turn-answer.ts";

const step = (number: number, attempt = 1): LogEvent => ({
  type: "step-started",
  step: number,
  attempt,
  model: "m",
  provider: "p",
});
const textDelta = (index: number, text: string): LogEvent => ({
  type: "block-delta",
  index,
  delta: { type: "text", text },
});
const textStop = (index: number, text: string): LogEvent => ({
  type: "block-stop",
  index,
  block: { type: "text", text },
});
const callStart = (index: number, id: string, name: string): LogEvent => ({
  type: "block-start",
  index,
  blockType: "tool_use",
  id,
  name,
});
const callDelta = (index: number, inputJson: string): LogEvent => ({
  type: "block-delta",
  index,
  delta: { type: "input_json", inputJson },
});
const callStop = (index: number, id: string, name: string, input: string): LogEvent => ({
  type: "block-stop",
  index,
  block: { type: "tool_use", id, name, input },
});
const finished = (finishReason: (typeof finishReasons)[number] = "stop"): LogEvent => ({
  type: "turn-finished",
  finishReason,
  steps: 1,
  usage: { inputTokens: 3, outputTokens: 4 },
});
const stepFinished: LogEvent = {
  type: "step-finished",
  step: 1,
  attempt: 1,
  finishReason: "stop",
  rawFinishReason: "stop",
};

function chunksOf(events: readonly LogEvent[], includeUsage = false) {
  const clientTools = new Set(["client_tool"]);
  const chunksFrom = chunksFromLogEvents({ turnId: "t1", model: "p/m", createdMs: 1_999, clientTools, includeUsage });
  return events.flatMap((event) => chunksFrom(event));
}
const deltasOf = (events: readonly LogEvent[]) => chunksOf(events).map((chunk) => chunk.choices[0]?.delta);
const asJson = { responseFormat: { type: "json_object" } } as const;
const role = { role: "assistant", content: "" };
const callHead = (index: number, id: string) => ({
  tool_calls: [{ index, id, type: "function", function: { name: "client_tool", arguments: "" } }],
});
const callRest = (index: number, text: string) => ({ tool_calls: [{ index, function: { arguments: text } }] });

const turns: [name: string, events: LogEvent[], deltas: object[]][] = [
  [
    "text comes as it is written, the role once before it",
    [step(1), textDelta(0, "Hel"), textDelta(0, "lo"), textStop(0, "Hello"), stepFinished, finished()],
    [role, { content: "Hel" }, { content: "lo" }, {}],
  ],
  [
    "where JSON was asked for, only the last answer is shown, at its end",
    [
      { type: "turn-started", requestId: "", principal: "", model: "p/m", messages: [], tools: [], options: asJson },
      step(1),
      { type: "block-delta", index: 0, delta: { type: "thinking", thinking: "hm" } },
      textDelta(1, "no "),
      textStop(1, "no JSON"),
      stepFinished,
      step(2),
      textDelta(0, '{"a"'),
      textStop(0, '{"a":1}'),
      stepFinished,
      finished(),
    ],
    [role, { reasoning_content: "hm" }, { content: '{"a"' }, { content: ":1}" }, {}],
  ],
  ["a block without deltas comes whole", [step(1), textStop(0, "Hello"), finished()], [role, { content: "Hello" }, {}]],
  [
    "a late reader gets the rest of a block",
    [textDelta(0, "Hel"), textStop(0, "Hello"), finished()],
    [role, { content: "Hel" }, { content: "lo" }, {}],
  ],
  [
    "a block that turned out otherwise adds nothing",
    [step(1), textDelta(0, "Hal"), textStop(0, "Hello"), finished()],
    [role, { content: "Hal" }, {}],
  ],
  [
    "thinking and reasoning come as reasoning_content, signatures not at all",
    [
      step(1),
      { type: "block-delta", index: 0, delta: { type: "thinking", thinking: "hm" } },
      { type: "block-delta", index: 0, delta: { type: "signature", signature: "s" } },
      { type: "block-stop", index: 0, block: { type: "thinking", thinking: "hm", signature: "s" } },
      { type: "block-delta", index: 1, delta: { type: "reasoning", reasoning: "so" } },
      { type: "block-stop", index: 2, block: { type: "reasoning", content: "", summary: ["a", "b"] } },
      { type: "block-stop", index: 3, block: { type: "redacted_thinking", data: "x" } },
      finished(),
    ],
    [role, { reasoning_content: "hm" }, { reasoning_content: "so" }, { reasoning_content: "a\n\nb" }, {}],
  ],
  [
    "the client's calls are counted on their own, whatever came between",
    [
      step(1),
      textDelta(0, "x"),
      callStart(1, "c1", "client_tool"),
      callDelta(1, '{"a":'),
      callDelta(1, "1}"),
      callStop(1, "c1", "client_tool", '{"a":1}'),
      callStart(2, "s1", "read_file"),
      callDelta(2, "{}"),
      callStop(2, "s1", "read_file", "{}"),
      callStop(3, "c2", "client_tool", "{}"),
      finished("tool_calls"),
    ],
    [
      role,
      { content: "x" },
      callHead(0, "c1"),
      callRest(0, '{"a":'),
      callRest(0, "1}"),
      callHead(1, "c2"),
      callRest(1, "{}"),
      {},
    ],
  ],
  [
    "text goes on after the server's own tools, without their calls and without a second role",
    [
      step(1),
      textDelta(0, "Look: "),
      callStart(1, "s1", "read_file"),
      callDelta(1, "{}"),
      callStop(1, "s1", "read_file", "{}"),
      stepFinished,
      { type: "tool-started", toolCallId: "s1", name: "read_file", source: "local", readOnly: true },
      { type: "tool-output", toolCallId: "s1", stream: "stdout", text: "secret" },
      { type: "tool-finished", toolCallId: "s1", name: "read_file", result: { success: true, output: "secret" } },
      step(2),
      textDelta(0, "4"),
      textStop(0, "4"),
      finished(),
    ],
    [role, { content: "Look: " }, { content: "4" }, {}],
  ],
  [
    "a new attempt goes on after the text of the old one",
    [step(1), textDelta(0, "Hel"), step(1, 2), textDelta(0, "Hello"), textStop(0, "Hello"), finished()],
    [role, { content: "Hel" }, { content: "Hello" }, {}],
  ],
  ["an empty turn still has a role and an end", [finished()], [role, {}]],
];
describe("a turn is streamed as one answer", () => {
  for (const [name, events, deltas] of turns) test(name, () => assert.deepEqual(deltasOf(events), deltas));
});

test("each chunk is whole: id, time in seconds, the turn's model, one choice", () => {
  const started: LogEvent = {
    type: "turn-started",
    requestId: "",
    principal: "",
    model: "p/better",
    messages: [],
    options: {},
    tools: [],
  };
  assert.deepEqual(chunksOf([started, step(1)]), [
    {
      id: "chatcmpl-t1",
      object: "chat.completion.chunk",
      created: 1,
      model: "p/better",
      choices: [{ index: 0, delta: role, finish_reason: null, logprobs: null }],
    },
  ]);
});

describe("the end comes in a chunk of its own, in OpenAI's words", () => {
  const words = { stop: "stop", length: "length", tool_calls: "tool_calls", content_filter: "content_filter" };
  const ours = { cancelled: "stop", error: "stop", budget: "length", max_steps: "length" };
  for (const [reason, word] of Object.entries({ ...words, ...ours }))
    test(reason, () => {
      const known = finishReasons.find((other) => other === reason);
      assert.ok(known !== undefined);
      const chunks = chunksOf([step(1), textDelta(0, "x"), finished(known)]);
      assert.deepEqual(
        chunks.map((chunk) => chunk.choices[0]?.finish_reason),
        [null, null, word],
      );
      assert.equal(completionFinishReasons[known], word);
    });
});

test("usage comes last, without choices, when it was asked for; before it is null", () => {
  const chunks = chunksOf([step(1), textDelta(0, "x"), finished()], true);
  const usage = { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 };
  assert.deepEqual(
    chunks.map((chunk) => chunk.usage),
    [null, null, null, usage],
  );
  assert.deepEqual(chunks.at(-1)?.choices, []);
  const unasked = chunksOf([step(1), finished()]);
  assert.ok(unasked.every((chunk) => !("usage" in chunk)));
  const unknown = chunksOf([step(1), { type: "turn-finished", finishReason: "stop", steps: 1 }], true);
  assert.deepEqual(
    unknown.map((chunk) => chunk.choices.length),
    [1, 1],
  );
});

test("a failed turn throws its error instead of ending like a whole one", () => {
  const error = {
    kind: "rate_limited",
    reason: "RATE_LIMITED",
    message: "wait",
    detail: { retryable: true },
    retryAfterMs: 5,
  } as const;
  assert.throws(() => chunksOf([step(1), { type: "turn-finished", finishReason: "error", steps: 1, error }]), {
    name: "AgentError",
    ...error,
  });
});

test("a call the client has seen is never followed by another attempt at it", () => {
  const events = [step(1), callStart(0, "c1", "client_tool"), step(1, 2)];
  assert.throws(() => chunksOf(events), { kind: "unavailable", message: /attempt 2 begins anew/ });
  assert.doesNotThrow(() => chunksOf([step(1), callStart(0, "s1", "read_file"), step(1, 2)]));
  assert.doesNotThrow(() => chunksOf([step(1), callStart(0, "c1", "client_tool"), step(2), step(2, 2)]));
});

const answer: TurnAnswer = {
  sessionId: "s",
  turnId: "t1",
  model: "p/m",
  message: {
    role: "assistant",
    blocks: [
      { type: "thinking", thinking: "hm", signature: "s" },
      { type: "text", text: "hi" },
      { type: "tool_use", id: "s1", name: "read_file", input: "{}" },
      { type: "tool_use", id: "c1", name: "client_tool", input: "{" },
    ],
  },
  toolCalls: [{ type: "tool_use", id: "c1", name: "client_tool", input: "{" }],
  usage: { inputTokens: 3, outputTokens: 4 },
  finishReason: "tool_calls",
  rawFinishReason: "tool_use",
  lastSeq: 9,
  steps: 1,
  metadata: {},
};

test("an answer is told with the calls that are left for the client", () =>
  assert.deepEqual(completionFromResponse(answer, 2_500), {
    id: "chatcmpl-t1",
    object: "chat.completion",
    created: 2,
    model: "p/m",
    choices: [
      {
        index: 0,
        message: {
          role: "assistant",
          content: "hi",
          refusal: null,
          reasoning_content: "hm",
          tool_calls: [{ id: "c1", type: "function", function: { name: "client_tool", arguments: "{" } }],
        },
        finish_reason: "tool_calls",
        logprobs: null,
      },
    ],
    usage: { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 },
  }));

test("an answer without text has null content beside calls and empty content without", () => {
  const { message: _, usage: __, ...bare } = answer;
  const withCalls = completionFromResponse(bare, 0);
  assert.equal(withCalls.choices[0]?.message.content, null);
  assert.ok(!("usage" in withCalls));
  const without = completionFromResponse({ ...bare, toolCalls: [], finishReason: "stop" }, 0);
  assert.deepEqual(without.choices[0]?.message, { role: "assistant", content: "", refusal: null });
});
