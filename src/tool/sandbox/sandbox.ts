import type { SupervisedProcess } from "../supervise.ts";

/** `bwrap`: our own bubblewrap command line; `srt`: the sandbox runtime; `none`: only because the configuration says so. */
export const sandboxKinds = ["bwrap", "srt", "none"] as const;
export type SandboxKind = (typeof sandboxKinds)[number];

/** What a program may touch. Paths are absolute and without links; what is not there is passed over. */
export interface ProgramAccess {
  /** May be changed: the workspace, mostly. Version control and this server's own files in it stay read-only. */
  readonly writable: readonly string[];
  /** May be read besides the system's own programs and libraries: the folder of a skill, for example. */
  readonly readable: readonly string[];
  /** Everything may be read but what is hidden; for programs an operator has configured. */
  readonly readsEverything?: boolean;
  readonly network: boolean;
}

/** A program to start. */
export interface ProgramStart {
  /** An absolute path, or a name looked up in the PATH of the environment a child is given. No shell reads it. */
  readonly program: string;
  readonly args: readonly string[];
  /** Absolute path. */
  readonly cwd: string;
  /** Added to the few variables every child is given. */
  readonly env: Readonly<Record<string, string>>;
  readonly access: ProgramAccess;
  /** `pipe`: the caller writes to it and ends it; default: nothing to read. */
  readonly stdin?: "pipe";
}

/** Walls around programs that models, skills and MCP servers have us run. */
export interface Sandbox {
  readonly kind: SandboxKind;
  /**
   * Starts a program. It and everything it starts end with `stop`, and with this process however that dies.
   * @throws {SandboxUnavailableError} where walls are wanted and can't be had. {ProgramRefusedError} for what no program
   * may be given.
   */
  start(program: ProgramStart): Promise<SupervisedProcess>;
}

/** What is in force, for operators and callers. */
export interface SandboxState {
  readonly kind: SandboxKind;
  /** Programs can be started. */
  readonly isReady: boolean;
  /** What that means, or what is missing and what to do; one sentence. */
  readonly detail: string;
}

/** The sandbox of a server. Its maker closes it. */
export interface ServerSandbox extends Sandbox {
  /** Tries once, by really running a program, and tells how that went; within 10 seconds. */
  describe(): Promise<SandboxState>;
  close(): Promise<void>;
}

/** What was asked for is given to no program: a variable that makes programs load code. The message is for people. */
export class ProgramRefusedError extends Error {
  override readonly name = "ProgramRefusedError";
}

/** There are no walls, and the configuration does not say that programs may run without. The message is for people. */
export class SandboxUnavailableError extends Error {
  override readonly name = "SandboxUnavailableError";
}
