import { setTimeout as wait } from "node:timers/promises";
import { AgentError } from "../chat/error.ts";
import type { AnsweredRequest, NewRequest, Store } from "../log/store.ts";
import { otherPayload } from "./session-errors.ts";

/** A call that is to have its effect once, however often it is made. */
export type OnceRequest = Omit<NewRequest, "atMs">;

/** Makes the note of an answer, to be committed with the change that it answers; `undefined` where nothing is to be noted. */
export type NoteOf<Answer> = (answer: Answer) => AnsweredRequest | undefined;

/** Thrown by a change whose request has been answered by another one meanwhile: nothing was changed. */
export class RequestAnsweredError extends Error {
  override readonly name = "RequestAnsweredError";
}

/** Something that can't be undone and is no change of the store. */
export interface Execution {
  /** Doing it twice is the same as doing it once. */
  readonly isRepeatable: boolean;
  run(signal: AbortSignal): Promise<Uint8Array>;
  /** The answer where it was begun and nobody knows what became of it. */
  interrupted(): Uint8Array;
}

interface Running {
  readonly asked: OnceRequest;
  readonly answer: Promise<Uint8Array>;
  readonly abort: AbortController;
  callers: number;
}

/** Notes are kept for a day. */
const keptMs = 86_400_000;
const prunedAtOnce = 1000;
/** How often somebody looks whether another process has an answer, and for how long: tools end within ten minutes. */
const pollMs = 250;
const longestWaitMs = 15 * 60_000;

/** What makes calls with a request id idempotent: the same id and payload get the same answer, now, later or at once. */
export class Requests {
  readonly #store: Store;
  readonly #now: () => number;
  readonly #running = new Map<string, Running>();
  #stopping = false;

  constructor(store: Store, now: () => number) {
    this.#store = store;
    this.#now = now;
  }

  /**
   * Changes something once.
   * @param work does it; what it does not note with its change is noted when it is done. It is done again when it failed.
   * @throws {AgentError} `already_exists` for an id with another payload; what `work` throws.
   */
  change(asked: OnceRequest, work: (note: NoteOf<Uint8Array>) => Promise<Uint8Array>): Promise<Uint8Array> {
    return this.#joined(asked, new AbortController().signal, async () => {
      for (;;) {
        const noted = await this.#known(asked);
        if (noted?.answer !== undefined) return noted.answer;
        let isNoted = false;
        const answeredWith = (answer: Uint8Array) => ({ ...asked, answer, atMs: this.#now() });
        try {
          const answer = await work((bytes) => {
            isNoted = true;
            return answeredWith(bytes);
          });
          if (!isNoted) await this.#store.answerRequest(answeredWith(answer));
          return answer;
        } catch (error) {
          if (!(error instanceof RequestAnsweredError)) throw error;
        }
      }
    });
  }

  /**
   * Executes something once. It goes on when its callers leave, so that they can come back for the answer; it ends without
   * one when the server stops and no caller is left. What was begun and has no answer is not done again unless that is the
   * same.
   * @param prepare looks whether it can be done; nothing is noted before
   * @param signal ends the wait of this caller, who then gets its reason
   * @throws {AgentError} as `change`.
   */
  execute(asked: OnceRequest, signal: AbortSignal, prepare: () => Promise<Execution>): Promise<Uint8Array> {
    return this.#joined(asked, signal, async (running) => {
      const giveUpMs = performance.now() + longestWaitMs;
      for (;;) {
        const noted = await this.#known(asked);
        if (noted?.answer !== undefined) return noted.answer;
        if (noted?.owner === "elsewhere") {
          if (performance.now() > giveUpMs) throw stillRunning(asked.requestId);
          await wait(pollMs, undefined, { signal: running });
          continue;
        }
        const execution = await prepare();
        if (noted === undefined && (await this.#store.beginRequest({ ...asked, atMs: this.#now() })) !== undefined)
          continue;
        const isLost = noted !== undefined && !execution.isRepeatable;
        const answer = isLost ? execution.interrupted() : await execution.run(running);
        await this.#store.answerRequest({ ...asked, answer, atMs: this.#now() });
        return answer;
      }
    });
  }

  /** Forgets requests that are a day old; to be called now and then. */
  async prune(): Promise<void> {
    const beforeMs = this.#now() - keptMs;
    while ((await this.#store.pruneRequests(beforeMs, prunedAtOnce)) === prunedAtOnce);
  }

  /** The server stops: what nobody waits for any more ends. */
  stop(): void {
    this.#stopping = true;
    for (const running of this.#running.values()) this.#endUnwanted(running);
  }

  async #joined(
    asked: OnceRequest,
    signal: AbortSignal,
    begin: (signal: AbortSignal) => Promise<Uint8Array>,
  ): Promise<Uint8Array> {
    signal.throwIfAborted();
    const key = JSON.stringify([asked.tenant, asked.requestId]);
    let running = this.#running.get(key);
    if (running === undefined) {
      const abort = new AbortController();
      running = { asked, answer: begin(abort.signal), abort, callers: 0 };
      const ended = () => this.#running.delete(key);
      running.answer.then(ended, ended);
      this.#running.set(key, running);
    } else if (!isSame(running.asked, asked)) throw otherPayload(asked.requestId);
    running.callers++;
    const left = Promise.withResolvers<never>();
    const onAbort = () => left.reject(signal.reason);
    signal.addEventListener("abort", onAbort, { once: true });
    try {
      return await Promise.race([running.answer, left.promise]);
    } finally {
      signal.removeEventListener("abort", onAbort);
      running.callers--;
      this.#endUnwanted(running);
    }
  }

  #endUnwanted(running: Running): void {
    if (this.#stopping && running.callers === 0)
      running.abort.abort(new AgentError("unavailable", "the server is shutting down", { reason: "SHUTTING_DOWN" }));
  }

  async #known(asked: OnceRequest) {
    const noted = await this.#store.readRequest(asked.tenant, asked.requestId);
    if (noted !== undefined && !isSame(noted, asked)) throw otherPayload(asked.requestId);
    return noted;
  }
}

function isSame(one: Pick<OnceRequest, "method" | "hash">, other: OnceRequest): boolean {
  return one.method === other.method && one.hash === other.hash;
}

function stillRunning(requestId: string): AgentError {
  return new AgentError("unavailable", `request ${requestId} still runs on another server; ask again later`, {
    reason: "STILL_RUNNING",
    retryAfterMs: 10_000,
    detail: { retryable: true },
  });
}
