import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import http2 from "node:http2";
import { connect } from "node:net";
import { describe, test } from "node:test";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { Health } from "../../gen/grpc/health/v1/health_pb.ts";
import { ServingStatus } from "../../src/rpc/health.ts";
import { checkRequest, exchange, readToEnd, startTestServer } from "./start-test-server.ts";

describe("a server that stops", { timeout: 20_000 }, () => {
  for (const [name, transportTo] of [
    ["gRPC", (baseUrl: string) => createGrpcTransport({ baseUrl })],
    ["Connect over HTTP/1.1", (baseUrl: string) => createConnectTransport({ baseUrl, httpVersion: "1.1" })],
  ] as const) {
    test(`lets a running ${name} stream finish`, async () => {
      await using server = await startTestServer();
      const stream = createClient(Health, transportTo(server.url)).watch({})[Symbol.asyncIterator]();
      assert.equal((await stream.next()).value?.status, ServingStatus.SERVING);
      const drained = server.drain(10_000);
      assert.equal(server.shuttingDown.aborted, true);
      server.health.drain();
      assert.equal((await stream.next()).value?.status, ServingStatus.NOT_SERVING);
      assert.equal((await stream.next()).done, true);
      await drained;
      assert.equal(await exchange(server.port, checkRequest({ Host: "localhost" })), "", "no new connection");
    });

    test(`aborts a ${name} stream that outlives the grace, with UNAVAILABLE`, async () => {
      await using server = await startTestServer();
      const stream = createClient(Health, transportTo(server.url)).watch({})[Symbol.asyncIterator]();
      await stream.next();
      const next = stream.next();
      const drained = server.drain(50);
      await assert.rejects(next, (error) => {
        assert.equal(ConnectError.from(error).code, Code.Unavailable);
        return true;
      });
      await drained;
    });
  }

  test("takes no new call on the connections it has", async () => {
    await using server = await startTestServer();
    const socket = connect(server.port, "127.0.0.1");
    const answers = readToEnd(socket);
    const client = createClient(Health, createGrpcTransport({ baseUrl: server.url }));
    const stream = client.watch({})[Symbol.asyncIterator]();
    await stream.next();
    // The head of a call is on its way when the draining begins.
    const request = checkRequest({ Host: "localhost", Connection: undefined });
    socket.write(request.slice(0, 20));
    await exchange(server.port, checkRequest({ Host: "localhost" }));
    const drained = server.drain(10_000);
    socket.write(request.slice(20));
    const answer = await answers;
    assert.match(answer, /^HTTP\/1.1 503 /);
    assert.match(answer, /connection: close/i);
    assert.match(answer, /"code":"unavailable"/);
    server.health.drain();
    while ((await stream.next()).done !== true);
    await drained;
    assert.equal(server.handled.length, 2);
  });

  test("says goodbye to HTTP/2 peers at once", async () => {
    await using server = await startTestServer();
    const session = http2.connect(server.url);
    await once(session, "remoteSettings");
    const goodbye = once(session, "goaway");
    const drained = server.drain(10_000);
    assert.equal((await goodbye)[0], http2.constants.NGHTTP2_NO_ERROR);
    await drained;
  });

  test("does not wait for the silent, and cuts handlers that do not listen", async () => {
    const never = Promise.withResolvers<void>();
    await using server = await startTestServer({
      limits: { lastWordsTimeoutMs: 50 },
      fallback: () => never.promise,
    });
    const silent = connect(server.port, "127.0.0.1");
    const cut = Promise.all([readToEnd(silent), exchange(server.port, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")]);
    await exchange(server.port, checkRequest({ Host: "localhost" }));
    await server.close();
    assert.deepEqual(await cut, ["", ""]);
    never.resolve();
  });

  test("close shortens a drain under way", async () => {
    await using server = await startTestServer();
    const stream = createClient(Health, createGrpcTransport({ baseUrl: server.url }))
      .watch({})
      [Symbol.asyncIterator]();
    await stream.next();
    const next = stream.next();
    const drained = server.drain(600_000);
    await Promise.all([assert.rejects(next), server.close(), drained]);
  });

  test("leaves nothing that keeps the process alive", async () => {
    const script = `
      const { startTestServer, checkRequest, exchange } = await import("./start-test-server.ts");
      const { connect: http2Connect } = await import("node:http2");
      const server = await startTestServer();
      await exchange(server.port, checkRequest({ Host: "localhost" }));
      const session = http2Connect(server.url);
      session.on("error", () => {});
      await new Promise((resolve) => session.once("remoteSettings", resolve));
      await server.drain(5_000);
      session.destroy();
    `;
    const child = spawn(process.execPath, ["--input-type=module-typescript", "-e", script], {
      cwd: import.meta.dirname,
      stdio: ["ignore", "inherit", "inherit"],
      timeout: 10_000,
    });
    assert.deepEqual(await once(child, "exit"), [0, null]);
  });
});
