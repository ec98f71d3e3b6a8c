import { type ConnectRouter, createRouterTransport, type Interceptor } from "@connectrpc/connect";
import { createCodeAgentClient } from "../../sdk/index.ts";
import type { Report } from "../app.ts";
import type { ServerRequest, ServerResponse } from "../server.ts";
import type { HttpDoor } from "./http-door.ts";

/** Where a server speaks MCP. */
export const mcpPath = "/mcp";

export interface McpPathOptions {
  /** The services that are offered; they are called in this process. */
  readonly routes: (router: ConnectRouter) => void;
  readonly interceptors: readonly Interceptor[];
  /** Offers the functions of the service too, besides the agent. */
  readonly offerTools: boolean;
  readonly report: Report;
}

export interface McpPath {
  handle(request: ServerRequest, response: ServerResponse): Promise<void>;
  /** Ends what is open; turns are left to go on. */
  close(): Promise<void>;
}

/** MCP over the port of a server. What it takes is loaded with the first request. */
export function createMcpPath({ routes, interceptors, offerTools, report }: McpPathOptions): McpPath {
  let door: Promise<HttpDoor> | undefined;
  const open = async (): Promise<HttpDoor> => {
    const { HttpDoor } = await import("./http-door.ts");
    const transport = createRouterTransport(routes, { router: { interceptors: [endStreams, ...interceptors] } });
    const client = createCodeAgentClient({ baseUrl: "http://in-process.invalid", transport });
    // Within a process no connection is lost: what ends early does so because the server stops.
    return new HttpDoor({ client: async () => client, offerTools, resume: { maxTries: 0 }, report });
  };
  return {
    async handle(request, response) {
      door ??= open();
      await (await door).handle(request, response);
    },
    async close() {
      await (await door)?.close();
    },
  };
}

/**
 * Ends the handler of a stream when its reader leaves. Over a network the server reads handlers to their end by itself; here
 * one that nobody reads would wait at its last answer for ever, with its timers.
 */
const endStreams: Interceptor = (next) => async (request) => {
  const response = await next(request);
  if (!response.stream) return response;
  const answers = response.message[Symbol.asyncIterator]();
  const end = () => void answers.return?.().catch(() => undefined);
  if (request.signal.aborted) end();
  request.signal.addEventListener("abort", end, { once: true });
  return { ...response, message: { [Symbol.asyncIterator]: () => answers } };
};
