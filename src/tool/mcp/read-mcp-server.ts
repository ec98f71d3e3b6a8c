import { homedir } from "node:os";
import { isAbsolute, join, resolve } from "node:path";
import { isRecord } from "../check-value.ts";
import {
  checkMcpServer,
  defaultCallTimeoutMs,
  defaultConnectTimeoutMs,
  McpConfigError,
  type McpHttpConfig,
  type McpServerConfig,
  type McpStdioConfig,
} from "./mcp-server-config.ts";

const commonFields = ["timeout_ms", "connect_timeout_ms", "allowed_tools", "trust_hints", "read_only_tools"];
const stdioFields = ["command", "args", "env", "cwd", "network", "writable"];
const httpFields = ["url", "headers", "token_env"];

/**
 * An MCP server as an operator writes it: `command`, `args`, `env`, `cwd`, `network`, `writable`, or `url`, `headers`,
 * `token_env`; for both `timeout_ms`, `connect_timeout_ms`, `allowed_tools`, `trust_hints`, `read_only_tools`.
 * @param base what relative paths count from.
 * @param path where it is written, for errors.
 * @throws {Error} one sentence that says where and what is wanted; it shows no value, since some are secret.
 */
export function readMcpServer(name: string, value: unknown, base: string, path: string): McpServerConfig {
  if (!isRecord(value)) throw new Error(`${path}: a server as "field: value" is wanted`);
  const isHttp = value["url"] !== undefined;
  const known = [...stdioFields, ...httpFields, ...commonFields];
  refuseOthers(value, known, path);
  if (isHttp === (value["command"] !== undefined)) throw new Error(`${path}: either command or url is wanted`);
  refuseOthers(value, [...(isHttp ? httpFields : stdioFields), ...commonFields], path);
  const at = <Value>(field: string, read: (given: unknown) => Value, byDefault: Value): Value => {
    const given = value[field];
    if (given === undefined || given === null) return byDefault;
    try {
      return read(given);
    } catch (error) {
      throw new Error(`${path}.${field}: ${error instanceof Error ? error.message : "unreadable"}`, { cause: error });
    }
  };
  const place = (given: unknown): string => {
    const named = text(given);
    if (named === "~" || named.startsWith("~/")) return join(homedir(), named.slice(1));
    return isAbsolute(named) ? named : resolve(base, named);
  };
  const places = (given: unknown): readonly string[] => list(given).map(place);
  const cwd = at<string | undefined>("cwd", place, undefined);
  const tokenEnv = at<string | undefined>("token_env", text, undefined);
  const stdio = (): McpStdioConfig => ({
    type: "stdio",
    command: at("command", text, ""),
    args: at("args", list, []),
    env: at("env", texts, {}),
    network: at("network", flag, true),
    writable: at("writable", places, []),
    ...(cwd === undefined ? {} : { cwd }),
  });
  const http = (): McpHttpConfig => ({
    type: "http",
    url: at("url", text, ""),
    headers: at("headers", texts, {}),
    ...(tokenEnv === undefined ? {} : { tokenEnv }),
  });
  const server: McpServerConfig = {
    name,
    transport: isHttp ? http() : stdio(),
    timeoutMs: at("timeout_ms", number, defaultCallTimeoutMs),
    connectTimeoutMs: at("connect_timeout_ms", number, defaultConnectTimeoutMs),
    allowedTools: at("allowed_tools", list, []),
    trustHints: at("trust_hints", flag, false),
    readOnlyTools: at("read_only_tools", list, []),
  };
  try {
    checkMcpServer(server);
  } catch (error) {
    if (!(error instanceof McpConfigError)) throw error;
    const field = error.field.replace(/^(?:stdio|http)\./, "");
    throw new Error(`${path}${field === "name" ? "" : `.${field}`}: ${error.description}`, { cause: error });
  }
  return server;
}

function refuseOthers(value: Readonly<Record<string, unknown>>, fields: readonly string[], path: string): void {
  const other = Object.keys(value).find((key) => !fields.includes(key));
  if (other !== undefined) throw new Error(`${path}: there is no field ${other}; there are: ${fields.join(", ")}`);
}

function text(given: unknown): string {
  if (typeof given === "string") return given;
  if (typeof given === "number") return String(given);
  throw new Error("a text is wanted");
}

function flag(given: unknown): boolean {
  if (typeof given === "boolean") return given;
  throw new Error("true or false is wanted");
}

function number(given: unknown): number {
  if (typeof given === "number") return given;
  throw new Error("a number is wanted");
}

function list(given: unknown): readonly string[] {
  if (!Array.isArray(given)) throw new Error("a list of texts is wanted");
  return given.map(text);
}

function texts(given: unknown): Readonly<Record<string, string>> {
  if (!isRecord(given)) throw new Error('texts as "name: value" are wanted');
  return Object.fromEntries(Object.entries(given).map(([key, value]) => [key, text(value)]));
}
