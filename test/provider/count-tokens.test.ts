import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import type { ChatRequest } from "../../src/chat/request.ts";
import { createProviderRegistry } from "../../src/provider/registry.ts";
import { providerAt } from "./answers.ts";
import { type Answer, agentError, jsonAnswer, key, startUpstream } from "./upstream.ts";

const request: ChatRequest = {
  model: "",
  messages: [
    { role: "system", blocks: [{ type: "text", text: "Be brief." }] },
    { role: "user", blocks: [{ type: "text", text: "hi" }] },
  ],
  tools: [{ name: "f", description: "", parameters: '{"type":"object","x":1.0}' }],
  options: { maxTokens: 100, temperature: 0.5, stop: ["END"], toolChoice: "auto" },
};

async function count(context: TestContext, answers: readonly Answer[], dialect = "anthropic-messages" as const) {
  const upstream = await startUpstream(context, answers);
  const { model, env } = providerAt(dialect, upstream.url);
  const registry = createProviderRegistry({ env });
  context.after(() => registry.close());
  const counted = registry.countTokens(registry.resolve(model), request, AbortSignal.timeout(5000));
  return { counted, upstream };
}

test("a provider that can is asked, for nothing but what counts", async (context) => {
  const { counted, upstream } = await count(context, [jsonAnswer(200, { input_tokens: 42 })]);
  assert.equal(await counted, 42);
  const [asked] = upstream.requests;
  assert.equal(asked?.url, "/v1/messages/count_tokens");
  assert.equal(asked.headers["x-api-key"], key);
  assert.deepEqual(Object.keys(JSON.parse(asked.body)), ["model", "system", "tools", "messages", "tool_choice"]);
  assert.match(asked.body, /"x":1\.0/);
});

test("whoever speaks another format is not asked", async (context) => {
  const upstream = await startUpstream(context, []);
  const { model, env } = providerAt("openai-chat", upstream.url);
  const registry = createProviderRegistry({ env });
  context.after(() => registry.close());
  assert.equal(await registry.countTokens(registry.resolve(model), request, AbortSignal.timeout(5000)), undefined);
  assert.equal(upstream.requests.length, 0);
});

describe("what a provider says instead of a count", () => {
  const said: readonly [name: string, answer: Answer, kind: string | undefined, words?: RegExp][] = [
    ["that there is no such path", jsonAnswer(404, {}), undefined],
    [
      "that the key is refused",
      jsonAnswer(401, { error: { message: `bad ${key}` } }),
      "provider_auth",
      /ANTHROPIC_API_KEY/,
    ],
    ["that it is asked too often", jsonAnswer(429, {}), "rate_limited"],
    ["that it is broken", jsonAnswer(500, {}), "provider_unavailable"],
    ["something else", jsonAnswer(200, { tokens: 1 }), "provider_protocol", /no count of tokens/],
    ["where to go", jsonAnswer(302, {}, { location: "/" }), "provider_protocol"],
    ["nothing, and hangs up", (_, response) => void response.destroy(), "provider_unavailable"],
  ];
  for (const [name, answer, kind, words = /./] of said) {
    test(name, async (context) => {
      const { counted } = await count(context, [answer]);
      if (kind === undefined) {
        assert.equal(await counted, undefined);
        return;
      }
      const error = agentError(await counted.catch((thrown: unknown) => thrown));
      assert.equal(error.kind, kind);
      assert.match(error.message, words);
      assert.ok(!error.message.includes(key));
    });
  }
});
