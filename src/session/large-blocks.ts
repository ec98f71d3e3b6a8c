import { createHash } from "node:crypto";
import type { ContentBlock, Message } from "../chat/message.ts";
import { decodeMessage, encodeMessage } from "../convert/proto/message.ts";
import { isJsonObject, parseJson } from "../dialect/json.ts";
import type { Blob } from "../log/store.ts";

/** Largest block of an answer that stands in an event, in bytes of JSON: an event takes 1 MB. */
const maxBlockBytes = 900 * 1024;
/** What is shown of a text that does not fit, in UTF-16 units. */
const shownLength = 1024;
/** The member of a raw form that names the blob with the whole block. No wire family takes such a form for its own. */
const digestMember = "codeagent.digest";

/**
 * Makes a block of a model's answer small enough for an event. One that is too large, a picture or a long encrypted
 * result, goes whole into a blob; in the event it keeps what it says in short, and in place of its raw form the digest
 * of that blob. A block without a raw form stands there as an unknown one of its type.
 */
export function separateLargeBlock(block: ContentBlock): { readonly block: ContentBlock; readonly blob?: Blob } {
  const rawBytes = "raw" in block ? (block.raw?.byteLength ?? 0) : 0;
  const fieldBytes = Buffer.byteLength(JSON.stringify({ ...block, raw: undefined }));
  if (fieldBytes + rawBytes <= maxBlockBytes) return { block };
  const body = encodeMessage({ role: "assistant", blocks: [block] });
  const digest = createHash("sha256").update(body).digest("base64url");
  const raw = Buffer.from(JSON.stringify({ [digestMember]: digest }), "utf8");
  const fields = fieldBytes <= maxBlockBytes ? block : shortened(block);
  return { block: withRaw(fields, raw), blob: { digest, body } };
}

/**
 * Puts back the blocks that were too large for their events. One whose blob is gone stays as it is; then no provider is
 * sent it.
 */
export async function withLargeBlocks(
  message: Message,
  readBlob: (digest: string) => Promise<Uint8Array | undefined>,
): Promise<Message> {
  if (!message.blocks.some((block) => digestOf(block) !== undefined)) return message;
  const blocks: ContentBlock[] = [];
  for (const block of message.blocks) {
    const digest = digestOf(block);
    const body = digest === undefined ? undefined : await readBlob(digest);
    blocks.push(...(body === undefined ? [block] : decodeMessage(body).blocks));
  }
  return { ...message, blocks };
}

function digestOf(block: ContentBlock): string | undefined {
  if (!("raw" in block) || block.raw === undefined || block.raw.byteLength > 200) return undefined;
  const value = parseJson(Buffer.from(block.raw).toString("utf8"));
  const digest = isJsonObject(value) ? value[digestMember] : undefined;
  return typeof digest === "string" ? digest : undefined;
}

function shortened(block: ContentBlock): ContentBlock {
  switch (block.type) {
    case "thinking": {
      const { signature: _, ...rest } = block;
      return { ...rest, thinking: inShort(block.thinking) };
    }
    case "redacted_thinking":
      return { ...block, data: "" };
    case "reasoning": {
      const { encrypted: _, ...rest } = block;
      return { ...rest, content: inShort(block.content), summary: isShort(block.summary) ? block.summary : [] };
    }
    case "unknown":
    case "text":
    case "tool_use":
    case "tool_result":
    case "image":
    case "file":
    case "audio":
      return block;
    default:
      return block satisfies never;
  }
}

function inShort(text: string): string {
  return isShort(text) ? text : text.slice(0, shownLength).toWellFormed();
}

/** It may stand in an event beside another of its size. */
function isShort(value: string | readonly string[]): boolean {
  return Buffer.byteLength(JSON.stringify(value)) <= maxBlockBytes / 2;
}

function withRaw(block: ContentBlock, raw: Uint8Array): ContentBlock {
  switch (block.type) {
    case "thinking":
    case "redacted_thinking":
    case "reasoning":
    case "unknown":
      return { ...block, raw };
    case "text":
    case "tool_use":
    case "tool_result":
    case "image":
    case "file":
    case "audio":
      return { type: "unknown", unknownType: block.type, raw };
    default:
      return block satisfies never;
  }
}
