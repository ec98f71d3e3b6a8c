import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { AgentError } from "../../src/chat/error.ts";
import type { ContentBlock, Message, Role } from "../../src/chat/message.ts";
import type { ChatRequest, ModelOptions, ToolDefinition } from "../../src/chat/request.ts";
import { encode } from "../../src/dialect/openai-chat-encode.ts";
import { defaultQuirks, type Quirks } from "../../src/dialect/quirks.ts";

function encoded(request: Partial<ChatRequest>, quirks: Partial<Quirks> = {}): Record<string, unknown> {
  return JSON.parse(
    encode({ model: "m-1", messages: [], tools: [], options: {}, ...request }, { ...defaultQuirks, ...quirks }, "p"),
  );
}

const message = (role: Role, ...blocks: ContentBlock[]): Message => ({ role, blocks });
const text = (words: string): ContentBlock => ({ type: "text", text: words });
const call = (id: string, input = "{}"): ContentBlock => ({ type: "tool_use", id, name: `do_${id}`, input });
const result = (id: string, content: string): ContentBlock => ({ type: "tool_result", toolUseId: id, content });
const sentCall = (id: string, input = "{}") => ({
  id,
  type: "function",
  function: { name: `do_${id}`, arguments: input },
});

const histories: readonly { name: string; messages: Message[]; quirks?: Partial<Quirks>; sent: unknown[] }[] = [
  {
    name: "roles, names and texts",
    messages: [
      message("system", text("Be brief.")),
      message("developer", text("Use tabs.")),
      { ...message("user", text("Hi")), name: "ada" },
      message("assistant", text("Hello"), text(" there")),
    ],
    quirks: { developerRole: "developer" },
    sent: [
      { role: "system", content: "Be brief." },
      { role: "developer", content: "Use tabs." },
      { role: "user", name: "ada", content: "Hi" },
      { role: "assistant", content: "Hello there" },
    ],
  },
  {
    name: "a developer message where nobody knows developers",
    messages: [message("developer", text("Use tabs."))],
    sent: [{ role: "system", content: "Use tabs." }],
  },
  {
    name: "images, files and audio",
    messages: [
      message(
        "user",
        text("Look:"),
        { type: "image", url: "https://example.org/a.png", detail: "low" },
        { type: "file", data: "data:application/pdf;base64,eA==", filename: "a.pdf" },
        { type: "file", fileId: "file-1" },
        { type: "audio", data: "eA==", format: "wav" },
      ),
    ],
    sent: [
      {
        role: "user",
        content: [
          { type: "text", text: "Look:" },
          { type: "image_url", image_url: { url: "https://example.org/a.png", detail: "low" } },
          { type: "file", file: { file_data: "data:application/pdf;base64,eA==", filename: "a.pdf" } },
          { type: "file", file: { file_id: "file-1" } },
          { type: "input_audio", input_audio: { data: "eA==", format: "wav" } },
        ],
      },
    ],
  },
  {
    name: "results follow their calls directly and in the order of the calls",
    messages: [
      message("user", text("Go")),
      message("assistant", text("Two."), call("a", '{"x": 1.0}'), call("b")),
      message("tool", result("b", "second")),
      message("user", text("Meanwhile"), result("a", "first")),
      message("assistant", text("Done.")),
    ],
    sent: [
      { role: "user", content: "Go" },
      { role: "assistant", content: "Two.", tool_calls: [sentCall("a", '{"x": 1.0}'), sentCall("b")] },
      { role: "tool", tool_call_id: "a", content: "first" },
      { role: "tool", tool_call_id: "b", content: "second" },
      { role: "user", content: "Meanwhile" },
      { role: "assistant", content: "Done." },
    ],
  },
  {
    name: "a call that nobody answered",
    messages: [
      message("assistant", call("a"), call("b")),
      message("tool", result("b", "fine")),
      message("user", text("?")),
    ],
    sent: [
      { role: "assistant", content: null, tool_calls: [sentCall("a"), sentCall("b")] },
      { role: "tool", tool_call_id: "a", content: "error: the call was not answered" },
      { role: "tool", tool_call_id: "b", content: "fine" },
      { role: "user", content: "?" },
    ],
  },
  {
    name: "an image in a result comes after the results",
    messages: [
      message("assistant", call("a"), call("b")),
      message(
        "tool",
        {
          type: "tool_result",
          toolUseId: "a",
          content: "see",
          parts: [{ type: "image", url: "data:image/png;base64,eA==" }],
        },
        result("b", "ok"),
      ),
    ],
    sent: [
      { role: "assistant", content: null, tool_calls: [sentCall("a"), sentCall("b")] },
      { role: "tool", tool_call_id: "a", content: "see" },
      { role: "tool", tool_call_id: "b", content: "ok" },
      { role: "user", content: [{ type: "image_url", image_url: { url: "data:image/png;base64,eA==" } }] },
    ],
  },
  {
    name: "an assistant message that says nothing is left out",
    messages: [
      message("user", text("Hi")),
      message("assistant", { type: "thinking", thinking: "Hm" }, text("")),
      message("user", text("Hello?")),
    ],
    sent: [
      { role: "user", content: "Hi" },
      { role: "user", content: "Hello?" },
    ],
  },
  {
    name: "thinking goes back in the turn that uses tools, and no further",
    messages: [
      message("user", text("1")),
      message("assistant", { type: "thinking", thinking: "old" }, text("One")),
      message("user", text("2")),
      message("assistant", { type: "thinking", thinking: "new" }, call("a")),
      message("tool", result("a", "x")),
    ],
    quirks: { thinkingReplay: "tool-turn", emptyContent: "" },
    sent: [
      { role: "user", content: "1" },
      { role: "assistant", content: "One" },
      { role: "user", content: "2" },
      { role: "assistant", content: "", reasoning_content: "new", tool_calls: [sentCall("a")] },
      { role: "tool", tool_call_id: "a", content: "x" },
    ],
  },
  {
    name: "thinking goes back in every turn that used tools, and in no other",
    messages: [
      message("user", text("1")),
      message("assistant", { type: "thinking", thinking: "one" }, text("One")),
      message("user", text("2")),
      message("assistant", { type: "thinking", thinking: "two" }, call("a")),
      message("tool", result("a", "x")),
      message("assistant", { type: "thinking", thinking: "so" }, text("Two")),
      message("user", text("3")),
      message("assistant", { type: "thinking", thinking: "three" }, text("Three")),
      message("user", text("4")),
      message("assistant", { type: "thinking", thinking: "four" }, text("Four")),
    ],
    quirks: { thinkingReplay: "tool-turns" },
    sent: [
      { role: "user", content: "1" },
      { role: "assistant", content: "One" },
      { role: "user", content: "2" },
      { role: "assistant", content: null, reasoning_content: "two", tool_calls: [sentCall("a")] },
      { role: "tool", tool_call_id: "a", content: "x" },
      { role: "assistant", content: "Two", reasoning_content: "so" },
      { role: "user", content: "3" },
      { role: "assistant", content: "Three" },
      { role: "user", content: "4" },
      { role: "assistant", content: "Four", reasoning_content: "four" },
    ],
  },
  {
    name: "calls without thinking, where the field is wanted with all calls",
    messages: [
      message("user", text("1")),
      message("assistant", { type: "thinking", thinking: "old" }, call("a")),
      message("tool", result("a", "x")),
      message("assistant", { type: "thinking", thinking: "old" }, text("One")),
      message("user", text("2")),
      message("assistant", call("b")),
      message("tool", result("b", "y")),
    ],
    quirks: { thinkingReplay: "tool-turn", emptyThinking: true },
    sent: [
      { role: "user", content: "1" },
      { role: "assistant", content: null, reasoning_content: "", tool_calls: [sentCall("a")] },
      { role: "tool", tool_call_id: "a", content: "x" },
      { role: "assistant", content: "One" },
      { role: "user", content: "2" },
      { role: "assistant", content: null, reasoning_content: "", tool_calls: [sentCall("b")] },
      { role: "tool", tool_call_id: "b", content: "y" },
    ],
  },
  {
    name: "a call with no arguments is sent with none",
    messages: [message("assistant", call("a", "")), message("tool", result("a", ""))],
    sent: [
      { role: "assistant", content: null, tool_calls: [sentCall("a", "{}")] },
      { role: "tool", tool_call_id: "a", content: "" },
    ],
  },
];

describe("a history for Chat Completions", () => {
  for (const { name, messages, quirks, sent } of histories) {
    test(name, () => {
      assert.deepEqual(encoded({ messages }, quirks)["messages"], sent);
      // A second time from the texts that were kept.
      assert.deepEqual(encoded({ messages }, quirks)["messages"], sent);
    });
  }

  test("a message is written for each kind of endpoint on its own", () => {
    const messages = [message("developer", text("Use tabs."))];
    const plain = defaultQuirks;
    const other: Quirks = { ...defaultQuirks, developerRole: "developer" };
    for (const [quirks, role] of [
      [plain, "system"],
      [other, "developer"],
      [plain, "system"],
    ] as const) {
      const { messages: sent } = JSON.parse(encode({ model: "m", messages, tools: [], options: {} }, quirks, "p"));
      assert.equal(sent[0].role, role);
    }
  });
});

const always = { model: "m-1", messages: [], stream: true, stream_options: { include_usage: true } };
const optionCases: readonly { name: string; options: ModelOptions; quirks?: Partial<Quirks>; sent: object }[] = [
  { name: "none", options: {}, sent: {} },
  {
    name: "numbers",
    options: { temperature: 0, topP: 0.5, maxTokens: 9, seed: 0, stop: ["x"] },
    sent: { temperature: 0, top_p: 0.5, max_tokens: 9, seed: 0, stop: ["x"] },
  },
  {
    name: "another name for the most tokens",
    options: { maxTokens: 9 },
    quirks: { maxTokensField: "max_completion_tokens" },
    sent: { max_completion_tokens: 9 },
  },
  { name: "effort", options: { thinking: { enabled: true, effort: "low" } }, sent: { reasoning_effort: "low" } },
  { name: "tool choice without tools", options: { toolChoice: "required", parallelToolCalls: true }, sent: {} },
  { name: "text", options: { responseFormat: { type: "text" } }, sent: {} },
  {
    name: "any JSON",
    options: { responseFormat: { type: "json_object" } },
    sent: { response_format: { type: "json_object" } },
  },
  {
    name: "JSON of a schema",
    options: { responseFormat: { type: "json_schema", name: "answer", schema: '{"type":"object"}', strict: true } },
    sent: {
      response_format: {
        type: "json_schema",
        json_schema: { name: "answer", schema: { type: "object" }, strict: true },
      },
    },
  },
  { name: "keeping answers, which is not known here", options: { stateful: { store: true } }, sent: {} },
];

describe("options for Chat Completions", () => {
  for (const { name, options, quirks, sent } of optionCases) {
    test(name, () => assert.deepEqual(encoded({ options }, quirks), { ...always, ...sent }));
  }

  test("no option for usage where it is not known", () => {
    assert.deepEqual(encoded({}, { usageOption: false }), { model: "m-1", messages: [], stream: true });
  });

  const tool: ToolDefinition = { name: "look", description: "Looks.", parameters: '{"type":"object","b":1.0,"a":2}' };
  for (const [choice, sent] of [
    ["auto", "auto"],
    ["none", "none"],
    ["required", "required"],
    ["look", { type: "function", function: { name: "look" } }],
  ] as const) {
    test(`tool choice ${choice}`, () => {
      const body = encoded({ tools: [tool], options: { toolChoice: choice, parallelToolCalls: false } });
      assert.deepEqual(body["tool_choice"], sent);
      assert.equal(body["parallel_tool_calls"], false);
    });
  }

  test("a tool's schema goes out as it is written", () => {
    const tools: ToolDefinition[] = [tool, { name: "now", description: "", parameters: "", strict: true }];
    const body = encode({ model: "m", messages: [], tools, options: {} }, defaultQuirks, "p");
    assert.ok(body.includes(`"parameters":${tool.parameters}`));
    assert.deepEqual(JSON.parse(body).tools[1], {
      type: "function",
      function: { name: "now", parameters: { type: "object", properties: {} }, strict: true },
    });
  });

  test("a schema that is no JSON is the caller's error and names the tool", () => {
    const tools = [{ ...tool, parameters: "{" }];
    assert.throws(
      () => encode({ model: "m", messages: [], tools, options: {} }, defaultQuirks, "p"),
      (error) => error instanceof AgentError && error.kind === "invalid_request" && error.message.includes("look"),
    );
  });
});
