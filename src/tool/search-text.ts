import { constants } from "node:fs";
import { toolFailure } from "../chat/tool-result.ts";
import { oneLine } from "./bounded-text.ts";
import type { FunctionContext } from "./function-provider.ts";
import { type LocalFunction, textArgument } from "./local-function.ts";
import { type PathFilter, pathGlob } from "./path-glob.ts";
import { firstFileDescriptor, spawnSupervised } from "./supervise.ts";
import { walkFiles } from "./walk-files.ts";
import { TooSlow } from "./within-time.ts";
import { nothingForPathError, type OpenedBeneath, openBeneath, openChild } from "./workspace.ts";

const maxMatches = 200;
const maxPatternCharacters = 4096;
const maxFileBytes = 64 * 1024 * 1024;
const shownLineCharacters = 400;
/** Files handed to one run of the search program, each as an open descriptor. */
const batchFiles = 200;
const recordLimitBytes = 1024 * 1024;
const producedLimitBytes = 64 * 1024 * 1024;
const complaintLimitCharacters = 8 * 1024;
const descriptorDirectory = process.platform === "linux" ? "/proc/self/fd" : "/dev/fd";

export const searchText: LocalFunction = {
  definition: {
    name: "search_text",
    description:
      "Searches the text files of the workspace for a regular expression (Rust syntax, line by line; (?i) at its start " +
      "ignores case), without .git and without what .gitignore leaves out. " +
      `Stops after ${maxMatches} matching lines; files above ${maxFileBytes / 1024 / 1024} MiB are passed over.`,
    parameters: JSON.stringify({
      type: "object",
      properties: {
        pattern: { type: "string", minLength: 1, description: "Regular expression" },
        path: { type: "string", description: "File or directory from the workspace; default the whole workspace" },
        glob: { type: "string", description: "Only files whose path from the workspace fits, for example *.ts" },
      },
      required: ["pattern"],
      additionalProperties: false,
    }),
    source: "local",
    readOnly: true,
    timeoutMs: 30_000,
    returns: "Each matching line as path:line: text; notes stand in square brackets.",
  },

  async run(given, context) {
    const { workspace, signal } = context;
    const pattern = textArgument(given, "pattern") ?? "";
    const glob = textArgument(given, "glob") ?? "";
    const lines: string[] = [];
    const left: LeftOut = { notes: [], largeFiles: 0, hiddenFiles: 0, longLines: 0 };
    try {
      // An unusable pattern is told before any file is opened.
      for await (const _ of search(pattern, [], left, signal));
      const choose = glob === "" ? undefined : pathGlob(glob);
      for await (const files of openFiles(workspace, textArgument(given, "path") || ".", choose, left, context)) {
        for await (const line of search(pattern, files, left, signal)) {
          lines.push(line);
          if (lines.length === maxMatches) break;
        }
        if (lines.length === maxMatches) break;
      }
    } catch (error) {
      if (error instanceof RangeError || error instanceof SearchError) return toolFailure(error.message);
      if (error instanceof TooSlow) return toolFailure(`the glob "${glob}" takes too long to match; simplify it`);
      throw error;
    }
    const isFull = lines.length === maxMatches;
    if (lines.length === 0) lines.push("[no line matches]");
    if (isFull) lines.push(`[stopped after ${maxMatches} matching lines; narrow the pattern, the path or the glob]`);
    if (left.longLines > 0) lines.push(`[${left.longLines} matching lines are too long to be shown]`);
    if (left.hiddenFiles > 0)
      lines.push(`[left out, since rules keep them from being read: ${left.hiddenFiles} of the files]`);
    if (left.largeFiles > 0) lines.push(`[${left.largeFiles} files above ${maxFileBytes} bytes were not searched]`);
    for (const note of left.notes) lines.push(`[${note}]`);
    return { success: true, output: lines.join("\n"), ...(isFull ? { truncated: true } : {}) };
  },
};

/** A search that cannot be done; the message is for the model. */
class SearchError extends Error {
  override readonly name = "SearchError";
}

/** What a search passed over, counted while it goes on. */
interface LeftOut {
  readonly notes: string[];
  largeFiles: number;
  hiddenFiles: number;
  longLines: number;
}

/** The files to search, opened, in batches; each batch is closed when the next is asked for. */
async function* openFiles(
  workspace: string,
  path: string,
  choose: PathFilter | undefined,
  left: LeftOut,
  { signal, isHidden }: FunctionContext,
): AsyncGenerator<readonly OpenedBeneath[], void, undefined> {
  const files: OpenedBeneath[] = [];
  const add = async (file: OpenedBeneath | undefined): Promise<void> => {
    if (file === undefined) return;
    if (file.stats.isFile() && file.stats.size <= maxFileBytes) {
      files.push(file);
      return;
    }
    if (file.stats.isFile()) left.largeFiles++;
    await file.handle.close();
  };
  const closeFiles = async (): Promise<void> => {
    for (const { handle } of files.splice(0)) await handle.close();
  };
  try {
    const place = await openBeneath(workspace, path, constants.O_RDONLY);
    if (place.stats.isFile()) {
      await add(place);
    } else {
      await place.handle.close();
      for await (const walked of walkFiles(workspace, { path: place.path, signal })) {
        if (walked.type === "note") {
          left.notes.push(walked.text);
          continue;
        }
        const { directory, names } = walked;
        const base = directory.path === "." ? "" : `${directory.path}/`;
        const paths = names.map((name) => base + name);
        for (const chosen of choose === undefined ? paths : choose(paths)) {
          if (isHidden?.(chosen) === true) {
            left.hiddenFiles++;
            continue;
          }
          await add(
            await openChild(directory, chosen.slice(base.length), constants.O_RDONLY).catch(nothingForPathError),
          );
          if (files.length < batchFiles) continue;
          yield files;
          await closeFiles();
        }
      }
    }
    if (files.length > 0) yield files;
  } finally {
    await closeFiles();
  }
}

/**
 * Runs the search program over open files. It is handed descriptors and never looks up a path of the workspace, so nothing
 * can be exchanged under its hands and no ignore file can steer it.
 * @throws {SearchError} for an unusable pattern and for a program that does not run; the reason of the signal.
 */
async function* search(
  pattern: string,
  files: readonly OpenedBeneath[],
  left: LeftOut,
  signal: AbortSignal,
): AsyncGenerator<string, void, undefined> {
  const program = await searchProgram(pattern);
  signal.throwIfAborted();
  const names = files.map((_, index) => `${descriptorDirectory}/${firstFileDescriptor + index}`);
  const paths = new Map(names.map((name, index) => [name, oneLine(files[index]?.path ?? name)]));
  const options = ["--no-config", "--json", "--threads=1", "--crlf", `--max-count=${maxMatches}`, "--no-messages"];
  const limits = ["--regex-size-limit=32M", "--dfa-size-limit=64M"];
  const search = spawnSupervised(
    program,
    [...options, ...limits, "-e", pattern, "--", ...(names.length === 0 ? ["/dev/null"] : names)],
    { cwd: "/", env: { LC_ALL: "C.UTF-8", PATH: "/usr/bin:/bin" }, files: files.map((file) => file.handle.fd) },
  );
  let complaint = "";
  search.stderr.setEncoding("utf8").on("data", (text: string) => {
    if (complaint.length < complaintLimitCharacters) complaint += text;
  });
  const stop = () => void search.stop();
  signal.addEventListener("abort", stop, { once: true });
  try {
    yield* linesFound(recordsOf(search.stdout, left), paths);
    const code = await search.ended.catch(() => {
      throw new SearchError("the search program could not be started");
    });
    signal.throwIfAborted();
    if (code !== 0 && code !== 1 && complaint !== "") throw new SearchError(patternComplaint(pattern, complaint));
    if (code > 128) throw new SearchError("the search program was stopped from outside");
  } finally {
    signal.removeEventListener("abort", stop);
    await search.stop();
  }
}

async function searchProgram(pattern: string): Promise<string> {
  if (pattern.includes("\0")) throw new SearchError("the pattern contains a NUL character; write \\x00 instead");
  if (pattern.length > maxPatternCharacters) {
    throw new SearchError(
      `the pattern is ${pattern.length} characters long; at most ${maxPatternCharacters} are taken`,
    );
  }
  try {
    return (await import("@vscode/ripgrep")).rgPath;
  } catch {
    throw new SearchError("searching is not available: this server has no search program for its platform");
  }
}

/** The lines of the program's output, each a JSON value; too long ones are counted and left out. */
async function* recordsOf(
  output: AsyncIterable<Uint8Array> | readonly Uint8Array[],
  left: LeftOut,
): AsyncGenerator<unknown, void, undefined> {
  let parts: Uint8Array[] = [];
  let recordBytes = 0;
  let producedBytes = 0;
  for await (const bytes of output) {
    producedBytes += bytes.length;
    if (producedBytes > producedLimitBytes) {
      left.notes.push("the search stopped early: it found too much");
      return;
    }
    for (let start = 0; start < bytes.length; ) {
      const feed = bytes.indexOf(0x0a, start);
      const end = feed === -1 ? bytes.length : feed;
      recordBytes += end - start;
      if (recordBytes <= recordLimitBytes) parts.push(bytes.subarray(start, end));
      else parts = [];
      start = end + 1;
      if (feed === -1) continue;
      if (recordBytes > recordLimitBytes) left.longLines++;
      else yield parsed(Buffer.concat(parts).toString("utf8"));
      parts = [];
      recordBytes = 0;
    }
  }
}

/** The matches of each file once it is known to be text; of a binary file only that it matches. */
async function* linesFound(
  records: AsyncIterable<unknown>,
  paths: ReadonlyMap<string, string>,
): AsyncGenerator<string, void, undefined> {
  let lines: string[] = [];
  for await (const record of records) {
    const data = field(record, "data");
    const path = paths.get(textOf(field(data, "path")));
    if (path === undefined) continue;
    const type = field(record, "type");
    if (type === "match") {
      lines.push(
        `${path}:${field(data, "line_number")}: ${shortLine(textOf(field(data, "lines")), firstMatchAt(data))}`,
      );
    } else if (type === "end") {
      const found = lines;
      lines = [];
      if (found.length === 0) continue;
      if (typeof field(data, "binary_offset") === "number") yield `${path}: a binary file matches`;
      else yield* found;
    }
  }
}

/** The program writes what is not UTF-8 as Base64. */
function textOf(value: unknown): string {
  const text = field(value, "text");
  if (typeof text === "string") return text;
  const bytes = field(value, "bytes");
  return typeof bytes === "string" ? Buffer.from(bytes, "base64").toString("utf8") : "";
}

function firstMatchAt(data: unknown): number {
  const matches = field(data, "submatches");
  const start = Array.isArray(matches) ? field(matches[0], "start") : 0;
  return typeof start === "number" ? start : 0;
}

/** A line without its end, of a long one the part around the first match. */
function shortLine(line: string, matchAtByte: number): string {
  const text = line.replace(/\r?\n$/, "");
  if (text.length <= shownLineCharacters) return text;
  const matchAt = Buffer.from(text).toString("utf8", 0, matchAtByte).length;
  const start = Math.max(0, Math.min(matchAt - shownLineCharacters / 4, text.length - shownLineCharacters));
  const end = start + shownLineCharacters;
  return `${start > 0 ? "..." : ""}${text.slice(start, end)}${end < text.length ? "..." : ""}`;
}

/** The program shows the pattern within `(?:` and `)` and points below it with a caret. */
function patternComplaint(pattern: string, complaint: string): string {
  const why = /^error: (.+)$/m.exec(complaint)?.[1] ?? complaint.replace(/^rg: /, "").split("\n")[0] ?? "";
  const lines = complaint.split("\n");
  const at = lines.findIndex((line) => line.trimEnd().endsWith(`(?:${pattern})`));
  if (at === -1) return `the pattern is not a usable regular expression: ${why}`;
  const offset = (lines[at + 1] ?? "").indexOf("^") - (lines[at] ?? "").indexOf("(?:") - 3;
  // Before the pattern: its own closing parenthesis was taken for the one around it.
  const where = offset < 0 ? "at its end" : `at character ${offset + 1}`;
  return `the pattern is not a usable regular expression, ${where}: ${why}`;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function field(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null ? Reflect.get(value, name) : undefined;
}
