import type { LogRecord } from "../chat/log-event.ts";
import type { SessionConfig } from "../chat/session-config.ts";
import { decodeLogEvent } from "../convert/proto/event.ts";
import type { Store, StoredEvent } from "../log/store.ts";
import { emptyState, foldRecord, type SessionState } from "./state.ts";

const pageEvents = 1024;

/**
 * Folds the log of a session from its beginning.
 * @param throughSeq the last event to fold
 */
export async function loadState(
  store: Store,
  sessionId: string,
  config: SessionConfig,
  throughSeq: number,
): Promise<SessionState> {
  const state = emptyState(config.initialMessages);
  let cursor = 0;
  for (;;) {
    const page = await store.readHistory(sessionId, cursor, pageEvents);
    for (const event of page) {
      if (event.seq > throughSeq) break;
      foldRecord(state, logRecordFrom(event));
    }
    const last = page.at(-1);
    if (last === undefined || page.length < pageEvents || last.seq >= throughSeq) break;
    cursor = last.seq;
  }
  state.seq = throughSeq;
  return state;
}

/** An event as the store has it, in our own words. */
export function logRecordFrom(stored: StoredEvent): LogRecord {
  return { seq: stored.seq, ...decodeLogEvent(stored.body) };
}
