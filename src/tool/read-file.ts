import type { FileHandle } from "node:fs/promises";
import { type ToolResult, toolFailure } from "../chat/tool-result.ts";
import { characterStart } from "./bounded-text.ts";
import { type LocalFunction, numberArgument, textArgument } from "./local-function.ts";
import { openFileBeneath } from "./workspace.ts";

const chunkBytes = 64 * 1024;
const outputLimitBytes = 250 * 1024;
const lineLimitBytes = 4000;
const lineFeed = 0x0a;

export const readFile: LocalFunction = {
  definition: {
    name: "read_file",
    description:
      "Reads a text file of the workspace, with line numbers. Long files come in part: ask again with start_line. " +
      `Lines longer than ${lineLimitBytes} bytes are cut.`,
    parameters: JSON.stringify({
      type: "object",
      properties: {
        path: { type: "string", minLength: 1, description: "Path from the workspace, for example src/main.ts" },
        start_line: { type: "integer", minimum: 1, description: "First line wanted, counted from 1; default 1" },
        end_line: { type: "integer", minimum: 1, description: "Last line wanted, included; default the last line" },
      },
      required: ["path"],
      additionalProperties: false,
    }),
    source: "local",
    readOnly: true,
    timeoutMs: 30_000,
    returns: "Each line as its number, a tab and the text; notes stand in square brackets.",
  },

  async run(given, { workspace, signal }) {
    const path = textArgument(given, "path") ?? "";
    const startLine = numberArgument(given, "start_line") ?? 1;
    const endLine = numberArgument(given, "end_line") ?? Number.MAX_SAFE_INTEGER;
    if (endLine < startLine) return toolFailure(`end_line ${endLine} lies before start_line ${startLine}`);
    const { handle, stats } = await openFileBeneath(workspace, path);
    try {
      const chunks = chunksOf(handle, signal);
      const first = await chunks.next();
      if (first.done) return { success: true, output: "[the file is empty]" };
      const text = asUtf8(first.value, chunks);
      if (text === undefined) return binaryFile(first.value, stats.size);
      return await readLines(text, startLine, endLine);
    } finally {
      await handle.close();
    }
  },
};

async function* chunksOf(handle: FileHandle, signal: AbortSignal): AsyncGenerator<Uint8Array, void, undefined> {
  for (let position = 0; ; ) {
    signal.throwIfAborted();
    const buffer = Buffer.allocUnsafe(chunkBytes);
    const { bytesRead } = await handle.read(buffer, 0, chunkBytes, position);
    if (bytesRead === 0) return;
    position += bytesRead;
    yield buffer.subarray(0, bytesRead);
  }
}

/** The bytes of a text file as UTF-8 without a byte order mark; undefined for a binary file. */
function asUtf8(first: Uint8Array, rest: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> | undefined {
  if (first[0] === 0xff && first[1] === 0xfe) return decoded("utf-16le", first, rest);
  if (first[0] === 0xfe && first[1] === 0xff) return decoded("utf-16be", first, rest);
  if (first.subarray(0, 8192).includes(0)) return undefined;
  const marked = first[0] === 0xef && first[1] === 0xbb && first[2] === 0xbf;
  return joined(marked ? first.subarray(3) : first, rest);
}

async function* joined(first: Uint8Array, rest: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  yield first;
  yield* rest;
}

async function* decoded(
  encoding: string,
  first: Uint8Array,
  rest: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  const decoder = new TextDecoder(encoding);
  for await (const bytes of joined(first, rest)) yield Buffer.from(decoder.decode(bytes, { stream: true }));
  yield Buffer.from(decoder.decode());
}

/** Reads no further than the last line wanted and keeps no more than the output and the beginning of one line. */
async function readLines(text: AsyncIterable<Uint8Array>, startLine: number, endLine: number): Promise<ToolResult> {
  const lines: string[] = [];
  let outputBytes = 0;
  let line = 1;
  let kept: Uint8Array[] = [];
  let keptBytes = 0;
  let lineBytes = 0;
  let stoppedAt: number | undefined;

  /** Puts the line that has just ended into the output; false when it does not fit any more. */
  const take = (): boolean => {
    if (line >= startLine) {
      const shown = `${line}\t${lineText(Buffer.concat(kept), lineBytes)}`;
      outputBytes += Buffer.byteLength(shown) + 1;
      if (outputBytes > outputLimitBytes) return false;
      lines.push(shown);
    }
    line++;
    kept = [];
    keptBytes = 0;
    lineBytes = 0;
    return true;
  };

  reading: for await (const bytes of text) {
    for (let start = 0; start < bytes.length; ) {
      if (line > endLine) break reading;
      const feed = bytes.indexOf(lineFeed, start);
      const end = feed === -1 ? bytes.length : feed;
      if (line >= startLine && keptBytes <= lineLimitBytes) {
        const piece = bytes.subarray(start, Math.min(end, start + lineLimitBytes + 1 - keptBytes));
        kept.push(piece);
        keptBytes += piece.length;
      }
      lineBytes += end - start;
      start = end + 1;
      if (feed !== -1 && !take()) {
        stoppedAt = line;
        break reading;
      }
    }
  }
  // The text after the last line feed is a line too, unless there is none.
  if (stoppedAt === undefined && lineBytes > 0 && line <= endLine && !take()) stoppedAt = line;
  if (stoppedAt !== undefined) {
    lines.push(`[stopped before line ${stoppedAt}: the output is full; go on with start_line ${stoppedAt}]`);
    return { success: true, output: lines.join("\n"), truncated: true };
  }
  if (lines.length === 0) {
    const count = line - 1;
    if (count === 0) return { success: true, output: "[the file is empty]" };
    return toolFailure(
      `start_line ${startLine} lies beyond the end: the file has ${count} line${count === 1 ? "" : "s"}`,
    );
  }
  return { success: true, output: lines.join("\n") };
}

function lineText(beginning: Buffer, lineBytes: number): string {
  if (lineBytes > lineLimitBytes) {
    const end = characterStart(beginning, lineLimitBytes);
    return `${beginning.toString("utf8", 0, end)} [${lineBytes - end} more bytes in this line]`;
  }
  const text = beginning.toString("utf8");
  return text.endsWith("\r") ? text.slice(0, -1) : text;
}

const signatures: readonly (readonly [string, string])[] = [
  ["89504e470d0a1a0a", "PNG image"],
  ["ffd8ff", "JPEG image"],
  ["474946383", "GIF image"],
  ["52494646", "RIFF media"],
  ["25504446", "PDF document"],
  ["504b0304", "ZIP archive or office document"],
  ["1f8b", "gzip archive"],
  ["fd377a585a00", "xz archive"],
  ["28b52ffd", "zstd archive"],
  ["7f454c46", "ELF program"],
  ["4d5a", "Windows program"],
  ["0061736d", "WebAssembly module"],
  ["53514c69746520666f726d6174203300", "SQLite database"],
];

function binaryFile(first: Uint8Array, sizeBytes: number): ToolResult {
  const start = Buffer.from(first.subarray(0, 16)).toString("hex");
  const kind = signatures.find(([signature]) => start.startsWith(signature))?.[1] ?? "binary data";
  return { success: true, output: `[binary file: ${kind}, ${sizeBytes} bytes; it is not shown]` };
}
