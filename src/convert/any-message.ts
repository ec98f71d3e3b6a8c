import { create, fromJson, type JsonValue, type MessageInitShape } from "@bufbuild/protobuf";
import { type MessageJson, MessageSchema } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { AgentError } from "../chat/error.ts";
import type { Message } from "../chat/message.ts";
import { messagesFromOpenAI } from "./openai/message.ts";
import { messageFromProto } from "./proto/message.ts";

/** A message of the contract: made by `create`, an answer's own, or as its JSON. */
export type ContractMessage = MessageInitShape<typeof MessageSchema> | MessageJson;

/** The numbers that clients of the earlier gRPC service had for roles. */
const numberedRoles = ["", "user", "assistant", "system", "tool"] as const;

/**
 * A role as any client writes it, in the word of the contract: `ROLE_USER`, `USER` and 1 are `user`. What is none is left as
 * it is, for those who check it.
 */
export function roleWord(role: unknown): unknown {
  if (typeof role === "number") return numberedRoles[role] || role;
  return typeof role === "string" ? role.toLowerCase().replace(/^role_/, "") : role;
}

/**
 * Reads a message in the contract's shape or in OpenAI's, whichever it has; one in OpenAI's may be several. One that fits both is read as OpenAI's, which says
 * the same.
 * @param functionCall as for `messagesFromOpenAI`.
 * @throws {AgentError} `invalid_request` with the path of the field that is wrong.
 */
export function messagesFromAnyShape(message: unknown, path = "messages[0]", functionCall = 1): Message[] {
  if (typeof message !== "object" || message === null || !("role" in message))
    return messagesFromOpenAI(message, path, functionCall);
  const read = { ...message, role: roleWord(message.role) };
  if (!isOfContract(read)) return messagesFromOpenAI(read, path, functionCall);
  try {
    return [messageFromProto(isJson(read) ? fromJson(MessageSchema, read) : create(MessageSchema, initOf(read)), path)];
  } catch (cause) {
    if (cause instanceof AgentError) throw cause;
    const description = `is no message: ${cause instanceof Error ? cause.message : String(cause)}`;
    const fieldViolations = [{ field: path, description }];
    throw new AgentError("invalid_request", `${path}: ${description}`, { fieldViolations, cause });
  }
}

const fieldsOfContract = ["$typeName", "contentType", "contentParts", "content_parts", "blocks", "toolCallId"];

function isOfContract(message: object): boolean {
  if (fieldsOfContract.some((name) => name in message)) return true;
  const calls = "toolCalls" in message ? message.toolCalls : "tool_calls" in message ? message.tool_calls : undefined;
  return Array.isArray(calls) && calls.length > 0 && calls.every((call) => isObject(call) && !("function" in call));
}

/** JSON has its content beside its other fields, a message made by `create` within `contentType`; blocks likewise. */
function isJson(message: object): message is { [field: string]: JsonValue } {
  if ("$typeName" in message || "contentType" in message) return false;
  const blocks = "blocks" in message && Array.isArray(message.blocks) ? message.blocks : [];
  return blocks.every((block: unknown) => isObject(block) && !("block" in block));
}

/** `create` takes what it knows and checks nothing; what is wrong shows when the message is read. */
function initOf(message: object): MessageInitShape<typeof MessageSchema> {
  const { $typeName: _, ...fields }: MessageInitShape<typeof MessageSchema> = message;
  return fields;
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
