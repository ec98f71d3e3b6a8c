import { toolFailure } from "../chat/tool-result.ts";
import { oneLine } from "./bounded-text.ts";
import { type LocalFunction, textArgument } from "./local-function.ts";
import { pathGlob } from "./path-glob.ts";
import { walkFiles } from "./walk-files.ts";
import { TooSlow } from "./within-time.ts";

const shownFiles = 2000;

export const listFiles: LocalFunction = {
  definition: {
    name: "list_files",
    description:
      "Lists files of the workspace by a glob, sorted, without .git and without what .gitignore leaves out. " +
      `At most ${shownFiles} are shown.`,
    parameters: JSON.stringify({
      type: "object",
      properties: {
        pattern: {
          type: "string",
          description: "Glob from the workspace, for example src/**/*.ts or *.md (any directory); default all files",
        },
      },
      additionalProperties: false,
    }),
    source: "local",
    readOnly: true,
    timeoutMs: 30_000,
    returns: "One path from the workspace a line; notes stand in square brackets.",
  },

  async run(given, { workspace, signal }) {
    const pattern = textArgument(given, "pattern") ?? "";
    const paths: string[] = [];
    const notes: string[] = [];
    try {
      const choose = pattern === "" ? undefined : pathGlob(pattern);
      for await (const walked of walkFiles(workspace, { signal })) {
        if (walked.type === "note") {
          notes.push(`[${walked.text}]`);
          continue;
        }
        const base = walked.directory.path === "." ? "" : `${walked.directory.path}/`;
        const found = walked.names.map((name) => base + name);
        for (const path of choose === undefined ? found : choose(found)) paths.push(path);
      }
    } catch (error) {
      if (error instanceof RangeError) return toolFailure(error.message);
      if (error instanceof TooSlow) return toolFailure(`the pattern "${pattern}" takes too long to match; simplify it`);
      throw error;
    }
    if (paths.length === 0) notes.unshift(pattern === "" ? "[there are no files]" : `[no file matches ${pattern}]`);
    const rest = paths.length - shownFiles;
    if (rest > 0) notes.unshift(`[${rest} more files are not shown; use a narrower pattern]`);
    const shown = paths.sort(byCodeUnit).slice(0, shownFiles).map(oneLine);
    return { success: true, output: [...shown, ...notes].join("\n"), ...(rest > 0 ? { truncated: true } : {}) };
  },
};

function byCodeUnit(left: string, right: string): number {
  return left < right ? -1 : left > right ? 1 : 0;
}
