import type { Usage } from "../../chat/usage.ts";

/** The account of tokens in the shape of the Responses API. */
export interface ResponseUsage {
  input_tokens: number;
  input_tokens_details: { cached_tokens: number; cache_write_tokens: number };
  output_tokens: number;
  output_tokens_details: { reasoning_tokens: number };
  total_tokens: number;
}

/**
 * Writes usage, or nothing where neither input nor output is known. The shape has no unknown: what of it nobody told is
 * written as 0. Cost, price source and `partial` have no place there and are lost.
 */
export function usageToResponses(usage: Usage | undefined): ResponseUsage | undefined {
  const { inputTokens, outputTokens, totalTokens, cacheReadTokens, cacheCreationTokens, reasoningTokens } = usage ?? {};
  if (inputTokens === undefined && outputTokens === undefined) return undefined;
  return {
    input_tokens: inputTokens ?? 0,
    input_tokens_details: { cached_tokens: cacheReadTokens ?? 0, cache_write_tokens: cacheCreationTokens ?? 0 },
    output_tokens: outputTokens ?? 0,
    output_tokens_details: { reasoning_tokens: reasoningTokens ?? 0 },
    total_tokens: totalTokens ?? (inputTokens ?? 0) + (outputTokens ?? 0),
  };
}
