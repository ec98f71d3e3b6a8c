import type { NewPlan, NewPlanVersion, PlanPosition, StoredPlan } from "./plan-store.ts";
import { bytesOf, numberOf, type Row, textOf } from "./row.ts";
import type { ScheduleDatabase } from "./sqlite-schedules.ts";
import type { AnsweredRequest } from "./store.ts";

/** The tables of plans; made where they are missing. */
export const planTables = `
create table if not exists plans (
  id text primary key, tenant text not null, session_id text not null, version bigint not null,
  execution_id text not null, created_at bigint not null);
create index if not exists plans_by_age on plans (tenant, created_at, id);
create table if not exists plan_versions (
  plan_id text not null, version bigint not null, body blob not null, at bigint not null,
  primary key (plan_id, version));
`;

const selectPlan = `select plans.*, plan_versions.version as this_version, body, at
  from plans join plan_versions on plan_id = plans.id`;

/** What is needed of the store around. */
export type PlanDatabase = Pick<ScheduleDatabase, "run" | "get" | "all" | "isNoted" | "note">;

/** Plans in a SQLite store. What changes something is to be called inside a transaction. */
export class SqlitePlans {
  readonly #database: PlanDatabase;

  constructor(database: PlanDatabase) {
    this.#database = database;
  }

  create({ tenant, planId, sessionId, body, atMs }: NewPlan, answered: AnsweredRequest | undefined) {
    if (this.#database.isNoted(answered)) return "answered";
    const inserted = this.#database.run(
      `insert into plans (id, tenant, session_id, version, execution_id, created_at) values (?, ?, ?, 1, '', ?)
       on conflict (id) do nothing`,
      ...[planId, tenant, sessionId, atMs],
    );
    if (inserted > 0) {
      this.#insertVersion(planId, 1, body, atMs);
      this.#database.note(answered);
    }
    return { created: inserted > 0, plan: this.read(tenant, planId, undefined) };
  }

  addVersion(
    { tenant, planId, seenVersion, body, atMs }: NewPlanVersion,
    answered: AnsweredRequest | undefined,
  ): StoredPlan | "stale" | "answered" | undefined {
    if (this.#database.isNoted(answered)) return "answered";
    const moved = this.#database.run(
      "update plans set version = version + 1 where id = ? and tenant = ? and version = ?",
      ...[planId, tenant, seenVersion],
    );
    if (moved === 0) return this.read(tenant, planId, undefined) === undefined ? undefined : "stale";
    this.#insertVersion(planId, seenVersion + 1, body, atMs);
    this.#database.note(answered);
    return this.read(tenant, planId, undefined);
  }

  read(tenant: string, planId: string, version: number | undefined): StoredPlan | undefined {
    const row = this.#database.get(
      `${selectPlan} where plans.id = ? and tenant = ? and plan_versions.version = coalesce(?, plans.version)`,
      ...[planId, tenant, version ?? null],
    );
    return row === undefined ? undefined : storedPlan(row);
  }

  list(tenant: string, sessionId: string, before: PlanPosition | undefined, limit: number): StoredPlan[] {
    return this.#database
      .all(
        `${selectPlan} and plan_versions.version = plans.version
         where tenant = ? and (? = '' or session_id = ?) and (created_at, id) < (?, ?)
         order by created_at desc, id desc limit ?`,
        ...[tenant, sessionId, sessionId],
        ...[before?.createdMs ?? Number.MAX_SAFE_INTEGER, before?.planId ?? "", limit],
      )
      .map(storedPlan);
  }

  setExecution(tenant: string, planId: string, executionId: string): boolean {
    const sql = "update plans set execution_id = ? where id = ? and tenant = ?";
    return this.#database.run(sql, executionId, planId, tenant) > 0;
  }

  #insertVersion(planId: string, version: number, body: Uint8Array, atMs: number): void {
    this.#database.run(
      "insert into plan_versions (plan_id, version, body, at) values (?, ?, ?, ?)",
      ...[planId, version, body, atMs],
    );
  }
}

export function storedPlan(row: Row): StoredPlan {
  return {
    planId: textOf(row, "id"),
    tenant: textOf(row, "tenant"),
    sessionId: textOf(row, "session_id"),
    version: numberOf(row, "this_version"),
    newestVersion: numberOf(row, "version"),
    body: bytesOf(row, "body"),
    createdMs: numberOf(row, "created_at"),
    updatedMs: numberOf(row, "at"),
    executionId: textOf(row, "execution_id"),
  };
}
