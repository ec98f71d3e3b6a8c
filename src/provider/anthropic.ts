import type { ProviderSpec } from "./provider-spec.ts";

export const anthropic = {
  id: "anthropic",
  dialect: "anthropic-messages",
  baseUrl: "https://api.anthropic.com",
  baseUrlEnv: "ANTHROPIC_BASE_URL",
  apiKeyEnv: "ANTHROPIC_API_KEY",
  auth: "x-api-key",
  keyRequired: true,
  headers: { "anthropic-version": "2023-06-01" },
  features: ["streaming", "tools", "vision", "files", "thinking", "reasoning", "json_mode"],
} as const satisfies ProviderSpec;
