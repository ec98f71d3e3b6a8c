import { mkdirSync, mkdtempSync, realpathSync, rmSync, writeFileSync } from "node:fs";
import { readdir, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { type ProgramResult, type ProgramRun, runProgram } from "../../src/tool/run-program.ts";
import { createSandbox, type SandboxOptions } from "../../src/tool/sandbox/create-sandbox.ts";
import type { ProgramAccess, ServerSandbox } from "../../src/tool/sandbox/sandbox.ts";

/** A sandbox over a folder of its own that has a workspace, a data directory and a home with secrets. */
export interface SandboxWorkspace {
  readonly base: string;
  readonly workspace: string;
  readonly dataDir: string;
  readonly home: string;
  readonly sandbox: ServerSandbox;
  /** Runs a command line with bash. */
  run(command: string, options?: RunOptions): Promise<ProgramResult>;
}

export interface RunOptions extends Partial<Omit<ProgramRun, "access">> {
  readonly access?: Partial<ProgramAccess>;
}

export function sandboxWorkspace(
  context: Pick<TestContext, "after">,
  options: Partial<SandboxOptions> & { readonly dataDirIn?: "workspace" } = {},
): SandboxWorkspace {
  const base = realpathSync(mkdtempSync(join(tmpdir(), "codeagent-sandbox-")));
  const workspace = join(base, "ws");
  const dataDir = join(options.dataDirIn === "workspace" ? workspace : base, "data");
  const home = join(base, "home");
  for (const folder of [workspace, dataDir, join(home, ".ssh"), join(workspace, ".git/hooks")])
    mkdirSync(folder, { recursive: true });
  writeFileSync(join(dataDir, "secret"), "SECRET of the server\n");
  writeFileSync(join(home, ".ssh/key"), "SECRET of the user\n");
  writeFileSync(join(base, "outside"), "SECRET outside\n");
  writeFileSync(join(workspace, ".git/HEAD"), "ref: refs/heads/main\n");
  const sandbox = createSandbox({
    kind: "bwrap",
    dataDir,
    readable: [],
    writable: [],
    network: false,
    domains: [],
    env: { PATH: process.env["PATH"], HOME: home, OPENAI_API_KEY: "SECRET in the environment" },
    ...options,
  });
  context.after(async () => {
    await sandbox.close();
    rmSync(base, { recursive: true, force: true });
  });
  return {
    base,
    workspace,
    dataDir,
    home,
    sandbox,
    run: (command, { access, ...given } = {}) =>
      runProgram(sandbox, {
        program: "bash",
        args: ["-c", command],
        cwd: workspace,
        env: {},
        access: { writable: [workspace], readable: [], network: false, ...access },
        timeoutMs: 20_000,
        signal: new AbortController().signal,
        ...given,
      }),
  };
}

/** How many processes that are not yet killed have this text among their arguments, in whatever namespace. */
export async function countProcesses(text: string): Promise<number> {
  const ids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const found = await Promise.all(
    ids.map(async (id) => {
      const words = await readFile(`/proc/${id}/cmdline`, "latin1").catch(() => "");
      // Not those that only have it in a script they run.
      return words.split("\0").includes(text);
    }),
  );
  return found.filter(Boolean).length;
}

/** Waits until so many are there; the test's own time limit ends it. */
export async function untilProcesses(text: string, count: number): Promise<void> {
  while ((await countProcesses(text)) !== count) await wait(10);
}
