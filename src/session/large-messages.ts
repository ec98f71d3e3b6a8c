import { createHash } from "node:crypto";
import { AgentError } from "../chat/error.ts";
import type { ContentBlock, Message } from "../chat/message.ts";
import { decodeMessage, encodeMessage } from "../convert/proto/message.ts";
import type { Blob } from "../log/store.ts";
import { withLargeBlocks } from "./large-blocks.ts";

/** Where a message of the log says that its content is kept beside the log. Callers can't set keys of this prefix. */
const digestKey = "codeagent.digest";
/** The messages of one event together stay below this. */
const maxEventBytes = 512 * 1024;
/** What a message whose content is kept beside the log takes of an event, without what it shows of it. */
const emptyMessageBytes = 80;
/** Most messages of one request: all of them, shown by nothing but their digest, still fit an event of 1 MB. */
export const maxMessages = 10_000;
const shownTextLength = 1024;

/**
 * Makes messages small enough for an event of the log. The content of large ones goes into blobs named by their digest;
 * the event keeps the beginning of their text, where there is room.
 * @param messages up to `maxMessages`
 */
export function separateLargeContent(messages: readonly Message[]): { messages: Message[]; blobs: Blob[] } {
  if (mostBytes(messages) <= maxEventBytes) return { messages: [...messages], blobs: [] };
  const encoded = messages.map((message) => encodeMessage(message));
  const total = encoded.reduce((sum, bytes) => sum + bytes.length, 0);
  const shareBytes = total <= maxEventBytes ? maxEventBytes : Math.floor(maxEventBytes / messages.length);
  const shownLength = Math.min(shownTextLength, Math.floor((shareBytes - emptyMessageBytes) / 3));
  const blobs: Blob[] = [];
  const small = messages.map((message, index): Message => {
    const body = encoded[index];
    if (body === undefined || body.length <= shareBytes) return message;
    const digest = createHash("sha256").update(body).digest("base64url");
    blobs.push({ digest, body });
    return { role: message.role, blocks: beginning(message, shownLength), metadata: { [digestKey]: digest } };
  });
  return { messages: small, blobs };
}

/** An upper bound of what a message takes when it is stored or sent once. */
export function messageBytes(message: Message): number {
  return mostBytes(message);
}

/** An upper bound of the encoded size that costs no encoding: no character takes more than three bytes. */
function mostBytes(value: unknown): number {
  if (typeof value === "string") return value.length * 3 + 8;
  if (value instanceof Uint8Array) return value.length + 8;
  if (typeof value !== "object" || value === null) return 16;
  let sum = 16;
  for (const member of Object.values(value)) sum += mostBytes(member);
  return sum;
}

/** Puts the separated content back, that of single blocks too. */
export async function withLargeContent(
  messages: readonly Message[],
  readBlob: (digest: string) => Promise<Uint8Array | undefined>,
): Promise<Message[]> {
  const whole: Message[] = [];
  for (const message of messages) {
    const digest = message.metadata?.[digestKey];
    if (digest === undefined) {
      whole.push(await withLargeBlocks(message, readBlob));
      continue;
    }
    const body = await readBlob(digest);
    if (body === undefined) throw new AgentError("data_loss", `content ${digest} of a message is not in the store`);
    const { metadata: _, ...inLog } = message;
    const kept = decodeMessage(body);
    whole.push({ ...kept, ...inLog, blocks: kept.blocks });
  }
  return whole;
}

/** Removes what only the server may set. */
export function withoutReservedMetadata(message: Message): Message {
  if (message.metadata?.[digestKey] === undefined) return message;
  const { [digestKey]: _, ...metadata } = message.metadata;
  return { ...message, metadata };
}

/** What a reader of the event sees of a large message: the beginning of its first text. */
function beginning(message: Message, length: number): ContentBlock[] {
  for (const block of message.blocks) {
    const text = block.type === "text" ? block.text : block.type === "tool_result" ? block.content : "";
    if (text !== "" && length > 0) return [{ type: "text", text: text.slice(0, length).toWellFormed() }];
  }
  return [];
}
