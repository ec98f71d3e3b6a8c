import {
  isJSONRPCRequest,
  type JSONRPCMessage,
  type SdkHttpError,
  StreamableHTTPClientTransport,
  type TransportSendOptions,
} from "@modelcontextprotocol/client";
import { FailedExchange, type GuardedClient } from "../net/guarded-client.ts";

export interface HttpTransportOptions {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Sent as `Authorization: Bearer`. */
  readonly token?: string;
  readonly client: GuardedClient;
  /** Longest message taken, in bytes; default 4 MiB. */
  readonly messageLimitBytes?: number;
  /** Longest exchange that answers one message. */
  readonly exchangeLimitMs: number;
  /** From 0 to 1, for the wait before a stream is opened again. */
  readonly random: () => number;
}

const defaultMessageLimitBytes = 4 * 1024 * 1024;
/** A stream for the server's own messages that is silent for so long is opened anew. */
const silentStreamMs = 600_000;
/** A code of our own: MCP has none for it. */
const streamEnded = -32_000;
const farewellLimitMs = 1000;
const leastWaitMs = 1000;
const lineFeed = 0x0a;
const carriageReturn = 0x0d;
const mostWaitMs = 60_000;

/**
 * MCP over streamable HTTP, by the SDK's transport. Redirects are not followed; messages have a bound; the stream for the
 * server's own messages is opened again after a second to a minute. A server that is gone, or that has forgotten the
 * session, ends the connection. `close` says farewell, for a second at most, and never rejects.
 */
export class HttpTransport extends StreamableHTTPClientTransport {
  #endReason: string | undefined;
  #closing: Promise<void> | undefined;

  constructor(options: HttpTransportOptions) {
    const { headers, token } = options;
    let opened = 0;
    super(new URL(options.url), {
      fetch: (url, init) => this.#fetch(options, url, init),
      requestInit: { headers: { ...headers, ...(token === undefined ? {} : { authorization: `Bearer ${token}` }) } },
      reconnectionOptions: {
        initialReconnectionDelay: leastWaitMs,
        maxReconnectionDelay: mostWaitMs,
        reconnectionDelayGrowFactor: 2,
        maxRetries: Number.MAX_SAFE_INTEGER,
      },
      // The server may ask for any wait, also for none.
      reconnectionScheduler: (reconnect, _delay, attempt) => {
        opened = attempt === 0 ? Math.min(opened + 1, 6) : opened;
        const longestMs = Math.min(mostWaitMs, leastWaitMs * 2 ** Math.max(attempt, opened - 1));
        const timer = setTimeout(reconnect, Math.max(leastWaitMs, longestMs * (0.5 + options.random() / 2)));
        return () => clearTimeout(timer);
      },
    });
  }

  /** Why the connection is over, as the end of a sentence about the server; `undefined` where `close` ended it. */
  get endReason(): string | undefined {
    return this.#endReason;
  }

  /** A server elsewhere has no standard error. */
  get errorText(): string {
    return "";
  }

  /** A stream that ends without the answer would leave whoever waits for it to its time limit. */
  override async send(message: JSONRPCMessage, options: TransportSendOptions = {}): Promise<void> {
    const { onresumptiontoken, resumptionToken, requestSignal, headers } = options;
    const onRequestStreamEnd = () => {
      options.onRequestStreamEnd?.();
      if (!isJSONRPCRequest(message)) return;
      const error = { code: streamEnded, message: "the stream ended before the answer" };
      // Passed over where the answer has come.
      this.onmessage?.({ jsonrpc: "2.0", id: message.id, error });
    };
    await super.send(message, {
      onRequestStreamEnd,
      ...(onresumptiontoken === undefined ? {} : { onresumptiontoken }),
      ...(resumptionToken === undefined ? {} : { resumptionToken }),
      ...(requestSignal === undefined ? {} : { requestSignal }),
      ...(headers === undefined ? {} : { headers }),
    });
  }

  override close(): Promise<void> {
    this.#closing ??= this.#leave();
    return this.#closing;
  }

  async #leave(): Promise<void> {
    const limit = Promise.withResolvers<void>();
    const timer = setTimeout(limit.resolve, farewellLimitMs);
    await Promise.race([this.terminateSession().catch(() => undefined), limit.promise]);
    clearTimeout(timer);
    await super.close().catch(() => undefined);
  }

  async #fetch(options: HttpTransportOptions, url: string | URL, init: RequestInit = {}): Promise<Response> {
    const { client, exchangeLimitMs, messageLimitBytes = defaultMessageLimitBytes } = options;
    const { method = "GET", body } = init;
    const headers = Object.fromEntries(new Headers(init.headers));
    const isStream = method === "GET";
    const signal = init.signal ?? new AbortController().signal;
    try {
      const response = await client.send({
        method,
        url,
        headers,
        ...(typeof body === "string" ? { body } : {}),
        signal,
        maxRedirects: 0,
        limits: {
          idleMs: isStream ? silentStreamMs : 0,
          totalMs: isStream ? 0 : exchangeLimitMs,
          bodyBytes: 0,
        },
      });
      const { status } = response;
      if (status === 404 && headers["mcp-session-id"] !== undefined && method !== "DELETE")
        this.#lose("has ended the session");
      const isEmpty = status === 204 || status === 205 || status === 304 || status < 200;
      const isEvents = (response.headers["content-type"] ?? "").toLowerCase().startsWith("text/event-stream");
      if (isEmpty) response.close();
      const bounded = isEvents
        ? boundedEvents(response.body, messageLimitBytes)
        : boundedBody(response.body, messageLimitBytes);
      return new Response(isEmpty ? null : streamOf(bounded), {
        status: status < 200 ? 502 : status,
        headers: withoutEncoding(response.headers),
      });
    } catch (error) {
      if (error instanceof FailedExchange && isUnreachable(error) && !signal.aborted) this.#lose("can't be reached");
      throw error;
    }
  }

  #lose(reason: string): void {
    if (this.#closing !== undefined) return;
    this.#endReason = reason;
    // Whoever waits for this very answer gets it first.
    setImmediate(() => void this.close());
  }
}

function streamOf(pieces: AsyncGenerator<Uint8Array>): ReadableStream<Uint8Array> {
  return new ReadableStream({
    async pull(controller) {
      const { value, done } = await pieces.next();
      if (done === true) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await pieces.return(undefined);
    },
  });
}

/** The body was inflated on the way. */
function withoutEncoding(headers: Readonly<Record<string, string>>): Record<string, string> {
  const { "content-encoding": _encoding, "content-length": _length, ...rest } = headers;
  return rest;
}

/** Nobody listens there, as after a crash; other faults may pass. */
function isUnreachable({ cause }: FailedExchange): boolean {
  const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
  if (typeof code === "string") return ["ECONNREFUSED", "ENOTFOUND", "EHOSTUNREACH", "ENETUNREACH"].includes(code);
  return cause instanceof AggregateError && cause.errors.some(isRefusal);
}

function isRefusal(error: unknown): boolean {
  return error instanceof Error && "code" in error && error.code === "ECONNREFUSED";
}

async function* boundedBody(body: AsyncIterable<Uint8Array>, limitBytes: number): AsyncGenerator<Uint8Array> {
  let bytes = 0;
  for await (const piece of body) {
    bytes += piece.length;
    if (bytes > limitBytes) throw new FailedExchange(`the answer has more than ${limitBytes} bytes`);
    yield piece;
  }
}

/** Bounds each event; an empty line ends one. */
async function* boundedEvents(body: AsyncIterable<Uint8Array>, limitBytes: number): AsyncGenerator<Uint8Array> {
  let eventBytes = 0;
  let lineBytes = 0;
  let before = 0;
  for await (const piece of body) {
    for (const byte of piece) {
      eventBytes++;
      const isSecondHalf = byte === lineFeed && before === carriageReturn;
      before = byte;
      if (isSecondHalf) continue;
      if (byte !== lineFeed && byte !== carriageReturn) lineBytes++;
      else if (lineBytes === 0) eventBytes = 0;
      else lineBytes = 0;
    }
    if (eventBytes > limitBytes) throw new FailedExchange(`a message has more than ${limitBytes} bytes`);
    yield piece;
  }
}

/** What an answer that refuses a request means, as the end of a sentence about the server; it may hold nothing it sent. */
export function httpFault(error: SdkHttpError): string {
  const status = Number(error.data.status);
  if (status === 401 || status === 403) return `refuses us (HTTP ${status}); look at its headers and its token`;
  if (status >= 300 && status < 400)
    return `redirects to elsewhere (HTTP ${status}), which is not followed; name its final URL`;
  return `answered with HTTP ${status}`;
}
