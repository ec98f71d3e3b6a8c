import { spawn, spawnSync } from "node:child_process";

export interface Finished {
  readonly status: number;
  readonly stdout: Buffer;
  readonly stderr: string;
}

const limitMs = 15_000;

/** Where a program runs, and what it finds in its environment besides what this process has. */
export interface Surroundings {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** Runs a program to its end, at most 15 s long. */
export function run(
  program: string,
  words: readonly string[],
  input: string | Uint8Array = "",
  { cwd, env }: Surroundings = {},
): Promise<Finished> {
  const { promise, resolve, reject } = Promise.withResolvers<Finished>();
  const child = spawn(program, words, {
    cwd,
    env: { ...process.env, ...env },
    timeout: limitMs,
    killSignal: "SIGKILL",
  });
  const stdout: Buffer[] = [];
  let stderr = "";
  child.stdout.on("data", (bytes: Buffer) => stdout.push(bytes));
  child.stderr.on("data", (bytes: Buffer) => {
    stderr += bytes.toString();
  });
  child.on("error", reject);
  child.on("close", (status) => resolve({ status: status ?? -1, stdout: Buffer.concat(stdout), stderr }));
  // A program that ends before it has read everything is judged by what it said.
  child.stdin.on("error", () => undefined);
  child.stdin.end(input);
  return promise;
}

/** The reason to skip a test that needs a program, or false where the program answers. */
export function skipWithout(program: string, words: readonly string[], name = program): string | false {
  const { status } = spawnSync(program, words, { timeout: limitMs });
  return status === 0 ? false : `${name} is not installed`;
}
