import type { LogRecord } from "../chat/log-event.ts";
import { Tail } from "../log/tail.ts";

const keptEvents = 4096;
/** About how many bytes a tail keeps; who is further behind reads the store. */
const keptBytes = 1024 * 1024;

/**
 * Hears that the log of a session has grown.
 * @param afterSeq the last event that was there before
 * @param records what is new; absent where another process wrote it
 */
export type LogListener = (sessionId: string, afterSeq: number, records?: readonly LogRecord[]) => void;

/** The tails of the sessions that somebody writes or reads here; a tail nobody holds is forgotten. */
export class LiveTails {
  readonly #tails = new Map<string, { readonly tail: Tail; holders: number }>();
  readonly #listeners = new Set<LogListener>();

  /**
   * Calls `listener`, which must not throw, whenever the log of a session grows that somebody writes or reads here, until the
   * returned function is called.
   */
  listen(listener: LogListener): () => void {
    // Two may listen with the same function.
    const own: LogListener = (...news) => listener(...news);
    this.#listeners.add(own);
    return () => void this.#listeners.delete(own);
  }

  /** Gets the tail of a session and holds it; call the returned `release` once. */
  hold(sessionId: string): { readonly tail: Tail; readonly release: () => void } {
    const entry = this.#tails.get(sessionId) ?? { tail: this.#newTail(sessionId), holders: 0 };
    this.#tails.set(sessionId, entry);
    entry.holders++;
    let held = true;
    return {
      tail: entry.tail,
      release: () => {
        if (!held) return;
        held = false;
        entry.holders--;
        if (entry.holders === 0 && this.#tails.get(sessionId) === entry) this.#tails.delete(sessionId);
      },
    };
  }

  /** Learns that the log of a session has grown elsewhere. */
  advance(sessionId: string, headSeq: number): void {
    const tail = this.#tails.get(sessionId)?.tail;
    const before = tail?.headSeq ?? 0;
    tail?.advanceTo(headSeq);
    // One that has heard of no event yet does not know which of them are new.
    if (before === 0 || headSeq <= before) return;
    for (const listener of this.#listeners) listener(sessionId, before);
  }

  /** The sessions that somebody writes or reads here, each with the last event known. */
  *heads(): Generator<readonly [sessionId: string, headSeq: number]> {
    for (const [sessionId, { tail }] of this.#tails) yield [sessionId, tail.headSeq];
  }

  /** Ends the readers of a session, with an error or because nothing follows; whoever comes later gets a new tail. */
  end(sessionId: string, error?: Error): void {
    const entry = this.#tails.get(sessionId);
    this.#tails.delete(sessionId);
    entry?.tail.end(error);
  }

  /** Ends all readers. */
  endAll(error: Error): void {
    for (const sessionId of [...this.#tails.keys()]) this.end(sessionId, error);
  }

  #newTail(sessionId: string): Tail {
    return new Tail(0, keptEvents, keptBytes, (records) => {
      const [first] = records;
      if (first === undefined) return;
      for (const listener of this.#listeners) listener(sessionId, first.seq - 1, records);
    });
  }
}
