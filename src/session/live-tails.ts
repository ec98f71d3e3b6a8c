import { Tail } from "../log/tail.ts";

const keptEvents = 4096;
/** About how many bytes a tail keeps; who is further behind reads the store. */
const keptBytes = 1024 * 1024;

/** The tails of the sessions that somebody writes or reads here; a tail nobody holds is forgotten. */
export class LiveTails {
  readonly #tails = new Map<string, { readonly tail: Tail; holders: number }>();

  /** Gets the tail of a session and holds it; call the returned `release` once. */
  hold(sessionId: string): { readonly tail: Tail; readonly release: () => void } {
    const entry = this.#tails.get(sessionId) ?? { tail: new Tail(0, keptEvents, keptBytes), holders: 0 };
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
    this.#tails.get(sessionId)?.tail.advanceTo(headSeq);
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
}
