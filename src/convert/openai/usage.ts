import type { Usage } from "../../chat/usage.ts";
import { readObject, readOptionalInteger, readOptionalObject } from "../json-field.ts";
import { present } from "../present.ts";

/** OpenAI's account of what a model read and wrote. */
export interface CompletionUsage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  prompt_tokens_details?: { cached_tokens?: number; cache_write_tokens?: number };
  completion_tokens_details?: { reasoning_tokens?: number };
}

/**
 * Reads OpenAI's usage. A field that is missing or null stays absent; it never becomes 0.
 * @throws {AgentError} `invalid_request` where a count is no whole number from 0.
 */
export function usageFromOpenAI(usage: unknown, path = "usage"): Usage {
  const fields = readObject(usage, path);
  const input = readOptionalObject(fields["prompt_tokens_details"], `${path}.prompt_tokens_details`);
  const output = readOptionalObject(fields["completion_tokens_details"], `${path}.completion_tokens_details`);
  const count = (value: unknown, field: string) => readOptionalInteger(value, 0, `${path}.${field}`);
  return present({
    inputTokens: count(fields["prompt_tokens"], "prompt_tokens"),
    outputTokens: count(fields["completion_tokens"], "completion_tokens"),
    totalTokens: count(fields["total_tokens"], "total_tokens"),
    cacheReadTokens: count(input?.["cached_tokens"], "prompt_tokens_details.cached_tokens"),
    cacheCreationTokens: count(input?.["cache_write_tokens"], "prompt_tokens_details.cache_write_tokens"),
    reasoningTokens: count(output?.["reasoning_tokens"], "completion_tokens_details.reasoning_tokens"),
  });
}

/**
 * Writes OpenAI's usage, or nothing where neither input nor output is known. OpenAI's shape has no unknown: where only one
 * of the two is known, the other is written as 0. Cost, price source and `partial` have no place there and are lost.
 */
export function usageToOpenAI(usage: Usage | undefined): CompletionUsage | undefined {
  const { inputTokens, outputTokens, totalTokens, cacheReadTokens, cacheCreationTokens, reasoningTokens } = usage ?? {};
  if (inputTokens === undefined && outputTokens === undefined) return undefined;
  const input = present({ cached_tokens: cacheReadTokens, cache_write_tokens: cacheCreationTokens });
  const output = present({ reasoning_tokens: reasoningTokens });
  return present({
    prompt_tokens: inputTokens ?? 0,
    completion_tokens: outputTokens ?? 0,
    total_tokens: totalTokens ?? (inputTokens ?? 0) + (outputTokens ?? 0),
    prompt_tokens_details: Object.keys(input).length === 0 ? undefined : input,
    completion_tokens_details: Object.keys(output).length === 0 ? undefined : output,
  });
}
