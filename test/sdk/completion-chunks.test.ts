import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { completionChunks } from "../../sdk/completion-chunks.ts";
import type { LogEvent } from "../../src/chat/log-event.ts";

const started: LogEvent = {
  type: "turn-started",
  requestId: "",
  principal: "",
  model: "p/m",
  messages: [],
  options: {},
  tools: [],
};
const finished: LogEvent = { type: "turn-finished", finishReason: "stop", steps: 1 };
const cancelled: LogEvent = { type: "turn-finished", finishReason: "cancelled", steps: 1 };
const stepFinished: LogEvent = {
  type: "step-finished",
  step: 1,
  attempt: 1,
  finishReason: "stop",
  rawFinishReason: "",
};

function step(number: number, attempt: number): LogEvent {
  return { type: "step-started", step: number, attempt, model: "m", provider: "p" };
}
function text(index: number, ...pieces: string[]): LogEvent[] {
  return [
    { type: "block-start", index, blockType: "text" },
    ...pieces.map((piece): LogEvent => ({ type: "block-delta", index, delta: { type: "text", text: piece } })),
  ];
}
function thinking(index: number, piece: string): LogEvent[] {
  return [
    { type: "block-start", index, blockType: "thinking" },
    { type: "block-delta", index, delta: { type: "thinking", thinking: piece } },
  ];
}
function call(index: number, id: string, ...pieces: string[]): LogEvent[] {
  return [
    { type: "block-start", index, blockType: "tool_use", id, name: "f" },
    ...pieces.map(
      (piece): LogEvent => ({ type: "block-delta", index, delta: { type: "input_json", inputJson: piece } }),
    ),
  ];
}
function whole(index: number, said: string): LogEvent {
  return { type: "block-stop", index, block: { type: "text", text: said } };
}

test("what goes along is told once and of what the turn came to, however often it was told", () => {
  const options = { turnId: "t", model: "", createdMs: 0, clientTools: new Set<string>(), includeUsage: false };
  const signed = (signature: string): LogEvent => ({
    type: "block-stop",
    index: 0,
    block: { type: "thinking", thinking: "hm", signature },
  });
  const detailsOf = (isKept: boolean, ...tellings: (readonly LogEvent[])[]) => {
    const chunks = completionChunks({ ...options, isKept });
    const details = tellings.flatMap((events, index) => {
      if (index > 0) chunks.restart();
      return events.flatMap((event) => chunks.push(event).map(({ choices }) => choices[0]?.delta.reasoning_details));
    });
    return details.filter((detail) => detail !== undefined);
  };
  const plain = [started, step(1, 1), signed("b"), finished];
  const [once, ...more] = detailsOf(false, plain);
  assert.equal(once?.length, 1);
  assert.deepEqual(more, []);
  const voided = [started, step(1, 1), signed("a")];
  assert.deepEqual(detailsOf(false, [...voided, step(1, 2), signed("b"), finished]), [once]);
  assert.deepEqual(detailsOf(false, voided, plain), [once]);
  assert.deepEqual(detailsOf(true, plain), []);
});

/** Where the reader hears that the log is told anew. */
const anew = "anew";

function readAs(events: readonly (LogEvent | typeof anew)[]): string {
  const chunks = completionChunks({
    turnId: "t",
    model: "",
    createdMs: 0,
    clientTools: new Set(["f"]),
    includeUsage: false,
  });
  const said: string[] = [];
  for (const event of events) {
    if (event === anew) {
      chunks.restart();
      continue;
    }
    for (const { choices, model } of chunks.push(event)) {
      assert.equal(model, "p/m");
      const { delta, finish_reason } = choices[0] ?? {};
      if (delta?.role !== undefined) said.push("role");
      if (delta?.content) said.push(delta.content);
      if (delta?.reasoning_content) said.push(`(${delta.reasoning_content})`);
      for (const one of delta?.tool_calls ?? [])
        said.push(`${one.index}${one.id === undefined ? "" : `=${one.id}`}:${one.function?.arguments}`);
      if (finish_reason) said.push(finish_reason);
    }
  }
  return said.join(" ");
}

describe("what was shown is not shown again", () => {
  const shown: [string, (LogEvent | typeof anew)[], string][] = [
    ["one attempt", [started, step(1, 1), ...text(0, "ab", "cd"), finished], "role ab cd stop"],
    [
      "a new attempt says the same and more",
      [started, step(1, 1), ...text(0, "ab", "c"), step(1, 2), ...text(0, "a", "bcd", "e"), finished],
      "role ab c d e stop",
    ],
    [
      "JSON is shown at the end, of the last attempt and the last answer",
      [
        { ...started, options: { responseFormat: { type: "json_object" } } },
        step(1, 1),
        ...text(0, "a"),
        step(1, 2),
        ...text(0, "bc"),
        stepFinished,
        step(2, 1),
        ...text(0, "d", "e"),
        finished,
      ],
      "role d e stop",
    ],
    [
      "a third goes on where the second was voided",
      [started, step(1, 1), ...text(0, "ab"), step(1, 2), ...text(0, "a"), step(1, 3), ...text(0, "abcd"), finished],
      "role ab cd stop",
    ],
    [
      "whole blocks only",
      [started, step(1, 1), ...text(0, "ab"), step(1, 2), whole(0, "abcd"), finished],
      "role ab cd stop",
    ],
    [
      "thinking, text and a call",
      [
        started,
        step(1, 1),
        ...thinking(0, "hm"),
        ...text(1, "ab"),
        ...call(2, "c1", '{"a'),
        step(1, 2),
        ...thinking(0, "hm."),
        ...text(1, "ab"),
        ...call(2, "c1", "{", '"a":1}'),
        ...call(3, "c2", "{}"),
        finished,
      ],
      'role (hm) ab 0=c1: 0:{"a (.) 0:":1} 1=c2: 1:{} stop',
    ],
    [
      "only the voided step is compared",
      [
        started,
        step(1, 1),
        ...text(0, "one "),
        stepFinished,
        step(2, 1),
        ...text(0, "tw"),
        step(2, 2),
        ...text(0, "two"),
        stepFinished,
        step(3, 1),
        ...text(0, " three"),
        finished,
      ],
      "role one  tw o  three stop",
    ],
    [
      "a log told anew",
      [
        started,
        step(1, 1),
        ...text(0, "one "),
        stepFinished,
        step(2, 1),
        ...text(0, "tw"),
        anew,
        started,
        step(1, 1),
        whole(0, "one "),
        stepFinished,
        step(2, 1),
        ...text(0, "two"),
        finished,
      ],
      "role one  tw o stop",
    ],
    [
      "a turn cancelled while it was asked anew",
      [started, step(1, 1), ...text(0, "abc"), step(1, 2), ...text(0, "a"), cancelled],
      "role abc stop",
    ],
  ];
  for (const [name, events, expected] of shown) test(name, () => assert.equal(readAs(events), expected));
});

describe("an answer that says something else than was shown is an error", () => {
  const voided: [string, LogEvent[]][] = [
    ["text", [started, step(1, 1), ...text(0, "abc"), step(1, 2), ...text(0, "abd")]],
    ["thinking", [started, step(1, 1), ...thinking(0, "abc"), step(1, 2), ...thinking(0, "x")]],
    ["the id of a call", [started, step(1, 1), ...call(0, "c1"), step(1, 2), ...call(0, "c2")]],
    ["arguments", [started, step(1, 1), ...call(0, "c1", '{"a"'), step(1, 2), ...call(0, "c1", '{"b"')]],
    ["it is shorter", [started, step(1, 1), ...text(0, "abc"), step(1, 2), ...text(0, "ab"), stepFinished, finished]],
    [
      "it is shorter, and another step follows",
      [started, step(1, 1), ...text(0, "abc"), step(1, 2), ...text(0, "ab"), stepFinished, step(2, 1)],
    ],
  ];
  for (const [name, events] of voided) {
    test(name, () => {
      readAs(events.slice(0, -1));
      assert.throws(() => readAs(events), { name: "CodeAgentError", reason: "ANSWER_BEGUN_ANEW" });
    });
  }

  test("the turn's own error wins", () => {
    const failed: LogEvent = {
      type: "turn-finished",
      finishReason: "error",
      steps: 1,
      error: { kind: "unavailable", reason: "X", message: "no", detail: {} },
    };
    const events = [started, step(1, 1), ...text(0, "abc"), step(1, 2), failed];
    assert.throws(() => readAs(events), { name: "AgentError", reason: "X" });
  });
});
