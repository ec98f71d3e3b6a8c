import { AgentError } from "../chat/error.ts";
import type { Budget } from "../chat/request.ts";
import { addUsage, type Usage } from "../chat/usage.ts";
import { ranMs, type SessionState, type TurnState } from "./state.ts";

/** A bound that is met. */
export interface SpentBudget {
  readonly reason: "BUDGET_COST" | "BUDGET_TOKENS" | "BUDGET_DURATION";
  /** Which bound, how large it is and how much was used. */
  readonly message: string;
}

/** Bounds of a session, and the time to hold them against. */
export interface SessionBudget {
  readonly budget: Budget | undefined;
  readonly nowMs: number;
}

/**
 * The first bound of the running turn or of its session that is met, so that no other model call may begin. The turn's
 * own bound of time is held by a clock, not here.
 */
export function spentBudget(state: SessionState, session: SessionBudget): SpentBudget | undefined {
  const { turn } = state;
  if (turn === undefined) return undefined;
  return (
    spentOf("turn", turn.options.budget, turnUsage(turn), undefined) ??
    spentOf("session", session.budget, sessionUsage(state), state.ranMs + Math.max(0, ranMs(turn, session.nowMs)))
  );
}

/**
 * A share of what is left of the tokens and the costs that the running turn and its session may use.
 * @param shares how many may have as much
 * @returns undefined where neither is bounded
 */
export function budgetLeft(state: SessionState, ofSession: Budget | undefined, shares: number): Budget | undefined {
  const { turn } = state;
  const bounds = [
    { budget: turn?.options.budget, usage: turn && turnUsage(turn) },
    { budget: ofSession, usage: sessionUsage(state) },
  ];
  const least = (limit: "maxTotalTokens" | "maxCostNanoUsd", used: (usage: Usage | undefined) => number) => {
    const left = bounds.flatMap(({ budget, usage }) => {
      const most = budget?.[limit];
      return most === undefined ? [] : Math.max(0, Math.floor((most - used(usage)) / shares));
    });
    return left.length === 0 ? {} : { [limit]: Math.min(...left) };
  };
  const budget = { ...least("maxTotalTokens", totalTokens), ...least("maxCostNanoUsd", totalCost) };
  return Object.keys(budget).length === 0 ? undefined : budget;
}

/** Of the turn, and of the tasks it handed over. */
function turnUsage({ usage, taskUsage }: TurnState): Usage | undefined {
  return taskUsage === undefined ? usage : addUsage(usage, taskUsage);
}

/** Of all turns of a session, and of the tasks they handed over. */
function sessionUsage({ usage, taskUsage, turn }: SessionState): Usage | undefined {
  const all = [usage, taskUsage, turn?.usage, turn?.taskUsage].filter((each) => each !== undefined);
  return all.length === 0 ? undefined : all.reduce((sum, each) => addUsage(sum, each));
}

/** The first bound that is met by what was used. */
export function spentOf(
  whose: "turn" | "session" | "plan",
  budget: Budget | undefined,
  usage: Usage | undefined,
  usedMs: number | undefined,
): SpentBudget | undefined {
  const { maxCostNanoUsd, maxTotalTokens, maxDurationMs } = budget ?? {};
  const tokens = totalTokens(usage);
  const cost = totalCost(usage);
  const spent = (limit: number, used: number, unit: string) =>
    `the ${whose}'s budget of ${limit} ${unit} is used up: ${used} ${unit} were used`;
  if (maxTotalTokens !== undefined && tokens >= maxTotalTokens)
    return { reason: "BUDGET_TOKENS", message: spent(maxTotalTokens, tokens, "tokens") };
  if (maxCostNanoUsd !== undefined && cost >= maxCostNanoUsd)
    return { reason: "BUDGET_COST", message: spent(maxCostNanoUsd, cost, "billionths of a dollar") };
  if (maxDurationMs !== undefined && usedMs !== undefined && usedMs >= maxDurationMs)
    return { reason: "BUDGET_DURATION", message: spent(maxDurationMs, usedMs, "ms") };
  return undefined;
}

/** Not every step tells a total: what was read and written counts at least. */
function totalTokens(usage: Usage | undefined): number {
  return Math.max(usage?.totalTokens ?? 0, (usage?.inputTokens ?? 0) + (usage?.outputTokens ?? 0));
}

function totalCost(usage: Usage | undefined): number {
  return usage?.costNanoUsd ?? 0;
}

/** Refuses work in a session that has used up a budget. */
export function budgetError(sessionId: string, { reason, message }: SpentBudget): AgentError {
  return new AgentError("resource_exhausted", `session ${sessionId}: ${message}; raise it with UpdateSession`, {
    reason,
    // Somebody has to raise it: asking again at once is of no use.
    retryAfterMs: 60_000,
  });
}
