import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { status } from "@grpc/grpc-js";
import type { LogRecord } from "../../src/chat/log-event.ts";
import { type EventSources, eventBatches } from "../../src/rpc/legacy/events.ts";
import { LegacyEvents } from "../../src/rpc/legacy/legacy-events.ts";
import type { LogListener } from "../../src/session/live-tails.ts";
import { until } from "../skill/write-files.ts";
import { fileContext } from "../support/file-context.ts";
import { startTestApp, user } from "../support/test-app.ts";
import { type LegacyClient, legacyClients } from "./legacy-client.ts";
import { data, listenToEvents } from "./listen-events.ts";

const script = `
- when: { role: user, text: look }
  tool_calls: [{ name: list_files, arguments: { pattern: "*.md" } }]
- when: { role: user, text: fail }
  error: { status: 400, message: no such thing, type: invalid_request_error }
- when: { role: user, text: write }
  tool_calls: [{ name: write_file, arguments: { path: x.txt, content: x } }]
- when: { role: tool }
  text: I am done
  usage: { prompt_tokens: 20, completion_tokens: 5 }
- text: hello
`;

/** Sources in which nothing waits and nobody stops. */
function sourcesOf(sessions: Pick<EventSources["sessions"], "listen" | "subscribe">): EventSources {
  return {
    events: new LegacyEvents(),
    stopping: new AbortController().signal,
    environment: { now: () => 7 },
    sessions: { ...sessions, pendingRequests: async () => ({ requests: [], next: undefined }) },
  };
}

describe("events of the earlier service", { timeout: 30_000 }, () => {
  const shared = fileContext();
  let app: Awaited<ReturnType<typeof startTestApp>>;
  let client: LegacyClient;
  let older: LegacyClient;
  let count = 0;

  before(async () => {
    app = await startTestApp(shared, { script });
    const clients = legacyClients(shared, app.app.url);
    client = clients.L2;
    older = clients.L1;
  });

  const session = async (): Promise<string> => {
    const sessionId = `events-${++count}`;
    await client.call("CreateSession", { session_id: sessionId });
    return sessionId;
  };
  const generate = (sessionId: string, content: string) =>
    client.call("Generate", { session_id: sessionId, messages: [{ role: "user", content }] });

  test("a turn of one session is told step by step to clients of both eras, from now on and nothing of others", async () => {
    const sessionId = await session();
    const other = await session();
    await generate(sessionId, "look before");
    const [events, olderEvents] = await Promise.all([
      listenToEvents(client, { session_id: sessionId }),
      listenToEvents(older, { session_id: sessionId }),
    ]);
    await generate(other, "look elsewhere");
    const startMs = Date.now();
    await generate(sessionId, "look");
    const done = await events.next("GENERATION_COMPLETED");
    await olderEvents.next("GENERATION_COMPLETED");
    assert.deepEqual(events.types(), ["GENERATION_STARTED", "TOOL_CALLED", "TOOL_COMPLETED", "GENERATION_COMPLETED"]);
    assert.deepEqual(olderEvents.seen, events.seen);
    assert.ok(events.seen.every((event) => event["session_id"] === sessionId));
    const [started, called, completed] = events.seen;
    assert.ok(started !== undefined && called !== undefined && completed !== undefined);
    assert.ok(Math.abs(Number(started["timestamp"]) - startMs) < 5000);
    assert.equal(data(started, "model"), "scripted/test");
    assert.deepEqual([data(called, "tool_name"), data(called, "tool_id")], ["list_files", data(completed, "tool_id")]);
    assert.deepEqual([data(completed, "success"), data(completed, "output")], ["true", "README.md"]);
    assert.deepEqual([data(done, "finish_reason"), data(done, "completion_tokens")], ["stop", "5"]);
    events.cancel();
    olderEvents.cancel();
  });

  test("without a session all are heard, those that are made later too", async () => {
    const events = await listenToEvents(client);
    const [one, two] = [await session(), await session()];
    await Promise.all([generate(one, "hello"), generate(two, "look")]);
    await app.client.generate({ sessionId: one, messages: [user("by the other service")] });
    await client.call("DestroySession", { session_id: two });
    await events.next("SESSION_DESTROYED");
    const of = (sessionId: string) =>
      events.seen
        .filter((event) => event["session_id"] === sessionId)
        .map((event) => String(event["type"]).replace("EVENT_TYPE_", ""));
    const turn = ["GENERATION_STARTED", "GENERATION_COMPLETED"];
    await events.next("GENERATION_COMPLETED", 3);
    assert.deepEqual(of(one), ["SESSION_CREATED", ...turn, ...turn]);
    assert.deepEqual(
      of(two).filter((type) => !type.startsWith("TOOL_")),
      ["SESSION_CREATED", ...turn, "SESSION_DESTROYED"],
    );
    assert.equal(
      new Set(events.seen.map((event) => `${event["session_id"]} ${data(event, "seq")} ${event["type"]}`)).size,
      events.seen.length,
    );
    events.cancel();
  });

  test("only the types named are told, however they are written", async () => {
    const sessionId = await session();
    const types = ["EVENT_TYPE_TOOL_CALLED", "tool_completed", "Event_Type_Error"];
    const events = await listenToEvents(client, { session_id: sessionId, event_types: types });
    await generate(sessionId, "look");
    await assert.rejects(generate(sessionId, "fail"));
    assert.match(String((await events.next("ERROR"))["message"]), /no such thing/);
    assert.deepEqual(events.types(), ["TOOL_CALLED", "TOOL_COMPLETED", "ERROR"]);
    events.cancel();
  });

  test("the stream of a session ends well when that is deleted, by whichever service", async () => {
    const deletions = [
      (sessionId: string) => app.client.deleteSession({ sessionId }),
      (sessionId: string) => client.call("DestroySession", { session_id: sessionId }),
    ];
    for (const remove of deletions) {
      const sessionId = await session();
      const events = await listenToEvents(client, { session_id: sessionId });
      await remove(sessionId);
      await events.end();
      assert.deepEqual(events.types(), ["SESSION_DESTROYED"]);
    }
  });

  for (const [name, request, code] of [
    ["a type there is not", { event_types: ["TOOL_CALLED", "NOTHING"] }, status.INVALID_ARGUMENT],
    ["the type of no event", { event_types: ["UNKNOWN"] }, status.INVALID_ARGUMENT],
    ["a session there is not", { session_id: "none" }, status.NOT_FOUND],
    ["an id that is none", { session_id: "a b" }, status.INVALID_ARGUMENT],
  ] as const)
    test(`${name} is refused`, async () => {
      const read = async () => {
        for await (const _ of client.stream("SubscribeEvents", request)) assert.fail("nothing is told");
      };
      await assert.rejects(read, { code });
    });

  test("who hangs up is forgotten, and the server's stop ends the others", async (context) => {
    const own = await startTestApp(context, { script });
    const ownClient = legacyClients(context, own.app.url).L2;
    const { sessions } = own.app;
    let listening = 0;
    const listen = sessions.listen.bind(sessions);
    context.mock.method(sessions, "listen", (...given: Parameters<typeof listen>) => {
      const stop = listen(...given);
      listening++;
      return () => {
        listening--;
        stop();
      };
    });
    const [all, gone] = [await listenToEvents(ownClient), await listenToEvents(ownClient)];
    assert.equal(listening, 2);
    gone.cancel();
    await assert.rejects(gone.end(), { code: status.CANCELLED });
    await until("the server has heard of it", () => listening === 1);
    const closed = own.app.close();
    await assert.rejects(all.end(), { code: status.UNAVAILABLE });
    await closed;
    assert.equal(listening, 0);
  });

  test("what is written while a log is read is told once", async () => {
    const notice = (seq: number): LogRecord => ({
      ...{ seq, turnId: "", timeMs: seq },
      event: { type: "notice", level: "info", code: "X", message: `${seq}` },
    });
    const log = [notice(1)];
    const from: number[] = [];
    let grow: LogListener = () => assert.fail("nobody listens");
    const write = (record: LogRecord) => {
      log.push(record);
      grow("s", record.seq - 1, [record]);
    };
    const sources = sourcesOf({
      listen(listener) {
        grow = listener;
        return () => undefined;
      },
      async subscribe(_principal, _sessionId, afterSeq) {
        from.push(afterSeq);
        async function* read() {
          if (log.length === 1) write(notice(2));
          yield log.slice(afterSeq);
        }
        return { headSeq: log.length, earliestSeq: 1, read, waitingBytes: async () => 0 };
      },
    });
    const batches = eventBatches(sources, { eventTypes: [] }, new AbortController().signal);
    await batches.next();
    grow("s", 0, log);
    const told = await batches.next();
    const next = batches.next();
    await until("the log is looked at again", () => from.length === 2);
    write(notice(3));
    const later = await next;
    const messages = [told, later]
      .flatMap(({ value }) => (Array.isArray(value) ? value : []))
      .map(({ message }) => message);
    assert.deepEqual(
      [messages, from],
      [
        ["1", "2", "3"],
        [0, 2, 2],
      ],
    );
    await batches.return(undefined);
  });

  test("who reads slowly is told how many events that are in no log were left out", async () => {
    let listening = 0;
    const sources = sourcesOf({
      listen() {
        listening++;
        return () => void listening--;
      },
      subscribe: () => assert.fail("nothing has grown"),
    });
    const batches = eventBatches(sources, { eventTypes: [] }, new AbortController().signal);
    assert.deepEqual(await batches.next(), { done: false, value: [] });
    for (let at = 0; at < 1500; at++)
      sources.events.publish({ type: "MEMORY_STORED", sessionId: "s", message: `${at}`, data: {}, timeMs: at });
    const { value } = await batches.next();
    assert.ok(Array.isArray(value));
    assert.deepEqual([value.length, value[0]?.data, value[1]?.message], [1001, { code: "SLOW_READER" }, "500"]);
    assert.match(value[0]?.message ?? "", /500 events were left out/);
    assert.equal(listening, 1);
    await batches.return(undefined);
    assert.equal(listening, 0);
  });
});
