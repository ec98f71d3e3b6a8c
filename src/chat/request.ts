import type { Message } from "./message.ts";
import type { PlanRun } from "./plan.ts";

/** A function offered to a model. */
export interface ToolDefinition {
  readonly name: string;
  readonly description: string;
  /** JSON Schema of the arguments, as JSON text; empty means no arguments. */
  readonly parameters: string;
  /** The provider is asked to hold the model to the schema. */
  readonly strict?: boolean;
}

export type ResponseFormat =
  | { readonly type: "text" }
  | { readonly type: "json_object" }
  | {
      readonly type: "json_schema";
      readonly name: string;
      readonly description?: string;
      /** JSON text. */
      readonly schema: string;
      readonly strict?: boolean;
    };

export interface ThinkingOptions {
  readonly enabled?: boolean;
  readonly budgetTokens?: number;
  readonly effort?: string;
}

export interface StatefulOptions {
  readonly store?: boolean;
  readonly previousResponseId?: string;
  readonly includeEncrypted?: boolean;
}

/** Upper bounds; absent means none. */
export interface Budget {
  readonly maxCostNanoUsd?: number;
  readonly maxTotalTokens?: number;
  readonly maxDurationMs?: number;
}

/** How a turn goes about its work: with its tools, by a plan, or as the model sees fit. */
export const strategies = ["direct", "planned", "auto"] as const;
export type Strategy = (typeof strategies)[number];

/** How one model call is made. */
export interface ModelOptions {
  readonly temperature?: number;
  readonly topP?: number;
  readonly maxTokens?: number;
  readonly stop?: readonly string[];
  readonly seed?: number;
  /** `auto`, `none`, `required` or a function's name. */
  readonly toolChoice?: string;
  readonly parallelToolCalls?: boolean;
  readonly responseFormat?: ResponseFormat;
  readonly thinking?: ThinkingOptions;
  readonly stateful?: StatefulOptions;
}

/** How a turn is run. */
export interface GenerateOptions extends ModelOptions {
  /** Upper bound of model calls; default 50. */
  readonly maxSteps?: number;
  readonly budget?: Budget;
  /** Names of the server's tools the model may use; absent means all. */
  readonly allowedTools?: readonly string[];
  readonly timeoutMs?: number;
  readonly metadata?: Readonly<Record<string, string>>;
  /** Absent means `direct`. */
  readonly strategy?: Strategy;
  /** Name of a profile of the server's configuration that holds for the turn; absent means none. */
  readonly profile?: string;
}

/** What a client asks for: one turn. */
export interface TurnRequest {
  /** Empty means a one-off turn. */
  readonly sessionId: string;
  readonly messages: readonly Message[];
  /** `provider/model`; empty means the session's, else the server's default. */
  readonly model: string;
  readonly options: GenerateOptions;
  /** Functions the client runs itself. */
  readonly tools: readonly ToolDefinition[];
  /** Idempotency key; empty means none. */
  readonly requestId: string;
  /** `messages` hold the whole conversation: what the session knows already is passed over. Absent means they are added. */
  readonly wholeHistory?: boolean;
  /** Nobody can be asked while it runs: what would need an approval or an answer is refused. Of one-off turns only. */
  readonly isUnattended?: boolean;
  /** The turn executes this plan instead of asking a model; only the server itself asks for it. */
  readonly plan?: PlanRun;
}

/** What a dialect encodes: one model call. */
export interface ChatRequest {
  /** The model's own name, without its provider. */
  readonly model: string;
  readonly messages: readonly Message[];
  readonly tools: readonly ToolDefinition[];
  readonly options: ModelOptions;
}
