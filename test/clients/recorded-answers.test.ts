import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { createServer } from "node:http";
import { join, resolve } from "node:path";
import { before, describe, type TestContext, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { objectOf, parseJson, textOf } from "../../src/dialect/json.ts";
import { type Exchange, readCorpus } from "../corpus/exchange.ts";
import { callsOf, readStream, textIn } from "../dialect/answer-reading.ts";
import { providerAt } from "../provider/answers.ts";
import { fileContext } from "../support/file-context.ts";
import { startTestApp } from "../support/test-app.ts";

// Recorded answers of models, told in each vendor's format to its own client: all say the same.

const folder = resolve(process.env["CORPUS_DIR"] ?? join(import.meta.dirname, "../../../shared/corpus"));
const skip = existsSync(folder) ? false : `no recorded traffic at CORPUS_DIR or ${folder}`;

interface Told {
  readonly text: string;
  readonly thinking: string;
  readonly calls: readonly (readonly [id: string, name: string, input: unknown])[];
}

/** Of answers that say more than a text. */
const tellingTags = [
  "tool_call",
  "thinking",
  "reasoning_content",
  "reasoning_field",
  "reasoning_summary",
  "reasoning_text",
];

describe("recorded answers", { skip, concurrency: 4, timeout: 60_000 }, () => {
  const exchanges = skip ? [] : readCorpus(folder).exchanges;
  const played = exchanges.flatMap(({ stream, ...exchange }) => {
    const saysMore = tellingTags.some((tag) => exchange.tags.has(tag));
    // After a pause the service goes on by itself, and would hear the same for ever.
    if (stream === undefined || exchange.status !== 200 || !saysMore || stream.includes('"pause_turn"')) return [];
    return [{ ...exchange, stream }];
  });
  const shared = fileContext();
  let clients: Awaited<ReturnType<typeof startClients>>;
  before(async () => {
    clients = await startClients(shared, played);
  });
  for (const exchange of played)
    test(exchange.id, async (context) => {
      const { events, error } = await readStream(exchange.stream, 65_536, exchange.api);
      if (error !== undefined) return context.skip("is no whole answer");
      const calls = callsOf(events).map(
        ({ id, name, argumentsText }) => [id, name, parseJson(argumentsText || "{}")] as const,
      );
      const tools = [...new Set(calls.map(([, name]) => name))];
      const model = `${providerAt(exchange.api, "").model.replace(/\/.*/, "")}/${exchange.id}`;
      const [ofChat, ofResponses] = await Promise.all([clients.chat(model, tools), clients.responses(model, tools)]);
      assert.deepEqual([ofChat.text, ofChat.calls], [textIn(events, "text-delta"), calls]);
      assert.deepEqual(ofResponses, ofChat);
      // Anthropic's client reads arguments itself, and takes no text that is no JSON.
      if (calls.some(([, , input]) => input === undefined)) return;
      assert.deepEqual(await clients.messages(model, tools), ofChat);
    });
});

async function startClients(context: Pick<TestContext, "after">, exchanges: readonly Exchange[]) {
  const byId = new Map(exchanges.map((exchange) => [exchange.id, exchange]));
  const upstream = createServer(async (request, response) => {
    const asked = objectOf(parseJson(Buffer.concat(await request.toArray()).toString()));
    const exchange = byId.get(textOf(asked["model"]));
    response.writeHead(200, { "content-type": "text/event-stream" }).end(exchange?.stream);
  });
  await new Promise<void>((done) => upstream.listen(0, "127.0.0.1", done));
  context.after(() => {
    upstream.closeAllConnections();
    upstream.close();
  });
  const address = upstream.address();
  const at = `http://127.0.0.1:${typeof address === "object" ? address?.port : ""}/v1`;
  const { app } = await startTestApp(context, {
    env: {
      ...providerAt("openai-chat", at).env,
      ...providerAt("openai-responses", at).env,
      ...providerAt("anthropic-messages", at).env,
    },
  });
  const settings = { apiKey: "unused", maxRetries: 0, timeout: 20_000 };
  const openai = new OpenAI({ ...settings, baseURL: `${app.url}/v1` });
  const anthropic = new Anthropic({ ...settings, baseURL: app.url });
  const parameters = { type: "object" } as const;
  const user = { role: "user", content: "Go" } as const;
  return {
    async chat(model: string, tools: readonly string[]): Promise<Told> {
      const functions = tools.map((name) => ({ type: "function" as const, function: { name, parameters } }));
      const { choices } = await openai.chat.completions
        .stream({ model, messages: [user], ...(functions.length === 0 ? {} : { tools: functions }) })
        .finalChatCompletion();
      const message = choices[0]?.message;
      const thinking = objectOf(message)["reasoning_content"];
      return {
        text: message?.content ?? "",
        thinking: textOf(thinking),
        calls: (message?.tool_calls ?? []).flatMap((one) =>
          one.type === "function" ? [toldCall(one.id, one.function)] : [],
        ),
      };
    },
    async responses(model: string, tools: readonly string[]): Promise<Told> {
      const { output } = await openai.responses
        .stream({
          model,
          input: [user],
          store: false,
          tools: tools.map((name) => ({ type: "function", name, parameters, strict: false })),
        })
        .finalResponse();
      return {
        text: output
          .flatMap((item) => (item.type === "message" ? item.content : []))
          .map((part) => ("text" in part ? part.text : ""))
          .join(""),
        thinking: output
          .flatMap((item) => (item.type === "reasoning" ? [...(item.content ?? []), ...item.summary] : []))
          .map(({ text }) => text)
          .join(""),
        calls: output.flatMap((item) => (item.type === "function_call" ? [toldCall(item.call_id, item)] : [])),
      };
    },
    async messages(model: string, tools: readonly string[]): Promise<Told> {
      const { content } = await anthropic.messages
        .stream({
          model,
          max_tokens: 1000,
          messages: [user],
          tools: tools.map((name) => ({ name, input_schema: parameters })),
        })
        .finalMessage();
      return {
        text: content.map((block) => (block.type === "text" ? block.text : "")).join(""),
        thinking: content.map((block) => (block.type === "thinking" ? block.thinking : "")).join(""),
        calls: content.flatMap((block) =>
          block.type === "tool_use" ? [[block.id, block.name, block.input] as const] : [],
        ),
      };
    },
  };
}

function toldCall(id: string, { name, arguments: words }: { readonly name: string; readonly arguments: string }) {
  return [id, name, parseJson(words || "{}")] as const;
}
