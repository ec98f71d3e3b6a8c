import assert from "node:assert/strict";
import { connect } from "node:http2";
import { describe, type TestContext, test } from "node:test";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createCodeAgentClient } from "../../sdk/index.ts";
import { HttpDoor } from "../../src/mcp-server/http-door.ts";
import { startServer } from "../../src/server.ts";
import { startTestApp } from "../support/test-app.ts";
import { call, connected, script } from "./mcp-client.ts";

const token = "a token of enough characters".replaceAll(" ", "-");
const initialize = JSON.stringify({
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "test", version: "1" } },
});
const usual = {
  authorization: `Bearer ${token}`,
  "content-type": "application/json",
  accept: "application/json, text/event-stream",
};

describe("the MCP door of the port", { timeout: 60_000 }, () => {
  const requests: readonly {
    name: string;
    status: number;
    method?: string;
    headers?: Record<string, string>;
    body?: string;
  }[] = [
    { name: "a good one", status: 200 },
    { name: "no token", status: 401, headers: { authorization: "" } },
    { name: "a wrong token", status: 401, headers: { authorization: "Bearer wrong" } },
    { name: "a page of another origin", status: 403, headers: { origin: "http://evil.example" } },
    { name: "an origin without name", status: 403, headers: { origin: "null" } },
    { name: "a form's type", status: 415, headers: { "content-type": "text/plain" } },
    { name: "nothing that can be read as an answer", status: 406, headers: { accept: "text/html" } },
    { name: "no JSON", status: 400, body: "{" },
    { name: "no message", status: 400, body: "{}" },
    { name: "a message that is too long", status: 413, body: JSON.stringify({ text: "x".repeat(4 * 1024 * 1024) }) },
    { name: "a session that is not there", status: 404, headers: { "mcp-session-id": "none" } },
    { name: "a stream without a session", status: 400, method: "GET" },
    { name: "an end without a session", status: 400, method: "DELETE" },
    { name: "a call before the beginning", status: 400, body: '{"jsonrpc":"2.0","id":1,"method":"tools/list"}' },
  ];
  test("who may not or says it wrong is refused", async (context) => {
    const { app } = await startTestApp(context, { flags: { token } });
    for (const { name, status, method = "POST", headers = {}, body = initialize } of requests) {
      const sent = method === "POST" ? { body } : {};
      const answer = await fetch(`${app.url}/mcp`, { method, headers: { ...usual, ...headers }, ...sent });
      const text = await answer.text();
      assert.equal(answer.status, status, `${name}: ${text}`);
      assert.doesNotMatch(text, /\n {4}at |codeagent-test-/, name);
    }
    const elsewhere = await fetch(`${app.url}/mcp/x`, { method: "POST", headers: usual, body: initialize });
    assert.equal(elsewhere.status, 404);
  });

  test("HTTP/2 is as good", async (context) => {
    const { app } = await startTestApp(context, { flags: { token } });
    const session = connect(app.url);
    context.after(() => session.destroy());
    const stream = session.request({ ":method": "POST", ":path": "/mcp", ...usual });
    stream.end(initialize);
    let status = 0;
    stream.on("response", (headers) => {
      status = headers[":status"] ?? 0;
    });
    let text = "";
    for await (const piece of stream.setEncoding("utf8")) text += piece;
    assert.equal(status, 200);
    assert.match(text, /"serverInfo":\{"name":"codeagent"/);
  });

  /** A door of its own, with limits and a clock of the test. */
  async function startDoor(
    context: TestContext,
    limits: { maxSessions?: number; idleMs?: number; now?: () => number },
  ) {
    const { app } = await startTestApp(context, { script });
    const client = createCodeAgentClient({ baseUrl: app.url });
    context.after(() => client.close());
    const door = new HttpDoor({
      client: async () => client,
      offerTools: false,
      resume: {},
      report: () => {},
      ...limits,
    });
    const server = await startServer({
      host: "127.0.0.1",
      port: 0,
      allowedHosts: [],
      allowedOrigins: [],
      routes: () => {},
      paths: new Map([["/mcp", (request, response) => door.handle(request, response)]]),
    });
    context.after(async () => {
      await door.close();
      await server.close();
    });
    return { door, url: new URL("/mcp", server.url) };
  }

  const begin = async (url: URL) => {
    const answer = await fetch(url, { method: "POST", headers: usual, body: initialize });
    await answer.text();
    return answer.headers.get("mcp-session-id") ?? `none: ${answer.status}`;
  };
  const ask = async (url: URL, id: string) => {
    const headers = { ...usual, "mcp-session-id": id };
    const body = '{"jsonrpc":"2.0","id":2,"method":"tools/list"}';
    const answer = await fetch(url, { method: "POST", headers, body });
    await answer.text();
    return answer.status;
  };

  test("sessions are bounded: the one used longest ago goes, and none that is at work", async (context) => {
    const clock = { nowMs: 0 };
    const { door, url } = await startDoor(context, { maxSessions: 2, now: () => clock.nowMs++ });
    const ids = [await begin(url), await begin(url)];
    assert.equal(await ask(url, ids[0] ?? ""), 200);
    ids.push(await begin(url));
    assert.equal(new Set(ids).size, 3);
    assert.deepEqual(await Promise.all(ids.map((id) => ask(url, id))), [200, 404, 200]);
    assert.equal(door.sessionCount, 2);
    const streams = await Promise.all(
      [ids[0], ids[2]].map((id) => fetch(url, { headers: { ...usual, "mcp-session-id": id ?? "" } })),
    );
    assert.equal(await begin(url), "none: 503");
    await streams[0]?.body?.cancel();
    await streams[1]?.body?.cancel();
  });

  test("a session that is ended, and one that is idle, is gone", async (context) => {
    const clock = { nowMs: 0 };
    const { door, url } = await startDoor(context, { idleMs: 20, now: () => clock.nowMs });
    const ended = await begin(url);
    await fetch(url, { method: "DELETE", headers: { ...usual, "mcp-session-id": ended } });
    assert.equal(await ask(url, ended), 404);
    const idle = await begin(url);
    assert.equal(await ask(url, idle), 200);
    clock.nowMs = 1000;
    const limit = AbortSignal.timeout(5000);
    while (door.sessionCount > 0) {
      limit.throwIfAborted();
      await new Promise(setImmediate);
    }
    assert.equal(await ask(url, idle), 404);
  });

  test("a client that is gone leaves its turn running; a server that stops does not wait for clients", async (context) => {
    const { app } = await startTestApp(context, { script });
    const transport = new StreamableHTTPClientTransport(new URL("/mcp", app.url));
    const client = await connected(transport);
    const begun = Promise.withResolvers<void>();
    const cut = call(client, "run_agent", { prompt: "for ever" }, { onProgress: () => begun.resolve() });
    const gone = assert.rejects(cut);
    await begun.promise;
    await client.close();
    await gone;
    const looking = await connected(new StreamableHTTPClientTransport(new URL("/mcp", app.url)));
    const { texts } = await call(looking, "list_sessions", {});
    assert.match(texts[0] ?? "", /"state":"running"/);
    const beganMs = performance.now();
    await app.close(0);
    assert.ok(performance.now() - beganMs < 5000);
    await looking.close();
  });
});
