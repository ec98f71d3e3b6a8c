import type { ProviderSpec } from "./provider-spec.ts";

/**
 * How thinking is asked for differs by the generation (platform.claude.com/docs/en/build-with-claude/adaptive-thinking,
 * extended-thinking and effort): up to 4.5 models know only budgets, the 4.6 ones budgets and adaptive thinking, those
 * after them only the latter, and neither temperature nor top_p (about-claude/models/migration-guide). Answers are held
 * to a schema from 4.5 on (build-with-claude/structured-outputs). Tools, pictures and PDF files came with Claude 3
 * (build-with-claude/vision, and the news on tool use of 30 May 2024); what was there before reads and writes text.
 */
export const anthropic = {
  id: "anthropic",
  displayName: "Anthropic",
  dialect: "anthropic-messages",
  baseUrl: "https://api.anthropic.com",
  baseUrlEnv: "ANTHROPIC_BASE_URL",
  apiKeyEnv: "ANTHROPIC_API_KEY",
  auth: "x-api-key",
  keyRequired: true,
  headers: { "anthropic-version": "2023-06-01" },
  features: ["streaming", "tools", "vision", "files", "thinking", "reasoning", "json_mode"],
  quirks: { sampling: "without-thinking" },
  traits: [
    { models: /^claude-(?:v1|2|instant)/, lacks: ["tools", "vision", "files"] },
    {
      models: /^claude-(?:3-(?!7)|v1|2|instant)/,
      lacks: ["thinking", "reasoning", "json_mode"],
      quirks: { thinkingMode: "none", reasoningEffort: false, jsonSchema: "prompt", defaultMaxTokens: 4096 },
    },
    {
      models: /^claude-(?:3-7-sonnet|(?:opus|sonnet)-4(?:-[01])?(?:-\d{8}|-latest)?$)/,
      lacks: ["json_mode"],
      quirks: { thinkingMode: "budget", reasoningEffort: false, jsonSchema: "prompt" },
    },
    { models: /^claude-(?:sonnet|haiku)-4-5/, quirks: { thinkingMode: "budget", reasoningEffort: false } },
    { models: /^claude-opus-4-5/, quirks: { thinkingMode: "budget", efforts: ["low", "medium", "high"] } },
    { models: /^claude-(?:opus|sonnet)-4-6/, quirks: { efforts: ["low", "medium", "high", "max"] } },
    {
      models: /^claude-(?:opus-4-[7-9]|[a-z]+-(?:[5-9]|\d\d)(?:-|$))/,
      quirks: { thinkingMode: "adaptive", sampling: "never" },
    },
  ],
} as const satisfies ProviderSpec;
