import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { AgentError } from "../../../src/chat/error.ts";
import { finishReasons } from "../../../src/chat/finish-reason.ts";
import type { LogEvent } from "../../../src/chat/log-event.ts";
import type { ContentBlock } from "../../../src/chat/message.ts";
import type { GenerateOptions } from "../../../src/chat/request.ts";
import type { AskedResponse } from "../../../src/convert/responses/asked.ts";
import { type ResponseEvent, responseFold } from "../../../src/convert/responses/event.ts";
import { messagesFromItems, type OutputItem } from "../../../src/convert/responses/item.ts";
import { responseId } from "../../../src/convert/responses/response-id.ts";

const step = (number: number, attempt = 1): LogEvent => ({
  type: "step-started",
  step: number,
  attempt,
  model: "m",
  provider: "p",
});
const stepFinished: LogEvent = {
  type: "step-finished",
  step: 1,
  attempt: 1,
  finishReason: "stop",
  rawFinishReason: "stop",
};
const textDelta = (index: number, text: string): LogEvent => ({
  type: "block-delta",
  index,
  delta: { type: "text", text },
});
const thinkingDelta = (index: number, thinking: string): LogEvent => ({
  type: "block-delta",
  index,
  delta: { type: "thinking", thinking },
});
const stop = (index: number, block: ContentBlock): LogEvent => ({ type: "block-stop", index, block });
const textStop = (index: number, text: string) => stop(index, { type: "text", text });
const thinkingStop = (index: number, thinking: string, signature = "s") =>
  stop(index, { type: "thinking", thinking, signature, provider: "p", model: "m", dialect: "d" });
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
const callStop = (index: number, id: string, name: string, input: string) =>
  stop(index, { type: "tool_use", id, name, input });
const toolFinished = (toolCallId: string, output: string): LogEvent => ({
  type: "tool-finished",
  toolCallId,
  name: "read_file",
  result: { success: true, output },
});
const finished = (finishReason: (typeof finishReasons)[number] = "stop"): LogEvent => ({
  type: "turn-finished",
  finishReason,
  steps: 1,
  usage: { inputTokens: 3, outputTokens: 4, reasoningTokens: 2 },
});
const started = (options: GenerateOptions = {}): LogEvent => ({
  type: "turn-started",
  requestId: "",
  principal: "",
  model: "p/asked",
  messages: [],
  options,
  tools: [clientTool],
});
const clientTool = { name: "client_tool", description: "", parameters: "" };
const asJson: GenerateOptions = { responseFormat: { type: "json_object" } };

interface Asked {
  readonly streams?: boolean;
  readonly seals?: boolean;
  readonly options?: GenerateOptions;
}

function told(events: readonly LogEvent[], { streams = true, seals = false, options = {} }: Asked = {}) {
  const asked: AskedResponse = { options, tools: [clientTool], seals, isStored: true };
  const fold = responseFold({ sessionId: "s1", turnId: "t1", createdMs: 1_999, asked, streams });
  const told = events.flatMap((event, index) => fold.push({ seq: index + 1, turnId: "t1", timeMs: 5_000, event }));
  return { events: told, body: fold.snapshot() };
}

/** What of items their ids, statuses and envelopes leave. */
function inShort(items: readonly OutputItem[]): string[] {
  return items.map((item) => {
    const status = item.status === "completed" ? "" : ` (${item.status})`;
    if (item.type === "message") return `says ${item.content.map(({ text }) => text).join("|")}${status}`;
    if (item.type === "function_call") return `calls ${item.call_id} ${item.name} ${item.arguments}${status}`;
    const sealed = item.encrypted_content === undefined ? "" : " sealed";
    return `thinks ${item.summary.map(({ text }) => text).join("|")}${sealed}${status}`;
  });
}

/** A client that puts the deltas together by itself, as simple as may be, and checks what holds of any stream. */
function foldedByClient(events: readonly ResponseEvent[]): OutputItem[] {
  const items: OutputItem[] = [];
  const texts: string[] = [];
  for (const [index, event] of events.entries()) {
    assert.equal(event.sequence_number, index);
    if ("response" in event) continue;
    const place = event.output_index;
    if ("item_id" in event) assert.equal(event.item_id, items[place]?.id);
    switch (event.type) {
      case "response.output_item.added":
        assert.equal(place, items.length);
        assert.equal(event.item.status, "in_progress");
        items.push(event.item);
        texts.push("");
        break;
      case "response.output_text.delta":
      case "response.reasoning_summary_text.delta":
      case "response.function_call_arguments.delta":
        assert.equal(items[place]?.status, "in_progress");
        texts[place] += event.delta;
        break;
      case "response.output_text.done":
      case "response.reasoning_summary_text.done":
        assert.equal(event.text, texts[place]);
        break;
      case "response.function_call_arguments.done":
        assert.equal(event.arguments, texts[place]);
        break;
      case "response.output_item.done": {
        const { item } = event;
        const whole =
          item.type === "function_call"
            ? item.arguments
            : item.type === "message"
              ? item.content.map(({ text }) => text).join("")
              : item.summary.map(({ text }) => text).join("");
        assert.equal(whole, texts[place]);
        items[place] = item;
        break;
      }
      default:
        break;
    }
  }
  return items;
}

const turns: [name: string, events: LogEvent[], output: string[], asked?: Asked][] = [
  [
    "text",
    [step(1), textDelta(0, "Hel"), textDelta(0, "lo"), textStop(0, "Hello"), stepFinished, finished()],
    ["says Hello"],
  ],
  ["a block without deltas", [step(1), textStop(0, "Hello"), finished()], ["says Hello"]],
  ["an empty text is no message", [step(1), textStop(0, ""), finished()], []],
  ["a late reader gets the rest of a block", [textDelta(0, "Hel"), textStop(0, "Hello"), finished()], ["says Hello"]],
  [
    "thinking, with its envelope where it was asked for",
    [step(1), thinkingDelta(0, "h"), thinkingStop(0, "hm"), textStop(1, "yes"), finished()],
    ["thinks hm sealed", "says yes"],
    { seals: true },
  ],
  [
    "thinking, in the open otherwise",
    [step(1), thinkingDelta(0, "h"), thinkingStop(0, "hm"), finished()],
    ["thinks hm"],
  ],
  [
    "redacted thinking has nothing to show but its envelope",
    [step(1), stop(0, { type: "redacted_thinking", data: "x" }), textStop(1, "yes"), finished()],
    ["says yes"],
  ],
  [
    "reasoning by its text, or its summaries",
    [
      step(1),
      stop(0, { type: "reasoning", content: "", summary: ["a", "b"], encrypted: "e" }),
      stop(1, { type: "reasoning", content: "c", summary: ["a"] }),
      finished(),
    ],
    ["thinks a\n\nb", "thinks c"],
  ],
  [
    "the client's calls, not the server's",
    [
      step(1),
      textStop(0, "x"),
      callStart(1, "c1", "client_tool"),
      callDelta(1, '{"a":'),
      callStop(1, "c1", "client_tool", '{"a":1}'),
      callStart(2, "s1", "read_file"),
      callDelta(2, "{}"),
      callStop(2, "s1", "read_file", "{}"),
      callStop(3, "c2", "client_tool", "{}"),
      finished("tool_calls"),
    ],
    ["says x", 'calls c1 client_tool {"a":1}', "calls c2 client_tool {}"],
  ],
  [
    "all steps, in order",
    [
      step(1),
      textStop(0, "Look: "),
      callStop(1, "s1", "read_file", "{}"),
      stepFinished,
      toolFinished("s1", "secret"),
      step(2),
      textStop(0, "4"),
      finished(),
    ],
    ["says Look: ", "says 4"],
  ],
  [
    "where JSON was asked for, only the last answer",
    [step(1), textDelta(0, "no"), textStop(0, "no JSON"), stepFinished, step(2), textStop(0, "{}"), finished()],
    ["says {}"],
    { options: asJson },
  ],
  [
    "a new attempt that says the same goes on where the one before broke off",
    [
      step(1),
      textDelta(0, "Hel"),
      step(1, 2),
      textDelta(0, "He"),
      textDelta(0, "llo"),
      textStop(0, "Hello"),
      stepFinished,
      finished(),
    ],
    ["says Hello"],
  ],
  [
    "thinking of an attempt that was voided stays, incomplete",
    [
      step(1),
      thinkingDelta(0, "h"),
      step(1, 2),
      thinkingDelta(0, "so"),
      thinkingStop(0, "so"),
      textStop(1, "yes"),
      finished(),
    ],
    ["thinks h (incomplete)", "thinks so sealed", "says yes"],
    { seals: true },
  ],
  [
    "a new attempt does not think after what it led to was shown",
    [step(1), textDelta(0, "Hel"), step(1, 2), thinkingStop(0, "hm"), textStop(1, "Hello"), finished()],
    ["says Hello"],
  ],
  [
    "without a stream, what was voided is gone",
    [step(1), thinkingStop(0, "h"), textStop(1, "Hal"), step(1, 2), textStop(0, "Hello"), finished()],
    ["says Hello"],
    { streams: false },
  ],
  ["what was cut off is incomplete", [step(1), textDelta(0, "Hel"), finished("cancelled")], ["says Hel (incomplete)"]],
  ["nothing", [finished()], []],
];
describe("a turn's output is told", () => {
  for (const [name, events, output, asked] of turns)
    test(name, () => {
      const { events: streamed, body } = told([started(asked?.options), ...events], asked);
      assert.deepEqual(inShort(body.output), output);
      if (asked?.streams !== false) assert.deepEqual(inShort(foldedByClient(streamed)), output);
    });
});

test("a stream begins, opens, says and ends in the vendor's order", () => {
  const events = [
    started(),
    step(1),
    thinkingDelta(0, "hm"),
    thinkingStop(0, "hm"),
    textDelta(1, "yes"),
    textStop(1, "yes"),
  ];
  const { events: streamed } = told([...events, callStop(2, "c1", "client_tool", "{}"), finished("tool_calls")]);
  assert.deepEqual(
    streamed.map(({ type }) => type.replace("response.", "")),
    [
      ...["created", "in_progress"],
      ...["output_item.added", "reasoning_summary_part.added", "reasoning_summary_text.delta"],
      ...["reasoning_summary_text.done", "reasoning_summary_part.done", "output_item.done"],
      ...["output_item.added", "content_part.added", "output_text.delta"],
      ...["output_text.done", "content_part.done", "output_item.done"],
      ...["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"],
      "completed",
    ],
  );
});

describe("the end is told in the vendor's words", () => {
  const ends: [string, string, string, string | undefined][] = [
    ["stop", "response.completed", "completed", undefined],
    ["tool_calls", "response.completed", "completed", undefined],
    ["length", "response.incomplete", "incomplete", "max_output_tokens"],
    ["budget", "response.incomplete", "incomplete", "max_output_tokens"],
    ["max_steps", "response.incomplete", "incomplete", "max_output_tokens"],
    ["content_filter", "response.incomplete", "incomplete", "content_filter"],
    ["cancelled", "response.incomplete", "cancelled", undefined],
    ["error", "response.failed", "failed", undefined],
  ];
  test("all of them", () => assert.deepEqual(ends.map(([reason]) => reason).sort(), [...finishReasons].sort()));
  for (const reason of finishReasons)
    test(reason, () => {
      const { events, body } = told([started(), finished(reason)]);
      const expected = ends.find(([known]) => known === reason)?.slice(1);
      assert.deepEqual([events.at(-1)?.type, body.status, body.incomplete_details?.reason], expected);
    });
});

test("a failed turn says why", () => {
  const error = { kind: "rate_limited", reason: "RATE_LIMITED", message: "slow down", detail: {} } as const;
  const { events, body } = told([started(), step(1), textDelta(0, "Hel"), { ...failed, error }]);
  assert.deepEqual(body.error, { code: "rate_limit_exceeded", message: "slow down" });
  assert.deepEqual(inShort(body.output), ["says Hel (incomplete)"]);
  assert.equal(events.at(-1)?.type, "response.failed");
});
const failed = { type: "turn-finished", finishReason: "error", steps: 1 } as const;

describe("a stream that showed what a new attempt voids can't go on", () => {
  const streams: [name: string, events: LogEvent[]][] = [
    ["another text", [step(1), textDelta(0, "Hal"), step(1, 2), textDelta(0, "Hello")]],
    ["less text", [step(1), textDelta(0, "Hello"), step(1, 2), textStop(0, "Hel")]],
    ["no text", [step(1), textDelta(0, "Hello"), step(1, 2), { ...stepFinished, attempt: 2 }]],
    ["more text than a message that ended", [step(1), textStop(0, "Hel"), step(1, 2), textDelta(0, "Hello")]],
    ["a call", [step(1), callStart(0, "c1", "client_tool"), step(1, 2)]],
  ];
  for (const [name, events] of streams)
    test(name, () =>
      assert.throws(
        () => told([started(), ...events]),
        (error) => error instanceof AgentError && error.kind === "unavailable" && error.detail.retryable === true,
      ),
    );
});

test("what the server did and rejected goes along in envelopes, in order", () => {
  const events: LogEvent[] = [
    started(asJson),
    step(1),
    thinkingStop(0, "hm"),
    textStop(1, "I'll look"),
    callStop(2, "s1", "read_file", "{}"),
    stepFinished,
    toolFinished("s1", "secret"),
    step(2),
    textStop(0, "not JSON"),
    stepFinished,
    { type: "notice", level: "warning", code: "ANSWER_INVALID", message: "", modelText: "give JSON" },
    step(3),
    textStop(0, "{}"),
    finished(),
  ];
  const { events: streamed, body } = told(events, { seals: true, options: asJson });
  assert.deepEqual(inShort(foldedByClient(streamed)), inShort(body.output));
  assert.deepEqual(
    body.output.filter((item) => item.type === "message").map(({ content }) => content[0]?.text),
    ["{}"],
  );
  assert.deepEqual(messagesFromItems(body.output, ""), [
    {
      role: "assistant",
      blocks: [
        { type: "thinking", thinking: "hm", signature: "s", provider: "p", model: "m", dialect: "d" },
        { type: "text", text: "I'll look" },
        { type: "tool_use", id: "s1", name: "read_file", input: "{}" },
      ],
    },
    { role: "tool", blocks: [{ type: "tool_result", toolUseId: "s1", content: "secret" }] },
    { role: "assistant", blocks: [{ type: "text", text: "not JSON" }] },
    { role: "user", blocks: [{ type: "text", text: "give JSON" }] },
    { role: "assistant", blocks: [{ type: "text", text: "{}" }] },
  ]);
});

test("what goes along in envelopes stands where it was in its answer", () => {
  const blocks: ContentBlock[] = [
    { type: "text", text: "I look" },
    { type: "tool_use", id: "s1", name: "read_file", input: "{}" },
    { type: "thinking", thinking: "hm", signature: "s" },
    { type: "tool_use", id: "c1", name: "client_tool", input: "{}" },
    { type: "unknown", unknownType: "search", raw: Buffer.from("{}") },
    { type: "redacted_thinking", data: "x" },
    { type: "text", text: "{}" },
  ];
  for (const options of [{}, asJson])
    for (const streams of [true, false]) {
      const events = [started(options), step(1), ...blocks.map((block, index) => stop(index, block)), finished()];
      const { body } = told(events, { seals: true, streams, options });
      assert.deepEqual(messagesFromItems(JSON.parse(JSON.stringify(body.output)), ""), [
        {
          role: "assistant",
          blocks: blocks.map((block) => ("raw" in block ? { ...block, raw: new Uint8Array([123, 125]) } : block)),
        },
      ]);
    }
});

test("of an attempt that was voided nothing goes along in the end, neither its reasoning nor its calls", () => {
  const events = [
    ...[started(), step(1), thinkingStop(0, "h"), callStop(1, "s1", "read_file", "{}")],
    ...[step(1, 2), thinkingStop(0, "so"), textStop(1, "yes"), finished()],
  ];
  const output = ["thinks h", "thinks so sealed", "says yes"];
  assert.deepEqual(inShort(told(events, { seals: true }).body.output), output);
});

test("a response tells what was asked for and what it took", () => {
  const options: GenerateOptions = {
    temperature: 0.5,
    maxTokens: 9,
    toolChoice: "client_tool",
    thinking: { enabled: true, effort: "low" },
    metadata: {
      a: "b",
      "codeagent.responses": '{"hasInstructions":true,"summary":"auto","previousResponseId":"resp_1"}',
    },
  };
  const messages = [{ role: "system", blocks: [{ type: "text", text: "be brief" }] } as const];
  const first = { ...started(options), messages };
  const fold = responseFold({ sessionId: "s1", turnId: "t1", createdMs: 1, streams: false });
  for (const event of [first, step(1), finished()]) fold.push({ seq: 1, turnId: "t1", timeMs: 5_900, event });
  assert.deepEqual(fold.snapshot(), {
    id: responseId("s1", "t1"),
    object: "response",
    created_at: 5,
    status: "completed",
    background: false,
    completed_at: 5,
    error: null,
    incomplete_details: null,
    instructions: "be brief",
    max_output_tokens: 9,
    max_tool_calls: null,
    metadata: { a: "b" },
    model: "p/m",
    output: [],
    parallel_tool_calls: true,
    previous_response_id: "resp_1",
    conversation: null,
    reasoning: { effort: "low", summary: "auto" },
    store: false,
    temperature: 0.5,
    text: { format: { type: "text" } },
    tool_choice: { type: "function", name: "client_tool" },
    tools: [{ type: "function", name: "client_tool", description: "", parameters: {}, strict: false }],
    top_logprobs: 0,
    top_p: null,
    truncation: "auto",
    usage: {
      input_tokens: 3,
      input_tokens_details: { cached_tokens: 0, cache_write_tokens: 0 },
      output_tokens: 4,
      output_tokens_details: { reasoning_tokens: 2 },
      total_tokens: 7,
    },
    access_programs: null,
  });
});

test("what a client puts together from the stream is what the response says, whatever the turn and its cuts", () => {
  const piece = fc.string({ minLength: 1, maxLength: 6 });
  const block = fc.oneof(
    fc.array(piece, { maxLength: 3 }).map((pieces) => ({ type: "text" as const, pieces })),
    fc.array(piece, { maxLength: 3 }).map((pieces) => ({ type: "thinking" as const, pieces })),
    fc.constantFrom("client_tool", "read_file").map((name) => ({ type: "call" as const, name, pieces: ["{", "}"] })),
  );
  const plan = fc.record({
    steps: fc.array(fc.record({ blocks: fc.array(block, { maxLength: 4 }), isAgain: fc.boolean() }), { maxLength: 3 }),
    seals: fc.boolean(),
    json: fc.boolean(),
    finishReason: fc.constantFrom(...finishReasons),
  });
  fc.assert(
    fc.property(plan, ({ steps, seals, json, finishReason }) => {
      const options = json ? asJson : {};
      const attempt = (blocks: (typeof steps)[number]["blocks"], stepIndex: number): LogEvent[] =>
        blocks.flatMap((one, index) => {
          const whole = one.pieces.join("");
          if (one.type === "text") return [...one.pieces.map((text) => textDelta(index, text)), textStop(index, whole)];
          if (one.type === "thinking")
            return [...one.pieces.map((text) => thinkingDelta(index, text)), thinkingStop(index, whole)];
          const id = `c${stepIndex}-${index}`;
          const deltas = one.pieces.map((text) => callDelta(index, text));
          return [callStart(index, id, one.name), ...deltas, callStop(index, id, one.name, whole)];
        });
      const events = steps.flatMap(({ blocks, isAgain }, index): LogEvent[] => {
        const hasCall = blocks.some((one) => one.type === "call" && one.name === "client_tool");
        const before = isAgain && !hasCall ? [step(index + 1), ...attempt(blocks, index)] : [];
        const again = step(index + 1, before.length > 0 ? 2 : 1);
        return [...before, again, ...attempt(blocks, index), { ...stepFinished, step: index + 1 }];
      });
      const { events: streamed, body } = told([started(options), ...events, finished(finishReason)], {
        seals,
        options,
      });
      assert.deepEqual(foldedByClient(streamed).map(withoutEnvelope), body.output.map(withoutEnvelope));
      const whole = told([started(options), ...events, finished(finishReason)], {
        seals,
        options,
        streams: false,
      }).body;
      const saying = (items: OutputItem[]) => inShort(items.filter(({ type }) => type === "message"));
      assert.deepEqual(saying(whole.output), saying(body.output));
    }),
    { numRuns: 300 },
  );
});

/** That of an attempt which was voided is taken back in the end only. */
function withoutEnvelope(item: OutputItem): unknown {
  return item.type === "reasoning" ? { ...item, encrypted_content: undefined } : item;
}
