/** What one call to a provider is let in with. */
export interface Credential {
  /** Where the provider is to be asked with it, without the dialect's path; absent means its own base URL. */
  readonly baseUrl?: URL;
  /** Names in small letters. */
  readonly headers: Readonly<Record<string, string>>;
  /** Texts that no message may hold. */
  readonly secrets: readonly string[];
}

/** Gives each call its credential: a key, one of several keys, or a token that is fetched and renewed. */
export interface Credentials {
  /** Why none can be had, as the end of a sentence about the provider; it may change while the server runs. */
  missing?(): string | undefined;
  /**
   * The credential for the next try.
   * @param signal ends the wait for one that has to be fetched; its reason is then thrown.
   * @throws {AgentError} where none can be had, with words on what to do.
   */
  take(signal: AbortSignal): Promise<Credential>;
  /**
   * Tells that the provider answered 401 or 403 to it.
   * @returns whether another one can be had, so that trying again at once makes sense.
   */
  refused(credential: Credential): boolean;
  /**
   * Tells that the provider answered 429 to it.
   * @param untilMs when it may be used again, in milliseconds since 1970.
   * @returns whether another one is free now.
   */
  limited(credential: Credential, untilMs: number): boolean;
}

/** Whether a text is to be taken out of messages; too short a one would blacken half of them. */
export function isSecret(text: string | undefined): text is string {
  return text !== undefined && text.length >= 4;
}
