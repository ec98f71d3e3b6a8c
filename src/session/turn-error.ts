import { AgentError } from "../chat/error.ts";
import type { TurnError } from "../chat/log-event.ts";

/** What a turn that failed says of it. Faults of our own say nothing of what is inside. */
export function turnErrorFrom(error: unknown, sideEffectPossible: boolean): TurnError {
  if (!(error instanceof AgentError)) {
    return {
      kind: "internal",
      reason: "INTERNAL",
      message: "the server failed in a way it has no name for; its log says more",
      detail: sideEffectPossible ? { sideEffectPossible } : {},
    };
  }
  return {
    kind: error.kind,
    reason: error.reason,
    message: error.message,
    detail: sideEffectPossible ? { ...error.detail, sideEffectPossible } : error.detail,
    ...(error.retryAfterMs === undefined ? {} : { retryAfterMs: error.retryAfterMs }),
  };
}

/** The error a unary call throws for a turn that failed. */
export function agentErrorFrom(error: TurnError): AgentError {
  return new AgentError(error.kind, error.message, {
    reason: error.reason,
    detail: error.detail,
    ...(error.retryAfterMs === undefined ? {} : { retryAfterMs: error.retryAfterMs }),
  });
}
