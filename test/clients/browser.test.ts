import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import { CodeAgentService } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { user } from "../support/test-app.ts";
import { connectVisitor, withToken } from "./connect-visitor.ts";
import { startForVisitors, token, visit, wrongToken } from "./visit.ts";

const origin = "https://console.example";

/** Header fields and answers that a page may send and read without being asked about them. */
const plainRequestFields = new Set(["accept", "accept-language", "content-language", "user-agent"]);
const plainAnswerFields = ["cache-control", "content-language", "content-type", "expires", "last-modified", "pragma"];

function listed(headers: Headers, name: string): string[] {
  return (headers.get(name) ?? "").split(",").map((word) => word.trim().toLowerCase());
}

/** `fetch` as a page of an origin has it: asks first where a browser would, and shows of the answer what it would. */
function pageFetch(pageOrigin: string, preflights: string[] = []): typeof fetch {
  return async (target, init) => {
    const request = new Request(target, init);
    const asked = [...request.headers.keys()].filter((name) => !plainRequestFields.has(name));
    const preflight = await fetch(request.url, {
      method: "OPTIONS",
      headers: {
        origin: pageOrigin,
        "access-control-request-method": request.method,
        "access-control-request-headers": asked.join(","),
      },
    });
    preflights.push(`${preflight.status} ${request.method}`);
    const { headers: allowed } = preflight;
    if (!preflight.ok || allowed.get("access-control-allow-origin") !== pageOrigin)
      throw new TypeError("the preflight was refused");
    if (!listed(allowed, "access-control-allow-methods").includes(request.method.toLowerCase()))
      throw new TypeError(`the method ${request.method} is not allowed`);
    const known = listed(allowed, "access-control-allow-headers");
    for (const name of asked) if (!known.includes(name)) throw new TypeError(`the field ${name} is not allowed`);
    request.headers.set("origin", pageOrigin);
    const response = await fetch(request);
    if (response.headers.get("access-control-allow-origin") !== pageOrigin)
      throw new TypeError("the answer is not for this origin");
    const shown = [...plainAnswerFields, ...listed(response.headers, "access-control-expose-headers")];
    const headers = [...response.headers].filter(([name]) => shown.includes(name));
    return new Response(response.body, { status: response.status, headers });
  };
}

const transports: [name: string, to: (baseUrl: string, word: string, fetch: typeof globalThis.fetch) => Transport][] = [
  ["Connect", (baseUrl, word, fetch) => createConnectTransport({ baseUrl, fetch, interceptors: [withToken(word)] })],
  [
    "Connect with binary messages",
    (baseUrl, word, fetch) =>
      createConnectTransport({ baseUrl, fetch, interceptors: [withToken(word)], useBinaryFormat: true }),
  ],
  ["gRPC-Web", (baseUrl, word, fetch) => createGrpcWebTransport({ baseUrl, fetch, interceptors: [withToken(word)] })],
];

describe("a page of an allowed origin", () => {
  for (const [name, to] of transports)
    test(name, async (context) => {
      const { app } = await startForVisitors(context, { allowed_origins: [origin] });
      const preflights: string[] = [];
      const fetch = pageFetch(origin, preflights);
      const transport = to(app.url, token, fetch);
      await visit(context, connectVisitor(transport), connectVisitor(to(app.url, wrongToken, fetch)), "of-a-page");
      assert.deepEqual(new Set(preflights), new Set(["204 POST"]));

      await context.test("leaving a stream lets its turn go on", async () => {
        const client = createClient(CodeAgentService, transport);
        const { sessionId } = await client.createSession({});
        for await (const { event } of client.streamGenerate({ sessionId, messages: [user("slowly")] }))
          if (event.case === "blockDelta") break;
        const { finishReason } = await client.generate({ sessionId, messages: [user("hello")] });
        assert.equal(finishReason, "stop");
        const { messages } = await client.listMessages({ sessionId });
        assert.equal(messages[1]?.contentType.value, "word after word ".repeat(40));
      });
    });
});

test("a page of another origin gets nothing, and nothing is done for it", async (context) => {
  const { app } = await startForVisitors(context, { allowed_origins: [origin] });
  for (const [, to] of transports) {
    const client = createClient(CodeAgentService, to(app.url, token, pageFetch("https://evil.example")));
    await assert.rejects(client.createSession({}), /the preflight was refused/);
  }
  // Who does not ask first is refused all the same.
  const url = `${app.url}/codeagent.v1.CodeAgentService/CreateSession`;
  const headers = {
    origin: "https://evil.example",
    "content-type": "application/json",
    authorization: `Bearer ${token}`,
  };
  const answer = await fetch(url, { method: "POST", headers, body: "{}" });
  assert.equal(answer.status, 403);
  assert.equal(answer.headers.get("access-control-allow-origin"), null);
  const { sessions } = await createClient(
    CodeAgentService,
    createConnectTransport({ baseUrl: app.url, interceptors: [withToken(token)] }),
  ).listSessions({});
  assert.deepEqual(sessions, []);
});
