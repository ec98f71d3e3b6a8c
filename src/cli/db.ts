import { existsSync } from "node:fs";
import { open, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { makeDataDir } from "../data-dir.ts";
import { lockDataDir } from "../log/lock-file.ts";
import { openSqliteStore } from "../log/sqlite.ts";
import { fillSqliteTables, readSqliteTables } from "../log/sqlite-tables.ts";
import { exportLines, importLines, type StoreReader, type StoreWriter } from "../log/store-tables.ts";
import { type ConfigFlags, configFrom } from "./config-flags.ts";
import { hideDatabases, type TakenEnvironment } from "./secrets.ts";

export type DbFlags = ConfigFlags;

/**
 * Writes all that the store has into one new file that only its owner may read. With PostgreSQL servers may go on
 * meanwhile; a data directory must not be in use.
 * @returns the exit code
 * @throws {Error} one sentence, when the file is there or something can't be read or written.
 */
export async function exportStore(file: string, flags: DbFlags, taken: TakenEnvironment): Promise<number> {
  if (existsSync(file)) throw new Error(`${file} is there already; name another file`);
  const draft = `${file}.part-${process.pid}`;
  const target = await open(draft, "wx", 0o600);
  try {
    let rows = 0;
    await reading(flags, taken, async (reader) => {
      let page = "";
      for await (const line of exportLines(reader)) {
        rows++;
        page += line;
        if (page.length < pageLength) continue;
        await target.writeFile(page);
        page = "";
      }
      await target.writeFile(page);
    });
    await target.sync();
    await target.close();
    await rename(draft, file);
    process.stdout.write(`${rows} lines written to ${file}\n`);
    return 0;
  } catch (error) {
    await target.close().catch(() => undefined);
    await rm(draft, { force: true });
    throw error;
  }
}

/**
 * Takes all that `exportStore` wrote into a store that is empty, all of it or nothing.
 * @returns the exit code
 * @throws {Error} one sentence, when the store is not empty or in use, or the file is damaged.
 */
export async function importStore(file: string, flags: DbFlags, taken: TakenEnvironment): Promise<number> {
  const source = await open(file, "r");
  try {
    const rows = await writing(flags, taken, (writer) => importLines(source.readLines(), writer));
    process.stdout.write(`${rows} rows taken over from ${file}\n`);
    return 0;
  } finally {
    await source.close();
  }
}

const pageLength = 1024 * 1024;

async function reading(
  flags: DbFlags,
  { env, redactor }: TakenEnvironment,
  use: (reader: StoreReader) => Promise<void>,
): Promise<void> {
  const config = configFrom(flags, env);
  if (config.database_url !== "") {
    hideDatabases([config.database_url], redactor);
    return (await import("../log/postgres-tables.ts")).readPostgresTables(config.database_url, use);
  }
  const path = databaseFile(config.data_dir);
  if (!existsSync(path)) throw new Error(`there is no store in ${config.data_dir}`);
  const lock = lockDataDir(config.data_dir);
  try {
    // Opened once as a server does, it has the tables of this build.
    await openSqliteStore(path).close();
    await readSqliteTables(path, use);
  } finally {
    lock.release();
  }
}

async function writing<Result>(
  flags: DbFlags,
  { env, redactor }: TakenEnvironment,
  use: (writer: StoreWriter) => Promise<Result>,
): Promise<Result> {
  const config = configFrom(flags, env);
  if (config.database_url !== "") {
    hideDatabases([config.database_url], redactor);
    return (await import("../log/postgres-tables.ts")).fillPostgresTables(config.database_url, use);
  }
  makeDataDir(config.data_dir);
  const lock = lockDataDir(config.data_dir);
  try {
    const path = databaseFile(config.data_dir);
    return await fillSqliteTables(path, use);
  } finally {
    lock.release();
  }
}

function databaseFile(dataDir: string): string {
  return join(dataDir, "codeagent.db");
}
