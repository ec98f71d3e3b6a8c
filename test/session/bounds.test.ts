import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { GenerateChunkSchema } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { chunk, eventStream, hello, startUpstream } from "../provider/upstream.ts";
import { collect } from "../support/grammar.ts";
import { startTestApp, user } from "../support/test-app.ts";

const withCode = (code: Code) => (error: unknown) => {
  assert.ok(error instanceof ConnectError, String(error));
  assert.equal(Code[error.code], Code[code], error.message);
  return true;
};

describe("no event is larger than 1 MB, and nothing is lost for it", () => {
  const cases = [
    { name: "one message of 9 MB", messages: [user("x".repeat(9_000_000))] },
    {
      name: "9,000 messages of 1.5 KB",
      messages: Array.from({ length: 9000 }, (_, at) => user(`${at} ${"x".repeat(1500)}`)),
    },
    { name: "10,000 messages of one word", messages: Array.from({ length: 10_000 }, () => user("word")) },
    {
      name: "200 messages, one of them large",
      messages: [...Array.from({ length: 199 }, () => user("y".repeat(3000))), user("z".repeat(3_000_000))],
    },
  ];
  for (const { name, messages } of cases) {
    test(name, async (context) => {
      const { client } = await startTestApp(context);
      const { sessionId } = await client.createSession({});
      const streamed = await collect(client.streamGenerate({ sessionId, messages }), 1n);
      for (const each of [...streamed, ...(await collect(client.subscribeSession({ sessionId }), 1n))]) {
        const { length } = toBinary(GenerateChunkSchema, each);
        assert.ok(length <= 1_000_000, `${each.event.case} has ${length} bytes`);
      }
      const texts: unknown[] = [];
      let pageToken = "";
      do {
        const page = await client.listMessages({ sessionId, pageSize: 1000, pageToken });
        texts.push(...page.messages.map((message) => message.contentType.value));
        pageToken = page.nextPageToken;
      } while (pageToken !== "");
      assert.deepEqual(texts, [...messages.map((message) => message.contentType.value), "hello"]);
    });
  }

  test("tools and options that would not fit are refused", async (context) => {
    const { client } = await startTestApp(context);
    const tools = [{ name: "f", description: "x".repeat(500_000), parameters: '{"type":"object"}' }];
    await assert.rejects(client.generate({ messages: [user("a")], tools }), withCode(Code.InvalidArgument));
  });
});

test("answers that nobody reads are not held without end", async (context) => {
  const { client } = await startTestApp(context, {
    script: `- { text: "${"word ".repeat(400)}" }`,
    flags: { "limits.max_one_off_bytes": 1000 },
  });
  const { message } = await client.generate({ messages: [user("one")] });
  assert.equal(message?.contentType.value, "word ".repeat(400));
  await assert.rejects(client.generate({ messages: [user("two")] }), (error) => {
    withCode(Code.ResourceExhausted)(error);
    assert.match(String(error), /hold more than 1000 bytes that their callers have not read yet; try again/);
    return true;
  });
  // A session's answers are in the store.
  const { sessionId } = await client.createSession({});
  assert.equal((await client.generate({ sessionId, messages: [user("three")] })).finishReason, "stop");
});

test("lists of sessions with long system prompts end before they are too large to send", async (context) => {
  const { client } = await startTestApp(context);
  const ids: string[] = [];
  for (let at = 0; at < 40; at++)
    ids.push((await client.createSession({ systemPrompt: "x".repeat(256 * 1024) })).sessionId);
  const listed: string[] = [];
  let pageToken = "";
  do {
    const page = await client.listSessions({ pageSize: 1000, pageToken });
    listed.push(...page.sessions.map((session) => session.sessionId));
    pageToken = page.nextPageToken;
  } while (pageToken !== "");
  assert.deepEqual(listed.toSorted(), ids.toSorted());
  await assert.rejects(
    client.createSession({ systemPrompt: "x".repeat(256 * 1024 + 1) }),
    withCode(Code.InvalidArgument),
  );
});

test("cancelling twice with one request id cancels one turn", async (context) => {
  const { client } = await startTestApp(context, { script: "- { text: long, chunk: 1, delay_ms: 20, repeat: 50 }\n" });
  const { sessionId } = await client.createSession({});
  const first = client.streamGenerate({ sessionId, messages: [user("a")] })[Symbol.asyncIterator]();
  const { value: began } = await first.next();
  const second = client.streamGenerate({ sessionId, messages: [user("b")] })[Symbol.asyncIterator]();
  await second.next();
  const cancel = () => client.cancelTurn({ sessionId, requestId: "stop" });
  assert.deepEqual(
    [(await cancel()).turnId, (await cancel()).turnId, (await cancel()).turnId],
    [began?.turnId, began?.turnId, began?.turnId],
  );
  for (;;) if ((await first.next()).done) break;
  assert.equal((await cancel()).turnId, began?.turnId, "also after the turn has ended");
  let last: unknown;
  for (;;) {
    const { value, done } = await second.next();
    if (done) break;
    if (value.event.case === "turnFinished") last = value.event.value.finishReason;
  }
  assert.equal(last, "stop");
});

test("a turn that waits is run with the session's settings as they are when it begins", async (context) => {
  const upstream = await startUpstream(context, [
    (_, response) =>
      void setTimeout(
        () => response.writeHead(200, eventStream).end(`${chunk({ content: "a" }, "stop")}data: [DONE]\n\n`),
        100,
      ),
    hello,
  ]);
  const { client } = await startTestApp(context, {
    env: { FORWARD_BASE_URL: upstream.url },
    flags: { model: "forward/m" },
  });
  const { sessionId } = await client.createSession({ systemPrompt: "old" });
  const first = client.streamGenerate({ sessionId, messages: [user("one")] })[Symbol.asyncIterator]();
  await first.next();
  const second = client.streamGenerate({ sessionId, messages: [user("two")] })[Symbol.asyncIterator]();
  await second.next();
  await client.updateSession({ sessionId, systemPrompt: "new" });
  for (const stream of [first, second]) for (;;) if ((await stream.next()).done) break;
  assert.deepEqual(
    upstream.requests.map(({ body }) => JSON.parse(body).messages[0].content),
    ["old", "new"],
  );
});

test("a one-off turn that ended because nobody read it is run when it is asked for again", async (context) => {
  const closed = Promise.withResolvers<void>();
  const upstream = await startUpstream(context, [
    (_, response) => {
      response.on("close", closed.resolve);
      response.writeHead(200, eventStream).write(chunk({ content: "Hel" }));
    },
    hello,
  ]);
  const { client } = await startTestApp(context, {
    env: { FORWARD_BASE_URL: upstream.url },
    flags: { model: "forward/m" },
  });
  const request = { messages: [user("go")], requestId: "once" };
  const leave = new AbortController();
  await assert.rejects(async () => {
    for await (const { event } of client.streamGenerate(request, { signal: leave.signal })) {
      if (event.case === "blockDelta") leave.abort();
    }
  });
  await closed.promise;
  const answer = await client.generate(request);
  assert.equal(answer.message?.contentType.value, "Hello");
});
