import type { AgentErrorDetail, AgentErrorKind } from "./error.ts";
import type { FinishReason } from "./finish-reason.ts";
import type { ContentBlock, Message } from "./message.ts";
import type { PlanOutcome, PlanRun, PlanStepChange } from "./plan.ts";
import type { GenerateOptions, ToolDefinition } from "./request.ts";
import type { Lane } from "./session-config.ts";
import type { Todo } from "./todo.ts";
import type { ToolResult } from "./tool-result.ts";
import type { Usage } from "./usage.ts";

export type BlockDelta =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "thinking"; readonly thinking: string }
  | { readonly type: "signature"; readonly signature: string }
  | { readonly type: "reasoning"; readonly reasoning: string }
  | { readonly type: "input_json"; readonly inputJson: string };

/** Why a turn failed; what a unary call throws. */
export interface TurnError {
  readonly kind: AgentErrorKind;
  readonly reason: string;
  readonly message: string;
  readonly detail: AgentErrorDetail;
  readonly retryAfterMs?: number;
}

/** Somebody asked for it, the history took more than its share of the window, or the provider said that it is too long. */
export const compactionTriggers = ["request", "share", "context_length"] as const;
export type CompactionTrigger = (typeof compactionTriggers)[number];

export type PendingRequestKind = "approval" | "question" | "client_tool" | "budget";

/** Something that waits for a person or a client. */
export interface PendingRequest {
  readonly requestId: string;
  readonly kind: PendingRequestKind;
  readonly title: string;
  readonly toolName?: string;
  readonly toolCallId?: string;
  /** JSON text. */
  readonly arguments?: string;
  readonly options: readonly string[];
  readonly explanation?: string;
  /** Of what would run besides the arguments (files of a script, a definition), in hexadecimal: an answer holds for it only. */
  readonly contentSha256?: string;
  /** When it counts as denied, in milliseconds since 1970. */
  readonly expireTimeMs?: number;
  /** Of a `client_tool`. */
  readonly lane?: Lane;
}

/** What became of a pending request. */
export interface RequestAnswer {
  readonly requestId: string;
  /** `allow_once`, `allow_session`, `deny`, `answer`, or `expired` where nobody answered while it could be answered. */
  readonly decision: string;
  /** Who decided; empty where nobody did. */
  readonly author: string;
  /** Words to the model, or the answer. */
  readonly text?: string;
  readonly toolResult?: ToolResult;
}

/**
 * What can happen in a session. The log holds nothing else, and whoever knows the log knows the session.
 * Grammar: `turn-started (step-started block* step-finished tool*)* turn-finished`; notices anywhere. A call that has to be
 * asked for has its `request-opened` and `request-resolved` before its `tool-started`.
 */
export type LogEvent =
  | {
      readonly type: "turn-started";
      readonly requestId: string;
      readonly principal: string;
      /** `provider/model` */
      readonly model: string;
      /** What the turn adds to the history. */
      readonly messages: readonly Message[];
      readonly options: GenerateOptions;
      readonly tools: readonly ToolDefinition[];
      /** Of the server's own functions as the turn began; absent in one-off turns. */
      readonly toolsDigest?: string;
      /** The plan that it executes. */
      readonly plan?: PlanRun;
    }
  /** A new `attempt` of a step voids what older attempts of it streamed. */
  | {
      readonly type: "step-started";
      readonly step: number;
      readonly attempt: number;
      readonly model: string;
      readonly provider: string;
      /** What the attempt used that this one voids, where its provider said so. */
      readonly voidedUsage?: Usage;
    }
  | {
      readonly type: "block-start";
      readonly index: number;
      readonly blockType: ContentBlock["type"];
      /** For a tool use: the call's id. */
      readonly id?: string;
      /** For a tool use: the function's name. */
      readonly name?: string;
    }
  | { readonly type: "block-delta"; readonly index: number; readonly delta: BlockDelta }
  | { readonly type: "block-stop"; readonly index: number; readonly block: ContentBlock }
  | {
      readonly type: "step-finished";
      readonly step: number;
      readonly attempt: number;
      readonly finishReason: FinishReason;
      readonly rawFinishReason: string;
      /** The model only paused: the next step asks it to go on. */
      readonly continues?: true;
      readonly usage?: Usage;
      readonly responseId?: string;
      readonly upstreamRequestId?: string;
    }
  /** Committed before the tool runs. */
  | {
      readonly type: "tool-started";
      readonly toolCallId: string;
      readonly name: string;
      readonly source: string;
      readonly readOnly: boolean;
    }
  | { readonly type: "tool-output"; readonly toolCallId: string; readonly stream: string; readonly text: string }
  | { readonly type: "tool-finished"; readonly toolCallId: string; readonly name: string; readonly result: ToolResult }
  | { readonly type: "request-opened"; readonly request: PendingRequest }
  | ({ readonly type: "request-resolved" } & RequestAnswer)
  /** The messages it does not name are replaced by the summary. The log keeps them. */
  | {
      readonly type: "history-compacted";
      /** 0 where there was nothing to summarise; the history is then as before. */
      readonly droppedMessages: number;
      readonly keptMessages: number;
      /** Or a note in its place. */
      readonly summary: string;
      readonly tokensBefore?: number;
      readonly tokensAfter?: number;
      /** From here on everything is kept; absent where nothing is kept from the end. */
      readonly firstKeptMessageId?: string;
      /** Messages before that one that are kept as well. */
      readonly keptMessageIds: readonly string[];
      /** What asking for the summary used. */
      readonly usage?: Usage;
      readonly trigger: CompactionTrigger;
      /** Who wrote the summary, as `provider/model`; absent for a note. */
      readonly model?: string;
      /** Why nobody did. */
      readonly fallbackReason?: string;
      /** For `request`: the command that asked for it. */
      readonly requestId?: string;
    }
  /** The server's functions are not those of the turn before; all lists are empty where nobody knows what those were. */
  | {
      readonly type: "tools-changed";
      readonly generation: number;
      readonly added: readonly string[];
      readonly removed: readonly string[];
      readonly changed: readonly string[];
    }
  | {
      readonly type: "notice";
      readonly level: "info" | "warning";
      readonly code: string;
      readonly message: string;
      /** What the model is told of it: its answer was not what the turn asked for, and the turn goes on with this. */
      readonly modelText?: string;
      /** With the code `TODOS_SET`: the list that somebody has set. */
      readonly todos?: readonly Todo[];
    }
  /** In executions of plans only. A change to `running` is committed before the step does anything. */
  | ({ readonly type: "plan-step" } & PlanStepChange)
  | {
      readonly type: "turn-finished";
      readonly finishReason: FinishReason;
      readonly usage?: Usage;
      readonly error?: TurnError;
      readonly steps: number;
      /** Of a turn that executed a plan. */
      readonly plan?: PlanOutcome;
    };

/** An event with its place in the session's log. */
export interface LogRecord {
  /** Contiguous per session, from 1. */
  readonly seq: number;
  /** Empty where the event belongs to no turn. */
  readonly turnId: string;
  /** When it was recorded, in milliseconds since 1970. */
  readonly timeMs: number;
  readonly event: LogEvent;
}
