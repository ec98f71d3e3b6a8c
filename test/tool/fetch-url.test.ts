import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:net";
import { describe, type TestContext, test } from "node:test";
import { brotliCompressSync, deflateSync, gzipSync } from "node:zlib";
import type { ToolResult } from "../../src/chat/tool-result.ts";
import { fetchUrl } from "../../src/tool/fetch-url.ts";
import { indexFunctions } from "../../src/tool/function-index.ts";
import { localFunctions } from "../../src/tool/local.ts";
import { type AddressPolicyOptions, addressPolicy } from "../../src/tool/net/address-policy.ts";
import { type ExchangeLimits, guardedClient } from "../../src/tool/net/guarded-client.ts";
import { guardedFetch } from "../../src/tool/net/guarded-fetch.ts";
import { runFunction } from "../../src/tool/run-function.ts";
import { makeCertificate } from "../support/certificate.ts";
import { type Answer, startService } from "./net/http-service.ts";

interface FetchOptions extends AddressPolicyOptions {
  readonly given?: Readonly<Record<string, unknown>>;
  readonly limits?: Partial<ExchangeLimits>;
  readonly signal?: AbortSignal;
}

/** Calls fetch_url as a model would; loopback is allowed unless `allow` says otherwise. */
async function fetched(url: string, options: FetchOptions = {}): Promise<ToolResult> {
  const { given = {}, limits = {}, signal = new AbortController().signal, ...policy } = options;
  const client = guardedClient(addressPolicy({ allow: ["127.0.0.0/8"], ...policy }));
  const shorter = {
    send: (request: Parameters<typeof client.send>[0]) =>
      client.send({ ...request, limits: { ...request.limits, ...limits } }),
  };
  const functions = await indexFunctions([localFunctions([fetchUrl(shorter)])]);
  const call = { name: "fetch_url", argumentsText: JSON.stringify({ url, ...given }) };
  return runFunction(functions, call, { sessionId: "s", turnId: "t", toolCallId: "c", workspace: "/srv/one", signal });
}

const answering =
  (type: string, body: string | Uint8Array, headers: Record<string, string> = {}, status = 200): Answer =>
  (_request, response) => {
    response.writeHead(status, { ...(type === "" ? {} : { "content-type": type }), ...headers }).end(body);
  };

const page = `<!doctype html><html><head><title>Trains &amp; boats</title><style>p{}</style></head><body>
<script>alert("no")</script><h1>Timetable</h1><p>See <a href="/b?x=1">the boats</a>.</p>
<ul><li>one</li><li>two</li></ul><table><tr><td>a</td><td>b</td></tr></table></body></html>`;

describe("what is read", () => {
  const rows: readonly (readonly [name: string, answer: Answer, output: RegExp])[] = [
    [
      "a page becomes text with links",
      answering("text/html; charset=utf-8", page),
      /title: Trains & boats\n\n# Timetable\n\nSee the boats \[http:\/\/127\.0\.0\.1:\d+\/b\?x=1\]\.\n\n- one\n- two\n\na +b$/,
    ],
    [
      "JSON stays as it is",
      answering("application/json", '{ "a":  1.0 }'),
      /content type: application\/json\n\n\{ "a": {2}1\.0 \}$/,
    ],
    ["a kind of JSON", answering("application/problem+json", "{}"), /\n\n\{\}$/],
    ["source code", answering("text/x-python", "print(1)\n"), /\n\nprint\(1\)\n$/],
    ["gzip", answering("text/plain", gzipSync("packed"), { "content-encoding": "gzip" }), /\n\npacked$/],
    ["br", answering("text/plain", brotliCompressSync("packed"), { "content-encoding": "br" }), /\n\npacked$/],
    ["deflate", answering("text/plain", deflateSync("packed"), { "content-encoding": "deflate" }), /\n\npacked$/],
    ["the header's encoding", answering("text/plain; charset=iso-8859-1", Buffer.from("caf\u00e9", "latin1")), /café$/],
    [
      "the page's own encoding",
      answering("text/html", Buffer.from('<meta charset="windows-1252"><p>caf\u00e9', "latin1")),
      /café$/,
    ],
    ["a byte order mark", answering("text/plain", Buffer.from("\ufeffcaf\u00e9", "utf16le")), /\n\ncafé$/],
    ["no content type", answering("", "plain"), /of no content type\n\nplain$/],
    ["nothing", answering("text/plain", ""), /\[no text\]$/],
    ["control characters are made visible", answering("text/plain", "a\u001b[31mb"), /a␛\[31mb$/],
  ];
  for (const [name, answer, output] of rows) {
    test(name, async (context) => {
      const result = await fetched((await startService(context, answer)).url);
      assert.deepEqual([result.success, result.error], [true, undefined]);
      assert.match(result.output, /^status: 200\nurl: http:\/\/127\.0\.0\.1:\d+\/\n/);
      assert.match(result.output, output);
    });
  }

  test("no more than was asked for", async (context) => {
    const { url } = await startService(context, answering("text/plain", "x".repeat(5000)));
    const result = await fetched(url, { given: { max_characters: 100 } });
    assert.match(result.output, /\n\nx{100}\n\[\.\.\. 4900 of 5000 characters left out/);
    assert.equal(result.truncated, true);
  });

  test("a page as it is", async (context) => {
    const { url } = await startService(context, answering("text/html", page));
    assert.ok((await fetched(url, { given: { format: "source" } })).output.endsWith(page));
  });
});

describe("what fails says why, and nothing of what is behind it", () => {
  const bomb = gzipSync(Buffer.alloc(64 * 1024 * 1024));
  const rows: readonly (readonly [name: string, answer: Answer, error: RegExp, limits?: Partial<ExchangeLimits>])[] = [
    [
      "an image",
      answering("image/png", "abcd", { "content-length": "4" }),
      /^the answer is image\/png, 4 bytes long; only text is shown$/,
    ],
    ["bytes without a type", answering("", Buffer.from([1, 0, 2])), /of no content type, 3 bytes long/],
    ["404", answering("text/plain", "not here", {}, 404), /answered with the status 404$/],
    ["a gzip bomb", answering("text/plain", bomb, { "content-encoding": "gzip" }), /is longer than 5242880 bytes/],
    ["broken gzip", answering("text/plain", "no gzip", { "content-encoding": "gzip" }), /not what its headers say/],
    ["an unknown encoding", answering("text/plain", "x", { "content-encoding": "gzip, gzip" }), /not asked for/],
    ["an unknown charset", answering("text/plain; charset=klingon", "x"), /unknown encoding klingon/],
    [
      "many headers",
      answering("text/plain", "x", { "x-long": "y".repeat(20_000) }),
      /more than 16384 bytes of headers/,
    ],
    ["silence", () => undefined, /did not begin to answer within 80 ms/, { idleMs: 80 }],
    [
      "silence within",
      (_, response) => void response.writeHead(200, { "content-type": "text/plain" }).write("a"),
      /fell silent for 80 ms/,
      { idleMs: 80 },
    ],
    ["an answer without end", endless, /longer than 100000 bytes/, { bodyBytes: 100_000 }],
    ["an answer that drips", dripping, /was not over within 200 ms/, { totalMs: 200, idleMs: 150 }],
    ["a connection that breaks", (_, response) => void response.destroy(), /^127\.0\.0\.1:\d+ gave no answer$/],
    ["an answer that breaks off", cut, /broke off within its answer/],
  ];
  for (const [name, answer, error, limits = {}] of rows) {
    test(name, async (context) => {
      const result = await fetched((await startService(context, answer)).url, { limits });
      assert.equal(result.success, false);
      assert.match(result.error ?? "", error);
    });
  }

  test("what is no HTTP", async (context) => {
    const { port } = await startTcp(context, "220 mail.example ESMTP\r\n");
    assert.match((await fetched(`http://127.0.0.1:${port}/`)).error ?? "", /something that is not HTTP$/);
  });

  test("a port where nobody listens and one that breaks off read the same", async (context) => {
    const { port, close } = await startTcp(context, "");
    await close();
    assert.equal((await fetched(`http://127.0.0.1:${port}/`)).error, `127.0.0.1:${port} gave no answer`);
  });

  test("a certificate of nobody", async (context) => {
    const certificate = makeCertificate();
    assert.ok(certificate !== undefined, "openssl is needed");
    const { url, seen } = await startService(context, answering("text/plain", "x"), certificate);
    assert.match((await fetched(url)).error ?? "", /certificate of 127\.0\.0\.1:\d+ is not one to be trusted/);
    assert.deepEqual(seen, []);
  });

  test("a page that keeps the parser busy leaves the server alone", async (context) => {
    const { url } = await startService(context, answering("text/html", "<div>".repeat(900_000)));
    let turns = 0;
    const timer = setInterval(() => turns++, 20);
    const stop = new AbortController();
    const ended = fetched(url, { signal: stop.signal });
    await condition(() => turns > 15);
    stop.abort(new Error("enough"));
    await assert.rejects(ended, /enough/);
    clearInterval(timer);
  });

  test("a cancelled call closes its connection", async (context) => {
    const closed = Promise.withResolvers<void>();
    const asked = Promise.withResolvers<void>();
    const { url } = await startService(context, (_, response) => {
      response.once("close", closed.resolve);
      asked.resolve();
    });
    const stop = new AbortController();
    const ended = fetched(url, { signal: stop.signal });
    await asked.promise;
    stop.abort(new Error("cancelled"));
    await assert.rejects(ended, /cancelled/);
    await closed.promise;
  });
});

describe("addresses", () => {
  test("loopback is refused unless it is allowed, and nothing arrives", async (context) => {
    const { url, host, seen } = await startService(context, answering("text/plain", "secret"));
    const result = await fetched(url, { allow: [] });
    assert.equal(result.error, "127.0.0.1 is a loopback address, which may not be reached; net.allow can name it");
    assert.deepEqual(seen, []);
    assert.match((await fetched(url, { allow: [host] })).output, /secret$/);
  });

  test("a name that answers differently the second time is asked once", async (context) => {
    const { port, seen } = await startService(context, answering("text/plain", "here"));
    let asked = 0;
    const resolve = async () => (asked++ === 0 ? ["127.0.0.1"] : ["10.0.0.1"]);
    const result = await fetched(`http://rebinding.example:${port}/`, { resolve });
    assert.match(result.output, /here$/);
    assert.deepEqual([asked, seen[0]?.headers["host"]], [1, `rebinding.example:${port}`]);
  });

  test("a name that becomes private is refused at the next request", async (context) => {
    const { port, seen } = await startService(
      context,
      (_, response) => void response.writeHead(302, { location: "/again" }).end(),
    );
    let asked = 0;
    const resolve = async () => (asked++ === 0 ? ["127.0.0.1"] : ["10.0.0.1"]);
    const result = await fetched(`http://rebinding.example:${port}/`, { resolve });
    assert.equal(
      result.error,
      "rebinding.example stands for a private address, which may not be reached; net.allow can name it",
    );
    assert.deepEqual([asked, seen.length], [2, 1]);
  });

  test("a resolver that never answers is not waited for", async () => {
    const resolve = () => new Promise<never>(() => undefined);
    const result = await fetched("http://slow.example/", { resolve, limits: { connectMs: 60 } });
    assert.match(result.error ?? "", /slow\.example did not accept a connection within 60 ms/);
  });

  test("no proxy of the environment comes between", async (context) => {
    const proxy = await startService(context, answering("text/plain", "proxied"));
    const { url } = await startService(context, answering("text/plain", "direct"));
    const before = { HTTP_PROXY: process.env["HTTP_PROXY"], NODE_USE_ENV_PROXY: process.env["NODE_USE_ENV_PROXY"] };
    Object.assign(process.env, { HTTP_PROXY: proxy.url, NODE_USE_ENV_PROXY: "1" });
    context.after(() => {
      for (const [name, value] of Object.entries(before)) {
        if (value === undefined) delete process.env[name];
        else process.env[name] = value;
      }
    });
    assert.match((await fetched(url)).output, /direct$/);
  });
});

describe("redirects", () => {
  const targets: readonly (readonly [location: string, error: RegExp])[] = [
    ["http://10.0.0.1/", /^10\.0\.0\.1 is a private address/],
    ["http://169.254.169.254/latest/", /metadata/],
    ["http://[::ffff:a9fe:a9fe]/", /metadata/],
    ["//0x0a000001/", /private/],
    ["http://user:pass@127.0.0.1/", /user or a password/],
    ["file:///etc/passwd", /file:/],
    ["http://127.0.0.1:22/", /port 22/],
    ["http://[", /redirects to something that is not a URL/],
  ];
  for (const [location, error] of targets) {
    test(`to ${location} are refused`, async (context) => {
      const { url } = await startService(context, (_, response) => void response.writeHead(302, { location }).end());
      const result = await fetched(url, { allow: ["127.0.0.1"] });
      assert.match(result.error ?? "", error);
    });
  }

  test("are followed five times", async (context) => {
    const { url, seen } = await startService(context, (request, response) => {
      const left = Number(request.target.slice(1));
      if (left === 0) response.end("there");
      else response.writeHead(302, { location: `/${left - 1}` }).end();
    });
    assert.match((await fetched(`${url}/5`)).output, /url: http:\/\/[\d.:]+\/0\n[\s\S]*there$/);
    assert.equal(seen.length, 6);
    assert.match((await fetched(`${url}/6`)).error ?? "", /more than 5 redirects/);
  });

  test("from https: to http: are refused", async (context) => {
    const certificate = makeCertificate();
    assert.ok(certificate !== undefined, "openssl is needed");
    // What is asked over TLS here is not trusted, so the rule is seen where the first hop is.
    const client = guardedClient(addressPolicy({ allow: ["127.0.0.1"] }));
    const { url } = await startService(
      context,
      (_, response) => void response.writeHead(302, { location: "http://127.0.0.1/" }).end(),
      certificate,
    );
    const signal = new AbortController().signal;
    await assert.rejects(client.send({ url, signal, trust: certificate.cert }), /from https: to http:/);
  });
});

describe("a fetch for libraries", () => {
  const guarded = guardedFetch(addressPolicy({ allow: ["127.0.0.1"] }));

  test("sends and streams", async (context) => {
    const more = Promise.withResolvers<void>();
    const { url, seen } = await startService(context, async (request, response) => {
      response.writeHead(201, { "content-type": "text/event-stream", "mcp-session-id": "7" });
      response.write(`data: ${request.body}\n\n`);
      await more.promise;
      response.end("data: end\n\n");
    });
    const response = await guarded(`${url}/mcp`, {
      method: "POST",
      body: "{}",
      headers: { "content-type": "application/json" },
    });
    assert.deepEqual([response.status, response.ok, response.url], [201, true, `${url}/mcp`]);
    assert.equal(response.headers.get("mcp-session-id"), "7");
    const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
    assert.equal((await reader?.read())?.value, "data: {}\n\n");
    more.resolve();
    assert.equal((await reader?.read())?.value, "data: end\n\n");
    assert.equal((await reader?.read())?.done, true);
    assert.deepEqual([seen[0]?.method, seen[0]?.headers["content-length"]], ["POST", "2"]);
  });

  test("cancels, aborts and has no body where there is none", async (context) => {
    const closed: Promise<unknown>[] = [];
    const { url } = await startService(context, (request, response) => {
      closed.push(once(response, "close"));
      if (request.target === "/none") response.writeHead(204).end();
      else response.writeHead(200, { "content-type": "text/plain" }).write("a");
    });
    assert.equal((await guarded(`${url}/none`)).body, null);
    const cancelled = await guarded(url);
    await cancelled.body?.cancel();
    const stop = new AbortController();
    const aborted = await guarded(url, { signal: stop.signal });
    const text = aborted.text();
    stop.abort(new Error("stopped"));
    await assert.rejects(text, /stopped/);
    await Promise.all(closed);
  });

  test("keeps credentials from other origins", async (context) => {
    const other = await startService(context, answering("text/plain", "other"));
    const first = await startService(context, (request, response) => {
      const location = request.target === "/same" ? "/end" : `${other.url}/end`;
      response.writeHead(request.target === "/end" ? 200 : 307, { location }).end();
    });
    const headers = { authorization: "Bearer abc", "x-api-key": "k", cookie: "c=1", accept: "text/plain" };
    await (await guarded(first.url, { headers })).text();
    const { authorization, "x-api-key": key, cookie, accept } = other.seen[0]?.headers ?? {};
    assert.deepEqual([authorization, key, cookie, accept], [undefined, undefined, undefined, "text/plain"]);
    await (await guarded(`${first.url}/same`, { headers })).text();
    assert.equal(first.seen.at(-1)?.headers["x-api-key"], "k");
    // What is sent is not sent on to others.
    await assert.rejects(guarded(first.url, { method: "POST", body: "{}", headers }), /redirects a POST to elsewhere/);
    await (await guarded(`${first.url}/same`, { method: "POST", body: "{}", headers })).text();
    assert.deepEqual([first.seen.at(-1)?.method, first.seen.at(-1)?.body], ["POST", "{}"]);
    assert.equal((await guarded(first.url, { redirect: "manual" })).status, 307);
    await assert.rejects(guarded(first.url, { redirect: "error" }), TypeError);
  });

  test("refuses like the policy", async () => {
    await assert.rejects(guarded("http://10.0.0.1/"), /private address/);
  });
});

function endless(_request: unknown, response: Parameters<Answer>[1]): void {
  response.writeHead(200, { "content-type": "text/plain" });
  const more = () => {
    while (response.write("x".repeat(10_000)));
  };
  response.on("drain", more);
  more();
}

function dripping(_request: unknown, response: Parameters<Answer>[1]): void {
  response.writeHead(200, { "content-type": "text/plain" });
  const timer = setInterval(() => response.write("x"), 20);
  response.once("close", () => clearInterval(timer));
}

function cut(_request: unknown, response: Parameters<Answer>[1]): void {
  response.writeHead(200, { "content-type": "text/plain", "content-length": "100" });
  response.write("x".repeat(10), () => response.destroy());
}

async function startTcp(context: TestContext, greeting: string) {
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.resume().end(greeting);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const close = async () => {
    if (server.listening) await Promise.all([once(server, "close"), server.close()]);
  };
  context.after(close);
  const address = server.address();
  return { port: typeof address === "object" && address !== null ? address.port : 0, close };
}

async function condition(holds: () => boolean): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const limit = setTimeout(() => reject(new Error("did not come")), 10_000);
  const timer = setInterval(() => holds() && resolve(), 5);
  await promise.finally(() => {
    clearTimeout(limit);
    clearInterval(timer);
  });
}
