import { AgentError } from "../chat/error.ts";
import type { Store } from "../log/store.ts";
import { messageBytes } from "./large-messages.ts";
import type { LiveTails } from "./live-tails.ts";
import type { TurnEnvironment } from "./run-turn.ts";
import { storeTrouble, unknownSession } from "./session-errors.ts";
import { type KeptState, LostSessionError, SessionWorker } from "./session-worker.ts";
import type { SessionState } from "./state.ts";
import type { Timers } from "./timers.ts";

/** Folds are kept for the next turn up to this size in all, in bytes as they would be stored. */
const keptBytes = 64 * 1024 * 1024;

/** Longer waits are slept through in pieces. */
const longestTimerMs = 3_600_000;

interface Entry {
  readonly worker: SessionWorker;
  /** Somebody asked for work while it was on its way out. */
  again: boolean;
  done: Promise<void>;
}

/** Who works on which session in this process: one worker a session, while there is something to do. */
export class Workers {
  readonly #store: Store;
  readonly #environment: TurnEnvironment;
  readonly #tails: LiveTails;
  readonly #timers: Timers;
  readonly #entries = new Map<string, Entry>();
  /** Work on sessions that were deleted meanwhile, until it has ended. */
  readonly #leaving = new Set<Promise<void>>();
  /** How often in a row the work on a session broke off. */
  readonly #failures = new Map<string, number>();
  readonly #kept = new Map<string, KeptState & { readonly bytes: number }>();
  #keptBytes = 0;
  /** Sessions with something to do that wait for room. */
  #toRecover: string[] = [];
  /** Rings when the time of a parked session has come. */
  #alarm: { readonly atMs: number; readonly timer: NodeJS.Timeout } | undefined;
  #draining = false;

  constructor(store: Store, environment: TurnEnvironment, tails: LiveTails, timers: Timers) {
    this.#store = store;
    this.#environment = environment;
    this.#tails = tails;
    this.#timers = timers;
  }

  get size(): number {
    return this.#entries.size;
  }

  has(sessionId: string): boolean {
    return this.#entries.has(sessionId);
  }

  /** The fold of a session nobody works on, if it is still at hand. */
  idleState(sessionId: string, headSeq: number): SessionState | undefined {
    const kept = this.#kept.get(sessionId);
    return kept !== undefined && kept.state.seq === headSeq && !this.has(sessionId) ? kept.state : undefined;
  }

  /** Goes on with what was under way when the server stopped last, as many sessions at a time as turns may run. */
  async recover(): Promise<void> {
    const { maxTurnsInFlight } = this.#environment.limits;
    this.#toRecover = [...(await this.#store.runnableSessions(Number.MAX_SAFE_INTEGER))];
    for (const sessionId of this.#toRecover.splice(0, maxTurnsInFlight)) this.wake(sessionId);
    await this.wakeParked();
  }

  /** Wakes the parked sessions whose time has come, and comes back when that of the next one has. */
  async wakeParked(): Promise<void> {
    const { now, limits } = this.#environment;
    const parked = await this.#store.parkedSessions(limits.maxTurnsInFlight);
    if (this.#draining) return;
    let nextMs = Number.POSITIVE_INFINITY;
    for (const { sessionId, wakeAtMs } of parked) {
      if (wakeAtMs <= now()) this.wakeInTurn(sessionId);
      // One whose time has come may not be had at the moment: then it is tried again.
      nextMs = Math.min(nextMs, wakeAtMs <= now() ? now() + 1000 : wakeAtMs);
    }
    if (nextMs < Number.POSITIVE_INFINITY) this.#setAlarm(nextMs);
  }

  /** Sees to it that somebody works on a session; harmless when somebody does. */
  wake(sessionId: string): void {
    const working = this.#entries.get(sessionId);
    if (working !== undefined) {
      working.again = true;
      working.worker.tell();
      return;
    }
    if (this.#draining) return;
    const { tail, release } = this.#tails.hold(sessionId);
    const worker = new SessionWorker(sessionId, this.#store, this.#environment, tail);
    const entry = { worker, again: false, done: Promise.resolve() };
    this.#entries.set(sessionId, entry);
    entry.done = this.#work(sessionId, entry, release);
  }

  /** There is something to do in a session: somebody works on it here if there is room, else another process or later. */
  offer(sessionId: string): void {
    if (this.has(sessionId) || this.size < this.#environment.limits.maxTurnsInFlight) this.wake(sessionId);
  }

  /** Sees to it that somebody works on a session, when there is room for it. */
  wakeInTurn(sessionId: string): void {
    if (this.has(sessionId) || this.size < this.#environment.limits.maxTurnsInFlight) this.wake(sessionId);
    else if (!this.#toRecover.includes(sessionId)) this.#toRecover.push(sessionId);
  }

  /** A command came from elsewhere for a session that is worked on here. */
  commanded(sessionId: string): void {
    const working = this.#entries.get(sessionId);
    if (working === undefined) return;
    working.again = true;
    // What can't be read now is looked for again.
    working.worker.commanded().catch(() => undefined);
  }

  /** Others may take this process for dead: all work ends at once, and nothing is written about it. */
  fence(): void {
    for (const { worker } of this.#entries.values()) worker.fence();
  }

  /** Ends a turn if it runs here. */
  cancel(sessionId: string, turnId: string): void {
    this.#entries.get(sessionId)?.worker.cancel(turnId);
  }

  /** The session was deleted: whoever works on it stops, and its id is free for a new one at once. */
  forget(sessionId: string): void {
    const working = this.#entries.get(sessionId);
    if (working !== undefined) {
      this.#entries.delete(sessionId);
      this.#leaving.add(working.done);
      void working.done.then(() => this.#leaving.delete(working.done));
      working.worker.stop();
    }
    this.#keep(sessionId, undefined);
    this.#failures.delete(sessionId);
    this.#tails.end(sessionId, unknownSession(sessionId));
  }

  /**
   * Begins no new work; the returned promise resolves when what runs has ended. Where others can go on with it, it is
   * handed over at the next step.
   */
  drain(): Promise<unknown> {
    this.#draining = true;
    if (this.#store.shared) for (const { worker } of this.#entries.values()) worker.handOver();
    clearTimeout(this.#alarm?.timer);
    this.#alarm = undefined;
    return Promise.allSettled([...[...this.#entries.values()].map((entry) => entry.done), ...this.#leaving]);
  }

  /** Leaves what runs as it is. */
  stop(): void {
    for (const { worker } of this.#entries.values()) worker.stop();
  }

  async #work(sessionId: string, entry: Entry, release: () => void): Promise<void> {
    try {
      for (;;) {
        entry.again = false;
        const { kept, more, wakeAtMs } = await entry.worker.run(this.#kept.get(sessionId));
        if (this.#entries.get(sessionId) !== entry) return;
        this.#keep(sessionId, kept);
        if (wakeAtMs !== undefined) this.#setAlarm(wakeAtMs);
        this.#failures.delete(sessionId);
        if (!more && !entry.again) return;
        if (this.#draining) return;
      }
    } catch (error) {
      if (this.#entries.get(sessionId) !== entry) return;
      this.#keep(sessionId, undefined);
      this.#environment.report("error", "a session could not go on", { sessionId, error });
      this.#tails.end(sessionId, storeTrouble(error));
      this.#tryAgain(sessionId, error);
    } finally {
      if (this.#entries.get(sessionId) === entry) this.#entries.delete(sessionId);
      release();
      const next = this.#toRecover.shift();
      if (next !== undefined) this.wake(next);
    }
  }

  /** Looks at the parked sessions at a time, unless it is done before. */
  #setAlarm(atMs: number): void {
    if (this.#draining || (this.#alarm !== undefined && this.#alarm.atMs <= atMs)) return;
    clearTimeout(this.#alarm?.timer);
    const delayMs = Math.min(Math.max(0, atMs - this.#environment.now()), longestTimerMs);
    const timer = setTimeout(() => {
      this.#alarm = undefined;
      this.wakeParked().catch((error: unknown) => {
        this.#environment.report("error", "parked sessions can't be looked for", { error });
        this.#setAlarm(this.#environment.now() + 1000);
      });
    }, delayMs);
    this.#alarm = { atMs, timer };
  }

  /**
   * The work on a session broke off: goes on with it as soon as the store works again. What no waiting mends (a log that
   * can't be read) is tried less and less often.
   */
  #tryAgain(sessionId: string, error: unknown): void {
    if (this.#draining) return; // the next start goes on with it
    const lost = error instanceof LostSessionError ? error : undefined;
    const cause = lost === undefined ? error : lost.cause;
    const mends = cause instanceof AgentError && (cause.kind === "unavailable" || cause.kind === "resource_exhausted");
    const failures = this.#failures.get(sessionId) ?? 0;
    this.#failures.set(sessionId, failures + 1);
    const delayMs = Math.min(1000 * 2 ** Math.min(failures, 10), mends ? 4000 : 300_000);
    // Given up at once where that works, so that the next request need not wait for the next try.
    // What waiting does not mend is not to be tried by one process after the other meanwhile.
    const pauseMs = this.#store.shared && !mends ? delayMs : 0;
    const released =
      lost === undefined ? Promise.resolve() : this.#store.release(sessionId, lost.claim.fence, true, pauseMs);
    released.then(
      () => this.#timers.later(delayMs, () => this.wake(sessionId)),
      () => this.#timers.later(delayMs, () => this.#tryAgain(sessionId, error)),
    );
  }

  /** Keeps a fold, or none; the ones used longest ago go when they are too large together. */
  #keep(sessionId: string, kept: KeptState | undefined): void {
    this.#keptBytes -= this.#kept.get(sessionId)?.bytes ?? 0;
    this.#kept.delete(sessionId);
    if (kept === undefined) return;
    const bytes = kept.state.messages.reduce((sum, message) => sum + messageBytes(message), 0);
    this.#kept.set(sessionId, { ...kept, bytes });
    this.#keptBytes += bytes;
    for (const [oldest, { bytes: freed }] of this.#kept) {
      if (this.#keptBytes <= keptBytes) return;
      this.#kept.delete(oldest);
      this.#keptBytes -= freed;
    }
  }
}
