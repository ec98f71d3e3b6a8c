import type { JsonValue } from "@bufbuild/protobuf";
import { CodeAgentService } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { responseId } from "../../src/convert/responses/response-id.ts";
import {
  anthropic,
  type BadRequest,
  chat,
  hi,
  legacy,
  legacyTurn,
  messages,
  openai,
  responses,
  rpc,
  rpcs,
  turn,
  unreadableBytes,
  user,
} from "./bad-request.ts";

const noTools = "its requests bring no tools";
const noOptions = "its requests have no options";
const noParts = "its messages are text only";
const unsigned = "the number has no sign on the wire";
const typed = "the wire has the type of the field";
const makesIt = "x-session-id makes the session it names";

/** A tool of the client, in each dialect. */
const ours = (name: string, parameters: string) => ({ name, parameters });
const ofChat = (name: string, parameters: JsonValue) => ({ type: "function", function: { name, parameters } });
const ofResponses = (name: string, parameters: JsonValue) => ({ type: "function", name, parameters });
const ofAnthropic = (name: string, input_schema: JsonValue) => ({ name, input_schema });

const unknownModel = { status: 404, code: "model_not_found", type: "invalid_request_error" } as const;
const notFound = { status: 404, type: "not_found_error", code: "not_found" } as const;

const ask = { role: "user", content: "hi" };

/** What a message says. */
const badMessages: BadRequest[] = [
  ...["robot", "USER ", "__proto__", "constructor", ""].map(
    (role): BadRequest => ({
      fault: `a role ${JSON.stringify(role)}, which nobody knows`,
      ...rpcs(turn({ messages: [ask, { role, content: "x" }] }), "messages[1].role"),
      chat: chat({ messages: [ask, { role, content: "x" }] }, "messages[1].role"),
      responses: responses({ input: [ask, { role, content: "x" }] }, "input[1].role"),
      messages: messages({ messages: [ask, { role, content: "x" }] }, "messages.1.role"),
      legacy:
        role === ""
          ? "a message without a role is the user's"
          : legacy(legacyTurn({ messages: [ask, { role, content: "x" }] }), "messages[1].role"),
    }),
  ),
  {
    fault: "a role that is a number",
    grpc: typed,
    connect: rpc({ request: turn({ messages: [{ role: 7 }] }) }, undefined, { reason: "" }),
    chat: chat({ messages: [{ role: 7, content: "x" }] }, "messages[0].role"),
    responses: responses({ input: [{ role: 7, content: "x" }] }, "input[0].role"),
    messages: messages({ messages: [{ role: 7, content: "x" }] }, "messages.0.role"),
    // Message 2 of the request; its role, field 1, is the number 9; its content is "x".
    legacy: {
      ask: { bytes: Buffer.from("120508091201780a", "hex").subarray(0, 7) },
      refused: { code: "INVALID_ARGUMENT", reason: "INVALID_REQUEST", field: "messages[0].role" },
    },
  },
  {
    fault: "a role told by a number and another by a word",
    grpc: typed,
    connect: typed,
    chat: "there is one way to tell a role",
    responses: "there is one way to tell a role",
    messages: "there is one way to tell a role",
    legacy: {
      ask: { bytes: Buffer.from(`1205${"0801120178"}1209${"0a0475736572120178"}`, "hex") },
      refused: { code: "INVALID_ARGUMENT", reason: "INVALID_REQUEST", field: "messages[1].role" },
    },
  },
  {
    fault: "a role told twice, last by one nobody knows",
    grpc: rpc({ bytes: Buffer.from(`120d${"0a0475736572"}${"0a05726f626f74"}`, "hex") }, "messages[0].role"),
    connect: rpc({ bytes: '{"messages":[{"role":"user","role":"robot","content":"x"}]}' }, undefined, {
      reason: "",
      says: /duplicate object key/,
    }),
    chat: {
      ...chat({}, "messages[0].role"),
      ask: { body: '{"model":"scripted/test","messages":[{"role":"user","role":"robot","content":"x"}]}' },
    },
    responses: {
      ...responses({}, "input[0].role"),
      ask: { body: '{"model":"scripted/test","input":[{"role":"user","role":"robot","content":"x"}]}' },
    },
    messages: {
      ...messages({}, "messages.0.role"),
      ask: { body: '{"max_tokens":9,"messages":[{"role":"user","role":"robot","content":"x"}]}' },
    },
    legacy: {
      ask: { bytes: Buffer.from(`120d${"0a0475736572"}${"0a05726f626f74"}`, "hex") },
      refused: { code: "INVALID_ARGUMENT", reason: "INVALID_REQUEST", field: "messages[0].role" },
    },
  },
  {
    fault: "a message whose fields are those of __proto__",
    grpc: "the wire has numbers for names",
    connect: rpc({ bytes: '{"messages":[{"__proto__":{"role":"user","content":"x"}}]}' }, "messages[0].role"),
    chat: {
      ...chat({}, "messages[0].role"),
      ask: { body: '{"messages":[{"__proto__":{"role":"user","content":"x"}}]}' },
    },
    responses: {
      ...responses({}, "input[0].role"),
      ask: { body: '{"input":[{"__proto__":{"role":"user","content":"x"}}]}' },
    },
    messages: {
      ...messages({}, "messages.0.role"),
      ask: { body: '{"max_tokens":9,"messages":[{"__proto__":{"role":"user","content":"x"}}]}' },
    },
    legacy: "the wire has numbers for names",
  },
  {
    fault: "no messages",
    ...rpcs(turn({ messages: [] }), "messages"),
    chat: chat({ messages: [] }, "messages"),
    responses: responses({ input: [] }, "input"),
    messages: messages({ messages: [] }, "messages"),
    legacy: legacy(legacyTurn({ messages: [] }), "messages"),
  },
  {
    fault: "nothing where messages belong",
    ...rpcs({ sessionId: "taken" }, "messages"),
    chat: { ...chat({}, "messages"), ask: { body: { model: "scripted/test" } } },
    responses: { ...responses({}, "input"), ask: { body: { model: "scripted/test" } } },
    messages: { ...messages({}, "messages"), ask: { body: { model: "scripted/test", max_tokens: 9 } } },
    legacy: legacy({ session_id: "taken" }, "messages"),
  },
  {
    fault: "a text where a list of messages belongs",
    grpc: typed,
    connect: rpc({ request: turn({ messages: "hi" }) }, undefined, { reason: "" }),
    chat: chat({ messages: "hi" }, "messages"),
    responses: "a text is what the user says",
    messages: messages({ messages: "hi" }, "messages"),
    legacy: typed,
  },
  {
    fault: "a message that is a number",
    grpc: typed,
    connect: rpc({ request: turn({ messages: [7] }) }, undefined, { reason: "" }),
    chat: chat({ messages: [7] }, "messages[0]"),
    responses: responses({ input: [7] }, "input[0]"),
    messages: messages({ messages: [7] }, "messages.0"),
    legacy: typed,
  },
  {
    fault: "a content that is a number",
    grpc: typed,
    connect: rpc({ request: turn({ messages: [{ role: "user", content: 7 }] }) }, undefined, { reason: "" }),
    chat: chat({ messages: [{ role: "user", content: 7 }] }, "messages[0].content"),
    responses: responses({ input: [{ role: "user", content: 7 }] }, "input[0].content"),
    messages: messages({ messages: [{ role: "user", content: 7 }] }, "messages.0.content"),
    legacy: typed,
  },
  {
    fault: "a user who says nothing",
    ...rpcs(turn({ messages: [user("")] }), "messages[0].content"),
    chat: chat({ messages: [user("")] }, "messages[0].content"),
    responses: responses({ input: [user("")] }, "input[0].content"),
    messages: messages({ messages: [user("")] }, "messages.0.content"),
    legacy: legacy(legacyTurn({ messages: [user("")] }), "messages[0].content"),
  },
  {
    fault: "the result of no call",
    ...rpcs(turn({ messages: [{ role: "tool", content: "x" }] }), "messages[0].tool_call_id"),
    chat: chat({ messages: [{ role: "tool", content: "x" }] }, "messages[0].tool_call_id"),
    responses: responses({ input: [{ type: "function_call_output", output: "x" }] }, "input[0].call_id"),
    messages: messages(
      { messages: [{ role: "user", content: [{ type: "tool_result", content: "x" }] }] },
      "messages.0.content.0.tool_use_id",
    ),
    legacy: "its tool messages name no call",
  },
  {
    fault: "a call without a name",
    ...rpcs(
      turn({ messages: [{ role: "assistant", toolCalls: [{ id: "c" }] }, ask] }),
      "messages[0].tool_calls[0].name",
    ),
    chat: chat(
      { messages: [{ role: "assistant", tool_calls: [{ id: "c", function: { arguments: "{}" } }] }, ask] },
      "messages[0].tool_calls[0].function.name",
    ),
    responses: responses({ input: [{ type: "function_call", call_id: "c", arguments: "{}" }] }, "input[0].name"),
    messages: messages(
      { messages: [ask, { role: "assistant", content: [{ type: "tool_use", id: "c", input: {} }] }] },
      "messages.1.content.0.name",
    ),
    legacy: "its messages make no calls",
  },
  {
    fault: "a part of a kind nobody knows",
    ...rpcs(
      turn({ messages: [{ role: "user", contentParts: { parts: [{}] } }] }),
      "messages[0].content_parts.parts[0]",
    ),
    chat: chat({ messages: [{ role: "user", content: [{ type: "video_url" }] }] }, "messages[0].content[0].type"),
    responses: responses({ input: [{ role: "user", content: [{ type: "input_video" }] }] }, "input[0].content[0].type"),
    messages: messages({ messages: [{ role: "user", content: [{ type: "video" }] }] }, "messages.0.content.0.type"),
    legacy: noParts,
  },
  ...["ftp://a.example/b.png", "file:///etc/passwd", "javascript:alert(1)", "b.png", ""].map(
    (url): BadRequest => ({
      fault: `an image at ${JSON.stringify(url)}`,
      ...rpcs(
        turn({ messages: [{ role: "user", contentParts: { parts: [{ imageUrl: { imageUrl: { url } } }] } }] }),
        "messages[0].content_parts.parts[0].image_url.image_url.url",
      ),
      chat: chat(
        { messages: [{ role: "user", content: [{ type: "image_url", image_url: { url } }] }] },
        "messages[0].content[0].image_url.url",
      ),
      responses: responses(
        { input: [{ role: "user", content: [{ type: "input_image", image_url: url }] }] },
        "input[0].content[0].image_url",
      ),
      messages: messages(
        { messages: [{ role: "user", content: [{ type: "image", source: { type: "url", url } }] }] },
        "messages.0.content.0.source.url",
      ),
      legacy: noParts,
    }),
  ),
  {
    fault: "a file of nothing",
    ...rpcs(
      turn({ messages: [{ role: "user", contentParts: { parts: [{ file: { file: { filename: "a.pdf" } } }] } }] }),
      "messages[0].content_parts.parts[0].file.file",
    ),
    chat: chat(
      { messages: [{ role: "user", content: [{ type: "file", file: { filename: "a.pdf" } }] }] },
      "messages[0].content[0].file",
    ),
    responses: responses(
      { input: [{ role: "user", content: [{ type: "input_file", filename: "a.pdf" }] }] },
      "input[0].content[0]",
    ),
    messages: messages(
      {
        messages: [
          { role: "user", content: [{ type: "document", source: { type: "base64", media_type: "text/plain" } }] },
        ],
      },
      "messages.0.content.0.source.data",
    ),
    legacy: noParts,
  },
];

/** Which functions there are, and which is called. */
const badTools: BadRequest[] = [
  {
    fault: "two tools of one name",
    ...rpcs(turn({ tools: [ours("f", "{}"), ours("f", "{}")] }), "tools[1].name"),
    chat: chat({ tools: [ofChat("f", {}), ofChat("f", {})] }, "tools[1].function.name"),
    responses: responses({ tools: [ofResponses("f", {}), ofResponses("f", {})] }, "tools[1].name"),
    messages: messages({ tools: [ofAnthropic("f", {}), ofAnthropic("f", {})] }, "tools.1.name"),
    legacy: noTools,
  },
  {
    fault: "a tool without a name",
    ...rpcs(turn({ tools: [ours("", "{}")] }), "tools[0].name"),
    chat: chat({ tools: [ofChat("", {})] }, "tools[0].function.name"),
    responses: responses({ tools: [ofResponses("", {})] }, "tools[0].name"),
    messages: messages({ tools: [ofAnthropic("", {})] }, "tools.0.name"),
    legacy: noTools,
  },
  {
    fault: "a tool whose parameters are a list",
    ...rpcs(turn({ tools: [ours("f", "[]")] }), "tools[0].parameters"),
    chat: chat({ tools: [ofChat("f", [])] }, "tools[0].function.parameters"),
    responses: responses({ tools: [ofResponses("f", [])] }, "tools[0].parameters"),
    messages: messages({ tools: [ofAnthropic("f", [])] }, "tools.0.input_schema"),
    legacy: noTools,
  },
  {
    fault: "a tool whose parameters are no JSON",
    ...rpcs(turn({ tools: [ours("f", "{a}")] }), "tools[0].parameters"),
    chat: chat({ tools: [ofChat("f", "{a}")] }, "tools[0].function.parameters"),
    responses: responses({ tools: [ofResponses("f", "{a}")] }, "tools[0].parameters"),
    messages: messages({ tools: [ofAnthropic("f", "{a}")] }, "tools.0.input_schema"),
    legacy: noTools,
  },
  {
    fault: "a tool that the vendor would run",
    grpc: "its tools have no type",
    connect: "its tools have no type",
    chat: chat({ tools: [{ type: "custom", custom: { name: "f" } }] }, "tools[0].type"),
    responses: responses({ tools: [{ type: "web_search" }] }, "tools[0].type"),
    messages: messages({ tools: [{ type: "web_search_20250305", name: "web_search" }] }, "tools.0.type"),
    legacy: noTools,
  },
  {
    fault: "the choice of a tool that is not there",
    ...rpcs(turn({ tools: [ours("f", "{}")], options: { toolChoice: "g" } }), "options.tool_choice"),
    chat: chat({ tools: [ofChat("f", {})], tool_choice: { type: "function", function: { name: "g" } } }, "tool_choice"),
    responses: responses(
      { tools: [ofResponses("f", {})], tool_choice: { type: "function", name: "g" } },
      "tool_choice",
    ),
    messages: messages({ tools: [ofAnthropic("f", {})], tool_choice: { type: "tool", name: "g" } }, "tool_choice.name"),
    legacy: noTools,
  },
  {
    fault: "the choice of a tool that is a number",
    grpc: typed,
    connect: rpc({ request: turn({ options: { toolChoice: 7 } }) }, undefined, { reason: "" }),
    chat: chat({ tool_choice: 7 }, "tool_choice"),
    responses: responses({ tool_choice: 7 }, "tool_choice"),
    messages: messages({ tool_choice: 7 }, "tool_choice"),
    legacy: noTools,
  },
  {
    fault: "a choice nobody knows",
    grpc: "any other word is the name of a tool",
    connect: "any other word is the name of a tool",
    chat: chat({ tool_choice: "sometimes" }, "tool_choice"),
    responses: responses({ tool_choice: { type: "mcp" } }, "tool_choice.type"),
    messages: messages({ tool_choice: { type: "sometimes" } }, "tool_choice.type"),
    legacy: noTools,
  },
];

const schema = (text: string) => ({
  options: { responseFormat: { type: "json_schema", jsonSchema: { schema: text } } },
});
const chatSchema = (value: JsonValue) => ({
  response_format: { type: "json_schema", json_schema: { name: "n", schema: value } },
});
const responsesSchema = (value: JsonValue) => ({ text: { format: { type: "json_schema", name: "n", schema: value } } });
const messagesSchema = (value: JsonValue) => ({ output_config: { format: { type: "json_schema", schema: value } } });
const schemaField = "options.response_format.json_schema.schema";
const chatSchemaField = "response_format.json_schema.schema";

/** How the turn is run. */
const badOptions: BadRequest[] = [
  ...[-1, 3, 1e9].map(
    (temperature): BadRequest => ({
      fault: `a temperature of ${temperature}`,
      ...rpcs(turn({ options: { temperature } }), "options.temperature", { says: new RegExp(`${temperature}`) }),
      chat: chat({ temperature }, "temperature"),
      responses: responses({ temperature }, "temperature"),
      messages: messages({ temperature }, "temperature"),
      legacy: legacy({ config: { llm: { temperature } } }, "config.llm.temperature", { rpc: "CreateSession" }),
    }),
  ),
  {
    fault: "a temperature that is a word",
    grpc: typed,
    connect: rpc({ request: turn({ options: { temperature: "hot" } }) }, undefined, { reason: "" }),
    chat: chat({ temperature: "hot" }, "temperature"),
    responses: responses({ temperature: "hot" }, "temperature"),
    messages: messages({ temperature: "hot" }, "temperature"),
    legacy: typed,
  },
  {
    fault: "a temperature that is no number",
    ...rpcs(turn({ options: { temperature: "NaN" } }), "options.temperature"),
    chat: "JSON has no NaN",
    responses: "JSON has no NaN",
    messages: "JSON has no NaN",
    legacy: legacy({ config: { llm: { temperature: Number.NaN } } }, "config.llm.temperature", {
      rpc: "CreateSession",
    }),
  },
  {
    fault: "a top_p of 2",
    ...rpcs(turn({ options: { topP: 2 } }), "options.top_p"),
    chat: chat({ top_p: 2 }, "top_p"),
    responses: responses({ top_p: 2 }, "top_p"),
    messages: messages({ top_p: 2 }, "top_p"),
    legacy: noOptions,
  },
  {
    fault: "-1 tokens at most",
    grpc: unsigned,
    connect: rpc({ request: turn({ options: { maxTokens: -1 } }) }, undefined, { reason: "" }),
    chat: chat({ max_tokens: -1 }, "max_tokens"),
    responses: responses({ max_output_tokens: -1 }, "max_output_tokens"),
    messages: messages({ max_tokens: -1 }, "max_tokens"),
    legacy: unsigned,
  },
  {
    fault: "more tokens at most than a number holds",
    ...rpcs(turn({ options: { maxTokens: "9007199254740993" } }), "options.max_tokens"),
    chat: chat({ max_completion_tokens: 1e300 }, "max_completion_tokens"),
    responses: responses({ max_output_tokens: 1e300 }, "max_output_tokens"),
    messages: messages({ max_tokens: 1e300 }, "max_tokens"),
    legacy: "the number has 32 bits on the wire",
  },
  {
    fault: "half a token at most",
    grpc: typed,
    connect: rpc({ request: turn({ options: { maxTokens: 0.5 } }) }, undefined, { reason: "" }),
    chat: chat({ max_tokens: 0.5 }, "max_tokens"),
    responses: responses({ max_output_tokens: 1.5 }, "max_output_tokens"),
    messages: messages({ max_tokens: 1.5 }, "max_tokens"),
    legacy: typed,
  },
  {
    fault: "no bound of tokens where one is wanted",
    grpc: "it may be absent",
    connect: "it may be absent",
    chat: "it may be absent",
    responses: "it may be absent",
    messages: { ...messages({}, "max_tokens"), ask: { body: { model: "scripted/test", messages: hi } } },
    legacy: noOptions,
  },
  {
    fault: "an empty text to stop at",
    ...rpcs(turn({ options: { stop: ["a", ""] } }), "options.stop[1]"),
    chat: chat({ stop: ["a", ""] }, "stop[1]"),
    responses: "it has no texts to stop at",
    messages: messages({ stop_sequences: ["a", ""] }, "stop_sequences.1"),
    legacy: noOptions,
  },
  {
    fault: "an effort nobody knows",
    ...rpcs(turn({ options: { thinking: { effort: "heroic" } } }), "options.thinking.effort"),
    chat: chat({ reasoning_effort: "heroic" }, "reasoning_effort"),
    responses: responses({ reasoning: { effort: "heroic" } }, "reasoning.effort"),
    messages: messages({ output_config: { effort: "heroic" } }, "output_config.effort"),
    legacy: noOptions,
  },
  {
    fault: "a schema that is a list",
    ...rpcs(turn(schema("[]")), schemaField),
    chat: chat(chatSchema([]), chatSchemaField),
    responses: responses(responsesSchema([]), "text.format.schema"),
    messages: messages(messagesSchema([]), "output_config.format.schema"),
    legacy: legacy(legacyTurn({ schema: "[]" }), "schema", { rpc: "GenerateStructured" }),
  },
  {
    fault: "a schema that is none",
    ...rpcs(turn(schema('{"type":"colour"}')), schemaField),
    chat: chat(chatSchema({ type: "colour" }), chatSchemaField),
    responses: responses(responsesSchema({ type: "colour" }), "text.format.schema"),
    messages: messages(messagesSchema({ type: "colour" }), "output_config.format.schema"),
    legacy: legacy(legacyTurn({ schema: '{"type":"colour"}' }), "schema", { rpc: "GenerateStructured" }),
  },
  {
    fault: "a form of answers nobody knows",
    ...rpcs(turn({ options: { responseFormat: { type: "xml" } } }), "options.response_format.type"),
    chat: chat({ response_format: { type: "xml" } }, "response_format.type"),
    responses: responses({ text: { format: { type: "xml" } } }, "text.format.type"),
    messages: messages({ output_config: { format: { type: "xml" } } }, "output_config.format.type"),
    legacy: noOptions,
  },
  {
    fault: "two answers to one request",
    grpc: "it can't be asked for",
    connect: "it can't be asked for",
    chat: chat({ n: 2 }, "n"),
    responses: "it can't be asked for",
    messages: "it can't be asked for",
    legacy: noOptions,
  },
  {
    fault: "the probabilities of tokens",
    grpc: "they can't be asked for",
    connect: "they can't be asked for",
    chat: chat({ logprobs: true }, "logprobs"),
    responses: responses({ top_logprobs: 3 }, "top_logprobs"),
    messages: "they can't be asked for",
    legacy: noOptions,
  },
  {
    fault: "what only the vendor's own service does",
    grpc: "it can't be asked for",
    connect: "it can't be asked for",
    chat: chat({ web_search_options: {} }, "web_search_options"),
    responses: responses({ background: true }, "background"),
    messages: messages({ mcp_servers: [{ type: "url", url: "https://a.example", name: "a" }] }, "mcp_servers"),
    legacy: noOptions,
  },
  {
    fault: "a strategy nobody knows",
    ...rpcs(turn({ options: { strategy: "clever" } }), "options.strategy"),
    chat: "it can't be asked for",
    responses: "it can't be asked for",
    messages: "it can't be asked for",
    legacy: noOptions,
  },
  {
    fault: "a bound of cost for a model whose price nobody knows",
    ...rpcs(turn({ options: { budget: { maxCostNanoUsd: "1000" } } }), undefined, {
      code: "FAILED_PRECONDITION",
      reason: "PRICE_UNKNOWN",
      says: /price of scripted\/test is unknown/,
    }),
    chat: "costs can't be bounded",
    responses: "costs can't be bounded",
    messages: "costs can't be bounded",
    legacy: noOptions,
  },
  {
    fault: "a negative bound of cost",
    ...rpcs(turn({ options: { budget: { maxCostNanoUsd: "-1" } } }), "options.budget.max_cost_nano_usd"),
    chat: "costs can't be bounded",
    responses: "costs can't be bounded",
    messages: "costs can't be bounded",
    legacy: noOptions,
  },
  {
    fault: "a time that no timer holds",
    ...rpcs(turn({ options: { timeoutMs: "4294967296" } }), "options.timeout_ms"),
    chat: "times can't be bounded",
    responses: "times can't be bounded",
    messages: "times can't be bounded",
    legacy: noOptions,
  },
  {
    fault: "metadata of lists",
    grpc: typed,
    connect: rpc({ request: turn({ options: { metadata: { a: [] } } }) }, undefined, { reason: "" }),
    chat: chat({ metadata: { a: [] } }, "metadata.a"),
    responses: responses({ metadata: { a: [] } }, "metadata.a"),
    messages: "its metadata is the vendor's and not read",
    legacy: typed,
  },
  {
    fault: "less thinking than the least",
    grpc: "how little is too little is for the model to say",
    connect: "how little is too little is for the model to say",
    chat: "its thinking has no budget",
    responses: "its thinking has no budget",
    messages: messages({ thinking: { type: "enabled", budget_tokens: 5 } }, "thinking.budget_tokens"),
    legacy: noOptions,
  },
  {
    fault: "halves of surrogate pairs",
    // EDA0BD are the bytes half a pair would have.
    grpc: rpc({ bytes: Buffer.from(`120b${"0a0475736572"}${"1203eda0bd"}`, "hex") }, undefined, unreadableBytes),
    connect: rpc({ request: turn({ messages: [user("a\ud83d")] }) }, undefined, { reason: "" }),
    chat: chat({ messages: [user("a\ud83d")] }, "messages[0].content"),
    responses: responses({ input: [user("a\ud83d")] }, "input[0].content"),
    messages: messages({ messages: [user("a\ud83d")] }, "messages.0.content"),
    legacy: {
      ask: { bytes: Buffer.from(`120b${"0a0475736572"}${"1203eda0bd"}`, "hex") },
      refused: unreadableBytes,
    },
  },
];

/** Who is asked, and where the turn belongs. */
const badNames: BadRequest[] = [
  {
    fault: "a model without its provider",
    ...rpcs(turn({ model: "gpt" }), undefined, { code: "NOT_FOUND", reason: "NOT_FOUND", says: /provider\/model/ }),
    chat: chat({ model: "gpt" }, null, unknownModel),
    responses: responses({ model: "gpt" }, null, unknownModel),
    messages: messages({ model: "gpt" }, undefined, notFound),
    legacy: legacy({ config: { llm: { provider: "openai" } } }, "config.llm.model", { rpc: "CreateSession" }),
  },
  ...["nobody/m", "constructor/m", "__proto__/m"].map(
    (model): BadRequest => ({
      fault: `the model ${model} of a provider nobody knows`,
      ...rpcs(turn({ model }), undefined, { code: "NOT_FOUND", reason: "NOT_FOUND" }),
      chat: chat({ model }, null, unknownModel),
      responses: responses({ model }, null, unknownModel),
      messages: messages({ model }, undefined, notFound),
      legacy: legacy({ config: { llm: { model } } }, undefined, {
        rpc: "CreateSession",
        code: "NOT_FOUND",
        reason: "NOT_FOUND",
      }),
    }),
  ),
  {
    fault: "a model of a provider without its key",
    ...rpcs(turn({ model: "openai/gpt" }), undefined, {
      code: "FAILED_PRECONDITION",
      reason: "FAILED_PRECONDITION",
      says: /OPENAI_API_KEY/,
    }),
    chat: chat({ model: "openai/gpt" }, null, { code: null, says: /OPENAI_API_KEY/ }),
    responses: responses({ model: "openai/gpt" }, null, { code: null, says: /OPENAI_API_KEY/ }),
    messages: messages({ model: "openai/gpt" }, undefined, { code: "failed_precondition", says: /OPENAI_API_KEY/ }),
    legacy: legacy({ config: { llm: { model: "openai/gpt" } } }, undefined, {
      rpc: "CreateSession",
      code: "FAILED_PRECONDITION",
      reason: "FAILED_PRECONDITION",
      says: /OPENAI_API_KEY/,
    }),
  },
  {
    fault: "a model that is a number",
    grpc: typed,
    connect: rpc({ request: turn({ model: 7 }) }, undefined, { reason: "" }),
    chat: chat({ model: 7 }, "model"),
    responses: responses({ model: 7 }, "model"),
    messages: messages({ model: 7 }, "model"),
    legacy: typed,
  },
  {
    fault: "an address to which the server's key would go",
    grpc: "requests name no addresses",
    connect: "requests name no addresses",
    chat: "requests name no addresses",
    responses: "requests name no addresses",
    messages: "requests name no addresses",
    legacy: legacy(
      { config: { llm: { provider: "openai", model: "gpt", base_url: "https://evil.example" } } },
      "config.llm.base_url",
      { rpc: "CreateSession" },
    ),
  },
  {
    fault: "an answer before, which there is not",
    grpc: "turns go on in sessions",
    connect: "turns go on in sessions",
    chat: "turns go on in sessions",
    responses: {
      ask: {
        body: { input: "hi", previous_response_id: responseId("nobody", "turn_1") },
        headers: { "x-session-id": null },
      },
      refused: {
        ...{ status: 400, type: "invalid_request_error", code: "previous_response_not_found" },
        param: "previous_response_id",
      },
    },
    messages: "turns go on in sessions",
    legacy: "turns go on in sessions",
  },
  {
    fault: "an answer before, by an id that none has",
    grpc: "turns go on in sessions",
    connect: "turns go on in sessions",
    chat: "turns go on in sessions",
    responses: responses({ previous_response_id: "resp_x" }, "previous_response_id", {
      code: "previous_response_not_found",
    }),
    messages: "turns go on in sessions",
    legacy: "turns go on in sessions",
  },
  {
    fault: "two places to go on from",
    grpc: "there is one place to name",
    connect: "there is one place to name",
    chat: "there is one place to name",
    responses: responses({ previous_response_id: "resp_x", conversation: "taken" }, "previous_response_id"),
    messages: "there is one place to name",
    legacy: "there is one place to name",
  },
  {
    fault: "a session named in two places",
    grpc: "there is one place to name it",
    connect: "there is one place to name it",
    chat: "there is one place to name it",
    responses: responses({ conversation: "taken" }, "x-session-id"),
    messages: "there is one place to name it",
    legacy: "there is one place to name it",
  },
  {
    fault: "a conversation that is not to be kept",
    grpc: "whether it is kept is not asked",
    connect: "whether it is kept is not asked",
    chat: "whether it is kept is not asked",
    responses: responses({ conversation: "taken", store: false }, "store"),
    messages: "whether it is kept is not asked",
    legacy: "whether it is kept is not asked",
  },
  ...["nobody", "__proto__", "constructor"].map(
    (sessionId): BadRequest => ({
      fault: `the session ${sessionId}, which there is not`,
      ...rpcs(turn({ sessionId }), undefined, {
        code: "NOT_FOUND",
        reason: "SESSION_NOT_FOUND",
        says: new RegExp(`no session ${sessionId}`),
      }),
      chat: makesIt,
      responses: {
        ask: { body: { input: "hi", conversation: sessionId }, headers: { "x-session-id": null } },
        refused: { status: 404, type: "invalid_request_error", code: "session_not_found", param: null },
      },
      messages: makesIt,
      legacy: legacy(legacyTurn({ session_id: sessionId }), undefined, {
        code: "NOT_FOUND",
        reason: "SESSION_NOT_FOUND",
      }),
    }),
  ),
];

const streamGenerate = CodeAgentService.method.streamGenerate;

/** What is refused of a stream is refused before it begins, with the status of its own. */
const badStreams: BadRequest[] = [
  {
    fault: "a stream for a role nobody knows",
    ...rpcs(turn({ messages: [{ role: "robot", content: "x" }] }), "messages[0].role", { method: streamGenerate }),
    chat: chat({ stream: true, messages: [{ role: "robot", content: "x" }] }, "messages[0].role"),
    responses: responses({ stream: true, input: [{ role: "robot", content: "x" }] }, "input[0].role"),
    messages: messages({ stream: true, messages: [{ role: "robot", content: "x" }] }, "messages.0.role"),
    legacy: legacy(legacyTurn({ messages: [{ role: "robot", content: "x" }] }), "messages[0].role", {
      rpc: "StreamGenerate",
    }),
  },
  {
    fault: "a stream of a model nobody knows",
    ...rpcs(turn({ model: "nobody/m" }), undefined, {
      ...{ method: streamGenerate, code: "NOT_FOUND", reason: "NOT_FOUND" },
    }),
    chat: chat({ stream: true, model: "nobody/m" }, null, unknownModel),
    responses: responses({ stream: true, model: "nobody/m" }, null, unknownModel),
    messages: messages({ stream: true, model: "nobody/m" }, undefined, notFound),
    legacy: "its turns name no models",
  },
  {
    fault: "a stream from a session there is not",
    ...rpcs(turn({ sessionId: "nobody" }), undefined, {
      ...{ method: streamGenerate, code: "NOT_FOUND", reason: "SESSION_NOT_FOUND" },
    }),
    chat: makesIt,
    responses: {
      ask: { body: { input: "hi", stream: true, conversation: "nobody" }, headers: { "x-session-id": null } },
      refused: { status: 404, type: "invalid_request_error", code: "session_not_found", param: null },
    },
    messages: makesIt,
    legacy: legacy(legacyTurn({ session_id: "nobody" }), undefined, {
      ...{ rpc: "StreamGenerate", code: "NOT_FOUND", reason: "SESSION_NOT_FOUND" },
    }),
  },
  {
    fault: "a wish to stream that is a word",
    grpc: "a stream is another method",
    connect: "a stream is another method",
    chat: chat({ stream: "yes" }, "stream"),
    responses: responses({ stream: "yes" }, "stream"),
    messages: messages({ stream: "yes" }, "stream"),
    legacy: "a stream is another method",
  },
];

/** What is asked beside turns. */
const badQuestions: BadRequest[] = [
  {
    fault: "a model that is not on the list",
    grpc: "it lists models of a provider",
    connect: "it lists models of a provider",
    chat: openai({ httpMethod: "GET", path: "/v1/models/nobody" }, null, unknownModel),
    responses: "it shares the list with Chat Completions",
    messages: anthropic(
      { httpMethod: "GET", path: "/v1/models/nobody", headers: { "anthropic-version": "2023-06-01" } },
      undefined,
      notFound,
    ),
    legacy: legacy({ name: "nobody" }, undefined, { rpc: "GetProvider", code: "NOT_FOUND", reason: "NOT_FOUND" }),
  },
  {
    fault: "a session to be read that there is not",
    ...rpcs({ sessionId: "nobody" }, undefined, {
      ...{ method: CodeAgentService.method.getSession, code: "NOT_FOUND", reason: "SESSION_NOT_FOUND" },
    }),
    chat: "its sessions can't be read",
    responses: openai({ httpMethod: "GET", path: "/v1/conversations/nobody" }, null, {
      status: 404,
      code: "session_not_found",
    }),
    messages: "its sessions can't be read",
    legacy: legacy({ session_id: "nobody" }, undefined, {
      ...{ rpc: "GetSession", code: "NOT_FOUND", reason: "SESSION_NOT_FOUND" },
    }),
  },
  {
    fault: "a session to be deleted that there is not",
    ...rpcs({ sessionId: "nobody" }, undefined, {
      ...{ method: CodeAgentService.method.deleteSession, code: "NOT_FOUND", reason: "SESSION_NOT_FOUND" },
    }),
    chat: "its sessions can't be deleted",
    responses: openai({ httpMethod: "DELETE", path: "/v1/conversations/nobody" }, null, {
      status: 404,
      code: "session_not_found",
    }),
    messages: "its sessions can't be deleted",
    legacy: legacy({ session_id: "nobody" }, undefined, {
      ...{ rpc: "DestroySession", code: "NOT_FOUND", reason: "SESSION_NOT_FOUND" },
    }),
  },
  {
    fault: "a conversation of bad messages to begin with",
    ...rpcs({ initialMessages: [ask, { role: "robot" }] }, "initial_messages[1].role", {
      method: CodeAgentService.method.createSession,
    }),
    chat: "it begins with its first turn",
    responses: openai(
      { path: "/v1/conversations", body: { items: [ask, { role: "robot", content: "x" }] } },
      "items[1].role",
    ),
    messages: "it begins with its first turn",
    legacy: legacy({ initial_context: [ask, { role: "robot", content: "x" }] }, "initial_context[1].role", {
      rpc: "CreateSession",
    }),
  },
  {
    fault: "tokens to be counted of no messages",
    grpc: "it counts no tokens beforehand",
    connect: "it counts no tokens beforehand",
    chat: "it counts no tokens beforehand",
    responses: "it counts no tokens beforehand",
    messages: anthropic({ path: "/v1/messages/count_tokens", body: { model: "scripted/test" } }, "messages"),
    legacy: "it counts what a session holds",
  },
];

/** Requests that are wrong in what they say. */
export const badTurns: readonly BadRequest[] = [
  ...[...badMessages, ...badTools, ...badOptions],
  ...[...badNames, ...badStreams, ...badQuestions],
];
