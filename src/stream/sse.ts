import { createParser } from "eventsource-parser";

/** One server-sent event. */
export interface SseMessage {
  /** The word of its `event:` line; absent where it had none. */
  readonly event?: string;
  /** Its `data:` lines, joined by a line feed. */
  readonly data: string;
  /** The body ended before the blank line that closes an event: the data may be cut short. */
  readonly unterminated?: true;
}

/** A body is longer than it may be; the message says how, as the end of a sentence. */
export class TooLongError extends Error {
  override readonly name = "TooLongError";
}

export interface SseLimits {
  /** Longest line or event in characters; default 8 Mi, since a last event may repeat the whole answer. */
  readonly maxEventLength?: number;
  /** Longest body in bytes; default 64 Mi: each token may come in an event of some 300 bytes, and all again at the end. */
  readonly maxBodyBytes?: number;
}

const defaultMaxEventLength = 8 * 1024 * 1024;
const defaultMaxStreamBytes = 64 * 1024 * 1024;
/** Longest body that is read into memory as one, in bytes. */
export const defaultMaxBodyBytes = 16 * 1024 * 1024;

/**
 * Reads server-sent events from a body cut anywhere, also inside a character or a line end. Yields one array for each
 * read that completed an event, so nothing waits for company and nothing is handed on piece by piece. Leaving early
 * returns the body's iterator.
 * @throws {TooLongError} when a line, an event or the whole body is longer than its limit.
 */
export async function* readSse(body: AsyncIterable<Uint8Array>, limits: SseLimits = {}): AsyncGenerator<SseMessage[]> {
  const maxEventLength = limits.maxEventLength ?? defaultMaxEventLength;
  const maxBodyBytes = limits.maxBodyBytes ?? defaultMaxStreamBytes;
  const decoder = new TextDecoder();
  let messages: SseMessage[] = [];
  let tooLong = false;
  const parser = createParser({
    maxBufferSize: maxEventLength,
    onEvent: ({ event, data }) => {
      if (data.length > maxEventLength) tooLong = true;
      else messages.push(event === undefined ? { data } : { event, data });
    },
    onError: ({ type }) => {
      if (type === "max-buffer-size-exceeded") tooLong = true;
    },
  });
  const take = (): SseMessage[] => {
    const taken = messages;
    messages = [];
    return taken;
  };
  let bodyBytes = 0;
  for await (const bytes of body) {
    bodyBytes += bytes.byteLength;
    if (bodyBytes > maxBodyBytes) throw new TooLongError(`is longer than ${maxBodyBytes} bytes`);
    parser.feed(decoder.decode(bytes, { stream: true }));
    if (messages.length > 0) yield take();
    if (tooLong) {
      throw new TooLongError(`has an event longer than ${maxEventLength} characters`);
    }
  }
  // What the end of the body cut off still counts: ending the line and the event hands it over. The first line feed
  // may be swallowed as the second half of a line end.
  parser.feed(`${decoder.decode()}\n\n\n`);
  if (messages.length > 0) yield take().map((message) => ({ ...message, unterminated: true }));
}
