import type { FinishReason } from "../chat/finish-reason.ts";
import { type SessionBudget, spentBudget } from "./budgets.ts";
import { type CallState, openRequests, type RequestState, type SessionState, type TurnState } from "./state.ts";

/** What is to be done next in a session. A crash is survived by folding the log and asking again. */
export type NextStep =
  /** No turn runs: look into the inbox. */
  | { readonly type: "wait" }
  | { readonly type: "call-model"; readonly step: number; readonly attempt: number }
  /** In order; `run-again` was begun before and only reads, `report-interrupted` was begun and may have changed something. */
  | { readonly type: "run-tools"; readonly calls: readonly PlannedCall[] }
  /** Somebody has to answer, or to resume the session, before the turn can go on; what nobody answers expires at `untilMs`, or never. */
  | { readonly type: "await-answers"; readonly untilMs: number }
  | { readonly type: "finish-turn"; readonly finishReason: FinishReason };

export interface PlannedCall {
  readonly call: CallState;
  readonly action: "run" | "run-again" | "report-interrupted";
}

/**
 * @param maxSteps model calls a turn may make when its request names no bound
 * @param session the bounds of the session, where it has some
 */
export function nextStep(state: SessionState, maxSteps: number, session = noBudget): NextStep {
  const step = unpausedStep(state, maxSteps, session);
  if (!state.paused || (step.type !== "call-model" && step.type !== "run-tools")) return step;
  return { type: "await-answers", untilMs: firstExpiryMs(openRequests(state)) };
}

function unpausedStep(state: SessionState, maxSteps: number, session: SessionBudget): NextStep {
  const { turn } = state;
  if (turn === undefined) return { type: "wait" };
  if (turn.step === 0) return firstAttempt(state, turn, 1, maxSteps, session);
  const { answer } = turn;
  if (answer === undefined) return { type: "call-model", step: turn.step, attempt: turn.attempt + 1 };

  // An answer that was cut may hold a cut call: it is never run.
  const wantsTools = answer.finishReason === "tool_calls" || answer.finishReason === "stop";
  if (answer.continues && answer.calls.length === 0) return firstAttempt(state, turn, turn.step + 1, maxSteps, session);
  if (!wantsTools || answer.calls.length === 0) {
    return { type: "finish-turn", finishReason: answer.finishReason === "tool_calls" ? "stop" : answer.finishReason };
  }
  const theClients = new Set(turn.clientTools.map((tool) => tool.name));
  const ours = answer.calls.filter((call) => !theClients.has(call.use.name));
  const open = ours.filter((call) => call.result === undefined);
  const stepsLeft = turn.step < (turn.options.maxSteps ?? maxSteps);
  if (open.length > 0) {
    const begun = open.some((call) => call.started !== undefined);
    if (!stepsLeft && !begun && ours.length === answer.calls.length)
      return { type: "finish-turn", finishReason: "max_steps" };
    const ready = open.filter((call) => call.request === undefined || call.request.answer !== undefined);
    if (ready.length === 0)
      return { type: "await-answers", untilMs: firstExpiryMs(open.flatMap(({ request }) => request ?? [])) };
    return { type: "run-tools", calls: ready.map((call) => ({ call, action: actionFor(call) })) };
  }
  if (ours.length < answer.calls.length) return { type: "finish-turn", finishReason: "tool_calls" };
  return firstAttempt(state, turn, turn.step + 1, maxSteps, session);
}

const noBudget: SessionBudget = { budget: undefined, nowMs: 0 };

function firstAttempt(
  state: SessionState,
  turn: TurnState,
  step: number,
  maxSteps: number,
  session: SessionBudget,
): NextStep {
  if (step > (turn.options.maxSteps ?? maxSteps)) return { type: "finish-turn", finishReason: "max_steps" };
  if (spentBudget(state, session) !== undefined) return { type: "finish-turn", finishReason: "budget" };
  return { type: "call-model", step, attempt: 1 };
}

function firstExpiryMs(requests: readonly RequestState[]): number {
  return Math.min(...requests.map(({ request }) => request.expireTimeMs ?? Number.POSITIVE_INFINITY));
}

function actionFor(call: CallState): PlannedCall["action"] {
  if (call.started === undefined) return "run";
  return call.started.readOnly ? "run-again" : "report-interrupted";
}
