import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { AgentError } from "../../../src/chat/error.ts";
import type { LogEvent } from "../../../src/chat/log-event.ts";
import type { ContentBlock, Message, ThinkingBlock } from "../../../src/chat/message.ts";
import { toolFailure } from "../../../src/chat/tool-result.ts";
import { messagesFromOpenAI, messageToOpenAI } from "../../../src/convert/openai/message.ts";
import { type ReasoningDetail, sealDetails } from "../../../src/convert/openai/reasoning-details.ts";
import { turnDetails } from "../../../src/convert/openai/turn-details.ts";
import { sealBlock } from "../../../src/convert/sealed-reasoning.ts";
import * as arbitrary from "../arbitrary.ts";

const signed = { type: "thinking", thinking: "hm", signature: "s", provider: "p", model: "m" } as const;
const text = (words: string, phase?: string): ContentBlock & { type: "text" } =>
  phase === undefined ? { type: "text", text: words } : { type: "text", text: words, phase };
const call = (id: string, name = "look"): ContentBlock & { type: "tool_use" } => ({
  type: "tool_use",
  id,
  name,
  input: "{}",
});

/** What a client has of a message that was sent to it. */
function sent(message: object): object {
  return JSON.parse(JSON.stringify(message));
}

describe("a message whose reasoning only its provider can check", () => {
  const reasoning = arbitrary.block.filter(({ type }) => type === "redacted_thinking" || type === "unknown");
  const part = fc.tuple(
    reasoning,
    fc.array(
      arbitrary.filledText.map((words) => text(words)),
      { maxLength: 1 },
    ),
    fc.array(arbitrary.toolUseBlock, { maxLength: 2 }),
  );

  test("comes back as it was, each block in its place", () =>
    fc.assert(
      fc.property(fc.array(part, { minLength: 1, maxLength: 4 }), (parts) => {
        const message: Message = { role: "assistant", blocks: parts.flat(2) };
        assert.deepEqual(messagesFromOpenAI(sent(messageToOpenAI(message))), [message]);
      }),
      { numRuns: 300 },
    ));

  const whole: Message = {
    role: "assistant",
    blocks: [signed, text("Look: ", "commentary"), { ...signed, signature: "t" }, text("4"), call("c1")],
    name: "ann",
  };

  test("says its thinking in the open too, and it is read once", () => {
    const written = messageToOpenAI(whole);
    assert.ok(written.role === "assistant");
    assert.deepEqual([written.content, written.reasoning_content], ["Look: 4", "hmhm"]);
    assert.deepEqual(messagesFromOpenAI(sent(written)), [whole]);
  });

  test("of which a client changed the text has what is left of it at its end", () => {
    const changed = { ...sent(messageToOpenAI(whole)), content: [{ type: "text", text: "Look at that!" }] };
    const [read] = messagesFromOpenAI(changed);
    const [first, , second] = whole.blocks;
    assert.deepEqual(read?.blocks, [first, second, text("Look at that!"), call("c1")]);
  });

  test("is not parted within a character", () => {
    const emoji: Message = { role: "assistant", blocks: [text("ab"), signed, text("😀")] };
    const changed = { ...sent(messageToOpenAI(emoji)), content: "a😀b" };
    assert.deepEqual(messagesFromOpenAI(changed), [{ role: "assistant", blocks: [signed, text("a😀b")] }]);
  });

  test("of which a client left out the calls has the rest in its place", () => {
    const less = { ...sent(messageToOpenAI(whole)), tool_calls: [] };
    assert.deepEqual(messagesFromOpenAI(less), [{ ...whole, blocks: whole.blocks.slice(0, -1) }]);
  });

  test("has no details where there is nothing but thinking in the open", () => {
    const plain: ThinkingBlock = { type: "thinking", thinking: "hm", provider: "p", model: "m", dialect: "d" };
    assert.equal(sealDetails([{ block: plain, isShown: false }], "rd"), undefined);
  });

  test("has details of the form that others know", () => {
    const [detail, ...more] = sealDetails([{ block: signed, isShown: false }], "rd_t1") ?? [];
    const data = sealBlock(signed, { textBefore: 0, textInAll: 0, callsBefore: 0 });
    assert.deepEqual(detail, { type: "reasoning.encrypted", data, id: "rd_t1_0", format: "unknown", index: 0 });
    assert.deepEqual(more, []);
  });
});

const claude = "anthropic-claude-v1";
const dialect = "anthropic-messages";
const foreign: [name: string, details: unknown, blocks: object[]][] = [
  ["none", null, [{ type: "thinking", thinking: "open" }]],
  ["an empty list", [], [{ type: "thinking", thinking: "open" }]],
  [
    "text with a signature",
    [{ type: "reasoning.text", text: "hm", signature: "s", format: claude, index: 0, id: null }],
    [{ type: "thinking", thinking: "hm", signature: "s", dialect }],
  ],
  [
    "a signature without text, of no known format",
    [{ type: "reasoning.text", signature: "s" }],
    [{ type: "thinking", thinking: "", signature: "s", dialect }],
  ],
  [
    "a signature that is not Claude's",
    [{ type: "reasoning.text", text: "hm", signature: "s", format: "google-gemini-v1", index: 0 }],
    [{ type: "thinking", thinking: "hm" }],
  ],
  [
    "pieces of a stream",
    [
      { type: "reasoning.text", text: "h", format: claude, index: 0 },
      { type: "reasoning.text", text: "m", format: claude, index: 0 },
      { type: "reasoning.text", signature: "s", format: claude, index: 0 },
      { type: "reasoning.text", text: "so", format: claude, index: 0 },
    ],
    [
      { type: "thinking", thinking: "hm", signature: "s", dialect },
      { type: "thinking", thinking: "so" },
    ],
  ],
  ["a summary", [{ type: "reasoning.summary", summary: "short", index: 0 }], [{ type: "thinking", thinking: "short" }]],
  [
    "Claude's redacted thinking",
    [{ type: "reasoning.encrypted", data: "x", format: claude }],
    [{ type: "redacted_thinking", data: "x", dialect }],
  ],
  [
    "what only others can read",
    [
      { type: "reasoning.encrypted", data: "x", format: "openai-responses-v1", id: "rs_1" },
      { type: "reasoning.server_tool_call", name: "y" },
      { what: 1 },
    ],
    [{ type: "thinking", thinking: "open" }],
  ],
  [
    "an envelope without a place, as another API of this service gives it",
    [{ type: "reasoning.encrypted", data: sealBlock(signed) }],
    [signed],
  ],
];
describe("details of other services are read as far as they tell", () => {
  for (const [name, reasoning_details, blocks] of foreign)
    test(name, () => {
      const message = { role: "assistant", content: "hi", reasoning_content: "open", reasoning_details };
      assert.deepEqual(messagesFromOpenAI(message), [{ role: "assistant", blocks: [...blocks, text("hi")] }]);
    });
});

const bad: [field: string, details: unknown, says: RegExp][] = [
  ["reasoning_details", {}, /must be an array/],
  ["reasoning_details[0]", ["x"], /must be an object/],
  ["reasoning_details[0].data", [{ type: "reasoning.encrypted" }], /is missing/],
  ["reasoning_details[0].data", [{ type: "reasoning.encrypted", data: sealBlock(signed).slice(0, -9) }], /is damaged/],
  ["reasoning_details[1].text", [{ type: "x" }, { type: "reasoning.text", text: 7 }], /must be/],
];
describe("what is no detail is refused by its path", () => {
  for (const [field, reasoning_details, says] of bad)
    test(`${field} ${says}`, () =>
      assert.throws(
        () => messagesFromOpenAI({ role: "assistant", content: "hi", reasoning_details }, "messages[3]"),
        (error) => {
          assert.ok(error instanceof AgentError);
          assert.equal(error.fieldViolations[0]?.field, `messages[3].${field}`);
          assert.match(error.message, says);
          return true;
        },
      ));
});

const step = (number: number, attempt = 1): LogEvent => ({
  type: "step-started",
  step: number,
  attempt,
  model: "m",
  provider: "p",
});
const stop = (block: ContentBlock): LogEvent => ({ type: "block-stop", index: 0, block });
const done = (toolCallId: string, success = true): LogEvent => ({
  type: "tool-finished",
  toolCallId,
  name: "look",
  result: success ? { success, output: "seen" } : toolFailure("no such file"),
});
const started = (type: "text" | "json_object"): LogEvent => ({
  type: "turn-started",
  requestId: "",
  principal: "",
  model: "p/m",
  messages: [],
  options: { responseFormat: { type } },
  tools: [],
});
const rejected: LogEvent = {
  type: "notice",
  level: "warning",
  code: "c",
  message: "m",
  modelText: "That is no JSON.",
};
const compacted = (droppedMessages: number): LogEvent => ({
  type: "history-compacted",
  droppedMessages,
  keptMessages: 0,
  keptMessageIds: [],
  summary: "",
  trigger: "share",
});

function detailsOf(events: readonly LogEvent[], streams: boolean): ReasoningDetail[] | undefined {
  const gathered = turnDetails({ turnId: "t", clientTools: new Set(["ask"]), streams });
  for (const event of events) gathered.push(event);
  return gathered.details();
}

/** The messages a turn is read as when its message comes back, told whole and streamed. */
function bothWays(events: readonly LogEvent[], content: { whole: string; streamed: string }, calls: readonly string[]) {
  return [false, true].map((streams) =>
    messagesFromOpenAI({
      role: "assistant",
      content: streams ? content.streamed : content.whole,
      reasoning_details: detailsOf(events, streams),
      tool_calls: calls.map((id) => ({ id, type: "function", function: { name: "ask", arguments: "{}" } })),
    }),
  );
}

const assistant = (...blocks: ContentBlock[]) => ({ role: "assistant", blocks });
const result = (toolUseId: string) => ({
  role: "tool",
  blocks: [{ type: "tool_result", toolUseId, content: "seen" }],
});

describe("a turn comes back as what it was", () => {
  const looked = [step(1), stop(signed), stop(text("I look. ")), stop(call("s1")), stop(call("s2"))];
  const history = [assistant(signed, text("I look. "), call("s1"), call("s2")), result("s1"), result("s2")];
  const ended = [step(2), stop({ ...signed, signature: "t" }), stop(text("Done."))];

  test("with the server's calls and their results, in their order", () => {
    const read = bothWays(
      [...looked, done("s2"), done("s1"), ...ended],
      { whole: "Done.", streamed: "I look. Done." },
      [],
    );
    const expected = [...history, assistant({ ...signed, signature: "t" }, text("Done."))];
    assert.deepEqual(read, [expected, expected]);
  });

  test("where the server's calls and the caller's stand in one answer", () => {
    const events = [step(1), stop(call("s1")), stop(text("Hm.")), stop(signed), stop(call("c1", "ask")), done("s1")];
    const expected = [assistant(call("s1"), text("Hm."), signed, call("c1", "ask")), result("s1")];
    assert.deepEqual(bothWays(events, { whole: "Hm.", streamed: "Hm." }, ["c1"]), [expected, expected]);
  });

  test("that ends with the server's calls, for a bound", () => {
    const read = bothWays([...looked, done("s1"), done("s2")], { whole: "I look. ", streamed: "I look. " }, []);
    assert.deepEqual(read, [history, history]);
  });

  test("whose call failed", () => {
    const details = detailsOf([step(1), stop(call("s1")), done("s1", false)], false);
    const [, read] = messagesFromOpenAI({ role: "assistant", content: "", reasoning_details: details });
    const [block] = read?.blocks ?? [];
    assert.ok(block?.type === "tool_result");
    assert.equal(block.isError, true);
    assert.match(block.content, /no such file/);
  });

  test("without what a new attempt voided", () => {
    const again = [step(1), stop({ ...signed, signature: "void" }), stop(text("I l")), step(1, 2), ...looked.slice(1)];
    const events = [...again, done("s1"), done("s2"), ...ended];
    const expected = [...history, assistant({ ...signed, signature: "t" }, text("Done."))];
    const read = bothWays(events, { whole: "Done.", streamed: "I look. Done." }, []);
    assert.deepEqual(read, [expected, expected]);
  });

  test("told anew, it is told once", () => {
    const gathered = turnDetails({ turnId: "t", clientTools: new Set(), streams: false });
    for (const event of looked) gathered.push(event);
    gathered.restart();
    for (const event of [...looked, done("s1"), done("s2"), ...ended]) gathered.push(event);
    assert.deepEqual(gathered.details(), detailsOf([...looked, done("s1"), done("s2"), ...ended], false));
  });

  test("in JSON, with the answer that was rejected and why", () => {
    const events = [started("json_object"), step(1), stop(text("no")), rejected, step(2), stop(text("{}"))];
    const note = { role: "user", blocks: [text("That is no JSON.")] };
    const expected = [assistant(text("no")), note, assistant(text("{}"))];
    assert.deepEqual(bothWays(events, { whole: "{}", streamed: "{}" }, []), [expected, expected]);
  });

  test("without its reasoning after the history was compacted", () => {
    const events = [...looked, done("s1"), done("s2"), compacted(3), ...ended];
    const expected = [...history, assistant(text("Done."))];
    assert.deepEqual(bothWays(events, { whole: "Done.", streamed: "I look. Done." }, []), [expected, expected]);
    assert.deepEqual(
      detailsOf([...looked, compacted(0), ...ended], false),
      detailsOf([...looked, ...ended], false),
      "nothing was dropped",
    );
  });

  test("and where its message shows all there is, nothing goes along", () => {
    const plain = stop({ type: "thinking", thinking: "hm", provider: "p" });
    for (const streams of [false, true]) {
      const details = detailsOf([started("text"), step(1), plain, stop(text("hi")), stop(call("c1", "ask"))], streams);
      assert.equal(details, undefined);
    }
  });
});
