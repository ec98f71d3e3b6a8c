import { setTimeout as wait } from "node:timers/promises";

/**
 * Collects operations and commits those that came together as one. The first operation is committed at once; what
 * arrives while a commit is under way goes into the next one. No timer where no interval is asked for: the batch grows
 * with the load, and the wait is one commit.
 *
 * @typeParam Operation what a commit is made of
 */
export class GroupCommit<Operation> {
  readonly #leastIntervalMs: number;
  readonly #commit: (operations: readonly Operation[]) => Promise<readonly unknown[]>;
  #waiting: { operation: Operation; resolve: (result: unknown) => void; reject: (error: unknown) => void }[] = [];
  #running: Promise<void> | undefined;

  /**
   * @param commit does all operations or none and returns one result each, in order; when it throws, all of them fail
   * @param leastIntervalMs from the beginning of one commit to that of the next, where there is something to commit
   */
  constructor(commit: (operations: readonly Operation[]) => Promise<readonly unknown[]>, leastIntervalMs = 0) {
    this.#commit = commit;
    this.#leastIntervalMs = leastIntervalMs;
  }

  /** Resolves with the operation's result once it is durable; `read` parses the result, or throws what this one failed with. */
  submit<Result>(operation: Operation, read: (result: unknown) => Result): Promise<Result> {
    return new Promise<Result>((resolve, reject) => {
      const settle = (result: unknown) => {
        try {
          resolve(read(result));
        } catch (error) {
          reject(error);
        }
      };
      this.#waiting.push({ operation, resolve: settle, reject });
      this.#running ??= this.#run();
    });
  }

  /** Resolves when nothing waits any more. */
  async settled(): Promise<void> {
    while (this.#running !== undefined) await this.#running;
  }

  async #run(): Promise<void> {
    await new Promise<void>((resolve) => setImmediate(resolve));
    while (this.#waiting.length > 0) {
      const batch = this.#waiting;
      this.#waiting = [];
      const next = this.#leastIntervalMs > 0 ? wait(this.#leastIntervalMs) : undefined;
      try {
        const results = await this.#commit(batch.map((entry) => entry.operation));
        for (const [index, entry] of batch.entries()) entry.resolve(results[index]);
      } catch (error) {
        for (const entry of batch) entry.reject(error);
      }
      // The first operation after a pause is not to wait, so the interval counts here and not before.
      await next;
      if (this.#waiting.length > 0) await new Promise<void>((resolve) => setImmediate(resolve));
    }
    this.#running = undefined;
  }
}
