import { AgentError } from "../chat/error.ts";
import type { TurnRequest } from "../chat/request.ts";
import { Tail } from "../log/tail.ts";
import { separateLargeContent, withLargeContent } from "./large-messages.ts";
import { LogWriter } from "./log-writer.ts";
import { memoryLog } from "./owned-log.ts";
import { type RunningSession, record, runTurn, StoppedError, type TurnEnvironment } from "./run-turn.ts";
import { cancelledError, plainConfig } from "./session-worker.ts";
import { emptyState } from "./state.ts";

export interface OneOffOptions {
  readonly sessionId: string;
  readonly turnId: string;
  readonly principal: string;
  readonly request: TurnRequest;
  readonly workspace: string;
  /** How long a turn outlives its last reader, in milliseconds: the time to come back after a lost connection. */
  readonly graceMs: number;
}

/**
 * A turn without a session: its log is in memory, it leaves nothing behind, and it ends when nobody reads it any more.
 */
export class OneOffTurn {
  readonly sessionId: string;
  readonly turnId: string;
  readonly tail: Tail;
  /** Resolves when the turn has ended. */
  readonly ended: Promise<void>;
  readonly #abort = new AbortController();
  readonly #graceMs: number;
  #readers = 0;
  #abandoned = false;
  #leaving: NodeJS.Timeout | undefined;

  constructor(options: OneOffOptions, environment: TurnEnvironment) {
    this.sessionId = options.sessionId;
    this.turnId = options.turnId;
    this.#graceMs = options.graceMs;
    this.tail = new Tail(0, Number.MAX_SAFE_INTEGER);
    this.#leaving = setTimeout(() => this.#abandon(), this.#graceMs); // until the first reader comes
    this.ended = this.#run(options, environment);
  }

  get hasEnded(): boolean {
    return this.tail.ended !== undefined;
  }

  /** It was ended because nobody read it. */
  get abandoned(): boolean {
    return this.#abandoned;
  }

  cancel(): void {
    this.#abort.abort(cancelledError());
  }

  stop(): void {
    this.#abort.abort(new StoppedError("the server is shutting down"));
  }

  /** Counts a reader; call the returned function once, when it leaves. */
  enter(): () => void {
    this.#readers++;
    clearTimeout(this.#leaving);
    let inside = true;
    return () => {
      if (!inside) return;
      inside = false;
      this.#readers--;
      if (this.#readers > 0 || this.hasEnded) return;
      this.#leaving = setTimeout(() => this.#abandon(), this.#graceMs);
    };
  }

  #abandon(): void {
    this.#abandoned = true;
    this.cancel();
  }

  async #run(options: OneOffOptions, environment: TurnEnvironment): Promise<void> {
    const { request, turnId } = options;
    const { messages, blobs } = separateLargeContent(request.messages);
    const contents = new Map(blobs.map((blob) => [blob.digest, blob.body]));
    const log = memoryLog(this.tail);
    const append: typeof log.append = (id, records, extras) => {
      for (const { digest, body } of extras.blobs ?? []) contents.set(digest, body);
      return log.append(id, records, extras);
    };
    const writer = new LogWriter({ append }, 0, environment.now, (error) => this.#abort.abort(error));
    const session: RunningSession = {
      sessionId: options.sessionId,
      config: plainConfig(options.workspace),
      state: emptyState([]),
      writer,
      environment,
      withContent: (some) =>
        withLargeContent(some, async (digest) => {
          await writer.flushed();
          return contents.get(digest);
        }),
      summary: () => new Uint8Array(),
      keysAnsweredAtEnd: () => [],
    };
    record(session, turnId, {
      type: "turn-started",
      requestId: request.requestId,
      principal: options.principal,
      model: request.model,
      messages,
      options: request.options,
      tools: request.tools,
    });
    try {
      await runTurn(session, this.#abort.signal);
      this.tail.end();
    } catch (error) {
      const stopped = error instanceof StoppedError;
      if (!stopped) environment.report("error", "a one-off turn failed", { turnId, error });
      this.tail.end(
        new AgentError("unavailable", stopped ? "the server is shutting down" : "the turn broke off", {
          detail: { retryable: true },
          cause: error,
        }),
      );
    } finally {
      clearTimeout(this.#leaving);
    }
  }
}
