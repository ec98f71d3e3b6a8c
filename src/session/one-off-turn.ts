import { AgentError } from "../chat/error.ts";
import type { RequestAnswer } from "../chat/log-event.ts";
import type { GenerateOptions, TurnRequest } from "../chat/request.ts";
import type { Todo } from "../chat/todo.ts";
import { Tail } from "../log/tail.ts";
import { separateLargeContent, withLargeContent } from "./large-messages.ts";
import { LogWriter } from "./log-writer.ts";
import { memoryLog } from "./owned-log.ts";
import { withinProfile } from "./profile.ts";
import { type RunningSession, record, runTurn, StoppedError, type TurnEnvironment } from "./run-turn.ts";
import { cancelledError, plainConfig } from "./session-worker.ts";
import { emptyState, openRequests, type RequestState, type SessionState } from "./state.ts";

export interface OneOffOptions {
  readonly tenant: string;
  readonly sessionId: string;
  readonly turnId: string;
  readonly principal: string;
  readonly request: TurnRequest;
  readonly workspace: string;
  /** How long a turn outlives its last reader, in milliseconds: the time to come back after a lost connection. */
  readonly graceMs: number;
}

const longestTimerMs = 3_600_000;

/**
 * A turn without a session: its log is in memory, it leaves nothing behind, and it ends when nobody reads it any more.
 */
export class OneOffTurn {
  readonly tenant: string;
  readonly sessionId: string;
  readonly turnId: string;
  readonly tail: Tail;
  /** Resolves when the turn has ended. */
  readonly ended: Promise<void>;
  readonly #abort = new AbortController();
  readonly #graceMs: number;
  readonly #state: SessionState = emptyState([]);
  readonly #answers = new Map<string, RequestAnswer>();
  /** Ends the waiting for an answer. */
  #news: (() => void) | undefined;
  #leavesInsteadOfWaiting = false;
  #readers = 0;
  #abandoned = false;
  #leaving: NodeJS.Timeout | undefined;

  constructor(options: OneOffOptions, environment: TurnEnvironment) {
    this.tenant = options.tenant;
    this.sessionId = options.sessionId;
    this.turnId = options.turnId;
    this.#graceMs = options.graceMs;
    this.tail = new Tail(0, Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER);
    this.#leaving = setTimeout(() => this.#abandon(), this.#graceMs); // until the first reader comes
    this.ended = this.#run(options, environment);
  }

  get hasEnded(): boolean {
    return this.tail.ended !== undefined;
  }

  /** Somebody reads it now. */
  get isRead(): boolean {
    return this.#readers > 0;
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

  /** Stops as soon as it waits for an answer. */
  stopWhenWaiting(): void {
    this.#leavesInsteadOfWaiting = true;
    this.#news?.();
  }

  /** What waits for an answer. */
  get requests(): readonly RequestState[] {
    return this.hasEnded ? [] : openRequests(this.#state);
  }

  /** What is to be done, as the model wrote it down last. */
  get todos(): readonly Todo[] {
    return this.#state.todos;
  }

  /** Answers a request that waits; the first answer stays, and is returned. */
  answer(given: RequestAnswer): RequestAnswer {
    const answer = this.#answers.get(given.requestId) ?? given;
    this.#answers.set(given.requestId, answer);
    this.#news?.();
    return answer;
  }

  /** What became of a request. */
  answerTo(requestId: string): RequestAnswer | undefined {
    return this.#answers.get(requestId);
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

  /** Waits for an answer, the end of the time or a reason to stop. */
  async #newsBy(delayMs: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const { signal } = this.#abort;
    this.#news = resolve;
    const timer = setTimeout(resolve, Math.min(delayMs, longestTimerMs));
    signal.addEventListener("abort", () => resolve(), { once: true });
    if (signal.aborted || this.requests.some(({ request }) => this.#answers.has(request.requestId))) resolve();
    if (this.#leavesInsteadOfWaiting) this.stop();
    await promise;
    clearTimeout(timer);
    this.#news = undefined;
    if (this.#leavesInsteadOfWaiting) this.stop();
  }

  async #run(options: OneOffOptions, environment: TurnEnvironment): Promise<void> {
    const { request, turnId } = options;
    const { messages, blobs } = separateLargeContent(request.messages);
    const turnOptions = await optionsWithin(environment, request.options, options.workspace);
    const contents = new Map(blobs.map((blob) => [blob.digest, blob.body]));
    const log = memoryLog(this.tail);
    const append: typeof log.append = (id, records, extras) => {
      for (const { digest, body } of extras.blobs ?? []) contents.set(digest, body);
      return log.append(id, records, extras);
    };
    const writer = new LogWriter({ append }, 0, environment.now, (error) => this.#abort.abort(error));
    const session: RunningSession = {
      sessionId: options.sessionId,
      tenant: options.tenant,
      isKept: false,
      isUnattended: request.isUnattended ?? false,
      config: plainConfig(options.workspace),
      state: this.#state,
      writer,
      environment,
      withContent: (some) =>
        withLargeContent(some, async (digest) => {
          await writer.flushed();
          return contents.get(digest);
        }),
      noted: () => ({}),
      answers: async () => [...this.#answers.values()].map((answer) => ({ answer, takenKeys: [] })),
      settle: async (_turnId, answer) => void this.answer(answer),
      keysAnsweredAtEnd: () => [],
    };
    record(session, turnId, {
      type: "turn-started",
      requestId: request.requestId,
      principal: options.principal,
      model: request.model,
      messages,
      options: turnOptions,
      tools: request.tools,
    });
    try {
      for (;;) {
        const waiting = await runTurn(session, this.#abort.signal);
        if (waiting === undefined) break;
        await this.#newsBy(waiting.wakeAtMs - environment.now());
      }
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

async function optionsWithin(
  { profiles, functions }: TurnEnvironment,
  options: GenerateOptions,
  workspace: string,
): Promise<GenerateOptions> {
  const profile = profiles.get(options.profile ?? "");
  if (profile?.tools === undefined) return options;
  // A failure here is met again, and told, by the turn itself.
  const set = await functions.current(workspace).catch(() => undefined);
  return withinProfile(profile, options, set?.definitions.map(({ name }) => name) ?? []);
}
