import { constants, existsSync, type Stats } from "node:fs";
import { type FileHandle, lstat, mkdir, open, readlink, realpath, rmdir } from "node:fs/promises";
import { basename, dirname, isAbsolute, join } from "node:path";
import { AgentError, type AgentErrorKind } from "../chat/error.ts";
import { harmlessText } from "./bounded-text.ts";

/** Why a path was refused. */
export type PathProblem =
  | "outside"
  | "invalid"
  | "missing"
  | "exists"
  | "denied"
  | "not-a-directory"
  | "not-a-file"
  | "links"
  | "changed"
  | "too-large"
  | "not-text";

/** A path that cannot be used. The message is for the model and shows the path only as it was given. */
export class WorkspacePathError extends Error {
  override readonly name = "WorkspacePathError";
  readonly problem: PathProblem;

  constructor(problem: PathProblem, message: string) {
    super(message);
    this.problem = problem;
  }
}

/** Passes over a path that cannot be used: links, what has vanished, what may not be read. For `catch`. */
export function nothingForPathError(error: unknown): undefined {
  if (error instanceof WorkspacePathError) return undefined;
  throw error;
}

/** An open file or directory beneath a workspace. Whoever got it closes the handle. */
export interface OpenedBeneath {
  readonly handle: FileHandle;
  readonly stats: Stats;
  /** Path from the workspace with every link followed; `.` is the workspace itself. */
  readonly path: string;
  /** Names the opened thing for other calls of this process while the handle is open: `at + "/name"` is beneath a directory. */
  readonly at: string;
}

export interface OpenOptions {
  /** Permissions of a file that `O_CREAT` makes; default 0600. */
  readonly mode?: number;
  /** Walk by path names even where descriptors can be walked: weaker, for systems without `/proc`. */
  readonly byName?: boolean;
}

const maxLinks = 40;
const maxPathBytes = 4096;
const maxNameBytes = 255;
/** Linux's `O_PATH`: a descriptor that only names a place. Opening a pipe or a device this way does nothing to it. */
const openPathOnly = 0x200000;
const canWalkDescriptors = process.platform === "linux" && existsSync("/proc/self/fd");

/** A place reached on the way. `at` names it for system calls, and goes on naming the same inode where there is a handle. */
interface Place {
  readonly name: string;
  readonly at: string;
  readonly stats: Stats;
  readonly handle?: FileHandle;
}

/**
 * Opens a file or directory beneath a workspace, one component after the other and each from the one before, so that no
 * exchange of a directory for a link leads outside. Links that stay inside are followed, at most 40. `..` goes up, never
 * above the workspace; `~`, `file:` and `%2e` are plain names; an absolute path counts if it begins with the workspace.
 * @param workspace absolute path without links, as `resolveWorkspace` gives it.
 * @param flags those of `open(2)`; non-blocking and close-on-exec come on top.
 * @throws {WorkspacePathError} `outside` does not tell whether anything is there; pipes, sockets and devices are
 *   `not-a-file` and stay unopened.
 */
export async function openBeneath(
  workspace: string,
  path: string,
  flags: number,
  options: OpenOptions = {},
): Promise<OpenedBeneath> {
  const byName = walksByName(options);
  return walk(workspace, path, options, {
    arrive: (places, here) => openPlace(places, here, path, flags, byName),
    async missing(places, here, name, rest, error) {
      const creates = codeOf(error) === "ENOENT" && (flags & constants.O_CREAT) !== 0 && rest.every(isNothing);
      if (!creates) throw problemOf(path, codeOf(error));
      return create(places, here, name, path, flags, options.mode ?? 0o600, byName);
    },
  });
}

/** What to do at the end of a path. */
interface Destination<T> {
  arrive(places: readonly Place[], here: Place): Promise<T>;
  /** Nothing can be reached under a name; `rest` comes after it. `undefined` means to look again. */
  missing(
    places: readonly Place[],
    here: Place,
    name: string,
    rest: readonly string[],
    error: Error,
  ): Promise<T | undefined>;
}

function walksByName(options: OpenOptions): boolean {
  return options.byName === true || !canWalkDescriptors;
}

/** Goes along a path, component by component and each from the one before; what it opened on the way is closed. */
async function walk<T>(
  workspace: string,
  path: string,
  options: OpenOptions & { readonly keepLastLink?: boolean },
  destination: Destination<T>,
): Promise<T> {
  const byName = walksByName(options);
  const pending = componentsOf(workspace, path).reverse();
  const places = [await enterWorkspace(workspace, byName)];
  const leave = async (place: Place | undefined) => place?.handle?.close();
  let links = 0;
  try {
    for (;;) {
      const here = places.at(-1);
      if (here === undefined) throw outside(path);
      const name = pending.pop();
      if (name === undefined) return await destination.arrive(places, here);
      if (!here.stats.isDirectory()) throw problemOf(path, "ENOTDIR");
      if (isNothing(name)) continue;
      if (name === "..") {
        await leave(places.pop());
        continue;
      }
      const next = await step(here, name, byName);
      if (next instanceof Error) {
        const reached = await destination.missing(places, here, name, pending.toReversed(), next);
        if (reached !== undefined) return reached;
        // Something came into being meanwhile: look again.
        pending.push(name);
      } else if (!next.stats.isSymbolicLink()) {
        places.push(next);
        continue;
      } else {
        await leave(next);
        if (options.keepLastLink === true && pending.length === 0) {
          throw new WorkspacePathError("links", `${shownPath(path)} is a link`);
        }
        const target = await readlink(`${here.at}/${name}`).catch(() => undefined);
        if (target !== undefined && isAbsolute(target)) {
          for (const place of places.splice(1)) await leave(place);
        }
        // Without a target it has stopped being a link: look again.
        pending.push(...(target === undefined ? [name] : linkComponents(workspace, target, path).reverse()));
      }
      if (++links > maxLinks) throw new WorkspacePathError("links", `${shownPath(path)} leads through too many links`);
    }
  } finally {
    for (const place of places) await leave(place);
  }
}

/** Where a file is or may come to be. Whoever got it closes the handle of the directory. */
export interface FilePlace {
  /** The deepest folder on the way that exists. */
  readonly directory: OpenedBeneath;
  /** Folders that have to be made in it, each in the one before. */
  readonly missing: readonly string[];
  /** Name of the file in the last of them. */
  readonly name: string;
  /** Path of the file from the workspace with every link followed. */
  readonly path: string;
}

/**
 * Finds the place of a file beneath a workspace without making anything. Links that stay inside are followed, also that of
 * the file itself, unless `keepLastLink` refuses one there.
 * @throws {WorkspacePathError} as `openBeneath`; `not-a-file` where something else has the place, `invalid` for the path of
 *   a new file that ends in a slash or has control characters.
 */
export function findPlace(
  workspace: string,
  path: string,
  options: OpenOptions & { readonly keepLastLink?: boolean } = {},
): Promise<FilePlace> {
  const byName = walksByName(options);
  const flags = constants.O_RDONLY | constants.O_DIRECTORY;
  return walk(workspace, path, options, {
    async arrive(places, here) {
      const parent = places.at(-2);
      if (parent === undefined || !here.stats.isFile()) throw notAFile(path, here.stats);
      const directory = await openPlace(places.slice(0, -1), parent, path, flags, byName);
      return { directory, missing: [], name: here.name, path: pathOf(places) };
    },
    async missing(places, here, name, rest, error) {
      if (codeOf(error) !== "ENOENT") throw problemOf(path, codeOf(error));
      const names = [name, ...rest.filter((each) => !isNothing(each))];
      if (names.includes("..")) throw problemOf(path, "ENOENT");
      if (rest.length > 0 && isNothing(rest.at(-1) ?? "")) {
        throw new WorkspacePathError("invalid", `${shownPath(path)} ends like a folder; name a file`);
      }
      if (names.some((each) => Buffer.byteLength(each) > maxNameBytes)) throw problemOf(path, "ENAMETOOLONG");
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
      if (names.some((each) => /[\u0000-\u001f\u007f]/.test(each))) {
        throw new WorkspacePathError("invalid", `${shownPath(path)}: a new name has control characters`);
      }
      const directory = await openPlace(places, here, path, flags, byName);
      const [leaf = name] = names.slice(-1);
      const beneath = pathOf(places);
      return {
        directory,
        missing: names.slice(0, -1),
        name: leaf,
        path: [...(beneath === "." ? [] : [beneath]), ...names].join("/"),
      };
    },
  });
}

/**
 * Makes the folders a place lacks. The place that was given must not be used any more: its directory is closed.
 * @param onMade takes the path of each folder that was not there before.
 */
export async function makeFolders(place: FilePlace, onMade?: (path: string) => void): Promise<FilePlace> {
  let { directory } = place;
  for (const name of place.missing) {
    try {
      const path = directory.path === "." ? name : `${directory.path}/${name}`;
      const isNew = await mkdir(`${directory.at}/${name}`).then(
        () => true,
        (error: unknown) => {
          if (codeOf(error) === "EEXIST") return false;
          throw problemOf(path, codeOf(error));
        },
      );
      if (isNew) onMade?.(path);
      const next = await openChild(directory, name, constants.O_RDONLY | constants.O_DIRECTORY);
      await directory.handle.close();
      directory = next;
    } catch (error) {
      await directory.handle.close();
      throw error;
    }
  }
  return { ...place, directory, missing: [] };
}

/** Opens a regular file beneath a workspace for reading; everything else is `not-a-file`. */
export async function openFileBeneath(workspace: string, path: string, options?: OpenOptions): Promise<OpenedBeneath> {
  const opened = await openBeneath(workspace, path, constants.O_RDONLY, options);
  if (opened.stats.isFile()) return opened;
  await opened.handle.close();
  throw notAFile(path, opened.stats);
}

/** Opens a directory beneath a workspace; everything else is `not-a-directory`. */
export function openDirectoryBeneath(workspace: string, path: string, options?: OpenOptions): Promise<OpenedBeneath> {
  return openBeneath(workspace, path === "" ? "." : `${path}/.`, constants.O_RDONLY, options);
}

/**
 * Opens a file or directory that lies directly in an open directory, without following a link.
 * @throws {WorkspacePathError} `links` for a link, else as `openBeneath`.
 */
export async function openChild(directory: OpenedBeneath, name: string, flags: number): Promise<OpenedBeneath> {
  const path = directory.path === "." ? name : `${directory.path}/${name}`;
  if (isNothing(name) || name === ".." || name.includes("/")) throw outside(name);
  const byName = !canWalkDescriptors;
  const place = await step({ name: "", at: directory.at, stats: directory.stats }, name, byName);
  if (place instanceof Error) throw problemOf(path, codeOf(place));
  try {
    if (place.stats.isSymbolicLink()) throw new WorkspacePathError("links", `${shownPath(path)} is a link`);
    return { ...(await openPlace([place], place, path, flags, byName)), path };
  } finally {
    await place.handle?.close();
  }
}

/** Removes an empty folder beneath a workspace. @throws {WorkspacePathError} also for one that is not empty. */
export async function removeFolder(workspace: string, path: string): Promise<void> {
  const parent = await openDirectoryBeneath(workspace, dirname(path));
  try {
    await rmdir(`${parent.at}/${basename(path)}`);
  } catch (error) {
    throw problemOf(path, codeOf(error));
  } finally {
    await parent.handle.close();
  }
}

/**
 * The workspace of a new session: an existing directory beneath one of the allowed roots, returned without links.
 * @throws {AgentError} about `field`: `invalid_request` for what is not an absolute path or not a directory,
 *   `permission_denied` outside the roots, whether or not anything is there, `not_found` for what is missing inside them.
 */
export async function resolveWorkspace(path: string, roots: readonly string[], field = "workspace"): Promise<string> {
  const refused = (kind: AgentErrorKind, description: string): AgentError =>
    new AgentError(kind, `${field}: ${description}`, { fieldViolations: [{ field, description }] });
  if (!isAbsolute(path)) throw refused("invalid_request", `${shownPath(path)} is not an absolute path`);
  if (path.includes("\0")) throw refused("invalid_request", "contains a NUL character");
  const realPath = await realpath(path).catch(() => undefined);
  for (const root of roots) {
    const realRoot = await realpath(root).catch(() => undefined);
    if (realRoot === undefined) continue;
    const named = withinPrefix(root, path) ?? withinPrefix(realRoot, path);
    const rest = named ?? (realPath === undefined ? undefined : withinPrefix(realRoot, realPath));
    if (rest === undefined) continue;
    try {
      const opened = await openDirectoryBeneath(realRoot, rest);
      await opened.handle.close();
      return opened.path === "." ? realRoot : join(realRoot, opened.path);
    } catch (error) {
      if (!(error instanceof WorkspacePathError)) throw error;
      if (error.problem === "missing")
        throw refused("not_found", `${shownPath(path)} does not exist; make the directory first`);
      if (error.problem === "not-a-directory")
        throw refused("invalid_request", `${shownPath(path)} is not a directory`);
      if (error.problem === "invalid") throw refused("invalid_request", error.message);
    }
  }
  throw refused(
    "permission_denied",
    `${shownPath(path)} is outside the directories this server allows; name one inside its workspace or its workspace_roots`,
  );
}

function componentsOf(workspace: string, path: string): string[] {
  if (path.includes("\0")) throw new WorkspacePathError("invalid", `${shownPath(path)} contains a NUL character`);
  const bytes = Buffer.byteLength(path);
  if (bytes > maxPathBytes) {
    throw new WorkspacePathError("invalid", `the path is ${bytes} bytes long; at most ${maxPathBytes} are taken`);
  }
  return linkComponents(workspace, path, path);
}

function linkComponents(workspace: string, target: string, path: string): string[] {
  const relative = isAbsolute(target) ? withinPrefix(workspace, target) : target;
  if (relative === undefined) throw outside(path);
  return relative.split("/");
}

/** What follows `directory` in an absolute path that begins with it, by whole components. */
function withinPrefix(directory: string, path: string): string | undefined {
  const prefix = directory.endsWith("/") ? directory : `${directory}/`;
  return path === directory ? "" : path.startsWith(prefix) ? path.slice(prefix.length) : undefined;
}

function isNothing(name: string): boolean {
  return name === "" || name === ".";
}

/** The workspace's own directory, reached without following a link: another session may have put one in its place. */
async function enterWorkspace(workspace: string, byName: boolean): Promise<Place> {
  let here: Place = { name: "", at: "", stats: await lstat("/") };
  for (const name of workspace.split("/")) {
    if (isNothing(name)) continue;
    const next = await step(here, name, byName);
    await here.handle?.close();
    if (next instanceof Error)
      throw new WorkspacePathError("missing", "the workspace cannot be opened; was it removed?");
    here = next;
    if (!here.stats.isDirectory()) {
      await here.handle?.close();
      throw new WorkspacePathError("missing", "the workspace is no longer a directory");
    }
  }
  return here.at === "" ? { ...here, at: "/" } : here;
}

/** Goes one name further without following a link; an error of the system is returned. */
async function step(from: Place, name: string, byName: boolean): Promise<Place | Error> {
  const at = `${from.at === "/" ? "" : from.at}/${name}`;
  try {
    if (byName) return { name, at, stats: await lstat(at) };
    const handle = await open(at, openPathOnly | constants.O_NOFOLLOW);
    try {
      return { name, at: `/proc/self/fd/${handle.fd}`, stats: await handle.stat(), handle };
    } catch (error) {
      await handle.close();
      throw error;
    }
  } catch (error) {
    return error instanceof Error ? error : new Error("unknown");
  }
}

async function openPlace(
  places: readonly Place[],
  place: Place,
  path: string,
  flags: number,
  byName: boolean,
): Promise<OpenedBeneath> {
  if (!place.stats.isFile() && !place.stats.isDirectory()) throw notAFile(path, place.stats);
  if ((flags & constants.O_EXCL) !== 0) throw problemOf(path, "EEXIST");
  // The name in /proc is itself a link that has to be followed; it leads to the inode already reached.
  const noFollow = byName ? constants.O_NOFOLLOW : 0;
  const wanted = (flags & ~(constants.O_CREAT | constants.O_NOFOLLOW)) | constants.O_NONBLOCK | noFollow;
  const handle = await open(place.at, wanted).catch((error: unknown) => {
    throw problemOf(path, codeOf(error));
  });
  return opened(handle, places, path, byName ? place.at : undefined, byName ? place.stats : undefined);
}

async function create(
  places: readonly Place[],
  here: Place,
  name: string,
  path: string,
  flags: number,
  mode: number,
  byName: boolean,
): Promise<OpenedBeneath | undefined> {
  const wanted = flags | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const at = `${here.at === "/" ? "" : here.at}/${name}`;
  try {
    const handle = await open(at, wanted, mode);
    return await opened(handle, [...places, { ...here, name }], path, byName ? at : undefined);
  } catch (error) {
    if (codeOf(error) === "EEXIST" && (flags & constants.O_EXCL) === 0) return undefined;
    throw error instanceof WorkspacePathError ? error : problemOf(path, codeOf(error));
  }
}

/**
 * @param at the name it was opened by; absent where descriptors are walked.
 * @param expected what the handle must be, where the way to it could have changed.
 */
async function opened(
  handle: FileHandle,
  places: readonly Place[],
  path: string,
  at?: string,
  expected?: Stats,
): Promise<OpenedBeneath> {
  try {
    const stats = await handle.stat();
    if (expected !== undefined && (stats.ino !== expected.ino || stats.dev !== expected.dev)) {
      throw new WorkspacePathError("denied", `${shownPath(path)} changed while it was opened`);
    }
    return { handle, stats, path: pathOf(places), at: at ?? `/proc/self/fd/${handle.fd}` };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

function pathOf(places: readonly Place[]): string {
  return (
    places
      .slice(1)
      .map((place) => place.name)
      .join("/") || "."
  );
}

function outside(path: string): WorkspacePathError {
  return new WorkspacePathError("outside", `${shownPath(path)} is outside the workspace`);
}

function notAFile(path: string, stats: Stats): WorkspacePathError {
  return new WorkspacePathError("not-a-file", `${shownPath(path)} is ${kindOf(stats)}, not a regular file`);
}

function kindOf(stats: Stats): string {
  if (stats.isDirectory()) return "a directory";
  if (stats.isFIFO()) return "a named pipe";
  if (stats.isSocket()) return "a socket";
  return stats.isFile() ? "a file" : "a device";
}

function problemOf(path: string, code: string): WorkspacePathError {
  const name = shownPath(path);
  switch (code) {
    case "ENOENT":
      return new WorkspacePathError("missing", `${name} does not exist`);
    case "EEXIST":
      return new WorkspacePathError("exists", `${name} exists already`);
    case "ENOTDIR":
      return new WorkspacePathError("not-a-directory", `${name}: a part of the path is not a directory`);
    case "EISDIR":
      return new WorkspacePathError("not-a-file", `${name} is a directory, not a regular file`);
    case "ENAMETOOLONG":
      return new WorkspacePathError("invalid", `${name}: a name in the path is too long`);
    case "EACCES":
    case "EPERM":
      return new WorkspacePathError("denied", `${name}: no permission`);
    default:
      return new WorkspacePathError("denied", `${name} cannot be opened (${code})`);
  }
}

/** The code of an error of the system, as `ENOENT`; `unknown` for other errors. */
export function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "unknown";
}

/** A path as it was given, in quotation marks and harmless, for messages. */
export function shownPath(path: string): string {
  return `"${harmlessText(path.length <= 200 ? path : `${path.slice(0, 197)}...`)}"`;
}
