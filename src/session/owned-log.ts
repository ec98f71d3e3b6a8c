import { AgentError } from "../chat/error.ts";
import type { LogRecord } from "../chat/log-event.ts";
import { encodeLogEvent } from "../convert/proto/event.ts";
import type { Fence, Store } from "../log/store.ts";
import type { Tail } from "../log/tail.ts";
import type { OwnedLog } from "./log-writer.ts";

/** Thrown into everything an owner does once somebody else owns its session: it has nothing more to say. */
export class FencedError extends Error {
  override readonly name = "FencedError";
}

/** The log of a kept session: the store first, then the readers. */
export function storedLog(store: Store, sessionId: string, fence: Fence, tail: Tail): OwnedLog {
  return {
    async append(turnId, records, extras) {
      const first = records[0];
      if (first === undefined) return;
      const done = await store.append({
        sessionId,
        fence,
        firstSeq: first.seq,
        turnId,
        atMs: records.at(-1)?.timeMs ?? first.timeMs,
        events: records.map((record) => ({
          kind: record.event.type,
          body: encodeLogEvent(record.turnId, record.timeMs, record.event),
        })),
        ...extras,
      });
      if (done === undefined) throw new FencedError(`session ${sessionId} has another owner`);
      if (done.baseSeq !== first.seq) {
        throw new AgentError("internal", `event ${first.seq} of session ${sessionId} was stored as ${done.baseSeq}`);
      }
      tail.publish(records);
    },
  };
}

/** The log of a one-off turn: in memory, gone with its last reader. */
export function memoryLog(tail: Tail): OwnedLog {
  return {
    async append(_turnId: string, records: readonly LogRecord[]) {
      tail.publish(records);
    },
  };
}
