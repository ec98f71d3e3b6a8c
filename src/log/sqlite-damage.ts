import { statSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { fileBytes } from "./wal-damage.ts";

const corrupt = 11;
const notADatabase = 26;
const shortRead = 522;

/**
 * Reading a file whole to look for damage takes about 2 ms a megabyte when it is in memory and 10 ms when it comes from the disk.
 * Up to this size that is done at every start; above it, damage in a log is met by whoever reads that log.
 */
const alwaysCheckedBytes = 128 * 1024 * 1024;
/** After a crash a longer wait is worth it. */
const checkedAfterCrashBytes = 512 * 1024 * 1024;

/** Whether an error of SQLite says that the file is damaged: neither waiting nor trying again helps. */
export function isDamage(error: unknown): boolean {
  if (!(error instanceof Error) || !("errcode" in error) || typeof error.errcode !== "number") return false;
  const primary = error.errcode & 0xff;
  return primary === corrupt || primary === notADatabase || error.errcode === shortRead;
}

/**
 * Looks for damage in a database that nobody has open, without changing it. The tables of sessions and commands are
 * always checked, the logs and what is kept beside them where the file is not too large.
 * @param version the schema version whose tables have to be there
 * @returns what was found, in words for the operator; `undefined` for a file that looks sound
 */
export function findDamage(path: string, version: number, tables: readonly string[]): string | undefined {
  let database: DatabaseSync | undefined;
  try {
    const crashed = fileBytes(`${path}-wal`) > 0;
    const { size } = statSync(path);
    database = new DatabaseSync(path, { readOnly: true });
    const pages = pragma(database, "page_count");
    const expected = pages * pragma(database, "page_size");
    if (size > expected) return `${size - expected} bytes follow its last page`;
    if (size < expected && !crashed) return `${expected - size} bytes are missing at its end`;
    if (pragma(database, "user_version") !== version) return undefined;
    for (const table of tables) {
      const found = database.prepare("select 1 from sqlite_schema where type = 'table' and name = ?").get(table);
      if (found === undefined) return `its table ${table} is gone`;
    }
    const whole = size <= (crashed ? checkedAfterCrashBytes : alwaysCheckedBytes);
    for (const check of whole ? ["quick_check(1)"] : ["quick_check(sessions)", "quick_check(inbox)"]) {
      const said = Object.values(database.prepare(`pragma ${check}`).get() ?? {})[0];
      if (said !== "ok") return String(said).split("\n").slice(0, 2).join(" ").slice(0, 300);
    }
    return undefined;
  } catch (error) {
    // What is no damage (no permission, a hot journal) is for the plain way of opening to say or to mend.
    return isDamage(error) && error instanceof Error ? error.message : undefined;
  } finally {
    database?.close();
  }
}

function pragma(database: DatabaseSync, name: string): number {
  const value = database.prepare(`pragma ${name}`).get()?.[name];
  return typeof value === "number" ? value : 0;
}
