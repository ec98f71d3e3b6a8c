import { lstat, readlink } from "node:fs/promises";
import { isAbsolute } from "node:path";

/** Where a path leads. */
export interface ResolvedPath {
  /** As it was given. */
  readonly given: string;
  /** Absolute, with every link followed; what does not exist yet keeps the names it was given. */
  readonly real: string;
  /** From the workspace on, `.` for the workspace itself; absent for what is outside. */
  readonly relative?: string;
}

const maxLinks = 40;
const maxCharacters = 4096;

/**
 * Finds out where a path leads, component by component as the system does: links are followed before `..` goes up from
 * them. Opens nothing and throws nothing; what can't be looked at counts as not there.
 * @param workspace absolute path without links, which relative paths begin in
 */
export async function resolveRealPath(workspace: string, given: string): Promise<ResolvedPath> {
  const pending = (isAbsolute(given) ? given : `${workspace}/${given}`).slice(0, maxCharacters).split("/").reverse();
  let names: string[] = [];
  let links = 0;
  for (let name = pending.pop(); name !== undefined; name = pending.pop()) {
    if (name === "" || name === ".") continue;
    if (name === "..") {
      names.pop();
      continue;
    }
    names.push(name);
    const target = links < maxLinks ? await linkTarget(`/${names.join("/")}`) : undefined;
    if (target === undefined) continue;
    links++;
    if (isAbsolute(target)) names = [];
    else names.pop();
    pending.push(...target.split("/").reverse());
  }
  const real = `/${names.join("/")}`;
  if (real === workspace) return { given, real, relative: "." };
  const prefix = workspace.endsWith("/") ? workspace : `${workspace}/`;
  return real.startsWith(prefix) ? { given, real, relative: real.slice(prefix.length) } : { given, real };
}

async function linkTarget(path: string): Promise<string | undefined> {
  try {
    return (await lstat(path)).isSymbolicLink() ? await readlink(path) : undefined;
  } catch {
    return undefined;
  }
}
