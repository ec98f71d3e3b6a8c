import assert from "node:assert/strict";
import { after, describe, type TestContext, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";
import { AgentError } from "../../src/chat/error.ts";
import { openPostgresStore, type PostgresStoreOptions } from "../../src/log/postgres.ts";
import type { Claim, InboxKind, Store, StoreListener } from "../../src/log/store.ts";
import { noPostgres, startPostgres, stopTestDatabases, testDatabase } from "../support/postgres.ts";
import { storeContract } from "./store-contract.ts";

after(stopTestDatabases);

const quiet: StoreListener = {
  grown: () => undefined,
  runnable: () => undefined,
  commanded: () => undefined,
  deleted: () => undefined,
  shortened: () => undefined,
  heldBack: () => undefined,
  fenced: () => undefined,
  watched: () => [],
};

async function opened(context: TestContext, options: PostgresStoreOptions, listener: Partial<StoreListener> = {}) {
  const store = await openPostgresStore(options);
  context.after(() => store.close());
  await store.start({ ...quiet, ...listener });
  return store;
}

if (noPostgres === false) {
  storeContract("postgresql", async (context) => opened(context, { url: await testDatabase() }));
  storeContract("postgresql through PgBouncer", async (context) =>
    opened(context, { url: await testDatabase(), pgbouncer: true }),
  );
}

describe("processes over one PostgreSQL", { skip: noPostgres, timeout: 120_000 }, () => {
  const empty = new Uint8Array();
  const made = (store: Store, sessionId: string, placement = "") =>
    store.createSession({
      ...{ sessionId, tenant: "default", parentId: "", parentSeq: 0, config: empty, summary: empty, blobs: [] },
      ...{ requestId: "", requestHash: "", placement, atMs: 1 },
    });
  const sent = (store: Store, sessionId: string, key: string, kind: InboxKind = "turn") =>
    store.send({
      ...{
        sessionId,
        tenant: "default",
        key,
        kind,
        turnId: `turn-${key}`,
        principal: "somebody",
        body: empty,
        hash: "",
      },
      ...{ atMs: 1, waitingLimit: 16 },
    });
  const appended = (store: Store, sessionId: string, { fence }: Claim, kind = "block-delta") =>
    store.append({ sessionId, fence, events: [{ kind, body: empty }], turnId: "turn-1", atMs: 1 });
  /** Resolves when the listener is told of something that fits. */
  function told<Kind extends "grown" | "runnable" | "commanded" | "deleted">(kind: Kind) {
    const { promise, resolve } = Promise.withResolvers<unknown[]>();
    return { promise, listener: { [kind]: (...facts: unknown[]) => resolve(facts) } };
  }
  async function claimed(store: Store, sessionId: string): Promise<Claim> {
    const claim = await store.claim(sessionId);
    assert.ok(claim !== undefined, `${sessionId} can be claimed`);
    return claim;
  }
  /** Tries until somebody has taken the dead out; the test's own limit ends it. */
  async function claimedInTime(store: Store, sessionId: string): Promise<Claim> {
    for (;;) {
      const claim = await store.claim(sessionId);
      if (claim !== undefined) return claim;
      await wait(50);
    }
  }
  async function asked(url: string, sql: string): Promise<Record<string, unknown>[]> {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    try {
      return (await client.query(sql)).rows;
    } finally {
      await client.end();
    }
  }

  test("they are told what others do", async (context) => {
    const url = await testDatabase();
    const heard = {
      grown: told("grown"),
      commanded: told("commanded"),
      runnable: told("runnable"),
      deleted: told("deleted"),
    };
    const a = await opened(context, { url }, heard.commanded.listener);
    const b = await opened(
      context,
      { url },
      {
        ...heard.grown.listener,
        ...heard.runnable.listener,
        ...heard.deleted.listener,
      },
    );
    await made(a, "one");
    const claim = await claimed(a, "one");
    await sent(b, "one", "x", "cancel");
    assert.deepEqual(await heard.commanded.promise, ["one"]);
    for (let seen = false; !seen; ) {
      await appended(a, "one", claim); // until each knows that there is another
      seen = await Promise.race([heard.grown.promise.then(() => true), wait(100, false)]);
    }
    assert.equal((await heard.grown.promise)[0], "one");
    await a.release("one", claim.fence, true);
    assert.deepEqual(await heard.runnable.promise, ["one"]);
    await a.deleteSession("default", "one");
    assert.deepEqual(await heard.deleted.promise, ["one"]);
  });

  test("one that the others removed is told, and what it owned it can no longer write once it is taken", async (context) => {
    const url = await testDatabase();
    const fenced = Promise.withResolvers<void>();
    const a = await opened(context, { url }, { fenced: () => fenced.resolve() });
    const b = await opened(context, { url });
    await made(a, "one");
    await sent(a, "one", "a");
    const old = await claimed(a, "one");
    await asked(url, "delete from codeagent.replicas where id = (select owner from codeagent.sessions)");
    const now = await claimedInTime(b, "one");
    await fenced.promise;
    assert.equal(await appended(a, "one", old), undefined);
    assert.deepEqual(await appended(b, "one", now), { baseSeq: 1 });
    await b.release("one", now.fence, false);
    await claimedInTime(a, "one"); // it came back under another id
  });

  test("one that can't be heard of takes itself for dead before the others do", async (context) => {
    const server = await startPostgres();
    context.after(() => server.stop());
    const fenced = Promise.withResolvers<number>();
    const a = await opened(
      context,
      { url: server.url, ttlMs: 2000 },
      { fenced: () => fenced.resolve(performance.now()) },
    );
    await made(a, "one");
    const claim = await claimed(a, "one");
    const gone = performance.now();
    await server.kill();
    await assert.rejects(
      appended(a, "one", claim),
      (error) => error instanceof AgentError && error.reason === "STORE_FAILED" && error.detail.retryable === true,
    );
    const afterMs = (await fenced.promise) - gone;
    assert.ok(afterMs > 500 && afterMs < 2000, `${afterMs} ms`);
    await server.restart();
    await claimedInTime(a, "one");
  });

  test("a session whose owners die again and again is held back, and a cancel frees it", async (context) => {
    const url = await testDatabase();
    const heldBack = Promise.withResolvers<string>();
    const a = await opened(context, { url }, { heldBack: (sessionId) => heldBack.resolve(sessionId) });
    await made(a, "one");
    await sent(a, "one", "a");
    await asked(url, "update codeagent.sessions set deaths = 7, owner = 'one that died'");
    assert.equal(await heldBack.promise, "one");
    assert.equal((await a.readSession("default", "one"))?.heldBack, true);
    assert.equal(await a.claim("one"), undefined);
    await sent(a, "one", "x", "cancel");
    const claim = await claimed(a, "one");
    await asked(url, "update codeagent.sessions set deaths = 5");
    await appended(a, "one", claim, "tool-finished");
    const [row] = await asked(url, "select deaths::int as deaths from codeagent.sessions");
    assert.equal(row?.["deaths"], 0, "who gets somewhere is no danger");
  });

  test("only a process of its placement claims a session, and none older than who wrote it", async (context) => {
    const url = await testDatabase();
    const [plain, gpu, newer] = [
      await opened(context, { url }),
      await opened(context, { url, placements: ["gpu", "nfs"] }),
      await opened(context, { url, stateVersion: 99 }),
    ];
    await made(plain, "placed", "gpu");
    await sent(plain, "placed", "a");
    assert.equal(await plain.claim("placed"), undefined);
    assert.notEqual(await gpu.claim("placed"), undefined);
    await made(plain, "new");
    const claim = await claimed(newer, "new");
    await appended(newer, "new", claim);
    await newer.release("new", claim.fence, true);
    assert.equal(await plain.claim("new"), undefined);
    assert.notEqual(await newer.claim("new"), undefined);
  });

  /** A transaction of somebody else, left open until `end`. */
  async function begun(context: TestContext, url: string, sql: string) {
    const client = new pg.Client({ connectionString: url });
    await client.connect();
    let ended: Promise<void> | undefined;
    const end = () => {
      ended ??= client.end();
      return ended;
    };
    context.after(end);
    await client.query("begin");
    await client.query(sql);
    return { end };
  }
  /** Asks until the answer is `true`; the test's own limit ends it. */
  async function until(url: string, question: string): Promise<void> {
    while ((await asked(url, `select (${question}) as yes`))[0]?.["yes"] !== true) await wait(20);
  }
  const waitingForLock = (statement: string) =>
    `select exists (select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
      and query like '${statement}%')`;

  test("a claim whose answer is lost leaves no owner behind", { timeout: 20_000 }, async (context) => {
    const url = await testDatabase();
    const a = await opened(context, { url, timeoutMs: 700, pollMs: 100 });
    await made(a, "one");
    const lock = await begun(context, url, "select 1 from codeagent.sessions for update");
    await assert.rejects(
      a.claim("one"),
      (error) => error instanceof AgentError && error.reason === "STORE_FAILED" && error.detail.retryable === true,
    );
    await lock.end();
    await until(url, "select epoch = 1 from codeagent.sessions"); // it was done all the same
    const claim = await claimedInTime(a, "one");
    await wait(300); // looked at meanwhile
    assert.deepEqual(await appended(a, "one", claim), { baseSeq: 1 }, "what is known to be owned stays owned");
  });

  test("a process that is taken for dead while it claims does not own the session", {
    timeout: 20_000,
  }, async (context) => {
    const url = await testDatabase();
    const a = await opened(context, { url });
    const b = await opened(context, { url });
    await made(a, "one");
    await made(a, "two");
    const lock = await begun(context, url, "select 1 from codeagent.sessions where id = 'one' for update");
    const late = a.claim("one");
    await until(url, waitingForLock("update codeagent.sessions set owner"));
    await asked(url, "delete from codeagent.replicas");
    await claimedInTime(a, "two"); // it came back under another id
    await lock.end();
    assert.equal(await late, undefined);
    await claimedInTime(b, "one");
  });

  test("a fork that takes long keeps nobody from writing", { timeout: 20_000 }, async (context) => {
    const url = await testDatabase();
    const a = await opened(context, { url, pollMs: 60_000 });
    for (const id of ["one", "two", "three"]) await made(a, id);
    const [one, two] = [await claimed(a, "one"), await claimed(a, "two")];
    await appended(a, "one", one);
    const sessionLike = 'insert into codeagent.sessions select (jsonb_populate_record(s, \'{"id": "fork"}\')).*';
    const other = await begun(context, url, `${sessionLike} from codeagent.sessions s where id = 'three'`);
    const fork = a.forkSession("one", 1, {
      ...{ sessionId: "fork", tenant: "default", parentId: "one", parentSeq: 1, config: empty, summary: empty },
      ...{ blobs: [], requestId: "", requestHash: "", atMs: 1 },
    });
    await until(url, waitingForLock("%insert into codeagent.sessions"));
    const slow = wait(5000, "waits for the fork", { ref: false });
    const written = Promise.all([appended(a, "one", one), appended(a, "two", two), sent(a, "one", "a")]);
    assert.notEqual(await Promise.race([written, slow]), "waits for the fork");
    assert.notEqual(await Promise.race([a.release("one", one.fence, true), slow]), "waits for the fork");
    await other.end();
    const { session } = (await fork) ?? {};
    assert.equal(session?.headSeq, 1);
  });

  test("a delete that no notice told is seen by the owner", { timeout: 20_000 }, async (context) => {
    const url = await testDatabase();
    const heard = told("deleted");
    const a = await opened(context, { url, pgbouncer: true, pollMs: 50 }, heard.listener);
    const b = await opened(context, { url, pgbouncer: true });
    await made(a, "one");
    await claimed(a, "one");
    await b.deleteSession("default", "one");
    assert.deepEqual(await heard.promise, ["one"]);
  });

  test("a process knows the requests that it began before it was taken for dead", {
    timeout: 20_000,
  }, async (context) => {
    const url = await testDatabase();
    const a = await opened(context, { url });
    await made(a, "one");
    const request = { tenant: "default", requestId: "r", method: "Method", hash: "", atMs: 1 };
    await a.beginRequest(request);
    for (const id of ["first", "second"]) {
      await asked(url, "delete from codeagent.replicas");
      await made(a, id);
      await until(url, "select count(*) = 1 from codeagent.replicas");
      await claimedInTime(a, id);
    }
    assert.equal((await a.readRequest("default", "r"))?.owner, "here");
  });

  test("only who may claim a parked session wakes it", async (context) => {
    const url = await testDatabase();
    const plain = await opened(context, { url, pollMs: 60_000 });
    const gpu = await opened(context, { url, placements: ["gpu"], pollMs: 60_000 });
    await made(plain, "placed", "gpu");
    await made(plain, "new");
    await gpu.park("placed", (await claimed(gpu, "placed")).fence, 1000, []);
    await plain.park("new", (await claimed(plain, "new")).fence, 2000, []);
    await asked(url, "update codeagent.sessions set state_version = 99 where id = 'new'");
    assert.deepEqual(await plain.parkedSessions(10), []);
    assert.deepEqual(await gpu.parkedSessions(10), [{ sessionId: "placed", wakeAtMs: 1000 }]);
  });

  test("tables that need a newer build are refused, and tables of one that changed nothing for us are not", async (context) => {
    const url = await testDatabase();
    await opened(context, { url });
    await asked(url, "update codeagent.schema_version set version = 999");
    await opened(context, { url });
    await asked(url, "update codeagent.schema_version set least_version = 999");
    await assert.rejects(openPostgresStore({ url }), /needs a build that knows schema version 999/);
  });

  test("servers that start at the same time make the tables once", async (context) => {
    const url = await testDatabase();
    await Promise.all([1, 2, 3, 4].map(() => opened(context, { url })));
  });

  test("a database that can't be had is named without its password", async () => {
    await assert.rejects(
      openPostgresStore({ url: "postgres://me:geheim@127.0.0.1:1/sessions", timeoutMs: 2000 }),
      (error) =>
        error instanceof Error &&
        /sessions at 127\.0\.0\.1:1 .*DATABASE_URL/.test(error.message) &&
        !/geheim/.test(error.message),
    );
  });
});
