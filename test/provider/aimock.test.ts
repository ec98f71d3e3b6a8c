import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { LLMock } from "@copilotkit/aimock";
import type { ContentBlock } from "../../src/chat/message.ts";
import { objectOf, parseJson } from "../../src/dialect/json.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";
import { blocksOf } from "../dialect/answer-blocks.ts";
import { collect } from "../support/grammar.ts";
import { startTestApp, user } from "../support/test-app.ts";
import { type DialectId, dialectIds, providerAt } from "./answers.ts";
import { type Answer, agentError, ask, startUpstream, textOfEvents } from "./upstream.ts";

const inTime = { timeout: 60_000, concurrency: 4 };

/** A mock server that others wrote, in this process; it knows how three vendors answer. */
async function startMock(context: TestContext): Promise<LLMock> {
  const mock = new LLMock({ port: 0, host: "127.0.0.1", logLevel: "silent", strict: true });
  await mock.start();
  context.after(() => mock.stop());
  return mock;
}

type Form = "streamed" | "whole";

/** Checks each request on its way to the mock server; its answers come back as streams or as whole bodies. */
async function checkedUrl(context: TestContext, mock: LLMock, form: Form): Promise<string> {
  const relay: Answer = async (request, response, body) => {
    const asked = { ...objectOf(parseJson(body)), stream: form === "streamed" };
    const headers = { "content-type": "application/json" };
    const answer = await fetch(`${mock.url}${request.url}`, { method: "POST", headers, body: JSON.stringify(asked) });
    const bytes = Buffer.from(await answer.arrayBuffer());
    response.writeHead(answer.status, { "content-type": answer.headers.get("content-type") ?? "" }).end(bytes);
  };
  return (await startUpstream(context, Array<Answer>(9).fill(relay))).url;
}

function wordsOf(blocks: readonly ContentBlock[], type: "text" | "thinking"): string {
  return blocks
    .map((block) => {
      if (type === "text") return block.type === "text" ? block.text : "";
      if (block.type === "reasoning") return block.content || block.summary.join("");
      return block.type === "thinking" ? block.thinking : "";
    })
    .join("");
}

/** Notes what it is called with. */
function lookTool() {
  const looked: string[] = [];
  const provider: FunctionProvider = {
    source: "local",
    list: async () => [
      {
        name: "look",
        description: "Looks at a file.",
        parameters: '{"type":"object","properties":{"path":{"type":"string"}}}',
        source: "local",
        readOnly: true,
        timeoutMs: 30_000,
      },
    ],
    async call({ arguments: given }, { toolCallId }) {
      looked.push(`${toolCallId} ${JSON.stringify(given)}`);
      return { success: true, output: `seen by ${toolCallId}` };
    },
    close: async () => undefined,
  };
  return { provider, looked };
}

describe("the answers of a mock server that others wrote", inTime, () => {
  for (const dialect of dialectIds) {
    for (const form of ["streamed", "whole"] as const) {
      test(`${dialect}, ${form}: thinking and text`, async (context) => {
        const mock = await startMock(context);
        mock.onMessage("hi", { content: "Grüße 👋, at last", reasoning: "a greeting", finishReason: "stop" });
        const url = await checkedUrl(context, mock, form);
        const { events, error } = await ask(url, providerAt(dialect, url));
        assert.equal(error, undefined);
        const blocks = blocksOf(events, { provider: "p", model: "m", dialect });
        assert.equal(wordsOf(blocks, "text"), "Grüße 👋, at last");
        assert.equal(wordsOf(blocks, "thinking"), "a greeting");
        assert.equal(events.at(-1)?.type, "finish");
      });

      test(`${dialect}, ${form}: a loop of tools through the service`, async (context) => {
        const mock = await startMock(context);
        const toolCalls = [
          { id: "call_1", name: "look", arguments: '{"path":"a"}' },
          { id: "call_2", name: "look", arguments: '{"path":"ü"}' },
        ];
        mock.on({ userMessage: "go", hasToolResult: false }, { content: "I look.", toolCalls });
        mock.on({ userMessage: "go", toolResultContains: "seen by call_2" }, { content: "Both are there." });
        mock.on({ userMessage: "thanks" }, { content: "Bye." });
        const { model, env } = providerAt(dialect, await checkedUrl(context, mock, form));
        const { provider, looked } = lookTool();
        const { client, reports } = await startTestApp(context, { env, functions: [provider] });
        const { sessionId } = await client.createSession({ model });

        const chunks = await collect(client.streamGenerate({ sessionId, messages: [user("go")] }), 1n);
        const last = chunks.at(-1)?.event;
        assert.equal(last?.case === "turnFinished" ? last.value.finishReason : "", "stop");
        assert.deepEqual(looked, ['call_1 {"path":"a"}', 'call_2 {"path":"ü"}']);
        const { messages } = await client.listMessages({ sessionId });
        assert.deepEqual(
          messages.map(({ role, contentType }) => [role, contentType.value]),
          [
            ["user", "go"],
            ["assistant", "I look."],
            ["tool", "seen by call_1"],
            ["tool", "seen by call_2"],
            ["assistant", "Both are there."],
          ],
        );
        const answer = await client.generate({ sessionId, messages: [user("thanks")] });
        assert.equal(answer.message?.contentType.value, "Bye.");
        assert.deepEqual(reports, []);
      });
    }
  }
});

interface Fault {
  readonly name: string;
  readonly prepare: (mock: LLMock) => void;
  /** The kind of error, or `whole`. */
  readonly outcome: string;
  readonly requests: number;
  readonly waits: readonly number[];
  readonly idleMs?: number;
}

const answer = { content: "a long answer of so many words" };
const faults: Fault[] = [
  {
    name: "429, then an answer",
    prepare: (mock) => mock.onMessage("hi", answer).nextRequestError(429, { message: "slow down" }),
    outcome: "whole",
    requests: 2,
    waits: [1000],
  },
  {
    name: "503, then an answer",
    prepare: (mock) => mock.onMessage("hi", answer).nextRequestError(503, { message: "busy" }),
    outcome: "whole",
    requests: 2,
    waits: [500],
  },
  {
    name: "each request dropped",
    prepare: (mock) => mock.onMessage("hi", answer).setChaos({ dropRate: 1 }),
    outcome: "provider_unavailable",
    requests: 3,
    waits: [500, 1000],
  },
  {
    name: "each request limited",
    prepare: (mock) => mock.onMessage("hi", answer).setChaos({ rateLimitRate: 1 }),
    outcome: "rate_limited",
    requests: 3,
    waits: [1000, 1000],
  },
  {
    name: "a malformed body",
    prepare: (mock) => mock.onMessage("hi", answer).setChaos({ malformedRate: 1 }),
    outcome: "provider_protocol",
    requests: 1,
    waits: [],
  },
  {
    name: "each connection dropped",
    prepare: (mock) => mock.onMessage("hi", answer).setChaos({ disconnectRate: 1 }),
    outcome: "provider_unavailable",
    requests: 3,
    waits: [500, 1000],
  },
  {
    name: "a head that is late",
    prepare: (mock) => mock.onMessage("hi", answer).setChaos({ latencyMs: 30_000 }),
    outcome: "provider_unavailable",
    requests: 0, // noted when it is answered
    waits: [],
    idleMs: 50,
  },
  {
    name: "a stream cut after three pieces",
    prepare: (mock) => mock.onMessage("hi", answer, { truncateAfterChunks: 3, chunkSize: 5, latency: 5 }),
    outcome: "provider_unavailable",
    requests: 1,
    waits: [],
  },
  {
    name: "a connection lost while the model writes",
    prepare: (mock) => mock.onMessage("hi", answer, { latency: 30, chunkSize: 1, disconnectAfterMs: 100 }),
    outcome: "provider_unavailable",
    requests: 1,
    waits: [],
  },
  {
    name: "nothing planned",
    prepare: (mock) => mock.onMessage("something else", answer),
    outcome: "provider_unavailable",
    requests: 3,
    waits: [500, 1000],
  },
];

describe("the faults of a mock server that others wrote", inTime, () => {
  for (const dialect of dialectIds) {
    for (const { name, prepare, outcome, requests, waits, idleMs } of faults) {
      test(`${dialect}: ${name}: ${outcome}`, async (context) => {
        const mock = await startMock(context);
        prepare(mock);
        const timeouts = idleMs === undefined ? {} : { idleMs };
        const asked = await ask(mock.url, { ...providerAt(dialect, urlFor(dialect, mock)), timeouts });
        assert.equal(asked.error === undefined ? "whole" : agentError(asked.error).kind, outcome, String(asked.error));
        assert.deepEqual(asked.waits, waits);
        assert.equal(mock.getRequests().length, requests);
        const finishes = asked.events.filter(({ type }) => type === "finish").length;
        assert.equal(finishes, outcome === "whole" ? 1 : 0, "never a silent end");
        const shown = textOfEvents(asked.events);
        if (outcome === "whole") assert.equal(shown, answer.content);
        else assert.ok(answer.content.startsWith(shown) && shown !== answer.content, shown);
      });
    }
  }

  test("a stream that is cut is asked for once more, and the session goes on", async (context) => {
    const mock = await startMock(context);
    mock.onMessage("go", answer, { truncateAfterChunks: 3, chunkSize: 5, latency: 5 });
    mock.onMessage("on", { content: "Fine." });
    const { model, env } = providerAt("openai-chat", urlFor("openai-chat", mock));
    const { client } = await startTestApp(context, { env });
    const { sessionId } = await client.createSession({ model });
    const chunks = await collect(client.streamGenerate({ sessionId, messages: [user("go")] }), 1n);
    const attempts = chunks.flatMap(({ event }) => (event.case === "stepStarted" ? [event.value.attempt] : []));
    assert.deepEqual(attempts, [1, 2]);
    const last = chunks.at(-1)?.event;
    assert.equal(last?.case === "turnFinished" ? last.value.error?.reason : "", "PROVIDER_UNAVAILABLE");
    const next = await client.generate({ sessionId, messages: [user("on")] });
    assert.equal(next.message?.contentType.value, "Fine.");
  });
});

function urlFor(dialect: DialectId, mock: LLMock): string {
  return dialect === "anthropic-messages" ? mock.url : `${mock.url}/v1`;
}
