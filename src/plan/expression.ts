import type { PlanScope } from "./plan-scope.ts";

/** Where a condition stands: within `for_each` there are `item` and `index` too. */
export interface ConditionPlace {
  readonly inForEach: boolean;
}

/** Why a condition can't be used, as the end of a sentence; undefined when it can. */
export function checkCondition(_text: string, _place: ConditionPlace): string | undefined {
  return undefined;
}

/** Ids of the steps a condition refers to, each once. Of one that can't be read there are none. */
export function stepsNamedIn(_text: string): readonly string[] {
  return [];
}

/**
 * Whether a condition holds. Empty text always does; null is false.
 * @throws {PlanValueError} where it can't be evaluated or is neither true nor false.
 */
export function evaluateCondition(_text: string, _scope: PlanScope): boolean {
  return true;
}
