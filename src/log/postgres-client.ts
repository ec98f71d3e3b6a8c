import pg from "pg";
import { AgentError } from "../chat/error.ts";
import type { Row } from "./row.ts";

/** A value of a statement. Arrays are of one type. */
export type Value =
  | string
  | number
  | boolean
  | null
  | Uint8Array
  | readonly (string | number | boolean | null | Uint8Array)[];

export interface Statement {
  readonly sql: string;
  readonly values?: readonly Value[];
  /** Kept prepared on each connection under this name, where that works. */
  readonly name?: string;
}

/** Runs one statement and gives its rows. */
export type Ask = (sql: string, values?: readonly Value[]) => Promise<readonly Row[]>;

export interface PostgresClientOptions {
  readonly url: string;
  readonly connections: number;
  /** Statements may be kept prepared: not through PgBouncer. */
  readonly prepare: boolean;
  /** Longest wait for a connection and for an answer. */
  readonly timeoutMs: number;
}

/** How long the database waits for our next statement in a transaction. */
const idleMs = 5000;

/** How often a statement that lost against another one is tried. */
const attempts = 4;

/**
 * Connections to one database. What is sent together travels together: a transaction costs one round trip, and a process
 * that is frozen in the middle of one holds no locks.
 */
export class PostgresClient {
  readonly #pool: pg.Pool;
  readonly #prepare: boolean;

  constructor({ url, connections, prepare, timeoutMs }: PostgresClientOptions) {
    this.#prepare = prepare;
    this.#pool = new pg.Pool({ ...connectionConfig(url, timeoutMs), max: connections, pipeline: true });
    // An idle connection broke: the next statement gets another one, or says what is wrong.
    this.#pool.on("error", () => undefined);
    // One in use broke: what it was asked fails, and that tells enough.
    this.#pool.on("connect", (client) => client.on("error", () => undefined));
  }

  /** Runs one statement. @throws {AgentError} as the store's methods. */
  async query(sql: string, values: readonly Value[] = [], name?: string): Promise<readonly Row[]> {
    const [rows = []] = await this.#attempted([{ sql, values, ...(name === undefined ? {} : { name }) }], false);
    return rows;
  }

  /** Runs statements in one transaction; the next does not wait for what the one before says. */
  transaction(statements: readonly Statement[]): Promise<readonly (readonly Row[])[]> {
    return this.#attempted(statements, true);
  }

  /**
   * One transaction of statements each of which may depend on what the one before said; done again from its beginning when
   * another one got in its way. Frozen in the middle of it, we lose it.
   */
  async conversation<Result>(use: (ask: Ask) => Promise<Result>): Promise<Result> {
    for (let attempt = 1; ; attempt++) {
      const client = await this.#connect();
      let broken = true;
      try {
        const begun = client.query(`begin; set local idle_in_transaction_session_timeout = ${idleMs}`);
        begun.catch(() => undefined); // what comes next fails with it
        const ask: Ask = async (sql, values) => {
          try {
            return (await client.query<Row>(sql, values && [...values])).rows;
          } catch (error) {
            throw postgresError(error);
          }
        };
        const result = await use(ask);
        await ask("commit");
        broken = false;
        return result;
      } catch (error) {
        const cause = error instanceof AgentError ? error.cause : undefined;
        broken = (cause !== undefined && !isOfStatement(cause)) || !(await rolledBack(client));
        if (attempt >= attempts || !isPassing(cause)) throw error;
      } finally {
        client.release(broken);
      }
    }
  }

  async close(): Promise<void> {
    await this.#pool.end();
  }

  async #attempted(statements: readonly Statement[], together: boolean): Promise<readonly (readonly Row[])[]> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#run(statements, together);
      } catch (error) {
        if (attempt < attempts && isPassing(error)) continue;
        throw postgresError(error);
      }
    }
  }

  async #run(statements: readonly Statement[], together: boolean): Promise<readonly (readonly Row[])[]> {
    const client = await this.#connect();
    let broken = true;
    try {
      const sent = statements.map(({ sql, values = [], name }) =>
        client.query<Row>({
          text: sql,
          values: [...values],
          ...(name !== undefined && this.#prepare ? { name } : {}),
        }),
      );
      const all = together ? [client.query<Row>("begin"), ...sent, client.query<Row>("commit")] : sent;
      // The first error is the one that tells; after it the others only say that the transaction is aborted.
      const outcomes = await Promise.allSettled(all);
      const failed = outcomes.find((outcome) => outcome.status === "rejected");
      broken = failed !== undefined && !isOfStatement(failed.reason);
      if (failed !== undefined) throw failed.reason;
      const results = await Promise.all(sent);
      return results.map(({ rows }) => rows);
    } finally {
      client.release(broken);
    }
  }

  async #connect(): Promise<pg.PoolClient> {
    try {
      return await this.#pool.connect();
    } catch (error) {
      throw postgresError(error);
    }
  }
}

async function rolledBack(client: pg.PoolClient): Promise<boolean> {
  try {
    await client.query("rollback");
    return true;
  } catch {
    return false;
  }
}

export function connectionConfig(url: string, timeoutMs: number): pg.ClientConfig {
  return {
    connectionString: url,
    connectionTimeoutMillis: timeoutMs,
    query_timeout: timeoutMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    types: { getTypeParser },
  };
}

/** Numbers of 64 bits come as numbers: none of ours goes beyond 2^53. */
const getTypeParser: pg.CustomTypesConfig["getTypeParser"] = (oid, format) =>
  oid === pg.types.builtins.INT8 && format !== "binary" ? Number : pg.types.getTypeParser(oid, format);

/** SQLSTATE of an error of the database, empty for anything else. */
function codeOf(error: unknown): string {
  return error instanceof pg.DatabaseError ? (error.code ?? "") : "";
}

/** The statement failed, the connection is as good as before. */
function isOfStatement(error: unknown): boolean {
  // 25006: a standby answers; a new connection may reach the server that writes now. 0A000: a plan of before a migration.
  return /^(?!25006|0A000)(?:0A|2[0-9]|3[0-9]|4[0-9]|53[12]|54|55)/.test(codeOf(error));
}

/** Serialization failure, deadlock, a plan of before a migration: nothing was done, and the next attempt may do. */
function isPassing(error: unknown): boolean {
  return (
    ["40001", "40P01"].includes(codeOf(error)) ||
    (codeOf(error) === "0A000" && error instanceof Error && /cached plan/.test(error.message))
  );
}

/** The statement was refused for what is in it. */
export function isRefusal(error: unknown): boolean {
  return error instanceof AgentError && /^(?:22|23|54)/.test(codeOf(error.cause));
}

/** Errors of PostgreSQL and of the way there in our own words. */
export function postgresError(cause: unknown): AgentError {
  if (cause instanceof AgentError) return cause;
  const code = codeOf(cause);
  if (code === "53100") {
    return new AgentError(
      "resource_exhausted",
      "the disk of the server's database is full: nothing was saved; make room and try again",
      { reason: "DISK_FULL", detail: { retryable: true }, cause },
    );
  }
  if (code.startsWith("XX00") && code !== "XX000") {
    return new AgentError("data_loss", "the server's database is damaged where this session is kept", { cause });
  }
  return new AgentError("unavailable", "the session store failed; what was sent last may not be saved; try again", {
    reason: "STORE_FAILED",
    retryAfterMs: 1000,
    detail: { retryable: true },
    cause,
  });
}

/** Where a database is, without user and password. */
export function placeOf(url: string): string {
  const parsed = URL.parse(url);
  if (parsed === null) return "the database";
  return `the database ${decodeURIComponent(parsed.pathname.slice(1)) || "postgres"} at ${parsed.host || "this machine"}`;
}
