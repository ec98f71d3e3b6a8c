import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import net from "node:net";
import { join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import type { ChatEvent } from "../../src/chat/event.ts";
import { arrayOf, objectOf, parseJson, textOf } from "../../src/dialect/json.ts";
import {
  call,
  type DialectId,
  dialectIds,
  errorBody,
  errorEvent,
  providerAt,
  type Said,
  says,
  streamedAnswer,
  text,
  thinking,
} from "./answers.ts";
import { type FaultRow, faultTable } from "./fault-table.ts";
import { type Answer, type Asked, agentError, ask, eventStream, jsonAnswer, startUpstream } from "./upstream.ts";

const rows: FaultRow[] = [];
/** For people: FAULT_TABLE names a file that the outcomes are written to. */
after(() => {
  const file = process.env["FAULT_TABLE"];
  if (file !== undefined) writeFileSync(file, faultTable(rows));
});

const inTime = { timeout: 120_000 };
const streams: Readonly<Record<string, readonly Said[]>> = {
  text: [text("Grüße 👋 from the model")],
  "thinking and calls": [thinking("Is it there?"), text("I look."), call("c1", "look", '{"path":"ä.txt"}')],
  "parallel calls": [call("c1", "look", '{"path":"a"}'), call("c2", "look", '{"path":"b"}'), call("c3", "look")],
};

/** What the events say, however they were cut into deltas. */
function heard(events: readonly ChatEvent[]) {
  const calls = new Map<number, { id: string; name: string; argumentsText: string }>();
  let words = "";
  const finishes: string[] = [];
  for (const event of events) {
    if (event.type === "text-delta") words += event.text;
    if (event.type === "tool-call-start") calls.set(event.index, { id: event.id, name: event.name, argumentsText: "" });
    if (event.type === "tool-call-delta") {
      const begun = calls.get(event.index);
      assert.ok(begun, "arguments of a call that began");
      begun.argumentsText += event.argumentsText;
    }
    if (event.type === "finish") finishes.push(event.finishReason);
  }
  return { text: words, calls: [...calls.values()], finishes };
}

function wanted(said: readonly Said[]): ReturnType<typeof heard> {
  const calls = said.flatMap((one) => (one.type === "call" ? [one] : []));
  return {
    text: said.map((one) => (one.type === "text" ? one.text : "")).join(""),
    calls: calls.map(({ id, name, argumentsText }) => ({ id, name, argumentsText })),
    finishes: [calls.length > 0 ? "tool_calls" : "stop"],
  };
}

/** The text that an event of a stream adds. */
function textOfEvent(event: string): string {
  const value = objectOf(parseJson(/^data: (.*)$/m.exec(event)?.[1] ?? ""));
  if (value["type"] === "response.output_text.delta") return textOf(value["delta"]);
  if (value["type"] === "content_block_delta") return textOf(objectOf(value["delta"])["text"]);
  return textOf(objectOf(objectOf(arrayOf(value["choices"])[0])["delta"])["content"]);
}

interface Cut {
  readonly sent: string;
  /** Events that are all there. One that lacks only its line end counts where the body ends in order. */
  readonly complete: number;
  readonly completeAtEnd: number;
}

/** Before each event, and in each: in its first line, in its middle, before its last character, before its line end. */
function cutsOf(events: readonly string[]): Cut[] {
  const cuts: Cut[] = [];
  for (const [index, event] of events.entries()) {
    const before = events.slice(0, index).join("");
    const json = event.trimEnd();
    for (const length of [0, 3, Math.floor(json.length / 2), json.length - 1, json.length]) {
      const completeAtEnd = length === json.length ? index + 1 : index;
      cuts.push({ sent: before + json.slice(0, length), complete: index, completeAtEnd });
    }
  }
  cuts.push({ sent: events.join(""), complete: events.length, completeAtEnd: events.length });
  return cuts;
}

function note(dialect: string, fault: string, asked: Asked, requests: number): string {
  const outcome = asked.error === undefined ? "whole" : agentError(asked.error).kind;
  const retryable = asked.error === undefined ? undefined : agentError(asked.error).detail.retryable;
  const begun = asked.events.some(({ type }) => type !== "response" && type !== "usage");
  rows.push({ dialect, fault, outcome, retryable, begun, requests, waits: asked.waits });
  return outcome;
}

describe("a stream that is cut is unavailable until its end has come", inTime, () => {
  for (const dialect of dialectIds) {
    for (const [name, said] of Object.entries(streams)) {
      for (const how of ["ended in order", "reset"] as const) {
        test(`${dialect}, ${name}, ${how}`, async (context) => {
          const { events, wholeFrom } = streamedAnswer(dialect, said);
          const cuts = cutsOf(events);
          const answers = cuts.map(
            ({ sent, complete }): Answer =>
              (request, response) => {
                response.writeHead(200, eventStream).flushHeaders();
                if (how === "ended in order") response.end(sent);
                // After its end, whoever resets the connection comes too late: it is left open until the test is over.
                else if (complete === events.length) response.write(sent);
                else response.write(sent || ":", () => request.socket.resetAndDestroy());
              },
          );
          const upstream = await startUpstream(context, answers);
          const provider = providerAt(dialect, upstream.url);
          for (const [index, cut] of cuts.entries()) {
            const asked = await ask(upstream.url, provider);
            const at = `cut ${index} after ${JSON.stringify(cut.sent.slice(-60))}`;
            const complete = how === "reset" ? cut.complete : cut.completeAtEnd;
            const isWhole = how === "reset" ? complete === events.length : complete >= wholeFrom;
            const shown = heard(asked.events);
            const fault = isWhole ? `${how} after its end` : `${how} before its end`;
            assert.equal(upstream.requests.length, index + 1, at);
            assert.deepEqual(asked.waits, [], at);
            if (isWhole) {
              assert.equal(note(dialect, fault, asked, 1), "whole", at);
              assert.deepEqual(shown, wanted(said), at);
              continue;
            }
            assert.equal(note(dialect, fault, asked, 1), "provider_unavailable", at);
            assert.equal(agentError(asked.error).detail.retryable, true, at);
            assert.deepEqual(shown.finishes, [], `${at}: never a silent end`);
            const whole = events.slice(0, complete).map(textOfEvent).join("");
            if (how === "ended in order") assert.equal(shown.text, whole, at);
            else assert.ok(whole.startsWith(shown.text), at);
          }
        });
      }
    }
  }
});

interface Fault {
  readonly name: string;
  readonly answers: (dialect: DialectId) => readonly Answer[];
  readonly idleMs?: number;
  /** The kind of error, or `whole`. */
  readonly outcome: string;
  readonly retryable?: boolean;
  readonly begun?: boolean;
  readonly waits?: readonly number[];
  readonly retryAfterMs?: number;
}

const hello = [text("Hello")];
const failing = (status: number, headers: Record<string, string> = {}) => {
  return (dialect: DialectId) => jsonAnswer(status, errorBody(dialect, "some_error", "no"), headers);
};
const then =
  (...firsts: readonly ((dialect: DialectId) => Answer)[]) =>
  (dialect: DialectId): Answer[] => [...firsts.map((first) => first(dialect)), says(dialect, hello)];
const only =
  (...all: readonly ((dialect: DialectId) => Answer)[]) =>
  (dialect: DialectId): Answer[] =>
    all.map((one) => one(dialect));
const streamed = (write: (dialect: DialectId) => string) => (dialect: DialectId) => {
  const answer: Answer = (_, response) => response.writeHead(200, eventStream).end(write(dialect));
  return answer;
};
/** Sends the beginning of an answer and nothing more. */
const silentAfter = (write: (dialect: DialectId) => string) => (dialect: DialectId) => {
  const answer: Answer = (_, response) => {
    response.writeHead(200, eventStream).flushHeaders();
    response.write(write(dialect));
  };
  return answer;
};
/** The events of an answer up to the first that shows text. */
function beginning(dialect: DialectId): string {
  const { events } = streamedAnswer(dialect, hello);
  return events.slice(0, events.findIndex((event) => textOfEvent(event) !== "") + 1).join("");
}
const other = { "openai-chat": "anthropic-messages", "openai-responses": "openai-chat" } as const;
const otherDialect = (dialect: DialectId): DialectId =>
  dialect === "anthropic-messages" ? "openai-responses" : other[dialect];

const faults: Fault[] = [
  {
    name: "429 with retry-after, then an answer",
    answers: then(failing(429, { "retry-after": "2" })),
    outcome: "whole",
    waits: [2000],
  },
  {
    name: "429 with retry-after-ms, then an answer",
    answers: then(failing(429, { "retry-after-ms": "1500" })),
    outcome: "whole",
    waits: [1500],
  },
  {
    name: "429 that asks to wait for an hour",
    answers: only(failing(429, { "retry-after": "3600" })),
    outcome: "rate_limited",
    retryable: true,
    retryAfterMs: 3_600_000,
  },
  {
    name: "429 three times",
    answers: only(failing(429), failing(429), failing(429)),
    outcome: "rate_limited",
    retryable: true,
    waits: [500, 1000],
    retryAfterMs: 2000,
  },
  {
    name: "500, 502 and 529",
    answers: only(failing(500), failing(502), failing(529)),
    outcome: "provider_unavailable",
    retryable: true,
    waits: [500, 1000],
  },
  {
    name: "503 and 504, then an answer",
    answers: then(failing(503), failing(504)),
    outcome: "whole",
    waits: [500, 1000],
  },
  { name: "408, then an answer", answers: then(failing(408)), outcome: "whole", waits: [500] },
  { name: "409, then an answer", answers: then(failing(409)), outcome: "whole", waits: [500] },
  { name: "400", answers: only(failing(400)), outcome: "provider_rejected", retryable: false },
  { name: "401", answers: only(failing(401)), outcome: "provider_auth", retryable: false },
  { name: "403", answers: only(failing(403)), outcome: "provider_auth", retryable: false },
  { name: "404", answers: only(failing(404)), outcome: "provider_not_found", retryable: false },
  { name: "413", answers: only(failing(413)), outcome: "provider_rejected", retryable: false },
  {
    name: "reset before the head, then an answer",
    answers: then(() => (request) => request.socket.resetAndDestroy()),
    outcome: "whole",
    waits: [500],
  },
  {
    name: "HTTP 200 with an error as its body",
    answers: only((dialect) => jsonAnswer(200, errorBody(dialect, "overloaded_error", "busy"))),
    outcome: "provider_unavailable",
    retryable: true,
  },
  {
    name: "HTTP 200 with an error as its first event",
    answers: only(streamed((dialect) => errorEvent(dialect, "server_error", "busy"))),
    outcome: "provider_unavailable",
    retryable: true,
  },
  {
    name: "an error event in the middle",
    answers: only(streamed((dialect) => beginning(dialect) + errorEvent(dialect, "server_error", "busy"))),
    outcome: "provider_unavailable",
    retryable: true,
    begun: true,
  },
  {
    name: "a rate limit in the middle",
    answers: only(streamed((dialect) => beginning(dialect) + errorEvent(dialect, "rate_limit_exceeded", "slow"))),
    outcome: "rate_limited",
    retryable: true,
    begun: true,
  },
  {
    name: "no head",
    answers: only(() => () => undefined),
    idleMs: 40,
    outcome: "provider_unavailable",
    retryable: true,
  },
  {
    name: "a stall after the head",
    answers: only(silentAfter(() => ":\n\n")),
    idleMs: 40,
    outcome: "provider_unavailable",
    retryable: true,
  },
  {
    name: "a stall after an event",
    answers: only(silentAfter(beginning)),
    idleMs: 40,
    outcome: "provider_unavailable",
    retryable: true,
    begun: true,
  },
  {
    name: "a stall in a line",
    answers: only(silentAfter((dialect) => `${beginning(dialect)}data: {"ty`)),
    idleMs: 40,
    outcome: "provider_unavailable",
    retryable: true,
    begun: true,
  },
  {
    name: "nothing",
    answers: only(streamed(() => "")),
    outcome: "provider_unavailable",
    retryable: true,
  },
  {
    name: "comments and an end",
    answers: only(streamed(() => ": wait\n\n: wait\n\n")),
    outcome: "provider_unavailable",
    retryable: true,
  },
  {
    name: "the stream of another API",
    answers: only(streamed((dialect) => streamedAnswer(otherDialect(dialect), []).events.slice(0, -1).join(""))),
    outcome: "provider_unavailable",
    retryable: true,
  },
  {
    name: "an event that is no JSON",
    answers: only(streamed((dialect) => `${beginning(dialect)}data: oops\n\n`)),
    outcome: "provider_protocol",
    retryable: false,
    begun: true,
  },
  {
    name: "words",
    answers: only(streamed(() => "hello there")),
    outcome: "provider_protocol",
    retryable: false,
  },
  {
    name: "bytes of no meaning",
    answers: only(
      () => (_, response) =>
        response.writeHead(200, eventStream).end(Buffer.from(Array.from({ length: 999 }, (__, n) => (n * 89) % 256))),
    ),
    outcome: "provider_protocol",
    retryable: false,
  },
  {
    name: "JSON of something else",
    answers: only(() => jsonAnswer(200, { weather: "fine" })),
    outcome: "provider_protocol",
    retryable: false,
  },
  {
    name: "half a JSON",
    answers: only(() => (_, response) => response.writeHead(200).end('{"choices":[{"mess')),
    outcome: "provider_protocol",
    retryable: false,
  },
];

describe("a fault of a provider", { ...inTime, concurrency: 4 }, () => {
  for (const dialect of dialectIds) {
    for (const { name, answers, idleMs, outcome, retryable, begun = false, waits = [], retryAfterMs } of faults) {
      test(`${dialect}: ${name}: ${outcome}`, async (context) => {
        const planned = answers(dialect);
        const upstream = await startUpstream(context, planned);
        const timeouts = idleMs === undefined ? {} : { idleMs };
        const asked = await ask(upstream.url, { ...providerAt(dialect, upstream.url), timeouts });
        assert.equal(note(dialect, name, asked, upstream.requests.length), outcome, String(asked.error));
        assert.equal(upstream.requests.length, planned.length);
        assert.deepEqual(asked.waits, waits);
        if (outcome === "whole") {
          assert.deepEqual(heard(asked.events), wanted(hello));
          return;
        }
        const error = agentError(asked.error);
        assert.equal(error.detail.retryable, retryable);
        assert.equal(error.retryAfterMs, retryAfterMs);
        assert.equal(heard(asked.events).text !== "", begun);
        assert.deepEqual(heard(asked.events).finishes, [], "never a silent end");
      });
    }

    test(`${dialect}: nobody listens: provider_unavailable`, async () => {
      const server = net.createServer().listen(0, "127.0.0.1");
      await once(server, "listening");
      const address = server.address();
      assert.ok(typeof address === "object" && address !== null);
      server.close();
      await once(server, "close");
      const url = `http://127.0.0.1:${address.port}/v1`;
      const asked = await ask(url, providerAt(dialect, url));
      assert.equal(note(dialect, "nobody listens", asked, 0), "provider_unavailable");
      assert.equal(agentError(asked.error).detail.retryable, true);
      assert.deepEqual(asked.waits, [500, 1000]);
    });
  }
});

const corpus = resolve(process.env["CORPUS_DIR"] ?? join(import.meta.dirname, "../../../shared/corpus"));
const skip = existsSync(join(corpus, "replay-server.mjs")) ? false : `no recordings in ${corpus}; set CORPUS_DIR`;

interface Replay {
  readonly url: string;
  close(): Promise<void>;
}

async function startReplay(): Promise<Replay> {
  const module: unknown = await import(pathToFileURL(join(corpus, "replay-server.mjs")).href);
  assert.ok(typeof module === "object" && module !== null && "start" in module && typeof module.start === "function");
  const replay: unknown = await module.start();
  assert.ok(typeof replay === "object" && replay !== null && "url" in replay && typeof replay.url === "string");
  assert.ok("close" in replay && typeof replay.close === "function");
  const { url, close } = replay;
  return { url, close: async () => void (await close()) };
}

/** What tells a reader of the dialect that all has come. */
const lastEvents: Readonly<Record<DialectId, RegExp>> = {
  "openai-chat": /^data: ?\[DONE\]/,
  "openai-responses": /"type": ?"response\.(?:completed|incomplete)"/,
  "anthropic-messages": /"type": ?"message_stop"|^data: ?\[DONE\]/m,
};
/** So many recorded streams of each dialect, of a length in between, are cut at every event boundary and in every event. */
const cutEverywhere = 3;
/** Places in which each other recorded stream is cut besides those about its end, by turns after an event and in its middle. */
const mostCuts = 4;

describe("a recorded stream that is cut is unavailable until its end has come", { ...inTime, skip }, () => {
  let replay: Replay | undefined;
  before(async () => {
    replay = await startReplay();
  });
  after(() => replay?.close());

  for (const dialect of dialectIds) {
    const folder = join(corpus, "exchanges", dialect);
    const files = skip ? [] : readdirSync(folder);
    test(dialect, async () => {
      assert.ok(replay);
      let cutStreams = 0;
      let everywhere = 0;
      for (const file of files) {
        const exchange = objectOf(parseJson(readFileSync(join(folder, file), "utf8")));
        const body = textOf(exchange["responseSse"]);
        const tags = arrayOf(exchange["tags"]).map(textOf);
        const failed = tags.some((tag) => /error|response_failed|status:failed/.test(tag));
        if (body === "" || failed || exchange["status"] !== 200) continue;
        cutStreams++;
        const id = textOf(exchange["id"]);
        const ends = [...body.matchAll(/\r?\n\r?\n/g)].map(({ index, 0: blank }) => index + blank.length);
        const last = ends.findIndex((end, at) => lastEvents[dialect].test(body.slice(ends[at - 1] ?? 0, end)));
        const isWholly = everywhere < cutEverywhere && ends.length >= 10 && ends.length <= 60;
        if (isWholly) everywhere++;
        const step = isWholly ? 1 : Math.max(1, Math.ceil(ends.length / mostCuts));
        for (const [at, end] of ends.entries()) {
          const isNear = at === last;
          if (at % step !== 0 && !isNear) continue;
          const from = ends[at - 1] ?? 0;
          const places = [end, from + Math.floor((end - from) / 2)];
          for (const length of isNear || isWholly ? places : [places[(at / step) % 2] ?? end]) {
            const cut = Buffer.byteLength(body.slice(0, length));
            const isWhole = last !== -1 && length >= (ends[last] ?? 0);
            const url = `${replay.url}/${id};cut=${cut}/v1`;
            const asked = await ask(url, providerAt(dialect, url));
            const where = `${id} cut after ${cut} of ${Buffer.byteLength(body)} bytes: ${String(asked.error)}`;
            const fault = isWhole ? "recorded, dropped after its end" : "recorded, dropped before its end";
            assert.equal(note(dialect, fault, asked, 1), isWhole ? "whole" : "provider_unavailable", where);
            const finishes = asked.events.filter(({ type }) => type === "finish").length;
            assert.equal(finishes, isWhole ? 1 : 0, where);
          }
        }
      }
      assert.ok(cutStreams > 10, `${cutStreams} streams were cut`);
      assert.equal(everywhere, cutEverywhere);
    });
  }
});
