import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { AgentError } from "../../../src/chat/error.ts";
import type { ContentBlock, Message } from "../../../src/chat/message.ts";
import { itemsFromMessages, messagesFromItems } from "../../../src/convert/responses/item.ts";
import { sealBlock } from "../../../src/convert/sealed-reasoning.ts";
import { block } from "../arbitrary.ts";

const text = (words: string) => ({ type: "text" as const, text: words });
const user = { role: "user", content: "hi" };
const hi: Message = { role: "user", blocks: [text("hi")] };
const call = { type: "tool_use" as const, id: "c1", name: "look", input: "{}" };
const callItem = { type: "function_call", call_id: "c1", name: "look", arguments: "{}" };
const result = { type: "tool_result" as const, toolUseId: "c1", content: "4" };

const inputs: [name: string, input: unknown, messages: Message[]][] = [
  ["a text is what the user says", "hi", [hi]],
  [
    "messages in short form",
    [user, { role: "assistant", content: "ho" }, { role: "developer", content: "be brief" }],
    [hi, { role: "assistant", blocks: [text("ho")] }, { role: "developer", blocks: [text("be brief")] }],
  ],
  [
    "parts of what a user gives",
    [
      {
        type: "message",
        role: "user",
        content: [
          { type: "input_text", text: "see" },
          { type: "input_image", image_url: "https://host/a.png", detail: "low", file_id: null },
          { type: "input_file", file_data: "data:text/plain;base64,aGk=", filename: "a.txt" },
          { type: "input_file", file_id: "file_1" },
        ],
      },
    ],
    [
      {
        role: "user",
        blocks: [
          text("see"),
          { type: "image", url: "https://host/a.png", detail: "low" },
          { type: "file", data: "data:text/plain;base64,aGk=", filename: "a.txt" },
          { type: "file", fileId: "file_1" },
        ],
      },
    ],
  ],
  [
    "what the model said is one message up to a result or somebody else's words",
    [
      user,
      { type: "reasoning", id: "rs_1", summary: [], encrypted_content: "gAAA" },
      {
        type: "message",
        id: "msg_1",
        role: "assistant",
        status: "completed",
        phase: "commentary",
        content: [
          { type: "output_text", text: "Look: ", annotations: [] },
          { type: "refusal", refusal: "no" },
        ],
      },
      callItem,
      { ...callItem, call_id: "c2", id: "fc_1", status: "completed" },
      { type: "function_call_output", call_id: "c1", output: "4" },
      { type: "function_call_output", call_id: "c2", output: [{ type: "input_text", text: "5" }] },
      { role: "assistant", content: [{ type: "output_text", text: "9" }] },
    ],
    [
      hi,
      {
        role: "assistant",
        blocks: [
          {
            type: "reasoning",
            content: "",
            encrypted: "gAAA",
            summary: [],
            id: "rs_1",
            dialect: "openai-responses",
            provider: "p",
            model: "m",
          },
          { ...text("Look: "), phase: "commentary" },
          { ...text("no"), phase: "commentary" },
          call,
          { ...call, id: "c2" },
        ],
      },
      { role: "tool", blocks: [result] },
      { role: "tool", blocks: [{ ...result, toolUseId: "c2", content: "5" }] },
      { role: "assistant", blocks: [text("9")] },
    ],
  ],
  [
    "what the server did in between, from its envelopes",
    [
      { type: "reasoning", id: "rs_1", summary: [], encrypted_content: sealBlock(call) },
      { type: "reasoning", id: "rs_2", summary: [], encrypted_content: sealBlock({ ...result, isError: true }) },
      { type: "reasoning", id: "rs_3", summary: [], encrypted_content: sealBlock({ type: "note", text: "no JSON" }) },
      { type: "message", role: "assistant", content: "{}" },
    ],
    [
      { role: "assistant", blocks: [call] },
      { role: "tool", blocks: [{ ...result, isError: true }] },
      { role: "user", blocks: [text("no JSON")] },
      { role: "assistant", blocks: [text("{}")] },
    ],
  ],
  [
    "reasoning that says nothing is left out",
    [user, { type: "reasoning", id: "rs_1", summary: [], encrypted_content: null }],
    [hi],
  ],
];
describe("input is read", () => {
  for (const [name, input, messages] of inputs)
    test(name, () => assert.deepEqual(messagesFromItems(input, "p/m"), messages));
});

const refusals: [input: unknown, field: string, says: RegExp][] = [
  ["", "input", /empty/],
  [7, "input", /array/],
  [[{ role: "tool", content: "x" }], "input[0].role", /assistant/],
  [[{ role: "user", content: "" }], "input[0].content", /empty/],
  [[{ role: "user", content: [{ type: "output_text", text: "x" }] }], "input[0].content[0].type", /input_text/],
  [[user, { type: "item_reference", id: "msg_1" }], "input[1]", /previous_response_id/],
  [[{ id: "msg_1" }], "input[0]", /previous_response_id/],
  [[{ type: "web_search_call", id: "ws_1" }], "input[0].type", /"web_search_call"/],
  [[{ type: "function_call", name: "f", arguments: "{}" }], "input[0].call_id", /missing/],
  [
    [{ role: "user", content: [{ type: "input_image", file_id: "file_1" }] }],
    "input[0].content[0].file_id",
    /image_url/,
  ],
  [
    [{ role: "user", content: [{ type: "input_file", file_url: "https://host/a" }] }],
    "input[0].content[0].file_url",
    /file_data/,
  ],
  [
    [{ type: "reasoning", summary: [], encrypted_content: sealBlock(call).slice(0, -4) }],
    "input[0].encrypted_content",
    /damaged/,
  ],
];
describe("input that can't be taken is refused by the name of its field", () => {
  for (const [input, field, says] of refusals)
    test(`${field} ${says.source}`, () =>
      assert.throws(
        () => messagesFromItems(input, ""),
        (error) =>
          error instanceof AgentError &&
          error.kind === "invalid_request" &&
          error.fieldViolations[0]?.field === field &&
          says.test(error.message),
      ));
});

test("items of an answer come back as the blocks they were, with who wrote them", () => {
  const isSaid = ({ type }: ContentBlock) =>
    ["text", "tool_use", "thinking", "redacted_thinking", "reasoning"].includes(type);
  const said = block.filter(isSaid).map((one) => (one.type === "text" ? text(one.text) : one));
  fc.assert(
    fc.property(fc.array(said, { minLength: 1 }), (blocks) => {
      const items = itemsFromMessages([hi, { role: "assistant", blocks }, hi], "t1", true);
      assert.deepEqual(messagesFromItems(items, ""), [hi, { role: "assistant", blocks }, hi]);
      assert.equal(new Set(items.map(({ id }) => id)).size, items.length);
    }),
  );
});
