import type { MissingFunction, PlanDraft, PlanProblem, PlanStep } from "../chat/plan.ts";
import type { FunctionDefinition } from "../tool/function-provider.ts";

/** The functions a plan may call. A `FunctionIndex` is one. */
export interface PlanFunctions {
  readonly definitions: readonly FunctionDefinition[];
  find(name: string): { readonly definition: FunctionDefinition } | undefined;
}

/** What a plan is checked against. */
export interface PlanCheckContext {
  readonly functions: PlanFunctions;
  /** Reads another plan, the newest version where none is named. */
  plans(planId: string, version?: number): Promise<CheckedPlan | undefined>;
  /** Id of the plan itself, where it has one already. */
  readonly planId?: string;
}

/** What the check reads of another plan. */
export type CheckedPlan = Pick<PlanDraft, "steps" | "inputSchema"> & { readonly planId: string };

export interface PlanCheck {
  readonly missingFunctions: readonly MissingFunction[];
  /** Errors first. */
  readonly problems: readonly PlanProblem[];
}

/** Checks all that can be known of a plan before it runs. It can run when nothing is missing and no problem is an error. */
export async function checkPlan(_draft: PlanDraft, _context: PlanCheckContext): Promise<PlanCheck> {
  return { missingFunctions: [], problems: [] };
}

/**
 * What each step of one list waits for, ids of the same list only: its `depends_on`, and the steps that it or a step
 * within it refers to.
 */
export function orderOf(steps: readonly PlanStep[]): ReadonlyMap<string, readonly string[]> {
  return new Map(steps.map((step) => [step.id, step.dependsOn]));
}
