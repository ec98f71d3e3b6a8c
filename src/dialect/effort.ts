import { invalidField } from "../chat/error.ts";
import type { ThinkingOptions } from "../chat/request.ts";

/** How hard a model may be told to think, from not at all. */
export const efforts = ["none", "minimal", "low", "medium", "high", "xhigh", "max"] as const;
export type Effort = (typeof efforts)[number];

/** What a caller wants of a model's thinking. */
export type ThinkingWish =
  | { readonly type: "unsaid" }
  | { readonly type: "off" }
  | {
      readonly type: "on";
      /** It was asked for by name, so that it should be shown. */
      readonly enabled: boolean;
      readonly effort?: Effort;
      readonly budgetTokens?: number;
    };

/**
 * Reads the options. Not enabled, or an effort of `none`, is off whatever else is said; an effort or a budget alone
 * asks for thinking.
 * @throws {AgentError} `invalid_request` for an effort nobody knows.
 */
export function thinkingWish(options: ThinkingOptions | undefined): ThinkingWish {
  const word = options?.effort || undefined;
  const effort = efforts.find((known) => known === word);
  if (word !== undefined && effort === undefined) {
    const shown = JSON.stringify(word.slice(0, 40));
    throw invalidField("options.thinking.effort", `is ${shown}; must be one of ${efforts.join(", ")}`);
  }
  const { enabled, budgetTokens } = options ?? {};
  if (enabled === false || effort === "none") return { type: "off" };
  if (!enabled && effort === undefined && budgetTokens === undefined) return { type: "unsaid" };
  return {
    type: "on",
    enabled: enabled ?? false,
    ...(effort === undefined ? {} : { effort }),
    ...(budgetTokens === undefined ? {} : { budgetTokens }),
  };
}

/** The level nearest to the one that is wanted; of two equally near ones the higher. Undefined where there is none. */
export function nearestEffort(wanted: Effort, levels: readonly Effort[]): Effort | undefined {
  let nearest: Effort | undefined;
  for (const level of byStrength(levels)) {
    if (nearest === undefined || distance(level, wanted) <= distance(nearest, wanted)) nearest = level;
  }
  return nearest;
}

/** What stands for "do not think": `none` where it is a level, else the least of them. */
export function leastEffort(levels: readonly Effort[]): Effort | undefined {
  return levels.includes("none") ? "none" : byStrength(levels)[0];
}

/** Those that have a model think, from the least. */
function byStrength(levels: readonly Effort[]): Effort[] {
  return efforts.filter((effort) => effort !== "none" && levels.includes(effort));
}

function distance(one: Effort, other: Effort): number {
  return Math.abs(efforts.indexOf(one) - efforts.indexOf(other));
}

/** Budgets that stand for efforts where a wire has only the one of them. Each effort ends where its limit begins. */
const budgets = [
  { effort: "minimal", limit: 1024, budgetTokens: 1024 },
  { effort: "low", limit: 4096, budgetTokens: 2048 },
  { effort: "medium", limit: 16_384, budgetTokens: 8192 },
  { effort: "high", limit: 24_576, budgetTokens: 16_384 },
  { effort: "xhigh", limit: Number.POSITIVE_INFINITY, budgetTokens: 24_576 },
] as const;

/** Below 1,024 tokens `minimal`, below 4,096 `low`, below 16,384 `medium`, below 24,576 `high`, from there `xhigh`. */
export function effortOfBudget(budgetTokens: number): Effort {
  return budgets.find(({ limit }) => budgetTokens < limit)?.effort ?? "xhigh";
}

/**
 * 1,024 tokens for `minimal`, 2,048 for `low`, 8,192 for `medium`, 16,384 for `high`, 24,576 for more: with an answer no
 * model is asked for more than it can write.
 */
export function budgetOfEffort(effort: Effort): number {
  return (budgets.find((level) => level.effort === effort) ?? budgets[4]).budgetTokens;
}

/** The effort that was named, or that the budget stands for. */
export function effortOf(wish: Extract<ThinkingWish, { type: "on" }>): Effort | undefined {
  return wish.effort ?? (wish.budgetTokens === undefined ? undefined : effortOfBudget(wish.budgetTokens));
}
