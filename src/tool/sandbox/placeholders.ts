import { lstatSync, rmdirSync, unlinkSync } from "node:fs";
import { lstat, mkdir, open, utimes } from "node:fs/promises";
import { join } from "node:path";
import { isAmongArguments } from "../process-tree.ts";
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
 * @returns the paths to protect, and what takes the placeholders away again once no program needs them, also none of
 * another server: what is removed is protected no longer.
 * @throws {SandboxUnavailableError} for a link, which could be exchanged whatever is done about what it leads to.
 */
async function protectedPlaces(folder: string): Promise<{ paths: string[]; release(): Promise<void> }> {
  users.set(folder, (users.get(folder) ?? 0) + 1);
  let isReleased = false;
  const release = async (): Promise<void> => {
    if (isReleased) return;
    isReleased = true;
    const left = (users.get(folder) ?? 1) - 1;
    if (left > 0) users.set(folder, left);
    else users.delete(folder);
    if (left > 0) return;
    // The command line of a sandbox names what it protects, by a name that every one of them protects.
    if (await isAmongArguments(join(folder, ".codeagent"))) return;
    if (users.has(folder)) return;
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
    await release();
    throw error;
  }
}

/** As `protectedPlaces`, of several folders. */
export async function protectedPlacesIn(folders: readonly string[]): ReturnType<typeof protectedPlaces> {
  const places = await Promise.allSettled(folders.map((folder) => protectedPlaces(folder)));
  const release = async (): Promise<void> => {
    await Promise.all(places.map((place) => (place.status === "fulfilled" ? place.value.release() : undefined)));
  };
  const failed = places.find((place) => place.status === "rejected");
  if (failed !== undefined) {
    await release();
    throw failed.reason;
  }
  return { paths: places.flatMap((place) => (place.status === "fulfilled" ? place.value.paths : [])), release };
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
