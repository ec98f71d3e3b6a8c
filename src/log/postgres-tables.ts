import { PostgresClient, placeOf } from "./postgres-client.ts";
import { migratePostgres } from "./postgres-schema.ts";
import type { Row } from "./row.ts";
import { stateVersion } from "./store.ts";
import {
  bytesColumns,
  type Cell,
  type StoreReader,
  type StoreTable,
  type StoreWriter,
  storeTables,
  textColumns,
} from "./store-tables.ts";

/** What a session has here and nowhere else, as SQL. */
const ownColumns: Readonly<Record<string, string>> = {
  previous_token: "''",
  state_version: String(stateVersion),
};

const pageRows = 200;
const timeoutMs = 60_000;

/** Reads all rows of a PostgreSQL store as they are at one moment; servers may go on with it meanwhile. */
export async function readPostgresTables<Result>(
  url: string,
  use: (reader: StoreReader) => Promise<Result>,
): Promise<Result> {
  return withClient(url, (client) =>
    client.conversation(async (ask) => {
      await ask("set transaction isolation level repeatable read read only");
      await ask("set local idle_in_transaction_session_timeout = 0");
      return use({
        async *rows(table: StoreTable): AsyncGenerator<Row> {
          const { columns, order } = storeTables[table];
          const sorted = order.map((column) => (textColumns.has(column) ? `${column} collate "C"` : column));
          await ask(
            `declare carried no scroll cursor for select ${columns.join(", ")} from codeagent.${table} order by ${sorted.join(", ")}`,
          );
          for (;;) {
            const page = await ask(`fetch ${pageRows} from carried`);
            yield* page;
            if (page.length < pageRows) break;
          }
          await ask("close carried");
        },
      });
    }),
  );
}

/**
 * Fills a PostgreSQL store, made when it is missing, in one transaction.
 * @throws {Error} one sentence, when something is in it.
 */
export async function fillPostgresTables<Result>(
  url: string,
  use: (writer: StoreWriter) => Promise<Result>,
): Promise<Result> {
  return withClient(url, (client) =>
    client.conversation(async (ask) => {
      await ask("set local idle_in_transaction_session_timeout = 0");
      await ask("lock table codeagent.sessions, codeagent.schedules, codeagent.plans in exclusive mode");
      const taken = await ask(
        "select 1 from codeagent.sessions union all select 1 from codeagent.schedules union all select 1 from codeagent.plans limit 1",
      );
      if (taken.length > 0) throw new Error(`there are sessions in ${placeOf(url)} already; import into an empty one`);
      return use({
        async insert(table: StoreTable, columns: readonly string[], rows: readonly (readonly Cell[])[]) {
          const arrays = columns.map((column, index) => `$${index + 1}::${typeOf(column)}[]`);
          const added = table === "sessions" ? ownColumns : {};
          const names = [...columns, ...Object.keys(added)];
          await ask(
            `insert into codeagent.${table} (${names.join(", ")})
              select ${["t.*", ...Object.values(added)].join(", ")} from unnest(${arrays.join(", ")}) as t`,
            columns.map((_, index) => rows.map((row) => row[index] ?? null)),
          );
        },
      });
    }),
  );
}

async function withClient<Result>(url: string, use: (client: PostgresClient) => Promise<Result>): Promise<Result> {
  const client = new PostgresClient({ url, connections: 1, prepare: false, timeoutMs });
  try {
    await migratePostgres(client);
    return await use(client);
  } finally {
    await client.close();
  }
}

function typeOf(column: string): string {
  if (bytesColumns.has(column)) return "bytea";
  return textColumns.has(column) ? "text" : "bigint";
}
