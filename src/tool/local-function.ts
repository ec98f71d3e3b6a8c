import type { ToolResult } from "../chat/tool-result.ts";
import type { FunctionCall, FunctionContext, FunctionDefinition } from "./function-provider.ts";

/** A function that comes with the server. */
export interface LocalFunction {
  readonly definition: FunctionDefinition;
  /** @throws {WorkspacePathError} for a path that cannot be used; the provider makes a result of it. */
  run(given: FunctionCall["arguments"], context: FunctionContext): Promise<ToolResult>;
  /** See `FunctionProvider.fingerprint`. */
  fingerprint?(given: FunctionCall["arguments"], context: Pick<FunctionContext, "workspace">): Promise<string>;
}

/** An argument the schema has already checked; absent where it was not given. */
export function textArgument(given: FunctionCall["arguments"], name: string): string | undefined {
  const value = given[name];
  return typeof value === "string" ? value : undefined;
}

/** An argument the schema has already checked; absent where it was not given. */
export function numberArgument(given: FunctionCall["arguments"], name: string): number | undefined {
  const value = given[name];
  return typeof value === "number" ? value : undefined;
}
