import { randomUUID } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { openPipes } from "../pipes.ts";
import { type SupervisedProcess, spawnSupervised } from "../supervise.ts";
import type { SandboxOptions } from "./create-sandbox.ts";
import { programEnvironment } from "./environment.ts";
import { findProgram } from "./find-program.ts";
import { hiddenPlaces } from "./hidden-places.ts";
import { limitsOf } from "./limits.ts";
import { protectedPlacesIn } from "./placeholders.ts";
import { type ProgramStart, type SandboxState, SandboxUnavailableError } from "./sandbox.ts";

type Manager = typeof import("@anthropic-ai/sandbox-runtime").SandboxManager;

/**
 * The sandbox runtime's walls (@anthropic-ai/sandbox-runtime, a package of its own): the whole file system can be read but
 * for homes and what is hidden, and the network is a proxy that knows which domains are allowed. It has one configuration
 * for a process, which the first sandbox that is used makes.
 */
export class RuntimeSandbox {
  readonly kind = "srt";
  readonly #options: SandboxOptions;
  #ready: Promise<Manager> | undefined;

  constructor(options: SandboxOptions) {
    this.#options = options;
  }

  async start(program: ProgramStart): Promise<SupervisedProcess> {
    const manager = await this.#manager();
    const temporary = await mkdtemp(join(tmpdir(), "codeagent-program-"));
    const folders = program.access.writable.filter((path) => existsSync(path));
    let release = async (): Promise<void> => {};
    const over = async (): Promise<void> => {
      await release();
      void rm(temporary, { recursive: true, force: true, maxRetries: 2 }).catch(() => undefined);
      manager.cleanupAfterCommand();
    };
    try {
      const places = await protectedPlacesIn(folders);
      release = places.release;
      const home = join(temporary, "home");
      await mkdir(home);
      const env = programEnvironment(program.env, this.#options.env, home, temporary);
      const prlimit = findProgram("prlimit", "/usr/bin:/bin");
      const limits = prlimit === undefined ? [] : [prlimit, ...limitsOf({ countsProcesses: true }), "--"];
      // The runtime has its own idea of where temporary files go, in which all its programs meet.
      const own = `export TMPDIR=${quoted(temporary)}; exec`;
      const words = [own, ...[...limits, program.program, ...program.args].map(quoted)].join(" ");
      const wrapped = await manager.wrapWithSandbox(
        words,
        "/bin/bash",
        {
          network: this.#network(program.access.network),
          filesystem: this.#files(program, temporary, places.paths),
        },
        undefined,
        { commandId: randomUUID() },
      );
      const pipes = await openPipes(program.stdin === "pipe");
      const started = spawnSupervised("/bin/bash", ["-c", keepingKernel(wrapped)], {
        cwd: program.cwd,
        env,
        makesNamespace: true,
        ...(program.stdin === undefined ? {} : { stdin: program.stdin }),
        ...(pipes === undefined ? {} : { pipes }),
      });
      const ended = started.ended.finally(over);
      // Who started it may look at its end later.
      ended.catch(() => undefined);
      return { ...started, ended };
    } catch (error) {
      await over();
      throw error;
    }
  }

  async describe(): Promise<SandboxState> {
    const { kind } = this;
    try {
      await this.#manager();
      const { network, domains } = this.#options;
      const reach = network && domains.length > 0 ? `with ${domains.join(", ")} in reach` : "without network";
      return { kind, isReady: true, detail: `the sandbox runtime, ${reach}` };
    } catch (error) {
      return { kind, isReady: false, detail: error instanceof Error ? error.message : String(error) };
    }
  }

  async close(): Promise<void> {
    const manager = await this.#ready?.catch(() => undefined);
    await manager?.reset();
    this.#ready = undefined;
  }

  #manager(): Promise<Manager> {
    this.#ready ??= this.#initialized();
    this.#ready.catch(() => {
      this.#ready = undefined;
    });
    return this.#ready;
  }

  async #initialized(): Promise<Manager> {
    const runtime = await import("@anthropic-ai/sandbox-runtime").catch(() => undefined);
    if (runtime === undefined)
      throw unavailable("its package is missing; run npm install @anthropic-ai/sandbox-runtime");
    const { SandboxManager } = runtime;
    if (!SandboxManager.isSupportedPlatform()) throw unavailable(`it does not know ${process.platform}`);
    const path = this.#options.env["PATH"];
    const missing = (process.platform === "linux" ? ["bwrap", "socat", "rg"] : []).filter(
      (name) => findProgram(name, path) === undefined,
    );
    if (missing.length > 0) {
      throw unavailable(`it needs ${missing.join(" and ")}; install them (apt install bubblewrap socat ripgrep)`);
    }
    const { errors } = SandboxManager.checkDependencies();
    if (errors.length > 0) throw unavailable(errors.join("; "));
    await SandboxManager.initialize({
      network: this.#network(this.#options.network),
      filesystem: { denyRead: [], allowWrite: [], denyWrite: [] },
    });
    return SandboxManager;
  }

  #network(isAllowed: boolean) {
    return { allowedDomains: isAllowed || this.#options.network ? [...this.#options.domains] : [], deniedDomains: [] };
  }

  #files({ access, cwd }: ProgramStart, temporary: string, guarded: readonly string[]) {
    const { dataDir, env, readable, writable, hidden = [] } = this.#options;
    const shown = [...readable, ...access.readable, ...access.writable, ...writable, temporary, cwd];
    const homes = access.readsEverything ? [] : [homedir(), "/root", "/home", tmpdir()];
    const isThere = (path: string) => existsSync(path);
    return {
      denyRead: [...new Set([...homes, ...hiddenPlaces(dataDir, env), ...hidden])].filter(isThere),
      // The runtime has programs of its own that run inside, also where it is installed in somebody's home.
      allowRead: [dirname(process.execPath), ownFolder(), ...shown].filter(isThere),
      allowWrite: [...access.writable, ...writable, temporary].filter(isThere),
      denyWrite: guarded.filter((path) => !writable.includes(path)),
    };
  }
}

const ownProc = " --proc /proc ";

/**
 * The kernel lets root, also one without rights, set what holds for the whole machine in /proc/sys, which the runtime leaves
 * writable.
 * @throws {SandboxUnavailableError} where the command line is another one than we know.
 */
function keepingKernel(wrapped: string): string {
  if (process.getuid?.() !== 0) return wrapped;
  if (!wrapped.includes(ownProc)) throw unavailable("as root this version of it would let programs change the kernel");
  return wrapped.replace(ownProc, `${ownProc}--ro-bind /proc/sys /proc/sys `);
}

/** One word for a shell. */
function quoted(word: string): string {
  return `'${word.replaceAll("'", `'\\''`)}'`;
}

function ownFolder(): string {
  return dirname(dirname(fileURLToPath(import.meta.resolve("@anthropic-ai/sandbox-runtime"))));
}

function unavailable(why: string): SandboxUnavailableError {
  return new SandboxUnavailableError(`the sandbox runtime can't be used: ${why}, or set "sandbox: bwrap"`);
}
