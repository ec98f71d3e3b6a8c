import { AgentError } from "../chat/error.ts";
import { type PostgresClient, placeOf } from "./postgres-client.ts";
import { memoryTables } from "./postgres-memories.ts";
import { planTables } from "./postgres-plans.ts";
import { requestTables } from "./postgres-requests.ts";
import { scheduleTables } from "./postgres-schedules.ts";
import { numberOf } from "./row.ts";

/** Grows with every change of the tables. */
export const postgresSchemaVersion = 3;

/**
 * The oldest build that can work with these tables, as its `postgresSchemaVersion`: changes only add, so that builds of
 * both versions work side by side while the processes are replaced one by one.
 */
const leastVersion = 1;

/** Any number that nobody else takes for a lock in this database: "codeagnt" in ASCII. */
const migrationLock = "7165065840902893172";

/** What brings tables of the version before up to each version. */
const migrations: Readonly<Record<number, string>> = {
  1: `${requestTables}${scheduleTables}
create table codeagent.replicas (
  id text primary key, beat timestamptz not null, lock_key bigint, build text not null);
create table codeagent.sessions (
  id text primary key, tenant text not null, parent_id text not null, parent_seq bigint not null,
  next_seq bigint not null, owner text, epoch bigint not null, token text not null, previous_token text not null,
  runnable integer not null, config bytea not null, config_version bigint not null, summary bytea not null,
  request_id text not null, request_hash text not null, created_at bigint not null, updated_at bigint not null,
  wake_at bigint, waiting_since bigint, pruned_seq bigint not null, prune_at bigint, placement text not null, deaths bigint not null, held_until bigint,
  state_version bigint not null)
  with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
create index sessions_by_age on codeagent.sessions (tenant, created_at, id);
create unique index sessions_by_request on codeagent.sessions (tenant, request_id) where request_id <> '';
create index sessions_runnable on codeagent.sessions (id) where runnable = 1;
create index sessions_owned on codeagent.sessions (owner) where owner is not null;
create index sessions_parked on codeagent.sessions (wake_at) where wake_at is not null;
create index sessions_waiting on codeagent.sessions (tenant, waiting_since, id) where waiting_since is not null;
create index sessions_to_prune on codeagent.sessions (prune_at) where prune_at is not null;
create table codeagent.events (
  session_id text not null, seq bigint not null, epoch bigint not null, turn_id text not null, kind text not null,
  body bytea not null, at bigint not null, primary key (session_id, seq));
create table codeagent.inbox (
  session_id text not null, key text not null, n bigint generated always as identity, kind text not null,
  turn_id text not null, principal text not null, body bytea not null, hash text not null, at bigint not null,
  taken_at bigint, first_seq bigint, primary key (session_id, key));
create index inbox_waiting on codeagent.inbox (session_id, n) where taken_at is null;
create table codeagent.blobs (
  session_id text not null, digest text not null, body bytea not null, primary key (session_id, digest));
`,
  2: planTables,
  3: memoryTables,
};

/**
 * Makes the tables of this version out of those that are there, or of none; processes that start at the same time take
 * turns.
 * @throws {AgentError} `failed_precondition` when the tables need a newer build.
 */
export async function migratePostgres(client: PostgresClient): Promise<void> {
  if ((await versionOf(client)) >= postgresSchemaVersion) return;
  await client.conversation(async (run) => {
    await run(`select pg_advisory_xact_lock(${migrationLock})`);
    // Reads the catalogue itself: what `to_regclass` found before the lock it may find again without looking.
    const [there] = await run(
      "select exists (select 1 from pg_tables where schemaname = 'codeagent' and tablename = 'schema_version') as there",
    );
    if (there?.["there"] !== true) {
      await run("create schema if not exists codeagent");
      await run("create table codeagent.schema_version (version integer not null, least_version integer not null)");
      await run("insert into codeagent.schema_version values (0, 0)");
    }
    const [row] = await run("select version from codeagent.schema_version");
    const version = numberOf(row, "version");
    for (const [to, change] of Object.entries(migrations)) if (Number(to) > version) await run(change);
    if (version < postgresSchemaVersion)
      await run(
        `update codeagent.schema_version set version = ${postgresSchemaVersion}, least_version = ${leastVersion}`,
      );
  });
}

/** The version of the tables that are there, 0 for none. */
async function versionOf(client: PostgresClient): Promise<number> {
  const [there] = await client.query("select to_regclass('codeagent.schema_version') is not null as there");
  if (there?.["there"] !== true) return 0;
  const [row] = await client.query("select version, least_version from codeagent.schema_version");
  const least = numberOf(row, "least_version");
  if (least > postgresSchemaVersion) {
    throw new AgentError(
      "failed_precondition",
      `the database needs a build that knows schema version ${least} and this one knows ${postgresSchemaVersion}; use a newer build`,
    );
  }
  return numberOf(row, "version");
}

/** Why a database can't be used, in one sentence. */
export function openingError(url: string, error: unknown): Error {
  if (error instanceof AgentError && error.kind === "failed_precondition") return error;
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  const why = cause instanceof Error && cause.message !== "" ? cause.message : "no connection";
  return new Error(`${placeOf(url)} can't be used (${why}); check DATABASE_URL`, { cause: error });
}
