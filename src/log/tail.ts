import type { LogRecord } from "../chat/log-event.ts";

/**
 * The newest committed events of one session, for the readers that follow it. Readers that fall behind what is kept
 * read the store and catch up, so a slow reader costs nothing and slows nobody.
 */
export class Tail {
  readonly #keep: number;
  #records: LogRecord[] = [];
  #headSeq: number;
  #ended: { error: Error | undefined } | undefined;
  #wake: (() => void) | undefined;
  #changed: Promise<void> | undefined;

  /**
   * @param headSeq the last event committed before this tail began to listen
   * @param keep most events kept
   */
  constructor(headSeq: number, keep: number) {
    this.#headSeq = headSeq;
    this.#keep = keep;
  }

  get headSeq(): number {
    return this.#headSeq;
  }

  /** Adds events that were committed; they follow the head without a gap. What was heard of already is left out. */
  publish(records: readonly LogRecord[]): void {
    for (const record of records) {
      if (record.seq <= this.#headSeq) continue;
      if (record.seq !== this.#headSeq + 1) throw new Error(`event ${record.seq} does not follow ${this.#headSeq}`);
      this.#records.push(record);
      this.#headSeq = record.seq;
    }
    if (this.#records.length > this.#keep * 2) this.#records = this.#records.slice(-this.#keep);
    this.#notify();
  }

  /** Learns that more was committed than was published here; readers get it from the store. */
  advanceTo(headSeq: number): void {
    if (headSeq <= this.#headSeq) return;
    this.#headSeq = headSeq;
    this.#records = [];
    this.#notify();
  }

  /** The events after a cursor, or `undefined` when they are no longer kept here. */
  after(seq: number): readonly LogRecord[] | undefined {
    if (seq >= this.#headSeq) return [];
    const first = this.#records[0];
    if (first === undefined || seq + 1 < first.seq) return undefined;
    return this.#records.slice(seq + 1 - first.seq);
  }

  /** Tells the readers that nothing follows: with an error, they fail with it. */
  end(error?: Error): void {
    this.#ended ??= { error };
    this.#notify();
  }

  /** Set when nothing follows any more. */
  get ended(): { readonly error: Error | undefined } | undefined {
    return this.#ended;
  }

  /** Resolves at the next change. */
  changed(): Promise<void> {
    this.#changed ??= new Promise((resolve) => {
      this.#wake = resolve;
    });
    return this.#changed;
  }

  #notify(): void {
    this.#wake?.();
    this.#wake = undefined;
    this.#changed = undefined;
  }
}
