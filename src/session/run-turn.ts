import { AgentError } from "../chat/error.ts";
import type { FinishReason } from "../chat/finish-reason.ts";
import type { LogEvent, TurnError } from "../chat/log-event.ts";
import type { Message } from "../chat/message.ts";
import type { SessionConfig } from "../chat/session-config.ts";
import { toolFailure } from "../chat/tool-result.ts";
import type { FunctionIndex } from "../tool/function-index.ts";
import { spentBudget } from "./budgets.ts";
import { callModel } from "./call-model.ts";
import { answerFault, answerInvalid, repairText } from "./check-answer.ts";
import { compactIfLarge } from "./compaction.ts";
import type { CommitExtras, LogWriter } from "./log-writer.ts";
import type { Models } from "./models.ts";
import { nextStep } from "./next-step.ts";
import { FencedError } from "./owned-log.ts";
import { runTools } from "./run-tools.ts";
import { foldRecord, ranMs, type SessionState, type TurnState, waitedMs } from "./state.ts";
import { turnErrorFrom } from "./turn-error.ts";

export interface SessionLimits {
  /** Model calls in a turn, where its request names no bound. */
  readonly maxSteps: number;
  readonly maxTurnMs: number;
  readonly maxCallsPerStep: number;
  readonly maxParallelTools: number;
  /** Turns that wait in one session. */
  readonly maxQueuedTurns: number;
  /** Turns in flight over all sessions. */
  readonly maxTurnsInFlight: number;
  /** Whether an answer that is cut after nothing but text and thinking was shown is asked for once more. */
  readonly retryCutAnswers: boolean;
  /** Times a model is told that its answer is not in the form that was asked for, before the turn fails. */
  readonly maxAnswerRepairs: number;
  /** The part of a model's context window that the history may take before it is compacted; 0 for never. */
  readonly compactAtShare: number;
  /** The context window of models whose own is unknown, in tokens; absent for none. */
  readonly contextWindowTokens?: number;
}

export const defaultSessionLimits: SessionLimits = {
  maxSteps: 50,
  maxTurnMs: 30 * 60_000,
  maxCallsPerStep: 64,
  maxParallelTools: 16,
  maxQueuedTurns: 16,
  maxTurnsInFlight: 64,
  retryCutAnswers: true,
  maxAnswerRepairs: 2,
  compactAtShare: 0.8,
};

/** What turns need from the rest of the house. */
export interface TurnEnvironment {
  readonly models: Models;
  /** The functions of the server, as they are when a turn begins or goes on. */
  readonly functions: () => Promise<FunctionIndex>;
  /** For sessions that have no system prompt of their own. */
  readonly systemPrompt: string;
  readonly limits: SessionLimits;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly newId: (prefix: string) => string;
  readonly report: (level: "info" | "warn" | "error", message: string, facts: Record<string, unknown>) => void;
}

/** Ends the work of an owner without a word in the log: another process or a later start goes on with the turn. */
export class StoppedError extends Error {
  override readonly name = "StoppedError";
}

/** One session while its turns run. */
export interface RunningSession {
  readonly sessionId: string;
  /** As it was when the turn began or went on. */
  config: SessionConfig;
  readonly state: SessionState;
  readonly writer: LogWriter;
  readonly environment: TurnEnvironment;
  /** Messages with the content that is kept beside the log. */
  readonly withContent: (messages: readonly Message[]) => Promise<readonly Message[]>;
  /** What the owner notes with the end of a turn, so that lists need not fold. */
  readonly summary: (state: SessionState) => Uint8Array;
  /**
   * Called where a turn can go on elsewhere without asking or doing anything again.
   * @throws {StoppedError} when it is to.
   */
  readonly checkpoint?: () => void;
  /** Inbox entries answered by the end of the turn. */
  readonly keysAnsweredAtEnd: (turnId: string) => readonly string[];
}

/** Adds an event to the log and to the state. */
export function record(session: RunningSession, turnId: string, event: LogEvent, extras?: CommitExtras): void {
  foldRecord(session.state, session.writer.add(turnId, event, extras));
}

/**
 * Goes on with the turn of a session until it has finished and that is committed.
 * @param signal its reason says how the turn ends: an AgentError `cancelled` or another one finishes it so, a
 *   StoppedError or FencedError leaves it as it is.
 * @throws {StoppedError | FencedError} as above; what the log throws.
 */
export async function runTurn(session: RunningSession, signal: AbortSignal): Promise<void> {
  const { environment, state } = session;
  const turn = state.turn;
  if (turn === undefined) return;
  const ending = new AbortController();
  const onAbort = () => ending.abort(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort();
  const bound = timeBound(session, turn);
  const timer = setTimeout(() => ending.abort(bound.error), bound.remainingMs);
  try {
    const functions = await environment.functions();
    let compactedStep = 0;
    for (;;) {
      ending.signal.throwIfAborted();
      session.checkpoint?.();
      const step = nextStep(state, environment.limits.maxSteps, sessionBudget(session));
      switch (step.type) {
        case "wait":
          return;
        case "call-model":
          if (compactedStep < step.step && (await compactIfLarge(session, turn, ending.signal))) {
            compactedStep = step.step; // what it cost may have used up a budget
            break;
          }
          await callModel(session, turn, functions, step, ending.signal);
          break;
        case "run-tools":
          await runTools(session, turn, functions, step.calls, ending.signal);
          break;
        case "finish-turn": {
          const fault = answerFault(state, turn, step.finishReason);
          if (fault !== undefined) {
            if (!fault.isRepairable || turn.rejectedAnswers >= environment.limits.maxAnswerRepairs)
              throw answerInvalid(turn, fault.what);
            record(session, turn.turnId, {
              type: "notice",
              level: "warning",
              code: "ANSWER_REJECTED",
              message: `the answer ${fault.what}; the model is asked for another one`,
              modelText: repairText(fault.what),
            });
            break;
          }
          finishTurn(session, turn, step.finishReason, step.finishReason === "error" ? lostError() : undefined);
          await session.writer.flushed();
          return;
        }
        default:
          step satisfies never;
      }
    }
  } catch (error) {
    if (error instanceof FencedError || error instanceof StoppedError) throw error;
    failTurn(session, turn, error);
    await session.writer.flushed();
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  }
}

/** Ends a turn that can't go on: cancelled, out of time or failed. */
function failTurn(session: RunningSession, turn: TurnState, error: unknown): void {
  const finishReason = finishReasonOf(error);
  if (turn.step > 0 && turn.answer === undefined) {
    // Left over from an owner that died, perhaps in the middle of a block: a new attempt voids what it began.
    const { model = "", provider = "" } = turn.asked ?? {};
    record(session, turn.turnId, {
      type: "step-started",
      step: turn.step,
      attempt: turn.attempt + 1,
      model,
      provider,
    });
    record(session, turn.turnId, {
      type: "step-finished",
      step: turn.step,
      attempt: turn.attempt,
      finishReason: finishReason === "budget" ? "cancelled" : finishReason,
      rawFinishReason: "",
    });
  }
  for (const call of turn.answer?.calls ?? []) {
    if (call.started === undefined || call.result !== undefined) continue;
    record(session, turn.turnId, {
      type: "tool-finished",
      toolCallId: call.use.id,
      name: call.use.name,
      result: toolFailure(
        `interrupted: the turn ended (${finishReason}); the outcome is unknown, check before trying again`,
      ),
    });
  }
  if (finishReason !== "error") {
    finishTurn(session, turn, finishReason, undefined, error instanceof AgentError ? error.message : undefined);
    return;
  }
  if (!(error instanceof AgentError)) {
    session.environment.report("error", "a turn failed", { sessionId: session.sessionId, turnId: turn.turnId, error });
  }
  const mayHaveChanged =
    turn.answer?.calls.some((call) => call.started !== undefined && !call.started.readOnly) ?? false;
  finishTurn(session, turn, finishReason, turnErrorFrom(error, mayHaveChanged));
}

/** The server died between the end of a failed step and that of its turn. */
function lostError(): TurnError {
  const message = "the server stopped while the turn was failing, and what it failed of is lost; ask again";
  return turnErrorFrom(new AgentError("unavailable", message, { detail: { retryable: true } }), true);
}

/** @param budget says which budget ends the turn, where the fold does not tell */
function finishTurn(
  session: RunningSession,
  turn: TurnState,
  finishReason: FinishReason,
  error?: TurnError,
  budget = spentBudget(session.state, sessionBudget(session))?.message ?? "a budget of the turn is used up",
): void {
  if (finishReason === "budget") {
    const message = `the turn ends: ${budget}`;
    record(session, turn.turnId, { type: "notice", level: "warning", code: "BUDGET_EXHAUSTED", message });
  }
  const event = {
    type: "turn-finished",
    finishReason,
    steps: turn.step,
    ...(turn.usage === undefined ? {} : { usage: turn.usage }),
    ...(error === undefined ? {} : { error }),
  } as const;
  const added = session.writer.add(turn.turnId, event);
  foldRecord(session.state, added);
  session.writer.attach({ takenKeys: session.keysAnsweredAtEnd(turn.turnId), summary: session.summary(session.state) });
}

/** How a turn ends that something stopped. */
export function finishReasonOf(error: unknown): FinishReason {
  if (!(error instanceof AgentError)) return "error";
  if (error.kind === "cancelled") return "cancelled";
  return error.reason === "BUDGET_DURATION" ? "budget" : "error";
}

function sessionBudget({ config, environment }: RunningSession) {
  return { budget: config.budget, nowMs: environment.now() };
}

interface TimeBound {
  /** 0 for one that is over. */
  readonly remainingMs: number;
  readonly error: AgentError;
}

/**
 * The bound of time that ends first. One that the request or the session names counts from the turn's beginning, the
 * server's own from when it goes on after a restart.
 */
function timeBound({ environment, config, state }: RunningSession, turn: TurnState): TimeBound {
  const { maxTurnMs } = environment.limits;
  const nowMs = environment.now();
  const usedMs = ranMs(turn, nowMs);
  const { timeoutMs, budget } = turn.options;
  const late = (limitMs: number) =>
    new AgentError("deadline", `the turn took longer than ${limitMs} ms`, { reason: "TURN_TIMEOUT" });
  const spent = (message: string) => new AgentError("resource_exhausted", message, { reason: "BUDGET_DURATION" });
  const bounds: TimeBound[] = [{ remainingMs: maxTurnMs, error: late(maxTurnMs) }];
  if (timeoutMs !== undefined && timeoutMs <= maxTurnMs) {
    bounds.push({ remainingMs: timeoutMs - usedMs - waitedMs(turn, nowMs), error: late(timeoutMs) });
  }
  if (budget?.maxDurationMs !== undefined) {
    const { maxDurationMs: limitMs } = budget;
    bounds.push({ remainingMs: limitMs - usedMs, error: spent(`the turn's budget of ${limitMs} ms is used up`) });
  }
  if (config.budget?.maxDurationMs !== undefined) {
    const { maxDurationMs: limitMs } = config.budget;
    const message = `the session's budget of ${limitMs} ms is used up: turns before this one took ${state.ranMs} ms`;
    bounds.push({ remainingMs: limitMs - state.ranMs - usedMs, error: spent(message) });
  }
  const first = bounds.reduce((least, bound) => (bound.remainingMs < least.remainingMs ? bound : least));
  return { ...first, remainingMs: Math.max(0, first.remainingMs) };
}
