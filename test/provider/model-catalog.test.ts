import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import type { Usage } from "../../src/chat/usage.ts";
import { createModelCatalog, priceData } from "../../src/provider/model-catalog.ts";
import { nanoUsdOf } from "../../src/provider/model-price.ts";
import { readPriceFile } from "../../src/provider/price-file.ts";

const september = Date.UTC(2026, 8, 25, 12);
const source = "genai-prices 0.1.8 (2026-09-23)";
const providers = ["openai", "anthropic", "forward", "mine"];

function priceFileOf(context: TestContext, text: string) {
  const folder = mkdtempSync(join(tmpdir(), "codeagent-prices-"));
  context.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "prices.yaml");
  writeFileSync(file, text);
  return { file, read: () => readPriceFile(file, providers) };
}

interface CostRow {
  readonly name: string;
  /** `provider/model`. */
  readonly model: string;
  readonly baseUrl?: string;
  readonly usage: Usage;
  readonly at?: number;
  readonly nanoUsd: number | undefined;
}

describe("what a call cost", () => {
  const thousandEach = { inputTokens: 1000, outputTokens: 1000 };
  const rows: readonly CostRow[] = [
    // 500 x $3 + 200 x $0.30 + 300 x $3.75 + 500 x $15, each per million.
    {
      name: "what is read from the cache and written to it has prices of its own",
      model: "anthropic/claude-sonnet-4-5",
      usage: { inputTokens: 1000, cacheReadTokens: 200, cacheCreationTokens: 300, outputTokens: 500 },
      nanoUsd: 10_185_000,
    },
    // 200,000 x $3 + 10 x $15.
    {
      name: "the lower tier reaches up to its bound",
      model: "anthropic/claude-sonnet-4-5",
      usage: { inputTokens: 200_000, outputTokens: 10 },
      nanoUsd: 600_150_000,
    },
    // 200,001 x $6 + 10 x $22.50: the tier holds for all of the call.
    {
      name: "one token more makes the whole call dearer",
      model: "anthropic/claude-sonnet-4-5",
      usage: { inputTokens: 200_001, outputTokens: 10 },
      nanoUsd: 1_200_231_000,
    },
    // 1,001 x $6 + 199,000 x $0.60.
    {
      name: "the cached part counts for the tier",
      model: "anthropic/claude-sonnet-4-5",
      usage: { inputTokens: 200_001, cacheReadTokens: 199_000, outputTokens: 0 },
      nanoUsd: 125_406_000,
    },
    // 1,000 x $2.50 + 1,000 x $15.
    {
      name: "reasoning is part of the output and not paid twice",
      model: "openai/gpt-5.4",
      usage: { ...thousandEach, reasoningTokens: 900 },
      nanoUsd: 17_500_000,
    },
    {
      name: "a dated name is the same model",
      model: "openai/gpt-5.4-2026-03-05",
      usage: thousandEach,
      nanoUsd: 17_500_000,
    },
    {
      name: "the Responses API costs the same",
      model: "openai-responses/gpt-5.4",
      usage: thousandEach,
      nanoUsd: 17_500_000,
    },
    { name: "Moonshot's models are asked as kimi", model: "kimi/kimi-k2.5", usage: thousandEach, nanoUsd: 3_600_000 },
    {
      name: "a model without a price for its cache takes that of its input",
      model: "openai/gpt-4",
      usage: { inputTokens: 10, cacheReadTokens: 10, outputTokens: 0 },
      nanoUsd: 300_000,
    },
    // The price fell from $10 and $40 to $2 and $8.
    {
      name: "before a new price",
      model: "openai/o3",
      usage: thousandEach,
      at: Date.UTC(2025, 5, 9),
      nanoUsd: 50_000_000,
    },
    {
      name: "since a new price",
      model: "openai/o3",
      usage: thousandEach,
      at: Date.UTC(2025, 5, 10),
      nanoUsd: 10_000_000,
    },
    // $0.44 and $1.32 at the busy hours, else half of it.
    {
      name: "at a dear time of day",
      model: "deepseek/deepseek-v4-flash",
      usage: thousandEach,
      at: Date.UTC(2026, 8, 1, 2),
      nanoUsd: 1_760_000,
    },
    {
      name: "at a cheap time of day",
      model: "deepseek/deepseek-v4-flash",
      usage: thousandEach,
      at: Date.UTC(2026, 8, 1, 5),
      nanoUsd: 880_000,
    },
    // $0.022 per million are 22 billionths a token; at the older $0.003625 they are 3.625, which rounds to 4.
    {
      name: "fractions of a billionth are rounded once",
      model: "deepseek/deepseek-v4-pro",
      usage: { inputTokens: 1, cacheReadTokens: 1, outputTokens: 0 },
      at: Date.UTC(2026, 7, 1, 5),
      nanoUsd: 4,
    },
    {
      name: "nothing read and written is known to cost nothing",
      model: "openai/o3",
      usage: { inputTokens: 0, outputTokens: 0 },
      nanoUsd: 0,
    },
    {
      name: "a vendor's own address tells who it is",
      model: "forward/gpt-5.4",
      baseUrl: "https://api.openai.com/v1",
      usage: thousandEach,
      nanoUsd: 17_500_000,
    },
    {
      name: "an address of one's own is nobody's",
      model: "forward/gpt-5.4",
      baseUrl: "https://llm.example.org/v1",
      usage: thousandEach,
      nanoUsd: undefined,
    },
    { name: "an endpoint without an address", model: "forward/gpt-5.4", usage: thousandEach, nanoUsd: undefined },
    { name: "a subscription has no price per call", model: "copilot/gpt-5.4", usage: thousandEach, nanoUsd: undefined },
    { name: "a model nobody knows", model: "openai/gpt-nobody-knows", usage: thousandEach, nanoUsd: undefined },
    { name: "a provider nobody knows", model: "nobody/gpt-5.4", usage: thousandEach, nanoUsd: undefined },
    { name: "no count of the output", model: "openai/gpt-5.4", usage: { inputTokens: 1 }, nanoUsd: undefined },
    { name: "no count of the input", model: "openai/gpt-5.4", usage: { outputTokens: 1 }, nanoUsd: undefined },
    {
      name: "a cache larger than the input",
      model: "openai/gpt-5.4",
      usage: { inputTokens: 1, cacheReadTokens: 2, outputTokens: 1 },
      nanoUsd: undefined,
    },
    {
      name: "output of a model that has no price for it",
      model: "openai/text-embedding-3-small",
      usage: thousandEach,
      nanoUsd: undefined,
    },
    {
      name: "reasoning that is paid by another price",
      model: "forward/perplexity/sonar-deep-research",
      baseUrl: "https://openrouter.ai/api/v1",
      usage: thousandEach,
      nanoUsd: undefined,
    },
    {
      name: "sound that has another price than text",
      model: "forward/gemini-2.5-flash",
      baseUrl: "https://generativelanguage.googleapis.com/v1beta/openai",
      usage: thousandEach,
      nanoUsd: undefined,
    },
    { name: "sound that goes out", model: "openai/gpt-audio", usage: thousandEach, nanoUsd: undefined },
    {
      name: "sound the price of which is not told",
      model: "openai/gpt-4o-audio-preview",
      usage: thousandEach,
      nanoUsd: undefined,
    },
    {
      name: "a cost the provider told",
      model: "openai/gpt-5.4",
      usage: { ...thousandEach, costNanoUsd: 7 },
      nanoUsd: undefined,
    },
  ];
  const catalog = createModelCatalog();
  for (const { name, model, baseUrl, usage, at = september, nanoUsd } of rows) {
    test(name, async () => {
      const [id = "", ...rest] = model.split("/");
      const provider = { id, ...(baseUrl === undefined ? {} : { baseUrl }) };
      const cost = await catalog.costOf({ provider, model: rest.join("/"), usage, atMs: at });
      assert.deepEqual(cost, nanoUsd === undefined ? undefined : { costNanoUsd: nanoUsd, priceSource: source });
    });
  }
});

test("the source names the release of the data that is installed", () => {
  const { version } = JSON.parse(readFileSync("node_modules/@pydantic/genai-prices/package.json", "utf8"));
  assert.equal(priceData.version, version, "change priceData to the new version and the day it was released");
});

describe("dollars become billionths by their decimal digits", () => {
  for (const [dollars, nanoUsd] of [
    [0.1, 100_000_000],
    [0.003625, 3_625_000],
    [1_000_000, 1e15],
    [1e-9, 1],
    [0, 0],
    [0.08333333333333334, undefined],
    [5e-10, undefined],
    [-1, undefined],
    [1_000_001, undefined],
    [Number.NaN, undefined],
  ] as const) {
    test(String(dollars), () => assert.equal(nanoUsdOf(dollars, "refuse"), nanoUsd));
  }
  for (const [dollars, nanoUsd] of [
    [0.08333333333333334, 83_333_333],
    [5e-10, 1],
    [4.9e-10, 0],
  ] as const) {
    test(`${dollars}, rounded`, () => assert.equal(nanoUsdOf(dollars, "round"), nanoUsd));
  }
});

describe("the data is loaded when it is needed", () => {
  const countingCatalog = (context: TestContext, prices = "{}") => {
    const loads: string[] = [];
    const catalog = createModelCatalog({
      priceFile: priceFileOf(context, prices).read(),
      load: async () => {
        loads.push("load");
        if (loads.length === 1) throw new Error("no file");
        return import("@pydantic/genai-prices");
      },
    });
    return { loads, catalog };
  };
  const usage = { inputTokens: 1000, outputTokens: 1000 };
  const call = (id: string, model: string, baseUrl?: string) => ({
    provider: { id, ...(baseUrl === undefined ? {} : { baseUrl }) },
    model,
    usage,
    atMs: september,
  });

  test("not for endpoints of one's own, nor where the file has the price", async (context) => {
    const { loads, catalog } = countingCatalog(context, "openai/own: { input: 1, output: 2 }");
    assert.equal(await catalog.costOf(call("scripted", "test", "http://scripted.invalid/v1")), undefined);
    assert.equal(await catalog.costOf(call("forward", "gpt-5.4", "http://127.0.0.1:1/v1")), undefined);
    assert.deepEqual(await catalog.costOf(call("openai", "own")), {
      costNanoUsd: 3_000_000,
      priceSource: "prices file",
    });
    assert.deepEqual(loads, []);
  });

  test("once for all, and again after it failed; an answer does not fail for it", async (context) => {
    const { loads, catalog } = countingCatalog(context);
    assert.equal(await catalog.costOf(call("openai", "gpt-5.4")), undefined);
    const found = await Promise.all([1, 2, 3].map(() => catalog.costOf(call("openai", "gpt-5.4"))));
    assert.deepEqual(
      found.map((cost) => cost?.costNanoUsd),
      [17_500_000, 17_500_000, 17_500_000],
    );
    assert.deepEqual(loads, ["load", "load"]);
  });
});

describe("an operator's prices", () => {
  const text = `
mine/big:
  input: 3.0
  output: 15
  cache_read: 0.1
  cache_creation: 3.75
  context_window: 200000
  max_output: 64000
  display_name: Big
  tiers:
    - { from_input_tokens: 1000, input: 6, output: 30 }
mine/*: { input: 0.0005, output: 0 }
mine/big*: { input: 1, output: 1 }
openai/gpt-5.4: { input: 1, output: 1 }
openai/gpt-5.5: { max_output: 1234, display_name: Ours }
`;
  const costs: readonly (readonly [name: string, model: string, usage: Usage, nanoUsd: number])[] = [
    // 100 x $3 + 200 x $0.10 + 300 x $3.75 + 10 x $15.
    [
      "all its prices",
      "mine/big",
      { inputTokens: 600, cacheReadTokens: 200, cacheCreationTokens: 300, outputTokens: 10 },
      1_595_000,
    ],
    ["its lower tier below the bound", "mine/big", { inputTokens: 999, outputTokens: 0 }, 2_997_000],
    [
      "its upper tier from the bound on",
      "mine/big",
      { inputTokens: 1000, cacheReadTokens: 500, outputTokens: 1 },
      6_030_000,
    ],
    ["the longest pattern that fits", "mine/bigger", { inputTokens: 1, outputTokens: 1 }, 2000],
    ["half a billionth becomes a whole one", "mine/other", { inputTokens: 1, outputTokens: 1 }, 1],
    ["less than half becomes none", "mine/other", { inputTokens: 0, outputTokens: 1000 }, 0],
    ["instead of the data", "openai/gpt-5.4", { inputTokens: 1, outputTokens: 1 }, 2000],
  ];
  for (const [name, model, usage, costNanoUsd] of costs) {
    test(name, async (context) => {
      const catalog = createModelCatalog({ priceFile: priceFileOf(context, text).read() });
      const [id = "", own = ""] = model.split("/");
      const cost = await catalog.costOf({ provider: { id }, model: own, usage, atMs: september });
      assert.deepEqual(cost, { costNanoUsd, priceSource: "prices file" });
    });
  }

  test("its models are listed with what it says of them", async (context) => {
    const catalog = createModelCatalog({ priceFile: priceFileOf(context, text).read() });
    assert.deepEqual(await catalog.list({ id: "mine" }, september), [
      {
        id: "big",
        displayName: "Big",
        contextWindowTokens: 200_000,
        maxOutputTokens: 64_000,
        prices: [
          {
            fromInputTokens: 0,
            inputNanoUsd: 3_000_000_000,
            outputNanoUsd: 15_000_000_000,
            cacheReadNanoUsd: 100_000_000,
            cacheCreationNanoUsd: 3_750_000_000,
          },
          { fromInputTokens: 1000, inputNanoUsd: 6_000_000_000, outputNanoUsd: 30_000_000_000 },
        ],
        priceSource: "prices file",
      },
    ]);
  });

  test("what it leaves out is taken from the data", async (context) => {
    const catalog = createModelCatalog({ priceFile: priceFileOf(context, text).read() });
    const model = await catalog.find({ id: "openai" }, "gpt-5.5", september);
    assert.deepEqual(
      [
        model?.displayName,
        model?.maxOutputTokens,
        model?.contextWindowTokens,
        model?.priceSource,
        model?.prices.length,
      ],
      ["Ours", 1234, 1_000_000, source, 2],
    );
  });

  test("JSON is as good as YAML, and an empty file as none", (context) => {
    const json = priceFileOf(context, '{"mine/x": {"input": 1, "output": 2}}').read();
    assert.deepEqual(json.find("mine/x")?.prices, [
      { fromInputTokens: 0, inputNanoUsd: 1_000_000_000, outputNanoUsd: 2_000_000_000 },
    ]);
    assert.deepEqual(priceFileOf(context, "").read().names, []);
  });

  const errors: readonly (readonly [text: string, sentence: RegExp])[] = [
    ["mine/x: { input: 1, output: 2, cached: 3 }", /: mine\/x: there is no cached; there are: input, output/],
    ["mine/x: { input: -1, output: 2 }", /: mine\/x\.input: dollars per million tokens are wanted, a number from 0/],
    ['mine/x: { input: "1", output: 2 }', /: mine\/x\.input: dollars/],
    ["mine/x: { input: .nan, output: 2 }", /: mine\/x\.input: dollars/],
    ["mine/x: { input: 0.0000000001, output: 2 }", /: mine\/x\.input: dollars .* with up to 9 decimals$/],
    ["mine/x: { input: 1 }", /: mine\/x\.output is missing; input and output go together$/],
    ["mine/x: { cache_read: 1 }", /: mine\/x\.input is missing/],
    ["mine/x: { context_window: 1.5 }", /: mine\/x\.context_window: a whole number of tokens from 1 is wanted$/],
    ["mine/x: { display_name: 3 }", /: mine\/x\.display_name: a text is wanted$/],
    ["mine/x: 3", /: mine\/x: entries as "key: value" are wanted$/],
    ["- mine/x", /: the file: entries as "key: value" are wanted$/],
    ["mine/x: { input: 1, output: 2, tiers: 3 }", /: mine\/x\.tiers: a list is wanted$/],
    [
      "mine/x: { input: 1, output: 2, tiers: [{ input: 1, output: 2 }] }",
      /: mine\/x\.tiers\[0\]\.from_input_tokens: a whole number of tokens above 0 is wanted$/,
    ],
    [
      "mine/x: { input: 1, output: 2, tiers: [{ from_input_tokens: 9, input: 1, output: 2 }, { from_input_tokens: 9, input: 1, output: 2 }] }",
      /: mine\/x\.tiers\[1\]\.from_input_tokens: a whole number of tokens above 9 is wanted$/,
    ],
    ["mine/x: { tiers: [{ from_input_tokens: 9, input: 1, output: 2 }] }", /: mine\/x\.input is missing/],
    ["nobody/x: { input: 1, output: 2 }", /: nobody\/x: there is no provider nobody; there are: openai, /],
    ["mine: { input: 1, output: 2 }", /: mine: a model is wanted as provider\/model/],
    ["mine/*/x: { input: 1, output: 2 }", /: mine\/\*\/x: a model is wanted/],
    ["a: &a { input: 1 }\nb: *a", / can't be read: /],
    ["{", / can't be read: /],
  ];
  for (const [written, sentence] of errors) {
    test(`refuses ${written}`, (context) => {
      const { file, read } = priceFileOf(context, written);
      assert.throws(read, (error) => {
        assert.ok(error instanceof Error);
        assert.ok(error.message.startsWith(`prices.file: ${file}`), error.message);
        assert.match(error.message, sentence);
        assert.doesNotMatch(error.message, /\n/);
        return true;
      });
    });
  }

  test("refuses a file that is not there", () => {
    assert.throws(
      () => readPriceFile("/nowhere/prices.yaml", providers),
      /^Error: prices\.file: \/nowhere\/prices\.yaml can't be read: it does not exist$/,
    );
  });
});

describe("the models of a provider", () => {
  const catalog = createModelCatalog();
  for (const [provider, some, others] of [
    [
      "openai",
      ["gpt-5.4", "o3"],
      ["text-embedding-3-small", "whisper-1", "gpt-4o-transcribe", "gpt-realtime", "ft:gpt-4o"],
    ],
    ["anthropic", ["claude-sonnet-5"], ["claude-v1"]],
    ["deepseek", ["deepseek-v4-pro"], []],
    ["kimi", ["kimi-k3"], ["kimi-k2", "kimi-k2-thinking"]],
    ["forward", [], []],
  ] as const) {
    test(`${provider}: those one can talk with that are not given up, each once, in order`, async () => {
      const ids = (await catalog.list({ id: provider }, september)).map(({ id }) => id);
      assert.deepEqual(ids, [...new Set(ids)].sort());
      assert.deepEqual(
        some.filter((id) => !ids.includes(id)),
        [],
      );
      assert.deepEqual(
        others.filter((id) => ids.includes(id)),
        [],
      );
    });
  }

  test("prices come in tiers, with the day they began", async () => {
    const models = await catalog.list({ id: "openai" }, september);
    assert.deepEqual(
      models.find(({ id }) => id === "gpt-5.4"),
      {
        id: "gpt-5.4",
        displayName: "GPT-5.4",
        contextWindowTokens: 1_050_000,
        prices: [
          { fromInputTokens: 0, inputNanoUsd: 2.5e9, outputNanoUsd: 15e9, cacheReadNanoUsd: 0.25e9 },
          { fromInputTokens: 272_000, inputNanoUsd: 5e9, outputNanoUsd: 22.5e9, cacheReadNanoUsd: 0.5e9 },
        ],
        priceSource: source,
      },
    );
    assert.equal(models.find(({ id }) => id === "o3")?.priceFromMs, Date.UTC(2025, 5, 10));
  });

  test("a subscription's models have windows and no prices", async () => {
    const models = await catalog.list({ id: "copilot" }, september);
    assert.ok(models.length > 10);
    assert.ok(models.every(({ contextWindowTokens = 0 }) => contextWindowTokens > 0));
    assert.deepEqual(
      new Set(models.flatMap(({ prices, priceSource }) => [prices.length, priceSource])),
      new Set([0, ""]),
    );
  });

  test("every price there is can be reckoned with", async () => {
    for (const id of ["openai", "anthropic", "deepseek", "kimi"]) {
      for (const model of await catalog.list({ id }, september)) {
        const usage = { inputTokens: 10, cacheReadTokens: 1, cacheCreationTokens: 1, outputTokens: 10 };
        const cost = await catalog.costOf({ provider: { id }, model: model.id, usage, atMs: september });
        // What sound costs is not told for each model that hears it.
        if (/audio/.test(model.id)) assert.equal(cost, undefined);
        else assert.ok(cost !== undefined && cost.costNanoUsd > 0, `${id}/${model.id}`);
      }
    }
  });
});
