import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { Message as ProtoMessage, ToolCall as ProtoToolCall } from "../../../gen/codeagent/v1/code_agent_pb.ts";
import { MessageSchema, ToolCallSchema } from "../../../gen/codeagent/v1/code_agent_pb.ts";
import { invalidField } from "../../chat/error.ts";
import type { ContentBlock, Message, Role, ToolResultBlock, ToolUseBlock } from "../../chat/message.ts";
import { messageText, roles, toolUses } from "../../chat/message.ts";
import { checkFilled } from "../content-check.ts";
import { present, presentMap, presentText } from "../present.ts";
import type { PartBlock } from "./block.ts";
import { blockFromProto, blockToProto, isPartBlock, partFromProto, partToProto } from "./block.ts";
import { readStored } from "./error.ts";
import type { Source } from "./field.ts";
import { checkStrings, timeFromProto, wordFromProto } from "./field.ts";

/**
 * Reads a message. Where it has `blocks`, they are what it says; else its OpenAI-shaped fields are. An empty `content`
 * makes no block. `result` of a tool call is not read: results come as messages of their own.
 * @param path of the message in its request, for errors.
 * @param source `server` for what a server wrote: then nothing is refused for being empty or misplaced.
 * @throws {AgentError} `invalid_request` with the path of the field that is wrong.
 */
export function messageFromProto(message: ProtoMessage, path = "messages[0]", source: Source = "client"): Message {
  if (source === "client") checkStrings(MessageSchema, message, path);
  const role = message.role === "function" ? "tool" : wordFromProto(message.role, roles, `${path}.role`);
  const blocks =
    message.blocks.length > 0
      ? message.blocks.map((block, index) => blockFromProto(block, `${path}.blocks[${index}]`, source))
      : blocksFromView(role, message, path, source);
  const read = present({
    role,
    blocks: blocks.map((block) => withCallId(block, message.toolCallId)),
    id: presentText(message.id),
    name: presentText(message.name),
    metadata: presentMap(message.metadata),
    createTimeMs: timeFromProto(message.createTime, `${path}.create_time`),
  });
  if (source === "client") checkMessage(read, path, message.blocks.length > 0);
  return read;
}

/** Writes a message: all blocks, and the OpenAI-shaped view of them beside. */
export function messageToProto(message: Message): ProtoMessage {
  const result = message.role === "tool" ? message.blocks.find((block) => block.type === "tool_result") : undefined;
  const written = messageWithoutView(message);
  written.contentType = create(MessageSchema, {
    contentType: result === undefined ? viewOfBlocks(message) : viewOfResult(result),
  }).contentType;
  written.toolCalls = toolUses(message).map(toolCallToProto);
  written.toolCallId = result?.toolUseId ?? "";
  return written;
}

/** Writes a message with its blocks only, for where it is kept and read by this server alone: half the size. */
export function messageWithoutView(message: Message): ProtoMessage {
  return create(MessageSchema, {
    role: message.role,
    name: message.name ?? "",
    metadata: { ...message.metadata },
    blocks: message.blocks.map(blockToProto),
    id: message.id ?? "",
    createTime: message.createTimeMs === undefined ? undefined : timestampFromMs(message.createTimeMs),
  });
}

/** The form the store keeps of a message by itself. */
export function encodeMessage(message: Message): Uint8Array {
  return toBinary(MessageSchema, messageWithoutView(message));
}

/**
 * Reads the form the store keeps.
 * @throws {AgentError} `data_loss` where the bytes cannot be read.
 */
export function decodeMessage(bytes: Uint8Array): Message {
  return readStored("a message", () => messageFromProto(fromBinary(MessageSchema, bytes), "message", "server"));
}

/** Reads a call; `result` is not read. */
export function toolCallFromProto(
  call: ProtoToolCall,
  path = "tool_calls[0]",
  source: Source = "client",
): ToolUseBlock {
  if (source === "client") checkFilled(call.id, `${path}.id`);
  if (source === "client") checkFilled(call.name, `${path}.name`);
  return { type: "tool_use", id: call.id, name: call.name, input: call.arguments };
}

/** Writes a call, without a result. */
export function toolCallToProto(call: ToolUseBlock): ProtoToolCall {
  return create(ToolCallSchema, { id: call.id, name: call.name, arguments: call.input });
}

function blocksFromView(role: Role, message: ProtoMessage, path: string, source: Source): ContentBlock[] {
  const parts =
    message.contentType.case === "contentParts"
      ? message.contentType.value.parts.map((part, index) =>
          partFromProto(part, `${path}.content_parts.parts[${index}]`, source),
        )
      : textParts(message.contentType.case === "content" ? message.contentType.value : "");
  if (role === "tool" && (source === "client" || message.toolCallId !== ""))
    return [resultOfParts(message.toolCallId, parts)];
  if (source === "client" && message.toolCallId !== "")
    throw invalidField(`${path}.tool_call_id`, `only a tool message answers a call, not a ${role} message`);
  const calls = message.toolCalls.map((call, index) => toolCallFromProto(call, `${path}.tool_calls[${index}]`, source));
  return [...parts, ...calls];
}

function textParts(text: string): PartBlock[] {
  return text === "" ? [] : [{ type: "text", text }];
}

/** The result a tool message holds; more than one text is kept as parts. */
export function resultOfParts(toolUseId: string, parts: readonly PartBlock[]): ToolResultBlock {
  const content = messageText({ role: "tool", blocks: parts });
  const onlyText = parts.length === 0 || (parts.length === 1 && parts[0]?.type === "text");
  return onlyText ? { type: "tool_result", toolUseId, content } : { type: "tool_result", toolUseId, content, parts };
}

function withCallId(block: ContentBlock, toolCallId: string): ContentBlock {
  return block.type === "tool_result" && block.toolUseId === "" ? { ...block, toolUseId: toolCallId } : block;
}

type View = NonNullable<Extract<Parameters<typeof create<typeof MessageSchema>>[1], { role?: unknown }>["contentType"]>;

function viewOfBlocks(message: Message): View {
  const parts = message.blocks.filter(isPartBlock);
  return parts.some((part) => part.type !== "text") ? viewOfParts(parts) : viewOfText(messageText(message));
}

function viewOfResult(result: ToolResultBlock): View {
  return result.parts?.some((part) => part.type !== "text") ? viewOfParts(result.parts) : viewOfText(result.content);
}

function viewOfParts(parts: readonly PartBlock[]): View {
  return { case: "contentParts", value: { parts: parts.map(partToProto) } };
}

function viewOfText(text: string): View {
  return { case: "content", value: text };
}

/** Refuses what no model could be sent. */
function checkMessage(message: Message, path: string, asBlocks: boolean): void {
  const results = message.blocks.filter((block) => block.type === "tool_result");
  if (message.role === "tool") {
    if (results.length !== 1 || message.blocks.length !== 1)
      throw invalidField(
        `${path}.blocks`,
        `a tool message holds exactly one tool_result block, not ${message.blocks.length} blocks with ${results.length} of them`,
      );
    if (results[0]?.toolUseId === "")
      throw invalidField(`${path}.tool_call_id`, "is empty; a tool message names the call it answers");
    return;
  }
  for (const [index, block] of message.blocks.entries())
    checkPlace(message.role, block, `${path}.blocks[${index}]`, path, asBlocks);
  const empty = message.blocks.every((block) => block.type === "text" && block.text === "");
  if (!empty) return;
  const contentPath = asBlocks ? `${path}.blocks` : `${path}.content`;
  if (message.role === "user") throw invalidField(contentPath, "is empty");
  if (message.role === "assistant")
    throw invalidField(
      contentPath,
      "is empty, and there are no tool calls; an assistant message says or calls something",
    );
}

function checkPlace(role: Role, block: ContentBlock, path: string, messagePath: string, asBlocks: boolean): void {
  switch (block.type) {
    case "tool_use":
      if (role !== "assistant")
        throw invalidField(
          asBlocks ? `${path}.tool_use` : `${messagePath}.tool_calls`,
          `only an assistant message makes calls, not a ${role} message`,
        );
      break;
    case "tool_result":
      if (role !== "user")
        throw invalidField(`${path}.tool_result`, `belongs in a tool message, not in a message of role ${role}`);
      if (block.toolUseId === "") throw invalidField(`${path}.tool_result.tool_use_id`, "is empty");
      break;
    case "thinking":
    case "redacted_thinking":
    case "reasoning":
      if (role !== "assistant")
        throw invalidField(`${path}.${block.type}`, `only an assistant message thinks, not a ${role} message`);
      break;
    default:
      break;
  }
}
