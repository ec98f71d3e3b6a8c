import { basename } from "node:path";
import { pathToFileURL } from "node:url";
import {
  Client,
  type Progress,
  ProtocolError,
  SdkError,
  SdkErrorCode,
  SdkHttpError,
  type StandardSchemaV1,
} from "@modelcontextprotocol/client";
import { harmlessText } from "../bounded-text.ts";
import { isRecord } from "../check-value.ts";
import { RefusedUrl } from "../net/address-policy.ts";
import type { GuardedClient } from "../net/guarded-client.ts";
import { ProgramRefusedError, type Sandbox, SandboxUnavailableError } from "../sandbox/sandbox.ts";
import { HttpTransport, httpFault } from "./http-transport.ts";
import type { McpServerConfig, McpStdioConfig } from "./mcp-server-config.ts";
import { McpServerError, McpUnusableError } from "./mcp-server-error.ts";
import { StdioTransport } from "./stdio-transport.ts";

/** What connections are made with. */
export interface McpConnectionEnvironment {
  /** Where programs run. */
  readonly sandbox: Sandbox;
  /** What addresses are reached through. */
  readonly client: GuardedClient;
  /** The folder of stdio servers: they work in it, may change it, and are told that it is their root. Absolute path. */
  readonly workspace: string;
  /** What `${env:NAME}` and `token_env` stand for. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Whether `${env:NAME}` counts: not where somebody else than the operator wrote it. */
  readonly readsEnvironment: boolean;
  /** What we say we are. */
  readonly version: string;
  readonly random: () => number;
}

const maxPages = 64;
const maxListed = 2048;
const maxListCharacters = 4 * 1024 * 1024;
const errorCharacters = 500;

/** Whatever it is; our own parsers look at it. The SDK's would refuse a whole list for one tool. */
const anything: StandardSchemaV1<unknown, unknown> = {
  "~standard": { version: 1, vendor: "codeagent", validate: (value) => ({ value }) },
};

/** One connection to an MCP server, from the greeting to the end. Its owner closes it. */
export class McpConnection {
  readonly #client: Client;
  readonly #transport: StdioTransport | HttpTransport;
  /** Texts that must not be seen in what comes out. */
  readonly #secrets: readonly string[];

  private constructor(client: Client, transport: StdioTransport | HttpTransport, secrets: readonly string[]) {
    this.#client = client;
    this.#transport = transport;
    this.#secrets = secrets;
  }

  /**
   * Prepares a connection; `open` makes it.
   * @param onToolsChanged called when the server says that its tools are others.
   * @param onClose called once, when the connection is over, also after `close`.
   * @throws {McpUnusableError} when a variable of the environment is missing.
   */
  static prepare(
    server: McpServerConfig,
    environment: McpConnectionEnvironment,
    onToolsChanged: () => void,
    onClose: () => void,
  ): McpConnection {
    const secrets: string[] = [];
    const transport = transportOf(server, environment, secrets);
    const isProgram = server.transport.type === "stdio";
    const cwd = server.transport.type === "stdio" ? server.transport.cwd : undefined;
    const client = new Client(
      { name: "codeagent", version: environment.version },
      {
        // A server elsewhere is not told where our files lie. Neither may ask our models or our people: it can't see who is there.
        capabilities: isProgram ? { roots: {} } : {},
        listChanged: { tools: { autoRefresh: false, debounceMs: 0, onChanged: () => onToolsChanged() } },
      },
    );
    if (isProgram) {
      // Some take the root they are told for the only folder they work in, whatever their arguments name.
      const root = cwd ?? environment.workspace;
      const roots = [{ uri: pathToFileURL(root).href, name: cwd === undefined ? "workspace" : basename(root) }];
      client.setRequestHandler("roots/list", () => ({ roots }));
    }
    client.onclose = onClose;
    // What is worth telling comes with the answer, or as the end of the connection.
    client.onerror = () => undefined;
    return new McpConnection(client, transport, secrets);
  }

  /** Starts or reaches the server and greets it. @throws {McpServerError | McpUnusableError | Error} when that fails. */
  async open(signal: AbortSignal, timeoutMs: number): Promise<void> {
    try {
      await this.#client.connect(this.#transport, { signal, timeout: timeoutMs });
    } catch (error) {
      await this.close();
      throw this.#described(error, "did not greet us", timeoutMs);
    }
  }

  /** What the server says its tools are, unread. @throws {McpServerError} when it does not say. */
  async listTools(signal: AbortSignal, timeoutMs: number): Promise<readonly unknown[]> {
    if (this.#client.getServerCapabilities()?.tools === undefined) return [];
    const tools: unknown[] = [];
    const cursors = new Set<string>();
    let characters = 0;
    let cursor: string | undefined;
    try {
      for (let page = 0; page < maxPages; page++) {
        const params = cursor === undefined ? {} : { cursor };
        const result = await this.#client.request({ method: "tools/list", params }, anything, {
          signal,
          timeout: timeoutMs,
        });
        if (!isRecord(result) || !Array.isArray(result["tools"]))
          throw new McpServerError("answered tools/list without tools");
        characters += JSON.stringify(result["tools"]).length;
        if (characters > maxListCharacters)
          throw new McpServerError(`describes its tools in more than ${maxListCharacters} characters`);
        tools.push(...result["tools"]);
        if (tools.length > maxListed) throw new McpServerError(`lists more than ${maxListed} tools`);
        const next = result["nextCursor"];
        if (typeof next !== "string") return tools;
        if (cursors.has(next)) throw new McpServerError("lists its tools in a circle");
        cursors.add(next);
        cursor = next;
      }
    } catch (error) {
      throw this.#described(error, "did not list its tools", timeoutMs);
    }
    throw new McpServerError(`lists its tools on more than ${maxPages} pages`);
  }

  /**
   * Calls a tool; an abort and the time limit tell the server.
   * @throws {McpServerError} when there is no result; the reason of the signal.
   */
  async callTool(
    name: string,
    args: Readonly<Record<string, unknown>>,
    options: {
      readonly signal: AbortSignal;
      readonly timeoutMs: number;
      readonly onProgress?: (progress: Progress) => void;
    },
  ): Promise<unknown> {
    const { signal, timeoutMs, onProgress } = options;
    try {
      const request = { method: "tools/call", params: { name, arguments: args } };
      return await this.#client.request(request, anything, {
        signal,
        timeout: timeoutMs,
        ...(onProgress === undefined ? {} : { onprogress: onProgress }),
      });
    } catch (error) {
      signal.throwIfAborted();
      throw this.#described(error, "did not answer the call", timeoutMs);
    }
  }

  /** What the server calls itself, with its version. */
  get serverInfo(): string {
    const info = this.#client.getServerVersion();
    return info === undefined ? "" : harmlessText(`${info.name} ${info.version}`.trim().slice(0, 200));
  }

  /** Version of MCP that is spoken. */
  get protocolVersion(): string {
    return harmlessText((this.#client.getNegotiatedProtocolVersion() ?? "").slice(0, 40));
  }

  /** Why it is over, as the end of a sentence about the server. */
  get endReason(): string {
    const reason = this.#transport.endReason ?? "ended the connection";
    const lastLine = this.errorText.trimEnd().split("\n").at(-1)?.trim() ?? "";
    return lastLine === "" ? reason : `${reason}; its last words: ${lastLine.slice(0, 200)}`;
  }

  /** The end of what its program wrote to its standard error, without secrets; for the operator. */
  get errorText(): string {
    let text = this.#transport.errorText;
    for (const secret of this.#secrets) text = text.replaceAll(secret, "[hidden]");
    return harmlessText(text);
  }

  /** Resolves when the program of a stdio server is gone. Never rejects. */
  async close(): Promise<void> {
    await this.#client.close().catch(() => undefined);
    await this.#transport.close();
  }

  #described(error: unknown, what: string, timeoutMs: number): Error {
    if (error instanceof McpServerError || error instanceof McpUnusableError) return error;
    const ended = this.#transport.endReason;
    if (error instanceof SdkHttpError) return new McpServerError(httpFault(error));
    if (error instanceof ProtocolError)
      return new McpServerError(`answers with an error: ${this.#safe(error.message)} (code ${error.code})`);
    if (error instanceof SdkError && error.code === SdkErrorCode.RequestTimeout)
      return new McpServerError(`${what} within ${timeoutMs} ms`);
    if (error instanceof RefusedUrl) return new McpServerError(`can't be asked: ${error.message}`);
    if (ended !== undefined) return new McpServerError(this.endReason);
    if (error instanceof SdkError) return new McpServerError(`${what}: ${this.#safe(error.message)}`);
    if (error instanceof SandboxUnavailableError || error instanceof ProgramRefusedError)
      return new McpUnusableError(error.message);
    return new McpServerError(`${what}: ${this.#safe(error instanceof Error ? error.message : "unknown")}`);
  }

  #safe(message: string): string {
    let text = message;
    for (const secret of this.#secrets) text = text.replaceAll(secret, "[hidden]");
    return harmlessText(text.slice(0, errorCharacters));
  }
}

function transportOf(
  { transport, timeoutMs, connectTimeoutMs }: McpServerConfig,
  environment: McpConnectionEnvironment,
  secrets: string[],
): StdioTransport | HttpTransport {
  const filledIn = (texts: Readonly<Record<string, string>>) =>
    Object.fromEntries(
      Object.entries(texts).map(([name, text]) => {
        const filled = environment.readsEnvironment ? withVariables(text, environment.env) : text;
        hide(secrets, filled);
        return [name, filled];
      }),
    );
  if (transport.type === "stdio") {
    const env = filledIn(transport.env);
    return new StdioTransport({ start: () => startProgram(transport, env, environment) });
  }
  const token = transport.tokenEnv === undefined ? undefined : variable(transport.tokenEnv, environment.env);
  if (token !== undefined) hide(secrets, token);
  return new HttpTransport({
    url: transport.url,
    headers: filledIn(transport.headers),
    ...(token === undefined ? {} : { token }),
    client: environment.client,
    exchangeLimitMs: Math.max(timeoutMs, connectTimeoutMs) + 5000,
    random: environment.random,
  });
}

function startProgram(
  { command, args, cwd, network, writable }: McpStdioConfig,
  env: Readonly<Record<string, string>>,
  { sandbox, workspace }: McpConnectionEnvironment,
) {
  return sandbox.start({
    program: command,
    args,
    cwd: cwd ?? workspace,
    env,
    stdin: "pipe",
    access: { writable: [workspace, ...writable], readable: [], readsEverything: true, network },
  });
}

/** Shorter texts occur by chance. */
const leastSecretCharacters = 6;

function hide(secrets: string[], text: string): void {
  for (const part of [text, ...text.split(/\s+/)]) if (part.length >= leastSecretCharacters) secrets.push(part);
}

function withVariables(text: string, env: McpConnectionEnvironment["env"]): string {
  return text.replace(/\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}/g, (_all, name: string) => variable(name, env));
}

function variable(name: string, env: McpConnectionEnvironment["env"]): string {
  const value = env[name] ?? "";
  if (value === "") throw new McpUnusableError(`the environment variable ${name} is not set`);
  return value.trim();
}
