import { AgentError } from "../chat/error.ts";
import type { Usage } from "../chat/usage.ts";
import { openRequests, type SessionState } from "./state.ts";

/** What lists show of a session without folding its log. */
export interface SessionSummary {
  readonly messageCount: number;
  readonly usage?: Usage;
  /** How long the finished turns ran in all. */
  readonly ranMs: number;
  /** The turn that runs; empty for none. */
  readonly currentTurnId: string;
  readonly paused?: true;
  /** What waits for an answer, in the order it was opened. */
  readonly requests: readonly RequestReference[];
}

/** Where in the log a pending request is. */
export interface RequestReference {
  readonly requestId: string;
  /** Its `request-opened`. */
  readonly seq: number;
  /** In milliseconds since 1970; absent where it never expires. */
  readonly expireTimeMs?: number;
  /** It is no approval but a question. */
  readonly isQuestion?: true;
  /** It is no approval but a call that a client runs. */
  readonly isTool?: true;
}

export function summaryOf(state: SessionState): SessionSummary {
  return {
    messageCount: state.messages.length,
    ranMs: state.ranMs,
    currentTurnId: state.turn?.turnId ?? "",
    requests: openRequests(state).map(({ seq, request: { requestId, expireTimeMs, kind } }) => ({
      requestId,
      seq,
      ...(kind === "question" ? { isQuestion: true } : {}),
      ...(kind === "client_tool" ? { isTool: true } : {}),
      ...(expireTimeMs === undefined ? {} : { expireTimeMs }),
    })),
    ...(state.paused ? { paused: true } : {}),
    ...(state.usage === undefined ? {} : { usage: state.usage }),
  };
}

/** Since when something waits for an answer, in milliseconds since 1970; `null` when nothing does. */
export function waitingSince(state: SessionState): number | null {
  const times = openRequests(state).map(({ openedMs }) => openedMs);
  return times.length === 0 ? null : Math.min(...times);
}

export function encodeSummary(summary: SessionSummary): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(summary));
}

/** @throws {AgentError} `data_loss` when the bytes are no summary. */
export function decodeSummary(bytes: Uint8Array): SessionSummary {
  const value: unknown = JSON.parse(new TextDecoder().decode(bytes));
  if (!isRecord(value)) throw new AgentError("data_loss", "the summary of a session can't be read");
  const { messageCount, currentTurnId, usage, ranMs, requests, paused } = value;
  return {
    messageCount: typeof messageCount === "number" ? messageCount : 0,
    ranMs: typeof ranMs === "number" ? ranMs : 0,
    currentTurnId: typeof currentTurnId === "string" ? currentTurnId : "",
    requests: Array.isArray(requests) ? requests.flatMap(referenceFrom) : [],
    ...(paused === true ? { paused } : {}),
    ...(isRecord(usage) ? { usage: usageFrom(usage) } : {}),
  };
}

function referenceFrom(value: unknown): RequestReference[] {
  if (!isRecord(value)) return [];
  const { requestId, seq, expireTimeMs, isQuestion, isTool } = value;
  if (typeof requestId !== "string" || typeof seq !== "number") return [];
  return [
    {
      requestId,
      seq,
      ...(typeof expireTimeMs === "number" ? { expireTimeMs } : {}),
      ...(isQuestion === true ? { isQuestion } : {}),
      ...(isTool === true ? { isTool } : {}),
    },
  ];
}

function usageFrom(value: Record<string, unknown>): Usage {
  const count = (key: keyof Usage) => {
    const number = value[key];
    return typeof number === "number" ? { [key]: number } : {};
  };
  return {
    ...count("inputTokens"),
    ...count("outputTokens"),
    ...count("totalTokens"),
    ...count("cacheReadTokens"),
    ...count("cacheCreationTokens"),
    ...count("reasoningTokens"),
    ...count("costNanoUsd"),
    ...(typeof value["priceSource"] === "string" ? { priceSource: value["priceSource"] } : {}),
    ...(value["partial"] === true ? { partial: true } : {}),
  };
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
