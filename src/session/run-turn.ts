import { AgentError } from "../chat/error.ts";
import type { FinishReason } from "../chat/finish-reason.ts";
import type { LogEvent, RequestAnswer, TurnError } from "../chat/log-event.ts";
import type { Message } from "../chat/message.ts";
import type { PlanOutcome, PlanStepChange } from "../chat/plan.ts";
import type { SessionConfig } from "../chat/session-config.ts";
import { toolFailure } from "../chat/tool-result.ts";
import type { Usage } from "../chat/usage.ts";
import type { FunctionIndex } from "../tool/function-index.ts";
import type { FunctionSets } from "../tool/function-sets.ts";
import type { ServerPermissions } from "../tool/permission.ts";
import { spentBudget } from "./budgets.ts";
import { callModel } from "./call-model.ts";
import { answerFault, answerInvalid, repairText } from "./check-answer.ts";
import { compactIfLarge } from "./compaction.ts";
import { isSameGrant } from "./grants.ts";
import type { CommitExtras, LogWriter } from "./log-writer.ts";
import type { Models } from "./models.ts";
import { nextStep } from "./next-step.ts";
import { FencedError } from "./owned-log.ts";
import { type Profiles, profileOf } from "./profile.ts";
import { cancelTasks, type RunPlanCall, type TaskSessions } from "./run-task.ts";
import { runTools } from "./run-tools.ts";
import { foldRecord, openRequests, ranMs, type SessionState, type TurnState, waitedMs } from "./state.ts";
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
  /** About how many bytes of events of one-off turns may be in memory when another one begins. */
  readonly maxOneOffBytes: number;
  /** Whether an answer that is cut after nothing but text and thinking was shown is asked for once more. */
  readonly retryCutAnswers: boolean;
  /** Times a model is told that its answer is not in the form that was asked for, before the turn fails. */
  readonly maxAnswerRepairs: number;
  /** The part of a model's context window that the history may take before it is compacted; 0 for never. */
  readonly compactAtShare: number;
  /** The context window of models whose own is unknown, in tokens; absent for none. */
  readonly contextWindowTokens?: number;
  /** Somebody is asked when a call is made so many times running with the same arguments; 0 for never. */
  readonly maxRepeatedCalls: number;
  /** How long an approval is waited for, where the session does not say. */
  readonly approvalTimeoutMs: number;
}

export const defaultSessionLimits: SessionLimits = {
  maxSteps: 50,
  maxTurnMs: 30 * 60_000,
  maxCallsPerStep: 64,
  maxParallelTools: 16,
  maxQueuedTurns: 16,
  maxTurnsInFlight: 64,
  maxOneOffBytes: 512 * 1024 * 1024,
  retryCutAnswers: true,
  maxAnswerRepairs: 2,
  compactAtShare: 0.8,
  maxRepeatedCalls: 3,
  approvalTimeoutMs: 5 * 60_000,
};

/** What turns need from the rest of the house. */
export interface TurnEnvironment {
  readonly models: Models;
  /** The functions of the server; a turn keeps those that it begins or goes on with. */
  readonly functions: Pick<FunctionSets, "current" | "changeSince">;
  /** For sessions that have no system prompt of their own. */
  readonly systemPrompt: string;
  readonly limits: SessionLimits;
  /** What holds for the calls of every session, and for all of it where a session says nothing. */
  readonly permissions: ServerPermissions;
  /** What callers choose by a name. */
  readonly profiles: Profiles;
  /** Where tasks are handed to; absent where they can't be. */
  readonly sessions?: TaskSessions;
  /** Executes the plan of a turn that has one; absent where none can be. */
  readonly runPlan?: RunPlan;
  /** Makes, changes and runs plans for the model of a turn; absent where none can be. */
  readonly callPlan?: RunPlanCall;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly newId: (prefix: string) => string;
  readonly report: (level: "info" | "warn" | "error", message: string, facts: Record<string, unknown>) => void;
}

/** A turn that executes a plan, as whoever executes it gets it. */
export interface PlanWork {
  readonly session: RunningSession;
  readonly turn: TurnState;
  readonly functions: FunctionIndex;
  /** Aborts with the reason why the turn ends before its time, or why it is left as it is (`isLeft`). */
  readonly signal: AbortSignal;
  /**
   * Brings into the log what was answered meanwhile, and sees whether the turn is to end; to be called before the plan waits.
   * @throws where the answers can't be read: leave the turn as it is.
   */
  takeAnswers(): Promise<void>;
}

/** What executing a plan came to for now: it waits for an answer or a time, or it has ended and all but the end is recorded. */
export type PlanProgress =
  | { readonly type: "waits"; readonly untilMs: number }
  | {
      readonly type: "ended";
      readonly finishReason: FinishReason;
      readonly outcome: PlanOutcome;
      readonly error?: TurnError;
      /** Of all its models. */
      readonly usage?: Usage;
    };

export type RunPlan = (work: PlanWork) => Promise<PlanProgress>;

/** Ends the work of an owner without a word in the log: another process or a later start goes on with the turn. */
export class StoppedError extends Error {
  override readonly name = "StoppedError";
}

/** Whether an error says that a turn is to be left as it is, for somebody to go on with it. */
export function isLeft(error: unknown): boolean {
  return error instanceof FencedError || error instanceof StoppedError || error instanceof UnreadAnswersError;
}

/** The inbox can't be read at the moment: the turn waits on, and whoever owns it has to come back to it. */
class UnreadAnswersError extends Error {
  override readonly name = "UnreadAnswersError";

  constructor(cause: unknown) {
    super("the answers to pending requests can't be read", { cause });
  }
}

/** One session while its turns run. */
export interface RunningSession {
  readonly sessionId: string;
  readonly tenant: string;
  /** Its log is in the store; false for a one-off turn. */
  readonly isKept: boolean;
  /** Nobody can be asked: what would need an approval or an answer is refused. */
  readonly isUnattended: boolean;
  /** As it was when the turn began or went on. */
  config: SessionConfig;
  readonly state: SessionState;
  readonly writer: LogWriter;
  readonly environment: TurnEnvironment;
  /** Messages with the content that is kept beside the log. */
  readonly withContent: (messages: readonly Message[]) => Promise<readonly Message[]>;
  /** What the owner notes with the events that change it, so that lists need not fold. */
  readonly noted: (state: SessionState) => CommitExtras;
  /** The answers to requests of this turn that have come; those already in the log may be among them. */
  readonly answers: (turnId: string) => Promise<readonly ArrivedAnswer[]>;
  /** Brings into the log, and makes, what somebody changes at once. Absent where nobody can. */
  readonly takeChanges?: (turnId: string) => Promise<void>;
  /** Answers a request of this turn, unless somebody has answered it; what came first is among the `answers`. */
  readonly settle: (turnId: string, answer: RequestAnswer) => Promise<void>;
  /**
   * Called where a turn can go on elsewhere without asking or doing anything again.
   * @throws {StoppedError} when it is to.
   */
  readonly checkpoint?: () => void;
  /** Calls `onNews` when a command has come, until the returned function is called. Absent where answers are waited for. */
  readonly watch?: (onNews: () => void) => () => void;
  /** Why all is to be left at once as it is, also while a cancelled turn is being ended; undefined while nothing asks for it. */
  readonly leaving?: () => Error | undefined;
  /** Inbox entries answered by the end of the turn. */
  readonly keysAnsweredAtEnd: (turnId: string) => readonly string[];
}

export interface ArrivedAnswer {
  readonly answer: RequestAnswer;
  /** The commands it came with. */
  readonly takenKeys: readonly string[];
}

/** A turn that waits for an answer, and costs nothing meanwhile. */
export interface WaitingTurn {
  /** When to go on with it without an answer, in milliseconds since 1970. */
  readonly wakeAtMs: number;
}

/** Adds an event to the log and to the state. */
export function record(session: RunningSession, turnId: string, event: LogEvent, extras?: CommitExtras): void {
  foldRecord(session.state, session.writer.add(turnId, event, extras));
}

/** Opens or answers a request, and notes what waits then. */
export function recordRequest(
  session: RunningSession,
  turnId: string,
  event: Extract<LogEvent, { readonly type: "request-opened" | "request-resolved" }>,
  extras: CommitExtras = {},
): void {
  record(session, turnId, event, extras);
  session.writer.attach(session.noted(session.state));
}

/**
 * Goes on with the turn of a session until it has finished or waits for an answer, and that is committed.
 * @returns for a turn that waits: it is to be gone on with when an answer or its time has come.
 * @param signal its reason says how the turn ends: an AgentError `cancelled` or another one finishes it so, a
 *   StoppedError or FencedError leaves it as it is.
 * @throws {StoppedError | FencedError} as above; what the log throws.
 */
export async function runTurn(session: RunningSession, signal: AbortSignal): Promise<WaitingTurn | undefined> {
  const { environment, state } = session;
  const turn = state.turn;
  if (turn === undefined) return undefined;
  const ending = new AbortController();
  const onAbort = () => ending.abort(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort();
  const bound = timeBound(session, turn);
  const timer = setTimeout(() => ending.abort(bound.error), bound.remainingMs);
  try {
    profileOf(environment.profiles, turn.options); // one that is gone can't be held to
    const functions = await environment.functions.current(session.config.workspace);
    if (turn.plan !== undefined) return await runPlanTurn(session, turn, functions, ending.signal);
    let compactedStep = 0;
    for (;;) {
      await takeAnswersIfReadable(session, turn);
      ending.signal.throwIfAborted();
      session.checkpoint?.();
      const step = nextStep(state, environment.limits.maxSteps, sessionBudget(session));
      switch (step.type) {
        case "wait":
          return undefined;
        case "await-answers": {
          const bound = timeBound(session, turn);
          if (bound.remainingMs <= 0) throw bound.error;
          await session.writer.flushed();
          ending.signal.throwIfAborted();
          return {
            wakeAtMs: Math.min(step.untilMs, timeoutAtMs(turn, environment.limits), Number.MAX_SAFE_INTEGER),
          };
        }
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
          return undefined;
        }
        default:
          step satisfies never;
      }
    }
  } catch (error) {
    if (error instanceof FencedError || error instanceof StoppedError) throw error;
    if (error instanceof UnreadAnswersError) throw error.cause;
    await cancelTasks(session, turn);
    failTurn(session, turn, error);
    await session.writer.flushed();
    return undefined;
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  }
}

async function runPlanTurn(
  session: RunningSession,
  turn: TurnState,
  functions: FunctionIndex,
  signal: AbortSignal,
): Promise<WaitingTurn | undefined> {
  const { runPlan, limits } = session.environment;
  if (runPlan === undefined)
    throw new AgentError("failed_precondition", "this server executes no plans", { reason: "NO_PLANS" });
  const takeAnswers = () => takeAnswersIfReadable(session, turn);
  const progress = await runPlan({ session, turn, functions, signal, takeAnswers });
  if (progress.type === "waits") {
    await session.writer.flushed();
    return { wakeAtMs: Math.min(progress.untilMs, timeoutAtMs(turn, limits), Number.MAX_SAFE_INTEGER) };
  }
  const { finishReason, outcome, error, usage = turn.usage } = progress;
  recordEnd(session, turn, {
    type: "turn-finished",
    finishReason,
    steps: 0,
    ...(usage === undefined ? {} : { usage }),
    ...(error === undefined ? {} : { error }),
    plan: outcome,
  });
  await session.writer.flushed();
  return undefined;
}

async function takeAnswersIfReadable(session: RunningSession, turn: TurnState): Promise<void> {
  try {
    await session.takeChanges?.(turn.turnId);
    await takeAnswers(session, turn);
  } catch (cause) {
    throw new UnreadAnswersError(cause);
  }
}

/** Brings into the log what was answered, and what nobody answered in time. */
async function takeAnswers(session: RunningSession, turn: TurnState): Promise<void> {
  const open = openRequests(session.state);
  if (open.length === 0 && turn.plan === undefined) return;
  const nowMs = session.environment.now();
  for (const { requestId, expireTimeMs = Number.POSITIVE_INFINITY } of open.map(({ request }) => request)) {
    if (expireTimeMs <= nowMs) await session.settle(turn.turnId, { requestId, decision: "expired", author: "" });
  }
  await recordAnswers(session, turn);
  if (turn.plan !== undefined) return;
  // Who allowed a call for the rest of the session is not asked for the same call beside it.
  const calls = turn.answer?.calls ?? [];
  const allowed = calls.filter(({ request }) => request?.answer?.decision === "allow_session");
  const covered = calls.flatMap((call) => {
    const { requestId } = call.request?.request ?? {};
    const by = allowed.find((other) => isSameGrant(call, other))?.request?.answer;
    const waits = call.request?.answer === undefined && call.request?.request.kind === "approval";
    return requestId === undefined || !waits || by === undefined ? [] : { ...by, requestId };
  });
  for (const answer of covered) await session.settle(turn.turnId, answer);
  if (covered.length > 0) await recordAnswers(session, turn);
}

async function recordAnswers(session: RunningSession, turn: TurnState): Promise<void> {
  for (const { answer, takenKeys } of await session.answers(turn.turnId)) {
    const isOpen = openRequests(session.state).some(({ request }) => request.requestId === answer.requestId);
    if (isOpen) recordRequest(session, turn.turnId, { type: "request-resolved", ...answer }, { takenKeys });
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
  for (const { request } of openRequests(session.state)) {
    const text = `the turn ended (${finishReason})`;
    const { requestId } = request;
    record(session, turn.turnId, { type: "request-resolved", requestId, decision: "expired", author: "", text });
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
  if (turn.plan !== undefined) endSteps(session, turn, turn.plan.changes, finishReason);
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

/** No step is left running when a turn ends that executes a plan and failed where nobody expected it. */
function endSteps(
  session: RunningSession,
  turn: TurnState,
  changes: readonly PlanStepChange[],
  finishReason: FinishReason,
): void {
  const last = new Map<string, PlanStepChange>();
  for (const change of changes) last.set(`${change.stepId} ${change.itemPath.join()}`, change);
  for (const { stepId, itemPath, attempt, state } of last.values()) {
    const reason = `interrupted: the execution ended (${finishReason}); the outcome is unknown`;
    const ended = { type: "plan-step", stepId, itemPath, attempt, reason } as const;
    if (state === "running" || state === "waiting") record(session, turn.turnId, { ...ended, state: "cancelled" });
    if (state === "compensating") record(session, turn.turnId, { ...ended, state: "compensation_failed" });
  }
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
    ...(turn.plan === undefined ? {} : { plan: brokenOff(finishReason) }),
  } as const;
  recordEnd(session, turn, event);
}

function brokenOff(finishReason: FinishReason): PlanOutcome {
  return {
    state: finishReason === "cancelled" ? "cancelled" : "failed",
    goalChecks: [],
    output: "null",
    failedStepId: "",
  };
}

/** Ends a turn with its last event. */
export function recordEnd(
  session: RunningSession,
  turn: TurnState,
  event: Extract<LogEvent, { readonly type: "turn-finished" }>,
): void {
  const added = session.writer.add(turn.turnId, event);
  foldRecord(session.state, added);
  session.writer.attach({ takenKeys: session.keysAnsweredAtEnd(turn.turnId), ...session.noted(session.state) });
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

/** When the time is over that the request names for the turn, waiting for answers included. */
function timeoutAtMs(turn: TurnState, { maxTurnMs }: SessionLimits): number {
  const { timeoutMs } = turn.options;
  return timeoutMs !== undefined && timeoutMs <= maxTurnMs ? turn.startedMs + timeoutMs : Number.POSITIVE_INFINITY;
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
