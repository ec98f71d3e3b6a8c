import type { BlockOrigin, ContentBlock, Message } from "../chat/message.ts";

/** Who will read a request. */
export interface Reader {
  readonly provider: string;
  readonly model: string;
}

/**
 * Whether thinking or reasoning was written by its reader: by the same provider and model over the same wire family.
 * Where an origin is not told, the caller who gave the block answers for it.
 */
export function isFrom(origin: BlockOrigin, reader: Reader, dialect: string): boolean {
  return isFromProvider(origin, reader, dialect) && (origin.model ?? reader.model) === reader.model;
}

/** As `isFrom`, for what every model of the provider can read, such as the calls of its own tools and their results. */
export function isFromProvider(origin: BlockOrigin, { provider }: Reader, dialect: string): boolean {
  return (origin.provider ?? provider) === provider && (origin.dialect ?? dialect) === dialect;
}

/**
 * Whether a message holds something that its reader is not sent because it is somebody else's. What is left out for
 * another reason, such as the thinking of old turns, does not count.
 */
export function withholdsForeign(message: Message, reader: Reader, dialect: string): boolean {
  return message.blocks.some((block) => isForeign(block, reader, dialect));
}

function isForeign(block: ContentBlock, reader: Reader, dialect: string): boolean {
  switch (block.type) {
    case "thinking":
    case "redacted_thinking":
    case "reasoning":
      return !isFrom(block, reader, dialect);
    case "unknown":
      return !isFromProvider(block, reader, dialect);
    case "text":
    case "tool_use":
    case "tool_result":
    case "image":
    case "file":
    case "audio":
      return false;
    default:
      return block satisfies never;
  }
}
