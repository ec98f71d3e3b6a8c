import { createHash } from "node:crypto";
import { setImmediate as turnOfOthers } from "node:timers/promises";
import picomatch from "picomatch";
import { harmlessText } from "../bounded-text.ts";
import { isRecord, schemaFault } from "../check-value.ts";
import { shortName } from "../function-index.ts";
import type { FunctionDefinition } from "../function-provider.ts";
import { withinTime } from "../within-time.ts";
import type { McpServerConfig } from "./mcp-server-config.ts";

/** A tool of a server and the function it is offered as. */
export interface McpTool {
  /** What the server calls it. */
  readonly name: string;
  readonly definition: FunctionDefinition;
}

export interface McpTools {
  /** By name; no two have the same function name. */
  readonly tools: readonly McpTool[];
  /** Why tools are left out, a sentence each. */
  readonly diagnostics: readonly string[];
}

const maxTools = 512;
const maxNameCharacters = 1000;
const maxDescriptionCharacters = 16 * 1024;
const maxTitleCharacters = 200;
/** What reading the schemas of one list may take; what is left is read when a tool is called. */
const schemaTimeMs = 500;
const matchLimitMs = 100;
const maxDiagnostics = 20;
const hintNames = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"] as const;

/**
 * Makes functions of what a server says its tools are. What can't be used is left out and told. A server's word that a tool
 * only reads counts only where the operator says so.
 */
export async function readMcpTools(listed: readonly unknown[], server: McpServerConfig): Promise<McpTools> {
  const diagnostics: string[] = [];
  const allowed = new Set(server.allowedTools);
  const isReadOnly = matcherOf(server.readOnlyTools);
  const byFunctionName = new Map<string, McpTool>();
  const seen = new Set<string>();
  let schemasMs = 0;
  const leaveOut = (name: unknown, why: string) => {
    const shown = typeof name === "string" ? JSON.stringify(harmlessText(name.slice(0, 100))) : "a tool without a name";
    if (diagnostics.length < maxDiagnostics) diagnostics.push(`${shown} is left out: ${why}`);
  };
  const named = listed.filter((tool) => isRecord(tool) && typeof tool["name"] === "string").filter(isRecord);
  if (named.length < listed.length && allowed.size === 0) leaveOut(undefined, "no name");
  for (const tool of named.toSorted((left, right) => byCodeUnit(String(left["name"]), String(right["name"])))) {
    const name = String(tool["name"]);
    if (allowed.size > 0 && !allowed.has(name)) continue;
    if (name === "" || name.length > maxNameCharacters) {
      leaveOut(name, `its name has ${name.length} characters; 1 to ${maxNameCharacters} are taken`);
      continue;
    }
    if (seen.has(name)) {
      leaveOut(name, "the server lists another of this name");
      continue;
    }
    seen.add(name);
    if (byFunctionName.size >= maxTools) {
      leaveOut(name, `the server has more than ${maxTools} tools; name the wanted ones in allowed_tools`);
      continue;
    }
    const parameters = schemaText(tool["inputSchema"]);
    if (parameters === undefined) {
      leaveOut(name, "it has no schema of its arguments, or one nested too deep");
      continue;
    }
    if (schemasMs < schemaTimeMs) {
      const startMs = performance.now();
      const fault = schemaFault(parameters);
      schemasMs += performance.now() - startMs;
      await turnOfOthers();
      if (fault !== undefined) {
        leaveOut(name, `the schema of its arguments is unusable (${fault})`);
        continue;
      }
    }
    const definition = definitionOf(tool, name, parameters, server, isReadOnly(name));
    if (byFunctionName.has(definition.name)) {
      leaveOut(name, `it would be ${definition.name}, as another one is`);
      continue;
    }
    byFunctionName.set(definition.name, { name, definition });
  }
  const tools = [...byFunctionName.values()];
  return { tools, diagnostics };
}

function definitionOf(
  tool: Readonly<Record<string, unknown>>,
  name: string,
  parameters: string,
  server: McpServerConfig,
  isReadOnly: boolean,
): FunctionDefinition {
  const hints = isRecord(tool["annotations"]) ? tool["annotations"] : {};
  const { trustHints } = server;
  const title = [tool["title"], hints["title"]].find((text) => typeof text === "string" && text.trim() !== "");
  const description = typeof tool["description"] === "string" ? tool["description"] : "";
  return {
    name: functionName(server.name, name),
    description: shortText(description, maxDescriptionCharacters),
    parameters,
    source: `mcp:${server.name}`,
    ...(typeof title === "string" ? { title: shortText(title, maxTitleCharacters) } : {}),
    readOnly: isReadOnly || (trustHints && hints["readOnlyHint"] === true),
    openWorld: !(trustHints && hints["openWorldHint"] === false),
    digest: digestOf(
      [name, stringOf(tool["title"]), description, parameters, ...hintNames.map((hint) => hints[hint] === true)],
      server,
    ),
    timeoutMs: server.timeoutMs,
  };
}

/** What an approval holds for: the tool as the server describes it, and the server as it is configured, without secrets. */
function digestOf(tool: readonly (string | boolean)[], { transport }: McpServerConfig): string {
  const place =
    transport.type === "stdio"
      ? ["stdio", transport.command, transport.args, Object.keys(transport.env).sort()]
      : ["http", transport.url, Object.keys(transport.headers).sort()];
  return createHash("sha256")
    .update(JSON.stringify([place, tool]))
    .digest("hex");
}

/**
 * The name of a function: `mcp__<server>__<tool>`, since a server's name has no `__`. Where that does not say which tool it
 * is, or is none that every model provider takes, it ends in a digest of both names.
 */
export function functionName(server: string, tool: string): string {
  const plain = `mcp__${server}__${tool}`;
  const isPlain = /^[A-Za-z0-9_-]+$/.test(tool) && !server.endsWith("_") && shortName(plain) === plain;
  if (isPlain) return plain;
  const digest = createHash("sha256")
    .update(JSON.stringify([server, tool]))
    .digest("hex")
    .slice(0, 8);
  const written = plain.replace(/[^A-Za-z0-9_-]+/g, "_");
  return `${written.slice(0, maxFunctionName - digest.length - 1)}_${digest}`;
}

function stringOf(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** As `shortName` has it. */
const maxFunctionName = 64;

/** `undefined` for what is no object or can't be written down. */
function schemaText(schema: unknown): string | undefined {
  if (!isRecord(schema)) return undefined;
  try {
    return JSON.stringify(schema);
  } catch {
    return undefined;
  }
}

function matcherOf(globs: readonly string[]): (name: string) => boolean {
  if (globs.length === 0) return () => false;
  const matches = withinTime(matchLimitMs, () => picomatch([...globs], { dot: true, nonegate: true }));
  // A slash in a tool's name is a character like any other.
  return (name) => withinTime(matchLimitMs, () => matches(name.replaceAll("/", "_")));
}

function shortText(text: string, most: number): string {
  return harmlessText(text.length <= most ? text : `${text.slice(0, most)} …`);
}

function byCodeUnit(left: string, right: string): number {
  return left < right ? -1 : left > right ? 1 : 0;
}
