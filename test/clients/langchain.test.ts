import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  type AIMessage,
  type AIMessageChunk,
  type BaseMessage,
  HumanMessage,
  SystemMessage,
  ToolMessage,
} from "@langchain/core/messages";
import { DynamicStructuredTool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { says, text } from "../provider/answers.ts";
import { jsonAnswer } from "../provider/upstream.ts";
import { colourSchema, picture, startRestService, token } from "./rest-service.ts";

// Chat Completions and the Responses API, asked for by LangChain.

const apis = [
  { name: "Chat Completions", useResponsesApi: false, unsupported: "logit_bias" },
  { name: "the Responses API", useResponsesApi: true, unsupported: "background" },
] as const;
const dialect = "openai-chat";

describe("LangChain", { concurrency: true }, () => {
  for (const { name, useResponsesApi, unsupported } of apis)
    test(`over ${name}`, { timeout: 30_000 }, async (context) => {
      const service = await startRestService(context, dialect);
      const configuration = { baseURL: `${service.url}/v1` };
      const settings = { apiKey: token, configuration, maxRetries: 0, useResponsesApi };
      const model = new ChatOpenAI({ ...settings, model: "scripted/test" });
      const upstreamModel = new ChatOpenAI({ ...settings, model: service.upstreamModel });

      await context.test("invoke: text, usage and the model", async () => {
        const answer = await model.invoke([new SystemMessage("Be brief."), new HumanMessage("hello")]);
        assert.equal(answer.text, "Hello to you, Ann.");
        assert.partialDeepStrictEqual(answer.usage_metadata, {
          input_tokens: 20,
          output_tokens: 5,
          total_tokens: 25,
          input_token_details: { cache_read: 8 },
        });
        assert.match(JSON.stringify(answer.response_metadata), /scripted\/test/);
      });

      await context.test("stream: pieces that add up, with reasoning and usage", async () => {
        let whole: AIMessageChunk | undefined;
        let pieces = 0;
        for await (const chunk of await model.stream("hello")) {
          whole = whole === undefined ? chunk : whole.concat(chunk);
          if (chunk.text !== "") pieces++;
        }
        assert.equal(whole?.text, "Hello to you, Ann.");
        assert.ok(pieces > 0);
        assert.partialDeepStrictEqual(whole?.usage_metadata, { input_tokens: 20, output_tokens: 5 });
        assert.match(JSON.stringify(whole), /They greet me\./);
      });

      await context.test("batch: each its answer", async () => {
        const answers = await model.batch(["hello", "what?", "hello"]);
        assert.deepEqual(
          answers.map((answer) => answer.text),
          ["Hello to you, Ann.", "I don't know what to say.", "Hello to you, Ann."],
        );
      });

      const called: string[] = [];
      const weather = new DynamicStructuredTool({
        name: "get_weather",
        description: "The weather of a city.",
        schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
        async func({ city }) {
          called.push(`weather of ${city}`);
          return `grey in ${city}`;
        },
      });
      const pack = new DynamicStructuredTool({
        name: "pack",
        description: "Packs.",
        schema: { type: "object", properties: { things: { type: "array", items: { type: "string" } } } },
        async func({ things }) {
          called.push(`pack ${things}`);
          return "packed";
        },
      });
      const withTools = model.bindTools([weather, pack]);
      const ways: [way: string, ask: (messages: BaseMessage[]) => Promise<AIMessage>][] = [
        ["invoke", (messages) => withTools.invoke(messages)],
        [
          "stream",
          async (messages) => {
            let whole: AIMessageChunk | undefined;
            for await (const chunk of await withTools.stream(messages))
              whole = whole === undefined ? chunk : whole.concat(chunk);
            return whole ?? assert.fail("nothing came");
          },
        ],
      ];
      for (const [way, ask] of ways)
        await context.test(`bindTools by ${way}: calls and results until the last word`, async () => {
          called.length = 0;
          const messages: BaseMessage[] = [new HumanMessage("pack")];
          for (let round = 0; round < 5; round++) {
            const answer = await ask(messages);
            messages.push(answer);
            const calls = answer.tool_calls ?? [];
            if (calls.length === 0) break;
            for (const call of calls) {
              const content = call.name === "pack" ? await pack.invoke(call) : await weather.invoke(call);
              messages.push(content instanceof ToolMessage ? content : assert.fail("no tool message"));
            }
          }
          assert.deepEqual(called, ["weather of Bern", "weather of Oslo", "pack umbrella,README.md"]);
          assert.equal(messages.at(-1)?.text, "All is packed.");
        });

      await context.test("withStructuredOutput", async () => {
        const structured = model.withStructuredOutput(colourSchema, { name: "colour", method: "jsonSchema" });
        assert.deepEqual(await structured.invoke("colour"), { colour: "red", depth: 3 });
      });

      await context.test("an image reaches the model", async () => {
        service.plan(says(dialect, [text("A point.")]));
        const image_url = { url: `data:image/png;base64,${picture}` };
        const content = [
          { type: "text", text: "What is it?" },
          { type: "image_url", image_url },
        ];
        assert.equal((await upstreamModel.invoke([new HumanMessage({ content })])).text, "A point.");
        assert.ok(JSON.stringify(service.lastAsked()).includes(picture));
      });

      const refused: [what: string, options: object, error: object][] = [
        [
          "a wrong key",
          { apiKey: "wrong" },
          { status: 401, lc_error_code: "MODEL_AUTHENTICATION", code: "invalid_api_key" },
        ],
        [
          "a model nobody has",
          { model: "nobody/x" },
          { status: 404, lc_error_code: "MODEL_NOT_FOUND", code: "model_not_found" },
        ],
        [
          "what is not passed on",
          { modelKwargs: unsupported === "background" ? { background: true } : { logit_bias: { 5: 1 } } },
          { status: 400, param: unsupported },
        ],
      ];
      for (const [what, options, error] of refused)
        await context.test(`${what} is refused, by invoke and by stream`, async () => {
          const wrong = new ChatOpenAI({ ...settings, model: "scripted/test", ...options });
          await assert.rejects(wrong.invoke("hello"), error);
          await assert.rejects(wrong.stream("hello"), error);
        });

      let ended: Promise<void> | undefined;
      await context.test("a signal ends a stream", async () => {
        const { left } = service.planEndless();
        const abort = new AbortController();
        // An answer that is kept is finished for whoever asks for it later.
        const keepsNothing = new ChatOpenAI({ ...settings, model: service.upstreamModel, zdrEnabled: true });
        const stream = await keepsNothing.stream("hi", { signal: abort.signal });
        await assert.rejects(async () => {
          for await (const chunk of stream) if (chunk.text !== "") abort.abort();
        }, /abort/i);
        ended = left;
      });

      await context.test("a provider that is overloaded is asked again after its pause", async () => {
        const before = service.asked();
        const once = { "retry-after": "1", "x-should-retry": "false" };
        service.plan(
          jsonAnswer(429, { error: { message: "slow down", type: "rate_limit_error" } }, once),
          says(dialect, [text("Here I am.")]),
        );
        const patient = new ChatOpenAI({ ...settings, maxRetries: 2, model: service.upstreamModel });
        assert.equal((await patient.invoke("hi")).text, "Here I am.");
        assert.equal(service.asked() - before, 2);
      });

      await context.test("the turn whose stream was left has ended", () => ended);
    });
});
