import { randomUUID } from "node:crypto";
import { toJson } from "@bufbuild/protobuf";
import { ToolResultSchema } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { type Tool, ToolSchema } from "../../gen/codeagent/v1/tool_service_pb.ts";
import { readStdin } from "./read-stdin.ts";
import type { TakenEnvironment } from "./secrets.ts";
import { type ConnectionFlags, openService } from "./service.ts";
import { jsonLine, oneLine, pageOn } from "./terminal.ts";

export interface ToolsFlags extends ConnectionFlags {
  readonly session?: string;
  readonly json?: boolean;
}
export interface CallToolFlags extends ToolsFlags {
  /** In seconds. */
  readonly timeout?: string;
}

const argumentsLimitBytes = 1024 * 1024;
const descriptionCharacters = 100;

/** Lists the tools a session's agent has, or those a new session would have. @returns the exit code. */
export async function listTools(flags: ToolsFlags, taken: TakenEnvironment): Promise<number> {
  await using service = await openService(flags, taken);
  const page = pageOn(process.stdout);
  const { tools } = await service.client.tools.listTools({ sessionId: flags.session ?? "" });
  if (flags.json === true) {
    for (const tool of tools) page.write(jsonLine(toJson(ToolSchema, tool)));
    return 0;
  }
  if (tools.length === 0) {
    page.write("there are no tools\n", "dim");
    return 0;
  }
  const rows = tools.map((tool) => [tool.name, tool.source, kindOf(tool)] as const);
  const widths = [0, 1, 2].map((column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  for (const [position, row] of rows.entries()) {
    page.write(`${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join("  ")}  `);
    page.write(`${oneLine(tools[position]?.description ?? "", descriptionCharacters)}\n`, "dim");
  }
  return 0;
}

/**
 * Runs a tool outside any turn and shows its output.
 * @param given its arguments as JSON; `-` reads them from stdin; none without it.
 * @returns the exit code: 1 when the tool failed.
 */
export async function callTool(
  name: string,
  given: string | undefined,
  flags: CallToolFlags,
  taken: TakenEnvironment,
): Promise<number> {
  const timeoutMs = flags.timeout === undefined ? undefined : millisecondsOf("--timeout", flags.timeout);
  const text = given === "-" ? await readStdin("the arguments", argumentsLimitBytes) : (given ?? "");
  await using service = await openService(flags, taken);
  const page = pageOn(process.stdout);
  const { result } = await service.client.tools.executeTool({
    sessionId: flags.session ?? "",
    name,
    arguments: text,
    requestId: randomUUID(),
    ...(timeoutMs === undefined ? {} : { timeoutMs: BigInt(timeoutMs) }),
  });
  if (result === undefined) throw new Error("the server answered without a result");
  if (flags.json === true) {
    page.write(jsonLine(toJson(ToolResultSchema, result)));
    return result.success ? 0 : 1;
  }
  page.write(result.output);
  page.endLine();
  if (result.success) return 0;
  process.stderr.write(`codeagent: ${taken.redactor.redact(`${name}: ${result.error || "the tool failed"}`)}\n`);
  return 1;
}

function kindOf(tool: Tool): string {
  return tool.readOnly ? "reads" : "changes";
}

function millisecondsOf(flag: string, given: string): number {
  const seconds = Number(given);
  if (/^\d+(\.\d+)?$/.test(given) && seconds > 0 && seconds <= 3600) return Math.ceil(seconds * 1000);
  throw new Error(`${flag} is ${JSON.stringify(given)}: a number of seconds is wanted, at most 3600`);
}
