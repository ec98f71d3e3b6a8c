import { FILE_HEADERS_ONLY, formatPatch, type StructuredPatchHunk, structuredPatch } from "diff";
import type { ToolResult } from "../chat/tool-result.ts";
import { lineCount } from "./file-text.ts";

/** How a file changes. */
export interface FileChange {
  /** Path from the workspace. */
  readonly path: string;
  /** Its path after the change, where that is another. */
  readonly newPath?: string;
  /** Absent for a new file. */
  readonly before?: string;
  /** Absent for a file that is removed. */
  readonly after?: string;
}

export interface ChangeDiff {
  /** Unified diff; empty where too much differs, and where only the path changes. */
  readonly text: string;
  /** Lines that came. */
  readonly added: number;
  /** Lines that went. */
  readonly removed: number;
}

const contextLines = 3;
const differenceLimitCharacters = 512 * 1024;
const diffLimitMs = 50;
const shownLimitBytes = 64 * 1024;

/** What a change looks like, line by line. Its cost grows with the part that differs, not with the file. */
export function changeDiff({ path, newPath = path, before, after }: FileChange): ChangeDiff {
  const part = differingPart(before ?? "", after ?? "");
  if (part.before.length + part.after.length > differenceLimitCharacters) {
    return { text: "", added: lineCount(part.after), removed: lineCount(part.before) };
  }
  const oldName = before === undefined ? "/dev/null" : `a/${path}`;
  const newName = after === undefined ? "/dev/null" : `b/${newPath}`;
  const options = { context: contextLines, timeout: diffLimitMs };
  const patch = structuredPatch(oldName, newName, part.before, part.after, undefined, undefined, options) ?? {
    oldFileName: oldName,
    newFileName: newName,
    oldHeader: undefined,
    newHeader: undefined,
    hunks: [wholeHunk(part.before, part.after)],
  };
  let added = 0;
  let removed = 0;
  for (const hunk of patch.hunks) {
    hunk.oldStart += part.firstLine;
    hunk.newStart += part.firstLine;
    for (const line of hunk.lines) {
      if (line.startsWith("+")) added++;
      else if (line.startsWith("-")) removed++;
    }
  }
  return { text: patch.hunks.length === 0 ? "" : formatPatch(patch, FILE_HEADERS_ONLY), added, removed };
}

/** A hunk for texts that differ too much for a shortest one to be looked for: all of one goes, all of the other comes. */
function wholeHunk(before: string, after: string): StructuredPatchHunk {
  const linesOf = (sign: string, text: string) => {
    const lines = text === "" ? [] : text.replace(/\n$/, "").split("\n");
    const marked = lines.map((line) => sign + line);
    return text === "" || text.endsWith("\n") ? marked : [...marked, "\\ No newline at end of file"];
  };
  return {
    oldStart: 1,
    oldLines: lineCount(before),
    newStart: 1,
    newLines: lineCount(after),
    lines: [...linesOf("-", before), ...linesOf("+", after)],
  };
}

/** What of changes goes along with a result for people: at most 64 KiB of whole lines. */
export function diffMetadata(diffs: readonly ChangeDiff[]): NonNullable<ToolResult["metadata"]> {
  const text = diffs.map((diff) => diff.text).join("");
  if (text === "") return {};
  const bytes = Buffer.from(text);
  if (bytes.length <= shownLimitBytes) return { diff: text };
  const end = bytes.lastIndexOf("\n", shownLimitBytes - 1) + 1;
  return { diff: bytes.toString("utf8", 0, end), diff_truncated: "true" };
}

/** The lines in which two texts differ, with some around them that are the same. */
function differingPart(before: string, after: string) {
  const shorter = Math.min(before.length, after.length);
  let start = 0;
  while (start < shorter && before.charCodeAt(start) === after.charCodeAt(start)) start++;
  let same = 0;
  while (
    same < shorter - start &&
    before.charCodeAt(before.length - 1 - same) === after.charCodeAt(after.length - 1 - same)
  )
    same++;
  // Back to the beginning of the line, and of those before it; onwards to the end of the line, and of those after it.
  for (let lines = 0; lines <= contextLines && start > 0; lines++) start = before.lastIndexOf("\n", start - 2) + 1;
  let end = before.length - same;
  for (let lines = 0; lines <= contextLines && end < before.length; lines++) {
    const feed = before.indexOf("\n", end);
    end = feed === -1 ? before.length : feed + 1;
  }
  const afterEnd = end + after.length - before.length;
  const firstLine = lineCount(before.slice(0, start));
  return { before: before.slice(start, end), after: after.slice(start, afterEnd), firstLine };
}
