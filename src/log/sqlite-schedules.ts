import { AgentError } from "../chat/error.ts";
import { bytesOf, numberOf, type Row, textOf } from "./row.ts";
import {
  keptRuns,
  type NewSchedule,
  runTriggers,
  type ScheduleChange,
  type ScheduledRun,
  type ScheduleFire,
  type SchedulePosition,
  type ScheduleUpdate,
  type StoredRun,
  type StoredSchedule,
  sessionGone,
  skipReasons,
} from "./schedule-store.ts";
import type { AnsweredRequest, NewInboxEntry, NewSession, SentEntry } from "./store.ts";

/** The tables of schedules; made where they are missing. */
export const scheduleTables = `
create table if not exists schedules (
  id text primary key, tenant text not null, principal text not null, session_id text not null, cron text not null,
  tz text not null, misfire text not null, body blob not null, next_at bigint, paused integer not null,
  error text not null, last_at bigint, run_count bigint not null, created_at bigint not null, updated_at bigint not null);
create index if not exists schedules_by_age on schedules (tenant, created_at, id);
create index if not exists schedules_by_session on schedules (session_id) where session_id <> '';
create index if not exists schedules_due on schedules (next_at, id) where next_at is not null;
create table if not exists schedule_runs (
  n integer primary key autoincrement, schedule_id text not null, key text not null, id text not null,
  cause text not null, scheduled_at bigint not null, skipped text not null, session_id text not null,
  turn_id text not null, unique (schedule_id, key));
create index if not exists schedule_runs_by_age on schedule_runs (schedule_id, n);
`;

type Value = string | number | Uint8Array | null;

/** What is needed of the store around: its statements, and what a run puts into it. */
export interface ScheduleDatabase {
  run(sql: string, ...values: Value[]): number;
  get(sql: string, ...values: Value[]): Row | undefined;
  all(sql: string, ...values: Value[]): Row[];
  insertSession(session: NewSession): void;
  send(entry: NewInboxEntry): SentEntry | "full" | undefined;
  isNoted(request: AnsweredRequest | undefined): boolean;
  note(request: AnsweredRequest | undefined): void;
}

/** How a run goes is in the log of its session. */
const selectRuns = `select runs.*, started.at as started_at, finished.at as finished_at, finished.body as finished_body,
    sessions.id is null as lost, sessions.waiting_since as waiting_since
  from schedule_runs runs
  left join sessions on sessions.id = runs.session_id
  left join inbox on inbox.session_id = runs.session_id and inbox.key = runs.key
  left join events started on started.session_id = runs.session_id and started.seq = (select min(seq) from events
    where session_id = runs.session_id and seq >= inbox.first_seq and turn_id = runs.turn_id)
  left join events finished on finished.session_id = runs.session_id and finished.seq = (select min(seq) from events
    where session_id = runs.session_id and seq >= inbox.first_seq and turn_id = runs.turn_id and kind = 'turn-finished')`;

/** Schedules in a SQLite store. What changes something is to be called inside a transaction. */
export class SqliteSchedules {
  readonly #database: ScheduleDatabase;

  constructor(database: ScheduleDatabase) {
    this.#database = database;
  }

  create(schedule: NewSchedule, answered: AnsweredRequest | undefined) {
    if (this.#database.isNoted(answered)) return "answered";
    const { tenant, scheduleId, atMs } = schedule;
    const inserted = this.#database.run(
      `insert into schedules (id, tenant, principal, session_id, cron, tz, misfire, body, next_at, paused, error,
         last_at, run_count, created_at, updated_at)
       values (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, '', null, 0, ?, ?) on conflict (id) do nothing`,
      ...[scheduleId, tenant, schedule.principal, schedule.sessionId, schedule.cron, schedule.timeZone],
      ...[schedule.misfirePolicy, schedule.body, schedule.nextMs ?? null, atMs, atMs],
    );
    if (inserted > 0) this.#database.note(answered);
    return { created: inserted > 0, schedule: this.read(tenant, scheduleId) };
  }

  read(tenant: string, scheduleId: string): StoredSchedule | undefined {
    const row = this.#database.get("select * from schedules where id = ? and tenant = ?", scheduleId, tenant);
    return row === undefined ? undefined : storedSchedule(row);
  }

  list(tenant: string, sessionId: string, before: SchedulePosition | undefined, limit: number): StoredSchedule[] {
    return this.#database
      .all(
        `select * from schedules where tenant = ? and (? = '' or session_id = ?) and (created_at, id) < (?, ?)
         order by created_at desc, id desc limit ?`,
        ...[tenant, sessionId, sessionId],
        ...[before?.createdMs ?? Number.MAX_SAFE_INTEGER, before?.scheduleId ?? "", limit],
      )
      .map(storedSchedule);
  }

  pause({ tenant, scheduleId, atMs }: ScheduleChange): StoredSchedule | undefined {
    this.#database.run(
      `update schedules set paused = 1, next_at = null, updated_at = ?
       where id = ? and tenant = ? and paused = 0 and error = ''`,
      ...[atMs, scheduleId, tenant],
    );
    return this.read(tenant, scheduleId);
  }

  resume({ tenant, scheduleId, atMs }: ScheduleChange, nextMs: number | undefined): StoredSchedule | undefined {
    this.#database.run(
      `update schedules set paused = 0, error = '', next_at = ?, updated_at = ?
       where id = ? and tenant = ? and (paused = 1 or error <> '')`,
      ...[nextMs ?? null, atMs, scheduleId, tenant],
    );
    return this.read(tenant, scheduleId);
  }

  update({ tenant, scheduleId, atMs, seen, cron, body, nextMs }: ScheduleUpdate): StoredSchedule | "stale" | undefined {
    const changed = this.#database.run(
      `update schedules set cron = ?, body = ?, updated_at = ?,
         next_at = case when paused = 0 and error = '' then ? end
       where id = ? and tenant = ? and cron = ? and body = ?`,
      ...[cron, body, atMs, nextMs ?? null, scheduleId, tenant, seen.cron, seen.body],
    );
    const stored = this.read(tenant, scheduleId);
    return changed > 0 || stored === undefined ? stored : "stale";
  }

  delete(change: ScheduleChange, answered: AnsweredRequest | undefined): boolean | "answered" {
    if (this.#database.isNoted(answered)) return "answered";
    const { tenant, scheduleId } = change;
    if (this.#database.run("delete from schedules where id = ? and tenant = ?", scheduleId, tenant) === 0) return false;
    this.#database.run("delete from schedule_runs where schedule_id = ?", scheduleId);
    this.#database.note(answered);
    return true;
  }

  due(untilMs: number, limit: number): StoredSchedule[] {
    return this.#database
      .all("select * from schedules where next_at <= ? order by next_at, id limit ?", untilMs, limit)
      .map(storedSchedule);
  }

  fire({ tenant, scheduleId, seenMs, nextMs, runs, error, atMs }: ScheduleFire): StoredRun[] | undefined {
    const moved = this.#database.run(
      "update schedules set next_at = ?, error = ? where id = ? and tenant = ? and next_at = ?",
      ...[nextMs ?? null, error, scheduleId, tenant, seenMs],
    );
    if (moved === 0) return undefined;
    const listed: StoredRun[] = [];
    for (const run of runs) {
      // A time that comes once more, as after a clock was set back, is over.
      if (this.#runs("runs.schedule_id = ? and runs.key = ?", scheduleId, run.command.key).length > 0) continue;
      const sent = run.givesWay && this.#isBusy(scheduleId) ? "busy" : this.#send(run);
      if (sent === undefined) {
        this.breakSchedulesOf(run.command.sessionId);
        break;
      }
      this.#insert(run, sent, atMs);
      listed.push(...this.#runs("runs.schedule_id = ? and runs.key = ?", scheduleId, run.command.key));
    }
    return listed;
  }

  run(tenant: string, run: ScheduledRun, atMs: number): StoredRun | "full" | undefined {
    const { scheduleId, command } = run;
    if (this.read(tenant, scheduleId) === undefined) return undefined;
    const find = () => this.#runs("runs.schedule_id = ? and runs.key = ?", scheduleId, command.key)[0];
    const before = find();
    if (before !== undefined) return before;
    const sent = this.#send(run);
    if (sent === "full") return sent;
    if (sent === undefined) {
      this.breakSchedulesOf(command.sessionId);
      return undefined;
    }
    this.#insert(run, sent, atMs);
    return find();
  }

  runs(tenant: string, scheduleId: string, before: number | undefined, limit: number): StoredRun[] {
    if (this.read(tenant, scheduleId) === undefined) return [];
    const end = before ?? Number.MAX_SAFE_INTEGER;
    return this.#runs("runs.schedule_id = ? and runs.n < ? order by runs.n desc limit ?", scheduleId, end, limit);
  }

  /** A session is gone: nothing can run in it any more. */
  breakSchedulesOf(sessionId: string): void {
    this.#database.run(
      "update schedules set next_at = null, error = ? where session_id = ? and session_id <> ''",
      sessionGone(sessionId),
      sessionId,
    );
  }

  #send({ session, command }: ScheduledRun): SentEntry | "full" | undefined {
    if (session !== undefined) this.#database.insertSession(session);
    return this.#database.send(command);
  }

  #insert(
    { scheduleId, runId, trigger, scheduledMs, command }: ScheduledRun,
    sent: SentEntry | "busy" | "full",
    atMs: number,
  ) {
    const skipped = typeof sent === "string" ? sent : "";
    this.#database.run(
      `insert into schedule_runs (schedule_id, key, id, cause, scheduled_at, skipped, session_id, turn_id)
       values (?, ?, ?, ?, ?, ?, ?, ?)`,
      ...[scheduleId, command.key, runId, trigger, scheduledMs, skipped],
      ...(typeof sent === "string" ? ["", ""] : [command.sessionId, sent.turnId]),
    );
    this.#database.run(
      `delete from schedule_runs where schedule_id = ? and n <= (
         select n from schedule_runs where schedule_id = ? order by n desc limit 1 offset ?)`,
      ...[scheduleId, scheduleId, keptRuns],
    );
    if (skipped !== "") return;
    this.#database.run(
      "update schedules set last_at = ?, run_count = run_count + 1 where id = ?",
      ...[atMs, scheduleId],
    );
  }

  #isBusy(scheduleId: string): boolean {
    const [last] = this.#runs("runs.schedule_id = ? and runs.skipped = '' order by runs.n desc limit 1", scheduleId);
    return last !== undefined && last.finished === undefined && !last.lost;
  }

  #runs(where: string, ...values: Value[]): StoredRun[] {
    return this.#database.all(`${selectRuns} where ${where}`, ...values).map(storedRun);
  }
}

export function storedSchedule(row: Row): StoredSchedule {
  return {
    scheduleId: textOf(row, "id"),
    tenant: textOf(row, "tenant"),
    principal: textOf(row, "principal"),
    sessionId: textOf(row, "session_id"),
    cron: textOf(row, "cron"),
    timeZone: textOf(row, "tz"),
    misfirePolicy: textOf(row, "misfire"),
    body: bytesOf(row, "body"),
    nextMs: numberIn(row, "next_at"),
    paused: numberOf(row, "paused") === 1,
    error: textOf(row, "error"),
    lastMs: numberIn(row, "last_at"),
    runCount: numberOf(row, "run_count"),
    createdMs: numberOf(row, "created_at"),
    updatedMs: numberOf(row, "updated_at"),
  };
}

export function storedRun(row: Row): StoredRun {
  const trigger = runTriggers.find((word) => word === row["cause"]);
  if (trigger === undefined) throw new AgentError("internal", "column cause is no trigger of a run");
  const skipped = skipReasons.find((word) => word === row["skipped"]);
  return {
    position: numberOf(row, "n"),
    runId: textOf(row, "id"),
    scheduleId: textOf(row, "schedule_id"),
    trigger,
    scheduledMs: numberOf(row, "scheduled_at"),
    skipped,
    sessionId: textOf(row, "session_id"),
    turnId: textOf(row, "turn_id"),
    lost: skipped === undefined && numberOf(row, "lost") === 1,
    startedMs: numberIn(row, "started_at"),
    finished: row["finished_body"] === null ? undefined : bytesOf(row, "finished_body"),
    finishedMs: numberIn(row, "finished_at"),
    waits: row["waiting_since"] !== null,
  };
}

function numberIn(row: Row, column: string): number | undefined {
  return row[column] === null ? undefined : numberOf(row, column);
}
