import type { LogRecord } from "../chat/log-event.ts";
import type { Tail } from "../log/tail.ts";

const pageEvents = 512;
/** A reader that is slow holds so much, in about bytes. */
const pageBytes = 256 * 1024;

/** What a reader gets at a time: events, or, before the first that do not follow the ones before, why. */
export type LogBatch = readonly LogRecord[] | PrunedEvents;

/** Events between the reader's cursor and `prunedSeq` are missing: what a `block-stop` or `tool-finished` stands for. */
export interface PrunedEvents {
  /** The last event that was pruned. */
  readonly prunedSeq: number;
}

export function isPruned(batch: LogBatch): batch is PrunedEvents {
  return "prunedSeq" in batch;
}

/** Where events are that a tail does not keep. */
export interface LogPages {
  read(afterSeq: number, limit: number, limitBytes: number): Promise<readonly LogRecord[]>;
  /** The last event that was pruned, 0 for none. */
  prunedSeq(): Promise<number>;
}

/**
 * Reads a log from a cursor: what is stored first, then, with `follow`, what comes. Yields committed events in order,
 * several at a time, without repetition and, but for what was pruned, without gap; ends at the head, or, with `follow`, when
 * the log ends.
 * @param prunedSeq the last event that is known to have been pruned
 * @param signal ends the reading; the generator then throws the signal's reason.
 */
export async function* followLog(
  tail: Tail,
  pages: LogPages,
  afterSeq: number,
  prunedSeq: number,
  follow: boolean,
  signal: AbortSignal,
): AsyncGenerator<LogBatch> {
  let cursor = afterSeq;
  let toldSeq = afterSeq;
  let wake: (() => void) | undefined;
  const onAbort = () => wake?.();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    const headAtStart = tail.headSeq;
    if (afterSeq < prunedSeq) {
      toldSeq = prunedSeq;
      yield { prunedSeq };
    }
    for (;;) {
      signal.throwIfAborted();
      const changed = tail.changed();
      const records = tail.after(cursor, pageBytes) ?? (await pages.read(cursor, pageEvents, pageBytes));
      const last = records.at(-1);
      if (last !== undefined) {
        if (last.seq - cursor !== records.length && last.seq > toldSeq) {
          // Pruned while it was read.
          const now = await pages.prunedSeq();
          if (now > toldSeq) yield { prunedSeq: now };
          toldSeq = Math.max(toldSeq, now);
        }
        cursor = last.seq;
        yield records;
        if (!follow && cursor >= headAtStart) return;
        continue;
      }
      if (!follow) return;
      if (tail.ended !== undefined) {
        if (tail.ended.error !== undefined) throw tail.ended.error;
        return;
      }
      // Racing with one promise for all the aborts to come would leave something behind at every wait.
      await new Promise<void>((resolve) => {
        wake = resolve;
        if (signal.aborted) resolve();
        void changed.then(resolve);
      });
    }
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
