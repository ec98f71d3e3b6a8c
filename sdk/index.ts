import { Agent as HttpAgent } from "node:http";
import { Agent as HttpsAgent } from "node:https";
import type { Transport } from "@connectrpc/connect";
import {
  createConnectTransport,
  createGrpcTransport,
  createGrpcWebTransport,
  Http2SessionManager,
} from "@connectrpc/connect-node";
import { type CodeAgentClient, checkBaseUrl, clientOver, type OpenTransport, type TransportName } from "./client.ts";

export * from "./shared.ts";

export interface CodeAgentClientOptions {
  /** Where the server is, for example `http://127.0.0.1:4088`. Not used with a ready transport. */
  readonly baseUrl: string;
  /** Sent with every call as `Authorization: Bearer`. */
  readonly token?: string;
  /**
   * How to speak: `grpc` (default) over HTTP/2; `connect` and `grpc-web` over HTTP/1.1, for what stands between that
   * knows nothing else. Or a transport of Connect's own.
   */
  readonly transport?: TransportName | Transport;
}

const pingIntervalMs = 30_000;

/**
 * Makes a client for a server; it connects with the first call. Close it when done: idle connections do not keep a process
 * alive, but they stay open.
 * @throws {TypeError} for a `baseUrl` or `token` that can't be one.
 */
export function createCodeAgentClient(options: CodeAgentClientOptions): CodeAgentClient {
  const { transport = "grpc" } = options;
  if (typeof transport !== "string") return clientOver({ transport, close() {} }, options.token);
  return clientOver(openTransport(transport, checkBaseUrl(options.baseUrl)), options.token);
}

function openTransport(name: TransportName, baseUrl: string): OpenTransport {
  switch (name) {
    case "grpc": {
      // The pings find out when a server is gone without a word.
      const sessionManager = new Http2SessionManager(baseUrl, { pingIntervalMs });
      return {
        transport: createGrpcTransport({ baseUrl, sessionManager }),
        close: () => sessionManager.abort(),
      };
    }
    case "connect": {
      const agent = agentFor(baseUrl);
      const transport = createConnectTransport({ baseUrl, httpVersion: "1.1", nodeOptions: { agent } });
      return { transport, close: () => agent.destroy() };
    }
    case "grpc-web": {
      const agent = agentFor(baseUrl);
      const transport = createGrpcWebTransport({ baseUrl, httpVersion: "1.1", nodeOptions: { agent } });
      return { transport, close: () => agent.destroy() };
    }
    default:
      throw new TypeError(`transport is ${JSON.stringify(name satisfies never)}; use grpc, connect or grpc-web`);
  }
}

function agentFor(baseUrl: string): HttpAgent {
  return baseUrl.startsWith("https:") ? new HttpsAgent({ keepAlive: true }) : new HttpAgent({ keepAlive: true });
}
