import type { FinishReason } from "../../chat/finish-reason.ts";
import type { Usage } from "../../chat/usage.ts";

/** Anthropic's words for why an answer ended. */
export type StopReason =
  | "end_turn"
  | "max_tokens"
  | "stop_sequence"
  | "tool_use"
  | "refusal"
  | "model_context_window_exceeded";

export interface AnthropicTextBlock {
  type: "text";
  text: string;
  citations: null;
}

export interface AnthropicThinkingBlock {
  type: "thinking";
  thinking: string;
  signature: string;
}

export interface AnthropicRedactedThinkingBlock {
  type: "redacted_thinking";
  data: string;
}

export interface AnthropicToolUseBlock {
  type: "tool_use";
  id: string;
  name: string;
  input: unknown;
  caller: { type: "direct" };
}

export type AnthropicBlock =
  | AnthropicTextBlock
  | AnthropicThinkingBlock
  | AnthropicRedactedThinkingBlock
  | AnthropicToolUseBlock;

/** Anthropic's account of what a model read and wrote. `input_tokens` leaves out what the cache took part in. */
export interface AnthropicUsage {
  input_tokens: number;
  output_tokens: number;
  cache_creation_input_tokens: number | null;
  cache_read_input_tokens: number | null;
  output_tokens_details: { thinking_tokens: number } | null;
  server_tool_use: null;
}

/** An answer in Anthropic's shape. */
export interface AnthropicMessage {
  id: string;
  type: "message";
  role: "assistant";
  model: string;
  content: AnthropicBlock[];
  stop_reason: StopReason | null;
  stop_sequence: string | null;
  stop_details: { type: "refusal"; category: null; explanation: null } | null;
  usage: AnthropicUsage & { cache_creation: null; inference_geo: null; service_tier: null; speed: null };
  container: null;
  diagnostics: null;
}

/** An event of a streamed answer in Anthropic's shape. */
export type AnthropicStreamEvent =
  | { type: "message_start"; message: AnthropicMessage }
  | { type: "content_block_start"; index: number; content_block: AnthropicBlock }
  | {
      type: "content_block_delta";
      index: number;
      delta:
        | { type: "text_delta"; text: string }
        | { type: "thinking_delta"; thinking: string }
        | { type: "signature_delta"; signature: string }
        | { type: "input_json_delta"; partial_json: string };
    }
  | { type: "content_block_stop"; index: number }
  | {
      type: "message_delta";
      delta: Pick<AnthropicMessage, "stop_reason" | "stop_sequence" | "stop_details" | "container">;
      usage: AnthropicUsage;
    }
  | { type: "message_stop" };

/**
 * Anthropic's word for each reason (platform.claude.com/docs/en/build-with-claude/handling-stop-reasons). An answer cut
 * off by a bound of ours (`budget`, `max_steps`) is told as `max_tokens`, so that clients take it for cut. `pause_turn`
 * would have them send it back at once to go on, past the bound and, where models refuse a history that ends in an
 * answer, for nothing. One that was cancelled is told as `end_turn`, for want of a word. A turn that failed has no answer.
 */
const stopReasons = {
  stop: "end_turn",
  length: "max_tokens",
  tool_calls: "tool_use",
  content_filter: "refusal",
  cancelled: "end_turn",
  error: "end_turn",
  budget: "max_tokens",
  max_steps: "max_tokens",
} as const satisfies Record<FinishReason, StopReason>;

/** How an answer ended. Where a provider tells that a stop sequence was met, that wins over the general word. */
export function stopToAnthropic(
  finishReason: FinishReason,
  rawFinishReason: string,
  stopSequences: readonly string[],
): Pick<AnthropicMessage, "stop_reason" | "stop_sequence" | "stop_details"> {
  const stopped = finishReason === "stop" && rawFinishReason === "stop_sequence";
  const exceeded = finishReason === "length" && rawFinishReason === "model_context_window_exceeded";
  const [only, ...others] = stopSequences;
  return {
    stop_reason: stopped ? "stop_sequence" : exceeded ? "model_context_window_exceeded" : stopReasons[finishReason],
    // Which of several it was nobody tells.
    stop_sequence: stopped && others.length === 0 ? (only ?? null) : null,
    stop_details: finishReason === "content_filter" ? { type: "refusal", category: null, explanation: null } : null,
  };
}

/**
 * Writes Anthropic's usage. Our input counts all tokens that were read, theirs leaves out those the cache took part in.
 * There is no unknown: what is not known of input and output is written as 0.
 */
export function usageToAnthropic(usage: Usage | undefined): AnthropicUsage {
  const { inputTokens = 0, outputTokens = 0, cacheReadTokens, cacheCreationTokens, reasoningTokens } = usage ?? {};
  return {
    input_tokens: Math.max(0, inputTokens - (cacheReadTokens ?? 0) - (cacheCreationTokens ?? 0)),
    output_tokens: outputTokens,
    cache_creation_input_tokens: cacheCreationTokens ?? null,
    cache_read_input_tokens: cacheReadTokens ?? null,
    output_tokens_details: reasoningTokens === undefined ? null : { thinking_tokens: reasoningTokens },
    server_tool_use: null,
  };
}
