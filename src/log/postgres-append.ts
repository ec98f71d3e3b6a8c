import type { Statement } from "./postgres-client.ts";
import { type Append, progressKinds } from "./store.ts";

/** Most bytes that go into one statement, but for a single append. */
const maxRoundBytes = 8 * 1024 * 1024;

/** Appends in order, so that no round has two of one session and none is too large. */
export function appendRounds(appends: readonly Append[]): Append[][] {
  const rounds: { readonly of: Append[]; bytes: number }[] = [];
  /** Where the next append of a session may go. */
  const next = new Map<string, number>();
  for (const append of appends) {
    const bytes = sizeOf(append);
    let at = next.get(append.sessionId) ?? 0;
    while (at < rounds.length && (rounds[at]?.bytes ?? 0) + bytes > maxRoundBytes) at++;
    const round = rounds[at] ?? { of: [], bytes: 0 };
    rounds[at] = round;
    round.of.push(append);
    round.bytes += bytes;
    next.set(append.sessionId, at + 1);
  }
  return rounds.map(({ of }) => of);
}

function sizeOf({ events, blobs = [], summary }: Append): number {
  const bodies = [...events, ...blobs].reduce((sum, { body }) => sum + body.length, 0);
  return bodies + (summary?.length ?? 0);
}

/**
 * One statement for appends of several sessions, each fenced by itself: a session that is missing in the answer
 * (`id`, `base`) has another owner. Bodies travel as one run of bytes.
 */
export function appendStatement(appends: readonly Append[], stateVersion: number): Statement {
  const bodies: Uint8Array[] = [];
  let length = 0;
  /** Position of the first byte, counted from 1 as `substring` does. */
  const put = (body: Uint8Array): number => {
    bodies.push(body);
    length += body.length;
    return length - body.length + 1;
  };
  const events = appends.flatMap((append) =>
    append.events.map((event, position) => ({ ...event, position, append, start: put(event.body) })),
  );
  const blobs = appends.flatMap(({ sessionId, blobs = [] }) =>
    blobs.map((blob) => ({ ...blob, sessionId, start: put(blob.body) })),
  );
  const keys = appends.flatMap(({ sessionId, takenKeys = [], atMs }) =>
    takenKeys.map((key) => ({ sessionId, key, atMs })),
  );
  const summaries = appends.map(({ summary }) => (summary === undefined ? null : put(summary)));
  return {
    name: "append",
    sql: appendSql,
    values: [
      appends.map(({ sessionId }) => sessionId),
      appends.map(({ fence }) => fence.epoch),
      appends.map(({ fence }) => fence.token),
      appends.map(({ firstSeq }) => firstSeq ?? null),
      appends.map((append) => append.events.length),
      appends.map(({ atMs }) => atMs),
      summaries,
      appends.map(({ summary }) => summary?.length ?? null),
      appends.map(({ waitingSinceMs }) => waitingSinceMs !== undefined),
      appends.map(({ waitingSinceMs }) => waitingSinceMs ?? null),
      appends.map((append) => append.events.some(({ kind }) => progressKinds.has(kind))),
      Buffer.concat(bodies),
      stateVersion,
      events.map(({ append }) => append.sessionId),
      events.map(({ position }) => position),
      events.map(({ append }) => append.turnId),
      events.map(({ kind }) => kind),
      events.map(({ start }) => start),
      events.map(({ body }) => body.length),
      events.map(({ append }) => append.atMs),
      blobs.map(({ sessionId }) => sessionId),
      blobs.map(({ digest }) => digest),
      blobs.map(({ start }) => start),
      blobs.map(({ body }) => body.length),
      keys.map(({ sessionId }) => sessionId),
      keys.map(({ key }) => key),
      keys.map(({ atMs }) => atMs),
      appends.map((append) => append.events.some(({ kind }) => kind === "turn-finished")),
    ],
  };
}

/**
 * The update of the session's row is the fence: it locks the row, so an append and a claim can't interleave, and the
 * order of the numbers is the order of the commits. Rows are locked in one order, against deadlocks between processes.
 */
const appendSql = `
with input as materialized (
  select * from unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::integer[],
    $8::integer[], $9::boolean[], $10::bigint[], $11::boolean[], $28::boolean[]) as t (session_id, epoch, token, first_seq, count, at,
    summary_start, summary_length, waits_changed, waiting_since, progress, finished)),
locked as materialized (
  select s.id from codeagent.sessions s join input i on s.id = i.session_id and s.epoch = i.epoch and s.token = i.token
  order by s.id for no key update of s),
grown as (
  update codeagent.sessions s set next_seq = s.next_seq + i.count, updated_at = i.at,
    summary = case when i.summary_start is null then s.summary
      else substring($12::bytea from i.summary_start for i.summary_length) end,
    waiting_since = case when i.waits_changed then i.waiting_since else s.waiting_since end,
    prune_at = case when i.finished then coalesce(s.prune_at, i.at) else s.prune_at end,
    deaths = case when i.progress then 0 else s.deaths end, state_version = greatest(s.state_version, $13::bigint)
  from input i join locked l on l.id = i.session_id
  where s.id = i.session_id and s.epoch = i.epoch and s.token = i.token
    and s.next_seq = coalesce(i.first_seq, s.next_seq)
  returning s.id, s.epoch, s.next_seq - i.count as base),
added as (
  insert into codeagent.events (session_id, seq, epoch, turn_id, kind, body, at)
  select g.id, g.base + e.position, g.epoch, e.turn_id, e.kind, substring($12::bytea from e.start for e.length), e.at
  from unnest($14::text[], $15::integer[], $16::text[], $17::text[], $18::integer[], $19::integer[], $20::bigint[])
    as e (session_id, position, turn_id, kind, start, length, at) join grown g on g.id = e.session_id),
kept as (
  insert into codeagent.blobs (session_id, digest, body)
  select g.id, b.digest, substring($12::bytea from b.start for b.length)
  from unnest($21::text[], $22::text[], $23::integer[], $24::integer[]) as b (session_id, digest, start, length)
    join grown g on g.id = b.session_id
  on conflict do nothing),
taken as (
  update codeagent.inbox i set taken_at = k.at, first_seq = g.base, body = ''
  from unnest($25::text[], $26::text[], $27::bigint[]) as k (session_id, key, at) join grown g on g.id = k.session_id
  where i.session_id = k.session_id and i.key = k.key)
select id, base from grown`;
