import {
  type BadRequest,
  chat,
  legacy,
  legacyTurn,
  messages,
  responses,
  rpc,
  rpcs,
  turn,
  typed,
  user,
} from "./bad-request.ts";

const noParts = "its messages are text only";
const ask = { role: "user", content: "hi" };

/** What a message says. */
export const badMessages: readonly BadRequest[] = [
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
