import { AgentError } from "../chat/error.ts";
import type { LogEvent } from "../chat/log-event.ts";
import { type Todo, todosFrom, todosSet } from "../chat/todo.ts";

/** What somebody changes in a session at once: between two steps of a turn, where one runs. */
export type SessionChange =
  | { readonly type: "pause" }
  | { readonly type: "resume" }
  | { readonly type: "todos"; readonly todos: readonly Todo[] };

/** Codes of the notices that say, in the log, that a session waits to be resumed, and that it goes on. */
export const sessionPaused = "SESSION_PAUSED";
export const sessionResumed = "SESSION_RESUMED";

/** What the log says of a change; with it the change is made. */
export function noticeOfChange(change: SessionChange): Extract<LogEvent, { type: "notice" }> {
  const notice = { type: "notice", level: "info" } as const;
  switch (change.type) {
    case "pause":
      return { ...notice, code: sessionPaused, message: "the session is paused: nothing begins until it is resumed" };
    case "resume":
      return { ...notice, code: sessionResumed, message: "the session goes on" };
    case "todos":
      return { ...notice, code: todosSet, message: "somebody has set the todo list", todos: change.todos };
    default:
      return change satisfies never;
  }
}

/** The form the inbox keeps. */
export function encodeSessionChange(change: SessionChange): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(change));
}

/** @throws {AgentError} `data_loss` when the bytes are no change. */
export function decodeSessionChange(bytes: Uint8Array): SessionChange {
  const value: unknown = JSON.parse(new TextDecoder().decode(bytes));
  if (typeof value === "object" && value !== null && "type" in value) {
    const { type } = value;
    if (type === "pause" || type === "resume") return { type };
    const todos = type === "todos" ? todosFrom(value) : undefined;
    if (todos !== undefined) return { type: "todos", todos };
  }
  throw new AgentError("data_loss", "a change of a session can't be read");
}
