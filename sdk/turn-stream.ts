import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type Client, Code, ConnectError } from "@connectrpc/connect";
import {
  type CodeAgentService,
  type GenerateChunk,
  type GenerateRequest,
  GenerateRequestSchema,
} from "../gen/codeagent/v1/code_agent_pb.ts";
import { type AbortableStream, abortableStream, type Leaving } from "./abortable-stream.ts";
import { CodeAgentError, codeAgentErrorFrom, isSaidByServer, type TurnPosition } from "./error.ts";

/** The part of a client that streams need; every client of `CodeAgentService` has it. */
export type TurnClient = Pick<Client<typeof CodeAgentService>, "streamGenerate" | "subscribeSession" | "cancelTurn">;

/** How a lost connection is got back. */
export interface ResumeOptions {
  /** Tries to get a lost connection back, counted anew after each event that comes; default 5, 0 for none. */
  readonly maxTries?: number;
  /**
   * Waits before a try; default is a timer. `delayMs` grows threefold from 100 ms to at most 10 s, and is longer where the
   * server asks for that. Fails when the signal is aborted.
   */
  readonly wait?: (delayMs: number, signal: AbortSignal) => Promise<void>;
  /** Silence after which a connection counts as lost; default 45 s. The server says something every 15 s. */
  readonly maxSilenceMs?: number;
}

export interface StreamTurnOptions extends ResumeOptions {
  /** Cancels the turn; reading then throws the signal's reason. */
  readonly signal?: AbortSignal;
}

export interface FollowSessionRequest {
  readonly sessionId: string;
  /** The last event already seen; default 0, from the beginning. */
  readonly afterSeq?: bigint;
  /** Whether to go on live; default true. Otherwise the stream ends with the events there are. */
  readonly follow?: boolean;
}

export interface FollowSessionOptions extends ResumeOptions {
  /** Ends the reading, which then throws the signal's reason. What runs in the session goes on. */
  readonly signal?: AbortSignal;
}

/** Where a reader is in a log. */
interface Cursor {
  sessionId: string;
  turnId: string;
  lastSeq: bigint;
  readonly requestId: string;
  /** Up to this event the log has gaps: what lay in them was pruned. */
  gapsUntilSeq: bigint;
  /** The next event may be any: the server goes on with what it has, or tells the log anew. */
  isResynced: boolean;
}

const defaultMaxTries = 5;
const defaultMaxSilenceMs = 45_000;
const firstDelayMs = 100;
const longestDelayMs = 10_000;
const longestRetryAfterMs = 60_000;
const cancelTimeoutMs = 5000;

/**
 * Runs a turn and streams its events, from `turn_started` to `turn_finished`, each once and in order, whatever becomes of
 * the connection: a lost one is got back by cursor, or, where nothing had come yet, by asking again under the same
 * `request_id` (one is made where the request has none). Frames without `seq` are not shown, but for `resync`: pieces of the
 * log are no longer there. What follows has gaps in `seq` up to the `earliest_seq` it names, and a `block_stop` says the whole
 * of a block whose pieces are missing; where `seq` goes back, forget what was read, the log is told anew. That a turn failed
 * is said in `turn_finished` and not thrown.
 *
 * Leaving the loop cancels a one-off turn (no `session_id`); the turn of a session goes on. `abort()` and the signal cancel
 * both. A turn that still waits behind another one in its session is known by no id yet: aborting cancels it only if it
 * begins within 5 s. A one-off turn also ends when its connection stays lost for longer than the server waits (2 s), or
 * nobody reads for half a minute.
 * @throws {CodeAgentError} from reading: what the server refuses, and a connection that can't be got back; its `turn` tells
 *   how far the reading came. Reason `TURN_LOST` where the server no longer has the turn.
 */
export function streamTurn(
  client: TurnClient,
  request: MessageInitShape<typeof GenerateRequestSchema>,
  options: StreamTurnOptions = {},
): AbortableStream<GenerateChunk> {
  const asked = create(GenerateRequestSchema, { ...request, requestId: request.requestId || newRequestId() });
  return abortableStream((leaving) => readTurn(client, asked, leaving, options), options.signal);
}

/**
 * Reads the log of a session from a cursor: every event once and in order, also across lost connections. Frames without
 * `seq` are not shown, but for `resync`. Also works on a one-off turn, by the `session_id` its events carry, as long as
 * the server has it. Leaving and aborting only end the reading.
 * @throws {CodeAgentError} from reading: what the server refuses, and a connection that can't be got back.
 */
export function followSession(
  client: TurnClient,
  request: FollowSessionRequest,
  options: FollowSessionOptions = {},
): AbortableStream<GenerateChunk> {
  const { sessionId, afterSeq = 0n, follow = true } = request;
  const cursor = cursorAt(sessionId, "", afterSeq);
  const connect = (signal: AbortSignal) =>
    client.subscribeSession({ sessionId, afterSeq: cursor.lastSeq, follow }, { signal });
  return abortableStream((leaving) => readSession(connect, cursor, leaving, options), options.signal);
}

async function* readSession(
  connect: Connect,
  cursor: Cursor,
  { signal }: Leaving,
  options: ResumeOptions,
): AsyncGenerator<GenerateChunk, void> {
  const reconnect = reconnecting(cursor, options, signal);
  while (!signal.aborted) {
    const connection = new Connection(connect, signal, options.maxSilenceMs);
    try {
      for (;;) {
        const chunk = await connection.read();
        if (chunk === undefined) return;
        if (note(chunk, cursor, true)) reconnect.progress();
        if (isShown(chunk)) yield chunk;
      }
    } catch (error) {
      connection.close();
      await reconnect.after(error);
    } finally {
      connection.close();
    }
  }
}

async function* readTurn(
  client: TurnClient,
  request: GenerateRequest,
  leaving: Leaving,
  options: ResumeOptions,
): AsyncGenerator<GenerateChunk, void> {
  const { signal } = leaving;
  const oneOff = request.sessionId === "";
  const cursor = cursorAt(request.sessionId, request.requestId, 0n);
  const reconnect = reconnecting(cursor, options, signal);
  let connection: Connection | undefined;
  let running = true;
  try {
    while (running && !signal.aborted) {
      const begun = cursor.lastSeq !== 0n;
      if (!begun) cursor.turnId = "";
      const connect = (closed: AbortSignal) =>
        begun
          ? client.subscribeSession(
              { sessionId: cursor.sessionId, afterSeq: cursor.lastSeq, follow: true },
              { signal: closed },
            )
          : client.streamGenerate(request, { signal: closed });
      connection = new Connection(connect, signal, options.maxSilenceMs);
      try {
        while (running) {
          const chunk = await connection.read();
          if (chunk === undefined) throw new LostConnectionError("the stream ended before the turn did");
          if (note(chunk, cursor, begun)) reconnect.progress();
          cursor.turnId ||= chunk.turnId;
          if (!isShown(chunk) || (chunk.turnId !== cursor.turnId && chunk.event.case !== "resync")) continue;
          running = chunk.event.case !== "turnFinished";
          yield chunk;
        }
      } catch (error) {
        if (signal.aborted) return;
        connection.close();
        if (begun && isGone(error)) throw turnLost(cursor, error);
        await reconnect.after(error);
      }
    }
  } finally {
    if (running && signal.aborted && (leaving.aborted || oneOff)) {
      leaving.lastWork = cancel(client, cursor, connection, leaving.aborted && !oneOff ? options : { maxTries: 0 });
    } else {
      connection?.close();
    }
  }
}

/** Cancels a turn, as far as that can be done. */
async function cancel(
  client: TurnClient,
  cursor: Cursor,
  connection: Connection | undefined,
  options: ResumeOptions,
): Promise<void> {
  const limit = AbortSignal.timeout(cancelTimeoutMs);
  try {
    if (cursor.turnId === "" && connection !== undefined) await learnTurn(connection, cursor, limit);
  } finally {
    connection?.close();
  }
  if (cursor.turnId === "") return;
  const { sessionId, turnId } = cursor;
  const reconnect = reconnecting(cursor, options, new AbortController().signal);
  for (;;) {
    try {
      await client.cancelTurn({ sessionId, turnId }, { timeoutMs: cancelTimeoutMs });
      return;
    } catch (error) {
      try {
        await reconnect.after(error);
      } catch {
        return; // the server can't be reached, or the turn is gone
      }
    }
  }
}

/** Reads on until the server has named the turn. */
async function learnTurn(connection: Connection, cursor: Cursor, limit: AbortSignal): Promise<void> {
  try {
    while (cursor.turnId === "") {
      const chunk = await connection.readUntil(limit);
      if (chunk === undefined) return;
      cursor.sessionId ||= chunk.sessionId;
      cursor.turnId = chunk.turnId;
    }
  } catch {
    // The connection is gone before the turn was known, and with it what could be cancelled.
  }
}

function cursorAt(sessionId: string, requestId: string, lastSeq: bigint): Cursor {
  return { sessionId, turnId: "", lastSeq, requestId, gapsUntilSeq: 0n, isResynced: false };
}

/** Moves the cursor; says whether the server is at work. */
function note(chunk: GenerateChunk, cursor: Cursor, contiguous: boolean): boolean {
  const { seq, event } = chunk;
  cursor.sessionId ||= chunk.sessionId;
  if (event.case === "resync") {
    cursor.gapsUntilSeq = event.value.earliestSeq;
    cursor.isResynced = true;
  }
  if (seq === 0n) return event.case !== "streamReady";
  const isNext = seq === cursor.lastSeq + 1n || !contiguous || cursor.lastSeq === 0n || seq <= cursor.gapsUntilSeq;
  if (!cursor.isResynced && (seq <= cursor.lastSeq || !isNext)) {
    throw new LostConnectionError(`event ${seq} came after ${cursor.lastSeq}`);
  }
  cursor.isResynced = false;
  cursor.lastSeq = seq;
  return true;
}

/**
 * Tells of the events of a turn, in order, which of them is the first of the turn told anew: after a `resync` the server
 * either goes on behind what was read, or begins again.
 */
export function retellings(): (chunk: GenerateChunk) => boolean {
  let lastSeq = 0n;
  return ({ seq }) => {
    if (seq === 0n) return false;
    const isAnew = seq <= lastSeq;
    lastSeq = seq;
    return isAnew;
  };
}

function isShown(chunk: GenerateChunk): boolean {
  return chunk.seq !== 0n || chunk.event.case === "resync";
}

/** Waits after a failed try, longer each time, and gives up after the last. */
function reconnecting(cursor: Cursor, options: ResumeOptions, signal: AbortSignal) {
  const { maxTries = defaultMaxTries, wait = timer } = options;
  let tries = 0;
  return {
    progress(): void {
      tries = 0;
    },
    /** @throws {CodeAgentError} when trying again is of no use. */
    async after(error: unknown): Promise<void> {
      if (signal.aborted) return;
      const told = codeAgentErrorFrom(error, position(cursor));
      if (!isLostConnection(error)) throw told;
      if (tries >= maxTries) throw tries === 0 ? told : givenUp(told, tries);
      const growing = Math.min(firstDelayMs * 3 ** tries, longestDelayMs);
      tries += 1;
      // Clients that lost the same server come back at different times.
      const delayMs = Math.round(growing * (0.75 + Math.random() / 2));
      const asked = Math.min(told.retryAfterMs ?? 0, longestRetryAfterMs);
      await wait(Math.max(delayMs, asked), signal).catch((failed: unknown) => {
        if (!signal.aborted) throw failed;
      });
    },
  };
}

function givenUp(error: CodeAgentError, tries: number): CodeAgentError {
  const message = `the connection was lost and ${tries === 1 ? "1 try" : `${tries} tries`} did not bring it back: ${error.message}`;
  return new CodeAgentError(message, Code.Unavailable, { ...error, cause: error.cause });
}

function turnLost(cursor: Cursor, cause: unknown): CodeAgentError {
  const turn = position(cursor);
  const message = `the server no longer has turn ${turn.turnId}, whose connection was lost after event ${turn.lastSeq}; ask again`;
  return new CodeAgentError(message, Code.Unavailable, {
    reason: "TURN_LOST",
    detail: { retryable: true },
    turn,
    cause,
  });
}

function position({ sessionId, turnId, lastSeq, requestId }: Cursor): TurnPosition {
  return { sessionId, turnId, lastSeq, requestId };
}

class LostConnectionError extends ConnectError {
  constructor(message: string) {
    super(message, Code.Unavailable);
  }
}

/** Whether the log a cursor was in is no longer there, or no longer that long. */
function isGone(error: unknown): boolean {
  if (!isSaidByServer(error)) return false;
  const { code } = ConnectError.from(error);
  return code === Code.NotFound || code === Code.InvalidArgument;
}

/** Whether the same may go well on another connection. */
function isLostConnection(error: unknown): boolean {
  if (!(error instanceof ConnectError)) return false;
  if (isSaidByServer(error))
    return error.code === Code.Unavailable && codeAgentErrorFrom(error).detail.retryable === true;
  switch (error.code) {
    case Code.Canceled:
    case Code.Unknown:
    case Code.DeadlineExceeded:
    case Code.Aborted:
    case Code.Internal:
    case Code.Unavailable:
    case Code.DataLoss:
      return true;
    case Code.InvalidArgument:
      // So says Connect itself of a body that was cut.
      return error.rawMessage.startsWith("protocol error");
    default:
      return false;
  }
}

type Connect = (signal: AbortSignal) => AsyncIterable<GenerateChunk>;

/** One call whose answers are read one by one. */
class Connection {
  readonly #iterator: AsyncIterator<GenerateChunk>;
  readonly #closing = new AbortController();
  readonly #left: AbortSignal;
  readonly #maxSilenceMs: number;
  #pending: Promise<IteratorResult<GenerateChunk>> | undefined;

  /** @param left ends a read that waits; the call itself goes on until it is closed. */
  constructor(connect: Connect, left: AbortSignal, maxSilenceMs = defaultMaxSilenceMs) {
    this.#left = left;
    this.#maxSilenceMs = maxSilenceMs;
    this.#iterator = connect(this.#closing.signal)[Symbol.asyncIterator]();
  }

  /** The next answer, or `undefined` at the end. Fails when the stream is left, and when nothing comes for too long. */
  read(): Promise<GenerateChunk | undefined> {
    return this.readUntil(this.#left);
  }

  /** As `read`, with another signal to end the wait. */
  async readUntil(signal: AbortSignal): Promise<GenerateChunk | undefined> {
    signal.throwIfAborted();
    const stop = Promise.withResolvers<never>();
    const onAbort = () => stop.reject(signal.reason);
    const silence = setTimeout(() => {
      stop.reject(new LostConnectionError(`nothing was heard of the server for ${this.#maxSilenceMs} ms`));
    }, this.#maxSilenceMs);
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      this.#pending ??= this.#iterator.next();
      const result = await Promise.race([this.#pending, stop.promise]);
      this.#pending = undefined;
      return result.done === true ? undefined : result.value;
    } finally {
      clearTimeout(silence);
      signal.removeEventListener("abort", onAbort);
    }
  }

  /** Ends the call. */
  close(): void {
    this.#pending?.catch(() => undefined);
    this.#closing.abort();
  }
}

function timer(delayMs: number, signal: AbortSignal): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onAbort = () => reject(signal.reason);
  const timeout = setTimeout(resolve, delayMs);
  signal.addEventListener("abort", onAbort, { once: true });
  return promise.finally(() => {
    clearTimeout(timeout);
    signal.removeEventListener("abort", onAbort);
  });
}

/** An idempotency key. Browsers give out UUIDs only to pages of a secure origin; random bytes to all. */
export function newRequestId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `req_${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
