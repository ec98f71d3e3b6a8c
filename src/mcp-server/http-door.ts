import { randomUUID } from "node:crypto";
import { toNodeHandler } from "@modelcontextprotocol/node";
import {
  createMcpHandler,
  isLegacyRequest,
  type McpServer,
  WebStandardStreamableHTTPServerTransport,
} from "@modelcontextprotocol/server";
import type { ServerRequest, ServerResponse } from "../server.ts";
import { type AgentServerOptions, createAgentServer } from "./agent-server.ts";

export interface HttpDoorOptions extends Omit<AgentServerOptions, "stopping"> {
  /** Most MCP sessions at a time. The one that is used least goes for a new one, unless all are at work. */
  readonly maxSessions?: number;
  /** How long a session without any request or stream is kept, in milliseconds. */
  readonly idleMs?: number;
  /** Milliseconds of any clock that goes evenly. */
  readonly now?: () => number;
}

/** One connection of the older protocol: a server and a transport of its own, under an id that nobody can guess. */
interface McpSession {
  readonly server: McpServer;
  readonly transport: WebStandardStreamableHTTPServerTransport;
  /** Requests and streams that are open. */
  open: number;
  usedMs: number;
}

const messageBytes = 4 * 1024 * 1024;
const defaultMaxSessions = 64;
const defaultIdleMs = 30 * 60_000;
const lastWordsMs = 1000;

/**
 * Streamable HTTP for MCP, both protocols of it: 2026-07-28, where each request stands for itself, and the older ones, with
 * sessions. Whoever calls has been looked at by the doorkeeper of the port.
 */
export class HttpDoor {
  readonly #options: HttpDoorOptions;
  readonly #sessions = new Map<string, McpSession>();
  readonly #stopping = new AbortController();
  readonly #modern: ReturnType<typeof createMcpHandler>;
  readonly #handler: ReturnType<typeof toNodeHandler>;
  readonly #now: () => number;
  readonly #sweep: NodeJS.Timeout;
  #making = 0;
  #posts = 0;

  constructor(options: HttpDoorOptions) {
    this.#options = options;
    const { idleMs = defaultIdleMs, now = () => performance.now(), report } = options;
    this.#now = now;
    const onerror = (error: Error) => report("debug", "an MCP request was not served", { error });
    this.#modern = createMcpHandler(() => this.#server(), {
      legacy: "reject",
      maxRequestBodySize: messageBytes,
      onerror,
    });
    this.#handler = toNodeHandler(
      { fetch: (request) => this.#answer(request) },
      {
        maxRequestBodySize: messageBytes,
        onerror: (error) => report("error", "an MCP request could not be answered", { error }),
      },
    );
    this.#sweep = setInterval(() => this.#closeIdle(idleMs), Math.min(idleMs, 60_000)).unref();
  }

  /** How many sessions there are. */
  get sessionCount(): number {
    return this.#sessions.size;
  }

  async handle(request: ServerRequest, response: ServerResponse): Promise<void> {
    const session = this.#sessions.get(idOf(request.headers["mcp-session-id"]));
    const isPost = request.method === "POST";
    if (isPost) this.#posts += 1;
    if (session !== undefined) session.open += 1;
    response.once("close", () => {
      if (isPost) this.#posts -= 1;
      if (session === undefined) return;
      session.open -= 1;
      session.usedMs = this.#now();
    });
    const { method = "GET", url = "/", headers } = request;
    const body = () => request[Symbol.asyncIterator]();
    await this.#handler({ method, url, headers, [Symbol.asyncIterator]: body }, writerOf(response));
  }

  /** Ends every stream. Calls whose turn has just ended get a moment for their answers; turns are left to go on. */
  async close(): Promise<void> {
    if (this.#stopping.signal.aborted) return;
    this.#stopping.abort();
    clearInterval(this.#sweep);
    const untilMs = performance.now() + lastWordsMs;
    while (this.#posts > 0 && performance.now() < untilMs) await new Promise((resolve) => setTimeout(resolve, 20));
    const servers = [...this.#sessions.values()].map(({ server }) => server);
    this.#sessions.clear();
    await Promise.allSettled([this.#modern.close(), ...servers.map((server) => server.close())]);
  }

  #server(): Promise<McpServer> {
    return createAgentServer({ ...this.#options, stopping: this.#stopping.signal });
  }

  async #answer(request: Request): Promise<Response> {
    if (this.#stopping.signal.aborted) return refusal(503, "the server is stopping");
    if (!(await isLegacyRequest(request, undefined, { maxRequestBodySize: messageBytes })))
      return this.#modern.fetch(request);
    const id = request.headers.get("mcp-session-id");
    if (id === null) return this.#open(request);
    const session = this.#sessions.get(id);
    if (session === undefined) return refusal(404, "there is no such MCP session; initialize a new one");
    return session.transport.handleRequest(request);
  }

  /** Opens a session, when that is what the request asks for. */
  async #open(request: Request): Promise<Response> {
    if (request.method !== "POST") return refusal(400, "the Mcp-Session-Id header is missing");
    if (!this.#makeRoom()) return refusal(503, "too many MCP sessions are at work; try again later");
    this.#making += 1;
    try {
      const server = await this.#server();
      const transport = new WebStandardStreamableHTTPServerTransport({
        sessionIdGenerator: () => randomUUID(),
        maxRequestBodySize: messageBytes,
        onsessioninitialized: (id) => {
          this.#sessions.set(id, { server, transport, open: 0, usedMs: this.#now() });
          server.server.onclose = () => this.#sessions.delete(id);
        },
        onsessionclosed: () => void server.close().catch(() => undefined),
      });
      await server.connect(transport);
      const response = await transport.handleRequest(request);
      if (transport.sessionId === undefined) await server.close();
      return response;
    } finally {
      this.#making -= 1;
    }
  }

  #makeRoom(): boolean {
    const { maxSessions = defaultMaxSessions } = this.#options;
    if (this.#sessions.size + this.#making < maxSessions) return true;
    const idle = [...this.#sessions.values()].filter(({ open }) => open === 0).sort((a, b) => a.usedMs - b.usedMs)[0];
    if (idle === undefined) return false;
    void idle.server.close().catch(() => undefined);
    return true;
  }

  #closeIdle(idleMs: number): void {
    for (const { open, usedMs, server } of this.#sessions.values())
      if (open === 0 && this.#now() - usedMs > idleMs) void server.close().catch(() => undefined);
  }
}

function refusal(status: number, message: string): Response {
  return Response.json({ jsonrpc: "2.0", error: { code: -32_000, message }, id: null }, { status });
}

function idOf(header: string | string[] | undefined): string {
  return typeof header === "string" ? header : "";
}

/** The answer as the library writes it; a stream is seen to begin before it has something to say. */
function writerOf(response: ServerResponse) {
  return {
    writeHead(status: number, { connection: _, ...headers }: Record<string, string> = {}): void {
      response.writeHead(status, headers);
      if (headers["content-type"] === "text/event-stream") response.write(":\n\n");
    },
    write: (piece: string | Uint8Array) => response.write(piece),
    end: (piece?: string | Uint8Array) => void (piece === undefined ? response.end() : response.end(piece)),
    on: (event: string, listener: (...facts: unknown[]) => void) => void response.on(event, listener),
    get destroyed() {
      return response.destroyed;
    },
  };
}
