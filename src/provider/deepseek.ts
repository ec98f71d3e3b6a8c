import type { ProviderSpec } from "./provider-spec.ts";

/**
 * DeepSeek thinks unless it is told otherwise, and refuses a request in which the thinking of a turn with tool calls is
 * missing, also when that turn is over; of turns without calls it ignores the thinking
 * (api-docs.deepseek.com/guides/thinking_mode, "Input and Output Parameters"). There, too: the switch, and efforts it
 * maps itself. Its JSON mode takes no schema and wants the word JSON in the prompt (guides/json_mode).
 */
export const deepseek = {
  id: "deepseek",
  displayName: "DeepSeek",
  dialect: "openai-chat",
  baseUrl: "https://api.deepseek.com/v1",
  baseUrlEnv: "DEEPSEEK_BASE_URL",
  apiKeyEnv: "DEEPSEEK_API_KEY",
  keyRequired: true,
  quirks: {
    maxTokensField: "max_tokens",
    thinkingField: "reasoning_content",
    thinkingReplay: "tool-turns",
    emptyThinking: true,
    thinkingSwitch: "thinking-type",
    efforts: ["minimal", "low", "medium", "high", "xhigh", "max"],
    jsonSchema: "json-object",
  },
  features: ["streaming", "tools", "thinking", "reasoning", "json_mode"],
} as const satisfies ProviderSpec;
