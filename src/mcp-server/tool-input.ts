import type { CallToolResult, StandardSchemaWithJSON } from "@modelcontextprotocol/server";
import { checkArguments } from "../tool/check-arguments.ts";

/** A tool's arguments as the library wants their schema: it shows the schema and takes any object, since we check. */
export function unchecked(schema: Readonly<Record<string, unknown>>): StandardSchemaWithJSON<unknown, unknown> {
  const shown = () => ({ ...schema });
  return {
    "~standard": {
      version: 1,
      vendor: "codeagent",
      validate: (value: unknown) => ({ value }),
      jsonSchema: { input: shown, output: shown },
    },
  };
}

/**
 * The arguments of a call, held to a schema.
 * @throws {BadArguments} a sentence that says which argument is wrong.
 */
export function argumentsOf(name: string, schema: object, given: unknown): Readonly<Record<string, unknown>> {
  const text = JSON.stringify(given ?? {});
  const checked = checkArguments({ name, description: "", parameters: JSON.stringify(schema) }, text);
  if (!checked.ok) throw new BadArguments(checked.error);
  return checked.arguments;
}

/** Arguments that don't fit; the message is for the caller. */
export class BadArguments extends Error {
  override readonly name = "BadArguments";
}

/** A result that says what went wrong. */
export function failure(message: string, structured: Record<string, unknown> | undefined = undefined): CallToolResult {
  const content = [{ type: "text" as const, text: message }];
  return { content, isError: true, ...(structured === undefined ? {} : { structuredContent: structured }) };
}

export function textIn(given: Readonly<Record<string, unknown>>, key: string): string {
  const value = given[key];
  return typeof value === "string" ? value : "";
}

export function countIn(given: Readonly<Record<string, unknown>>, key: string, byDefault: number): number {
  const value = given[key];
  return typeof value === "number" ? value : byDefault;
}
