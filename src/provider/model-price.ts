import type { Usage } from "../chat/usage.ts";

/**
 * What a million tokens cost, in billionths of a US dollar, when a call reads at least `fromInputTokens`. A price that
 * is absent is unknown, never 0.
 */
export interface PriceTier {
  readonly fromInputTokens: number;
  readonly inputNanoUsd?: number;
  /** Reasoning included. */
  readonly outputNanoUsd?: number;
  /** Where absent, what is read from the cache costs as much as other input. */
  readonly cacheReadNanoUsd?: number;
  /** Where absent, what is written to the cache costs as much as other input. */
  readonly cacheCreationNanoUsd?: number;
}

const tokensPerPrice = 1_000_000n;
const decimals = 9;
/** Nobody takes more for a million tokens; what is above was meant in another unit. */
export const mostDollars = 1_000_000;

/**
 * What a call cost, in billionths of a US dollar, rounded once at the end, halves up. The tier is the one of all the
 * input, the cached part included, and holds for the whole call. Counts the provider did not tell of the cache count as
 * none.
 * @param tiers in ascending order.
 * @returns undefined where the input or output is not told, where the parts are larger than the whole, and where
 * something was used that has no price.
 */
export function costOfUsage(tiers: readonly PriceTier[], usage: Usage): number | undefined {
  const { inputTokens, outputTokens, cacheReadTokens = 0, cacheCreationTokens = 0 } = usage;
  if (inputTokens === undefined || outputTokens === undefined) return undefined;
  const tier = tiers.findLast(({ fromInputTokens }) => inputTokens >= fromInputTokens);
  if (tier === undefined) return undefined;
  const { inputNanoUsd, outputNanoUsd, cacheReadNanoUsd, cacheCreationNanoUsd } = tier;
  let sum = 0n;
  for (const [tokens, nanoUsd] of [
    [inputTokens - cacheReadTokens - cacheCreationTokens, inputNanoUsd],
    [cacheReadTokens, cacheReadNanoUsd ?? inputNanoUsd],
    [cacheCreationTokens, cacheCreationNanoUsd ?? inputNanoUsd],
    [outputTokens, outputNanoUsd],
  ] as const) {
    if (!Number.isSafeInteger(tokens) || tokens < 0) return undefined;
    if (tokens === 0) continue;
    if (nanoUsd === undefined) return undefined;
    sum += BigInt(tokens) * BigInt(nanoUsd);
  }
  const cost = Number((sum + tokensPerPrice / 2n) / tokensPerPrice);
  return Number.isSafeInteger(cost) ? cost : undefined;
}

/**
 * Dollars as billionths of a dollar, by their decimal digits: 0.1 is exactly 100,000,000.
 * @param beyond what to do with more digits than a billionth has.
 * @returns undefined for what is no price: negative, not finite, more than a million, or finer than a billionth where
 * that is refused.
 */
export function nanoUsdOf(dollars: number, beyond: "round" | "refuse"): number | undefined {
  if (!(dollars >= 0 && dollars <= mostDollars)) return undefined;
  const [, whole = "", fraction = "", exponent = "0"] =
    /^(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(String(dollars)) ?? [];
  const digits = whole + fraction;
  const shift = decimals + Number(exponent) - fraction.length;
  if (shift >= 0) return Number(digits + "0".repeat(shift));
  const kept = Number(digits.slice(0, shift));
  const rest = digits.slice(shift).padStart(-shift, "0");
  if (/^0*$/.test(rest)) return kept;
  return beyond === "refuse" ? undefined : kept + (rest >= "5" ? 1 : 0);
}
