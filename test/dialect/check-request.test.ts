import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { checkRequest } from "./check-request.ts";

const schema = { type: "object", properties: { path: { type: "string", default: null } } };
const ask = { role: "user", content: "go" };
const call = { id: "c1", type: "function", function: { name: "look", arguments: '{"a":1}' } };
const calls = { role: "assistant", content: null, tool_calls: [call] };
const result = { role: "tool", tool_call_id: "c1", content: "" };
const tool = { type: "function", function: { name: "look", description: "Looks.", parameters: schema } };
const chat = (messages: unknown, more: object = {}) => ({ model: "m", stream: true, messages, ...more });

const anthropicAsk = { role: "user", content: [{ type: "text", text: "go" }] };
const use = { type: "tool_use", id: "c1", name: "look", input: {} };
const anthropicCalls = { role: "assistant", content: [{ type: "text", text: "I look." }, use] };
const anthropicResult = { type: "tool_result", tool_use_id: "c1", content: "seen" };
const anthropic = (messages: unknown, more: object = {}) => ({
  model: "m",
  stream: true,
  max_tokens: 9,
  messages,
  ...more,
});

const item = { type: "message", role: "user", content: [{ type: "input_text", text: "go" }] };
const itemCall = { type: "function_call", call_id: "c1", name: "look", arguments: "{}" };
const itemResult = { type: "function_call_output", call_id: "c1", output: "" };
const responses = (input: unknown, more: object = {}) => ({ model: "m", stream: true, store: false, input, ...more });

const taken: [path: string, body: object][] = [
  ["/v1/chat/completions", chat([{ role: "system", content: "be" }, ask, calls, result], { tools: [tool] })],
  ["/chat/completions", chat([ask, { ...calls, reasoning_content: "" }, result, ask], { tool_choice: undefined })],
  ["/v1/messages?beta=true", anthropic([anthropicAsk, anthropicCalls, { role: "user", content: [anthropicResult] }])],
  ["/v1/responses", responses([item, itemCall, itemResult, item])],
  ["/elsewhere", { anything: null }],
];

const refused: [path: string, body: object, says: string][] = [
  ["/chat/completions", { ...chat([ask]), top_k: 3 }, "request.top_k"],
  ["/chat/completions", chat([]), "request.messages"],
  ["/chat/completions", chat([ask], { temperature: null }), "request.temperature"],
  ["/chat/completions", chat([ask], { tools: [] }), "request.tools"],
  ["/chat/completions", chat([ask], { tools: [{ name: "look" }] }), "request.tools[0].name"],
  ["/chat/completions", chat([ask], { tools: [tool, tool] }), "request.tools[1].function.name"],
  ["/chat/completions", chat([ask], { tool_choice: "auto" }), "request.tool_choice"],
  ["/chat/completions", chat([{ role: "function", content: "x" }]), "request.messages[0].role"],
  ["/chat/completions", chat([{ ...ask, name: "Ada Lovelace" }]), "request.messages[0].name"],
  ["/chat/completions", chat([{ role: "user", content: "" }]), "request.messages[0].content"],
  ["/chat/completions", chat([{ role: "user", content: "\ud83d" }]), "request.messages[0].content"],
  ["/chat/completions", chat([{ role: "user", content: [{ type: "x" }] }]), "request.messages[0].content[0].type"],
  ["/chat/completions", chat([ask, { role: "assistant", content: null }]), "request.messages[1].content"],
  ["/chat/completions", chat([ask, { role: "assistant", content: "" }]), "request.messages[1].content"],
  ["/chat/completions", chat([ask, { ...calls, tool_calls: [] }]), "request.messages[1].tool_calls"],
  ["/chat/completions", chat([ask, calls]), "request.messages: no results of c1"],
  ["/chat/completions", chat([ask, calls, ask, result]), "request.messages[2]: a message of user before"],
  ["/chat/completions", chat([ask, result]), "request.messages[1].tool_call_id: c1 was not called"],
  ["/chat/completions", chat([ask, calls, result, result]), "request.messages[3].tool_call_id"],
  ["/chat/completions", chat([ask, calls, result, calls, result]), "request.messages[3]: the id c1"],
  [
    "/chat/completions",
    chat([ask, { ...calls, tool_calls: [call, { ...call, id: "c2" }] }, { ...result, tool_call_id: "c2" }, result]),
    "request.messages[2].tool_call_id: c1 comes first",
  ],
  [
    "/chat/completions",
    chat([ask, { ...calls, tool_calls: [{ ...call, function: { name: "look", arguments: '{"a' } }] }, result]),
    "request.messages[1].tool_calls[0].function.arguments",
  ],
  ["/messages", { ...anthropic([anthropicAsk]), seed: 1 }, "request.seed"],
  ["/messages", anthropic([anthropicAsk, anthropicAsk]), "request.messages[1].role"],
  ["/messages", anthropic([anthropicAsk, anthropicCalls]), "request.messages[1]: no results of c1"],
  ["/messages", anthropic([anthropicAsk, anthropicCalls, anthropicAsk]), "request.messages[2]: results of"],
  ["/messages", anthropic([{ role: "user", content: [anthropicResult] }]), "request.messages[0]: a result of no call"],
  ["/messages", anthropic([anthropicAsk, { role: "assistant", content: [] }]), "request.messages[1].content"],
  ["/messages", anthropic([anthropicAsk], { max_tokens: 0 }), "request.max_tokens"],
  ["/responses", responses([item, itemCall]), "request.input: no results of c1"],
  ["/responses", responses([item, itemResult]), "request.input[1].call_id"],
  ["/responses", responses([item, itemCall, item, itemResult]), "request.input[2]: a message before"],
  ["/responses", responses([item, { ...itemCall, arguments: '{"a' }, itemResult]), "request.input[1].arguments"],
  ["/responses", responses([{ ...item, content: [] }]), "request.input[0].content"],
  ["/responses", responses([item], { seed: 1 }), "request.seed"],
];

describe("the check of a request", () => {
  for (const [path, body] of taken) test(`${path} takes what is right`, () => checkRequest(path, JSON.stringify(body)));
  for (const [path, body, says] of refused) {
    test(`${path} refuses ${says}`, () => {
      assert.throws(
        () => checkRequest(path, JSON.stringify(body)),
        (error) => error instanceof Error && error.message.startsWith(says),
      );
    });
  }
  test("a body that is no JSON is refused", () => assert.throws(() => checkRequest("/responses", "{"), /no JSON/));
});
