import { type Client, createClient, type Transport } from "@connectrpc/connect";
import { CodeAgentService } from "../gen/codeagent/v1/code_agent_pb.ts";
import { McpService } from "../gen/codeagent/v1/mcp_service_pb.ts";
import { ModelService } from "../gen/codeagent/v1/model_service_pb.ts";
import { PlanService } from "../gen/codeagent/v1/plan_service_pb.ts";
import { ScheduleService } from "../gen/codeagent/v1/schedule_service_pb.ts";
import { SkillService } from "../gen/codeagent/v1/skill_service_pb.ts";
import { ToolService } from "../gen/codeagent/v1/tool_service_pb.ts";

/** Protocols by name; servers speak all of them on one port. */
export type TransportName = "grpc" | "connect" | "grpc-web";

/** Opens the way to a server, for one of the protocols this platform can speak. */
export interface OpenTransport {
  readonly transport: Transport;
  /** Closes what it keeps open. */
  close(): void;
}

/**
 * The generated clients of every service. The methods of `CodeAgentService` are also on the client itself:
 * `client.getSession(...)` is `client.agent.getSession(...)`. They throw Connect's `ConnectError`; `codeAgentErrorFrom`
 * reads what it says.
 */
export interface CodeAgentClient extends Client<typeof CodeAgentService> {
  readonly agent: Client<typeof CodeAgentService>;
  readonly models: Client<typeof ModelService>;
  readonly tools: Client<typeof ToolService>;
  readonly skills: Client<typeof SkillService>;
  readonly mcp: Client<typeof McpService>;
  readonly plans: Client<typeof PlanService>;
  readonly schedules: Client<typeof ScheduleService>;
  /** What the clients speak through, for clients of other services of the same server. */
  readonly transport: Transport;
  /** Closes open connections; calls that run fail. A ready transport handed in is left as it is. */
  close(): void;
  [Symbol.dispose](): void;
}

/** The client that speaks through a transport. */
export function clientOver({ transport, close }: OpenTransport, token: string | undefined): CodeAgentClient {
  const authorized = token === undefined || token.trim() === "" ? transport : withToken(transport, token.trim());
  const agent = createClient(CodeAgentService, authorized);
  return {
    ...agent,
    agent,
    models: createClient(ModelService, authorized),
    tools: createClient(ToolService, authorized),
    skills: createClient(SkillService, authorized),
    mcp: createClient(McpService, authorized),
    plans: createClient(PlanService, authorized),
    schedules: createClient(ScheduleService, authorized),
    transport: authorized,
    close,
    [Symbol.dispose]: close,
  };
}

/** @throws {TypeError} for what is no http: or https: address. */
export function checkBaseUrl(baseUrl: string): string {
  const url = URL.parse(baseUrl);
  if (url?.protocol === "http:" || url?.protocol === "https:") return baseUrl.replace(/\/+$/, "");
  throw new TypeError(`baseUrl is ${JSON.stringify(baseUrl)}; write it as http://host:port or https://host:port`);
}

/** A header field may hold printable ASCII only; the error of the platform would show the token. */
function withToken(transport: Transport, token: string): Transport {
  if (!/^[\x21-\x7e]+$/.test(token))
    throw new TypeError("token: holds blanks or other than ASCII; check where it comes from");
  const withIt = (header: HeadersInit | undefined): Headers => {
    const headers = new Headers(header);
    headers.set("authorization", `Bearer ${token}`);
    return headers;
  };
  return {
    unary: (method, signal, timeoutMs, header, input, contextValues) =>
      transport.unary(method, signal, timeoutMs, withIt(header), input, contextValues),
    stream: (method, signal, timeoutMs, header, input, contextValues) =>
      transport.stream(method, signal, timeoutMs, withIt(header), input, contextValues),
  };
}
