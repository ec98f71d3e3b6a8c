import type { DatabaseSync, SQLInputValue, StatementSync } from "node:sqlite";
import { decodeLogEvent, encodeLogEvent } from "../convert/proto/event.ts";
import { decodeSessionConfig } from "../convert/proto/session-config.ts";
import type { StoredEvent } from "./store.ts";

/** What lists show of a session, from its config and the events of its log that a fold needs. */
export type SummaryOfLog = (config: Uint8Array, events: Iterable<StoredEvent>) => Uint8Array;

export interface RescuedSessions {
  /** Sessions of which nothing is missing. */
  readonly whole: number;
  /** Sessions whose log ends earlier now, or of which a command or a large message is missing. */
  readonly cut: readonly string[];
  /** Sessions that were there and can't be read. */
  readonly lost: readonly string[];
  /** Tables of which more may be lost, where nothing says how much was in them. */
  readonly uncounted: readonly string[];
}

type Row = Readonly<Record<string, unknown>>;

const columns = {
  sessions: [
    ...["id", "tenant", "parent_id", "parent_seq", "next_seq", "epoch", "token", "runnable", "config"],
    ...["config_version", "summary", "request_id", "request_hash", "created_at", "updated_at"],
    ...["wake_at", "waiting_since", "placement", "deaths", "held_until", "pruned_seq", "prune_at"],
  ],
  events: ["session_id", "seq", "epoch", "turn_id", "kind", "body", "at"],
  inbox: [...["n", "session_id", "key", "kind", "turn_id", "principal", "body", "hash", "at", "taken_at", "first_seq"]],
  blobs: ["session_id", "digest", "body"],
} as const;
type Table = keyof typeof columns;
export const tableNames: readonly Table[] = ["sessions", "events", "inbox", "blobs"];

/** How far beyond the last row that could be read more are looked for, when nothing says where a table ends. */
const rowsLookedFor = 10_000;

/**
 * Copies every session that can be read into an empty database. A log that can't be read to its end is cut after the
 * last turn that finished before the damage, so that nothing in it is done again, and says so in a notice.
 * @param source damaged, only read
 * @throws what the target says, for example that the disk is full; never what the source says.
 */
export function rescueSessions(
  source: DatabaseSync,
  target: DatabaseSync,
  summaryOfLog: SummaryOfLog,
  nowMs: number,
): RescuedSessions {
  const add = inserting(target);
  /** The last event of each session that was taken over. */
  const heads = new Map<string, number>();
  const cut = new Set<string>();
  const lost = new Set<string>();
  const uncounted: string[] = [];

  const damagedSessions: number[] = [];
  for (const { row, number } of readableRows(source, "sessions")) {
    const session = row === undefined ? undefined : soundSession(row);
    if (row === undefined || session === undefined) {
      damagedSessions.push(number);
      continue;
    }
    // A file of an earlier version knows of nothing that waits.
    add("sessions", {
      wake_at: null,
      waiting_since: null,
      placement: "",
      deaths: 0,
      held_until: null,
      pruned_seq: 0,
      prune_at: nowMs,
      ...row,
      owner: null,
    });
    const { through, finished } = copyLog(source, add, session);
    heads.set(session.id, through);
    if (through === session.head) continue;
    cut.add(session.id);
    heads.set(session.id, finished);
    target.prepare("delete from events where session_id = ? and seq > ?").run(session.id, finished);
    const message = `the server's database was damaged: the events after ${finished} of this session, up to ${session.head}, are lost`;
    add("events", {
      session_id: session.id,
      seq: finished + 1,
      epoch: 0,
      turn_id: "",
      kind: "notice",
      body: encodeLogEvent("", nowMs, { type: "notice", level: "warning", code: "DATA_LOSS", message }),
      at: nowMs,
    });
    target
      .prepare(
        `update sessions set next_seq = ?, summary = ?, runnable = 1, wake_at = null, waiting_since = null,
           pruned_seq = min(pruned_seq, ?) where id = ?`,
      )
      .run(finished + 2, summaryOfLog(session.config, eventsForFold(target, session.id)), finished, session.id);
  }
  const unreadable = ownersOf(source, "sessions", damagedSessions);
  for (const id of unreadable.names) lost.add(id);
  if (!unreadable.complete) {
    uncounted.push("sessions");
    for (const id of idsInLogs(source)) if (!heads.has(id)) lost.add(id);
  }

  for (const table of ["inbox", "blobs"] as const) {
    const damaged: number[] = [];
    for (const { row, number } of readableRows(source, table)) {
      const sessionId = row?.["session_id"];
      if (row === undefined || typeof sessionId !== "string") {
        damaged.push(number);
        continue;
      }
      const head = heads.get(sessionId);
      if (head === undefined) continue;
      const firstSeq = row["first_seq"];
      // A command whose turn is lost may be sent again.
      if (typeof firstSeq === "number" && firstSeq > head) continue;
      if (!add(table, row)) damaged.push(number);
    }
    const owners = ownersOf(source, table, damaged);
    if (!owners.complete) uncounted.push(table);
    for (const sessionId of owners.names) if (heads.has(sessionId)) cut.add(sessionId);
  }
  for (const table of Object.keys(besides)) if (!copyTable(source, target, table)) uncounted.push(table);
  return { whole: heads.size - cut.size, cut: [...cut], lost: [...lost], uncounted };
}

/** Tables whose rows stand for themselves. A note of a request that is lost lets the request be done twice. */
const besides: Readonly<Record<string, readonly string[]>> = {
  requests: ["tenant", "request_id", "method", "hash", "owner", "answer", "at"],
  schedules: [
    ...["id", "tenant", "principal", "session_id", "cron", "tz", "misfire", "body", "next_at", "paused", "error"],
    ...["last_at", "run_count", "created_at", "updated_at"],
  ],
  schedule_runs: ["n", "schedule_id", "key", "id", "cause", "scheduled_at", "skipped", "session_id", "turn_id"],
  plans: ["id", "tenant", "session_id", "version", "execution_id", "created_at"],
  plan_versions: ["plan_id", "version", "body", "at"],
  // What they are searched by is made anew of their terms.
  memories: ["session_id", "id", "kind", "importance", "at", "access_count", "accessed_at", "body", "terms"],
};

/** Copies the rows of one of these that can be read; says whether all can. */
function copyTable(source: DatabaseSync, target: DatabaseSync, table: string): boolean {
  const exists = `select 1 from sqlite_schema where name = '${table}'`;
  if ([...readable(() => source.prepare(exists).iterate())].length === 0) return true; // of an earlier version
  const names = besides[table] ?? [];
  const insert = target.prepare(
    `insert or ignore into ${table} (${names.join(", ")}) values (${names.map(() => "?").join(", ")})`,
  );
  for (const row of readable(() => source.prepare(`select * from ${table} not indexed`).iterate())) {
    if (row === undefined) return false;
    const values = names.map((name) => row[name]);
    if (values.every(isValue)) insert.run(...values);
  }
  return true;
}

/**
 * Copies a log as far as nothing is missing and every event can be decoded. In the part that was pruned there are gaps, but
 * only inside a turn: it is pruned whole, and begins and ends with what is kept.
 */
function copyLog(source: DatabaseSync, add: Add, { id, head, pruned }: SoundSession) {
  let through = 0;
  let finished = 0;
  /** The turn that has begun and not finished. */
  let turn: unknown;
  const sql = "select * from events where session_id = ? and seq <= ? order by seq";
  for (const row of readable(() => source.prepare(sql).iterate(id, head))) {
    const seq = row?.["seq"];
    if (row === undefined || typeof seq !== "number" || row["session_id"] !== id || !isSoundEvent(row)) break;
    const isPruned = seq > through + 1 && seq <= pruned + 1 && row["turn_id"] === turn;
    if ((seq !== through + 1 && !isPruned) || !add("events", row)) break;
    through = seq;
    if (row["kind"] === "turn-started") turn = row["turn_id"];
    if (row["kind"] !== "turn-finished") continue;
    turn = undefined;
    finished = through;
  }
  return { through, finished };
}

function isSoundEvent(row: Row): boolean {
  const { body, turn_id: turnId, kind } = row;
  if (!(body instanceof Uint8Array)) return false;
  try {
    const decoded = decodeLogEvent(body);
    return decoded.event.type === kind && decoded.turnId === turnId;
  } catch {
    return false;
  }
}

interface SoundSession {
  readonly id: string;
  readonly head: number;
  /** The last event that was pruned. */
  readonly pruned: number;
  readonly config: Uint8Array;
}

function soundSession(row: Row): SoundSession | undefined {
  const { id, next_seq: nextSeq, config, summary, pruned_seq: pruned } = row;
  if (typeof id !== "string" || typeof nextSeq !== "number" || nextSeq < 1) return undefined;
  if (!(config instanceof Uint8Array) || !(summary instanceof Uint8Array)) return undefined;
  try {
    decodeSessionConfig(config);
    JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(summary));
  } catch {
    return undefined;
  }
  return { id, head: nextSeq - 1, pruned: typeof pruned === "number" ? pruned : 0, config };
}

function* eventsForFold(database: DatabaseSync, sessionId: string): Generator<StoredEvent> {
  const sql =
    "select seq, body from events where session_id = ? and kind not in ('block-start', 'block-delta', 'tool-output') order by seq";
  for (const { seq, body } of database.prepare(sql).iterate(sessionId)) {
    if (typeof seq === "number" && body instanceof Uint8Array) yield { seq, body };
  }
}

/** All rows of a table by their row number: one without a `row` is there, or was, and can't be read. */
function* readableRows(
  source: DatabaseSync,
  table: Exclude<Table, "events">,
): Generator<{ readonly number: number; readonly row: Row | undefined }> {
  const from = `select rowid as row_number, * from ${table} not indexed where rowid`;
  const read = rowReader(source, `${from} = ?`);
  let last = 0;
  let end: number | undefined;
  for (;;) {
    for (const row of readable(() => source.prepare(`${from} > ? order by rowid`).iterate(last))) {
      if (row === undefined) break;
      last = Number(row["row_number"]);
      yield { number: last, row };
      if (end !== undefined && last >= end) return;
    }
    if (end === undefined) {
      if (isReadToItsEnd(source, table, last)) return;
      end = lastRowNumber(source, table) ?? last + rowsLookedFor;
    }
    // Behind the damage there may be more: one number after the other, until one can be read and the rest follows it.
    let found = false;
    while (!found && last < end) {
      last++;
      const row = read(last);
      if (row === "nothing") continue;
      yield { number: last, row };
      found = row !== undefined;
    }
    if (!found) return;
  }
}

function rowReader(source: DatabaseSync, sql: string): (number: number) => Row | "nothing" | undefined {
  let statement: StatementSync | undefined;
  return (number) => {
    try {
      statement ??= source.prepare(sql);
      return statement.get(number) ?? "nothing";
    } catch {
      return undefined;
    }
  };
}

function isReadToItsEnd(source: DatabaseSync, table: Table, last: number): boolean {
  const sql = `select 1 from ${table} not indexed where rowid > ? limit 1`;
  return [...readable(() => source.prepare(sql).iterate(last))].length === 0;
}

function lastRowNumber(source: DatabaseSync, table: Exclude<Table, "events">): number | undefined {
  const numbers = [`${table} not indexed`, `${table} indexed by sqlite_autoindex_${table}_1`].flatMap((where) =>
    [...readable(() => source.prepare(`select max(rowid) as number from ${where}`).iterate())].map(
      (row) => row?.["number"],
    ),
  );
  const known = numbers.filter((number) => typeof number === "number");
  return known.length === 0 ? undefined : Math.max(...known);
}

/** Whose the rows are that can't be read, and whether the index that knows could be read whole. */
function ownersOf(source: DatabaseSync, table: Exclude<Table, "events">, numbers: readonly number[]) {
  const names = new Set<string>();
  if (numbers.length === 0) return { names, complete: true };
  const wanted = new Set(numbers);
  const column = table === "sessions" ? "id" : "session_id";
  let complete = true;
  for (const order of ["asc", "desc"]) {
    const sql = `select rowid as number, ${column} as owner from ${table} indexed by sqlite_autoindex_${table}_1 order by ${column} ${order}`;
    for (const row of readable(() => source.prepare(sql).iterate())) {
      if (row === undefined) complete = false;
      const { number, owner } = row ?? {};
      if (typeof number === "number" && typeof owner === "string" && wanted.has(number)) names.add(owner);
    }
  }
  return { names, complete };
}

function* idsInLogs(source: DatabaseSync): Generator<string> {
  let last = "";
  for (;;) {
    const sql = "select session_id as id from events where session_id > ? order by session_id limit 1";
    const [row] = readable(() => source.prepare(sql).iterate(last));
    const id = row?.["id"];
    if (typeof id !== "string") return;
    last = id;
    yield id;
  }
}

/** Rows as long as they can be read; then, instead of an error, one `undefined`. */
function* readable(open: () => Iterator<Row>): Generator<Row | undefined> {
  let rows: Iterator<Row>;
  try {
    rows = open();
  } catch {
    yield undefined;
    return;
  }
  try {
    for (;;) {
      let next: IteratorResult<Row>;
      try {
        next = rows.next();
      } catch {
        yield undefined;
        return;
      }
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    rows.return?.();
  }
}

/** Adds a row; says whether its values were fit for it. */
type Add = (table: Table, row: Row) => boolean;

function inserting(target: DatabaseSync): Add {
  const statements = new Map(
    tableNames.map((table) => {
      const names = columns[table];
      const sql = `insert or ignore into ${table} (${names.join(", ")}) values (${names.map(() => "?").join(", ")})`;
      return [table, target.prepare(sql)] as const;
    }),
  );
  return (table, row) => {
    const values = columns[table].map((name) => row[name]);
    if (!values.every(isValue)) return false;
    return Number(statements.get(table)?.run(...values).changes ?? 0) > 0;
  };
}

function isValue(value: unknown): value is SQLInputValue {
  return value === null || ["string", "number"].includes(typeof value) || value instanceof Uint8Array;
}
