import { type FoundMemories, type MemorySearch, type NewMemory, type StoredMemory, termRange } from "./memory-store.ts";
import { bytesOf, numberOf, type Row, textOf } from "./row.ts";
import type { ScheduleDatabase } from "./sqlite-schedules.ts";

/** The tables of memories; made where they are missing. */
export const memoryTables = `
create table if not exists memories (
  session_id text not null, id text not null, kind text not null, importance bigint not null, at bigint not null,
  body blob not null, access_count bigint not null, accessed_at bigint, primary key (session_id, id));
create table if not exists memory_terms (
  session_id text not null, term text not null, memory_id text not null,
  primary key (session_id, term, memory_id)) without rowid;
create index if not exists memory_terms_by_memory on memory_terms (session_id, memory_id);
`;

const ofTenant = "exists (select 1 from sessions where sessions.id = memories.session_id and tenant = ?)";

/** What is needed of the store around. */
export type MemoryDatabase = Pick<ScheduleDatabase, "run" | "get" | "all">;

/** Memories in a SQLite store. What changes something is to be called inside a transaction. */
export class SqliteMemories {
  readonly #database: MemoryDatabase;

  constructor(database: MemoryDatabase) {
    this.#database = database;
  }

  store(memory: NewMemory, limit: number): StoredMemory | "full" | undefined {
    const { tenant, sessionId, memoryId, kind, importance, atMs, body, terms } = memory;
    const session = this.#database.get("select 1 from sessions where id = ? and tenant = ?", sessionId, tenant);
    if (session === undefined) return undefined;
    const others = "select count(*) as count from memories where session_id = ? and id <> ?";
    if (numberOf(this.#database.get(others, sessionId, memoryId), "count") >= limit) return "full";
    this.#database.run("delete from memory_terms where session_id = ? and memory_id = ?", sessionId, memoryId);
    const row = this.#database.get(
      `insert into memories (session_id, id, kind, importance, at, body, access_count, accessed_at)
       values (?, ?, ?, ?, ?, ?, 0, null)
       on conflict (session_id, id) do update set kind = excluded.kind, importance = excluded.importance,
         at = excluded.at, body = excluded.body
       returning *`,
      ...[sessionId, memoryId, kind, importance, atMs, body],
    );
    this.#database.run(
      "insert into memory_terms (session_id, term, memory_id) select ?, value, ? from json_each(?)",
      ...[sessionId, memoryId, JSON.stringify(terms)],
    );
    return row === undefined ? undefined : storedMemory(row);
  }

  recall(tenant: string, sessionId: string, memoryId: string, atMs: number): StoredMemory | undefined {
    const row = this.#database.get(
      `update memories set access_count = access_count + 1, accessed_at = ?
       where session_id = ? and id = ? and ${ofTenant} returning *`,
      ...[atMs, sessionId, memoryId, tenant],
    );
    return row === undefined ? undefined : storedMemory(row);
  }

  search(search: MemorySearch): FoundMemories {
    const { tenant, sessionId, words, labels, minImportance, order, limit } = search;
    // Which of the words a memory has.
    const hits = `(select memory_id, count(distinct word.key) as score
      from json_each(?) word cross join memory_terms terms
      where terms.session_id = ? and terms.term between word.value ->> 0 and word.value ->> 1
      group by memory_id)`;
    const matching = `from memories left join ${hits} hits on hits.memory_id = memories.id
      where session_id = ? and ${ofTenant} and importance >= ? and (? or score > 0)
        and (? or exists (select 1 from memory_terms labels where labels.session_id = memories.session_id
          and labels.memory_id = memories.id and labels.term in (select value from json_each(?))))`;
    const values = [
      ...[JSON.stringify((words ?? []).map(termRange)), sessionId, sessionId, tenant],
      ...[minImportance ?? Number.MIN_SAFE_INTEGER, words === undefined ? 1 : 0],
      ...[labels === undefined ? 1 : 0, JSON.stringify(labels ?? [])],
    ];
    const sorted =
      order === "newest" ? "at desc, id desc" : "coalesce(score, 0) desc, importance desc, at desc, id desc";
    const rows = this.#database.all(`select memories.* ${matching} order by ${sorted} limit ?`, ...values, limit);
    const total = this.#database.get(`select count(*) as count ${matching}`, ...values);
    return { memories: rows.map(storedMemory), totalCount: numberOf(total, "count") };
  }

  count(tenant: string, sessionId: string): ReadonlyMap<string, number> {
    const sql = `select kind, count(*) as count from memories where session_id = ? and ${ofTenant} group by kind`;
    return countsOf(this.#database.all(sql, sessionId, tenant));
  }

  clear(tenant: string, sessionId: string, kinds: readonly string[]): number {
    const chosen = `from memories where session_id = ? and ${ofTenant} and kind in (select value from json_each(?))`;
    const values = [sessionId, tenant, JSON.stringify(kinds)];
    this.#database.run(
      `delete from memory_terms where session_id = ? and memory_id in (select id ${chosen})`,
      ...[sessionId, ...values],
    );
    return this.#database.run(`delete ${chosen}`, ...values);
  }

  /** The session is gone. */
  clearSession(sessionId: string): void {
    for (const table of ["memory_terms", "memories"])
      this.#database.run(`delete from ${table} where session_id = ?`, sessionId);
  }
}

export function storedMemory(row: Row): StoredMemory {
  return {
    memoryId: textOf(row, "id"),
    kind: textOf(row, "kind"),
    importance: numberOf(row, "importance"),
    atMs: numberOf(row, "at"),
    body: bytesOf(row, "body"),
    accessCount: numberOf(row, "access_count"),
    accessedMs: row["accessed_at"] === null ? undefined : numberOf(row, "accessed_at"),
  };
}

/** Rows of a kind and a count each. */
export function countsOf(rows: readonly Row[]): ReadonlyMap<string, number> {
  return new Map(rows.map((row) => [textOf(row, "kind"), numberOf(row, "count")]));
}
