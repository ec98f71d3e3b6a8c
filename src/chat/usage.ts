/** What a model read and wrote. Absent means the provider did not say; it never means 0. */
export interface Usage {
  /** All tokens read, the cached part included. */
  readonly inputTokens?: number;
  /** All tokens written, reasoning included. */
  readonly outputTokens?: number;
  readonly totalTokens?: number;
  readonly cacheReadTokens?: number;
  readonly cacheCreationTokens?: number;
  /** The part of the output that was reasoning. */
  readonly reasoningTokens?: number;
  /** Billionths of a US dollar. */
  readonly costNanoUsd?: number;
  /** Where the price came from. */
  readonly priceSource?: string;
  /** Some step did not report its usage: the sums are lower bounds. */
  readonly partial?: boolean;
}

const counts = [
  "inputTokens",
  "outputTokens",
  "totalTokens",
  "cacheReadTokens",
  "cacheCreationTokens",
  "reasoningTokens",
  "costNanoUsd",
] as const satisfies (keyof Usage)[];

/** Adds the usage of one more step. A step that reports nothing, or alone has no price, makes the sum partial. */
export function addUsage(sum: Usage | undefined, step: Usage | undefined): Usage {
  const total: { -readonly [Key in keyof Usage]: Usage[Key] } = { ...sum };
  if (step === undefined || (step.inputTokens === undefined && step.outputTokens === undefined)) total.partial = true;
  for (const count of counts) {
    const value = step?.[count];
    if (value !== undefined) total[count] = (total[count] ?? 0) + value;
  }
  if (step?.partial) total.partial = true;
  if (sum !== undefined && step !== undefined && (sum.costNanoUsd === undefined) !== (step.costNanoUsd === undefined))
    total.partial = true;
  if (step?.priceSource !== undefined) total.priceSource = step.priceSource;
  return total;
}
