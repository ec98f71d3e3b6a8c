import type { ProviderSpec } from "./provider-spec.ts";

/**
 * Moonshot's Kimi models; those that think refuse a message with tool calls that has no thinking field.
 *
 * - Thinking is switched on and off for K2.5 and K2.6 and goes on always from K2.7 Code on, which also keeps the thinking
 *   of all turns and wants it back (platform.kimi.ai/docs/guide/use-kimi-k2-thinking-model); K3 takes an effort instead
 *   of the switch (docs/guide/use-thinking-effort)
 * - From K2.5 on a temperature other than the model's own is refused (docs/api/models-overview)
 * - Pictures are read by K2.5 and later ones, and by the models of the first generation that are named so
 *   (docs/guide/use-kimi-vision-model)
 * - The JSON mode takes no schema and makes objects only (docs/guide/use-json-mode-feature-of-kimi-api)
 */
export const kimi = {
  id: "kimi",
  displayName: "Moonshot AI (Kimi)",
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
    thinkingSwitch: "thinking-type",
    efforts: ["low", "high", "max"],
    jsonSchema: "json-object",
  },
  features: ["streaming", "tools", "vision", "thinking", "reasoning", "json_mode"],
  traits: [
    { models: /^(?:moonshot-v1(?!.*vision)|kimi-k2(?!\.))/, lacks: ["vision"] },
    { models: /^(?:moonshot-v1|kimi-k2-(?:0|turbo))/, lacks: ["thinking", "reasoning"] },
    { models: /^kimi-k(?:2\.|[3-9])/, quirks: { sampling: "never" } },
    { models: /^kimi-k2\.[56]/, quirks: { reasoningEffort: false } },
    {
      models: /^kimi-k2\.7/,
      quirks: { thinkingSwitch: "none", thinkingAlways: true, reasoningEffort: false, thinkingReplay: "all" },
    },
    { models: /^kimi-k[3-9]/, quirks: { thinkingSwitch: "none", thinkingAlways: true, thinkingReplay: "all" } },
  ],
} as const satisfies ProviderSpec;
