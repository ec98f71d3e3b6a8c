import assert from "node:assert/strict";
import { test } from "node:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import {
  APICallError,
  generateObject,
  generateText,
  jsonSchema,
  NoObjectGeneratedError,
  Output,
  RetryError,
  stepCountIs,
  streamText,
  tool,
} from "ai";
import { says, text } from "../provider/answers.ts";
import { jsonAnswer } from "../provider/upstream.ts";
import { colourSchema, picture, startRestService, token } from "./rest-service.ts";

// Chat Completions, asked for by the AI SDK.

test("the AI SDK", { timeout: 30_000 }, async (context) => {
  const service = await startRestService(context);
  const settings = { name: "codeagent", baseURL: `${service.url}/v1`, includeUsage: true } as const;
  const provider = createOpenAICompatible({ ...settings, apiKey: token, supportsStructuredOutputs: true });
  const model = provider("scripted/test");
  const upstreamModel = provider(service.upstreamModel);

  await context.test("generateText: text, reasoning, the end and usage", async () => {
    const answer = await generateText({ model, prompt: "hello", instructions: "Be brief." });
    assert.deepEqual(
      [answer.text, answer.reasoningText, answer.finishReason],
      ["Hello to you, Ann.", "They greet me.", "stop"],
    );
    const { inputTokens, outputTokens, totalTokens, inputTokenDetails, outputTokenDetails } = answer.usage;
    assert.deepEqual([inputTokens, outputTokens, totalTokens], [20, 5, 25]);
    assert.deepEqual([inputTokenDetails.cacheReadTokens, outputTokenDetails.reasoningTokens], [8, 2]);
    assert.equal(answer.response.modelId, "scripted/test");
    assert.deepEqual(answer.warnings, []);
  });

  await context.test("streamText: reasoning and text in pieces, and usage at the end", async () => {
    const answer = streamText({ model, prompt: "hello" });
    const types: string[] = [];
    for await (const part of answer.fullStream) if (part.type !== types.at(-1)) types.push(part.type);
    assert.deepEqual(types, [
      "start",
      "start-step",
      "reasoning-start",
      "reasoning-delta",
      "reasoning-end",
      "text-start",
      "text-delta",
      "text-end",
      "finish-step",
      "finish",
    ]);
    assert.deepEqual(
      [await answer.text, await answer.reasoningText, await answer.finishReason],
      ["Hello to you, Ann.", "They greet me.", "stop"],
    );
    const { inputTokens, outputTokens } = await answer.usage;
    assert.deepEqual([inputTokens, outputTokens], [20, 5]);
  });

  const toolsOf = (called: string[]) => ({
    get_weather: tool({
      description: "The weather of a city.",
      inputSchema: jsonSchema<{ city: string }>({
        type: "object",
        properties: { city: { type: "string" } },
        required: ["city"],
      }),
      execute: async ({ city }) => {
        called.push(`weather of ${city}`);
        return { city, sky: "grey" };
      },
    }),
    pack: tool({
      inputSchema: jsonSchema<{ things: string[] }>({
        type: "object",
        properties: { things: { type: "array", items: { type: "string" } } },
      }),
      execute: async ({ things }) => {
        called.push(`pack ${things.join(" and ")}`);
        return "packed";
      },
    }),
  });
  const wanted = ["weather of Bern", "weather of Oslo", "pack umbrella and README.md"];

  await context.test("tools of the client, called step by step, while the server calls its own", async () => {
    const called: string[] = [];
    const tools = toolsOf(called);
    const answer = await generateText({ model, prompt: "pack", tools, stopWhen: stepCountIs(5) });
    assert.deepEqual(called, wanted);
    assert.deepEqual(
      answer.steps.map(({ text, finishReason, toolCalls }) => [text, finishReason, toolCalls.length]),
      [
        // What came before the server's own call is told in streams only.
        ["Now the weather. ", "tool-calls", 2],
        ["", "tool-calls", 1],
        ["All is packed.", "stop", 0],
      ],
    );
    assert.equal(answer.text, "All is packed.");
  });

  await context.test("the same in a stream", async () => {
    const called: string[] = [];
    const answer = streamText({ model, prompt: "pack", tools: toolsOf(called), stopWhen: stepCountIs(5) });
    let shown = "";
    for await (const piece of answer.textStream) shown += piece;
    assert.equal(shown, "I look. Now the weather. All is packed.");
    assert.deepEqual(called, wanted);
    assert.equal((await answer.steps)[0]?.reasoningText, "The files first.");
  });

  await context.test("answers by a schema: Output.object, generateObject, and in a stream", async () => {
    const schema = jsonSchema<{ colour: string; depth: number }>(colourSchema);
    const red = { colour: "red", depth: 3 };
    const output = Output.object({ schema });
    const answer = await generateText({ model, prompt: "colour", output });
    assert.deepEqual(answer.output, red);
    const { object } = await generateObject({ model, prompt: "colour", schema });
    assert.deepEqual(object, red);
    const stream = streamText({ model, prompt: "colour", output });
    let last: unknown;
    for await (const partial of stream.partialOutputStream) last = partial;
    assert.deepEqual(last, red);
    const plain = createOpenAICompatible({ ...settings, apiKey: token })("scripted/test");
    assert.deepEqual((await generateText({ model: plain, prompt: "colour", output: Output.json() })).output, red);
  });

  await context.test("what is not by the schema after a repair is an error of the server", async () => {
    const schema = jsonSchema(colourSchema);
    const refusal = generateObject({ model, prompt: "rhyme", schema, maxRetries: 0 });
    await assert.rejects(refusal, (error) => {
      assert.ok(!NoObjectGeneratedError.isInstance(error));
      assert.ok(APICallError.isInstance(error));
      assert.deepEqual([error.statusCode, error.isRetryable], [502, true]);
      return true;
    });
  });

  await context.test("an image reaches the model", async () => {
    service.plan(says("openai-chat", [text("A point.")]));
    const answer = await generateText({
      model: upstreamModel,
      messages: [
        {
          role: "user",
          content: [
            { type: "text", text: "What is it?" },
            { type: "file", mediaType: "image/png", data: Buffer.from(picture, "base64") },
          ],
        },
      ],
    });
    assert.equal(answer.text, "A point.");
    assert.match(
      JSON.stringify(service.lastAsked()),
      new RegExp(`"url":"data:image/png;base64,${picture.slice(0, 40)}`),
    );
  });

  const refused: [what: string, options: object, status: number, words: RegExp][] = [
    ["a wrong key", { model: createOpenAICompatible({ ...settings, apiKey: "wrong" })("scripted/test") }, 401, /token/],
    ["a model nobody has", { model: provider("nobody/x") }, 404, /nobody\/x/],
    ["what is not passed on", { frequencyPenalty: 0.5 }, 400, /frequency_penalty: is 0\.5/],
  ];
  for (const [what, options, status, words] of refused)
    await context.test(`${what}: ${status}, asked once`, async () => {
      const asked = { model, prompt: "hello", ...options };
      await assert.rejects(generateText(asked), (error) => {
        assert.ok(APICallError.isInstance(error), String(error));
        assert.deepEqual([error.statusCode, error.isRetryable], [status, false]);
        assert.match(error.message, words);
        return true;
      });
      const thrown: unknown[] = [];
      await streamText({ ...asked, onError: ({ error }) => void thrown.push(error) }).consumeStream();
      assert.ok(APICallError.isInstance(thrown[0]) && thrown[0].statusCode === status, String(thrown[0]));
    });

  let ended: Promise<void> | undefined;
  await context.test("a stream is left by a signal", async () => {
    const { left } = service.planEndless();
    const abort = new AbortController();
    const answer = streamText({ model: upstreamModel, prompt: "hi", abortSignal: abort.signal });
    const types: string[] = [];
    for await (const part of answer.fullStream) {
      types.push(part.type);
      if (part.type === "text-delta") abort.abort();
    }
    assert.equal(types.at(-1), "abort");
    ended = left;
  });

  await context.test("a pause that a provider wants is waited for, and the question asked again", async () => {
    const pause = { "retry-after": "1", "x-should-retry": "false" };
    const slow = jsonAnswer(429, { error: { message: "slow down", type: "rate_limit_error" } }, pause);
    const before = service.asked();
    service.plan(slow, says("openai-chat", [text("Here I am.")]));
    const began = performance.now();
    const answer = await generateText({ model: upstreamModel, prompt: "hi", maxRetries: 1 });
    assert.equal(answer.text, "Here I am.");
    assert.equal(service.asked() - before, 2);
    assert.ok(performance.now() - began > 900, "it waited");
    service.plan(slow, slow);
    await assert.rejects(generateText({ model: upstreamModel, prompt: "hi", maxRetries: 1 }), (error) => {
      assert.ok(RetryError.isInstance(error));
      assert.ok(error.errors.every((one) => APICallError.isInstance(one) && one.statusCode === 429));
      return true;
    });
  });

  await context.test("the turn whose stream was left has ended", () => ended);
});
