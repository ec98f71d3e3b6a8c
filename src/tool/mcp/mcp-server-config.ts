import { isLoaderVariable } from "../sandbox/environment.ts";

/** A program that speaks MCP over its standard input and output. */
export interface McpStdioConfig {
  readonly type: "stdio";
  /** An absolute path, or a name looked up in the PATH of a child. No shell reads it. */
  readonly command: string;
  readonly args: readonly string[];
  /** Added to the few variables every child is given. */
  readonly env: Readonly<Record<string, string>>;
  /** Absolute path; default: the server's workspace. */
  readonly cwd?: string;
  /** Whether it may use the network. */
  readonly network: boolean;
  /** Absolute paths it may change besides the server's workspace. */
  readonly writable: readonly string[];
}

/** An address that speaks MCP over streamable HTTP. */
export interface McpHttpConfig {
  readonly type: "http";
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** The variable of the environment that holds the token for `Authorization: Bearer`. */
  readonly tokenEnv?: string;
}

/** An MCP server to connect to. */
export interface McpServerConfig {
  /** 1 to 64 of `A-Z a-z 0-9 _ -`, without `__`. */
  readonly name: string;
  readonly transport: McpStdioConfig | McpHttpConfig;
  /** How long one call of its tools may take. */
  readonly timeoutMs: number;
  /** How long it may take to start, to greet and to list its tools. */
  readonly connectTimeoutMs: number;
  /** Names of its tools to offer, as the server calls them; empty means all. */
  readonly allowedTools: readonly string[];
  /** Believe what the server says of its tools: that they only read, that they stay on this machine. */
  readonly trustHints: boolean;
  /** Its tools that only read, as the server calls them; `*` stands for any characters. */
  readonly readOnlyTools: readonly string[];
}

/** What is wrong with a server's description; `field` is a path like `stdio.args[2]`. */
export class McpConfigError extends Error {
  override readonly name = "McpConfigError";
  readonly field: string;
  readonly description: string;

  constructor(field: string, description: string) {
    super(`${field}: ${description}`);
    this.field = field;
    this.description = description;
  }
}

export const defaultCallTimeoutMs = 60_000;
export const defaultConnectTimeoutMs = 10_000;
/** The longest any function may run. */
const maxCallTimeoutMs = 600_000;
const maxConnectTimeoutMs = 120_000;
const maxTexts = 256;
const maxCharacters = 64 * 1024;

const namePattern = /^(?!.*__)[A-Za-z0-9_-]{1,64}$/;
const variablePattern = /^[A-Za-z_][A-Za-z0-9_]*$/;
const headerPattern = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const notInHeader = /[^\t\x20-\x7e\x80-\xff]/;

/** What belongs to the connection or to the protocol. */
const ownHeaders =
  /^(?:host|connection|keep-alive|content-.*|transfer-encoding|upgrade|te|trailer|expect|accept|accept-encoding|proxy-.*|mcp-.*|last-event-id)$/i;

/** @throws {McpConfigError} where a part of it can't be used. */
export function checkMcpServer(server: McpServerConfig): void {
  const { name, transport, timeoutMs, connectTimeoutMs } = server;
  if (!namePattern.test(name))
    throw new McpConfigError("name", "has to be 1 to 64 of A-Z a-z 0-9 _ -, without two _ in a row");
  if (transport.type === "stdio") checkStdio(transport);
  else checkHttp(transport);
  checkMs(timeoutMs, maxCallTimeoutMs, "timeout_ms");
  checkMs(connectTimeoutMs, maxConnectTimeoutMs, "connect_timeout_ms");
  checkTexts(server.allowedTools, "allowed_tools");
  checkTexts(server.readOnlyTools, "read_only_tools");
}

function checkStdio({ command, args, env, cwd, writable }: McpStdioConfig): void {
  if (command === "") throw new McpConfigError("stdio.command", "is empty; name the program to start");
  checkText(command, "stdio.command");
  if (command.includes("/") && !command.startsWith("/"))
    throw new McpConfigError("stdio.command", "is a relative path; a name or an absolute path is wanted");
  if (command.startsWith("-")) throw new McpConfigError("stdio.command", "begins with -; a program is wanted");
  checkTexts(args, "stdio.args");
  checkTexts(writable, "stdio.writable");
  if (cwd !== undefined) checkText(cwd, "stdio.cwd");
  checkTexts(Object.values(env), "stdio.env");
  for (const variable of Object.keys(env)) {
    const field = `stdio.env[${shown(variable)}]`;
    if (!variablePattern.test(variable))
      throw new McpConfigError(field, "is no name of a variable; letters, digits and _ are wanted");
    if (variable === "PATH" || isLoaderVariable(variable))
      throw new McpConfigError(field, "decides what code programs load, so it can't be set; use an absolute command");
  }
}

function checkHttp({ url, headers, tokenEnv }: McpHttpConfig): void {
  const field = "http.url";
  if (url === "") throw new McpConfigError(field, "is empty; name an https: URL");
  checkText(url, field);
  const parsed = URL.parse(url);
  if (parsed?.protocol !== "https:" && parsed?.protocol !== "http:")
    throw new McpConfigError(field, "has to be an https: URL, or an http: URL of this machine");
  if (parsed.username !== "" || parsed.password !== "")
    throw new McpConfigError(field, "has a user name or password; send them in a header");
  if (parsed.protocol === "http:" && !isThisMachine(parsed.hostname))
    throw new McpConfigError(field, "is http: to another machine; https: is wanted there");
  checkTexts(Object.values(headers), "http.headers");
  for (const [header, value] of Object.entries(headers)) {
    const at = `http.headers[${shown(header)}]`;
    if (!headerPattern.test(header)) throw new McpConfigError(at, "is no name of a header");
    if (ownHeaders.test(header)) throw new McpConfigError(at, "belongs to the connection; leave it out");
    if (notInHeader.test(value)) throw new McpConfigError(at, "has a character that a header can't have");
  }
  if (tokenEnv !== undefined && !variablePattern.test(tokenEnv))
    throw new McpConfigError("http.token_env", "is no name of a variable");
}

/** Whether a URL's host is this machine, whatever a name server says. */
function isThisMachine(host: string): boolean {
  return host === "localhost" || host === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(host);
}

function checkMs(value: number, most: number, field: string): void {
  if (!Number.isSafeInteger(value) || value < 1 || value > most)
    throw new McpConfigError(field, `has to be from 1 to ${most} milliseconds`);
}

function checkTexts(texts: readonly string[], field: string): void {
  if (texts.length > maxTexts) throw new McpConfigError(field, `has ${texts.length} entries; ${maxTexts} is the most`);
  let characters = 0;
  for (const [index, text] of texts.entries()) {
    checkText(text, `${field}[${index}]`);
    characters += text.length;
  }
  if (characters > maxCharacters)
    throw new McpConfigError(field, `has ${characters} characters; ${maxCharacters} is the most`);
}

function checkText(text: string, field: string): void {
  if (text.includes("\0")) throw new McpConfigError(field, "has a NUL character");
  if (!text.isWellFormed()) throw new McpConfigError(field, "has half a surrogate pair");
  if (text.length > maxCharacters)
    throw new McpConfigError(field, `has ${text.length} characters; ${maxCharacters} is the most`);
}

function shown(name: string): string {
  return JSON.stringify(name.slice(0, 80)).slice(1, -1);
}

/** The same text for the same server: what two descriptions are compared by. It holds secrets. */
export function mcpConfigText(server: McpServerConfig): string {
  return JSON.stringify(server, (_key, value: unknown) =>
    typeof value === "object" && value !== null && !Array.isArray(value)
      ? Object.fromEntries(Object.entries(value).sort(([left], [right]) => (left < right ? -1 : 1)))
      : value,
  );
}
