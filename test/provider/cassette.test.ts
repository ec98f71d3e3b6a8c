import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import fc from "fast-check";
import type { ChatEvent } from "../../src/chat/event.ts";
import type { Message } from "../../src/chat/message.ts";
import { anthropic } from "../../src/provider/anthropic.ts";
import { endpointOf, isConfigured } from "../../src/provider/endpoint.ts";
import { forward } from "../../src/provider/forward.ts";
import { createHttpSender, type HttpRequest, type SendHttp } from "../../src/provider/http-request.ts";
import type { ProviderSpec } from "../../src/provider/provider-spec.ts";
import { recordExchanges } from "../../src/provider/record-exchanges.ts";
import { createProviderRegistry } from "../../src/provider/registry.ts";
import { replayExchanges } from "../../src/provider/replay-exchanges.ts";
import { defaultTimeouts, streamChat } from "../../src/provider/stream-chat.ts";
import {
  type Answer,
  agentError,
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
const now = () => Date.UTC(2026, 0, 1);

interface Asking {
  readonly spec?: ProviderSpec;
  /** Absent in a replay, which needs neither key nor address. */
  readonly baseUrl?: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** Several with commas between. */
  readonly apiKey?: string;
  readonly text?: string;
  readonly messages?: readonly Message[];
  readonly signal?: AbortSignal;
  readonly onEvents?: () => void;
}

interface Heard {
  readonly events: ChatEvent[];
  readonly error: unknown;
}

/** One model call as a session makes it. */
async function ask(send: SendHttp, asking: Asking = {}): Promise<Heard> {
  const { spec = forward, baseUrl, headers, apiKey = key, text = "hi" } = asking;
  const endpoint = endpointOf(
    spec,
    baseUrl === undefined ? {} : { baseUrl, apiKey, ...(headers === undefined ? {} : { headers }) },
    { env: { FORWARD_API_KEY: "key-3333,key-4444" }, send, now, replayed: baseUrl === undefined },
  );
  assert.ok(isConfigured(endpoint));
  const events: ChatEvent[] = [];
  const messages = asking.messages ?? [{ role: "user", blocks: [{ type: "text", text }] }];
  const request = { model: "m-1", messages, tools: [], options: {} };
  const signal = asking.signal ?? new AbortController().signal;
  let ids = 0;
  try {
    for await (const some of streamChat(endpoint, request, signal, defaultTimeouts, {
      delay: async () => undefined,
      random: () => 1,
      now,
      createToolCallId: () => `call_${String(++ids).padStart(32, "0")}`,
    })) {
      events.push(...some);
      asking.onEvents?.();
    }
    return { events, error: undefined };
  } catch (error) {
    return { events, error };
  }
}

/** What of a call has to be the same when it is replayed. */
function told({ events, error }: Heard) {
  if (error === undefined) return { events };
  const { kind, message, reason, detail } = agentError(error);
  return { events, error: { kind, message, reason, detail } };
}

function folder(context: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "cassettes-"));
  context.after(() => rmSync(path, { recursive: true, force: true }));
  return join(path, "made/for this");
}

/** Records over HTTP; whatever can't be recorded fails the test unless it collects the reports. */
function recorder(context: TestContext, directory: string, reports?: string[]): SendHttp {
  const http = createHttpSender();
  context.after(() => http.close());
  return recordExchanges(http.send, directory, {
    report(message, error) {
      if (reports === undefined) throw new Error(message, { cause: error });
      reports.push(message);
    },
  });
}

function files(directory: string): { name: string; text: string; value: Record<string, unknown> }[] {
  return readdirSync(directory)
    .sort()
    .map((name) => {
      const text = readFileSync(join(directory, name), "utf8");
      return { name, text, value: JSON.parse(text) };
    });
}

function rawRequest(body: string, given: Partial<HttpRequest> = {}): HttpRequest {
  return {
    provider: "forward",
    url: new URL("http://127.0.0.1:9/v1/chat/completions"),
    headers: {},
    body,
    signal: new AbortController().signal,
    connectTimeoutMs: 1000,
    headTimeoutMs: 1000,
    ...given,
  };
}

/** A sender without a network. */
function answering(pieces: readonly Uint8Array[], headers: Readonly<Record<string, string>> = eventStream): SendHttp {
  return async () => ({
    status: 200,
    headers,
    body: (async function* () {
      yield* pieces;
    })(),
    close() {},
  });
}

async function readPieces(send: SendHttp, request: HttpRequest): Promise<Buffer[]> {
  const response = await send(request);
  const pieces: Buffer[] = [];
  for await (const piece of response.body) pieces.push(Buffer.from(piece));
  response.close("read");
  return pieces;
}

const failOnReport = {
  report(message: string, error?: unknown) {
    throw new Error(message, { cause: error });
  },
};

const anthropicHello = [
  { type: "message_start", message: { id: "msg_1", model: "m-1", usage: { input_tokens: 1, output_tokens: 1 } } },
  { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
  { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "Grüß dich 🎈" } },
  { type: "content_block_stop", index: 0 },
  { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 3 } },
  { type: "message_stop" },
]
  .map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`)
  .join("");

describe("what was recorded is replayed as it was", limit, () => {
  const cases: readonly {
    name: string;
    answers: Answer[];
    spec?: ProviderSpec;
    says?: string;
    fails?: string;
    ended?: readonly string[];
  }[] = [
    { name: "a stream", answers: [hello], says: "Hello" },
    {
      name: "a stream of Anthropic's, cut inside a character",
      spec: anthropic,
      answers: [
        (_, response) => {
          const bytes = Buffer.from(anthropicHello);
          const middle = bytes.indexOf("ü") + 1;
          response.writeHead(200, { ...eventStream, "request-id": "req_7" }).write(bytes.subarray(0, middle));
          setImmediate(() => response.end(bytes.subarray(middle)));
        },
      ],
      says: "Grüß dich 🎈",
    },
    {
      name: "a body of JSON with white space",
      answers: [
        (_, response) =>
          response
            .writeHead(200, { "content-type": "application/json" })
            .end(
              JSON.stringify({ id: "1", choices: [{ message: { content: "Hello" }, finish_reason: "stop" }] }, null, 1),
            ),
      ],
      says: "Hello",
    },
    {
      name: "tool calls whose ids are our own",
      answers: [
        (_, response) => {
          const call = { index: 0, function: { name: "look", arguments: "{}" } };
          response.writeHead(200, eventStream).end(`${chunk({ tool_calls: [call] })}${chunk({}, "tool_calls")}`);
        },
      ],
      says: "",
    },
    {
      name: "429, then an answer",
      answers: [jsonAnswer(429, { error: { message: "slow" } }, { "retry-after": "7" }), hello],
      says: "Hello",
      ended: ["complete", "complete"],
    },
    {
      name: "an error with the words of its body",
      answers: [jsonAnswer(400, { error: { message: "no such field", code: "bad" } }, { "x-request-id": "req-1" })],
      fails: "provider_rejected",
    },
    {
      name: "a body that is no UTF-8",
      answers: [(_, response) => response.writeHead(400).end(Buffer.from([0x80, 0xff, 0x22]))],
      fails: "provider_rejected",
    },
    {
      name: "an error with an empty body",
      answers: [500, 500, 500].map<Answer>((status) => (_, response) => response.writeHead(status).end()),
      fails: "provider_unavailable",
      ended: ["complete", "complete", "complete"],
    },
    {
      name: "a redirect, whose body nobody reads",
      answers: [(_, response) => response.writeHead(302, { location: "http://x.invalid/" }).end("elsewhere")],
      fails: "provider_protocol",
      ended: ["left"],
    },
    {
      name: "a connection that broke in the middle",
      answers: [
        (_, response) => {
          response.writeHead(200, eventStream).write(chunk({ content: "Hel" }));
          setTimeout(() => response.destroy(), 20);
        },
      ],
      says: "Hel",
      fails: "provider_unavailable",
      ended: ["cut"],
    },
    {
      name: "no answer at all",
      answers: [0, 1, 2].map<Answer>(() => (request) => request.socket.destroy()),
      fails: "provider_unavailable",
      ended: ["unanswered", "unanswered", "unanswered"],
    },
    {
      name: "something that is not HTTP",
      answers: [(request) => request.socket.end("SSH-2.0\r\n\r\n")],
      fails: "provider_protocol",
      ended: ["unanswered"],
    },
    {
      name: "a stream that can't be read",
      answers: [(_, response) => response.writeHead(200, eventStream).end("data: {nonsense\n\ndata: more\n\n")],
      fails: "provider_protocol",
      ended: ["left"],
    },
  ];
  for (const { name, answers, spec = forward, says, fails, ended = ["complete"] } of cases) {
    test(name, async (context) => {
      const upstream = await startUpstream(context, answers);
      const directory = folder(context);
      const baseUrl = spec === anthropic ? upstream.url.replace("/v1", "") : upstream.url;
      const recorded = await ask(recorder(context, directory), { spec, baseUrl });
      assert.equal(upstream.requests.length, answers.length);
      if (fails === undefined) assert.equal(recorded.error, undefined);
      else assert.equal(agentError(recorded.error).kind, fails);
      if (says !== undefined) assert.equal(textOfEvents(recorded.events), says);
      const values = files(directory).map(({ value }) => value);
      assert.deepEqual(
        values.map((value) => value["ended"]),
        ended,
      );

      const replayed = await ask(replayExchanges(directory), { spec });
      assert.equal(upstream.requests.length, answers.length);
      assert.deepEqual(told(replayed), told(recorded));
    });
  }

  const refused = jsonAnswer(401, { error: { message: "no such key" } });
  const limited = (seconds: string) => jsonAnswer(429, { error: { message: "slow" } }, { "retry-after": seconds });
  const severalKeys: readonly { name: string; answers: readonly Answer[]; keyChanges: readonly number[] }[] = [
    { name: "the second key is let in", answers: [refused, hello], keyChanges: [0, 1] },
    { name: "none is let in", answers: [refused, refused], keyChanges: [0, 1] },
    {
      name: "both are limited, and one is waited for",
      answers: [limited("9"), limited("2"), limited("9"), hello],
      keyChanges: [0, 1, 1, 1],
    },
    { name: "both are limited for long", answers: [limited("900"), limited("800")], keyChanges: [0, 1] },
  ];
  for (const { name, answers, keyChanges } of severalKeys) {
    test(`of several keys: ${name}`, async (context) => {
      const upstream = await startUpstream(context, answers);
      const directory = folder(context);
      const asking = { baseUrl: upstream.url, apiKey: "key-1111,key-2222" };
      const recorded = await ask(recorder(context, directory), asking);
      assert.equal(upstream.requests.length, answers.length);
      assert.deepEqual(
        files(directory).map(({ value }) => value["keyChanges"] ?? 0),
        keyChanges,
      );
      const replay = replayExchanges(directory);
      assert.deepEqual(told(await ask(replay)), told(recorded));
      assert.match(agentError((await ask(replay)).error).message, /each recording answers once/);
    });
  }

  test("a call that failed for its key and one after it stay two", async (context) => {
    const upstream = await startUpstream(context, [refused, hello]);
    const directory = folder(context);
    const send = recorder(context, directory);
    const recorded = [await ask(send, { baseUrl: upstream.url }), await ask(send, { baseUrl: upstream.url })];
    const replay = replayExchanges(directory);
    assert.deepEqual([await ask(replay), await ask(replay)].map(told), recorded.map(told));
  });

  test("the list of models, when a provider is only asked for that", async (context) => {
    const upstream = await startUpstream(context, [jsonAnswer(200, { data: [{ id: "one" }], mine: key })]);
    const directory = folder(context);
    const registry = createProviderRegistry({
      env: { FORWARD_BASE_URL: upstream.url, FORWARD_API_KEY: key },
      settings: { record: { directory, report: failOnReport.report } },
    });
    context.after(() => registry.close());
    const options = { signal: new AbortController().signal, timeoutMs: 5000 };
    assert.equal((await registry.validate("forward", "", options)).state, "ok");
    const [file] = files(directory);
    assert.match(file?.name ?? "", /^0001-forward-models-/);
    assert.deepEqual(file?.value["response"], { data: [{ id: "one" }], mine: "[hidden]" });
  });

  test("in the pieces it came in, and each piece is passed on before the next one is there", async (context) => {
    const directory = folder(context);
    const pieces = [helloText.slice(0, 5), helloText.slice(5, 6), helloText.slice(6)].map((text) => Buffer.from(text));
    const gates = pieces.map(() => Promise.withResolvers<void>());
    const send: SendHttp = async () => ({
      status: 200,
      headers: eventStream,
      body: (async function* () {
        for (const [index, piece] of pieces.entries()) {
          await gates[index]?.promise;
          yield piece;
        }
      })(),
      close() {},
    });
    const response = await recordExchanges(send, directory, failOnReport)(rawRequest("{}"));
    const heard: Buffer[] = [];
    gates[0]?.resolve();
    for await (const piece of response.body) {
      heard.push(Buffer.from(piece));
      assert.deepEqual(readdirSync(directory), [], "nothing is written while the answer goes on");
      gates[heard.length]?.resolve();
    }
    assert.deepEqual(heard, pieces);
    assert.deepEqual(await readPieces(replayExchanges(directory), rawRequest("{}")), pieces);

    const abort = new AbortController();
    const replayed = await replayExchanges(directory)(rawRequest("{}", { signal: abort.signal }));
    await assert.rejects(async () => {
      for await (const piece of replayed.body) {
        assert.deepEqual(Buffer.from(piece), pieces[0], "nothing comes after an abort");
        abort.abort(new Error("gone"));
      }
    }, /^Error: gone$/);
  });

  test("bytes of any kind come back", async (context) => {
    const anyPieces = fc.array(fc.uint8Array({ maxLength: 20 }), { maxLength: 5 });
    const contentType = fc.constantFrom("text/event-stream", "application/json", "text/html");
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(
          anyPieces,
          fc.jsonValue().map((value) => [Buffer.from(JSON.stringify(value, null, 1))]),
        ),
        contentType,
        async (bytes, type) => {
          const directory = folder(context);
          const pieces = bytes.map((piece) => Buffer.from(piece));
          await readPieces(
            recordExchanges(answering(pieces, { "content-type": type }), directory, failOnReport),
            rawRequest("{}"),
          );
          const replayed = await readPieces(replayExchanges(directory), rawRequest("{}"));
          assert.deepEqual(
            replayed,
            pieces.filter((piece) => piece.length > 0),
          );
        },
      ),
      { numRuns: 60 },
    );
  });

  test("concurrent calls each get their own answer, in whatever order they ask", async (context) => {
    const texts = ["one", "two", "three", "four", "five"];
    const echo: Answer = (_, response, body) => {
      const text = JSON.parse(body).messages[0].content;
      // The first to ask is the last to be answered.
      setTimeout(
        () => response.writeHead(200, eventStream).end(`${chunk({ content: text })}${chunk({}, "stop")}`),
        (texts.length - texts.indexOf(text)) * 5,
      );
    };
    const upstream = await startUpstream(
      context,
      texts.map(() => echo),
    );
    const directory = folder(context);
    const send = recorder(context, directory);
    await Promise.all(texts.map((text) => ask(send, { baseUrl: upstream.url, text })));
    const asked = files(directory).map(({ value }) => JSON.stringify(value["request"]));
    for (const [index, text] of texts.entries()) assert.match(asked[index] ?? "", new RegExp(`"${text}"`));

    const replay = replayExchanges(directory);
    const replayed = await Promise.all(texts.toReversed().map((text) => ask(replay, { text })));
    assert.deepEqual(
      replayed.map(({ events }) => textOfEvents(events)),
      texts.toReversed(),
    );
  });

  test("a call that its client aborts ends where it was aborted", async (context) => {
    const upstream = await startUpstream(context, [
      (_, response) => response.writeHead(200, eventStream).write(chunk({ content: "Hel" })),
      // Never answers.
      () => {},
    ]);
    const directory = folder(context);
    const send = recorder(context, directory);
    const abortAtText = async (through: SendHttp, baseUrl?: string) => {
      const abort = new AbortController();
      const asking = { signal: abort.signal, onEvents: () => abort.abort(new Error("enough")) };
      return ask(through, baseUrl === undefined ? asking : { ...asking, baseUrl });
    };
    const abortAtOnce = async (through: SendHttp, baseUrl?: string) => {
      const abort = new AbortController();
      const asking = { signal: abort.signal, text: "second" };
      const asked = ask(through, baseUrl === undefined ? asking : { ...asking, baseUrl });
      if (baseUrl !== undefined) while (upstream.requests.length < 2) await new Promise(setImmediate);
      abort.abort(new Error("never mind"));
      return asked;
    };
    const recorded = [await abortAtText(send, upstream.url), await abortAtOnce(send, upstream.url)];
    assert.deepEqual(
      recorded.map(({ error }) => error),
      [new Error("enough"), new Error("never mind")],
    );
    const values = files(directory).map(({ value }) => value);
    assert.deepEqual(
      values.map(({ ended, status }) => [ended, status]),
      [
        ["left", 200],
        ["left", undefined],
      ],
    );
    const replay = replayExchanges(directory, { leaveTimeoutMs: 10_000 });
    assert.deepEqual([await abortAtText(replay), await abortAtOnce(replay)], recorded);

    const aborted = new AbortController();
    const response = await replayExchanges(directory)(
      rawRequest(upstream.requests[0]?.body ?? "", { signal: aborted.signal }),
    );
    await assert.rejects(async () => {
      for await (const _ of response.body) setTimeout(() => aborted.abort(new Error("gone")), 5);
    }, /^Error: gone$/);

    const impatient = replayExchanges(directory, { leaveTimeoutMs: 5 });
    for (const text of ["hi", "second"]) {
      const error = agentError((await ask(impatient, { text })).error);
      assert.equal(error.kind, "failed_precondition");
      assert.equal(error.reason, "CASSETTE_ENDED");
      assert.match(error.message, /000[12]-forward-completions-.*ends where its client left/);
    }
  });
});

describe("files", limit, () => {
  test("sort in the order of asking, belong to their owner, and go on after those that are there", async (context) => {
    const upstream = await startUpstream(context, [hello, hello, hello]);
    const directory = folder(context);
    const first = recorder(context, directory);
    await ask(first, { baseUrl: upstream.url, text: "one" });
    await ask(first, { baseUrl: upstream.url, text: "two" });
    await ask(recorder(context, directory), { baseUrl: upstream.url, text: "one" });
    const recorded = files(directory);
    assert.deepEqual(
      recorded.map(({ name }) => name.replace(/[0-9a-f]{8}\.json$/, "HASH.json")),
      [1, 2, 3].map((number) => `000${number}-forward-completions-HASH.json`),
    );
    assert.equal(recorded[0]?.name.slice(4), recorded[2]?.name.slice(4), "equal requests have equal endings");
    assert.equal(statSync(join(directory, recorded[0]?.name ?? "")).mode & 0o777, 0o600);
    assert.equal(statSync(directory).mode & 0o777, 0o700);
    const { requestHeaders, headers, responseChunkBytes: _, ...rest } = recorded[0]?.value ?? {};
    assert.deepEqual(requestHeaders, { "content-type": "application/json", accept: "text/event-stream" });
    assert.deepEqual(headers, eventStream);
    assert.deepEqual(rest, {
      cassette: 1,
      provider: "forward",
      url: `${upstream.url}/chat/completions`,
      ended: "complete",
      request: JSON.parse(upstream.requests[0]?.body ?? ""),
      status: 200,
      responseSse: helloText,
    });
  });

  test("are left out, and the operator told, where they can't be written; the call goes on", async (context) => {
    const upstream = await startUpstream(context, [hello]);
    const directory = folder(context);
    const reports: string[] = [];
    const send = recorder(context, directory, reports);
    // A directory without write permission stops nobody who is root.
    rmSync(directory, { recursive: true });
    writeFileSync(directory, "in the way");
    const { events, error } = await ask(send, { baseUrl: upstream.url });
    assert.equal(error, undefined);
    assert.equal(textOfEvents(events), "Hello");
    assert.equal(reports.length, 1);
    assert.match(reports[0] ?? "", /^the exchange 0001-forward-completions-[0-9a-f]{8}\.json can't be recorded$/);
  });

  test("a directory that can't be made is told at the start", (context) => {
    const directory = folder(context);
    mkdirSync(join(directory, ".."));
    writeFileSync(directory, "in the way");
    for (const path of [directory, join(directory, "below"), "/proc/nowhere/below"]) {
      assert.throws(
        () => recordExchanges(answering([]), path, failOnReport),
        (error) => agentError(error).message.startsWith(`record (--record, CODEAGENT_RECORD): ${path} can't be used: `),
      );
    }
  });

  test("a body beyond the bound is passed on, not recorded, and said so", async (context) => {
    const directory = folder(context);
    const reports: string[] = [];
    const pieces = Array.from({ length: 17 }, () => Buffer.alloc(1024 * 1024, "a"));
    const send = recordExchanges(answering(pieces), directory, { report: (message) => reports.push(message) });
    assert.equal((await readPieces(send, rawRequest("{}"))).length, 17);
    await readPieces(send, rawRequest("a".repeat(16 * 1024 * 1024 + 1)));
    assert.deepEqual(readdirSync(directory), []);
    assert.equal(reports.length, 2);
    for (const report of reports) assert.match(report, /is not recorded: a body is longer than 16777216 bytes/);
  });
});

describe("secrets", limit, () => {
  test("are nowhere in the files, whatever the provider sends back", async (context) => {
    const [password, header, inQuery] = ["p&ss/wörd", 'header\\"secret', "query-secret-1"];
    const basic = Buffer.from(`user:${password}`).toString("base64");
    const secrets = [key, password, header, inQuery, basic];
    const forms = secrets.flatMap((secret) => [
      secret,
      encodeURIComponent(secret),
      JSON.stringify(secret).slice(1, -1),
      JSON.stringify(secret).slice(1, -1).replaceAll("/", "\\/"),
    ]);
    const echo = `{"error":{"message":"bad key ${forms.join(" ")}"}}`;
    const upstream = await startUpstream(context, [
      (_, response) =>
        response
          .writeHead(401, { "content-type": "application/json", "x-request-id": `id ${key}`, "set-cookie": "a=b" })
          .end(echo),
      (_, response) => {
        response.writeHead(200, eventStream);
        // Inside the key, so that none of the pieces has it.
        const text = chunk({ content: `you said ${key}` });
        const middle = text.indexOf(key) + 3;
        response.write(text.slice(0, middle));
        setTimeout(() => response.end(`${text.slice(middle)}${chunk({}, "stop")}`), 20);
      },
    ]);
    const directory = folder(context);
    const baseUrl = new URL(upstream.url);
    baseUrl.username = "user";
    baseUrl.password = encodeURIComponent(password);
    baseUrl.search = new URLSearchParams({ "api-version": "2026-01-01", "x-key": inQuery }).toString();
    const send = recorder(context, directory);
    const spec = { ...forward, headers: { "anthropic-beta": "kept" } };
    const asking = { spec, baseUrl: baseUrl.href, headers: { "x-own-token": header, "x-team": "true" } };
    assert.equal(agentError((await ask(send, asking)).error).kind, "provider_auth");
    const secret = `my key is ${key}, yes`;
    assert.equal(textOfEvents((await ask(send, { ...asking, text: secret })).events), `you said ${key}`);

    const recorded = files(directory);
    assert.equal(recorded.length, 2);
    for (const { text, name } of recorded)
      for (const form of forms) assert.ok(!text.includes(form), `${name} holds ${form}`);
    const [first, second] = recorded.map(({ value }) => value);
    assert.equal(first?.["url"], `${upstream.url}/chat/completions?api-version=2026-01-01`);
    assert.deepEqual(first?.["headers"], { "content-type": "application/json", "x-request-id": "id [hidden]" });
    assert.deepEqual(first?.["requestHeaders"], {
      "content-type": "application/json",
      accept: "text/event-stream",
      "anthropic-beta": "kept",
    });
    assert.match(JSON.stringify(second?.["responseSse"]), /you said \[hidden\]/);
    assert.equal(second?.["responseChunkBytes"], undefined);

    // Whoever replays has no key; what stood where it was hidden may be anything.
    const replay = replayExchanges(directory);
    assert.equal(agentError((await ask(replay, { spec })).error).kind, "provider_auth");
    const { events, error } = await ask(replay, { spec, text: secret });
    assert.equal(error, undefined);
    assert.equal(textOfEvents(events), "you said [hidden]");
  });

  test("are not the harmless headers of an operator, whose words stay in what is recorded and told", async (context) => {
    const failed = jsonAnswer(400, { error: { message: "no read_file for the blue team" } });
    const blue: Answer = (_, response) =>
      response.writeHead(200, eventStream).end(`${chunk({ content: "The sky is blue." })}${chunk({}, "stop")}`);
    const upstream = await startUpstream(context, [blue, failed]);
    const directory = folder(context);
    const asking = { headers: { "X-Team": "blue", "X-Title": "HTTP", "X-Auth": "read" } };
    const send = recorder(context, directory);
    const heard = await ask(send, { ...asking, baseUrl: upstream.url });
    const refused = await ask(send, { ...asking, baseUrl: upstream.url, text: "read_file" });
    assert.equal(textOfEvents(heard.events), "The sky is blue.");
    assert.equal(agentError(refused.error).message, "forward answered HTTP 400: no read_file for the blue team");
    for (const { text } of files(directory)) assert.doesNotMatch(text, /hidden/);
    const replay = replayExchanges(directory);
    assert.deepEqual(told(await ask(replay)), told(heard));
    assert.deepEqual(told(await ask(replay, { text: "read_file" })), told(refused));
  });

  test("that the sender names are hidden in bodies, without breaking their grammar", async (context) => {
    const directory = folder(context);
    const secrets = ["tr-secret", "wörd-secret", "true", "data", "2026", "abc"];
    const body = JSON.stringify({ stream: true, text: secrets.join(" ") });
    const answer = `data: {"ok":true,"year":2026,"text":"${secrets.join(" ")}"}\n\n`;
    const send = recordExchanges(answering([Buffer.from(answer)]), directory, failOnReport);
    await readPieces(send, rawRequest(body, { secrets }));
    const [file] = files(directory);
    const shown = "[hidden] [hidden] true data 2026 abc";
    assert.deepEqual(file?.value["request"], { stream: true, text: shown });
    assert.equal(file?.value["responseSse"], `data: {"ok":true,"year":2026,"text":"${shown}"}\n\n`);
  });
});

describe("a request that no recording answers", limit, () => {
  const conversation = (text: string): Message[] => [
    { role: "user", blocks: [{ type: "text", text: "Which files are there?" }] },
    { role: "assistant", blocks: [{ type: "text", text: "Two." }] },
    { role: "user", blocks: [{ type: "text", text }] },
  ];

  test("is told with the nearest recordings and where they differ", async (context) => {
    const directory = folder(context);
    const send = recordExchanges(answering([Buffer.from(helloText)]), directory, failOnReport);
    await ask(send, { baseUrl: "http://127.0.0.1:9/v1", text: "something else altogether" });
    await ask(send, { baseUrl: "http://127.0.0.1:9/v1", messages: conversation("Show me the first one, please.") });
    await ask(send, { baseUrl: "http://127.0.0.1:9/v1", messages: conversation("Thanks") });
    const replay = replayExchanges(directory);
    assert.equal((await ask(replay, { messages: conversation("Thanks") })).error, undefined);
    const { events, error } = await ask(replay, { messages: conversation("Show me the first two, please.") });
    assert.deepEqual(events, []);
    const { kind, reason, message, detail } = agentError(error);
    assert.deepEqual(
      { kind, reason, detail },
      {
        kind: "failed_precondition",
        reason: "CASSETTE_MISS",
        detail: { retryable: false, provider: "forward" },
      },
    );
    const lines = message.replaceAll(/[0-9a-f]{8}\.json/g, "HASH.json").split("\n");
    assert.deepEqual(lines.slice(0, 5), [
      "no recording answers the request to forward /chat/completions (3 recorded, 1 used)",
      "unused 0002-forward-completions-HASH.json differs:",
      '  messages[2].content: recorded "Show me the first one, please.", asked "Show me the first two, please."',
      "used 0003-forward-completions-HASH.json differs:",
      '  messages[2].content: recorded "Thanks", asked "Show me the first two, please."',
    ]);
    assert.ok(
      lines.includes('  messages[2]: not recorded, asked {"role":"user","content":"Show me the first two, please."}'),
    );
  });

  test("of another provider or path is told by those", async (context) => {
    const directory = folder(context);
    await ask(recordExchanges(answering([Buffer.from(helloText)]), directory, failOnReport), {
      baseUrl: "http://127.0.0.1:9/v1",
    });
    const replay = replayExchanges(directory);
    const body = String(JSON.stringify(files(directory)[0]?.value["request"]));
    const other = rawRequest(body, { provider: "openai", url: new URL("http://x.invalid/responses") });
    await assert.rejects(replay(other), (error) => {
      assert.match(
        agentError(error).message,
        /differs:\n {2}provider: recorded forward, asked openai\n {2}path: recorded \/v1\/chat\/completions, asked \/responses$/,
      );
      return true;
    });
    assert.equal((await ask(replay)).error, undefined);
  });

  test("more often than it was recorded is told so", async (context) => {
    const upstream = await startUpstream(context, [hello, hello]);
    const directory = folder(context);
    const send = recorder(context, directory);
    for (let call = 0; call < 2; call++) await ask(send, { baseUrl: upstream.url });
    const replay = replayExchanges(directory);
    for (let call = 0; call < 2; call++) assert.equal((await ask(replay)).error, undefined);
    const error = agentError((await ask(replay)).error);
    assert.equal(error.reason, "CASSETTE_MISS");
    assert.match(error.message, /was recorded 2 times and is asked once more/);
    assert.match(error.message, /used: 0001-.*\n {2}used: 0002-/);
  });

  test("is told in less than 2 KB, however much differs", async (context) => {
    const directory = folder(context);
    const send = recordExchanges(answering([Buffer.from(helloText)]), directory, failOnReport);
    const many = (word: string) =>
      JSON.stringify(
        Object.fromEntries(Array.from({ length: 500 }, (_, index) => [`${"k".repeat(300)}${index}`, word.repeat(100)])),
      );
    for (let count = 0; count < 5; count++) await readPieces(send, rawRequest(many("ä")));
    await assert.rejects(replayExchanges(directory)(rawRequest(many("ö"))), (error) => {
      const { message } = agentError(error);
      assert.ok(Buffer.byteLength(message) <= 2048);
      assert.match(message, /and many more/);
      return true;
    });
  });
});

describe("what makes two requests equal", limit, () => {
  const ownIds = fc.constantFrom(
    () => `call_${randomUUID()}`,
    () => `call_${randomUUID().replaceAll("-", "")}`,
  );
  /** A history of calls and results by the number of their id, with ids put in by the caller. */
  const history = fc.array(fc.record({ id: fc.nat(5), text: fc.string() }), { minLength: 1, maxLength: 12 });
  const bodyOf = (steps: readonly { id: number; text: string }[], idOf: (id: number) => string) =>
    JSON.stringify({
      model: "m",
      messages: steps.flatMap(({ id, text }) => [
        { role: "assistant", tool_calls: [{ id: idOf(id), function: { name: "f", arguments: text } }] },
        { role: "tool", tool_call_id: idOf(id), content: text },
      ]),
    });
  const isAnswered = async (directory: string, body: string): Promise<boolean> => {
    try {
      await readPieces(replayExchanges(directory), rawRequest(body));
      return true;
    } catch (error) {
      assert.equal(agentError(error).reason, "CASSETTE_MISS");
      return false;
    }
  };
  const recordOne = async (directory: string, body: string): Promise<void> => {
    rmSync(directory, { recursive: true, force: true });
    await readPieces(recordExchanges(answering([Buffer.from("x")]), directory, failOnReport), rawRequest(body));
  };

  test("ids of our own making are other ones in each run, and stay apart", async (context) => {
    const directory = folder(context);
    await fc.assert(
      fc.asyncProperty(history, ownIds, ownIds, async (steps, recordedId, askedId) => {
        const [recordedIds, askedIds] = [recordedId, askedId].map((make) => Array.from({ length: 6 }, make));
        await recordOne(
          directory,
          bodyOf(steps, (id) => recordedIds?.[id] ?? ""),
        );
        assert.ok(
          await isAnswered(
            directory,
            bodyOf(steps, (id) => askedIds?.[id] ?? ""),
          ),
        );
        // One result that goes to another call, and two calls under one id, are other requests.
        const wanted = askedIds?.[steps[0]?.id ?? 0] ?? "";
        const astray = bodyOf(steps, (id) => askedIds?.[id] ?? "").replace(
          `_call_id":"${wanted}`,
          `_call_id":"${askedId()}`,
        );
        assert.ok(!(await isAnswered(directory, astray)));
        if (new Set(steps.map(({ id }) => id)).size > 1)
          assert.ok(
            !(await isAnswered(
              directory,
              bodyOf(steps, () => wanted),
            )),
          );
      }),
      { numRuns: 40 },
    );
  });

  const cases: readonly { name: string; recorded: unknown; asked: unknown; equal: boolean }[] = [
    {
      name: "the order of keys",
      recorded: { a: 1, b: { c: 2, d: 3 } },
      asked: { b: { d: 3, c: 2 }, a: 1 },
      equal: true,
    },
    { name: "the order of items", recorded: [1, 2], asked: [2, 1], equal: false },
    { name: "a member more", recorded: { a: 1 }, asked: { a: 1, b: null }, equal: false },
    { name: "a member less", recorded: { a: 1, b: null }, asked: { a: 1 }, equal: false },
    { name: "null and nothing", recorded: { a: null }, asked: { a: {} }, equal: false },
    { name: "ids a provider gave", recorded: { id: "call_abc" }, asked: { id: "call_abd" }, equal: false },
    { name: "a number and its text", recorded: { a: 1 }, asked: { a: "1" }, equal: false },
    { name: "a list and an object", recorded: { a: [] }, asked: { a: {} }, equal: false },
    { name: "what was hidden", recorded: "a [hidden] b [hidden] c", asked: "a KEY b OTHER c", equal: true },
    { name: "what was hidden at the ends", recorded: "[hidden]b[hidden]", asked: "KEYbKEY", equal: true },
    { name: "what was around it", recorded: "a [hidden] b [hidden] c", asked: "a KEY x OTHER c", equal: false },
    { name: "an end that overlaps", recorded: "ab[hidden]bc", asked: "abc", equal: false },
    { name: "names of prototypes", recorded: {}, asked: JSON.parse('{"__proto__":1,"constructor":2}'), equal: false },
  ];
  for (const { name, recorded, asked, equal } of cases) {
    test(`${name}: ${equal ? "equal" : "not equal"}`, async (context) => {
      const directory = folder(context);
      await recordOne(directory, JSON.stringify({ x: recorded }));
      assert.equal(await isAnswered(directory, JSON.stringify({ x: asked })), equal);
    });
  }
});

describe("a broken cassette is told at the start", limit, () => {
  const whole = {
    cassette: 1,
    provider: "forward",
    url: "http://127.0.0.1:9/v1/chat/completions",
    request: {},
    status: 200,
    responseSse: helloText,
  };
  const cases: readonly { says: RegExp; text?: string; change?: Readonly<Record<string, unknown>> }[] = [
    { says: /it is no JSON/, text: "{" },
    { says: /a JSON object is wanted/, text: "[]" },
    { says: /cassette: 1, the version of the format, is wanted/, change: { cassette: 2 } },
    { says: /provider: a text is wanted/, change: { provider: undefined } },
    { says: /url: a URL is wanted/, change: { url: "nowhere" } },
    { says: /request: the JSON that was sent/, change: { request: undefined } },
    { says: /requestText: there is request already/, change: { requestText: "x" } },
    { says: /ended: one of complete, cut/, change: { ended: "soon" } },
    { says: /status: a whole number from 100 to 599/, change: { status: "200" } },
    { says: /status: a whole number/, change: { status: undefined } },
    { says: /status: a whole number/, change: { status: undefined, responseSse: undefined } },
    { says: /response: it or responseSse/, change: { responseSse: undefined } },
    { says: /response: there is responseSse already/, change: { response: {} } },
    { says: /responseSse: a text/, change: { responseSse: {} } },
    { says: /headers.content-type: a text/, change: { headers: { "content-type": 1 } } },
    { says: /responseChunkBytes: a list of whole numbers/, change: { responseChunkBytes: [1, -1] } },
    {
      says: /responseChunkBytes: the sizes add up to 3, but the body has \d+ bytes/,
      change: { responseChunkBytes: [1, 2] },
    },
    { says: /error: an object/, change: { ended: "cut" } },
    { says: /error.kind: one of/, change: { ended: "cut", error: { kind: "odd", message: "", retryable: true } } },
    { says: /error.retryable: true or false/, change: { ended: "cut", error: { kind: "internal", message: "" } } },
    { says: /an unanswered exchange has none/, change: { ended: "unanswered" } },
  ];
  for (const { says, text, change } of cases) {
    test(String(says), (context) => {
      const directory = folder(context);
      mkdirSync(directory, { recursive: true });
      writeFileSync(join(directory, "a.json"), JSON.stringify(whole));
      assert.ok(replayExchanges(directory), "one written by hand is read");
      writeFileSync(join(directory, "b.json"), text ?? JSON.stringify({ ...whole, ...change }));
      assert.throws(
        () => replayExchanges(directory),
        (error) => {
          const { kind, message } = agentError(error);
          assert.equal(kind, "invalid_request");
          assert.match(message, /^replay \(--replay, CODEAGENT_REPLAY\): .*b\.json can't be used: /);
          assert.match(message, says);
          return true;
        },
      );
    });
  }

  test("and so is a directory without any, or none", (context) => {
    const directory = folder(context);
    assert.throws(
      () => replayExchanges(directory),
      /^AgentError: replay \(--replay, CODEAGENT_REPLAY\): [^ ]*for this can't be used: it does not exist$/,
    );
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, ".0001-a.json.1.tmp"), "{");
    writeFileSync(join(directory, "notes.md"), "about these");
    assert.throws(() => replayExchanges(directory), /it has no cassettes; record some first/);
  });

  test("numbers beyond the digits of the names keep their order", async (context) => {
    const directory = folder(context);
    mkdirSync(directory, { recursive: true });
    for (const [name, text] of [
      ["10000-a.json", "second"],
      ["9999-a.json", "first"],
    ] as const) {
      writeFileSync(join(directory, name), JSON.stringify({ ...whole, responseSse: undefined, responseText: text }));
    }
    const replay = replayExchanges(directory);
    const said = [await readPieces(replay, rawRequest("{}")), await readPieces(replay, rawRequest("{}"))];
    assert.deepEqual(said.map(String), ["first", "second"]);
  });
});
