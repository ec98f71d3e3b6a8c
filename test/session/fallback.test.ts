import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { Code, ConnectError } from "@connectrpc/connect";
import { call, errorBody, eventsThrough, type Said, says, text } from "../provider/answers.ts";
import { type Answer, eventStream, jsonAnswer, key, startUpstream } from "../provider/upstream.ts";
import { collect } from "../support/grammar.ts";
import { startTestApp, type TestAppOptions, user } from "../support/test-app.ts";

const chat = "openai-chat";
const once = { "x-should-retry": "false" };
const failed = (status: number): Answer => jsonAnswer(status, errorBody(chat, "some_error", `no: ${status}`), once);
const cutAfter = (said: readonly Said[], mark: string): Answer => {
  const events = eventsThrough(chat, said, mark);
  return (_, response) => {
    response.writeHead(200, eventStream);
    response.write(events, () => setImmediate(() => response.destroy()));
  };
};
const hello = says(chat, [text("hello from here")]);

/** Two providers: `forward/a` with the first answers, `deepseek/b` with the second. */
async function start(context: TestContext, first: readonly Answer[], second: readonly Answer[], app?: TestAppOptions) {
  const upstreams = [await startUpstream(context, first), await startUpstream(context, second)] as const;
  const env = {
    FORWARD_BASE_URL: upstreams[0].url,
    FORWARD_API_KEY: key,
    DEEPSEEK_BASE_URL: upstreams[1].url,
    DEEPSEEK_API_KEY: key,
  };
  const { client } = await startTestApp(context, { env, ...app });
  return { client, asked: () => upstreams.map(({ requests }) => requests.length) };
}

const both = "forward/a, deepseek/b";

describe("a turn with several models", () => {
  const cases: {
    name: string;
    first: readonly Answer[];
    second: readonly Answer[];
    /** Each model asked, in order. */
    steps: readonly string[];
    ends: string;
  }[] = [
    { name: "the first answers", first: [hello], second: [], steps: ["1.1 forward/a"], ends: "stop" },
    {
      name: "the first is unavailable",
      first: [failed(503)],
      second: [hello],
      steps: ["1.1 forward/a", "1.2 deepseek/b"],
      ends: "stop",
    },
    {
      name: "the first has limited us",
      first: [failed(429)],
      second: [hello],
      steps: ["1.1 forward/a", "1.2 deepseek/b"],
      ends: "stop",
    },
    {
      name: "the first refuses the request",
      first: [failed(400)],
      second: [],
      steps: ["1.1 forward/a"],
      ends: "PROVIDER_REJECTED",
    },
    {
      name: "the first refuses the key",
      first: [failed(401)],
      second: [],
      steps: ["1.1 forward/a"],
      ends: "PROVIDER_AUTH",
    },
    {
      name: "the first cuts its text twice",
      first: [cutAfter([text("hello")], "hel"), cutAfter([text("hello")], "hel")],
      second: [hello],
      steps: ["1.1 forward/a", "1.2 forward/a", "1.3 deepseek/b"],
      ends: "stop",
    },
    {
      name: "the first cuts its answer after a call was named",
      first: [cutAfter([call("c1", "list_files")], "list_files")],
      second: [],
      steps: ["1.1 forward/a"],
      ends: "PROVIDER_UNAVAILABLE",
    },
    {
      name: "none can be had",
      first: [failed(503)],
      second: [failed(500)],
      steps: ["1.1 forward/a", "1.2 deepseek/b"],
      ends: "PROVIDER_UNAVAILABLE",
    },
    {
      name: "the one that answered goes on with the turn",
      first: [failed(503)],
      second: [says(chat, [call("c1", "list_files", '{"pattern":"*"}')]), hello],
      steps: ["1.1 forward/a", "1.2 deepseek/b", "2.1 deepseek/b"],
      ends: "stop",
    },
    {
      name: "the first is asked when the one that went on with the turn can't any more",
      first: [failed(503), hello],
      second: [says(chat, [call("c1", "list_files", '{"pattern":"*"}')]), failed(503)],
      steps: ["1.1 forward/a", "1.2 deepseek/b", "2.1 deepseek/b", "2.2 forward/a"],
      ends: "stop",
    },
  ];
  for (const { name, first, second, steps, ends } of cases) {
    test(name, async (context) => {
      const { client } = await start(context, first, second);
      const chunks = await collect(client.streamGenerate({ messages: [user("Go")], model: both }));
      const asked = chunks.flatMap(({ event }) =>
        event.case === "stepStarted"
          ? [`${event.value.step}.${event.value.attempt} ${event.value.provider}/${event.value.model}`]
          : [],
      );
      assert.deepEqual(asked, steps);
      const last = chunks.at(-1)?.event;
      assert.ok(last?.case === "turnFinished");
      assert.equal(last.value.error?.reason || last.value.finishReason, ends);
      const notices = chunks.filter(
        ({ event }) => event.case === "notice" && event.value.code === "MODEL_FALLBACK",
      ).length;
      const changes = steps.filter(
        (step, index) => index > 0 && step.split(" ")[1] !== steps[index - 1]?.split(" ")[1],
      );
      assert.equal(notices, changes.length);
    });
  }

  test("the answer names the model that gave it", async (context) => {
    const { client } = await start(context, [failed(503)], [hello]);
    const answer = await client.generate({ messages: [user("Go")], model: both });
    assert.equal(answer.model, "deepseek/b");
    assert.equal(answer.metadata["codeagent.provider"], "deepseek");
  });

  test("a session may have them, and each turn begins with the first", async (context) => {
    const { client, asked } = await start(context, [failed(503), hello], [hello]);
    const { sessionId } = await client.createSession({ model: both });
    assert.equal((await client.generate({ sessionId, messages: [user("Go")] })).model, "deepseek/b");
    assert.equal((await client.generate({ sessionId, messages: [user("On")] })).model, "forward/a");
    assert.deepEqual(asked(), [2, 1]);
  });

  test("a model that was left alone is passed over", async (context) => {
    const { client, asked } = await start(context, [failed(503)], [hello, hello], { flags: { "circuit.failures": 1 } });
    const go = () => client.generate({ messages: [user("Go")], model: both });
    await go();
    assert.equal((await go()).model, "deepseek/b");
    assert.deepEqual(asked(), [1, 2]);
    await assert.rejects(client.generate({ messages: [user("Go")], model: "forward/a" }), (error) => {
      const { code, rawMessage } = ConnectError.from(error);
      return code === Code.Unavailable && /1 times in a row for a; it is asked again in 1\d s/.test(rawMessage);
    });
  });

  test("what a voided attempt used counts", async (context) => {
    const usage = { prompt_tokens: 100, completion_tokens: 1, total_tokens: 101 };
    const begun = `data: ${JSON.stringify({ id: "c", choices: [{ index: 0, delta: { content: "Hel" } }], usage })}\n\n`;
    const cut: Answer = (_, response) => {
      response.writeHead(200, eventStream);
      response.write(begun, () => setImmediate(() => response.destroy()));
    };
    const { client } = await start(context, [cut, hello], []);
    const answer = await client.generate({ messages: [user("Go")], model: "forward/a" });
    assert.equal(answer.usage?.inputTokens, 107n);
  });

  test("a provider that wants to be waited for is not, where another model can be asked", async (context) => {
    const limited = jsonAnswer(429, errorBody(chat, "rate_limit", "slow down"), { "retry-after": "30" });
    const { client, asked } = await start(context, [limited], [hello]);
    assert.equal((await client.generate({ messages: [user("Go")], model: both })).model, "deepseek/b");
    assert.deepEqual(asked(), [1, 1]);
  });

  test("a request that was taken once is joined, whatever would be said to it now", async (context) => {
    const { client, asked } = await start(context, [hello], []);
    const { sessionId } = await client.createSession({ model: "forward/a" });
    const request = { sessionId, messages: [user("Go")], requestId: "r1" };
    const first = await client.generate(request);
    await client.updateSession({ sessionId, model: "openai/not-configured" }).catch(() => undefined);
    await client.updateSession({ sessionId, model: "deepseek/b" });
    const again = await client.generate(request);
    assert.equal(again.turnId, first.turnId);
    assert.deepEqual(asked(), [1, 0]);
  });

  for (const [model, says] of [
    ["forward/a,,deepseek/b", /empty entry/],
    [Array(9).fill("forward/a").join(), /names 9 models; 8 is the most/],
    ["forward/a,nobody/b", /no known provider/],
    ["forward/a,openai/b", /openai has no key/],
  ] as const) {
    test(`${model} is refused`, async (context) => {
      const { client, asked } = await start(context, [], []);
      await assert.rejects(client.generate({ messages: [user("Go")], model }), says);
      assert.deepEqual(asked(), [0, 0]);
    });
  }
});
