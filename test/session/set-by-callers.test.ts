import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { LogEvent } from "../../src/chat/log-event.ts";
import { theCaller } from "../../src/rpc/caller.ts";
import { laneOf } from "../../src/session/hand-over.ts";
import { noticeOfChange } from "../../src/session/session-change.ts";
import { emptyState, foldRecord, type SessionState } from "../../src/session/state.ts";
import { grammarCheck } from "../support/grammar.ts";
import { startTestApp, user } from "../support/test-app.ts";

const script = `
- { when: { text: slow }, text: said slowly, chunk: 1, delay_ms: 20 }
- { when: { text: write }, tool_calls: [{ name: write_file, arguments: { path: a.txt, content: hello } }] }
- { when: { role: tool }, text: done }
- { text: answered }
`;

const todos = [{ content: "look", status: "in_progress", id: "a", priority: "high" }] as const;
const { signal } = new AbortController();

describe("a todo list that a caller sets", { timeout: 30_000 }, () => {
  const fold = (state: SessionState, ...events: readonly LogEvent[]) => {
    for (const event of events) foldRecord(state, { seq: state.seq + 1, turnId: "t", timeMs: 0, event });
  };
  const use = { type: "tool_use", id: "c1", name: "list_files", input: "{}" } as const;
  const step = (number: number): LogEvent => ({
    type: "step-started",
    step: number,
    attempt: 1,
    model: "m",
    provider: "p",
  });
  const begin: LogEvent = {
    ...{ type: "turn-started", requestId: "", principal: "", model: "p/m", options: {}, tools: [] },
    messages: [{ role: "user", blocks: [{ type: "text", text: "go" }] }],
  };

  test("is told to the model between its steps, behind the results of its calls", () => {
    const state = emptyState([]);
    const stop: LogEvent = { type: "block-stop", index: 0, block: use };
    const finished = {
      type: "step-finished",
      step: 1,
      attempt: 1,
      finishReason: "tool_calls",
      rawFinishReason: "",
    } as const;
    fold(state, begin, step(1), stop, finished, noticeOfChange({ type: "todos", todos }));
    assert.deepEqual(state.todos, todos);
    assert.deepEqual(
      state.messages.map(({ role }) => role),
      ["user", "assistant"],
    );
    const result = {
      type: "tool-finished",
      toolCallId: "c1",
      name: use.name,
      result: { success: true, output: "x" },
    } as const;
    fold(
      state,
      { type: "tool-started", toolCallId: "c1", name: use.name, source: "local", readOnly: true },
      result,
      step(2),
    );
    assert.deepEqual(
      state.messages.map(({ role }) => role),
      ["user", "assistant", "tool", "user"],
    );
    const [last] = state.messages.slice(-1);
    assert.deepEqual(last?.blocks, [
      {
        type: "text",
        text: "The todo list of this session was set by somebody else than you. It is now:\n1. [>] look",
      },
    ]);
    fold(state, { ...step(2), attempt: 2 } as LogEvent);
    assert.equal(state.messages.length, 4); // once
  });

  test("is told before the next request where nothing runs, as empty too", () => {
    const state = emptyState([]);
    fold(state, noticeOfChange({ type: "todos", todos }), noticeOfChange({ type: "todos", todos: [] }), begin);
    const texts = state.messages.map(({ blocks: [block] }) => (block?.type === "text" ? block.text : ""));
    assert.deepEqual(texts, [
      "The todo list of this session was set by somebody else than you. It is empty now.",
      "go",
    ]);
  });

  test("is read at once, and outlasts a restart in the middle of a turn", async (context) => {
    const first = await startTestApp(context, { script });
    const { sessionId } = await first.client.createSession({});
    for await (const { event } of first.client.streamGenerate({ sessionId, messages: [user("slow")] }))
      if (event.case === "blockDelta") break;
    await first.app.sessions.setTodos(theCaller, sessionId, todos);
    assert.deepEqual(await first.app.sessions.todos(theCaller, sessionId), todos);
    await first.app.close(0);
    const { client, app } = await startTestApp(context, { script, dataDir: first.dataDir });
    assert.deepEqual(await app.sessions.todos(theCaller, sessionId), todos);
    const check = grammarCheck(1n);
    const notices: string[] = [];
    for await (const chunk of client.subscribeSession({ sessionId, follow: true })) {
      check.add(chunk);
      if (chunk.event.case === "notice") notices.push(chunk.event.value.code);
      if (chunk.event.case === "turnFinished") break;
    }
    check.end();
    assert.deepEqual(notices, ["TODOS_SET"]);
    assert.deepEqual(await app.sessions.todos(theCaller, sessionId), todos);
    const { messages } = await client.listMessages({ sessionId });
    assert.equal(messages.filter(({ metadata }) => metadata["codeagent.notice"] === "TODOS_SET").length, 1);
  });
});

describe("a history that is cleared", { timeout: 30_000 }, () => {
  test("is empty for the next turn, after a restart too, and the log keeps it", async (context) => {
    const first = await startTestApp(context, { script });
    const { sessionId } = await first.client.createSession({ initialMessages: [user("before")] });
    await first.client.generate({ sessionId, messages: [user("hi")] });
    assert.equal((await first.client.getSession({ sessionId })).messageCount, 3);
    const { event, seq } = await first.app.sessions.clearHistory(theCaller, sessionId, "one", signal);
    assert.deepEqual([event.droppedMessages, event.keptMessages, event.summary], [3, 0, ""]);
    assert.equal((await first.app.sessions.clearHistory(theCaller, sessionId, "one", signal)).seq, seq);
    assert.equal((await first.client.getSession({ sessionId })).messageCount, 0);
    await first.app.close(0);
    const { client, app } = await startTestApp(context, { script, dataDir: first.dataDir });
    assert.deepEqual((await client.listMessages({ sessionId })).messages, []);
    await client.generate({ sessionId, messages: [user("again")] });
    const { messages } = await client.listMessages({ sessionId });
    assert.deepEqual(
      messages.map(({ contentType: { value } }) => value),
      ["again", "answered"],
    );
    assert.equal((await app.sessions.clearHistory(theCaller, sessionId, "", signal)).event.droppedMessages, 2);
    assert.equal((await app.sessions.clearHistory(theCaller, sessionId, "", signal)).event.droppedMessages, 0);
    const before = await client.forkSession({ sessionId, throughSeq: BigInt(seq - 1) });
    assert.equal(before.messageCount, 3);
  });

  test("is cleared after the turn that runs, and asks no model", async (context) => {
    const { client, app } = await startTestApp(context, { script });
    const { sessionId } = await client.createSession({});
    const turn = client.streamGenerate({ sessionId, messages: [user("slow")] });
    let cleared: ReturnType<typeof app.sessions.clearHistory> | undefined;
    let finishedSeq = 0n;
    for await (const { event, seq } of turn) {
      if (event.case === "blockDelta") cleared ??= app.sessions.clearHistory(theCaller, sessionId, "", signal);
      if (event.case === "turnFinished") finishedSeq = seq;
    }
    const { seq } = (await cleared) ?? assert.fail("nothing was streamed");
    assert.equal(BigInt(seq), finishedSeq + 1n);
    assert.equal((await client.getSession({ sessionId })).messageCount, 0);
    await client.pauseSession({ sessionId });
    await assert.rejects(app.sessions.clearHistory(theCaller, sessionId, "", signal), /is paused; resume it first/);
    await assert.rejects(app.sessions.clearHistory(theCaller, "nobody", "", signal), /there is no session nobody/);
  });
});

describe("a call that a client runs", { timeout: 30_000 }, () => {
  test("waits over a restart, and has the one result it was given, which is bounded", async (context) => {
    const lanes = { execute: { mode: "external", timeoutMs: 60_000n } };
    const first = await startTestApp(context, { script });
    const { sessionId } = await first.client.createSession({ lanes, permissions: { mode: "accept-edits" } });
    for await (const { event } of first.client.streamGenerate({ sessionId, messages: [user("write")] }))
      if (event.case === "requestOpened") break;
    await first.app.close(0);
    const { client } = await startTestApp(context, { script, dataDir: first.dataDir });
    const { requests } = await client.listPendingRequests({});
    const [request] = requests;
    const { kind, toolName, lane, options, requestId = "" } = request ?? {};
    assert.deepEqual([kind, toolName, lane, options], ["client_tool", "write_file", "execute", ["answer", "deny"]]);
    const respond = (response: object) =>
      client.respondToRequest({ sessionId, responses: [{ requestId, ...response }] });
    const toolResult = { success: true, output: `${"x".repeat(300_000)}\u0007`, durationMs: 5n };
    for (const [response, message] of [
      [{ decision: "answer", text: "done" }, /responses\[0\].tool_result.* is missing/],
      [{ decision: "allow_once" }, /to a call that a client runs say one of: answer, deny/],
      [{ decision: "deny", toolResult }, /tool_result.* leave it out/],
    ] as const)
      await assert.rejects(respond(response), message);
    await respond({ decision: "answer", toolResult });
    await respond({ decision: "answer", toolResult });
    await assert.rejects(respond({ decision: "deny" }), /before; that stays/);
    const check = grammarCheck(1n);
    const results: string[] = [];
    const sources: string[] = [];
    for await (const chunk of client.subscribeSession({ sessionId, follow: true })) {
      check.add(chunk);
      const { event } = chunk;
      if (event.case === "toolStarted") sources.push(event.value.source);
      if (event.case === "toolFinished") results.push(event.value.result?.output ?? "");
      if (event.case === "turnFinished") break;
    }
    check.end();
    assert.deepEqual([results.length, sources], [1, ["client"]]);
    assert.ok(Buffer.byteLength(results.join()) < 257 * 1024 && results.join().includes("bytes left out"));
  });

  test("is refused by a client in words that the model reads", async (context) => {
    const { client } = await startTestApp(context, { script });
    const lanes = { execute: { mode: "hybrid" } };
    const { sessionId } = await client.createSession({ permissions: { mode: "accept-edits" } });
    const { lanes: set } = await client.updateSession({ sessionId, lanes });
    assert.deepEqual([set?.execute?.mode, set?.execute?.timeoutMs, set?.query], ["hybrid", 60_000n, undefined]);
    const results: string[] = [];
    for await (const { event } of client.streamGenerate({ sessionId, messages: [user("write")] })) {
      if (event.case === "requestOpened") {
        const { requestId = "" } = event.value.request ?? {};
        await client.respondToRequest({ sessionId, responses: [{ requestId, decision: "deny", text: "not mine" }] });
      }
      if (event.case === "toolFinished") results.push(event.value.result?.error ?? "");
    }
    assert.deepEqual(results, ["not run: the client that runs such calls refused it, and says: not mine"]);
    const refused = { sessionId, lanes: { query: { mode: "outside" } } };
    await assert.rejects(client.updateSession(refused), /lanes.query.mode/);
  });

  test("is of the lane of what it does, and what works on the session itself is of none", () => {
    const plain = { description: "", parameters: "", source: "local", timeoutMs: 1 };
    const cases: [
      given: { name: string; readOnly: boolean; asks?: true; delegates?: true },
      lane: string | undefined,
    ][] = [
      [{ name: "read_file", readOnly: true }, "query"],
      [{ name: "run_command", readOnly: false }, "execute"],
      [{ name: "ask_user", readOnly: true, asks: true }, undefined],
      [{ name: "task", readOnly: false, delegates: true }, undefined],
      [{ name: "load_skill", readOnly: true }, undefined],
      [{ name: "update_todos", readOnly: true }, undefined],
      [{ name: "run_plan", readOnly: false }, undefined],
    ];
    for (const [given, lane] of cases) assert.equal(laneOf({ ...plain, ...given }), lane, given.name);
  });
});
