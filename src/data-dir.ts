import { mkdirSync, statSync } from "node:fs";
import { dirname } from "node:path";

/**
 * Makes the data directory with its parents, for its owner only, where it is missing. Each level by itself: `mkdir` with
 * `recursive` never returns for a path below /proc.
 * @throws {Error} one sentence naming the setting, when it can't be made or is something else.
 */
export function makeDataDir(path: string): void {
  const missing: string[] = [];
  try {
    for (let level = path; !isDirectory(level); level = dirname(level)) missing.unshift(level);
    for (const level of missing) mkdirSync(level, { mode: 0o700 });
  } catch (cause) {
    const why = cause instanceof Error ? cause.message.split(",", 1)[0] : String(cause);
    throw new Error(`data_dir: ${path} can't be made (${why}); name another directory`, { cause });
  }
}

/** Whether a directory is there; false for nothing. @throws when it is something else. */
function isDirectory(path: string): boolean {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return false;
  if (!stats.isDirectory()) throw new Error("there is a file of that name");
  return true;
}
