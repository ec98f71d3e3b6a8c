import { randomBytes } from "node:crypto";
import { DatabaseSync, type StatementSync } from "node:sqlite";
import { AgentError } from "../chat/error.ts";
import { GroupCommit } from "./group-commit.ts";
import type { MemorySearch, NewMemory } from "./memory-store.ts";
import type { NewPlan, NewPlanVersion, PlanPosition } from "./plan-store.ts";
import type {
  NewSchedule,
  ScheduleChange,
  ScheduledRun,
  ScheduleFire,
  SchedulePosition,
  ScheduleUpdate,
} from "./schedule-store.ts";
import { isDamage } from "./sqlite-damage.ts";
import { memoryTables, SqliteMemories } from "./sqlite-memories.ts";
import { planTables, SqlitePlans } from "./sqlite-plans.ts";
import { type ScheduleDatabase, SqliteSchedules, scheduleTables } from "./sqlite-schedules.ts";
import {
  type AnsweredRequest,
  type Append,
  type Claim,
  deltaKinds,
  type Fence,
  heldForGood,
  heldUntil,
  type InboxEntry,
  inboxKinds,
  type MadeSession,
  type NewInboxEntry,
  type NewRequest,
  type NewSession,
  progressKinds,
  type SentEntry,
  type SessionPosition,
  type Store,
  type StoredEvent,
  type StoredRequest,
  type StoredSession,
  type StoreListener,
  type WaitingPosition,
} from "./store.ts";

/** Grows with every change of the tables; an older build refuses a newer file. */
export const schemaVersion = 2;

const schema = `
create table if not exists sessions (
  id text primary key, tenant text not null, parent_id text not null, parent_seq bigint not null,
  next_seq bigint not null, owner text, epoch bigint not null, token text not null, runnable integer not null,
  config blob not null, config_version bigint not null, summary blob not null,
  request_id text not null, request_hash text not null, created_at bigint not null, updated_at bigint not null);
create index if not exists sessions_by_age on sessions (tenant, created_at, id);
create index if not exists sessions_by_request on sessions (tenant, request_id) where request_id <> '';
create index if not exists sessions_runnable on sessions (id) where runnable = 1;
create table if not exists events (
  session_id text not null, seq bigint not null, epoch bigint not null, turn_id text not null, kind text not null,
  body blob not null, at bigint not null, primary key (session_id, seq)) without rowid;
create table if not exists inbox (
  n integer primary key autoincrement, session_id text not null, key text not null, kind text not null,
  turn_id text not null, principal text not null, body blob not null, hash text not null, at bigint not null,
  taken_at bigint, first_seq bigint,
  unique (session_id, key));
create index if not exists inbox_waiting on inbox (session_id, n) where taken_at is null;
create table if not exists blobs (
  session_id text not null, digest text not null, body blob not null, primary key (session_id, digest));
`;

/** What brings a file of the version before up to each version; new files go the same way. */
const migrations: Readonly<Record<number, string>> = {
  2: `
alter table sessions add column wake_at bigint;
alter table sessions add column waiting_since bigint;
alter table sessions add column placement text not null default '';
alter table sessions add column deaths bigint not null default 0;
alter table sessions add column held_until bigint;
create index sessions_parked on sessions (wake_at) where wake_at is not null;
create index sessions_waiting on sessions (tenant, waiting_since, id) where waiting_since is not null;
alter table sessions add column pruned_seq bigint not null default 0;
alter table sessions add column prune_at bigint;
update sessions set prune_at = (select min(at) from events where session_id = sessions.id and kind = 'turn-finished');
create index sessions_to_prune on sessions (prune_at) where prune_at is not null;
create table requests (
  tenant text not null, request_id text not null, method text not null, hash text not null, owner text not null,
  answer blob, at bigint not null, primary key (tenant, request_id));
create index requests_by_age on requests (at);
`,
};

/** As SQL lists them. */
const deltas = `(${deltaKinds.map((kind) => `'${kind}'`).join(", ")})`;

const selectSession = `select *, (select count(*) from inbox
  where inbox.session_id = sessions.id and taken_at is null and inbox.kind = 'turn') as waiting_turns from sessions`;

type Row = Record<string, unknown>;

interface Write {
  readonly sessionId: string;
  readonly run: () => void;
  /** Why this write alone of its group was not done. */
  error?: AgentError;
}

/**
 * The embedded store: one SQLite file, WAL, every commit synced to the disk, writes of one moment committed together.
 * One process per file (`lockDataDir`), so whoever owned a session before this process started is dead.
 * A call that meets damage in the file rejects with `data_loss` and names the session; what is not damaged goes on.
 * @throws {AgentError} `failed_precondition` when the file was written by a newer version.
 * @throws what SQLite says of a file that it can't open; `openOrRescue` mends it.
 */
export function openSqliteStore(path: string): Store {
  const database = new DatabaseSync(path);
  let heldBack: readonly string[];
  try {
    database.exec("pragma journal_mode = wal; pragma synchronous = full; pragma busy_timeout = 5000");
    const version = numberOf(database.prepare("pragma user_version").get(), "user_version");
    if (version > schemaVersion) {
      throw new AgentError(
        "failed_precondition",
        `the database has schema version ${version} and this build knows up to ${schemaVersion}; use a newer build`,
      );
    }
    database.exec("begin immediate");
    createTables(database);
    database.exec("commit");
    heldBack = freeSessionsOfTheDead(database);
  } catch (error) {
    database.close();
    throw error;
  }
  return new SqliteStore(database, heldBack);
}

/** Returns the sessions that nobody is to claim any more since their owners keep dying. */
function freeSessionsOfTheDead(database: DatabaseSync): string[] {
  const heldBack: string[] = [];
  const free = database.prepare("update sessions set owner = null, deaths = ?, held_until = ? where id = ?");
  database.exec("begin immediate");
  for (const row of database.prepare("select id, deaths from sessions where owner is not null").all()) {
    const deaths = numberOf(row, "deaths") + 1;
    const until = heldUntil(deaths, Date.now());
    free.run(deaths, until ?? null, textOf(row, "id"));
    if (until === heldForGood) heldBack.push(textOf(row, "id"));
  }
  database.exec("commit");
  return heldBack;
}

/** Makes the tables of this version out of those that are there, or of none. To be called inside a transaction. */
export function createTables(database: DatabaseSync): void {
  const version = numberOf(database.prepare("pragma user_version").get(), "user_version");
  const steps = Object.entries(migrations).filter(([to]) => Number(to) > version);
  const changes = steps.map(([, change]) => change).join("");
  database.exec(
    `${schema} ${scheduleTables} ${planTables} ${memoryTables} ${changes} pragma user_version = ${schemaVersion}`,
  );
}

class SqliteStore implements Store {
  readonly #database: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();
  readonly #commits: GroupCommit<Write>;
  readonly #schedules: SqliteSchedules;
  readonly #plans: SqlitePlans;
  readonly #memories: SqliteMemories;
  readonly #replica = randomBytes(12).toString("hex");
  readonly shared = false;
  readonly #heldBack: readonly string[];
  #closed = false;

  constructor(database: DatabaseSync, heldBack: readonly string[]) {
    this.#database = database;
    this.#heldBack = heldBack;
    this.#commits = new GroupCommit((writes) => this.#commit(writes));
    const inStore: ScheduleDatabase = {
      run: (sql, ...values) => this.#run(sql, ...values),
      get: (sql, ...values) => this.#get(sql, ...values),
      all: (sql, ...values) => this.#all(sql, ...values),
      insertSession: (session) => void this.#insertSession(session, 1),
      send: (entry) => this.#send(entry),
      isNoted: (request) => this.#isNoted(request),
      note: (request) => this.#note(request),
    };
    this.#schedules = new SqliteSchedules(inStore);
    this.#plans = new SqlitePlans(inStore);
    this.#memories = new SqliteMemories(inStore);
  }

  async start(listener: StoreListener): Promise<void> {
    for (const sessionId of this.#heldBack) listener.heldBack(sessionId, true);
  }

  createSession(session: NewSession): Promise<MadeSession>;
  createSession(session: NewSession, answered: AnsweredRequest | undefined): Promise<MadeSession | "answered">;
  createSession(session: NewSession, answered?: AnsweredRequest): Promise<MadeSession | "answered"> {
    return this.#write(session.sessionId, () => {
      if (this.#isNoted(answered)) return "answered";
      const made = this.#insertSession(session, 1);
      if (made.created) this.#note(answered);
      return made;
    });
  }

  async readSession(tenant: string, sessionId: string): Promise<StoredSession | undefined> {
    const row = this.#reading(sessionId, () =>
      this.#get(`${selectSession} where id = ? and tenant = ?`, sessionId, tenant),
    );
    return row === undefined ? undefined : storedSession(row);
  }

  async listSessions(tenant: string, before: SessionPosition | undefined, limit: number) {
    const rows = this.#reading("", () =>
      before === undefined
        ? this.#all(`${selectSession} where tenant = ? order by created_at desc, id desc limit ?`, tenant, limit)
        : this.#all(
            `${selectSession} where tenant = ? and (created_at, id) < (?, ?) order by created_at desc, id desc limit ?`,
            tenant,
            before.createdMs,
            before.sessionId,
            limit,
          ),
    );
    return rows.map(storedSession);
  }

  updateConfig(
    sessionId: string,
    seenVersion: number,
    config: Uint8Array,
    atMs: number,
    answered?: AnsweredRequest,
  ): Promise<boolean | "answered"> {
    return this.#write(sessionId, () => {
      if (this.#isNoted(answered)) return "answered";
      const changed = this.#run(
        "update sessions set config = ?, config_version = config_version + 1, updated_at = ? where id = ? and config_version = ?",
        config,
        atMs,
        sessionId,
        seenVersion,
      );
      if (changed > 0) this.#note(answered);
      return changed > 0;
    });
  }

  deleteSession(tenant: string, sessionId: string, answered?: AnsweredRequest): Promise<boolean | "answered"> {
    return this.#write(sessionId, () => {
      if (this.#isNoted(answered)) return "answered";
      if (this.#run("delete from sessions where id = ? and tenant = ?", sessionId, tenant) === 0) return false;
      this.#note(answered);
      for (const table of ["events", "inbox", "blobs"])
        this.#run(`delete from ${table} where session_id = ?`, sessionId);
      this.#memories.clearSession(sessionId);
      this.#schedules.breakSchedulesOf(sessionId);
      return true;
    });
  }

  forkSession(parentId: string, throughSeq: number, session: NewSession): Promise<MadeSession | undefined>;
  forkSession(
    parentId: string,
    throughSeq: number,
    session: NewSession,
    answered: AnsweredRequest | undefined,
  ): Promise<MadeSession | "answered" | undefined>;
  forkSession(
    parentId: string,
    throughSeq: number,
    session: NewSession,
    answered?: AnsweredRequest,
  ): Promise<MadeSession | "answered" | undefined> {
    return this.#write(parentId, () => {
      if (this.#isNoted(answered)) return "answered";
      const parent = this.#get("select pruned_seq from sessions where id = ? and tenant = ?", parentId, session.tenant);
      if (parent === undefined) return undefined;
      const result = this.#insertSession(session, throughSeq + 1);
      if (!result.created) return result;
      this.#note(answered);
      const prunedSeq = numberOf(parent, "pruned_seq");
      this.#run(
        `insert into events select ?, seq, 0, turn_id, kind, body, at from events
         where session_id = ? and seq <= ? and not (seq <= ? and kind in ${deltas})`,
        session.sessionId,
        parentId,
        throughSeq,
        prunedSeq,
      );
      this.#run(
        `update sessions set pruned_seq = ?, prune_at =
           (select min(at) from events where session_id = id and kind = 'turn-finished')
         where id = ?`,
        prunedSeq <= throughSeq ? prunedSeq : this.#lastGap(session.sessionId, throughSeq),
        session.sessionId,
      );
      this.#run(
        "insert or ignore into blobs select ?, digest, body from blobs where session_id = ?",
        session.sessionId,
        parentId,
      );
      return result;
    });
  }

  send(entry: NewInboxEntry): Promise<SentEntry | "full" | undefined> {
    return this.#write(entry.sessionId, () => this.#send(entry));
  }

  async readInbox(sessionId: string): Promise<readonly InboxEntry[]> {
    return this.#reading(sessionId, () =>
      this.#all(
        "select key, kind, turn_id, principal, at from inbox where session_id = ? and taken_at is null order by n",
        sessionId,
      ),
    ).map((row) => ({
      key: textOf(row, "key"),
      kind: inboxKinds.find((kind) => kind === row["kind"]) ?? "turn",
      turnId: textOf(row, "turn_id"),
      principal: textOf(row, "principal"),
      atMs: numberOf(row, "at"),
    }));
  }

  async readCommand(sessionId: string, key: string) {
    const row = this.#reading(sessionId, () =>
      this.#get(
        "select body, config from inbox join sessions on id = session_id where session_id = ? and key = ? and taken_at is null",
        sessionId,
        key,
      ),
    );
    return row === undefined ? undefined : { body: bytesOf(row, "body"), config: bytesOf(row, "config") };
  }

  claim(sessionId: string): Promise<Claim | undefined> {
    return this.#write(sessionId, () => {
      const before = this.#get("select owner, token, tenant, held_until from sessions where id = ?", sessionId);
      if (before === undefined || before["owner"] !== null) return undefined;
      if (before["held_until"] !== null && numberOf(before, "held_until") > Date.now()) return undefined;
      const token = randomBytes(16).toString("hex");
      const row = this.#get(
        "update sessions set owner = ?, epoch = epoch + 1, token = ?, runnable = 1, wake_at = null where id = ? and owner is null returning epoch, next_seq, config",
        this.#replica,
        token,
        sessionId,
      );
      if (row === undefined) return undefined;
      return {
        fence: { epoch: numberOf(row, "epoch"), token },
        tenant: textOf(before, "tenant"),
        previousToken: textOf(before, "token"),
        headSeq: numberOf(row, "next_seq") - 1,
        config: bytesOf(row, "config"),
      };
    });
  }

  release(sessionId: string, fence: Fence, unfinished: boolean, pauseMs = 0): Promise<boolean> {
    return this.#write(sessionId, () => {
      const waits =
        unfinished ||
        this.#get("select 1 from inbox where session_id = ? and taken_at is null limit 1", sessionId) !== undefined;
      const released = this.#run(
        "update sessions set owner = null, runnable = ?, held_until = ? where id = ? and epoch = ? and token = ?",
        waits ? 1 : 0,
        pauseMs > 0 ? Date.now() + pauseMs : null,
        sessionId,
        fence.epoch,
        fence.token,
      );
      return waits && released > 0;
    });
  }

  park(sessionId: string, fence: Fence, wakeAtMs: number, seenKeys: readonly string[]): Promise<boolean> {
    return this.#write(sessionId, () => {
      const seen = new Set<unknown>(seenKeys);
      const more = this.#all("select key from inbox where session_id = ? and taken_at is null", sessionId).some(
        ({ key }) => !seen.has(key),
      );
      const parked = this.#run(
        "update sessions set owner = null, runnable = ?, wake_at = ? where id = ? and epoch = ? and token = ?",
        more ? 1 : 0,
        wakeAtMs,
        sessionId,
        fence.epoch,
        fence.token,
      );
      return more && parked > 0;
    });
  }

  async parkedSessions(limit: number) {
    return this.#reading("", () =>
      this.#all(
        `select id, wake_at as at from sessions where wake_at is not null and owner is null
         union all select id, held_until from sessions
           where runnable = 1 and owner is null and held_until is not null and held_until < ?
         order by at, id limit ?`,
        heldForGood,
        limit,
      ),
    ).map((row) => ({ sessionId: textOf(row, "id"), wakeAtMs: numberOf(row, "at") }));
  }

  async listWaiting(tenant: string, after: WaitingPosition | undefined, limit: number) {
    return this.#reading("", () =>
      this.#all(
        "select id, waiting_since, summary from sessions where tenant = ? and waiting_since is not null and (waiting_since, id) > (?, ?) order by waiting_since, id limit ?",
        tenant,
        after?.waitingSinceMs ?? -1,
        after?.sessionId ?? "",
        limit,
      ),
    ).map((row) => ({
      sessionId: textOf(row, "id"),
      waitingSinceMs: numberOf(row, "waiting_since"),
      summary: bytesOf(row, "summary"),
    }));
  }

  append(append: Append): Promise<{ readonly baseSeq: number } | undefined> {
    return this.#write(append.sessionId, () => {
      const count = append.events.length;
      const progress = append.events.some(({ kind }) => progressKinds.has(kind));
      const row = this.#get(
        `update sessions set next_seq = next_seq + ?, updated_at = ?, summary = coalesce(?, summary),
           waiting_since = iif(?, ?, waiting_since), deaths = iif(?, 0, deaths), prune_at = coalesce(prune_at, ?)
         where id = ? and epoch = ? and token = ? and next_seq = coalesce(?, next_seq) returning next_seq`,
        count,
        append.atMs,
        append.summary ?? null,
        append.waitingSinceMs === undefined ? 0 : 1,
        append.waitingSinceMs ?? null,
        progress ? 1 : 0,
        append.events.some(({ kind }) => kind === "turn-finished") ? append.atMs : null,
        append.sessionId,
        append.fence.epoch,
        append.fence.token,
        append.firstSeq ?? null,
      );
      if (row === undefined) return undefined;
      const baseSeq = numberOf(row, "next_seq") - count;
      for (const [index, event] of append.events.entries()) {
        this.#run(
          "insert into events (session_id, seq, epoch, turn_id, kind, body, at) values (?, ?, ?, ?, ?, ?, ?)",
          append.sessionId,
          baseSeq + index,
          append.fence.epoch,
          append.turnId,
          event.kind,
          event.body,
          append.atMs,
        );
      }
      this.#insertBlobs(append.sessionId, append.blobs ?? []);
      for (const key of append.takenKeys ?? []) {
        this.#run(
          "update inbox set taken_at = ?, first_seq = ?, body = x'' where session_id = ? and key = ?",
          append.atMs,
          baseSeq,
          append.sessionId,
          key,
        );
      }
      return { baseSeq };
    });
  }

  async runnableSessions(limit: number): Promise<readonly string[]> {
    return this.#reading("", () =>
      this.#all(
        "select id from sessions where runnable = 1 and owner is null and coalesce(held_until, 0) <= ? order by id limit ?",
        Date.now(),
        limit,
      ),
    ).map((row) => textOf(row, "id"));
  }

  async readEvents(sessionId: string, afterSeq: number, limit: number, limitBytes: number) {
    return this.#reading(sessionId, () => {
      const events: StoredEvent[] = [];
      let bytes = 0;
      const statement = this.#statement(
        `select seq, body from events where session_id = ? and seq > ?
           and not (kind in ${deltas} and seq <= (select pruned_seq from sessions where id = session_id))
         order by seq limit ?`,
      );
      for (const row of statement.iterate(sessionId, afterSeq, limit)) {
        const event = storedEvent(row);
        events.push(event);
        bytes += event.body.length;
        if (bytes >= limitBytes) break;
      }
      return events;
    });
  }

  async readHistory(sessionId: string, afterSeq: number, limit: number): Promise<readonly StoredEvent[]> {
    return this.#reading(sessionId, () =>
      this.#all(
        `select seq, body from events where session_id = ? and seq > ? and kind not in ${deltas} order by seq limit ?`,
        sessionId,
        afterSeq,
        limit,
      ),
    ).map(storedEvent);
  }

  async readBlob(sessionId: string, digest: string): Promise<Uint8Array | undefined> {
    const row = this.#reading(sessionId, () =>
      this.#get("select body from blobs where session_id = ? and digest = ?", sessionId, digest),
    );
    return row === undefined ? undefined : bytesOf(row, "body");
  }

  async readRequest(tenant: string, requestId: string): Promise<StoredRequest | undefined> {
    return this.#reading("", () => this.#request(tenant, requestId));
  }

  beginRequest(request: NewRequest): Promise<StoredRequest | undefined> {
    return this.#write("", () => {
      const noted = this.#request(request.tenant, request.requestId);
      if (noted === undefined) this.#insertRequest(request, null);
      return noted;
    });
  }

  answerRequest(answered: AnsweredRequest): Promise<void> {
    return this.#write("", () => {
      this.#insertRequest(answered, answered.answer);
      this.#run(
        "update requests set answer = ? where tenant = ? and request_id = ? and answer is null",
        answered.answer,
        answered.tenant,
        answered.requestId,
      );
    });
  }

  pruneRequests(beforeMs: number, limit: number): Promise<number> {
    return this.#write("", () =>
      this.#run(
        "delete from requests where rowid in (select rowid from requests where at < ? order by at limit ?)",
        beforeMs,
        limit,
      ),
    );
  }

  pruneDeltas(finishedUntilMs: number, limit: number) {
    return this.#write("", () => {
      const due = this.#get(
        "select id, pruned_seq from sessions where prune_at <= ? order by prune_at, id limit 1",
        finishedUntilMs,
      );
      if (due === undefined) return { removed: 0, more: false };
      const sessionId = textOf(due, "id");
      const removed = this.#run(
        `delete from events where session_id = ? and seq in
           (select seq from events where session_id = ? and seq <= ? and kind in ${deltas} order by seq limit ?)`,
        sessionId,
        sessionId,
        numberOf(due, "pruned_seq"),
        limit,
      );
      // First all is out of reach, then it goes piece by piece: nobody sees half of a block.
      if (removed < limit) this.#pruneNext(sessionId, numberOf(due, "pruned_seq"), finishedUntilMs);
      return { removed, more: true };
    });
  }

  createSchedule(schedule: NewSchedule, answered?: AnsweredRequest) {
    return this.#write("", () => this.#schedules.create(schedule, answered));
  }

  async readSchedule(tenant: string, scheduleId: string) {
    return this.#reading("", () => this.#schedules.read(tenant, scheduleId));
  }

  async listSchedules(tenant: string, sessionId: string, before: SchedulePosition | undefined, limit: number) {
    return this.#reading("", () => this.#schedules.list(tenant, sessionId, before, limit));
  }

  pauseSchedule(change: ScheduleChange) {
    return this.#write("", () => this.#schedules.pause(change));
  }

  resumeSchedule(change: ScheduleChange, nextMs: number | undefined) {
    return this.#write("", () => this.#schedules.resume(change, nextMs));
  }

  updateSchedule(update: ScheduleUpdate) {
    return this.#write("", () => this.#schedules.update(update));
  }

  deleteSchedule(change: ScheduleChange, answered?: AnsweredRequest) {
    return this.#write("", () => this.#schedules.delete(change, answered));
  }

  async dueSchedules(untilMs: number, limit: number) {
    return this.#reading("", () => this.#schedules.due(untilMs, limit));
  }

  fireSchedule(fire: ScheduleFire) {
    return this.#write(fire.runs[0]?.command.sessionId ?? "", () => this.#schedules.fire(fire));
  }

  runSchedule(tenant: string, run: ScheduledRun, atMs: number) {
    return this.#write(run.command.sessionId, () => this.#schedules.run(tenant, run, atMs));
  }

  async listScheduleRuns(tenant: string, scheduleId: string, before: number | undefined, limit: number) {
    return this.#reading("", () => this.#schedules.runs(tenant, scheduleId, before, limit));
  }

  createPlan(plan: NewPlan, answered?: AnsweredRequest) {
    return this.#write("", () => this.#plans.create(plan, answered));
  }

  addPlanVersion(version: NewPlanVersion, answered?: AnsweredRequest) {
    return this.#write("", () => this.#plans.addVersion(version, answered));
  }

  async readPlan(tenant: string, planId: string, version?: number) {
    return this.#reading("", () => this.#plans.read(tenant, planId, version));
  }

  async listPlans(tenant: string, sessionId: string, before: PlanPosition | undefined, limit: number) {
    return this.#reading("", () => this.#plans.list(tenant, sessionId, before, limit));
  }

  setPlanExecution(tenant: string, planId: string, executionId: string) {
    return this.#write("", () => this.#plans.setExecution(tenant, planId, executionId));
  }

  storeMemory(memory: NewMemory, limit: number) {
    return this.#write(memory.sessionId, () => this.#memories.store(memory, limit));
  }

  recallMemory(tenant: string, sessionId: string, memoryId: string, atMs: number) {
    return this.#write(sessionId, () => this.#memories.recall(tenant, sessionId, memoryId, atMs));
  }

  async searchMemories(search: MemorySearch) {
    return this.#reading(search.sessionId, () => this.#memories.search(search));
  }

  async countMemories(tenant: string, sessionId: string) {
    return this.#reading(sessionId, () => this.#memories.count(tenant, sessionId));
  }

  clearMemories(tenant: string, sessionId: string, kinds: readonly string[]) {
    return this.#write(sessionId, () => this.#memories.clear(tenant, sessionId, kinds));
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    await this.#commits.settled();
    this.#closed = true;
    this.#database.close();
  }

  #send(entry: NewInboxEntry): SentEntry | "full" | undefined {
    const session = this.#get(
      "select next_seq from sessions where id = ? and tenant = ?",
      entry.sessionId,
      entry.tenant,
    );
    if (session === undefined) return undefined;
    const headSeq = numberOf(session, "next_seq") - 1;
    const taken = this.#get(
      "select turn_id, hash, first_seq from inbox where session_id = ? and key = ?",
      entry.sessionId,
      entry.key,
    );
    if (taken !== undefined) {
      const firstSeq = taken["first_seq"] === null ? undefined : numberOf(taken, "first_seq");
      return { inserted: false, turnId: textOf(taken, "turn_id"), hash: textOf(taken, "hash"), firstSeq, headSeq };
    }
    const waiting = this.#get(
      "select count(*) as count from inbox where session_id = ? and kind = ? and taken_at is null",
      entry.sessionId,
      entry.kind,
    );
    if (numberOf(waiting, "count") >= entry.waitingLimit) return "full";
    this.#run(
      "insert into inbox (session_id, key, kind, turn_id, principal, body, hash, at) values (?, ?, ?, ?, ?, ?, ?, ?)",
      entry.sessionId,
      entry.key,
      entry.kind,
      entry.turnId,
      entry.principal,
      entry.body,
      entry.hash,
      entry.atMs,
    );
    this.#run("update sessions set runnable = 1 where id = ?", entry.sessionId);
    if (entry.kind === "cancel")
      this.#run("update sessions set deaths = 0, held_until = null where id = ?", entry.sessionId);
    return { inserted: true, turnId: entry.turnId, hash: entry.hash, firstSeq: undefined, headSeq };
  }

  #insertSession(session: NewSession, nextSeq: number): { created: boolean; session: StoredSession } {
    const before = this.#get(
      `${selectSession} where tenant = ? and request_id = ? and request_id <> ''`,
      session.tenant,
      session.requestId,
    );
    if (before !== undefined) return { created: false, session: storedSession(before) };
    const created =
      this.#run(
        `insert into sessions (id, tenant, parent_id, parent_seq, next_seq, owner, epoch, token, runnable, config,
           config_version, summary, request_id, request_hash, created_at, updated_at, placement)
         values (?, ?, ?, ?, ?, null, 0, '', 0, ?, 1, ?, ?, ?, ?, ?, ?) on conflict (id) do nothing`,
        session.sessionId,
        session.tenant,
        session.parentId,
        session.parentSeq,
        nextSeq,
        session.config,
        session.summary,
        session.requestId,
        session.requestHash,
        session.atMs,
        session.atMs,
        session.placement ?? "",
      ) > 0;
    if (created) this.#insertBlobs(session.sessionId, session.blobs);
    const row = this.#get(`${selectSession} where id = ?`, session.sessionId);
    if (row === undefined)
      throw new AgentError("internal", `session ${session.sessionId} was written and is not there`);
    return { created, session: storedSession(row) };
  }

  /** Puts out of reach what may go now, or notes when there may be something again. */
  #pruneNext(sessionId: string, prunedSeq: number, finishedUntilMs: number): void {
    const finished = this.#get(
      "select seq from events where session_id = ? and kind = 'turn-finished' and at <= ? order by seq desc limit 1",
      sessionId,
      finishedUntilMs,
    );
    const finishedSeq = finished === undefined ? 0 : numberOf(finished, "seq");
    const last = this.#get(
      `select seq from events where session_id = ? and seq > ? and seq < ? and kind in ${deltas} order by seq desc limit 1`,
      sessionId,
      prunedSeq,
      finishedSeq,
    );
    if (last !== undefined) {
      this.#run("update sessions set pruned_seq = ? where id = ?", numberOf(last, "seq"), sessionId);
      return;
    }
    const next = this.#get(
      "select at from events where session_id = ? and kind = 'turn-finished' and seq > ? order by seq limit 1",
      sessionId,
      finishedSeq,
    );
    this.#run(
      "update sessions set prune_at = ? where id = ?",
      // A clock that was set back gives later events earlier times.
      next === undefined ? null : Math.max(numberOf(next, "at"), finishedUntilMs + 1),
      sessionId,
    );
  }

  /** The last number up to `throughSeq` under which a log has no event. */
  #lastGap(sessionId: string, throughSeq: number): number {
    const row = this.#get(
      `select coalesce(max(seq), 1) - 1 as gap from events where session_id = ? and seq <= ? and seq > 1
         and not exists (select 1 from events before where before.session_id = events.session_id and before.seq = events.seq - 1)`,
      sessionId,
      throughSeq,
    );
    return numberOf(row, "gap");
  }

  #request(tenant: string, requestId: string): StoredRequest | undefined {
    const row = this.#get(
      "select method, hash, owner, answer from requests where tenant = ? and request_id = ?",
      tenant,
      requestId,
    );
    if (row === undefined) return undefined;
    return {
      method: textOf(row, "method"),
      hash: textOf(row, "hash"),
      answer: row["answer"] === null ? undefined : bytesOf(row, "answer"),
      owner: row["owner"] === this.#replica ? "here" : "gone",
    };
  }

  #isNoted(request: NewRequest | undefined): boolean {
    return request !== undefined && this.#request(request.tenant, request.requestId) !== undefined;
  }

  #note(answered: AnsweredRequest | undefined): void {
    if (answered !== undefined) this.#insertRequest(answered, answered.answer);
  }

  #insertRequest({ tenant, requestId, method, hash, atMs }: NewRequest, answer: Uint8Array | null): void {
    this.#run(
      "insert or ignore into requests (tenant, request_id, method, hash, owner, answer, at) values (?, ?, ?, ?, ?, ?, ?)",
      tenant,
      requestId,
      method,
      hash,
      this.#replica,
      answer,
      atMs,
    );
  }

  #insertBlobs(sessionId: string, blobs: readonly { digest: string; body: Uint8Array }[]): void {
    for (const blob of blobs) {
      this.#run(
        "insert or ignore into blobs (session_id, digest, body) values (?, ?, ?)",
        sessionId,
        blob.digest,
        blob.body,
      );
    }
  }

  #write<Result>(sessionId: string, operation: () => Result): Promise<Result> {
    if (this.#closed) return Promise.reject(new AgentError("unavailable", "the store is closed"));
    let outcome: { value: Result } | undefined;
    const write: Write = {
      sessionId,
      run: () => {
        outcome = { value: operation() };
      },
    };
    return this.#commits.submit(write, () => {
      if (write.error !== undefined) throw write.error;
      if (outcome === undefined) throw new AgentError("internal", "a committed write left no result");
      return outcome.value;
    });
  }

  async #commit(writes: readonly Write[]): Promise<readonly unknown[]> {
    try {
      this.#transaction(writes);
    } catch (cause) {
      if (!isDamage(cause) && !isConstraint(cause)) throw storeError(cause, "");
      // One write meets damage, or breaks a rule of a table: the others are not to fail for it.
      for (const write of writes) {
        try {
          this.#transaction([write]);
        } catch (error) {
          write.error = storeError(error, write.sessionId);
        }
      }
    }
    return writes.map(() => undefined);
  }

  #transaction(writes: readonly Write[]): void {
    try {
      this.#database.exec("begin immediate");
      for (const write of writes) write.run();
      this.#database.exec("commit");
    } catch (cause) {
      try {
        if (this.#database.isTransaction) this.#database.exec("rollback");
      } catch (rollbackError) {
        throw new AggregateError([cause, rollbackError], "rollback failed");
      }
      throw cause;
    }
  }

  /** @param sessionId what is read; empty for more than one session */
  #reading<Value>(sessionId: string, read: () => Value): Value {
    try {
      return read();
    } catch (error) {
      // A statement whose iteration failed says the same of whatever it is asked next.
      this.#statements.clear();
      throw storeError(error, sessionId);
    }
  }

  #statement(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#database.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }

  #run(sql: string, ...values: (string | number | Uint8Array | null)[]): number {
    return Number(this.#statement(sql).run(...values).changes);
  }

  #get(sql: string, ...values: (string | number | Uint8Array | null)[]): Row | undefined {
    return this.#statement(sql).get(...values);
  }

  #all(sql: string, ...values: (string | number | Uint8Array | null)[]): Row[] {
    return this.#statement(sql).all(...values);
  }
}

/** A row that a rule of its table refuses. */
function isConstraint(error: unknown): boolean {
  const constraint = 19;
  const code = error instanceof Error && "errcode" in error ? error.errcode : undefined;
  return typeof code === "number" && (code & 0xff) === constraint;
}

/**
 * Errors of SQLite in our own words: a full disk and a damaged file are the operator's to mend, the rest is the store being
 * unreachable.
 */
function storeError(cause: unknown, sessionId: string): AgentError {
  if (cause instanceof AgentError) return cause;
  if (isDamage(cause)) {
    const what = sessionId === "" ? "the list of sessions" : `session ${sessionId}`;
    return new AgentError(
      "data_loss",
      `${what} can't be read or written whole: the server's database is damaged there; restarting the server rescues what can be read`,
      { metadata: sessionId === "" ? {} : { sessionId }, cause },
    );
  }
  const message = cause instanceof Error ? cause.message : String(cause);
  if (/disk is full|SQLITE_FULL/i.test(message)) {
    return new AgentError(
      "resource_exhausted",
      "the server's disk is full: nothing was saved; make room and try again",
      {
        reason: "DISK_FULL",
        detail: { retryable: true },
        cause,
      },
    );
  }
  return new AgentError("unavailable", "the session store failed and nothing was saved; try again", {
    reason: "STORE_FAILED",
    detail: { retryable: true },
    cause,
  });
}

function storedSession(row: Row): StoredSession {
  return {
    sessionId: textOf(row, "id"),
    parentId: textOf(row, "parent_id"),
    parentSeq: numberOf(row, "parent_seq"),
    config: bytesOf(row, "config"),
    configVersion: numberOf(row, "config_version"),
    summary: bytesOf(row, "summary"),
    headSeq: numberOf(row, "next_seq") - 1,
    prunedSeq: numberOf(row, "pruned_seq"),
    requestId: textOf(row, "request_id"),
    requestHash: textOf(row, "request_hash"),
    waitingTurns: numberOf(row, "waiting_turns"),
    heldBack: row["held_until"] === heldForGood,
    createdMs: numberOf(row, "created_at"),
    updatedMs: numberOf(row, "updated_at"),
  };
}

function storedEvent(row: Row): StoredEvent {
  return { seq: numberOf(row, "seq"), body: bytesOf(row, "body") };
}

function numberOf(row: Row | undefined, column: string): number {
  const value = row?.[column];
  if (typeof value !== "number") throw new AgentError("internal", `column ${column} is no number`);
  return value;
}

function textOf(row: Row, column: string): string {
  const value = row[column];
  if (typeof value !== "string") throw new AgentError("internal", `column ${column} is no text`);
  return value;
}

function bytesOf(row: Row, column: string): Uint8Array {
  const value = row[column];
  if (!(value instanceof Uint8Array)) throw new AgentError("internal", `column ${column} is no bytes`);
  return value;
}
