import type { SessionConfig } from "../chat/session-config.ts";
import { decodeSessionConfig } from "../convert/proto/session-config.ts";
import type { NewSession, StoredSession } from "../log/store.ts";
import { decodeSummary, type SessionSummary } from "./summary.ts";

/** A session as its readers see it. */
export interface SessionView {
  readonly sessionId: string;
  readonly config: SessionConfig;
  readonly state: "idle" | "running" | "waiting" | "paused";
  readonly summary: ReturnType<typeof decodeSummary>;
  readonly headSeq: number;
  readonly parentId: string;
  readonly parentSeq: number;
  readonly waitingTurns: number;
  readonly createdMs: number;
  readonly updatedMs: number;
}

/** What readers see of what is stored of a session. */
export function viewOf(stored: StoredSession): SessionView {
  const summary = decodeSummary(stored.summary);
  return {
    sessionId: stored.sessionId,
    config: decodeSessionConfig(stored.config),
    state: stateOf(summary, stored.waitingTurns),
    summary,
    headSeq: stored.headSeq,
    parentId: stored.parentId,
    parentSeq: stored.parentSeq,
    waitingTurns: stored.waitingTurns,
    createdMs: stored.createdMs,
    updatedMs: stored.updatedMs,
  };
}

/** What is stored of a session right after it was made. */
export function asStored(session: NewSession, headSeq: number): StoredSession {
  const { atMs } = session;
  return {
    ...session,
    configVersion: 1,
    headSeq,
    prunedSeq: 0,
    waitingTurns: 0,
    heldBack: false,
    createdMs: atMs,
    updatedMs: atMs,
  };
}

function stateOf({ requests, currentTurnId, paused }: SessionSummary, waitingTurns: number): SessionView["state"] {
  if (paused === true) return "paused";
  if (requests.length > 0) return "waiting";
  return currentTurnId !== "" || waitingTurns > 0 ? "running" : "idle";
}
