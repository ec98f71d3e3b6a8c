import type { ServiceImpl } from "@connectrpc/connect";
import type { CodeAgentService, McpServerConfigProto } from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { AgentError, invalidField } from "../../chat/error.ts";
import type { McpServerView } from "../../tool/mcp/mcp-server.ts";
import {
  checkMcpServer,
  defaultCallTimeoutMs,
  defaultConnectTimeoutMs,
  McpConfigError,
  type McpServerConfig,
} from "../../tool/mcp/mcp-server-config.ts";
import { checkLength } from "../request-fields.ts";
import type { LegacyCore } from "./legacy-core.ts";

const connectWaitMs = 10_000;
/** Servers that are registered and not connected. */
const mostSetAside = 64;

/**
 * Of the earlier service: MCP servers. What is registered is kept over restarts and connected to in the background; one
 * registered with `enabled: false` is not, and neither is one that was disconnected: these are remembered until the
 * server stops, so that `ConnectMcpServer` finds them. Values of `env` and `headers` are taken and never told. To register, to
 * connect and to disconnect takes the right to administer the server.
 */
export function legacyMcpHandlers(core: LegacyCore) {
  const { mcpServers, admin } = core;
  const setAside = new Map<string, McpServerConfig>();
  const find = (name: string) => mcpServers.views().find(({ server }) => server.name === name);
  const keepAside = (server: McpServerConfig) => {
    if (setAside.size >= mostSetAside && !setAside.has(server.name))
      throw new AgentError(
        "resource_exhausted",
        `${mostSetAside} MCP servers are registered and not connected already`,
      );
    setAside.set(server.name, server);
  };
  return {
    async registerMcpServer(request, context) {
      admin(context);
      const { config } = request;
      if (config === undefined) throw invalidField("config", "is missing; describe the server");
      const server = serverFromProto(config);
      if (!config.enabled) {
        if (find(server.name) !== undefined)
          throw new AgentError("already_exists", `there is an MCP server ${server.name}; disconnect it first`);
        keepAside(server);
        return { success: true, message: `${server.name} is registered, and not connected until you connect it` };
      }
      await mcpServers.add(server, 0);
      setAside.delete(server.name);
      return { success: true, message: `${server.name} is registered; it is being connected` };
    },
    async connectMcpServer(request, context) {
      admin(context);
      const name = nameFrom(request.name);
      const view = find(name);
      const server = setAside.get(name);
      const connected = await (view !== undefined
        ? connect(core, view)
        : server !== undefined
          ? mcpServers.add(server, connectWaitMs)
          : unknownServer(name));
      setAside.delete(name);
      const { state, error, toolNames } = connected;
      if (state === "ready") return { success: true, message: "", toolNames: [...toolNames] };
      const why = error === "" ? "it has not answered yet; look again later" : error;
      return { success: false, message: `${name} is not connected: ${why}`, toolNames: [] };
    },
    async disconnectMcpServer(request, context) {
      admin(context);
      const name = nameFrom(request.name);
      const view = find(name);
      if (view === undefined) {
        if (!setAside.has(name)) unknownServer(name);
        return { success: true };
      }
      if (view.source === "api") keepAside(view.server);
      try {
        await mcpServers.remove(name);
      } catch (error) {
        setAside.delete(name);
        throw error;
      }
      return { success: true };
    },
    async listMcpServers() {
      const connected = mcpServers.views().map(({ server: { name }, state, error, toolNames }) => ({
        name,
        connected: state === "ready",
        enabled: true,
        toolCount: toolNames.length,
        ...(error === "" ? {} : { error }),
      }));
      const others = [...setAside.keys()].map((name) => ({ name, connected: false, enabled: false, toolCount: 0 }));
      return { servers: [...connected, ...others].toSorted((left, right) => (left.name < right.name ? -1 : 1)) };
    },
    async getMcpTools({ serverName = "" }) {
      checkLength(serverName, 256, "server_name");
      const isKnown = serverName === "" || setAside.has(serverName) || find(serverName) !== undefined;
      if (!isKnown) unknownServer(serverName);
      const tools = (await mcpServers.list()).flatMap(({ name, source, description, parameters }) => {
        const server = source.replace(/^mcp:/, "");
        if (serverName !== "" && server !== serverName) return [];
        const prefix = `mcp__${server}__`;
        const toolName = name.startsWith(prefix) ? name.slice(prefix.length) : name;
        return [{ fullName: name, serverName: server, toolName, description, inputSchema: parameters }];
      });
      return { tools };
    },
  } satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}

function connect({ mcpServers }: LegacyCore, view: McpServerView): Promise<McpServerView> {
  const { state, server } = view;
  if (state === "ready") return Promise.resolve(view);
  // One that is there already is waited for.
  return state === "connecting"
    ? mcpServers.add(server, connectWaitMs)
    : mcpServers.reconnect(server.name, connectWaitMs);
}

function nameFrom(name: string): string {
  if (name === "") throw invalidField("name", "is empty; name a server");
  return name.slice(0, 100);
}

function unknownServer(name: string): never {
  throw new AgentError("not_found", `there is no MCP server ${name.slice(0, 100)}; register it first`);
}

function serverFromProto(config: McpServerConfigProto): McpServerConfig {
  const server: McpServerConfig = {
    name: config.name,
    transport: transportFromProto(config),
    timeoutMs: defaultCallTimeoutMs,
    connectTimeoutMs: defaultConnectTimeoutMs,
    allowedTools: [],
    trustHints: false,
    readOnlyTools: [],
  };
  try {
    checkMcpServer(server);
  } catch (error) {
    if (error instanceof McpConfigError) throw invalidField(fieldOf(error.field), error.description);
    throw error;
  }
  return server;
}

/** Where the earlier service has what ours calls so. */
function fieldOf(field: string): string {
  if (field.startsWith("stdio.env")) return `config.${field.slice("stdio.".length)}`;
  return field === "name" ? "config.name" : `config.transport.${field}`;
}

function transportFromProto({ transport: given, env }: McpServerConfigProto) {
  const transport = given?.transport;
  switch (transport?.case) {
    case "stdio": {
      const { command, args } = transport.value;
      return { type: "stdio", command, args: [...args], env: { ...env }, network: true, writable: [] } as const;
    }
    case "http": {
      if (Object.keys(env).length > 0)
        throw invalidField("config.env", "is for servers that are programs; leave it out");
      const { url, headers } = transport.value;
      return { type: "http", url, headers: { ...headers } } as const;
    }
    case undefined:
      throw invalidField("config.transport", "is missing; set stdio or http");
    default:
      return transport satisfies never;
  }
}
