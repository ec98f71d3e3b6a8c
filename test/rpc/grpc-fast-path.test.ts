import assert from "node:assert/strict";
import { once } from "node:events";
import http2 from "node:http2";
import { type TestContext, test } from "node:test";
import { fromBinary, fromJson, type JsonObject, toBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { CodeAgentService, GenerateChunkSchema, GenerateRequestSchema } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { user } from "../clients/visit.ts";
import { grammarCheck } from "../support/grammar.ts";
import { framed, openCall, readAnswer, type WireAnswer, wireCall } from "../support/grpc-wire.ts";
import { startTestApp, user as userMessage } from "../support/test-app.ts";

const script = `
- when: { role: user, text: too often }
  error: { status: 429, message: slow down, type: rate_limit_error, retry_after: 120 }
- when: { role: user, text: broken }
  error: { status: 500, message: "сломано: 100% & \\"done\\"", type: server_error }
- when: { role: user, text: slowly }
  text: "word after word "
  chunk: 8
  delay_ms: 20
  repeat: 200
- when: { tool: read_file, text: sample }
  thinking: That is all.
  text: I read it.
- when: { role: user, text: look }
  text: Let me look.
  tool_calls:
    - { name: read_file, arguments: { path: README.md } }
- text: 'Grüezi, "世界" \\ 👋🏽'
  usage: { prompt_tokens: 12, completion_tokens: 4, total_tokens: 16 }
`;

const { generate, streamGenerate } = CodeAgentService.method;
const paths = [generate, streamGenerate].map(({ parent, name }) => `/${parent.typeName}/${name}`);
const [generatePath = "", streamPath = ""] = paths;

function body(request: JsonObject): Buffer {
  return framed(toBinary(GenerateRequestSchema, fromJson(GenerateRequestSchema, request)));
}

function say(text: string, more: JsonObject = {}): Buffer {
  return body({ messages: [user(text)], ...more });
}

/** The service with one session, and a connection to it. */
async function start(context: TestContext, grpcFastPath: boolean) {
  const now = () => 1_800_000_000_000;
  const { app, client, reports } = await startTestApp(context, { script, grpcFastPath, now });
  await client.createSession({ sessionId: "kept", requestId: "one" });
  const session = http2.connect(app.url);
  context.after(() => session.destroy());
  return { app, client, session, reports };
}

type Asked = readonly [name: string, body: Buffer, fields?: Readonly<Record<string, string>>];

const asked: readonly Asked[] = [
  ["a turn without a session", say("hello")],
  ["a turn in a session", say("hello", { sessionId: "kept" })],
  ["its next turn", say("hello again", { sessionId: "kept", options: { metadata: { a: "b" } } })],
  ["a turn that calls a tool", say("look", { sessionId: "kept" })],
  ["a request id", say("once", { sessionId: "kept", requestId: "r1" })],
  ["the request id again", say("once", { sessionId: "kept", requestId: "r1" })],
  ["the request id for another turn", say("other", { sessionId: "kept", requestId: "r1" })],
  ["a tool of the client", say("hi", { tools: [{ name: "f", parameters: '{"type":"object"}' }] })],
  ["content type with +proto", say("hello"), { "content-type": "application/grpc+proto" }],
  ["metadata", say("hello"), { "x-of-mine": "a, b", "x-of-mine-bin": "AAEC", "grpc-encoding": "identity" }],
  ["a deadline that is far", say("hello"), { "grpc-timeout": "99999999H" }],
  ["a deadline that is none", say("hello"), { "grpc-timeout": "soon" }],
  ["a provider that asks to wait", say("too often")],
  ["a provider that fails in words beyond ASCII", say("broken")],
  ["no messages", body({})],
  ["an unknown role", body({ messages: [{ role: "робот %", content: "x" }] })],
  ["an unknown session", say("hello", { sessionId: "nobody" })],
  ["a session id of signs", say("hello", { sessionId: "a/b\n" })],
  ["an unknown provider", say("hello", { model: "nobody/m" })],
  ["a hot temperature", say("hello", { options: { temperature: 9 } })],
  ["what the model can't do", say("hello", { options: { stateful: { store: true } } })],
  ["bytes that are no message", framed(Buffer.of(255, 255))],
  ["a text that is no UTF-8", framed(Buffer.of(10, 2, 0xff, 0xfe))],
  ["a group of groups", framed(Buffer.alloc(10_000, Buffer.of(0xa3, 6)))],
  ["a frame shorter than promised", framed(Buffer.of(10, 1, 97), 100)],
  ["three bytes", Buffer.of(0, 0, 0)],
  ["a compressed message of no encoding", framed(Buffer.of(1), 1, 1)],
  ["a message that is no gzip", framed(Buffer.of(1), 1, 1), { "grpc-encoding": "gzip" }],
  ["an unknown encoding", say("hello"), { "grpc-encoding": "zip-of-mine" }],
  ["a message of 4 GB, it says", framed(Buffer.alloc(0), 0xff_ff_ff_ff)],
];

/** What an answer says, with ids that are made anew for each turn numbered in the order they appear. */
function saying({ messages, statusFields, headers }: WireAnswer, path: string) {
  const ids: string[] = [];
  const numbered = (text: string) =>
    text.replace(/(?:ses|turn)_[0-9a-f]{32}/g, (id) => {
      if (!ids.includes(id)) ids.push(id);
      return `id ${ids.indexOf(id)}`.padEnd(id.length);
    });
  const lasting = path === streamPath ? messages.flatMap(withoutChance) : messages;
  return {
    messages: lasting.map((message) => numbered(Buffer.from(message).toString("latin1"))),
    status: Object.fromEntries(Object.entries(statusFields).map(([name, value]) => [name, numbered(String(value))])),
    httpStatus: headers[":status"],
  };
}

/** Leaves out how long a tool took, and whether the turn before had been put away when this one came. */
function withoutChance(message: Uint8Array): Uint8Array[] {
  const chunk = fromBinary(GenerateChunkSchema, message);
  if (chunk.event.case === "streamReady") return [];
  if (chunk.event.case !== "toolFinished" || chunk.event.value.result === undefined) return [message];
  chunk.event.value.result.durationMs = 0n;
  return [toBinary(GenerateChunkSchema, chunk)];
}

test("a call is answered with the same bytes and the same status on either way", async (context) => {
  const fast = await start(context, true);
  const slow = await start(context, false);
  for (const path of paths)
    for (const [name, request, fields] of asked)
      await context.test(`${path.split("/").at(-1)}: ${name}`, async () => {
        const [left, right] = await Promise.all(
          [fast, slow].map(({ session }) => wireCall(session, path, [request], fields)),
        );
        assert.ok(left !== undefined && right !== undefined);
        assert.deepEqual(saying(left, path), saying(right, path));
        assert.ok(left.status >= 0);
      });
  assert.deepEqual(fast.reports, slow.reports);
});

test("an error before the first message is one block of fields", async (context) => {
  const { session } = await start(context, true);
  for (const path of paths) {
    const { headers, trailers, status } = await wireCall(session, path, [body({})]);
    assert.equal(Code[status], "InvalidArgument");
    assert.equal(headers["grpc-status"], "3");
    assert.equal(Object.keys(trailers).length, 0);
  }
});

test("a turn over a request cut at every byte", async (context) => {
  const { session } = await start(context, true);
  const request = say("hello");
  for (let cut = 1; cut < request.length; cut++) {
    const { status } = await wireCall(session, generatePath, [request.subarray(0, cut), request.subarray(cut)]);
    assert.equal(status, 0, `cut after ${cut} bytes`);
  }
});

for (const path of paths)
  test(`a deadline ends ${path} and not the turn of a session`, async (context) => {
    const { session, client } = await start(context, true);
    const late = await wireCall(session, path, [say("slowly", { sessionId: "kept" })], { "grpc-timeout": "300m" });
    assert.equal(Code[late.status], "DeadlineExceeded");
    assert.equal((await client.cancelTurn({ sessionId: "kept" })).wasRunning, true);
  });

test("who hangs up in mid-stream leaves a session's turn running", async (context) => {
  const { session, client, reports } = await start(context, true);
  const stream = openCall(session, streamPath);
  stream.end(say("slowly", { sessionId: "kept" }));
  await once(stream, "data");
  stream.close(http2.constants.NGHTTP2_CANCEL);
  await once(stream, "close");
  assert.equal((await client.cancelTurn({ sessionId: "kept" })).wasRunning, true);
  const answer = await client.generate({ sessionId: "kept", messages: [userMessage("hello")] });
  assert.equal(answer.finishReason, "stop");
  assert.deepEqual(reports, []);
});

test("a stream that outlives the grace of a server that stops ends with UNAVAILABLE", async (context) => {
  const { app, session } = await start(context, true);
  const stream = openCall(session, streamPath);
  const ended = readAnswer(stream);
  stream.end(say("slowly"));
  await once(stream, "data");
  await app.close(50);
  const { status, messages } = await ended;
  assert.equal(Code[status], "Unavailable");
  const check = grammarCheck();
  for (const message of messages) check.add(fromBinary(GenerateChunkSchema, message));
});
