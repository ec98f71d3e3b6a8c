/**
 * A stream to be read with `for await`. It begins with the first read. Leaving the loop (`break`, `return`, `throw`)
 * detaches from it; `abort` cancels what it shows.
 */
export interface AbortableStream<Item> extends AsyncIterableIterator<Item, undefined, undefined> {
  /** Detaches; resolves when that is done. Reads that wait end at once. */
  return(): Promise<IteratorResult<Item, undefined>>;
  /** Cancels the turn and ends the iteration without an error; resolves when the server knows, or can't be reached. */
  abort(): Promise<void>;
}

/** How a stream is being left; its generator reads it in `finally`. */
export interface Leaving {
  /** Fires when the stream is left early, in whichever way. */
  readonly signal: AbortSignal;
  /** Whether it was aborted, rather than just left. */
  readonly aborted: boolean;
  /** What is still to be done when the generator has ended; `return` and `abort` wait for it, reads only for a moment. */
  lastWork?: Promise<void>;
}

/** How long reads of a stream that was aborted wait for its last work. */
const lastWorkMs = 1000;

/**
 * Makes a stream of a generator that ends when `leaving.signal` fires.
 * @param signal aborts the stream; reading it then throws the signal's reason.
 */
export function abortableStream<Item>(
  run: (leaving: Leaving) => AsyncGenerator<Item, void>,
  signal?: AbortSignal,
): AbortableStream<Item> {
  const controller = new AbortController();
  const leaving = { signal: controller.signal, aborted: false, lastWork: Promise.resolve() };
  const generator = run(leaving);
  let left: Promise<void> | undefined;
  let reasonDue = false;

  const forget = () => signal?.removeEventListener("abort", onAbort);
  const leave = (): Promise<void> => {
    forget();
    controller.abort();
    left ??= generator.return().then(ignore, ignore);
    return left.then(() => leaving.lastWork);
  };
  const abort = (): Promise<void> => {
    if (left === undefined) leaving.aborted = true;
    return leave();
  };
  const onAbort = () => {
    reasonDue = true;
    void abort();
  };
  if (signal?.aborted) onAbort();
  else signal?.addEventListener("abort", onAbort, { once: true });

  const end = async (): Promise<IteratorResult<Item, undefined>> => {
    // Who closes the client after the loop does not cut off what tells the server.
    if (left !== undefined) await within(leave(), lastWorkMs);
    forget();
    if (reasonDue) {
      reasonDue = false;
      throw signal?.reason;
    }
    return { done: true, value: undefined };
  };

  return {
    async next() {
      let result: IteratorResult<Item, void>;
      try {
        result = await generator.next();
      } catch (error) {
        if (left !== undefined) return end();
        forget();
        throw error;
      }
      return result.done === true || left !== undefined ? end() : result;
    },
    async return() {
      await leave();
      return { done: true, value: undefined };
    },
    abort,
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}

/** The stream of what `transform` makes of each item. What it throws ends the stream, as leaving the loop would. */
export function mapStream<From, To>(
  source: AbortableStream<From>,
  transform: (item: From) => readonly To[],
): AbortableStream<To> {
  const ready: To[] = [];
  return {
    async next() {
      for (;;) {
        const item = ready.shift();
        if (item !== undefined) return { done: false, value: item };
        const result = await source.next();
        if (result.done === true) return result;
        try {
          ready.push(...transform(result.value));
        } catch (error) {
          await source.return();
          throw error;
        }
      }
    },
    async return() {
      ready.length = 0;
      await source.return();
      return { done: true, value: undefined };
    },
    abort() {
      ready.length = 0;
      return source.abort();
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}

async function within(work: Promise<void>, limitMs: number): Promise<void> {
  const limit = Promise.withResolvers<void>();
  const timer = setTimeout(limit.resolve, limitMs);
  await Promise.race([work, limit.promise]);
  clearTimeout(timer);
}

function ignore(): void {}
