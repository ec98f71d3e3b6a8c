import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type Anthropic from "@anthropic-ai/sdk";
import { AgentError } from "../../../src/chat/error.ts";
import type { ContentBlock, Message } from "../../../src/chat/message.ts";
import type { GenerateOptions } from "../../../src/chat/request.ts";
import { countedRequestFromAnthropic, turnRequestFromAnthropic } from "../../../src/convert/anthropic/request.ts";
import { sealBlock } from "../../../src/convert/sealed-reasoning.ts";

const hi = { role: "user", content: "hi" } as const;
const least = { model: "anthropic/claude", max_tokens: 9, messages: [hi] };
const readHi: Message = { role: "user", blocks: [{ type: "text", text: "hi" }] };
const text = (words: string): ContentBlock => ({ type: "text", text: words });
const raw = (block: object) => Buffer.from(JSON.stringify(block));

test("a request is read with its system prompt and its tools, and what labels it is passed over", () => {
  const params: Anthropic.MessageCreateParams = {
    model: "claude-sonnet-4-5",
    max_tokens: 9,
    system: [{ type: "text", text: "Be brief.", cache_control: { type: "ephemeral" } }],
    messages: [hi],
    tools: [
      { name: "f", description: "adds", input_schema: { type: "object", properties: {} }, strict: true },
      { type: "custom", name: "g", input_schema: { type: "object" }, cache_control: { type: "ephemeral" } },
    ],
    stream: true,
    metadata: { user_id: "ann" },
    service_tier: "auto",
    speed: "fast",
    cache_control: { type: "ephemeral" },
  };
  assert.deepEqual(
    turnRequestFromAnthropic({ ...params, top_k: 5, context_management: {}, betas: ["b"], new_field: 1 }),
    {
      request: {
        sessionId: "",
        messages: [{ role: "system", blocks: [text("Be brief.")] }, readHi],
        model: "claude-sonnet-4-5",
        options: { maxTokens: 9 },
        tools: [
          { name: "f", description: "adds", parameters: '{"type":"object","properties":{}}', strict: true },
          { name: "g", description: "", parameters: '{"type":"object"}' },
        ],
        requestId: "",
      },
      stream: true,
      omitsThinking: false,
    },
  );
});

const schema = { type: "object", properties: {} };
const format = { type: "json_schema", schema } as const;
const readFormat = { type: "json_schema", name: "answer", schema: JSON.stringify(schema), strict: true } as const;
const options: readonly [params: object, read: GenerateOptions][] = [
  [
    { temperature: 0, top_p: 0 },
    { temperature: 0, topP: 0 },
  ],
  [{ temperature: null, stop_sequences: null, tool_choice: null, thinking: null, output_config: null }, {}],
  [{ stop_sequences: ["a", "b"] }, { stop: ["a", "b"] }],
  [{ stop_sequences: [] }, {}],
  [{ tool_choice: { type: "auto" } }, { toolChoice: "auto" }],
  [{ tool_choice: { type: "any" } }, { toolChoice: "required" }],
  [{ tool_choice: { type: "none" } }, { toolChoice: "none" }],
  [
    { tool_choice: { type: "tool", name: "f", disable_parallel_tool_use: true } },
    { toolChoice: "f", parallelToolCalls: false },
  ],
  [{ thinking: { type: "disabled" } }, { thinking: { enabled: false } }],
  [{ thinking: { type: "adaptive", display: "omitted" } }, { thinking: { enabled: true } }],
  [
    { max_tokens: 4000, thinking: { type: "enabled", budget_tokens: 1024 } },
    { maxTokens: 4000, thinking: { enabled: true, budgetTokens: 1024 } },
  ],
  [{ output_config: { effort: "high" } }, { thinking: { effort: "high" } }],
  [
    { thinking: { type: "adaptive" }, output_config: { effort: "low" } },
    { thinking: { enabled: true, effort: "low" } },
  ],
  [{ output_config: { format } }, { responseFormat: readFormat }],
  [{ output_format: format }, { responseFormat: readFormat }],
];
describe("options are read", () => {
  for (const [params, read] of options)
    test(JSON.stringify(params), () =>
      assert.deepEqual(turnRequestFromAnthropic({ ...least, ...params }).request.options, { maxTokens: 9, ...read }),
    );
});

test("thinking can be asked for without its text", () => {
  const thinking = { type: "adaptive", display: "omitted" };
  assert.equal(turnRequestFromAnthropic({ ...least, thinking }).omitsThinking, true);
});

const image: Anthropic.ImageBlockParam = {
  type: "image",
  source: { type: "base64", media_type: "image/png", data: "aWNvbg==" },
};
const readImage = { type: "image", url: "data:image/png;base64,aWNvbg==" } as const;
const author = { provider: "anthropic", model: "claude", dialect: "anthropic-messages" };
const search = { type: "server_tool_use", id: "srv_1", name: "web_search", input: { query: "x" } } as const;
const sealedThought = { type: "thinking", thinking: "Hm.", signature: "s", provider: "q", model: "n" } as const;
const sealedCall = { type: "tool_use", id: "call_1", name: "shell", input: '{"a": 1}' } as const;

const messages: readonly { name: string; param: Anthropic.MessageParam; read: Message[] }[] = [
  {
    name: "text in blocks",
    param: { role: "user", content: [{ type: "text", text: "hi" }] },
    read: [readHi],
  },
  {
    name: "a system message amid the conversation",
    param: { role: "system", content: "Now in French." },
    read: [{ role: "system", blocks: [text("Now in French.")] }],
  },
  {
    name: "images",
    param: {
      role: "user",
      content: [image, { type: "image", source: { type: "url", url: "https://example.com/a.png" } }],
    },
    read: [{ role: "user", blocks: [readImage, { type: "image", url: "https://example.com/a.png" }] }],
  },
  {
    name: "documents of all kinds that can be sent",
    param: {
      role: "user",
      content: [
        {
          type: "document",
          source: { type: "base64", media_type: "application/pdf", data: "JVBERg==" },
          title: "a.pdf",
          citations: { enabled: true },
        },
        { type: "document", source: { type: "text", media_type: "text/plain", data: "né" }, context: "From 1900." },
        { type: "document", source: { type: "content", content: "plain" } },
        { type: "document", source: { type: "content", content: [{ type: "text", text: "part" }, image] } },
        { type: "document", source: { type: "file", file_id: "file_1" } },
      ],
    },
    read: [
      {
        role: "user",
        blocks: [
          { type: "file", data: "data:application/pdf;base64,JVBERg==", filename: "a.pdf" },
          text("From 1900."),
          { type: "file", data: `data:text/plain;base64,${Buffer.from("né").toString("base64")}` },
          text("plain"),
          text("part"),
          readImage,
          { type: "file", fileId: "file_1" },
        ],
      },
    ],
  },
  {
    name: "a search result, as text",
    param: {
      role: "user",
      content: [
        { type: "search_result", title: "T", source: "https://e.com", content: [{ type: "text", text: "said" }] },
      ],
    },
    read: [{ role: "user", blocks: [text("T\nhttps://e.com\nsaid")] }],
  },
  {
    name: "results of tools, each in a message of its own, before what the user says",
    param: {
      role: "user",
      content: [
        { type: "tool_result", tool_use_id: "a", content: "7" },
        { type: "tool_result", tool_use_id: "b", content: [{ type: "text", text: "see" }, image], is_error: true },
        { type: "tool_result", tool_use_id: "c" },
        { type: "text", text: "hi" },
      ],
    },
    read: [
      { role: "tool", blocks: [{ type: "tool_result", toolUseId: "a", content: "7" }] },
      {
        role: "tool",
        blocks: [
          {
            type: "tool_result",
            toolUseId: "b",
            content: "see",
            parts: [{ type: "text", text: "see" }, readImage],
            isError: true,
          },
        ],
      },
      { role: "tool", blocks: [{ type: "tool_result", toolUseId: "c", content: "" }] },
      readHi,
    ],
  },
  {
    name: "what the vendor's model said, to go back to it",
    param: {
      role: "assistant",
      content: [
        { type: "thinking", thinking: "Hm.", signature: "EqQB" },
        { type: "redacted_thinking", data: "Eo8" },
        { type: "text", text: "hi", citations: [] },
        search,
        { type: "tool_use", id: "a", name: "f", input: { x: 1 } },
      ],
    },
    read: [
      {
        role: "assistant",
        blocks: [
          { type: "thinking", thinking: "Hm.", signature: "EqQB", ...author },
          { type: "redacted_thinking", data: "Eo8", ...author },
          text("hi"),
          { type: "unknown", unknownType: "server_tool_use", dialect: "anthropic-messages", raw: raw(search) },
          { type: "tool_use", id: "a", name: "f", input: '{"x":1}' },
        ],
      },
    ],
  },
  {
    name: "what a turn of this service did",
    param: {
      role: "assistant",
      content: [
        { type: "thinking", thinking: "", signature: sealBlock(sealedThought) },
        { type: "redacted_thinking", data: sealBlock(sealedCall) },
        { type: "redacted_thinking", data: sealBlock({ type: "tool_result", toolUseId: "call_1", content: "done" }) },
        { type: "redacted_thinking", data: sealBlock({ type: "note", text: "Only JSON." }) },
        { type: "text", text: "{}" },
      ],
    },
    read: [
      { role: "assistant", blocks: [sealedThought, sealedCall] },
      { role: "tool", blocks: [{ type: "tool_result", toolUseId: "call_1", content: "done" }] },
      { role: "user", blocks: [text("Only JSON.")] },
      { role: "assistant", blocks: [text("{}")] },
    ],
  },
  {
    name: "an answer that said nothing is left out",
    param: { role: "assistant", content: [] },
    read: [],
  },
];
describe("messages are read", () => {
  for (const { name, param, read } of messages)
    test(name, () =>
      assert.deepEqual(turnRequestFromAnthropic({ ...least, messages: [hi, param] }).request.messages, [
        readHi,
        ...read,
      ]),
    );
});

test("whose signature it is, is told only where one of the vendor's models is asked", () => {
  const thinking = { type: "thinking", thinking: "Hm.", signature: "EqQB" };
  for (const model of ["claude-sonnet-4-5", "deepseek/x", "anthropic/a,anthropic/b"]) {
    const { request } = turnRequestFromAnthropic({
      ...least,
      model,
      messages: [{ role: "assistant", content: [thinking] }],
    });
    assert.deepEqual(request.messages[0]?.blocks, [{ ...thinking, dialect: "anthropic-messages" }]);
  }
});

const user = (...content: object[]) => ({ messages: [{ role: "user", content }] });
const assistant = (...content: object[]) => ({ messages: [{ role: "assistant", content }] });
const refused: readonly [params: object, field: string, words: RegExp][] = [
  [{ max_tokens: undefined }, "max_tokens", /is missing/],
  [{ max_tokens: 0 }, "max_tokens", /at least 1$/],
  [{ messages: undefined }, "messages", /is missing/],
  [{ messages: [] }, "messages", /is empty/],
  [{ messages: [{ role: "tool", content: "" }] }, "messages.0.role", /user, assistant, system/],
  [{ messages: [{ role: "user", content: "" }] }, "messages.0.content", /is empty/],
  [{ messages: [{ role: "user", content: [] }] }, "messages.0.content", /is empty/],
  [user({ type: "audio" }), "messages.0.content.0.type", /"audio"; use one of text, image/],
  [
    user({ type: "image", source: { type: "file", file_id: "f" } }),
    "messages.0.content.0.source.type",
    /keeps no files/,
  ],
  [
    user({ type: "image", source: { type: "base64", media_type: "a;b", data: "x" } }),
    "messages.0.content.0.source.media_type",
    /media type/,
  ],
  [user({ type: "image", source: { type: "url", url: "file:///a" } }), "messages.0.content.0.source.url", /https:/],
  [
    user({ type: "document", source: { type: "url", url: "https://a" } }),
    "messages.0.content.0.source.type",
    /fetches nothing/,
  ],
  [
    user({ type: "tool_result", tool_use_id: "a", content: [{ type: "tool_reference" }] }),
    "messages.0.content.0.content.0.type",
    /tool_reference/,
  ],
  [user({ type: "tool_result" }), "messages.0.content.0.tool_use_id", /is missing/],
  [assistant({ type: "image" }), "messages.0.content.0.type", /only a user message/],
  [assistant({ text: "hi" }), "messages.0.content.0.type", /is missing/],
  [assistant({ type: "tool_use", id: "a", name: "f", input: "{}" }), "messages.0.content.0.input", /must be an object/],
  [
    assistant({ type: "thinking", thinking: "", signature: sealBlock(sealedThought).slice(0, -9) }),
    "messages.0.content.0.signature",
    /is damaged/,
  ],
  [assistant({ type: "redacted_thinking", data: "codeagent.1.x" }), "messages.0.content.0.data", /is damaged/],
  [{ system: [{ type: "image" }] }, "system.0.type", /use one of text/],
  [{ temperature: 1.5 }, "temperature", /from 0 to 1/],
  [
    { tools: [{ type: "web_search_20250305", name: "web_search" }] },
    "tools.0.type",
    /"web_search_20250305".*without being named/,
  ],
  [{ tools: [{ type: "mcp_toolset", mcp_server_name: "x" }] }, "tools.0.type", /"mcp_toolset"/],
  [{ tools: [{ name: "f" }] }, "tools.0.input_schema", /is missing/],
  [
    {
      tools: [
        { name: "f", input_schema: {} },
        { name: "f", input_schema: {} },
      ],
    },
    "tools.1.name",
    /there twice/,
  ],
  [{ tool_choice: { type: "tool" } }, "tool_choice.name", /is missing/],
  [{ tool_choice: "auto" }, "tool_choice", /must be an object/],
  [{ thinking: { type: "enabled" } }, "thinking.budget_tokens", /is missing/],
  [{ thinking: { type: "enabled", budget_tokens: 100 } }, "thinking.budget_tokens", /at least 1024$/],
  [{ thinking: { type: "enabled", budget_tokens: 2000 } }, "thinking.budget_tokens", /below max_tokens, which is 9/],
  [{ output_config: { effort: "huge" } }, "output_config.effort", /low, medium/],
  [{ output_config: { format: { type: "text" } } }, "output_config.format.type", /json_schema/],
  [{ mcp_servers: [{ type: "url" }] }, "mcp_servers", /configuration/],
  [{ container: "c" }, "container", /workspace/],
  [{ fallbacks: "default" }, "fallbacks", /commas/],
  [{ thread: { type: "create" } }, "thread", /x-session-id/],
  [{ compaction: {} }, "compaction", /summary/],
];
describe("what is refused is named", () => {
  for (const [params, field, words] of refused)
    test(`${field}: ${JSON.stringify(params)}`, () =>
      assert.throws(
        () => turnRequestFromAnthropic({ ...least, ...params }),
        (error) =>
          error instanceof AgentError &&
          error.kind === "invalid_request" &&
          error.fieldViolations[0]?.field === field &&
          words.test(error.message),
      ));
});

test("a request whose tokens are to be counted needs no bound", () => {
  assert.deepEqual(countedRequestFromAnthropic({ model: "m", messages: [hi] }).messages, [readHi]);
});
