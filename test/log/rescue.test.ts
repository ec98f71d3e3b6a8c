import assert from "node:assert/strict";
import {
  appendFileSync,
  closeSync,
  copyFileSync,
  existsSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { describe, type TestContext, test } from "node:test";
import { isDeepStrictEqual } from "node:util";
import { Code, ConnectError } from "@connectrpc/connect";
import { AgentError } from "../../src/chat/error.ts";
import type { LogEvent } from "../../src/chat/log-event.ts";
import { decodeLogEvent, encodeLogEvent } from "../../src/convert/proto/event.ts";
import { encodeSessionConfig } from "../../src/convert/proto/session-config.ts";
import { encodeTurnRequest } from "../../src/convert/proto/stored-request.ts";
import { openOrRescue } from "../../src/log/open-or-rescue.ts";
import { openSqliteStore } from "../../src/log/sqlite.ts";
import type { Store } from "../../src/log/store.ts";
import { plainConfig } from "../../src/session/session-worker.ts";
import { decodeSummary } from "../../src/session/summary.ts";
import { summaryOfLog } from "../../src/session/summary-of-log.ts";
import { startTestApp, user } from "../support/test-app.ts";

const ids = ["s1", "s2", "s3", "s4", "s5"] as const;
const pageBytes = 4096;

function folder(context: TestContext): string {
  const path = mkdtempSync(join(tmpdir(), "codeagent-rescue-"));
  context.after(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

function turn(number: number): LogEvent[] {
  const text = `answer ${number} `.repeat(150);
  return [
    {
      type: "turn-started",
      requestId: `r${number}`,
      principal: "somebody",
      model: "scripted/test",
      messages: [{ role: "user", blocks: [{ type: "text", text: `question ${number}` }] }],
      options: {},
      tools: [],
    },
    { type: "step-started", step: 1, attempt: 1, model: "test", provider: "scripted" },
    { type: "block-start", index: 0, blockType: "text" },
    { type: "block-delta", index: 0, delta: { type: "text", text } },
    { type: "block-stop", index: 0, block: { type: "text", text } },
    { type: "step-finished", step: 1, attempt: 1, finishReason: "stop", rawFinishReason: "stop" },
    { type: "turn-finished", finishReason: "stop", steps: 1 },
  ];
}

const turns = 6;
const eventsPerTurn = turn(0).length;

async function addSession(store: Store, sessionId: string): Promise<void> {
  const config = encodeSessionConfig(plainConfig("/workspace"));
  await store.createSession({
    sessionId,
    tenant: "default",
    parentId: "",
    parentSeq: 0,
    config,
    summary: summaryOfLog(config, []),
    blobs: [],
    requestId: `create-${sessionId}`,
    requestHash: "hash",
    atMs: 1000,
  });
  const send = (number: number) =>
    store.send({
      sessionId,
      tenant: "default",
      key: `r${number}`,
      kind: "turn",
      turnId: `${sessionId}-t${number}`,
      principal: "somebody",
      body: encodeTurnRequest({
        sessionId,
        requestId: `r${number}`,
        model: "scripted/test",
        messages: [{ role: "user", blocks: [{ type: "text", text: `question ${number}` }] }],
        options: {},
        tools: [],
      }),
      hash: `hash ${number}`,
      atMs: 2000,
      waitingLimit: 16,
    });
  const claim = await store.claim(sessionId);
  assert.ok(claim !== undefined);
  for (let number = 1; number <= turns; number++) {
    await send(number);
    const turnId = `${sessionId}-t${number}`;
    await store.append({
      sessionId,
      fence: claim.fence,
      turnId,
      atMs: 3000,
      events: turn(number).map((event) => ({ kind: event.type, body: encodeLogEvent(turnId, 3000, event) })),
      takenKeys: [`r${number}`],
      blobs: [{ digest: `d${number}`, body: Buffer.alloc(3 * pageBytes, number) }],
    });
  }
  await store.release(sessionId, claim.fence, false);
  await send(turns + 1);
}

/** Everything the store says of a session. */
async function read(store: Store, sessionId: string) {
  const session = await store.readSession("default", sessionId);
  if (session === undefined) return undefined;
  const blobs = [];
  for (let number = 1; number <= turns; number++) blobs.push(await store.readBlob(sessionId, `d${number}`));
  const inbox = await store.readInbox(sessionId);
  const command = await store.readCommand(sessionId, `r${turns + 1}`);
  return { session, events: await store.readEvents(sessionId, 0, 10_000, 1e9), blobs, inbox, command };
}
type Read = NonNullable<Awaited<ReturnType<typeof read>>>;

const made = mkdtempSync(join(tmpdir(), "codeagent-rescue-"));
process.on("exit", () => rmSync(made, { recursive: true, force: true }));
/** Closed in good order, and as it is after a kill, with all of the last session in the journal. */
const samples = { closed: join(made, "closed.db"), killed: join(made, "killed.db") };
const whole = new Map<string, Read>();
{
  const store = openSqliteStore(samples.closed);
  for (const id of ids) await addSession(store, id);
  for (const id of ids) {
    const all = await read(store, id);
    assert.equal(all?.events.length, turns * eventsPerTurn);
    whole.set(id, all);
  }
  await store.close();
  const other = join(made, "other.db");
  const before = openSqliteStore(other);
  for (const id of ids.slice(0, 4)) await addSession(before, id);
  await before.close();
  const after = openSqliteStore(other);
  await addSession(after, "s5");
  for (const suffix of ["", "-wal"]) copyFileSync(`${other}${suffix}`, `${samples.killed}${suffix}`);
  await after.close();
  assert.ok(statSync(`${samples.killed}-wal`).size > 0);
}

/** As `assert.deepEqual`, which takes minutes to say how two large values differ. */
function same(found: unknown, expected: unknown): void {
  assert.ok(isDeepStrictEqual(found, expected), "what was rescued is what was there, byte for byte");
}

interface Reported {
  readonly message: string;
  readonly facts: Record<string, unknown>;
}

/** A damaged copy of a sample, opened again. */
async function opened(context: TestContext, sample: string, damage: (path: string) => void) {
  const path = join(folder(context), "codeagent.db");
  for (const suffix of ["", "-wal"])
    if (existsSync(`${sample}${suffix}`)) copyFileSync(`${sample}${suffix}`, `${path}${suffix}`);
  writeFileSync(`${path}.made`, "");
  damage(path);
  const damaged = existsSync(path) ? readFileSync(path) : undefined;
  const journal = existsSync(`${path}-wal`) ? readFileSync(`${path}-wal`) : undefined;
  const reports: Reported[] = [];
  const store = openOrRescue({
    path,
    report: (_level, message, facts) => reports.push({ message, facts }),
    summaryOfLog,
    now: () => Date.UTC(2030, 0, 2, 3, 4, 5, 6),
  });
  context.after(() => store.close());
  return { store, path, reports, damaged, journal };
}

function zero(path: string, from: number, length: number): void {
  const file = openSync(path, "r+");
  writeSync(file, new Uint8Array(length), 0, length, from);
  closeSync(file);
}

/** Bytes that look like nothing, the same at every run. */
function noise(length: number): Uint8Array {
  let seed = 12345;
  return Uint8Array.from({ length }, () => {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    return seed >>> 24;
  });
}

function list(facts: Record<string, unknown> | undefined, name: string): unknown[] {
  const value = facts?.[name];
  assert.ok(Array.isArray(value), `${name} is a list`);
  return value;
}

/** What every rescue has to hold to; returns how many sessions are whole, cut and lost. */
async function checkRescued({ store, path, reports, damaged, journal }: Awaited<ReturnType<typeof opened>>) {
  assert.equal(reports.length, 1);
  const facts = reports[0]?.facts;
  const original = `${path}.damaged-20300102T030405006Z`;
  assert.equal(facts?.["original"], original);
  same(readFileSync(original), damaged);
  assert.equal(statSync(original).mode & 0o777, 0o600);
  if (journal !== undefined && journal.length > 0) same(readFileSync(`${original}-wal`), journal);
  const leftovers = readdirSync(join(path, "..")).filter((name) => /rescu/.test(name));
  assert.deepEqual(leftovers, []);
  const cut = list(facts, "cutSessions");
  const lost = list(facts, "lostSessions");
  let wholeCount = 0;
  for (const id of ids) {
    const expected = whole.get(id);
    assert.ok(expected !== undefined);
    const found = await read(store, id);
    if (found === undefined) {
      if (list({ names: facts["lostWithoutCount"] ?? [] }, "names").length === 0) assert.ok(lost.includes(id), id);
      continue;
    }
    assert.ok(!lost.includes(id));
    if (!cut.includes(id)) {
      same(found, expected);
      wholeCount++;
    } else {
      await checkCut(store, id, found, expected);
    }
  }
  assert.equal(facts["rescued"], wholeCount);
  return { whole: wholeCount, cut: cut.length, lost: ids.length - wholeCount - cut.length };
}

async function checkCut(store: Store, id: string, found: Read, expected: Read): Promise<void> {
  // What is missing is missing; nothing is there in another form.
  same(
    found.blobs,
    expected.blobs.map((blob, index) => (found.blobs[index] === undefined ? undefined : blob)),
  );
  if (found.events.length === expected.events.length) {
    const { blobs: _, inbox: __, command: ___, session: ____, ...rest } = found;
    same(rest.events, expected.events);
    return;
  }
  const last = found.events.at(-1);
  assert.ok(last !== undefined);
  same(found.events.slice(0, -1), expected.events.slice(0, found.events.length - 1));
  const { event } = decodeLogEvent(last.body);
  assert.equal(event.type === "notice" ? event.code : event.type, "DATA_LOSS");
  assert.equal(last.seq, found.events.length);
  assert.equal(found.session.headSeq, last.seq);
  assert.equal((last.seq - 1) % eventsPerTurn, 0, "the log ends with a whole turn");
  const kept = (last.seq - 1) / eventsPerTurn;
  assert.equal(decodeSummary(found.session.summary).messageCount, kept * 2);
  // What was asked and is lost may be asked again.
  const send = { sessionId: id, tenant: "default", kind: "turn", turnId: "new", principal: "", hash: "" } as const;
  const again = await store.send({
    ...send,
    key: `r${kept + 1}`,
    body: new Uint8Array(),
    atMs: 1,
    waitingLimit: 16,
  });
  assert.ok(typeof again === "object" && again.inserted);
  const claim = await store.claim(id);
  assert.ok(claim !== undefined);
  const events = [{ kind: "notice", body: last.body }];
  const appended = await store.append({ sessionId: id, fence: claim.fence, turnId: "", atMs: 1, events });
  assert.equal(appended?.baseSeq, last.seq + 1);
}

test("a sound database is opened as it is", async (context) => {
  for (const sample of [samples.closed, samples.killed]) {
    const { store, reports, path } = await opened(context, sample, () => undefined);
    assert.deepEqual(reports, []);
    for (const id of ids) same((await read(store, id))?.events, whole.get(id)?.events);
    assert.deepEqual(
      readdirSync(join(path, "..")).filter((name) => name.includes("damaged")),
      [],
    );
  }
});

test("a first start says nothing", (context) => {
  const path = join(folder(context), "codeagent.db");
  const reports: unknown[] = [];
  const open = () => openOrRescue({ path, report: (...said) => reports.push(said), summaryOfLog, now: Date.now });
  return open()
    .close()
    .then(() => open().close())
    .then(() => assert.deepEqual(reports, []));
});

const size = statSync(samples.closed).size;
const damages: Readonly<Record<string, { damage: (path: string) => void; leastWhole: number; lost?: number }>> = {
  "cut by 7 bytes": { damage: (path) => truncateSync(path, size - 7), leastWhole: 4 },
  "cut by 3 pages": { damage: (path) => truncateSync(path, size - 3 * pageBytes), leastWhole: 4 },
  "cut inside a large value": {
    damage: (path) => truncateSync(path, (lastOverflowPage(samples.closed) - 1) * pageBytes + 50),
    leastWhole: 0,
  },
  "garbage tail": { damage: (path) => appendFileSync(path, noise(1000)), leastWhole: 5 },
  "garbage tail of a page": { damage: (path) => appendFileSync(path, noise(pageBytes)), leastWhole: 5 },
  "zeroed header": { damage: (path) => zero(path, 0, 100), leastWhole: 5 },
  "zeroed first page": { damage: (path) => zero(path, 0, pageBytes), leastWhole: 5 },
  "0 bytes": { damage: (path) => truncateSync(path, 0), leastWhole: 0, lost: 5 },
  "random bytes": { damage: (path) => writeFileSync(path, noise(size)), leastWhole: 0, lost: 5 },
};
describe("a file damaged after a good end:", () => {
  for (const [name, { damage, leastWhole, lost = 0 }] of Object.entries(damages)) {
    test(name, async (context) => {
      const found = await checkRescued(await opened(context, samples.closed, damage));
      assert.ok(found.whole >= leastWhole, JSON.stringify(found));
      assert.equal(found.lost, lost);
    });
  }
});

/** The last page in the file that has nothing but the end of a large value. */
function lastOverflowPage(path: string): number {
  const database = new DatabaseSync(path, { readOnly: true });
  const sql = "select max(pageno) as page from dbstat where pagetype = 'overflow' and unused > 0 and unused < 4000";
  const page = Number(database.prepare(sql).get()?.["page"]);
  database.close();
  assert.ok(page > 1);
  return page;
}

const pages = pagesOf(samples.closed);
function pagesOf(path: string) {
  const database = new DatabaseSync(path, { readOnly: true });
  const rows = database
    .prepare("select name, pageno, pagetype from dbstat where pagetype <> 'overflow' and pageno > 1 order by pageno")
    .all();
  database.close();
  return rows.map((row) => ({ name: String(row["name"]), page: Number(row["pageno"]), type: String(row["pagetype"]) }));
}

describe("a zeroed page costs what was in it:", () => {
  for (const { name, page, type } of pages) {
    test(`page ${page}, ${type} of ${name}`, async (context) => {
      const found = await checkRescued(
        await opened(context, samples.closed, (path) => zero(path, (page - 1) * pageBytes, pageBytes)),
      );
      if (name === "events" && type === "leaf") assert.ok(found.whole >= 3 && found.lost === 0, JSON.stringify(found));
      if (name.startsWith("sqlite_") || name.includes("_by_")) assert.equal(found.whole, 5, JSON.stringify(found));
    });
  }
});

describe("a file damaged after a kill:", () => {
  const kept = (path: string) => `${path}.damaged-20300102T030405006Z`;
  const journals: Readonly<Record<string, (wal: string) => void>> = {
    "journal of random bytes": (wal) => writeFileSync(wal, noise(statSync(wal).size)),
    "journal with a zeroed beginning": (wal) => zero(wal, 0, 32),
    "journal with a zeroed middle": (wal) => zero(wal, Math.floor(statSync(wal).size / 2), 100),
  };
  for (const [name, damage] of Object.entries(journals)) {
    test(name, async (context) => {
      const { store, path, reports, journal } = await opened(context, samples.killed, (at) => damage(`${at}-wal`));
      assert.equal(reports.length, 1);
      assert.equal(reports[0]?.facts["original"], `${kept(path)}-wal`);
      same(readFileSync(`${kept(path)}-wal`), journal);
      assert.equal(statSync(`${kept(path)}-wal`).mode & 0o777, 0o600);
      for (const id of ids.slice(0, 4)) same((await read(store, id))?.events, whole.get(id)?.events);
      const last = (await read(store, "s5"))?.events ?? [];
      same(last, whole.get("s5")?.events.slice(0, last.length));
    });
  }

  // As a kill leaves it that cuts a write short.
  for (const [name, cut] of [
    ["journal cut by 7 bytes", (wal: string) => truncateSync(wal, statSync(wal).size - 7)],
    ["journal with part of a page at its end", (wal: string) => appendFileSync(wal, noise(1000))],
  ] as const) {
    test(`${name}: nothing is told, and all that was acknowledged before is there`, async (context) => {
      const { store, reports } = await opened(context, samples.killed, (at) => cut(`${at}-wal`));
      assert.deepEqual(reports, []);
      for (const id of ids.slice(0, 4)) same((await read(store, id))?.events, whole.get(id)?.events);
    });
  }

  test("empty file with a journal", async (context) => {
    const { store, path, reports, journal } = await opened(context, samples.killed, (at) => truncateSync(at, 0));
    assert.equal(reports.length, 1);
    same(readFileSync(`${kept(path)}-wal`), journal);
    const facts = reports[0]?.facts;
    const listed = await store.listSessions("default", undefined, 10);
    assert.ok(listed.length > 0, "what the journal has is not lost with the file");
    assert.equal(listed.length, Number(facts?.["rescued"]) + Number(facts?.["cut"]));
  });

  test("a zeroed header costs nothing when the journal has the first page", async (context) => {
    const { store } = await opened(context, samples.killed, (at) => zero(at, 0, 100));
    for (const id of ids) same((await read(store, id))?.events, whole.get(id)?.events);
  });
});

test("a database that is gone is told", async (context) => {
  const { store, reports } = await opened(context, samples.closed, (path) => rmSync(path));
  assert.match(String(reports[0]?.facts["found"]), /missing/);
  assert.deepEqual(await store.listSessions("default", undefined, 10), []);
});

test("a rescue that was interrupted is finished", async (context) => {
  const { store, path, reports } = await opened(context, samples.closed, (at) => {
    copyFileSync(at, `${at}.rescued-then`);
    writeFileSync(`${at}-wal`, "of the damaged one");
    renameSync(at, `${at}.damaged-then`);
  });
  assert.deepEqual(reports, []);
  for (const id of ids) same(await read(store, id), whole.get(id));
  assert.equal(readFileSync(`${path}.damaged-then-wal`, "utf8"), "of the damaged one");
});

test("a newer file is refused, not rescued", (context) => {
  const path = join(folder(context), "codeagent.db");
  copyFileSync(samples.closed, path);
  const database = new DatabaseSync(path);
  database.exec("pragma user_version = 999");
  database.close();
  assert.throws(
    () => openOrRescue({ path, report: assert.fail, summaryOfLog, now: Date.now }),
    (error) => error instanceof AgentError && /version 999/.test(error.message),
  );
});

/** A file with a zeroed page in the logs of some sessions and not of others. */
async function damagedInPart(path: string) {
  for (const { page } of pagesOf(samples.closed).filter(({ name, type }) => name === "events" && type === "leaf")) {
    copyFileSync(samples.closed, path);
    zero(path, (page - 1) * pageBytes, pageBytes);
    const store = openSqliteStore(path);
    const logs = await Promise.allSettled(ids.map((id) => store.readEvents(id, 0, 1000, 1e9)));
    await store.close();
    const damaged = ids.find((_, index) => logs[index]?.status === "rejected");
    const sound = ids.find((_, index) => logs[index]?.status === "fulfilled");
    if (damaged !== undefined && sound !== undefined) return { damaged, sound };
  }
  assert.fail("every page has events of all sessions");
}

test("damage met while running fails what touches it and names the session", async (context) => {
  const path = join(folder(context), "codeagent.db");
  const { damaged, sound } = await damagedInPart(path);
  const store = openSqliteStore(path);
  context.after(() => store.close());
  const isLoss = (error: unknown) =>
    error instanceof AgentError && error.kind === "data_loss" && error.message.includes(`session ${damaged}`);
  await assert.rejects(store.readEvents(damaged, 0, 1000, 1e9), isLoss);
  await assert.rejects(store.readHistory(damaged, 0, 1000), isLoss);
  same(await store.readEvents(sound, 0, 1000, 1e9), whole.get(sound)?.events);
  // Writes of one moment are committed together; the one that meets the damage fails alone.
  const [deleted, other] = await Promise.allSettled([
    store.deleteSession("default", damaged),
    store.updateConfig(sound, 1, new Uint8Array([1]), 1),
  ]);
  assert.ok(deleted.status === "rejected" && isLoss(deleted.reason));
  assert.deepEqual(other, { status: "fulfilled", value: true });
});

const failsWith = (code: Code) => (error: unknown) => error instanceof ConnectError && error.code === code;
const inTime = { timeout: 30_000 };

test("the service starts over a cut file, says so and goes on with what is whole", inTime, async (context) => {
  const dataDir = folder(context);
  const path = join(dataDir, "codeagent.db");
  copyFileSync(samples.closed, path);
  truncateSync(path, size - 7);
  const { client, reports } = await startTestApp(context, { dataDir });
  assert.equal(reports.length, 1);
  assert.match(String(reports[0]?.[1]), /database was damaged/);
  assert.equal(readdirSync(dataDir).filter((name) => name.startsWith("codeagent.db.damaged-")).length, 1);
  for (const sessionId of ["s1", "s2", "s3", "s4"]) {
    const answer = await client.generate({ sessionId, messages: [user("go on")] });
    assert.equal(answer.message?.contentType.value, "hello");
  }
});

test("a worker that meets damage does not try without end", inTime, async (context) => {
  const dataDir = folder(context);
  const path = join(dataDir, "codeagent.db");
  const { client, reports } = await startTestApp(context, { dataDir });
  const { sessionId } = await client.createSession({});
  for (let round = 0; round < 3; round++) await client.generate({ sessionId, messages: [user(`go ${round}`)] });
  assert.deepEqual(reports, []);
  const database = new DatabaseSync(path);
  context.after(() => database.close());
  database.enableDefensive(false);
  const root = database.prepare("select rootpage from sqlite_schema where name = 'blobs'").get()?.["rootpage"];
  // From now on the log is looked for where another table is.
  database.exec("pragma writable_schema = on");
  database.prepare("update sqlite_schema set rootpage = ? where name = 'events'").run(Number(root));
  database.exec("pragma schema_version = 4711");
  await assert.rejects(client.generate({ sessionId, messages: [user("on")] }), failsWith(Code.DataLoss));
  const tries = reports.length;
  assert.equal(tries, 1);
  await new Promise((resolve) => setTimeout(resolve, 900)); // less than the first wait before another try
  assert.equal(reports.length, tries);
});
