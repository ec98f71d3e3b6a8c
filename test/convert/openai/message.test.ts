import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { AgentError } from "../../../src/chat/error.ts";
import type { ContentBlock, Message } from "../../../src/chat/message.ts";
import { messagesFromOpenAI, messageToOpenAI } from "../../../src/convert/openai/message.ts";
import { usageFromOpenAI, usageToOpenAI } from "../../../src/convert/openai/usage.ts";
import * as arbitrary from "../arbitrary.ts";

// What OpenAI's shape can hold, in its order.
const textBlocks = fc.array(arbitrary.textBlock, { minLength: 1, maxLength: 3 });
const oneText = fc.array(arbitrary.textBlock, { maxLength: 1 });
const openThinking = fc.array(
  arbitrary.filledText.map((thinking): ContentBlock => ({ type: "thinking", thinking })),
  { maxLength: 1 },
);
const named = fc.option(arbitrary.filledText, { nil: undefined });
const messages: fc.Arbitrary<Message> = fc.oneof(
  fc
    .tuple(fc.constantFrom("system", "developer"), textBlocks, named)
    .map(([role, blocks, name]) => ({ role, blocks, ...(name === undefined ? {} : { name }) }) as const),
  fc
    .tuple(fc.array(arbitrary.partBlock, { minLength: 1, maxLength: 4 }), named)
    .map(([blocks, name]) => ({ role: "user", blocks, ...(name === undefined ? {} : { name }) }) as const),
  fc
    .tuple(openThinking, oneText, fc.array(arbitrary.toolUseBlock, { maxLength: 3 }))
    .map((blocks) => ({ role: "assistant", blocks: blocks.flat() }) as const)
    .filter(({ blocks }) => blocks.length > 0),
  fc
    .tuple(arbitrary.filledText, arbitrary.text)
    .map(([toolUseId, content]) => ({ role: "tool", blocks: [{ type: "tool_result", toolUseId, content }] }) as const),
);

test("what OpenAI's shape can hold comes back from it as it was", () =>
  fc.assert(
    fc.property(messages, (message) => {
      const json: unknown = JSON.parse(JSON.stringify(messageToOpenAI(message)));
      assert.deepEqual(messagesFromOpenAI(json), [message]);
    }),
    { numRuns: 500 },
  ));

test("any message can be written, whatever is lost", () =>
  fc.assert(fc.property(arbitrary.storedMessage, (message) => assert.ok(messageToOpenAI(message).role))));

const call = { id: "a", type: "function", function: { name: "f", arguments: "{" } };
const toolUse = { type: "tool_use", id: "a", name: "f", input: "{" };
const inputs: [name: string, param: object, read: object][] = [
  ["plain text", { role: "user", content: "hi" }, { role: "user", blocks: [{ type: "text", text: "hi" }] }],
  [
    "null content beside calls",
    { role: "assistant", content: null, tool_calls: [call] },
    { role: "assistant", blocks: [toolUse] },
  ],
  [
    "empty content beside calls",
    { role: "assistant", content: "", tool_calls: [call] },
    { role: "assistant", blocks: [toolUse] },
  ],
  [
    "thinking before text before calls",
    { role: "assistant", content: "hi", reasoning_content: "hm", tool_calls: [call] },
    { role: "assistant", blocks: [{ type: "thinking", thinking: "hm" }, { type: "text", text: "hi" }, toolUse] },
  ],
  [
    "refusal",
    { role: "assistant", content: null, refusal: "no" },
    { role: "assistant", blocks: [{ type: "text", text: "no" }] },
  ],
  [
    "refusal as part",
    { role: "assistant", content: [{ type: "refusal", refusal: "no" }] },
    { role: "assistant", blocks: [{ type: "text", text: "no" }] },
  ],
  [
    "call of older clients",
    { role: "assistant", content: null, function_call: { name: "f", arguments: "{" } },
    { role: "assistant", blocks: [{ ...toolUse, id: "function_f_1" }] },
  ],
  [
    "result of older clients",
    { role: "function", name: "f", content: "4" },
    { role: "tool", blocks: [{ type: "tool_result", toolUseId: "function_f_1", content: "4" }], name: "f" },
  ],
  [
    "thinking in parts",
    {
      role: "assistant",
      content: [
        {
          type: "thinking",
          thinking: [{ type: "text", text: "Let me " }, { type: "reference" }, { type: "text", text: "see." }],
        },
        { type: "thinking", thinking: "Yes." },
        { type: "text", text: "4" },
      ],
    },
    {
      role: "assistant",
      blocks: [
        { type: "thinking", thinking: "Let me see." },
        { type: "thinking", thinking: "Yes." },
        { type: "text", text: "4" },
      ],
    },
  ],
  ["empty system prompt", { role: "system", content: "" }, { role: "system", blocks: [] }],
];
describe("messages in OpenAI's shape are read", () => {
  for (const [name, param, read] of inputs) test(name, () => assert.deepEqual(messagesFromOpenAI(param), [read]));
});

const userPart = (part: unknown) => ({ role: "user", content: [{ type: "text", text: "a" }, part] });
const badMessages: [field: string, param: unknown, says: RegExp][] = [
  ["messages[3]", "hi", /is "hi"; must be an object/],
  ["messages[3]", null, /is null/],
  ["messages[3].role", {}, /is missing; use one of/],
  ["messages[3].role", { role: "robot" }, /"robot"/],
  ["messages[3].content", { role: "user" }, /is empty/],
  ["messages[3].content", { role: "user", content: "" }, /is empty/],
  ["messages[3].content", { role: "user", content: 7 }, /is 7; must be an array/],
  ["messages[3].content", { role: "assistant", content: null }, /no tool_calls/],
  ["messages[3].content", { role: "user", content: "\ud83d" }, /surrogate/],
  ["messages[3].content[1].type", userPart({ type: "video" }), /text, image_url, input_audio, file/],
  ["messages[3].content[1].text", userPart({ type: "text" }), /is missing/],
  ["messages[3].content[1].image_url", userPart({ type: "image_url" }), /is missing; must be an object/],
  ["messages[3].content[1].image_url.url", userPart({ type: "image_url", image_url: { url: "" } }), /is empty/],
  ["messages[3].content[1].image_url.url", userPart({ type: "image_url", image_url: { url: "ftp://a" } }), /https:/],
  [
    "messages[3].content[1].image_url.detail",
    userPart({ type: "image_url", image_url: { url: "https://a", detail: "original" } }),
    /auto, low or high/,
  ],
  [
    "messages[3].content[1].input_audio.data",
    userPart({ type: "input_audio", input_audio: { format: "wav" } }),
    /missing/,
  ],
  ["messages[3].content[1].file", userPart({ type: "file", file: {} }), /file_data or file_id/],
  ["messages[3].content[1].file.file_data", userPart({ type: "file", file: { file_data: "AAAA" } }), /data: URL/],
  ["messages[3].content[0].type", { role: "system", content: [{ type: "image_url" }] }, /use one of text$/],
  ["messages[3].tool_call_id", { role: "tool", content: "4" }, /is missing/],
  ["messages[3].tool_call_id", { role: "tool", content: "4", tool_call_id: "" }, /is empty/],
  ["messages[3].name", { role: "function", content: "4" }, /is missing/],
  ["messages[3].tool_calls", { role: "assistant", tool_calls: {} }, /is an object; must be an array/],
  ["messages[3].tool_calls[0].type", { role: "assistant", tool_calls: [{ ...call, type: "custom" }] }, /function/],
  ["messages[3].tool_calls[0].id", { role: "assistant", tool_calls: [{ ...call, id: "" }] }, /is empty/],
  [
    "messages[3].tool_calls[0].function.name",
    { role: "assistant", tool_calls: [{ ...call, function: {} }] },
    /missing/,
  ],
  [
    "messages[3].content[0].thinking",
    { role: "assistant", content: [{ type: "thinking", thinking: 7 }] },
    /must be an array/,
  ],
  ["messages[3].function_call.name", { role: "assistant", function_call: {} }, /is missing/],
];
describe("a bad message in OpenAI's shape is refused by the path of its field", () => {
  for (const [field, param, says] of badMessages)
    test(`${field} ${says}`, () =>
      assert.throws(
        () => messagesFromOpenAI(param, "messages[3]"),
        (error: unknown) => {
          assert.ok(error instanceof AgentError);
          assert.equal(error.fieldViolations[0]?.field, field);
          assert.match(error.message, says);
          return true;
        },
      ));
});

describe("usage", () => {
  const full = {
    prompt_tokens: 10,
    completion_tokens: 5,
    total_tokens: 15,
    prompt_tokens_details: { cached_tokens: 4, cache_write_tokens: 0 },
    completion_tokens_details: { reasoning_tokens: 2 },
  };
  const read = {
    inputTokens: 10,
    outputTokens: 5,
    totalTokens: 15,
    cacheReadTokens: 4,
    cacheCreationTokens: 0,
    reasoningTokens: 2,
  };
  test("goes both ways with its details", () => {
    assert.deepEqual(usageFromOpenAI(full), read);
    assert.deepEqual(usageToOpenAI(read), full);
  });
  test("null is unknown, not 0", () =>
    assert.deepEqual(usageFromOpenAI({ prompt_tokens: null, prompt_tokens_details: null, completion_tokens: 0 }), {
      outputTokens: 0,
    }));
  test("the total is added up where it is missing", () =>
    assert.equal(usageToOpenAI({ inputTokens: 3, outputTokens: 4 })?.total_tokens, 7));
  test("unknown usage is none", () => {
    assert.equal(usageToOpenAI(undefined), undefined);
    assert.equal(usageToOpenAI({ costNanoUsd: 1, partial: true }), undefined);
  });
  for (const bad of [-1, 1.5, "7", 2 ** 53])
    test(`${JSON.stringify(bad)} is no count`, () =>
      assert.throws(() => usageFromOpenAI({ prompt_tokens: bad }), { message: /^usage\.prompt_tokens: / }));
});
