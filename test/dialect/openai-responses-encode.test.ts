import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { AgentError } from "../../src/chat/error.ts";
import { type ContentBlock, type Message, type Role, toolUses } from "../../src/chat/message.ts";
import type { ChatRequest, ModelOptions, ToolDefinition } from "../../src/chat/request.ts";
import { arrayOf, isJsonObject, type JsonObject, objectOf, parseJson } from "../../src/dialect/json.ts";
import { encode, unreadable } from "../../src/dialect/openai-responses-encode.ts";
import { defaultQuirks, type Quirks } from "../../src/dialect/quirks.ts";
import { validHistory } from "../../src/session/valid-history.ts";
import * as arbitrary from "../convert/arbitrary.ts";
import { checkInput } from "./openai-responses-request.ts";

function encodedText(request: Partial<ChatRequest>, quirks: Partial<Quirks> = {}): string {
  const whole = { model: "m-1", messages: [], tools: [], options: {}, ...request };
  return encode(whole, { ...defaultQuirks, ...quirks }, "p");
}

function encoded(request: Partial<ChatRequest>, quirks: Partial<Quirks> = {}): JsonObject {
  const body = encodedText(request, quirks);
  // A second time from the texts that were kept.
  assert.equal(encodedText(request, quirks), body);
  return checkInput(body);
}

const message = (role: Role, ...blocks: ContentBlock[]): Message => ({ role, blocks });
const text = (words: string): ContentBlock => ({ type: "text", text: words });
const call = (id: string, input = "{}"): ContentBlock => ({ type: "tool_use", id, name: `do_${id}`, input });
const result = (id: string, content: string): ContentBlock => ({ type: "tool_result", toolUseId: id, content });
const bytes = (source: string) => Buffer.from(source);
const own = { provider: "p", model: "m-1", dialect: "openai-responses" };
const thought = (id: string, more: Partial<Extract<ContentBlock, { type: "reasoning" }>> = {}): ContentBlock => ({
  type: "reasoning",
  content: "",
  encrypted: `enc-${id}`,
  summary: [`about ${id}`],
  id,
  ...own,
  ...more,
});

const sentText = (role: string, ...texts: string[]) => ({
  type: "message",
  role,
  content: texts.map((words) => ({ type: role === "assistant" ? "output_text" : "input_text", text: words })),
});
const sentCall = (id: string, input = "{}") => ({
  type: "function_call",
  call_id: id,
  name: `do_${id}`,
  arguments: input,
});
const sentResult = (id: string, output: unknown) => ({ type: "function_call_output", call_id: id, output });
const sentThought = (id: string) => ({
  type: "reasoning",
  summary: [{ type: "summary_text", text: `about ${id}` }],
  encrypted_content: `enc-${id}`,
});

interface HistoryCase {
  readonly name: string;
  readonly messages: Message[];
  readonly options?: ModelOptions;
  readonly quirks?: Partial<Quirks>;
  readonly sent: unknown[];
  readonly instructions?: string;
}

const unnamed = '{"type":"web_search_call", "id":"ws_1","action":{"9":1.0,"1":12345678901234567890}}';
const unknown = { type: "unknown", unknownType: "web_search_call", ...own, raw: bytes(unnamed) } as const;

const histories: readonly HistoryCase[] = [
  {
    name: "the first system message is the instructions, later ones stay where they are",
    messages: [
      message("system", text("Be "), text("brief.")),
      message("developer", text("Use tabs.")),
      message("user", text("Hi"), text("there")),
      message("system", text("Be kind.")),
      message("assistant", text("Hello")),
    ],
    quirks: { developerRole: "developer" },
    instructions: "Be brief.",
    sent: [
      sentText("developer", "Use tabs."),
      sentText("user", "Hi", "there"),
      sentText("system", "Be kind."),
      sentText("assistant", "Hello"),
    ],
  },
  {
    name: "a developer message where nobody knows developers",
    messages: [message("developer", text("Use tabs."))],
    sent: [sentText("system", "Use tabs.")],
  },
  {
    name: "images and files",
    messages: [
      message(
        "user",
        text("Look:"),
        { type: "image", url: "https://example.org/a.png", detail: "low" },
        { type: "image", url: "data:image/png;base64,eA==" },
        { type: "file", data: "data:application/pdf;base64,eA==", filename: "a.pdf" },
        { type: "file", fileId: "file-1" },
      ),
    ],
    sent: [
      {
        type: "message",
        role: "user",
        content: [
          { type: "input_text", text: "Look:" },
          { type: "input_image", image_url: "https://example.org/a.png", detail: "low" },
          { type: "input_image", image_url: "data:image/png;base64,eA==", detail: "auto" },
          { type: "input_file", filename: "a.pdf", file_data: "data:application/pdf;base64,eA==" },
          { type: "input_file", file_id: "file-1" },
        ],
      },
    ],
  },
  {
    name: "an answer's items in their order, its results in the order of its calls",
    messages: [
      message("user", text("Go")),
      message(
        "assistant",
        thought("r1"),
        { type: "text", text: "Looking.", phase: "commentary" },
        call("a", '{"x": 1.0}'),
        thought("r2"),
        call("b", ""),
        { type: "text", text: "Done.", phase: "final_answer" },
      ),
      message("tool", result("b", "second")),
      message("user", text("Meanwhile"), result("a", "first")),
    ],
    sent: [
      sentText("user", "Go"),
      sentThought("r1"),
      { ...sentText("assistant", "Looking."), phase: "commentary" },
      sentCall("a", '{"x": 1.0}'),
      sentThought("r2"),
      sentCall("b"),
      { ...sentText("assistant", "Done."), phase: "final_answer" },
      sentResult("a", "first"),
      sentResult("b", "second"),
      sentText("user", "Meanwhile"),
    ],
  },
  {
    name: "a call that nobody answered, and results of nothing",
    messages: [
      message("tool", result("x", "of nothing")),
      message("assistant", call("a"), call("b")),
      message("tool", result("b", "fine")),
      message("tool", result("b", "again")),
      message("user", text("?")),
    ],
    sent: [
      sentCall("a"),
      sentCall("b"),
      sentResult("a", "error: the call was not answered"),
      sentResult("b", "fine"),
      sentText("user", "?"),
    ],
  },
  {
    name: "a picture in a result",
    messages: [
      message("assistant", call("a")),
      message("tool", {
        type: "tool_result",
        toolUseId: "a",
        content: "see",
        parts: [
          { type: "text", text: "see" },
          { type: "image", url: "data:image/png;base64,eA==" },
        ],
      }),
    ],
    sent: [
      sentCall("a"),
      sentResult("a", [
        { type: "input_text", text: "see" },
        { type: "input_image", image_url: "data:image/png;base64,eA==", detail: "auto" },
      ]),
    ],
  },
  {
    name: "what says nothing is left out",
    messages: [
      message("user", text("Hi")),
      message("assistant", { type: "thinking", thinking: "Hm" }, text("")),
      message("user", text("")),
      message("user", text("Hello?")),
    ],
    sent: [sentText("user", "Hi"), sentText("user", "Hello?")],
  },
  {
    name: "reasoning of other providers, models and families is withheld; where nobody says, it is sent",
    messages: [
      message(
        "assistant",
        thought("r1", { provider: "q" }),
        thought("r2", { model: "m-2" }),
        thought("r3", { dialect: "other" }),
        { type: "reasoning", content: "", encrypted: "enc-r4", summary: ["about r4"] },
        { type: "thinking", thinking: "Hm", signature: "s", ...own },
        { type: "redacted_thinking", data: "x", ...own },
        text("Hi"),
      ),
    ],
    sent: [sentThought("r4"), sentText("assistant", "Hi")],
  },
  {
    name: "reasoning that nobody can read again is left out: plain text without its raw form, and nothing at all",
    messages: [
      message(
        "assistant",
        { type: "reasoning", content: "Hm", summary: [], ...own },
        { type: "reasoning", content: "", summary: ["Hm"], id: "rs_1", ...own },
        text("Hi"),
      ),
    ],
    sent: [sentText("assistant", "Hi")],
  },
  {
    name: "items without a name here go back to their provider, in any message",
    messages: [
      message("user", text("Find"), unknown, text("it")),
      message("assistant", { ...unknown, model: "m-2" }, text("Found.")),
      message("assistant", { ...unknown, provider: "q" }, { ...unknown, dialect: "other" }, text("Not sent.")),
    ],
    sent: [
      sentText("user", "Find"),
      JSON.parse(unnamed),
      sentText("user", "it"),
      JSON.parse(unnamed),
      sentText("assistant", "Found."),
      sentText("assistant", "Not sent."),
    ],
  },
  {
    name: "raw forms that are not what they say they are never get into a request",
    messages: [
      message(
        "assistant",
        { ...unknown, raw: bytes('{}],"store":true,"x":[{}') },
        { ...unknown, raw: bytes('{"type":"function_call","call_id":"x","name":"f","arguments":"{}"}') },
        { ...unknown, raw: bytes("1") },
        thought("r1", { raw: bytes('{"type":"message"}') }),
        thought("r2", { raw: bytes('{"type":"reasoning","encrypted_content":"x"}]') }),
        text("Hi"),
      ),
    ],
    sent: [sentThought("r1"), sentThought("r2"), sentText("assistant", "Hi")],
  },
  {
    name: "with a store ids are kept, and an id alone can be read; reasoning that led to nothing is left out",
    messages: [
      message("user", text("Go")),
      message("assistant", thought("r1"), thought("r2", { summary: [], encrypted: "" }), text("Hi"), thought("r3")),
      message("user", text("On")),
    ],
    options: { stateful: { store: true } },
    sent: [
      sentText("user", "Go"),
      { ...sentThought("r1"), id: "r1" },
      { type: "reasoning", id: "r2", summary: [] },
      sentText("assistant", "Hi"),
      sentText("user", "On"),
    ],
  },
  {
    name: "after a response that was stored only what is new goes",
    messages: [
      message("system", text("Be brief.")),
      message("user", text("Go")),
      message("assistant", thought("r1"), call("a"), call("b")),
      message("tool", result("b", "second")),
      message("tool", result("a", "first")),
      message("user", text("On")),
    ],
    options: { stateful: { previousResponseId: "resp_1" } },
    instructions: "Be brief.",
    sent: [sentResult("a", "first"), sentResult("b", "second"), sentText("user", "On")],
  },
  {
    name: "after a response of which nothing is in the history all goes",
    messages: [message("tool", result("a", "first")), message("user", text("On"))],
    options: { stateful: { previousResponseId: "resp_1" } },
    sent: [sentResult("a", "first"), sentText("user", "On")],
  },
];

describe("a history for the Responses API", () => {
  for (const { name, messages, options = {}, quirks, sent, instructions } of histories) {
    test(name, () => {
      const body = encoded({ messages, options }, quirks);
      assert.deepEqual(body["input"], sent);
      assert.equal(body["instructions"], instructions);
    });
  }

  test("reasoning and items without a name go back byte for byte", () => {
    const raw =
      ' {"id": "rs_1", "type":"reasoning", "summary":[ {"type":"summary_text","text":"caf\\u00e9"} ],"content":null,' +
      '"encrypted_content":"a\\/b==","z":1.0,"1":12345678901234567890,"status":"completed"} ';
    const messages = [message("assistant", thought("rs_1", { raw: bytes(raw) }), unknown, text("Hi"))];
    const rest =
      '"type":"reasoning","summary":[ {"type":"summary_text","text":"caf\\u00e9"} ],"encrypted_content":"a\\/b==","z":1.0,"1":12345678901234567890}';
    const hi = '{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Hi"}]}';
    for (const [store, start] of [
      [false, "{"],
      [true, '{"id":"rs_1",'],
    ] as const) {
      const body = encodedText({ messages, options: { stateful: { store } } });
      assert.ok(body.includes(`"input":[${start}${rest},${unnamed},${hi}]`), body);
    }
  });

  test("a message is written for each reader on its own", () => {
    const messages = [message("assistant", thought("r1"), text("Hi"))];
    const types = (request: Partial<ChatRequest>) =>
      arrayOf(objectOf(JSON.parse(encodedText({ messages, ...request })))["input"]).map(
        (item) => objectOf(item)["type"],
      );
    for (const [model, sent] of [
      ["m-1", ["reasoning", "message"]],
      ["m-2", ["message"]],
      ["m-1", ["reasoning", "message"]],
    ] as const) {
      assert.deepEqual(types({ model }), sent);
    }
  });

  test("audio is told to be unreadable, and in older messages left out in words", () => {
    const audio: ContentBlock = { type: "audio", data: "eA==", format: "wav" };
    assert.match(unreadable(audio) ?? "", /audio, which the Responses API does not take/);
    assert.match(encodedText({ messages: [message("user", audio)] }), /left out: audio/);
  });

  test("whatever the history, its request is one the API takes, and all that was said is in it", () => {
    const isSent = (block: ContentBlock) => block.type !== "audio" && block.type !== "tool_result";
    const sendable = (one: Message): Message => ({
      ...one,
      blocks: one.blocks.filter((block) => one.role === "tool" || isSent(block)).map(withoutAudio),
    });
    const stateful = fc.constantFrom({}, { store: true }, { store: false });
    fc.assert(
      fc.property(fc.array(arbitrary.message, { maxLength: 6 }), stateful, (anyMessages, options) => {
        const messages = validHistory(withOwnIds(anyMessages.map(sendable)));
        const body = encoded({ messages, options: { stateful: options } });
        const input = arrayOf(body["input"]).map(objectOf);
        assert.deepEqual(
          input.filter(({ type }) => type === "function_call").map((item) => item["arguments"]),
          messages.flatMap(toolUses).map(({ input: written }) => {
            if (isJsonObject(parseJson(written))) return written;
            return JSON.stringify(written.trim() === "" ? {} : { malformed_arguments: written.toWellFormed() });
          }),
        );
        const said = messages
          .filter(({ role }) => role === "assistant")
          .flatMap(({ blocks }) => blocks.flatMap((block) => (block.type === "text" ? [block.text] : [])));
        assert.deepEqual(
          input.flatMap(({ role, content }) =>
            role === "assistant" ? arrayOf(content).map((part) => objectOf(part)["text"]) : [],
          ),
          said.filter((words) => words !== ""),
        );
      }),
      { numRuns: 500 },
    );
  });
});

function withoutAudio(block: ContentBlock): ContentBlock {
  if (block.type !== "tool_result") return block;
  const { parts, ...rest } = block;
  const kept = parts?.filter((part) => part.type !== "audio");
  return kept === undefined ? rest : { ...rest, parts: kept };
}

/** Calls have ids of their own, as in a session. */
function withOwnIds(messages: readonly Message[]): Message[] {
  let made = 0;
  return messages.map((one) => ({
    ...one,
    blocks: one.blocks.map((block) => (block.type === "tool_use" ? { ...block, id: `call-${++made}` } : block)),
  }));
}

const always = { model: "m-1", input: [], stream: true };
const stateless = { ...always, store: false, include: ["reasoning.encrypted_content"] };
const optionCases: readonly { name: string; options: ModelOptions; quirks?: Partial<Quirks>; sent: object }[] = [
  { name: "none", options: {}, sent: stateless },
  {
    name: "numbers",
    options: { temperature: 0, topP: 0.5, maxTokens: 9, seed: 0, stop: [] },
    sent: { ...stateless, temperature: 0, top_p: 0.5, max_output_tokens: 9 },
  },
  {
    name: "an effort",
    options: { thinking: { effort: "low" } },
    sent: { ...stateless, reasoning: { effort: "low" } },
  },
  {
    name: "thinking that is to be shown",
    options: { thinking: { enabled: true, effort: "high", budgetTokens: 5 } },
    sent: { ...stateless, reasoning: { effort: "high", summary: "auto" } },
  },
  {
    name: "no thinking",
    options: { thinking: { enabled: false, effort: "low" } },
    sent: { ...stateless, reasoning: { effort: "none" } },
  },
  {
    name: "an effort where it is not known",
    options: { thinking: { effort: "low" } },
    quirks: { reasoningEffort: false },
    sent: stateless,
  },
  { name: "tool choice without tools", options: { toolChoice: "required", parallelToolCalls: true }, sent: stateless },
  { name: "text", options: { responseFormat: { type: "text" } }, sent: stateless },
  {
    name: "any JSON",
    options: { responseFormat: { type: "json_object" } },
    sent: { ...stateless, text: { format: { type: "json_object" } } },
  },
  {
    name: "JSON of a schema",
    options: { responseFormat: { type: "json_schema", name: "answer", schema: ' {"type":"object"}', strict: true } },
    sent: {
      ...stateless,
      text: { format: { type: "json_schema", name: "answer", schema: { type: "object" }, strict: true } },
    },
  },
  { name: "storing", options: { stateful: { store: true } }, sent: { ...always, store: true } },
  {
    name: "storing and encrypted reasoning",
    options: { stateful: { store: true, includeEncrypted: true } },
    sent: { ...stateless, store: true },
  },
  {
    name: "no encrypted reasoning, for models that have none",
    options: { stateful: { includeEncrypted: false } },
    sent: { ...always, store: false },
  },
  {
    name: "going on from a response",
    options: { stateful: { previousResponseId: "resp_1" } },
    sent: { ...always, store: true, previous_response_id: "resp_1" },
  },
  {
    name: "going on from a response, for the last time",
    options: { stateful: { previousResponseId: "resp_1", store: false } },
    sent: { ...stateless, previous_response_id: "resp_1" },
  },
];

describe("options for the Responses API", () => {
  for (const { name, options, quirks, sent } of optionCases) {
    test(name, () => assert.deepEqual(encoded({ options }, quirks), sent));
  }

  test("stop sequences are the caller's error", () => {
    assert.throws(
      () => encodedText({ options: { stop: ["x"] } }),
      (error) => error instanceof AgentError && error.kind === "invalid_request" && /options\.stop/.test(error.message),
    );
  });

  const tool: ToolDefinition = { name: "look", description: "Looks.", parameters: '{"type":"object","b":1.0,"a":2}' };
  for (const [choice, sent] of [
    ["auto", "auto"],
    ["none", "none"],
    ["required", "required"],
    ["look", { type: "function", name: "look" }],
  ] as const) {
    test(`tool choice ${choice}`, () => {
      const body = encoded({ tools: [tool], options: { toolChoice: choice, parallelToolCalls: false } });
      assert.deepEqual(body["tool_choice"], sent);
      assert.equal(body["parallel_tool_calls"], false);
    });
  }

  test("a tool's schema goes out as it is written, and models are held to it only where that is asked for", () => {
    const tools: ToolDefinition[] = [tool, { name: "now", description: "", parameters: "", strict: true }];
    const body = encodedText({ tools });
    assert.ok(body.includes(`"parameters":${tool.parameters},"strict":false`));
    assert.deepEqual(JSON.parse(body).tools[1], {
      type: "function",
      name: "now",
      parameters: { type: "object", properties: {} },
      strict: true,
    });
  });

  for (const request of [
    { tools: [{ ...tool, parameters: "{" }] },
    { options: { responseFormat: { type: "json_schema", name: "look", schema: "{" } } },
  ] as const) {
    test(`a schema that is no JSON is the caller's error and names ${Object.keys(request)}`, () => {
      assert.throws(
        () => encodedText(request),
        (error) => error instanceof AgentError && error.kind === "invalid_request" && error.message.includes("look"),
      );
    });
  }
});
