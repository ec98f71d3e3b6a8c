// Writes to a store in a folder of its own, or to the PostgreSQL database whose URL is the first argument. A question is `<way> <sessions> <milliseconds>`; the answer is rows per
// second and the p50 and p99 of the time until a row was durable, in milliseconds.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { openPostgresStore } from "../../src/log/postgres.ts";
import { openSqliteStore } from "../../src/log/sqlite.ts";
import { Tail } from "../../src/log/tail.ts";
import { LogWriter } from "../../src/session/log-writer.ts";
import { storedLog } from "../../src/session/owned-log.ts";
import { answerParent, percentile } from "../harness.ts";

const folder = mkdtempSync(join(tmpdir(), "codeagent-bench-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
const [url = ""] = process.argv.slice(2);
const store = url === "" ? openSqliteStore(join(folder, "store.db")) : await openPostgresStore({ url });
const ignored = () => {};
await store.start({
  grown: ignored,
  runnable: ignored,
  commanded: ignored,
  deleted: ignored,
  shortened: ignored,
  heldBack: ignored,
  fenced: () => console.error("the store was taken for dead: these figures are of no use"),
  watched: () => [],
});
const body = new Uint8Array(120).fill(120);
let sessionCount = 0;

/** A new session of the store, owned. */
async function ownedSession() {
  const sessionId = `ses_${++sessionCount}`;
  const nothing = { parentId: "", parentSeq: 0, requestId: "", requestHash: "", blobs: [] };
  const empty = new Uint8Array();
  await store.createSession({ sessionId, tenant: "bench", config: empty, summary: empty, atMs: 0, ...nothing });
  const claim = await store.claim(sessionId);
  if (claim === undefined) throw new Error("the session has an owner");
  return { sessionId, fence: claim.fence };
}

const plainInsert = url === "" ? sqliteInsert() : await postgresInsert();
let plainSeq = 0;

function sqliteInsert() {
  const database = new DatabaseSync(join(folder, "plain.db"));
  database.exec("pragma journal_mode = wal; pragma synchronous = full");
  database.exec(
    "create table events (session_id text, seq integer, body blob, primary key (session_id, seq)) without rowid",
  );
  const insert = database.prepare("insert into events values (?, ?, ?)");
  return async (seq: number): Promise<void> => {
    insert.run("plain", seq, body);
    await new Promise(setImmediate);
  };
}

async function postgresInsert() {
  const pool = new pg.Pool({ connectionString: url, max: 10 });
  await pool.query("create table plain (session_id text, seq bigint, body bytea, primary key (session_id, seq))");
  const text = "insert into plain values ($1, $2, $3)";
  return async (seq: number): Promise<void> => {
    await pool.query({ name: "plain", text, values: ["plain", seq, body] });
  };
}

/** Each begins a writer for one session; calling that makes one row durable. */
const ways: Record<string, () => Promise<() => Promise<void>>> = {
  plain: async () => async () => {
    await plainInsert(++plainSeq);
  },
  store: async () => {
    const { sessionId, fence } = await ownedSession();
    return async () => {
      const events = [{ kind: "step-started", body }];
      const done = await store.append({ sessionId, fence, events, turnId: "turn_1", atMs: Date.now() });
      if (done === undefined) throw new Error("fenced");
    };
  },
  writer: async () => {
    const { sessionId, fence } = await ownedSession();
    const writer = new LogWriter(storedLog(store, sessionId, fence, new Tail(0, 16, 65_536)), 0, Date.now);
    let index = 0;
    return async () => {
      // Deltas of one block would become one row.
      for (let more = 0; more < 8; more++) {
        writer.add("turn_1", { type: "block-delta", index: index++, delta: { type: "text", text: "x".repeat(40) } });
      }
      await writer.flushed();
    };
  },
};

async function run(way: string, sessions: number, durationMs: number): Promise<number[]> {
  const begin = ways[way];
  if (begin === undefined) throw new Error(`there is no way ${way}`);
  const rowsEach = way === "writer" ? 8 : 1;
  const writers = await Promise.all(Array.from({ length: sessions }, begin));
  const tookMs: number[] = [];
  const start = performance.now();
  await Promise.all(
    writers.map(async (write) => {
      while (performance.now() - start < durationMs) {
        const before = performance.now();
        await write();
        tookMs.push(performance.now() - before);
      }
    }),
  );
  const rows = tookMs.length * rowsEach;
  return [(rows / (performance.now() - start)) * 1000, percentile(tookMs, 50), percentile(tookMs, 99)];
}

answerParent("ready", (question) => {
  const [way = "", sessions, durationMs] = question.split(" ");
  return run(way, Number(sessions), Number(durationMs));
});
