import { setImmediate as breathe } from "node:timers/promises";
import type { Store } from "../log/store.ts";
import type { Requests } from "./requests.ts";

export interface RetentionOptions {
  readonly store: Store;
  readonly requests: Requests;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  /** How long what streamed of a turn is kept after its end; 0 for ever. */
  readonly deltasMs: number;
  /** From the end of one sweep to the beginning of the next. */
  readonly everyMs: number;
  readonly report: (level: "warn", message: string, facts: Record<string, unknown>) => void;
}

/** Events removed in one commit, so that nothing else waits long for the store. */
const removedAtOnce = 1000;

/** Removes what is no longer to be kept, now and then. Harmless when several processes do. */
export class Retention {
  readonly #options: RetentionOptions;
  #timer: NodeJS.Timeout | undefined;
  #sweeping: Promise<void> | undefined;
  #stopped = false;

  constructor(options: RetentionOptions) {
    this.#options = options;
    this.#later();
  }

  /** Removes what is due, in small commits. @throws what the store throws. */
  async sweep(): Promise<void> {
    const { store, requests, now, deltasMs } = this.#options;
    await requests.prune();
    if (deltasMs === 0) return;
    const untilMs = now() - deltasMs;
    while (!this.#stopped && (await store.pruneDeltas(untilMs, removedAtOnce)).more) await breathe();
  }

  /** Resolves when nothing is under way any more. */
  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    await this.#sweeping;
  }

  #later(): void {
    if (this.#stopped) return;
    this.#timer = setTimeout(() => {
      this.#sweeping = this.sweep()
        .catch((error: unknown) => this.#options.report("warn", "old events could not be removed", { error }))
        .finally(() => this.#later());
    }, this.#options.everyMs);
  }
}
