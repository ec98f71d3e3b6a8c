import { constants, type Dirent } from "node:fs";
import { opendir } from "node:fs/promises";
import ignore, { type Ignore } from "ignore";
import { TooSlow, withinTime } from "./within-time.ts";
import { nothingForPathError, type OpenedBeneath, openChild, openDirectoryBeneath } from "./workspace.ts";

/** The files of one directory, or a remark about what was left out. */
export type Walked =
  | {
      readonly type: "directory";
      /** Open until the walk goes on. */
      readonly directory: OpenedBeneath;
      /** Names of regular files and of links, sorted; links are not followed. */
      readonly names: readonly string[];
    }
  | { readonly type: "note"; readonly text: string };

export interface WalkOptions {
  /** Where to begin, from the workspace; default the workspace itself. What is asked for by name is walked even if ignored. */
  readonly path?: string;
  readonly signal: AbortSignal;
  /** Default 100,000 entries of directories. */
  readonly maxEntries?: number;
  /** Default 10,000. */
  readonly maxMs?: number;
}

const maxDepth = 64;
const maxIgnoreFileBytes = 256 * 1024;
const matchLimitMs = 100;
const matchBatch = 500;

/** The rules of one `.gitignore`; `base` is its directory with a slash at the end, empty for the workspace. */
interface IgnoreRules {
  readonly base: string;
  readonly rules: Ignore;
}

/**
 * Walks the files of a workspace, directory by directory in sorted order, without what `.gitignore` files leave out and
 * without `.git`. Follows no link. A directory that cannot be read is passed over.
 * @throws the reason of the signal, and {WorkspacePathError} about the place to begin.
 */
export async function* walkFiles(workspace: string, options: WalkOptions): AsyncGenerator<Walked, void, undefined> {
  const maxEntries = options.maxEntries ?? 100_000;
  const deadlineMs = performance.now() + (options.maxMs ?? 10_000);
  const notes: string[] = [];
  let entriesLeft = maxEntries;
  let stopped = false;
  let rulesTooSlow = false;

  const start = await openDirectoryBeneath(workspace, options.path ?? ".");
  yield* visit(start, await rulesAbove(workspace, start.path), 0);
  for (const text of new Set(notes)) yield { type: "note", text };

  async function* visit(
    directory: OpenedBeneath,
    above: readonly IgnoreRules[],
    depth: number,
  ): AsyncGenerator<Walked, void, undefined> {
    try {
      const entries = await entriesOf(directory);
      const base = directory.path === "." ? "" : `${directory.path}/`;
      const own = entries.some((entry) => entry.name === ".gitignore") ? await rulesIn(directory, base) : undefined;
      const rules = own === undefined ? above : [...above, own];
      const kept = withoutIgnored(rules, base, entries);
      yield {
        type: "directory",
        directory,
        names: kept.filter((each) => !each.isDirectory()).map((each) => each.name),
      };
      for (const entry of kept) {
        if (stopped) return;
        if (!entry.isDirectory()) continue;
        if (depth === maxDepth) notes.push(`directories more than ${maxDepth} levels deep were left out`);
        else yield* visitChild(directory, entry.name, rules, depth + 1);
      }
    } finally {
      await directory.handle.close();
    }
  }

  async function* visitChild(directory: OpenedBeneath, name: string, rules: readonly IgnoreRules[], depth: number) {
    const child = await openChild(directory, name, constants.O_RDONLY).catch(nothingForPathError);
    if (child === undefined) return;
    if (child.stats.isDirectory()) yield* visit(child, rules, depth);
    else await child.handle.close();
  }

  async function entriesOf(directory: OpenedBeneath): Promise<Dirent[]> {
    const entries: Dirent[] = [];
    // Leaving the loop early closes the directory.
    for await (const entry of await opendir(directory.at, { bufferSize: 256 })) {
      options.signal.throwIfAborted();
      if (entriesLeft === 0 || performance.now() > deadlineMs) {
        const why = entriesLeft === 0 ? `${maxEntries} entries` : `${options.maxMs ?? 10_000} ms`;
        notes.push(`the walk stopped after ${why}; not all files were seen`);
        stopped = true;
        break;
      }
      entriesLeft--;
      if (entry.name === ".git") continue;
      if (entry.isFile() || entry.isDirectory() || entry.isSymbolicLink()) entries.push(entry);
    }
    return entries.sort((left, right) => (left.name < right.name ? -1 : left.name > right.name ? 1 : 0));
  }

  function withoutIgnored(rules: readonly IgnoreRules[], base: string, entries: readonly Dirent[]): readonly Dirent[] {
    if (rules.length === 0 || rulesTooSlow) return entries;
    const kept: Dirent[] = [];
    try {
      for (let start = 0; start < entries.length; start += matchBatch) {
        const batch = entries.slice(start, start + matchBatch);
        kept.push(...withinTime(matchLimitMs, () => batch.filter((entry) => !isIgnored(rules, pathOf(base, entry)))));
      }
      return kept;
    } catch (error) {
      if (!(error instanceof TooSlow)) throw error;
      rulesTooSlow = true;
      notes.push("the patterns of a .gitignore file take too long; what it leaves out is shown from there on");
      return entries;
    }
  }

  async function rulesIn(directory: OpenedBeneath, base: string): Promise<IgnoreRules | undefined> {
    const file = await openChild(directory, ".gitignore", constants.O_RDONLY).catch(nothingForPathError);
    if (file === undefined) return undefined;
    try {
      if (!file.stats.isFile()) return undefined;
      if (file.stats.size > maxIgnoreFileBytes) {
        notes.push(`a .gitignore file of ${file.stats.size} bytes was not applied`);
        return undefined;
      }
      const buffer = Buffer.alloc(maxIgnoreFileBytes);
      const { bytesRead } = await file.handle.read(buffer, 0, buffer.length, 0);
      const text = buffer.toString("utf8", 0, bytesRead);
      return { base, rules: withinTime(matchLimitMs, () => ignore({ ignorecase: false }).add(text)) };
    } catch (error) {
      if (error instanceof TooSlow) return undefined;
      throw error;
    } finally {
      await file.handle.close();
    }
  }

  /** The rules that reach down to the place where the walk begins; none if they leave out that place itself. */
  async function rulesAbove(root: string, path: string): Promise<readonly IgnoreRules[]> {
    if (path === ".") return [];
    const rules: IgnoreRules[] = [];
    const names = path.split("/");
    for (let depth = 0; depth < names.length; depth++) {
      const above = names.slice(0, depth).join("/");
      const directory = await openDirectoryBeneath(root, above);
      try {
        const own = await rulesIn(directory, above === "" ? "" : `${above}/`);
        if (own !== undefined) rules.push(own);
      } finally {
        await directory.handle.close();
      }
    }
    try {
      return withinTime(matchLimitMs, () => isIgnored(rules, `${path}/`)) ? [] : rules;
    } catch (error) {
      if (error instanceof TooSlow) return [];
      throw error;
    }
  }
}

/** Of several rules the one nearest to the file decides. */
function isIgnored(levels: readonly IgnoreRules[], path: string): boolean {
  let ignored = false;
  for (const { base, rules } of levels) {
    const verdict = rules.test(path.slice(base.length));
    if (verdict.ignored) ignored = true;
    else if (verdict.unignored) ignored = false;
  }
  return ignored;
}

function pathOf(base: string, entry: Dirent): string {
  return `${base}${entry.name}${entry.isDirectory() ? "/" : ""}`;
}
