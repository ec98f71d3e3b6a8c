import type { Usage } from "../chat/usage.ts";
import { countOf, isJsonObject, type JsonObject, objectOf } from "./json.ts";

/**
 * The counts told so far and those of one more report, as Anthropic names them. Reports are of the whole answer, so a
 * later count replaces an earlier one and is never added to it; a count left out or null stays as it was.
 */
export function laterCounts(told: JsonObject, report: unknown): JsonObject {
  const merged: Record<string, unknown> = { ...told };
  for (const [name, value] of Object.entries(objectOf(report))) {
    if (countOf(value) !== undefined || isJsonObject(value)) merged[name] = value;
  }
  return merged;
}

/**
 * Usage as everyone here means it. Anthropic counts tokens read from the cache and written to it beside the input
 * (platform.claude.com/docs/en/build-with-claude/prompt-caching, "Tracking cache performance"), so the three are added.
 * `iterations` is not read: what a server-side compaction or an adviser model used is not part of the answer's counts.
 */
export function usageFromAnthropicMessages(counts: JsonObject): Usage | undefined {
  const uncached = countOf(counts["input_tokens"]);
  const outputTokens = countOf(counts["output_tokens"]);
  if (uncached === undefined && outputTokens === undefined) return undefined;
  const cacheReadTokens = countOf(counts["cache_read_input_tokens"]);
  const cacheCreationTokens = countOf(counts["cache_creation_input_tokens"]);
  const reasoningTokens = countOf(objectOf(counts["output_tokens_details"])["thinking_tokens"]);
  const inputTokens =
    uncached === undefined ? undefined : uncached + (cacheReadTokens ?? 0) + (cacheCreationTokens ?? 0);
  return {
    ...(inputTokens === undefined ? {} : { inputTokens }),
    ...(outputTokens === undefined ? {} : { outputTokens }),
    ...(inputTokens === undefined || outputTokens === undefined ? {} : { totalTokens: inputTokens + outputTokens }),
    ...(cacheReadTokens === undefined ? {} : { cacheReadTokens }),
    ...(cacheCreationTokens === undefined ? {} : { cacheCreationTokens }),
    ...(reasoningTokens === undefined
      ? {}
      : { reasoningTokens: Math.min(reasoningTokens, outputTokens ?? reasoningTokens) }),
  };
}
