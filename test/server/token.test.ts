import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { describe, test } from "node:test";
import { Code, ConnectError, createClient, type Interceptor, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { credentials, Metadata, makeGenericClientConstructor } from "@grpc/grpc-js";
import { Health } from "../../gen/grpc/health/v1/health_pb.ts";
import { ServerReflection } from "../../gen/grpc/reflection/v1/reflection_pb.ts";
import { ServingStatus } from "../../src/rpc/health.ts";
import { checkPath, checkRequest, http2Request, readToEnd, startTestServer, watchPath } from "./start-test-server.ts";

const token = "correct-horse-battery";

const transports: Record<string, (baseUrl: string, interceptors: Interceptor[]) => Transport> = {
  gRPC: (baseUrl, interceptors) => createGrpcTransport({ baseUrl, interceptors }),
  "gRPC-Web 1.1": (baseUrl, interceptors) => createGrpcWebTransport({ baseUrl, interceptors, httpVersion: "1.1" }),
  "gRPC-Web 2": (baseUrl, interceptors) => createGrpcWebTransport({ baseUrl, interceptors, httpVersion: "2" }),
  "Connect JSON 1.1": (baseUrl, interceptors) =>
    createConnectTransport({ baseUrl, interceptors, httpVersion: "1.1", useBinaryFormat: false }),
  "Connect binary 1.1": (baseUrl, interceptors) =>
    createConnectTransport({ baseUrl, interceptors, httpVersion: "1.1" }),
  "Connect binary 2": (baseUrl, interceptors) => createConnectTransport({ baseUrl, interceptors, httpVersion: "2" }),
};

const wrong: [name: string, authorization: string | undefined][] = [
  ["none", undefined],
  ["empty", ""],
  ["wrong", "Bearer wrong-horse-battery"],
  ["a prefix of it", "Bearer correct-horse"],
  ["more than it", `Bearer ${token}y`],
  ["another scheme", `Basic ${token}`],
  ["no scheme", token],
];

function authorize(authorization: string | undefined): Interceptor[] {
  return [
    (next) => (request) => {
      if (authorization !== undefined) request.header.set("authorization", authorization);
      return next(request);
    },
  ];
}

function isUnauthenticated(error: unknown): true {
  const { code, rawMessage } = ConnectError.from(error);
  assert.equal(code, Code.Unauthenticated);
  // A Connect client of binary messages does not read the error of a call it knows failed by its status.
  assert.ok(["a valid bearer token is required", "HTTP 401"].includes(rawMessage), rawMessage);
  return true;
}

describe("without the token nothing answers", { timeout: 30_000 }, () => {
  for (const [protocol, transportTo] of Object.entries(transports)) {
    for (const [name, authorization] of wrong) {
      test(`${protocol}, token: ${name}`, async () => {
        await using server = await startTestServer({ token });
        const transport = transportTo(server.url, authorize(authorization));
        const client = createClient(Health, transport);
        await assert.rejects(client.check({}), isUnauthenticated);
        await assert.rejects(async () => {
          for await (const answer of client.watch({})) assert.fail(`was told ${answer.status}`);
        }, isUnauthenticated);
        assert.deepEqual(server.handled, []);
      });
    }
    test(`${protocol}, the right token`, async () => {
      await using server = await startTestServer({ token });
      const client = createClient(Health, transportTo(server.url, authorize(`bearer ${token}`)));
      assert.equal((await client.check({})).status, ServingStatus.SERVING);
    });
  }

  test("reflection asks for it", async () => {
    await using server = await startTestServer({ token });
    const client = createClient(ServerReflection, createGrpcTransport({ baseUrl: server.url }));
    await assert.rejects(async () => {
      for await (const answer of client.serverReflectionInfo(
        (async function* () {
          yield { messageRequest: { case: "listServices" as const, value: "" } };
        })(),
      )) {
        assert.fail(String(answer.messageResponse.case));
      }
    }, isUnauthenticated);
  });

  for (const path of [
    "/",
    "/healthz",
    "/v1/models",
    `${checkPath}/`,
    `/x/..${checkPath}`,
    `${checkPath}%20`,
    "/?token=x",
  ]) {
    test(`${path} asks for it`, async () => {
      await using server = await startTestServer({ token, fallback: (_, response) => void response.end("inside") });
      const response = await fetch(`${server.url}${path}`, { headers: { cookie: `token=${token}` } });
      assert.equal(response.status, 401);
      assert.equal(response.headers.get("www-authenticate"), "Bearer");
      assert.deepEqual(await response.json(), {
        code: "unauthenticated",
        message: "a valid bearer token is required",
      });
    });
  }

  test("an independent gRPC client sees code 16 and the sentence", async () => {
    await using server = await startTestServer({ token });
    const Client = makeGenericClientConstructor({}, "any");
    const client = new Client(`127.0.0.1:${server.port}`, credentials.createInsecure());
    const raw = (bytes: Buffer): Buffer => bytes;
    try {
      const error = await new Promise<unknown>((resolve) => {
        client.makeUnaryRequest(checkPath, raw, raw, Buffer.alloc(0), new Metadata(), resolve);
      });
      assert.ok(error instanceof Error && "code" in error && "details" in error);
      assert.deepEqual([error.code, error.details], [16, "a valid bearer token is required"]);
    } finally {
      client.close();
    }
  });

  test("gRPC: the refusal is the header fields alone", async () => {
    await using server = await startTestServer({ token });
    const headers = { ":path": checkPath, "content-type": "application/grpc+proto" };
    const answer = await http2Request(server.url, headers, new Uint8Array(5));
    assert.equal(answer.headers[":status"], 200);
    assert.equal(answer.headers["content-type"], "application/grpc+proto");
    assert.equal(answer.headers["grpc-status"], "16");
    assert.deepEqual([answer.body.length, answer.trailers], [0, {}]);
  });

  test("Connect streaming: the refusal is an end-of-stream message", async () => {
    await using server = await startTestServer({ token });
    const headers = { ":path": watchPath, "content-type": "application/connect+json" };
    const answer = await http2Request(server.url, headers, new Uint8Array(5));
    assert.equal(answer.body[0], 2);
    assert.equal(JSON.parse(answer.body.subarray(5).toString()).error.code, "unauthenticated");
  });

  test("the refusal does not wait for the body", async () => {
    await using server = await startTestServer({ token });
    const socket = connect(server.port, "127.0.0.1");
    socket.write(checkRequest({ Host: "localhost", "Content-Length": "1000000", Connection: undefined }));
    const [first] = await once(socket, "data");
    assert.match(String(first), /^HTTP\/1.1 401 /);
    socket.destroy();
  });

  test("a caller who waits for 100-continue is refused instead", async () => {
    await using server = await startTestServer({ token });
    const socket = connect(server.port, "127.0.0.1");
    const answer = readToEnd(socket);
    socket.write(checkRequest({ Host: "localhost", Expect: "100-continue" }));
    assert.match(await answer, /^HTTP\/1.1 401 /);
  });
});
