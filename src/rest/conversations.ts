import { AgentError, invalidField } from "../chat/error.ts";
import type { LogRecord } from "../chat/log-event.ts";
import type { Message } from "../chat/message.ts";
import type { SessionConfig } from "../chat/session-config.ts";
import { readObject, readOptionalMap, readWord } from "../convert/json-field.ts";
import { askedFromTurn } from "../convert/responses/asked.ts";
import { responseFold } from "../convert/responses/event.ts";
import { type ConversationItem, itemsFromMessages, messagesFromItems } from "../convert/responses/item.ts";
import { partsOfResponseId } from "../convert/responses/response-id.ts";
import { isPruned } from "../session/follow-log.ts";
import { maxMessages } from "../session/large-messages.ts";
import type { SessionView } from "../session/session-view.ts";
import type { Principal, Sessions } from "../session/sessions.ts";
import type { RestCall, RestReply, RestRoute } from "./rest-api.ts";

/** What conversations and kept responses are answered from. */
export interface ConversationsCore {
  readonly sessions: Sessions;
  readonly principal: Principal;
  /** Absolute path of the folder that new conversations work in. */
  readonly workspace: string;
  readonly newId: (prefix: string) => string;
}

/**
 * Conversations and kept responses of the Responses API (developers.openai.com/api/reference, "Conversations" and
 * "Responses"). A conversation is a session and has its id, whoever made it; a response is a turn, told anew from its log.
 *
 * A response can be deleted only where its session holds nothing else: a turn can't be taken out of a log that others go
 * on from. Deleting the conversation deletes all of them.
 */
export function conversationRoutes(core: ConversationsCore): RestRoute[] {
  return [
    { method: "POST", path: "/v1/conversations", handle: (call) => createConversation(core, call) },
    { method: "GET", path: "/v1/conversations/{id}", handle: (call) => getConversation(core, call) },
    { method: "POST", path: "/v1/conversations/{id}", handle: (call) => updateConversation(core, call) },
    { method: "DELETE", path: "/v1/conversations/{id}", handle: (call) => deleteConversation(core, call) },
    { method: "GET", path: "/v1/conversations/{id}/items", handle: (call) => listItems(core, call) },
    { method: "GET", path: "/v1/responses/{id}", handle: (call) => getResponse(core, call) },
    { method: "DELETE", path: "/v1/responses/{id}", handle: (call) => deleteResponse(core, call) },
    { method: "GET", path: "/v1/responses/{id}/input_items", handle: (call) => listInputItems(core, call) },
  ];
}

async function createConversation(core: ConversationsCore, call: RestCall): Promise<RestReply> {
  const body = await call.body();
  const fields = readObject(body ?? {}, "request");
  const items = fields["items"] ?? [];
  const initialMessages = messagesFromItems(typeof items === "string" ? [items] : items, "", "items");
  if (initialMessages.length > maxMessages)
    throw invalidField("items", `are ${initialMessages.length} messages; at most ${maxMessages} are taken`);
  const config: SessionConfig = {
    ...{ title: "", workspace: core.workspace, model: "", systemPrompt: "", initialMessages },
    metadata: metadataFrom(fields["metadata"]),
  };
  return { body: conversationOf(await core.sessions.create(core.principal, config, core.newId("conv"), "")) };
}

/** What callers say of a conversation, without our own words on it. */
function metadataFrom(value: unknown): Readonly<Record<string, string>> {
  const metadata = entriesOf(readOptionalMap(value, "metadata") ?? {}, false);
  const length = JSON.stringify(metadata).length;
  if (length > maxMetadataLength)
    throw invalidField("metadata", `takes ${length} characters; at most ${maxMetadataLength} are kept`);
  return metadata;
}

/** The key of a session's metadata that says for which API the door made it. */
const madeByKey = "codeagent.api";
const maxMetadataLength = 64 * 1024;

/** Of a session's metadata what the server and its other services keep there, or what its callers do. */
function entriesOf(metadata: Readonly<Record<string, string>>, areOurs: boolean): Readonly<Record<string, string>> {
  return Object.fromEntries(
    Object.entries(metadata).filter(([key]) => /^(?:codeagent|legacy)\./.test(key) === areOurs),
  );
}

async function getConversation({ sessions, principal }: ConversationsCore, call: RestCall): Promise<RestReply> {
  return { body: conversationOf(await sessions.get(principal, idOf(call))) };
}

async function updateConversation({ sessions, principal }: ConversationsCore, call: RestCall): Promise<RestReply> {
  const metadata = metadataFrom(readObject(await call.body(), "request")["metadata"]);
  const change = (config: SessionConfig): SessionConfig => ({
    ...config,
    metadata: { ...metadata, ...entriesOf(config.metadata, true) },
  });
  return { body: conversationOf(await sessions.update(principal, idOf(call), change)) };
}

async function deleteConversation({ sessions, principal }: ConversationsCore, call: RestCall): Promise<RestReply> {
  const id = idOf(call);
  await sessions.delete(principal, id);
  return { body: { id, object: "conversation.deleted", deleted: true } };
}

async function listItems(core: ConversationsCore, call: RestCall): Promise<RestReply> {
  const id = idOf(call);
  return { body: pageOf(itemsFromMessages(await allMessages(core, id), id, includesSealed(call.query)), call.query) };
}

async function getResponse(core: ConversationsCore, call: RestCall): Promise<RestReply> {
  if (call.query.get("stream") === "true")
    throw invalidField("stream", "is true; a response that is there already is not streamed again");
  const { sessionId, turnId, records } = await readTurn(core, call);
  const started = records.map(({ event }) => event).find((event) => event.type === "turn-started");
  const asked = started === undefined ? undefined : askedFromTurn(started);
  const seals = includesSealed(call.query) || asked?.seals === true;
  const fold = responseFold({
    ...{ sessionId, turnId, createdMs: records[0]?.timeMs ?? 0, streams: false },
    ...(asked === undefined ? {} : { asked: { ...asked, seals } }),
  });
  for (const record of records) fold.push(record);
  return { body: fold.snapshot() };
}

async function deleteResponse(core: ConversationsCore, call: RestCall): Promise<RestReply> {
  const { sessionId, view, isOnlyTurn } = await readTurn(core, call);
  if (view.config.metadata[madeByKey] !== "responses" || !isOnlyTurn)
    throw new AgentError(
      "failed_precondition",
      `the response is part of conversation ${sessionId}, which holds more; delete that with DELETE /v1/conversations/${sessionId}`,
      { reason: "RESPONSE_IN_CONVERSATION" },
    );
  await core.sessions.delete(core.principal, sessionId);
  return { body: { id: idOf(call), object: "response", deleted: true } };
}

async function listInputItems(core: ConversationsCore, call: RestCall): Promise<RestReply> {
  const { sessionId, turnId, records } = await readTurn(core, call);
  const started = records.map(({ event }) => event).find((event) => event.type === "turn-started");
  const logged = started?.messages ?? [];
  // The log has large messages in short; the history has them whole, as long as it was not compacted.
  const history = await allMessages(core, sessionId);
  const whole = logged.map((message, index) => {
    const id = `${turnId}-in${index + 1}`;
    return history.find((other) => other.id === id) ?? message;
  });
  const hasInstructions = started !== undefined && askedFromTurn(started).hasInstructions === true;
  const items = itemsFromMessages(hasInstructions ? whole.slice(1) : whole, `${turnId}_in`, includesSealed(call.query));
  return { body: pageOf(items, call.query) };
}

async function readTurn({ sessions, principal }: ConversationsCore, call: RestCall) {
  const id = idOf(call);
  const parts = partsOfResponseId(id);
  if (parts === undefined) throw unknownResponse(id);
  const { sessionId, turnId } = parts;
  const view = await sessions.get(principal, sessionId).catch((error: unknown) => {
    throw error instanceof AgentError && error.kind === "not_found" ? unknownResponse(id) : error;
  });
  const records: LogRecord[] = [];
  let isOnlyTurn = true;
  const log = await sessions.subscribe(principal, sessionId, 0, false);
  for await (const batch of log.read(call.signal)) {
    if (isPruned(batch)) continue;
    for (const record of batch) {
      if (record.turnId === turnId) records.push(record);
      else if (record.event.type === "turn-started") isOnlyTurn = false;
    }
  }
  if (records.length === 0) throw unknownResponse(id);
  return { sessionId, turnId, view, records, isOnlyTurn: isOnlyTurn && view.waitingTurns === 0 };
}

async function allMessages({ sessions, principal }: ConversationsCore, sessionId: string): Promise<Message[]> {
  const messages: Message[] = [];
  for (;;) {
    const page = await sessions.messages(principal, sessionId, messages.length, maxMessages);
    messages.push(...page.messages);
    if (!page.more || page.messages.length === 0) return messages;
  }
}

function conversationOf({ sessionId, createdMs, config }: SessionView) {
  const metadata = entriesOf(config.metadata, false);
  return { id: sessionId, object: "conversation", created_at: Math.floor(createdMs / 1000), metadata };
}

/** One page of items: newest first unless `order=asc`, at most `limit` (1 to 100, default 20), after the item `after`. */
function pageOf(items: readonly ConversationItem[], query: URLSearchParams) {
  const order = readWord(query.get("order") ?? "desc", ["asc", "desc"], "order");
  const limit = Number(query.get("limit") ?? 20);
  if (!Number.isInteger(limit) || limit < 1 || limit > 100)
    throw invalidField("limit", "must be a whole number from 1 to 100");
  const ordered = order === "asc" ? items : items.toReversed();
  const after = query.get("after");
  const before = after === null ? -1 : ordered.findIndex((item) => item.id === after);
  if (after !== null && before === -1) throw invalidField("after", "names no item of this list");
  const data = ordered.slice(before + 1, before + 1 + limit);
  return {
    object: "list",
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: before + 1 + data.length < ordered.length,
  };
}

function includesSealed(query: URLSearchParams): boolean {
  const words = [...query.getAll("include"), ...query.getAll("include[]")];
  return words.includes("reasoning.encrypted_content");
}

function idOf({ params }: RestCall): string {
  return params["id"] ?? "";
}

function unknownResponse(id: string): AgentError {
  return new AgentError("not_found", `there is no response ${id}; those asked for with store: false are not kept`, {
    reason: "RESPONSE_NOT_FOUND",
  });
}
