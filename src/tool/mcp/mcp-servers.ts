import { AgentError } from "../../chat/error.ts";
import { type ToolResult, toolFailure } from "../../chat/tool-result.ts";
import type { FunctionCall, FunctionContext, FunctionDefinition, FunctionProvider } from "../function-provider.ts";
import { McpServer, type McpServerEnvironment, type McpServerView } from "./mcp-server.ts";
import { type McpServerConfig, mcpConfigText } from "./mcp-server-config.ts";
import { readSavedMcpServers, saveMcpServers } from "./saved-mcp-servers.ts";

export interface McpServersOptions extends McpServerEnvironment {
  /** Servers of the configuration file. */
  readonly configured: readonly McpServerConfig[];
  /** Where servers that are added later are kept. */
  readonly dataDir: string;
  /** Begins to connect at once; else when somebody asks for the tools or the servers. */
  readonly connectsAtOnce: boolean;
}

const maxServers = 64;
/** Who asks for the tools right after the start waits so long for servers that have not been tried yet. */
const firstPatienceMs = 3000;
/** Names of functions that are gone, so that a call of one says why it fails. */
const maxRemembered = 100_000;

/**
 * The MCP servers and their tools, as functions. Connections are made in the background and shared by all sessions, so the
 * root that programs are told is the service's own workspace. What was added with `add` comes back at the next start.
 */
export class McpServers implements FunctionProvider {
  readonly source = "mcp";
  readonly #options: McpServersOptions;
  /** By name. */
  readonly #servers = new Map<string, McpServer>();
  readonly #listeners = new Set<() => void>();
  /** Where the functions that were ever listed are found; those that are gone still say why. */
  readonly #found = new Map<string, { readonly server: string; readonly tool: string }>();
  #definitions: readonly FunctionDefinition[] = [];
  /** Changes of the file, one after another. Never rejects. */
  #saved: Promise<void> = Promise.resolve();
  /** By name. */
  readonly #removals = new Map<string, Promise<void>>();
  #isAwake: boolean;
  /** When the first attempts were begun, while they count. */
  #firstMs: number | undefined;
  #isClosed = false;

  private constructor(options: McpServersOptions) {
    this.#options = options;
    this.#isAwake = options.connectsAtOnce;
    this.#firstMs = options.clock.now();
  }

  /** Reads what was added earlier and begins to connect; does not wait for any server. */
  static async start(options: McpServersOptions): Promise<McpServers> {
    const servers = new McpServers(options);
    for (const config of options.configured) servers.#begin(config, "config");
    const { servers: saved, faults } = await readSavedMcpServers(options.dataDir);
    for (const fault of faults) options.report("warn", fault);
    for (const config of saved) {
      if (!servers.#servers.has(config.name)) servers.#begin(config, "api");
      else
        options.report(
          "warn",
          `the MCP server ${config.name} that was added is passed over: the configuration has one`,
        );
    }
    return servers;
  }

  /** How the servers are, in order of their names. */
  views(): readonly McpServerView[] {
    this.#wake();
    return this.#inOrder().map((server) => server.view);
  }

  /** The end of what a server's program wrote to its standard error; for the operator. */
  errorText(name: string): string {
    return this.#servers.get(name)?.errorText ?? "";
  }

  /**
   * Adds a server, keeps it, and waits for its first connection for a time; the same server again changes nothing.
   * @throws {AgentError} `already_exists` when another one has the name, `resource_exhausted` when there are too many.
   */
  async add(config: McpServerConfig, waitMs: number, signal?: AbortSignal): Promise<McpServerView> {
    this.#wake();
    await this.#removals.get(config.name);
    const known = this.#servers.get(config.name);
    if (known !== undefined && mcpConfigText(known.config) !== mcpConfigText(config))
      throw new AgentError(
        "already_exists",
        `there is an MCP server ${config.name} with another configuration; remove it first, or choose another name`,
      );
    if (known === undefined && this.#servers.size >= maxServers)
      throw new AgentError(
        "resource_exhausted",
        `there are ${maxServers} MCP servers, the most there can be; remove one`,
      );
    const server = known ?? this.#begin(config, "api");
    if (known === undefined) {
      try {
        await this.#save();
      } catch (cause) {
        this.#servers.delete(config.name);
        await server.close();
        throw new AgentError(
          "unavailable",
          `the MCP server ${config.name} can't be kept; is the data directory writable?`,
          {
            cause,
          },
        );
      }
    }
    await server.settled(waitMs, signal);
    return server.view;
  }

  /**
   * Ends a server and forgets it. Resolves when its program is gone.
   * @throws {AgentError} `not_found`, or `failed_precondition` for one of the configuration file.
   */
  async remove(name: string): Promise<void> {
    const server = this.#servers.get(name);
    if (server === undefined) {
      const removal = this.#removals.get(name);
      if (removal === undefined) throw noServer(name);
      return removal;
    }
    if (server.source === "config")
      throw new AgentError(
        "failed_precondition",
        `the MCP server ${name} is of the configuration file; remove it there and start the service again`,
      );
    const work = this.#remove(server);
    this.#removals.set(name, work);
    try {
      await work;
    } finally {
      this.#removals.delete(name);
    }
  }

  /** Connects to a server anew and waits for that for a time. @throws {AgentError} `not_found`. */
  async reconnect(name: string, waitMs: number, signal?: AbortSignal): Promise<McpServerView> {
    const server = this.#servers.get(name);
    if (server === undefined) throw noServer(name);
    server.connect();
    await server.settled(waitMs, signal);
    return server.view;
  }

  /** Resolves when each server has been tried once, or after a time. */
  async settled(limitMs: number): Promise<void> {
    this.#wake();
    await Promise.all(this.#inOrder().map((server) => server.settled(limitMs)));
  }

  /** Right after the start it waits a little, so that the first turn has the tools too. */
  async list(): Promise<readonly FunctionDefinition[]> {
    this.#wake();
    if (this.#firstMs !== undefined) {
      const leftMs = this.#firstMs + firstPatienceMs - this.#options.clock.now();
      if (leftMs > 0) await this.settled(leftMs);
      this.#firstMs = undefined;
    }
    return this.#definitions;
  }

  async call(call: FunctionCall, context: FunctionContext): Promise<ToolResult> {
    const found = this.#found.get(call.name);
    if (found === undefined) return toolFailure(`there is no tool ${call.name} of an MCP server`);
    const server = this.#servers.get(found.server);
    if (server === undefined) return toolFailure(`the MCP server ${found.server} was removed, and its tools with it`);
    return server.call(found.tool, call.arguments, context);
  }

  watch(onChange: () => void): () => void {
    this.#listeners.add(onChange);
    return () => this.#listeners.delete(onChange);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#listeners.clear();
    await Promise.all([...this.#inOrder().map((server) => server.close()), ...this.#removals.values()]);
    await this.#saved;
  }

  async #remove(server: McpServer): Promise<void> {
    const { name } = server.config;
    this.#servers.delete(name);
    try {
      await this.#save();
    } catch (cause) {
      this.#servers.set(name, server);
      throw new AgentError(
        "unavailable",
        `the MCP server ${name} can't be forgotten; is the data directory writable?`,
        {
          cause,
        },
      );
    }
    this.#changed();
    await server.close();
  }

  #begin(config: McpServerConfig, source: "config" | "api"): McpServer {
    if (this.#isClosed) throw new AgentError("unavailable", "the service is stopping");
    const server = new McpServer(config, source, this.#options, () => this.#changed());
    this.#servers.set(config.name, server);
    if (this.#isAwake) server.connect();
    return server;
  }

  #wake(): void {
    if (this.#isAwake || this.#isClosed) return;
    this.#isAwake = true;
    this.#firstMs = this.#options.clock.now();
    for (const server of this.#inOrder()) server.connect();
  }

  #save(): Promise<void> {
    const work = this.#saved.then(() =>
      saveMcpServers(
        this.#options.dataDir,
        this.#inOrder()
          .filter(({ source }) => source === "api")
          .map(({ config }) => config),
      ),
    );
    this.#saved = work.catch(() => undefined);
    return work;
  }

  #inOrder(): McpServer[] {
    return [...this.#servers.values()].sort((left, right) => (left.config.name < right.config.name ? -1 : 1));
  }

  #compose(): readonly FunctionDefinition[] {
    if (this.#found.size > maxRemembered) this.#found.clear();
    const definitions = new Map<string, FunctionDefinition>();
    for (const server of this.#inOrder()) {
      for (const { name: tool, definition } of server.tools) {
        // Names are made so that this does not happen but by design of a server; the first keeps it.
        if (definitions.has(definition.name)) continue;
        definitions.set(definition.name, definition);
        this.#found.set(definition.name, { server: server.config.name, tool });
      }
    }
    return [...definitions.values()];
  }

  #changed(): void {
    this.#definitions = this.#compose();
    for (const listener of this.#listeners) listener();
  }
}

function noServer(name: string): AgentError {
  return new AgentError("not_found", `there is no MCP server ${name}`);
}
