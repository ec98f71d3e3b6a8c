import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  type McpServer,
  type McpServerStatus,
  McpServerStatusSchema,
  McpService,
  RemoveMcpServerResponseSchema,
} from "../../gen/codeagent/v1/mcp_service_pb.ts";
import { invalidField } from "../chat/error.ts";
import type { McpServerView } from "../tool/mcp/mcp-server.ts";
import {
  checkMcpServer,
  defaultCallTimeoutMs,
  defaultConnectTimeoutMs,
  McpConfigError,
  type McpServerConfig,
} from "../tool/mcp/mcp-server-config.ts";
import type { McpServers } from "../tool/mcp/mcp-servers.ts";
import type { AdminRight } from "./admin-right.ts";
import type { OnceCalls } from "./once.ts";

const defaultWaitMs = 10_000;
const mostWaitMs = 60_000;

/** The MCP servers whose tools agents can call. */
export function mcpHandlers(servers: McpServers, once: OnceCalls, mayAdminister: AdminRight) {
  return {
    async listMcpServers() {
      return { servers: servers.views().map(statusToProto) };
    },
    addMcpServer(request, context) {
      mayAdminister(context);
      return once.change(McpService.method.addMcpServer, request, async () => {
        const waitMs = waitFrom(request.connectTimeoutMs);
        return statusToProto(await servers.add(serverFromProto(request.server), waitMs));
      });
    },
    removeMcpServer(request, context) {
      mayAdminister(context);
      return once.change(McpService.method.removeMcpServer, request, async () => {
        await servers.remove(nameFrom(request.name));
        return create(RemoveMcpServerResponseSchema);
      });
    },
    reconnectMcpServer(request, context) {
      mayAdminister(context);
      return once.change(McpService.method.reconnectMcpServer, request, async () => {
        const waitMs = waitFrom(request.connectTimeoutMs);
        return statusToProto(await servers.reconnect(nameFrom(request.name), waitMs));
      });
    },
  } satisfies ServiceImpl<typeof McpService>;
}

function nameFrom(name: string): string {
  if (name === "") throw invalidField("name", "is empty; name a server");
  return name.slice(0, 100);
}

function waitFrom(value: bigint | undefined): number {
  if (value === undefined) return defaultWaitMs;
  if (value > BigInt(mostWaitMs)) throw invalidField("connect_timeout_ms", `is ${value}; ${mostWaitMs} is the most`);
  return Number(value);
}

function serverFromProto(server: McpServer | undefined): McpServerConfig {
  if (server === undefined) throw invalidField("server", "is missing; describe the server to add");
  const { name, timeoutMs, allowedTools } = server;
  const config: McpServerConfig = {
    name,
    transport: transportFromProto(server.transport),
    timeoutMs: timeoutMs === undefined ? defaultCallTimeoutMs : Number(timeoutMs),
    connectTimeoutMs: defaultConnectTimeoutMs,
    allowedTools: [...allowedTools],
    trustHints: false,
    readOnlyTools: [],
  };
  try {
    checkMcpServer(config);
  } catch (error) {
    if (error instanceof McpConfigError) throw invalidField(`server.${error.field}`, error.description);
    throw error;
  }
  return config;
}

function transportFromProto(transport: McpServer["transport"]): McpServerConfig["transport"] {
  switch (transport.case) {
    case "stdio": {
      const { command, args, env } = transport.value;
      return { type: "stdio", command, args: [...args], env: { ...env }, network: true, writable: [] };
    }
    case "http": {
      const { url, headers } = transport.value;
      return { type: "http", url, headers: { ...headers } };
    }
    case undefined:
      throw invalidField("server.transport", "is missing; set stdio or http");
    default:
      return transport satisfies never;
  }
}

function statusToProto(view: McpServerView): McpServerStatus {
  const { server, state, error, toolNames, source, serverInfo, protocolVersion, connectMs, nextAttemptMs } = view;
  return create(McpServerStatusSchema, {
    name: server.name,
    transport: transportToProto(server.transport),
    ...{ state, error, source, serverInfo, protocolVersion },
    toolCount: toolNames.length,
    toolNames: [...toolNames],
    timeoutMs: BigInt(server.timeoutMs),
    allowedTools: [...server.allowedTools],
    ...(connectMs === undefined ? {} : { connectTime: timestampFromMs(connectMs) }),
    ...(nextAttemptMs === undefined ? {} : { nextAttemptTime: timestampFromMs(nextAttemptMs) }),
  });
}

function transportToProto(transport: McpServerConfig["transport"]) {
  if (transport.type === "stdio") {
    const { command, args, env } = transport;
    return { case: "stdio" as const, value: { command, args: [...args], envNames: Object.keys(env).sort() } };
  }
  const { origin, pathname } = new URL(transport.url);
  const headerNames = Object.keys(transport.headers).sort();
  return { case: "http" as const, value: { url: `${origin}${pathname}`, headerNames } };
}
