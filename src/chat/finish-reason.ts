/** Why an answer or a turn ended. */
export const finishReasons = [
  "stop",
  "length",
  "tool_calls",
  "content_filter",
  "cancelled",
  "error",
  "budget",
  "max_steps",
] as const;
export type FinishReason = (typeof finishReasons)[number];
