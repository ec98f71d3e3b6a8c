import assert from "node:assert/strict";
import { after, describe, type TestContext, test } from "node:test";
import { setImmediate as nextMoment, setTimeout as wait } from "node:timers/promises";
import { inspect } from "node:util";
import pg from "pg";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";
import { noPostgres, startPostgres, stopTestDatabases, testDatabase } from "../support/postgres.ts";
import { readAlong } from "../support/read-along.ts";
import { startTestApp, user } from "../support/test-app.ts";

after(stopTestDatabases);

const script = `
- when: { text: slowly }
  text: one two three four five six seven eight nine ten
  chunk: 4
  delay_ms: 30
- when: { text: tools, nth: 1 }
  text: first
  tool_calls: [{ name: hold, arguments: {} }]
- when: { tool: hold }
  text: all done
- text: hello
`;

/** A tool that says where it runs and waits there until it is let go. */
function holdingTool(name: string) {
  const began = Promise.withResolvers<void>();
  const letGo = Promise.withResolvers<void>();
  const runs: string[] = [];
  const functions: FunctionProvider = {
    source: "local",
    list: async () => [
      { name: "hold", description: "waits", parameters: "", source: "local", readOnly: false, timeoutMs: 30_000 },
    ],
    async call(_call, context) {
      runs.push(name);
      began.resolve();
      const aborted = new Promise((_, reject) =>
        context.signal.addEventListener("abort", () => reject(context.signal.reason)),
      );
      await Promise.race([letGo.promise, aborted]);
      return { success: true, output: `held by ${name}` };
    },
    close: async () => undefined,
  };
  return { functions, began: began.promise, letGo: () => letGo.resolve(), runs };
}

/** Two services over one database, each with folders of its own. */
async function replicas(context: TestContext, flags: Record<string, unknown> = {}, at?: string) {
  const url = at ?? (await testDatabase());
  const tools = { a: holdingTool("a"), b: holdingTool("b") };
  const start = (name: "a" | "b") =>
    startTestApp(context, {
      script,
      functions: [tools[name].functions],
      flags: { database_url: url, "postgres.replica_ttl_ms": 3000, ...flags },
    });
  const a = await start("a");
  const b = await start("b");
  return { a, b, tools, url };
}

type Client = Awaited<ReturnType<typeof startTestApp>>["client"];

/** Reads a session's log from its beginning until its turn has finished. */
async function readTurn(client: Client, sessionId: string, signal = AbortSignal.timeout(20_000)) {
  const events: { seq: bigint; case: string | undefined; value: unknown }[] = [];
  for await (const chunk of client.subscribeSession({ sessionId, afterSeq: 0n, follow: true }, { signal })) {
    if (chunk.seq === 0n) continue;
    events.push({ seq: chunk.seq, case: chunk.event.case, value: chunk.event.value });
    if (chunk.event.case === "turnFinished") {
      assert.deepEqual(
        events.map(({ seq }) => seq),
        events.map((_, position) => BigInt(position + 1)),
        "no gap and no repetition",
      );
      return { events, finishReason: chunk.event.value.finishReason };
    }
  }
  throw new Error("the log ended before the turn did");
}

async function collected<Item>(items: AsyncIterable<Item>): Promise<Item[]> {
  const all: Item[] = [];
  for await (const item of items) all.push(item);
  return all;
}

describe("two servers over one PostgreSQL", { skip: noPostgres, timeout: 120_000 }, () => {
  test("a session that one works on is paused at the other, and goes on there when the one is gone", async (context) => {
    const { a, b, tools } = await replicas(context);
    await a.client.createSession({ sessionId: "one", permissions: { mode: "bypass" } });
    const turn = a.client.generate({ sessionId: "one", messages: [user("tools")] }).catch(() => undefined);
    await tools.a.began;
    const pausing = await b.client.pauseSession({ sessionId: "one" });
    assert.equal(pausing.session?.state, "running"); // what runs is finished
    tools.a.letGo();
    while ((await b.client.getSession({ sessionId: "one" })).state !== "paused") await wait(10);
    await a.app.close(0);
    await turn;
    const { session } = await b.client.resumeSession({ sessionId: "one" });
    assert.notEqual(session?.state, "paused");
    const { events, finishReason } = await readTurn(b.client, "one");
    assert.equal(finishReason, "stop");
    const codes = events.flatMap(({ value }) =>
      typeof value === "object" && value !== null && "code" in value ? value.code : [],
    );
    assert.deepEqual(codes, ["SESSION_PAUSED", "SESSION_RESUMED"]);
    assert.deepEqual([tools.a.runs, tools.b.runs], [["a"], []]);
  });

  test("a turn that one runs is read live at the other", async (context) => {
    const { a, b } = await replicas(context);
    await a.client.createSession({ sessionId: "one", permissions: { mode: "bypass" } });
    let firstDeltaMs = 0;
    const reading = (async () => {
      for await (const chunk of b.client.subscribeSession({ sessionId: "one", afterSeq: 0n, follow: true })) {
        if (chunk.event.case === "blockDelta" && firstDeltaMs === 0) firstDeltaMs = performance.now();
        if (chunk.event.case === "turnFinished") return;
      }
    })();
    const answer = await a.client.generate({ sessionId: "one", messages: [user("slowly")] });
    const finishedMs = performance.now();
    await reading;
    assert.match(answer.message?.contentType.value?.toString() ?? "", /ten$/);
    assert.ok(firstDeltaMs > 0 && firstDeltaMs < finishedMs - 100, "deltas came while the turn ran");
    const { finishReason } = await readTurn(b.client, "one");
    assert.equal(finishReason, "stop");
  });

  test("the same request sent again to the other joins the turn", async (context) => {
    const { a, b } = await replicas(context);
    await a.client.createSession({ sessionId: "one", permissions: { mode: "bypass" } });
    const request = { sessionId: "one", messages: [user("slowly")], requestId: "the same" };
    const [first, second] = await Promise.all([a.client.generate(request), b.client.generate(request)]);
    assert.equal(first.turnId, second.turnId);
    assert.equal(first.lastSeq, second.lastSeq);
  });

  test("a turn that waits is approved at the other, and belongs to nobody meanwhile", async (context) => {
    const { a, b, tools } = await replicas(context);
    const sessionId = "one";
    await a.client.createSession({ sessionId });
    const running = a.client.generate({ sessionId, messages: [user("tools")] });
    running.catch(() => undefined);
    const log = readAlong(b.client.subscribeSession({ sessionId, follow: true }));
    const [request] = await log.requests(1);
    while (a.app.sessions.working + b.app.sessions.working > 0) await nextMoment();
    assert.deepEqual((await b.client.listPendingRequests({})).requests, [request]);
    const { requestId = "" } = request ?? {};
    await b.client.respondToRequest({ sessionId, responses: [{ requestId, decision: "allow_once" }] });
    await Promise.race([tools.a.began, tools.b.began]);
    tools.a.letGo();
    tools.b.letGo();
    assert.equal((await running).finishReason, "stop");
    assert.equal(tools.a.runs.length + tools.b.runs.length, 1);
  });

  test("a cancel sent to the other ends the turn and its tool", async (context) => {
    const { a, b, tools } = await replicas(context, { "postgres.poll_ms": 60_000 }); // so that looking finds nothing
    await a.client.createSession({ sessionId: "one", permissions: { mode: "bypass" } });
    const running = a.client.generate({ sessionId: "one", messages: [user("tools")] });
    running.catch(() => undefined);
    await tools.a.began;
    await b.client.cancelTurn({ sessionId: "one" });
    const { finishReason } = await readTurn(b.client, "one");
    assert.equal(finishReason, "cancelled");
  });

  test("a server that stops hands its turn over at the next step, and nothing is done twice", async (context) => {
    const { a, b, tools } = await replicas(context);
    await a.client.createSession({ sessionId: "one", permissions: { mode: "bypass" } });
    const running = a.client.generate({ sessionId: "one", messages: [user("tools")] });
    const ended = running.then(
      () => "finished",
      () => "told to come back",
    );
    await tools.a.began;
    const closing = a.app.close(20_000);
    tools.a.letGo();
    await closing;
    assert.equal(await ended, "told to come back");
    const { events, finishReason } = await readTurn(b.client, "one");
    assert.equal(finishReason, "stop");
    assert.deepEqual([tools.a.runs, tools.b.runs], [["a"], []]);
    assert.equal(events.filter((event) => event.case === "stepStarted").length, 2, "no step was asked for again");
  });

  test("a session deleted at one ends its readers at the other", async (context) => {
    const { a, b } = await replicas(context);
    await a.client.createSession({ sessionId: "one", permissions: { mode: "bypass" } });
    await a.client.generate({ sessionId: "one", messages: [user("hello")] });
    const reading = collected(b.client.subscribeSession({ sessionId: "one", afterSeq: 0n, follow: true }));
    reading.catch(() => undefined);
    await readTurn(b.client, "one");
    await a.client.deleteSession({ sessionId: "one" });
    await assert.rejects(reading, /there is no session one/);
  });

  test("without notices, as through PgBouncer, the other sees it by looking", async (context) => {
    const { a, b, tools } = await replicas(context, { "postgres.pgbouncer": true, "postgres.poll_ms": 100 });
    await a.client.createSession({ sessionId: "one", permissions: { mode: "bypass" } });
    const running = a.client.generate({ sessionId: "one", messages: [user("tools")] });
    const reading = readTurn(b.client, "one");
    await Promise.race([tools.a.began, tools.b.began]); // before there is a turn there is nothing to cancel
    await b.client.cancelTurn({ sessionId: "one" });
    await Promise.race([running.catch(() => undefined), wait(10_000)]);
    assert.equal((await reading).finishReason, "cancelled");
  });

  test("PostgreSQL killed in the middle of a turn and started again: the turn ends, its tool runs once", async (context) => {
    const server = await startPostgres();
    context.after(() => server.stop());
    const { a, b, tools } = await replicas(context, { "postgres.poll_ms": 200 }, server.url);
    await a.client.createSession({ sessionId: "one", permissions: { mode: "bypass" } });
    const request = { sessionId: "one", messages: [user("tools")], requestId: "the turn" };
    const running = a.client.generate(request);
    running.catch(() => undefined);
    await tools.a.began;
    await server.kill();
    tools.a.letGo();
    await assert.rejects(running, /the session store failed/);
    await assert.rejects(b.client.getSession({ sessionId: "one" }), /the session store failed/);
    await server.restart();
    const { events, finishReason } = await readTurn(b.client, "one");
    assert.equal(finishReason, "stop");
    assert.deepEqual([...tools.a.runs, ...tools.b.runs], ["a"]);
    assert.equal(events.filter((event) => event.case === "toolFinished").length, 1);
    assert.equal((await b.client.generate(request)).finishReason, "stop", "asked again, it is the same turn");
  });

  test("a server that is taken for dead while it claims leaves the turn to one owner", async (context) => {
    const { a, b, tools, url } = await replicas(context);
    await a.client.createSession({ sessionId: "one", permissions: { mode: "bypass" } });
    const [lock, database] = [new pg.Client({ connectionString: url }), new pg.Client({ connectionString: url })];
    await Promise.all([lock.connect(), database.connect()]);
    context.after(() => Promise.all([lock.end(), database.end()]));
    const until = async (question: string) => {
      while ((await database.query(`select (${question}) as yes`)).rows[0]?.yes !== true) await wait(20);
    };
    // Claims look at this table, and nothing else does.
    await lock.query("begin; lock table codeagent.schema_version in access exclusive mode");
    const running = a.client.generate({ sessionId: "one", messages: [user("tools")] });
    running.catch(() => undefined);
    await until(`exists (select 1 from pg_stat_activity where wait_event_type = 'Lock'
      and datname = current_database() and query like 'update codeagent.sessions set owner%')`);
    const { rows } = await database.query("delete from codeagent.replicas returning id");
    await until(`(select count(*) from codeagent.replicas where not id = any('{${rows.map(({ id }) => id)}}')) = 2`);
    await lock.query("rollback");
    await Promise.race([tools.a.began, tools.b.began]);
    const began = (await database.query("select clock_timestamp()::text as at")).rows[0]?.at;
    // By then each has looked several times for what the dead owned.
    await until(`(select min(beat) from codeagent.replicas) > '${began}'::timestamptz + interval '1 second'`);
    tools.a.letGo();
    tools.b.letGo();
    const { events, finishReason } = await readTurn(b.client, "one");
    assert.equal(finishReason, "stop");
    assert.equal(tools.a.runs.length + tools.b.runs.length, 1);
    assert.equal(events.filter((event) => event.case === "stepStarted").length, 2, "no step was begun twice");
    const finished = events.find((event) => event.case === "toolFinished");
    assert.match(inspect(finished?.value), /held by/, "whoever ran the tool went on with its result");
  });

  test("a session that was held back refuses turns and tells how to go on", async (context) => {
    const { a, b, url } = await replicas(context);
    await a.client.createSession({ sessionId: "one" });
    const database = new pg.Client({ connectionString: url });
    await database.connect();
    await database.query("update codeagent.sessions set deaths = 7, owner = 'one that died'");
    for (let held = false; !held; await wait(50)) {
      const { rows } = await database.query("select held_until is not null as held from codeagent.sessions");
      held = rows[0]?.held === true;
    }
    await database.end();
    const turn = a.client.generate({ sessionId: "one", messages: [user("hello")] });
    await assert.rejects(turn, /failed_precondition.*session one is held back/);
    const reported = [...a.reports, ...b.reports].filter(([, text]) => String(text).includes("it is held back"));
    assert.equal(reported.length, 1, "the operator is told once");
  });

  test("a session with a placement is worked on by a server that has it, wherever it is asked", async (context) => {
    const url = await testDatabase();
    const tools = { plain: holdingTool("plain"), red: holdingTool("red") };
    const start = (name: "plain" | "red") =>
      startTestApp(context, {
        script,
        functions: [tools[name].functions],
        flags: { database_url: url, placement: name === "red" ? "blue,red" : "" },
      });
    const [plain, red] = [await start("plain"), await start("red")];
    const workspace = red.workspace;
    const permissions = { mode: "bypass" };
    const created = await red.client.createSession({ sessionId: "one", placement: "red", workspace, permissions });
    assert.equal(created.placement, "red");
    tools.red.letGo();
    const answer = await plain.client.generate({ sessionId: "one", messages: [user("tools")] });
    assert.equal(answer.finishReason, "stop");
    assert.deepEqual([tools.plain.runs, tools.red.runs], [[], ["red"]]);
  });

  test("a cursor beyond the log means that the database lost what was read", async (context) => {
    const { a } = await replicas(context);
    await a.client.createSession({ sessionId: "one", permissions: { mode: "bypass" } });
    await assert.rejects(
      collected(a.client.subscribeSession({ sessionId: "one", afterSeq: 7n, follow: false })),
      /data_loss.*event 7 of session one is lost/,
    );
  });
});
