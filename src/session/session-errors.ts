import { AgentError } from "../chat/error.ts";
import type { RequestAnswer } from "../chat/log-event.ts";
import { LostSessionError } from "./session-worker.ts";

export function unknownSession(sessionId: string): AgentError {
  return new AgentError("not_found", `there is no session ${sessionId}`, { reason: "SESSION_NOT_FOUND" });
}

export function unknownTurn(turnId: string, sessionId: string): AgentError {
  return new AgentError("not_found", `session ${sessionId} has no turn ${turnId}`, { reason: "TURN_NOT_FOUND" });
}

export function unknownRequest(requestId: string, sessionId: string): AgentError {
  return new AgentError("not_found", `session ${sessionId} has no pending request ${requestId}`, {
    reason: "REQUEST_NOT_FOUND",
  });
}

export function resolvedOtherwise({ requestId, decision, author }: RequestAnswer): AgentError {
  const how = decision === "expired" ? "expired" : answeredBy(decision, author);
  return new AgentError("failed_precondition", `request ${requestId} ${how} before; that stays`, {
    reason: "REQUEST_RESOLVED",
    metadata: { request_id: requestId, decision, author },
  });
}

/** The end of a sentence about a request that somebody answered. */
export function answeredBy(decision: string, author: string): string {
  const how = decision === "answer" ? "" : ` ${decision}`;
  return `was answered${how}${author === "" ? "" : ` by ${author}`}`;
}

export function otherPayload(requestId: string): AgentError {
  return new AgentError("already_exists", `request_id ${requestId} was used with another payload; choose a new one`, {
    reason: "REQUEST_ID_REUSED",
  });
}

export function tooMany(what: string, reason: string): AgentError {
  return new AgentError("resource_exhausted", `${what}; try again when one has ended`, {
    reason,
    retryAfterMs: 1000,
    detail: { retryable: true },
  });
}

export function shuttingDown(): AgentError {
  return new AgentError("unavailable", "the server is shutting down; come back with the last seq you have", {
    reason: "SHUTTING_DOWN",
    retryAfterMs: 1000,
    detail: { retryable: true },
  });
}

/** The database came back without what it had committed last. */
export function lostSuffix(sessionId: string, seq: number, headSeq: number): AgentError {
  return new AgentError(
    "data_loss",
    `event ${seq} of session ${sessionId} is lost: its log ends at ${headSeq} since the database failed over; read it again from the beginning`,
    { reason: "LOG_SHORTENED", metadata: { sessionId, headSeq: String(headSeq) } },
  );
}

/** Nobody works on the session any more: it may be what kills those who do. */
export function heldBack(sessionId: string): AgentError {
  return new AgentError(
    "failed_precondition",
    `session ${sessionId} is held back: the server died again and again while it worked on it; cancel its turn to go on, fork it or delete it`,
    { reason: "SESSION_HELD_BACK", metadata: { sessionId } },
  );
}

export function storeTrouble(error: unknown): AgentError {
  const cause = error instanceof LostSessionError ? error.cause : error;
  return cause instanceof AgentError
    ? cause
    : new AgentError("unavailable", "the session can't go on now; come back with the last seq you have", {
        detail: { retryable: true },
        cause,
      });
}
