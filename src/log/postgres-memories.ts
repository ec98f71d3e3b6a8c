import { type FoundMemories, type MemorySearch, type NewMemory, type StoredMemory, termRange } from "./memory-store.ts";
import type { Ask } from "./postgres-client.ts";
import { numberOf } from "./row.ts";
import { countsOf, storedMemory } from "./sqlite-memories.ts";

/** Terms are ordered by their bytes, whatever the language of the database is. */
export const memoryTables = `
create table codeagent.memories (
  session_id text not null, id text not null, kind text not null, importance bigint not null, at bigint not null,
  body bytea not null, access_count bigint not null, accessed_at bigint, primary key (session_id, id));
create table codeagent.memory_terms (
  session_id text not null, term text collate "C" not null, memory_id text not null,
  primary key (session_id, term, memory_id));
create index memory_terms_by_memory on codeagent.memory_terms (session_id, memory_id);
`;

const ofTenant =
  "exists (select 1 from codeagent.sessions where sessions.id = memories.session_id and sessions.tenant = $2)";

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
    `insert into codeagent.memories (session_id, id, kind, importance, at, body, access_count)
      values ($1, $2, $3, $4, $5, $6, 0)
      on conflict (session_id, id) do update set kind = excluded.kind, importance = excluded.importance,
        at = excluded.at, body = excluded.body
      returning *`,
    [sessionId, memoryId, kind, importance, atMs, body],
  );
  await ask("delete from codeagent.memory_terms where session_id = $1 and memory_id = $2", [sessionId, memoryId]);
  await ask(
    "insert into codeagent.memory_terms (session_id, term, memory_id) select $1, term, $2 from unnest($3::text[]) as term",
    [sessionId, memoryId, terms],
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
      where session_id = $1 and ${ofTenant} and id = $3 returning *`,
    [sessionId, tenant, memoryId, atMs],
  );
  return row === undefined ? undefined : storedMemory(row);
}

export async function searchMemories(ask: Ask, search: MemorySearch): Promise<FoundMemories> {
  const { tenant, sessionId, words, labels, minImportance, order, limit } = search;
  const ranges = (words ?? []).map(termRange);
  // Which of the words a memory has.
  const hits = `select memory_id, count(distinct word.n) as score
    from unnest($3::text[], $4::text[]) with ordinality as word(first, last, n)
    join codeagent.memory_terms terms on terms.session_id = $1 and terms.term between word.first and word.last
    group by memory_id`;
  const matching = `from codeagent.memories left join (${hits}) hits on hits.memory_id = memories.id
    where session_id = $1 and ${ofTenant} and importance >= $5 and ($6 or score > 0)
      and ($7 or exists (select 1 from codeagent.memory_terms labels where labels.session_id = memories.session_id
        and labels.memory_id = memories.id and labels.term = any($8::text[])))`;
  const values = [
    ...[sessionId, tenant, ranges.map(([first]) => first), ranges.map(([, last]) => last)],
    ...[minImportance ?? Number.MIN_SAFE_INTEGER, words === undefined, labels === undefined, labels ?? []],
  ];
  const id = 'id collate "C"';
  const sorted =
    order === "newest" ? `at desc, ${id} desc` : `coalesce(score, 0) desc, importance desc, at desc, ${id} desc`;
  const rows = await ask(`select memories.* ${matching} order by ${sorted} limit $9`, [...values, limit]);
  const [total] = await ask(`select count(*) as count ${matching}`, values);
  return { memories: rows.map(storedMemory), totalCount: numberOf(total, "count") };
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
    `with gone as (delete from codeagent.memories where session_id = $1 and ${ofTenant} and kind = any($3::text[])
        returning id),
      terms as (delete from codeagent.memory_terms where session_id = $1 and memory_id in (select id from gone))
      select count(*) as count from gone`,
    [sessionId, tenant, kinds],
  );
  return numberOf(row, "count");
}

/** The session is gone. */
export async function clearMemoriesOf(ask: Ask, sessionId: string): Promise<void> {
  for (const table of ["memory_terms", "memories"])
    await ask(`delete from codeagent.${table} where session_id = $1`, [sessionId]);
}
