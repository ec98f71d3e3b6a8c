import { randomBytes } from "node:crypto";
import { type BigIntStats, constants, lstatSync, renameSync, unlinkSync } from "node:fs";
import { access, type FileHandle, lstat, open, readdir, unlink } from "node:fs/promises";
import { codeOf, type FilePlace, type OpenedBeneath, openChild, shownPath, WorkspacePathError } from "./workspace.ts";

/** The largest file that is read to be changed, or written. */
export const fileLimitBytes = 8 * 1024 * 1024;

/** Tells whether a file is still what it was: any change of content, owner or mode changes it. */
export type FileVersion = Pick<BigIntStats, "dev" | "ino" | "size" | "mtimeNs" | "ctimeNs">;

/** A whole file as it was read. */
export interface FoundFile {
  readonly bytes: Buffer;
  readonly version: FileVersion;
  /** Permissions and owner, which the file keeps. */
  readonly mode: number;
  readonly uid: number;
  readonly gid: number;
}

/** Permissions and owner of a file. */
export type FileOwner = Pick<FoundFile, "mode" | "uid" | "gid">;

/** What there must still be when a file is replaced. */
export type Expected = FileVersion | "nothing";

const leftoverName = /^\.codeagent-[0-9a-f]{24}\.tmp$/;
const leftoverAgeMs = 10 * 60_000;
const maxDirectoryNames = 10_000;

/**
 * Reads the file at a place; `undefined` where there is none.
 * @throws {WorkspacePathError} for what is no regular file, too large, or not to be written by us.
 */
export async function readWhole(place: FilePlace): Promise<FoundFile | undefined> {
  if (place.missing.length > 0) return undefined;
  let opened: OpenedBeneath;
  try {
    opened = await openChild(place.directory, place.name, constants.O_RDONLY);
  } catch (error) {
    if (error instanceof WorkspacePathError && error.problem === "missing") return undefined;
    throw error;
  }
  try {
    const { handle } = opened;
    if (!opened.stats.isFile()) throw new WorkspacePathError("not-a-file", `${shownPath(place.path)} is a directory`);
    await access(opened.at, constants.W_OK).catch(() => {
      throw new WorkspacePathError("denied", `${shownPath(place.path)} must not be written: it is read-only`);
    });
    const stats = await handle.stat({ bigint: true });
    if (stats.size > fileLimitBytes) throw tooLarge(place.path, "has", Number(stats.size));
    // It may grow while it is read; what is read then is not what `version` says, and is refused when it is replaced.
    const bytes = Buffer.alloc(Number(stats.size));
    let filled = 0;
    while (filled < bytes.length) {
      const { bytesRead } = await handle.read(bytes, filled, bytes.length - filled, filled);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    const { dev, ino, size, mtimeNs, ctimeNs } = stats;
    return {
      bytes: bytes.subarray(0, filled),
      version: { dev, ino, size, mtimeNs, ctimeNs },
      mode: Number(stats.mode) & 0o777,
      uid: Number(stats.uid),
      gid: Number(stats.gid),
    };
  } finally {
    await opened.handle.close();
  }
}

/**
 * Writes a file so that everybody, also after a crash, sees the old or the new one and never a part: into a file of its own
 * in the same folder, which then takes the name. A new file gets the usual permissions.
 * @param place without missing folders.
 * @param before whose permissions and owner the file gets: those of the one that is replaced; absent for a new one.
 * @param isProgram a new file may be run.
 * @param expected what must still be there; what came meanwhile is kept and the write refused.
 * @returns what was written, to expect it later.
 * @throws {WorkspacePathError} with the problem `changed`, `too-large` or `denied`.
 */
export async function replaceFile(
  place: FilePlace,
  bytes: Uint8Array,
  expected: Expected,
  before?: FileOwner,
  isProgram = false,
): Promise<FileVersion> {
  if (bytes.length > fileLimitBytes) throw tooLarge(place.path, "would have", bytes.length);
  const { directory, name } = place;
  const target = `${directory.at}/${name}`;
  const temporary = `${directory.at}/.codeagent-${randomBytes(12).toString("hex")}.tmp`;
  try {
    const handle = await open(
      temporary,
      constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL,
      isProgram ? 0o777 : 0o666,
    );
    let isInPlace = false;
    try {
      await handle.writeFile(bytes);
      if (before !== undefined) await keepOwner(handle, before);
      await handle.sync();
      // Both at once, so that no other work of this process comes between them.
      if (!isAsExpected(target, expected)) throw changedMeanwhile(place.path);
      renameSync(temporary, target);
      isInPlace = true;
      const { dev, ino, size, mtimeNs, ctimeNs } = await handle.stat({ bigint: true });
      await syncFolder(directory.handle);
      return { dev, ino, size, mtimeNs, ctimeNs };
    } finally {
      await handle.close();
      if (!isInPlace) await unlink(temporary).catch(() => {});
    }
  } catch (error) {
    throw readable(place.path, error);
  } finally {
    await removeLeftovers(directory);
  }
}

/** Removes a file. @throws {WorkspacePathError} with the problem `changed` or `denied`. */
export async function removeFile(place: FilePlace, expected: FileVersion): Promise<void> {
  const target = `${place.directory.at}/${place.name}`;
  try {
    if (!isAsExpected(target, expected)) throw changedMeanwhile(place.path);
    unlinkSync(target);
    await syncFolder(place.directory.handle);
  } catch (error) {
    throw readable(place.path, error);
  }
}

function isAsExpected(target: string, expected: Expected): boolean {
  const now = lstatSync(target, { bigint: true, throwIfNoEntry: false });
  if (now === undefined || expected === "nothing") return now === undefined && expected === "nothing";
  return (["dev", "ino", "size", "mtimeNs", "ctimeNs"] as const).every((key) => now[key] === expected[key]);
}

async function keepOwner(handle: FileHandle, before: FileOwner): Promise<void> {
  const own = await handle.stat();
  if (own.uid !== before.uid || own.gid !== before.gid) {
    // Only root may give files away; the file of somebody else that we may replace becomes ours.
    await handle.chown(before.uid, before.gid).catch(() => {});
  }
  await handle.chmod(before.mode);
}

/** Makes the new name last over a power cut, where the file system can. */
async function syncFolder(handle: FileHandle): Promise<void> {
  await handle.sync().catch((error: unknown) => {
    if (!["EINVAL", "ENOTSUP", "EPERM"].includes(codeOf(error))) throw error;
  });
}

/** A process that was killed while it wrote has left its file: nobody else would ever remove it. */
async function removeLeftovers({ at }: OpenedBeneath): Promise<void> {
  const names = await readdir(at).catch(() => []);
  if (names.length > maxDirectoryNames) return;
  for (const name of names) {
    if (!leftoverName.test(name)) continue;
    const stats = await lstat(`${at}/${name}`).catch(() => undefined);
    if (stats !== undefined && Date.now() - stats.mtimeMs > leftoverAgeMs) {
      await unlink(`${at}/${name}`).catch(() => {});
    }
  }
}

function changedMeanwhile(path: string): WorkspacePathError {
  return new WorkspacePathError("changed", `${shownPath(path)} was changed by somebody else meanwhile; read it again`);
}

function tooLarge(path: string, verb: "has" | "would have", bytes: number): WorkspacePathError {
  return new WorkspacePathError(
    "too-large",
    `${shownPath(path)} ${verb} ${bytes} bytes; at most ${fileLimitBytes} can be edited`,
  );
}

const reasons: Readonly<Record<string, string>> = {
  ENOSPC: "the disk is full",
  EDQUOT: "the quota of the disk is used up",
  EROFS: "the file system is read-only",
  EACCES: "no permission",
  EPERM: "no permission",
  ENOENT: "its folder was removed meanwhile",
  EISDIR: "a folder has its place",
};

function readable(path: string, error: unknown): unknown {
  if (error instanceof WorkspacePathError) return error;
  const code = codeOf(error);
  if (code === "unknown") return error;
  return new WorkspacePathError("denied", `${shownPath(path)} cannot be written: ${reasons[code] ?? code}`);
}
