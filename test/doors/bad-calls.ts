import { gzipSync } from "node:zlib";
import { CodeAgentService } from "../../gen/codeagent/v1/code_agent_pb.ts";
import {
  anthropic,
  type BadRequest,
  bothOpenAI,
  chatBody,
  legacy,
  legacyTurn,
  messagesBody,
  openai,
  responsesBody,
  rest,
  restBody,
  rpc,
  rpcs,
  turn,
  unreadableBytes,
  user,
} from "./bad-request.ts";

const { createSession, getSession, listMessages, listSessions, subscribeSession } = CodeAgentService.method;
const service = "/codeagent.v1.CodeAgentService";
const earlier = "/a3s.code.agent.v1.CodeAgentService";
const binary = "its messages are bytes, not JSON";
const alwaysPost = "gRPC is always a POST";

/** The largest message the server of these tests takes. */
export const maxMessageBytes = 1024 * 1024;

const longId = "r".repeat(300);
const tooMany = Array.from({ length: 10_001 }, () => user("x"));
const lists = `${"[".repeat(10_000)}${"]".repeat(10_000)}`;
const objects = `${'{"a":'.repeat(10_000)}{}${"}".repeat(10_000)}`;
const wordy = "w".repeat(450_000);
const large = "x".repeat(maxMessageBytes + 1);
/** Groups in groups, each a field nobody knows. */
const groups = Buffer.alloc(200_000, Buffer.of(0xa3, 6));

const invalidJson = { code: "invalid_json" } as const;
const unreadable = { code: "INVALID_ARGUMENT", reason: "" } as const;
const unauthenticated = { code: "UNAUTHENTICATED", reason: "" } as const;

/** Names of sessions and requests. */
const badIds: BadRequest[] = [
  ...["a/b", "../a", "a b", "сессия", "x".repeat(65), "a%2fb"].map(
    (id): BadRequest => ({
      fault: `a session id of ${JSON.stringify(id.slice(0, 20))}`,
      ...rpcs(turn({ sessionId: id }), "session_id"),
      ...(/^[\x20-\x7e]*$/.test(id)
        ? {
            ...rest({ headers: { "x-session-id": id } }, "x-session-id"),
            responses: openai(
              { body: responsesBody({ conversation: id }), headers: { "x-session-id": null } },
              "conversation",
            ),
          }
        : {
            chat: "fields of HTTP are ASCII",
            responses: openai(
              { body: responsesBody({ conversation: id }), headers: { "x-session-id": null } },
              "conversation",
            ),
            messages: "fields of HTTP are ASCII",
          }),
      legacy: legacy(legacyTurn({ session_id: id }), "session_id"),
    }),
  ),
  {
    fault: "a session id with NUL",
    ...rpcs(turn({ sessionId: "a\0b" }), "session_id"),
    chat: "no field of HTTP holds NUL",
    responses: openai(
      { body: responsesBody({ conversation: "a\0b" }), headers: { "x-session-id": null } },
      "conversation",
    ),
    messages: "no field of HTTP holds NUL",
    legacy: legacy(legacyTurn({ session_id: "a\0b" }), "session_id"),
  },
  {
    fault: "a request id of 300 characters",
    ...rpcs(turn({ requestId: longId }), "request_id", { says: /300/ }),
    ...rest({ headers: { "idempotency-key": longId } }, "Idempotency-Key", { says: /300/ }),
    legacy: "its requests have no ids",
  },
  {
    fault: "a request id with NUL",
    ...rpcs(turn({ requestId: "a\0b" }), "request_id", { says: /NUL/ }),
    chat: "no field of HTTP holds NUL",
    responses: "no field of HTTP holds NUL",
    messages: "no field of HTTP holds NUL",
    legacy: "its requests have no ids",
  },
  {
    fault: "a request id used for another turn",
    ...rpcs(turn({ requestId: "first-turn" }), undefined, {
      code: "ALREADY_EXISTS",
      reason: "REQUEST_ID_REUSED",
      says: /first-turn/,
    }),
    ...rest(
      { headers: { "idempotency-key": "first-turn" } },
      null,
      { status: 409, code: "request_id_reused", says: /first-turn/ },
      { status: 409, type: "conflict_error", code: "request_id_reused" },
    ),
    legacy: "its requests have no ids",
  },
  {
    fault: "a session id that is taken",
    ...rpcs({ sessionId: "taken", title: "another" }, undefined, {
      method: createSession,
      code: "ALREADY_EXISTS",
      reason: "SESSION_EXISTS",
    }),
    chat: "it makes no sessions by name",
    responses: "it makes no sessions by name",
    messages: "it makes no sessions by name",
    legacy: legacy({ session_id: "taken" }, undefined, {
      rpc: "CreateSession",
      code: "ALREADY_EXISTS",
      reason: "SESSION_EXISTS",
    }),
  },
  {
    fault: "a workspace out of bounds",
    ...rpcs({ workspace: "/etc" }, "workspace", {
      method: createSession,
      code: "PERMISSION_DENIED",
      reason: "PERMISSION_DENIED",
    }),
    chat: "it names no workspaces",
    responses: "it names no workspaces",
    messages: "it names no workspaces",
    legacy: legacy({ config: { workspace: "/etc" } }, "config.workspace", {
      rpc: "CreateSession",
      code: "PERMISSION_DENIED",
      reason: "PERMISSION_DENIED",
    }),
  },
  {
    fault: "a cursor beyond the head",
    ...rpcs({ sessionId: "taken", afterSeq: "9000000000000000" }, "after_seq", { method: subscribeSession }),
    chat: "it has no lists",
    responses: openai({ httpMethod: "GET", path: "/v1/conversations/taken/items?after=nobody" }, "after"),
    messages: "it has no lists",
    legacy: "its streams begin now, and an offset beyond the end finds nothing",
  },
  {
    fault: "a token of no page",
    ...rpcs({ pageToken: "bnVsbA" }, "page_token", { method: listSessions }),
    chat: "it has no lists",
    responses: openai({ httpMethod: "GET", path: "/v1/conversations/taken/items?order=sideways" }, "order"),
    messages: "it has no lists",
    legacy: "it has no pages",
  },
  {
    fault: "a page of 4 billion",
    ...rpcs({ sessionId: "taken", pageSize: 4_294_967_295 }, "page_size", { method: listMessages }),
    chat: "it has no lists",
    responses: openai({ httpMethod: "GET", path: "/v1/conversations/taken/items?limit=4294967295" }, "limit"),
    messages: "it has no lists",
    legacy: "it gives what fits an answer, however much is asked for",
  },
];

/** How a request is sent. */
const badSending: BadRequest[] = [
  {
    fault: "half of a request",
    // A text of 9 bytes, of which one is there.
    grpc: rpc({ method: getSession, bytes: Buffer.of(10, 9, 97) }, undefined, unreadableBytes),
    connect: rpc({ bytes: '{"messages": [' }, undefined, unreadable),
    ...restBody('{"messages": [', invalidJson, invalidJson),
    legacy: { ask: { rpc: "GetSession", bytes: Buffer.of(10, 9, 97) }, refused: unreadableBytes },
  },
  {
    fault: "bytes that are no request",
    grpc: rpc({ bytes: Buffer.of(255, 255) }, undefined, unreadableBytes),
    connect: rpc({ bytes: "nonsense" }, undefined, unreadable),
    ...restBody("nonsense", invalidJson, invalidJson),
    legacy: { ask: { bytes: Buffer.of(255, 255) }, refused: unreadableBytes },
  },
  {
    fault: "a list in place of a request",
    grpc: binary,
    connect: rpc({ bytes: "[]" }, undefined, unreadable),
    ...restBody("[]", invalidJson, invalidJson),
    legacy: binary,
  },
  {
    fault: "null in place of a request",
    grpc: binary,
    connect: rpc({ bytes: "null" }, undefined, unreadable),
    ...restBody("null", invalidJson, invalidJson),
    legacy: binary,
  },
  {
    fault: "an empty body",
    grpc: "no bytes are a message without fields",
    connect: rpc({ bytes: "" }, undefined, unreadable),
    ...restBody("", invalidJson, invalidJson),
    legacy: "no bytes are a message without fields",
  },
  {
    fault: "two requests in one",
    grpc: "its fields would be told twice, and the last counts",
    connect: rpc({ bytes: "{}{}" }, undefined, unreadable),
    ...restBody("{}{}", invalidJson, invalidJson),
    legacy: "its fields would be told twice, and the last counts",
  },
  {
    fault: "a text that is no UTF-8",
    grpc: rpc({ method: getSession, bytes: Buffer.of(10, 2, 0xff, 0xfe) }, undefined, unreadableBytes),
    connect: "its library reads U+FFFD for bytes that are no UTF-8",
    ...restBody(Buffer.from('{"model":"\xff\xfe"}', "latin1"), invalidJson, invalidJson),
    legacy: { ask: { rpc: "GetSession", bytes: Buffer.of(10, 2, 0xff, 0xfe) }, refused: unreadableBytes },
  },
  {
    fault: "a request over the largest size",
    ...rpcs(turn({ messages: [user(large)] }), undefined, {
      code: "RESOURCE_EXHAUSTED",
      reason: "",
      says: new RegExp(`${maxMessageBytes}`),
    }),
    ...restBody(
      chatBody({ messages: [user(large)] }),
      { status: 413, code: "request_too_large", says: new RegExp(`${maxMessageBytes}`) },
      { status: 413, type: "request_too_large", code: "request_too_large" },
    ),
    legacy: legacy(legacyTurn({ messages: [user(large)] }), undefined, { code: "RESOURCE_EXHAUSTED", reason: "" }),
  },
  {
    fault: "a request that unpacks to more than the largest size",
    grpc: "its library packs as it likes; broken frames are tried beside",
    connect: rpc(
      { bytes: gzipSync(JSON.stringify(turn({ messages: [user(large)] }))), headers: { "content-encoding": "gzip" } },
      undefined,
      { code: "RESOURCE_EXHAUSTED", reason: "" },
    ),
    ...zipped(
      gzipSync(JSON.stringify(chatBody({ messages: [user(large)] }))),
      "gzip",
      { status: 413, code: "request_too_large" },
      { status: 413, type: "request_too_large", code: "request_too_large" },
    ),
    legacy: "its library packs as it likes; broken frames are tried beside",
  },
  {
    fault: "a body that is no gzip",
    grpc: "its library packs as it likes; broken frames are tried beside",
    connect: rpc({ bytes: "{}", headers: { "content-encoding": "gzip" } }, undefined, unreadable),
    ...zipped("{}", "gzip"),
    legacy: "its library packs as it likes; broken frames are tried beside",
  },
  {
    fault: "a compression nobody knows",
    grpc: "its library packs as it likes; broken frames are tried beside",
    connect: rpc({ bytes: "{}", headers: { "content-encoding": "lzma" } }, undefined, {
      code: "UNIMPLEMENTED",
      reason: "",
    }),
    ...zipped(
      "{}",
      "lzma",
      { status: 415, code: "unsupported_encoding" },
      { status: 415, code: "unsupported_encoding" },
    ),
    legacy: "its library packs as it likes; broken frames are tried beside",
  },
  {
    fault: "10,001 messages",
    ...rpcs(turn({ messages: tooMany }), "messages", {
      code: "RESOURCE_EXHAUSTED",
      reason: "RESOURCE_EXHAUSTED",
      says: /10001.*10000/,
    }),
    ...bothOpenAI(
      [{ body: chatBody({ messages: tooMany }) }, { body: responsesBody({ input: tooMany }) }],
      "messages",
      {
        says: /10001.*10000/,
      },
    ),
    messages: anthropic({ body: messagesBody({ messages: tooMany }) }, "messages", {
      code: "resource_exhausted",
      says: /10001.*10000/,
    }),
    legacy: legacy(legacyTurn({ messages: tooMany }), "messages", {
      code: "RESOURCE_EXHAUSTED",
      reason: "RESOURCE_EXHAUSTED",
    }),
  },
  {
    fault: "10,000 lists in each other",
    grpc: rpc({ bytes: groups }, undefined, unreadableBytes),
    connect: rpc({ bytes: `{"messages":${lists}}` }, undefined, unreadable),
    ...restBody(`{"messages":${lists}}`, { says: /1000 levels/ }),
    legacy: { ask: { bytes: groups }, refused: unreadableBytes },
  },
  {
    fault: "a schema of 10,000 levels",
    ...rpcs(
      turn({ options: { responseFormat: { type: "json_schema", jsonSchema: { schema: objects } } } }),
      "options.response_format.json_schema.schema",
    ),
    ...restBody(`{"schema":${objects}}`, { says: /1000 levels/ }),
    legacy: legacy(legacyTurn({ schema: objects }), "schema", { rpc: "GenerateStructured" }),
  },
  {
    fault: "more tools than a log takes",
    ...rpcs(turn({ tools: [{ name: "f", description: wordy }] }), "tools"),
    ...bothOpenAI(
      [
        { body: chatBody({ tools: [{ type: "function", function: { name: "f", description: wordy } }] }) },
        { body: responsesBody({ tools: [{ type: "function", name: "f", description: wordy }] }) },
      ],
      "tools",
    ),
    messages: anthropic(
      { body: messagesBody({ tools: [{ name: "f", description: wordy, input_schema: {} }] }) },
      "tools",
    ),
    legacy: "its requests bring no tools",
  },
  {
    fault: "longer options than a log takes",
    ...rpcs(turn({ options: { stop: [wordy] } }), "options.stop"),
    ...bothOpenAI(
      [{ body: chatBody({ metadata: { a: wordy } }) }, { body: responsesBody({ metadata: { a: wordy } }) }],
      "metadata",
    ),
    messages: anthropic({ body: messagesBody({ stop_sequences: [wordy] }) }, "stop_sequences"),
    legacy: "its requests have no options",
  },
  {
    fault: "a form in place of JSON",
    grpc: "its library says what it sends",
    connect: rpc({ bytes: "a=b", headers: { "content-type": "application/x-www-form-urlencoded" } }, undefined, {
      code: "INVALID_ARGUMENT",
      reason: "",
    }),
    ...rest(
      { headers: { "content-type": "application/x-www-form-urlencoded" } },
      null,
      { status: 415, code: "unsupported_media_type" },
      { status: 415, code: "unsupported_media_type" },
    ),
    legacy: "its library says what it sends",
  },
  {
    fault: "a GET",
    grpc: alwaysPost,
    connect: rpc({ httpMethod: "GET", bytes: "" }, undefined, { code: "HTTP 405", reason: "" }),
    chat: openai({ httpMethod: "GET" }, null, { status: 405, code: "method_not_allowed" }),
    responses: openai({ httpMethod: "GET" }, null, { status: 405, code: "method_not_allowed" }),
    messages: anthropic({ httpMethod: "GET" }, undefined, { status: 405, code: "method_not_allowed" }),
    legacy: alwaysPost,
  },
  {
    fault: "a PUT",
    grpc: alwaysPost,
    connect: rpc({ httpMethod: "PUT", bytes: "{}" }, undefined, { code: "HTTP 405", reason: "" }),
    ...rest({ httpMethod: "PUT" }, null, { status: 405, code: "method_not_allowed" }, { code: "method_not_allowed" }),
    legacy: alwaysPost,
  },
  {
    fault: "what nobody serves",
    grpc: rpc({ path: `${service}/NoSuch` }, undefined, { code: "UNIMPLEMENTED", reason: "" }),
    connect: rpc({ path: `${service}/NoSuch` }, undefined, { code: "UNIMPLEMENTED", reason: "" }),
    chat: openai({ body: {}, path: "/v1/chat/nothing" }, null, { status: 404, code: "unknown_url" }),
    responses: openai({ body: {}, path: "/v1/responses/a/b/c" }, null, { status: 404, code: "unknown_url" }),
    messages: anthropic({ body: {}, path: "/v1/messages/nothing" }, undefined, {
      ...{ status: 404, type: "not_found_error", code: "unknown_url" },
    }),
    legacy: { ask: { path: `${earlier}/NoSuch` }, refused: { code: "UNIMPLEMENTED", reason: "" } },
  },
  {
    fault: "a path above the door",
    grpc: rpc({ path: "/../etc/passwd" }, undefined, { code: "UNIMPLEMENTED", reason: "" }),
    connect: rpc({ path: `${service}/../Generate` }, undefined, { code: "NOT_FOUND", reason: "" }),
    chat: openai({ httpMethod: "GET", path: "/v1/models/..%2f..%2fetc%2fpasswd" }, null, {
      status: 404,
      code: "model_not_found",
    }),
    responses: openai({ httpMethod: "GET", path: "/v1/responses/..%2f..%2fetc" }, null, {
      status: 404,
      code: "response_not_found",
    }),
    messages: anthropic({ httpMethod: "GET", path: "/v1/messages/..%2f..%2fetc" }, undefined, {
      ...{ status: 404, type: "not_found_error", code: "unknown_url" },
    }),
    legacy: { ask: { path: `${earlier}/../Generate` }, refused: { code: "UNIMPLEMENTED", reason: "" } },
  },
  {
    fault: "a path that is not percent-encoded as it should be",
    grpc: "its paths are taken as they are",
    connect: "its paths are taken as they are",
    chat: openai({ httpMethod: "GET", path: "/v1/models/%E0" }, null),
    responses: openai({ httpMethod: "GET", path: "/v1/responses/%E0" }, null),
    messages: "its paths have no names in them",
    legacy: "its paths are taken as they are",
  },
  ...(
    [
      ["no token", null],
      ["a wrong token", "Bearer wrong"],
      ["a token of another kind", "Basic d3Jvbmc6d3Jvbmc="],
    ] as const
  ).map(
    ([fault, authorization]): BadRequest => ({
      fault,
      ...{ grpc: rpc({ request: turn({}), headers: { authorization } }, undefined, unauthenticated) },
      ...{ connect: rpc({ request: turn({}), headers: { authorization } }, undefined, unauthenticated) },
      ...rest(
        { headers: { authorization } },
        null,
        { status: 401, code: "invalid_api_key" },
        { type: "authentication_error", code: "invalid_api_key" },
      ),
      legacy: { ask: { request: legacyTurn({}), headers: { authorization } }, refused: unauthenticated },
    }),
  ),
  {
    fault: "a wrong token of the vendor's kind",
    grpc: rpc(
      { request: turn({}), headers: { authorization: null, "x-api-key": "wrong" } },
      undefined,
      unauthenticated,
    ),
    connect: rpc(
      { request: turn({}), headers: { authorization: null, "x-api-key": "wrong" } },
      undefined,
      unauthenticated,
    ),
    ...rest(
      { headers: { authorization: null, "x-api-key": "wrong" } },
      null,
      { status: 401, code: "invalid_api_key" },
      { type: "authentication_error", code: "invalid_api_key" },
    ),
    legacy: {
      ask: { request: legacyTurn({}), headers: { authorization: null, "x-api-key": "wrong" } },
      refused: unauthenticated,
    },
  },
  {
    fault: "the page of another site",
    grpc: "pages can't speak it",
    connect: rpc({ request: turn({}), headers: { origin: "https://evil.example" } }, undefined, {
      code: "PERMISSION_DENIED",
      reason: "",
    }),
    ...rest(
      { headers: { origin: "https://evil.example" } },
      null,
      { status: 403, code: "permission_denied" },
      { type: "permission_error", code: "permission_denied" },
    ),
    legacy: "pages can't speak it",
  },
  {
    fault: "a form of roles nobody knows",
    grpc: "its roles have one form",
    connect: "its roles have one form",
    chat: "its roles have one form",
    responses: "its roles have one form",
    messages: "its roles have one form",
    legacy: {
      ask: { request: legacyTurn({}), headers: { "x-role-format": "emoji" } },
      refused: { code: "INVALID_ARGUMENT", reason: "INVALID_REQUEST", field: "x-role-format" },
    },
  },
];

function zipped(body: string | Uint8Array, encoding: string, unusual = {}, ofAnthropic = {}) {
  const ask = { body, headers: { "content-encoding": encoding } };
  return {
    chat: openai(ask, null, unusual),
    responses: openai(ask, null, unusual),
    messages: anthropic(ask, undefined, ofAnthropic),
  };
}

/** Requests that are wrong in how they are sent, or to whom. */
export const badCalls: readonly BadRequest[] = [...badIds, ...badSending];
