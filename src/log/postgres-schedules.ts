import type { Ask } from "./postgres-client.ts";
import type { Row } from "./row.ts";
import {
  keptRuns,
  type NewSchedule,
  type ScheduleChange,
  type ScheduledRun,
  type ScheduleFire,
  type SchedulePosition,
  type ScheduleUpdate,
  type StoredRun,
  type StoredSchedule,
  sessionGone,
} from "./schedule-store.ts";
import { storedRun, storedSchedule } from "./sqlite-schedules.ts";
import type { NewInboxEntry, NewSession, SentEntry } from "./store.ts";

export const scheduleTables = `
create table codeagent.schedules (
  id text primary key, tenant text not null, principal text not null, session_id text not null, cron text not null,
  tz text not null, misfire text not null, body bytea not null, next_at bigint, paused integer not null,
  error text not null, last_at bigint, run_count bigint not null, created_at bigint not null, updated_at bigint not null);
create index schedules_by_age on codeagent.schedules (tenant, created_at, id);
create index schedules_by_session on codeagent.schedules (session_id) where session_id <> '';
create index schedules_due on codeagent.schedules (next_at, id) where next_at is not null;
create table codeagent.schedule_runs (
  n bigint primary key generated always as identity, schedule_id text not null, key text not null, id text not null,
  cause text not null, scheduled_at bigint not null, skipped text not null, session_id text not null,
  turn_id text not null, unique (schedule_id, key));
create index schedule_runs_by_age on codeagent.schedule_runs (schedule_id, n);
`;

/** How a run goes is in the log of its session. */
const selectRuns = `select runs.*, started.at as started_at, finished.at as finished_at, finished.body as finished_body,
    sessions.id is null as lost, sessions.waiting_since as waiting_since
  from codeagent.schedule_runs runs
  left join codeagent.sessions on sessions.id = runs.session_id
  left join codeagent.inbox on inbox.session_id = runs.session_id and inbox.key = runs.key
  left join lateral (select at from codeagent.events where session_id = runs.session_id and seq >= inbox.first_seq
    and turn_id = runs.turn_id order by seq limit 1) started on true
  left join lateral (select at, body from codeagent.events where session_id = runs.session_id and seq >= inbox.first_seq
    and turn_id = runs.turn_id and kind = 'turn-finished' order by seq limit 1) finished on true`;

/** What a run puts into the store, inside the same transaction. */
export interface RunTarget {
  insertSession(ask: Ask, session: NewSession): Promise<void>;
  send(ask: Ask, entry: NewInboxEntry): Promise<SentEntry | "full" | undefined>;
}

/** @returns whether it was created */
export async function createSchedule(ask: Ask, schedule: NewSchedule): Promise<boolean> {
  const { tenant, scheduleId, atMs } = schedule;
  const made = await ask(
    `insert into codeagent.schedules (id, tenant, principal, session_id, cron, tz, misfire, body, next_at, paused, error,
        run_count, created_at, updated_at)
      values ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, '', 0, $10, $10) on conflict (id) do nothing returning id`,
    [
      ...[scheduleId, tenant, schedule.principal, schedule.sessionId, schedule.cron, schedule.timeZone],
      ...[schedule.misfirePolicy, schedule.body, schedule.nextMs ?? null, atMs],
    ],
  );
  return made.length > 0;
}

export async function readSchedule(ask: Ask, tenant: string, scheduleId: string): Promise<StoredSchedule | undefined> {
  const [row] = await ask("select * from codeagent.schedules where id = $1 and tenant = $2", [scheduleId, tenant]);
  return row === undefined ? undefined : storedSchedule(row);
}

export async function listSchedules(
  ask: Ask,
  tenant: string,
  sessionId: string,
  before: SchedulePosition | undefined,
  limit: number,
): Promise<StoredSchedule[]> {
  const rows = await ask(
    `select * from codeagent.schedules where tenant = $1 and ($2 = '' or session_id = $2) and (created_at, id) < ($3, $4)
      order by created_at desc, id desc limit $5`,
    [tenant, sessionId, before?.createdMs ?? Number.MAX_SAFE_INTEGER, before?.scheduleId ?? "", limit],
  );
  return rows.map(storedSchedule);
}

export async function pauseSchedule(ask: Ask, { tenant, scheduleId, atMs }: ScheduleChange) {
  await ask(
    `update codeagent.schedules set paused = 1, next_at = null, updated_at = $3
      where id = $1 and tenant = $2 and paused = 0 and error = ''`,
    [scheduleId, tenant, atMs],
  );
  return readSchedule(ask, tenant, scheduleId);
}

export async function resumeSchedule(
  ask: Ask,
  { tenant, scheduleId, atMs }: ScheduleChange,
  nextMs: number | undefined,
) {
  await ask(
    `update codeagent.schedules set paused = 0, error = '', next_at = $3, updated_at = $4
      where id = $1 and tenant = $2 and (paused = 1 or error <> '')`,
    [scheduleId, tenant, nextMs ?? null, atMs],
  );
  return readSchedule(ask, tenant, scheduleId);
}

export async function updateSchedule(
  ask: Ask,
  { tenant, scheduleId, atMs, seen, cron, body, nextMs }: ScheduleUpdate,
): Promise<StoredSchedule | "stale" | undefined> {
  const changed = await ask(
    `update codeagent.schedules set cron = $3, body = $4, updated_at = $5,
        next_at = case when paused = 0 and error = '' then $6::bigint end
      where id = $1 and tenant = $2 and cron = $7 and body = $8 returning id`,
    [scheduleId, tenant, cron, body, atMs, nextMs ?? null, seen.cron, seen.body],
  );
  const stored = await readSchedule(ask, tenant, scheduleId);
  return changed.length > 0 || stored === undefined ? stored : "stale";
}

/** @returns whether it was there */
export async function deleteSchedule(ask: Ask, { tenant, scheduleId }: ScheduleChange): Promise<boolean> {
  const sql = "delete from codeagent.schedules where id = $1 and tenant = $2 returning id";
  if ((await ask(sql, [scheduleId, tenant])).length === 0) return false;
  await ask("delete from codeagent.schedule_runs where schedule_id = $1", [scheduleId]);
  return true;
}

export async function dueSchedules(ask: Ask, untilMs: number, limit: number): Promise<StoredSchedule[]> {
  const sql = "select * from codeagent.schedules where next_at <= $1 order by next_at, id limit $2";
  return (await ask(sql, [untilMs, limit])).map(storedSchedule);
}

export async function fireSchedule(
  ask: Ask,
  target: RunTarget,
  { tenant, scheduleId, seenMs, nextMs, runs, error, atMs }: ScheduleFire,
): Promise<StoredRun[] | undefined> {
  const moved = await ask(
    "update codeagent.schedules set next_at = $4, error = $5 where id = $1 and tenant = $2 and next_at = $3 returning id",
    [scheduleId, tenant, seenMs, nextMs ?? null, error],
  );
  if (moved.length === 0) return undefined;
  const listed: StoredRun[] = [];
  for (const run of runs) {
    // A time that comes once more, as after a clock was set back, is over.
    if ((await findRun(ask, run)).length > 0) continue;
    const sent = run.givesWay && (await isBusy(ask, scheduleId)) ? "busy" : await send(ask, target, run);
    if (sent === undefined) {
      await breakSchedulesOf(ask, run.command.sessionId);
      break;
    }
    await insertRun(ask, run, sent, atMs);
    listed.push(...(await findRun(ask, run)));
  }
  return listed;
}

export async function runSchedule(
  ask: Ask,
  target: RunTarget,
  tenant: string,
  run: ScheduledRun,
  atMs: number,
): Promise<StoredRun | "full" | undefined> {
  const { scheduleId, command } = run;
  // Two calls with one key take turns here.
  const there = "select 1 from codeagent.schedules where id = $1 and tenant = $2 for update";
  if ((await ask(there, [scheduleId, tenant])).length === 0) return undefined;
  const [before] = await findRun(ask, run);
  if (before !== undefined) return before;
  const sent = await send(ask, target, run);
  if (sent === "full") return sent;
  if (sent === undefined) {
    await breakSchedulesOf(ask, command.sessionId);
    return undefined;
  }
  await insertRun(ask, run, sent, atMs);
  const [listed] = await findRun(ask, run);
  return listed;
}

export async function listScheduleRuns(
  ask: Ask,
  tenant: string,
  scheduleId: string,
  before: number | undefined,
  limit: number,
): Promise<StoredRun[]> {
  if ((await readSchedule(ask, tenant, scheduleId)) === undefined) return [];
  const sql = `${selectRuns} where runs.schedule_id = $1 and runs.n < $2 order by runs.n desc limit $3`;
  return (await ask(sql, [scheduleId, before ?? Number.MAX_SAFE_INTEGER, limit])).map(runFrom);
}

/** A session is gone: nothing can run in it any more. */
export async function breakSchedulesOf(ask: Ask, sessionId: string): Promise<void> {
  await ask("update codeagent.schedules set next_at = null, error = $2 where session_id = $1 and session_id <> ''", [
    sessionId,
    sessionGone(sessionId),
  ]);
}

async function send(ask: Ask, target: RunTarget, { session, command }: ScheduledRun) {
  if (session !== undefined) await target.insertSession(ask, session);
  return target.send(ask, command);
}

async function insertRun(
  ask: Ask,
  { scheduleId, runId, trigger, scheduledMs, command }: ScheduledRun,
  sent: SentEntry | "busy" | "full",
  atMs: number,
): Promise<void> {
  const skipped = typeof sent === "string";
  await ask(
    `insert into codeagent.schedule_runs (schedule_id, key, id, cause, scheduled_at, skipped, session_id, turn_id)
      values ($1, $2, $3, $4, $5, $6, $7, $8)`,
    [
      ...[scheduleId, command.key, runId, trigger, scheduledMs],
      ...(skipped ? [sent, "", ""] : ["", command.sessionId, sent.turnId]),
    ],
  );
  await ask(
    `delete from codeagent.schedule_runs where schedule_id = $1 and n <= (
      select n from codeagent.schedule_runs where schedule_id = $1 order by n desc limit 1 offset $2)`,
    [scheduleId, keptRuns],
  );
  if (skipped) return;
  const sql = "update codeagent.schedules set last_at = $2, run_count = run_count + 1 where id = $1";
  await ask(sql, [scheduleId, atMs]);
}

async function isBusy(ask: Ask, scheduleId: string): Promise<boolean> {
  const sql = `${selectRuns} where runs.schedule_id = $1 and runs.skipped = '' order by runs.n desc limit 1`;
  const [last] = (await ask(sql, [scheduleId])).map(runFrom);
  return last !== undefined && last.finished === undefined && !last.lost;
}

async function findRun(ask: Ask, { scheduleId, command }: ScheduledRun): Promise<StoredRun[]> {
  const sql = `${selectRuns} where runs.schedule_id = $1 and runs.key = $2`;
  return (await ask(sql, [scheduleId, command.key])).map(runFrom);
}

function runFrom(row: Row): StoredRun {
  return storedRun({ ...row, lost: row["lost"] === true ? 1 : 0 });
}
