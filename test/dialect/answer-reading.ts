import type { ChatEvent } from "../../src/chat/event.ts";
import { type DecodeContext, type DialectId, dialects } from "../../src/dialect/dialect.ts";
import { defaultQuirks } from "../../src/dialect/quirks.ts";
import { readSse } from "../../src/stream/sse.ts";

/** The sizes, in bytes, into which every recorded or written answer is cut. */
export const pieceSizes = [1, 3, 7, 64, 4096] as const;

/** A context that names made-up calls in their order, so that answers can be compared. */
export function plainContext(): DecodeContext {
  let made = 0;
  return { provider: "test", model: "m-1", quirks: defaultQuirks, createToolCallId: () => `made-${++made}` };
}

/** The bytes of a text in pieces of one size, or of the sizes given and then the rest. */
export async function* inPieces(text: string, size: number | readonly number[]): AsyncGenerator<Uint8Array> {
  const bytes = Buffer.from(text, "utf8");
  let start = 0;
  for (let piece = 0; start < bytes.length; piece++) {
    const length = typeof size === "number" ? size : (size[piece] ?? bytes.length);
    yield bytes.subarray(start, start + length);
    start += length;
  }
}

export interface Reading {
  readonly events: ChatEvent[];
  /** What was thrown after the events. */
  readonly error?: unknown;
}

export async function readStream(
  text: string,
  pieceSize: number | readonly number[],
  dialect: DialectId = "openai-chat",
): Promise<Reading> {
  const events: ChatEvent[] = [];
  try {
    for await (const some of dialects[dialect].decodeStream(readSse(inPieces(text, pieceSize)), plainContext())) {
      events.push(...some);
    }
  } catch (error) {
    return { events: joined(events), error };
  }
  return { events: joined(events) };
}

export function readWhole(text: string, dialect: DialectId = "openai-chat"): Reading {
  try {
    return { events: joined(dialects[dialect].decodeWhole(text, plainContext())) };
  } catch (error) {
    return { events: [], error };
  }
}

/** Neighbouring deltas of one block as one: how often a text was cut says nothing. */
export function joined(events: readonly ChatEvent[]): ChatEvent[] {
  const whole: ChatEvent[] = [];
  for (const event of events) {
    const last = whole.at(-1);
    if (event.type === "tool-call-delta" && last?.type === event.type && last.index === event.index) {
      whole[whole.length - 1] = { ...last, argumentsText: last.argumentsText + event.argumentsText };
    } else if (event.type === "text-delta" && last?.type === event.type && last.index === event.index) {
      whole[whole.length - 1] = { ...last, ...event, text: last.text + event.text };
    } else if (event.type === "thinking-delta" && last?.type === event.type && last.index === event.index) {
      whole[whole.length - 1] = { ...last, text: last.text + event.text };
    } else if (event.type === "reasoning-delta" && last?.type === event.type && last.index === event.index) {
      whole[whole.length - 1] = { ...last, text: last.text + event.text };
    } else {
      whole.push(event);
    }
  }
  return whole;
}

export interface ReadCall {
  readonly id: string;
  readonly name: string;
  readonly argumentsText: string;
}

export function callsOf(events: readonly ChatEvent[]): ReadCall[] {
  return events
    .filter((event) => event.type === "tool-call-start")
    .map(({ index, id, name }) => ({
      id,
      name,
      argumentsText: events
        .map((event) => (event.type === "tool-call-delta" && event.index === index ? event.argumentsText : ""))
        .join(""),
    }));
}

export function textIn(events: readonly ChatEvent[], type: "text-delta" | "thinking-delta"): string {
  return events.map((event) => (event.type === type ? event.text : "")).join("");
}
