import type { ToolResult } from "../chat/tool-result.ts";
import { oneLine } from "./bounded-text.ts";
import { changeDiff, diffMetadata } from "./change-diff.ts";
import { lineCount, textOfBytes } from "./file-text.ts";
import { type LocalFunction, textArgument } from "./local-function.ts";
import { type FoundFile, readWhole, replaceFile } from "./replace-file.ts";
import { findPlace, makeFolders, WorkspacePathError } from "./workspace.ts";

export const writeFile: LocalFunction = {
  definition: {
    name: "write_file",
    description:
      "Writes a text file of the workspace: makes a new one, with the folders on its path, or replaces all of one that is " +
      "there. To change a part of a file use edit_file or apply_patch: they are shorter and lose nothing.",
    parameters: JSON.stringify({
      type: "object",
      properties: {
        path: { type: "string", minLength: 1, description: "Path from the workspace, for example src/main.ts" },
        content: { type: "string", description: "The whole text of the file, written as it is given, in UTF-8" },
      },
      required: ["path", "content"],
      additionalProperties: false,
    }),
    source: "local",
    title: "Write file",
    readOnly: false,
    edits: true,
    timeoutMs: 30_000,
    returns: "Whether the file was created or replaced, and its size.",
  },

  async run(given, { workspace, signal }): Promise<ToolResult> {
    // What is no character cannot be written in UTF-8.
    const content = (textArgument(given, "content") ?? "").toWellFormed();
    let place = await findPlace(workspace, textArgument(given, "path") ?? "");
    try {
      const before = await readWhole(place);
      signal.throwIfAborted();
      place = await makeFolders(place);
      const bytes = Buffer.from(content);
      await replaceFile(place, bytes, before?.version ?? "nothing", before);
      const lines = lineCount(content);
      const size = `${bytes.length} byte${bytes.length === 1 ? "" : "s"}, ${lines} line${lines === 1 ? "" : "s"}`;
      return {
        success: true,
        output: `${before === undefined ? "created" : "replaced"} ${oneLine(place.path)}: ${size}`,
        metadata: { path: place.path, ...diffOf(place.path, before, content) },
      };
    } finally {
      await place.directory.handle.close();
    }
  },
};

function diffOf(path: string, before: FoundFile | undefined, after: string): NonNullable<ToolResult["metadata"]> {
  if (before === undefined) return diffMetadata([changeDiff({ path, after })]);
  try {
    return diffMetadata([changeDiff({ path, before: textOfBytes(before.bytes, path).text, after })]);
  } catch (error) {
    // What was there before was no text.
    if (error instanceof WorkspacePathError) return {};
    throw error;
  }
}
