import { build } from "esbuild";

/** A program (TypeScript or JavaScript that imports by name) with all it imports, as one script for what is no Node.js. */
export async function bundle(source: string, imports: Readonly<Record<string, string>> = {}): Promise<string> {
  const { outputFiles } = await build({
    stdin: { contents: source, resolveDir: import.meta.dirname, loader: "ts" },
    bundle: true,
    write: false,
    format: "iife",
    // What the package's exports give to everything but Node.js.
    conditions: ["browser", "default"],
    platform: "browser",
    target: "es2022",
    alias: { codeagent: new URL("../../sdk/browser.ts", import.meta.url).pathname, ...imports },
    logLevel: "silent",
  });
  const [script] = outputFiles;
  if (script === undefined) throw new Error("esbuild made nothing");
  return script.text;
}
