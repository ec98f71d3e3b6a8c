import assert from "node:assert/strict";
import { once } from "node:events";
import net, { type AddressInfo } from "node:net";
import { describe, test } from "node:test";
import {
  type Answer,
  agentError,
  ask,
  chunk,
  eventStream,
  hello,
  helloText,
  jsonAnswer,
  key,
  startUpstream,
  textOfEvents,
} from "./upstream.ts";

const limit = { timeout: 20_000 };
const status = (code: number, message = "no"): Answer => jsonAnswer(code, { error: { message } });

/** Resolves when a connection is closed, by an end or by a reset: `once` would take the latter for a failure. */
const closing = (socket: net.Socket) => new Promise<void>((resolve) => socket.once("close", () => resolve()));

describe("asking a provider", limit, () => {
  test("one request with the key and the model's own name, its answer as events", async (context) => {
    const upstream = await startUpstream(context, [hello]);
    const { events, error } = await ask(`${upstream.url}/`);
    assert.equal(error, undefined);
    assert.equal(textOfEvents(events), "Hello");
    assert.deepEqual(events.at(-1), { type: "finish", finishReason: "stop", rawFinishReason: "stop" });
    const [request] = upstream.requests;
    assert.equal(request?.url, "/v1/chat/completions");
    assert.equal(request?.headers.authorization, `Bearer ${key}`);
    assert.equal(request?.headers["accept-encoding"], "identity");
    assert.equal(JSON.parse(request?.body ?? "").model, "some/model");
  });

  test("a JSON body after blank lines is read whole", async (context) => {
    const body = JSON.stringify({ id: "1", choices: [{ message: { content: "Hello" }, finish_reason: "stop" }] });
    const upstream = await startUpstream(context, [
      (_, response) => {
        response.writeHead(200, { "content-type": "application/json", "x-request-id": "req-1" });
        response.write("\n");
        setImmediate(() => response.end(`\n   \n${body}`));
      },
    ]);
    const { events } = await ask(upstream.url);
    assert.equal(textOfEvents(events), "Hello");
    assert.deepEqual(events[0], { type: "response", id: "1", upstreamRequestId: "req-1" });
  });

  test("connections are kept for the next call, also when the body goes on after its last event", async (context) => {
    const upstream = await startUpstream(context, [
      (_, response) => {
        response.writeHead(200, eventStream).write(helloText);
        setTimeout(() => response.end(": bye\n\n"), 20);
      },
      hello,
    ]);
    const { createProviderRegistry } = await import("../../src/provider/registry.ts");
    const registry = createProviderRegistry({ env: { FORWARD_BASE_URL: upstream.url } });
    context.after(() => registry.close());
    const { signal } = new AbortController();
    for (let call = 0; call < 2; call++) {
      const hi = { role: "user", blocks: [{ type: "text", text: "hi" }] } as const;
      const request = { model: "", messages: [hi], tools: [], options: {} };
      for await (const _ of registry.streamChat(registry.resolve("forward/m"), request, { signal }));
      await new Promise((resolve) => setTimeout(resolve, 60));
    }
    assert.equal(upstream.requests.length, 2);
    assert.equal(upstream.connections(), 1);
  });
});

describe("errors of a provider", limit, () => {
  const cases: readonly {
    name: string;
    answers: Answer[];
    kind: string;
    says: RegExp;
    detail?: object;
    waits?: number[];
    retryAfterMs?: number;
  }[] = [
    {
      name: "401",
      answers: [status(401)],
      kind: "provider_auth",
      says: /forward answered HTTP 401: no/,
      detail: { retryable: false, upstreamStatus: 401 },
    },
    { name: "403", answers: [status(403)], kind: "provider_auth", says: /403/ },
    { name: "404", answers: [status(404)], kind: "provider_not_found", says: /404/ },
    { name: "400", answers: [status(400)], kind: "provider_rejected", says: /400/ },
    {
      name: "422",
      answers: [jsonAnswer(422, { detail: [{ msg: "bad field" }] })],
      kind: "provider_rejected",
      says: /bad field/,
    },
    {
      name: "400 of a long context",
      answers: [status(400, "This model's maximum context length is 10 tokens")],
      kind: "context_length",
      says: /10 tokens/,
    },
    {
      name: "400 with a code for a long context",
      answers: [jsonAnswer(400, { error: { message: "no", code: "context_length_exceeded" } })],
      kind: "context_length",
      says: /no/,
    },
    {
      name: "429 with retry-after, three times",
      answers: [1, 2, 3].map((seconds) =>
        jsonAnswer(429, { error: { message: "slow" } }, { "retry-after": String(seconds), "x-request-id": "req-7" }),
      ),
      kind: "rate_limited",
      says: /slow/,
      detail: { retryable: true, upstreamStatus: 429, upstreamRequestId: "req-7", provider: "forward" },
      waits: [1000, 2000],
      retryAfterMs: 3000,
    },
    {
      name: "429 without retry-after",
      answers: [429, 429, 429].map((code) => status(code)),
      kind: "rate_limited",
      says: /429/,
      waits: [500, 1000],
      retryAfterMs: 2000,
    },
    {
      name: "429 that asks to wait for a day",
      answers: [jsonAnswer(429, {}, { "retry-after": "86400" })],
      kind: "rate_limited",
      says: /429/,
      waits: [],
      retryAfterMs: 86_400_000,
    },
    {
      name: "429 of an empty account",
      answers: [jsonAnswer(429, { error: { message: "pay", code: "insufficient_quota" } })],
      kind: "rate_limited",
      says: /pay/,
      detail: { retryable: false },
      waits: [],
    },
    {
      name: "503 with a date",
      answers: [jsonAnswer(503, {}, { "retry-after": "Thu, 01 Jan 2026 00:00:07 GMT" }), status(401)],
      kind: "provider_auth",
      says: /401/,
      waits: [7000],
    },
    {
      name: "milliseconds",
      answers: [jsonAnswer(503, {}, { "retry-after-ms": "1500" }), status(401)],
      kind: "provider_auth",
      says: /401/,
      waits: [1500],
    },
    {
      name: "500 three times",
      answers: [500, 502, 529].map((code) => status(code)),
      kind: "provider_unavailable",
      says: /529/,
      waits: [500, 1000],
    },
    {
      name: "503 that is not to be asked again",
      answers: [jsonAnswer(503, {}, { "x-should-retry": "false" })],
      kind: "provider_unavailable",
      says: /503/,
      waits: [],
    },
    {
      name: "a redirect",
      answers: [(_, response) => response.writeHead(307, { location: "http://127.0.0.1:1/" }).end()],
      kind: "provider_protocol",
      says: /redirect/,
      detail: { upstreamStatus: 307 },
    },
    {
      name: "a page instead of an answer",
      answers: [(_, response) => response.writeHead(200, { "content-type": "text/html" }).end("<html>login</html>")],
      kind: "provider_protocol",
      says: /text\/html/,
    },
    {
      name: "a page with an error",
      answers: [(_, response) => response.writeHead(404, { "content-type": "text/html" }).end("<html>x</html>")],
      kind: "provider_not_found",
      says: /page of text\/html/,
    },
    {
      name: "words instead of an answer",
      answers: [(_, response) => response.writeHead(200, eventStream).end("hello")],
      kind: "provider_protocol",
      says: /hello/,
    },
    {
      name: "half a JSON",
      answers: [(_, response) => response.writeHead(200).end('{"choices":')],
      kind: "provider_protocol",
      says: /no JSON/,
    },
    {
      name: "nothing",
      answers: [(_, response) => response.writeHead(200, eventStream).end()],
      kind: "provider_unavailable",
      says: /empty/,
    },
    {
      name: "an encoding nobody asked for",
      answers: [(_, response) => response.writeHead(200, { "content-encoding": "gzip" }).end("x")],
      kind: "provider_protocol",
      says: /gzip/,
    },
    {
      name: "an error in a 200",
      answers: [jsonAnswer(200, { error: { code: 502, message: "gone" } })],
      kind: "provider_unavailable",
      says: /gone/,
      detail: { upstreamStatus: 502 },
    },
    {
      name: "the key in its words",
      answers: [jsonAnswer(401, { error: { message: `bad key ${key}!` } }, { "x-request-id": `r-${key}` })],
      kind: "provider_auth",
      says: /bad key \*\*\*!/,
      detail: { upstreamRequestId: "r-***" },
    },
    {
      name: "the key in a stream",
      answers: [(_, response) => response.writeHead(200, eventStream).end(`data: {"error":{"message":"${key}"}}\n\n`)],
      kind: "provider_unavailable",
      says: /reports: \*\*\*$/,
    },
    {
      name: "a long story",
      answers: [status(400, "ü".repeat(10_000))],
      kind: "provider_rejected",
      says: /^.{1000,1040}…$/,
    },
  ];
  for (const { name, answers, kind, says, detail, waits, retryAfterMs } of cases) {
    test(`${name}: ${kind}`, async (context) => {
      const upstream = await startUpstream(context, answers);
      const asked = await ask(upstream.url);
      const error = agentError(asked.error);
      assert.equal(error.kind, kind, error.message);
      assert.match(error.message, says);
      assert.ok(Buffer.byteLength(error.message) <= 2048);
      assert.doesNotMatch(
        JSON.stringify([error.message, error.detail, String(error.stack), String(error.cause)]),
        new RegExp(key),
      );
      assert.deepEqual({ ...error.detail, ...detail }, error.detail);
      assert.equal(error.detail.provider, "forward");
      assert.equal(upstream.requests.length, answers.length);
      if (waits !== undefined) assert.deepEqual(asked.waits, waits);
      assert.equal(error.retryAfterMs, retryAfterMs);
    });
  }

  test("500 twice, then an answer", async (context) => {
    const upstream = await startUpstream(context, [status(500), status(500), hello]);
    const { events, error, waits } = await ask(upstream.url);
    assert.equal(error, undefined);
    assert.equal(textOfEvents(events), "Hello");
    assert.deepEqual(waits, [500, 1000]);
  });

  test("the login of a base URL is used and never told", async (context) => {
    const upstream = await startUpstream(context, [
      jsonAnswer(401, { error: { message: "not pass-word, YWRhOnBhc3Mtd29yZA==" } }),
    ]);
    const baseUrl = upstream.url.replace("//", "//ada:pass-word@");
    const { error } = await ask(baseUrl, { env: { FORWARD_BASE_URL: baseUrl } });
    assert.equal(upstream.requests[0]?.headers.authorization, "Basic YWRhOnBhc3Mtd29yZA==");
    assert.equal(agentError(error).message, "forward answered HTTP 401: not ***, *** (check FORWARD_API_KEY)");
  });
});

describe("faults of the connection", limit, () => {
  test("nobody listens: three tries, then unavailable", async () => {
    const server = net.createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    server.close();
    await once(server, "close");
    const { error, waits } = await ask(`http://127.0.0.1:${port}`);
    assert.equal(agentError(error).kind, "provider_unavailable");
    assert.match(agentError(error).message, /forward at 127\.0\.0\.1:\d+ cannot be reached \(ECONNREFUSED\)/);
    assert.deepEqual(waits, [500, 1000]);
  });

  test("a connection closed before the answer is tried again", async (context) => {
    const upstream = await startUpstream(context, [(request) => request.socket.destroy(), hello]);
    const { events, waits } = await ask(upstream.url);
    assert.equal(textOfEvents(events), "Hello");
    assert.deepEqual(waits, [500]);
  });

  test("something that is not HTTP", async (context) => {
    const server = net.createServer((socket) => socket.end("SSH-2.0-x\r\n")).listen(0, "127.0.0.1");
    context.after(() => server.close());
    await once(server, "listening");
    const { error, waits } = await ask(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    assert.equal(agentError(error).kind, "provider_protocol");
    assert.deepEqual(waits, []);
  });

  const lines = helloText
    .split("\n\n")
    .slice(0, 2)
    .map((event) => `${event}\n\n`);
  const cuts = [
    ["after the head", ""],
    ["after one event", lines[0] ?? ""],
    ["after two events", lines.join("")],
    ["in the middle of a line", `${lines[0]}${lines[1]?.slice(0, 20)}`],
  ] as const;
  for (const [where, sent] of cuts) {
    for (const how of ["destroyed", "ended"] as const) {
      test(`a stream ${how} ${where} is unavailable, after what it said, and not asked again`, async (context) => {
        const upstream = await startUpstream(context, [
          (request, response) => {
            response.writeHead(200, eventStream).flushHeaders();
            if (how === "ended") response.end(sent);
            else if (sent === "") setTimeout(() => request.socket.destroy(), 20);
            else response.write(sent, () => setTimeout(() => request.socket.destroy(), 20));
          },
        ]);
        const { events, error } = await ask(upstream.url);
        assert.equal(agentError(error).kind, "provider_unavailable");
        assert.equal(agentError(error).detail.retryable, true);
        assert.equal(textOfEvents(events), where === "after two events" ? "Hello" : sent === "" ? "" : "Hel");
        assert.equal(upstream.requests.length, 1);
      });
    }
  }

  const silent: Answer = () => undefined;
  const silentBody: Answer = (_, response) => response.writeHead(200, eventStream).write(chunk({ content: "Hel" }));
  const dripping: Answer = (_, response) => {
    response.writeHead(200, eventStream);
    const timer = setInterval(() => response.write(": wait\n\n"), 5);
    response.on("close", () => clearInterval(timer));
  };
  for (const [name, answer, timeouts, says] of [
    ["no head", silent, { idleMs: 50 }, /did not begin to answer within 50 ms/],
    ["a body that stalls", silentBody, { idleMs: 50 }, /sent nothing for 50 ms/],
    ["a body of comments without end", dripping, { totalMs: 100 }, /did not end within 100 ms/],
  ] as const) {
    test(`${name}: unavailable after its limit, and the connection is closed`, async (context) => {
      let closed: Promise<unknown> | undefined;
      const upstream = await startUpstream(context, [
        (request, response, body) => {
          closed = closing(request.socket);
          answer(request, response, body);
        },
      ]);
      const { error } = await ask(upstream.url, { timeouts });
      assert.equal(agentError(error).kind, "provider_unavailable");
      assert.match(agentError(error).message, says);
      assert.ok(closed);
      await closed;
    });
  }

  for (const [name, answer] of [
    ["before the head", silent],
    ["in the middle of the body", silentBody],
  ] as const) {
    test(`an abort ${name} throws its reason and closes the connection at once`, async (context) => {
      const abort = new AbortController();
      const reason = new Error("enough");
      let closed: Promise<unknown> | undefined;
      const upstream = await startUpstream(context, [
        (request, response, body) => {
          closed = closing(request.socket);
          answer(request, response, body);
          if (name === "before the head") abort.abort(reason);
        },
      ]);
      const { error } = await ask(upstream.url, { signal: abort.signal, onEvents: () => abort.abort(reason) });
      assert.equal(error, reason);
      assert.ok(closed);
      await closed;
    });
  }

  test("an abort while waiting for the next try throws its reason", async (context) => {
    const abort = new AbortController();
    const upstream = await startUpstream(context, [status(500)]);
    const { error } = await ask(upstream.url, {
      signal: abort.signal,
      delay: async (_, signal) => {
        abort.abort(new Error("enough"));
        signal.throwIfAborted();
      },
    });
    assert.equal(error, abort.signal.reason);
  });

  test("a reader that leaves closes the connection", async (context) => {
    let closed: Promise<unknown> | undefined;
    const upstream = await startUpstream(context, [
      (request, response, body) => {
        closed = closing(request.socket);
        silentBody(request, response, body);
      },
    ]);
    const stop = new Error("leave");
    const { error } = await ask(upstream.url, {
      onEvents: () => {
        throw stop;
      },
    });
    assert.equal(error, stop);
    await closed;
  });

  const flood =
    (head: string, piece: Buffer, pieces: number): Answer =>
    (_, response) => {
      response.writeHead(200, eventStream).write(head);
      let sent = 0;
      const more = () => {
        while (sent++ < pieces) if (!response.write(piece)) return void response.once("drain", more);
        response.end();
      };
      more();
    };
  for (const [name, answer] of [
    ["a line of 128 MiB", flood("data: ", Buffer.alloc(1 << 20, "x"), 128)],
    ["128 MiB of short events", flood("", Buffer.from(chunk({}).repeat(4096)), 256)],
    ["a JSON body of 128 MiB", flood('{"a":"', Buffer.alloc(1 << 20, "x"), 128)],
  ] as const) {
    test(`${name} is refused with bounded memory`, async (context) => {
      const upstream = await startUpstream(context, [answer]);
      const before = process.memoryUsage().rss;
      const { error } = await ask(upstream.url);
      assert.equal(agentError(error).kind, "provider_protocol");
      assert.match(agentError(error).message, /longer than \d+/);
      assert.ok(process.memoryUsage().rss - before < 100 * 1024 * 1024);
    });
  }
});
