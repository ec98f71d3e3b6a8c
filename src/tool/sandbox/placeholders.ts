import { lstatSync, rmdirSync, unlinkSync } from "node:fs";
import { lstat, mkdir, open, utimes } from "node:fs/promises";
import { join } from "node:path";
import { SandboxUnavailableError } from "./sandbox.ts";

/** What in a workspace decides what this server and others run; no program may change it, nor make it where it is not. */
const protectedNames = {
  ".git": "folder",
  ".codeagent": "folder",
  ".mcp.json": "file",
  "codeagent.yaml": "file",
} as const;

/** Says of an empty file or folder that it was made here; it holds across a crash and for other servers. */
const markedTime = new Date(0);

/** How many programs need the placeholders of a workspace now. */
const users = new Map<string, number>();

/**
 * Sees to it that everything to be protected in a folder exists, by empty placeholders where it does not: only what exists
 * can be mounted over.
 * @returns the paths to protect, and what takes the placeholders away again once no program needs them.
 * @throws {SandboxUnavailableError} for a link, which could be exchanged whatever is done about what it leads to.
 */
export async function protectedPlaces(folder: string): Promise<{ paths: string[]; release(): void }> {
  users.set(folder, (users.get(folder) ?? 0) + 1);
  let isReleased = false;
  const release = (): void => {
    if (isReleased) return;
    isReleased = true;
    const left = (users.get(folder) ?? 1) - 1;
    if (left > 0) users.set(folder, left);
    else users.delete(folder);
    if (left > 0) return;
    for (const [name, kind] of Object.entries(protectedNames)) removePlaceholder(join(folder, name), kind);
  };
  try {
    const paths: string[] = [];
    for (const [name, kind] of Object.entries(protectedNames)) {
      const path = join(folder, name);
      if (await ensure(path, name, kind)) paths.push(path);
    }
    return { paths, release };
  } catch (error) {
    release();
    throw error;
  }
}

/** @returns false where nothing is and we can't make anything; then the program can't either. */
async function ensure(path: string, name: string, kind: "file" | "folder"): Promise<boolean> {
  const there = await lstat(path).catch(() => undefined);
  if (there?.isSymbolicLink()) {
    throw new SandboxUnavailableError(
      `${name} in the workspace is a link, which a sandbox can't protect; put the file or folder itself there`,
    );
  }
  if (there !== undefined) return true;
  try {
    if (kind === "folder") await mkdir(path);
    else await (await open(path, "wx", 0o600)).close();
    await utimes(path, markedTime, markedTime);
    return true;
  } catch (error) {
    // Another program's, made in the meantime.
    return error instanceof Error && "code" in error && error.code === "EEXIST";
  }
}

/** Without a pause, so that no program begins in between and finds what is about to go. */
function removePlaceholder(path: string, kind: "file" | "folder"): void {
  try {
    const there = lstatSync(path);
    if (there.mtimeMs !== markedTime.getTime()) return;
    // A folder that is not empty stays by itself.
    if (kind === "folder") rmdirSync(path);
    else if (there.isFile() && there.size === 0) unlinkSync(path);
  } catch {
    // Gone already, or in use.
  }
}
