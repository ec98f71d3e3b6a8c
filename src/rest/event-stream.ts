import type { OutgoingHttpHeaders } from "node:http";
import type { LogEvent } from "../chat/log-event.ts";
import { frameBatches, type StreamFrames, type StreamLimits } from "../session/frame-batches.ts";
import type { LogReading } from "../session/log-reading.ts";
import type { RestAnswer, SseFrame } from "./rest-api.ts";

/** What a response of `node:http` and one of `node:http2` have in common. */
export interface RestResponse {
  readonly headersSent: boolean;
  readonly destroyed: boolean;
  writeHead(status: number, headers: OutgoingHttpHeaders): unknown;
  write(text: string): boolean;
  end(text: string): unknown;
  destroy(error?: Error): unknown;
  on(event: "drain" | "close", listener: () => void): unknown;
  off(event: "drain" | "close", listener: () => void): unknown;
}

export interface EventStreamOptions {
  readonly response: RestResponse;
  readonly reading: LogReading;
  readonly answer: RestAnswer;
  /** Aborts when the caller hangs up. */
  readonly signal: AbortSignal;
  readonly limits: StreamLimits;
  /** When the head is sent at the latest, in milliseconds. */
  readonly headAfterMs: number;
  /** Of the answer, besides those of every stream. */
  readonly headers: Readonly<Record<string, string>>;
}

/** What one event makes, and whether it ends the waiting for a sign that the turn does not fail at once. */
interface Piece {
  readonly text: string;
  readonly begins: boolean;
  readonly ends: boolean;
}

/**
 * Tells a turn as server-sent events. The head is held back until the model has said something or the turn has ended, so that
 * what fails before has its own status; but not for longer than `headAfterMs`. Reads no faster than the caller takes it; one
 * that takes nothing for twice `slowReaderMs` is cut off, or what it has not taken would be held for as long as it likes.
 * @returns whether the turn was told to its end
 * @throws what the reading and the answer throw, the signal's reason when the caller hung up; the response is not ended then,
 *   and its head may have been sent.
 */
export async function writeEventStream(options: EventStreamOptions): Promise<boolean> {
  const { response, reading, answer, signal, limits, headAfterMs, headers } = options;
  const ping = answer.ping === undefined ? comment("alive") : sseText(answer.ping);
  const frames: StreamFrames<Piece> = {
    ofRecord: (record) => [
      {
        text: answer.push(record).map(sseText).join(""),
        begins: saysSomething(record.event),
        ends: record.event.type === "turn-finished",
      },
    ],
    keepAlive: () => ({ text: ping, begins: true, ends: false }),
    resync: () => nothing,
    afterSlow: () => "read faster, or ask without a stream",
    notice: ({ message }) => ({ text: comment(message), begins: false, ends: false }),
  };
  let held = "";
  let hasBegun = false;
  let hasEnded = false;
  const begin = (first: string): void => {
    if (hasBegun || signal.aborted) return;
    hasBegun = true;
    response.writeHead(200, { ...headers, ...streamHeaders });
    const text = held + first;
    if (text !== "") response.write(text);
  };
  const late = setTimeout(() => begin(comment("waiting for the model")), headAfterMs);
  try {
    for await (const batch of frameBatches(reading, signal, limits, frames)) {
      for (const piece of batch) {
        hasEnded ||= piece.ends;
        if (!hasBegun && !piece.begins) {
          held += piece.text;
          continue;
        }
        begin("");
        if (piece.text !== "") await write(response, piece.text, signal, 2 * limits.slowReaderMs);
      }
    }
    return hasEnded;
  } finally {
    clearTimeout(late);
  }
}

const streamHeaders = {
  "content-type": "text/event-stream; charset=utf-8",
  "cache-control": "no-cache",
  // Asks nginx and its like to pass on each event as it comes.
  "x-accel-buffering": "no",
};

const nothing: Piece = { text: "", begins: false, ends: false };

/** One event on the wire. */
export function sseText({ event, data }: SseFrame): string {
  return event === undefined ? `data: ${data}\n\n` : `event: ${event}\ndata: ${data}\n\n`;
}

function comment(text: string): string {
  return `: ${text.replaceAll(/[\r\n]+/g, " ")}\n\n`;
}

/**
 * What comes before may still end in a failure of the whole turn: it was begun, a model is asked, its history is compacted, a
 * step has ended without a word.
 */
function saysSomething({ type }: LogEvent): boolean {
  return /^(?:block-|tool-|request-|plan-|turn-finished)/.test(type);
}

/** Without an error a stream of HTTP/2 would look as if it had been told to its end. */
function takesNothing(): Error {
  return new Error("the caller takes nothing of its answer");
}

/**
 * @param longestMs how long the caller may take nothing before the response is destroyed; 0 for as long as it likes. Node's
 *   own timer of a stream of HTTP/2 begins anew with whatever else its connection sends.
 * @throws the signal's reason when the caller hung up meanwhile, or was cut off.
 */
async function write(response: RestResponse, text: string, signal: AbortSignal, longestMs: number): Promise<void> {
  signal.throwIfAborted();
  if (response.write(text)) return;
  await new Promise<void>((resolve) => {
    const cut = longestMs === 0 ? undefined : setTimeout(() => response.destroy(takesNothing()), longestMs);
    const settle = () => {
      clearTimeout(cut);
      response.off("drain", settle);
      response.off("close", settle);
      resolve();
    };
    response.on("drain", settle);
    response.on("close", settle);
  });
  signal.throwIfAborted();
}
