import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, test } from "node:test";
import { Code, ConnectError } from "@connectrpc/connect";
import { collect } from "../support/grammar.ts";
import { startTestApp, user } from "../support/test-app.ts";

const withCode = (code: Code) => (error: unknown) => {
  assert.ok(error instanceof ConnectError, String(error));
  assert.equal(Code[error.code], Code[code], error.message);
  return true;
};

describe("sessions as resources", () => {
  test("what is created can be read, changed and deleted", async (context) => {
    const { client, workspace } = await startTestApp(context, { files: { "sub/a.txt": "a" } });
    const created = await client.createSession({
      sessionId: "mine",
      title: "a title",
      workspace: join(workspace, "sub"),
      systemPrompt: "be short",
      permissions: { mode: "read-only", allow: ["read_file(src/**)"] },
      metadata: { team: "blue", gone: "soon" },
      initialMessages: [user("before"), { role: "assistant", contentType: { case: "content", value: "yes" } }],
    });
    assert.equal(created.state, "idle");
    assert.equal(created.messageCount, 2);
    assert.deepEqual(await client.getSession({ sessionId: "mine" }), created);
    const changed = await client.updateSession({ sessionId: "mine", title: "", metadata: { team: "red", gone: "" } });
    assert.equal(changed.title, "");
    assert.equal(changed.systemPrompt, "be short");
    assert.deepEqual({ ...changed.metadata }, { team: "red" });
    assert.equal(changed.permissions?.mode, "read-only");
    const { messages } = await client.listMessages({ sessionId: "mine" });
    assert.deepEqual(
      messages.map((message) => message.contentType.value),
      ["before", "yes"],
    );
    await client.deleteSession({ sessionId: "mine" });
    await assert.rejects(client.getSession({ sessionId: "mine" }), withCode(Code.NotFound));
    await assert.rejects(client.deleteSession({ sessionId: "mine" }), withCode(Code.NotFound));
  });

  test("creating again with the same request id gives the same session, another payload is refused", async (context) => {
    const { client } = await startTestApp(context);
    const first = await client.createSession({ requestId: "r1", title: "t" });
    assert.equal((await client.createSession({ requestId: "r1", title: "t" })).sessionId, first.sessionId);
    await assert.rejects(client.createSession({ requestId: "r1", title: "other" }), withCode(Code.AlreadyExists));
    await assert.rejects(client.createSession({ sessionId: first.sessionId }), withCode(Code.AlreadyExists));
    assert.equal((await client.getSession({ sessionId: first.sessionId })).title, "t");
  });

  test("lists and histories come in pages without a gap", async (context) => {
    const { client } = await startTestApp(context);
    const ids = await Promise.all(Array.from({ length: 7 }, async () => (await client.createSession({})).sessionId));
    const listed: string[] = [];
    let pageToken = "";
    do {
      const page = await client.listSessions({ pageSize: 3, pageToken });
      listed.push(...page.sessions.map((session) => session.sessionId));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    assert.deepEqual(listed.toSorted(), ids.toSorted());
    const [sessionId = ""] = ids;
    for (const text of ["a", "b", "c"]) await client.generate({ sessionId, messages: [user(text)] });
    const texts: unknown[] = [];
    do {
      const page = await client.listMessages({ sessionId, pageSize: 4, pageToken });
      texts.push(...page.messages.map((message) => message.contentType.value));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    assert.deepEqual(texts, ["a", "hello", "b", "hello", "c", "hello"]);
  });

  test("a fork goes on from the end of a turn, by itself", async (context) => {
    const { client } = await startTestApp(context, {
      script: "- { text: hello, usage: { prompt_tokens: 2, completion_tokens: 1 } }\n",
    });
    const { sessionId } = await client.createSession({ title: "old" });
    const first = await client.generate({ sessionId, messages: [user("a")] });
    await client.generate({ sessionId, messages: [user("b")] });
    const fork = await client.forkSession({ sessionId, throughSeq: first.lastSeq, requestId: "f" });
    assert.equal(fork.parentSessionId, sessionId);
    assert.equal(fork.headSeq, first.lastSeq);
    assert.equal(fork.messageCount, 2);
    assert.equal(fork.title, "old");
    assert.equal(fork.usage?.inputTokens, 2n);
    assert.equal(
      (await client.forkSession({ sessionId, throughSeq: first.lastSeq, requestId: "f" })).sessionId,
      fork.sessionId,
    );
    await client.generate({ sessionId: fork.sessionId, messages: [user("c")] });
    const texts = async (id: string) =>
      (await client.listMessages({ sessionId: id })).messages.map((message) => message.contentType.value);
    assert.deepEqual(await texts(fork.sessionId), ["a", "hello", "c", "hello"]);
    assert.deepEqual(await texts(sessionId), ["a", "hello", "b", "hello"]);
    const whole = await client.forkSession({ sessionId });
    assert.equal(whole.messageCount, 4);
    assert.equal((await client.forkSession({ sessionId, throughSeq: 0n })).messageCount, 0);
    await assert.rejects(
      client.forkSession({ sessionId, throughSeq: first.lastSeq - 1n }),
      withCode(Code.InvalidArgument),
    );
    await assert.rejects(client.forkSession({ sessionId, throughSeq: 10_000n }), withCode(Code.InvalidArgument));
    const log = await collect(client.subscribeSession({ sessionId: fork.sessionId }), 1n);
    assert.ok(log.every((chunk) => chunk.sessionId === fork.sessionId));
  });

  test("deleting a session ends its turn and its readers", async (context) => {
    const { client } = await startTestApp(context, {
      script: "- { text: long, chunk: 1, delay_ms: 20, repeat: 1000 }\n",
    });
    const { sessionId } = await client.createSession({});
    await assert.rejects(async () => {
      for await (const { event } of client.streamGenerate({ sessionId, messages: [user("go")] })) {
        if (event.case === "blockStart") await client.deleteSession({ sessionId });
      }
    }, withCode(Code.NotFound));
  });

  test("a subscription begins where it is told and ends at the head, or goes on", async (context) => {
    const { client } = await startTestApp(context);
    const { sessionId } = await client.createSession({});
    const { lastSeq } = await client.generate({ sessionId, messages: [user("a")] });
    const tail = [];
    for await (const chunk of client.subscribeSession({ sessionId, afterSeq: lastSeq - 2n })) tail.push(chunk);
    assert.deepEqual(
      tail.map((chunk) => [chunk.event.case, chunk.seq]),
      [
        ["streamReady", 0n],
        ["stepFinished", lastSeq - 1n],
        ["turnFinished", lastSeq],
      ],
    );
    const live = client.subscribeSession({ sessionId, afterSeq: lastSeq, follow: true })[Symbol.asyncIterator]();
    assert.equal((await live.next()).value?.event.case, "streamReady");
    const next = live.next();
    await client.generate({ sessionId, messages: [user("b")] });
    const first = await next;
    assert.equal(first.value?.event.case, "turnStarted");
    assert.equal(first.value?.seq, lastSeq + 1n);
    await live.return?.();
  });

  test("a turn under way is finished after a restart in good order", async (context) => {
    const script = "- { text: a slow answer it is, chunk: 2, delay_ms: 30 }\n";
    const first = await startTestApp(context, { script });
    const { sessionId } = await first.client.createSession({});
    const stream = first.client.streamGenerate({ sessionId, messages: [user("go")] })[Symbol.asyncIterator]();
    let seen = 0n;
    while (seen < 5n) seen = (await stream.next()).value?.seq ?? seen;
    const rest = (async () => {
      for (;;) if ((await stream.next()).done) return;
    })();
    const ended = assert.rejects(rest, withCode(Code.Unavailable));
    await first.app.close(0);
    await ended;
    const second = await startTestApp(context, { script, dataDir: first.dataDir });
    const log = await collect(
      (async function* () {
        for await (const chunk of second.client.subscribeSession({ sessionId, follow: true })) {
          yield chunk;
          if (chunk.event.case === "turnFinished") return;
        }
      })(),
      1n,
    );
    const attempts = log.flatMap(({ event }) => (event.case === "stepStarted" ? [event.value.attempt] : []));
    assert.deepEqual(attempts, [1, 2]);
    const { messages } = await second.client.listMessages({ sessionId });
    assert.equal(messages.at(-1)?.contentType.value, "a slow answer it is");
  });
});
