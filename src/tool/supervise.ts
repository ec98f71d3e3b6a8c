import { type StdioOptions, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import type { Readable, Writable } from "node:stream";
import { setTimeout as wait } from "node:timers/promises";
import { closeTheirs, type Pipes } from "./pipes.ts";
import { descendantsOf, processesWith, signalTo } from "./process-tree.ts";

/** Descriptor 3 is the lifeline; files handed to a program begin after it. */
export const firstFileDescriptor = 4;

export interface SupervisedOptions {
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  /** Open files for the program, as its descriptors from `firstFileDescriptor` on. */
  readonly files?: readonly number[];
  /** `pipe`: the caller writes to it and ends it. Default: nothing to read. */
  readonly stdin?: "pipe";
  /** The pipes to use, with one for standard input where that is wanted; they are the program's from now on. */
  readonly pipes?: Pipes;
  /**
   * A variable (`NAME=value`, no two programs alike) the program is given besides `env`. What has it in its environment
   * belongs to the program, also after it has moved to a session of its own and lost its parent.
   */
  readonly mark?: string;
  /** The program makes a namespace of process ids for what it runs; to stop it is to stop the first process therein. */
  readonly makesNamespace?: boolean;
}

export interface SupervisedProcess {
  /** Of the process the program descends from. */
  readonly pid?: number;
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
 * the program's whole group is killed, and what bears its mark. The shell outlives the program to collect what is left of
 * it, so that nothing is left to a process 1 that collects nothing, as in many containers. What a shell starts in the
 * background has no input of the shell's, so that comes by way of another descriptor.
 */
const watch = (hasInput: boolean) => `umask 077
${hasInput ? "exec 4<&0 </dev/null" : ""}
[ -z "$mark" ] || export "$mark"
"$@" ${hasInput ? "<&4 4<&- " : ""}3<&- & p=$!
${hasInput ? "exec 4<&-" : ""}
[ -z "$mark" ] || unset "\${mark%%=*}"
rest() {
  kill -KILL "$target$p"
  [ -n "$mark" ] || return
  for pass in 1 2 3 4 5 6 7 8 9; do
    found=$(PATH=/usr/bin:/bin grep -lsF -e "$mark" /proc/[0-9]*/environ)
    [ -n "$found" ] || return
    for each in $found; do each=\${each#/proc/}; kill -KILL "\${each%/environ}"; done
  done
}
(while read -r _ <&3; do :; done; rest) >/dev/null 2>&1 & w=$!
exec >/dev/null 2>&1
wait $p; c=$?
rest
kill -KILL $w; wait $w
exit $c`;
const watchWithoutInput = watch(false);
const watchWithInput = watch(true);

// Without a program for sessions of their own, only the program itself is killed.
const setsid =
  process.platform === "linux" ? ["/usr/bin/setsid", "/bin/setsid"].find((path) => existsSync(path)) : undefined;
/** How long those who hold the ends of the pipes may be silent once the program has ended. */
const silenceMs = 250;
/** How long the maker of a namespace gets to end when what was in it is gone. */
const makerEndsMs = 300;

/**
 * Starts a program that does not outlive this process: it and all it starts, but for what moves to a session of its own
 * and bears no mark, are killed when this process ends, also by SIGKILL, and when the program ends. The caller has to read
 * its output and to call `stop`.
 */
export function spawnSupervised(
  program: string,
  args: readonly string[],
  options: SupervisedOptions,
): SupervisedProcess {
  const { cwd, env, files = [], stdin, pipes, mark = "", makesNamespace = false } = options;
  const [own, target] = setsid === undefined ? [[], ""] : [[setsid], "-"];
  const script = `target=${target} mark='${mark}'\n${stdin === "pipe" ? watchWithInput : watchWithoutInput}`;
  const standard: readonly (number | "ignore" | "pipe")[] = pipes?.theirs ?? [stdin ?? "ignore", "pipe", "pipe"];
  const stdio: StdioOptions = [...standard, "pipe", ...files];
  const child = spawn("/bin/sh", ["-c", script, "sh", ...own, program, ...args], {
    cwd,
    env: { ...env },
    stdio,
    // Its own group, so that what a terminal sends to us does not reach it.
    detached: true,
  });
  if (pipes !== undefined) closeTheirs(pipes);
  const stdout = pipes?.stdout ?? child.stdout;
  const stderr = pipes?.stderr ?? child.stderr;
  const input = pipes?.stdin ?? child.stdin;
  if (stdout === null || stderr === null) throw new Error("a program was started without pipes");
  const lifeline = child.stdio[3];
  // It breaks when the shell is gone, which `ended` tells.
  lifeline?.on("error", () => undefined);
  let hasExited = false;
  const exited = new Promise<number>((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code) => resolve(code ?? 137));
  });
  const closed = Promise.all([stdout, stderr].map(closing));
  const ended = exited.then(
    async (code) => {
      hasExited = true;
      void closeWhenSilent([stdout, stderr]);
      await closed;
      return code;
    },
    (error: unknown) => {
      hasExited = true;
      for (const stream of [stdout, stderr, input]) stream?.destroy();
      throw error;
    },
  );
  const over = ended.then(nothing, nothing);
  /** Sends a signal to the program and all it started, or to the first process of the namespace it made. */
  const signalAll = async (signal: "SIGTERM" | "SIGKILL"): Promise<void> => {
    const shell = child.pid;
    if (shell === undefined) return;
    const found = await descendantsOf(shell);
    const depth = Math.min(...found.map(({ pids }) => pids.length));
    const inside = makesNamespace ? found.filter(({ pids }) => pids.length > depth) : found;
    const chosen = signal === "SIGKILL" ? inside.filter(({ pids }) => pids.at(-1) === 1) : inside;
    const marked = mark === "" || makesNamespace ? [] : await processesWith(mark);
    // The shell's own second half is in its session.
    const pids = chosen.filter(({ session }) => session !== shell).map(({ pid }) => pid);
    if (!hasExited) for (const pid of new Set([...pids, ...marked])) signalTo(pid, signal);
  };
  return {
    ...(child.pid === undefined ? {} : { pid: child.pid }),
    ...(input === null ? {} : { stdin: input }),
    stdout,
    stderr,
    ended,
    async stop(graceMs = 0) {
      stdout.resume();
      stderr.resume();
      if (graceMs > 0 && !hasExited) {
        void signalAll("SIGTERM");
        await overWithin(over, graceMs);
      }
      if (makesNamespace && !hasExited) {
        await signalAll("SIGKILL");
        await overWithin(over, makerEndsMs);
      }
      lifeline?.destroy();
      await over;
    },
  };
}

function nothing(): void {}

function closing(stream: Readable): Promise<void> {
  return new Promise((resolve) => {
    stream.once("close", resolve);
    // A broken pipe is an end too.
    stream.on("error", nothing);
    if (stream.closed) resolve();
  });
}

async function overWithin(over: Promise<void>, limitMs: number): Promise<void> {
  const limit = new AbortController();
  await Promise.race([over, wait(limitMs, undefined, { signal: limit.signal }).catch(nothing)]);
  limit.abort();
}

/** Closes our ends of the pipes of a program that has ended, when somebody else still holds the others and is silent. */
async function closeWhenSilent(streams: readonly Readable[]): Promise<void> {
  const read = () => streams.map((stream) => ("bytesRead" in stream ? stream.bytesRead : 0)).join();
  for (let before = ""; ; before = read()) {
    await wait(silenceMs, undefined, { ref: false });
    if (streams.every((stream) => stream.closed)) return;
    const isSilent = read() === before && streams.every((stream) => stream.readableLength === 0);
    if (!isSilent) continue;
    for (const stream of streams) stream.destroy();
    return;
  }
}
