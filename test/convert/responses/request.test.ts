import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { AgentError } from "../../../src/chat/error.ts";
import type { GenerateOptions } from "../../../src/chat/request.ts";
import { turnRequestFromResponses } from "../../../src/convert/responses/request.ts";
import { responseId } from "../../../src/convert/responses/response-id.ts";

/** Not kept, so that the turn carries no note of its request. */
const plain = { input: "hi", store: false };
const hi = { role: "user", blocks: [{ type: "text", text: "hi" }] };
const previous = responseId("ses_1", "turn_1");

test("a request is read with its instructions first and the client's tools", () => {
  const tools = [
    { type: "function", name: "f", description: "adds", parameters: { type: "object" }, strict: true },
    { type: "function", name: "g", parameters: null, strict: null },
  ];
  const { request, stream, isKept, binding, asked } = turnRequestFromResponses({
    ...{ ...plain, model: "openai/gpt", instructions: "be brief", tools, stream: true },
    ...{ user: "ann", service_tier: "flex", truncation: "auto", unheard_of: 1 },
  });
  assert.deepEqual(request, {
    sessionId: "",
    messages: [{ role: "system", blocks: [{ type: "text", text: "be brief" }] }, hi],
    model: "openai/gpt",
    options: {},
    tools: [
      { name: "f", description: "adds", parameters: '{"type":"object"}', strict: true },
      { name: "g", description: "", parameters: "" },
    ],
    requestId: "",
  });
  assert.deepEqual([stream, isKept, binding, asked.instructions], [true, false, undefined, "be brief"]);
});

const f = { type: "function", name: "f" };
const options: [params: object, read: GenerateOptions][] = [
  [
    { temperature: 0, top_p: 0, max_output_tokens: 9 },
    { temperature: 0, topP: 0, maxTokens: 9 },
  ],
  [
    { temperature: null, tool_choice: null, metadata: null, text: null, reasoning: null, include: null, tools: null },
    {},
  ],
  [{ parallel_tool_calls: false }, { parallelToolCalls: false }],
  [{ tool_choice: "required" }, { toolChoice: "required" }],
  [{ tool_choice: f, tools: [f] }, { toolChoice: "f" }],
  [{ metadata: { a: "b" } }, { metadata: { a: "b" } }],
  [{ reasoning: { effort: "low" } }, { thinking: { effort: "low" } }],
  [{ reasoning: { effort: "high", summary: "auto" } }, { thinking: { enabled: true, effort: "high" } }],
  [{ reasoning: { generate_summary: "concise" } }, { thinking: { enabled: true } }],
  [{ reasoning: { effort: "none", summary: "auto" } }, { thinking: { effort: "none" } }],
  [{ text: { verbosity: "low" } }, {}],
  [{ text: { format: { type: "json_object" } } }, { responseFormat: { type: "json_object" } }],
  [
    { text: { format: { type: "json_schema", name: "n", schema: { type: "object" }, strict: true } } },
    { responseFormat: { type: "json_schema", name: "n", schema: '{"type":"object"}', strict: true } },
  ],
];
describe("options are read", () => {
  for (const [params, read] of options)
    test(JSON.stringify(params), () =>
      assert.deepEqual(turnRequestFromResponses({ ...plain, ...params }).request.options, read),
    );
});

describe("allowed tools leave out all others", () => {
  const given = (names: string[]) => {
    const tools = names.map((name) => ({ type: "function", name }));
    const choice = { type: "allowed_tools", mode: "required", tools };
    const { request } = turnRequestFromResponses({ ...plain, tools: [f, { ...f, name: "g" }], tool_choice: choice });
    return [request.tools.map(({ name }) => name), request.options];
  };
  test("the client's", () =>
    assert.deepEqual(given(["g"]), [["g"], { toolChoice: "required", allowedTools: ["(none)"] }]));
  test("the server's", () =>
    assert.deepEqual(given(["read_file"]), [[], { toolChoice: "required", allowedTools: ["read_file"] }]));
});

describe("a response is kept unless store is false, and goes on after what it names", () => {
  const bound: [params: object, read: unknown[]][] = [
    [{}, [true, undefined]],
    [{ store: null }, [true, undefined]],
    [{ store: false }, [false, undefined]],
    [{ previous_response_id: previous }, [true, { type: "response", responseId: previous }]],
    [{ conversation: "conv_1" }, [true, { type: "session", sessionId: "conv_1" }]],
    [{ conversation: { id: "conv_1" } }, [true, { type: "session", sessionId: "conv_1" }]],
  ];
  for (const [params, read] of bound)
    test(JSON.stringify(params), () => {
      const { isKept, binding } = turnRequestFromResponses({ input: "hi", ...params });
      assert.deepEqual([isKept, binding], read);
    });
});

describe("envelopes are given where they are asked for and where nothing is kept", () => {
  const include = ["reasoning.encrypted_content", "web_search_call.action.sources"];
  const asked: [params: object, seals: boolean | undefined][] = [
    [{}, undefined],
    [{ include }, true],
    [{ store: false }, true],
  ];
  for (const [params, seals] of asked)
    test(JSON.stringify(params), () =>
      assert.equal(turnRequestFromResponses({ input: "hi", ...params }).asked.seals, seals),
    );
});

const refusals: [params: object, field: string, says: RegExp][] = [
  [{ input: undefined }, "input", /missing/],
  [{ input: [] }, "input", /nothing/],
  [{ background: true }, "background", /stream/],
  [{ prompt: { id: "pmpt_1" } }, "prompt", /instructions/],
  [{ max_tool_calls: 3 }, "max_tool_calls", /leave it out/],
  [{ top_logprobs: 2 }, "top_logprobs", /probabilities/],
  [{ include: ["message.output_text.logprobs"] }, "include[0]", /probabilities/],
  [{ include: ["everything"] }, "include[0]", /encrypted_content/],
  [{ tools: [{ type: "web_search" }] }, "tools[0].type", /server has tools of its own/],
  [{ tools: [{ type: "custom", name: "x" }] }, "tools[0].type", /"custom"/],
  [{ tools: [f, f] }, "tools[1].name", /twice/],
  [{ tool_choice: { type: "file_search" } }, "tool_choice.type", /allowed_tools/],
  [{ tool_choice: { type: "allowed_tools", mode: "auto", tools: [] } }, "tool_choice.tools", /empty/],
  [{ text: { format: { type: "grammar" } } }, "text.format.type", /json_schema/],
  [{ text: { format: { type: "json_schema", name: "n" } } }, "text.format.schema", /missing/],
  [{ max_output_tokens: 0 }, "max_output_tokens", /at least 1$/],
  [{ previous_response_id: "resp_68a1c2" }, "previous_response_id", /no response of this server/],
  [{ previous_response_id: previous, conversation: "c" }, "previous_response_id", /together/],
  [{ conversation: {} }, "conversation.id", /missing/],
  [{ conversation: "conv_1" }, "store", /conversation/],
  [{ previous_response_id: previous }, "store", /previous_response_id/],
];
describe("what would give another answer is refused by name", () => {
  for (const [params, field, says] of refusals)
    test(`${JSON.stringify(params)}`, () =>
      assert.throws(
        () => turnRequestFromResponses({ ...plain, ...params }),
        (error) => error instanceof AgentError && error.fieldViolations[0]?.field === field && says.test(error.message),
      ));
});
