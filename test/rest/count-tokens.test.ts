import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { AgentError } from "../../src/chat/error.ts";
import { messageText } from "../../src/chat/message.ts";
import type { ChatRequest } from "../../src/chat/request.ts";
import type { ResolvedModel } from "../../src/provider/registry.ts";
import { countTokensRoute } from "../../src/rest/count-tokens.ts";

const profiles = new Map([
  ["reviewer", { name: "reviewer", model: "p/reviewing", systemPrompt: "Review.", tools: ["read_*"] }],
]);
const functions = ["read_file", "run_command"].map((name) => ({ name, description: name, parameters: "{}" }));

/** What is counted of a body, and the answer. */
async function count(body: object, counted?: number) {
  const asked: { model: ResolvedModel; request: ChatRequest }[] = [];
  const route = countTokensRoute({
    resolveAll: (models) => [{ provider: "p", model: models, dialect: "anthropic-messages", features: ["tools"] }],
    async countTokens(model, request) {
      asked.push({ model, request });
      return counted;
    },
    functions: async () => functions,
    profiles,
    systemPrompt: "You help.",
    defaultModel: "p/default",
  });
  const reply = await route.handle({
    params: {},
    query: new URLSearchParams(),
    headers: {},
    body: async () => body,
    signal: new AbortController().signal,
  });
  const [first] = asked;
  assert.ok(first !== undefined);
  const { model, request } = first;
  return {
    reply,
    model: model.model,
    said: request.messages.map((message) => `${message.role}: ${messageText(message)}`),
    tools: request.tools.map(({ name }) => name),
  };
}

const messages = [{ role: "user", content: "hi" }];

describe("what the model would read is counted", () => {
  const cases: readonly { name: string; body: object; model: string; said: string[]; tools: string[] }[] = [
    {
      name: "with the server's prompt and functions",
      body: { messages },
      model: "p/default",
      said: ["system: You help.", "user: hi"],
      tools: ["read_file", "run_command"],
    },
    {
      name: "with the request's own prompt and tools",
      body: { model: "p/m", system: "Be brief.", messages, tools: [{ name: "run_command", input_schema: {} }] },
      model: "p/m",
      said: ["system: Be brief.", "user: hi"],
      tools: ["run_command", "read_file"],
    },
    {
      name: "with a profile's prompt, model and functions",
      body: { model: "reviewer", messages },
      model: "p/reviewing",
      said: ["system: Review.", "user: hi"],
      tools: ["read_file"],
    },
  ];
  for (const { name, body, ...expected } of cases) {
    test(name, async () => {
      const { reply, ...asked } = await count(body, 42);
      assert.deepEqual(asked, expected);
      assert.deepEqual(reply, { body: { input_tokens: 42 } });
    });
  }
});

test("where nobody counts, an estimate says that it is one, and grows with the request", async () => {
  const { reply } = await count({ messages });
  assert.deepEqual(reply.headers, { "x-codeagent-estimate": "true" });
  const { reply: again } = await count({ messages });
  assert.deepEqual(again, reply);
  const words = "word ".repeat(1000);
  const { reply: longer } = await count({ messages: [{ role: "user", content: words }] });
  const tokens = (body: unknown) => Number(JSON.parse(JSON.stringify(body)).input_tokens);
  assert.ok(tokens(longer.body) - tokens(reply.body) >= 1000, "no fewer tokens than there are words");
});

test("a bad request is refused as one", async () => {
  await assert.rejects(
    count({ messages: [] }),
    (error) => error instanceof AgentError && error.fieldViolations[0]?.field === "messages",
  );
});
