import { existsSync } from "node:fs";
import { enableCompileCache } from "node:module";
import { setDefaultHighWaterMark } from "node:stream";
import { fileURLToPath } from "node:url";

// Before anything opens a stream: thousands of streams that hardly ever hold more than a small frame are the rule here.
setDefaultHighWaterMark(false, 4096);
// What is written here is for the owner alone.
process.umask(0o077);
keepCompiled();

const { runCommandLine } = await import("./cli/command-line.ts");
await runCommandLine(process.argv.slice(2));

/** Taking the types out of the sources costs most of a start; in a checkout the result is kept beside its packages. */
function keepCompiled(): void {
  const packages = fileURLToPath(new URL("../node_modules", import.meta.url));
  if (existsSync(packages)) enableCompileCache(`${packages}/.cache/codeagent`);
}
