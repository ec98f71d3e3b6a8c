import { grantFor, type PermissionGrant } from "../tool/permission.ts";
import type { CallState, SessionState } from "./state.ts";

/** What was allowed for the rest of a session. */
export function grantsOf({ allowedCalls }: SessionState): readonly PermissionGrant[] {
  return allowedCalls.flatMap(({ name, argumentsText }) => grantForText(name, argumentsText) ?? []);
}

/** Whether two calls are the same to somebody who allowed one of them for the rest of the session. */
export function isSameGrant({ use: left }: CallState, { use: right }: CallState): boolean {
  if (left.name !== right.name) return false;
  const argument = grantForText(left.name, left.input)?.argument;
  return argument !== undefined && argument === grantForText(right.name, right.input)?.argument;
}

function grantForText(name: string, argumentsText: string): PermissionGrant | undefined {
  let given: unknown;
  try {
    given = JSON.parse(argumentsText.trim() === "" ? "{}" : argumentsText);
  } catch {
    return undefined; // what can't be read is never run
  }
  return typeof given === "object" && given !== null ? grantFor({ name, arguments: { ...given } }) : undefined;
}
