import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { describe, type TestContext, test } from "node:test";
import { callContext, ManualClock, startMcpServers, until } from "./start-mcp-servers.ts";

type Answer = (request: IncomingMessage, response: ServerResponse, body: string) => void;

/** A server on this machine that answers as it is told to, and notes what it is asked. */
async function serve(context: TestContext, answer: Answer) {
  const asked: { method: string; authorization: string | undefined; key: unknown; rpc: string }[] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks).toString();
    const rpc = body === "" ? "" : String(JSON.parse(body).method);
    const { authorization, "x-key": key } = request.headers;
    asked.push({ method: request.method ?? "", authorization, key, rpc });
    response.on("error", () => undefined);
    answer(request, response, body);
  });
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  return { asked, url: `http://127.0.0.1:${address.port}/mcp` };
}

/** Answers as an MCP server with one tool; `call` answers the calls of it. */
function working(
  call: (response: ServerResponse, id: number) => void,
  stream?: (response: ServerResponse) => void,
): Answer {
  return (request, response, body) => {
    if (request.method === "GET" && stream !== undefined) return stream(response);
    if (request.method !== "POST") return void response.writeHead(405).end();
    const { id, method } = JSON.parse(body);
    const json = (result: unknown) =>
      response
        .writeHead(200, { "content-type": "application/json", "mcp-session-id": "one" })
        .end(JSON.stringify({ jsonrpc: "2.0", id, result }));
    if (method === "tools/call") return call(response, id);
    if (method === "tools/list") return void json({ tools: [{ name: "do", inputSchema: { type: "object" } }] });
    if (method !== "initialize") return void response.writeHead(202).end();
    const serverInfo = { name: "odd", version: "1" };
    return void json({ protocolVersion: "2025-11-25", capabilities: { tools: {} }, serverInfo });
  };
}

const piece = Buffer.alloc(1024 * 1024, "x");

/** Writes without end, until nobody listens any more. */
function pour(response: ServerResponse): void {
  while (!response.destroyed) if (!response.write(piece)) return void response.once("drain", () => pour(response));
}

describe("an HTTP server that is strange", { concurrency: true }, () => {
  const secrets = { headers: { "X-Key": "never-shown-1" }, token_env: "TOKEN" };
  const env = { TOKEN: "never-shown-2" };
  const start = async (context: TestContext, url: string, more = {}) => {
    const servers = { odd: { url, connect_timeout_ms: 1000, timeout_ms: 1000, ...more } };
    const started = await startMcpServers(context, { servers, env });
    const call = () => started.servers.call({ name: "mcp__odd__do", arguments: {} }, callContext(started.folder));
    return { ...started, call, view: () => started.servers.views()[0] };
  };

  test("its headers and its token are sent, and nothing of them is shown when it refuses us", async (context) => {
    const { asked, url } = await serve(context, (_request, response) => {
      response.writeHead(401).end("your never-shown-1 and never-shown-2 are not good");
    });
    const { view, reports } = await start(context, url, secrets);
    assert.equal(view()?.error, "the server refuses us (HTTP 401); look at its headers and its token");
    assert.deepEqual([asked[0]?.authorization, asked[0]?.key], ["Bearer never-shown-2", "never-shown-1"]);
    assert.ok(!JSON.stringify([view()?.error, reports]).includes("never-shown"));
  });

  test("redirects to another origin are not followed, so nobody else gets a secret", async (context) => {
    const other = await serve(context, (_request, response) => response.end());
    const { url } = await serve(context, (_request, response) =>
      response.writeHead(307, { location: other.url }).end(),
    );
    const { view } = await start(context, url, secrets);
    assert.match(view()?.error ?? "", /redirects to elsewhere \(HTTP 307\), which is not followed/);
    assert.deepEqual(other.asked, []);
  });

  test("without the variable of its token it is not tried, also not later", async (context) => {
    const { asked, url } = await serve(context, (_request, response) => response.end());
    const { view } = await start(context, url, { token_env: "NOT_THERE" });
    assert.deepEqual([view()?.state, view()?.error], ["closed", "the environment variable NOT_THERE is not set"]);
    assert.deepEqual(asked, []);
  });

  for (const [name, answer] of [
    ["says nothing", () => undefined],
    [
      "talks without end",
      (_request, response) => pour(response.writeHead(200, { "content-type": "application/json" })),
    ],
    [
      "sends something else",
      (_request, response) => response.writeHead(200, { "content-type": "text/html" }).end("<p>"),
    ],
    [
      "sends half a message",
      (_request, response) => response.writeHead(200, { "content-type": "application/json" }).end("{"),
    ],
  ] satisfies [string, Answer][]) {
    test(`one that ${name} has failed within its time`, async (context) => {
      const { url } = await serve(context, answer);
      const { view } = await start(context, url);
      assert.equal(view()?.state, "failed", view()?.error ?? "");
    });
  }

  for (const [name, type] of [
    ["an answer", "application/json"],
    ["an event", "text/event-stream"],
  ]) {
    test(`${name} of any length fails the call, and memory stays flat`, async (context) => {
      const { url } = await serve(
        context,
        working((response) => {
          response.writeHead(200, { "content-type": type ?? "" }).write("data: ");
          pour(response);
        }),
      );
      const { call, view } = await start(context, url, { timeout_ms: 20_000 });
      const bytesBefore = process.memoryUsage().rss;
      const startMs = performance.now();
      const result = await Promise.race([call(), new Promise<undefined>((resolve) => setTimeout(resolve, 5000))]);
      assert.equal(result?.success, false, `after ${Math.round(performance.now() - startMs)} ms`);
      assert.ok(process.memoryUsage().rss - bytesBefore < 150 * 1024 * 1024);
      assert.equal(view()?.state, "ready");
    });
  }

  test("a session that it has forgotten is begun anew", async (context) => {
    const { url } = await serve(
      context,
      working((response) => response.writeHead(404).end()),
    );
    const clock = new ManualClock();
    const { servers, folder } = await startMcpServers(context, { servers: { odd: { url } }, clock });
    const result = await servers.call({ name: "mcp__odd__do", arguments: {} }, callContext(folder));
    assert.equal(result.error, "the MCP server odd answered with HTTP 404");
    await until("the end is seen", () => servers.views()[0]?.state === "failed");
    assert.equal(servers.views()[0]?.error, "the server has ended the session");
    clock.advance(1000);
    await until("it is there again", () => servers.views()[0]?.state === "ready");
  });

  test("one that ends its stream at once, and wants us back at once, is asked no oftener than once a second", async (context) => {
    const { asked, url } = await serve(
      context,
      working(
        (response) => response.end(),
        (response) => response.writeHead(200, { "content-type": "text/event-stream" }).end("retry: 0\n\n"),
      ),
    );
    await start(context, url);
    const streams = () => asked.filter(({ method }) => method === "GET").length;
    await until("the stream is opened", () => streams() > 0);
    const startMs = performance.now();
    await until("it is opened again", () => streams() > 1);
    assert.ok(performance.now() - startMs > 900);
  });
});
