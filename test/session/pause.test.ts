import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Code, ConnectError } from "@connectrpc/connect";
import type { GenerateChunk } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { nextStep } from "../../src/session/next-step.ts";
import { noticeOfChange } from "../../src/session/session-change.ts";
import { emptyState, foldRecord, ranMs } from "../../src/session/state.ts";
import { grammarCheck } from "../support/grammar.ts";
import { startTestApp, user } from "../support/test-app.ts";

const script = `
- { when: { role: tool }, text: written }
- { when: { text: write }, tool_calls: [{ name: write_file, arguments: { path: a.txt, content: hello } }] }
- { when: { text: look }, tool_calls: [{ name: list_files, arguments: { pattern: "*" } }] }
- { when: { text: slow }, text: said slowly, chunk: 1, delay_ms: 30 }
- { text: answered }
`;

const limitMs = 30_000;

/** Reads what happens until an event fits; gives all of it. */
async function readUntil(chunks: AsyncIterable<GenerateChunk>, fits: (chunk: GenerateChunk) => boolean) {
  const read: GenerateChunk[] = [];
  for await (const chunk of chunks) {
    read.push(chunk);
    if (fits(chunk)) return read;
  }
  assert.fail(`it ended after ${read.map(({ event }) => event.case).join()}`);
}

const isNotice = (code: string) => (chunk: GenerateChunk) =>
  chunk.event.case === "notice" && chunk.event.value.code === code;
const isEnd = (chunk: GenerateChunk) => chunk.event.case === "turnFinished";
const names = (chunks: readonly GenerateChunk[]) =>
  chunks.flatMap(({ event: { case: name = "" } }) => (/^(turn|step|tool|request)/.test(name) ? name : []));

describe("the next step of a paused session", () => {
  const time = { turnId: "t", timeMs: 1000 };
  const begun = () => {
    const state = emptyState([]);
    const started = {
      type: "turn-started",
      requestId: "",
      principal: "",
      model: "p/m",
      messages: [],
      options: {},
      tools: [],
    } as const;
    foldRecord(state, { seq: 1, ...time, event: started });
    return state;
  };

  test("calls no model until it is resumed, and its time does not run", () => {
    const state = begun();
    foldRecord(state, { seq: 2, turnId: "t", timeMs: 1500, event: noticeOfChange({ type: "pause" }) });
    foldRecord(state, { seq: 3, turnId: "t", timeMs: 1600, event: noticeOfChange({ type: "pause" }) });
    assert.deepEqual(nextStep(state, 50), { type: "await-answers", untilMs: Number.POSITIVE_INFINITY });
    assert.equal(state.turn && ranMs(state.turn, 9000), 500);
    foldRecord(state, { seq: 4, turnId: "t", timeMs: 9000, event: noticeOfChange({ type: "resume" }) });
    assert.deepEqual(nextStep(state, 50), { type: "call-model", step: 1, attempt: 1 });
    assert.equal(state.turn && ranMs(state.turn, 9100), 600);
  });

  test("a change reads as it was written, and nothing else does", async () => {
    const { decodeSessionChange, encodeSessionChange } = await import("../../src/session/session-change.ts");
    const todos = [{ content: "x", status: "cancelled", id: "a", priority: "high" } as const];
    for (const change of [{ type: "pause" }, { type: "resume" }, { type: "todos", todos }] as const)
      assert.deepEqual(decodeSessionChange(encodeSessionChange(change)), change);
    for (const bytes of ["{}", "null", '{"type":"todos","todos":[{"content":1}]}', '{"type":"stop"}'])
      assert.throws(() => decodeSessionChange(new TextEncoder().encode(bytes)), /can't be read/);
  });
});

describe("a paused session", { timeout: limitMs }, () => {
  test("that does nothing keeps its turns waiting until it is resumed", async (context) => {
    const { client } = await startTestApp(context, { script });
    const { sessionId } = await client.createSession({});
    const { session } = await client.pauseSession({ sessionId });
    assert.equal(session?.state, "paused");
    const check = grammarCheck(1n);
    const all = client.subscribeSession({ sessionId, follow: true });
    const first = client.generate({ sessionId, messages: [user("hi")] });
    const second = client.generate({ sessionId, messages: [user("hi")] });
    while ((await client.getSession({ sessionId })).queuedTurns < 2) await new Promise(setImmediate);
    const { state, headSeq } = await client.getSession({ sessionId });
    assert.deepEqual([state, headSeq], ["paused", 1n]);
    assert.equal((await client.resumeSession({ sessionId })).session?.queuedTurns !== undefined, true);
    assert.deepEqual([(await first).finishReason, (await second).finishReason], ["stop", "stop"]);
    let ends = 0;
    for (const chunk of await readUntil(all, (each) => isEnd(each) && ++ends === 2)) check.add(chunk);
    check.end();
    assert.equal((await client.getSession({ sessionId })).state, "idle");
  });

  test("finishes the step that runs, begins no tool, and goes on where it was", async (context) => {
    const { client } = await startTestApp(context, { script });
    const { sessionId } = await client.createSession({});
    await client.pauseSession({ sessionId, requestId: "one" });
    await client.resumeSession({ sessionId });
    const turn = client.streamGenerate({ sessionId, messages: [user("slow")] });
    const iterator = turn[Symbol.asyncIterator]();
    const until = async (fits: (chunk: GenerateChunk) => boolean) => {
      const read: GenerateChunk[] = [];
      for (;;) {
        const { value, done } = await iterator.next();
        assert.ok(done !== true, "it ended");
        read.push(value);
        if (fits(value)) return read;
      }
    };
    await until(({ event }) => event.case === "blockDelta");
    // It answers at once: the step that runs is finished first.
    assert.equal((await client.pauseSession({ sessionId })).session?.state, "running");
    const rest = await until(isEnd);
    assert.deepEqual(names(rest), ["stepFinished", "turnFinished"]); // nothing was left to begin
    assert.equal((await client.getSession({ sessionId })).state, "paused");
  });

  test("takes answers, survives a restart, and runs what was approved only then", async (context) => {
    const first = await startTestApp(context, { script });
    const { sessionId } = await first.client.createSession({});
    const turn = first.client.streamGenerate({ sessionId, messages: [user("write")] });
    const before = await readUntil(turn, ({ event }) => event.case === "requestOpened");
    assert.equal((await first.client.pauseSession({ sessionId })).session?.state, "paused");
    const { requests } = await first.client.listPendingRequests({ sessionId });
    const requestId = requests[0]?.requestId ?? "";
    await first.client.respondToRequest({ sessionId, responses: [{ requestId, decision: "allow_once" }] });
    const following = first.client.subscribeSession({ sessionId, follow: true });
    await readUntil(following, ({ event }) => event.case === "requestResolved");
    await first.app.close(0);

    const { client, app } = await startTestApp(context, { script, dataDir: first.dataDir });
    assert.equal((await client.getSession({ sessionId })).state, "paused");
    // Somebody looks at it and leaves it as it is.
    app.sessions.wake(sessionId);
    while (app.sessions.working > 0) await new Promise(setImmediate);
    const { headSeq } = await client.getSession({ sessionId });
    const log = await readUntil(client.subscribeSession({ sessionId, follow: false }), ({ seq }) => seq === headSeq);
    assert.ok(before.length > 0 && !names(log).includes("toolStarted"));
    await client.resumeSession({ sessionId });
    const whole = await readUntil(client.subscribeSession({ sessionId, follow: true }), isEnd);
    const check = grammarCheck();
    for (const chunk of whole) check.add(chunk);
    check.end();
    assert.equal(names(whole).filter((name) => name === "toolStarted").length, 1);
    const paused = whole.findIndex(isNotice("SESSION_PAUSED"));
    const answered = whole.findIndex(({ event }) => event.case === "requestResolved");
    const resumed = whole.findIndex(isNotice("SESSION_RESUMED"));
    const ran = whole.findIndex(({ event }) => event.case === "toolStarted");
    assert.ok(paused < answered && answered < resumed && resumed < ran, `${[paused, answered, resumed, ran]}`);
  });

  test("a crash between the command and the pause loses nothing", async (context) => {
    const first = await startTestApp(context, { script });
    const { sessionId } = await first.client.createSession({});
    const turn = first.client.streamGenerate({ sessionId, messages: [user("slow")] });
    await readUntil(turn, ({ event }) => event.case === "blockDelta");
    await first.client.pauseSession({ sessionId });
    await first.app.close(0);
    const { client, app } = await startTestApp(context, { script, dataDir: first.dataDir });
    await readUntil(client.subscribeSession({ sessionId, follow: true }), isNotice("SESSION_PAUSED"));
    while (app.sessions.working > 0) await new Promise(setImmediate);
    const { state, currentTurnId } = await client.getSession({ sessionId });
    assert.deepEqual([state, currentTurnId === ""], ["paused", false]);
    await client.resumeSession({ sessionId });
    const all = await readUntil(client.subscribeSession({ sessionId, follow: true }), isEnd);
    const [end] = all.slice(-1);
    assert.equal(end?.event.case === "turnFinished" && end.event.value.finishReason, "stop");
  });

  test("its turns can be cancelled, those that run and those that wait", async (context) => {
    const { client } = await startTestApp(context, { script });
    const { sessionId } = await client.createSession({});
    const running = client.streamGenerate({ sessionId, messages: [user("write")] });
    await readUntil(running, ({ event }) => event.case === "requestOpened");
    await client.pauseSession({ sessionId });
    const waits = client.streamGenerate({ sessionId, messages: [user("hi")] })[Symbol.asyncIterator]();
    await waits.next(); // it is admitted
    assert.equal((await client.cancelTurn({ sessionId })).wasRunning, true);
    const ends: string[] = [];
    const follow = client.subscribeSession({ sessionId, follow: true });
    await client.cancelTurn({ sessionId }).catch(() => undefined);
    for await (const { event } of follow) {
      if (event.case === "turnFinished" && ends.push(event.value.finishReason) === 1)
        await client.cancelTurn({ sessionId });
      if (ends.length === 2) break;
    }
    assert.deepEqual(ends, ["cancelled", "cancelled"]);
    const { state, queuedTurns } = await client.getSession({ sessionId });
    assert.deepEqual([state, queuedTurns], ["paused", 0]);
    assert.equal((await client.resumeSession({ sessionId })).session?.state, "idle");
  });

  test("is told to who asks for what it can't do", async (context) => {
    const { client } = await startTestApp(context, { script });
    const { sessionId } = await client.createSession({});
    await client.pauseSession({ sessionId });
    await assert.rejects(client.compactSession({ sessionId }), (error: unknown) => {
      assert.match(String(error), /is paused; resume it first/);
      return ConnectError.from(error).code === Code.FailedPrecondition;
    });
    for (const call of [client.pauseSession({ sessionId: "nobody" }), client.resumeSession({ sessionId: "nobody" })])
      await assert.rejects(call, (error: unknown) => ConnectError.from(error).code === Code.NotFound);
    // Once is enough: the same request again is the same pause.
    await client.resumeSession({ sessionId, requestId: "r" });
    await client.pauseSession({ sessionId });
    await client.resumeSession({ sessionId, requestId: "r" });
    assert.equal((await client.getSession({ sessionId })).state, "paused");
  });
});

test("a fork is paused where its parent was, and not by what came later", { timeout: limitMs }, async (context) => {
  const { client } = await startTestApp(context, { script });
  const { sessionId } = await client.createSession({});
  await client.generate({ sessionId, messages: [user("hi")] });
  const { session } = await client.pauseSession({ sessionId });
  const headSeq = session?.headSeq ?? 0n;
  assert.equal((await client.forkSession({ sessionId, throughSeq: headSeq - 1n })).state, "idle");
  const fork = await client.forkSession({ sessionId });
  assert.equal(fork.state, "paused");
  assert.equal((await client.resumeSession({ sessionId: fork.sessionId })).session?.state, "idle");
  assert.equal((await client.getSession({ sessionId })).state, "paused");
});
