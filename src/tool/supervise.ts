import { spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";

/** Descriptor 3 is the lifeline; files handed to a program begin after it. */
export const firstFileDescriptor = 4;

export interface SupervisedOptions {
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  /** Open files for the program, as its descriptors from `firstFileDescriptor` on. */
  readonly files?: readonly number[];
}

export interface SupervisedProcess {
  /** Only where it was asked for. Its writer ends it and listens to its errors. */
  readonly stdin?: Writable;
  readonly stdout: Readable;
  readonly stderr: Readable;
  /**
   * Resolves with the exit code when the program has ended and its output is read; of one that was killed it is 128 and
   * the number of the signal. Rejects when nothing could be started.
   */
  readonly ended: Promise<number>;
  /**
   * Kills the program and what it started; resolves as soon as it is gone. Harmless when it is.
   * @param graceMs asks all of it to end (SIGTERM) and kills what is left after so many milliseconds; default 0: at once.
   */
  stop(graceMs?: number): Promise<void>;
}

/**
 * A shell stands between: it holds the read end of a pipe whose other end is ours and closes with us, however we die. Then
 * the program's whole group is killed. The shell outlives the program to collect what is left of it, so that nothing is
 * left to a process 1 that collects nothing, as in many containers.
 */
const watch = `"$@" 3<&- & p=$!
(while read -r _ <&3; do :; done; kill -KILL "$target$p") >/dev/null 2>&1 & w=$!
exec >/dev/null 2>&1
wait $p; c=$?
kill -KILL $w; wait $w
exit $c`;

/**
 * Starts a program that does not outlive this process: it and all it starts, but for what moves to a session of its own,
 * are killed when this process ends, also by SIGKILL. It has no standard input. The caller has to read its output and
 * to call `stop`.
 */
export function spawnSupervised(
  program: string,
  args: readonly string[],
  { cwd, env, files = [] }: SupervisedOptions,
): SupervisedProcess {
  // Without a program for sessions of their own, only the program itself is killed.
  const [own, target] = process.platform === "linux" ? [["setsid"], "-"] : [[], ""];
  const child = spawn("/bin/sh", ["-c", `target=${target}\n${watch}`, "sh", ...own, program, ...args], {
    cwd,
    env: { ...env },
    stdio: ["ignore", "pipe", "pipe", "pipe", ...files],
    // Its own group, so that what a terminal sends to us does not reach it.
    detached: true,
  });
  const { stdout, stderr } = child;
  if (stdout === null || stderr === null) throw new Error("a program was started without pipes");
  const lifeline = child.stdio[3];
  // It breaks when the shell is gone, which `ended` tells.
  lifeline?.on("error", () => undefined);
  const ended = new Promise<number>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code, signal) => resolve(code ?? (signal === null ? 1 : 137)));
  });
  ended.catch(() => undefined);
  return {
    stdout,
    stderr,
    ended,
    async stop() {
      lifeline?.destroy();
      stdout.resume();
      stderr.resume();
      await ended.catch(() => undefined);
    },
  };
}
