import assert from "node:assert/strict";
import { createServer } from "node:net";
import { describe, test } from "node:test";
import { toJson } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import {
  AgentErrorDetailSchema,
  type GenerateChunk,
  GenerateChunkSchema,
  type TurnError,
} from "../../gen/codeagent/v1/code_agent_pb.ts";
import { ErrorInfoSchema, RetryInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";
import {
  call,
  type DialectId,
  dialectIds,
  errorBody,
  errorEvent,
  eventsThrough,
  providerAt,
  text as saidText,
  says,
  streamedAnswer,
} from "../provider/answers.ts";
import { type Answer, chunk, eventStream, hello, jsonAnswer, startUpstream } from "../provider/upstream.ts";
import { collect } from "../support/grammar.ts";
import { startTestApp, user } from "../support/test-app.ts";

interface Fault {
  readonly name: string;
  readonly answer: Answer;
  readonly code: Code;
  readonly reason: string;
  /** 0 where the status of the answer says nothing of the fault. */
  readonly upstreamStatus: number;
  readonly retryable: boolean;
  readonly retryAfterSeconds?: bigint;
  /** What had been said before it broke. */
  readonly text?: string;
  /** Begins what the model hears of the first request later, where that is not the request itself. */
  readonly firstHeard?: string;
}

const once = { "x-should-retry": "false" };

function status(code: number, headers: Record<string, string> = once): Answer {
  return jsonAnswer(code, { error: { message: `no: ${code}`, type: "some_error" } }, headers);
}

/** Begins an answer with these events and goes on with `then` when they are out. */
function begun(events: string, then: (response: Parameters<Answer>[1]) => void): Answer {
  return (_, response) => {
    response.writeHead(200, eventStream);
    response.write(events, () => then(response));
  };
}

const cut = (response: Parameters<Answer>[1]) => setImmediate(() => response.destroy());
const said = chunk({ role: "assistant", content: "Hel" });
const called = chunk({
  tool_calls: [{ index: 0, id: "c1", type: "function", function: { name: "read_file", arguments: '{"pa' } }],
});
const unavailable = { code: Code.Unavailable, reason: "PROVIDER_UNAVAILABLE", retryable: true };
const unreadable = { code: Code.Internal, reason: "PROVIDER_PROTOCOL", retryable: false };
const auth = { code: Code.FailedPrecondition, reason: "PROVIDER_AUTH", retryable: false };

const faults: Fault[] = [
  { name: "401", answer: status(401), ...auth, upstreamStatus: 401 },
  { name: "403", answer: status(403), ...auth, upstreamStatus: 403 },
  {
    name: "404",
    answer: status(404),
    code: Code.NotFound,
    reason: "PROVIDER_NOT_FOUND",
    retryable: false,
    upstreamStatus: 404,
  },
  {
    name: "400",
    answer: status(400),
    code: Code.InvalidArgument,
    reason: "PROVIDER_REJECTED",
    retryable: false,
    upstreamStatus: 400,
  },
  {
    name: "400 of a context that is too long",
    answer: jsonAnswer(400, { error: { message: "too long", code: "context_length_exceeded" } }),
    code: Code.InvalidArgument,
    reason: "CONTEXT_LENGTH",
    retryable: false,
    upstreamStatus: 400,
    firstHeard: "(1 older message of this conversation left out here, without a summary.",
  },
  {
    name: "429 with retry-after",
    answer: status(429, { "retry-after": "120" }),
    code: Code.ResourceExhausted,
    reason: "RATE_LIMITED",
    retryable: true,
    upstreamStatus: 429,
    retryAfterSeconds: 120n,
  },
  ...[500, 502, 503, 529].map((code) => ({
    name: String(code),
    answer: status(code),
    ...unavailable,
    retryable: false,
    upstreamStatus: code,
  })),
  {
    name: "no answer, three times",
    answer: (request) => request.socket.destroy(),
    ...unavailable,
    upstreamStatus: 0,
  },
  { name: "a head and nothing after it", answer: begun("", cut), ...unavailable, upstreamStatus: 0 },
  { name: "an empty answer", answer: begun("", (response) => response.end()), ...unavailable, upstreamStatus: 0 },
  { name: "a cut in the text", answer: begun(said, cut), ...unavailable, upstreamStatus: 0, text: "Hel" },
  {
    name: "a cut in an event",
    answer: begun(`${said}data: {"id":"cha`, cut),
    ...unavailable,
    upstreamStatus: 0,
    text: "Hel",
  },
  { name: "a cut in a call", answer: begun(said + called, cut), ...unavailable, upstreamStatus: 0, text: "Hel" },
  {
    name: "an end without a finish",
    answer: begun(said, (response) => response.end()),
    ...unavailable,
    upstreamStatus: 0,
    text: "Hel",
  },
  {
    name: "an error in the middle",
    answer: begun(`${said}data: {"error":{"message":"busy","type":"overloaded_error"}}\n\n`, (response) =>
      response.end(),
    ),
    ...unavailable,
    upstreamStatus: 0,
    text: "Hel",
  },
  {
    name: "an event that is no JSON",
    answer: begun(`${said}data: oops\n\n`, (response) => response.end()),
    ...unreadable,
    upstreamStatus: 0,
    text: "Hel",
  },
  {
    name: "a page",
    answer: (_, response) => response.writeHead(200, { "content-type": "text/html" }).end("<h1>Welcome</h1>"),
    ...unreadable,
    upstreamStatus: 0,
  },
  {
    name: "words",
    answer: (_, response) => response.writeHead(200, { "content-type": "application/json" }).end("hello there"),
    ...unreadable,
    upstreamStatus: 0,
  },
  { name: "JSON of something else", answer: jsonAnswer(200, { weather: "fine" }), ...unreadable, upstreamStatus: 0 },
  {
    name: "a redirect",
    answer: (_, response) => response.writeHead(302, { location: "http://127.0.0.1:9/" }).end(),
    ...unreadable,
    upstreamStatus: 302,
  },
];

function errorOf(chunks: readonly GenerateChunk[]): TurnError | undefined {
  const ends = chunks.flatMap(({ event }) => (event.case === "turnFinished" ? [event.value] : []));
  assert.equal(ends.length, 1, "one terminal event");
  assert.equal(chunks.at(-1)?.event.case, "turnFinished", "it is the last");
  assert.equal(ends[0]?.finishReason, "error");
  return ends[0]?.error;
}

function textOf(chunks: readonly GenerateChunk[]): string {
  return chunks
    .map(({ event }) =>
      event.case === "blockStop" && event.value.block?.block.case === "text" ? event.value.block.block.value.text : "",
    )
    .join("");
}

function shown(chunks: readonly GenerateChunk[]) {
  return chunks.filter(({ seq }) => seq > 0n).map((each) => toJson(GenerateChunkSchema, each));
}

async function refused(call: Promise<unknown>): Promise<ConnectError> {
  const error = await call.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  return error instanceof ConnectError ? error : assert.fail(`a ConnectError is wanted, not ${String(error)}`);
}

describe("a provider that fails", { concurrency: 4 }, () => {
  for (const { name, answer, code, reason, upstreamStatus, retryable, retryAfterSeconds, ...more } of faults)
    test(name, async (context) => {
      const { text = "", firstHeard = "first" } = more;
      let current = answer;
      const answers = Array.from(
        { length: 20 },
        (): Answer =>
          (...given) =>
            current(...given),
      );
      const upstream = await startUpstream(context, answers);
      const { client, reports } = await startTestApp(context, { env: { FORWARD_BASE_URL: upstream.url } });
      const { sessionId } = await client.createSession({ model: "forward/m" });

      const error = await refused(client.generate({ sessionId, messages: [user("first")] }));
      assert.equal(Code[error.code], Code[code], error.rawMessage);
      assert.equal(error.findDetails(ErrorInfoSchema)[0]?.reason, reason);
      const [detail] = error.findDetails(AgentErrorDetailSchema);
      assert.deepEqual(
        { provider: detail?.provider, upstreamStatus: detail?.upstreamStatus, retryable: detail?.retryable },
        { provider: "forward", upstreamStatus, retryable },
      );
      assert.equal(detail?.sideEffectPossible, false);
      assert.equal(error.findDetails(RetryInfoSchema)[0]?.retryDelay?.seconds, retryAfterSeconds);
      assert.match(error.rawMessage, /forward/);
      assert.ok(error.rawMessage.length <= 2048 && !error.rawMessage.includes("\n"), error.rawMessage);

      const { headSeq } = await client.getSession({ sessionId });
      const chunks = await collect(client.streamGenerate({ sessionId, messages: [user("second")] }), headSeq + 1n);
      const told = errorOf(chunks);
      assert.deepEqual(
        { code: told?.code, reason: told?.reason, message: told?.message },
        { code, reason, message: error.rawMessage },
        "a stream ends with what a call is refused with",
      );
      assert.deepEqual(told?.detail, detail);
      assert.equal(textOf(chunks), text, "what was said before is kept");
      const replay = await collect(client.subscribeSession({ sessionId, afterSeq: headSeq }));
      assert.deepEqual(shown(replay), shown(chunks), "the log replays what was streamed");

      current = hello;
      const healed = await client.generate({ sessionId, messages: [user("third")] });
      assert.equal(healed.message?.contentType.value, "Hello");
      const { messages }: { messages: { role: string; content?: unknown; tool_call_id?: string }[] } = JSON.parse(
        upstream.requests.at(-1)?.body ?? "{}",
      );
      const [first, ...asked] = messages.filter(({ role }) => role === "user").map(({ content }) => String(content));
      assert.ok(first?.startsWith(firstHeard), `the model hears all that was asked: ${first}`);
      assert.deepEqual(asked, ["second", "third"]);
      assert.equal((await client.getSession({ sessionId })).state, "idle");
      await collect(client.subscribeSession({ sessionId }), 1n);
      assert.deepEqual(reports, [], "a provider's fault is no fault of ours");
    });
});

test("a provider that is down is told so, and another model goes on with the session", async (context) => {
  const closed = createServer();
  await new Promise<void>((resolve) => closed.listen(0, "127.0.0.1", resolve));
  const address = closed.address();
  assert.ok(typeof address === "object" && address !== null);
  await new Promise((resolve) => closed.close(resolve));
  const { client } = await startTestApp(context, { env: { FORWARD_BASE_URL: `http://127.0.0.1:${address.port}/v1` } });
  const { sessionId } = await client.createSession({ model: "forward/m" });
  const error = await refused(client.generate({ sessionId, messages: [user("first")] }));
  assert.equal(error.code, Code.Unavailable);
  assert.match(error.rawMessage, /forward at 127\.0\.0\.1:\d+ cannot be reached \(ECONNREFUSED\)/);
  const answer = await client.generate({ sessionId, messages: [user("second")], model: "scripted/test" });
  assert.equal(answer.message?.contentType.value, "hello");
});

const slow: [name: string, answer: Answer, text: string][] = [
  ["says nothing", () => undefined, ""],
  ["falls silent", begun(said, () => undefined), "Hel"],
];
describe("a provider that", () => {
  for (const [name, answer, text] of slow)
    test(`${name} is left at the time limit`, async (context) => {
      const hungUp = Promise.withResolvers<void>();
      const upstream = await startUpstream(context, [
        (request, response, body) => {
          response.on("close", hungUp.resolve);
          answer(request, response, body);
        },
        hello,
      ]);
      const { client } = await startTestApp(context, { env: { FORWARD_BASE_URL: upstream.url } });
      const { sessionId } = await client.createSession({ model: "forward/m" });
      const request = { sessionId, messages: [user("first")], options: { timeoutMs: 300n } };
      const chunks = await collect(client.streamGenerate(request), 1n);
      assert.equal(errorOf(chunks)?.code, Code.DeadlineExceeded);
      assert.equal(textOf(chunks), text);
      await hungUp.promise;
      assert.deepEqual(shown(await collect(client.subscribeSession({ sessionId }), 1n)), shown(chunks));
      const answered = await client.generate({ sessionId, messages: [user("second")] });
      assert.equal(answered.message?.contentType.value, "Hello");
    });
});

const helloThere = [saidText("Hello there")];
const look = [saidText("I look."), call("c1", "look", '{"path":"a"}')];
const failing =
  (code: number, headers: Record<string, string> = once) =>
  (dialect: DialectId): Answer =>
    jsonAnswer(code, errorBody(dialect, "some_error", `no: ${code}`), headers);
const broken =
  (write: (dialect: DialectId) => string) =>
  (dialect: DialectId): Answer =>
  (_, response) =>
    response.writeHead(200, eventStream).end(write(dialect));

/** Begins a call and says all of it, and breaks off before the answer's end. */
function unfinishedCall(dialect: DialectId): string {
  const { events, wholeFrom } = streamedAnswer(dialect, look);
  return events.slice(0, wholeFrom - 1).join("");
}

/** One of each outcome, as each API tells it. */
const outcomes: {
  name: string;
  answer: (dialect: DialectId) => Answer;
  code: Code;
  reason: string;
  kept?: string;
  attempts?: number;
}[] = [
  { name: "401", answer: failing(401), code: Code.FailedPrecondition, reason: "PROVIDER_AUTH" },
  { name: "404", answer: failing(404), code: Code.NotFound, reason: "PROVIDER_NOT_FOUND" },
  { name: "400", answer: failing(400), code: Code.InvalidArgument, reason: "PROVIDER_REJECTED" },
  {
    name: "429",
    answer: failing(429, { "retry-after": "120" }),
    code: Code.ResourceExhausted,
    reason: "RATE_LIMITED",
  },
  { name: "503", answer: failing(503), code: Code.Unavailable, reason: "PROVIDER_UNAVAILABLE" },
  {
    name: "a cut in the text",
    answer: broken((dialect) => eventsThrough(dialect, helloThere, "Hello ")),
    code: Code.Unavailable,
    reason: "PROVIDER_UNAVAILABLE",
    kept: "Hello ",
    attempts: 2,
  },
  {
    name: "a rate limit in the text",
    answer: broken(
      (dialect) => eventsThrough(dialect, helloThere, "Hello ") + errorEvent(dialect, "rate_limit_exceeded", "slow"),
    ),
    code: Code.ResourceExhausted,
    reason: "RATE_LIMITED",
    kept: "Hello ",
  },
  {
    name: "a cut after a call that was all said",
    answer: broken(unfinishedCall),
    code: Code.Unavailable,
    reason: "PROVIDER_UNAVAILABLE",
    kept: "I look.",
  },
  {
    name: "an error after a call that was all said",
    answer: broken((dialect) => unfinishedCall(dialect) + errorEvent(dialect, "server_error", "busy")),
    code: Code.Unavailable,
    reason: "PROVIDER_UNAVAILABLE",
    kept: "I look.",
  },
  {
    name: "no JSON after a call that was all said",
    answer: broken((dialect) => `${unfinishedCall(dialect)}data: oops\n\n`),
    code: Code.Internal,
    reason: "PROVIDER_PROTOCOL",
    kept: "I look.",
  },
];

/** A tool that notes the calls that ran. */
function noted(): { provider: FunctionProvider; ran: string[] } {
  const ran: string[] = [];
  const tool = { name: "look", description: "Looks.", parameters: '{"type":"object"}', timeoutMs: 30_000 };
  const provider: FunctionProvider = {
    source: "local",
    list: async () => [{ ...tool, source: "local", readOnly: true }],
    call: async (_, { toolCallId }) => {
      ran.push(toolCallId);
      return { success: true, output: "seen" };
    },
    close: async () => undefined,
  };
  return { provider, ran };
}

function attemptsOf(chunks: readonly GenerateChunk[]): number[] {
  return chunks.flatMap(({ event }) => (event.case === "stepStarted" ? [event.value.attempt] : []));
}

describe("in each dialect a turn that fails", { concurrency: 4 }, () => {
  for (const dialect of dialectIds) {
    for (const { name, answer, code, reason, kept, attempts = 1 } of outcomes)
      test(`${dialect}: ${name}: ends as it should, runs no tool, and the next one works`, async (context) => {
        const bad = Array<Answer>(attempts).fill(answer(dialect));
        const upstream = await startUpstream(context, [...bad, says(dialect, helloThere)]);
        const { model, env } = providerAt(dialect, upstream.url);
        const { provider, ran } = noted();
        const { client, reports } = await startTestApp(context, { env, functions: [provider] });
        const { sessionId } = await client.createSession({ model });

        const chunks = await collect(client.streamGenerate({ sessionId, messages: [user("first")] }), 1n);
        const error = errorOf(chunks);
        assert.equal(Code[error?.code ?? 0], Code[code], String(error?.message));
        assert.equal(error?.reason, reason);
        assert.deepEqual(
          attemptsOf(chunks),
          Array.from({ length: attempts }, (_, index) => index + 1),
        );
        assert.equal(upstream.requests.length, attempts);

        const next = await client.generate({ sessionId, messages: [user("second")] });
        assert.equal(next.message?.contentType.value, "Hello there");
        const { messages } = await client.listMessages({ sessionId });
        assert.deepEqual(
          messages.map((message) => message.contentType.value),
          ["first", ...(kept === undefined ? [] : [kept]), "second", "Hello there"],
        );
        assert.deepEqual(
          messages.flatMap((message) => message.toolCalls),
          [],
        );
        assert.ok(!upstream.requests.at(-1)?.body.includes('"c1"'), "a call that never was is not told of");
        assert.deepEqual(ran, []);
        assert.deepEqual(reports, []);
      });

    test(`${dialect}: a cut answer is asked for once more with the same request, and heals the turn`, async (context) => {
      const cutText = broken(() => eventsThrough(dialect, helloThere, "Hello "))(dialect);
      const upstream = await startUpstream(context, [cutText, says(dialect, look), cutText, says(dialect, helloThere)]);
      const { model, env } = providerAt(dialect, upstream.url);
      const { provider, ran } = noted();
      const { client } = await startTestApp(context, { env, functions: [provider] });
      const { sessionId } = await client.createSession({ model });
      const chunks = await collect(client.streamGenerate({ sessionId, messages: [user("go")] }), 1n);
      const last = chunks.at(-1)?.event;
      assert.equal(last?.case === "turnFinished" ? last.value.finishReason : "", "stop");
      assert.deepEqual(attemptsOf(chunks), [1, 2, 1, 2], "each step may be asked for once more");
      const bodies = upstream.requests.map(({ body }) => body);
      assert.equal(bodies[1], bodies[0]);
      assert.equal(bodies[3], bodies[2]);
      assert.deepEqual(ran, ["c1"]);
      const { messages } = await client.listMessages({ sessionId });
      assert.deepEqual(
        messages.map((message) => message.contentType.value),
        ["go", "I look.", "seen", "Hello there"],
      );
    });

    for (const [name, answer] of [
      ["nothing after its head", broken(() => "")],
      ["an error in place of an answer", broken(() => errorEvent(dialect, "server_error", "Overloaded"))],
    ] as const) {
      test(`${dialect}: ${name} is a cut answer too, and asked for once more`, async (context) => {
        const upstream = await startUpstream(context, [answer(dialect), says(dialect, helloThere)]);
        const { model, env } = providerAt(dialect, upstream.url);
        const { client } = await startTestApp(context, { env });
        const chunks = await collect(client.streamGenerate({ messages: [user("go")], model }));
        assert.deepEqual(attemptsOf(chunks), [1, 2]);
        const last = chunks.at(-1)?.event;
        assert.equal(last?.case === "turnFinished" ? last.value.finishReason : "", "stop");
      });
    }
  }
});
