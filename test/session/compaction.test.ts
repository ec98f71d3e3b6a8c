import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, type TestContext, test } from "node:test";
import { setImmediate as nextMoment } from "node:timers/promises";
import { type Client, Code, ConnectError } from "@connectrpc/connect";
import type { CodeAgentService, GenerateChunk, Message } from "../../gen/codeagent/v1/code_agent_pb.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";
import {
  call,
  type DialectId,
  dialectIds,
  errorBody,
  providerAt,
  type Said,
  says,
  streamedAnswer,
  text,
  thinking,
} from "../provider/answers.ts";
import { type Answer, eventStream, jsonAnswer, startUpstream } from "../provider/upstream.ts";
import { collect } from "../support/grammar.ts";
import { noPostgres, stopTestDatabases, testDatabase } from "../support/postgres.ts";
import { startTestApp, type TestAppOptions, user } from "../support/test-app.ts";

after(stopTestDatabases);

const windowFlags = { "compaction.window_tokens": 1000 };

/** An answer that tells how much the model read; every answer writes 5 tokens. */
function reads(dialect: DialectId, said: readonly Said[], inputTokens: number): Answer {
  const body = streamedAnswer(dialect, said)
    .events.join("")
    .replaceAll('"prompt_tokens":7', `"prompt_tokens":${inputTokens}`)
    .replaceAll('"input_tokens":7', `"input_tokens":${inputTokens}`)
    .replaceAll('"total_tokens":12', `"total_tokens":${inputTokens + 5}`);
  return (_, response) => response.writeHead(200, eventStream).end(body);
}

const tooLong = (dialect: DialectId): Answer => {
  const words = "prompt is too long: maximum context length is 1000 tokens";
  return jsonAnswer(400, errorBody(dialect, "context_length_exceeded", words), { "x-should-retry": "false" });
};
const broken = (dialect: DialectId): Answer =>
  jsonAnswer(400, errorBody(dialect, "invalid_request_error", "no"), { "x-should-retry": "false" });

async function start(
  context: TestContext,
  dialect: DialectId,
  answers: readonly Answer[],
  options: TestAppOptions = {},
) {
  const upstream = await startUpstream(context, answers);
  const { model, env } = providerAt(dialect, upstream.url);
  const app = await startTestApp(context, {
    env,
    ...options,
    flags: { model, system_prompt: "Be.", ...options.flags },
  });
  return { ...app, model, sent: () => upstream.requests.map(({ body }) => body), upstream };
}

type ServiceClient = Client<typeof CodeAgentService>;

function compactions(chunks: readonly GenerateChunk[]) {
  return chunks.flatMap(({ event }) => (event.case === "historyCompacted" ? [event.value] : []));
}

async function turn(client: ServiceClient, sessionId: string, words: string): Promise<GenerateChunk[]> {
  return collect(client.streamGenerate({ sessionId, messages: [user(words)] }));
}

async function logOf(client: ServiceClient, sessionId: string): Promise<GenerateChunk[]> {
  return collect(client.subscribeSession({ sessionId }));
}

async function historyOf(client: ServiceClient, sessionId: string): Promise<Message[]> {
  return (await client.listMessages({ sessionId })).messages;
}

function wordsOf(messages: readonly Message[]): string[] {
  return messages.map(({ role, contentType }) => `${role}: ${String(contentType.value ?? "")}`);
}

function last(chunks: readonly GenerateChunk[]) {
  const event = chunks.at(-1)?.event;
  assert.ok(event?.case === "turnFinished");
  return event.value;
}

const summaryRequest = /Summarise this conversation/;

describe("a history that takes more than its share of the window is summarised before the next model call", () => {
  for (const dialect of dialectIds) {
    test(dialect, async (context) => {
      const { client, sent, model } = await start(
        context,
        dialect,
        [
          reads(dialect, [text("first answer")], 100),
          reads(dialect, [text("second answer")], 900),
          reads(dialect, [text("they greeted each other")], 300),
          reads(dialect, [text("third answer")], 150),
          reads(dialect, [text("fourth answer")], 160),
        ],
        { flags: windowFlags },
      );
      const { sessionId } = await client.createSession({});
      assert.deepEqual(compactions(await turn(client, sessionId, "first request")), []);
      assert.deepEqual(compactions(await turn(client, sessionId, "second request")), []);
      const third = await turn(client, sessionId, "third request");
      assert.deepEqual(compactions(await turn(client, sessionId, "fourth request")), []);

      const [compacted, ...others] = compactions(third);
      assert.deepEqual(others, []);
      assert.ok(compacted !== undefined);
      assert.equal(compacted.summary, "they greeted each other");
      assert.deepEqual([compacted.droppedMessages, compacted.keptMessages], [4, 1]);
      assert.deepEqual([compacted.trigger, compacted.model, compacted.fallbackReason], ["share", model, ""]);
      assert.ok((compacted.tokensBefore ?? 0n) > 905n);
      assert.ok((compacted.tokensAfter ?? 10_000n) < 905n);
      assert.equal(compacted.usage?.inputTokens, 300n);
      assert.equal(last(third).usage?.inputTokens, 450n, "the summary is part of the turn's usage");
      assert.equal((await client.getSession({ sessionId })).usage?.inputTokens, 100n + 900n + 450n + 160n);

      const [, , asksSummary = "", asked = "", askedNext = ""] = sent();
      assert.match(asksSummary, summaryRequest);
      for (const words of ["first request", "first answer", "second answer"]) assert.ok(asksSummary.includes(words));
      assert.ok(!asksSummary.includes("third request"));
      for (const body of [asked, askedNext]) {
        assert.ok(body.includes("they greeted each other") && body.includes("third request") && body.includes("Be."));
        assert.ok(!body.includes("first request") && !body.includes("second answer"));
      }
      const history = await historyOf(client, sessionId);
      assert.deepEqual(
        history.map(({ role }) => role),
        ["user", "user", "assistant", "user", "assistant"],
      );
      assert.match(String(history[0]?.contentType.value), /summary of it.*they greeted each other$/s);
      assert.equal((await client.getSession({ sessionId })).messageCount, 5);
      const texts = JSON.stringify((await logOf(client, sessionId)).map(({ event }) => event.value?.$typeName));
      assert.equal(texts.split("HistoryCompacted").length, 2);
    });

    test(`${dialect}, in the middle of a turn, whose calls and thinking stay as they are`, async (context) => {
      const looks = (id: string) => [thinking(`why ${id}`), call(id, "read_file", '{"path":"README.md"}')];
      const { client, sent } = await start(
        context,
        dialect,
        [
          reads(dialect, [text("old answer")], 10),
          reads(dialect, looks("c1"), 10),
          reads(dialect, looks("c2"), 950),
          reads(dialect, [text("in short")], 10),
          reads(dialect, [text("done")], 10),
        ],
        { flags: windowFlags },
      );
      const initialMessages = [{ role: "system", contentType: { case: "content" as const, value: "the rules" } }];
      const { sessionId } = await client.createSession({ initialMessages });
      await turn(client, sessionId, "old request");
      const [compacted] = compactions(await turn(client, sessionId, "look twice"));
      assert.deepEqual([compacted?.droppedMessages, compacted?.keptMessages], [2, 5]);
      const [, , before = "", asksSummary = "", after = ""] = sent();
      assert.match(asksSummary, summaryRequest);
      for (const kept of ["the rules", "look twice", '"c1"', '"c2"', "# a sample", "in short"])
        assert.ok(after.includes(kept), kept);
      assert.ok(!after.includes("old request") && !after.includes("old answer"));
      const seal = { "openai-chat": "", "openai-responses": "sealed-", "anthropic-messages": "c2lnbmVk" }[dialect];
      const count = (body: string) => body.split(seal).length - 1;
      if (seal !== "") assert.deepEqual([count(before), count(after)], [1, 2]);
      assert.ok(last(await turn(client, sessionId, "nobody answers this")).error !== undefined);
    });

    test(`${dialect}, once when the provider says that it is too long`, async (context) => {
      const { client, sent } = await start(context, dialect, [
        says(dialect, [text("old answer")]),
        tooLong(dialect),
        says(dialect, [text("in short")]),
        says(dialect, [text("done")]),
        tooLong(dialect),
        says(dialect, [text("in shorter")]),
        tooLong(dialect),
      ]);
      const { sessionId } = await client.createSession({});
      await turn(client, sessionId, "old request");
      const chunks = await turn(client, sessionId, "new request");
      assert.equal(last(chunks).finishReason, "stop");
      const [compacted] = compactions(chunks);
      assert.equal(compacted?.trigger, "context_length");
      const attempts = chunks.flatMap(({ event }) => (event.case === "stepStarted" ? [event.value.attempt] : []));
      assert.deepEqual(attempts, [1, 2]);
      const again = sent()[3] ?? "";
      assert.ok(again.includes("in short") && again.includes("new request") && !again.includes("old request"));

      const failed = await turn(client, sessionId, "newest request");
      assert.equal(last(failed).error?.reason, "CONTEXT_LENGTH");
      assert.equal(compactions(failed).length, 1);
      assert.equal(sent().length, 7);
    });
  }

  test("not for a request that is too long by itself", async (context) => {
    const dialect = "openai-chat";
    const { client, sent } = await start(context, dialect, [says(dialect, [text("old answer")]), tooLong(dialect)]);
    const { sessionId } = await client.createSession({});
    await turn(client, sessionId, "old request");
    const chunks = await turn(client, sessionId, "word ".repeat(2000));
    assert.deepEqual([last(chunks).error?.reason, compactions(chunks).length], ["CONTEXT_LENGTH", 0]);
    assert.equal(sent().length, 2);
  });

  test("of a long turn the oldest rounds go, and its request stays", async (context) => {
    const dialect = "anthropic-messages";
    const look = (id: string, inputTokens: number) =>
      reads(dialect, [call(id, "read_file", '{"path":"long.txt"}')], inputTokens);
    const { client, sent } = await start(
      context,
      dialect,
      [
        look("c1", 100),
        look("c2", 500),
        look("c3", 700),
        reads(dialect, [text("read it twice")], 1),
        reads(dialect, [text("ok")], 1),
      ],
      { flags: { ...windowFlags, "limits.repeated_calls": 0 }, files: { "long.txt": "word ".repeat(220) } },
    );
    const { sessionId } = await client.createSession({});
    const chunks = await turn(client, sessionId, "read it all");
    assert.equal(last(chunks).finishReason, "stop");
    assert.deepEqual(
      compactions(chunks).map(({ droppedMessages, keptMessages }) => [droppedMessages, keptMessages]),
      [[4, 2]],
    );
    const after = sent()[4] ?? "";
    assert.ok(after.includes("read it all") && after.includes("read it twice") && after.includes('"c3"'));
    assert.ok(!after.includes('"c1"') && !after.includes('"c2"'));
    assert.deepEqual(
      (await historyOf(client, sessionId)).map(({ role }) => role),
      ["user", "user", "assistant", "tool", "assistant"],
    );
  });

  test("in a one-off turn too, and its answer is the last one", async (context) => {
    const dialect = "openai-chat";
    const { client, sent } = await start(context, dialect, [
      tooLong(dialect),
      says(dialect, [text("in short")]),
      says(dialect, [text("done")]),
    ]);
    const messages = ["a", "b", "c"].flatMap((words) => [
      user(words),
      { role: "assistant", contentType: { case: "content" as const, value: `to ${words}` } },
    ]);
    const answer = await client.generate({ messages: [...messages, user("new request")] });
    assert.equal(answer.message?.contentType.value, "done");
    assert.equal(answer.usage?.inputTokens, 14n);
    assert.ok(!(sent()[2] ?? "").includes('"to a"'));
  });

  for (const [name, flags] of [
    ["an unknown window", {}],
    ["a share of 0", { ...windowFlags, "compaction.at_share": 0 }],
    ["a larger share", { ...windowFlags, "compaction.at_share": 0.95 }],
  ] as const) {
    test(`not with ${name}`, async (context) => {
      const dialect = "openai-chat";
      const answers = [reads(dialect, [text("one")], 900), reads(dialect, [text("two")], 900)];
      const { client, sent } = await start(context, dialect, answers, { flags });
      const { sessionId } = await client.createSession({});
      await turn(client, sessionId, "first request");
      assert.equal(last(await turn(client, sessionId, "second request")).finishReason, "stop");
      assert.equal(sent().length, 2);
    });
  }

  test("a turn that the server stopped in while the summary was written asks for it again", async (context) => {
    const dialect = "openai-chat";
    const folder = await mkdtemp(join(tmpdir(), "codeagent-compact-"));
    context.after(() => rm(folder, { recursive: true }));
    const asked = Promise.withResolvers<void>();
    const held: Answer = () => asked.resolve();
    const plan = [
      reads(dialect, [text("old answer")], 900),
      held,
      reads(dialect, [text("in short")], 1),
      reads(dialect, [text("ok")], 1),
    ];
    const upstream = await startUpstream(context, plan);
    const { model, env } = providerAt(dialect, upstream.url);
    const options = { env, flags: { model, ...windowFlags }, dataDir: join(folder, "data") };
    const first = await startTestApp(context, options);
    const { sessionId } = await first.client.createSession({});
    await turn(first.client, sessionId, "old request");
    const broken = assert.rejects(turn(first.client, sessionId, "new request"));
    await asked.promise;
    await first.app.close(0);
    await broken;
    const { client } = await startTestApp(context, options);
    const chunks: GenerateChunk[] = [];
    for await (const chunk of client.subscribeSession({ sessionId, follow: true })) {
      chunks.push(chunk);
      if (chunks.filter(({ event }) => event.case === "turnFinished").length === 2) break;
    }
    assert.equal(last(chunks).finishReason, "stop");
    assert.equal(compactions(chunks).length, 1);
    assert.ok(upstream.requests[3]?.body.includes("in short"));
  });

  test("an answer that the provider keeps is not gone on from, since it has the whole history before it", async (context) => {
    const dialect = "openai-responses";
    const plan = [
      reads(dialect, [text("old answer")], 10),
      reads(dialect, [call("c1", "list_files", '{"pattern":"*"}')], 20),
      reads(dialect, [call("c2", "list_files", '{"pattern":"*"}')], 950),
      reads(dialect, [text("in short")], 10),
      reads(dialect, [text("done")], 10),
    ];
    const { client, sent } = await start(context, dialect, plan, { flags: windowFlags });
    const { sessionId } = await client.createSession({});
    await turn(client, sessionId, "old request");
    const options = { stateful: { store: true, previousResponseId: "resp_0" } };
    const chunks = await collect(client.streamGenerate({ sessionId, messages: [user("look")], options }));
    assert.deepEqual([last(chunks).finishReason, compactions(chunks).length], ["stop", 1]);
    const goesOn = sent().map((body) => body.match(/"previous_response_id":"(\w+)"/)?.[1]);
    assert.deepEqual(goesOn, [undefined, "resp_0", "resp_1", undefined, undefined]);
    assert.ok((sent()[4] ?? "").includes("in short") && (sent()[4] ?? "").includes("look"));
  });

  test("a conversation that the provider keeps is not ours to shorten", async (context) => {
    const dialect = "openai-responses";
    const { client } = await start(context, dialect, [says(dialect, [text("old answer")]), tooLong(dialect)]);
    const { sessionId } = await client.createSession({});
    await turn(client, sessionId, "old request");
    const options = { stateful: { store: true, previousResponseId: "resp_0" } };
    const chunks = await collect(client.streamGenerate({ sessionId, messages: [user("look")], options }));
    assert.deepEqual([last(chunks).error?.reason, compactions(chunks).length], ["CONTEXT_LENGTH", 0]);
  });

  test("cancelled while the summary is written, the history stays as it was", async (context) => {
    const dialect = "openai-chat";
    const { promise: asked, resolve } = Promise.withResolvers<void>();
    const { client } = await start(
      context,
      dialect,
      [
        reads(dialect, [text("old answer")], 900),
        () => resolve(),
        reads(dialect, [text("short")], 1),
        says(dialect, [text("ok")]),
      ],
      { flags: windowFlags },
    );
    const { sessionId } = await client.createSession({});
    await turn(client, sessionId, "old request");
    const running = turn(client, sessionId, "new request");
    await asked;
    await client.cancelTurn({ sessionId });
    const chunks = await running;
    assert.equal(last(chunks).finishReason, "cancelled");
    assert.deepEqual(compactions(chunks), []);
    assert.deepEqual(wordsOf(await historyOf(client, sessionId)), [
      "user: old request",
      "assistant: old answer",
      "user: new request",
    ]);
    assert.equal(last(await turn(client, sessionId, "newest request")).finishReason, "stop");
  });
});

describe("a summary that can't be had", () => {
  const dialect = "openai-chat";
  const cases: { name: string; answer: Answer; reason: RegExp }[] = [
    { name: "is refused", answer: broken(dialect), reason: /forward\/m gave no summary: .*no/ },
    { name: "is empty", answer: says(dialect, [text(" ")]), reason: /gave an empty summary/ },
    { name: "is cut", answer: says(dialect, [text("it beg")], "length"), reason: /is not whole/ },
    {
      name: "is too long itself",
      answer: says(dialect, [text("words ".repeat(2000))]),
      reason: /has about 3\d{3} tokens; 1000 is the most/,
    },
    { name: "calls a tool", answer: says(dialect, [call("c", "list_files")]), reason: /is not whole/ },
  ];
  for (const { name, answer, reason } of cases) {
    test(`since it ${name}: the oldest messages go with a note`, async (context) => {
      const { client, sent } = await start(
        context,
        dialect,
        [
          says(dialect, [text("first answer")]),
          reads(dialect, [text("second answer")], 900),
          answer,
          reads(dialect, [text("third answer")], 9),
        ],
        { flags: windowFlags },
      );
      const { sessionId } = await client.createSession({});
      for (const words of ["first request", "second request"]) await turn(client, sessionId, words);
      const third = await turn(client, sessionId, "third request");
      assert.equal(last(third).finishReason, "stop");
      const [compacted] = compactions(third);
      assert.match(compacted?.fallbackReason ?? "", reason);
      assert.equal(compacted?.model, "");
      assert.match(compacted?.summary ?? "", /^\(\d older messages of this conversation left out here/);
      const asked = sent()[3] ?? "";
      assert.ok(asked.includes("left out here") && asked.includes("third request"));
      assert.ok(!asked.includes("first request"));
    });
  }

  test("of one model is asked of the session's next one", async (context) => {
    const answers = ["one", "two"].map((words) => says(dialect, [text(words)]));
    const plan = [...answers, broken(dialect), says(dialect, [text("by the other")])];
    const { client } = await start(context, dialect, plan);
    const { sessionId } = await client.createSession({ model: "forward/a, forward/b" });
    for (const words of ["first request", "second request"]) await turn(client, sessionId, words);
    const { compacted } = await client.compactSession({ sessionId });
    assert.deepEqual([compacted?.model, compacted?.summary], ["forward/b", "by the other"]);
  });
});

describe("CompactSession", () => {
  const dialect = "openai-chat";
  const answered = (words: string) => says(dialect, [text(words)]);

  test("summarises what was before the last request, as it was asked to", async (context) => {
    const { client, sent, model } = await start(context, dialect, [
      answered("first answer"),
      answered("second answer"),
      answered("in short"),
      answered("third answer"),
    ]);
    const { sessionId } = await client.createSession({});
    for (const words of ["first request", "second request"]) await turn(client, sessionId, words);
    const { compacted, seq } = await client.compactSession({ sessionId, instructions: "keep the names" });
    assert.deepEqual([compacted?.trigger, compacted?.summary, compacted?.model], ["request", "in short", model]);
    assert.deepEqual([compacted?.droppedMessages, compacted?.keptMessages], [2, 2]);
    assert.match(sent()[2] ?? "", /keep the names/);
    const session = await client.getSession({ sessionId });
    assert.equal(seq, session.headSeq);
    assert.deepEqual([session.messageCount, session.usage?.inputTokens, session.state], [3, 21n, "idle"]);
    await turn(client, sessionId, "third request");
    assert.ok((sent()[3] ?? "").includes("in short") && !(sent()[3] ?? "").includes("first request"));
    const chunk = (await logOf(client, sessionId)).find(({ event }) => event.case === "historyCompacted");
    assert.deepEqual([chunk?.seq, chunk?.turnId], [seq, ""]);
  });

  test("is done once for a request id, also after a restart", async (context) => {
    const folder = await mkdtemp(join(tmpdir(), "codeagent-compact-"));
    context.after(() => rm(folder, { recursive: true }));
    const plan = [answered("old answer"), answered("new answer"), answered("in short"), answered("after")];
    const upstream = await startUpstream(context, plan);
    const { model, env } = providerAt(dialect, upstream.url);
    const options = { env, flags: { model }, dataDir: join(folder, "data") };
    const first = await startTestApp(context, options);
    const { sessionId } = await first.client.createSession({});
    for (const words of ["old request", "new request"]) await turn(first.client, sessionId, words);
    const request = { sessionId, requestId: "r1" };
    const both = await Promise.all([first.client.compactSession(request), first.client.compactSession(request)]);
    assert.deepEqual(both[0], both[1]);
    await assert.rejects(
      first.client.compactSession({ ...request, instructions: "other" }),
      (error) => ConnectError.from(error).code === Code.AlreadyExists,
    );
    await first.app.close(0);
    const { client } = await startTestApp(context, options);
    assert.deepEqual(await client.compactSession(request), both[0]);
    assert.equal(upstream.requests.length, 3);
    const chunks = await turn(client, sessionId, "newest request");
    assert.equal(last(chunks).finishReason, "stop");
    assert.ok(upstream.requests[3]?.body.includes("in short"), "the summary outlives the restart");
    assert.equal((await historyOf(client, sessionId)).length, 5);
  });

  test("asks for the summary again when the server stopped in the middle, and nothing is half done", async (context) => {
    const folder = await mkdtemp(join(tmpdir(), "codeagent-compact-"));
    context.after(() => rm(folder, { recursive: true }));
    const asked = Promise.withResolvers<void>();
    const held: Answer = () => asked.resolve();
    const plan = [answered("old answer"), answered("new answer"), held, answered("in short")];
    const upstream = await startUpstream(context, plan);
    const { model, env } = providerAt(dialect, upstream.url);
    const options = { env, flags: { model }, dataDir: join(folder, "data") };
    const first = await startTestApp(context, options);
    const { sessionId } = await first.client.createSession({});
    for (const words of ["old request", "new request"]) await turn(first.client, sessionId, words);
    const { headSeq } = await first.client.getSession({ sessionId });
    const request = { sessionId, requestId: "r1" };
    const refused = assert.rejects(first.client.compactSession(request));
    await asked.promise;
    await first.app.close(0);
    await refused;
    const { client } = await startTestApp(context, options);
    const { compacted, seq } = await client.compactSession(request);
    assert.deepEqual([compacted?.summary, seq], ["in short", headSeq + 1n]);
    assert.equal(compactions(await logOf(client, sessionId)).length, 1);
  });

  test("waits for the turn that runs, and the turn that comes after waits for it", async (context) => {
    const asked = Promise.withResolvers<void>();
    const events = new EventTarget();
    const slow: Answer = async (_, response) => {
      asked.resolve();
      await once(events, "go");
      response.writeHead(200, eventStream).end(streamedAnswer(dialect, [text("second answer")]).events.join(""));
    };
    const plan = [answered("first answer"), slow, answered("in short"), answered("third answer")];
    const { client, sent } = await start(context, dialect, plan);
    const { sessionId } = await client.createSession({});
    await turn(client, sessionId, "first request");
    const second = turn(client, sessionId, "second request");
    await asked.promise;
    const subscribed = client.subscribeSession({ sessionId, follow: true })[Symbol.asyncIterator]();
    await subscribed.next();
    const compacting = client.compactSession({ sessionId, requestId: "r1" });
    // Its command is in the inbox once its twin with another payload is refused.
    await assert.rejects(
      client.compactSession({ sessionId, requestId: "r1", instructions: "other" }),
      (error) => ConnectError.from(error).code === Code.AlreadyExists,
    );
    const third = turn(client, sessionId, "third request");
    events.dispatchEvent(new Event("go"));
    const { seq } = await compacting;
    const lastSeq = (chunks: readonly GenerateChunk[]) => chunks.at(-1)?.seq ?? 0n;
    assert.equal(seq, lastSeq(await second) + 1n);
    assert.ok(seq < lastSeq(await third));
    assert.ok(!(sent()[3] ?? "").includes("first request"));
    await subscribed.return?.();
  });

  test("waits for a turn that waits for a person, and nobody works meanwhile", async (context) => {
    const changes: FunctionProvider = {
      source: "local",
      list: async () => [
        { name: "change", description: "", parameters: "", source: "local", readOnly: false, timeoutMs: 10_000 },
      ],
      call: async () => ({ success: true, output: "changed" }),
      close: async () => undefined,
    };
    const plan = [
      answered("first answer"),
      says(dialect, [call("c1", "change")]),
      answered("done"),
      answered("in short"),
    ];
    const { client, app } = await start(context, dialect, plan, { functions: [changes] });
    const { sessionId } = await client.createSession({});
    await turn(client, sessionId, "first request");
    const second = turn(client, sessionId, "second request");
    const pending = async () => (await client.listPendingRequests({ sessionId })).requests;
    let open = await pending();
    while (open.length === 0) open = await pending();
    const compacting = client.compactSession({ sessionId, requestId: "r1" });
    await assert.rejects(
      client.compactSession({ sessionId, requestId: "r1", instructions: "other" }),
      (error) => ConnectError.from(error).code === Code.AlreadyExists,
    );
    while (app.sessions.working > 0) await nextMoment();
    await client.respondToRequest({
      sessionId,
      responses: open.map(({ requestId }) => ({ requestId, decision: "allow_once" })),
    });
    const { seq, compacted } = await compacting;
    assert.equal(compacted?.summary, "in short");
    assert.equal(seq, ((await second).at(-1)?.seq ?? 0n) + 1n);
  });

  test("is done by whichever server has the session", { skip: noPostgres }, async (context) => {
    const plan = ["first answer", "second answer", "in short", "third answer"].map(answered);
    const upstream = await startUpstream(context, plan);
    const { model, env } = providerAt(dialect, upstream.url);
    const options = { env, flags: { model, database_url: await testDatabase() } };
    const [one, other] = [await startTestApp(context, options), await startTestApp(context, options)];
    const { sessionId } = await one.client.createSession({});
    for (const words of ["first request", "second request"]) await turn(one.client, sessionId, words);
    const request = { sessionId, requestId: "r1" };
    const both = await Promise.all([one.client.compactSession(request), other.client.compactSession(request)]);
    assert.deepEqual(both[0], both[1]);
    assert.equal(both[0].compacted?.summary, "in short");
    await turn(other.client, sessionId, "third request");
    assert.ok(upstream.requests[3]?.body.includes("in short"));
    assert.equal((await historyOf(one.client, sessionId)).length, 5);
  });

  test("of a history of one request changes nothing and says so", async (context) => {
    const { client, sent } = await start(context, dialect, [answered("answer")]);
    const { sessionId } = await client.createSession({});
    await turn(client, sessionId, "request");
    const { compacted, seq } = await client.compactSession({ sessionId });
    assert.deepEqual([compacted?.droppedMessages, compacted?.keptMessages, compacted?.summary], [0, 2, ""]);
    assert.equal(seq, (await client.getSession({ sessionId })).headSeq);
    assert.equal((await historyOf(client, sessionId)).length, 2);
    assert.equal(sent().length, 1);
  });

  test("twice in a row summarises the summary with what came after it", async (context) => {
    const plan = ["one", "two", "short one", "three", "short two"].map(answered);
    const { client, sent } = await start(context, dialect, plan);
    const { sessionId } = await client.createSession({});
    for (const words of ["first request", "second request"]) await turn(client, sessionId, words);
    await client.compactSession({ sessionId });
    assert.equal((await client.compactSession({ sessionId })).compacted?.droppedMessages, 0, "a summary alone stays");
    await turn(client, sessionId, "third request");
    const { compacted } = await client.compactSession({ sessionId });
    assert.equal(compacted?.droppedMessages, 3);
    const asksSummary = sent()[4] ?? "";
    assert.ok(asksSummary.includes("short one") && asksSummary.includes("second request"));
    const [summary, ...rest] = wordsOf(await historyOf(client, sessionId));
    assert.match(summary ?? "", /^user: .*short two$/s);
    assert.deepEqual(rest, ["user: third request", "assistant: three"]);
  });

  test("keeps images and large messages of the last request as they are, and tells of the old ones", async (context) => {
    const png = `data:image/png;base64,${"iVBORw0KGgo".repeat(20_000)}=`;
    const { client, sent } = await start(context, dialect, ["a", "b", "in short", "c"].map(answered));
    const { sessionId } = await client.createSession({});
    const image = { role: "user", blocks: [{ block: { case: "image" as const, value: { url: png } } }] };
    const large = (word: string) => user(word.repeat(200_000));
    await client.generate({ sessionId, messages: [large("old "), image] });
    await client.generate({ sessionId, messages: [large("new "), image] });
    const { compacted } = await client.compactSession({ sessionId });
    assert.deepEqual([compacted?.droppedMessages, compacted?.keptMessages], [3, 3]);
    const asksSummary = sent()[2] ?? "";
    assert.ok(asksSummary.includes("(image)") && asksSummary.includes("characters left out"));
    assert.ok(asksSummary.length < 300_000 && !asksSummary.includes("iVBORw0KGgo"));
    await client.generate({ sessionId, messages: [user("and?")] });
    const after = sent()[3] ?? "";
    assert.ok(after.includes(png) && after.includes("new ".repeat(200_000)) && !after.includes("old old"));
    const [, kept] = await historyOf(client, sessionId);
    assert.equal(kept?.contentType.value, "new ".repeat(200_000));
  });

  test("a fork from before it has the full history, one from after it the summary", async (context) => {
    const plan = ["one", "two", "in short", "three", "from before", "from after"].map(answered);
    const { client, sent } = await start(context, dialect, plan);
    const { sessionId } = await client.createSession({});
    for (const words of ["first request", "second request"]) await turn(client, sessionId, words);
    const { headSeq: before } = await client.getSession({ sessionId });
    const { seq } = await client.compactSession({ sessionId });
    const early = await client.forkSession({ sessionId, throughSeq: before });
    const late = await client.forkSession({ sessionId });
    assert.deepEqual([early.headSeq, late.headSeq], [before, seq]);
    assert.deepEqual([early.messageCount, late.messageCount], [4, 3]);
    await turn(client, sessionId, "third request");
    await turn(client, early.sessionId, "on");
    await turn(client, late.sessionId, "on");
    const [, , , , fromBefore = "", fromAfter = ""] = sent();
    assert.ok(fromBefore.includes("first request") && !fromBefore.includes("in short"));
    assert.ok(!fromAfter.includes("first request") && fromAfter.includes("in short"));
  });

  const refusals: {
    name: string;
    request: (sessionId: string) => object;
    code: Code;
    flags?: TestAppOptions["flags"];
  }[] = [
    { name: "an unknown session", request: () => ({ sessionId: "nobody" }), code: Code.NotFound },
    { name: "no session", request: () => ({}), code: Code.InvalidArgument },
    {
      name: "too many words",
      request: (sessionId) => ({ sessionId, instructions: "w".repeat(20_000) }),
      code: Code.InvalidArgument,
    },
    {
      name: "no model to ask",
      request: (sessionId) => ({ sessionId }),
      flags: { model: "" },
      code: Code.FailedPrecondition,
    },
  ];
  for (const { name, request, code, flags } of refusals) {
    test(`is refused with ${name}`, async (context) => {
      const { client } = await start(context, dialect, [], flags === undefined ? {} : { flags });
      const { sessionId } = await client.createSession({});
      await assert.rejects(
        client.compactSession(request(sessionId)),
        (error) => ConnectError.from(error).code === code,
      );
    });
  }
});
