import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { AgentError } from "../../../src/chat/error.ts";
import type { GenerateOptions } from "../../../src/chat/request.ts";
import { turnRequestFromOpenAI } from "../../../src/convert/openai/request.ts";

const messages = [{ role: "user", content: "hi" }];
const readMessages = [{ role: "user", blocks: [{ type: "text", text: "hi" }] }];

test("a request is read with its tools and its stream options", () => {
  const tool = {
    type: "function",
    function: { name: "f", description: "adds", parameters: { type: "object", properties: {} }, strict: true },
  };
  assert.deepEqual(
    turnRequestFromOpenAI({
      model: "openai/gpt",
      messages,
      tools: [tool, { type: "function", function: { name: "g" } }],
      stream: true,
      stream_options: { include_usage: true },
      user: "ann",
      logit_bias: { 1: 2 },
      n: 1,
    }),
    {
      request: {
        sessionId: "",
        messages: readMessages,
        model: "openai/gpt",
        options: {},
        tools: [
          { name: "f", description: "adds", parameters: '{"type":"object","properties":{}}', strict: true },
          { name: "g", description: "", parameters: "" },
        ],
        requestId: "",
      },
      stream: true,
      includeUsage: true,
    },
  );
});

const options: [params: object, read: GenerateOptions][] = [
  [
    { temperature: 0, top_p: 0, seed: 0, max_tokens: 0 },
    { temperature: 0, topP: 0, seed: 0, maxTokens: 0 },
  ],
  [{ temperature: null, stop: null, seed: null, metadata: null, response_format: null, reasoning_effort: null }, {}],
  [{ max_tokens: 7 }, { maxTokens: 7 }],
  [{ max_tokens: 7, max_completion_tokens: 9 }, { maxTokens: 9 }],
  [{ stop: "END" }, { stop: ["END"] }],
  [{ stop: ["a", "b"] }, { stop: ["a", "b"] }],
  [{ stop: [] }, {}],
  [{ seed: -3 }, { seed: -3 }],
  [{ parallel_tool_calls: false }, { parallelToolCalls: false }],
  [{ tool_choice: "required" }, { toolChoice: "required" }],
  [{ tool_choice: "any" }, { toolChoice: "required" }],
  [{ tool_choice: { type: "function", function: { name: "f" } } }, { toolChoice: "f" }],
  [{ function_call: "none" }, { toolChoice: "none" }],
  [{ function_call: { name: "f" } }, { toolChoice: "f" }],
  [{ reasoning_effort: "high" }, { thinking: { effort: "high" } }],
  [{ store: true }, { stateful: { store: true } }],
  [{ metadata: { a: "b" } }, { metadata: { a: "b" } }],
  [{ response_format: { type: "text" } }, { responseFormat: { type: "text" } }],
  [{ response_format: { type: "json_object" } }, { responseFormat: { type: "json_object" } }],
  [
    { response_format: { type: "json_schema", json_schema: { name: "n", schema: { type: "object" }, strict: false } } },
    { responseFormat: { type: "json_schema", name: "n", schema: '{"type":"object"}', strict: false } },
  ],
];
describe("options are read", () => {
  for (const [params, read] of options)
    test(JSON.stringify(params), () =>
      assert.deepEqual(turnRequestFromOpenAI({ model: "m", messages, ...params }).request.options, read),
    );
});

test("calls and results of older clients find each other, also when a function is called twice", () => {
  const called = { role: "assistant", content: null, function_call: { name: "f", arguments: "{}" } };
  const answered = { role: "function", name: "f", content: "4" };
  const { request } = turnRequestFromOpenAI({
    model: "m",
    messages: [...messages, called, answered, called, answered],
    functions: [{ name: "f", parameters: { type: "object" } }],
  });
  const ids = request.messages.flatMap((message) =>
    message.blocks.flatMap((block) =>
      block.type === "tool_use" ? [block.id] : block.type === "tool_result" ? [block.toolUseId] : [],
    ),
  );
  assert.deepEqual(ids, ["function_f_1", "function_f_1", "function_f_2", "function_f_2"]);
  assert.deepEqual(request.tools, [{ name: "f", description: "", parameters: '{"type":"object"}' }]);
});

const badRequests: [field: string, params: unknown, says: RegExp][] = [
  ["request", [], /is an array; must be an object/],
  ["messages", { model: "m" }, /is missing; must be an array/],
  ["messages[0].role", { messages: [{ role: "robot" }] }, /"robot"/],
  ["model", { messages, model: 7 }, /must be a string/],
  ["n", { messages, n: 2 }, /is 2/],
  ["logprobs", { messages, logprobs: true }, /not given/],
  ["modalities[1]", { messages, modalities: ["text", "audio"] }, /"audio"/],
  ["audio", { messages, audio: { voice: "ash", format: "wav" } }, /spoken/],
  ["temperature", { messages, temperature: "hot" }, /must be a number/],
  ["temperature", { messages, temperature: 3 }, /from 0 to 2/],
  ["top_p", { messages, top_p: -1 }, /from 0 to 1/],
  ["max_tokens", { messages, max_tokens: 1.5 }, /must be whole/],
  ["max_completion_tokens", { messages, max_completion_tokens: -1 }, /is -1/],
  ["stop[1]", { messages, stop: ["a", ""] }, /is empty/],
  ["stop", { messages, stop: 7 }, /must be a string/],
  ["metadata.a", { messages, metadata: { a: 1 } }, /must be a string/],
  ["stream", { messages, stream: "yes" }, /true or false/],
  ["stream_options.include_usage", { messages, stream_options: { include_usage: 1 } }, /true or false/],
  ["tools[0].type", { messages, tools: [{ type: "custom" }] }, /function/],
  ["tools[0].function", { messages, tools: [{ type: "function" }] }, /is missing/],
  ["tools[0].function.name", { messages, tools: [{ type: "function", function: {} }] }, /is missing/],
  [
    "tools[0].function.parameters",
    { messages, tools: [{ type: "function", function: { name: "f", parameters: "{}" } }] },
    /must be an object/,
  ],
  [
    "functions[0].name",
    { messages, tools: [{ type: "function", function: { name: "f" } }], functions: [{ name: "f" }] },
    /twice/,
  ],
  ["tool_choice", { messages, tool_choice: "maybe" }, /none, auto, required/],
  ["tool_choice.type", { messages, tool_choice: { type: "allowed_tools" } }, /function/],
  ["tool_choice.function.name", { messages, tool_choice: { type: "function", function: {} } }, /is missing/],
  ["response_format.type", { messages, response_format: { type: "xml" } }, /"xml"/],
  ["response_format.json_schema", { messages, response_format: { type: "json_schema" } }, /is missing/],
  [
    "response_format.json_schema.schema",
    { messages, response_format: { type: "json_schema", json_schema: { name: "n" } } },
    /is missing/,
  ],
];
describe("a bad request in OpenAI's shape is refused by the path of its field", () => {
  for (const [field, params, says] of badRequests)
    test(`${field} ${says}`, () =>
      assert.throws(
        () => turnRequestFromOpenAI(params),
        (error: unknown) => {
          assert.ok(error instanceof AgentError);
          assert.equal(error.fieldViolations[0]?.field, field);
          assert.match(error.message, says);
          return true;
        },
      ));
});
