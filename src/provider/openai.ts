import { openaiTraits } from "./openai-traits.ts";
import type { ProviderSpec } from "./provider-spec.ts";

export const openai = {
  id: "openai",
  displayName: "OpenAI",
  dialect: "openai-chat",
  baseUrl: "https://api.openai.com/v1",
  baseUrlEnv: "OPENAI_BASE_URL",
  apiKeyEnv: "OPENAI_API_KEY",
  keyRequired: true,
  quirks: { maxTokensField: "max_completion_tokens", developerRole: "developer" },
  features: ["streaming", "tools", "vision", "files", "reasoning", "json_mode"],
  traits: [
    ...openaiTraits,
    // These alone take sound, and no pictures (developers.openai.com/api/docs/models/gpt-4o-audio-preview).
    {
      models: /^gpt-(?:audio|4o(?:-mini)?-audio)/,
      adds: ["audio"],
      lacks: ["vision", "files", "reasoning"],
      quirks: { reasoningEffort: false },
    },
  ],
} as const satisfies ProviderSpec;
