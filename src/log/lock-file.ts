import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";

export interface DataDirLock {
  /** Writes down who holds the lock, for the message a second process prints. */
  describe(owner: string): void;
  release(): void;
}

/**
 * Makes this process the only one that uses a data directory. The lock is one of the operating system's (taken through
 * SQLite), so it ends with the process, also at kill -9, and is never stale.
 * @throws {Error} one sentence naming the process that has it.
 */
export function lockDataDir(dataDir: string): DataDirLock {
  const ownerFile = join(dataDir, "owner");
  const database = new DatabaseSync(join(dataDir, "lock"));
  try {
    database.exec("pragma busy_timeout = 0; pragma journal_mode = delete; begin exclusive");
  } catch (cause) {
    database.close();
    let owner = "another process";
    try {
      owner = readFileSync(ownerFile, "utf8").trim() || owner;
    } catch {
      // The owner has not written its name yet: say what is known.
    }
    throw new Error(
      `the data directory ${dataDir} is in use by ${owner}; stop it, or name another directory with --data-dir`,
      { cause },
    );
  }
  const describe = (owner: string) => writeFileSync(ownerFile, `${owner}\n`, { mode: 0o600 });
  describe(`process ${process.pid}`);
  return {
    describe,
    release() {
      rmSync(ownerFile, { force: true });
      database.close();
    },
  };
}
