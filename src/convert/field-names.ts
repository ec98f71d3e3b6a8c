import { AgentError } from "../chat/error.ts";

/** A beginning of a path as it is here, and what it is with a vendor. */
export type FieldName = readonly [ours: string, theirs: string];

/**
 * An error whose field is called as the clients of a vendor call it.
 * @param names the first that fits does
 */
export function withFieldNames(error: AgentError, names: readonly FieldName[]): AgentError {
  const [violation] = error.fieldViolations;
  const name = names.find(([ours]) => violation?.field.startsWith(ours) === true);
  if (violation === undefined || name === undefined) return error;
  const [ours, theirs] = name;
  const field = theirs + violation.field.slice(ours.length);
  const message = error.message.startsWith(violation.field)
    ? field + error.message.slice(violation.field.length)
    : error.message;
  const { kind, reason, detail, metadata, retryAfterMs } = error;
  const fieldViolations = [{ ...violation, field }];
  return new AgentError(kind, message, {
    ...{ reason, detail, metadata, fieldViolations, cause: error },
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  });
}
