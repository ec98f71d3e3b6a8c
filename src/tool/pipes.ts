import { execFile } from "node:child_process";
import { closeSync, constants, openSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

/** Both ends of the pipes to a program. Whoever starts it hands over the descriptors and closes them here. */
export interface Pipes {
  readonly stdin?: Socket;
  readonly stdout: Socket;
  readonly stderr: Socket;
  /** The program's ends: standard input, output and error. */
  readonly theirs: readonly [number | "ignore", number, number];
}

const { O_RDONLY, O_WRONLY, O_NONBLOCK } = constants;
const makePipes = promisify(execFile);

/**
 * Opens pipes for a program. What Node.js itself calls pipes are sockets, which nobody can open by name: a script that
 * writes to `/dev/stderr` or reads `/dev/stdin` would fail.
 * @returns nothing where there are no named pipes.
 */
export async function openPipes(hasInput: boolean): Promise<Pipes | undefined> {
  const folder = await mkdtemp(join(tmpdir(), "codeagent-pipes-"));
  const opened: number[] = [];
  const openAs = (name: string, flags: number): number => {
    const descriptor = openSync(join(folder, name), flags);
    opened.push(descriptor);
    return descriptor;
  };
  try {
    const names = hasInput ? ["out", "err", "in"] : ["out", "err"];
    await makePipes("mkfifo", ["-m", "600", ...names.map((name) => join(folder, name))], { timeout: 5000 });
    // Not waiting is a property of an end, so each end of theirs is opened apart from ours, once its other end is there.
    const output = (name: string) => {
      const ours = openAs(name, O_RDONLY | O_NONBLOCK);
      return { ours, theirs: openAs(name, O_WRONLY) };
    };
    const out = output("out");
    const err = output("err");
    const input = hasInput ? openInput() : undefined;
    return {
      ...(input === undefined ? {} : { stdin: new Socket({ fd: input.ours, readable: false, writable: true }) }),
      stdout: new Socket({ fd: out.ours, readable: true, writable: false }),
      stderr: new Socket({ fd: err.ours, readable: true, writable: false }),
      theirs: [input?.theirs ?? "ignore", out.theirs, err.theirs],
    };
  } catch {
    for (const descriptor of opened) closeSync(descriptor);
    return undefined;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }

  function openInput() {
    const first = openSync(join(folder, "in"), O_RDONLY | O_NONBLOCK);
    try {
      const ours = openAs("in", O_WRONLY | O_NONBLOCK);
      return { ours, theirs: openAs("in", O_RDONLY) };
    } finally {
      closeSync(first);
    }
  }
}

/** Closes the program's ends, which it has copies of. */
export function closeTheirs({ theirs }: Pipes): void {
  for (const end of theirs) if (typeof end === "number") closeSync(end);
}
