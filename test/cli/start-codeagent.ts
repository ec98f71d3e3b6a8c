import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";

export const launcher = fileURLToPath(new URL("../../bin/codeagent.js", import.meta.url));
const longestMs = 30_000;

/** The Node that runs the tests, and one too old to run the sources, where this machine has one. */
export const nodes: readonly { readonly name: string; readonly path: string | undefined }[] = [
  { name: "the pinned Node", path: process.execPath },
  { name: "an old Node", path: findOldNode() },
];

function findOldNode(): string | undefined {
  const folders = [...(process.env["PATH"] ?? "").split(delimiter), "/usr/local/bin", "/usr/bin"];
  return folders
    .filter((folder) => !folder.includes("node_modules"))
    .map((folder) => join(folder, "node"))
    .find((path) => {
      if (!existsSync(path)) return false;
      const version = execFileSync(path, ["--version"], { encoding: "utf8", timeout: 10_000 });
      return Number(/^v(\d+)/.exec(version)?.[1] ?? 99) < 24;
    });
}

/** A folder that is gone after the test, for data, home and scripts. */
export function temporaryFolder(context: TestContext): string {
  const folder = mkdtempSync(join(tmpdir(), "codeagent-cli-"));
  context.after(() => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }));
  return folder;
}

export interface Started {
  readonly child: ChildProcess;
  /** What it has written so far. */
  readonly stdout: () => string;
  readonly stderr: () => string;
  /** Waits until what it wrote fits; fails when it ends before that. */
  seen(stream: "stdout" | "stderr", pattern: RegExp): Promise<RegExpExecArray>;
  /** How it ended: its exit code, or the signal. */
  readonly ended: Promise<number | NodeJS.Signals | null>;
  /** Whether any process it started is still there. */
  hasLeftProcesses(): boolean;
}

export interface StartOptions {
  /** The test's folder: working directory, home and data directory. */
  readonly folder: string;
  readonly node?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** A script for the scripted provider, which is then the default model. */
  readonly script?: string;
  readonly stdin?: string;
  /** Another program than the launcher. */
  readonly program?: string;
}

/** Starts `codeagent`, in a process group of its own that is gone after the test. */
export function start(context: TestContext, words: readonly string[], options: StartOptions): Started {
  const { folder, node = process.execPath, program = launcher, script, stdin = "" } = options;
  const scripted: Record<string, string> = {};
  if (script !== undefined) {
    const file = join(folder, "script.yaml");
    writeFileSync(file, script);
    Object.assign(scripted, { CODEAGENT_SCRIPTED_FILE: file, CODEAGENT_MODEL: "scripted/test" });
  }
  const child = spawn(node, [program, ...words], {
    cwd: folder,
    detached: true,
    env: {
      PATH: process.env["PATH"],
      HOME: folder,
      TMPDIR: folder,
      CODEAGENT_DATA_DIR: join(folder, "data"),
      ...scripted,
      ...options.env,
    },
    stdio: ["pipe", "pipe", "pipe"],
  });
  const { pid } = child;
  if (pid === undefined) throw new Error(`${node} can't be started`);
  const hasLeftProcesses = () => signalGroup(pid, 0);
  const limit = setTimeout(() => signalGroup(pid, "SIGKILL"), longestMs);
  const written = { stdout: "", stderr: "" };
  const news = new EventTarget();
  for (const stream of ["stdout", "stderr"] as const) {
    child[stream].setEncoding("utf8").on("data", (text: string) => {
      written[stream] += text;
      news.dispatchEvent(new Event("news"));
    });
  }
  child.stdin.on("error", () => {}); // it may end without reading
  child.stdin.end(stdin);
  let isOver = false;
  const ended = once(child, "close").then(() => {
    clearTimeout(limit);
    isOver = true;
    news.dispatchEvent(new Event("news"));
    return child.exitCode ?? child.signalCode;
  });
  context.after(async () => {
    signalGroup(pid, "SIGKILL");
    await ended;
  });
  return {
    child,
    stdout: () => written.stdout,
    stderr: () => written.stderr,
    ended,
    hasLeftProcesses,
    async seen(stream, pattern) {
      for (;;) {
        const found = pattern.exec(written[stream]);
        if (found !== null) return found;
        if (isOver) throw new Error(`ended without ${pattern}: ${JSON.stringify(written)}`);
        await once(news, "news");
      }
    },
  };
}

/** Runs a command to its end. */
export async function runToEnd(context: TestContext, words: readonly string[], options: StartOptions) {
  const started = start(context, words, options);
  const exit = await started.ended;
  return { exit, stdout: started.stdout(), stderr: started.stderr() };
}

/** Starts `codeagent serve` on a free port and waits until it listens. */
export async function startServe(context: TestContext, words: readonly string[], options: StartOptions) {
  const started = start(context, ["serve", "--port", "0", ...words], options);
  const [, url = ""] = await started.seen("stdout", /listening on (http:\S+)\n/);
  return { ...started, url };
}

/** Says whether there was a process to tell. */
function signalGroup(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    process.kill(-pid, signal);
    return true;
  } catch {
    return false;
  }
}
