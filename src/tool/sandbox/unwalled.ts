import { randomUUID } from "node:crypto";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openPipes } from "../pipes.ts";
import { type SupervisedProcess, spawnSupervised } from "../supervise.ts";
import type { SandboxOptions } from "./create-sandbox.ts";
import { programEnvironment } from "./environment.ts";
import { findProgram } from "./find-program.ts";
import { limitsOf } from "./limits.ts";
import type { ProgramStart, SandboxState } from "./sandbox.ts";

/** No walls: a program may do what this process may. Its environment, its limits and its end are the same as within some. */
export class UnwalledSandbox {
  readonly kind = "none";
  readonly #options: SandboxOptions;

  constructor(options: SandboxOptions) {
    this.#options = options;
  }

  async start({ program, args, cwd, env, stdin }: ProgramStart): Promise<SupervisedProcess> {
    const temporary = await mkdtemp(join(tmpdir(), "codeagent-program-"));
    const removeFolder = () => rm(temporary, { recursive: true, force: true, maxRetries: 2 }).catch(() => undefined);
    try {
      const home = join(temporary, "home");
      await mkdir(home);
      const environment = programEnvironment(env, this.#options.env, home, temporary);
      const prlimit = findProgram("prlimit", "/usr/bin:/bin");
      // Processes are not counted: without walls those of this user count together, this server's own among them.
      const limits = prlimit === undefined ? [] : [prlimit, ...limitsOf({ countsProcesses: false }), "--"];
      const [first = program, ...rest] = [...limits, program, ...args];
      const pipes = await openPipes(stdin === "pipe");
      const started = spawnSupervised(first, rest, {
        cwd,
        env: environment,
        mark: `CODEAGENT_PROGRAM=${randomUUID()}`,
        ...(stdin === undefined ? {} : { stdin }),
        ...(pipes === undefined ? {} : { pipes }),
      });
      started.ended.then(removeFolder, removeFolder);
      return started;
    } catch (error) {
      await removeFolder();
      throw error;
    }
  }

  async describe(): Promise<SandboxState> {
    return { kind: this.kind, isReady: true, detail: "none: programs may do whatever this server may" };
  }

  async close(): Promise<void> {}
}
