import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { AgentError } from "../../src/chat/error.ts";
import type { Message } from "../../src/chat/message.ts";
import type { ModelOptions, ThinkingOptions } from "../../src/chat/request.ts";
import { type DialectId, dialects } from "../../src/dialect/dialect.ts";
import { budgetOfEffort, effortOfBudget, efforts, leastEffort, nearestEffort } from "../../src/dialect/effort.ts";
import { objectOf, parseJson } from "../../src/dialect/json.ts";
import { defaultQuirks, type Quirks } from "../../src/dialect/quirks.ts";

const messages: Message[] = [{ role: "user", blocks: [{ type: "text", text: "Go" }] }];

function encodedText(dialect: DialectId, options: ModelOptions, quirks: Partial<Quirks>): string {
  const request = { model: "m-1", messages, tools: [], options };
  return dialects[dialect].encode(request, { ...defaultQuirks, ...quirks }, "p");
}

/** The fields of a request that its options changed. */
function changes(dialect: DialectId, options: ModelOptions, quirks: Partial<Quirks>): object {
  const plain = objectOf(parseJson(encodedText(dialect, {}, quirks)));
  const body = objectOf(parseJson(encodedText(dialect, options, quirks)));
  const changed = Object.entries(body).filter(([name, value]) => JSON.stringify(plain[name]) !== JSON.stringify(value));
  return Object.fromEntries(changed);
}

/** What each wire is asked for; in the order of `wishes`. */
const wishes = {
  "{}": {},
  off: { enabled: false },
  "off though effort": { enabled: false, effort: "high", budgetTokens: 2000 },
  "effort none": { enabled: true, effort: "none" },
  on: { enabled: true },
  "on, low": { enabled: true, effort: "low" },
  low: { effort: "low" },
  minimal: { effort: "minimal" },
  max: { effort: "max" },
  "budget 2000": { budgetTokens: 2000 },
  "on, budget 20,000": { enabled: true, budgetTokens: 20_000 },
  "low, budget 20,000": { effort: "low", budgetTokens: 20_000 },
} as const satisfies Record<string, ThinkingOptions>;
type Wish = keyof typeof wishes;

interface Wire {
  readonly name: string;
  readonly dialect: DialectId;
  readonly quirks: Partial<Quirks>;
  readonly sent: Readonly<Record<Wish, object>>;
}

const enabled = { thinking: { type: "enabled" } };
const disabled = { thinking: { type: "disabled" } };
const adaptive = { thinking: { type: "adaptive" } };
const budget = (tokens: number) => ({ thinking: { type: "enabled", budget_tokens: tokens } });
const outputEffort = (effort: string) => ({ output_config: { effort } });
const kwargs = (on: boolean) => ({ chat_template_kwargs: { enable_thinking: on } });

const wires: readonly Wire[] = [
  {
    name: "Chat Completions by effort",
    dialect: "openai-chat",
    quirks: {},
    sent: {
      "{}": {},
      off: { reasoning_effort: "none" },
      "off though effort": { reasoning_effort: "none" },
      "effort none": { reasoning_effort: "none" },
      on: { reasoning_effort: "medium" },
      "on, low": { reasoning_effort: "low" },
      low: { reasoning_effort: "low" },
      minimal: { reasoning_effort: "minimal" },
      max: { reasoning_effort: "xhigh" },
      "budget 2000": { reasoning_effort: "low" },
      "on, budget 20,000": { reasoning_effort: "high" },
      "low, budget 20,000": { reasoning_effort: "low" },
    },
  },
  {
    name: "Chat Completions by effort, where thinking has no end",
    dialect: "openai-chat",
    quirks: { efforts: ["none", "medium", "high"], thinkingAlways: true },
    sent: {
      "{}": {},
      off: { reasoning_effort: "medium" },
      "off though effort": { reasoning_effort: "medium" },
      "effort none": { reasoning_effort: "medium" },
      on: { reasoning_effort: "medium" },
      "on, low": { reasoning_effort: "medium" },
      low: { reasoning_effort: "medium" },
      minimal: { reasoning_effort: "medium" },
      max: { reasoning_effort: "high" },
      "budget 2000": { reasoning_effort: "medium" },
      "on, budget 20,000": { reasoning_effort: "high" },
      "low, budget 20,000": { reasoning_effort: "medium" },
    },
  },
  {
    name: "Chat Completions without thinking",
    dialect: "openai-chat",
    quirks: { reasoningEffort: false },
    sent: allThe({}),
  },
  {
    name: "thinking-type, with efforts the endpoint maps itself",
    dialect: "openai-chat",
    quirks: { thinkingSwitch: "thinking-type", efforts: ["minimal", "low", "medium", "high", "xhigh", "max"] },
    sent: {
      "{}": {},
      off: disabled,
      "off though effort": disabled,
      "effort none": disabled,
      on: enabled,
      "on, low": { ...enabled, reasoning_effort: "low" },
      low: { ...enabled, reasoning_effort: "low" },
      minimal: { ...enabled, reasoning_effort: "minimal" },
      max: { ...enabled, reasoning_effort: "max" },
      "budget 2000": { ...enabled, reasoning_effort: "low" },
      "on, budget 20,000": { ...enabled, reasoning_effort: "high" },
      "low, budget 20,000": { ...enabled, reasoning_effort: "low" },
    },
  },
  {
    name: "thinking-type, with a switch alone",
    dialect: "openai-chat",
    quirks: { thinkingSwitch: "thinking-type", reasoningEffort: false },
    sent: {
      ...allThe(enabled),
      "{}": {},
      off: disabled,
      "off though effort": disabled,
      "effort none": disabled,
    },
  },
  {
    name: "reasoning-object",
    dialect: "openai-chat",
    quirks: { thinkingSwitch: "reasoning-object" },
    sent: {
      "{}": {},
      off: { reasoning: { enabled: false } },
      "off though effort": { reasoning: { enabled: false } },
      "effort none": { reasoning: { enabled: false } },
      on: { reasoning: { enabled: true } },
      "on, low": { reasoning: { effort: "low" } },
      low: { reasoning: { effort: "low" } },
      minimal: { reasoning: { effort: "minimal" } },
      max: { reasoning: { effort: "xhigh" } },
      "budget 2000": { reasoning: { max_tokens: 2000 } },
      "on, budget 20,000": { reasoning: { max_tokens: 20_000 } },
      "low, budget 20,000": { reasoning: { max_tokens: 20_000 } },
    },
  },
  {
    name: "enable-thinking",
    dialect: "openai-chat",
    quirks: { thinkingSwitch: "enable-thinking" },
    sent: {
      "{}": {},
      off: { enable_thinking: false },
      "off though effort": { enable_thinking: false },
      "effort none": { enable_thinking: false },
      on: { enable_thinking: true },
      "on, low": { enable_thinking: true, thinking_budget: 2048 },
      low: { enable_thinking: true, thinking_budget: 2048 },
      minimal: { enable_thinking: true, thinking_budget: 1024 },
      max: { enable_thinking: true, thinking_budget: 24_576 },
      "budget 2000": { enable_thinking: true, thinking_budget: 2000 },
      "on, budget 20,000": { enable_thinking: true, thinking_budget: 20_000 },
      "low, budget 20,000": { enable_thinking: true, thinking_budget: 20_000 },
    },
  },
  {
    name: "template-kwargs",
    dialect: "openai-chat",
    quirks: { thinkingSwitch: "template-kwargs" },
    sent: {
      "{}": {},
      off: kwargs(false),
      "off though effort": kwargs(false),
      "effort none": kwargs(false),
      on: kwargs(true),
      "on, low": { ...kwargs(true), reasoning_effort: "low" },
      low: { ...kwargs(true), reasoning_effort: "low" },
      minimal: { ...kwargs(true), reasoning_effort: "minimal" },
      max: { ...kwargs(true), reasoning_effort: "xhigh" },
      "budget 2000": { ...kwargs(true), reasoning_effort: "low" },
      "on, budget 20,000": { ...kwargs(true), reasoning_effort: "high" },
      "low, budget 20,000": { ...kwargs(true), reasoning_effort: "low" },
    },
  },
  {
    name: "Responses",
    dialect: "openai-responses",
    quirks: {},
    sent: {
      "{}": {},
      off: { reasoning: { effort: "none" } },
      "off though effort": { reasoning: { effort: "none" } },
      "effort none": { reasoning: { effort: "none" } },
      on: { reasoning: { effort: "medium", summary: "auto" } },
      "on, low": { reasoning: { effort: "low", summary: "auto" } },
      low: { reasoning: { effort: "low" } },
      minimal: { reasoning: { effort: "minimal" } },
      max: { reasoning: { effort: "xhigh" } },
      "budget 2000": { reasoning: { effort: "low" } },
      "on, budget 20,000": { reasoning: { effort: "high", summary: "auto" } },
      "low, budget 20,000": { reasoning: { effort: "low" } },
    },
  },
  {
    name: "Responses without thinking",
    dialect: "openai-responses",
    quirks: { reasoningEffort: false },
    sent: allThe({}),
  },
  {
    name: "Messages with budgets and adaptive thinking",
    dialect: "anthropic-messages",
    quirks: {},
    sent: {
      "{}": {},
      off: disabled,
      "off though effort": disabled,
      "effort none": disabled,
      on: adaptive,
      "on, low": { ...adaptive, ...outputEffort("low") },
      low: outputEffort("low"),
      minimal: outputEffort("low"),
      max: outputEffort("max"),
      "budget 2000": budget(2000),
      "on, budget 20,000": budget(20_000),
      "low, budget 20,000": { ...budget(20_000), ...outputEffort("low") },
    },
  },
  {
    name: "Messages with adaptive thinking alone",
    dialect: "anthropic-messages",
    quirks: { thinkingMode: "adaptive" },
    sent: {
      "{}": {},
      off: disabled,
      "off though effort": disabled,
      "effort none": disabled,
      on: adaptive,
      "on, low": { ...adaptive, ...outputEffort("low") },
      low: outputEffort("low"),
      minimal: outputEffort("low"),
      max: outputEffort("max"),
      "budget 2000": { ...adaptive, ...outputEffort("low") },
      "on, budget 20,000": { ...adaptive, ...outputEffort("high") },
      "low, budget 20,000": { ...adaptive, ...outputEffort("low") },
    },
  },
  {
    name: "Messages with budgets alone",
    dialect: "anthropic-messages",
    quirks: { thinkingMode: "budget", reasoningEffort: false },
    sent: {
      "{}": {},
      off: disabled,
      "off though effort": disabled,
      "effort none": disabled,
      on: budget(8192),
      "on, low": budget(2048),
      low: budget(2048),
      minimal: budget(1024),
      max: budget(24_576),
      "budget 2000": budget(2000),
      "on, budget 20,000": budget(20_000),
      "low, budget 20,000": budget(20_000),
    },
  },
  {
    name: "Messages with budgets and efforts",
    dialect: "anthropic-messages",
    quirks: { thinkingMode: "budget", efforts: ["low", "medium", "high"] },
    sent: {
      "{}": {},
      off: disabled,
      "off though effort": disabled,
      "effort none": disabled,
      on: budget(8192),
      "on, low": { ...budget(2048), ...outputEffort("low") },
      low: outputEffort("low"),
      minimal: outputEffort("low"),
      max: outputEffort("high"),
      "budget 2000": budget(2000),
      "on, budget 20,000": budget(20_000),
      "low, budget 20,000": { ...budget(20_000), ...outputEffort("low") },
    },
  },
  {
    name: "Messages where thinking has no end",
    dialect: "anthropic-messages",
    quirks: { thinkingMode: "adaptive", thinkingAlways: true },
    sent: {
      "{}": {},
      off: outputEffort("low"),
      "off though effort": outputEffort("low"),
      "effort none": outputEffort("low"),
      on: adaptive,
      "on, low": { ...adaptive, ...outputEffort("low") },
      low: outputEffort("low"),
      minimal: outputEffort("low"),
      max: outputEffort("max"),
      "budget 2000": { ...adaptive, ...outputEffort("low") },
      "on, budget 20,000": { ...adaptive, ...outputEffort("high") },
      "low, budget 20,000": { ...adaptive, ...outputEffort("low") },
    },
  },
  {
    name: "Messages without thinking",
    dialect: "anthropic-messages",
    quirks: { thinkingMode: "none", reasoningEffort: false },
    sent: allThe({}),
  },
];

function allThe(sent: object): Record<Wish, object> {
  return {
    "{}": sent,
    off: sent,
    "off though effort": sent,
    "effort none": sent,
    on: sent,
    "on, low": sent,
    low: sent,
    minimal: sent,
    max: sent,
    "budget 2000": sent,
    "on, budget 20,000": sent,
    "low, budget 20,000": sent,
  };
}

for (const { name, dialect, quirks, sent } of wires) {
  describe(`thinking over ${name}`, () => {
    for (const [wish, thinking] of Object.entries(wishes)) {
      test(wish, () => {
        const expected = Object.entries(sent).find(([other]) => other === wish)?.[1];
        assert.deepEqual(changes(dialect, { thinking }, quirks), expected);
      });
    }
  });
}

describe("what is wrong with thinking options", () => {
  for (const { id } of Object.values(dialects)) {
    test(`an effort nobody knows, over ${id}`, () => {
      for (const effort of ["extreme", "HIGH", " low"]) {
        assert.throws(
          () => encodedText(id, { thinking: { enabled: false, effort } }, {}),
          (error) => {
            assert.ok(error instanceof AgentError);
            assert.equal(error.kind, "invalid_request");
            assert.equal(error.fieldViolations[0]?.field, "options.thinking.effort");
            assert.match(error.message, /must be one of none, minimal, low, medium, high, xhigh, max/);
            return true;
          },
        );
      }
    });
  }

  test("a budget that follows from an effort leaves half to the answer, or says that there is too little", () => {
    const quirks: Partial<Quirks> = { thinkingMode: "budget", reasoningEffort: false };
    const sent = (maxTokens: number) =>
      objectOf(parseJson(encodedText("anthropic-messages", { maxTokens, thinking: { effort: "high" } }, quirks)));
    assert.deepEqual(sent(100_000)["thinking"], { type: "enabled", budget_tokens: 16_384 });
    assert.deepEqual(sent(9000)["thinking"], { type: "enabled", budget_tokens: 4500 });
    assert.deepEqual(sent(1025)["thinking"], { type: "enabled", budget_tokens: 1024 });
    assert.throws(
      () => sent(1024),
      (error) => error instanceof AgentError && error.fieldViolations[0]?.field === "options.maxTokens",
    );
  });
});

describe("temperature and top_p", () => {
  const sampling = { temperature: 0.5, topP: 0.9 };
  const sent = { temperature: 0.5, top_p: 0.9 };
  const thinking = { enabled: true };
  for (const { id } of Object.values(dialects)) {
    const of = (options: ModelOptions, quirk: Quirks["sampling"]) => {
      const { temperature, top_p } = objectOf(parseJson(encodedText(id, options, { sampling: quirk })));
      return { temperature, top_p };
    };
    const none = { temperature: undefined, top_p: undefined };
    test(`over ${id} they are sent as the quirk says`, () => {
      assert.deepEqual(of({ ...sampling, thinking }, "always"), sent);
      assert.deepEqual(of(sampling, "without-thinking"), sent);
      assert.deepEqual(of({ ...sampling, thinking: { enabled: false } }, "without-thinking"), sent);
      assert.deepEqual(of({ ...sampling, thinking }, "without-thinking"), none);
      assert.deepEqual(of(sampling, "never"), none);
    });
  }
});

describe("efforts and budgets", () => {
  test("each effort's budget stands for that effort", () => {
    const known = efforts.filter((effort) => effort !== "none" && effort !== "max");
    assert.deepEqual([1, 1023, 1024, 4095, 4096, 16_383, 16_384, 24_575, 24_576, 1e6].map(effortOfBudget), [
      "minimal",
      "minimal",
      "low",
      "low",
      "medium",
      "medium",
      "high",
      "high",
      "xhigh",
      "xhigh",
    ]);
    // The least budget that is accepted anywhere stands for the least effort.
    assert.deepEqual(known.map(budgetOfEffort), [1024, 2048, 8192, 16_384, 24_576]);
    assert.equal(budgetOfEffort("max"), 24_576);
    assert.deepEqual(
      known.slice(1).map((effort) => effortOfBudget(budgetOfEffort(effort))),
      known.slice(1),
    );
  });

  test("the nearest level, of two the higher", () => {
    assert.equal(nearestEffort("medium", ["low", "high", "max"]), "high");
    assert.equal(nearestEffort("minimal", ["low", "high"]), "low");
    assert.equal(nearestEffort("xhigh", ["high", "max"]), "max");
    assert.equal(nearestEffort("low", ["none"]), undefined);
    assert.equal(leastEffort(["high", "low"]), "low");
    assert.equal(leastEffort(["high", "none"]), "none");
    assert.equal(leastEffort([]), undefined);
  });
});
