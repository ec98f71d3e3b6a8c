import type { ToolResult } from "../chat/tool-result.ts";
import { toolFailure } from "../chat/tool-result.ts";
import { oneLine } from "./bounded-text.ts";
import { changeDiff, diffMetadata } from "./change-diff.ts";
import { bytesOfText, lineEndOf, textOfBytes } from "./file-text.ts";
import { linesText } from "./lines-text.ts";
import { type LocalFunction, textArgument } from "./local-function.ts";
import { nearestLines, numberedLines } from "./nearest-lines.ts";
import { fileLimitBytes, readWhole, replaceFile } from "./replace-file.ts";
import { findPlace, shownPath } from "./workspace.ts";

const nearestShown = 20;
const maxCounted = 100;
const maxReplacements = 100_000;

export const editFile: LocalFunction = {
  definition: {
    name: "edit_file",
    description:
      "Replaces a text in a file of the workspace. old_text must stand in the file exactly once, with every space and all " +
      "indentation, without the line numbers read_file shows: take enough lines to make it unique, or set replace_all. " +
      "Line ends are written as \\n and stay in the file as they are there. For new files use write_file.",
    parameters: JSON.stringify({
      type: "object",
      properties: {
        path: { type: "string", minLength: 1, description: "Path from the workspace, for example src/main.ts" },
        old_text: {
          type: "string",
          minLength: 1,
          description: "The text to be replaced, exactly as it stands in the file",
        },
        new_text: { type: "string", description: "The text that takes its place; empty removes it" },
        replace_all: { type: "boolean", description: "Replace it wherever it stands; default false" },
      },
      required: ["path", "old_text", "new_text"],
      additionalProperties: false,
    }),
    source: "local",
    title: "Edit file",
    readOnly: false,
    edits: true,
    timeoutMs: 30_000,
    returns: "What was replaced, and on which lines.",
  },

  async run(given, { workspace, signal }): Promise<ToolResult> {
    const path = textArgument(given, "path") ?? "";
    const oldText = textArgument(given, "old_text") ?? "";
    const newText = (textArgument(given, "new_text") ?? "").toWellFormed();
    const place = await findPlace(workspace, path);
    try {
      const before = await readWhole(place);
      if (before === undefined) return toolFailure(`${shownPath(path)} does not exist; make it with write_file`);
      const file = textOfBytes(before.bytes, path);
      const edit = replaceText(file.text, oldText, newText, given["replace_all"] === true);
      if (!edit.ok) return { success: false, output: edit.nearest, error: `${shownPath(path)}: ${edit.problem}` };
      signal.throwIfAborted();
      await replaceFile(place, bytesOfText({ ...file, text: edit.text }), before.version, before);
      const diff = changeDiff({ path: place.path, before: file.text, after: edit.text });
      const places = edit.lines.length === 1 ? "" : `${edit.lines.length} places, `;
      return {
        success: true,
        output: `edited ${oneLine(place.path)}: ${places}${linesText(edit.lines)} (+${diff.added} -${diff.removed})`,
        metadata: { path: place.path, ...diffMetadata([diff]) },
      };
    } finally {
      await place.directory.handle.close();
    }
  },
};

/** What became of a replacement. */
export type TextEdit =
  | { readonly ok: true; readonly text: string; readonly lines: readonly number[] }
  | {
      readonly ok: false;
      /** The end of a sentence. */
      readonly problem: string;
      /** The lines that come nearest, with their numbers; empty where nothing is like it. */
      readonly nearest: string;
    };

/**
 * Replaces a text that occurs exactly once, or everywhere. Line ends of both are held to be the same, whatever they are, and
 * what is new gets those of what it replaces.
 */
export function replaceText(text: string, oldText: string, newText: string, everywhere = false): TextEdit {
  const plain = text.replaceAll("\r\n", "\n");
  const wanted = oldText.replaceAll("\r\n", "\n");
  const most = everywhere ? maxReplacements : maxCounted;
  const found = occurrences(plain, wanted, everywhere ? wanted.length : 1, most + 1);
  if (found.length === 0) return notFound(plain, wanted);
  const lines = linesOf(plain, found.slice(0, most));
  const times = `old_text occurs ${found.length > most ? `more than ${most}` : found.length} times`;
  if (found.length > 1 && !everywhere) {
    return failed(`${times}, on ${linesText(lines)}; take more lines around it to say which, or set replace_all`);
  }
  if (found.length > most) return failed(`${times}, which is too much to replace at once`);
  const offsets = plain.length === text.length ? (offset: number) => offset : originalOffsets(text);
  const pieces: string[] = [];
  let end = 0;
  let characters = 0;
  const usualEnd = lineEndOf(text);
  for (const offset of found) {
    const start = offsets(offset);
    const next = offsets(offset + wanted.length);
    const replaced = text.slice(start, next);
    const lineEnd = replaced.includes("\n") ? lineEndOf(replaced) : usualEnd;
    const piece = newText.replace(/\r?\n/g, lineEnd);
    pieces.push(text.slice(end, start), piece);
    characters += start - end + piece.length;
    if (characters > fileLimitBytes) return failed(`the result is longer than ${fileLimitBytes} bytes`);
    end = next;
  }
  pieces.push(text.slice(end));
  const result = pieces.join("");
  return result === text
    ? failed("old_text and new_text are the same, so that nothing changes")
    : { ok: true, text: result, lines };
}

/** @param least how far the next occurrence begins after the beginning of the last one. */
function occurrences(text: string, wanted: string, least: number, most: number): number[] {
  const found: number[] = [];
  for (let at = text.indexOf(wanted); at !== -1 && found.length < most; at = text.indexOf(wanted, at + least)) {
    found.push(at);
  }
  return found;
}

/** The numbers, counted from 1, of the lines that offsets lie in, which come in order. */
function linesOf(text: string, offsets: readonly number[]): number[] {
  let line = 1;
  let feed = text.indexOf("\n");
  return offsets.map((offset) => {
    for (; feed !== -1 && feed < offset; feed = text.indexOf("\n", feed + 1)) line++;
    return line;
  });
}

/** Turns offsets into a text without carriage returns, asked for in order, into those with them. */
function originalOffsets(text: string): (offset: number) => number {
  let plain = 0;
  let original = 0;
  return (offset) => {
    for (;;) {
      const next = text.indexOf("\r\n", original);
      // The line end itself counts once: an offset before it lies before both of its characters.
      if (next === -1 || plain + (next - original) >= offset) return original + (offset - plain);
      plain += next - original + 1;
      original = next + 2;
    }
  };
}

function notFound(text: string, wanted: string): TextEdit {
  const lines = text.split("\n");
  const sought = wanted.replace(/\n$/, "").split("\n");
  const numbered = sought.map((line) => /^\s*\d+\t/.test(line));
  if (numbered.every(Boolean)) {
    return failed("old_text does not occur; leave out the line numbers that read_file shows");
  }
  const nearest = nearestLines(lines, sought);
  if (nearest === undefined) return failed("old_text does not occur, nor anything like it; read the file again");
  const shown = { ...nearest, lines: nearest.lines.slice(0, nearestShown) };
  const range = linesText(nearest.lines.map((_, index) => nearest.line + index));
  const how =
    nearest.difference === ""
      ? "the nearest are shown"
      : `${range} ${nearest.lines.length === 1 ? "differs" : "differ"} ${nearest.difference}`;
  return { ok: false, problem: `old_text does not occur exactly so; ${how}`, nearest: numberedLines(shown) };
}

function failed(problem: string): TextEdit {
  return { ok: false, problem, nearest: "" };
}
