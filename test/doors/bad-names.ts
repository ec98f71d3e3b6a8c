import { CodeAgentService } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { responseId } from "../../src/convert/responses/response-id.ts";
import {
  anthropic,
  type BadRequest,
  chat,
  legacy,
  legacyTurn,
  messages,
  openai,
  responses,
  rpc,
  rpcs,
  turn,
  typed,
} from "./bad-request.ts";

const makesIt = "x-session-id makes the session it names";
const unknownModel = { status: 404, code: "model_not_found", type: "invalid_request_error" } as const;
const notFound = { status: 404, type: "not_found_error", code: "not_found" } as const;
const ask = { role: "user", content: "hi" };

/** Who is asked, and where the turn belongs. */
const badModels: BadRequest[] = [
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

/** Names of what there is not, in turns, streams and questions. */
export const badNames: readonly BadRequest[] = [...badModels, ...badStreams, ...badQuestions];
