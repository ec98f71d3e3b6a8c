import { AgentError } from "../chat/error.ts";
import type { Ask, Statement } from "./postgres-client.ts";
import { deltas } from "./postgres-requests.ts";
import { bytesOf, numberOf, type Row, textOf } from "./row.ts";
import {
  heldForGood,
  type MadeSession,
  type NewInboxEntry,
  type NewSession,
  type StoredEvent,
  type StoredSession,
  stateVersion,
} from "./store.ts";

/** The database's clock, the only one that is compared: milliseconds since 1970. */
export const nowMs = "(extract(epoch from clock_timestamp()) * 1000)::bigint";

export const sessionColumns = `id, parent_id, parent_seq, next_seq, pruned_seq, config,
  config_version, summary, request_id, request_hash,
  created_at, updated_at, held_until, (select count(*) from codeagent.inbox i
  where i.session_id = s.id and i.taken_at is null and i.kind = 'turn') as waiting_turns`;

/** Somebody may claim it. */
export const runnable = `runnable = 1 and owner is null and (held_until is null or held_until <= ${nowMs})`;

/** Nobody may claim it for some time, and then somebody should. */
export const paused = `runnable = 1 and held_until < ${heldForGood}`;

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

/** Its answer has a row when the session was made. */
export function insertSession(session: NewSession, nextSeq: number): Statement {
  const bodies = session.blobs.map(({ body }) => body);
  return {
    sql: insertSql,
    values: [
      ...[session.sessionId, session.tenant, session.parentId, session.parentSeq, nextSeq, session.config],
      ...[session.summary, session.requestId, session.requestHash, session.atMs, session.placement ?? "", stateVersion],
      ...[Buffer.concat(bodies), session.blobs.map(({ digest }) => digest)],
      ...[startsOf(bodies), bodies.map((body) => body.length)],
    ],
    name: "insert-session",
  };
}

const insertSql = `
with made as (
  insert into codeagent.sessions (id, tenant, parent_id, parent_seq, next_seq, owner, epoch, token, previous_token,
    runnable, config, config_version, summary, request_id, request_hash, created_at, updated_at, pruned_seq, placement,
    deaths, state_version)
  values ($1, $2, $3, $4, $5, null, 0, '', '', 0, $6, 1, $7, $8, $9, $10, $10, 0, $11, 0, $12)
  on conflict do nothing returning id),
kept as (
  insert into codeagent.blobs (session_id, digest, body)
  select made.id, b.digest, substring($13::bytea from b.start for b.length)
  from made, unnest($14::text[], $15::integer[], $16::integer[]) as b (digest, start, length) on conflict do nothing)
select id from made`;

/** Copies what a new session is a fork of: the parent's log up to an event, as far as it is there, and its blobs. */
export async function copyLog(ask: Ask, parent: Row, throughSeq: number, sessionId: string): Promise<void> {
  const parentId = textOf(parent, "id");
  const prunedSeq = numberOf(parent, "pruned_seq");
  await ask(
    `insert into codeagent.events (session_id, seq, epoch, turn_id, kind, body, at)
      select $1, seq, 0, turn_id, kind, body, at from codeagent.events
      where session_id = $2 and seq <= $3 and not (seq <= $4 and kind in ${deltas})`,
    [sessionId, parentId, throughSeq, prunedSeq],
  );
  // The last number under which the copy has no event, where more than the copy was pruned.
  const lastGap = `(select coalesce(max(seq), 1) - 1 from codeagent.events e where session_id = $1 and seq <= $2 and seq > 1
    and not exists (select 1 from codeagent.events b where b.session_id = $1 and b.seq = e.seq - 1))`;
  await ask(
    `update codeagent.sessions set pruned_seq = case when $3::bigint <= $2::bigint then $3::bigint else ${lastGap} end,
        state_version = greatest(state_version, $4::bigint),
        prune_at = (select min(at) from codeagent.events where session_id = $1 and kind = 'turn-finished')
      where id = $1`,
    [sessionId, throughSeq, prunedSeq, numberOf(parent, "state_version")],
  );
  await ask(
    `insert into codeagent.blobs (session_id, digest, body)
      select $1, digest, body from codeagent.blobs where session_id = $2 on conflict do nothing`,
    [sessionId, parentId],
  );
}

/** Puts a command into the inbox: two statements, the first of which makes senders take turns at the session's row. */
export function sendStatements(entry: NewInboxEntry): [Statement, Statement] {
  const { sessionId, tenant } = entry;
  return [
    {
      // What the next statement counts is then what is there.
      sql: "select next_seq, owner, placement from codeagent.sessions where id = $1 and tenant = $2 for no key update",
      values: [sessionId, tenant],
      name: "send-lock",
    },
    {
      sql: sendSql,
      values: [
        ...[sessionId, tenant, entry.key, entry.kind, entry.turnId, entry.principal, entry.body, entry.hash],
        ...[entry.atMs, entry.waitingLimit],
      ],
      name: "send",
    },
  ];
}

/** What the answers to `sendStatements` mean. */
export function sentFrom(entry: NewInboxEntry, [session]: readonly Row[], [outcome]: readonly Row[]) {
  if (session === undefined || outcome === undefined) return undefined;
  const headSeq = numberOf(session, "next_seq") - 1;
  if (outcome["turn_id"] !== null) {
    const firstSeq = outcome["first_seq"] === null ? undefined : numberOf(outcome, "first_seq");
    return { inserted: false, turnId: textOf(outcome, "turn_id"), hash: textOf(outcome, "hash"), firstSeq, headSeq };
  }
  if (outcome["added"] !== true) return "full" as const;
  return { inserted: true, turnId: entry.turnId, hash: entry.hash, firstSeq: undefined, headSeq };
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
export function selectCreated({ sessionId, tenant, requestId }: NewSession): Statement {
  return {
    sql: `select ${sessionColumns} from codeagent.sessions s
      where id = $1 or (tenant = $2 and request_id = $3 and request_id <> '')
      order by tenant = $2 and request_id = $3 and request_id <> '' desc limit 1`,
    values: [sessionId, tenant, requestId],
  };
}

export function createdFrom(session: NewSession, made: readonly Row[], [row]: readonly Row[]): MadeSession {
  if (row === undefined) throw new AgentError("internal", `session ${session.sessionId} was written and is not there`);
  return { created: made.length > 0, session: storedSession(row) };
}

export function storedSession(row: Row): StoredSession {
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

export function storedEvent(row: Row): StoredEvent {
  return { seq: numberOf(row, "seq"), body: bytesOf(row, "body") };
}
