import type { Usage } from "../chat/usage.ts";
import { countOf, isJsonObject, objectOf } from "./json.ts";

/**
 * Usage in the shape of Chat Completions and its relatives; undefined where it tells no count. Counts are made to mean
 * the same for everyone: input with its cached part, output with its reasoning part.
 */
export function usageFromOpenaiChat(value: unknown): Usage | undefined {
  if (!isJsonObject(value)) return undefined;
  const promptDetails = objectOf(value["prompt_tokens_details"]);
  const completionDetails = objectOf(value["completion_tokens_details"]);
  const prompt = countOf(value["prompt_tokens"]);
  const completion = countOf(value["completion_tokens"]);
  const total = countOf(value["total_tokens"]);
  if (prompt === undefined && completion === undefined && total === undefined) return undefined;

  const cached =
    countOf(promptDetails["cached_tokens"]) ??
    countOf(value["prompt_cache_hit_tokens"]) ??
    countOf(value["cached_tokens"]) ??
    countOf(value["cache_read_input_tokens"]);
  const written = countOf(promptDetails["cache_write_tokens"]) ?? countOf(value["cache_creation_input_tokens"]);
  const reasoning = countOf(completionDetails["reasoning_tokens"]) ?? countOf(value["reasoning_tokens"]);

  const inputTokens = inputOf(prompt, cached, completion, total);
  const cacheReadTokens = atMost(cached, inputTokens);
  const cacheCreationTokens = atMost(
    written,
    inputTokens === undefined ? undefined : inputTokens - (cacheReadTokens ?? 0),
  );
  const outputTokens = outputOf(inputTokens, completion, total, reasoning);
  const totalTokens =
    total ?? (inputTokens === undefined || outputTokens === undefined ? undefined : inputTokens + outputTokens);
  const cost = costNanoUsd(value);
  return {
    ...(inputTokens === undefined ? {} : { inputTokens }),
    ...(outputTokens === undefined ? {} : { outputTokens }),
    ...(totalTokens === undefined ? {} : { totalTokens }),
    ...(cacheReadTokens === undefined ? {} : { cacheReadTokens }),
    ...(cacheCreationTokens === undefined ? {} : { cacheCreationTokens }),
    ...(reasoning === undefined ? {} : { reasoningTokens: Math.min(reasoning, outputTokens ?? reasoning) }),
    ...(cost === undefined ? {} : { costNanoUsd: cost, priceSource: "provider" }),
  };
}

/** More cached than prompt: either the prompt is told without its cached part, which the total shows, or it is wrong. */
function inputOf(
  prompt: number | undefined,
  cached: number | undefined,
  completion: number | undefined,
  total: number | undefined,
): number | undefined {
  if (prompt === undefined || cached === undefined || cached <= prompt || total === undefined) return prompt;
  return total >= prompt + cached + (completion ?? 0) ? prompt + cached : prompt;
}

function atMost(count: number | undefined, most: number | undefined): number | undefined {
  return count === undefined || most === undefined ? count : Math.min(count, most);
}

/** Some leave reasoning out of the completion; what is not input of the total tells. */
function outputOf(
  prompt: number | undefined,
  completion: number | undefined,
  total: number | undefined,
  reasoning: number | undefined,
): number | undefined {
  if (prompt !== undefined && total !== undefined && total > prompt) return Math.max(completion ?? 0, total - prompt);
  if (completion === undefined) return undefined;
  return reasoning !== undefined && reasoning > completion ? completion + reasoning : completion;
}

/** The price where the provider tells it, in dollars, as a sum or in ticks of 1e-10. */
function costNanoUsd(usage: Readonly<Record<string, unknown>>): number | undefined {
  const cost = isJsonObject(usage["cost"]) ? usage["cost"]["total_cost"] : usage["cost"];
  if (typeof cost === "number" && cost >= 0) return Math.round(cost * 1e9);
  const ticks = countOf(usage["cost_in_usd_ticks"]);
  return ticks === undefined ? undefined : Math.round(ticks / 10);
}
