import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createCodeAgentClient as createBrowserClient } from "../../sdk/browser.ts";
import {
  type CodeAgentClient,
  chatCompletion,
  createCodeAgentClient,
  followSession,
  type ResumeOptions,
  streamChatCompletion,
  streamTurn,
} from "../../sdk/index.ts";
import type { GenerateChunk } from "../../sdk/proto.ts";
import { startCuttingProxy } from "./cutting-proxy.ts";
import { startTestServer } from "./start-app.ts";

const transports = ["grpc", "connect", "grpc-web"] as const;
const sentence = "All work and no play makes Jack a dull boy. ";
const script = `
- when: { tool: list_files }
  text: "${sentence}"
  repeat: 20
  chunk: 11
  delay_ms: 1
- when: { role: user }
  thinking: let me look
  text: I will look.
  chunk: 3
  delay_ms: 1
  tool_calls: [{ name: list_files, arguments: { pattern: "*" } }]
`;
const wholeText = `I will look.${sentence.repeat(20)}`;
const prompt = [{ role: "user", content: "hello" } as const];
const request = { messages: [{ role: "user", contentType: { case: "content" as const, value: "hello" } }] };
const quick: ResumeOptions = { wait: async () => undefined };

function textOf(chunks: readonly GenerateChunk[]): string {
  return chunks
    .map(({ event }) =>
      event.case === "blockDelta" && event.value.delta.case === "text" ? event.value.delta.value : "",
    )
    .join("");
}

function checkWhole(chunks: readonly GenerateChunk[]): void {
  const seqs = chunks.map((chunk) => Number(chunk.seq));
  const first = seqs[0] ?? 0;
  assert.deepEqual(
    seqs,
    seqs.map((_, index) => first + index),
  );
  assert.equal(chunks[0]?.event.case, "turnStarted");
  assert.equal(chunks.at(-1)?.event.case, "turnFinished");
  assert.equal(textOf(chunks), wholeText);
}

async function readAll<Item>(stream: AsyncIterable<Item>): Promise<Item[]> {
  const items: Item[] = [];
  for await (const item of stream) items.push(item);
  return items;
}

async function sessionOrNot(client: CodeAgentClient, kind: "session" | "one-off"): Promise<{ sessionId: string }> {
  return { sessionId: kind === "session" ? (await client.createSession({})).sessionId : "" };
}

describe("a lost connection is got back unseen", { timeout: 120_000 }, () => {
  for (const transport of transports) {
    for (const kind of ["session", "one-off"] as const) {
      test(`${kind}, ${transport}: no event is missing and none comes twice, wherever the connection is cut`, async () => {
        await using proxy = await startCuttingProxy();
        await using server = await startTestServer(script, { allowed_hosts: proxy.host });
        proxy.target = server.port;
        using direct = createCodeAgentClient({ baseUrl: server.url });
        const plans = [
          ...[0, 1, 9, 30, 60, 100, 150, 200, 260, 333, 450, 700, 1001, 1500, 2222, 3000].map((bytes) => [bytes]),
          [300, 300, 300, 300],
          [900, 0, 10, 900, 1400],
          [2000, 500, 500, 0, 0, 700],
        ];
        for (const plan of plans) {
          proxy.plan(plan);
          const cutsBefore = proxy.cuts;
          using client = createCodeAgentClient({ baseUrl: proxy.url, transport });
          const { sessionId } = await sessionOrNot(direct, kind);
          const chunks = await readAll(streamTurn(client, { ...request, sessionId }, { ...quick, maxTries: 8 }));
          assert.equal(proxy.cuts - cutsBefore, plan.length, `cuts of ${plan}`);
          checkWhole(chunks);
          if (kind === "session") {
            const { messages } = await direct.listMessages({ sessionId });
            assert.equal(messages.filter((message) => message.role === "user").length, 1, "the turn ran once");
          }
        }
      });
    }

    test(`${transport}: completions, streamed and not, are whole`, async () => {
      await using proxy = await startCuttingProxy();
      await using server = await startTestServer(script, { allowed_hosts: proxy.host });
      proxy.target = server.port;
      for (const plan of [[500], [1200, 700, 900], [40, 2500]]) {
        using client = createCodeAgentClient({ baseUrl: proxy.url, transport });
        proxy.plan(plan);
        const cutsBefore = proxy.cuts;
        const chunks = await readAll(streamChatCompletion(client, { messages: prompt }, quick));
        const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
        assert.equal(text, wholeText);
        assert.equal(proxy.cuts - cutsBefore, plan.length);
        proxy.plan(plan);
        const completion = await chatCompletion(client, { messages: prompt }, quick);
        assert.equal(completion.choices[0]?.message.content, sentence.repeat(20));
      }
    });
  }

  for (const transport of ["connect", "grpc-web"] as const) {
    test(`browser, ${transport}: a turn is whole`, async () => {
      await using proxy = await startCuttingProxy();
      await using server = await startTestServer(script, { allowed_hosts: proxy.host });
      proxy.target = server.port;
      using client = createBrowserClient({ baseUrl: proxy.url, transport });
      for (const plan of [[0], [150], [700], [400, 0, 900], [2500, 300, 300]]) {
        proxy.plan(plan);
        const cutsBefore = proxy.cuts;
        checkWhole(await readAll(streamTurn(client, request, quick)));
        // fetch keeps connections, so that a plan may wait for a connection that is not opened.
        assert.ok(proxy.cuts > cutsBefore);
      }
    });
  }

  test("followers read on from where they were", async () => {
    await using proxy = await startCuttingProxy();
    await using server = await startTestServer(script, { allowed_hosts: proxy.host });
    proxy.target = server.port;
    using direct = createCodeAgentClient({ baseUrl: server.url });
    using client = createCodeAgentClient({ baseUrl: proxy.url });
    const { sessionId } = await direct.createSession({});
    const turn = readAll(streamTurn(direct, { ...request, sessionId }));
    proxy.plan([400, 500, 0, 1000]);
    const seen: GenerateChunk[] = [];
    for await (const chunk of followSession(client, { sessionId }, quick)) {
      seen.push(chunk);
      if (chunk.event.case === "turnFinished") break;
    }
    checkWhole(seen);
    assert.equal(proxy.cuts, 4);
    assert.equal((await turn).length, seen.length);
    const rest = await readAll(followSession(client, { sessionId, afterSeq: 5n, follow: false }, quick));
    assert.deepEqual(
      rest.map((chunk) => chunk.seq),
      seen.slice(5).map((chunk) => chunk.seq),
    );
  });
});

describe("servers that come and go", { timeout: 60_000 }, () => {
  const slowScript = `
- text: "${sentence}"
  repeat: 8
  chunk: 11
  delay_ms: 15
  usage: { prompt_tokens: 7, completion_tokens: 5 }
`;
  for (const transport of transports) {
    test(`${transport}: a session's answer goes on after a restart in its middle`, async () => {
      await using server = await startTestServer(slowScript);
      using client = createCodeAgentClient({ baseUrl: server.url, transport });
      const { sessionId } = await client.createSession({});
      let text = "";
      let restarted: Promise<void> | undefined;
      const waits: number[] = [];
      const wait = async (delayMs: number) => {
        waits.push(delayMs);
        await restarted;
      };
      const params = { messages: prompt, session_id: sessionId, stream_options: { include_usage: true } };
      const finishes: unknown[] = [];
      for await (const chunk of streamChatCompletion(client, params, { wait })) {
        text += chunk.choices[0]?.delta.content ?? "";
        if (chunk.choices[0]?.finish_reason) finishes.push(chunk.choices[0].finish_reason);
        if (text.length > 60) restarted ??= server.restart();
      }
      assert.equal(text, sentence.repeat(8));
      assert.deepEqual(finishes, ["stop"]);
      assert.notEqual(waits.length, 0);
      const seen = await readAll(followSession(client, { sessionId, follow: false }));
      const attempts = seen.flatMap(({ event }) => (event.case === "stepStarted" ? [event.value.attempt] : []));
      assert.deepEqual(attempts, [1, 2]);
    });
  }

  test("a one-off turn that went down with its server is reported as lost", async () => {
    await using server = await startTestServer(slowScript);
    using client = createCodeAgentClient({ baseUrl: server.url });
    let restarted: Promise<void> | undefined;
    let text = "";
    const read = async () => {
      const wait = async () => restarted;
      for await (const chunk of streamChatCompletion(client, { messages: prompt, request_id: "r1" }, { wait })) {
        text += chunk.choices[0]?.delta.content ?? "";
        if (text.length > 60) restarted ??= server.restart();
      }
    };
    await assert.rejects(read, (error: unknown) => {
      assert.ok(error instanceof Error && "reason" in error && "turn" in error);
      assert.equal(error.reason, "TURN_LOST");
      assert.match(error.message, /no longer has turn turn_/);
      assert.ok(text.length > 60);
      return true;
    });
  });

  for (const transport of transports) {
    test(`${transport}: a server that is down is tried a bounded number of times`, async () => {
      const server = await startTestServer(slowScript);
      await server[Symbol.asyncDispose]();
      using client = createCodeAgentClient({ baseUrl: server.url, transport });
      const waits: number[] = [];
      const wait = async (delayMs: number) => void waits.push(delayMs);
      await assert.rejects(chatCompletion(client, { messages: prompt }, { wait }), {
        name: "CodeAgentError",
        code: 14,
        message: /5 tries did not bring it back/,
      });
      assert.equal(waits.length, 5);
      for (const [index, delayMs] of waits.entries()) {
        const nominal = Math.min(100 * 3 ** index, 10_000);
        assert.ok(delayMs >= nominal * 0.75 && delayMs <= nominal * 1.25, `${delayMs} around ${nominal}`);
      }
    });
  }

  test("a server that comes up while it is tried is found", async () => {
    await using server = await startTestServer(slowScript);
    await server.stop();
    using client = createCodeAgentClient({ baseUrl: server.url });
    let tries = 0;
    const wait = async () => {
      tries += 1;
      if (tries === 3) await server.start();
    };
    const completion = await chatCompletion(client, { messages: prompt }, { wait });
    assert.equal(completion.choices[0]?.message.content, sentence.repeat(8));
    assert.equal(tries, 3);
  });
});
