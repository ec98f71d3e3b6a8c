import { PostgresClient, placeOf } from "./postgres-client.ts";
import { openingError } from "./postgres-schema.ts";
import { numberOf, textOf } from "./row.ts";

const timeoutMs = 5000;

/**
 * Looks at a database without changing it.
 * @throws {Error} one sentence for the operator, when it can't be used.
 */
export async function inspectPostgres(url: string, pgbouncer: boolean) {
  const client = new PostgresClient({ url, connections: 1, prepare: !pgbouncer, timeoutMs });
  try {
    const [row] = await client.query(
      `select current_setting('server_version') as version, current_setting('synchronous_standby_names') as standbys,
        exists (select 1 from pg_tables where schemaname = 'codeagent' and tablename = 'schema_version') as there`,
    );
    const there = row?.["there"] === true;
    const [schema] = there ? await client.query("select version from codeagent.schema_version") : [];
    const [replicas] = there ? await client.query("select count(*) as count from codeagent.replicas") : [];
    return {
      /** Where it is, without user and password. */
      place: placeOf(url),
      version: textOf(row, "version"),
      /** 0 where there are no tables yet. */
      schemaVersion: schema === undefined ? 0 : numberOf(schema, "version"),
      servers: replicas === undefined ? 0 : numberOf(replicas, "count"),
      /** A standby has to confirm each commit, so that a failover loses none. */
      synchronous: row?.["standbys"] !== "",
    };
  } catch (error) {
    throw openingError(url, error);
  } finally {
    await client.close();
  }
}
