import { create } from "@bufbuild/protobuf";
import {
  type AgentEvent,
  AgentEventSchema,
  AgentEvent_EventType as EventType,
} from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { invalidField } from "../../chat/error.ts";
import type { LogEvent, LogRecord, PendingRequest, PendingRequestKind, RequestAnswer } from "../../chat/log-event.ts";
import type { ToolResult } from "../../chat/tool-result.ts";
import { deniedByPolicy } from "../../session/judge-call.ts";
import { answeredBy } from "../../session/session-errors.ts";
import type { LegacyEvent } from "./legacy-events.ts";

/** Longest text in an event's data, in UTF-16 units. */
const mostCharacters = 64 * 1024;

/** Events of a log that clients of the earlier service hear of. */
const toldTypes: ReadonlySet<LogEvent["type"]> = new Set([
  "turn-started",
  "turn-finished",
  "tool-started",
  "tool-finished",
  "request-opened",
  "request-resolved",
  "notice",
]);

export function isTold({ event }: LogRecord): boolean {
  return toldTypes.has(event.type);
}

/** A type by its name, with or without its prefix, in any case. */
function typeNamed(name: string): EventType | undefined {
  const key = name
    .trim()
    .toUpperCase()
    .replaceAll("-", "_")
    .replace(/^EVENT_TYPE_/, "");
  const type = Object.entries(EventType).find(([each]) => each === key)?.[1];
  return typeof type === "number" && type !== EventType.UNKNOWN ? type : undefined;
}

/**
 * The types that a subscriber names; all of them where it names none.
 * @throws {AgentError} `invalid_request` for a name that is no type.
 */
export function typesFrom(names: readonly string[]): (event: AgentEvent) => boolean {
  const types = new Set(
    names.map((name, index) => {
      const known = Object.keys(EventType).filter((each) => /^[A-Z_]+$/.test(each) && each !== "UNKNOWN");
      const said = JSON.stringify(name.slice(0, 60));
      return typeNamed(name) ?? invalid(`event_types[${index}]`, `is ${said}; say one of ${known.join(", ")}`);
    }),
  );
  return ({ type }) => types.size === 0 || types.has(type);
}

function invalid(field: string, description: string): never {
  throw invalidField(field, description);
}

/** What is in no log; nothing for a type that has no name. */
export function eventFromLegacy({ type, sessionId, message, data, timeMs }: LegacyEvent): AgentEvent[] {
  const known = typeNamed(type);
  return known === undefined ? [] : [eventOf(known, sessionId, timeMs, message, data)];
}

/**
 * Says what happened in a session as the earlier service did.
 * @param kinds of pending requests by id: read, and added to
 */
export function eventsFromRecord(
  sessionId: string,
  { seq, turnId, timeMs, event }: LogRecord,
  kinds: Map<string, PendingRequestKind>,
): AgentEvent[] {
  const about = (type: EventType, message: string, data: Readonly<Record<string, string | undefined>> = {}) =>
    eventOf(type, sessionId, timeMs, message, { turn_id: turnId, seq: String(seq), ...data });
  switch (event.type) {
    case "turn-started":
      return [
        about(EventType.GENERATION_STARTED, "the generation has started", {
          model: event.model,
          request_id: event.requestId || undefined,
        }),
      ];
    case "turn-finished": {
      const { finishReason, error, usage, steps } = event;
      const failed = error && about(EventType.ERROR, error.message, { reason: error.reason, kind: error.kind });
      const ended = about(EventType.GENERATION_COMPLETED, `the generation has ended: ${finishReason}`, {
        finish_reason: finishReason,
        steps: String(steps),
        prompt_tokens: countText(usage?.inputTokens),
        completion_tokens: countText(usage?.outputTokens),
      });
      return failed === undefined ? [ended] : [failed, ended];
    }
    case "tool-started": {
      const { toolCallId, name, source } = event;
      const data = { tool_id: toolCallId, tool_name: name, source };
      return [about(EventType.TOOL_CALLED, `${name} was called`, data)];
    }
    case "tool-finished": {
      const { toolCallId, name, result } = event;
      const data = { tool_id: toolCallId, tool_name: name, ...resultData(result) };
      const done = about(EventType.TOOL_COMPLETED, `${name} ${result.success ? "succeeded" : "failed"}`, data);
      if (result.error?.startsWith(deniedByPolicy) !== true) return [done];
      const denied = about(EventType.PERMISSION_DENIED, `${name} was ${result.error}`, {
        tool_id: toolCallId,
        tool_name: name,
        reason: result.error.slice(deniedByPolicy.length),
      });
      return [denied, done];
    }
    case "request-opened": {
      const { request } = event;
      kinds.set(request.requestId, request.kind);
      const isTask = request.kind === "client_tool";
      const type = isTask ? EventType.EXTERNAL_TASK_PENDING : EventType.CONFIRMATION_REQUIRED;
      return [about(type, request.title, requestData(request, timeMs))];
    }
    case "request-resolved": {
      const kind = kinds.get(event.requestId) ?? (event.toolResult === undefined ? "approval" : "client_tool");
      kinds.delete(event.requestId);
      const isTask = kind === "client_tool";
      const isLate = event.decision === "expired";
      const answered = isTask ? EventType.EXTERNAL_TASK_COMPLETED : EventType.CONFIRMATION_RECEIVED;
      const type = isLate && !isTask ? EventType.CONFIRMATION_TIMEOUT : answered;
      return [about(type, answerText(event), answerData(event, isTask))];
    }
    case "notice": {
      const type = event.level === "warning" ? EventType.WARNING : EventType.INFO;
      return [about(type, event.message, { code: event.code })];
    }
    default:
      return [];
  }
}

/** Something to say to one subscriber only. */
export function warning(sessionId: string, timeMs: number, message: string, code: string): AgentEvent {
  return eventOf(EventType.WARNING, sessionId, timeMs, message, { code });
}

/** The session is gone, and nothing more is to be heard of it. */
export function sessionDestroyed(sessionId: string, timeMs: number): AgentEvent {
  return eventOf(EventType.SESSION_DESTROYED, sessionId, timeMs, `session ${sessionId} was destroyed`, {});
}

function eventOf(
  type: EventType,
  sessionId: string,
  timeMs: number,
  message: string,
  data: Readonly<Record<string, string | undefined>>,
): AgentEvent {
  const texts: Record<string, string> = {};
  for (const [key, value] of Object.entries(data)) {
    if (value === undefined) continue;
    const text = value.toWellFormed();
    texts[key] = text.slice(0, mostCharacters).toWellFormed();
    if (text.length > mostCharacters) texts[`${key}_truncated`] = "true";
  }
  return create(AgentEventSchema, {
    type,
    ...(sessionId === "" ? {} : { sessionId }),
    timestamp: BigInt(timeMs),
    message: message.slice(0, mostCharacters).toWellFormed(),
    data: texts,
  });
}

/** `tool_id` is the request's, since an approval is of what was asked for and not of the call, which may be asked for again. */
function requestData(request: PendingRequest, timeMs: number): Record<string, string | undefined> {
  const { requestId, kind, toolCallId, toolName, arguments: given, explanation, expireTimeMs, lane } = request;
  return {
    ...(kind === "client_tool" ? { task_id: requestId } : { tool_id: requestId }),
    request_id: requestId,
    tool_call_id: toolCallId,
    tool_name: toolName,
    arguments: given,
    kind,
    lane,
    reason: explanation,
    timeout_ms: expireTimeMs === undefined ? undefined : String(Math.max(0, expireTimeMs - timeMs)),
    expires_at: countText(expireTimeMs),
  };
}

function answerText({ requestId, decision, author }: RequestAnswer): string {
  if (decision === "expired") return `nobody answered ${requestId} in time`;
  return `${requestId} ${answeredBy(decision, author)}`;
}

function answerData({ requestId, decision, author, text, toolResult }: RequestAnswer, isTask: boolean) {
  const isAllowed = decision === "allow_once" || decision === "allow_session" || decision === "answer";
  return {
    ...(isTask ? { task_id: requestId } : { tool_id: requestId, approved: String(isAllowed) }),
    request_id: requestId,
    decision,
    author: author || undefined,
    reason: text,
    ...(toolResult === undefined ? {} : resultData(toolResult)),
  };
}

function resultData({ success, output, error, durationMs }: ToolResult) {
  return { success: String(success), output, error, duration_ms: countText(durationMs) };
}

function countText(count: number | undefined): string | undefined {
  return count === undefined ? undefined : String(Math.round(count));
}
