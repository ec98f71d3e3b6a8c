import { DatabaseSync } from "node:sqlite";
import type { Row } from "./row.ts";
import { createTables } from "./sqlite.ts";
import { type Cell, type StoreReader, type StoreTable, type StoreWriter, storeTables } from "./store-tables.ts";

/**
 * Reads all rows of a SQLite store as they are at one moment; a server may go on with it meanwhile.
 * @param path of a file of this build's schema
 */
export async function readSqliteTables<Result>(
  path: string,
  use: (reader: StoreReader) => Promise<Result>,
): Promise<Result> {
  const database = new DatabaseSync(path, { readOnly: true });
  try {
    database.exec("begin");
    return await use({
      async *rows(table: StoreTable): AsyncGenerator<Row> {
        const { columns, order } = storeTables[table];
        yield* database.prepare(`select ${columns.join(", ")} from ${table} order by ${order.join(", ")}`).iterate();
      },
    });
  } finally {
    database.close();
  }
}

/**
 * Fills a SQLite store, made when it is missing, in one transaction.
 * @throws {Error} one sentence, when something is in it.
 */
export async function fillSqliteTables<Result>(
  path: string,
  use: (writer: StoreWriter) => Promise<Result>,
): Promise<Result> {
  const database = new DatabaseSync(path);
  try {
    database.exec("pragma journal_mode = wal; pragma synchronous = full; begin immediate");
    createTables(database);
    if (
      database
        .prepare("select 1 from sessions union all select 1 from schedules union all select 1 from plans limit 1")
        .get() !== undefined
    )
      throw new Error(`there are sessions in ${path} already; import into an empty store`);
    const result = await use({
      async insert(table: StoreTable, columns: readonly string[], rows: readonly (readonly Cell[])[]) {
        const sql = `insert into ${table} (${columns.join(", ")}) values (${columns.map(() => "?").join(", ")})`;
        const statement = database.prepare(sql);
        for (const row of rows) statement.run(...row);
      },
    });
    database.exec("commit");
    return result;
  } finally {
    database.close();
  }
}
