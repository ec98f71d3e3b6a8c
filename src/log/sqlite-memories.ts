import {
  type FoundMemories,
  indexedTerm,
  indexedTerms,
  type MemorySearch,
  type NewMemory,
  type StoredMemory,
} from "./memory-store.ts";
import { bytesOf, numberOf, type Row, textOf } from "./row.ts";
import type { ScheduleDatabase } from "./sqlite-schedules.ts";

/**
 * The tables of memories; made where they are missing. The index follows the table by itself, whoever writes into that, and
 * holds nothing that the table has not. Its tokenizer parts words at what `indexedTerms` never lets through.
 */
export const memoryTables = `
create table if not exists memories (
  n integer primary key, session_id text not null, id text not null, kind text not null, importance bigint not null,
  at bigint not null, access_count bigint not null, accessed_at bigint, body blob not null, terms text not null,
  unique (session_id, id));
create virtual table if not exists memory_index using fts5 (
  terms, content = '', contentless_delete = 1, detail = none, tokenize = "ascii tokenchars '_'");
create trigger if not exists memory_added after insert on memories begin
  insert into memory_index (rowid, terms) values (new.n, new.terms);
end;
create trigger if not exists memory_replaced after update of terms on memories begin
  update memory_index set terms = new.terms where rowid = new.n;
end;
create trigger if not exists memory_removed after delete on memories begin
  delete from memory_index where rowid = old.n;
end;
`;

/** What `storedMemory` reads. */
export const memoryColumns = ["id", "kind", "importance", "at", "access_count", "accessed_at", "body"]
  .map((column) => `memories.${column}`)
  .join(", ");

const ofTenant = "exists (select 1 from sessions where sessions.id = ?1 and tenant = ?2)";

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
    const row = this.#database.get(
      `insert into memories (session_id, id, kind, importance, at, body, terms, access_count, accessed_at)
       values (?, ?, ?, ?, ?, ?, ?, 0, null)
       on conflict (session_id, id) do update set kind = excluded.kind, importance = excluded.importance,
         at = excluded.at, body = excluded.body, terms = excluded.terms
       returning ${memoryColumns}`,
      ...[sessionId, memoryId, kind, importance, atMs, body, indexedTerms(sessionId, terms)],
    );
    return row === undefined ? undefined : storedMemory(row);
  }

  recall(tenant: string, sessionId: string, memoryId: string, atMs: number): StoredMemory | undefined {
    const row = this.#database.get(
      `update memories set access_count = access_count + 1, accessed_at = ?4
       where session_id = ?1 and id = ?3 and ${ofTenant} returning ${memoryColumns}`,
      ...[sessionId, tenant, memoryId, atMs],
    );
    return row === undefined ? undefined : storedMemory(row);
  }

  search({ tenant, sessionId, words, labels, minImportance, order, limit }: MemorySearch): FoundMemories {
    const queries = (words ?? []).map(
      ({ term, isPrefix }) => `"${indexedTerm(sessionId, term)}"${isPrefix ? "*" : ""}`,
    );
    const wanted = (labels ?? []).map((label) => `"${indexedTerm(sessionId, label)}"`);
    // One row for each of the queries that finds a memory.
    const found = (position: string) =>
      `from json_each(${position}) query cross join memory_index on memory_index match query.value`;
    const hits = `(select memory_index.rowid as n, count(*) as score ${found("?4")} group by 1)`;
    const sorted = order === "newest" ? "at desc, id desc" : "score desc, importance desc, at desc, id desc";
    const rows = this.#database.all(
      `with matching as materialized (
         select memories.n, id, importance, at, ${words === undefined ? "0 as score" : "hits.score"}
         from ${words === undefined ? "memories" : `${hits} hits cross join memories on memories.n = hits.n`}
         where session_id = ?1 and ${ofTenant} and importance >= ?3
           and (?6 or memories.n in (select memory_index.rowid ${found("?5")})))
       select ${memoryColumns}, (select count(*) from matching) as total
       from (select n, score from matching order by ${sorted} limit ?7) first join memories on memories.n = first.n
       order by ${sorted}`,
      ...[sessionId, tenant, minImportance ?? Number.MIN_SAFE_INTEGER, JSON.stringify(queries)],
      ...[JSON.stringify(wanted), labels === undefined ? 1 : 0, limit],
    );
    return foundMemories(rows);
  }

  count(tenant: string, sessionId: string): ReadonlyMap<string, number> {
    const sql = `select kind, count(*) as count from memories where session_id = ?1 and ${ofTenant} group by kind`;
    return countsOf(this.#database.all(sql, sessionId, tenant));
  }

  clear(tenant: string, sessionId: string, kinds: readonly string[]): number {
    return this.#database.run(
      `delete from memories where session_id = ?1 and ${ofTenant} and kind in (select value from json_each(?3))`,
      ...[sessionId, tenant, JSON.stringify(kinds)],
    );
  }

  /** The session is gone. */
  clearSession(sessionId: string): void {
    this.#database.run("delete from memories where session_id = ?", sessionId);
  }
}

/** @param rows each with how many there are in `total` */
export function foundMemories(rows: readonly Row[]): FoundMemories {
  return { memories: rows.map(storedMemory), totalCount: rows.length === 0 ? 0 : numberOf(rows[0], "total") };
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
