import type { Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import { type CodeAgentClient, checkBaseUrl, clientOver, type TransportName } from "./client.ts";

export * from "./shared.ts";

export interface CodeAgentClientOptions {
  /** Where the server is, for example `https://agent.example`. Not used with a ready transport. */
  readonly baseUrl: string;
  /** Sent with every call as `Authorization: Bearer`. */
  readonly token?: string;
  /** How to speak: `connect` (default) or `grpc-web`, or a transport of Connect's own. Browsers can't speak gRPC. */
  readonly transport?: Exclude<TransportName, "grpc"> | Transport;
}

/**
 * Makes a client for a server, over the browser's `fetch`. The server has to allow the page's origin.
 * @throws {TypeError} for a `baseUrl` or `token` that can't be one.
 */
export function createCodeAgentClient(options: CodeAgentClientOptions): CodeAgentClient {
  const { transport = "connect" } = options;
  const close = () => {};
  if (typeof transport !== "string") return clientOver({ transport, close }, options.token);
  const baseUrl = checkBaseUrl(options.baseUrl);
  switch (transport) {
    case "connect":
      return clientOver(
        { transport: createConnectTransport({ baseUrl, useBinaryFormat: true }), close },
        options.token,
      );
    case "grpc-web":
      return clientOver({ transport: createGrpcWebTransport({ baseUrl }), close }, options.token);
    default:
      throw new TypeError(`transport is ${JSON.stringify(transport satisfies never)}; use connect or grpc-web`);
  }
}
