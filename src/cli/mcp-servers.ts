import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { toJson } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { type McpServerStatus, McpServerStatusSchema } from "../../gen/codeagent/v1/mcp_service_pb.ts";
import type { TakenEnvironment } from "./secrets.ts";
import { type ConnectionFlags, openService, type Service } from "./service.ts";
import { jsonLine, oneLine, pageOn } from "./terminal.ts";

export interface McpServersFlags extends ConnectionFlags {
  readonly json?: boolean;
}
export interface AddMcpServerFlags extends ConnectionFlags {
  /** `NAME=value`, or `NAME` for the value it has here. */
  readonly env?: readonly string[];
  /** `Name: value`. */
  readonly header?: readonly string[];
  readonly tool?: readonly string[];
  readonly timeout?: string;
}

/** A service of our own has only begun to connect. */
const connectPatienceMs = 10_000;
const lookMs = 100;
const errorCharacters = 300;

/** Lists the MCP servers whose tools agents can call. @returns the exit code. */
export async function listMcpServers(flags: McpServersFlags, taken: TakenEnvironment): Promise<number> {
  await using service = await openService(flags, taken);
  const servers = await serversOf(service);
  const page = pageOn(process.stdout);
  for (const server of servers)
    page.write(flags.json === true ? jsonLine(toJson(McpServerStatusSchema, server)) : `${serverLine(server)}\n`);
  if (servers.length === 0 && flags.json !== true) page.write("there are no MCP servers\n", "dim");
  return 0;
}

/**
 * Adds an MCP server and says what came of the first connection.
 * @param words a URL, or a program and its arguments
 * @returns the exit code: 1 when it was added, but is not there.
 */
export async function addMcpServer(
  name: string,
  words: readonly string[],
  flags: AddMcpServerFlags,
  taken: TakenEnvironment,
): Promise<number> {
  const server = {
    name,
    transport: transportFrom(words, flags, taken),
    allowedTools: [...(flags.tool ?? [])],
    ...(flags.timeout === undefined ? {} : { timeoutMs: millisecondsFrom(flags.timeout) }),
  };
  await using service = await openService(flags, taken);
  const added = await service.client.mcp.addMcpServer({ server, requestId: randomUUID() });
  pageOn(process.stdout).write(`${serverLine(added)}\n`);
  return added.state === "failed" || added.state === "closed" ? 1 : 0;
}

/** Removes MCP servers; the first that can't be ends it. @returns the exit code. */
export async function removeMcpServers(
  names: readonly string[],
  flags: ConnectionFlags,
  taken: TakenEnvironment,
): Promise<number> {
  await using service = await openService(flags, taken);
  for (const name of names) await service.client.mcp.removeMcpServer({ name, requestId: randomUUID() });
  return 0;
}

async function serversOf({ client, own }: Service): Promise<readonly McpServerStatus[]> {
  const deadline = performance.now() + connectPatienceMs;
  for (;;) {
    const { servers } = await client.mcp.listMcpServers({});
    const isSettled = !own || servers.every(({ state }) => state !== "connecting");
    if (isSettled || performance.now() > deadline) return servers;
    await wait(lookMs);
  }
}

function transportFrom(words: readonly string[], flags: AddMcpServerFlags, { env, redactor }: TakenEnvironment) {
  const { env: variables = [], header: headers = [] } = flags;
  const [first = "", ...args] = words;
  if (/^https?:\/\//i.test(first)) {
    if (args.length > 0 || variables.length > 0) throw new Error("a URL has neither arguments nor --env");
    const pairs = headers.map((header) => {
      const [, name = "", value = ""] = /^([^:]+):\s*(.*)$/.exec(header) ?? [];
      if (name === "") throw new Error('--header wants "Name: value"');
      redactor.hide(value);
      return [name.trim(), value] as const;
    });
    return { case: "http" as const, value: { url: first, headers: Object.fromEntries(pairs) } };
  }
  if (headers.length > 0) throw new Error("--header goes with a URL; a program is given --env");
  const pairs = variables.map((variable) => {
    const at = variable.indexOf("=");
    const name = at === -1 ? variable : variable.slice(0, at);
    const value = at === -1 ? env[name] : variable.slice(at + 1);
    if (value === undefined) throw new Error(`--env ${name}: there is no such variable here; NAME=value sets it`);
    redactor.hide(value);
    return [name, value] as const;
  });
  return { case: "stdio" as const, value: { command: first, args, env: Object.fromEntries(pairs) } };
}

function millisecondsFrom(text: string): bigint {
  if (!/^\d{1,9}$/.test(text)) throw new Error(`--timeout is ${JSON.stringify(text)}: milliseconds are wanted`);
  return BigInt(text);
}

function serverLine({ name, state, toolCount, transport, error, source, nextAttemptTime }: McpServerStatus): string {
  const where =
    transport.case === "http"
      ? transport.value.url
      : [transport.value?.command ?? "", ...(transport.value?.args ?? [])].join(" ");
  const next = nextAttemptTime === undefined ? "" : `, next attempt ${timestampDate(nextAttemptTime).toISOString()}`;
  const how = state === "ready" ? `${toolCount} tools` : `${error}${next}`;
  return [name, state, source, oneLine(where, 80), oneLine(how, errorCharacters)].join("  ");
}
