import type { ChatEvent } from "../../src/chat/event.ts";
import type { BlockOrigin, ContentBlock } from "../../src/chat/message.ts";
import { orderBlocks } from "../../src/session/order-blocks.ts";

/** The blocks that enter the history when these events are an answer, as the session makes them. */
export function blocksOf(events: readonly ChatEvent[], origin: BlockOrigin = anthropicOrigin): ContentBlock[] {
  const order = orderBlocks(origin, (wanted) => wanted);
  // One event at a time, as from the slowest of streams.
  const recorded = [...events.flatMap((event) => order.push([event])), ...order.finish()];
  return recorded.flatMap((event) => (event.type === "block-stop" ? [event.block] : []));
}

export const anthropicOrigin = { provider: "test", model: "m-1", dialect: "anthropic-messages" } as const;

/** A block with the bytes of its wire form as text. */
export function withReadableRaw(block: ContentBlock): unknown {
  return "raw" in block && block.raw !== undefined ? { ...block, raw: Buffer.from(block.raw).toString("utf8") } : block;
}
