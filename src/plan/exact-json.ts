/**
 * Reads JSON with whole numbers beyond 2^53 as `bigint`, so that no digit is lost.
 * @throws {SyntaxError} where the text is no JSON.
 */
export function parseExactJson(text: string): unknown {
  return JSON.parse(text, (_key, value: unknown, context?: { readonly source?: string }) => {
    if (typeof value !== "number" || Number.isSafeInteger(value)) return value;
    const source = context?.source ?? "";
    return /^-?\d+$/.test(source) ? BigInt(source) : value;
  });
}

/** JSON text of a value that may have `bigint` in it. */
export function exactJsonText(value: unknown): string {
  if (typeof value === "bigint") return `${value}`;
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null";
  if (Array.isArray(value)) return `[${value.map(exactJsonText).join(",")}]`;
  const entries = Object.entries(value).filter(([, inner]) => inner !== undefined);
  return `{${entries.map(([key, inner]) => `${JSON.stringify(key)}:${exactJsonText(inner)}`).join(",")}}`;
}

/** The first whole number of a value that a double does not hold with all its digits. */
export function inexactNumberIn(value: unknown): bigint | undefined {
  if (typeof value === "bigint") return value;
  if (typeof value !== "object" || value === null) return undefined;
  for (const inner of Object.values(value)) {
    const found = inexactNumberIn(inner);
    if (found !== undefined) return found;
  }
  return undefined;
}
