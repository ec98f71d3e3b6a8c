import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { type TestContext, test } from "node:test";
import { AgentError } from "../../src/chat/error.ts";
import { lockDataDir } from "../../src/log/lock-file.ts";
import { openSqliteStore } from "../../src/log/sqlite.ts";
import type { StoreListener } from "../../src/log/store.ts";
import { storeContract } from "./store-contract.ts";

function folder(context: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "codeagent-log-"));
  context.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

storeContract("sqlite", async (context) => {
  const store = openSqliteStore(join(folder(context), "codeagent.db"));
  context.after(() => store.close());
  return store;
});

test("the file is in WAL mode, so readers of other processes see it whole", (context) => {
  const path = join(folder(context), "codeagent.db");
  const store = openSqliteStore(path);
  context.after(() => store.close());
  const database = new DatabaseSync(path);
  context.after(() => database.close());
  assert.equal(database.prepare("pragma journal_mode").get()?.["journal_mode"], "wal");
});

test("a file of a newer version is refused", (context) => {
  const path = join(folder(context), "codeagent.db");
  const database = new DatabaseSync(path);
  database.exec("pragma user_version = 999");
  database.close();
  assert.throws(
    () => openSqliteStore(path),
    (error) => error instanceof AgentError && /version 999/.test(error.message),
  );
});

test("a file of version 1 is brought up to date with what is in it", async (context) => {
  const path = join(folder(context), "codeagent.db");
  const database = new DatabaseSync(path);
  database.exec(`create table sessions (
    id text primary key, tenant text not null, parent_id text not null, parent_seq bigint not null,
    next_seq bigint not null, owner text, epoch bigint not null, token text not null, runnable integer not null,
    config blob not null, config_version bigint not null, summary blob not null,
    request_id text not null, request_hash text not null, created_at bigint not null, updated_at bigint not null);
    insert into sessions values ('one', 'default', '', 0, 1, null, 0, '', 1, x'', 1, x'', '', '', 1, 1);
    pragma user_version = 1`);
  database.close();
  for (const _start of ["first", "second"]) {
    const store = openSqliteStore(path);
    assert.deepEqual(await store.runnableSessions(10), ["one"]);
    assert.deepEqual(await store.parkedSessions(10), []);
    assert.deepEqual(await store.listWaiting("default", undefined, 10), []);
    await store.close();
  }
});

test("whoever owned a session before the file was opened again is dead", async (context) => {
  const path = join(folder(context), "codeagent.db");
  const before = openSqliteStore(path);
  const empty = new Uint8Array();
  await before.createSession({
    sessionId: "one",
    tenant: "default",
    parentId: "",
    parentSeq: 0,
    config: empty,
    summary: empty,
    blobs: [],
    requestId: "",
    requestHash: "",
    atMs: 1,
  });
  assert.notEqual(await before.claim("one"), undefined);
  assert.equal(await before.claim("one"), undefined);
  await before.close();
  const after = openSqliteStore(path);
  context.after(() => after.close());
  assert.notEqual(await after.claim("one"), undefined);
});

test("a session over which the process died again and again is held back until a cancel comes", async (context) => {
  const path = join(folder(context), "codeagent.db");
  const empty = new Uint8Array();
  const noted = { tenant: "default", parentId: "", parentSeq: 0, requestId: "", requestHash: "", atMs: 1 };
  const command = { tenant: "default", turnId: "t", principal: "p", body: empty, hash: "", atMs: 1, waitingLimit: 9 };
  let heldBack: string[] = [];
  for (let deaths = 0; heldBack.length === 0; deaths++) {
    assert.ok(deaths <= 8, "eight deaths are enough");
    const database = new DatabaseSync(path);
    // As left behind by a process that was killed, after the pause that came before it.
    if (deaths > 0) database.exec("update sessions set owner = 'dead', held_until = null");
    database.close();
    const store = openSqliteStore(path);
    await store.createSession({ sessionId: "one", config: empty, summary: empty, blobs: [], ...noted });
    heldBack = [];
    await store.start({ ...deaf, heldBack: (sessionId) => heldBack.push(sessionId) });
    await store.close();
  }
  assert.deepEqual(heldBack, ["one"]);
  const store = openSqliteStore(path);
  context.after(() => store.close());
  assert.equal((await store.readSession("default", "one"))?.heldBack, true);
  assert.equal(await store.claim("one"), undefined);
  await store.send({ sessionId: "one", key: "x", kind: "cancel", ...command });
  assert.notEqual(await store.claim("one"), undefined);
});

test("a session that is left alone for a while after deaths is to be looked at when that is over", async (context) => {
  const path = join(folder(context), "codeagent.db");
  const empty = new Uint8Array();
  const noted = { tenant: "default", parentId: "", parentSeq: 0, requestId: "", requestHash: "", atMs: 1 };
  const command = { tenant: "default", turnId: "t", principal: "p", body: empty, hash: "", atMs: 1, waitingLimit: 9 };
  for (let deaths = 0; deaths <= 3; deaths++) {
    const database = new DatabaseSync(path);
    if (deaths > 0) database.exec("update sessions set owner = 'dead', held_until = null");
    database.close();
    const store = openSqliteStore(path);
    await store.createSession({ sessionId: "one", config: empty, summary: empty, blobs: [], ...noted });
    await store.send({ sessionId: "one", key: "x", kind: "turn", ...command });
    await store.start(deaf);
    const later = await store.parkedSessions(9);
    await store.close();
    assert.deepEqual(
      later.map(({ sessionId }) => sessionId),
      deaths < 3 ? [] : ["one"],
      `${deaths} deaths`,
    );
    if (deaths === 3) assert.ok((later[0]?.wakeAtMs ?? 0) > Date.now());
  }
});

/** Hears nothing. */
const deaf: StoreListener = {
  grown: () => undefined,
  runnable: () => undefined,
  commanded: () => undefined,
  deleted: () => undefined,
  shortened: () => undefined,
  heldBack: () => undefined,
  fenced: () => undefined,
  watched: () => [],
};

test("a data directory has one process; the second is told which", (context) => {
  const dataDir = folder(context);
  const lock = lockDataDir(dataDir);
  lock.describe("process 4711 at http://127.0.0.1:4088");
  assert.throws(() => lockDataDir(dataDir), /in use by process 4711 at http:\/\/127\.0\.0\.1:4088; stop it/);
  lock.release();
  lockDataDir(dataDir).release();
});
