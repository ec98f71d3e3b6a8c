import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { AgentError } from "../../src/chat/error.ts";
import type { ContentBlock, Message, Role } from "../../src/chat/message.ts";
import type { ChatRequest, ModelOptions, ToolDefinition } from "../../src/chat/request.ts";
import { encode, unreadable } from "../../src/dialect/anthropic-messages-encode.ts";
import { defaultQuirks, type Quirks } from "../../src/dialect/quirks.ts";
import { validHistory } from "../../src/session/valid-history.ts";
import { message as anyMessage } from "../convert/arbitrary.ts";
import { validAnthropicRequest } from "./valid-anthropic-request.ts";

const unmarked = { cacheControl: false };

function encodedText(request: Partial<ChatRequest>, quirks: Partial<Quirks> = unmarked): string {
  return encode(
    { model: "m-1", messages: [message("user", text("Hi"))], tools: [], options: {}, ...request },
    { ...defaultQuirks, ...quirks },
    "test",
  );
}

function encoded(request: Partial<ChatRequest>, quirks?: Partial<Quirks>): Record<string, unknown> {
  return { ...validAnthropicRequest(encodedText(request, quirks)) };
}

const message = (role: Role, ...blocks: ContentBlock[]): Message => ({ role, blocks });
const text = (words: string) => ({ type: "text", text: words }) as const;
const call = (id: string, input = "{}"): ContentBlock => ({ type: "tool_use", id, name: `do_${id}`, input });
const result = (id: string, content: string): ContentBlock => ({ type: "tool_result", toolUseId: id, content });
const sentCall = (id: string, input = {}) => ({ type: "tool_use", id, name: `do_${id}`, input });
const sentResult = (id: string, content: string) => ({ type: "tool_result", tool_use_id: id, content });
const origin = { provider: "test", model: "m-1", dialect: "anthropic-messages" } as const;
const thinking = (words: string, signature: string, from = {}): ContentBlock => ({
  type: "thinking",
  thinking: words,
  signature,
  ...origin,
  ...from,
});
const unknown = (raw: string, from = {}): ContentBlock => ({
  type: "unknown",
  unknownType: String(JSON.parse(raw).type),
  ...origin,
  raw: Buffer.from(raw),
  ...from,
});
const user = (...content: unknown[]) => ({ role: "user", content });
const assistant = (...content: unknown[]) => ({ role: "assistant", content });
const signed = (words: string, signature: string) => ({ type: "thinking", thinking: words, signature });

const hi = message("user", text("Hi"));
const histories: readonly { name: string; messages: Message[]; sent: unknown[] }[] = [
  {
    name: "neighbours of one role are one",
    messages: [
      hi,
      message("user", text("there")),
      message("assistant", text("A")),
      message("assistant", text("B")),
      hi,
    ],
    sent: [user(text("Hi"), text("there")), assistant(text("A"), text("B")), user(text("Hi"))],
  },
  {
    name: "all results stand in one user message, first in it and in the order of the calls",
    messages: [
      hi,
      message("assistant", text("Two."), call("a", '{"x": 1}'), call("b")),
      message("tool", result("b", "second")),
      message("user", text("Meanwhile"), result("a", "first")),
      message("assistant", text("Done.")),
      hi,
    ],
    sent: [
      user(text("Hi")),
      assistant(text("Two."), sentCall("a", { x: 1 }), sentCall("b")),
      user(sentResult("a", "first"), sentResult("b", "second"), text("Meanwhile")),
      assistant(text("Done.")),
      user(text("Hi")),
    ],
  },
  {
    name: "a call that nobody answered, and a result that answers no call",
    messages: [hi, message("assistant", call("a"), call("b")), message("tool", result("b", "fine"), result("z", "?"))],
    sent: [
      user(text("Hi")),
      assistant(sentCall("a"), sentCall("b")),
      user({ ...sentResult("a", "error: the call was not answered"), is_error: true }, sentResult("b", "fine")),
    ],
  },
  {
    name: "failed and empty results",
    messages: [
      hi,
      message("assistant", call("a"), call("b"), call("c"), call("d")),
      message(
        "tool",
        { type: "tool_result", toolUseId: "a", content: "broke", isError: true },
        { type: "tool_result", toolUseId: "b", content: "", isError: true },
        result("c", ""),
        {
          type: "tool_result",
          toolUseId: "d",
          content: "see",
          isError: true,
          parts: [text("see"), { type: "image", url: "data:image/png;base64,eA==" }],
        },
      ),
    ],
    sent: [
      user(text("Hi")),
      assistant(sentCall("a"), sentCall("b"), sentCall("c"), sentCall("d")),
      user(
        { ...sentResult("a", "broke"), is_error: true },
        { ...sentResult("b", "error"), is_error: true },
        { type: "tool_result", tool_use_id: "c" },
        { ...sentResult("d", "see"), is_error: true },
      ),
    ],
  },
  {
    name: "images, documents and what cannot be read in a result",
    messages: [
      hi,
      message("assistant", call("a")),
      message("tool", {
        type: "tool_result",
        toolUseId: "a",
        content: "see",
        parts: [
          text("see"),
          text(" "),
          { type: "image", url: "data:image/png;base64,eA==" },
          { type: "image", url: "data:image/tiff;base64,eA==" },
          { type: "audio", data: "eA==", format: "wav" },
          { type: "file", data: "data:application/pdf;base64,eA==", filename: "a.pdf" },
        ],
      }),
    ],
    sent: [
      user(text("Hi")),
      assistant(sentCall("a")),
      user({
        type: "tool_result",
        tool_use_id: "a",
        content: [
          text("see"),
          { type: "image", source: { type: "base64", media_type: "image/png", data: "eA==" } },
          text("(left out: an image of type image/tiff; Anthropic reads image/jpeg, image/png, image/gif, image/webp)"),
          text("(left out: audio of type wav)"),
          {
            type: "document",
            source: { type: "base64", media_type: "application/pdf", data: "eA==" },
            title: "a.pdf",
          },
        ],
      }),
    ],
  },
  {
    name: "images and files of the user",
    messages: [
      message(
        "user",
        { type: "image", url: "https://example.org/a.png", detail: "low" },
        { type: "image", url: "data:image/webp;name=a;base64,eA==" },
        { type: "image", url: "data:image/gif,%47" },
        { type: "file", data: "data:application/pdf;base64,eA==" },
        { type: "file", data: "data:text/csv;base64,w6k7", filename: "a.csv" },
        { type: "file", data: "data:application/json,%7B%7D" },
        { type: "file", data: "data:image/png;base64,eA==", filename: "a.png" },
        { type: "file", fileId: "file_1" },
      ),
    ],
    sent: [
      user(
        { type: "image", source: { type: "url", url: "https://example.org/a.png" } },
        { type: "image", source: { type: "base64", media_type: "image/webp", data: "eA==" } },
        { type: "image", source: { type: "base64", media_type: "image/gif", data: "Rw==" } },
        { type: "document", source: { type: "base64", media_type: "application/pdf", data: "eA==" } },
        { type: "document", source: { type: "text", media_type: "text/plain", data: "é;" }, title: "a.csv" },
        { type: "document", source: { type: "text", media_type: "text/plain", data: "{}" } },
        { type: "image", source: { type: "base64", media_type: "image/png", data: "eA==" } },
        { type: "document", source: { type: "file", file_id: "file_1" } },
      ),
    ],
  },
  {
    name: "thinking goes back in its place, also without words, redacted, and in older turns",
    messages: [
      hi,
      message(
        "assistant",
        thinking("Hm", "s1"),
        text("A"),
        thinking("", "s2"),
        { type: "redacted_thinking", data: "d1", ...origin },
        call("a"),
      ),
      message("tool", result("a", "x")),
      message("assistant", thinking("So", "s3"), text("B")),
      hi,
    ],
    sent: [
      user(text("Hi")),
      assistant(
        signed("Hm", "s1"),
        text("A"),
        signed("", "s2"),
        { type: "redacted_thinking", data: "d1" },
        sentCall("a"),
      ),
      user(sentResult("a", "x")),
      assistant(signed("So", "s3"), text("B")),
      user(text("Hi")),
    ],
  },
  {
    name: "thinking of others, of other models and without a signature stays here",
    messages: [
      hi,
      message(
        "assistant",
        thinking("1", "s", { provider: "other" }),
        thinking("2", "s", { model: "m-2" }),
        thinking("3", "s", { dialect: "openai-chat" }),
        thinking("4", ""),
        { type: "redacted_thinking", data: "6", ...origin, model: "m-2" },
        { type: "reasoning", content: "7", summary: [], ...origin },
        text("A"),
      ),
      hi,
    ],
    sent: [user(text("Hi")), assistant(text("A")), user(text("Hi"))],
  },
  {
    name: "an assistant message never ends in thinking",
    messages: [
      hi,
      message("assistant", thinking("Hm", "s1")),
      message("user", text("Well?")),
      message("assistant", text("A"), thinking("Hm", "s2")),
      hi,
    ],
    sent: [user(text("Hi"), text("Well?")), assistant(text("A")), user(text("Hi"))],
  },
  {
    name: "blank texts and empty messages are left out",
    messages: [
      message("user", text(" ")),
      hi,
      message("assistant", text(""), { type: "reasoning", content: "x", summary: [] }),
      message("user", text("\n"), text("Hello?")),
    ],
    sent: [user(text("Hi"), text("Hello?"))],
  },
  {
    name: "white space between the assistant's blocks goes back, and nowhere alone",
    messages: [
      hi,
      message("assistant", thinking("Hm", "s1"), text("\n\n"), call("a")),
      message("tool", result("a", "1")),
      message("assistant", text("\n"), thinking("Hm", "s2")),
      hi,
      message("assistant", text("Well"), thinking("Hm", "s3"), text(" ")),
    ],
    sent: [
      user(text("Hi")),
      assistant(signed("Hm", "s1"), text("\n\n"), sentCall("a")),
      user(sentResult("a", "1"), text("Hi")),
      assistant(text("Well")),
    ],
  },
  {
    name: "the user speaks first",
    messages: [message("assistant", text("Welcome")), hi],
    sent: [user(text("(What was said before is left out.)")), assistant(text("Welcome")), user(text("Hi"))],
  },
  {
    name: "the assistant goes on from a text without white space at its end",
    messages: [hi, message("assistant", text("Well, \n"))],
    sent: [user(text("Hi")), assistant(text("Well,"))],
  },
  {
    name: "unknown blocks go back to their provider whatever the model, and to nobody else",
    messages: [
      hi,
      message(
        "assistant",
        unknown('{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}', { model: "m-2" }),
        unknown('{"type":"web_search_tool_result","tool_use_id":"s1","content":[]}'),
        unknown('{"type":"other"}', { provider: "other" }),
        unknown('{"type":"other"}', { dialect: "openai-responses" }),
        unknown('{"type":"other"}', { raw: Buffer.from('{"type":"other"') }),
        unknown('{"type":"other"}', { raw: Buffer.from('{"type":"text","text":""}') }),
        { type: "unknown", unknownType: "other", ...origin },
      ),
      hi,
    ],
    sent: [
      user(text("Hi")),
      assistant(
        { type: "server_tool_use", id: "s1", name: "web_search", input: {} },
        { type: "web_search_tool_result", tool_use_id: "s1", content: [] },
      ),
      user(text("Hi")),
    ],
  },
  {
    name: "the whole form of a text and of a call goes out instead of the plain one",
    messages: [
      hi,
      message(
        "assistant",
        text("As said"),
        unknown('{"type":"text","text":"As said","citations":[{"cited_text":"c"}]}'),
        text("Other"),
        unknown('{"type":"text","text":"Not it","citations":[]}'),
        call("a"),
        unknown('{"type":"tool_use","id":"a","name":"do_a","input":{},"caller":{"type":"program"}}'),
      ),
      message("tool", result("a", "x")),
    ],
    sent: [
      user(text("Hi")),
      assistant({ ...text("As said"), citations: [{ cited_text: "c" }] }, text("Other"), {
        ...sentCall("a"),
        caller: { type: "program" },
      }),
      user(sentResult("a", "x")),
    ],
  },
  {
    name: "ids and names that Anthropic does not take, and ids used twice",
    messages: [
      hi,
      message("assistant", { type: "tool_use", id: "functions.read:0", name: "fs.read", input: "" }, call("a")),
      message("tool", result("functions.read:0", "1"), result("a", "2")),
      message("assistant", call("a"), { type: "tool_use", id: "", name: "", input: "" }),
      message("tool", result("a", "3"), result("", "4")),
    ],
    sent: [
      user(text("Hi")),
      assistant({ type: "tool_use", id: "functions_read_0", name: "fs_read", input: {} }, sentCall("a")),
      user(sentResult("functions_read_0", "1"), sentResult("a", "2")),
      assistant({ ...sentCall("a"), id: "a_2" }, { type: "tool_use", id: "call", name: "unnamed", input: {} }),
      user(sentResult("a_2", "3"), sentResult("call", "4")),
    ],
  },
  {
    name: "one id for two calls of one message",
    messages: [hi, message("assistant", call("a"), call("a")), message("tool", result("a", "1"), result("a", "2"))],
    sent: [
      user(text("Hi")),
      assistant(sentCall("a"), { ...sentCall("a"), id: "a_2" }),
      user(sentResult("a", "1"), sentResult("a_2", "2")),
    ],
  },
  {
    name: "halves of surrogate pairs are replaced",
    messages: [
      message("user", text("Hi \ud83d")),
      message("assistant", call("a", '{"x":"\\ud83d","y":"\\ud83d\\ude00"}')),
      message("tool", result("a", "\ude00")),
    ],
    sent: [
      user(text("Hi \ufffd")),
      assistant(sentCall("a", { x: "\ufffd", y: "😀" })),
      user(sentResult("a", "\ufffd")),
    ],
  },
  {
    name: "arguments that are no JSON object are wrapped",
    messages: [
      hi,
      message("assistant", call("a", '{"path": "a'), call("b", "[1]"), call("c", " ")),
      message("tool", result("a", "1"), result("b", "2"), result("c", "3")),
    ],
    sent: [
      user(text("Hi")),
      assistant(
        sentCall("a", { malformed_arguments: '{"path": "a' }),
        sentCall("b", { malformed_arguments: "[1]" }),
        sentCall("c"),
      ),
      user(sentResult("a", "1"), sentResult("b", "2"), sentResult("c", "3")),
    ],
  },
];

describe("a history for Messages", () => {
  for (const { name, messages, sent } of histories) {
    test(name, () => {
      assert.deepEqual(encoded({ messages })["messages"], sent);
      // A second time from the texts that were kept.
      assert.deepEqual(encoded({ messages })["messages"], sent);
    });
  }

  test("system and developer messages are the system prompt, wherever they stand", () => {
    const messages = [
      message("system", text("Be brief."), text("")),
      hi,
      message("developer", text("Use tabs.")),
      message("assistant", text("A")),
      hi,
    ];
    const body = encoded({ messages });
    assert.deepEqual(body["system"], [text("Be brief."), text("Use tabs.")]);
    assert.deepEqual(body["messages"], [user(text("Hi")), assistant(text("A")), user(text("Hi"))]);
  });

  test("arguments and raw forms go out in their own text", () => {
    const input = '{"z": 1.0, "10": 9007199254740993,\n "2": "\\u00e9 \\ud83d\\ude00"}';
    const rawThinking = '{"signature":"s","thinking":"\\u00e9 \\/","type":"thinking"}';
    const rawRedacted = '{"data":"\\u0064","type":"redacted_thinking"}';
    const rawBlock = '{"type":"hologram","depth":9007199254740993,"size":1.0}';
    const body = encodedText({
      messages: [
        hi,
        message(
          "assistant",
          thinking("é /", "s", { raw: Buffer.from(rawThinking) }),
          { type: "redacted_thinking", data: "d", ...origin, raw: Buffer.from(rawRedacted) },
          unknown(rawBlock),
          call("a", input),
        ),
        message("tool", result("a", "x")),
      ],
    });
    validAnthropicRequest(body);
    const call_ = `{"type":"tool_use","id":"a","name":"do_a","input":${input}}`;
    assert.ok(body.includes(`"content":[${rawThinking},${rawRedacted},${rawBlock},${call_}]`), body);
  });

  test("thinking that was withheld for another model is sent again after switching back", () => {
    const messages = [hi, message("assistant", thinking("Hm", "s1"), text("A")), hi];
    const contents = ["m-1", "m-2", "m-1"].map((model) => encoded({ model, messages })["messages"]);
    assert.deepEqual(contents[0], contents[2]);
    assert.deepEqual(contents[1], [user(text("Hi")), assistant(text("A")), user(text("Hi"))]);
  });

  const refused: readonly { name: string; messages: Message[]; says: RegExp }[] = [
    { name: "nothing", messages: [message("system", text("x"))], says: /messages: say nothing/ },
  ];
  for (const { name, messages, says } of refused) {
    test(`${name} is refused`, () => {
      assert.throws(
        () => encodedText({ messages }),
        (error) => error instanceof AgentError && error.kind === "invalid_request" && says.test(error.message),
      );
    });
  }

  const unread: { name: string; block: ContentBlock; says: RegExp }[] = [
    { name: "audio", block: { type: "audio", data: "eA==", format: "wav" }, says: /audio \(wav\)|audio of type wav/ },
    { name: "a strange file", block: { type: "file", data: "data:font/woff,x" }, says: /font\/woff/ },
    { name: "a strange image", block: { type: "image", url: "data:image/bmp,x" }, says: /image\/bmp/ },
    { name: "an image over http", block: { type: "image", url: "http://a/b" }, says: /https:/ },
    { name: "a file without content", block: { type: "file" }, says: /without content/ },
  ];
  for (const { name, block, says } of unread) {
    test(`${name} is told to be unreadable, and in older messages left out in words`, () => {
      assert.match(unreadable(block) ?? "", says);
      const sent = encodedText({ messages: [message("user", block)] });
      assert.match(sent, /\(left out: /);
      assert.match(sent, says);
    });
  }

  test("whatever happened, the history is one that Anthropic takes", () => {
    const known = fc.constantFrom<ContentBlock>(
      thinking("", "s"),
      thinking("Hm", "s"),
      { type: "redacted_thinking", data: "d", ...origin },
      unknown('{"type":"hologram"}'),
      call("a"),
      call("b", "{"),
      result("a", "x"),
      result("b", ""),
      text(" "),
      text("x "),
    );
    const blocks = fc.array(known, { maxLength: 6 });
    const role = fc.constantFrom<Role>("user", "assistant", "assistant", "tool", "system");
    const history = fc.array(
      fc.oneof(
        anyMessage,
        fc.tuple(role, blocks).map(([who, some]) => message(who, ...some)),
      ),
      { maxLength: 8 },
    );
    const budgets = fc.option(fc.integer({ min: 1024, max: 50_000 }), { nil: undefined });
    let taken = 0;
    fc.assert(
      fc.property(history, budgets, fc.boolean(), (messages, budgetTokens, cacheControl) => {
        const options = budgetTokens === undefined ? {} : { thinking: { budgetTokens } };
        for (const given of [messages, validHistory(messages)]) {
          let body: string;
          try {
            body = encodedText({ messages: given, options }, { cacheControl });
          } catch (error) {
            assert.ok(error instanceof AgentError && error.kind === "invalid_request", String(error));
            continue;
          }
          validAnthropicRequest(body);
          taken++;
        }
      }),
      { numRuns: 500 },
    );
    assert.ok(taken > 400, `${taken} were encoded`);
  });
});

describe("marks for the prompt cache", () => {
  const tools = ["a", "b"].map((name): ToolDefinition => ({ name, description: "", parameters: "" }));
  const messages = [
    message("system", text("S1"), text("S2")),
    hi,
    message("assistant", call("a"), call("b")),
    message("tool", result("a", "1"), result("b", "2")),
    message("assistant", text("A")),
    message("user", text("x"), text("y")),
  ];
  const end = { cache_control: { type: "ephemeral" } };

  test("stand at the end of tools, system and the last two user turns", () => {
    const body = encoded({ messages, tools }, {});
    const input_schema = { type: "object", properties: {} };
    assert.deepEqual(body["system"], [text("S1"), { ...text("S2"), ...end }]);
    assert.deepEqual(body["tools"], [
      { name: "a", input_schema },
      { name: "b", input_schema, ...end },
    ]);
    assert.deepEqual(body["messages"], [
      user(text("Hi")),
      assistant(sentCall("a"), sentCall("b")),
      user(sentResult("a", "1"), { ...sentResult("b", "2"), ...end }),
      assistant(text("A")),
      user(text("x"), { ...text("y"), ...end }),
    ]);
  });

  test("leave everything else as it is", () => {
    const withMarks = encodedText({ messages, tools }, {}).replaceAll(',"cache_control":{"type":"ephemeral"}', "");
    assert.equal(withMarks, encodedText({ messages, tools }));
  });
});

const always = { model: "m-1", max_tokens: 32_000, messages: [user(text("Hi"))], stream: true };
const optionCases: readonly { name: string; options: ModelOptions; quirks?: Partial<Quirks>; sent: object }[] = [
  { name: "none", options: {}, sent: {} },
  {
    name: "numbers",
    options: { temperature: 0, topP: 0.5, maxTokens: 9, seed: 0, stop: ["x"], stateful: { store: true } },
    sent: { temperature: 0, top_p: 0.5, max_tokens: 9, stop_sequences: ["x"] },
  },
  {
    name: "another default for the most tokens",
    options: {},
    quirks: { defaultMaxTokens: 7 },
    sent: { max_tokens: 7 },
  },
  {
    name: "a thinking budget",
    options: { thinking: { enabled: true, budgetTokens: 2000 } },
    sent: { thinking: { type: "enabled", budget_tokens: 2000 } },
  },
  {
    name: "a thinking budget larger than the default for the whole",
    options: { thinking: { budgetTokens: 40_000 } },
    sent: { thinking: { type: "enabled", budget_tokens: 40_000 }, max_tokens: 44_096 },
  },
  {
    name: "thinking without a budget",
    options: { thinking: { enabled: true } },
    sent: { thinking: { type: "adaptive" } },
  },
  {
    name: "thinking with effort",
    options: { thinking: { enabled: true, effort: "low" } },
    sent: { thinking: { type: "adaptive" }, output_config: { effort: "low" } },
  },
  { name: "effort alone", options: { thinking: { effort: "max" } }, sent: { output_config: { effort: "max" } } },
  {
    name: "the least effort of others",
    options: { thinking: { effort: "minimal" } },
    sent: { output_config: { effort: "low" } },
  },
  { name: "no effort", options: { thinking: { effort: "none" } }, sent: { thinking: { type: "disabled" } } },
  {
    name: "no thinking",
    options: { thinking: { enabled: false, budgetTokens: 5000, effort: "high" } },
    sent: { thinking: { type: "disabled" } },
  },
  { name: "tool choice without tools", options: { toolChoice: "required", parallelToolCalls: false }, sent: {} },
  { name: "text", options: { responseFormat: { type: "text" } }, sent: {} },
  {
    name: "JSON of a schema, with effort",
    options: {
      thinking: { effort: "high" },
      responseFormat: {
        type: "json_schema",
        name: "answer",
        schema: ' {"type":"object","additionalProperties":false} ',
        strict: true,
      },
    },
    sent: {
      output_config: {
        effort: "high",
        format: { type: "json_schema", schema: { type: "object", additionalProperties: false } },
      },
    },
  },
];

describe("options for Messages", () => {
  for (const { name, options, quirks, sent } of optionCases) {
    test(name, () => assert.deepEqual(encoded({ options }, { ...unmarked, ...quirks }), { ...always, ...sent }));
  }

  const tool: ToolDefinition = { name: "look", description: "Looks.", parameters: '{"type":"object","b":1.0,"a":2}' };
  for (const [choice, parallelToolCalls, sent] of [
    [undefined, undefined, undefined],
    [undefined, true, undefined],
    [undefined, false, { type: "auto", disable_parallel_tool_use: true }],
    ["auto", undefined, { type: "auto" }],
    ["none", false, { type: "none" }],
    ["required", false, { type: "any", disable_parallel_tool_use: true }],
    ["look", undefined, { type: "tool", name: "look" }],
  ] as const) {
    test(`tool choice ${choice}, parallel calls ${parallelToolCalls}`, () => {
      const options: ModelOptions = {
        ...(choice === undefined ? {} : { toolChoice: choice }),
        ...(parallelToolCalls === undefined ? {} : { parallelToolCalls }),
      };
      assert.deepEqual(encoded({ tools: [tool], options })["tool_choice"], sent);
    });
  }

  test("a tool's schema goes out as it is written", () => {
    const tools: ToolDefinition[] = [tool, { name: "now", description: "", parameters: "", strict: true }];
    const body = encodedText({ tools });
    assert.ok(body.includes(`"input_schema":${tool.parameters}`));
    assert.deepEqual(JSON.parse(body).tools[1], {
      name: "now",
      input_schema: { type: "object", properties: {} },
      strict: true,
    });
  });

  const loop = (...first: ContentBlock[]): Message[] => [
    hi,
    message("assistant", ...first, call("a")),
    message("tool", result("a", "1")),
    message("assistant", call("b")),
    message("tool", result("b", "2")),
  ];
  for (const [name, messages, thinks] of [
    ["that began with thinking", loop(thinking("Hm", "s")), true],
    ["that began without", loop(), false],
    ["that another model began", loop(thinking("Hm", "s", { model: "m-2" })), false],
    ["that is over", [...loop(), message("assistant", text("A")), hi], true],
  ] as const) {
    test(`a thinking budget in a loop of calls ${name}`, () => {
      const body = encoded({ messages, options: { thinking: { budgetTokens: 1024 } } });
      assert.equal("thinking" in body, thinks);
    });
    test(`adaptive thinking in a loop of calls ${name}`, () => {
      assert.deepEqual(encoded({ messages, options: { thinking: { enabled: true } } })["thinking"], {
        type: "adaptive",
      });
    });
  }

  const refused: readonly { name: string; request: Partial<ChatRequest>; kind: string; field: string; says: RegExp }[] =
    [
      {
        name: "a budget below the least",
        request: { options: { thinking: { budgetTokens: 1023 } } },
        kind: "invalid_request",
        field: "options.thinking.budgetTokens",
        says: /1023.*1024/,
      },
      {
        name: "a budget that leaves no room for an answer",
        request: { options: { maxTokens: 2000, thinking: { budgetTokens: 2000 } } },
        kind: "invalid_request",
        field: "options.thinking.budgetTokens",
        says: /below options.maxTokens/,
      },
      {
        name: "a schema that is no JSON",
        request: { tools: [{ ...tool, parameters: "{" }] },
        kind: "invalid_request",
        field: "tools.parameters",
        says: /look/,
      },
      {
        name: "an answer's schema that is no object",
        request: { options: { responseFormat: { type: "json_schema", name: "answer", schema: "true" } } },
        kind: "invalid_request",
        field: "options.responseFormat.schema",
        says: /answer/,
      },
    ];
  for (const { name, request, kind, field, says } of refused) {
    test(`${name} is refused`, () => {
      assert.throws(
        () => encodedText(request),
        (error) =>
          error instanceof AgentError &&
          error.kind === kind &&
          error.fieldViolations[0]?.field === field &&
          says.test(error.message),
      );
    });
  }
});
