import { grantFor, type PermissionGrant } from "../tool/permission.ts";
import type { CallState, SessionState } from "./state.ts";

/** What was allowed for the rest of a session. */
export function grantsOf({ allowedCalls }: SessionState): readonly PermissionGrant[] {
  return allowedCalls.flatMap(
    ({ name, argumentsText, contentSha256 }) => grantForText(name, argumentsText, contentSha256) ?? [],
  );
}

/** Whether two calls are the same to somebody who allowed one of them for the rest of the session. */
export function isSameGrant(
  { use: left, request: one }: CallState,
  { use: right, request: other }: CallState,
): boolean {
  if (left.name !== right.name || one?.request.contentSha256 !== other?.request.contentSha256) return false;
  const argument = grantForText(left.name, left.input)?.argument;
  return argument !== undefined && argument === grantForText(right.name, right.input)?.argument;
}

function grantForText(name: string, argumentsText: string, contentSha256 = ""): PermissionGrant | undefined {
  let given: unknown;
  try {
    given = JSON.parse(argumentsText.trim() === "" ? "{}" : argumentsText);
  } catch {
    return undefined; // what can't be read is never run
  }
  return typeof given === "object" && given !== null
    ? grantFor({ name, arguments: { ...given }, contentSha256 })
    : undefined;
}
