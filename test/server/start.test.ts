import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { checkRequest, exchange, startTestServer } from "./start-test-server.ts";

describe("starting", { timeout: 10_000 }, () => {
  const refused: [name: string, options: Parameters<typeof startTestServer>[0], message: RegExp][] = [
    ["every address without a token", { host: "0.0.0.0" }, /Listening on 0\.0\.0\.0 is open to the network/],
    ["every IPv6 address without a token", { host: "::" }, /Listening on :: is open/],
    ["no host without a token", { host: "" }, /Listening on every address is open/],
    ["a name that only looks like loopback", { host: "127.0.0.1.evil.test" }, /is open to the network/],
    ["a token of 15 characters", { host: "0.0.0.0", token: "x".repeat(15) }, /at least 16 characters/],
    ["an empty token", { token: "" }, /The access token is empty/],
  ];
  for (const [name, options, message] of refused) {
    test(`is refused for ${name}`, async () => {
      await assert.rejects(startTestServer(options), message);
    });
  }

  test("beyond loopback is allowed with a token of 16 characters, or when said aloud", async () => {
    for (const options of [{ token: "x".repeat(16) }, { insecure: true }]) {
      await using server = await startTestServer({ host: "0.0.0.0", ...options });
      assert.ok(server.port > 0);
    }
  });

  test("on a taken port says which", async () => {
    await using server = await startTestServer();
    await assert.rejects(
      startTestServer({ port: server.port }),
      new RegExp(`Cannot listen on port ${server.port} on 127.0.0.1: it is in use`),
    );
  });

  test("the address it says is the one it has", async () => {
    await using server = await startTestServer();
    assert.equal(server.url, `http://127.0.0.1:${server.port}`);
    assert.match(await exchange(server.port, checkRequest({ Host: "localhost" })), /^HTTP\/1.1 200 /);
  });
});
