import { invalidField } from "./error.ts";

const idPattern = /^[A-Za-z0-9_-]{1,64}$/;
const maxRequestIdLength = 256;

/** @throws {AgentError} `invalid_request` when a session id is not 1 to 64 of `A-Z a-z 0-9 _ -`. */
export function sessionIdFrom(value: string, field = "session_id"): string {
  if (value === "") throw invalidField(field, `is empty; name a ${field.replace(/^x-|[-_]id$/g, "")}`);
  if (!idPattern.test(value)) {
    throw invalidField(field, `has to be 1 to 64 of A-Z a-z 0-9 _ -, this one has ${value.length} characters`);
  }
  return value;
}

/** @throws {AgentError} `invalid_request` when an idempotency key is too long or no text. */
export function requestIdFrom(value: string, field = "request_id"): string {
  if (value.length > maxRequestIdLength) {
    throw invalidField(field, `has ${value.length} characters; ${maxRequestIdLength} is the most`);
  }
  if (!value.isWellFormed()) throw invalidField(field, "has half a surrogate pair");
  if (value.includes("\0")) throw invalidField(field, "has a NUL character");
  return value;
}
