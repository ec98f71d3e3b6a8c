import assert from "node:assert/strict";
import { connect } from "node:net";
import { describe, test } from "node:test";
import { connect as tlsConnect } from "node:tls";
import { createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { Health } from "../../gen/grpc/health/v1/health_pb.ts";
import { ServingStatus } from "../../src/rpc/health.ts";
import { makeCertificate } from "../support/certificate.ts";
import { checkPath, checkRequest, http2Request, readToEnd, startTestServer } from "./start-test-server.ts";

const tls = makeCertificate();

describe("with a certificate", { timeout: 20_000, skip: tls === undefined && "openssl is not installed" }, () => {
  if (tls === undefined) return;
  const nodeOptions = { ca: tls.cert };

  test("gRPC is spoken over h2 and Connect over http/1.1 on one port", async () => {
    await using server = await startTestServer({ tls });
    const baseUrl = `https://localhost:${server.port}`;
    assert.match(server.url, /^https:/);
    for (const transport of [
      createGrpcTransport({ baseUrl, nodeOptions }),
      createConnectTransport({ baseUrl, nodeOptions, httpVersion: "1.1" }),
      createConnectTransport({ baseUrl, nodeOptions, httpVersion: "2" }),
    ]) {
      assert.equal((await createClient(Health, transport).check({})).status, ServingStatus.SERVING);
    }
    await server.drain(5_000);
  });

  test("the host is checked in both", async () => {
    await using server = await startTestServer({ tls });
    const headers = { ":path": checkPath, ":authority": "evil.test", "content-type": "application/json" };
    assert.equal((await http2Request(server.url, headers, Buffer.from("{}"))).headers[":status"], 403);
    const socket = tlsConnect({ port: server.port, host: "127.0.0.1", ca: tls.cert });
    socket.write(checkRequest({ Host: "a b" }));
    assert.match(await readToEnd(socket), /^HTTP\/1.1 400 /);
  });

  test("who does not finish the handshake or the header fields is closed", async () => {
    await using server = await startTestServer({ tls, limits: { sniffTimeoutMs: 200, headersTimeoutMs: 200 } });
    const silent = connect(server.port, "127.0.0.1");
    const slow = tlsConnect({ port: server.port, host: "127.0.0.1", ca: tls.cert });
    slow.write("GET / HTTP/1.1\r\nHost: ");
    assert.equal(await readToEnd(silent), "");
    assert.match(await readToEnd(slow), /^HTTP\/1.1 408 /);
  });

  test("plain HTTP gets no answer and does no harm", async () => {
    await using server = await startTestServer({ tls });
    const socket = connect(server.port, "127.0.0.1");
    socket.write(checkRequest({ Host: "localhost" }));
    assert.doesNotMatch(await readToEnd(socket), /200/);
    const transport = createGrpcTransport({ baseUrl: `https://localhost:${server.port}`, nodeOptions });
    assert.equal((await createClient(Health, transport).check({})).status, ServingStatus.SERVING);
  });
});

test("a broken certificate is said in one sentence", async () => {
  await assert.rejects(
    startTestServer({ tls: { cert: "no", key: "no" } }),
    /The TLS certificate or its key cannot be used/,
  );
});
