/**
 * Passes items on and fails when the source keeps silent for too long. Only the wait for the source counts, not the
 * time its reader takes. A source that hangs cannot be returned, so whoever owns it must also stop it then.
 * @param idleTimeoutMs the longest wait for one item, in milliseconds.
 * @param idleError makes the error thrown after that.
 */
export async function* withIdleTimeout<Item>(
  source: AsyncIterable<Item>,
  idleTimeoutMs: number,
  idleError: () => Error,
): AsyncGenerator<Item, void, undefined> {
  const iterator = source[Symbol.asyncIterator]();
  let fail: ((error: Error) => void) | undefined;
  const timer = setTimeout(() => fail?.(idleError()), idleTimeoutMs);
  const next = () =>
    new Promise<IteratorResult<Item>>((resolve, reject) => {
      fail = reject;
      iterator.next().then(resolve, reject);
    });
  let waiting = false;
  try {
    for (;;) {
      timer.refresh();
      waiting = true;
      const item = await next();
      waiting = false;
      fail = undefined;
      if (item.done) return;
      yield item.value;
    }
  } finally {
    clearTimeout(timer);
    const returned = iterator.return?.();
    if (waiting) returned?.catch(() => undefined);
    else await returned;
  }
}
