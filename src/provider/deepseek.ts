import type { ProviderSpec } from "./provider-spec.ts";

/** DeepSeek refuses a tool turn whose thinking does not come back, and thinks unless it is told otherwise. */
export const deepseek = {
  id: "deepseek",
  dialect: "openai-chat",
  baseUrl: "https://api.deepseek.com/v1",
  baseUrlEnv: "DEEPSEEK_BASE_URL",
  apiKeyEnv: "DEEPSEEK_API_KEY",
  keyRequired: true,
  quirks: {
    maxTokensField: "max_tokens",
    thinkingField: "reasoning_content",
    thinkingReplay: "tool-turn",
    emptyThinking: true,
  },
  features: ["streaming", "tools", "thinking", "reasoning", "json_mode"],
} as const satisfies ProviderSpec;
