import { parsePatch, type StructuredPatch, type StructuredPatchHunk } from "diff";

/** One line of a hunk: it stays, goes or comes. */
export interface HunkLine {
  readonly kind: "keep" | "remove" | "add";
  /** Without its line end. */
  readonly text: string;
}

/** A place of a file and what changes there. */
export interface PatchHunk {
  /** What it is called in messages, after its place in the patch. */
  readonly at: string;
  /** Lines of the file it comes after, from the outermost to the innermost. */
  readonly anchors: readonly string[];
  readonly lines: readonly HunkLine[];
  /** What it changes are the last lines of the file. */
  readonly isAtEnd: boolean;
  /** The line, counted from 1, it was made for; the file may have changed since. */
  readonly oldStart?: number;
  /** Whether the file has a line end at its end afterwards; absent where the patch does not tell. */
  readonly endsAfter?: boolean;
}

/**
 * What a patch does to one file. Paths are as they stand in the patch. The hunks of a file that is deleted remove all its
 * lines; they are absent where the patch does not tell them.
 */
export type FilePatch =
  | { readonly kind: "add"; readonly path: string; readonly text: string; readonly isProgram?: boolean }
  | { readonly kind: "delete"; readonly path: string; readonly hunks?: readonly PatchHunk[] }
  | {
      readonly kind: "update";
      readonly path: string;
      readonly newPath?: string;
      readonly hunks: readonly PatchHunk[];
    };

/** A patch that cannot be read. The message is for the model. */
export class PatchFault extends Error {
  override readonly name = "PatchFault";
}

const begin = "*** Begin Patch";
const end = "*** End Patch";
const unifiedRange = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/;
const noFile = "/dev/null";
/** What stands before the signature of a patch that git sent by mail. */
const mailSignature = "-- ";

/**
 * Reads a patch in one of two forms: what stands between `*** Begin Patch` and `*** End Patch` (as OpenAI's models write
 * it: cookbook.openai.com, GPT-4.1 prompting guide, and the community's page on the `apply_patch` tool), and unified diffs,
 * with git's headers or without.
 * @throws {PatchFault} which says what is wrong and on which line.
 */
export function parsePatchText(patch: string): FilePatch[] {
  const lines = withoutFence(patch.split("\n").map((line) => (line.endsWith("\r") ? line.slice(0, -1) : line)));
  const first = lines.findIndex((line) => line.trim() !== "");
  if (first === -1) throw new PatchFault("the patch is empty");
  const files = lines[first]?.trim() === begin ? parseMarked(lines, first + 1) : parseUnified(lines);
  if (files.length === 0) throw new PatchFault("the patch names no file");
  return files;
}

/**
 * The paths a patch would make, change, move or remove, each once; without any for a patch that cannot be read, which
 * `apply_patch` refuses before it writes.
 */
export function patchedPaths(patch: string): string[] {
  try {
    const files = parsePatchText(patch);
    return [
      ...new Set(
        files.flatMap((file) =>
          file.kind === "update" && file.newPath !== undefined ? [file.path, file.newPath] : [file.path],
        ),
      ),
    ];
  } catch (error) {
    if (error instanceof PatchFault) return [];
    throw error;
  }
}

/** Models like to put code between lines of three backticks. */
function withoutFence(lines: readonly string[]): readonly string[] {
  const first = lines.findIndex((line) => line.trim() !== "");
  const last = lines.findLastIndex((line) => line.trim() !== "");
  const isFenced = first < last && lines[first]?.startsWith("```") === true && lines[last]?.trim() === "```";
  // A blank line keeps the numbers of the lines right.
  return isFenced ? lines.slice(0, last).with(first, "") : lines;
}

const header = /^\*\*\* (Add|Update|Delete) File: *(.*)$/;
const moveTo = /^\*\*\* Move to: *(.*)$/;

function parseMarked(lines: readonly string[], from: number): FilePatch[] {
  const last = lines.findLastIndex((line) => line.trim() !== "");
  if (lines[last]?.trim() !== end) throw new PatchFault(`the patch does not end with ${end}: it may have been cut`);
  const files: FilePatch[] = [];
  let at = from;
  while (at < last) {
    const line = lines[at] ?? "";
    if (line.trim() === "") {
      at++;
      continue;
    }
    const [, action, name = ""] = header.exec(line) ?? [];
    if (action === undefined) {
      throw fault(at, line, "is no header; wanted is *** Add File:, *** Update File: or *** Delete File: with a path");
    }
    const path = name.trim();
    if (path === "") throw fault(at, line, "names no path");
    let bodyEnd = at + 1;
    while (bodyEnd < last && !header.test(lines[bodyEnd] ?? "")) bodyEnd++;
    if (action === "Add") files.push({ kind: "add", path, text: addedText(lines, at + 1, bodyEnd) });
    else if (action === "Update") files.push(parseUpdate(path, lines, at, bodyEnd));
    else {
      const extra = lines.slice(at + 1, bodyEnd).findIndex((each) => each.trim() !== "");
      if (extra !== -1) throw fault(at + 1 + extra, lines[at + 1 + extra] ?? "", "follows a file that is deleted");
      files.push({ kind: "delete", path });
    }
    at = bodyEnd;
  }
  return files;
}

function addedText(lines: readonly string[], from: number, to: number): string {
  let last = to;
  while (last > from && lines[last - 1]?.trim() === "") last--;
  return lines
    .slice(from, last)
    .map((line, index) => {
      if (!line.startsWith("+"))
        throw fault(from + index, line, "does not begin with +, as each line of a new file does");
      return `${line.slice(1)}\n`;
    })
    .join("");
}

function parseUpdate(path: string, lines: readonly string[], from: number, to: number): FilePatch {
  let at = from + 1;
  const newPath = moveTo.exec(lines[at] ?? "")?.[1]?.trim();
  if (newPath === "") throw fault(at, lines[at] ?? "", "names no path");
  if (newPath !== undefined) at++;
  const hunks: PatchHunk[] = [];
  while (at < to) {
    const start = at;
    const anchors: string[] = [];
    let oldStart: number | undefined;
    for (; at < to && isHunkHead(lines[at]); at++) {
      const line = lines[at] ?? "";
      const range = unifiedRange.exec(line);
      if (range !== null) oldStart = Number(range[1]);
      const anchor =
        range === null
          ? line
              .slice(2)
              .replace(/@@\s*$/, "")
              .trim()
          : "";
      if (anchor !== "") anchors.push(anchor);
    }
    const body: HunkLine[] = [];
    let isAtEnd = false;
    for (; at < to && !isAtEnd && !isHunkHead(lines[at]); at++) {
      const line = lines[at] ?? "";
      isAtEnd = line.trimEnd() === "*** End of File";
      if (isAtEnd) continue;
      const read = hunkLine(line);
      if (read === undefined) throw fault(at, line, "begins with neither a space, + nor -");
      body.push(read);
    }
    // An empty line before the next header belongs to the form more likely than to the file; context may be shorter.
    for (let last = at - 1; !isAtEnd && body.length > 0 && lines[last] === ""; last--) body.pop();
    if (body.length > 0) {
      const place = `the hunk on line ${start + 1} of the patch`;
      hunks.push({ at: place, anchors, lines: body, isAtEnd, ...(oldStart === undefined ? {} : { oldStart }) });
    } else if (isHunkHead(lines[start])) throw fault(start, lines[start] ?? "", "begins a hunk without any line");
  }
  if (hunks.length === 0 && newPath === undefined) throw fault(from, lines[from] ?? "", "has no hunk");
  return { kind: "update", path, hunks, ...(newPath === undefined ? {} : { newPath }) };
}

function isHunkHead(line: string | undefined): boolean {
  return line?.startsWith("@@") === true;
}

function hunkLine(line: string): HunkLine | undefined {
  const text = line.slice(1);
  if (line === "") return { kind: "keep", text };
  return line.startsWith(" ")
    ? { kind: "keep", text }
    : line.startsWith("-")
      ? { kind: "remove", text }
      : line.startsWith("+")
        ? { kind: "add", text }
        : undefined;
}

function fault(index: number, line: string, what: string): PatchFault {
  const shown = line.length <= 100 ? line : `${line.slice(0, 97)}...`;
  return new PatchFault(`line ${index + 1} of the patch, ${JSON.stringify(shown)}, ${what}`);
}

function parseUnified(lines: readonly string[]): FilePatch[] {
  if (!lines.some((line) => /^(?:--- |\+\+\+ |diff --git )/.test(line))) {
    throw new PatchFault(`the patch is neither a unified diff (--- a/path, +++ b/path, @@) nor begins with ${begin}`);
  }
  let parsed: StructuredPatch[];
  try {
    parsed = parsePatch(recounted(lines).join("\n"));
  } catch (error) {
    throw new PatchFault(`the unified diff cannot be read: ${error instanceof Error ? error.message : "unknown"}`);
  }
  let hunkNumber = 0;
  const files: FilePatch[] = [];
  for (const file of parsed) {
    const { oldFileName, newFileName } = file;
    if (oldFileName === undefined || newFileName === undefined) {
      if (file.hunks.length === 0) continue;
      throw new PatchFault("a hunk has no file: before it belong lines like --- a/path and +++ b/path");
    }
    const hunks = file.hunks.map((hunk) => hunkOfUnified(hunk, ++hunkNumber));
    files.push(filePatch(file, oldFileName, newFileName, hunks));
  }
  return files;
}

function filePatch(file: StructuredPatch, oldName: string, newName: string, hunks: readonly PatchHunk[]): FilePatch {
  const { newMode, oldMode, isCreate } = file;
  const isPrefixed =
    (oldName === noFile || oldName.startsWith("a/")) && (newName === noFile || newName.startsWith("b/"));
  const plain = (name: string) => (name !== noFile && (isPrefixed || file.isGit === true) ? name.slice(2) : name);
  const isNew = oldName === noFile || isCreate === true;
  const path = plain(newName === noFile ? oldName : newName);
  if (path === noFile || path === "") throw new PatchFault("a file of the unified diff has no name");
  const refuse = (what: string) => new PatchFault(`${JSON.stringify(path)}: ${what}`);
  if (file.isBinary === true) throw refuse("a diff of binary files cannot be applied");
  if (file.isCopy === true) throw refuse("a copy cannot be applied; add the new file instead");
  if (newMode !== undefined && !/^100(644|755)$/.test(newMode)) throw refuse("only regular files can be made");
  if (newMode !== undefined && isCreate !== true && newMode !== oldMode) throw refuse("permissions cannot be changed");
  if (isNew) {
    const lines = hunks.flatMap((hunk) => hunk.lines);
    if (lines.some((line) => line.kind !== "add")) throw refuse("a new file has only lines that begin with +");
    const text = lines.map((line) => line.text).join("\n");
    const isEnded = lines.length > 0 && hunks.at(-1)?.endsAfter !== false;
    const program = newMode === "100755" ? { isProgram: true } : {};
    return { kind: "add", path, text: isEnded ? `${text}\n` : text, ...program };
  }
  if (newName === noFile || file.isDelete === true) return { kind: "delete", path: plain(oldName), hunks };
  if (file.isRename === true && oldName.slice(2) !== newName.slice(2)) {
    return { kind: "update", path: plain(oldName), newPath: path, hunks };
  }
  if (hunks.length === 0) throw refuse("the diff has no hunk for it");
  return { kind: "update", path, hunks };
}

function hunkOfUnified(hunk: StructuredPatchHunk, number: number): PatchHunk {
  const lines: HunkLine[] = [];
  let endedBefore = true;
  let endsAfter: boolean | undefined;
  for (const line of hunk.lines) {
    if (line.startsWith("\\")) {
      const { kind } = lines.at(-1) ?? {};
      if (kind !== "add") endedBefore = false;
      if (kind !== "remove") endsAfter = false;
      continue;
    }
    const read = hunkLine(line);
    if (read !== undefined) lines.push(read);
  }
  // Where one side is marked the other one, unmarked, has a line end.
  if (!endedBefore) endsAfter ??= true;
  return {
    at: `hunk ${number} of the patch`,
    anchors: [],
    lines,
    isAtEnd: false,
    oldStart: hunk.oldStart,
    ...(endsAfter === undefined ? {} : { endsAfter }),
  };
}

/**
 * Puts the true numbers of lines into the heads of hunks: whoever writes a diff by hand miscounts, and the library would
 * leave out what goes beyond the number. The lines themselves decide whether a hunk fits.
 */
function recounted(lines: readonly string[]): string[] {
  const result: string[] = [];
  const last = lines.findLastIndex((line) => line !== "");
  for (let at = 0; at < lines.length; ) {
    const head = lines[at] ?? "";
    const range = unifiedRange.exec(head);
    at++;
    if (range === null) {
      result.push(head);
      continue;
    }
    const [all, oldStart, oldCount = "1", newStart, newCount = "1"] = range;
    const body: string[] = [];
    let before = 0;
    let after = 0;
    for (; at < lines.length; at++) {
      const line = lines[at] ?? "";
      const isFull = before >= Number(oldCount) && after >= Number(newCount);
      if (endsHunk(lines, at, isFull) || at > last) break;
      if (!line.startsWith("\\") && !line.startsWith("+")) before++;
      if (!line.startsWith("\\") && !line.startsWith("-")) after++;
      body.push(line === "" ? " " : line);
    }
    if (lines[at] === mailSignature) at++;
    result.push(`@@ -${oldStart},${before} +${newStart},${after} @@${head.slice(all.length)}`);
    for (const line of body) result.push(line);
  }
  return result;
}

/** @param isFull the hunk has as many lines as its head says. */
function endsHunk(lines: readonly string[], at: number, isFull: boolean): boolean {
  const line = lines[at] ?? "";
  const isFileHead = line.startsWith("--- ") && lines[at + 1]?.startsWith("+++ ") === true;
  if (isFileHead && (isFull || isHunkHead(lines[at + 2]))) return true;
  if (line === "") return isFull;
  return (isFull && line === mailSignature) || !/^[ +\\-]/.test(line);
}
