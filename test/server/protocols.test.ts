import assert from "node:assert/strict";
import { connect as connectHttp2 } from "node:http2";
import { connect } from "node:net";
import { describe, test } from "node:test";
import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport, createGrpcWebTransport } from "@connectrpc/connect-node";
import { credentials, loadPackageDefinition, type ServiceClientConstructor } from "@grpc/grpc-js";
import { loadSync } from "@grpc/proto-loader";
import { Health } from "../../gen/grpc/health/v1/health_pb.ts";
import { ServingStatus } from "../../src/rpc/health.ts";
import { checkPath, checkRequest, exchange, http2Request, startTestServer } from "./start-test-server.ts";

const transports: Record<string, (baseUrl: string) => Transport> = {
  "gRPC over HTTP/2": (baseUrl) => createGrpcTransport({ baseUrl }),
  "gRPC-Web over HTTP/1.1": (baseUrl) => createGrpcWebTransport({ baseUrl, httpVersion: "1.1" }),
  "gRPC-Web over HTTP/2": (baseUrl) => createGrpcWebTransport({ baseUrl, httpVersion: "2" }),
  "Connect over HTTP/1.1": (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "1.1" }),
  "Connect over HTTP/2": (baseUrl) => createConnectTransport({ baseUrl, httpVersion: "2" }),
};

describe("every protocol is spoken on the one port", { timeout: 20_000 }, () => {
  for (const [name, transportTo] of Object.entries(transports)) {
    test(name, async () => {
      await using server = await startTestServer();
      const client = createClient(Health, transportTo(server.url));
      assert.equal((await client.check({})).status, ServingStatus.SERVING);

      const statuses: ServingStatus[] = [];
      for await (const { status } of client.watch({ service: "later" })) {
        statuses.push(status);
        if (statuses.length === 1) server.health.set("later", ServingStatus.SERVING);
        else break;
      }
      assert.deepEqual(statuses, [ServingStatus.SERVICE_UNKNOWN, ServingStatus.SERVING]);

      await assert.rejects(client.check({ service: "nobody" }), (error) => {
        assert.equal(ConnectError.from(error).code, Code.NotFound);
        return true;
      });
      assert.deepEqual(server.logged, []);
    });

    test(`${name}: a message over the limit is refused`, async () => {
      await using server = await startTestServer({ limits: { readMaxBytes: 1024 } });
      const client = createClient(Health, transportTo(server.url));
      await assert.rejects(client.check({ service: "x".repeat(2048) }), (error) => {
        assert.equal(ConnectError.from(error).code, Code.ResourceExhausted);
        return true;
      });
    });
  }

  test("an independent gRPC client is served", async () => {
    await using server = await startTestServer();
    const definition = loadSync(new URL("../../proto/grpc/health/v1/health.proto", import.meta.url).pathname);
    const Client = loadPackageDefinition(definition)["grpc"] as unknown as {
      health: { v1: { Health: ServiceClientConstructor } };
    };
    const client = new Client.health.v1.Health(`127.0.0.1:${server.port}`, credentials.createInsecure());
    try {
      const answer = await new Promise((resolve, reject) => {
        client["check"]?.({ service: "" }, (error: unknown, value: unknown) =>
          error ? reject(error) : resolve(value),
        );
      });
      assert.deepEqual(answer, { status: ServingStatus.SERVING });
    } finally {
      client.close();
    }
  });

  const shapes: [name: string, head: string, status: number][] = [
    ["no such path", "GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404],
    [
      "GET of a call that changes things",
      `GET ${checkPath} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`,
      405,
    ],
    ["a form", checkRequest({ Host: "localhost", "Content-Type": "application/x-www-form-urlencoded" }), 415],
    ["text", checkRequest({ Host: "localhost", "Content-Type": "text/plain" }), 415],
    ["no content type", checkRequest({ Host: "localhost", "Content-Type": undefined }), 415],
    ["expecting 100-continue", checkRequest({ Host: "localhost", Expect: "100-continue" }), 100],
  ];
  for (const [name, text, status] of shapes) {
    test(`plain HTTP: ${name} gets ${status}`, async () => {
      await using server = await startTestServer();
      assert.match(await exchange(server.port, text), new RegExp(`^HTTP/1.1 ${status} `));
    });
  }

  test("who forgets the content-type is told which there are", async () => {
    await using server = await startTestServer();
    for (const [type, says] of [
      ["text/plain", 'the content-type is "text/plain"'],
      [undefined, "the request has no content-type"],
    ] as const) {
      const answer = await exchange(server.port, checkRequest({ Host: "localhost", "Content-Type": type }));
      assert.ok(answer.includes(JSON.stringify(says).slice(1, -1)), answer);
      assert.match(answer, /application\/json, application\/proto or one of gRPC's is wanted/);
    }
  });

  test("a throwing fallback answers 500 and tells the log, not the caller", async () => {
    await using server = await startTestServer({
      fallback: () => {
        throw new Error("secret detail");
      },
    });
    const response = await fetch(`${server.url}/page`);
    assert.equal(response.status, 500);
    assert.deepEqual(await response.json(), { code: "internal", message: "internal error" });
    assert.deepEqual(server.logged, ["error an answer could not be sent"]);
  });
});

describe("a caller who hangs up does no harm", { timeout: 20_000 }, () => {
  for (const [name, isHttp2] of [
    ["HTTP/1.1", false],
    ["HTTP/2", true],
  ] as const) {
    for (const begun of [false, true]) {
      test(`${name}, ${begun ? "in the middle of" : "before"} an answer that then fails`, async () => {
        const reached = Promise.withResolvers<void>();
        const failed = Promise.withResolvers<void>();
        await using server = await startTestServer({
          fallback: async (_, response) => {
            const gone = new Promise((resolve) => response.once("close", resolve));
            if (begun) response.write("half");
            reached.resolve();
            await gone;
            failed.resolve();
            throw new Error("nobody is left to hear this");
          },
        });
        if (isHttp2) {
          const session = connectHttp2(server.url);
          session.on("error", () => {});
          session.request({ ":path": "/page" }).on("error", () => {});
          await reached.promise;
          session.destroy();
        } else {
          const socket = connect(server.port, "127.0.0.1");
          socket.write("GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n");
          await reached.promise;
          socket.destroy();
        }
        await failed.promise;
        assert.match(await exchange(server.port, checkRequest({ Host: "localhost" })), /^HTTP\/1.1 200 /);
      });
    }
  }
});

describe("a deadline is never shorter than asked for", { timeout: 20_000 }, () => {
  const cases: [field: string, value: string, code: string | undefined][] = [
    ["connect-timeout-ms", "99999999999", "invalid_argument"],
    ["connect-timeout-ms", "-1", "invalid_argument"],
    ["connect-timeout-ms", "1e9", "invalid_argument"],
    ["connect-timeout-ms", "9999999999", undefined],
    ["connect-timeout-ms", "5000", undefined],
  ];
  for (const [field, value, code] of cases) {
    test(`${field}: ${value} ${code ?? "is served"}`, async () => {
      await using server = await startTestServer();
      const response = await fetch(`${server.url}${checkPath}`, {
        method: "POST",
        headers: { "content-type": "application/json", [field]: value },
        body: "{}",
      });
      assert.equal(response.status, code === undefined ? 200 : 400);
      const answer: unknown = await response.json();
      assert.ok(typeof answer === "object" && answer !== null);
      assert.equal("code" in answer ? answer.code : undefined, code);
    });
  }
  const grpcCases: [value: string, status: string][] = [
    ["99999999H", "0"],
    ["1H", "0"],
    ["61M", "0"],
    ["999999999S", "3"],
    ["12", "3"],
    ["soon", "3"],
  ];
  for (const [value, status] of grpcCases) {
    test(`grpc-timeout: ${value} ends with status ${status}`, async () => {
      await using server = await startTestServer();
      const answer = await http2Request(
        server.url,
        { ":path": checkPath, "content-type": "application/grpc", "grpc-timeout": value, te: "trailers" },
        new Uint8Array(5),
      );
      assert.equal(answer.trailers["grpc-status"] ?? answer.headers["grpc-status"], status);
    });
  }
});
