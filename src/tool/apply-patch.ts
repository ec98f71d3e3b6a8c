import { setImmediate } from "node:timers/promises";
import type { ToolResult } from "../chat/tool-result.ts";
import { toolFailure } from "../chat/tool-result.ts";
import { oneLine } from "./bounded-text.ts";
import { type ChangeDiff, changeDiff, diffMetadata } from "./change-diff.ts";
import { bytesOfText, textOfBytes } from "./file-text.ts";
import { type LocalFunction, textArgument } from "./local-function.ts";
import { type FilePatch, PatchFault, parsePatchText } from "./patch-text.ts";
import { applyHunks, type HunkFault } from "./place-hunks.ts";
import {
  type FileOwner,
  type FileVersion,
  type FoundFile,
  readWhole,
  removeFile,
  replaceFile,
} from "./replace-file.ts";
import { type FilePlace, findPlace, makeFolders, removeFolder, shownPath, WorkspacePathError } from "./workspace.ts";

const maxFiles = 200;
const maxBytes = 32 * 1024 * 1024;

export const applyPatch: LocalFunction = {
  definition: {
    name: "apply_patch",
    description: `Changes several places or files of the workspace at once: all of a patch is checked before anything is written, and it is written whole or not at all. The patch has this form:
*** Begin Patch
*** Update File: src/main.ts
@@ function main() {
   lines that stay begin with a space
-  lines that go
+  lines that come
*** Add File: src/new.ts
+each line of a new file begins with +
*** Delete File: src/old.ts
*** End Patch
After @@ may stand a line of the file that comes before the change; more lines of @@ narrow it further. Give about three lines that stay around each change, exactly as they are in the file and so many that they fit in one place only. *** Move to: path, after *** Update File:, renames; *** End of File, after a hunk, holds it to the end. Unified diffs (git diff) are taken too.`,
    parameters: JSON.stringify({
      type: "object",
      properties: {
        patch: { type: "string", minLength: 1, description: "The whole patch; its paths begin in the workspace" },
      },
      required: ["patch"],
      additionalProperties: false,
    }),
    source: "local",
    title: "Apply patch",
    readOnly: false,
    edits: true,
    timeoutMs: 60_000,
    returns:
      "Each file with A for added, M for changed, D for deleted or R for renamed, and how many lines came and went.",
  },

  async run(given, { workspace, signal }): Promise<ToolResult> {
    let files: FilePatch[];
    try {
      files = parsePatchText((textArgument(given, "patch") ?? "").toWellFormed());
    } catch (error) {
      if (error instanceof PatchFault) return toolFailure(`${error.message}; nothing was changed`);
      throw error;
    }
    if (files.length > maxFiles)
      return toolFailure(`the patch is for ${files.length} files; at most ${maxFiles} are taken`);
    const plan = new PatchPlan(workspace);
    const problems: string[] = [];
    const nearest: string[] = [];
    for (const file of files) {
      signal.throwIfAborted();
      for (const fault of await plan.add(file)) {
        problems.push(fault.problem);
        if (fault.nearest !== "") nearest.push(`${fault.problem}:\n${fault.nearest}`);
      }
    }
    if (problems.length > 0) {
      const error = `the patch does not fit, and nothing was changed: ${problems.join("; ")}`;
      return { success: false, output: nearest.join("\n\n"), error };
    }
    const changes = plan.changes();
    if (changes.length === 0) return toolFailure("the patch changes nothing: what it wants is there already");
    signal.throwIfAborted();
    await write(workspace, changes);
    const shown = await plan.shownChanges();
    return {
      success: true,
      output: shown.map(({ letter, name, diff }) => `${letter} ${name} (+${diff.added} -${diff.removed})`).join("\n"),
      metadata: diffMetadata(shown.map(({ diff }) => diff)),
    };
  },
};

/** A file as it was found and as it is to become. */
interface PlannedFile {
  /** Path from the workspace, with every link followed. */
  readonly path: string;
  readonly found: FoundFile | undefined;
  /** What it holds by now; absent where it is no more. */
  text: string | undefined;
  hasMark: boolean;
  isProgram: boolean;
  /** Where it was moved from. */
  movedFrom?: PlannedFile;
}

/** A file that is to be written, or removed. */
interface PlannedChange {
  readonly path: string;
  readonly found: FoundFile | undefined;
  readonly bytes: Buffer | undefined;
  /** Permissions and owner of a file that is moved. */
  readonly like: FileOwner | undefined;
  readonly isProgram: boolean;
}

interface ShownChange {
  readonly letter: "A" | "M" | "D" | "R";
  readonly name: string;
  readonly diff: ChangeDiff;
}

/** What a patch comes to, worked out without writing anything: later parts see what earlier ones do. */
class PatchPlan {
  readonly #workspace: string;
  readonly #files = new Map<string, PlannedFile>();
  #bytes = 0;

  constructor(workspace: string) {
    this.#workspace = workspace;
  }

  /** Takes the next part. @returns what does not fit; nothing where all does. */
  async add(patch: FilePatch): Promise<readonly HunkFault[]> {
    const faultsOf = (problem: string): HunkFault[] => [
      { problem: `${shownPath(patch.path)} ${problem}`, nearest: "" },
    ];
    try {
      const file = await this.#fileAt(patch.path, patch.kind === "delete" || isMove(patch));
      if (patch.kind === "add") {
        if (file.text !== undefined) return faultsOf("exists already; update it, or delete it first");
        Object.assign(file, { text: patch.text, hasMark: false, isProgram: patch.isProgram === true });
        return [];
      }
      if (file.text === undefined) return faultsOf("does not exist");
      const applied = applyHunks(file.text, patch.hunks ?? []);
      if (!applied.ok) {
        return applied.faults.map(({ problem, nearest }) => ({
          problem: `${shownPath(patch.path)}: ${problem}`,
          nearest,
        }));
      }
      if (patch.kind === "delete") {
        if (patch.hunks !== undefined && applied.text !== "") return faultsOf("has more lines than the patch deletes");
        file.text = undefined;
        return [];
      }
      if (patch.newPath === undefined) {
        file.text = applied.text;
        return [];
      }
      const target = await this.#fileAt(patch.newPath, true);
      if (target.text !== undefined) return faultsOf(`cannot be moved: ${shownPath(patch.newPath)} exists already`);
      const { hasMark, isProgram } = file;
      Object.assign(target, { text: applied.text, hasMark, isProgram, movedFrom: file });
      file.text = undefined;
      return [];
    } catch (error) {
      if (error instanceof WorkspacePathError) return [{ problem: error.message, nearest: "" }];
      throw error;
    }
  }

  /** What has to be written: new text first, so that a failure costs no file. */
  changes(): PlannedChange[] {
    return [...this.#files.values()]
      .flatMap((file): PlannedChange[] => {
        const { path, found, text, hasMark, isProgram } = file;
        const bytes = text === undefined ? undefined : bytesOfText({ text, hasMark });
        if (bytes === undefined ? found === undefined : found?.bytes.equals(bytes) === true) return [];
        return [{ path, found, bytes, like: found ?? ownerOf(file), isProgram }];
      })
      .toSorted((left, right) => Number(left.bytes === undefined) - Number(right.bytes === undefined));
  }

  async shownChanges(): Promise<ShownChange[]> {
    const files = [...this.#files.values()];
    const moved = new Set(files.flatMap((file) => (file.text === undefined ? [] : (file.movedFrom ?? []))));
    const shownChange = (file: PlannedFile): ShownChange[] => {
      const { path, found, text, movedFrom } = file;
      const old = found === undefined ? undefined : textOfBytes(found.bytes, path).text;
      if (text === undefined) {
        if (old === undefined || moved.has(file)) return [];
        return [{ letter: "D", name: oneLine(path), diff: changeDiff({ path, before: old }) }];
      }
      if (movedFrom?.found !== undefined && found === undefined) {
        const before = textOfBytes(movedFrom.found.bytes, path).text;
        const diff = changeDiff({ path: movedFrom.path, newPath: path, before, after: text });
        return [{ letter: "R", name: `${oneLine(movedFrom.path)} -> ${oneLine(path)}`, diff }];
      }
      if (old === undefined) return [{ letter: "A", name: oneLine(path), diff: changeDiff({ path, after: text }) }];
      if (old === text) return [];
      return [{ letter: "M", name: oneLine(path), diff: changeDiff({ path, before: old, after: text }) }];
    };
    const shown: ShownChange[] = [];
    for (const file of files) {
      shown.push(...shownChange(file));
      // Many large differences must not keep everybody else waiting.
      await setImmediate();
    }
    return shown;
  }

  async #fileAt(path: string, keepLastLink: boolean): Promise<PlannedFile> {
    const place = await findPlace(this.#workspace, path, { keepLastLink });
    try {
      const known = this.#files.get(place.path);
      if (known !== undefined) return known;
      const found = await readWhole(place);
      this.#bytes += found?.bytes.length ?? 0;
      if (this.#bytes > maxBytes) {
        throw new WorkspacePathError("too-large", `the files of the patch have more than ${maxBytes} bytes together`);
      }
      const { text, hasMark = false } = found === undefined ? {} : textOfBytes(found.bytes, path);
      const file: PlannedFile = { path: place.path, found, text, hasMark, isProgram: false };
      this.#files.set(place.path, file);
      return file;
    } finally {
      await place.directory.handle.close();
    }
  }
}

function isMove(patch: FilePatch): boolean {
  return patch.kind === "update" && patch.newPath !== undefined;
}

function ownerOf(file: PlannedFile): PlannedChange["like"] {
  for (let from = file.movedFrom; from !== undefined; from = from.movedFrom) {
    if (from.found !== undefined) return from.found;
  }
  return undefined;
}

/** Something that was done and can be put back. */
interface Done {
  readonly path: string;
  undo(): Promise<void>;
}

/**
 * Writes all changes. After a failure in the middle what was written is put back.
 * @throws {WorkspacePathError} which says so, and what could not be put back.
 */
async function write(workspace: string, changes: readonly PlannedChange[]): Promise<void> {
  const done: Done[] = [];
  try {
    for (const change of changes) await writeOne(workspace, change, done);
  } catch (error) {
    const left: string[] = [];
    for (const { path, undo } of done.toReversed()) {
      await undo().catch(() => left.push(shownPath(path)));
    }
    const rest = left.length === 0 ? "nothing was changed" : `these could not be put back: ${left.join(", ")}`;
    if (!(error instanceof WorkspacePathError)) throw error;
    throw new WorkspacePathError(error.problem, `${error.message}; ${rest}`);
  }
}

async function writeOne(workspace: string, change: PlannedChange, done: Done[]): Promise<void> {
  const { path, found, bytes, like, isProgram } = change;
  const version = await atPlace(
    workspace,
    path,
    async (place) => {
      if (bytes !== undefined) return replaceFile(place, bytes, found?.version ?? "nothing", like, isProgram);
      if (found !== undefined) await removeFile(place, found.version);
      return undefined;
    },
    done,
  );
  done.push({ path, undo: () => putBack(workspace, path, found, version) });
}

async function putBack(
  workspace: string,
  path: string,
  found: FoundFile | undefined,
  version: FileVersion | undefined,
): Promise<void> {
  await atPlace(workspace, path, async (place) => {
    if (found !== undefined) await replaceFile(place, found.bytes, version ?? "nothing", found);
    else if (version !== undefined) await removeFile(place, version);
  });
}

async function atPlace<T>(
  workspace: string,
  path: string,
  work: (place: FilePlace) => Promise<T>,
  done: Done[] = [],
): Promise<T> {
  let place = await findPlace(workspace, path, { keepLastLink: true });
  try {
    place = await makeFolders(place, (made) => {
      done.push({ path: made, undo: () => removeFolder(workspace, made) });
    });
    return await work(place);
  } finally {
    await place.directory.handle.close();
  }
}
