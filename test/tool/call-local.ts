import type { ToolResult } from "../../src/chat/tool-result.ts";
import { indexFunctions } from "../../src/tool/function-index.ts";
import { localFunctions } from "../../src/tool/local.ts";
import { runFunction } from "../../src/tool/run-function.ts";

/** Calls a function of the server as a model would. */
export async function callLocal(
  workspace: string,
  name: string,
  given: Readonly<Record<string, unknown>>,
  signal: AbortSignal = new AbortController().signal,
): Promise<ToolResult> {
  const functions = await indexFunctions([localFunctions()]);
  const call = { name, argumentsText: JSON.stringify(given) };
  return runFunction(functions, call, { sessionId: "s", turnId: "t", toolCallId: "c", workspace, signal });
}
