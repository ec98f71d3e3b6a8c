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
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  aborted.catch(() => undefined);
  const onAbort = () => reject(signal.reason);
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
      await Promise.race([changed, aborted]);
    }
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
