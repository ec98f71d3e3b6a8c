import { AgentError } from "../chat/error.ts";
import type { StoredSession } from "../log/store.ts";
import { eventBytes, type Tail } from "../log/tail.ts";
import { followLog, isPruned, type LogBatch, type LogPages } from "./follow-log.ts";

/** A part of a log that somebody reads. */
export interface LogReading {
  /** The log's last event when it was asked for. */
  readonly headSeq: number;
  /** From this event on nothing was pruned then; 0 for an empty log. */
  readonly earliestSeq: number;
  /**
   * The events as they are committed.
   * @param signal ends the reading; the generator then throws the signal's reason.
   */
  read(signal: AbortSignal): AsyncGenerator<LogBatch>;
  /** About how many bytes of events come after a cursor, counted up to `most`. */
  waitingBytes(afterSeq: number, most: number): Promise<number>;
}

/** A log that is all in memory, whose readers count: `enter` is called when one begins, what it returns when it ends. */
export function readingOf(tail: Tail, enter: () => () => void, afterSeq: number, follow: boolean) {
  return {
    earliestSeq: Math.min(1, tail.headSeq),
    async *read(signal: AbortSignal): AsyncGenerator<LogBatch> {
      const leave = enter();
      try {
        yield* followLog(tail, noPages, afterSeq, 0, follow, signal);
      } finally {
        leave();
      }
    },
    async waitingBytes(cursor: number, most: number): Promise<number> {
      return (tail.after(cursor, most) ?? []).reduce((sum, record) => sum + eventBytes(record), 0);
    },
  };
}

/** The events of one turn, up to its last. */
export async function* onlyTurn(turnId: string, batches: AsyncGenerator<LogBatch>): AsyncGenerator<LogBatch> {
  for await (const records of batches) {
    if (isPruned(records)) {
      yield records;
      continue;
    }
    const own = records.filter((record) => record.turnId === turnId);
    if (own.length > 0) yield own;
    if (own.at(-1)?.event.type === "turn-finished") return;
  }
}

/** From this event on nothing of a log was pruned; 0 for an empty one. */
export function earliestSeqOf({ headSeq, prunedSeq }: StoredSession): number {
  return headSeq === 0 ? 0 : prunedSeq + 1;
}

const noPages: LogPages = {
  async read() {
    throw new AgentError("internal", "a one-off turn keeps its whole log");
  },
  async prunedSeq() {
    return 0;
  },
};
