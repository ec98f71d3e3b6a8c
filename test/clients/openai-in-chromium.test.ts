import assert from "node:assert/strict";
import { test } from "node:test";
import { startTestServer } from "../sdk/start-app.ts";
import { bundle } from "./bundle.ts";
import { inChromium, skipWithoutChromium } from "./in-chromium.ts";
import { script, token } from "./rest-service.ts";

const program = `
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";
const told = async () => {
  const settings = { apiKey: globalThis.token, maxRetries: 0, dangerouslyAllowBrowser: true };
  const openai = new OpenAI({ ...settings, baseURL: globalThis.baseUrl + "/v1" });
  const anthropic = new Anthropic({ ...settings, baseURL: globalThis.baseUrl });
  const model = "scripted/demo";
  const messages = [{ role: "user" as const, content: "hello" }];
  const results: Record<string, unknown> = {};

  const { data, request_id } = await openai.chat.completions.create({ model, messages }).withResponse();
  results.chat = [data.choices[0]?.message.content, data.id === "chatcmpl-" + request_id];
  results.chatStream = await openai.chat.completions.stream({ model, messages }).finalContent();
  const kept = await openai.responses.create({ model, input: "hello" });
  results.responses = kept.output_text;
  results.responsesStream = (await openai.responses.stream({ model, input: "hello" }).finalResponse()).output_text;
  results.retrieved = (await openai.responses.retrieve(kept.id)).output_text;
  await openai.responses.delete(kept.id);
  results.deleted = await openai.responses.retrieve(kept.id).catch((error) => error.status);
  const session = await openai.chat.completions
    .create({ model, messages }, { headers: { "x-session-id": "of-a-page", "idempotency-key": "one" } })
    .withResponse();
  results.session = session.response.headers.get("x-session-id");

  const message = await anthropic.messages.create({ model, max_tokens: 100, messages }).withResponse();
  results.messages = [message.data.content.at(-1), message.data.id === "msg_" + message.request_id];
  results.messagesStream = await anthropic.messages.stream({ model, max_tokens: 100, messages }).finalText();
  results.counted = (await anthropic.messages.countTokens({ model, messages })).input_tokens > 0;

  const ids: string[] = [];
  for await (const listed of openai.models.list()) ids.push(listed.id);
  for await (const listed of anthropic.models.list()) ids.push(listed.id);
  results.models = ids.filter((id) => id === model).length;

  const of = (error: { constructor: { name: string }; status: number; requestID?: string }) =>
    [error.status, typeof error.requestID, error instanceof OpenAI.APIError || error instanceof Anthropic.APIError];
  results.refused = [
    await new OpenAI({ ...settings, apiKey: "wrong", baseURL: openai.baseURL }).models.list().then(() => "taken", of),
    await new Anthropic({ ...settings, apiKey: "wrong", baseURL: anthropic.baseURL }).models.list().then(() => "taken", of),
    await openai.chat.completions.create({ model: "nobody/x", messages }).then(() => "taken", of),
    await anthropic.messages.create({ model: "nobody/x", max_tokens: 100, messages }).then(() => "taken", of),
  ];
  return results;
};
told().then((results) => globalThis.tell(JSON.stringify(results)), (error) => globalThis.tell(JSON.stringify(String(error?.stack ?? error))));
`;

const hello = "Hello to you, Ann.";

test("OpenAI's and Anthropic's clients in a page of a real browser", {
  skip: skipWithoutChromium,
  timeout: 60_000,
}, async () => {
  await using browser = await inChromium();
  await using server = await startTestServer(script, { allowed_origins: browser.origin, token });
  const told = await browser.run(await bundle(program), { baseUrl: server.url, token });
  assert.deepEqual(told, {
    chat: [hello, true],
    chatStream: hello,
    responses: hello,
    responsesStream: hello,
    retrieved: hello,
    deleted: 404,
    session: "of-a-page",
    messages: [{ type: "text", text: hello, citations: null }, true],
    messagesStream: hello,
    counted: true,
    models: 2,
    refused: [401, 401, 404, 404].map((status) => [status, "string", true]),
  });
});
