import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  checkPath,
  checkRequest,
  exchange,
  http2Request,
  startTestServer,
  type TestServer,
} from "./start-test-server.ts";

async function assertServes(server: TestServer): Promise<void> {
  const response = await fetch(`${server.url}${checkPath}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: "{}",
  });
  assert.deepEqual(await response.json(), { status: "SERVING" });
}

const options = { allowedHosts: ["agent.test", "proxy.test:8443"] };

describe("the host of a request must be ours", { timeout: 30_000 }, () => {
  const hosts: [host: string, status: number][] = [
    ["localhost:PORT", 200],
    ["LocalHost:PORT", 200],
    ["127.0.0.1:PORT", 200],
    ["[::1]:PORT", 200],
    ["localhost", 200],
    ["agent.test", 200],
    ["agent.test:PORT", 200],
    ["proxy.test:8443", 200],
    ["proxy.test", 403],
    ["localhost:1", 403],
    ["evil.test", 403],
    ["evil.test:PORT", 403],
    ["agent.test.evil.test", 403],
    ["localhost.", 403],
    ["localhost.evil.test:PORT", 403],
    ["127.0.0.1.evil.test", 403],
    ["2130706433", 403],
    ["", 400],
    ["a b", 400],
    ["foo|bar", 400],
    ["127.0.0.1:abc", 400],
    ["127.0.0.1:PORT:PORT", 400],
    ["[::bad", 400],
    ["::1", 400],
    ["user@localhost", 400],
    ["localhost/x", 400],
    ["local\xffhost", 400],
    ["__proto__", 403],
    ["x".repeat(5000), 400],
  ];
  for (const [host, status] of hosts) {
    test(`HTTP/1.1 Host "${host.slice(0, 40)}" gets ${status}`, async () => {
      await using server = await startTestServer(options);
      const Host = host.replaceAll("PORT", String(server.port));
      assert.match(await exchange(server.port, checkRequest({ Host })), new RegExp(`^HTTP/1.1 ${status} `));
      assert.equal(server.handled.length, status === 200 ? 1 : 0);
      await assertServes(server);
    });
  }

  const requests: [name: string, text: string, status: number][] = [
    ["no Host", checkRequest({}), 400],
    ["no Host, HTTP/1.0", checkRequest({}, checkPath, "1.0"), 400],
    ["two Hosts", checkRequest({ Host: "localhost\r\nHost: evil.test" }), 400],
    ["the same Host twice", checkRequest({ Host: "localhost\r\nHost: localhost" }), 400],
    ["an absolute target", checkRequest({ Host: "localhost" }, `http://localhost${checkPath}`), 200],
    ["an absolute target elsewhere", checkRequest({ Host: "localhost" }, `http://evil.test${checkPath}`), 403],
    [
      "an absolute target with a user",
      checkRequest({ Host: "localhost" }, `http://localhost@evil.test${checkPath}`),
      403,
    ],
    ["a target with two slashes", checkRequest({ Host: "localhost" }, `//evil.test${checkPath}`), 400],
    ["another scheme", checkRequest({ Host: "localhost" }, "file:///etc/passwd"), 400],
    ["OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 400],
    ["X-Forwarded-Host", checkRequest({ Host: "evil.test", "X-Forwarded-Host": "localhost" }), 403],
    ["101 fields", checkRequest({ Host: "localhost", ...numberedFields(97) }), 431],
    ["100 fields", checkRequest({ Host: "localhost", ...numberedFields(96) }), 200],
    ["17 KiB of fields", checkRequest({ Host: "localhost", "X-Big": "x".repeat(17 * 1024) }), 431],
    ["a bad percent sign in the query", checkRequest({ Host: "localhost" }, `${checkPath}?%zz=%`), 200],
    ["length and chunks", checkRequest({ Host: "localhost", "Transfer-Encoding": "chunked" }), 400],
    [
      "a __proto__ field",
      checkRequest({ Host: "localhost", ["__proto__x"]: "1" }).replace("__proto__x", "__proto__"),
      200,
    ],
  ];
  for (const [name, text, status] of requests) {
    test(`HTTP/1.1 with ${name} gets ${status}`, async () => {
      await using server = await startTestServer(options);
      const answer = await exchange(server.port, text);
      assert.match(answer, new RegExp(`^HTTP/1.1 ${status} `));
      assert.equal(answer.match(/HTTP\/1\.1 \d/g)?.length, 1, "one answer only");
      assert.equal(server.handled.length, status === 200 ? 1 : 0);
      await assertServes(server);
    });
  }

  const authorities: [authority: string, status: number | "reset"][] = [
    ["localhost:PORT", 200],
    ["agent.test", 200],
    ["evil.test", 403],
    ["127.0.0.1:abc", 400],
    ["[::bad", "reset"],
    ["foo|bar", "reset"],
    ["a b", "reset"],
    ["user@localhost:PORT", "reset"],
  ];
  for (const [authority, status] of authorities) {
    test(`HTTP/2 :authority "${authority}" gets ${status}`, async () => {
      await using server = await startTestServer(options);
      const headers = {
        ":path": checkPath,
        ":authority": authority.replaceAll("PORT", String(server.port)),
        "content-type": "application/json",
      };
      const answer = await http2Request(server.url, headers, Buffer.from("{}")).catch(() => undefined);
      if (status === "reset") assert.notEqual(answer?.headers[":status"], 200);
      else assert.equal(answer?.headers[":status"], status);
      assert.equal(server.handled.length, status === 200 ? 1 : 0);
      await assertServes(server);
    });
  }

  test("HTTP/2 with a Host that contradicts :authority gets 400", async () => {
    await using server = await startTestServer(options);
    const headers = { ":path": checkPath, host: "evil.test", "content-type": "application/json" };
    const answer = await http2Request(server.url, { ...headers, ":authority": "localhost" }, Buffer.from("{}"));
    assert.equal(answer.headers[":status"], 400);
    await assertServes(server);
  });

  test("a gRPC caller with a foreign host gets 403 and a gRPC status", async () => {
    await using server = await startTestServer(options);
    const headers = { ":path": checkPath, ":authority": "evil.test", "content-type": "application/grpc" };
    const answer = await http2Request(server.url, headers, new Uint8Array(5));
    assert.equal(answer.headers[":status"], 403);
    assert.equal(answer.headers["grpc-status"], "7");
  });
});

describe("pages of foreign origins are kept out", { timeout: 30_000 }, () => {
  const origins: [origin: string, isAllowed: boolean][] = [
    ["https://app.test", true],
    ["http://127.0.0.1:PORT", true],
    ["http://localhost:PORT", true],
    ["https://app.test:444", false],
    ["http://app.test", false],
    ["https://app.test.evil.test", false],
    ["https://evilapp.test", false],
    ["https://APP.test", false],
    ["http://localhost:1", false],
    ["http://localhost", false],
    ["https://localhost:PORT", false],
    ["null", false],
    ["", false],
    ["https://app.test, https://evil.test", false],
  ];
  for (const [origin, isAllowed] of origins) {
    test(`Origin "${origin}" is ${isAllowed ? "served" : "refused before the handler"}`, async () => {
      await using server = await startTestServer({ allowedOrigins: ["https://app.test"] });
      const Origin = origin.replaceAll("PORT", String(server.port));
      const answer = await exchange(server.port, checkRequest({ Host: `127.0.0.1:${server.port}`, Origin }));
      assert.match(answer, isAllowed ? /^HTTP\/1.1 200 / : /^HTTP\/1.1 403 /);
      assert.equal(server.handled.length, isAllowed ? 1 : 0);
      assert.equal(/permission_denied/.test(answer), !isAllowed);
      assert.equal(answer.toLowerCase().includes(`access-control-allow-origin: ${Origin.toLowerCase()}`), isAllowed);
      assert.equal(/\r\nvary: origin\r\n/i.test(answer), isAllowed);
      assert.doesNotMatch(answer, /allow-credentials|allow-private-network/i);
    });
  }

  for (const contentType of ["application/grpc-web+proto", "application/connect+json", "application/grpc"]) {
    test(`a foreign origin gets 403 as ${contentType} too`, async () => {
      await using server = await startTestServer();
      const headers = { ":path": checkPath, "content-type": contentType, origin: "https://evil.test" };
      const answer = await http2Request(server.url, headers, new Uint8Array(5));
      assert.equal(answer.headers[":status"], 403);
      assert.deepEqual(server.handled, []);
    });
  }

  test("a preflight needs no token but a known origin", async () => {
    await using server = await startTestServer({
      allowedOrigins: ["https://app.test"],
      token: "a-token-of-enough-length",
    });
    const ask = (origin: string) =>
      fetch(`${server.url}${checkPath}`, {
        method: "OPTIONS",
        headers: {
          origin,
          "access-control-request-method": "POST",
          "access-control-request-headers": "content-type,authorization,connect-protocol-version",
        },
      });
    const allowed = await ask("https://app.test");
    assert.equal(allowed.status, 204);
    assert.equal(allowed.headers.get("access-control-allow-origin"), "https://app.test");
    assert.equal(allowed.headers.get("vary"), "Origin");
    assert.equal(allowed.headers.get("access-control-allow-methods"), "POST, GET");
    const fields = allowed.headers.get("access-control-allow-headers")?.toLowerCase().split(", ");
    for (const field of ["content-type", "authorization", "connect-protocol-version", "x-grpc-web"]) {
      assert.ok(fields?.includes(field), field);
    }
    assert.equal((await ask("https://evil.test")).status, 403);
    const plain = await fetch(`${server.url}${checkPath}`, {
      method: "OPTIONS",
      headers: { origin: "https://app.test" },
    });
    assert.equal(plain.status, 401);
  });
});

function numberedFields(count: number): Record<string, string> {
  return Object.fromEntries(Array.from({ length: count }, (_, at) => [`X-${at}`, "1"]));
}
