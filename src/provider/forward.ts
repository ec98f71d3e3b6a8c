import type { ProviderSpec } from "./provider-spec.ts";

/** Any endpoint that speaks Chat Completions. */
export const forward = {
  id: "forward",
  dialect: "openai-chat",
  baseUrlEnv: "FORWARD_BASE_URL",
  apiKeyEnv: "FORWARD_API_KEY",
  keyRequired: false,
  features: ["tools", "images", "structured-output", "thinking-effort"],
} as const satisfies ProviderSpec;
