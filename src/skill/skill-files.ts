import { createHash } from "node:crypto";
import { type BigIntStats, constants } from "node:fs";
import { lstat, opendir } from "node:fs/promises";
import {
  nothingForPathError,
  type OpenedBeneath,
  openBeneath,
  openChild,
  openDirectoryBeneath,
} from "../tool/workspace.ts";
import { type SkillDiagnostic, skillFile, warningIn } from "./diagnostic.ts";

/** A regular file of a skill, or a link to one of its others. */
export interface SkillFile {
  /** From the skill's folder, with `/` between names. */
  readonly path: string;
  readonly sizeBytes: number;
  /** SHA-256 in hexadecimal. */
  readonly sha256: string;
  /** May be run as it is. */
  readonly isExecutable: boolean;
}

/** What a skill's folder held at one moment. */
export interface SkillFiles {
  /** In order of their paths. */
  readonly files: readonly SkillFile[];
  /** SHA-256 over all of them, in hexadecimal. */
  readonly contentSha256: string;
  /** SHA-256 over all but SKILL.md: what decides what its scripts do. */
  readonly scriptsSha256: string;
  /** Absent where there is none, or none that is a regular file inside the folder. */
  readonly skillFileBytes?: Uint8Array;
  readonly warnings: readonly SkillDiagnostic[];
  /** Some file changed while it was read. */
  readonly isTorn: boolean;
  /** When the newest of the files and folders was changed last, in milliseconds since 1970. */
  readonly changedMs: number;
}

/** The folder holds too much, or can't be read. The message is for people, without a path of the server. */
export class SkillFilesError extends Error {
  override readonly name = "SkillFilesError";
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/** What was read of files before; nothing of it is read again while the file's state is the same. */
export type KnownFiles = Map<string, { readonly state: string; readonly sha256: string }>;

const maxFiles = 2000;
const maxEntries = 10_000;
const maxDepth = 16;
const maxBytes = 64 * 1024 * 1024;
const chunkBytes = 256 * 1024;
/** Two changes within a tick of the file system's clock look like one. */
const clockTickMs = 50;
/** Read whole when it is not larger; a larger one is refused anyhow. */
const maxSkillFileBytes = 1024 * 1024;

/**
 * Reads and digests all files of a skill. Follows links to files inside the folder only, and none to folders; leaves out
 * `.git`, which changes by being looked at.
 * @param directory absolute path without links
 * @param known grows; without it every byte is read.
 * @throws {SkillFilesError} also when there is no such folder.
 */
export async function readSkillFiles(directory: string, known?: KnownFiles): Promise<SkillFiles> {
  const files: SkillFile[] = [];
  const warnings: SkillDiagnostic[] = [];
  const seen = new Set<string>();
  let skillFileBytes: Uint8Array | undefined;
  let entries = 0;
  let bytes = 0;
  let isTorn = false;
  let changedMs = 0;

  const root = await openDirectoryBeneath(directory, ".").catch(() => {
    throw new SkillFilesError("UNREADABLE_FOLDER", "the folder can't be read; look at its permissions");
  });
  await visit({ ...root, path: "." }, 0);
  if (known !== undefined) for (const path of known.keys()) if (!seen.has(path)) known.delete(path);
  files.sort((left, right) => (left.path < right.path ? -1 : left.path > right.path ? 1 : 0));
  return {
    files,
    contentSha256: digestOf(files),
    scriptsSha256: digestOf(files.filter(({ path }) => path !== skillFile)),
    ...(skillFileBytes === undefined ? {} : { skillFileBytes }),
    warnings,
    isTorn,
    changedMs,
  };

  async function visit(folder: OpenedBeneath, depth: number): Promise<void> {
    try {
      const subfolders: string[] = [];
      for await (const entry of await opendir(folder.at, { bufferSize: 128 })) {
        if (++entries > maxEntries)
          throw new SkillFilesError("TOO_MANY_FILES", `the folder has more than ${maxEntries} entries`);
        if (entry.name === ".git") continue;
        const path = folder.path === "." ? entry.name : `${folder.path}/${entry.name}`;
        if (entry.isDirectory()) subfolders.push(entry.name);
        else if (entry.isFile())
          await take(path, await openChild(folder, entry.name, constants.O_RDONLY).catch(nothingForPathError), folder);
        else if (entry.isSymbolicLink()) await follow(path);
      }
      // What was removed is seen by its folder only.
      changedMs = Math.max(changedMs, (await folder.handle.stat()).ctimeMs);
      for (const name of subfolders.sort()) {
        if (depth === maxDepth) {
          warnings.push(warningIn("", "TOO_DEEP", `folders more than ${maxDepth} levels deep are left out`));
          break;
        }
        const child = await openChild(folder, name, constants.O_RDONLY).catch(nothingForPathError);
        if (child === undefined) continue;
        if (child.stats.isDirectory()) await visit(child, depth + 1);
        else await child.handle.close();
      }
    } finally {
      await folder.handle.close();
    }
  }

  async function follow(path: string): Promise<void> {
    const target = await openBeneath(directory, path, constants.O_RDONLY).catch(nothingForPathError);
    if (target?.stats.isFile() === true) return take(path, target);
    await target?.handle.close();
    const where = target === undefined ? "leads nowhere, or out of the skill's folder" : "leads to a folder";
    warnings.push(warningIn(path, "LINK_LEFT_OUT", `the link ${where}; it is left out`));
  }

  async function take(path: string, opened: OpenedBeneath | undefined, folder?: OpenedBeneath): Promise<void> {
    if (opened === undefined) {
      // It went away meanwhile, or may not be read.
      const name = path.slice(path.lastIndexOf("/") + 1);
      const isThere =
        folder !== undefined && (await lstat(`${folder.at}/${name}`).catch(() => undefined)) !== undefined;
      if (isThere) warnings.push(warningIn(path, "UNREADABLE_FILE", "the file can't be read; look at its permissions"));
      return;
    }
    try {
      if (!opened.stats.isFile()) return;
      const before = await opened.handle.stat({ bigint: true });
      seen.add(path);
      bytes += Number(before.size);
      if (files.length === maxFiles)
        throw new SkillFilesError("TOO_MANY_FILES", `the folder has more than ${maxFiles} files`);
      if (bytes > maxBytes)
        throw new SkillFilesError("TOO_LARGE", `the files have more than ${maxBytes} bytes together`);
      const wantsBytes = path === skillFile;
      const state = stateOf(before);
      const remembered = known?.get(path);
      let sha256 = remembered?.state === state ? remembered.sha256 : undefined;
      if (sha256 === undefined || wantsBytes) {
        const read = await readAll(opened, wantsBytes ? maxSkillFileBytes + 1 : 0);
        sha256 = read.sha256;
        if (wantsBytes) skillFileBytes = read.head;
        if (stateOf(await opened.handle.stat({ bigint: true })) !== state) isTorn = true;
        else if (Date.now() - Number(before.ctimeMs) > clockTickMs) known?.set(path, { state, sha256 });
      }
      changedMs = Math.max(changedMs, Number(before.ctimeMs));
      files.push({ path, sizeBytes: Number(before.size), sha256, isExecutable: (Number(before.mode) & 0o111) !== 0 });
    } finally {
      await opened.handle.close();
    }
  }
}

/** Changes whenever the file's bytes or rights do. */
function stateOf({ dev, ino, size, mode, mtimeNs, ctimeNs }: BigIntStats): string {
  return `${dev} ${ino} ${size} ${mode} ${mtimeNs} ${ctimeNs}`;
}

async function readAll({ handle }: OpenedBeneath, headBytes: number): Promise<{ sha256: string; head: Uint8Array }> {
  const hash = createHash("sha256");
  const head: Uint8Array[] = [];
  let position = 0;
  for (;;) {
    const { bytesRead, buffer } = await handle.read(Buffer.allocUnsafe(chunkBytes), 0, chunkBytes, position);
    if (bytesRead === 0) break;
    const bytes = buffer.subarray(0, bytesRead);
    hash.update(bytes);
    if (position < headBytes) head.push(bytes.subarray(0, headBytes - position));
    position += bytesRead;
    // One that grows without end is cut by the bound of the whole.
    if (position > maxBytes)
      throw new SkillFilesError("TOO_LARGE", `the files have more than ${maxBytes} bytes together`);
  }
  return { sha256: hash.digest("hex"), head: Buffer.concat(head) };
}

function digestOf(files: readonly SkillFile[]): string {
  const hash = createHash("sha256");
  for (const { path, sha256, isExecutable } of files) hash.update(`${JSON.stringify([path, sha256, isExecutable])}\n`);
  return hash.digest("hex");
}
