/** Things to do later, all of which end together. */
export class Timers {
  readonly #waiting = new Map<NodeJS.Timeout, () => void>();
  #ended = false;

  /** Does something after a while; at once when everything has ended. */
  later(delayMs: number, action: () => void): void {
    if (this.#ended) {
      action();
      return;
    }
    const timer = setTimeout(() => {
      this.#waiting.delete(timer);
      action();
    }, delayMs);
    this.#waiting.set(timer, action);
  }

  /** Drops what waits. */
  end(): void {
    this.#ended = true;
    for (const timer of this.#waiting.keys()) clearTimeout(timer);
    this.#waiting.clear();
  }
}
