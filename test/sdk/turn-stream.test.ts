import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { createRouterTransport } from "@connectrpc/connect";
import {
  Code,
  CodeAgentError,
  ConnectError,
  createCodeAgentClient,
  followSession,
  type ResumeOptions,
  streamChatCompletion,
  streamTurn,
} from "../../sdk/index.ts";
import {
  type CancelTurnRequest,
  CodeAgentService,
  type GenerateChunk,
  GenerateChunkSchema,
  type GenerateRequest,
  type SubscribeSessionRequest,
} from "../../sdk/proto.ts";
import { AgentError } from "../../src/chat/error.ts";
import { connectErrorFrom } from "../../src/rpc/error-table.ts";

type Event = NonNullable<MessageInitShape<typeof GenerateChunkSchema>["event"]>;
/** What a call to the scripted server comes to: chunks, then an error, silence or the end. */
type Play = readonly (GenerateChunk | Error | "silence")[];

function chunk(seq: number, event: Event, turnId = "t1"): GenerateChunk {
  return create(GenerateChunkSchema, { seq: BigInt(seq), sessionId: "s1", turnId, event });
}
const started = (seq: number, turnId = "t1") => chunk(seq, { case: "turnStarted", value: { model: "p/m" } }, turnId);
const step = (seq: number) => chunk(seq, { case: "stepStarted", value: { step: 1, attempt: 1 } });
const text = (seq: number, said: string) =>
  chunk(seq, { case: "blockDelta", value: { index: 0, delta: { case: "text", value: said } } });
const finished = (seq: number, turnId = "t1") =>
  chunk(seq, { case: "turnFinished", value: { finishReason: "stop", steps: 1 } }, turnId);
const ready = chunk(0, { case: "streamReady", value: { headSeq: 3n, earliestSeq: 1n } }, "");
const keepAlive = chunk(0, { case: "keepAlive", value: {} }, "");
const resync = chunk(0, { case: "resync", value: { reason: "pruned", earliestSeq: 4n } }, "");
const cut = () => new ConnectError("cut", Code.Aborted);
const shutDown = () =>
  connectErrorFrom(
    new AgentError("unavailable", "shutting down", {
      reason: "SHUTTING_DOWN",
      retryAfterMs: 1500,
      detail: { retryable: true },
    }),
  );

/** A server that plays what it is told, one play a call, and notes what it was asked. */
function scriptedServer(...plays: readonly Play[]) {
  const left = [...plays];
  const generates: GenerateRequest[] = [];
  const subscribes: SubscribeSessionRequest[] = [];
  const cancels: CancelTurnRequest[] = [];
  let cancelFailures = 0;
  async function* play(signal: AbortSignal): AsyncGenerator<GenerateChunk> {
    const next = left.shift();
    if (next === undefined) throw new ConnectError("an unplanned call", Code.FailedPrecondition);
    for (const one of next) {
      if (one instanceof Error) throw one;
      if (one === "silence") await new Promise((resolve) => signal.addEventListener("abort", resolve));
      else yield one;
    }
  }
  const transport = createRouterTransport(({ service }) => {
    service(CodeAgentService, {
      streamGenerate(request, context) {
        generates.push(request);
        return play(context.signal);
      },
      subscribeSession(request, context) {
        subscribes.push(request);
        return play(context.signal);
      },
      cancelTurn(request) {
        cancels.push(request);
        if (cancelFailures-- > 0) throw cut();
        return {};
      },
    });
  });
  return {
    client: createCodeAgentClient({ baseUrl: "", transport }),
    generates,
    subscribes,
    cancels,
    failCancels(times: number) {
      cancelFailures = times;
    },
    get left() {
      return left.length;
    },
  };
}

async function seqsOf(stream: AsyncIterable<GenerateChunk>): Promise<number[]> {
  const seqs: number[] = [];
  for await (const one of stream) seqs.push(one.event.case === "resync" ? -1 : Number(one.seq));
  return seqs;
}

function noted(options: ResumeOptions = {}) {
  const waits: number[] = [];
  return { waits, options: { ...options, wait: async (delayMs: number) => void waits.push(delayMs) } };
}

describe("streamTurn", { timeout: 20_000 }, () => {
  const whole: [string, Play[], { generates: number; cursors: bigint[] }][] = [
    ["no cut", [[started(1), text(2, "a"), finished(3)]], { generates: 1, cursors: [] }],
    ["cut before anything", [[cut()], [], [started(1), text(2, "a"), finished(3)]], { generates: 3, cursors: [] }],
    [
      "cut after a keep-alive",
      [
        [keepAlive, cut()],
        [started(1), text(2, "a"), finished(3)],
      ],
      { generates: 2, cursors: [] },
    ],
    [
      "cut in the middle, twice",
      [
        [started(1), cut()],
        [ready, text(2, "a"), cut()],
        [ready, keepAlive, finished(3)],
      ],
      { generates: 1, cursors: [1n, 2n] },
    ],
    [
      "an end without a last event",
      [
        [started(1), text(2, "a")],
        [ready, finished(3)],
      ],
      { generates: 1, cursors: [2n] },
    ],
    [
      "a server that shuts down",
      [
        [started(1), shutDown()],
        [text(2, "a"), finished(3)],
      ],
      { generates: 1, cursors: [1n] },
    ],
    [
      "events left out on the way",
      [[started(1), cut()], [finished(3)], [text(2, "a"), finished(3)]],
      { generates: 1, cursors: [1n, 1n] },
    ],
    [
      "events that come again",
      [[started(1), cut()], [started(1)], [text(2, "a"), finished(3)]],
      { generates: 1, cursors: [1n, 1n] },
    ],
    [
      "silence",
      [
        [started(1), "silence"],
        [text(2, "a"), finished(3)],
      ],
      { generates: 1, cursors: [1n] },
    ],
  ];
  for (const [name, plays, asked] of whole) {
    test(`is whole: ${name}`, async () => {
      const server = scriptedServer(...plays);
      const { options } = noted({ maxSilenceMs: 50 });
      assert.deepEqual(await seqsOf(streamTurn(server.client, { sessionId: "s1" }, options)), [1, 2, 3]);
      assert.equal(server.left, 0);
      assert.equal(server.generates.length, asked.generates);
      assert.deepEqual(
        server.subscribes.map(({ sessionId, afterSeq, follow }) => [sessionId, afterSeq, follow]),
        asked.cursors.map((seq) => ["s1", seq, true]),
      );
      assert.match(server.generates[0]?.requestId ?? "", /^req_[0-9a-f]{32}$/);
      assert.equal(new Set(server.generates.map(({ requestId }) => requestId)).size, 1);
    });
  }

  test("events of no turn and of other turns are left out when it is got back", async () => {
    const toolsChanged = chunk(5, { case: "toolsChanged", value: { generation: 2n } }, "");
    const server = scriptedServer(
      [started(4), cut()],
      [ready, toolsChanged, finished(6, "t0"), finished(7), started(8, "t2")],
    );
    const { options } = noted();
    assert.deepEqual(await seqsOf(streamTurn(server.client, { sessionId: "s1" }, options)), [4, 7]);
  });

  test("a resync is shown, and what follows it", async () => {
    const plays: Play[] = [
      [started(1), step(2), text(3, "a"), cut()],
      [ready, resync, started(1), step(2), text(3, "ab"), finished(4)],
    ];
    const { options } = noted();
    const first = scriptedServer(...plays);
    assert.deepEqual(await seqsOf(streamTurn(first.client, { sessionId: "s1" }, options)), [1, 2, 3, -1, 1, 2, 3, 4]);
    const second = scriptedServer(...plays);
    let said = "";
    const params = { messages: [{ role: "user" as const, content: "x" }], session_id: "s1" };
    for await (const one of streamChatCompletion(second.client, params, options))
      said += one.choices[0]?.delta.content ?? "";
    assert.equal(said, "ab");
  });

  test("what follows a resync may have gaps up to where it says, and answers are whole", async () => {
    const whole = (seq: number, said: string) =>
      chunk(seq, { case: "blockStop", value: { index: 0, block: { block: { case: "text", value: { text: said } } } } });
    const pruned = chunk(0, { case: "resync", value: { reason: "PRUNED", earliestSeq: 9n } }, "");
    const plays: Play[] = [
      [started(1), step(2), text(4, "a"), cut()],
      [ready, pruned, cut()],
      [ready, pruned, whole(6, "abc"), finished(8)],
    ];
    const first = scriptedServer(...plays);
    const { options } = noted();
    const seqs = [1, 2, 4, -1, -1, 6, 8];
    assert.deepEqual(await seqsOf(streamTurn(first.client, { sessionId: "s1" }, options)), seqs);
    assert.deepEqual(
      first.subscribes.map(({ afterSeq }) => afterSeq),
      [4n, 4n],
    );
    const second = scriptedServer(...plays);
    const params = { messages: [{ role: "user" as const, content: "x" }], session_id: "s1" };
    let said = "";
    for await (const one of streamChatCompletion(second.client, params, options))
      said += one.choices[0]?.delta.content ?? "";
    assert.equal(said, "abc");
  });

  test("a gap beyond what was pruned is a lost connection", async () => {
    const pruned = chunk(0, { case: "resync", value: { reason: "PRUNED", earliestSeq: 5n } }, "");
    const server = scriptedServer(
      [started(1), cut()],
      [ready, pruned, step(3), text(6, "a"), finished(7)],
      [ready, text(4, "a"), finished(5)],
    );
    const { options } = noted();
    assert.deepEqual(await seqsOf(streamTurn(server.client, { sessionId: "s1" }, options)), [1, -1, 3, 4, 5]);
  });

  test("tries are counted anew after each event, and bounded between them", async () => {
    const server = scriptedServer(
      [cut()],
      [cut()],
      [started(1), cut()],
      [cut()],
      [cut()],
      [ready, cut()],
      [text(2, "a"), finished(3)],
    );
    const { options, waits } = noted({ maxTries: 2 });
    const seqs: bigint[] = [];
    const read = async () => {
      for await (const one of streamTurn(server.client, { sessionId: "s1" }, options)) seqs.push(one.seq);
    };
    await assert.rejects(read, (error: unknown) => {
      assert.ok(error instanceof CodeAgentError);
      assert.equal(error.code, Code.Unavailable);
      assert.match(error.message, /2 tries did not bring it back: cut/);
      assert.deepEqual({ ...error.turn, requestId: "" }, { sessionId: "s1", turnId: "t1", lastSeq: 1n, requestId: "" });
      return true;
    });
    assert.deepEqual(seqs, [1n]);
    assert.equal(waits.length, 4);
    assert.equal(server.left, 2);
  });

  test("waits as long as the server asks", async () => {
    const server = scriptedServer([started(1), shutDown()], [finished(2)]);
    const { options, waits } = noted();
    await seqsOf(streamTurn(server.client, { sessionId: "s1" }, options));
    assert.deepEqual(waits, [1500]);
  });

  const refused: [string, Play[], Partial<CodeAgentError>][] = [
    [
      "a refusal",
      [[connectErrorFrom(new AgentError("failed_precondition", "no model", { reason: "NO_MODEL" }))]],
      { code: Code.FailedPrecondition, reason: "NO_MODEL", message: "no model" },
    ],
    ["no right", [[new ConnectError("no", Code.PermissionDenied)]], { code: Code.PermissionDenied }],
    [
      "the turn is gone",
      [[started(1), cut()], [connectErrorFrom(new AgentError("not_found", "there is no session s1"))]],
      { code: Code.Unavailable, reason: "TURN_LOST" },
    ],
  ];
  for (const [name, plays, expected] of refused) {
    test(`gives up at once: ${name}`, async () => {
      const server = scriptedServer(...plays);
      const { options } = noted();
      await assert.rejects(seqsOf(streamTurn(server.client, {}, options)), { name: "CodeAgentError", ...expected });
      assert.equal(server.left, 0);
      assert.equal(server.cancels.length, 0);
    });
  }

  test("an abort is said to the server until it hears it", async () => {
    const server = scriptedServer([started(1), "silence"]);
    server.failCancels(3);
    const { options, waits } = noted();
    const stream = streamTurn(server.client, { sessionId: "s1" }, options);
    await stream.next();
    await stream.abort();
    assert.deepEqual(
      server.cancels.map(({ sessionId, turnId }) => [sessionId, turnId]),
      Array.from({ length: 4 }, () => ["s1", "t1"]),
    );
    assert.equal(waits.length, 3);
  });

  test("an abort ends a wait between tries", async () => {
    const server = scriptedServer([started(1), cut()]);
    const abort = new AbortController();
    const reason = new Error("enough");
    const wait = (_: number, signal: AbortSignal) => {
      const { promise, reject } = Promise.withResolvers<void>();
      signal.addEventListener("abort", () => reject(signal.reason));
      abort.abort(reason);
      return promise;
    };
    await assert.rejects(
      seqsOf(streamTurn(server.client, { sessionId: "s1" }, { wait, signal: abort.signal })),
      reason,
    );
    assert.equal(server.cancels.length, 1);
  });

  test("the caller's request stays as it was", async () => {
    const server = scriptedServer([started(1), finished(2)], [started(1), finished(2)]);
    const request = { sessionId: "s1" };
    await seqsOf(streamTurn(server.client, request));
    await seqsOf(streamTurn(server.client, request));
    assert.deepEqual(request, { sessionId: "s1" });
    assert.notEqual(server.generates[0]?.requestId, server.generates[1]?.requestId);
  });
});

describe("followSession", { timeout: 20_000 }, () => {
  test("begins after the cursor and goes on from there", async () => {
    const server = scriptedServer([ready, text(4, "a"), cut()], [ready, text(5, "b")]);
    const { options } = noted();
    assert.deepEqual(await seqsOf(followSession(server.client, { sessionId: "s1", afterSeq: 3n }, options)), [4, 5]);
    assert.deepEqual(
      server.subscribes.map(({ afterSeq }) => afterSeq),
      [3n, 4n],
    );
  });

  test("leaving and aborting cancel nothing", async () => {
    const server = scriptedServer([ready, started(1), "silence"], [ready, started(1), "silence"]);
    for await (const _ of followSession(server.client, { sessionId: "s1" })) break;
    const stream = followSession(server.client, { sessionId: "s1" });
    for await (const _ of stream) await stream.abort();
    assert.equal(server.cancels.length, 0);
    assert.equal(server.left, 0);
  });

  test("an unknown session is said at once", async () => {
    const server = scriptedServer([connectErrorFrom(new AgentError("not_found", "there is no session s1"))]);
    await assert.rejects(seqsOf(followSession(server.client, { sessionId: "s1" })), { code: Code.NotFound });
  });
});
