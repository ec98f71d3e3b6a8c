import type { JsonObject } from "@bufbuild/protobuf";
import type { LegacyMessage } from "../legacy/legacy-client.ts";
import type { LegacyAsk, Method, RestAsk, RpcAsk } from "./ask-doors.ts";

/** How a call is refused, in gRPC and its kin. */
export interface RpcRefusal {
  /** A code of gRPC; `HTTP 405` where the call did not get that far. */
  readonly code: string;
  /** Empty where the protocol itself is at fault, and no handler was asked. */
  readonly reason: string;
  readonly field?: string;
  readonly says?: RegExp;
}

/** How OpenAI's formats refuse. */
export interface OpenAIRefusal {
  readonly status: number;
  readonly type: string;
  readonly code: string | null;
  readonly param: string | null;
  readonly says?: RegExp;
}

/** How Anthropic's format refuses; `code` and `field` are our own details. */
export interface AnthropicRefusal {
  readonly status: number;
  readonly type: string;
  readonly code: string;
  readonly field?: string;
  readonly says?: RegExp;
}

export interface Cell<Ask, Refusal> {
  readonly ask: Ask;
  readonly refused: Refusal;
}

/** One fault, as every door would be told of it; a text says why it can't be said at a door. */
export interface BadRequest {
  readonly fault: string;
  readonly grpc: Cell<RpcAsk, RpcRefusal> | string;
  readonly connect: Cell<RpcAsk, RpcRefusal> | string;
  readonly chat: Cell<RestAsk, OpenAIRefusal> | string;
  readonly responses: Cell<RestAsk, OpenAIRefusal> | string;
  readonly messages: Cell<RestAsk, AnthropicRefusal> | string;
  readonly legacy: Cell<LegacyAsk, RpcRefusal> | string;
}

// Why some faults can't be said.
export const noTools = "its requests bring no tools";
export const noOptions = "its requests have no options";
export const typed = "the wire has the type of the field";
export const model = "scripted/test";
export const user = (content: string): JsonObject => ({ role: "user", content });
export const hi = [user("hi")];

/** Turns that are right but for what is added to them. */
export const turn = (more: JsonObject): JsonObject => ({ sessionId: "taken", messages: hi, ...more });
export const chatBody = (more: JsonObject): JsonObject => ({ model, messages: hi, ...more });
export const responsesBody = (more: JsonObject): JsonObject => ({ model, input: "hi", ...more });
export const messagesBody = (more: JsonObject): JsonObject => ({ model, max_tokens: 100, messages: hi, ...more });
export const legacyTurn = (more: LegacyMessage): LegacyMessage => ({ session_id: "taken", messages: hi, ...more });

/**
 * Bytes that no message can be read from: gRPC's own word for it, whoever is to blame
 * (grpc.github.io/grpc/core/md_doc_statuscodes.html, "Error parsing request proto").
 */
export const unreadableBytes = { code: "INTERNAL", reason: "" } as const;

/** What else is not as usual in a cell. */
type Unusual<Refusal> = Partial<Omit<Refusal, "field" | "param">>;

/** A call of gRPC; without a field no field is to blame. */
export function rpc(ask: RpcAsk, field?: string, unusual: Unusual<RpcRefusal> = {}): Cell<RpcAsk, RpcRefusal> {
  return { ask, refused: { code: "INVALID_ARGUMENT", reason: "INVALID_REQUEST", ...unusual, ...fieldOf(field) } };
}

/** The same call in gRPC and in Connect's JSON. */
export function rpcs(request: JsonObject, field?: string, unusual: Unusual<RpcRefusal> & { method?: Method } = {}) {
  const { method, ...more } = unusual;
  const cell = rpc({ request, ...(method === undefined ? {} : { method }) }, field, more);
  return { grpc: cell, connect: cell };
}

export function legacy(
  request: LegacyMessage,
  field?: string,
  { rpc: name = "Generate", ...unusual }: Unusual<RpcRefusal> & { rpc?: string } = {},
): Cell<LegacyAsk, RpcRefusal> {
  const refused = { code: "INVALID_ARGUMENT", reason: "INVALID_REQUEST", ...unusual, ...fieldOf(field) };
  return { ask: { rpc: name, request }, refused };
}

function fieldOf(field: string | undefined) {
  return field === undefined ? {} : { field };
}

export function openai(
  ask: RestAsk,
  param: string | null,
  unusual: Unusual<OpenAIRefusal> = {},
): Cell<RestAsk, OpenAIRefusal> {
  return { ask, refused: { status: 400, type: "invalid_request_error", code: null, ...unusual, param } };
}

export function chat(more: JsonObject, param: string | null, unusual: Unusual<OpenAIRefusal> = {}) {
  return openai({ body: chatBody(more) }, param, unusual);
}

export function responses(more: JsonObject, param: string | null, unusual: Unusual<OpenAIRefusal> = {}) {
  return openai({ body: responsesBody(more) }, param, unusual);
}

export function anthropic(
  ask: RestAsk,
  field?: string,
  unusual: Unusual<AnthropicRefusal> = {},
): Cell<RestAsk, AnthropicRefusal> {
  const refused = {
    status: 400,
    type: "invalid_request_error",
    code: "invalid_request",
    ...unusual,
    ...fieldOf(field),
  };
  return { ask, refused };
}

export function messages(more: JsonObject, field?: string, unusual: Unusual<AnthropicRefusal> = {}) {
  return anthropic({ body: messagesBody(more) }, field, unusual);
}

/** The same body in both of OpenAI's formats, or another in each. */
export function bothOpenAI(
  [forChat, forResponses]: readonly [RestAsk, RestAsk],
  param: string | null,
  unusual: Unusual<OpenAIRefusal> = {},
) {
  return { chat: openai(forChat, param, unusual), responses: openai(forResponses, param, unusual) };
}

/** A request whose fault is outside of its body, at all three doors of REST. */
export function rest(
  change: Omit<RestAsk, "body">,
  param: string | null,
  unusual: Unusual<OpenAIRefusal> = {},
  ofAnthropic: Unusual<AnthropicRefusal> = {},
) {
  const { status, says } = unusual;
  const shared = { ...(status === undefined ? {} : { status }), ...(says === undefined ? {} : { says }) };
  return {
    chat: openai({ body: chatBody({}), ...change }, param, unusual),
    responses: openai({ body: responsesBody({}), ...change }, param, unusual),
    messages: anthropic({ body: messagesBody({}), ...change }, param ?? undefined, { ...shared, ...ofAnthropic }),
  };
}

/** A body that is wrong by itself, whatever the door. */
export function restBody(
  body: RestAsk["body"],
  unusual: Unusual<OpenAIRefusal> = {},
  ofAnthropic: Unusual<AnthropicRefusal> = {},
) {
  const ask = body === undefined ? {} : { body };
  const { status, says } = unusual;
  const shared = { ...(status === undefined ? {} : { status }), ...(says === undefined ? {} : { says }) };
  return {
    chat: openai(ask, null, unusual),
    responses: openai(ask, null, unusual),
    messages: anthropic(ask, undefined, { ...shared, ...ofAnthropic }),
  };
}
