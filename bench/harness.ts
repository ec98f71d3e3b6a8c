import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";

export interface BenchOptions {
  /** Fewer and shorter rounds: says whether a benchmark works, not how fast anything is. */
  readonly quick: boolean;
  /** Where the service writes CPU profiles; absent means no profiling. */
  readonly profileDir?: string;
}

/** One line of the table. */
export interface Measured {
  readonly what: string;
  readonly peer: string;
  readonly unit: string;
  readonly median: number;
  readonly low: number;
  readonly high: number;
  /** The median as a multiple of the first peer's that has this `what`. */
  readonly ratio: number;
}

/** What one run of one peer came to, by what was measured and its unit, as in `chunks/s`. */
export type Sample = Readonly<Record<string, number>>;

/**
 * Runs all peers in turn, `rounds` times after `warmUps` rounds that don't count, so that what else the machine does
 * hits all of them alike.
 */
export async function interleaved(
  what: string,
  peers: Readonly<Record<string, () => Promise<Sample>>>,
  rounds: number,
  warmUps: number,
): Promise<Measured[]> {
  const seen = new Map<string, Map<string, number[]>>();
  for (let round = -warmUps; round < rounds; round++) {
    for (const [peer, run] of Object.entries(peers)) {
      const sample = await run();
      if (round < 0) continue;
      for (const [unit, value] of Object.entries(sample)) {
        const ofUnit = seen.get(unit) ?? new Map<string, number[]>();
        seen.set(unit, ofUnit);
        ofUnit.set(peer, [...(ofUnit.get(peer) ?? []), value]);
      }
    }
  }
  return [...seen].flatMap(([unit, ofPeers]) => {
    const first = percentile([...ofPeers.values()][0] ?? [], 50);
    return [...ofPeers].map(([peer, values]) => {
      const median = percentile(values, 50);
      return { what, peer, unit, median, low: Math.min(...values), high: Math.max(...values), ratio: median / first };
    });
  });
}

/** The smallest value that `percent` of the values do not exceed; 0 for no values. */
export function percentile(values: readonly number[], percent: number): number {
  const sorted = values.toSorted((left, right) => left - right);
  return sorted[Math.max(0, Math.ceil((sorted.length * percent) / 100) - 1)] ?? 0;
}

/** Does something `times` times with `inFlight` of it at once; returns how long each took, in milliseconds. */
export async function repeated(times: number, inFlight: number, action: () => Promise<unknown>): Promise<number[]> {
  const tookMs: number[] = [];
  let begun = 0;
  const lane = async () => {
    while (begun < times) {
      begun++;
      const start = performance.now();
      await action();
      tookMs.push(performance.now() - start);
    }
  };
  await Promise.all(Array.from({ length: inFlight }, lane));
  return tookMs;
}

export interface BenchProcess extends AsyncDisposable {
  /** What the process said when it was ready; of servers their URL. */
  readonly ready: string;
  ask(question: string): Promise<readonly number[]>;
  /** CPU time it has used so far, in microseconds. */
  cpuMicros(): Promise<number>;
}

/**
 * Starts a file of `bench/processes` in a process of its own, with the flags the service runs with. It ends when this
 * is disposed of, and with this process at the latest.
 */
export async function startProcess(
  file: string,
  args: readonly string[] = [],
  profileDir?: string,
): Promise<BenchProcess> {
  const path = fileURLToPath(new URL(`./processes/${file}`, import.meta.url));
  const profiling = profileDir === undefined ? [] : ["--cpu-prof", `--cpu-prof-dir=${profileDir}`];
  const child = fork(path, args, {
    execArgv: ["--max-semi-space-size=4", "--disable-warning=ExperimentalWarning", "--expose-gc", ...profiling],
  });
  const ended = new Promise<never>((_, reject) => {
    child.once("exit", (code) => reject(new Error(`${file} ended with ${code}`)));
  });
  ended.catch(() => undefined);
  const nextMessage = () =>
    Promise.race([new Promise<unknown>((resolve) => void child.once("message", resolve)), ended]);
  const ready = String(await nextMessage());
  const ask = async (question: string) => {
    child.send(question);
    const answer = await nextMessage();
    if (!isNumbers(answer)) throw new Error(`${file} can't answer ${question}`);
    return answer;
  };
  return {
    ready,
    ask,
    cpuMicros: async () => (await ask("cpu"))[0] ?? 0,
    [Symbol.asyncDispose]: async () => {
      child.disconnect();
      await ended.catch(() => undefined);
    },
  };
}

/**
 * The other side of `startProcess`: says that it is ready, answers questions and ends the process when the parent goes.
 * `cpu` (in microseconds) and `memory` (resident and heap bytes after a collection) are answered by every process.
 */
export function answerParent(ready: string, answer: (question: string) => unknown = () => []): void {
  process.on("disconnect", () => process.exit());
  process.on("message", async (asked) => {
    const question = String(asked);
    const answered = question === "cpu" ? cpuMicros() : question === "memory" ? memoryBytes() : await answer(question);
    process.send?.(answered);
  });
  process.send?.(ready);
}

function cpuMicros(): number[] {
  const { user, system } = process.cpuUsage();
  return [user + system];
}

function memoryBytes(): number[] {
  globalThis.gc?.();
  const { rss, heapUsed } = process.memoryUsage();
  return [rss, heapUsed];
}

function isNumbers(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((item) => typeof item === "number");
}
