import {
  chmodSync,
  closeSync,
  copyFileSync,
  existsSync,
  fsyncSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import { basename, dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { type RescuedSessions, rescueSessions, type SummaryOfLog, tableNames } from "./rescue-sessions.ts";
import { createTables, openSqliteStore, schemaVersion } from "./sqlite.ts";
import { findDamage, isDamage } from "./sqlite-damage.ts";
import type { Store } from "./store.ts";
import { fileBytes, findWalDamage } from "./wal-damage.ts";

export interface OpenOrRescueOptions {
  readonly path: string;
  /** Told what was damaged, what became of it and where the original is. */
  readonly report: (level: "warn" | "error", message: string, facts: Record<string, unknown>) => void;
  readonly summaryOfLog: SummaryOfLog;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

/** Most session ids named in one report. */
const namedSessions = 20;

/**
 * Opens the SQLite store and makes the best of a damaged file: it is moved aside as `<name>.damaged-<time>`, and every
 * session that can be read goes into a new one. Nothing changes under the old name before the new file is whole, and a
 * rescue that was interrupted is finished by the next start. For the one process that holds the data directory.
 * @throws {Error} one sentence for the operator, when there is no room for a rescue.
 * @throws as `openSqliteStore`, but not for damage.
 */
export function openOrRescue(options: OpenOrRescueOptions): Store {
  const { path, report } = options;
  const time = new Date(options.now()).toISOString().replaceAll(/[:.-]/g, "");
  finishRescue(path);
  const damage = findLoss(path) ?? findDamage(path, schemaVersion, tableNames);
  if (damage !== undefined) {
    rescue(options, time, damage);
  } else {
    const ofJournal = findWalDamage(`${path}-wal`);
    if (ofJournal !== undefined) {
      // The file itself is sound and ends before what is damaged: only the journal is kept, for somebody to look at.
      const kept = `${path}.damaged-${time}-wal`;
      copyFileSync(`${path}-wal`, kept);
      chmodSync(kept, 0o600);
      report("error", "the end of the session database was damaged: what was saved last may be lost", {
        found: ofJournal,
        original: kept,
      });
    }
  }
  return opened(options, time);
}

function opened(options: OpenOrRescueOptions, time: string): Store {
  let store: Store;
  try {
    store = openSqliteStore(options.path);
  } catch (error) {
    if (!isDamage(error) || !(error instanceof Error)) throw error;
    rescue(options, `${time}b`, error.message);
    store = openSqliteStore(options.path);
  }
  if (!existsSync(markerOf(options.path))) {
    const said = "A session database was made here. If it is missing or empty, it was lost.\n";
    writeFileSync(markerOf(options.path), said, { mode: 0o600 });
  }
  return store;
}

/** Says that a database has been here, so that one that is gone is not taken for a first start. */
function markerOf(path: string): string {
  return `${path}.made`;
}

function findLoss(path: string): string | undefined {
  if (fileBytes(path) > 0) return undefined;
  if (fileBytes(`${path}-wal`) === 0 && !existsSync(markerOf(path))) return undefined;
  return existsSync(path) ? "it is empty, and sessions were in it before" : "it is missing, and was here before";
}

function rescue({ path, report, summaryOfLog, now }: OpenOrRescueOptions, time: string, found: string): void {
  const original = `${path}.damaged-${time}`;
  const draft = `${path}.rescuing`;
  let rescued: RescuedSessions;
  let keeps: boolean;
  try {
    removeDatabase(draft);
    rescued = buildFrom(path, draft, summaryOfLog, now());
    keeps = existsSync(path) || fileBytes(`${path}-wal`) > 0;
    renameSync(draft, `${path}.rescued-${time}`);
  } catch (cause) {
    removeDatabase(draft);
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new Error(
      `the session database ${path} is damaged (${found}) and its sessions can't be copied into a new one (${why}); it was left as it is: make room for a second one and start again`,
      { cause },
    );
  }
  finishRescue(path);
  const { whole, cut, lost, uncounted } = rescued;
  report("error", "the session database was damaged; what could be read is in a new one", {
    found,
    rescued: whole,
    cut: cut.length,
    lost: lost.length,
    cutSessions: cut.slice(0, namedSessions),
    lostSessions: lost.slice(0, namedSessions),
    ...(uncounted.length === 0 ? {} : { lostWithoutCount: uncounted }),
    ...(keeps ? { original } : {}),
  });
}

/** Puts a complete rescued database into the place of the damaged one; goes on where a crash interrupted that. */
function finishRescue(path: string): void {
  const folder = dirname(path);
  const prefix = `${basename(path)}.rescued-`;
  const name = existsSync(folder) ? readdirSync(folder).find((each) => each.startsWith(prefix)) : undefined;
  if (name === undefined) return;
  const original = `${path}.damaged-${name.slice(prefix.length)}`;
  // Looking into a database leaves an empty journal and its index behind; they are nothing of the original.
  if (existsSync(path) && fileBytes(`${path}-wal`) === 0) {
    for (const suffix of ["-wal", "-shm"]) rmSync(`${path}${suffix}`, { force: true });
  }
  for (const suffix of ["", "-wal", "-shm"]) {
    if (!existsSync(`${path}${suffix}`)) continue;
    renameSync(`${path}${suffix}`, `${original}${suffix}`);
    chmodSync(`${original}${suffix}`, 0o600);
  }
  syncToDisk(folder);
  renameSync(join(folder, name), path);
  syncToDisk(folder);
}

/** Makes a new database of what can be read of a damaged one. */
function buildFrom(path: string, draft: string, summaryOfLog: SummaryOfLog, nowMs: number): RescuedSessions {
  writeFileSync(draft, "", { mode: 0o600 });
  const copy = `${draft}-source`;
  const target = new DatabaseSync(draft);
  let source: DatabaseSync | undefined;
  try {
    target.exec("pragma synchronous = off; begin");
    createTables(target);
    target.exec("commit; begin");
    const something = fileBytes(path) > 0 || fileBytes(`${path}-wal`) > 0;
    source =
      openDamaged(withoutPartOfPage(draft, path, copy)) ??
      (something ? openDamaged(withSchemaPagesOf(draft, path, copy)) : undefined);
    const rescued = source === undefined ? nothingRescued : rescueSessions(source, target, summaryOfLog, nowMs);
    target.exec("commit");
    return rescued;
  } finally {
    source?.close();
    target.close();
    removeDatabase(copy);
    syncToDisk(draft);
  }
}

const nothingRescued: RescuedSessions = { whole: 0, cut: [], lost: [], uncounted: tableNames };

/** Opens a damaged database to read what can be read; `undefined` when its tables can't be found. */
function openDamaged(path: string): DatabaseSync | undefined {
  if (fileBytes(path) === 0) return undefined;
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(path, { readOnly: true });
    // Without these SQLite refuses a file that is shorter than it says.
    database.enableDefensive(false);
    database.exec("pragma writable_schema = on");
    for (const table of tableNames) database.prepare(`select * from ${table} limit 0`).all();
    return database;
  } catch {
    database?.close();
    return undefined;
  }
}

/**
 * The first pages say where the tables begin, and are the same in all databases of one schema version, but for the number of
 * pages. So where they are damaged a copy gets those of a new database.
 */
function withSchemaPagesOf(fresh: string, path: string, copy: string): string {
  copyDatabase(path, copy);
  const bytes = readFileSync(fresh);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const pageBytes = view.getUint16(16);
  const pages = Math.max(Math.ceil(statSync(copy).size / pageBytes), bytes.length / pageBytes);
  bytes[18] = 2; // as a file with a write-ahead log, which may hold newer pages
  bytes[19] = 2;
  view.setUint32(28, pages);
  truncateSync(copy, pages * pageBytes);
  const file = openSync(copy, "r+");
  try {
    for (const page of schemaPages(fresh)) {
      const offset = (page - 1) * pageBytes;
      writeSync(file, bytes, offset, pageBytes, offset);
    }
  } finally {
    closeSync(file);
  }
  return copy;
}

function schemaPages(path: string): number[] {
  const database = new DatabaseSync(path, { readOnly: true });
  try {
    const rows = database.prepare("select pageno from dbstat where name = 'sqlite_schema'").all();
    return rows.map((row) => Number(row["pageno"]));
  } finally {
    database.close();
  }
}

/**
 * SQLite fills a page that is cut with zeroes. In a page of rows that is noticed, or costs one row; a page with nothing but
 * a part of a large value would be taken for whole, so a copy of the file does without it.
 * @returns the file to read: the copy, or the original when it ends well
 */
function withoutPartOfPage(fresh: string, path: string, copy: string): string {
  const pageBytes = readFileSync(fresh).readUInt16BE(16);
  const wholeBytes = Math.floor(fileBytes(path) / pageBytes) * pageBytes;
  if (wholeBytes === fileBytes(path) || wholeBytes === 0) return path;
  const kindOfPage = new Uint8Array(1);
  const file = openSync(path, "r");
  try {
    readSync(file, kindOfPage, 0, 1, wholeBytes);
  } finally {
    closeSync(file);
  }
  if ([2, 5, 10, 13].includes(kindOfPage[0] ?? 0)) return path;
  copyDatabase(path, copy);
  truncateSync(copy, wholeBytes);
  return copy;
}

function copyDatabase(path: string, copy: string): void {
  removeDatabase(copy);
  writeFileSync(copy, "", { mode: 0o600 });
  if (existsSync(path)) copyFileSync(path, copy);
  chmodSync(copy, 0o600);
  if (existsSync(`${path}-wal`)) copyFileSync(`${path}-wal`, `${copy}-wal`);
}

function removeDatabase(path: string): void {
  for (const suffix of ["", "-wal", "-shm", "-journal"]) rmSync(`${path}${suffix}`, { force: true });
}

function syncToDisk(path: string): void {
  const file = openSync(path, "r");
  try {
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}
