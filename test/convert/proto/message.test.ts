import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { create, toJson } from "@bufbuild/protobuf";
import { MessageSchema } from "../../../gen/codeagent/v1/code_agent_pb.ts";
import type { Message } from "../../../src/chat/message.ts";
import { messageFromProto, messageToProto } from "../../../src/convert/proto/message.ts";

type MessageInit = MessageInitShape<typeof MessageSchema>;
const parts = (...list: object[]): MessageInit => ({
  role: "user",
  contentType: { case: "contentParts", value: { parts: list.map((partType) => ({ partType })) as never } },
});
const blocks = (role: string, ...list: object[]): MessageInit => ({
  role,
  blocks: list.map((block) => ({ block })) as never,
});
const part = "messages[2].content_parts.parts";

const badMessages: { name: string; field: string; message: MessageInit; says: RegExp }[] = [
  { name: "no role", field: "messages[2].role", message: {}, says: /is empty; use one of system, developer/ },
  { name: "unknown role", field: "messages[2].role", message: { role: "robot" }, says: /"robot"/ },
  { name: "user says nothing", field: "messages[2].content", message: { role: "user" }, says: /is empty/ },
  {
    name: "user says an empty text",
    field: "messages[2].content",
    message: { role: "user", contentType: { case: "content", value: "" } },
    says: /is empty/,
  },
  { name: "user has no parts", field: "messages[2].content", message: parts(), says: /is empty/ },
  {
    name: "user has an empty block",
    field: "messages[2].blocks",
    message: blocks("user", { case: "text", value: { text: "" } }),
    says: /is empty/,
  },
  {
    name: "assistant neither says nor calls",
    field: "messages[2].content",
    message: { role: "assistant" },
    says: /no tool calls/,
  },
  {
    name: "unknown part",
    field: `${part}[1]`,
    message: parts({ case: "text", value: { text: "a" } }, { case: undefined }),
    says: /no part/,
  },
  {
    name: "unknown block",
    field: "messages[2].blocks[0]",
    message: blocks("user", { case: undefined }),
    says: /no block/,
  },
  {
    name: "part with the type of another",
    field: `${part}[0].text.type`,
    message: parts({ case: "text", value: { type: "image_url", text: "a" } }),
    says: /must be text/,
  },
  {
    name: "image without address",
    field: `${part}[0].image_url.image_url.url`,
    message: parts({ case: "imageUrl", value: {} }),
    says: /is empty/,
  },
  {
    name: "image on the server's disk",
    field: `${part}[0].image_url.image_url.url`,
    message: parts({ case: "imageUrl", value: { imageUrl: { url: "file:///etc/passwd" } } }),
    says: /https:, http: or data:/,
  },
  {
    name: "image detail",
    field: `${part}[0].image_url.image_url.detail`,
    message: parts({ case: "imageUrl", value: { imageUrl: { url: "https://example.com/a.png", detail: "huge" } } }),
    says: /auto, low or high/,
  },
  {
    name: "file without content",
    field: `${part}[0].file.file`,
    message: parts({ case: "file", value: {} }),
    says: /file_data or file_id/,
  },
  {
    name: "file content that is no data URL",
    field: `${part}[0].file.file.file_data`,
    message: parts({ case: "file", value: { file: { fileData: "AAAA" } } }),
    says: /data: URL/,
  },
  {
    name: "audio without recording",
    field: `${part}[0].input_audio.input_audio.data`,
    message: parts({ case: "inputAudio", value: {} }),
    says: /is empty/,
  },
  {
    name: "audio without format",
    field: `${part}[0].input_audio.input_audio.format`,
    message: parts({ case: "inputAudio", value: { inputAudio: { data: "AAAA" } } }),
    says: /is empty/,
  },
  {
    name: "image block without address",
    field: "messages[2].blocks[0].image.url",
    message: blocks("user", { case: "image", value: {} }),
    says: /is empty/,
  },
  { name: "tool answers no call", field: "messages[2].tool_call_id", message: { role: "tool" }, says: /is empty/ },
  {
    name: "tool result answers no call",
    field: "messages[2].tool_call_id",
    message: blocks("tool", { case: "toolResult", value: { content: "4" } }),
    says: /is empty/,
  },
  {
    name: "tool message without result",
    field: "messages[2].blocks",
    message: blocks("tool", { case: "text", value: { text: "4" } }),
    says: /exactly one tool_result/,
  },
  {
    name: "tool message with two results",
    field: "messages[2].blocks",
    message: blocks("tool", ...["a", "b"].map((toolUseId) => ({ case: "toolResult", value: { toolUseId } }))),
    says: /exactly one tool_result/,
  },
  {
    name: "image in a result without address",
    field: "messages[2].blocks[0].tool_result.parts[0].image_url.image_url.url",
    message: blocks("tool", {
      case: "toolResult",
      value: { toolUseId: "a", parts: [{ partType: { case: "imageUrl", value: {} } }] },
    }),
    says: /is empty/,
  },
  {
    name: "result in an assistant message",
    field: "messages[2].blocks[0].tool_result",
    message: blocks("assistant", { case: "toolResult", value: { toolUseId: "a" } }),
    says: /belongs in a tool message/,
  },
  {
    name: "result in a user message answers no call",
    field: "messages[2].blocks[0].tool_result.tool_use_id",
    message: blocks("user", { case: "toolResult", value: { content: "4" } }),
    says: /is empty/,
  },
  {
    name: "call id in a user message",
    field: "messages[2].tool_call_id",
    message: { role: "user", toolCallId: "a", contentType: { case: "content", value: "hi" } },
    says: /only a tool message/,
  },
  {
    name: "call in a user message",
    field: "messages[2].tool_calls",
    message: { role: "user", toolCalls: [{ id: "a", name: "f" }] },
    says: /only an assistant/,
  },
  {
    name: "call block in a user message",
    field: "messages[2].blocks[0].tool_use",
    message: blocks("user", { case: "toolUse", value: { id: "a", name: "f" } }),
    says: /only an assistant/,
  },
  {
    name: "thinking in a system message",
    field: "messages[2].blocks[0].thinking",
    message: blocks("system", { case: "thinking", value: { thinking: "hm" } }),
    says: /only an assistant/,
  },
  {
    name: "call without id",
    field: "messages[2].tool_calls[1].id",
    message: { role: "assistant", toolCalls: [{ id: "a", name: "f" }, { name: "f" }] },
    says: /is empty/,
  },
  {
    name: "call without name",
    field: "messages[2].tool_calls[0].name",
    message: { role: "assistant", toolCalls: [{ id: "a" }] },
    says: /is empty/,
  },
  {
    name: "call block without name",
    field: "messages[2].blocks[0].tool_use.name",
    message: blocks("assistant", { case: "toolUse", value: { id: "a" } }),
    says: /is empty/,
  },
  {
    name: "half a surrogate pair in the content",
    field: "messages[2].content",
    message: { role: "user", contentType: { case: "content", value: "a\ud83d" } },
    says: /surrogate/,
  },
  {
    name: "half a surrogate pair in a part",
    field: `${part}[1].text.text`,
    message: parts({ case: "text", value: { text: "a" } }, { case: "text", value: { text: "\udc00" } }),
    says: /surrogate/,
  },
  {
    name: "half a surrogate pair in metadata",
    field: 'messages[2].metadata["k"]',
    message: { role: "user", contentType: { case: "content", value: "a" }, metadata: { k: "\ud83d" } },
    says: /surrogate/,
  },
  {
    name: "half a surrogate pair in a list",
    field: "messages[2].blocks[0].reasoning.summary[1]",
    message: blocks("assistant", { case: "reasoning", value: { content: "a", summary: ["a", "\ud83d"] } }),
    says: /surrogate/,
  },
  {
    name: "a time that is no date",
    field: "messages[2].create_time",
    message: { role: "user", contentType: { case: "content", value: "a" }, createTime: { seconds: 1n << 62n } },
    says: /no date/,
  },
];

describe("a message no model could be sent is refused by the path of its field", () => {
  for (const { name, field, message, says } of badMessages)
    test(name, () =>
      assert.throws(
        () => messageFromProto(create(MessageSchema, message), "messages[2]"),
        (error: unknown) => {
          assert.ok(error instanceof Error && "kind" in error && "fieldViolations" in error);
          assert.equal(error.kind, "invalid_request");
          assert.ok(Array.isArray(error.fieldViolations));
          assert.deepEqual(
            error.fieldViolations.map((violation: { field: string }) => violation.field),
            [field],
          );
          assert.match(error.message, says);
          return true;
        },
      ),
    );
});

const text = { type: "text", text: "hi" } as const;
const image = { type: "image", url: "https://example.com/a.png" } as const;
const inputs: { name: string; message: MessageInit; read: Message }[] = [
  {
    name: "plain text",
    message: { role: "user", contentType: { case: "content", value: "hi" }, name: "ann" },
    read: { role: "user", blocks: [text], name: "ann" },
  },
  {
    name: "parts without their type words",
    message: parts(
      { case: "text", value: { text: "hi" } },
      { case: "imageUrl", value: { imageUrl: { url: "https://example.com/a.png" } } },
    ),
    read: { role: "user", blocks: [text, image] },
  },
  {
    name: "text and calls; results of calls are not read",
    message: {
      role: "assistant",
      contentType: { case: "content", value: "hi" },
      toolCalls: [{ id: "a", name: "f", arguments: "{", result: { output: "4" } }],
    },
    read: { role: "assistant", blocks: [text, { type: "tool_use", id: "a", name: "f", input: "{" }] },
  },
  {
    name: "empty content beside calls makes no block",
    message: { role: "assistant", contentType: { case: "content", value: "" }, toolCalls: [{ id: "a", name: "f" }] },
    read: { role: "assistant", blocks: [{ type: "tool_use", id: "a", name: "f", input: "" }] },
  },
  {
    name: "blocks win over the view",
    message: {
      ...blocks("assistant", { case: "text", value: { text: "hi" } }),
      contentType: { case: "content", value: "something else" },
      toolCalls: [{ id: "a", name: "f" }],
    } as MessageInit,
    read: { role: "assistant", blocks: [text] },
  },
  { name: "empty system message", message: { role: "system" }, read: { role: "system", blocks: [] } },
  {
    name: "tool message with its result as text",
    message: { role: "tool", toolCallId: "a", contentType: { case: "content", value: "4" } },
    read: { role: "tool", blocks: [{ type: "tool_result", toolUseId: "a", content: "4" }] },
  },
  {
    name: "tool message with an empty result",
    message: { role: "tool", toolCallId: "a" },
    read: { role: "tool", blocks: [{ type: "tool_result", toolUseId: "a", content: "" }] },
  },
  {
    name: "function is read as tool",
    message: { role: "function", name: "f", toolCallId: "a", contentType: { case: "content", value: "4" } },
    read: { role: "tool", name: "f", blocks: [{ type: "tool_result", toolUseId: "a", content: "4" }] },
  },
  {
    name: "tool message with parts",
    message: {
      ...parts(
        { case: "text", value: { text: "hi" } },
        { case: "imageUrl", value: { imageUrl: { url: "https://example.com/a.png" } } },
      ),
      role: "tool",
      toolCallId: "a",
    } as MessageInit,
    read: { role: "tool", blocks: [{ type: "tool_result", toolUseId: "a", content: "hi", parts: [text, image] }] },
  },
  {
    name: "result block that takes its call's id from the message",
    message: { ...blocks("tool", { case: "toolResult", value: { content: "4" } }), toolCallId: "a" } as MessageInit,
    read: { role: "tool", blocks: [{ type: "tool_result", toolUseId: "a", content: "4" }] },
  },
];

describe("a message in OpenAI's shape is read as blocks", () => {
  for (const { name, message, read } of inputs)
    test(name, () => {
      const once = messageFromProto(create(MessageSchema, message));
      assert.deepEqual(once, read);
      assert.deepEqual(messageFromProto(messageToProto(once)), once);
    });
});

const toolUse = { type: "tool_use", id: "a", name: "f", input: "{}" } as const;
const views: { name: string; message: Message; view: object }[] = [
  { name: "texts are joined", message: { role: "user", blocks: [text, text] }, view: { content: "hihi" } },
  {
    name: "images come as parts",
    message: { role: "user", blocks: [text, image] },
    view: {
      contentParts: {
        parts: [
          { text: { type: "text", text: "hi" } },
          { imageUrl: { type: "image_url", imageUrl: { url: "https://example.com/a.png" } } },
        ],
      },
    },
  },
  {
    name: "an assistant's thinking is no content, its calls are listed",
    message: { role: "assistant", blocks: [{ type: "thinking", thinking: "hm" }, text, toolUse] },
    view: { content: "hi", toolCalls: [{ id: "a", name: "f", arguments: "{}" }] },
  },
  {
    name: "calls alone have empty content",
    message: { role: "assistant", blocks: [toolUse] },
    view: { content: "", toolCalls: [{ id: "a", name: "f", arguments: "{}" }] },
  },
  {
    name: "a tool message shows the result and its call",
    message: { role: "tool", blocks: [{ type: "tool_result", toolUseId: "a", content: "4" }] },
    view: { content: "4", toolCallId: "a" },
  },
];

describe("each message written has the OpenAI-shaped view beside its blocks", () => {
  for (const { name, message, view } of views)
    test(name, () => {
      const { blocks: _, ...seen } = toJson(MessageSchema, messageToProto(message));
      assert.deepEqual(seen, { role: message.role, ...view });
    });
});
