import type { NewPlan, NewPlanVersion, PlanPosition, StoredPlan } from "./plan-store.ts";
import type { Ask } from "./postgres-client.ts";
import { storedPlan } from "./sqlite-plans.ts";

export const planTables = `
create table codeagent.plans (
  id text primary key, tenant text not null, session_id text not null, version bigint not null,
  execution_id text not null, created_at bigint not null);
create index plans_by_age on codeagent.plans (tenant, created_at, id);
create table codeagent.plan_versions (
  plan_id text not null, version bigint not null, body bytea not null, at bigint not null,
  primary key (plan_id, version));
`;

const selectPlan = `select plans.*, plan_versions.version as this_version, body, at
  from codeagent.plans join codeagent.plan_versions on plan_id = plans.id`;

/** @returns whether it was created */
export async function createPlan(ask: Ask, { tenant, planId, sessionId, body, atMs }: NewPlan): Promise<boolean> {
  const made = await ask(
    `insert into codeagent.plans (id, tenant, session_id, version, execution_id, created_at)
      values ($1, $2, $3, 1, '', $4) on conflict (id) do nothing returning id`,
    [planId, tenant, sessionId, atMs],
  );
  if (made.length === 0) return false;
  await insertVersion(ask, planId, 1, body, atMs);
  return true;
}

export async function addPlanVersion(
  ask: Ask,
  { tenant, planId, seenVersion, body, atMs }: NewPlanVersion,
): Promise<StoredPlan | "stale" | undefined> {
  const moved = await ask(
    "update codeagent.plans set version = version + 1 where id = $1 and tenant = $2 and version = $3 returning id",
    [planId, tenant, seenVersion],
  );
  if (moved.length === 0) return (await readPlan(ask, tenant, planId, undefined)) === undefined ? undefined : "stale";
  await insertVersion(ask, planId, seenVersion + 1, body, atMs);
  return readPlan(ask, tenant, planId, undefined);
}

export async function readPlan(
  ask: Ask,
  tenant: string,
  planId: string,
  version: number | undefined,
): Promise<StoredPlan | undefined> {
  const [row] = await ask(
    `${selectPlan} where plans.id = $1 and tenant = $2 and plan_versions.version = coalesce($3::bigint, plans.version)`,
    [planId, tenant, version ?? null],
  );
  return row === undefined ? undefined : storedPlan(row);
}

export async function listPlans(
  ask: Ask,
  tenant: string,
  sessionId: string,
  before: PlanPosition | undefined,
  limit: number,
): Promise<StoredPlan[]> {
  const rows = await ask(
    `${selectPlan} and plan_versions.version = plans.version
      where tenant = $1 and ($2 = '' or session_id = $2) and (created_at, id) < ($3, $4)
      order by created_at desc, id desc limit $5`,
    [tenant, sessionId, before?.createdMs ?? Number.MAX_SAFE_INTEGER, before?.planId ?? "", limit],
  );
  return rows.map(storedPlan);
}

/** @returns whether the plan is there */
export async function setPlanExecution(
  ask: Ask,
  tenant: string,
  planId: string,
  executionId: string,
): Promise<boolean> {
  const sql = "update codeagent.plans set execution_id = $3 where id = $1 and tenant = $2 returning id";
  return (await ask(sql, [planId, tenant, executionId])).length > 0;
}

async function insertVersion(ask: Ask, planId: string, version: number, body: Uint8Array, atMs: number): Promise<void> {
  await ask("insert into codeagent.plan_versions (plan_id, version, body, at) values ($1, $2, $3, $4)", [
    planId,
    version,
    body,
    atMs,
  ]);
}
