import type { Dirent } from "node:fs";
import { lstat, opendir, realpath, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { FSWatcher } from "chokidar";
import { isRecord } from "../tool/check-value.ts";
import { openDirectoryBeneath, WorkspacePathError } from "../tool/workspace.ts";
import { errorIn, type SkillDiagnostic, skillFile } from "./diagnostic.ts";
import type { KnownFiles } from "./skill-files.ts";
import { readSkill, type SkillReading, type SkillScope, type SkillVersion } from "./skill-version.ts";

/** A skill of a folder of skills, as it is there now. */
export interface SkillEntry {
  /** The skill's name; of one too broken to say it, that of its folder. */
  readonly name: string;
  /** The skill's folder, from the folder of skills. */
  readonly folder: string;
  readonly scope: SkillScope;
  /** What serves; absent where nothing does. */
  readonly version?: SkillVersion;
  /** `version` is the last good one: the files are broken now. */
  readonly isStale: boolean;
  /** Of the files as they are now, errors first. */
  readonly diagnostics: readonly SkillDiagnostic[];
}

export interface SkillsFolderOptions {
  /** Absolute path of the folder; from the workspace where there is one. It need not exist. */
  readonly path: string;
  readonly scope: SkillScope;
  /** Links must not lead out of it. */
  readonly workspace?: string;
  /** Whether changes are noticed without `reload`. */
  readonly isWatched: boolean;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly report: (level: "warn", message: string, facts?: Record<string, unknown>) => void;
  /** Called after each change of what `current` gives. */
  onChange(): void;
}

const maxSkills = 500;
const maxFolders = 5000;
/** Of the skills that are too many, so many are listed as such. */
const shownBeyond = 20;
const readAtOnce = 4;
const debounceMs = 150;
/** While changes go on, what has settled is looked at so often. */
const maxDebounceMs = 450;
/** Files changed so lately may be half of what is being written. */
const settleMs = 150;
/** A skill whose files never come to rest is taken as it is after so long, if they held still while they were read. */
const maxUnsettledMs = 3000;
const patienceMs = 1000;
const readyLimitMs = 2000;
const watchDepth = 12;
/** Without a watcher every fifth check looks at everything. */
const checksBetweenReads = 5;

interface Known {
  readonly reading: SkillReading;
  readonly entry: SkillEntry;
  readonly files: KnownFiles;
}

/** Where the folder is, if it is there. `identity` changes when another one takes its place. */
type Location =
  | { readonly type: "there"; readonly directory: string; readonly identity: string }
  | { readonly type: "missing" }
  | { readonly type: "refused"; readonly diagnostic: SkillDiagnostic };

/**
 * One folder of skills: reads it when first asked, then watches it. A skill whose files are being written stays as it was
 * until they have come to rest; one that is broken keeps its last good version; one whose folder goes, goes.
 */
export class SkillsFolder {
  readonly #options: SkillsFolderOptions;
  /** By the folder's name. */
  #known = new Map<string, Known>();
  #entries: readonly SkillEntry[] = [];
  #begun: Promise<void> | undefined;
  /** Reads one after the other. */
  #reading: Promise<void> = Promise.resolve();
  /** Folders to look at again. */
  #dirty = new Set<string>();
  #allDirty = true;
  /** Since when a folder's files have not come to rest, in milliseconds of the process. */
  readonly #unsettled = new Map<string, number>();
  #timer: NodeJS.Timeout | undefined;
  #firstEventMs: number | undefined;
  #watcher: FSWatcher | undefined;
  /** What the watcher was started for. */
  #watched = "";
  /** By the path that is watched, the folder it is; the folder of skills itself has "". */
  #folderOf = new Map<string, string>();
  #isWatchBroken = false;
  #identity = "missing";
  #isChecking = false;
  #checks = 0;
  #isClosed = false;

  constructor(options: SkillsFolderOptions) {
    this.#options = options;
  }

  get scope(): SkillScope {
    return this.#options.scope;
  }

  /** The skills in order of their folders' names; the same array as long as nothing has changed. */
  async current(): Promise<readonly SkillEntry[]> {
    this.#begun ??= this.#readPatiently();
    await this.#begun;
    return this.#entries;
  }

  /** Reads everything again at once. */
  async reload(): Promise<readonly SkillEntry[]> {
    this.#allDirty = true;
    this.#begun = this.#readPatiently();
    await this.#begun;
    return this.#entries;
  }

  /** Looks again at all skills soon. */
  touch(): void {
    this.#allDirty = true;
    this.#schedule(0);
  }

  /** To be called every few hundred milliseconds: whether the folder has come, gone, or is another one. */
  async check(): Promise<void> {
    if (this.#isClosed || this.#isChecking || this.#begun === undefined || !this.#options.isWatched) return;
    this.#isChecking = true;
    try {
      const { path, workspace } = this.#options;
      const found = await stat(workspace === undefined ? path : join(workspace, path)).catch(() => undefined);
      const identity = found === undefined ? "missing" : `${found.dev}:${found.ino}`;
      if (identity !== this.#identity) this.#allDirty = true;
      else if (!this.#isWatchBroken || ++this.#checks % checksBetweenReads !== 0) return;
      else this.#allDirty = true;
      this.#schedule(debounceMs);
    } finally {
      this.#isChecking = false;
    }
  }

  /** Ends the watch. What was given stays usable. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#reading.catch(() => undefined);
    await this.#stopWatching();
  }

  /** Waits for files that are being written, for a while. */
  async #readPatiently(): Promise<void> {
    const untilMs = performance.now() + patienceMs;
    await this.#read();
    while (this.#unsettled.size > 0 && performance.now() < untilMs && !this.#isClosed) {
      await delay(settleMs / 3);
      await this.#read();
    }
  }

  #schedule(afterMs: number): void {
    if (this.#isClosed) return;
    const nowMs = performance.now();
    this.#firstEventMs ??= nowMs;
    clearTimeout(this.#timer);
    const latestMs = this.#firstEventMs + maxDebounceMs;
    this.#timer = setTimeout(() => void this.#read(), Math.max(0, Math.min(afterMs, latestMs - nowMs)));
    this.#timer.unref();
  }

  #read(): Promise<void> {
    const reading = this.#reading.then(() => this.#readOnce());
    this.#reading = reading.catch((error: unknown) => {
      this.#options.report("warn", "a folder of skills could not be read", { folder: this.#options.path, error });
    });
    return this.#reading;
  }

  async #readOnce(): Promise<void> {
    if (this.#isClosed) return;
    clearTimeout(this.#timer);
    this.#firstEventMs = undefined;
    const location = await this.#locate();
    const identity = location.type === "there" ? location.identity : "missing";
    if (identity !== this.#identity) this.#allDirty = true;
    this.#identity = identity;
    if (location.type !== "there") {
      await this.#stopWatching();
      this.#known.clear();
      this.#unsettled.clear();
      this.#dirty.clear();
      this.#set(location.type === "missing" ? [] : [this.#brokenFolder(location.diagnostic)]);
      return;
    }
    const listing = await this.#list(location.directory);
    // Before anything is read, so that no change falls between.
    await this.#watch(location, listing.folders);
    const wanted = this.#allDirty ? undefined : this.#dirty;
    this.#allDirty = false;
    this.#dirty = new Set();
    const entries = await this.#readFolders(listing.folders, wanted);
    const told = listing.diagnostics.map((diagnostic) => this.#brokenFolder(diagnostic));
    const changed = this.#set([...entries, ...told]);
    if (this.#unsettled.size > 0) this.#schedule(settleMs / 2);
    else if (changed && this.#options.isWatched) {
      // What happened while a watch of a new folder was being put up is seen by a second look.
      for (const name of wanted ?? []) this.#dirty.add(name);
      if (this.#dirty.size > 0) this.#schedule(2 * debounceMs);
    }
  }

  async #locate(): Promise<Location> {
    const { path, workspace } = this.#options;
    try {
      let directory: string;
      if (workspace === undefined) directory = await realpath(path);
      else {
        const opened = await openDirectoryBeneath(workspace, path);
        await opened.handle.close();
        directory = join(workspace, opened.path);
      }
      const { dev, ino } = await stat(directory);
      return { type: "there", directory, identity: `${dev}:${ino}` };
    } catch (error) {
      const problem = error instanceof WorkspacePathError ? error.problem : codeOf(error);
      // A file in its place holds no skills, like nothing.
      const isMissing = ["missing", "not-a-directory", "ENOENT", "ENOTDIR"].some((each) => each === problem);
      if (isMissing) return { type: "missing" };
      const why =
        error instanceof WorkspacePathError && error.problem === "outside"
          ? "leads out of the workspace"
          : "can't be opened; look at its permissions";
      return { type: "refused", diagnostic: errorIn("", "UNREADABLE_FOLDER", `the folder of skills ${why}`) };
    }
  }

  /** The folders in it that may be skills, by name, each with its absolute path without links. */
  async #list(directory: string): Promise<{ folders: ReadonlyMap<string, string>; diagnostics: SkillDiagnostic[] }> {
    const entries: Dirent[] = [];
    const diagnostics: SkillDiagnostic[] = [];
    try {
      for await (const entry of await opendir(directory, { bufferSize: 256 })) {
        if (entry.name.startsWith(".")) continue;
        if (!entry.isDirectory() && !entry.isSymbolicLink()) continue;
        if (entries.length === maxFolders) {
          diagnostics.push(
            errorIn(
              "",
              "TOO_MANY_SKILLS",
              `the folder of skills has more than ${maxFolders} folders; the others are left out`,
            ),
          );
          break;
        }
        entries.push(entry);
      }
    } catch {
      diagnostics.push(errorIn("", "UNREADABLE_FOLDER", "the folder of skills can't be read; look at its permissions"));
    }
    const folders = new Map<string, string>();
    for (const entry of entries.sort((left, right) => (left.name < right.name ? -1 : 1))) {
      const path = entry.isDirectory() ? join(directory, entry.name) : await this.#linkedFolder(directory, entry.name);
      if (path !== undefined) folders.set(entry.name, path);
    }
    return { folders, diagnostics };
  }

  /** An operator may link skills from elsewhere; in a workspace a link stays within. */
  async #linkedFolder(directory: string, name: string): Promise<string | undefined> {
    const { workspace } = this.#options;
    const path = join(directory, name);
    if (workspace === undefined) {
      const target = await realpath(path).catch(() => undefined);
      const found = target === undefined ? undefined : await stat(target).catch(() => undefined);
      return found?.isDirectory() === true ? target : undefined;
    }
    try {
      const opened = await openDirectoryBeneath(workspace, path);
      await opened.handle.close();
      return join(workspace, opened.path);
    } catch (error) {
      if (error instanceof WorkspacePathError) return undefined;
      throw error;
    }
  }

  async #readFolders(
    folders: ReadonlyMap<string, string>,
    wanted: ReadonlySet<string> | undefined,
  ): Promise<SkillEntry[]> {
    for (const folder of this.#known.keys()) if (!folders.has(folder)) this.#known.delete(folder);
    for (const folder of this.#unsettled.keys()) if (!folders.has(folder)) this.#unsettled.delete(folder);
    const queue = [...folders]
      .filter(([folder, directory]) => {
        const entry = this.#known.get(folder)?.entry;
        const isElsewhere = (entry?.version?.directory ?? directory) !== directory;
        const isKnown = entry !== undefined && !isElsewhere && !this.#unsettled.has(folder);
        return wanted === undefined || wanted.has(folder) || !isKnown;
      })
      .values();
    const work = async () => {
      for (const [folder, directory] of queue) if (!this.#isClosed) await this.#readFolder(folder, directory);
    };
    await Promise.all(Array.from({ length: readAtOnce }, work));
    const entries = [...folders.keys()].flatMap((folder) => this.#known.get(folder)?.entry ?? []);
    if (entries.length <= maxSkills) return entries;
    const beyond = entries.slice(maxSkills, maxSkills + shownBeyond).map(({ folder }): SkillEntry => {
      const sentence = `there are more than ${maxSkills} skills here; this one is left out`;
      return {
        name: folder,
        folder,
        scope: this.scope,
        isStale: false,
        diagnostics: [errorIn("", "TOO_MANY_SKILLS", sentence)],
      };
    });
    return [...entries.slice(0, maxSkills), ...beyond];
  }

  async #readFolder(folder: string, directory: string): Promise<void> {
    const known = this.#known.get(folder);
    // So many that they are not loaded are not read either, but for a few that are listed.
    if (known === undefined && this.#known.size >= maxSkills + shownBeyond) return;
    const files: KnownFiles = known?.files ?? new Map();
    const named = { directory, folder, scope: this.scope };
    const reading = (await isSkill(directory))
      ? await readSkill(named, this.#options.now(), files, known?.reading)
      : undefined;
    if (reading === undefined) {
      this.#known.delete(folder);
      this.#unsettled.delete(folder);
      return;
    }
    const isSame = known !== undefined && reading.state === known.reading.state;
    if (!isSame && this.#isBeingWritten(folder, reading)) return;
    this.#unsettled.delete(folder);
    const entry = isSame ? known.entry : this.#entryOf(folder, reading, known?.entry.version);
    this.#known.set(folder, { reading, entry, files });
  }

  #isBeingWritten(folder: string, { isTorn, changedMs }: SkillReading): boolean {
    const ageMs = Date.now() - changedMs;
    // A clock that was set back makes files of the future; these have come to rest.
    const isFresh = ageMs >= 0 && ageMs < settleMs;
    if (!isTorn && !isFresh) return false;
    const sinceMs = this.#unsettled.get(folder) ?? performance.now();
    this.#unsettled.set(folder, sinceMs);
    return isTorn || performance.now() - sinceMs < maxUnsettledMs;
  }

  #entryOf(folder: string, { version, name, diagnostics }: SkillReading, lastGood?: SkillVersion): SkillEntry {
    const serving = version ?? lastGood;
    return {
      name: serving?.manifest.name ?? name ?? folder,
      folder,
      scope: this.scope,
      ...(serving === undefined ? {} : { version: serving }),
      isStale: version === undefined && serving !== undefined,
      diagnostics,
    };
  }

  #brokenFolder(diagnostic: SkillDiagnostic): SkillEntry {
    const name = basename(this.#options.path);
    return { name, folder: "", scope: this.scope, isStale: false, diagnostics: [diagnostic] };
  }

  #set(entries: readonly SkillEntry[]): boolean {
    const isSame =
      entries.length === this.#entries.length &&
      entries.every(
        (entry, index) =>
          entry === this.#entries[index] || JSON.stringify(entry) === JSON.stringify(this.#entries[index]),
      );
    if (isSame) return false;
    this.#entries = entries;
    if (!this.#isClosed) this.#options.onChange();
    return true;
  }

  async #watch(
    { directory, identity }: Location & { type: "there" },
    folders: ReadonlyMap<string, string>,
  ): Promise<void> {
    if (!this.#options.isWatched || this.#isWatchBroken) return;
    const linked = [...folders].filter(([folder, path]) => path !== join(directory, folder));
    const target = JSON.stringify([directory, identity, linked]);
    if (target === this.#watched) return;
    await this.#stopWatching();
    this.#watched = target;
    this.#folderOf = new Map([[directory, ""], ...linked.map(([folder, path]) => [path, folder] as const)]);
    const { watch } = await import("chokidar");
    const roots = [...this.#folderOf.keys()];
    const watcher = watch(roots, {
      ignoreInitial: true,
      followSymlinks: false,
      depth: watchDepth,
      persistent: false,
      // Pauses are ours to make.
      atomic: false,
      ignorePermissionErrors: true,
      ignored: (path) =>
        roots.some((root) => path.startsWith(`${root}/`) && /(?:^|\/)\.git(?:\/|$)/.test(path.slice(root.length))),
    });
    this.#watcher = watcher;
    // Told first, with all that the system says; `all` adds what the library finds out by itself.
    watcher.on("raw", (_event, name, details) => {
      const told: unknown = details;
      const watchedPath = isRecord(told) ? told["watchedPath"] : undefined;
      if (typeof watchedPath === "string") this.#noticed(join(watchedPath, typeof name === "string" ? name : ""));
    });
    watcher.on("all", (_event, path) => this.#noticed(path));
    watcher.on("error", (error) => this.#watchBroke(error));
    const { promise, resolve } = Promise.withResolvers<void>();
    watcher.once("ready", resolve);
    const limit = setTimeout(resolve, readyLimitMs);
    await promise;
    clearTimeout(limit);
  }

  #noticed(path: string): void {
    for (const [root, folder] of this.#folderOf) {
      if (path !== root && !path.startsWith(`${root}/`)) continue;
      const name = folder === "" ? (path.slice(root.length + 1).split("/", 1)[0] ?? "") : folder;
      if (name !== "") this.#dirty.add(name);
    }
    this.#schedule(debounceMs);
  }

  /** The system has no more watches to give, or the place can't be watched. */
  #watchBroke(error: unknown): void {
    if (this.#isWatchBroken || this.#isClosed) return;
    this.#isWatchBroken = true;
    const { path, report } = this.#options;
    report("warn", "a folder of skills can't be watched; it is read again every few seconds", { folder: path, error });
    void this.#stopWatching();
  }

  async #stopWatching(): Promise<void> {
    const watcher = this.#watcher;
    this.#watcher = undefined;
    this.#watched = "";
    await watcher?.close();
  }
}

/** Whether a folder is itself a skill rather than a folder of skills. */
export async function isSkill(directory: string): Promise<boolean> {
  return (await lstat(join(directory, skillFile)).catch(() => undefined)) !== undefined;
}

function codeOf(error: unknown): unknown {
  return typeof error === "object" && error !== null && "code" in error ? error.code : undefined;
}
