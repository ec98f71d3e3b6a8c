import http2, { type IncomingHttpHeaders, type OutgoingHttpHeaders } from "node:http2";
import { connect, type Socket } from "node:net";
import { file_grpc_health_v1_health, Health } from "../../gen/grpc/health/v1/health_pb.ts";
import { createHealthRegistry, type HealthRegistry, healthService } from "../../src/rpc/health.ts";
import { reflectionRoutes } from "../../src/rpc/reflection.ts";
import { type RunningServer, type ServerOptions, startServer } from "../../src/server.ts";

export const checkPath = "/grpc.health.v1.Health/Check";
export const watchPath = "/grpc.health.v1.Health/Watch";

export interface TestServer extends RunningServer {
  health: HealthRegistry;
  /** Paths of the calls that reached a handler. */
  handled: string[];
  /** What the server told its log. */
  logged: string[];
  [Symbol.asyncDispose](): Promise<void>;
}

/** A server on loopback with the health and reflection services; closed by `await using`. */
export async function startTestServer(options: Partial<ServerOptions> = {}): Promise<TestServer> {
  const health = createHealthRegistry();
  const handled: string[] = [];
  const logged: string[] = [];
  const server = await startServer({
    host: "127.0.0.1",
    port: 0,
    allowedHosts: [],
    allowedOrigins: [],
    routes: (router) => {
      router.service(Health, healthService(health));
      reflectionRoutes([file_grpc_health_v1_health])(router);
    },
    connect: {
      interceptors: [
        (next) => (request) => {
          handled.push(new URL(request.url).pathname);
          return next(request);
        },
      ],
    },
    log: (level, message) => logged.push(`${level} ${message}`),
    ...options,
  });
  return Object.assign(server, { health, handled, logged, [Symbol.asyncDispose]: () => server.close() });
}

/** Opens a socket, writes the text and gives everything that comes until the peer closes. */
export async function exchange(port: number, text: string): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => {});
  socket.write(text, "latin1");
  return readToEnd(socket);
}

export function readToEnd(socket: Socket): Promise<string> {
  return new Promise((resolve) => {
    let seen = "";
    socket.on("data", (bytes) => {
      seen += bytes.toString("latin1");
    });
    socket.on("error", () => {});
    socket.on("close", () => resolve(seen));
  });
}

/** A health check as HTTP/1.1 text. Fields given replace the defaults; undefined leaves one out. */
export function checkRequest(fields: Record<string, string | undefined>, target = checkPath, version = "1.1"): string {
  const all = { "Content-Type": "application/json", "Content-Length": "2", Connection: "close", ...fields };
  const lines = Object.entries(all).flatMap(([name, value]) => (value === undefined ? [] : [`${name}: ${value}`]));
  return [`POST ${target} HTTP/${version}`, ...lines, "", "{}"].join("\r\n");
}

export interface Http2Answer {
  headers: IncomingHttpHeaders & { ":status"?: number | undefined };
  trailers: IncomingHttpHeaders;
  body: Buffer;
}

/** One HTTP/2 request on a session of its own. Rejects when the stream is reset. */
export async function http2Request(url: string, headers: OutgoingHttpHeaders, body?: Uint8Array): Promise<Http2Answer> {
  const session = http2.connect(url, { rejectUnauthorized: false });
  try {
    return await new Promise<Http2Answer>((resolve, reject) => {
      const answer: Http2Answer = { headers: {}, trailers: {}, body: Buffer.alloc(0) };
      session.on("error", reject);
      const stream = session.request({ ":method": "POST", ...headers });
      stream.on("response", (received) => {
        answer.headers = received;
      });
      stream.on("trailers", (received) => {
        answer.trailers = received;
      });
      stream.on("data", (bytes: Buffer) => {
        answer.body = Buffer.concat([answer.body, bytes]);
      });
      stream.on("error", reject);
      stream.on("close", () => resolve(answer));
      stream.end(body);
    });
  } finally {
    session.destroy();
  }
}
