import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { usageFromOpenaiChat } from "../../src/dialect/openai-chat-usage.ts";

const cached = (count: number) => ({ prompt_tokens_details: { cached_tokens: count } });

const cases: readonly { name: string; told: object; read: object }[] = [
  {
    name: "part of the prompt was cached",
    told: { prompt_tokens: 235, completion_tokens: 10, total_tokens: 245, ...cached(200) },
    read: { inputTokens: 235, outputTokens: 10, totalTokens: 245, cacheReadTokens: 200 },
  },
  {
    name: "more was cached than there was prompt",
    told: { prompt_tokens: 235, completion_tokens: 10, total_tokens: 245, ...cached(373) },
    read: { inputTokens: 235, outputTokens: 10, totalTokens: 245, cacheReadTokens: 235 },
  },
  {
    name: "more was cached than there was prompt, and no total",
    told: { prompt_tokens: 235, completion_tokens: 10, ...cached(373) },
    read: { inputTokens: 235, outputTokens: 10, totalTokens: 245, cacheReadTokens: 235 },
  },
  {
    name: "the prompt is told without its cached part",
    told: { prompt_tokens: 235, completion_tokens: 10, total_tokens: 618, ...cached(373) },
    read: { inputTokens: 608, outputTokens: 10, totalTokens: 618, cacheReadTokens: 373 },
  },
  {
    name: "the completion is told without its reasoning",
    told: {
      prompt_tokens: 741,
      completion_tokens: 15,
      total_tokens: 866,
      completion_tokens_details: { reasoning_tokens: 110 },
      ...cached(740),
    },
    read: { inputTokens: 741, outputTokens: 125, totalTokens: 866, cacheReadTokens: 740, reasoningTokens: 110 },
  },
  {
    name: "more was read from and written to the cache than there was prompt",
    told: { prompt_tokens: 100, completion_tokens: 1, cache_read_input_tokens: 80, cache_creation_input_tokens: 90 },
    read: { inputTokens: 100, outputTokens: 1, totalTokens: 101, cacheReadTokens: 80, cacheCreationTokens: 20 },
  },
  {
    name: "negative counts are unknown",
    told: { prompt_tokens: -1, completion_tokens: 5, total_tokens: -4, ...cached(-3) },
    read: { outputTokens: 5 },
  },
];

describe("usage of Chat Completions", () => {
  for (const { name, told, read } of cases) {
    test(name, () => assert.deepEqual(usageFromOpenaiChat(told), read));
  }

  test("whatever is told, the parts are no more than the whole and nothing is negative", () => {
    const count = fc.option(fc.integer({ min: -5, max: 1000 }), { nil: null });
    const told = fc.record({
      prompt_tokens: count,
      completion_tokens: count,
      total_tokens: count,
      cache_creation_input_tokens: count,
      prompt_tokens_details: fc.record({ cached_tokens: count }),
      completion_tokens_details: fc.record({ reasoning_tokens: count }),
    });
    fc.assert(
      fc.property(told, (counts) => {
        const usage = usageFromOpenaiChat(counts) ?? {};
        for (const value of Object.values(usage)) assert.ok(typeof value !== "number" || value >= 0);
        const { inputTokens, outputTokens, cacheReadTokens = 0, cacheCreationTokens = 0, reasoningTokens = 0 } = usage;
        assert.ok(inputTokens === undefined || cacheReadTokens + cacheCreationTokens <= inputTokens);
        assert.ok(outputTokens === undefined || reasoningTokens <= outputTokens);
      }),
    );
  });
});
