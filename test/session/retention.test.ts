import assert from "node:assert/strict";
import { closeSync, copyFileSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, type TestContext, test } from "node:test";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { CodeAgentService, type GenerateChunk } from "../../gen/codeagent/v1/code_agent_pb.ts";
import {
  chatCompletion,
  createCodeAgentClient,
  followSession,
  streamChatCompletion,
  streamTurn,
} from "../../sdk/index.ts";
import { start } from "../cli/start-codeagent.ts";
import { collect } from "../support/grammar.ts";
import { startTestApp, user } from "../support/test-app.ts";

const dayMs = 86_400_000;
const said = "All work and no play makes Jack a dull boy. ".repeat(5);
const script = `
- when: { tool: list_files }
  text: "${said}"
  chunk: 11
  delay_ms: 1
- when: { role: user }
  thinking: let me look
  text: I will look.
  chunk: 3
  delay_ms: 1
  tool_calls: [{ name: list_files, arguments: { pattern: "*" } }]
`;
const streamed = new Set(["blockStart", "blockDelta", "toolOutput"]);

/** A server whose clock is turned on by hand, with one session. */
async function startWithClock(context: TestContext, flags = {}) {
  const clock = { nowMs: Date.UTC(2030, 0, 1) };
  const server = await startTestApp(context, {
    script,
    flags: { "retention.sweep_ms": 5, ...flags },
    now: () => clock.nowMs,
  });
  const { client } = server;
  const { sessionId } = await client.createSession({ model: "scripted/test" });
  const log = async (afterSeq = 0n) => {
    const chunks: GenerateChunk[] = [];
    for await (const chunk of client.subscribeSession({ sessionId, afterSeq })) chunks.push(chunk);
    return chunks;
  };
  /** Resolves when nothing streamed is left up to an event. */
  const pruned = async (seq: bigint) => {
    for (;;) {
      const [ready] = await log();
      if (ready?.event.case === "streamReady" && ready.event.value.earliestSeq > seq) return ready.event.value;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  };
  return { ...server, clock, sessionId, log, pruned };
}

const shown = (chunks: readonly GenerateChunk[]) =>
  chunks.flatMap(({ seq, event }) => (seq === 0n ? [] : [`${seq} ${event.case}`]));

describe("what streamed is pruned after a time", { timeout: 60_000 }, () => {
  test("a cursor in what was pruned gets a resync, then whole blocks, then the rest as it was", async (context) => {
    const { client, clock, sessionId, log, pruned } = await startWithClock(context);
    const first = await collect(client.streamGenerate({ sessionId, messages: [user("one")], requestId: "first" }));
    const lastSeq = first.at(-1)?.seq ?? 0n;
    clock.nowMs += 6 * dayMs;
    const second = await collect(client.streamGenerate({ sessionId, messages: [user("two")], requestId: "second" }));
    const before = await client.listMessages({ sessionId });
    assert.deepEqual(shown(await log()), shown([...first, ...second]), "nothing is old enough");

    clock.nowMs += 2 * dayMs;
    const lastDelta = first.findLast(({ event }) => streamed.has(event.case ?? ""))?.seq ?? 0n;
    const ready = await pruned(1n);
    assert.deepEqual([ready.earliestSeq, ready.headSeq], [lastDelta + 1n, second.at(-1)?.seq]);
    const kept = first.filter(({ event }) => !streamed.has(event.case ?? ""));
    assert.ok(kept.length < first.length / 2);
    for (const afterSeq of [0n, 3n, lastDelta - 1n]) {
      const chunks = await log(afterSeq);
      assert.deepEqual(
        chunks.slice(0, 2).map(({ event }) => event.case),
        ["streamReady", "resync"],
      );
      const [, resync] = chunks;
      assert.ok(resync?.event.case === "resync");
      assert.deepEqual([resync.event.value.reason, resync.event.value.earliestSeq], ["PRUNED", lastDelta + 1n]);
      assert.deepEqual(shown(chunks), shown([...kept, ...second].filter(({ seq }) => seq > afterSeq)));
    }
    const behind = await log(lastDelta);
    assert.equal(behind.filter(({ event }) => event.case === "resync").length, 0);
    assert.deepEqual(shown(behind), shown([...first, ...second].filter(({ seq }) => seq > lastDelta)));
    assert.deepEqual((await client.listMessages({ sessionId })).messages, before.messages);

    // Somebody asks late for what was answered long ago.
    const again = await client.generate({ sessionId, messages: [user("one")], requestId: "first" });
    assert.deepEqual([again.lastSeq, again.message?.contentType.value], [lastSeq, said]);
    const stream: GenerateChunk[] = [];
    for await (const chunk of client.streamGenerate({ sessionId, messages: [user("one")], requestId: "first" }))
      stream.push(chunk);
    assert.equal(stream[0]?.event.case, "resync");
    assert.deepEqual(shown(stream), shown(kept));

    // The session goes on, and so do forks of it, from before and after what was pruned.
    const third = await client.generate({ sessionId, messages: [user("three")] });
    assert.equal(third.finishReason, "stop");
    for (const throughSeq of [lastSeq, second.at(-1)?.seq ?? 0n]) {
      const fork = await client.forkSession({ sessionId, throughSeq });
      const events: GenerateChunk[] = [];
      for await (const chunk of client.subscribeSession({ sessionId: fork.sessionId })) events.push(chunk);
      assert.equal(events[1]?.event.case, "resync");
      assert.deepEqual(shown(events), shown([...kept, ...second].filter(({ seq }) => seq <= throughSeq)));
      const { messages } = await client.listMessages({ sessionId: fork.sessionId });
      assert.deepEqual(messages, before.messages.slice(0, messages.length));
      assert.equal(
        (await client.generate({ sessionId: fork.sessionId, messages: [user("more")] })).finishReason,
        "stop",
      );
    }
  });

  test("0 keeps it for ever", async (context) => {
    const { client, clock, sessionId, log } = await startWithClock(context, { "retention.deltas_ms": 0 });
    const chunks = await collect(client.streamGenerate({ sessionId, messages: [user("one")], requestId: "r" }));
    // What else is swept away shows that somebody swept.
    await client.updateSession({ sessionId, title: "a", requestId: "u" });
    clock.nowMs += 100 * dayMs;
    const update = () =>
      client.updateSession({ sessionId, title: "b", requestId: "u" }).then(
        () => true,
        () => false,
      );
    while (!(await update())) await new Promise((resolve) => setTimeout(resolve, 5));
    assert.deepEqual(shown(await log()), shown(chunks));
  });

  for (const protocol of ["grpc", "grpc-web", "connect"] as const) {
    test(`${protocol}: the client library reads on over what was pruned`, async (context) => {
      const { app, clock, sessionId, pruned } = await startWithClock(context);
      using client = createCodeAgentClient({ baseUrl: app.url, transport: protocol });
      const messages = [{ role: "user", content: "one" } as const];
      const params = { messages, session_id: sessionId, request_id: "first" };
      const fresh = await chatCompletion(client, params);
      const live: GenerateChunk[] = [];
      for await (const chunk of followSession(client, { sessionId, follow: false })) live.push(chunk);
      clock.nowMs += 8 * dayMs;
      await pruned(1n);
      const read: GenerateChunk[] = [];
      for await (const chunk of followSession(client, { sessionId, follow: false })) read.push(chunk);
      assert.deepEqual(shown(read), shown(live.filter(({ event }) => !streamed.has(event.case ?? ""))));
      assert.deepEqual((await chatCompletion(client, params)).choices, fresh.choices);
      let text = "";
      for await (const chunk of streamChatCompletion(client, params)) text += chunk.choices[0]?.delta.content ?? "";
      assert.equal(text, `I will look.${said}`);
      const request = { sessionId, messages: [user("one")], requestId: "first" };
      let ended = "";
      for await (const { event } of streamTurn(client, request)) ended = event.case ?? "";
      assert.equal(ended, "turnFinished");
    });
  }

  test("who reads while it is pruned is told before the first gap", async (context) => {
    const { app, client, clock, sessionId, pruned } = await startWithClock(context);
    const turns = 12;
    for (let turn = 0; turn < turns; turn++) await client.generate({ sessionId, messages: [user("x")] });
    const slow = createClient(CodeAgentService, createGrpcTransport({ baseUrl: app.url }));
    const reader = slow.subscribeSession({ sessionId })[Symbol.asyncIterator]();
    const seen: GenerateChunk[] = [];
    const take = async (count: number) => {
      for (let left = count; left > 0; left--) {
        const next = await reader.next();
        if (next.done === true) return;
        seen.push(next.value);
      }
    };
    await take(3);
    clock.nowMs += 8 * dayMs;
    await pruned(1n);
    await take(Number.MAX_SAFE_INTEGER);
    let last = 0n;
    let told = 0n;
    for (const { seq, event } of seen) {
      if (event.case === "resync") told = event.value.earliestSeq;
      if (seq === 0n) continue;
      assert.ok(seq === last + 1n || (seq > last && seq <= told), `event ${seq} after ${last}`);
      last = seq;
    }
    assert.equal(seen.at(-1)?.event.case, "turnFinished");
  });

  test("the command line shows a pruned session; a rescued file has all that was kept", async (context) => {
    const { app, client, clock, dataDir, folder, sessionId, log, pruned } = await startWithClock(context);
    await client.generate({ sessionId, messages: [user("one")], requestId: "first" });
    await client.generate({ sessionId, messages: [user("two")] });
    clock.nowMs += 8 * dayMs;
    await pruned(1n);
    await client.updateSession({ sessionId, title: "titled", requestId: "u1" });
    const events = shown(await log());
    const { messages } = await client.listMessages({ sessionId });
    const cli = start(context, ["sessions", "show", sessionId, "--server", app.url], { folder });
    assert.equal(await cli.ended, 0, cli.stderr());
    assert.equal(cli.stdout().split(said.trim()).length, 3, "both answers are shown");
    await app.close(0);

    const copy = mkdtempSync(join(tmpdir(), "codeagent-pruned-"));
    context.after(() => rmSync(copy, { recursive: true, force: true }));
    copyFileSync(join(dataDir, "codeagent.db"), join(copy, "codeagent.db"));
    const database = new DatabaseSync(join(copy, "codeagent.db"), { readOnly: true });
    const index = database.prepare("select pageno from dbstat where name = 'sessions_by_age'").get();
    database.close();
    const file = openSync(join(copy, "codeagent.db"), "r+");
    writeSync(file, new Uint8Array(4096), 0, 4096, (Number(index?.["pageno"]) - 1) * 4096);
    closeSync(file);
    const { app: rescued, client: after, reports } = await startTestApp(context, { script, dataDir: copy });
    assert.match(String(reports[0]?.[1]), /damaged/);
    assert.equal(rescued.sessions.draining, false);
    const chunks: GenerateChunk[] = [];
    for await (const chunk of after.subscribeSession({ sessionId })) chunks.push(chunk);
    assert.equal(chunks[1]?.event.case, "resync");
    assert.deepEqual(shown(chunks), events);
    assert.deepEqual((await after.listMessages({ sessionId })).messages, messages);
    const known = await after.generate({ sessionId, messages: [user("one")], requestId: "first" });
    assert.equal(known.turnId, chunks[2]?.turnId);
    await assert.rejects(
      after.updateSession({ sessionId, title: "other", requestId: "u1" }),
      /used with another payload/,
    );
  });

  test("over HTTP/1.1", async (context) => {
    const { app, client, clock, sessionId, pruned } = await startWithClock(context);
    await client.generate({ sessionId, messages: [user("one")] });
    clock.nowMs += 8 * dayMs;
    const { earliestSeq } = await pruned(1n);
    const plain = createClient(
      CodeAgentService,
      createConnectTransport({ baseUrl: app.url, httpVersion: "1.1", useBinaryFormat: false }),
    );
    const chunks: GenerateChunk[] = [];
    for await (const chunk of plain.subscribeSession({ sessionId, afterSeq: 2n })) chunks.push(chunk);
    assert.ok(chunks[1]?.event.case === "resync" && chunks[1].event.value.earliestSeq === earliestSeq);
    assert.equal(chunks.at(-1)?.event.case, "turnFinished");
  });
});
