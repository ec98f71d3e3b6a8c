import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { GenerateOptionsSchema, MessageSchema } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { BadRequestSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { call, providerAt, says, text } from "../provider/answers.ts";
import { type Answer, startUpstream } from "../provider/upstream.ts";
import { collect } from "../support/grammar.ts";
import { startTestApp, user } from "../support/test-app.ts";

const keys = {
  OPENAI_API_KEY: "sk-1234",
  ANTHROPIC_API_KEY: "sk-1234",
  DEEPSEEK_API_KEY: "sk-1234",
  // Nobody listens there: a request that is sent fails in another way.
  OPENAI_BASE_URL: "http://127.0.0.1:1/v1",
  ANTHROPIC_BASE_URL: "http://127.0.0.1:1",
  DEEPSEEK_BASE_URL: "http://127.0.0.1:1/v1",
};
const png = "data:image/png;base64,iVBORw0KGgo=";
type Sent = MessageInitShape<typeof MessageSchema>;
const image: Sent = { role: "user", blocks: [{ block: { case: "image", value: { url: png } } }] };
const pdf = { data: "data:application/pdf;base64,JVBERi0=", filename: "a.pdf" };
const file: Sent = { role: "user", blocks: [{ block: { case: "file", value: pdf } }] };
const inputAudio = {
  partType: { case: "inputAudio", value: { inputAudio: { data: "AAAA", format: "wav" } } },
} as const;
const audio: Sent = { role: "user", contentType: { case: "contentParts", value: { parts: [inputAudio] } } };

describe("what a model can't do is refused before it is asked", () => {
  const refusals: {
    model: string;
    messages?: Sent[];
    options?: MessageInitShape<typeof GenerateOptionsSchema>;
    field: string;
    says: RegExp;
  }[] = [
    {
      model: "deepseek/deepseek-chat",
      messages: [user("look"), image],
      field: "messages[1]",
      says: /holds an image, which deepseek\/deepseek-chat can't do/,
    },
    { model: "deepseek/m", messages: [file], field: "messages[0]", says: /holds a file/ },
    { model: "anthropic/m", messages: [audio], field: "messages[0]", says: /holds audio/ },
    {
      model: "openai/gpt-4o",
      options: { thinking: { effort: "high" } },
      field: "options.thinking",
      says: /asks for thinking, which openai\/gpt-4o can't do/,
    },
    {
      model: "anthropic/claude-3-opus-20240229",
      options: { thinking: { enabled: true } },
      field: "options.thinking",
      says: /asks for thinking/,
    },
    {
      model: "anthropic/m",
      options: { stateful: { store: true } },
      field: "options.stateful",
      says: /asks the provider to keep the answer/,
    },
    {
      model: "openai/m",
      options: { stateful: { previousResponseId: "resp_1" } },
      field: "options.stateful",
      says: /asks the provider to keep the answer/,
    },
    {
      model: "openai/gpt-5, deepseek/m",
      messages: [image],
      field: "messages[0]",
      says: /deepseek\/m can't do/,
    },
  ];
  for (const { model, messages = [user("Go")], options, field, says: words } of refusals) {
    test(`${model}: ${field}`, async (context) => {
      const { client } = await startTestApp(context, { env: keys });
      const { sessionId } = await client.createSession({});
      const request = { sessionId, messages, model, ...(options === undefined ? {} : { options }) };
      await assert.rejects(client.generate(request), (error) => {
        const failure = ConnectError.from(error);
        assert.equal(failure.code, Code.InvalidArgument, failure.message);
        assert.match(failure.rawMessage, words);
        const [violation] = failure.findDetails(BadRequestSchema)[0]?.fieldViolations ?? [];
        assert.equal(violation?.field, field);
        return true;
      });
      assert.equal((await client.getSession({ sessionId })).headSeq, 0n, "nothing was kept");
    });
  }

  for (const [model, options] of [
    ["openai/gpt-4o", { thinking: { enabled: false } }],
    ["openai/gpt-4o", { thinking: { effort: "none" } }],
    ["anthropic/m", { stateful: { store: false } }],
  ] as const) {
    test(`${model} takes ${JSON.stringify(options)}`, async (context) => {
      const { client } = await startTestApp(context, { env: keys });
      await assert.rejects(
        client.generate({ messages: [user("Go")], model, options }, { timeoutMs: 300 }),
        (error) => ConnectError.from(error).code !== Code.InvalidArgument,
      );
    });
  }
});

test("after a change to a model that can't see, the conversation goes on without its images", async (context) => {
  const upstream = await startUpstream(context, [
    says("openai-chat", [text("a cat")]),
    says("openai-chat", [text("blind")]),
    says("openai-chat", [text("a cat")]),
  ]);
  const env = {
    ...providerAt("openai-chat", upstream.url).env,
    DEEPSEEK_BASE_URL: upstream.url,
    DEEPSEEK_API_KEY: "k-1234",
  };
  const { client } = await startTestApp(context, { env });
  const { sessionId } = await client.createSession({ model: "forward/m" });
  await client.generate({ sessionId, messages: [image] });
  const turn = await collect(client.streamGenerate({ sessionId, messages: [user("And?")], model: "deepseek/m" }));
  const notices = turn.flatMap(({ event }) => (event.case === "notice" ? [event.value.code] : []));
  assert.deepEqual(notices, ["CONTENT_WITHHELD"]);
  await client.generate({ sessionId, messages: [user("And now?")] });
  const [first = "", second = "", third = ""] = upstream.requests.map(({ body }) => body);
  assert.ok(first.includes(png) && third.includes(png));
  assert.ok(!second.includes(png));
  assert.match(second, /an image is left out here: this model can't read it/);
});

describe("costs", () => {
  // A token read costs 1,000 billionths of a dollar, one written 2,000; each answer reads 7 and writes 5.
  const oneCall = 17_000n;
  const looks = says("openai-chat", [call("c1", "list_files", '{"pattern":"*"}')]);

  async function start(context: TestContext, answers: readonly Answer[]) {
    const upstream = await startUpstream(context, answers);
    const { model, env } = providerAt("openai-chat", upstream.url);
    const folder = await mkdtemp(join(tmpdir(), "codeagent-prices-"));
    context.after(() => rm(folder, { recursive: true }));
    const prices = join(folder, "prices.yaml");
    await writeFile(prices, `${model}: { input: 1, output: 2 }\n`);
    const app = await startTestApp(context, { env, flags: { model, "prices.file": prices } });
    return { ...app, upstream };
  }

  test("are told for each step, each turn and the session", async (context) => {
    const { client } = await start(context, [
      looks,
      says("openai-chat", [text("ok")]),
      says("openai-chat", [text("ok")]),
    ]);
    const { sessionId } = await client.createSession({});
    const chunks = await collect(client.streamGenerate({ sessionId, messages: [user("Go")] }));
    const costs = chunks.flatMap(({ event }) =>
      event.case === "stepFinished" || event.case === "turnFinished" ? [event.value.usage?.costNanoUsd] : [],
    );
    assert.deepEqual(costs, [oneCall, oneCall, 2n * oneCall]);
    const { usage } = await client.generate({ sessionId, messages: [user("On")] });
    assert.deepEqual([usage?.costNanoUsd, usage?.priceSource, usage?.partial], [oneCall, "prices file", false]);
    assert.equal((await client.getSession({ sessionId })).usage?.costNanoUsd, 3n * oneCall);
  });

  test("end a turn when its budget is spent", async (context) => {
    const { client, upstream } = await start(context, [looks, looks]);
    const options = { budget: { maxCostNanoUsd: oneCall + 1n } };
    const answer = await client.generate({ messages: [user("Go")], options });
    assert.equal(answer.finishReason, "budget");
    assert.equal(answer.usage?.costNanoUsd, 2n * oneCall);
    assert.equal(upstream.requests.length, 2);
  });

  test("that nobody knows can't be bounded", async (context) => {
    const { client, upstream } = await start(context, []);
    const options = { budget: { maxCostNanoUsd: 1n } };
    await assert.rejects(client.generate({ messages: [user("Go")], model: "forward/other", options }), (error) => {
      const { code, rawMessage } = ConnectError.from(error);
      return code === Code.FailedPrecondition && /price of forward\/other is unknown/.test(rawMessage);
    });
    assert.equal(upstream.requests.length, 0);
  });
});
