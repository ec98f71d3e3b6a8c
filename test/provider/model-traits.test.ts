import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Feature } from "../../src/chat/feature.ts";
import type { ModelOptions } from "../../src/chat/request.ts";
import { isJsonObject, objectOf, parseJson } from "../../src/dialect/json.ts";
import { anthropic } from "../../src/provider/anthropic.ts";
import { deepseek } from "../../src/provider/deepseek.ts";
import { endpointOf, isConfigured } from "../../src/provider/endpoint.ts";
import { forward } from "../../src/provider/forward.ts";
import { kimi } from "../../src/provider/kimi.ts";
import { openai } from "../../src/provider/openai.ts";
import { openaiResponses } from "../../src/provider/openai-responses.ts";
import type { ProviderSpec } from "../../src/provider/provider-spec.ts";

const shape =
  '{"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"],"additionalProperties":false}';
const options: ModelOptions = {
  temperature: 0.5,
  thinking: { enabled: true, effort: "xhigh" },
  responseFormat: { type: "json_schema", name: "shape", schema: shape },
};
const off: ModelOptions = { thinking: { enabled: false } };

function encoded(spec: ProviderSpec, model: string, modelOptions: ModelOptions): Readonly<Record<string, unknown>> {
  const endpoint = endpointOf(
    spec,
    {},
    {
      env: {},
      send: () => assert.fail("nothing is sent"),
      now: () => 0,
      replayed: true,
    },
  );
  assert.ok(isConfigured(endpoint));
  const messages = [{ role: "user" as const, blocks: [{ type: "text" as const, text: "Go" }] }];
  const request = { model, messages, tools: [], options: modelOptions };
  const body = parseJson(endpoint.dialect.encode(request, endpoint.quirksOf(model), spec.id));
  assert.ok(isJsonObject(body));
  return body;
}

/** The fields that differ from model to model. */
function sent(spec: ProviderSpec, model: string, modelOptions: ModelOptions): object {
  const body = encoded(spec, model, modelOptions);
  const { temperature, thinking, reasoning, reasoning_effort, output_config, response_format, include } = body;
  const { effort, format } = objectOf(output_config);
  const fields = {
    temperature,
    thinking,
    reasoning,
    reasoning_effort,
    effort,
    format: objectOf(format ?? response_format ?? objectOf(body["text"])["format"])["type"],
    include: include === undefined ? undefined : "encrypted",
  };
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
}

const enabled = { type: "enabled" };
const disabled = { type: "disabled" };
const adaptive = { type: "adaptive" };
const schema = "json_schema";

const models: readonly { spec: ProviderSpec; names: readonly string[]; on: object; off: object }[] = [
  {
    spec: openai,
    names: ["gpt-4o", "gpt-4.1-mini", "gpt-5-chat-latest", "gpt-5.2-chat-latest", "chatgpt-4o-latest"],
    on: { temperature: 0.5, format: schema },
    off: {},
  },
  {
    spec: openai,
    names: ["o1", "o3", "o3-mini", "o4-mini-2025-04-16"],
    on: { reasoning_effort: "high", format: schema },
    off: { reasoning_effort: "low" },
  },
  {
    spec: openai,
    names: ["gpt-5", "gpt-5-mini", "gpt-5-nano-2025-08-07"],
    on: { reasoning_effort: "high", format: schema },
    off: { reasoning_effort: "minimal" },
  },
  {
    spec: openai,
    names: ["gpt-5-pro", "gpt-5-pro-2025-10-06"],
    on: { reasoning_effort: "high", format: schema },
    off: { reasoning_effort: "high" },
  },
  {
    spec: openai,
    names: ["gpt-5.1", "gpt-5.1-2025-11-13"],
    on: { reasoning_effort: "high", format: schema },
    off: { reasoning_effort: "none" },
  },
  {
    spec: openai,
    names: ["gpt-5.2", "gpt-5.4-mini"],
    on: { reasoning_effort: "xhigh", format: schema },
    off: { reasoning_effort: "none" },
  },
  {
    spec: openai,
    names: ["gpt-5-codex", "gpt-5.1-codex-mini"],
    on: { reasoning_effort: "high", format: schema },
    off: { reasoning_effort: "low" },
  },
  {
    spec: openai,
    names: ["gpt-5.1-codex-max", "gpt-5.3-codex"],
    on: { reasoning_effort: "xhigh", format: schema },
    off: { reasoning_effort: "low" },
  },
  {
    spec: openai,
    names: ["something-new"],
    on: { temperature: 0.5, reasoning_effort: "xhigh", format: schema },
    off: { reasoning_effort: "none" },
  },
  { spec: openaiResponses, names: ["gpt-4o"], on: { temperature: 0.5, format: schema }, off: {} },
  {
    spec: openaiResponses,
    names: ["o3"],
    on: { reasoning: { effort: "high", summary: "auto" }, format: schema, include: "encrypted" },
    off: { reasoning: { effort: "low" }, include: "encrypted" },
  },
  {
    spec: openaiResponses,
    names: ["gpt-5.2"],
    on: { reasoning: { effort: "xhigh", summary: "auto" }, format: schema, include: "encrypted" },
    off: { reasoning: { effort: "none" }, include: "encrypted" },
  },
  {
    spec: anthropic,
    names: ["claude-3-haiku-20240307", "claude-3-5-sonnet-20241022"],
    on: { temperature: 0.5 },
    off: {},
  },
  {
    spec: anthropic,
    names: ["claude-3-7-sonnet-20250219", "claude-sonnet-4-20250514", "claude-opus-4-0", "claude-opus-4-1-20250805"],
    on: { thinking: { ...enabled, budget_tokens: 24_576 } },
    off: { thinking: disabled },
  },
  {
    spec: anthropic,
    names: ["claude-sonnet-4-5", "claude-sonnet-4-5-20250929", "claude-haiku-4-5-20251001"],
    on: { thinking: { ...enabled, budget_tokens: 24_576 }, format: schema },
    off: { thinking: disabled },
  },
  {
    spec: anthropic,
    names: ["claude-opus-4-5-20251101"],
    on: { thinking: { ...enabled, budget_tokens: 24_576 }, effort: "high", format: schema },
    off: { thinking: disabled },
  },
  {
    spec: anthropic,
    names: ["claude-opus-4-6", "claude-sonnet-4-6"],
    on: { thinking: adaptive, effort: "max", format: schema },
    off: { thinking: disabled },
  },
  {
    spec: anthropic,
    names: ["claude-opus-4-7", "claude-opus-4-8", "claude-opus-5", "claude-sonnet-5", "claude-haiku-5-5"],
    on: { thinking: adaptive, effort: "xhigh", format: schema },
    off: { thinking: disabled },
  },
  {
    spec: deepseek,
    names: ["deepseek-v4-pro", "deepseek-chat"],
    on: { temperature: 0.5, thinking: enabled, reasoning_effort: "xhigh", format: "json_object" },
    off: { thinking: disabled },
  },
  {
    spec: kimi,
    names: ["kimi-k2.5", "kimi-k2.6"],
    on: { thinking: enabled, format: "json_object" },
    off: { thinking: disabled },
  },
  { spec: kimi, names: ["kimi-k2.7-code", "kimi-k2.7-code-highspeed"], on: { format: "json_object" }, off: {} },
  {
    spec: kimi,
    names: ["kimi-k3", "kimi-k3.1-pro"],
    on: { reasoning_effort: "max", format: "json_object" },
    off: { reasoning_effort: "low" },
  },
];

for (const { spec, names, on, off: offSent } of models) {
  for (const name of names) {
    test(`${spec.id}/${name} is told to think, and not to, in its own words`, () => {
      assert.deepEqual(sent(spec, name, options), on);
      assert.deepEqual(sent(spec, name, off), offSent);
    });
  }
}

test("a budget is sent to older Claude models and becomes an effort for newer ones", () => {
  const budget: ModelOptions = { thinking: { enabled: true, budgetTokens: 5000 } };
  const asIs = { thinking: { ...enabled, budget_tokens: 5000 } };
  assert.deepEqual(sent(anthropic, "claude-sonnet-4-5", budget), asIs);
  assert.deepEqual(sent(anthropic, "claude-sonnet-4-6", budget), asIs);
  assert.deepEqual(sent(anthropic, "claude-opus-4-7", budget), { thinking: adaptive, effort: "medium" });
});

const textOnly = [
  ...[
    "gpt-3.5-turbo",
    "gpt-3.5-turbo-0125",
    "gpt-4",
    "gpt-4-0613",
    "gpt-4-32k",
    "gpt-4-32k-0613",
    "gpt-4-0125-preview",
  ],
  ...["gpt-4-turbo-preview", "o1-mini", "o1-mini-2024-09-12", "o1-preview", "o3-mini", "o3-mini-2025-01-31"],
]
  .map((model): readonly [ProviderSpec, string] => [openai, model])
  .concat(
    ["moonshot-v1-8k", "moonshot-v1-auto", "kimi-k2-0905-preview", "kimi-k2-turbo-preview", "kimi-k2-thinking"].map(
      (model) => [kimi, model],
    ),
    ["claude-2", "claude-2.1", "claude-instant-1.2"].map((model) => [anthropic, model]),
  );

describe("features of single models", () => {
  const has = (spec: ProviderSpec, model: string, feature: Feature): boolean => {
    let found = spec.features.includes(feature);
    for (const { models: fit, adds = [], lacks = [] } of spec.traits ?? []) {
      if (fit.test(model)) found = (found || adds.includes(feature)) && !lacks.includes(feature);
    }
    return found;
  };
  for (const [spec, model, feature, expected] of [
    [openai, "gpt-4o", "reasoning", false],
    [openai, "gpt-5.2", "reasoning", true],
    [openai, "gpt-5.2", "stateful", false],
    [openaiResponses, "gpt-4.1", "stateful", true],
    [openaiResponses, "gpt-4.1", "thinking", false],
    [openaiResponses, "o3", "thinking", true],
    [anthropic, "claude-3-5-haiku-20241022", "thinking", false],
    [anthropic, "claude-sonnet-4-20250514", "thinking", true],
    [anthropic, "claude-sonnet-4-20250514", "json_mode", false],
    [anthropic, "claude-sonnet-4-5-20250929", "json_mode", true],
    [kimi, "moonshot-v1-8k", "thinking", false],
    [kimi, "kimi-k3", "thinking", true],
    ...textOnly.flatMap(([spec, model]) => [
      [spec, model, "vision", false] as const,
      [spec, model, "streaming", true] as const,
    ]),
    ...["gpt-4-turbo", "gpt-4-turbo-2024-04-09", "gpt-4o", "gpt-4.1-mini", "o1", "o3", "o4-mini", "gpt-5.2"].map(
      (model) => [openai, model, "vision", true] as const,
    ),
    [openai, "gpt-3.5-turbo", "files", false],
    [openaiResponses, "o3-mini", "files", false],
    [openai, "o3-mini", "tools", true],
    [openai, "o3-mini", "json_mode", true],
    [openai, "o1-mini", "tools", false],
    [openai, "o1-mini", "json_mode", false],
    [openai, "gpt-4o", "audio", false],
    [openai, "gpt-5.2", "audio", false],
    [openai, "gpt-4o-audio-preview", "audio", true],
    [openai, "gpt-4o-mini-audio-preview-2024-12-17", "audio", true],
    [openai, "gpt-audio", "audio", true],
    [openai, "gpt-audio-mini", "vision", false],
    [openai, "gpt-audio", "reasoning", false],
    [openaiResponses, "gpt-audio", "audio", false],
    [forward, "whatever", "audio", true],
    [kimi, "moonshot-v1-32k-vision-preview", "vision", true],
    [kimi, "kimi-k2.5", "vision", true],
    [kimi, "kimi-k3", "vision", true],
    [anthropic, "claude-3-haiku-20240307", "vision", true],
    [anthropic, "claude-2.1", "tools", false],
    [anthropic, "claude-instant-1.2", "files", false],
    [anthropic, "claude-3-opus-20240229", "tools", true],
  ] as const) {
    test(`${spec.id}/${model} ${expected ? "has" : "lacks"} ${feature}`, () => {
      assert.equal(has(spec, model, feature), expected);
    });
  }
});
