import { shownPath, WorkspacePathError } from "./workspace.ts";

/** The text of a file that is to be edited. */
export interface FileText {
  /** Without the byte order mark; line ends as they are. */
  readonly text: string;
  readonly hasMark: boolean;
}

const mark = "\ufeff";

/**
 * Reads bytes as UTF-8, such that `bytesOfText` gives the same bytes.
 * @throws {WorkspacePathError} with the problem `not-text`.
 */
export function textOfBytes(bytes: Buffer, path: string): FileText {
  const refuse = (what: string) =>
    new WorkspacePathError("not-text", `${shownPath(path)} ${what}; only text in UTF-8 can be edited`);
  const start = bytes.subarray(0, 2).toString("hex");
  if (start === "fffe" || start === "feff") throw refuse("is text in UTF-16");
  if (bytes.includes(0)) throw refuse("is a binary file");
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw refuse("is not in UTF-8");
  }
  const hasMark = text.startsWith(mark);
  return { text: hasMark ? text.slice(1) : text, hasMark };
}

export function bytesOfText({ text, hasMark }: FileText): Buffer {
  return Buffer.from(hasMark ? mark + text : text);
}

/** The line end most lines of a text have; of a text without any the one of Unix. */
export function lineEndOf(text: string): "\n" | "\r\n" {
  let windows = 0;
  let all = 0;
  for (let at = text.indexOf("\n"); at !== -1; at = text.indexOf("\n", at + 1)) {
    all++;
    if (text.charAt(at - 1) === "\r") windows++;
  }
  return windows * 2 > all ? "\r\n" : "\n";
}

/** How many lines a text has; what follows the last line end is one too, unless it is empty. */
export function lineCount(text: string): number {
  let count = text === "" || text.endsWith("\n") ? 0 : 1;
  for (let at = text.indexOf("\n"); at !== -1; at = text.indexOf("\n", at + 1)) count++;
  return count;
}
