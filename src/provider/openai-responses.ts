import { openaiTraits } from "./openai-traits.ts";
import type { ProviderSpec } from "./provider-spec.ts";

/** OpenAI by its Responses API, which lets reasoning go back. */
export const openaiResponses = {
  id: "openai-responses",
  displayName: "OpenAI (Responses)",
  dialect: "openai-responses",
  baseUrl: "https://api.openai.com/v1",
  baseUrlEnv: "OPENAI_BASE_URL",
  apiKeyEnv: "OPENAI_API_KEY",
  keyRequired: true,
  quirks: { developerRole: "developer" },
  features: ["streaming", "tools", "vision", "files", "thinking", "reasoning", "stateful", "json_mode"],
  traits: openaiTraits,
} as const satisfies ProviderSpec;
