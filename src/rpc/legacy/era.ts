import { create, type UnknownField } from "@bufbuild/protobuf";
import { BinaryReader, BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { ValueSchema } from "@bufbuild/protobuf/wkt";
import type { HandlerContext } from "@connectrpc/connect";
import type { ToolCall, ToolResult, Usage } from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import {
  type Message as EraMessage,
  type GenerateChunk,
  GenerateChunkSchema,
  type GenerateResponse,
  GenerateResponseSchema,
  MessageSchema,
} from "../../../gen/codeagent/legacy/v1/either_era_pb.ts";
import { AgentError, invalidField } from "../../chat/error.ts";
import type { FinishReason } from "../../chat/finish-reason.ts";
import type { Message } from "../../chat/message.ts";
import { type RoleFormat, roleFormats } from "./legacy-core.ts";

/** How one caller is answered. */
export interface CallForm {
  /** By era: words as strings, or as numbers of enums. */
  readonly format: RoleFormat;
  /** The call is in JSON, where enums are told by their names. */
  readonly isJson: boolean;
}

export const formatHeader = "x-role-format";

const roleWords = ["user", "assistant", "system", "tool"] as const;
type LegacyRole = (typeof roleWords)[number];

const roleNumbers: Readonly<Record<LegacyRole, number>> = { user: 1, assistant: 2, system: 3, tool: 4 };
const roleByNumber: readonly string[] = ["", ...roleWords];
/** Other words for them that some clients use. No word is what a number of 0 says; both eras' servers read it as none. */
const roleByWord: ReadonlyMap<string, LegacyRole | ""> = new Map<string, LegacyRole | "">([
  ...roleWords.map((word) => [word, word] as const),
  ["function", "tool"],
  ["developer", "system"],
  ["unknown", ""],
  ["", ""],
]);

/** Kinds of chunks. Clients of the earlier service know no others. */
export const chunkTypes = ["content", "tool_call", "tool_result", "metadata", "done"] as const;
export type ChunkType = (typeof chunkTypes)[number];
const chunkNumbers: Readonly<Record<ChunkType, number>> = {
  content: 1,
  tool_call: 2,
  tool_result: 3,
  metadata: 4,
  done: 5,
};

const reasonWords = ["stop", "length", "tool_calls", "content_filter", "error"] as const;
/** Why a turn ended, in words of the earlier service. */
export type LegacyFinishReason = (typeof reasonWords)[number];
const reasonNumbers: Readonly<Record<LegacyFinishReason, number>> = {
  stop: 1,
  length: 2,
  tool_calls: 3,
  content_filter: 4,
  error: 5,
};

/** The nearest word for each of our reasons: whoever cancels stops; what ran into a bound was cut short. */
export const legacyFinishReasons: Readonly<Record<FinishReason, LegacyFinishReason>> = {
  stop: "stop",
  length: "length",
  tool_calls: "tool_calls",
  content_filter: "content_filter",
  error: "error",
  cancelled: "stop",
  budget: "length",
  max_steps: "length",
};

/** What is said of a turn that has ended. */
export interface GenerateAnswer {
  readonly sessionId: string;
  readonly text: string;
  readonly toolCalls: ToolCall[];
  readonly usage: Usage;
  readonly finishReason: LegacyFinishReason;
  readonly metadata: Readonly<Record<string, string>>;
}

/** One piece of a stream. */
export interface Chunk {
  readonly type: ChunkType;
  readonly content?: string;
  readonly toolCall?: ToolCall;
  readonly toolResult?: ToolResult;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly finishReason?: LegacyFinishReason;
}

/**
 * Reads the messages of a request, and tells the form of its answer. Which era it is of is told by the first message
 * that has a role on the wire (in JSON: `ROLE_USER` and numbers are of the era of enums, other words are not); where none
 * has, by the header `x-role-format`, else by the configuration.
 *
 * A message without a role counts as the user's: nothing more is known of what earlier servers made of it than that they
 * took it, and a person who asks is the only one who needs no introduction. An empty message of an assistant, which is
 * all that was told of one that only made calls, is passed over. A tool's message names no call in these formats, so
 * that no model could be sent it as a result: it becomes words of the user that say what they are.
 * @param field the list's name in the request, for errors
 * @throws {AgentError} `invalid_request` for roles nobody knows, messages of both eras in one request and empty messages
 *   of users, `unimplemented` for attachments.
 */
export function readRequest(
  messages: readonly EraMessage[],
  field: string,
  context: Pick<HandlerContext, "requestHeader">,
  byDefault: RoleFormat,
): { readonly form: CallForm; readonly messages: readonly Message[] } {
  const isJson = /json/i.test(context.requestHeader.get("content-type") ?? "");
  const asked = askedFormat(context.requestHeader.get(formatHeader));
  let seen: RoleFormat | undefined;
  const read = messages.flatMap((message, index): Message[] => {
    const path = `${field}[${index}]`;
    const { format, role } = isJson ? roleInJson(message, path) : roleInBinary(message, path);
    if (format !== undefined && seen !== undefined && format !== seen) throw mixedEras(`${path}.role`, format);
    seen ??= format;
    return messageFrom(role, message.content, metadataOf(message, path), path);
  });
  return { form: { format: seen ?? asked ?? byDefault, isJson }, messages: read };
}

/** The answer of a call in the form that its caller reads. */
export function generateResponse(answer: GenerateAnswer, { format, isJson }: CallForm): GenerateResponse {
  const { sessionId, text, toolCalls, usage, finishReason } = answer;
  const message = create(MessageSchema, { content: text });
  const response = create(GenerateResponseSchema, {
    sessionId,
    message,
    toolCalls,
    usage,
    metadata: { ...answer.metadata },
  });
  if (isJson) {
    const word = format === "enum" ? "ROLE_ASSISTANT" : "assistant";
    message.role = create(ValueSchema, { kind: { case: "stringValue", value: word } });
    response.finishReason = format === "enum" ? `FINISH_REASON_${finishReason.toUpperCase()}` : finishReason;
  } else {
    message.$unknown = [wordField(1, format, "assistant", roleNumbers.assistant)];
    response.$unknown = [wordField(5, format, finishReason, reasonNumbers[finishReason])];
  }
  return response;
}

/** A piece of a stream in the form that its caller reads. */
export function generateChunk(sessionId: string, chunk: Chunk, { format, isJson }: CallForm): GenerateChunk {
  const { type, content = "", toolCall, toolResult, metadata, finishReason } = chunk;
  const message = create(GenerateChunkSchema, {
    sessionId,
    content,
    metadata: { ...metadata },
    ...(toolCall === undefined ? {} : { toolCall }),
    ...(toolResult === undefined ? {} : { toolResult }),
  });
  // The era of enums has no reason in its chunks.
  const reason = format === "string" ? finishReason : undefined;
  if (isJson) {
    message.type = format === "enum" ? `CHUNK_TYPE_${type.toUpperCase()}` : type;
    message.finishReason = reason ?? "";
  } else {
    message.$unknown = [wordField(1, format, type, chunkNumbers[type])];
    if (reason !== undefined) message.$unknown.push(wordField(7, format, reason, reasonNumbers[reason]));
  }
  return message;
}

function askedFormat(header: string | null): RoleFormat | undefined {
  if (header === null || header === "") return undefined;
  const format = roleFormats.find((known) => known === header.toLowerCase());
  if (format === undefined) throw invalidField(formatHeader, `is no form of roles; use ${roleFormats.join(" or ")}`);
  return format;
}

interface ReadRole {
  /** Absent where nothing is on the wire. */
  readonly format?: RoleFormat;
  readonly role: LegacyRole | "";
}

function roleInBinary({ $unknown = [] }: EraMessage, path: string): ReadRole {
  const rolePath = `${path}.role`;
  let read: ReadRole = { role: "" };
  for (const { no, wireType, data } of $unknown) {
    if (no !== 1) continue;
    let next: ReadRole;
    if (wireType === WireType.Varint) {
      next = { format: "enum", role: roleOfNumber(new BinaryReader(data).int32(), rolePath) };
    } else if (wireType === WireType.LengthDelimited) {
      next = { format: "string", role: roleOfWord(textFrom(data, rolePath), rolePath) };
    } else {
      throw invalidField(rolePath, "is neither a string nor the number of an enum");
    }
    if (read.format !== undefined && read.format !== next.format) throw mixedEras(rolePath, next.format);
    read = next;
  }
  return read;
}

function roleInJson({ role }: EraMessage, path: string): ReadRole {
  const rolePath = `${path}.role`;
  switch (role?.kind.case) {
    case undefined:
    case "nullValue":
      return { role: "" };
    case "numberValue":
      return { format: "enum", role: roleOfNumber(role.kind.value, rolePath) };
    case "stringValue": {
      const word = role.kind.value;
      if (word === "") return { role: "" };
      return { format: word.startsWith("ROLE_") ? "enum" : "string", role: roleOfWord(word, rolePath) };
    }
    default:
      throw invalidField(rolePath, "is neither a word nor the number of an enum");
  }
}

function roleOfNumber(number: number, path: string): LegacyRole | "" {
  const role = roleByWord.get(roleByNumber[number] ?? "none");
  if (role === undefined) throw invalidField(path, `is ${number}; use 1 to 4 for ${roleWords.join(", ")}`);
  return role;
}

function roleOfWord(word: string, path: string): LegacyRole | "" {
  const role = roleByWord.get(word.toLowerCase().replace(/^role_/, ""));
  if (role === undefined)
    throw invalidField(path, `is ${JSON.stringify(word.slice(0, 64))}; use one of ${roleWords.join(", ")}`);
  return role;
}

function mixedEras(path: string, format: RoleFormat | undefined): AgentError {
  const form = format === "enum" ? "the number of an enum" : "a string";
  return invalidField(path, `is ${form}, unlike the role before it; send all roles of a request in one form`);
}

/**
 * The metadata, which is field 3, or 4 for the earliest clients, of whose messages 3 were attachments: those begin with a
 * number where an entry of a map has its key.
 */
function metadataOf({ $unknown = [], metadata }: EraMessage, path: string): Record<string, string> {
  const entries: [string, string][] = Object.entries(metadata);
  for (const { no, wireType, data } of $unknown) {
    if ((no !== 3 && no !== 4) || wireType !== WireType.LengthDelimited) continue;
    const entry = mapEntry(data, `${path}.metadata`);
    if (entry !== undefined) entries.push(entry);
    else if (no === 3) throw attachmentsUnknown(`${path}.attachments`);
  }
  return Object.fromEntries(entries);
}

/** Undefined where a message is no entry of a map of strings with a key. */
function mapEntry(data: Uint8Array, path: string): [string, string] | undefined {
  try {
    const reader = new BinaryReader(new BinaryReader(data).bytes());
    let key: string | undefined;
    let value = "";
    while (reader.pos < reader.len) {
      const [no, wireType] = reader.tag();
      if (wireType !== WireType.LengthDelimited) return undefined;
      if (no === 1) key = reader.string(true);
      else if (no === 2) value = reader.string(true);
      else return undefined;
    }
    return key === undefined ? undefined : [key, value];
  } catch (cause) {
    if (cause instanceof AgentError) throw cause;
    throw invalidField(path, "can't be read: it is cut or no UTF-8");
  }
}

function attachmentsUnknown(field: string): AgentError {
  const description =
    "attachments are not taken; put their text into content, or send them as content_parts to codeagent.v1";
  return new AgentError("unimplemented", `${field}: ${description}`, { fieldViolations: [{ field, description }] });
}

function messageFrom(
  role: LegacyRole | "",
  content: string,
  metadata: Readonly<Record<string, string>>,
  path: string,
): Message[] {
  for (const text of [content, ...Object.entries(metadata).flat()])
    if (!text.isWellFormed()) throw invalidField(path, "holds half a surrogate pair, which no UTF-8 can hold");
  if (content === "") {
    if (role === "user" || role === "") throw invalidField(`${path}.content`, "is empty");
    return [];
  }
  const isResult = role === "tool";
  const text = isResult ? `A tool gave this:\n${content}` : content;
  const named = Object.keys(metadata).length === 0 ? {} : { metadata };
  return [{ role: isResult || role === "" ? "user" : role, blocks: [{ type: "text", text }], ...named }];
}

function textFrom(data: Uint8Array, path: string): string {
  try {
    return new BinaryReader(data).string(true);
  } catch {
    throw invalidField(path, "is no UTF-8");
  }
}

function wordField(no: number, format: RoleFormat, word: string, number: number): UnknownField {
  const writer = new BinaryWriter();
  return format === "enum"
    ? { no, wireType: WireType.Varint, data: writer.int32(number).finish() }
    : { no, wireType: WireType.LengthDelimited, data: writer.string(word).finish() };
}
