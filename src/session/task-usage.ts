import type { ToolResult } from "../chat/tool-result.ts";
import type { Usage } from "../chat/usage.ts";

const keys = {
  input_tokens: "inputTokens",
  output_tokens: "outputTokens",
  total_tokens: "totalTokens",
  cost_nano_usd: "costNanoUsd",
} as const satisfies Record<string, keyof Usage>;

/** What a task used, as the metadata of its result. */
export function taskUsageMetadata(usage: Usage | undefined): Record<string, string> {
  const entries = Object.entries(keys).flatMap(([key, count]) => {
    const value = usage?.[count];
    return value === undefined ? [] : [[key, String(value)] as const];
  });
  return Object.fromEntries(entries);
}

/** What the result of a task says that it used; undefined where it says nothing. */
export function taskUsageOf({ metadata = {} }: ToolResult): Usage | undefined {
  const usage: { -readonly [Key in keyof Usage]: Usage[Key] } = {};
  for (const [key, count] of Object.entries(keys)) {
    const value = Number(metadata[key] ?? Number.NaN);
    if (Number.isSafeInteger(value) && value >= 0) usage[count] = value;
  }
  return Object.keys(usage).length === 0 ? undefined : usage;
}
