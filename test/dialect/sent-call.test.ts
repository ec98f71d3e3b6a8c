import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ToolDefinition } from "../../src/chat/request.ts";
import { type DialectId, dialects } from "../../src/dialect/dialect.ts";
import { arrayOf, type JsonObject, objectOf, parseJson } from "../../src/dialect/json.ts";
import { defaultQuirks } from "../../src/dialect/quirks.ts";

/** The request that sends one call back, and the call in it: its name and its arguments as a value. */
function sentCall(dialect: DialectId, name: string, input: string, tools: readonly ToolDefinition[] = []) {
  const request = {
    model: "m",
    messages: [
      { role: "user", blocks: [{ type: "text", text: "go" }] },
      { role: "assistant", blocks: [{ type: "tool_use", id: "c1", name, input }] },
      { role: "tool", blocks: [{ type: "tool_result", toolUseId: "c1", content: "done" }] },
    ],
    tools,
    options: { maxTokens: 100 },
  } as const;
  const text = dialects[dialect].encode(request, defaultQuirks, "p");
  const call = callIn(dialect, objectOf(parseJson(text)));
  const given = call["input"] ?? call["arguments"];
  return { text, name: call["name"], value: typeof given === "string" ? parseJson(given) : given };
}

function callIn(dialect: DialectId, request: JsonObject): JsonObject {
  const messages = arrayOf(request["messages"] ?? request["input"]).map(objectOf);
  if (dialect === "openai-responses") return messages[1] ?? {};
  const message = messages[1] ?? {};
  if (dialect === "anthropic-messages") return objectOf(arrayOf(message["content"])[0]);
  return objectOf(objectOf(arrayOf(message["tool_calls"])[0])["function"]);
}

const inputs: readonly { name: string; input: string; value: unknown }[] = [
  { name: "none", input: "", value: {} },
  { name: "white space", input: " \n", value: {} },
  { name: "cut", input: '{"path":"no', value: { malformed_arguments: '{"path":"no' } },
  { name: "no JSON", input: "path = notes", value: { malformed_arguments: "path = notes" } },
  { name: "an array", input: '["notes"]', value: { malformed_arguments: '["notes"]' } },
  { name: "a text", input: '"notes"', value: { malformed_arguments: '"notes"' } },
  { name: "null", input: "null", value: { malformed_arguments: "null" } },
  { name: "two objects", input: '{"a":1}{"b":2}', value: { malformed_arguments: '{"a":1}{"b":2}' } },
  { name: "half a surrogate pair", input: '{"a":"\ud83d', value: { malformed_arguments: '{"a":"\ufffd' } },
];

const long = "n".repeat(200);
const names: readonly { name: string; sent: Record<DialectId, string> }[] = [
  { name: "look_at-2", sent: same("look_at-2") },
  { name: "functions.look", sent: same("functions_look") },
  { name: "<|channel|>look", sent: same("__channel__look") },
  { name: "schauen für", sent: same("schauen_f_r") },
  {
    name: long,
    sent: {
      "anthropic-messages": long.slice(0, 128),
      "openai-chat": long.slice(0, 64),
      "openai-responses": long.slice(0, 128),
    },
  },
];

function same(sent: string): Record<DialectId, string> {
  return { "anthropic-messages": sent, "openai-chat": sent, "openai-responses": sent };
}

for (const dialect of ["anthropic-messages", "openai-chat", "openai-responses"] as const) {
  describe(`a call that goes back over ${dialect}`, () => {
    for (const { name, input, value } of inputs) {
      test(`its arguments are an object, also if they were ${name}`, () => {
        assert.deepEqual(sentCall(dialect, "look", input).value, value);
      });
    }

    test("whole arguments stay byte for byte", () => {
      const input = '{ "b" : 1.0,\n"a":"\\u00e9", "b":2 }';
      const written = dialect === "anthropic-messages" ? input : JSON.stringify(input);
      const { text } = sentCall(dialect, "look", input);
      assert.ok(text.includes(written), text);
    });

    for (const { name, sent } of names) {
      test(`the name ${name.slice(0, 20)} is sent as one that APIs take`, () => {
        assert.equal(sentCall(dialect, name, "{}").name, sent[dialect]);
      });
    }
  });
}

for (const dialect of ["openai-chat", "openai-responses"] as const) {
  test(`over ${dialect} a call of a tool that is offered has the tool's own name`, () => {
    const tool = { name: "files.look", description: "", parameters: "{}" };
    assert.equal(sentCall(dialect, tool.name, "{}", [tool]).name, tool.name);
    assert.equal(sentCall(dialect, "files.peek", "{}", [tool]).name, "files_peek");
  });
}
