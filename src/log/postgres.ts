import { randomBytes } from "node:crypto";
import { AgentError } from "../chat/error.ts";
import { GroupCommit } from "./group-commit.ts";
import type { MemorySearch, NewMemory } from "./memory-store.ts";
import type { NewPlan, NewPlanVersion, PlanPosition } from "./plan-store.ts";
import { appendRounds, appendStatement } from "./postgres-append.ts";
import { type Ask, isRefusal, PostgresClient, postgresError, type Statement } from "./postgres-client.ts";
import { Member } from "./postgres-member.ts";
import {
  clearMemories,
  clearMemoriesOf,
  countMemories,
  recallMemory,
  searchMemories,
  storeMemory,
} from "./postgres-memories.ts";
import { type Notice, NoticeReceiver, NoticeSender } from "./postgres-notices.ts";
import { addPlanVersion, createPlan, listPlans, readPlan, setPlanExecution } from "./postgres-plans.ts";
import {
  answerRequest,
  deltas,
  insertRequest,
  pruneDeltas,
  pruneRequests,
  readRequest,
  removeRequest,
} from "./postgres-requests.ts";
import {
  breakSchedulesOf,
  createSchedule,
  deleteSchedule,
  dueSchedules,
  fireSchedule,
  listScheduleRuns,
  listSchedules,
  pauseSchedule,
  readSchedule,
  resumeSchedule,
  runSchedule,
  updateSchedule,
} from "./postgres-schedules.ts";
import { migratePostgres, openingError, postgresSchemaVersion } from "./postgres-schema.ts";
import {
  copyLog,
  createdFrom,
  insertSession,
  nowMs,
  paused,
  runnable,
  selectCreated,
  sendStatements,
  sentFrom,
  sessionColumns,
  storedEvent,
  storedSession,
} from "./postgres-sessions.ts";
import { bytesOf, numberOf, type Row, textOf } from "./row.ts";
import type {
  NewSchedule,
  ScheduleChange,
  ScheduledRun,
  ScheduleFire,
  SchedulePosition,
  ScheduleUpdate,
} from "./schedule-store.ts";
import {
  type AnsweredRequest,
  type Append,
  type Claim,
  type Fence,
  heldForGood,
  type InboxEntry,
  inboxKinds,
  type MadeSession,
  type NewInboxEntry,
  type NewRequest,
  type NewSession,
  type SentEntry,
  type SessionPosition,
  type Store,
  type StoredEvent,
  type StoredRequest,
  type StoredSession,
  type StoreListener,
  stateVersion as stateVersionOfBuild,
  type WaitingPosition,
} from "./store.ts";

export interface PostgresStoreOptions {
  /** As `postgres://user:password@host:port/database`. */
  readonly url: string;
  /** Where notices are heard; default `url`. Empty: nowhere, so others are noticed by looking, and the dead after `ttlMs`. */
  readonly listenUrl?: string;
  /** The database is reached through PgBouncer in transaction mode: nothing is kept on a connection. */
  readonly pgbouncer?: boolean;
  /** Most connections at a time, besides two. */
  readonly connections?: number;
  /** Least time from one commit of events to the next. */
  readonly commitIntervalMs?: number;
  /** A process that was not heard of for so long is dead. */
  readonly ttlMs?: number;
  /** How often it is looked for what no notice told. */
  readonly pollMs?: number;
  /** Longest wait for the database. */
  readonly timeoutMs?: number;
  /** Names under which sessions may ask for this process. */
  readonly placements?: readonly string[];
  /** Version of this build, for people. */
  readonly build?: string;
  /** Version of what this build writes; default that of this build. */
  readonly stateVersion?: number;
}

/** Most sessions named to the listener at one look. */
const namedSessions = 500;

/**
 * The store of many processes: a PostgreSQL database that all of them use. Everything a session is lives there, so any of
 * them can go on with it. Tables are made or brought up to date first.
 * @throws {Error} one sentence for the operator, when the database can't be used.
 */
export async function openPostgresStore(options: PostgresStoreOptions): Promise<Store> {
  const { url, pgbouncer = false, connections = 10, timeoutMs = 15_000 } = options;
  const client = new PostgresClient({ url, connections, prepare: !pgbouncer, timeoutMs });
  try {
    await migratePostgres(client);
  } catch (error) {
    await client.close();
    throw openingError(url, error);
  }
  return new PostgresStore(options, client);
}

class PostgresStore implements Store {
  readonly shared = true;
  readonly #client: PostgresClient;
  readonly #watchClient: PostgresClient;
  readonly #commits: GroupCommit<Append>;
  readonly #member: Member;
  readonly #notices: NoticeSender;
  readonly #options: PostgresStoreOptions;
  readonly #process = randomBytes(9).toString("base64url");
  readonly #lockKey = randomBytes(6).readUIntBE(0, 6);
  readonly #stateVersion: number;
  readonly #placements: readonly string[];
  /** Sessions this process owns, by the token they are owned with. */
  readonly #owned = new Map<string, string>();
  /** Tokens of the claims under way. */
  readonly #claiming = new Set<string>();
  /** Commands under way, the last of each session. */
  readonly #sending = new Map<string, Promise<void>>();
  #receiver: NoticeReceiver | undefined;
  #listener: StoreListener | undefined;
  #closed: Promise<void> | undefined;

  constructor(options: PostgresStoreOptions, client: PostgresClient) {
    const { url, pgbouncer = false, ttlMs = 10_000, pollMs = 1000, timeoutMs = 15_000 } = options;
    this.#options = options;
    this.#client = client;
    this.#stateVersion = options.stateVersion ?? stateVersionOfBuild;
    this.#placements = options.placements ?? [];
    this.#commits = new GroupCommit((appends) => this.#commit(appends), options.commitIntervalMs);
    this.#notices = new NoticeSender(client, this.#process);
    this.#watchClient = new PostgresClient({
      url,
      connections: 1,
      prepare: !pgbouncer,
      timeoutMs: Math.min(timeoutMs, Math.max(500, ttlMs / 3)),
    });
    this.#member = new Member({
      client: this.#watchClient,
      build: options.build ?? "",
      ttlMs,
      pollMs,
      heldLock: () => (this.#receiver?.holdsLock === true ? this.#lockKey : undefined),
      onFenced: () => {
        this.#owned.clear();
        this.#listener?.fenced();
      },
      onHeldBack: (sessionId) => {
        this.#say("heldBack", sessionId);
        this.#listener?.heldBack(sessionId, true);
      },
      poll: () => this.#look(),
    });
  }

  async start(listener: StoreListener): Promise<void> {
    const { url, pgbouncer = false, listenUrl = pgbouncer ? "" : url, timeoutMs = 15_000 } = this.#options;
    this.#listener = listener;
    if (listenUrl !== "") {
      const hear = (notice: Notice) => this.#hear(notice);
      const locked = () => this.#member.beatNow();
      this.#receiver = new NoticeReceiver(listenUrl, this.#lockKey, timeoutMs, hear, locked);
    }
    // Known with its lock from the first moment, it is missed at once when it dies; without it, after the time to live.
    await this.#receiver?.tried;
    await this.#member.join();
    if (this.#receiver !== undefined) this.#notices.greet();
  }

  createSession(session: NewSession): Promise<MadeSession>;
  createSession(session: NewSession, answered: AnsweredRequest | undefined): Promise<MadeSession | "answered">;
  async createSession(session: NewSession, answered?: AnsweredRequest): Promise<MadeSession | "answered"> {
    if (answered === undefined) {
      const [made = [], rows = []] = await this.#transaction([insertSession(session, 1), selectCreated(session)]);
      return createdFrom(session, made, rows);
    }
    return this.#answered(answered, async (ask) => {
      const created = await this.#insertSession(ask, session, 1);
      return { result: created, done: created.created };
    });
  }

  async readSession(tenant: string, sessionId: string): Promise<StoredSession | undefined> {
    const sql = `select ${sessionColumns} from codeagent.sessions s where id = $1 and tenant = $2`;
    const [row] = await this.#query(sql, [sessionId, tenant], "read-session");
    return row === undefined ? undefined : storedSession(row);
  }

  async listSessions(tenant: string, before: SessionPosition | undefined, limit: number) {
    const rows = await this.#query(
      `select ${sessionColumns} from codeagent.sessions s where tenant = $1 and ($2::bigint is null or (created_at, id) < ($2, $3))
        order by created_at desc, id desc limit $4`,
      [tenant, before?.createdMs ?? null, before?.sessionId ?? "", limit],
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
    return this.#answered(answered, async (ask) => {
      const rows = await ask(
        `update codeagent.sessions set config = $3, config_version = config_version + 1, updated_at = $4
          where id = $1 and config_version = $2 returning 1`,
        [sessionId, seenVersion, config, atMs],
      );
      return { result: rows.length > 0, done: rows.length > 0 };
    });
  }

  async deleteSession(tenant: string, sessionId: string, answered?: AnsweredRequest): Promise<boolean | "answered"> {
    const deleted = await this.#answered(answered, async (ask) => {
      const sql = "delete from codeagent.sessions where id = $1 and tenant = $2 returning 1";
      if ((await ask(sql, [sessionId, tenant])).length === 0) return { result: false, done: false };
      for (const table of ["events", "inbox", "blobs"])
        await ask(`delete from codeagent.${table} where session_id = $1`, [sessionId]);
      await clearMemoriesOf(ask, sessionId);
      await breakSchedulesOf(ask, sessionId);
      return { result: true, done: true };
    });
    if (deleted === true) {
      this.#owned.delete(sessionId);
      this.#say("deleted", sessionId);
    }
    return deleted;
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
    return this.#answered(answered, async (ask) => {
      // Only deletes and prunes have to wait for a fork, however long it takes: not who writes.
      const sql =
        "select id, pruned_seq, state_version from codeagent.sessions where id = $1 and tenant = $2 for key share";
      const [parent] = await ask(sql, [parentId, session.tenant]);
      if (parent === undefined) return { result: undefined, done: false };
      const made = await this.#insertSession(ask, session, throughSeq + 1);
      if (!made.created) return { result: made, done: false };
      await copyLog(ask, parent, throughSeq, session.sessionId);
      const [row] = await ask(`select ${sessionColumns} from codeagent.sessions s where id = $1`, [session.sessionId]);
      return { result: row === undefined ? made : { created: true, session: storedSession(row) }, done: true };
    });
  }

  /** In the order of the calls: on connections of their own they would overtake each other. */
  async send(entry: NewInboxEntry): Promise<SentEntry | "full" | undefined> {
    const before = this.#sending.get(entry.sessionId);
    const sent = (async () => {
      await before;
      return this.#send(entry);
    })();
    const done = sent.then(
      () => undefined,
      () => undefined,
    );
    this.#sending.set(entry.sessionId, done);
    try {
      return await sent;
    } finally {
      if (this.#sending.get(entry.sessionId) === done) this.#sending.delete(entry.sessionId);
    }
  }

  async #send(entry: NewInboxEntry): Promise<SentEntry | "full" | undefined> {
    const [sessions = [], outcomes = []] = await this.#transaction(sendStatements(entry));
    const sent = sentFrom(entry, sessions, outcomes);
    if (typeof sent === "object" && sent.inserted) this.#tellWhoeverWorks(entry.sessionId, sessions[0]);
    return sent;
  }

  async readInbox(sessionId: string): Promise<readonly InboxEntry[]> {
    const rows = await this.#query(
      "select key, kind, turn_id, principal, at from codeagent.inbox where session_id = $1 and taken_at is null order by n",
      [sessionId],
      "read-inbox",
    );
    return rows.map((row) => ({
      key: textOf(row, "key"),
      kind: inboxKinds.find((kind) => kind === row["kind"]) ?? "turn",
      turnId: textOf(row, "turn_id"),
      principal: textOf(row, "principal"),
      atMs: numberOf(row, "at"),
    }));
  }

  async readCommand(sessionId: string, key: string) {
    const [row] = await this.#query(
      `select body, config from codeagent.inbox join codeagent.sessions on id = session_id
        where session_id = $1 and key = $2 and taken_at is null`,
      [sessionId, key],
      "read-command",
    );
    return row === undefined ? undefined : { body: bytesOf(row, "body"), config: bytesOf(row, "config") };
  }

  async claim(sessionId: string): Promise<Claim | undefined> {
    this.#checkOpen();
    const owner = this.#member.id;
    if (owner === undefined) return undefined;
    const token = randomBytes(16).toString("hex");
    this.#claiming.add(token);
    try {
      return await this.#claim(sessionId, owner, token);
    } finally {
      this.#claiming.delete(token);
    }
  }

  async #claim(sessionId: string, owner: string, token: string): Promise<Claim | undefined> {
    const [row] = await this.#query(
      `update codeagent.sessions set owner = $2, epoch = epoch + 1, previous_token = token, token = $3, runnable = 1,
          wake_at = null
        where id = $1 and owner is null and (held_until is null or held_until <= ${nowMs})
          and (placement = '' or placement = any($4::text[])) and state_version <= $5
          and (select least_version from codeagent.schema_version) <= ${postgresSchemaVersion}
          and exists (select 1 from codeagent.replicas where id = $2)
        returning epoch, tenant, previous_token, next_seq, config`,
      [sessionId, owner, token, this.#placements, this.#stateVersion],
      "claim",
    );
    if (row === undefined) return undefined;
    this.#member.checkBeat();
    if (this.#member.id !== owner) {
      // It waited so long that this process was taken for dead. What can't be freed here is found without its owner.
      await this.#free(owner, [[sessionId, token]]).catch(() => undefined);
      return undefined;
    }
    this.#owned.set(sessionId, token);
    return {
      fence: { epoch: numberOf(row, "epoch"), token },
      tenant: textOf(row, "tenant"),
      previousToken: textOf(row, "previous_token"),
      headSeq: numberOf(row, "next_seq") - 1,
      config: bytesOf(row, "config"),
    };
  }

  async release(sessionId: string, fence: Fence, unfinished: boolean, pauseMs = 0): Promise<boolean> {
    const waits = "$4 or exists (select 1 from codeagent.inbox where session_id = $1 and taken_at is null)";
    const row = await this.#giveUp(sessionId, fence, {
      sql: `update codeagent.sessions set owner = null, runnable = case when ${waits} then 1 else 0 end,
          held_until = case when $5::bigint > 0 then ${nowMs} + $5::bigint end
        where id = $1 and epoch = $2 and token = $3 returning runnable`,
      values: [sessionId, fence.epoch, fence.token, unfinished, pauseMs],
      name: "release",
    });
    const more = row?.["runnable"] === 1;
    if (more && unfinished && pauseMs === 0) this.#say("runnable", sessionId);
    return more;
  }

  async park(sessionId: string, fence: Fence, wakeAtMs: number, seenKeys: readonly string[]): Promise<boolean> {
    const unseen = `exists (select 1 from codeagent.inbox
      where session_id = $1 and taken_at is null and not key = any($5::text[]))`;
    const row = await this.#giveUp(sessionId, fence, {
      sql: `update codeagent.sessions set owner = null, runnable = case when ${unseen} then 1 else 0 end, wake_at = $4
        where id = $1 and epoch = $2 and token = $3 returning runnable`,
      values: [sessionId, fence.epoch, fence.token, wakeAtMs, seenKeys],
      name: "park",
    });
    return row?.["runnable"] === 1;
  }

  async parkedSessions(limit: number) {
    const rows = await this.#query(
      `select id, least(wake_at, case when ${paused} then held_until end) as wake_at from codeagent.sessions
        where owner is null and (wake_at is not null or ${paused})
          and (placement = '' or placement = any($2::text[])) and state_version <= $3
        order by 2, id limit $1`,
      [limit, this.#placements, this.#stateVersion],
    );
    return rows.map((row) => ({ sessionId: textOf(row, "id"), wakeAtMs: numberOf(row, "wake_at") }));
  }

  async listWaiting(tenant: string, after: WaitingPosition | undefined, limit: number) {
    const rows = await this.#query(
      `select id, waiting_since, summary from codeagent.sessions
        where tenant = $1 and waiting_since is not null and (waiting_since, id) > ($2, $3)
        order by waiting_since, id limit $4`,
      [tenant, after?.waitingSinceMs ?? -1, after?.sessionId ?? "", limit],
    );
    return rows.map((row) => ({
      sessionId: textOf(row, "id"),
      waitingSinceMs: numberOf(row, "waiting_since"),
      summary: bytesOf(row, "summary"),
    }));
  }

  async append(append: Append): Promise<{ readonly baseSeq: number } | undefined> {
    this.#checkOpen();
    const done = await this.#commits.submit(append, (result) => {
      if (result instanceof Error) throw result;
      return typeof result === "number" ? { baseSeq: result } : undefined;
    });
    // Frozen since, this process may have been taken for dead: whoever goes on with the session has these events.
    this.#member.checkBeat();
    if (this.#member.id === undefined) return undefined;
    if (done === undefined) {
      if (this.#owned.get(append.sessionId) === append.fence.token) this.#owned.delete(append.sessionId);
    } else if (append.events.length > 0 && this.#member.hasOthers && this.#receiver !== undefined) {
      this.#notices.grown(append.sessionId, done.baseSeq + append.events.length - 1);
    }
    return done;
  }

  async runnableSessions(limit: number): Promise<readonly string[]> {
    const rows = await this.#query(`select id from codeagent.sessions where ${runnable} order by id limit $1`, [limit]);
    return rows.map((row) => textOf(row, "id"));
  }

  async readEvents(sessionId: string, afterSeq: number, limit: number, limitBytes: number) {
    const rows = await this.#query(
      `select seq, body from (
          select seq, body, sum(octet_length(body)) over (order by seq) - octet_length(body) as bytes_before
          from (select seq, body from codeagent.events where session_id = $1 and seq > $2
            and not (kind in ${deltas} and seq <= (select pruned_seq from codeagent.sessions where id = $1))
            order by seq limit $3) page) page
        where bytes_before < $4 order by seq`,
      [sessionId, afterSeq, limit, limitBytes],
      "read-events",
    );
    return rows.map(storedEvent);
  }

  async readHistory(sessionId: string, afterSeq: number, limit: number): Promise<readonly StoredEvent[]> {
    const rows = await this.#query(
      `select seq, body from codeagent.events where session_id = $1 and seq > $2
        and kind not in ${deltas} order by seq limit $3`,
      [sessionId, afterSeq, limit],
      "read-history",
    );
    return rows.map(storedEvent);
  }

  async readBlob(sessionId: string, digest: string): Promise<Uint8Array | undefined> {
    const sql = "select body from codeagent.blobs where session_id = $1 and digest = $2";
    const [row] = await this.#query(sql, [sessionId, digest]);
    return row === undefined ? undefined : bytesOf(row, "body");
  }

  readRequest(tenant: string, requestId: string): Promise<StoredRequest | undefined> {
    return readRequest(this.#ask, tenant, requestId, (owner) => this.#member.isOwn(owner));
  }

  async beginRequest(request: NewRequest): Promise<StoredRequest | undefined> {
    for (;;) {
      if (await insertRequest(this.#ask, request, this.#memberId(), null)) return undefined;
      const noted = await this.readRequest(request.tenant, request.requestId);
      if (noted !== undefined) return noted; // else it was pruned at this moment
    }
  }

  async answerRequest(answered: AnsweredRequest): Promise<void> {
    if (await insertRequest(this.#ask, answered, this.#process, answered.answer)) return;
    await answerRequest(this.#ask, answered);
  }

  pruneRequests(beforeMs: number, limit: number): Promise<number> {
    return pruneRequests(this.#ask, beforeMs, limit);
  }

  pruneDeltas(finishedUntilMs: number, limit: number) {
    return this.#client.conversation((ask) => pruneDeltas(ask, finishedUntilMs, limit));
  }

  createPlan(plan: NewPlan, answered?: AnsweredRequest) {
    return this.#answered(answered, async (ask) => {
      const created = await createPlan(ask, plan);
      const there = await readPlan(ask, plan.tenant, plan.planId, undefined);
      return { result: { created, plan: there }, done: created };
    });
  }

  addPlanVersion(version: NewPlanVersion, answered?: AnsweredRequest) {
    return this.#answered(answered, async (ask) => {
      const result = await addPlanVersion(ask, version);
      return { result, done: typeof result === "object" };
    });
  }

  readPlan(tenant: string, planId: string, version?: number) {
    return readPlan(this.#ask, tenant, planId, version);
  }

  listPlans(tenant: string, sessionId: string, before: PlanPosition | undefined, limit: number) {
    return listPlans(this.#ask, tenant, sessionId, before, limit);
  }

  setPlanExecution(tenant: string, planId: string, executionId: string) {
    return setPlanExecution(this.#ask, tenant, planId, executionId);
  }

  storeMemory(memory: NewMemory, limit: number) {
    this.#checkOpen();
    return this.#client.conversation((ask) => storeMemory(ask, memory, limit));
  }

  recallMemory(tenant: string, sessionId: string, memoryId: string, atMs: number) {
    return recallMemory(this.#ask, tenant, sessionId, memoryId, atMs);
  }

  searchMemories(search: MemorySearch) {
    return searchMemories(this.#ask, search);
  }

  countMemories(tenant: string, sessionId: string) {
    return countMemories(this.#ask, tenant, sessionId);
  }

  clearMemories(tenant: string, sessionId: string, kinds: readonly string[]) {
    return clearMemories(this.#ask, tenant, sessionId, kinds);
  }

  createSchedule(schedule: NewSchedule, answered?: AnsweredRequest) {
    return this.#answered(answered, async (ask) => {
      const created = await createSchedule(ask, schedule);
      const there = await readSchedule(ask, schedule.tenant, schedule.scheduleId);
      return { result: { created, schedule: there }, done: created };
    });
  }

  readSchedule(tenant: string, scheduleId: string) {
    return readSchedule(this.#ask, tenant, scheduleId);
  }

  listSchedules(tenant: string, sessionId: string, before: SchedulePosition | undefined, limit: number) {
    return listSchedules(this.#ask, tenant, sessionId, before, limit);
  }

  pauseSchedule(change: ScheduleChange) {
    this.#checkOpen();
    return this.#client.conversation((ask) => pauseSchedule(ask, change));
  }

  resumeSchedule(change: ScheduleChange, nextMs: number | undefined) {
    this.#checkOpen();
    return this.#client.conversation((ask) => resumeSchedule(ask, change, nextMs));
  }

  updateSchedule(update: ScheduleUpdate) {
    this.#checkOpen();
    return this.#client.conversation((ask) => updateSchedule(ask, update));
  }

  deleteSchedule(change: ScheduleChange, answered?: AnsweredRequest) {
    return this.#answered(answered, async (ask) => {
      const result = await deleteSchedule(ask, change);
      return { result, done: result };
    });
  }

  dueSchedules(untilMs: number, limit: number) {
    return dueSchedules(this.#ask, untilMs, limit);
  }

  async fireSchedule(fire: ScheduleFire) {
    this.#checkOpen();
    const { tell, listed } = await this.#client.conversation(async (ask) => {
      const target = this.#runTarget();
      return { tell: target.tell, listed: await fireSchedule(ask, target, fire) };
    });
    tell();
    return listed;
  }

  async runSchedule(tenant: string, run: ScheduledRun, atMs: number) {
    this.#checkOpen();
    const { tell, listed } = await this.#client.conversation(async (ask) => {
      const target = this.#runTarget();
      return { tell: target.tell, listed: await runSchedule(ask, target, tenant, run, atMs) };
    });
    tell();
    return listed;
  }

  listScheduleRuns(tenant: string, scheduleId: string, before: number | undefined, limit: number) {
    return listScheduleRuns(this.#ask, tenant, scheduleId, before, limit);
  }

  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async #close(): Promise<void> {
    await this.#commits.settled();
    if (this.#listener !== undefined) await this.#member.close();
    await this.#notices.settled();
    await Promise.all([this.#receiver?.close(), this.#client.close(), this.#watchClient.close()]);
  }

  /** One statement for all appends that came together, as long as each is of another session. */
  async #commit(appends: readonly Append[]): Promise<readonly unknown[]> {
    const results = new Map<Append, number | Error>();
    for (const round of appendRounds(appends)) await this.#commitRound(round, results);
    return appends.map((append) => results.get(append));
  }

  async #commitRound(round: readonly Append[], results: Map<Append, number | Error>): Promise<void> {
    const { sql, values, name } = appendStatement(round, this.#stateVersion);
    try {
      const rows = await this.#client.query(sql, values, name);
      const bases = new Map(rows.map((row) => [textOf(row, "id"), numberOf(row, "base")]));
      for (const append of round) {
        const base = bases.get(append.sessionId);
        if (base !== undefined) results.set(append, base);
      }
    } catch (error) {
      if (round.length > 1 && isRefusal(error)) {
        // One of them can't be stored: the others are not to fail for it.
        for (const append of round) await this.#commitRound([append], results);
        return;
      }
      const failure = postgresError(error);
      for (const append of round) results.set(append, failure);
    }
  }

  /** Gives a session up with the row locked first, so that no command comes unseen. */
  async #giveUp(sessionId: string, fence: Fence, statement: Statement): Promise<Row | undefined> {
    const [, [row] = []] = await this.#transaction([
      {
        sql: "select 1 from codeagent.sessions where id = $1 and epoch = $2 and token = $3 for no key update",
        values: [sessionId, fence.epoch, fence.token],
        name: "own-lock",
      },
      statement,
    ]);
    if (this.#owned.get(sessionId) === fence.token) this.#owned.delete(sessionId);
    return row;
  }

  /** Does something once: if it is done, its answer is noted in the same transaction. */
  #answered<Result>(
    answered: AnsweredRequest | undefined,
    act: (ask: Ask) => Promise<{ readonly result: Result; readonly done: boolean }>,
  ): Promise<Result | "answered"> {
    this.#checkOpen();
    return this.#client.conversation(async (ask) => {
      // Noted first, so that of two at the same moment one waits for the other.
      if (answered !== undefined && !(await insertRequest(ask, answered, this.#memberId(), answered.answer)))
        return "answered";
      const { result, done } = await act(ask);
      if (answered !== undefined && !done) await removeRequest(ask, answered);
      return result;
    });
  }

  async #insertSession(ask: Ask, session: NewSession, nextSeq: number): Promise<MadeSession> {
    const insert = insertSession(session, nextSeq);
    const made = await ask(insert.sql, insert.values);
    const select = selectCreated(session);
    return createdFrom(session, made, await ask(select.sql, select.values));
  }

  /** What runs of schedules put into the store, and afterwards whom to tell. */
  #runTarget() {
    const told = new Map<string, Row | undefined>();
    return {
      insertSession: async (ask: Ask, session: NewSession) => {
        await this.#insertSession(ask, session, 1);
      },
      send: async (ask: Ask, entry: NewInboxEntry) => {
        const [lock, insert] = sendStatements(entry);
        const sessions = await ask(lock.sql, lock.values);
        const sent = sentFrom(entry, sessions, await ask(insert.sql, insert.values));
        if (typeof sent === "object" && sent.inserted) told.set(entry.sessionId, sessions[0]);
        return sent;
      },
      tell: () => {
        for (const [sessionId, session] of told) this.#tellWhoeverWorks(sessionId, session);
      },
    };
  }

  #memberId(): string {
    const id = this.#member.id;
    if (id !== undefined) return id;
    throw new AgentError("unavailable", "the session store can't be reached reliably now; try again", {
      reason: "STORE_FAILED",
      retryAfterMs: 1000,
      detail: { retryable: true },
    });
  }

  /** @param session its row when the command came */
  #tellWhoeverWorks(sessionId: string, session: Row | undefined): void {
    const owner = session?.["owner"] ?? null;
    const placement = session?.["placement"];
    if (owner !== null) {
      if (owner !== this.#member.id) this.#say("commanded", sessionId);
    } else if (typeof placement === "string" && placement !== "" && !this.#placements.includes(placement)) {
      this.#say("runnable", sessionId);
    }
  }

  #say(...notice: Parameters<NoticeSender["say"]>): void {
    if (this.#receiver !== undefined) this.#notices.say(...notice);
  }

  #hear(notice: Notice): void {
    const listener = this.#listener;
    if (notice.from === this.#process) return;
    this.#member.heardOther();
    if (listener === undefined) return;
    for (const [sessionId, headSeq] of notice.grown ?? []) listener.grown(sessionId, headSeq);
    for (const sessionId of notice.commanded ?? []) if (this.#owned.has(sessionId)) listener.commanded(sessionId);
    for (const sessionId of notice.runnable ?? []) listener.runnable(sessionId);
    for (const sessionId of notice.deleted ?? []) listener.deleted(sessionId);
    for (const sessionId of notice.heldBack ?? []) listener.heldBack(sessionId, false);
  }

  /** Looks for what no notice told, or told in vain. */
  async #look(): Promise<void> {
    const listener = this.#listener;
    if (listener === undefined) return;
    const owner = this.#member.id ?? "";
    const owned = new Map(this.#owned);
    const watched = new Map([...listener.watched()].filter(([sessionId]) => !owned.has(sessionId)));
    const [toDo = [], heads = [], commanded = [], there = [], mine = []] = await this.#watchClient.transaction([
      {
        sql: `select id from codeagent.sessions where (${runnable} or wake_at <= ${nowMs} and owner is null)
            and (placement = '' or placement = any($1::text[])) and state_version <= $2 order by id limit ${namedSessions}`,
        values: [this.#placements, this.#stateVersion],
        name: "look-runnable",
      },
      {
        sql: "select id, next_seq - 1 as head_seq, held_until from codeagent.sessions where id = any($1::text[])",
        values: [[...watched.keys()]],
        name: "look-watched",
      },
      {
        sql: "select distinct session_id as id from codeagent.inbox where taken_at is null and session_id = any($1::text[])",
        values: [[...owned.keys()]],
        name: "look-commanded",
      },
      {
        sql: "select id from codeagent.sessions where id = any($1::text[])",
        values: [[...owned.keys()]],
        name: "look-owned",
      },
      { sql: "select id, token from codeagent.sessions where owner = $1", values: [owner], name: "look-mine" },
    ]);
    // A claim whose answer was lost was done all the same, at once or later: nobody works there, and nobody else may.
    const lost = mine
      .map((row): [string, string] => [textOf(row, "id"), textOf(row, "token")])
      .filter(([sessionId, token]) => this.#owned.get(sessionId) !== token && !this.#claiming.has(token));
    if (lost.length > 0) await this.#free(owner, lost);
    const existing = new Set(there.map((row) => textOf(row, "id")));
    for (const [sessionId, token] of owned) {
      if (existing.has(sessionId) || this.#owned.get(sessionId) !== token) continue;
      this.#owned.delete(sessionId);
      listener.deleted(sessionId);
    }
    for (const row of toDo) listener.runnable(textOf(row, "id"));
    for (const row of commanded) listener.commanded(textOf(row, "id"));
    const found = new Map(heads.map((row) => [textOf(row, "id"), row]));
    for (const [sessionId, seen] of watched) {
      const row = found.get(sessionId);
      if (row === undefined) {
        listener.deleted(sessionId);
        continue;
      }
      const headSeq = numberOf(row, "head_seq");
      if (headSeq < seen) listener.shortened(sessionId, headSeq);
      else listener.grown(sessionId, headSeq);
      if (row["held_until"] === heldForGood) listener.heldBack(sessionId, false);
    }
  }

  /** Frees sessions that are owned under a token nobody uses; locked ones are left to the next look. */
  async #free(owner: string, sessions: readonly (readonly [sessionId: string, token: string])[]): Promise<void> {
    const freed = await this.#watchClient.query(
      `with unused as (select * from unnest($2::text[], $3::text[]) as t(id, token)),
        locked as (select s.id from codeagent.sessions s join unused u on u.id = s.id and u.token = s.token
          where s.owner = $1 order by s.id for no key update of s skip locked)
      update codeagent.sessions s set owner = null, runnable = 1 from locked l where s.id = l.id returning s.id`,
      [owner, sessions.map(([sessionId]) => sessionId), sessions.map(([, token]) => token)],
      "free-unused",
    );
    for (const row of freed) this.#listener?.runnable(textOf(row, "id"));
  }

  readonly #ask: Ask = (sql, values) => this.#query(sql, values);

  #query(...query: Parameters<PostgresClient["query"]>) {
    this.#checkOpen();
    return this.#client.query(...query);
  }

  #transaction(statements: readonly Statement[]) {
    this.#checkOpen();
    return this.#client.transaction(statements);
  }

  #checkOpen(): void {
    if (this.#closed !== undefined) throw new AgentError("unavailable", "the store is closed");
  }
}
