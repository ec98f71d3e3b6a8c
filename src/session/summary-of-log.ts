import { decodeSessionConfig } from "../convert/proto/session-config.ts";
import type { StoredEvent } from "../log/store.ts";
import { logRecordFrom } from "./load-state.ts";
import { emptyState, foldRecord } from "./state.ts";
import { encodeSummary, summaryOf } from "./summary.ts";

/**
 * The summary of a session as its owner would note it after the last of these events.
 * @param config as it is stored
 */
export function summaryOfLog(config: Uint8Array, events: Iterable<StoredEvent>): Uint8Array {
  const state = emptyState(decodeSessionConfig(config).initialMessages);
  for (const event of events) foldRecord(state, logRecordFrom(event));
  return encodeSummary(summaryOf(state));
}
