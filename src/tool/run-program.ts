import type { Readable } from "node:stream";
import { characterStart } from "./bounded-text.ts";
import { HeadAndTail } from "./head-and-tail.ts";
import type { ProgramStart, Sandbox } from "./sandbox/sandbox.ts";
import type { SupervisedProcess } from "./supervise.ts";

export interface ProgramRun extends Omit<ProgramStart, "stdin"> {
  /** How long it may take; waiting for its turn counts. */
  readonly timeoutMs: number;
  /** Stops it. */
  readonly signal: AbortSignal;
  /** What it can read; default: nothing. It need not read it. */
  readonly stdinText?: string;
  /** How much output is kept, in bytes of UTF-8: its first three quarters and its last quarter; default 256 KiB. */
  readonly outputLimitBytes?: number;
  /**
   * Takes output while the program runs, in whole characters, no more of it than the head that is kept. It is called
   * before the result is there, never after.
   */
  onOutput?(stream: "stdout" | "stderr", text: string): void;
}

/** `time`: its limit was over; `stop`: the signal; `output`: it wrote more than anybody can want (64 MiB). */
export type ProgramEnd = "itself" | "time" | "stop" | "output";

export interface ProgramResult {
  /** Of a program that was killed, 128 and the number of the signal; 137, too, of one that never got its turn. */
  readonly exitCode: number;
  /** Standard output and standard error as they came, bounded, control characters made visible. */
  readonly output: string;
  /** Each of them for itself, bounded alike. */
  readonly stdout: string;
  readonly stderr: string;
  /** Some of the output is missing; a line in it says how much. */
  readonly truncated: boolean;
  readonly endedBy: ProgramEnd;
  readonly durationMs: number;
}

/** Between the request to end and the kill; what is left of two seconds is for the kill itself. */
export const killAfterMs = 1500;
const defaultOutputLimitBytes = 256 * 1024;
const producedLimitBytes = 64 * 1024 * 1024;
const programsAtOnce = 16;

/**
 * Runs a program to its end, at most 16 of a sandbox at once, first come first served. Whatever it and its children do,
 * two seconds after its time is over or the signal has come nothing of it is left, and memory stays bounded.
 * @throws {SandboxUnavailableError} where walls are wanted and can't be had; {Error} where it can't be started at all. A
 * program that does not exist ends with exit code 127 instead.
 */
export async function runProgram(sandbox: Sandbox, run: ProgramRun): Promise<ProgramResult> {
  const { timeoutMs, signal, stdinText, outputLimitBytes = defaultOutputLimitBytes, onOutput, ...program } = run;
  const startMs = performance.now();
  const both = new HeadAndTail(outputLimitBytes);
  const kept = { stdout: new HeadAndTail(outputLimitBytes), stderr: new HeadAndTail(outputLimitBytes) };
  const told = new AbortController();
  let endedBy: ProgramEnd = "itself";
  const end = (by: ProgramEnd): void => {
    if (told.signal.aborted) return;
    endedBy = by;
    told.abort();
  };
  const onAbort = () => end("stop");
  const timer = setTimeout(end, timeoutMs, "time");
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort();
  const turns = turnsOf(sandbox);
  let exitCode = 137;
  try {
    if (await turns.take(told.signal)) {
      try {
        if (!told.signal.aborted) exitCode = await runInTurn();
      } finally {
        turns.giveBack();
      }
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  }
  return {
    exitCode,
    output: both.text(),
    stdout: kept.stdout.text(),
    stderr: kept.stderr.text(),
    truncated: both.cutBytes > 0,
    endedBy,
    durationMs: Math.round(performance.now() - startMs),
  };

  async function runInTurn(): Promise<number> {
    const started = await sandbox.start({ ...program, ...(stdinText === undefined ? {} : { stdin: "pipe" }) });
    const stop = () => void started.stop(killAfterMs);
    if (told.signal.aborted) stop();
    else told.signal.addEventListener("abort", stop, { once: true });
    let producedBytes = 0;
    const take = (stream: "stdout" | "stderr", piece: Buffer): void => {
      if (piece.length === 0) return;
      kept[stream].add(piece);
      const shown = both.add(piece);
      if (shown !== "") onOutput?.(stream, shown);
    };
    for (const stream of ["stdout", "stderr"] as const) {
      readCharacters(started[stream], (piece) => {
        producedBytes += piece.length;
        if (producedBytes > producedLimitBytes) end("output");
        take(stream, piece);
      });
    }
    feed(started, stdinText);
    try {
      return await started.ended;
    } finally {
      await started.stop();
    }
  }
}

/** Hands over what comes, in whole characters of UTF-8, and of a line's end never the first half only. */
function readCharacters(stream: Readable, take: (piece: Buffer) => void): void {
  let held: Buffer = Buffer.alloc(0);
  const finish = () => {
    take(held);
    held = Buffer.alloc(0);
  };
  stream.on("data", (bytes: Buffer) => {
    const all = held.length === 0 ? bytes : Buffer.concat([held, bytes]);
    const end = wholeCharacters(all);
    // A copy: a few bytes must not keep the whole piece.
    held = Buffer.from(all.subarray(end));
    take(all.subarray(0, end));
  });
  stream.once("end", finish);
  stream.once("close", finish);
  // A broken pipe is an end; how the program ended is told by its exit code.
  stream.on("error", () => undefined);
}

/** How many bytes there are without a character that has only begun; a carriage return may be the first half of a line's end. */
function wholeCharacters(bytes: Buffer): number {
  const last = bytes.at(-1) ?? 0;
  if (last === 0x0d) return bytes.length - 1;
  const start = characterStart(bytes, bytes.length - 1);
  const first = bytes[start] ?? 0;
  const wantedBytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 1;
  return start + wantedBytes > bytes.length ? Math.max(0, start) : bytes.length;
}

/** A program may end, or close its input, without having read it. */
function feed({ stdin }: SupervisedProcess, text: string | undefined): void {
  stdin?.on("error", () => undefined);
  stdin?.end(text);
}

/** Lets some in and keeps the rest waiting in order. */
class Turns {
  #free: number;
  readonly #waiting = new Set<() => void>();

  constructor(atOnce: number) {
    this.#free = atOnce;
  }

  /** @returns false when the signal came first; else `giveBack` has to be called. */
  async take(signal: AbortSignal): Promise<boolean> {
    if (signal.aborted) return false;
    if (this.#free > 0) {
      this.#free--;
      return true;
    }
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const letIn = () => resolve(true);
    const leave = () => {
      // Whoever has been let in already keeps the turn.
      if (this.#waiting.delete(letIn)) resolve(false);
    };
    this.#waiting.add(letIn);
    signal.addEventListener("abort", leave, { once: true });
    try {
      return await promise;
    } finally {
      signal.removeEventListener("abort", leave);
    }
  }

  giveBack(): void {
    for (const letIn of this.#waiting) {
      this.#waiting.delete(letIn);
      letIn();
      return;
    }
    this.#free++;
  }
}

const turnsOfSandboxes = new WeakMap<Sandbox, Turns>();

function turnsOf(sandbox: Sandbox): Turns {
  const turns = turnsOfSandboxes.get(sandbox) ?? new Turns(programsAtOnce);
  turnsOfSandboxes.set(sandbox, turns);
  return turns;
}
