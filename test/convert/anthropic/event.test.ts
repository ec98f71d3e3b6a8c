import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { MessageStream } from "@anthropic-ai/sdk/lib/MessageStream";
import fc from "fast-check";
import { AgentError } from "../../../src/chat/error.ts";
import { finishReasons } from "../../../src/chat/finish-reason.ts";
import type { LogEvent } from "../../../src/chat/log-event.ts";
import type { ContentBlock, Message, ThinkingBlock, ToolUseBlock } from "../../../src/chat/message.ts";
import { messagesFromAnthropic } from "../../../src/convert/anthropic/content.ts";
import type { AnthropicMessage, AnthropicStreamEvent } from "../../../src/convert/anthropic/response.ts";
import { openBlock } from "../../../src/convert/sealed-reasoning.ts";
import { emptyState, foldRecord } from "../../../src/session/state.ts";
import { blockOf, filledText, jsonObject } from "../arbitrary.ts";
import {
  blockEvents,
  clientTool,
  cutBlock,
  stepFinished,
  stepStarted,
  tell,
  toolFinished,
  turnFinished,
  turnStarted,
} from "./turns.ts";

const text = (words: string): ContentBlock => ({ type: "text", text: words });
const thought: ThinkingBlock = {
  type: "thinking",
  thinking: "Hmm, well.",
  signature: "sig",
  provider: "anthropic",
  model: "claude",
  dialect: "anthropic-messages",
};
const call = (name: string, id = "call_1"): ToolUseBlock => ({ type: "tool_use", id, name, input: '{"path": "a"}' });

/** What a reader of the stream holds at its end. */
async function folded(told: readonly AnthropicStreamEvent[]): Promise<unknown> {
  const lines = told.map((event) => `${JSON.stringify(event)}\n`).join("");
  const stream = MessageStream.fromReadableStream(new Blob([lines]).stream());
  const { parsed_output: _, ...message } = await stream.finalMessage();
  return JSON.parse(JSON.stringify({ ...message, content: message.content.map(withoutParsed) }));
}

function withoutParsed(block: object): object {
  const { parsed: _, ...rest } = { parsed: undefined, ...block };
  return rest;
}

function inJson(message: AnthropicMessage): unknown {
  return JSON.parse(JSON.stringify(message));
}

function sentBack(message: AnthropicMessage): Message[] {
  return messagesFromAnthropic(inJson({ ...message }), "messages.0", {});
}

/** The history of a session that ran the turn. */
function history(events: readonly LogEvent[]): Message[] {
  const state = emptyState([]);
  for (const [index, event] of events.entries()) foldRecord(state, { seq: index + 1, turnId: "t1", timeMs: 1, event });
  return state.messages.map(({ role, blocks }) => ({ role, blocks }));
}

/** Says the blocks of an answer, whose envelopes it opens. */
function shown(message: AnthropicMessage): unknown[] {
  return message.content.map((block) => {
    if (block.type === "text") return block.text;
    if (block.type === "redacted_thinking") return openBlock(block.data);
    if (block.type === "thinking") return { thinking: block.thinking, sealed: openBlock(block.signature) };
    return { call: block.name, input: block.input };
  });
}

const serverCall = call("shell");

describe("a turn is one message", () => {
  const turns: readonly { name: string; events: LogEvent[]; content: unknown[]; stop?: string }[] = [
    {
      name: "text and thinking, whose signature is an envelope",
      events: [
        stepStarted(1),
        ...blockEvents(0, thought),
        ...blockEvents(1, text("Hello")),
        stepFinished(),
        turnFinished(),
      ],
      content: [{ thinking: "Hmm, well.", sealed: thought }, "Hello"],
    },
    {
      name: "what the server's tools did, between what was said before and after",
      events: [
        stepStarted(1),
        ...blockEvents(0, text("Let me look.")),
        ...blockEvents(1, serverCall),
        stepFinished(),
        toolFinished("call_1", "no such file", false),
        stepStarted(2),
        ...blockEvents(0, text("It is gone.")),
        stepFinished(2),
        turnFinished(),
      ],
      content: [
        "Let me look.",
        serverCall,
        { type: "tool_result", toolUseId: "call_1", content: "error: no such file", isError: true },
        "It is gone.",
      ],
    },
    {
      name: "the client's call ends it, the server's own beside it has run",
      events: [
        stepStarted(1),
        ...blockEvents(0, call(clientTool, "call_2")),
        ...blockEvents(1, serverCall),
        stepFinished(),
        toolFinished("call_1", "done"),
        turnFinished("tool_calls"),
      ],
      content: [
        { call: clientTool, input: { path: "a" } },
        serverCall,
        { type: "tool_result", toolUseId: "call_1", content: "done" },
      ],
      stop: "tool_use",
    },
    {
      name: "where JSON was asked for, the last answer is the only text",
      events: [
        turnStarted({ responseFormat: { type: "json_object" } }),
        stepStarted(1),
        ...blockEvents(0, thought),
        ...blockEvents(1, text("no JSON")),
        stepFinished(),
        { type: "notice", level: "warning", code: "ANSWER_REJECTED", message: "", modelText: "Only JSON." },
        stepStarted(2),
        ...blockEvents(0, text('{"a":1}')),
        stepFinished(2),
        turnFinished(),
      ],
      content: [
        { thinking: "Hmm, well.", sealed: thought },
        { type: "text", text: "no JSON" },
        { type: "note", text: "Only JSON." },
        '{"a":1}',
      ],
    },
    {
      name: "nothing at all",
      events: [stepStarted(1), stepFinished(), turnFinished()],
      content: [],
    },
    {
      name: "thinking that says nothing, and a text that is empty, are not there",
      events: [
        stepStarted(1),
        ...blockEvents(0, { type: "thinking", thinking: "" }),
        ...blockEvents(1, text("")),
        stepFinished(),
        turnFinished(),
      ],
      content: [],
    },
    {
      name: "reasoning of another wire family is shown as thinking",
      events: [
        stepStarted(1),
        ...blockEvents(0, { type: "reasoning", content: "", summary: ["First.", "Then."], encrypted: "e", id: "rs_1" }),
        stepFinished(),
        turnFinished(),
      ],
      content: [
        {
          thinking: "First.\n\nThen.",
          sealed: { type: "reasoning", content: "", summary: ["First.", "Then."], encrypted: "e", id: "rs_1" },
        },
      ],
    },
    {
      name: "reasoning after a compaction is not sent back",
      events: [
        stepStarted(1),
        ...blockEvents(0, serverCall),
        stepFinished(),
        toolFinished("call_1", "done"),
        {
          type: "history-compacted",
          droppedMessages: 2,
          keptMessages: 1,
          summary: "",
          keptMessageIds: [],
          trigger: "share",
        },
        stepStarted(2),
        ...blockEvents(0, thought),
        ...blockEvents(1, { type: "redacted_thinking", data: "x" }),
        stepFinished(2),
        turnFinished(),
      ],
      content: [
        serverCall,
        { type: "tool_result", toolUseId: "call_1", content: "done" },
        { thinking: "Hmm, well.", sealed: { type: "thinking", thinking: "", dialect: "none" } },
      ],
    },
  ];
  for (const { name, events, content, stop = "end_turn" } of turns) {
    test(name, async () => {
      const { told, message } = tell(events);
      assert.deepEqual(shown(message), content);
      assert.equal(message.stop_reason, stop);
      assert.deepEqual(await folded(told), inJson(message));
      assert.deepEqual(tell(events, { stream: false }), { told: [], message });
    });
  }
});

test("the events of a stream stand in the order and under the names of the vendor", () => {
  const { told } = tell([
    stepStarted(1),
    ...blockEvents(0, thought, 20),
    ...blockEvents(1, call(clientTool), 20),
    stepFinished(),
    turnFinished("tool_calls"),
  ]);
  assert.deepEqual(
    told.map((event) => ("delta" in event && "type" in event.delta ? event.delta.type : event.type)),
    [
      "message_start",
      "content_block_start",
      "thinking_delta",
      "signature_delta",
      "content_block_stop",
      "content_block_start",
      "input_json_delta",
      "content_block_stop",
      "message_delta",
      "message_stop",
    ],
  );
});

test("thinking that is not to be shown is still sent back", () => {
  const summed: ContentBlock = { type: "reasoning", content: "", summary: ["First."], encrypted: "e" };
  const blocks = [...blockEvents(0, thought), ...blockEvents(1, summed)];
  const { told, message } = tell([stepStarted(1), ...blocks, stepFinished(), turnFinished()], { omitsThinking: true });
  assert.deepEqual(shown(message), [
    { thinking: "", sealed: thought },
    { thinking: "", sealed: summed },
  ]);
  assert.ok(!told.some((event) => event.type === "content_block_delta" && event.delta.type === "thinking_delta"));
});

test("where a session keeps what the server's tools did, the client does not", async () => {
  const { told, message } = tell(
    [
      turnStarted({ responseFormat: { type: "json_object" } }),
      stepStarted(1),
      ...blockEvents(0, text("Let me look.")),
      ...blockEvents(1, serverCall),
      stepFinished(),
      toolFinished("call_1", "done"),
      stepStarted(2),
      ...blockEvents(0, thought),
      ...blockEvents(1, text("{}")),
      stepFinished(2),
      turnFinished(),
    ],
    { isKept: true },
  );
  assert.deepEqual(shown(message), [{ thinking: "Hmm, well.", sealed: thought }, "{}"]);
  assert.deepEqual(await folded(told), inJson(message));
});

describe("why an answer ended", () => {
  const words = {
    stop: "end_turn",
    length: "max_tokens",
    tool_calls: "tool_use",
    content_filter: "refusal",
    cancelled: "end_turn",
    budget: "max_tokens",
    max_steps: "max_tokens",
  } as const;
  for (const reason of finishReasons) {
    if (reason === "error") continue;
    test(reason, () => {
      const { message } = tell([stepStarted(1), turnFinished(reason)]);
      assert.equal(message.stop_reason, words[reason]);
      assert.equal(message.stop_details?.type, reason === "content_filter" ? "refusal" : undefined);
    });
  }

  const stops: [stopSequences: string[], told: string | null][] = [
    [["END"], "END"],
    [["END", "STOP"], null],
  ];
  for (const [stopSequences, told] of stops) {
    test(`one of ${stopSequences.length} stop sequences`, () => {
      const { message } = tell([stepStarted(1), stepFinished(1, "stop_sequence"), turnFinished()], { stopSequences });
      assert.equal(message.stop_reason, "stop_sequence");
      assert.equal(message.stop_sequence, told);
    });
  }

  test("a window that was full is told as such", () => {
    const events = [stepStarted(1), stepFinished(1, "model_context_window_exceeded"), turnFinished("length")];
    assert.equal(tell(events).message.stop_reason, "model_context_window_exceeded");
  });

  test("a turn that failed has no answer", () => {
    const error = { kind: "rate_limited", reason: "RATE_LIMITED", message: "slow down", detail: {} } as const;
    assert.throws(
      () => tell([stepStarted(1), { type: "turn-finished", finishReason: "error", steps: 1, error }]),
      (thrown) => thrown instanceof AgentError && thrown.kind === "rate_limited" && thrown.message === "slow down",
    );
  });
});

test("input without what the cache took part in", () => {
  const { message } = tell([stepStarted(1), turnFinished()]);
  assert.equal(message.usage.input_tokens, 7);
  assert.equal(message.usage.cache_read_input_tokens, 2);
  assert.equal(message.usage.cache_creation_input_tokens, null);
  assert.equal(message.usage.output_tokens, 4);
});

describe("an attempt that a new one voids", () => {
  const begunAnew = (thrown: unknown) => thrown instanceof AgentError && thrown.reason === "ANSWER_BEGUN_ANEW";
  const end = [stepFinished(), turnFinished()];
  const again = (first: LogEvent[], second: LogEvent[]) => [
    stepStarted(1),
    ...first,
    stepStarted(1, 2),
    ...second,
    ...end,
  ];

  test("text that comes again is not shown again", async () => {
    const events = again(cutBlock(0, text("Hel")), blockEvents(0, text("Hello"), 2));
    const { told, message } = tell(events);
    assert.deepEqual(shown(message), ["Hello"]);
    assert.deepEqual(await folded(told), inJson(message));
  });

  test("thinking and text that come again are not shown again", () => {
    const events = again(
      [...blockEvents(0, thought), ...cutBlock(1, text("Hel"))],
      [...blockEvents(0, thought), ...blockEvents(1, text("Hello"))],
    );
    assert.deepEqual(shown(tell(events).message), [{ thinking: "Hmm, well.", sealed: thought }, "Hello"]);
  });

  test("thinking alone stays, and is not sent back", async () => {
    const other = { ...thought, thinking: "Wait.", signature: "other" };
    const said = [...blockEvents(0, other), ...blockEvents(1, text("Hello"))];
    for (const first of [blockEvents(0, thought), cutBlock(0, thought)]) {
      const { told, message } = tell(again(first, said));
      assert.deepEqual(shown(message), [
        { thinking: "Hmm, well.", sealed: { type: "thinking", thinking: "", dialect: "none" } },
        { thinking: "Wait.", sealed: other },
        "Hello",
      ]);
      assert.deepEqual(await folded(told), inJson(message));
    }
  });

  const others: readonly [name: string, first: LogEvent[], second: LogEvent[]][] = [
    ["another text", cutBlock(0, text("Hel")), blockEvents(0, text("Hi"))],
    ["a shorter text", cutBlock(0, text("Hello")), blockEvents(0, text("Hel"))],
    ["no text", cutBlock(0, text("Hello")), []],
    ["a longer text than one that was complete", blockEvents(0, text("Hel")), blockEvents(0, text("Hello"))],
    ["a call", cutBlock(0, text("Hello")), blockEvents(0, call(clientTool))],
    [
      "other thinking before the text",
      [...blockEvents(0, thought), ...cutBlock(1, text("H"))],
      blockEvents(0, text("H")),
    ],
    [
      "another signature before the text",
      [...blockEvents(0, thought), ...cutBlock(1, text("H"))],
      [...blockEvents(0, { ...thought, signature: "b" }), ...blockEvents(1, text("H"))],
    ],
    ["another call", blockEvents(0, call(clientTool, "a")), blockEvents(0, call(clientTool, "b"))],
  ];
  for (const [name, first, second] of others) {
    test(`${name} ends a stream, and not an answer that is read at its end`, () => {
      assert.throws(() => tell(again(first, second)), begunAnew);
      const { message } = tell(again(first, second), { stream: false });
      assert.deepEqual(shown(message), shown(tell([stepStarted(1), ...second, ...end]).message));
    });
  }

  test("and a second one, whose thinking stays as well", () => {
    const events = [
      stepStarted(1),
      ...blockEvents(0, thought),
      stepStarted(1, 2),
      ...blockEvents(0, { ...thought, signature: "b" }),
      stepStarted(1, 3),
      ...blockEvents(0, text("Hello")),
      ...end,
    ];
    const { message } = tell(events);
    assert.deepEqual(
      message.content.map(({ type }) => type),
      ["thinking", "thinking", "text"],
    );
  });

  test("text that waits is just left out", () => {
    const events = again(cutBlock(0, text("{")), blockEvents(0, text("{}")));
    const { message } = tell([turnStarted({ responseFormat: { type: "json_object" } }), ...events]);
    assert.deepEqual(shown(message), ["{}"]);
  });
});

// Any turn

const piece: fc.Arbitrary<ContentBlock> = fc.oneof(
  filledText.map(text),
  ...(["thinking", "redacted_thinking", "reasoning", "unknown"] as const).map(blockOf),
);
const anyCall = (name: string) => fc.tuple(fc.constant(name), jsonObject);
const calls = fc.array(fc.oneof(anyCall("shell"), anyCall(clientTool)), { maxLength: 3 });
const step = fc.record({ pieces: fc.array(piece, { maxLength: 4 }), size: fc.integer({ min: 1, max: 9 }) });
const turn = fc.record({
  steps: fc.array(fc.record({ ...stepFields(), outputs: fc.array(filledText, { minLength: 1, maxLength: 3 }) }), {
    maxLength: 3,
  }),
  last: step,
  lastCalls: calls,
  isJson: fc.boolean(),
});

function stepFields() {
  return { pieces: fc.array(piece, { maxLength: 4 }), size: fc.integer({ min: 1, max: 9 }) };
}

type Turn = typeof turn extends fc.Arbitrary<infer Value> ? Value : never;

function eventsOf({ steps, last, lastCalls, isJson }: Turn): LogEvent[] {
  const events = [turnStarted(isJson ? { responseFormat: { type: "json_object" } } : {})];
  const say = (number: number, blocks: readonly ContentBlock[], size: number) =>
    events.push(stepStarted(number), ...blocks.flatMap((block, index) => blockEvents(index, block, size)), {
      ...stepFinished(number),
      finishReason: "tool_calls",
    } as LogEvent);
  for (const [index, { pieces, outputs, size }] of steps.entries()) {
    const uses = outputs.map((_, place) => call("shell", `call_${index}_${place}`));
    say(index + 1, [...pieces, ...uses], size);
    for (const [place, output] of [...outputs.entries()].toReversed())
      events.push(toolFinished(`call_${index}_${place}`, output, output.length > 3));
  }
  const uses = lastCalls.map(([name, input], place) => ({ ...call(name, `last_${place}`), input }));
  say(steps.length + 1, [...last.pieces, ...uses], last.size);
  for (const { id, name } of uses) if (name === "shell") events.push(toolFinished(id, "done"));
  return [...events, turnFinished(uses.length > 0 ? "tool_calls" : "stop")];
}

test("of any turn a stream adds up to what its body says", async () => {
  await fc.assert(
    fc.asyncProperty(turn, async (one) => {
      const events = eventsOf(one);
      const { told, message } = tell(events);
      assert.deepEqual(await folded(told), inJson(message));
      assert.deepEqual(inJson(tell(events, { stream: false }).message), inJson(message));
    }),
    { numRuns: 200 },
  );
});

test("of any turn a client sends back the history that a session would have", () => {
  fc.assert(
    fc.property(turn, (one) => {
      const events = eventsOf(one);
      const expected = history(events).map(withoutNothing);
      assert.deepEqual(
        sentBack(tell(events).message).map(withoutNothing),
        expected.filter(({ blocks }) => blocks.length > 0),
      );
    }),
    { numRuns: 300 },
  );
});

/** Thinking that says nothing is left out; a client writes the arguments of its calls anew. */
function withoutNothing({ role, blocks }: Message): Message {
  return {
    role,
    blocks: blocks
      .filter((block) => !(block.type === "thinking" && block.thinking === "" && !block.signature && !block.raw))
      .map((block) =>
        block.type === "tool_use" ? { ...block, input: JSON.stringify(JSON.parse(block.input)) } : block,
      ),
  };
}
