import type { ToolDefinition } from "../chat/request.ts";
import { checkValue, described, isRecord, shortened } from "./check-value.ts";

const maxArgumentsBytes = 1024 * 1024;
const words = { whole: "the object of arguments", property: "an argument" };

export type CheckedArguments =
  | { readonly ok: true; readonly arguments: Readonly<Record<string, unknown>> }
  | { readonly ok: false; readonly error: string };

/**
 * Parses the arguments of a call and holds them to the function's schema (JSON Schema 2020-12). No text and blank text mean no
 * arguments. Nothing is coerced or filled in. The error says which argument is wrong, what was given and what is wanted.
 */
export function checkArguments(definition: ToolDefinition, argumentsText: string): CheckedArguments {
  const { name } = definition;
  const bytes = Buffer.byteLength(argumentsText);
  if (bytes > maxArgumentsBytes) {
    return refuse(`the arguments of ${name} are ${bytes} bytes long; at most ${maxArgumentsBytes} are taken`);
  }
  let value: unknown;
  try {
    value = argumentsText.trim() === "" ? {} : JSON.parse(argumentsText);
  } catch (error) {
    const why = error instanceof Error ? shortened(error.message, 200) : "unreadable";
    return refuse(`the arguments of ${name} are not valid JSON (${why}); send one JSON object`);
  }
  if (!isRecord(value)) {
    return refuse(`the arguments of ${name} must be one JSON object; ${described(value)} was given`);
  }
  const check = checkValue(definition.parameters, value, bytes, words);
  if (check.ok) return { ok: true, arguments: value };
  const { fault, problems } = check;
  switch (fault) {
    case "depth":
      return refuse(`the arguments of ${name} are ${problems}`);
    case "schema":
      return refuse(`${name} cannot be called: its argument schema is unusable (${problems})`);
    case "time":
      return refuse(`the arguments of ${name} ${problems}; send shorter ones`);
    case "check":
      return refuse(`the arguments of ${name} cannot be checked against its schema`);
    case "value":
      return refuse(`the arguments do not fit ${name}: ${problems}`);
    default:
      return fault satisfies never;
  }
}

function refuse(error: string): CheckedArguments {
  return { ok: false, error };
}
