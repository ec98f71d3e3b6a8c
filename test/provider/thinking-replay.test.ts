import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { describe, type TestContext, test } from "node:test";
import type { ChatEvent } from "../../src/chat/event.ts";
import type { ContentBlock, Message } from "../../src/chat/message.ts";
import { createProviderRegistry } from "../../src/provider/registry.ts";
import { blocksOf } from "../dialect/answer-blocks.ts";
import { type Answer, agentError, chunk, eventStream, hello, jsonAnswer, startUpstream } from "./upstream.ts";

const thinking = '\n Look first:\t"a\\b" – 数据 👩‍🚀\u2028 1.0 </think> done \n';
const tools = [{ name: "look", description: "Looks.", parameters: '{"type":"object"}' }];
const providers = [
  {
    id: "deepseek",
    env: (url: string) => ({ DEEPSEEK_API_KEY: "sk-deep-1234", DEEPSEEK_BASE_URL: url }),
    key: "sk-deep-1234",
    tokensField: "max_tokens",
    /** DeepSeek wants the thinking of turns with tool calls back in later turns, too. */
    later: [thinking, "", undefined],
  },
  {
    id: "kimi",
    env: (url: string) => ({ MOONSHOT_API_KEY: "sk-moon-1234", MOONSHOT_BASE_URL: url }),
    key: "sk-moon-1234",
    tokensField: "max_completion_tokens",
    // The field stays with the calls, since messages with calls are refused without it.
    later: ["", "", undefined],
  },
] as const;
type Provider = (typeof providers)[number];

function hash(text: unknown): string {
  return createHash("sha256").update(String(text)).digest("hex");
}

function callsTool(id: string, thought: string): Answer {
  const thoughts = [...thought].map((letter) => chunk({ content: null, reasoning_content: letter }));
  const call = { index: 0, id, type: "function", function: { name: "look", arguments: "{}" } };
  const text = [...thoughts, chunk({ content: null, tool_calls: [call] }), chunk({}, "tool_calls"), "data: [DONE]\n\n"];
  return (_, response) => response.writeHead(200, eventStream).end(text.join(""));
}

function said(text: string): Message {
  return { role: "user", blocks: [{ type: "text", text }] };
}

function answered(toolUseId: string): Message {
  return { role: "tool", blocks: [{ type: "tool_result", toolUseId, content: "seen" }] };
}

async function start(context: TestContext, provider: Provider, answers: readonly Answer[]) {
  const upstream = await startUpstream(context, answers);
  const waits: number[] = [];
  const registry = createProviderRegistry({
    env: provider.env(upstream.url),
    delay: async (delayMs) => void waits.push(delayMs),
    random: () => 1,
  });
  context.after(() => registry.close());
  const ask = async (messages: readonly Message[]): Promise<ContentBlock[]> => {
    const events: ChatEvent[] = [];
    const { signal } = new AbortController();
    const request = { model: "", messages, tools, options: { maxTokens: 9 } };
    for await (const some of registry.streamChat(registry.resolve(`${provider.id}/m`), request, { signal })) {
      events.push(...some);
    }
    return blocksOf(events, { provider: provider.id, model: "m", dialect: "openai-chat" });
  };
  return { upstream, ask, waits };
}

for (const provider of providers) {
  describe(provider.id, { timeout: 20_000 }, () => {
    test("thinking goes back exactly in its tool turn, and in the next one as the vendor wants it", async (context) => {
      const answers = [callsTool("one", thinking), callsTool("two", ""), hello, hello];
      const { upstream, ask } = await start(context, provider, answers);
      const messages: Message[] = [said("Go")];
      for (const input of [answered("one"), answered("two"), said("And now?")]) {
        messages.push({ role: "assistant", blocks: await ask(messages) }, input);
      }
      await ask(messages);

      const sent = upstream.requests.map(({ body }) => JSON.parse(body));
      const thoughts = sent.map((request) =>
        request.messages
          .filter((message: { role: string }) => message.role === "assistant")
          .map((message: Record<string, unknown>) => message["reasoning_content"]),
      );
      assert.equal(hash(thoughts[1][0]), hash(thinking));
      assert.deepEqual([thoughts[0], thoughts[1].length], [[], 1]);
      assert.deepEqual(thoughts[2], [thinking, ""]);
      assert.deepEqual(thoughts[3], provider.later);
      for (const { headers, url } of upstream.requests) {
        assert.equal(headers.authorization, `Bearer ${provider.key}`);
        assert.equal(url, "/v1/chat/completions");
      }
      assert.equal(sent[0][provider.tokensField], 9);
    });

    test("a 429 for the caller's rate waits as long as it is told, one for no room backs off", async (context) => {
      const tooFast = { error: { message: "max RPM: 3", type: "rate_limit_reached_error" } };
      const noRoom = { error: { message: "try again later", type: "engine_overloaded_error" } };
      const { ask, waits } = await start(context, provider, [
        jsonAnswer(429, tooFast, { "retry-after": "7" }),
        jsonAnswer(429, noRoom),
        hello,
      ]);
      assert.deepEqual(await ask([said("Hi")]), [{ type: "text", text: "Hello" }]);
      assert.equal(waits[0], 7000);
      assert.notEqual(waits[1], 7000);
      assert.equal(waits.length, 2);
    });

    for (const [type, retryable] of [
      ["rate_limit_reached_error", true],
      ["engine_overloaded_error", true],
      ["exceeded_current_quota_error", false],
    ] as const) {
      test(`a 429 of ${type} is ${retryable ? "tried again" : "told at once"}`, async (context) => {
        const answer = jsonAnswer(429, { error: { message: "no", type } });
        const { upstream, ask } = await start(
          context,
          provider,
          Array.from({ length: 20 }, () => answer),
        );
        await assert.rejects(ask([said("Hi")]), (error) => {
          assert.equal(agentError(error).kind, "rate_limited");
          assert.equal(agentError(error).detail.retryable, retryable);
          return true;
        });
        assert.equal(upstream.requests.length > 1, retryable);
      });
    }
  });
}

describe("forward", { timeout: 20_000 }, () => {
  test("what an endpoint sends in reasoning_details goes back to it unchanged, and to no other model", async (context) => {
    const details = (text: string) => chunk({ reasoning_details: [{ type: "reasoning.text", index: 0, text }] });
    const end = `{"type":"reasoning.encrypted","data":"${"eA/+".repeat(50)}==","index":1,"n":1.0}`;
    const last = `data: {"choices":[{"index":0,"delta":{"reasoning_details":[${end}]}}]}\n\n`;
    const call = { index: 0, id: "one", type: "function", function: { name: "look", arguments: "{}" } };
    const stream = [...[...thinking].map(details), last, chunk({ tool_calls: [call] }), chunk({}, "tool_calls")];
    const first: Answer = (_, response) =>
      response.writeHead(200, eventStream).end(`${stream.join("")}data: [DONE]\n\n`);
    const upstream = await startUpstream(context, [first, hello, hello]);
    const registry = createProviderRegistry({ env: { FORWARD_BASE_URL: upstream.url } });
    context.after(() => registry.close());
    const ask = async (model: string, messages: readonly Message[]): Promise<ContentBlock[]> => {
      const events: ChatEvent[] = [];
      const { signal } = new AbortController();
      const request = { model: "", messages, tools, options: {} };
      for await (const some of registry.streamChat(registry.resolve(`forward/${model}`), request, { signal })) {
        events.push(...some);
      }
      return blocksOf(events, { provider: "forward", model, dialect: "openai-chat" });
    };
    const blocks = await ask("a/m", [said("Go")]);
    assert.equal(hash(blocks[0]?.type === "thinking" ? blocks[0].thinking : ""), hash(thinking));
    const history: Message[] = [said("Go"), { role: "assistant", blocks }, answered("one"), said("And now?")];
    await ask("a/m", history);
    await ask("b/m", history);
    const [, same, other] = upstream.requests.map(({ body }) => body);
    const text = `{"type":"reasoning.text","index":0,"text":${JSON.stringify(thinking)}}`;
    assert.ok(same?.includes(`"reasoning_details":[${text},${end}]`));
    assert.ok(other !== undefined && !other.includes("reasoning"));
  });
});
