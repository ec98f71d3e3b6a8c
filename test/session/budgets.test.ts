import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import type { BudgetSchema, GenerateChunk } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { ErrorInfoSchema, RetryInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import type { LogEvent } from "../../src/chat/log-event.ts";
import type { Budget } from "../../src/chat/request.ts";
import type { Usage } from "../../src/chat/usage.ts";
import { spentBudget, spentOf } from "../../src/session/budgets.ts";
import { emptyState, foldRecord } from "../../src/session/state.ts";
import { call, providerAt, says, streamedAnswer, text } from "../provider/answers.ts";
import { type Answer, eventStream, startUpstream } from "../provider/upstream.ts";
import { collect } from "../support/grammar.ts";
import { startTestApp, type TestAppOptions, user } from "../support/test-app.ts";

describe("a budget is used up", () => {
  const cases: { name: string; budget?: Budget; usage?: Usage; usedMs?: number; says: string | undefined }[] = [
    { name: "never where there is none", usage: { totalTokens: 1e9, costNanoUsd: 1e9 }, usedMs: 1e9, says: undefined },
    { name: "not below it", budget: { maxTotalTokens: 13 }, usage: { totalTokens: 12 }, says: undefined },
    {
      name: "when as many tokens were used",
      budget: { maxTotalTokens: 12 },
      usage: { totalTokens: 12 },
      says: "BUDGET_TOKENS: the turn's budget of 12 tokens is used up: 12 tokens were used",
    },
    {
      name: "by what was read and written where some step told no total",
      budget: { maxTotalTokens: 20 },
      usage: { totalTokens: 12, inputTokens: 14, outputTokens: 10 },
      says: "BUDGET_TOKENS: the turn's budget of 20 tokens is used up: 24 tokens were used",
    },
    {
      name: "at once where it is 0",
      budget: { maxCostNanoUsd: 0 },
      says: "BUDGET_COST: the turn's budget of 0 billionths of a dollar is used up: 0 billionths of a dollar were used",
    },
    {
      name: "when it was paid out",
      budget: { maxCostNanoUsd: 5 },
      usage: { costNanoUsd: 7 },
      says: "BUDGET_COST: the turn's budget of 5 billionths of a dollar is used up: 7 billionths of a dollar were used",
    },
    { name: "not by a time that a clock holds", budget: { maxDurationMs: 5 }, says: undefined },
    {
      name: "when the time is over",
      budget: { maxDurationMs: 5 },
      usedMs: 5,
      says: "BUDGET_DURATION: the turn's budget of 5 ms is used up: 5 ms were used",
    },
  ];
  for (const { name, budget, usage, usedMs, says: expected } of cases) {
    test(name, () => {
      const spent = spentOf("turn", budget, usage, usedMs);
      assert.equal(spent && `${spent.reason}: ${spent.message}`, expected);
    });
  }
});

describe("what a session has used", () => {
  const started = (budget?: Budget): LogEvent => ({
    type: "turn-started",
    requestId: "",
    principal: "",
    model: "p/m",
    messages: [],
    options: budget === undefined ? {} : { budget },
    tools: [],
  });
  const usage = (totalTokens: number): LogEvent => ({
    type: "step-finished",
    step: 1,
    attempt: 1,
    finishReason: "stop",
    rawFinishReason: "",
    usage: { totalTokens },
  });
  const opened: LogEvent = {
    type: "request-opened",
    request: { requestId: "r", kind: "approval", title: "", options: [] },
  };
  const resolved: LogEvent = { type: "request-resolved", requestId: "r", decision: "deny", author: "" };
  const finished: LogEvent = { type: "turn-finished", finishReason: "stop", steps: 1 };
  const compacted = (totalTokens: number): LogEvent => ({
    type: "history-compacted",
    droppedMessages: 0,
    keptMessages: 0,
    summary: "",
    keptMessageIds: [],
    usage: { totalTokens },
    trigger: "request",
  });
  type Timed = readonly [atMs: number, event: LogEvent];
  const cases: { name: string; events: readonly Timed[]; nowMs: number; tokens: number; ranMs: number }[] = [
    { name: "nothing yet", events: [[5, started()]], nowMs: 5, tokens: 0, ranMs: 0 },
    {
      name: "a running turn counts",
      events: [
        [5, started()],
        [9, usage(3)],
      ],
      nowMs: 25,
      tokens: 3,
      ranMs: 20,
    },
    {
      name: "turns add up, and the time between them does not count",
      events: [
        [0, started()],
        [1, usage(3)],
        [10, finished],
        [100, started()],
        [101, usage(4)],
      ],
      nowMs: 105,
      tokens: 7,
      ranMs: 15,
    },
    {
      name: "waiting for an answer does not count",
      events: [
        [0, started()],
        [10, opened],
        [1000, resolved],
        [1005, finished],
        [2000, started()],
      ],
      nowMs: 2001,
      tokens: 0,
      ranMs: 16,
    },
    {
      name: "two that wait at the same time are one wait",
      events: [
        [0, started()],
        [10, opened],
        [20, opened],
        [50, resolved],
        [100, resolved],
      ],
      nowMs: 110,
      tokens: 0,
      ranMs: 20,
    },
    {
      name: "waiting still does not count",
      events: [
        [0, started()],
        [10, opened],
      ],
      nowMs: 9999,
      tokens: 0,
      ranMs: 10,
    },
    {
      name: "summaries between turns count",
      events: [
        [0, started()],
        [1, finished],
        [2, compacted(5)],
        [3, started()],
      ],
      nowMs: 3,
      tokens: 5,
      ranMs: 1,
    },
    {
      name: "summaries in a turn count once",
      events: [
        [0, started()],
        [0, compacted(5)],
        [0, usage(1)],
        [0, finished],
        [0, started()],
      ],
      nowMs: 0,
      tokens: 6,
      ranMs: 0,
    },
  ];
  for (const { name, events, nowMs, tokens, ranMs } of cases) {
    test(name, () => {
      const state = emptyState([]);
      for (const [index, [timeMs, event]] of events.entries())
        foldRecord(state, { seq: index + 1, turnId: "t", timeMs, event });
      const spent = (budget: Budget) => spentBudget(state, { budget, nowMs })?.message.match(/used up: (\d+)/)?.[1];
      assert.equal(spent({ maxTotalTokens: 0 }), String(tokens));
      assert.equal(spent({ maxDurationMs: 0 }), String(ranMs));
      assert.equal(spentBudget(state, { budget: { maxDurationMs: ranMs + 1 }, nowMs }), undefined);
    });
  }

  test("a turn's own budget comes first", () => {
    const state = emptyState([]);
    foldRecord(state, { seq: 1, turnId: "t", timeMs: 0, event: started({ maxTotalTokens: 0 }) });
    const spent = spentBudget(state, { budget: { maxTotalTokens: 0 }, nowMs: 0 });
    assert.match(spent?.message ?? "", /^the turn's budget/);
  });
});

const chat = "openai-chat";
// Each answer reads 7 tokens and writes 5; a token read costs 1,000 billionths of a dollar, one written 2,000.
const looks = says(chat, [call("c1", "list_files", '{"pattern":"*"}')]);
const ok = says(chat, [text("ok")]);

async function start(context: TestContext, answers: readonly Answer[], options: TestAppOptions = {}) {
  const upstream = await startUpstream(context, answers);
  const { model, env } = providerAt(chat, upstream.url);
  const folder = await mkdtemp(join(tmpdir(), "codeagent-budgets-"));
  context.after(() => rm(folder, { recursive: true }));
  const prices = join(folder, "prices.yaml");
  await writeFile(prices, `${model}: { input: 1, output: 2 }\n`);
  const app = await startTestApp(context, { env, ...options, flags: { model, "prices.file": prices } });
  return { ...app, upstream };
}

function ending(chunks: readonly GenerateChunk[]) {
  const event = chunks.at(-1)?.event;
  assert.ok(event?.case === "turnFinished");
  const notices = chunks.flatMap(({ event: { case: name, value } }) =>
    name === "notice" && value.code === "BUDGET_EXHAUSTED" ? [value.message] : [],
  );
  return { finishReason: event.value.finishReason, notices };
}

function isRefused(reason: string, says: RegExp) {
  return (error: unknown): boolean => {
    const failure = ConnectError.from(error);
    assert.equal(failure.code, Code.ResourceExhausted, failure.message);
    assert.match(failure.rawMessage, says);
    assert.equal(failure.findDetails(ErrorInfoSchema)[0]?.reason, reason);
    assert.equal(failure.findDetails(RetryInfoSchema).length, 1);
    return true;
  };
}

describe("a session's budget", () => {
  const cases: { name: string; budget: MessageInitShape<typeof BudgetSchema>; reason: string; says: RegExp }[] = [
    {
      name: "tokens",
      budget: { maxTotalTokens: 30n },
      reason: "BUDGET_TOKENS",
      says: /the session's budget of 30 tokens is used up: 36 tokens were used/,
    },
    {
      name: "cost",
      budget: { maxCostNanoUsd: 40_000n },
      reason: "BUDGET_COST",
      says: /the session's budget of 40000 billionths of a dollar is used up: 51000 billionths/,
    },
    {
      name: "time",
      budget: { maxDurationMs: 2500n },
      reason: "BUDGET_DURATION",
      says: /the session's budget of 2500 ms is used up: 3000 ms were used/,
    },
  ];
  for (const { name, budget, reason, says: words } of cases) {
    test(`of ${name} ends the turn that meets it, and refuses the next one until it is raised`, async (context) => {
      let nowMs = Date.UTC(2026, 0, 1);
      const slowly =
        (answer: Answer): Answer =>
        (...given) => {
          nowMs += 1000;
          answer(...given);
        };
      const { client, upstream } = await start(context, [ok, looks, looks, ok].map(slowly), { now: () => nowMs });
      const { sessionId, budget: shown } = await client.createSession({ budget });
      assert.deepEqual({ ...shown, $typeName: "" }, { ...budget, $typeName: "" });
      const turn = () => collect(client.streamGenerate({ sessionId, messages: [user("Go")] }));
      assert.deepEqual(ending(await turn()), { finishReason: "stop", notices: [] });
      nowMs += 1_000_000; // between turns: does not count
      const met = ending(await turn());
      assert.equal(met.finishReason, "budget");
      assert.equal(met.notices.length, 1);
      assert.match(met.notices[0] ?? "", words);
      const { headSeq } = await client.getSession({ sessionId });
      await assert.rejects(client.generate({ sessionId, messages: [user("Go")] }), isRefused(reason, words));
      await assert.rejects(client.compactSession({ sessionId }), isRefused(reason, words));
      assert.equal((await client.getSession({ sessionId })).headSeq, headSeq, "nothing was kept");
      assert.equal(upstream.requests.length, 3);
      const fork = await client.forkSession({ sessionId });
      const inFork = { sessionId: fork.sessionId, messages: [user("Go")] };
      await assert.rejects(client.generate(inFork), isRefused(reason, words));
      await client.updateSession({ sessionId, budget: {} });
      assert.equal((await client.generate({ sessionId, messages: [user("Go")] })).finishReason, "stop");
    });
  }

  test("counts after a restart, and a turn that was admitted before is joined", async (context) => {
    const folder = await mkdtemp(join(tmpdir(), "codeagent-budgets-"));
    context.after(() => rm(folder, { recursive: true }));
    const upstream = await startUpstream(context, [ok]);
    const { model, env } = providerAt(chat, upstream.url);
    const options = { env, flags: { model }, dataDir: join(folder, "data") };
    const first = await startTestApp(context, options);
    const { sessionId } = await first.client.createSession({ budget: { maxTotalTokens: 12n } });
    const request = { sessionId, requestId: "r1", messages: [user("Go")] };
    const answer = await first.client.generate(request);
    assert.equal((await first.client.generate(request)).turnId, answer.turnId);
    await first.app.close(0);
    const { client } = await startTestApp(context, options);
    assert.equal((await client.generate(request)).turnId, answer.turnId);
    const next = client.generate({ ...request, requestId: "r2" });
    await assert.rejects(next, isRefused("BUDGET_TOKENS", /12 tokens/));
  });

  test("ends a turn at once that waited while it was used up", async (context) => {
    const asked = Promise.withResolvers<void>();
    const { promise: go, resolve } = Promise.withResolvers<void>();
    const slow: Answer = async (...given) => {
      asked.resolve();
      await go;
      ok(...given);
    };
    const { client, upstream } = await start(context, [slow]);
    const { sessionId } = await client.createSession({ budget: { maxTotalTokens: 12n } });
    const turn = () => collect(client.streamGenerate({ sessionId, messages: [user("Go")] }));
    const first = turn();
    await asked.promise;
    const second = turn();
    while ((await client.getSession({ sessionId })).queuedTurns === 0);
    resolve();
    assert.equal(ending(await first).finishReason, "stop");
    const { finishReason, notices } = ending(await second);
    assert.equal(finishReason, "budget");
    assert.match(notices.join(), /the session's budget of 12 tokens is used up: 12 tokens were used/);
    assert.equal(upstream.requests.length, 1);
  });

  test("of time stops a model that is still writing", async (context) => {
    const { client } = await start(context, [() => undefined]);
    const { sessionId } = await client.createSession({ budget: { maxDurationMs: 200n } });
    const { finishReason, notices } = ending(
      await collect(client.streamGenerate({ sessionId, messages: [user("Go")] })),
    );
    assert.equal(finishReason, "budget");
    assert.match(notices.join(), /the session's budget of 200 ms is used up: turns before this one took 0 ms/);
  });

  test("of cost needs a price", async (context) => {
    const { client } = await start(context, []);
    const { sessionId } = await client.createSession({ budget: { maxCostNanoUsd: 1n } });
    await assert.rejects(client.generate({ sessionId, messages: [user("Go")], model: "forward/other" }), (error) => {
      const { code, rawMessage } = ConnectError.from(error);
      return (
        code === Code.FailedPrecondition && /the session's budget.max_cost_nano_usd can't be held/.test(rawMessage)
      );
    });
  });
});

describe("a turn that meets its own budget says which", () => {
  const cases: { name: string; budget: MessageInitShape<typeof BudgetSchema>; answers: Answer[]; says: RegExp }[] = [
    {
      name: "tokens",
      budget: { maxTotalTokens: 20n },
      answers: [looks, looks],
      says: /turn's budget of 20 tokens .* 24/,
    },
    {
      name: "cost",
      budget: { maxCostNanoUsd: 20_000n },
      answers: [looks, looks],
      says: /turn's budget of 20000 billionths of a dollar is used up: 34000/,
    },
    {
      name: "time",
      budget: { maxDurationMs: 200n },
      answers: [() => undefined],
      says: /turn's budget of 200 ms is used up/,
    },
  ];
  for (const { name, budget, answers, says: words } of cases) {
    test(name, async (context) => {
      const { client } = await start(context, answers);
      const request = { messages: [user("Go")], options: { budget } };
      const { finishReason, notices } = ending(await collect(client.streamGenerate(request)));
      assert.equal(finishReason, "budget");
      assert.equal(notices.length, 1);
      assert.match(notices[0] ?? "", words);
    });
  }

  test("what a compaction cost counts before the next model call", async (context) => {
    const body = streamedAnswer(chat, [text("ok")])
      .events.join("")
      .replace('"prompt_tokens":7', '"prompt_tokens":300');
    const readsMuch: Answer = (_, response) => response.writeHead(200, eventStream).end(body);
    const upstream = await startUpstream(context, [readsMuch, ok, ok]);
    const { model, env } = providerAt(chat, upstream.url);
    const { client } = await startTestApp(context, { env, flags: { model, "compaction.window_tokens": 300 } });
    const { sessionId } = await client.createSession({});
    await client.generate({ sessionId, messages: [user("a question")] });
    const options = { budget: { maxTotalTokens: 12n } };
    const chunks = await collect(client.streamGenerate({ sessionId, messages: [user("Go")], options }));
    assert.equal(chunks.filter(({ event }) => event.case === "historyCompacted").length, 1);
    assert.equal(ending(chunks).finishReason, "budget");
    assert.equal(upstream.requests.length, 2);
  });
});
