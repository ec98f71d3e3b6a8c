import { execFile } from "node:child_process";
import { closeSync, constants, openSync, rmSync, unlinkSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
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
const madeAtOnce = 32;

/** Named pipes nobody has used yet; making them takes a program of its own, so many are made at once. */
const stock: string[] = [];
let folder: string | undefined;
let named = 0;
let filling: Promise<void> | undefined;

/**
 * Opens pipes for a program. What Node.js itself calls pipes are sockets, which nobody can open by name: a script that
 * writes to `/dev/stderr` or reads `/dev/stdin` would fail.
 * @returns nothing where there are no named pipes.
 */
export async function openPipes(hasInput: boolean): Promise<Pipes | undefined> {
  const opened: number[] = [];
  const openAs = (path: string, flags: number): number => {
    const descriptor = openSync(path, flags);
    opened.push(descriptor);
    return descriptor;
  };
  // Not waiting is a property of an end, so each end of theirs is opened apart from ours, once its other end is there.
  const openOutput = (path: string) => {
    const ours = openAs(path, O_RDONLY | O_NONBLOCK);
    return { ours, theirs: openAs(path, O_WRONLY) };
  };
  const openInput = (path: string) => {
    const first = openSync(path, O_RDONLY | O_NONBLOCK);
    try {
      const ours = openAs(path, O_WRONLY | O_NONBLOCK);
      return { ours, theirs: openAs(path, O_RDONLY) };
    } finally {
      closeSync(first);
    }
  };
  try {
    const [outPath = "", errPath = "", inPath = ""] = await fromStock(hasInput ? 3 : 2);
    const out = openOutput(outPath);
    const err = openOutput(errPath);
    const input = hasInput ? openInput(inPath) : undefined;
    // From here on each is between the two who have it open.
    for (const path of [outPath, errPath, ...(hasInput ? [inPath] : [])]) unlinkSync(path);
    return {
      ...(input === undefined ? {} : { stdin: new Socket({ fd: input.ours, readable: false, writable: true }) }),
      stdout: new Socket({ fd: out.ours, readable: true, writable: false }),
      stderr: new Socket({ fd: err.ours, readable: true, writable: false }),
      theirs: [input?.theirs ?? "ignore", out.theirs, err.theirs],
    };
  } catch {
    for (const descriptor of opened) closeSync(descriptor);
    // Somebody may have tidied up the folder.
    stock.length = 0;
    folder = undefined;
    return undefined;
  }
}

/** Closes the program's ends, which it has copies of. */
export function closeTheirs({ theirs }: Pipes): void {
  for (const end of theirs) if (typeof end === "number") closeSync(end);
}

async function fromStock(count: number): Promise<string[]> {
  while (stock.length < count) {
    filling ??= fillStock().finally(() => {
      filling = undefined;
    });
    await filling;
  }
  return stock.splice(0, count);
}

async function fillStock(): Promise<void> {
  folder ??= await ownFolder();
  const into = folder;
  const paths = Array.from({ length: madeAtOnce }, () => join(into, String(named++)));
  await makePipes("mkfifo", ["-m", "600", ...paths], { timeout: 5000 });
  stock.push(...paths);
}

async function ownFolder(): Promise<string> {
  const made = await mkdtemp(join(tmpdir(), "codeagent-pipes-"));
  process.once("exit", () => rmSync(made, { recursive: true, force: true }));
  return made;
}
