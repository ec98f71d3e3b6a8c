import type { TurnError } from "./log-event.ts";
import type { Usage } from "./usage.ts";

export const planStepKinds = [
  "function_call",
  "user_input",
  "branch",
  "for_each",
  "parallel",
  "model",
  "sub_plan",
] as const;

/** What a failed step means for the plan: it ends, what depends on the step is skipped, or it goes on with a null output. */
export const onErrorPolicies = ["fail", "skip", "continue"] as const;
export type OnErrorPolicy = (typeof onErrorPolicies)[number];

export const planComplexities = ["simple", "medium", "complex", "very_complex"] as const;
export type PlanComplexity = (typeof planComplexities)[number];

/** How a failed step is tried again; what is absent has the default of the contract. */
export interface PlanRetry {
  readonly maxAttempts?: number;
  readonly delayMs?: number;
  readonly backoffFactor?: number;
  readonly maxDelayMs?: number;
}

/** A function call that undoes a step. */
export interface PlanCompensation {
  readonly function: string;
  /** JSON text, with references. */
  readonly parameters: string;
  readonly description: string;
}

/** One step of a plan; what only its kind has is in `details`. */
export interface PlanStep {
  /** Unique in the plan, nested steps included. */
  readonly id: string;
  readonly description: string;
  /** Ids of steps of the same list. */
  readonly dependsOn: readonly string[];
  /** Empty means always. */
  readonly condition: string;
  readonly retry?: PlanRetry;
  readonly timeoutMs?: number;
  readonly onError: OnErrorPolicy;
  readonly compensation?: PlanCompensation;
  readonly details: PlanStepDetails;
}

/** JSON texts may hold references, objects of the form `{"ref": "step.<id>.result.items[0].name"}`. */
export type PlanStepDetails =
  | { readonly kind: "function_call"; readonly function: string; readonly parameters: string }
  /** `schema` is the JSON Schema of the answer, as JSON text. */
  | { readonly kind: "user_input"; readonly prompt: string; readonly schema: string }
  | { readonly kind: "branch"; readonly cases: readonly PlanBranchCase[]; readonly otherwise: readonly PlanStep[] }
  | {
      readonly kind: "for_each";
      /** A reference or a JSON array, as JSON text. */
      readonly items: string;
      readonly steps: readonly PlanStep[];
      readonly maxConcurrency?: number;
    }
  | { readonly kind: "parallel"; readonly branches: readonly PlanParallelBranch[]; readonly maxConcurrency?: number }
  | {
      readonly kind: "model";
      readonly prompt: string;
      /** Empty means none. */
      readonly systemPrompt: string;
      /** `provider/model`; empty means the execution's. */
      readonly model: string;
      /** JSON Schema of the answer, as JSON text; empty means plain text. */
      readonly schema: string;
      readonly maxTokens?: number;
    }
  | { readonly kind: "sub_plan"; readonly planId: string; readonly version?: number; readonly input: string };

export interface PlanBranchCase {
  readonly condition: string;
  readonly steps: readonly PlanStep[];
}

export interface PlanParallelBranch {
  readonly name: string;
  readonly steps: readonly PlanStep[];
}

/** What people and models write of a plan. */
export interface PlanDraft {
  /** One sentence on what is true when the plan has worked. */
  readonly goal: string;
  /** What was asked for, in the caller's words. */
  readonly requirement: string;
  readonly successCriteria: readonly string[];
  readonly complexity: PlanComplexity;
  readonly steps: readonly PlanStep[];
  /** JSON Schema of what an execution has to be given, as JSON text; empty for nothing. */
  readonly inputSchema: string;
  readonly metadata: Readonly<Record<string, string>>;
}

/** A function a plan calls and the server does not have. */
export interface MissingFunction {
  readonly name: string;
  readonly description: string;
  /** JSON Schema, as JSON text; empty where the plan does not tell. */
  readonly parameters: string;
  readonly stepIds: readonly string[];
}

export interface PlanProblem {
  readonly message: string;
  readonly severity: "error" | "warning";
  /** Empty where it is about the plan. */
  readonly stepId: string;
  /** Empty where it is about the whole step. */
  readonly field: string;
  /** A word for programs, for example `DEPENDENCY_CYCLE`. */
  readonly code: string;
}

/** A version of a plan. It never changes. */
export interface PlanVersion extends PlanDraft {
  readonly planId: string;
  /** From 1. */
  readonly version: number;
  /** The session whose workspace, functions and rules hold; empty means the server's own. */
  readonly sessionId: string;
  /** While there are any the plan cannot run; so it is with problems that are errors. */
  readonly missingFunctions: readonly MissingFunction[];
  readonly problems: readonly PlanProblem[];
  /** What writing it used; absent where no model wrote it. */
  readonly usage?: Usage;
  /** `provider/model`; empty where no model wrote it. */
  readonly model: string;
  /** Of the first version, in milliseconds since 1970. */
  readonly createTimeMs: number;
  readonly updateTimeMs: number;
}

/** An execution as its log begins it. */
export interface PlanRun {
  readonly planId: string;
  readonly version: number;
  /** The version that runs, as JSON text of the contract's `Plan`. */
  readonly plan: string;
  /** With the defaults filled in, as JSON text. */
  readonly input: string;
}

/** Before its first event a step is pending. */
export const planStepStates = [
  "running",
  "waiting",
  "completed",
  "failed",
  "skipped",
  "cancelled",
  "compensating",
  "compensated",
  "compensation_failed",
] as const;
export type PlanStepState = (typeof planStepStates)[number];

/** A step changed its state. */
export interface PlanStepChange {
  readonly stepId: string;
  /** Within `for_each` steps: the index of each item, from 0, outermost first. */
  readonly itemPath: readonly number[];
  readonly state: PlanStepState;
  /** From 1; 0 where it was never tried. */
  readonly attempt: number;
  /** JSON text, when it is completed. */
  readonly output?: string;
  /** The output is too long for an event, and only its beginning is here. */
  readonly truncated?: boolean;
  /** Why it failed, waits or was skipped, as a sentence. */
  readonly reason?: string;
  readonly error?: TurnError;
  readonly durationMs?: number;
  readonly usage?: Usage;
  /** When a step that waits for its next attempt is tried again, in milliseconds since 1970. */
  readonly dueTimeMs?: number;
  /** Said when it begins: it may run again after a crash. */
  readonly repeatable?: boolean;
}

export const goalStates = ["met", "not_met", "unknown"] as const;
export type GoalState = (typeof goalStates)[number];

export const planOutcomeStates = ["completed", "failed", "cancelled"] as const;

/** What one success criterion came to. */
export interface GoalCheck {
  readonly criterion: string;
  readonly state: GoalState;
  readonly evidence: string;
}

/** What an execution came to. */
export interface PlanOutcome {
  readonly state: (typeof planOutcomeStates)[number];
  readonly goalChecks: readonly GoalCheck[];
  /** JSON text. */
  readonly output: string;
  /** Empty where none made it fail. */
  readonly failedStepId: string;
}
