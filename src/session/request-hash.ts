import { createHash } from "node:crypto";

/** A digest of a request that does not depend on the order of keys: two requests are the same if it is. */
export function requestHash(request: object): string {
  return createHash("sha256").update(canonical(request)).digest("hex");
}

function canonical(value: unknown): string {
  if (value instanceof Uint8Array) return `b${Buffer.from(value).toString("base64")}`;
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (typeof value === "object" && value !== null) {
    const entries = Object.entries(value)
      .filter(([, member]) => member !== undefined)
      .toSorted(([left], [right]) => (left < right ? -1 : 1));
    return `{${entries.map(([key, member]) => `${JSON.stringify(key)}:${canonical(member)}`).join()}}`;
  }
  return typeof value === "bigint" ? `${value}n` : (JSON.stringify(value) ?? "");
}
