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
   * @returns when `take` will have one that may do better, in milliseconds since 1970: at once where that is not in the
   * future. Undefined where there is only this one.
   */
  refused(credential: Credential): number | undefined;
  /**
   * Tells that the provider answered 429 to it.
   * @param untilMs when it may be used again, in milliseconds since 1970.
   * @returns as `refused`; of several that are limited the time of the one that is free first, which may be this one.
   */
  limited(credential: Credential, untilMs: number): number | undefined;
}

/** Names of headers and of query parameters that hold credentials; compare with names in small letters. */
export const credentialNames = /auth|key|token|secret|cookie|password|credential|signature/;

/** Headers that say what is asked, not who asks. */
const plainHeaderNames =
  /^(?:accept|content-type|user-agent|(?:http-)?referer|anthropic-(?:version|beta)|openai-beta)$/;

/** Anything shorter is found in harmless texts by chance. */
const leastSecretLength = 8;
/** From here on no text holds it by chance, wherever it stands. */
const longSecretLength = 16;

/** Whether a text is to be taken out of messages; too short a one would blacken half of them. */
export function isSecret(text: string | undefined): text is string {
  return text !== undefined && text.length >= leastSecretLength;
}

/** The values of an operator's own headers that are to be kept secret: by what they are called or by their length. */
export function secretsOfHeaders(headers: Readonly<Record<string, string>>): string[] {
  return Object.entries(headers).flatMap(([given, value]) => {
    const name = given.toLowerCase();
    const isNamedSo = credentialNames.test(name);
    const isLong = value.length >= longSecretLength && !plainHeaderNames.test(name);
    return (isNamedSo || isLong) && isSecret(value) ? [value] : [];
  });
}

/**
 * A function that puts the mark in place of each secret, the longest first, so that none leaves the end of another
 * behind. Those that may be words are replaced where they stand alone, not as a part of a longer word.
 */
export function hidingSecrets(secrets: Iterable<string>, mark: string): (text: string) => string {
  const longestFirst = [...new Set(secrets)].filter(isSecret).sort((left, right) => right.length - left.length);
  if (longestFirst.length === 0) return (text) => text;
  const found = new RegExp(longestFirst.map(patternOf).join("|"), "g");
  return (text) => text.replace(found, () => mark);
}

function patternOf(secret: string): string {
  const pattern = RegExp.escape(secret);
  if (secret.length >= longSecretLength) return pattern;
  const before = /^\w/.test(secret) ? startOfWord : "";
  const after = /\w$/.test(secret) ? "(?!\\w)" : "";
  return `${before}${pattern}${after}`;
}

/** Also after an escape of JSON or of a URL, the letters of which belong to no word. */
const startOfWord = "(?<=^|\\W|\\\\[bfnrt]|\\\\u[0-9a-f]{4}|%[0-9A-Fa-f]{2})";
