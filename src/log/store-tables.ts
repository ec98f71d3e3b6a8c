import { createHash } from "node:crypto";
import type { Row } from "./row.ts";

/** What a store is made of, in the order in which it is carried over. Bytes are the columns named so. */
export const storeTables = {
  sessions: {
    columns: [
      ...["id", "tenant", "parent_id", "parent_seq", "next_seq", "epoch", "token", "runnable", "config"],
      ...["config_version", "summary", "request_id", "request_hash", "created_at", "updated_at", "wake_at"],
      ...["waiting_since", "placement", "deaths", "held_until", "pruned_seq", "prune_at"],
    ],
    order: ["id"],
  },
  events: {
    columns: ["session_id", "seq", "epoch", "turn_id", "kind", "body", "at"],
    order: ["session_id", "seq"],
  },
  // Numbered anew in the order they were in.
  inbox: {
    columns: [...["session_id", "key", "kind", "turn_id", "principal", "body", "hash", "at", "taken_at", "first_seq"]],
    order: ["n"],
  },
  blobs: { columns: ["session_id", "digest", "body"], order: ["session_id", "digest"] },
  requests: {
    columns: ["tenant", "request_id", "method", "hash", "owner", "answer", "at"],
    order: ["tenant", "request_id"],
  },
  schedules: {
    columns: [
      ...["id", "tenant", "principal", "session_id", "cron", "tz", "misfire", "body", "next_at", "paused", "error"],
      ...["last_at", "run_count", "created_at", "updated_at"],
    ],
    order: ["id"],
  },
  schedule_runs: {
    columns: ["schedule_id", "key", "id", "cause", "scheduled_at", "skipped", "session_id", "turn_id"],
    order: ["n"],
  },
  plans: {
    columns: ["id", "tenant", "session_id", "version", "execution_id", "created_at"],
    order: ["id"],
  },
  plan_versions: { columns: ["plan_id", "version", "body", "at"], order: ["plan_id", "version"] },
  memories: {
    columns: ["session_id", "id", "kind", "importance", "at", "access_count", "accessed_at", "body", "terms"],
    order: ["session_id", "id"],
  },
} as const satisfies Record<string, { readonly columns: readonly string[]; readonly order: readonly string[] }>;

export type StoreTable = keyof typeof storeTables;
export const storeTableNames: readonly StoreTable[] = [
  ...(["sessions", "events", "inbox", "blobs", "requests", "schedules", "schedule_runs"] as const),
  ...(["plans", "plan_versions", "memories"] as const),
];

/** Columns of bytes, and of numbers; all others are text. */
export const bytesColumns: ReadonlySet<string> = new Set(["config", "summary", "body", "answer"]);
export const textColumns: ReadonlySet<string> = new Set([
  ...["id", "tenant", "parent_id", "token", "request_id", "request_hash", "placement", "session_id", "turn_id", "kind"],
  ...["key", "principal", "hash", "digest", "method", "owner", "cron", "tz", "misfire", "error", "schedule_id"],
  ...["cause", "skipped", "execution_id", "plan_id", "terms"],
]);

export type Cell = string | number | Uint8Array | null;

/** All rows of one moment. */
export interface StoreReader {
  rows(table: StoreTable): AsyncIterable<Row>;
}

/** Takes rows into an empty store, all or none. */
export interface StoreWriter {
  /** @param rows each with a value for every column named */
  insert(table: StoreTable, columns: readonly string[], rows: readonly (readonly Cell[])[]): Promise<void>;
}

const format = "codeagent-export";
const formatVersion = 1;
/** Rows handed over together, and about how many bytes of them. */
const batchRows = 500;
const batchBytes = 4 * 1024 * 1024;

/**
 * The lines of an export, each with its line end: a head, for each table its columns and then its rows as JSON lists, and
 * an end with the number of rows and the SHA-256 of all lines before. Bytes are `{"base64": ...}`.
 */
export async function* exportLines(reader: StoreReader): AsyncGenerator<string> {
  const hash = createHash("sha256");
  let rows = 0;
  const line = (value: unknown) => {
    const text = `${JSON.stringify(value)}\n`;
    hash.update(text);
    return text;
  };
  yield line({ format, version: formatVersion });
  for (const table of storeTableNames) {
    const { columns } = storeTables[table];
    yield line({ table, columns });
    for await (const row of reader.rows(table)) {
      rows++;
      yield line(columns.map((column) => shown(row[column])));
    }
  }
  yield `${JSON.stringify({ rows, sha256: hash.digest("hex") })}\n`;
}

/**
 * Takes over what `exportLines` made.
 * @param lines without their ends
 * @returns how many rows there were
 * @throws {Error} one sentence that names the line, when something is missing, unknown or changed.
 */
export async function importLines(lines: AsyncIterable<string>, writer: StoreWriter): Promise<number> {
  const hash = createHash("sha256");
  let number = 0;
  let rows = 0;
  let into: { readonly table: StoreTable; readonly columns: readonly string[] } | undefined;
  let batch: Cell[][] = [];
  let bytes = 0;
  const flush = async () => {
    if (into !== undefined && batch.length > 0) await writer.insert(into.table, into.columns, batch);
    batch = [];
    bytes = 0;
  };
  for await (const text of lines) {
    number++;
    const value = parsed(text, number);
    if (Array.isArray(value)) {
      if (into === undefined || value.length !== into.columns.length)
        throw new Error(`line ${number} does not fit the columns above it; the export is damaged`);
      batch.push(into.columns.map((column, index) => cellFrom(column, value[index], number)));
      rows++;
      bytes += text.length;
      if (batch.length >= batchRows || bytes >= batchBytes) await flush();
    } else if (number === 1) {
      if (value["format"] !== format) throw new Error("this is no export of codeagent");
      if (value["version"] !== formatVersion)
        throw new Error(
          `the export has version ${JSON.stringify(value["version"])}; this build reads ${formatVersion}`,
        );
    } else if (value["sha256"] !== undefined) {
      await flush();
      if (value["sha256"] !== hash.digest("hex") || value["rows"] !== rows)
        throw new Error("the export is damaged: it does not add up to what its last line says");
      return rows;
    } else {
      await flush();
      into = tableFrom(value, number);
    }
    hash.update(`${text}\n`);
  }
  throw new Error(`the export is cut off after line ${number}`);
}

function tableFrom({ table: named, columns }: Readonly<Record<string, unknown>>, number: number) {
  const table = storeTableNames.find((name) => name === named);
  if (table === undefined) throw new Error(`line ${number}: this build knows no table ${JSON.stringify(named)}`);
  const known: readonly string[] = storeTables[table].columns;
  const given = Array.isArray(columns) ? columns.filter((column) => typeof column === "string") : [];
  const strange = given.find((column) => !known.includes(column));
  if (strange !== undefined)
    throw new Error(`line ${number}: this build knows no column ${strange} of ${table}; use a newer build`);
  return { table, columns: given };
}

function parsed(text: string, number: number): unknown[] | Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new Error(`line ${number} can't be read; the export is damaged`, { cause });
  }
  if (Array.isArray(value)) return value;
  if (typeof value === "object" && value !== null) return Object.fromEntries(Object.entries(value));
  throw new Error(`line ${number} is neither a row nor a table; the export is damaged`);
}

function shown(value: unknown): unknown {
  return value instanceof Uint8Array ? { base64: Buffer.from(value).toString("base64") } : (value ?? null);
}

function cellFrom(column: string, value: unknown, number: number): Cell {
  if (value === null) return null;
  if (bytesColumns.has(column)) {
    if (typeof value === "object" && "base64" in value && typeof value.base64 === "string")
      return Buffer.from(value.base64, "base64");
  } else if (textColumns.has(column) ? typeof value === "string" : Number.isSafeInteger(value)) {
    if (typeof value === "string" || typeof value === "number") return value;
  }
  throw new Error(`line ${number}: ${column} has no fit value; the export is damaged`);
}
