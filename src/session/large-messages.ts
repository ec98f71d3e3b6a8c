import { createHash } from "node:crypto";
import { AgentError } from "../chat/error.ts";
import type { ContentBlock, Message } from "../chat/message.ts";
import { decodeMessage, encodeMessage } from "../convert/proto/message.ts";
import type { Blob } from "../log/store.ts";

/** Where a message of the log says that its content is kept beside the log. Callers can't set keys of this prefix. */
const digestKey = "codeagent.digest";
/** The messages of one event together stay below this. */
const maxEventBytes = 512 * 1024;
const shownTextLength = 1024;

/**
 * Makes messages small enough for an event of the log. The content of large ones goes into blobs named by their digest;
 * the event keeps the beginning of their text.
 */
export function separateLargeContent(messages: readonly Message[]): { messages: Message[]; blobs: Blob[] } {
  if (mostBytes(messages) <= maxEventBytes) return { messages: [...messages], blobs: [] };
  const encoded = messages.map((message) => encodeMessage(message));
  const total = encoded.reduce((sum, bytes) => sum + bytes.length, 0);
  const maxMessageBytes =
    total <= maxEventBytes ? maxEventBytes : Math.max(2048, maxEventBytes / Math.max(1, messages.length));
  const blobs: Blob[] = [];
  const small = messages.map((message, index) => {
    const body = encoded[index];
    if (body === undefined || body.length <= maxMessageBytes) return message;
    const digest = `sha256-${createHash("sha256").update(body).digest("hex")}`;
    blobs.push({ digest, body });
    const { metadata, ...rest } = message;
    return { ...rest, blocks: message.blocks.slice(0, 8).map(beginning), metadata: { [digestKey]: digest } };
  });
  return { messages: small, blobs };
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

/** Puts the separated content back. */
export async function withLargeContent(
  messages: readonly Message[],
  readBlob: (digest: string) => Promise<Uint8Array | undefined>,
): Promise<Message[]> {
  const whole: Message[] = [];
  for (const message of messages) {
    const digest = message.metadata?.[digestKey];
    if (digest === undefined) {
      whole.push(message);
      continue;
    }
    const body = await readBlob(digest);
    if (body === undefined) throw new AgentError("data_loss", `content ${digest} of a message is not in the store`);
    const { metadata: _, ...rest } = message;
    const kept = decodeMessage(body);
    whole.push({ ...rest, blocks: kept.blocks, ...(kept.metadata === undefined ? {} : { metadata: kept.metadata }) });
  }
  return whole;
}

/** Removes what only the server may set. */
export function withoutReservedMetadata(message: Message): Message {
  if (message.metadata?.[digestKey] === undefined) return message;
  const { [digestKey]: _, ...metadata } = message.metadata;
  return { ...message, metadata };
}

/** What a reader of the event sees of a large block. */
function beginning(block: ContentBlock): ContentBlock {
  switch (block.type) {
    case "text":
      return { type: "text", text: block.text.slice(0, shownTextLength).toWellFormed() };
    case "tool_result":
      return {
        type: "tool_result",
        toolUseId: block.toolUseId,
        content: block.content.slice(0, shownTextLength).toWellFormed(),
        ...(block.isError === undefined ? {} : { isError: block.isError }),
      };
    case "tool_use":
      return { ...block, input: block.input.slice(0, shownTextLength).toWellFormed() };
    default:
      return { type: "unknown", unknownType: block.type };
  }
}
