/** Something that clients of the earlier service hear of and that is in no session's log. */
export interface LegacyEvent {
  /** A name of `AgentEvent.EventType` without its prefix, such as `SESSION_CREATED`. */
  readonly type: string;
  /** Empty where it belongs to no session. */
  readonly sessionId: string;
  readonly message: string;
  readonly data: Readonly<Record<string, string>>;
  /** Milliseconds since 1970. */
  readonly timeMs: number;
}

/** Tells what happens in this process to those who listen now. */
export class LegacyEvents {
  readonly #listeners = new Set<(event: LegacyEvent) => void>();

  publish(event: LegacyEvent): void {
    for (const listener of this.#listeners) listener(event);
  }

  /** @returns ends the listening. */
  listen(listener: (event: LegacyEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
}
