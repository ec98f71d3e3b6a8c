import { type Credential, type Credentials, isSecret } from "./credentials.ts";

/** How long a key that was refused is left alone, in milliseconds, where there are others. */
const refusedMs = 5 * 60_000;

/**
 * One key or several. The one that works is kept, so that the provider's prompt cache stays warm; one that is refused or
 * limited makes way for the next that is free.
 * @param keys none for a provider that needs none
 * @param headersOf how a key is sent
 * @param now milliseconds since 1970
 */
export function keyRing(
  keys: readonly string[],
  headersOf: (key: string) => Readonly<Record<string, string>>,
  now: () => number,
): Credentials {
  const credentials: readonly Credential[] = keys.map((key) => ({
    headers: headersOf(key),
    secrets: [key, encodeURIComponent(key)].filter(isSecret),
  }));
  const withoutKey: Credential = { headers: {}, secrets: [] };
  /** When a key may be used again. */
  const freeAtMs = new Map<Credential, number>();
  let current = 0;
  const timeOf = (index: number) => freeAtMs.get(credentials[index] ?? withoutKey) ?? 0;

  /** Goes on to the next key that is free, or to the one that will be first; says when it is free. */
  const moveOn = (): number => {
    const order = credentials.map((_, step) => (current + step) % credentials.length);
    const free = order.find((index) => timeOf(index) <= now());
    current = free ?? order.toSorted((a, b) => timeOf(a) - timeOf(b))[0] ?? 0;
    return timeOf(current);
  };
  const leave = (credential: Credential, untilMs: number): number | undefined => {
    if (credentials.length < 2) return undefined;
    freeAtMs.set(credential, untilMs);
    return moveOn();
  };
  return {
    async take() {
      if (credentials.length > 1) moveOn();
      return credentials[current] ?? withoutKey;
    },
    refused: (credential) => leave(credential, now() + refusedMs),
    limited: leave,
  };
}
