import {
  type FoundMemories,
  indexedTerm,
  indexedTerms,
  type MemorySearch,
  type NewMemory,
  type StoredMemory,
} from "./memory-store.ts";
import type { Ask } from "./postgres-client.ts";
import { numberOf } from "./row.ts";
import { countsOf, foundMemories, memoryColumns, storedMemory } from "./sqlite-memories.ts";

/** What is searched is made of the terms as they are: no configuration of the database's text search has a say in it. */
export const memoryTables = `
create table codeagent.memories (
  session_id text not null, id text not null, kind text not null, importance bigint not null, at bigint not null,
  access_count bigint not null, accessed_at bigint, body bytea not null, terms text not null,
  search tsvector not null generated always as (array_to_tsvector(string_to_array(terms, ' '))) stored,
  primary key (session_id, id));
create index memories_by_terms on codeagent.memories using gin (search) with (fastupdate = off);
`;

const ofTenant = "exists (select 1 from codeagent.sessions where sessions.id = $1 and sessions.tenant = $2)";

export async function storeMemory(
  ask: Ask,
  memory: NewMemory,
  limit: number,
): Promise<StoredMemory | "full" | undefined> {
  const { tenant, sessionId, memoryId, kind, importance, atMs, body, terms } = memory;
  // Who deletes the session has to wait, who writes its log has not.
  const session = "select 1 from codeagent.sessions where id = $1 and tenant = $2 for key share";
  if ((await ask(session, [sessionId, tenant])).length === 0) return undefined;
  const others = "select count(*) as count from codeagent.memories where session_id = $1 and id <> $2";
  const [counted] = await ask(others, [sessionId, memoryId]);
  if (numberOf(counted, "count") >= limit) return "full";
  // Two that store under one id take turns from here on.
  const [row] = await ask(
    `insert into codeagent.memories (session_id, id, kind, importance, at, body, terms, access_count)
      values ($1, $2, $3, $4, $5, $6, $7, 0)
      on conflict (session_id, id) do update set kind = excluded.kind, importance = excluded.importance,
        at = excluded.at, body = excluded.body, terms = excluded.terms
      returning ${memoryColumns}`,
    [sessionId, memoryId, kind, importance, atMs, body, indexedTerms(sessionId, terms)],
  );
  return row === undefined ? undefined : storedMemory(row);
}

export async function recallMemory(
  ask: Ask,
  tenant: string,
  sessionId: string,
  memoryId: string,
  atMs: number,
): Promise<StoredMemory | undefined> {
  const [row] = await ask(
    `update codeagent.memories set access_count = access_count + 1, accessed_at = $4
      where session_id = $1 and ${ofTenant} and id = $3 returning ${memoryColumns}`,
    [sessionId, tenant, memoryId, atMs],
  );
  return row === undefined ? undefined : storedMemory(row);
}

export async function searchMemories(
  ask: Ask,
  { tenant, sessionId, words, labels, minImportance, order, limit }: MemorySearch,
): Promise<FoundMemories> {
  const queries = (words ?? []).map(({ term, isPrefix }) => `'${indexedTerm(sessionId, term)}'${isPrefix ? ":*" : ""}`);
  const wanted = (labels ?? []).map((label) => `'${indexedTerm(sessionId, label)}'`);
  // One row for each of the queries that finds a memory.
  const found = (position: string) =>
    `from unnest(${position}::text[]) as query join codeagent.memories on session_id = $1 and search @@ query::tsquery`;
  const hits = `(select id, count(*) as score ${found("$4")} group by id)`;
  const id = 'memory_id collate "C"';
  const sorted = order === "newest" ? `at desc, ${id} desc` : `score desc, importance desc, at desc, ${id} desc`;
  const rows = await ask(
    `with matching as materialized (
       select memories.id as memory_id, importance, at, coalesce(score, 0) as score
       from codeagent.memories left join ${hits} hits on hits.id = memories.id
       where session_id = $1 and ${ofTenant} and importance >= $3 and ($6 or score > 0)
         and ($7 or memories.id in (select id ${found("$5")})))
     select ${memoryColumns}, (select count(*) from matching) as total
     from (select memory_id, score from matching order by ${sorted} limit $8) first
       join codeagent.memories on session_id = $1 and memories.id = first.memory_id
     order by ${sorted}`,
    [
      ...[sessionId, tenant, minImportance ?? Number.MIN_SAFE_INTEGER, queries, wanted],
      ...[words === undefined, labels === undefined, limit],
    ],
  );
  return foundMemories(rows);
}

export async function countMemories(ask: Ask, tenant: string, sessionId: string): Promise<ReadonlyMap<string, number>> {
  const sql = `select kind, count(*) as count from codeagent.memories where session_id = $1 and ${ofTenant} group by kind`;
  return countsOf(await ask(sql, [sessionId, tenant]));
}

export async function clearMemories(
  ask: Ask,
  tenant: string,
  sessionId: string,
  kinds: readonly string[],
): Promise<number> {
  const [row] = await ask(
    `with gone as (
       delete from codeagent.memories where session_id = $1 and ${ofTenant} and kind = any($3::text[]) returning id)
     select count(*) as count from gone`,
    [sessionId, tenant, kinds],
  );
  return numberOf(row, "count");
}

/** The session is gone. */
export async function clearMemoriesOf(ask: Ask, sessionId: string): Promise<void> {
  await ask("delete from codeagent.memories where session_id = $1", [sessionId]);
}
