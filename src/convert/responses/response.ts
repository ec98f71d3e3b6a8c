import type { AgentErrorKind } from "../../chat/error.ts";
import type { FinishReason } from "../../chat/finish-reason.ts";
import type { TurnError } from "../../chat/log-event.ts";
import type { ResponseFormat, ToolDefinition } from "../../chat/request.ts";
import { parsedObject } from "../parsed-object.ts";
import { present } from "../present.ts";
import { type AskedResponse, ownMetadata } from "./asked.ts";
import type { OutputItem } from "./item.ts";
import type { ResponseUsage } from "./usage.ts";

export type ResponseStatus = "in_progress" | "completed" | "incomplete" | "failed" | "cancelled";
export type ResponseErrorCode = "server_error" | "rate_limit_exceeded" | "invalid_prompt";

export interface FunctionToolEcho {
  type: "function";
  name: string;
  description: string;
  parameters: Record<string, unknown>;
  strict: boolean;
}

export type TextFormatEcho =
  | { type: "text" }
  | { type: "json_object" }
  | { type: "json_schema"; name: string; description?: string; schema: Record<string, unknown>; strict: boolean };

/** An answer in the shape of the Responses API; `output_text` is what OpenAI's clients add to it. */
export interface ResponseBody {
  id: string;
  object: "response";
  /** Seconds since 1970. */
  created_at: number;
  status: ResponseStatus;
  background: false;
  /** Seconds since 1970. */
  completed_at: number | null;
  error: { code: ResponseErrorCode; message: string } | null;
  incomplete_details: { reason: "max_output_tokens" | "content_filter" } | null;
  instructions: string | null;
  max_output_tokens: number | null;
  max_tool_calls: null;
  metadata: Record<string, string>;
  /** Who answered, as `provider/model`. */
  model: string;
  output: OutputItem[];
  parallel_tool_calls: boolean;
  previous_response_id: string | null;
  conversation: { id: string } | null;
  reasoning: { effort: Effort | null; summary: "auto" | "concise" | "detailed" | null };
  store: boolean;
  temperature: number | null;
  text: { format: TextFormatEcho; verbosity?: "low" | "medium" | "high" };
  tool_choice: "auto" | "none" | "required" | { type: "function"; name: string };
  tools: FunctionToolEcho[];
  top_logprobs: 0;
  top_p: number | null;
  truncation: "auto";
  /** Absent where nobody told. */
  usage?: ResponseUsage;
  access_programs: null;
}

const efforts = ["none", "minimal", "low", "medium", "high", "xhigh", "max"] as const;
type Effort = (typeof efforts)[number];

/** What of a response only its turn can tell. */
export interface ResponseProgress {
  readonly id: string;
  readonly createdMs: number;
  readonly finishedMs: number | undefined;
  readonly model: string;
  readonly output: OutputItem[];
  readonly finishReason: FinishReason | undefined;
  readonly error: TurnError | undefined;
  readonly usage: ResponseUsage | undefined;
}

/**
 * What a response's status is for each reason its turn ended for. An answer cut off by a bound of ours (`budget`,
 * `max_steps`) is told as one that reached `max_output_tokens`: OpenAI has no better word.
 */
export const responseEndings = {
  stop: { status: "completed" },
  tool_calls: { status: "completed" },
  length: { status: "incomplete", reason: "max_output_tokens" },
  content_filter: { status: "incomplete", reason: "content_filter" },
  budget: { status: "incomplete", reason: "max_output_tokens" },
  max_steps: { status: "incomplete", reason: "max_output_tokens" },
  cancelled: { status: "cancelled" },
  error: { status: "failed" },
} as const satisfies Record<
  FinishReason,
  { readonly status: ResponseStatus; readonly reason?: "max_output_tokens" | "content_filter" }
>;

/** Writes a response as far as it is; what of its request it tells is what the turn was run with. */
export function responseBody(asked: AskedResponse, progress: ResponseProgress): ResponseBody {
  const { finishReason, finishedMs, error } = progress;
  const ending: { readonly status: ResponseStatus; readonly reason?: "max_output_tokens" | "content_filter" } =
    finishReason === undefined ? { status: "in_progress" } : responseEndings[finishReason];
  const { options } = asked;
  return present({
    id: progress.id,
    object: "response",
    created_at: seconds(progress.createdMs),
    status: ending.status,
    background: false,
    completed_at: finishedMs === undefined ? null : seconds(finishedMs),
    error: error === undefined ? null : { code: errorCode(error.kind), message: error.message },
    incomplete_details: ending.reason === undefined ? null : { reason: ending.reason },
    instructions: asked.instructions ?? null,
    max_output_tokens: options.maxTokens ?? null,
    max_tool_calls: null,
    metadata: ownMetadata(options),
    model: progress.model,
    output: progress.output,
    parallel_tool_calls: options.parallelToolCalls ?? true,
    previous_response_id: asked.previousResponseId ?? null,
    conversation: asked.conversationId === undefined ? null : { id: asked.conversationId },
    reasoning: {
      effort: efforts.find((effort) => effort === options.thinking?.effort) ?? null,
      summary: (["auto", "concise", "detailed"] as const).find((word) => word === asked.summary) ?? null,
    },
    store: asked.isStored === true,
    temperature: options.temperature ?? null,
    text: present({
      format: formatEcho(options.responseFormat),
      verbosity: (["low", "medium", "high"] as const).find((word) => word === asked.verbosity),
    }),
    tool_choice: toolChoiceEcho(options.toolChoice),
    tools: asked.tools.map(toolEcho),
    top_logprobs: 0,
    top_p: options.topP ?? null,
    truncation: "auto",
    usage: progress.usage,
    access_programs: null,
  });
}

function errorCode(kind: AgentErrorKind): ResponseErrorCode {
  if (kind === "rate_limited" || kind === "resource_exhausted") return "rate_limit_exceeded";
  return kind === "invalid_request" || kind === "context_length" ? "invalid_prompt" : "server_error";
}

function seconds(timeMs: number): number {
  return Math.floor(timeMs / 1000);
}

function toolEcho({ name, description, parameters, strict = false }: ToolDefinition): FunctionToolEcho {
  return { type: "function", name, description, parameters: schemaEcho(parameters), strict };
}

function formatEcho(format: ResponseFormat | undefined): TextFormatEcho {
  if (format?.type !== "json_schema") return { type: format?.type ?? "text" };
  const { type, name, description, schema, strict = false } = format;
  return present({ type, name, description, schema: schemaEcho(schema), strict });
}

function schemaEcho(schema: string): Record<string, unknown> {
  return parsedObject(schema) ?? {};
}

function toolChoiceEcho(choice: string | undefined): ResponseBody["tool_choice"] {
  if (choice === undefined || choice === "") return "auto";
  if (choice === "auto" || choice === "none" || choice === "required") return choice;
  return { type: "function", name: choice };
}
