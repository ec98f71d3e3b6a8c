import assert from "node:assert/strict";
import { once } from "node:events";
import http2 from "node:http2";
import { describe, type TestContext, test } from "node:test";
import { Code, ConnectError } from "@connectrpc/connect";
import type { GrpcCall } from "../../src/server/grpc-call.ts";
import type { ServerOptions } from "../../src/server.ts";
import { framed, openCall, readAnswer, wireCall } from "../support/grpc-wire.ts";
import { checkPath, startTestServer } from "./start-test-server.ts";

const hello = Buffer.from("hello");

/** A server that answers the path of the health check with `call`, and a connection to it. */
async function start(context: TestContext, call: GrpcCall, limits: ServerOptions["limits"] = {}, token?: string) {
  const server = await startTestServer({
    grpcCalls: new Map([[checkPath, call]]),
    limits,
    ...(token === undefined ? {} : { token }),
  });
  const session = http2.connect(server.url);
  session.on("error", () => undefined);
  context.after(async () => {
    session.destroy();
    await server.close();
  });
  return { server, session };
}

const echo: GrpcCall = async function* (request) {
  yield [request];
};

/** Yields `first`, then waits for its signal and throws the reason; tells of what it saw. */
function waiting(first: readonly Uint8Array[] = []) {
  const begun = Promise.withResolvers<void>();
  const left = Promise.withResolvers<unknown>();
  const call: GrpcCall = async function* (_request, signal) {
    if (first.length > 0) yield first;
    begun.resolve();
    if (!signal.aborted) await once(signal, "abort");
    left.resolve(signal.reason);
    throw signal.reason;
  };
  return { call, begun: begun.promise, left: left.promise };
}

function codeOf(error: unknown): string {
  return error instanceof ConnectError ? (Code[error.code] ?? "") : String(error);
}

describe("a gRPC call answered on its stream", { timeout: 20_000 }, () => {
  test("a message cut anywhere is read whole", async (context) => {
    const { session, server } = await start(context, echo);
    const body = framed(hello);
    for (let cut = 0; cut <= body.length; cut++) {
      const pieces = [body.subarray(0, cut), body.subarray(cut)].filter((piece) => piece.length > 0);
      const answer = await wireCall(session, checkPath, pieces);
      assert.deepEqual([answer.status, answer.messages], [0, [hello]], `cut after ${cut} bytes`);
    }
    const bytes = [...body].map((byte) => Buffer.of(byte));
    assert.deepEqual((await wireCall(session, checkPath, bytes)).messages, [hello]);
    const large = Buffer.alloc(1_000_000, "0123456789");
    assert.deepEqual((await wireCall(session, checkPath, [framed(large)])).messages, [large]);
    assert.deepEqual((await wireCall(session, checkPath, [framed(Buffer.alloc(0))])).messages, [Buffer.alloc(0)]);
    assert.deepEqual(server.handled, [], "none of it went through the library");
  });

  const bad: [name: string, body: Buffer, code: Code, says: string][] = [
    ["no message", Buffer.alloc(0), Code.Unimplemented, "missing input message"],
    ["two messages", Buffer.concat([framed(hello), framed(hello)]), Code.Unimplemented, "extra input message"],
    ["one message and a byte", Buffer.concat([framed(hello), Buffer.of(0)]), Code.Unimplemented, "extra"],
    ["three bytes", Buffer.of(0, 0, 0), Code.InvalidArgument, "incomplete envelope"],
    ["a frame shorter than promised", framed(hello, 6), Code.InvalidArgument, "incomplete envelope"],
    ["a compressed message", framed(hello, 5, 1), Code.Internal, "decompress"],
    ["more than the limit", framed(Buffer.alloc(1001)), Code.ResourceExhausted, "1001 is larger than .* 1000$"],
    ["more than the limit, it says", framed(hello, 0xff_ff_ff_ff), Code.ResourceExhausted, "4294967295"],
  ];
  for (const [name, body, code, says] of bad)
    test(`${name} is refused before the method begins`, async (context) => {
      let calls = 0;
      const call: GrpcCall = async function* (request) {
        calls++;
        yield [request];
      };
      const { session, server } = await start(context, call, { readMaxBytes: 1000 });
      const answer = await wireCall(session, checkPath, body.length === 0 ? [] : [body]);
      assert.equal(Code[answer.status], Code[code]);
      assert.match(answer.message, new RegExp(says));
      assert.equal(Object.keys(answer.trailers).length, 0, "status and fields are one block");
      assert.deepEqual([calls, server.handled, server.logged], [0, [], []]);
      assert.equal((await wireCall(session, checkPath, [framed(hello)])).status, 0, "the connection goes on");
    });

  test("a body that goes on past the limit is not read on", async (context) => {
    const { session } = await start(context, echo, { readMaxBytes: 1000, streamWindowBytes: 65_535 });
    const stream = openCall(session, checkPath);
    const answer = readAnswer(stream);
    stream.write(framed(Buffer.alloc(10_000_000)));
    assert.equal(Code[(await answer).status], Code[Code.ResourceExhausted]);
    stream.destroy();
  });

  test("a body that does not come in time is cut", async (context) => {
    const { session } = await start(context, echo, { bodyTimeoutMs: 100 });
    const stream = openCall(session, checkPath);
    stream.on("error", () => undefined);
    stream.write(Buffer.of(0, 0));
    await once(stream, "close");
    assert.equal(stream.rstCode, http2.constants.NGHTTP2_CANCEL);
  });

  const toLibrary: [name: string, fields: Record<string, string>, body: Buffer, status: number][] = [
    ["gRPC-Web", { "content-type": "application/grpc-web+proto" }, framed(Buffer.alloc(0)), 200],
    ["JSON in gRPC", { "content-type": "application/grpc+json" }, framed(Buffer.from("{}")), 200],
    ["Connect", { "content-type": "application/json" }, Buffer.from("{}"), 200],
    ["Connect with bytes", { "content-type": "application/proto" }, Buffer.alloc(0), 200],
    ["a compression", { "grpc-encoding": "gzip" }, framed(Buffer.alloc(0)), 200],
    ["PUT", { ":method": "PUT" }, framed(Buffer.alloc(0)), 405],
    ["a parameter of the type", { "content-type": "application/grpc; v=1" }, framed(Buffer.alloc(0)), 415],
  ];
  test("what is not plain gRPC goes through the library", async (context) => {
    let calls = 0;
    const call: GrpcCall = async function* () {
      calls++;
      yield [];
    };
    const { session } = await start(context, call);
    for (const [name, fields, body, status] of toLibrary) {
      const stream = openCall(session, checkPath, fields);
      stream.end(body);
      const [headers] = await once(stream, "response");
      stream.resume();
      assert.equal(headers[":status"], status, name);
    }
    assert.equal(calls, 0);
    for (const fields of [{}, { "content-type": "application/grpc+proto" }, { "grpc-encoding": "identity" }])
      await wireCall(session, checkPath, [framed(hello)], fields);
    assert.equal(calls, 3);
  });

  test("the door is the same: host, origin, token, deadline", async (context) => {
    const { session, server } = await start(context, echo, {}, "a-token-of-this-test");
    const token = { authorization: "Bearer a-token-of-this-test" };
    const asked = async (fields: Record<string, string>) => wireCall(session, checkPath, [framed(hello)], fields);
    assert.equal(Code[(await asked({})).status], "Unauthenticated");
    assert.equal(Code[(await asked({ ...token, ":authority": "elsewhere" })).status], "PermissionDenied");
    assert.equal(Code[(await asked({ ...token, origin: "https://elsewhere" })).status], "PermissionDenied");
    const { headers } = await asked({ ...token, origin: server.url });
    assert.equal(headers["access-control-allow-origin"], server.url, "pages get the fields they need");
    assert.equal(Code[(await asked({ ...token, "grpc-timeout": "soon" })).status], "InvalidArgument");
    assert.equal((await asked({ ...token, "grpc-timeout": "99999999H" })).status, 0);
  });

  test("answers and their fields", async (context) => {
    const many: GrpcCall = async function* () {
      yield [Buffer.from("a"), Buffer.from("b")];
      yield [];
      yield [Buffer.alloc(100_000, "c")];
    };
    const { session } = await start(context, many);
    const answer = await wireCall(session, checkPath, [framed(hello)]);
    assert.deepEqual(
      answer.messages.map(({ length }) => length),
      [1, 1, 100_000],
    );
    assert.equal(answer.headers[":status"], 200);
    assert.equal(answer.headers["content-type"], "application/grpc+proto");
    assert.deepEqual(Object.entries(answer.trailers), [["grpc-status", "0"]]);
    assert.equal(answer.headers["grpc-status"], undefined);
  });

  test("an answer over the limit, and a fault nobody foresaw", async (context) => {
    const failing: GrpcCall = async function* (request) {
      if (request.length === 0) throw new Error("a secret");
      yield [hello];
      yield [Buffer.alloc(1001)];
    };
    const { session, server } = await start(context, failing, { writeMaxBytes: 1000 });
    const large = await wireCall(session, checkPath, [framed(hello)]);
    assert.deepEqual([Code[large.status], large.messages], ["ResourceExhausted", [hello]]);
    assert.deepEqual(server.logged, []);
    const fault = await wireCall(session, checkPath, [framed(Buffer.alloc(0))]);
    assert.deepEqual([Code[fault.status], fault.message], ["Internal", "internal error"]);
    assert.deepEqual(server.logged, ["error an answer could not be sent"]);
  });

  test("an error whose words cannot be sent ends its call, not the server", async (context) => {
    const unspeakable: GrpcCall = async function* (request) {
      if (request.length > 0) yield [request];
      throw new ConnectError("half a pair: \ud83d", Code.Internal);
    };
    const { session } = await start(context, unspeakable);
    for (const body of [hello, Buffer.alloc(0)]) {
      const stream = openCall(session, checkPath);
      stream.on("error", () => undefined);
      stream.resume().end(framed(body));
      await once(stream, "close");
    }
    const stream = openCall(session, checkPath, { "content-type": "application/json" });
    stream.end("{}");
    const [headers] = await once(stream, "response");
    assert.equal(headers[":status"], 200);
  });

  for (const [name, first] of [
    ["before the first message", []],
    ["after it", [hello]],
  ] as const) {
    test(`a deadline ${name} ends the call with DEADLINE_EXCEEDED`, async (context) => {
      const { call, left } = waiting(first);
      const { session } = await start(context, call);
      const answer = await wireCall(session, checkPath, [framed(hello)], { "grpc-timeout": "30m" });
      assert.equal(Code[answer.status], "DeadlineExceeded");
      assert.equal(answer.message, "the operation timed out");
      assert.deepEqual(answer.messages, first);
      assert.equal(codeOf(await left), "DeadlineExceeded");
    });

    test(`who hangs up ${name} ends the call`, async (context) => {
      const { call, begun, left } = waiting(first);
      const { session } = await start(context, call);
      const stream = openCall(session, checkPath);
      stream.end(framed(hello));
      await begun;
      stream.close(http2.constants.NGHTTP2_CANCEL);
      assert.equal(codeOf(await left), "Canceled");
    });

    test(`a server that stops lets a call finish, then ends it with UNAVAILABLE ${name}`, async (context) => {
      const { call, begun, left } = waiting(first);
      const { session, server } = await start(context, call);
      const stream = openCall(session, checkPath);
      const answer = readAnswer(stream);
      stream.end(framed(hello));
      await begun;
      const drained = server.drain(50);
      assert.equal(Code[(await answer).status], "Unavailable");
      assert.deepEqual((await answer).messages, first);
      assert.equal(codeOf(await left), "Unavailable");
      await drained;
    });
  }

  test("a call under way is finished by a server that stops", async (context) => {
    const go = Promise.withResolvers<void>();
    const call: GrpcCall = async function* () {
      yield [hello];
      await go.promise;
      yield [hello];
    };
    const { session, server } = await start(context, call);
    const stream = openCall(session, checkPath);
    const answer = readAnswer(stream);
    stream.end(framed(hello));
    await once(stream, "data");
    const drained = server.drain(10_000);
    go.resolve();
    assert.deepEqual([(await answer).status, (await answer).messages.length], [0, 2]);
    await drained;
  });

  test("a deadline that has passed before the message is there is told at once", async (context) => {
    const { session } = await start(context, echo);
    const stream = openCall(session, checkPath, { "grpc-timeout": "20m" });
    const answer = readAnswer(stream);
    stream.write(Buffer.of(0));
    assert.equal(Code[(await answer).status], "DeadlineExceeded");
  });

  test("a reader who takes nothing is waited for, then cut, and never written ahead of", async (context) => {
    let taken = 0;
    const left = Promise.withResolvers<void>();
    const message = Buffer.alloc(16 * 1024);
    const endless: GrpcCall = async function* () {
      try {
        for (;;) {
          taken++;
          yield [message];
        }
      } finally {
        left.resolve();
      }
    };
    const { session } = await start(context, endless, { stalledReaderTimeoutMs: 200 });
    const stream = openCall(session, checkPath);
    stream.on("error", () => undefined);
    stream.end(framed(hello));
    await once(stream, "response");
    await left.promise;
    assert.ok(taken * message.length < 1024 * 1024, `${taken} messages of ${message.length} bytes were made`);
  });
});
