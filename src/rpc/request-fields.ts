import { AgentError, invalidField } from "../chat/error.ts";
import { maxMessages } from "../session/large-messages.ts";

const idPattern = /^[A-Za-z0-9_-]{1,64}$/;
const maxRequestIdLength = 256;

/** @throws {AgentError} `invalid_request` when a session id is not 1 to 64 of `A-Z a-z 0-9 _ -`. */
export function sessionIdFrom(value: string, field = "session_id"): string {
  if (value === "") throw invalidField(field, `is empty; name a ${field.replace(/_id$/, "")}`);
  if (!idPattern.test(value)) {
    throw invalidField(field, `has to be 1 to 64 of A-Z a-z 0-9 _ -, this one has ${value.length} characters`);
  }
  return value;
}

/** As `sessionIdFrom`, or empty. */
export function optionalSessionIdFrom(value: string, field = "session_id"): string {
  return value === "" ? "" : sessionIdFrom(value, field);
}

/** @throws {AgentError} `invalid_request` when an idempotency key is too long or no text. */
export function requestIdFrom(value: string): string {
  if (value.length > maxRequestIdLength) {
    throw invalidField("request_id", `has ${value.length} characters; ${maxRequestIdLength} is the most`);
  }
  if (!value.isWellFormed()) throw invalidField("request_id", "has half a surrogate pair");
  if (value.includes("\0")) throw invalidField("request_id", "has a NUL character");
  return value;
}

/** @throws {AgentError} `resource_exhausted` when one request brings too many messages. */
export function checkMessageCount(count: number, field: string): void {
  if (count <= maxMessages) return;
  const description = `has ${count} messages; ${maxMessages} is the most in one request`;
  throw new AgentError("resource_exhausted", `${field}: ${description}`, { fieldViolations: [{ field, description }] });
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
