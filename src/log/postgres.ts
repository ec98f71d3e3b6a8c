import { randomBytes } from "node:crypto";
import { AgentError } from "../chat/error.ts";
import { GroupCommit } from "./group-commit.ts";
import { appendRounds, appendStatement } from "./postgres-append.ts";
import { isRefusal, PostgresClient, placeOf, postgresError, type Statement } from "./postgres-client.ts";
import { Member } from "./postgres-member.ts";
import { type Notice, NoticeReceiver, NoticeSender } from "./postgres-notices.ts";
import { migratePostgres, postgresSchemaVersion } from "./postgres-schema.ts";
import { bytesOf, numberOf, type Row, textOf } from "./row.ts";
import {
  type Append,
  type Claim,
  type Fence,
  heldForGood,
  type InboxEntry,
  inboxKinds,
  type NewInboxEntry,
  type NewSession,
  type SentEntry,
  type SessionPosition,
  type Store,
  type StoredEvent,
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

const nowMs = "(extract(epoch from clock_timestamp()) * 1000)::bigint";

const sessionColumns = `id, parent_id, parent_seq, next_seq, config, config_version, summary, request_id, request_hash,
  created_at, updated_at, held_until, (select count(*) from codeagent.inbox i
  where i.session_id = s.id and i.taken_at is null and i.kind = 'turn') as waiting_turns`;

const runnable = `runnable = 1 and owner is null and (held_until is null or held_until <= ${nowMs})`;

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
    await this.#member.join();
  }

  async createSession(session: NewSession) {
    const [made = [], rows = []] = await this.#transaction([insertSession(session, 1), selectCreated(session)]);
    return createdFrom(session, made, rows);
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

  async updateConfig(sessionId: string, seenVersion: number, config: Uint8Array, atMs: number): Promise<boolean> {
    const rows = await this.#query(
      `update codeagent.sessions set config = $3, config_version = config_version + 1, updated_at = $4
        where id = $1 and config_version = $2 returning 1`,
      [sessionId, seenVersion, config, atMs],
    );
    return rows.length > 0;
  }

  async deleteSession(tenant: string, sessionId: string): Promise<boolean> {
    // Nothing is removed of a session that is still there: another tenant's.
    const gone = "session_id = $1 and not exists (select 1 from codeagent.sessions where id = $1)";
    const [deleted = []] = await this.#transaction([
      { sql: "delete from codeagent.sessions where id = $1 and tenant = $2 returning 1", values: [sessionId, tenant] },
      ...["events", "inbox", "blobs"].map((table) => ({
        sql: `delete from codeagent.${table} where ${gone}`,
        values: [sessionId],
      })),
    ]);
    if (deleted.length === 0) return false;
    this.#owned.delete(sessionId);
    this.#say("deleted", sessionId);
    return true;
  }

  async forkSession(parentId: string, throughSeq: number, session: NewSession) {
    const [parents = [], made = [], rows = []] = await this.#transaction([
      {
        sql: "select 1 from codeagent.sessions where id = $1 and tenant = $2 for share",
        values: [parentId, session.tenant],
      },
      insertSession(session, throughSeq + 1, { parentId, throughSeq }),
      selectCreated(session),
    ]);
    return parents.length === 0 ? undefined : createdFrom(session, made, rows);
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
    const { sessionId } = entry;
    const [sessions = [], outcomes = []] = await this.#transaction([
      {
        // Senders take turns at the session's row, so that what the next statement counts is what is there.
        sql: "select next_seq, owner, placement from codeagent.sessions where id = $1 and tenant = $2 for update",
        values: [sessionId, entry.tenant],
        name: "send-lock",
      },
      {
        sql: sendSql,
        values: [
          ...[sessionId, entry.tenant, entry.key, entry.kind, entry.turnId, entry.principal, entry.body, entry.hash],
          ...[entry.atMs, entry.waitingLimit],
        ],
        name: "send",
      },
    ]);
    const [session] = sessions;
    const [outcome] = outcomes;
    if (session === undefined || outcome === undefined) return undefined;
    const headSeq = numberOf(session, "next_seq") - 1;
    if (outcome["turn_id"] !== null) {
      const firstSeq = outcome["first_seq"] === null ? undefined : numberOf(outcome, "first_seq");
      return { inserted: false, turnId: textOf(outcome, "turn_id"), hash: textOf(outcome, "hash"), firstSeq, headSeq };
    }
    if (outcome["added"] !== true) return "full";
    this.#tellWhoeverWorks(sessionId, session["owner"], textOf(session, "placement"));
    return { inserted: true, turnId: entry.turnId, hash: entry.hash, firstSeq: undefined, headSeq };
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
    const [row] = await this.#query(
      `update codeagent.sessions set owner = $2, epoch = epoch + 1, previous_token = token, token = $3, runnable = 1,
          wake_at = null
        where id = $1 and owner is null and (held_until is null or held_until <= ${nowMs})
          and (placement = '' or placement = any($4::text[])) and state_version <= $5
          and (select least_version from codeagent.schema_version) <= ${postgresSchemaVersion}
        returning epoch, tenant, previous_token, next_seq, config`,
      [sessionId, owner, token, this.#placements, this.#stateVersion],
      "claim",
    );
    if (row === undefined) return undefined;
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
      "select id, wake_at from codeagent.sessions where wake_at is not null and owner is null order by wake_at, id limit $1",
      [limit],
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
          from (select seq, body from codeagent.events where session_id = $1 and seq > $2 order by seq limit $3) page) page
        where bytes_before < $4 order by seq`,
      [sessionId, afterSeq, limit, limitBytes],
      "read-events",
    );
    return rows.map(storedEvent);
  }

  async readHistory(sessionId: string, afterSeq: number, limit: number): Promise<readonly StoredEvent[]> {
    const rows = await this.#query(
      `select seq, body from codeagent.events where session_id = $1 and seq > $2
        and kind not in ('block-start', 'block-delta', 'tool-output') order by seq limit $3`,
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
        sql: "select 1 from codeagent.sessions where id = $1 and epoch = $2 and token = $3 for update",
        values: [sessionId, fence.epoch, fence.token],
        name: "own-lock",
      },
      statement,
    ]);
    if (this.#owned.get(sessionId) === fence.token) this.#owned.delete(sessionId);
    return row;
  }

  #tellWhoeverWorks(sessionId: string, owner: unknown, placement: string): void {
    if (owner !== null) {
      if (owner !== this.#member.id) this.#say("commanded", sessionId);
    } else if (placement !== "" && !this.#placements.includes(placement)) {
      this.#say("runnable", sessionId);
    }
  }

  #say(...notice: Parameters<NoticeSender["say"]>): void {
    if (this.#receiver !== undefined) this.#notices.say(...notice);
  }

  #hear(notice: Notice): void {
    const listener = this.#listener;
    if (listener === undefined || notice.from === this.#process) return;
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
    const watched = new Map([...listener.watched()].filter(([sessionId]) => !this.#owned.has(sessionId)));
    const [toDo = [], heads = [], commanded = []] = await this.#watchClient.transaction([
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
        values: [[...this.#owned.keys()]],
        name: "look-commanded",
      },
    ]);
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

const sendSql = `
with known as (select turn_id, hash, first_seq from codeagent.inbox where session_id = $1 and key = $3),
waiting as (select count(*) as count from codeagent.inbox where session_id = $1 and kind = $4 and taken_at is null),
added as (
  insert into codeagent.inbox (session_id, key, kind, turn_id, principal, body, hash, at)
  select $1, $3, $4, $5, $6, $7, $8, $9 where exists (select 1 from codeagent.sessions where id = $1 and tenant = $2)
    and not exists (select 1 from known) and (select count from waiting) < $10
  returning 1),
woken as (
  update codeagent.sessions set runnable = 1, deaths = case when $4 = 'cancel' then 0 else deaths end,
    held_until = case when $4 = 'cancel' then null else held_until end
  where id = $1 and exists (select 1 from added))
select (select turn_id from known) as turn_id, (select hash from known) as hash,
  (select first_seq from known) as first_seq, exists (select 1 from added) as added`;

function insertSession(
  session: NewSession,
  nextSeq: number,
  from?: { readonly parentId: string; readonly throughSeq: number },
): Statement {
  const copied =
    from === undefined
      ? ""
      : `, events as (insert into codeagent.events (session_id, seq, epoch, turn_id, kind, body, at)
          select made.id, seq, 0, turn_id, kind, body, at from made, codeagent.events
          where session_id = $17 and seq <= $18::bigint),
        blobs as (insert into codeagent.blobs (session_id, digest, body)
          select made.id, digest, body from made, codeagent.blobs where session_id = $17 on conflict do nothing)`;
  return {
    sql: `with made as (insert into codeagent.sessions (id, tenant, parent_id, parent_seq, next_seq, owner, epoch, token,
          previous_token, runnable, config, config_version, summary, request_id, request_hash, created_at, updated_at,
          placement, deaths, state_version)
        select $1, $2, $3, $4::bigint, $5::bigint, null, 0, '', '', 0, $6::bytea, 1, $7::bytea, $8, $9, $10::bigint,
          $10::bigint, $11, 0, $12::bigint
        where ${from === undefined ? "true" : "exists (select 1 from codeagent.sessions where id = $17 and tenant = $2)"}
        on conflict do nothing returning id),
      own as (insert into codeagent.blobs (session_id, digest, body)
        select made.id, b.digest, substring($13::bytea from b.start for b.length)
        from made, unnest($14::text[], $15::integer[], $16::integer[]) as b (digest, start, length) on conflict do nothing)
      ${copied} select id from made`,
    values: [
      ...[session.sessionId, session.tenant, session.parentId, session.parentSeq, nextSeq, session.config],
      ...[session.summary, session.requestId, session.requestHash, session.atMs, session.placement ?? ""],
      stateVersionOfBuild,
      Buffer.concat(session.blobs.map(({ body }) => body)),
      session.blobs.map(({ digest }) => digest),
      startsOf(session.blobs.map(({ body }) => body)),
      session.blobs.map(({ body }) => body.length),
      ...(from === undefined ? [] : [from.parentId, from.throughSeq]),
    ],
  };
}

/** Positions in the run of all bytes, counted from 1. */
function startsOf(bodies: readonly Uint8Array[]): number[] {
  let next = 1;
  return bodies.map((body) => {
    next += body.length;
    return next - body.length;
  });
}

/** The session there is now: the one its request made, else the one that has the id. */
function selectCreated({ sessionId, tenant, requestId }: NewSession): Statement {
  return {
    sql: `select ${sessionColumns} from codeagent.sessions s
      where id = $1 or (tenant = $2 and request_id = $3 and request_id <> '')
      order by tenant = $2 and request_id = $3 and request_id <> '' desc limit 1`,
    values: [sessionId, tenant, requestId],
  };
}

function createdFrom(session: NewSession, made: readonly Row[], [row]: readonly Row[]) {
  if (row === undefined) throw new AgentError("internal", `session ${session.sessionId} was written and is not there`);
  return { created: made.length > 0, session: storedSession(row) };
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

function openingError(url: string, error: unknown): Error {
  if (error instanceof AgentError && error.kind === "failed_precondition") return error;
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  const why = cause instanceof Error && cause.message !== "" ? cause.message : "no connection";
  return new Error(`${placeOf(url)} can't be used (${why}); check DATABASE_URL`, { cause: error });
}
