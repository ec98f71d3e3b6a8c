import type { LogRecord } from "../chat/log-event.ts";
import type { Tail } from "../log/tail.ts";

const pageEvents = 512;
const pageBytes = 1024 * 1024;

/** Events a tail no longer keeps, from where they are stored. */
export type ReadPage = (afterSeq: number, limit: number, limitBytes: number) => Promise<readonly LogRecord[]>;

/**
 * Reads a log from a cursor: what is stored first, then, with `follow`, what comes. Yields committed events in order,
 * several at a time, without gap or repetition; ends at the head, or, with `follow`, when the log ends.
 * @param signal ends the reading; the generator then throws the signal's reason.
 */
export async function* followLog(
  tail: Tail,
  readPage: ReadPage,
  afterSeq: number,
  follow: boolean,
  signal: AbortSignal,
): AsyncGenerator<readonly LogRecord[]> {
  let cursor = afterSeq;
  let wake: (() => void) | undefined;
  const onAbort = () => wake?.();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    const headAtStart = tail.headSeq;
    for (;;) {
      signal.throwIfAborted();
      const changed = tail.changed();
      const records = tail.after(cursor) ?? (await readPage(cursor, pageEvents, pageBytes));
      const last = records.at(-1);
      if (last !== undefined) {
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
