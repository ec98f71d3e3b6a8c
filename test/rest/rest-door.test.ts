import assert from "node:assert/strict";
import http2 from "node:http2";
import { test } from "node:test";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import { http2Request } from "../server/start-test-server.ts";
import { dataOf, post, startRestApp } from "./rest-app.ts";

const script = `
- when: { text: slowly }
  text: one two three four five six seven eight nine ten
  chunk: 4
  delay_ms: 200
- text: hello
`;
const hello = { model: "scripted/test", messages: [{ role: "user", content: "hi" }] };
const slow = { model: "scripted/test", messages: [{ role: "user", content: "slowly" }], stream: true };
const chat = "/v1/chat/completions";
const asJson = { "content-type": "application/json" };

test("what the door takes and refuses", async (context) => {
  const { url } = await startRestApp(context, { script, flags: { "limits.max_message_bytes": 100_000 } });

  const refused: [what: string, path: string, init: RequestInit, status: number, code: string | null][] = [
    ["a path nobody has", "/v1/embeddings", { method: "POST" }, 404, "unknown_url"],
    ["a method that is not for it", chat, { method: "GET" }, 405, "method_not_allowed"],
    ["a form", chat, { method: "POST", body: "a=b" }, 415, "unsupported_media_type"],
    ["no body", chat, { method: "POST", headers: asJson }, 400, "invalid_json"],
    ["no JSON", chat, { method: "POST", headers: asJson, body: "{" }, 400, "invalid_json"],
    ["no object", chat, { method: "POST", headers: asJson, body: "[]" }, 400, "invalid_json"],
    ["no UTF-8", chat, { method: "POST", headers: asJson, body: new Uint8Array([123, 0xff]) }, 400, "invalid_json"],
    [
      "too large a body",
      chat,
      { method: "POST", headers: asJson, body: " ".repeat(100_001) },
      413,
      "request_too_large",
    ],
    [
      "one that is too large once it is inflated",
      chat,
      { method: "POST", headers: { ...asJson, "content-encoding": "gzip" }, body: gzipSync(" ".repeat(9_000_000)) },
      413,
      "request_too_large",
    ],
    [
      "a compression nobody knows",
      chat,
      { method: "POST", headers: { ...asJson, "content-encoding": "lzma" }, body: "{}" },
      415,
      "unsupported_encoding",
    ],
    ["no gzip", chat, { method: "POST", headers: { ...asJson, "content-encoding": "gzip" }, body: "{}" }, 400, null],
    ["broken percent-encoding", "/v1/models/%E0", {}, 400, null],
  ];
  for (const [what, path, init, status, code] of refused)
    await context.test(`${what}: ${status}`, async () => {
      const response = await fetch(url + path, { ...init, signal: AbortSignal.timeout(8000) });
      const { error } = await response.json();
      assert.deepEqual([response.status, error.code, error.type], [status, code, "invalid_request_error"]);
      assert.ok(response.headers.get("x-request-id"));
      if (code === "unknown_url") assert.match(error.message, /; there are \/v1\/chat\/completions, \/v1\/responses/);
    });

  await context.test("a wrong method is told the right one", async () => {
    const response = await fetch(url + chat, { method: "DELETE" });
    assert.equal(response.headers.get("allow"), "POST");
  });

  await context.test("under /v1/messages Anthropic's clients are refused in their words", async () => {
    const response = await fetch(`${url}/v1/messages`, { method: "GET" });
    const body = await response.json();
    assert.deepEqual([response.status, body.type, body.error.type], [405, "error", "invalid_request_error"]);
    assert.ok(response.headers.get("request-id"));
    const large = await post(`${url}/v1/messages`, " ".repeat(100_001));
    assert.deepEqual([large.status, (await large.json()).error.type], [413, "request_too_large"]);
  });

  const compressed = { gzip: gzipSync, br: brotliCompressSync, deflate: deflateSync };
  for (const [encoding, compress] of Object.entries(compressed))
    await context.test(`a body in ${encoding} is read`, async () => {
      const headers = { ...asJson, "content-encoding": encoding };
      const response = await fetch(url + chat, { method: "POST", headers, body: compress(JSON.stringify(hello)) });
      assert.equal(response.status, 200);
    });

  await context.test("over HTTP/2 on the same port: an answer, a stream and a body that is too large", async () => {
    const ask = (body: string) => http2Request(url, { ":path": chat, ...asJson }, Buffer.from(body));
    const answer = await ask(JSON.stringify(hello));
    assert.equal(answer.headers[":status"], 200);
    assert.equal(JSON.parse(answer.body.toString()).choices[0].message.content, "hello");
    const stream = await ask(JSON.stringify({ ...hello, stream: true }));
    assert.equal(dataOf(stream.body.toString()).at(-1), "[DONE]");
    const refusal = await ask(" ".repeat(100_001));
    assert.equal(refusal.headers[":status"], 413);
    assert.equal(JSON.parse(refusal.body.toString()).error.code, "request_too_large");
  });
});

test("a turn of a session goes on when its caller hangs up", async (context) => {
  const { url, app, client } = await startRestApp(context, { script });
  const leave = async (headers: Record<string, string>) => {
    const abort = new AbortController();
    const body = JSON.stringify(slow);
    const response = await fetch(url + chat, {
      method: "POST",
      headers: { ...asJson, ...headers },
      body,
      signal: abort.signal,
    });
    const reader = response.body?.getReader();
    await reader?.read();
    abort.abort();
    return response.headers.get("x-request-id") ?? "";
  };
  await leave({ "x-session-id": "kept" });
  const turn = client.generate({
    sessionId: "kept",
    messages: [{ role: "user", contentType: { case: "content", value: "hi" } }],
  });
  await turn;
  const { messages } = await client.listMessages({ sessionId: "kept" });
  assert.match(JSON.stringify(messages.map(({ contentType }) => contentType.value)), /nine ten/);
  assert.equal(app.sessions.working, 0);
});

test("a token: of either vendor's kind, on the paths of vendors only, and refused in their words", async (context) => {
  const token = "correct-horse-battery";
  const { url } = await startRestApp(context, { flags: { token } });
  const rows: [headers: Record<string, string>, status: number][] = [
    [{}, 401],
    [{ authorization: "Bearer wrong" }, 401],
    [{ "x-api-key": "wrong" }, 401],
    [{ authorization: `Bearer ${token}` }, 200],
    [{ "x-api-key": token }, 200],
    [{ "api-key": token }, 200],
  ];
  for (const [headers, status] of rows) {
    const response = await fetch(`${url}/v1/models`, { headers });
    assert.equal(response.status, status, JSON.stringify(headers));
    const body = await response.json();
    if (status === 401)
      assert.deepEqual([body.error.type, body.error.code], ["invalid_request_error", "invalid_api_key"]);
  }
  const health = await post(`${url}/grpc.health.v1.Health/Check`, {}, { "x-api-key": token });
  assert.equal(health.status, 401, "an RPC wants the bearer token");
  const anthropic = await post(`${url}/v1/messages`, {});
  assert.equal((await anthropic.json()).error.type, "authentication_error");
});

test("pages of an allowed origin may send what vendors' clients send, others nothing", async (context) => {
  const origin = "https://app.example";
  const { url } = await startRestApp(context, { flags: { allowed_origins: [origin] } });
  const preflight = (from: string, asked: string) =>
    fetch(url + chat, {
      method: "OPTIONS",
      headers: { origin: from, "access-control-request-method": "POST", "access-control-request-headers": asked },
    });
  const wanted = "authorization,content-type,x-stainless-os,openai-beta,anthropic-version,x-api-key,x-session-id";
  const allowed = await preflight(origin, `${wanted},x-made-up`);
  assert.equal(allowed.status, 204);
  assert.equal(allowed.headers.get("access-control-allow-headers"), wanted.replaceAll(",", ", "));
  assert.equal(allowed.headers.get("access-control-allow-methods"), "GET, POST, DELETE");
  const answer = await fetch(`${url}/v1/models`, { headers: { origin } });
  assert.match(answer.headers.get("access-control-expose-headers") ?? "", /x-request-id.*retry-after/);
  const other = await preflight("https://evil.example", wanted);
  assert.equal(other.status, 403);
  assert.equal((await other.json()).error.code, "permission_denied");
});

test("a stream that runs when the server stops ends with an error", async (context) => {
  const { url, app } = await startRestApp(context, { script });
  const session = http2.connect(url);
  context.after(() => session.destroy());
  const response = await post(url + chat, slow);
  const text = response.text();
  await app.close(0);
  const last = JSON.parse(dataOf(await text).at(-1) ?? "{}");
  assert.equal(last.error?.type, "server_error");
});
