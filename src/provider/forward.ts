import type { ProviderSpec } from "./provider-spec.ts";

/** Any endpoint that speaks Chat Completions. */
export const forward = {
  id: "forward",
  displayName: "Any OpenAI-compatible endpoint",
  dialect: "openai-chat",
  baseUrlEnv: "FORWARD_BASE_URL",
  apiKeyEnv: "FORWARD_API_KEY",
  keyRequired: false,
  features: ["streaming", "tools", "vision", "audio", "files", "thinking", "reasoning", "json_mode"],
} as const satisfies ProviderSpec;
