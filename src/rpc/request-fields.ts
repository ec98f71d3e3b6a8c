import { invalidField } from "../chat/error.ts";
import { sessionIdFrom } from "../chat/ids.ts";

export { requestIdFrom, sessionIdFrom } from "../chat/ids.ts";
export { checkMessageCount } from "../session/request-bounds.ts";

/** As `sessionIdFrom`, or empty. */
export function optionalSessionIdFrom(value: string, field = "session_id"): string {
  return value === "" ? "" : sessionIdFrom(value, field);
}

/** @throws {AgentError} `invalid_request` when a text is longer than `most`, in UTF-16 units. */
export function checkLength(text: string, most: number, field: string): void {
  if (text.length > most) throw invalidField(field, `has ${text.length} characters; ${most} is the most`);
}

/** @throws {AgentError} `invalid_request` when keys and values together are longer than `most`, in UTF-16 units. */
export function checkMapLength(map: Readonly<Record<string, string>>, most: number, field: string): void {
  const length = Object.entries(map).reduce((sum, [key, value]) => sum + key.length + value.length, 0);
  if (length > most) throw invalidField(field, `has ${length} characters in keys and values; ${most} is the most`);
}

/** A position in a log. @throws {AgentError} `invalid_request` beyond 2^53. */
export function seqFrom(value: bigint, field: string): number {
  if (value > BigInt(Number.MAX_SAFE_INTEGER))
    throw invalidField(field, `is ${value}, larger than any position of a log`);
  return Number(value);
}

/** @throws {AgentError} `invalid_request` when a page is larger than `most`. */
export function pageSizeFrom(value: number, byDefault: number, most: number): number {
  if (value > most) throw invalidField("page_size", `is ${value}; ${most} is the most`);
  return value === 0 ? byDefault : value;
}

/** A token for the next page; says nothing to anybody but the server. */
export function pageTokenFor(position: readonly (string | number)[]): string {
  return Buffer.from(JSON.stringify(position)).toString("base64url");
}

/** @throws {AgentError} `invalid_request` when the token is not one of ours. */
export function pageTokenFrom(token: string): readonly unknown[] | undefined {
  if (token === "") return undefined;
  try {
    const position: unknown = JSON.parse(Buffer.from(token, "base64url").toString("utf8"));
    if (Array.isArray(position)) return position;
  } catch (cause) {
    if (!(cause instanceof SyntaxError)) throw cause;
  }
  throw invalidField("page_token", "is not a token of this list; leave it out to begin anew");
}
