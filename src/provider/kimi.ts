import type { ProviderSpec } from "./provider-spec.ts";

/** Moonshot's Kimi models; those that think refuse a message with tool calls that has no thinking field. */
export const kimi = {
  id: "kimi",
  dialect: "openai-chat",
  baseUrl: "https://api.moonshot.ai/v1",
  baseUrlEnv: "MOONSHOT_BASE_URL",
  apiKeyEnv: "MOONSHOT_API_KEY",
  keyRequired: true,
  quirks: {
    maxTokensField: "max_completion_tokens",
    thinkingField: "reasoning_content",
    thinkingReplay: "tool-turn",
    emptyThinking: true,
  },
  features: ["streaming", "tools", "vision", "thinking", "reasoning", "json_mode"],
} as const satisfies ProviderSpec;
