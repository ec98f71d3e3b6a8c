import { createContext, Script } from "node:vm";

const sandbox: { work: (() => void) | undefined } = { work: undefined };
const context = createContext(sandbox);
const script = new Script("work()");

/** Thrown by `withinTime` when the work was stopped. */
export class TooSlow extends Error {
  override readonly name = "TooSlow";
}

/**
 * Runs synchronous work and stops it in the middle when it takes too long, also inside a regular expression. For patterns
 * and schemas that strangers wrote. Work that was stopped before it had half of that time on a processor is begun anew once:
 * a busy machine gave it to others. What the work was changing when it was stopped must be thrown away.
 * @throws {TooSlow} after `limitMs`, else what the work throws.
 */
export function withinTime<T>(limitMs: number, work: () => T): T {
  const before = process.threadCpuUsage();
  try {
    return runOnce(limitMs, work);
  } catch (error) {
    const { user, system } = process.threadCpuUsage(before);
    if (error instanceof TooSlow && (user + system) / 1000 < limitMs / 2) return runOnce(limitMs, work);
    throw error;
  }
}

function runOnce<T>(limitMs: number, work: () => T): T {
  const outer = sandbox.work;
  let done: { readonly value: T } | undefined;
  sandbox.work = () => {
    done = { value: work() };
  };
  try {
    script.runInContext(context, { timeout: limitMs });
  } catch (error) {
    if (isTimeout(error)) throw new TooSlow(`stopped after ${limitMs} ms`);
    throw error;
  } finally {
    sandbox.work = outer;
  }
  return finished(done);
}

function isTimeout(error: unknown): boolean {
  return (
    typeof error === "object" && error !== null && "code" in error && error.code === "ERR_SCRIPT_EXECUTION_TIMEOUT"
  );
}

function finished<T>(done: { readonly value: T } | undefined): T {
  if (done === undefined) throw new Error("the work ended without a value");
  return done.value;
}
