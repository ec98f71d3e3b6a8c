import type { ChatEvent } from "../../src/chat/event.ts";
import type { ContentBlock } from "../../src/chat/message.ts";
import { openaiResponses } from "../../src/dialect/openai-responses.ts";
import { orderBlocks } from "../../src/session/order-blocks.ts";
import { readSse } from "../../src/stream/sse.ts";
import { inPieces, plainContext } from "./answer-reading.ts";

export interface ResponseReading {
  /** What enters the history. */
  readonly blocks: readonly ContentBlock[];
  /** What was shown of each block while it came. */
  readonly shown: readonly string[];
  readonly events: readonly ChatEvent[];
  /** What was thrown after the events. */
  readonly error?: unknown;
}

export async function readResponseStream(text: string, pieceSize: number): Promise<ResponseReading> {
  const events: ChatEvent[] = [];
  try {
    const messages = readSse(inPieces(text, pieceSize));
    for await (const some of openaiResponses.decodeStream(messages, plainContext())) events.push(...some);
  } catch (error) {
    return { ...reading(events), error };
  }
  return reading(events);
}

export function readWholeResponse(text: string): ResponseReading {
  try {
    return reading(openaiResponses.decodeWhole(text, plainContext()));
  } catch (error) {
    return { ...reading([]), error };
  }
}

function reading(events: readonly ChatEvent[]): ResponseReading {
  const order = orderBlocks({ provider: "test", model: "m-1", dialect: "openai-responses" }, (wanted) => wanted);
  const blocks: ContentBlock[] = [];
  const shown: string[] = [];
  for (const event of [...order.push(events), ...order.finish()]) {
    if (event.type === "block-start") shown.push("");
    if (event.type === "block-delta") shown[event.index] += Object.values(event.delta)[1] ?? "";
    if (event.type === "block-stop") blocks.push(event.block);
  }
  return { blocks, shown, events: events.filter(({ type }) => ["response", "usage", "finish"].includes(type)) };
}

/** The blocks with the raw form, which is bytes, as text. */
export function readable(blocks: readonly ContentBlock[]): unknown[] {
  return blocks.map((block) =>
    "raw" in block && block.raw !== undefined ? { ...block, raw: Buffer.from(block.raw).toString("utf8") } : block,
  );
}

/** The blocks without what belongs to one form of an answer only: how it was written, and ids some make anew each time. */
export function plainBlocks(blocks: readonly ContentBlock[]): unknown[] {
  return blocks.map((block) =>
    Object.fromEntries(
      Object.entries(block).filter(([key]) => key !== "raw" && (key !== "id" || block.type === "tool_use")),
    ),
  );
}
