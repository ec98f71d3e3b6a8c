import type { LogRecord } from "../chat/log-event.ts";

/**
 * The newest committed events of one session, for the readers that follow it. Readers that fall behind what is kept
 * read the store and catch up, so a slow reader costs nothing and slows nobody.
 */
export class Tail {
  readonly #keep: number;
  readonly #keepBytes: number;
  readonly #onPublished: (records: readonly LogRecord[]) => void;
  #records: { readonly record: LogRecord; readonly bytes: number }[] = [];
  #bytes = 0;
  #headSeq: number;
  #ended: { error: Error | undefined } | undefined;
  #wake: (() => void) | undefined;
  #changed: Promise<void> | undefined;

  /**
   * @param headSeq the last event committed before this tail began to listen
   * @param keep how many events are kept at least where there are that many; twice as many at most
   * @param keepBytes about how many bytes of events are kept at most; one event is kept whatever its size
   * @param onPublished told of the events that are new; must not throw
   */
  constructor(
    headSeq: number,
    keep: number,
    keepBytes: number,
    onPublished: (records: readonly LogRecord[]) => void = () => undefined,
  ) {
    this.#headSeq = headSeq;
    this.#keep = keep;
    this.#keepBytes = keepBytes;
    this.#onPublished = onPublished;
  }

  /** About how many bytes of events it keeps. */
  get bytes(): number {
    return this.#bytes;
  }

  get headSeq(): number {
    return this.#headSeq;
  }

  /** Adds events that were committed; they follow the head without a gap. What was heard of already is left out. */
  publish(records: readonly LogRecord[]): void {
    const before = this.#headSeq;
    for (const record of records) {
      if (record.seq <= this.#headSeq) continue;
      if (record.seq !== this.#headSeq + 1) throw new Error(`event ${record.seq} does not follow ${this.#headSeq}`);
      const bytes = eventBytes(record);
      this.#records.push({ record, bytes });
      this.#bytes += bytes;
      this.#headSeq = record.seq;
    }
    if (this.#records.length > this.#keep * 2 || this.#bytes > this.#keepBytes) this.#drop();
    this.#notify();
    const [first] = records;
    const isAllNew = first === undefined || first.seq > before;
    this.#onPublished(isAllNew ? records : records.filter(({ seq }) => seq > before));
  }

  /** Learns that more was committed than was published here; readers get it from the store. */
  advanceTo(headSeq: number): void {
    if (headSeq <= this.#headSeq) return;
    this.#headSeq = headSeq;
    this.#records = [];
    this.#bytes = 0;
    this.#notify();
  }

  /**
   * The events after a cursor, as many as make about `limitBytes` and at least one, or `undefined` when they are no longer
   * kept here.
   */
  after(seq: number, limitBytes: number): readonly LogRecord[] | undefined {
    if (seq >= this.#headSeq) return [];
    const first = this.#records[0]?.record.seq;
    if (first === undefined || seq + 1 < first) return undefined;
    const records: LogRecord[] = [];
    let size = 0;
    for (let at = seq + 1 - first; at < this.#records.length && size < limitBytes; at++) {
      const kept = this.#records[at];
      if (kept === undefined) break;
      records.push(kept.record);
      size += kept.bytes;
    }
    return records;
  }

  /** Lets the oldest go, so many at once that it need not be done for every event. */
  #drop(): void {
    let from = Math.max(0, this.#records.length - this.#keep);
    let bytes = this.#records.slice(from).reduce((sum, kept) => sum + kept.bytes, 0);
    for (; bytes > this.#keepBytes / 2 && from < this.#records.length - 1; from++)
      bytes -= this.#records[from]?.bytes ?? 0;
    this.#records = this.#records.slice(from);
    this.#bytes = bytes;
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

/** About how much memory an event takes. */
export function eventBytes(record: LogRecord): number {
  const { event } = record;
  const overhead = 200;
  if (event.type === "tool-output") return overhead + event.text.length;
  return overhead + textLength(event.type === "block-delta" ? event.delta : event);
}

/** All text in a value, in UTF-16 units. */
function textLength(value: unknown): number {
  if (typeof value === "string") return value.length;
  if (value instanceof Uint8Array) return value.length;
  if (typeof value !== "object" || value === null) return 0;
  let length = 0;
  for (const member of Object.values(value)) length += textLength(member);
  return length;
}
