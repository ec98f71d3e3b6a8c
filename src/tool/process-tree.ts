import { readdir, readFile } from "node:fs/promises";

/** A process that runs. */
export interface RunningProcess {
  readonly pid: number;
  readonly parent: number;
  /** Its session; 0 where that can't be told. */
  readonly session: number;
  /** Its ids in the namespaces of process ids it is in, the outermost, ours, first. */
  readonly pids: readonly number[];
}

/** What `root` has started and what that has started, as the parents are now. Empty where there is no /proc. */
export async function descendantsOf(root: number): Promise<RunningProcess[]> {
  const byParent = Map.groupBy(await runningProcesses(), ({ parent }) => parent);
  const found: RunningProcess[] = [];
  const add = (parent: number): void => {
    for (const child of byParent.get(parent) ?? []) {
      found.push(child);
      add(child.pid);
    }
  };
  add(root);
  return found;
}

/** The processes in whose environment `variable` (`NAME=value`) stands. */
export async function processesWith(variable: string): Promise<number[]> {
  const found = await Promise.all(
    (await processIds()).map(async (pid) => {
      const environment = await readFile(`/proc/${pid}/environ`, "latin1").catch(() => "");
      return environment.split("\0").includes(variable) ? [pid] : [];
    }),
  );
  return found.flat();
}

/** Whether a process that runs has `text` among its arguments, within one of them too. */
export async function isAmongArguments(text: string): Promise<boolean> {
  const found = await Promise.all(
    (await processIds()).map(async (pid) => {
      const words = await readFile(`/proc/${pid}/cmdline`, "utf8").catch(() => "");
      return words.includes(text);
    }),
  );
  return found.includes(true);
}

/** Sends a signal; one who is gone does not mind. */
export function signalTo(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch {
    // Gone, or somebody else's by now.
  }
}

async function runningProcesses(): Promise<RunningProcess[]> {
  const found = await Promise.all(
    (await processIds()).map(async (pid) => {
      const status = await readFile(`/proc/${pid}/status`, "latin1").catch(() => "");
      if (status === "") return [];
      const numbers = (name: string) =>
        (new RegExp(`^${name}:\\s*(.*)$`, "m").exec(status)?.[1] ?? "").split(/\s+/).map(Number);
      return [{ pid, parent: numbers("PPid")[0] ?? 0, session: numbers("NSsid")[0] ?? 0, pids: numbers("NSpid") }];
    }),
  );
  return found.flat();
}

async function processIds(): Promise<number[]> {
  const names = await readdir("/proc").catch(() => []);
  return names.filter((name) => /^\d+$/.test(name)).map(Number);
}
