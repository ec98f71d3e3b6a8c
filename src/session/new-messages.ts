import { AgentError } from "../chat/error.ts";
import type { Message } from "../chat/message.ts";

/**
 * What of a conversation that was sent whole a session does not know yet: all of it where the session has no history, else
 * what comes after the last answer in it. System and developer messages are then left out, since the history has those it
 * began with. Empty where nothing is new.
 */
export function newMessages(hasHistory: boolean, conversation: readonly Message[]): readonly Message[] {
  if (!hasHistory) return conversation;
  const answered = conversation.findLastIndex(({ role }) => role === "assistant");
  return conversation.slice(answered + 1).filter(({ role }) => role !== "system" && role !== "developer");
}

/** A conversation was sent whole that ends with an answer. */
export function nothingNew(): AgentError {
  const description =
    "hold nothing new for the session: no message of a user and no result of a tool comes after the last answer";
  return new AgentError("invalid_request", `messages: ${description}`, {
    reason: "NOTHING_NEW",
    fieldViolations: [{ field: "messages", description }],
  });
}
