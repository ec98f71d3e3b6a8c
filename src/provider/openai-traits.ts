import type { ModelTraits } from "./provider-spec.ts";

/**
 * How OpenAI's models differ in reasoning. What each effort is offered for is told by the API reference
 * (developers.openai.com/api/reference, `reasoning_effort`: only `high` for gpt-5-pro, `none` from gpt-5.1 on, `xhigh`
 * after gpt-5.1-codex-max) and by the pages of the models; that models which reason refuse `temperature` and `top_p`, by
 * the guide for them (developers.openai.com/api/docs/guides/latest-model, "Parameter compatibility").
 *
 * Which models read text only is told by their pages (developers.openai.com/api/docs/models/gpt-4, "Input modalities",
 * and those of gpt-3.5-turbo, gpt-4-turbo-preview, o1-mini, o1-preview and o3-mini); files go to models that read
 * pictures too (docs/guides/pdf-files). The first models of the o series also refuse tools and schemas.
 */
export const openaiTraits = [
  // Models that do not reason refuse to be asked for an effort, and for encrypted reasoning.
  {
    models: /^(?:gpt-3\.5|gpt-4|chatgpt-4o|gpt-5(?:\.\d+)?-chat)/,
    lacks: ["thinking", "reasoning"],
    quirks: { reasoningEffort: false, encryptedReasoning: false },
  },
  {
    models: /^(?:gpt-3\.5|gpt-4(?:-32k)?(?:-\d{4})?$|gpt-4-(?:\d{4}|turbo)-preview|o1-(?:mini|preview)|o3-mini)/,
    lacks: ["vision", "files"],
  },
  { models: /^o1-(?:mini|preview)/, lacks: ["tools", "json_mode"], quirks: { jsonSchema: "prompt" } },
  { models: /^o[134](?:-|$)/, quirks: { efforts: ["low", "medium", "high"], sampling: "never" } },
  {
    models: /^gpt-5(?:-mini|-nano)?(?:-\d{4}-\d{2}-\d{2})?$/,
    quirks: { efforts: ["minimal", "low", "medium", "high"], sampling: "never" },
  },
  { models: /^gpt-5-pro/, quirks: { efforts: ["high"], sampling: "never" } },
  {
    models: /^gpt-5\.1(?!-chat)/,
    quirks: { efforts: ["none", "low", "medium", "high"], sampling: "without-thinking" },
  },
  {
    models: /^gpt-5\.[2-9](?!-chat)/,
    quirks: { efforts: ["none", "low", "medium", "high", "xhigh"], sampling: "without-thinking" },
  },
  // Codex models always reason.
  { models: /^gpt-5(?:\.1)?-codex/, quirks: { efforts: ["low", "medium", "high"], sampling: "never" } },
  {
    models: /^gpt-5(?:\.1-codex-max|\.[2-9]-codex)/,
    quirks: { efforts: ["low", "medium", "high", "xhigh"], sampling: "never" },
  },
] as const satisfies readonly ModelTraits[];
