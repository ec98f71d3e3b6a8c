import { AgentError } from "../chat/error.ts";

/** What a stream ends with when the server stops. @param whatToDo as the end of a sentence, without a full stop. */
export function serverIsStopping(whatToDo: string): AgentError {
  return new AgentError("unavailable", `the server is shutting down; ${whatToDo}`, {
    reason: "SHUTTING_DOWN",
    detail: { retryable: true },
    retryAfterMs: 1000,
  });
}
