import { createServer as createHttp1Server, type Server as Http1Server, type IncomingMessage } from "node:http";
import { constants, createServer as createHttp2Server, type ServerHttp2Session } from "node:http2";
import { createServer as createHttpsServer } from "node:https";
import { isIPv4, isIPv6, type Server as NetServer, type Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import { Code, ConnectError, type ConnectRouter, createConnectRouter } from "@connectrpc/connect";
import {
  type ConnectNodeAdapterOptions,
  compressionBrotli,
  compressionGzip,
  universalRequestFromNodeRequest,
  universalResponseToNodeResponse,
} from "@connectrpc/connect-node";
import { createDoorkeeper } from "./server/doorkeeper.ts";
import { createGrpcAnswerer, type GrpcCall, isPlainGrpc } from "./server/grpc-call.ts";
import { withPlainGrpcMessage } from "./server/grpc-message.ts";
import { limitCallTimeout } from "./server/limit-call-timeout.ts";
import { defaultServerLimits, type ServerLimits } from "./server/limits.ts";
import type { PathDoor } from "./server/path-door.ts";
import { passOverBody, type Refusal, refuse, type ServerRequest, type ServerResponse } from "./server/refuse.ts";
import { sniffProtocol } from "./server/sniff-protocol.ts";
import { watchSession } from "./server/watch-session.ts";

export type { ServerLimits } from "./server/limits.ts";
export type { PathDoor } from "./server/path-door.ts";
export type { ServerRequest, ServerResponse } from "./server/refuse.ts";

export type ServerLog = (
  level: "debug" | "info" | "warn" | "error",
  message: string,
  fields?: Record<string, unknown>,
) => void;

export interface ServerOptions {
  /** Address or name to listen on. Anything but a loopback address needs a token of at least 16 characters. */
  host: string;
  /** 0 for any free port. */
  port: number;
  /** When set, every request on every path must carry it as `Authorization: Bearer`; only CORS preflights need not. */
  token?: string;
  /** PEM texts. With them the port speaks TLS only, and ALPN chooses between h2 and http/1.1. */
  tls?: { cert: string; key: string };
  /**
   * Values of Host answered for besides localhost, 127.0.0.1, [::1] and the address we are bound to: `name:port`, or
   * `name` for our own port and for none.
   */
  allowedHosts: string[];
  /** Origins of web pages that may call, besides our own. Compared exactly. */
  allowedOrigins: string[];
  /** Allows listening beyond loopback without a token. */
  insecure?: boolean;
  limits?: Partial<ServerLimits>;
  routes: (router: ConnectRouter) => void;
  /** Further options for the RPC handlers. What they say wins over `limits`. */
  connect?: Partial<Omit<ConnectNodeAdapterOptions, "routes" | "fallback" | "requestPathPrefix" | "shutdownSignal">>;
  /**
   * Methods, by path, that are answered over HTTP/2 without the library when they are asked for in plain gRPC with
   * uncompressed messages. `routes` has to have them too, for every other protocol.
   */
  grpcCalls?: ReadonlyMap<string, GrpcCall>;
  /** Serves paths that are no RPC, by path without query. */
  paths?: ReadonlyMap<string, (request: ServerRequest, response: ServerResponse) => Promise<void>>;
  /** Serve all paths below their prefixes that are neither; the first that fits does. */
  doors?: readonly PathDoor[];
  /** Serves what is none of these. The default answers 404. */
  fallback?: (request: ServerRequest, response: ServerResponse) => void | Promise<void>;
  /** Told of faults of our own, never of callers' mistakes. */
  log?: ServerLog;
}

export interface RunningServer {
  /** Where it listens, e.g. `http://127.0.0.1:4088`. */
  url: string;
  port: number;
  /** Fires when `drain` or `close` begins. Handlers of streams use it to end with a cursor. */
  shuttingDown: AbortSignal;
  /**
   * Takes no new connection and no new call, tells HTTP/2 peers so, and lets running calls finish. Calls still running
   * after `graceMs` are aborted with UNAVAILABLE and their connections cut. Resolves when every connection is closed.
   */
  drain(graceMs: number): Promise<void>;
  /** Like `drain` without grace; also shortens a drain under way. */
  close(): Promise<void>;
}

const minTokenLength = 16;

/**
 * Opens one port for gRPC, gRPC-Web, Connect and plain HTTP.
 * @throws {Error} with one sentence for people, when the options are unsafe or the address cannot be had.
 */
export async function startServer(options: ServerOptions): Promise<RunningServer> {
  const limits: ServerLimits = { ...defaultServerLimits, ...options.limits };
  checkExposure(options);

  const shutDown = new AbortController();
  const abortCalls = new AbortController();
  const serve = createServe(options, limits, abortCalls.signal);
  const http1 = createHttp1(options, limits);
  const http2 = createHttp2Server({
    settings: {
      enablePush: false,
      initialWindowSize: limits.streamWindowBytes,
      maxConcurrentStreams: limits.concurrentStreams,
      maxHeaderListSize: limits.headerBytes,
    },
    maxHeaderListPairs: limits.headerPairs,
    maxOutstandingPings: limits.outstandingPings,
    maxSessionInvalidFrames: limits.sessionInvalidFrames,
    maxSessionMemory: limits.sessionMemoryMb,
    maxSessionRejectedStreams: limits.sessionRejectedStreams,
    maxSettings: limits.settings,
    // A second line: `watchSession` counts resets first, and closes the connection.
    streamResetBurst: 2 * limits.streamResetBurst,
    streamResetRate: 2 * limits.streamResetRate,
  });

  const sessions = new Set<ServerHttp2Session>();
  const connections = acceptConnections(http1, options.tls !== undefined, limits, (socket) => {
    http2.once("session", (session) => {
      sessions.add(session);
      session.once("close", () => sessions.delete(session));
      watchSession(session, socket, limits);
      if (shutDown.signal.aborted) session.close();
    });
    // Connections of an HTTP/1.1 server stay open when the peer has said its last word; HTTP/2 would never notice the end.
    socket.allowHalfOpen = false;
    http2.emit("connection", socket);
  });

  await listen(http1, options);
  const address = http1.address();
  if (address === null || typeof address === "string") throw new Error("The server has no port to listen on.");
  const { port } = address;
  const scheme = options.tls === undefined ? "http" : "https";
  const ownHost = isIPv6(options.host) ? `[${options.host}]` : options.host;

  const doorkeeper = createDoorkeeper({
    scheme,
    port,
    ownNames: ["localhost", "127.0.0.1", "[::1]", ownHost],
    allowedHosts: options.allowedHosts,
    allowedOrigins: options.allowedOrigins,
    headerBytes: limits.headerBytes,
    headerPairs: limits.headerPairs,
    ...(options.token === undefined ? {} : { token: options.token }),
  });
  const answering = new WeakMap<Socket, number>();

  /** @param invite lets a caller who waits for it send the body. */
  const onRequest = (request: ServerRequest, response: ServerResponse, invite?: () => void): void => {
    // Without a listener, an error of a broken connection would end the process.
    request.on("error", ignore);
    response.on("error", ignore);
    try {
      const fault = doorkeeper.checkAddress(request);
      const door = doorOf(request, options.doors);
      if (fault === undefined && doorkeeper.answerCors(request, response, door)) return;
      const refusal = fault ?? doorkeeper.checkToken(request, door) ?? refusalWhenStopping(shutDown.signal);
      if (refusal !== undefined) {
        refuse(request, response, refusal, door);
        return;
      }
      invite?.();
      serve(request, response);
    } catch (error) {
      options.log?.("error", "a request could not be served", { error });
      refuse(request, response, { error: new ConnectError("internal error", Code.Internal) });
    }
  };
  const onHttp1 = (request: IncomingMessage, response: ServerResponse, invite?: () => void) => {
    const { socket } = request;
    answering.set(socket, (answering.get(socket) ?? 0) + 1);
    if (shutDown.signal.aborted) response.setHeader("connection", "close");
    response.once("close", () => {
      answering.set(socket, (answering.get(socket) ?? 1) - 1);
      if (shutDown.signal.aborted) setImmediate(() => http1.closeIdleConnections());
    });
    onRequest(request, response, invite);
  };
  http1.on("request", (request, response) => onHttp1(request, response));
  http1.on("checkContinue", (request, response) => onHttp1(request, response, () => response.writeContinue()));
  http1.on("timeout", (socket) => {
    const isWaitingForUs = (answering.get(socket) ?? 0) > 0 && socket.writableLength === 0;
    if (isWaitingForUs) socket.setTimeout(limits.stalledReaderTimeoutMs);
    else socket.destroy();
  });
  http2.on("request", (request, response) => onRequest(request, response));
  http2.on("checkContinue", (request, response) => onRequest(request, response, () => response.writeContinue()));
  http1.on("error", (error) => options.log?.("error", "a connection could not be accepted", { error }));

  const hurry = Promise.withResolvers<void>();
  let stopped: Promise<void> | undefined;
  const stop = async (graceMs: number): Promise<void> => {
    shutDown.abort();
    const closed = new Promise<void>((resolve) => http1.close(() => resolve()));
    http1.closeIdleConnections();
    for (const socket of connections.undecided) socket.destroy();
    for (const session of sessions) session.close();
    if (await settlesWithin(Promise.race([closed.then(() => true), hurry.promise.then(() => false)]), graceMs)) return;
    abortCalls.abort(new ConnectError("the server is stopping", Code.Unavailable));
    if (
      await settlesWithin(
        closed.then(() => true),
        limits.lastWordsTimeoutMs,
      )
    )
      return;
    for (const socket of connections.open) socket.destroy();
    await closed;
  };
  return {
    url: `${scheme}://${ownHost}:${port}`,
    port,
    shuttingDown: shutDown.signal,
    drain(graceMs) {
      stopped ??= stop(graceMs);
      return stopped;
    },
    close() {
      hurry.resolve();
      stopped ??= stop(0);
      return stopped;
    },
  };
}

function ignore(): void {}

function isLoopback(host: string): boolean {
  const address = host.replace(/^::ffff:/i, "");
  return host === "localhost" || host === "::1" || (isIPv4(address) && address.startsWith("127."));
}

function checkExposure(options: ServerOptions): void {
  if (options.token === "") throw new Error("The access token is empty; set one or leave it out.");
  if (isLoopback(options.host) || options.insecure === true) return;
  if (options.token !== undefined && options.token.length >= minTokenLength) return;
  throw new Error(
    `Listening on ${options.host === "" ? "every address" : options.host} is open to the network: set an access token of at least ${minTokenLength} characters, listen on 127.0.0.1, or allow it with the insecure option.`,
  );
}

function createHttp1(options: ServerOptions, limits: ServerLimits): Http1Server {
  const shared = {
    maxHeaderSize: limits.headerBytes,
    headersTimeout: Math.min(limits.headersTimeoutMs, limits.bodyTimeoutMs),
    requestTimeout: limits.bodyTimeoutMs,
    keepAliveTimeout: limits.keepAliveTimeoutMs,
    // How often Node looks for late headers and bodies.
    connectionsCheckingInterval: Math.ceil(Math.min(limits.headersTimeoutMs, limits.bodyTimeoutMs, 10_000) / 10),
  };
  const server =
    options.tls === undefined
      ? createHttp1Server(shared)
      : createTlsServer({
          ...shared,
          cert: options.tls.cert,
          key: options.tls.key,
          ALPNProtocols: ["h2", "http/1.1"],
          handshakeTimeout: limits.sniffTimeoutMs,
        });
  server.maxConnections = limits.connections;
  // One more than allowed is kept, so that an excess is seen rather than silently dropped.
  server.maxHeadersCount = limits.headerPairs + 1;
  server.timeout = limits.stalledReaderTimeoutMs;
  return server;
}

function createTlsServer(options: Parameters<typeof createHttpsServer>[0]): ReturnType<typeof createHttpsServer> {
  try {
    return createHttpsServer(options);
  } catch (cause) {
    throw new Error("The TLS certificate or its key cannot be used; both must be PEM texts and belong together.", {
      cause,
    });
  }
}

function listen(server: NetServer, options: ServerOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    const onError = (cause: NodeJS.ErrnoException): void => {
      const where = `port ${options.port} on ${options.host}`;
      const reason = cause.code === "EADDRINUSE" ? "it is in use" : (cause.code ?? cause.message);
      reject(new Error(`Cannot listen on ${where}: ${reason}; choose another port or host.`, { cause }));
    };
    server.once("error", onError);
    server.listen(options.port, options.host, () => {
      server.off("error", onError);
      resolve();
    });
  });
}

/**
 * Puts our own look in front of the server's connection listeners: counts connections, and hands those that speak
 * HTTP/2 to `onHttp2`. The HTTP/1.1 server itself goes on listening, since its timeouts and its shutdown only know the
 * connections it has accepted.
 */
function acceptConnections(
  server: Http1Server,
  encrypted: boolean,
  limits: ServerLimits,
  onHttp2: (socket: Socket) => void,
): { open: ReadonlySet<Socket>; undecided: ReadonlySet<Socket> } {
  const open = new Set<Socket>();
  const undecided = new Set<Socket>();
  const perAddress = new Map<string, number>();
  const accept = takeListeners(server, "connection");

  server.on("connection", (socket: Socket) => {
    socket.on("error", ignore);
    const address = socket.remoteAddress ?? "";
    const count = perAddress.get(address) ?? 0;
    if (!isLoopback(address) && count >= limits.connectionsPerAddress) {
      socket.destroy();
      return;
    }
    perAddress.set(address, count + 1);
    open.add(socket);
    undecided.add(socket);
    socket.once("close", () => {
      open.delete(socket);
      undecided.delete(socket);
      const left = (perAddress.get(address) ?? 1) - 1;
      if (left > 0) perAddress.set(address, left);
      else perAddress.delete(address);
    });
    if (encrypted) {
      accept(socket);
      return;
    }
    sniffProtocol(socket, limits.sniffTimeoutMs, (protocol) => {
      undecided.delete(socket);
      if (protocol === "http2") onHttp2(socket);
      else accept(socket);
    });
  });
  if (encrypted) {
    const acceptSecure = takeListeners(server, "secureConnection");
    server.on("secureConnection", (socket: TLSSocket) => {
      socket.on("error", ignore);
      if (socket.alpnProtocol === "h2") onHttp2(socket);
      else acceptSecure(socket);
    });
  }
  return { open, undecided };
}

function takeListeners(server: NetServer, event: string): (socket: Socket) => void {
  const listeners = server.listeners(event);
  server.removeAllListeners(event);
  return (socket) => {
    for (const listener of listeners) listener.call(server, socket);
  };
}

/** Routes an admitted request to its RPC, or to the fallback. */
function createServe(
  options: ServerOptions,
  limits: ServerLimits,
  shutdownSignal: AbortSignal,
): (request: ServerRequest, response: ServerResponse) => void {
  const { contextValues, ...connect } = options.connect ?? {};
  const router = createConnectRouter({
    acceptCompression: [compressionGzip, compressionBrotli],
    readMaxBytes: limits.readMaxBytes,
    writeMaxBytes: limits.writeMaxBytes,
    maxTimeoutMs: limits.callTimeoutMs,
    ...connect,
    shutdownSignal,
  });
  options.routes(router);
  const calls = new Map(router.handlers.map((handler) => [handler.requestPath, handler]));
  const grpcCalls = options.grpcCalls ?? new Map<string, GrpcCall>();
  const answerGrpc = createGrpcAnswerer(limits, shutdownSignal, (path, error) =>
    options.log?.("error", "an answer could not be sent", { path, error }),
  );
  const { paths, doors, fallback = answerNotFound } = options;

  const onFailure = (request: ServerRequest, response: ServerResponse, error: unknown, door?: PathDoor): void => {
    // Aborted means that the caller hung up.
    if (!response.destroyed && ConnectError.from(error).code !== Code.Aborted) {
      options.log?.("error", "an answer could not be sent", { path: request.url, error });
    }
    refuse(request, response, { error: new ConnectError("internal error", Code.Internal) }, door);
  };

  return (request, response) => {
    const path = request.url?.split("?", 1)[0] ?? "";
    const call = calls.get(path);
    const takesStream = call?.method.methodKind === "bidi_streaming" || call?.method.methodKind === "client_streaming";
    if (!takesStream) limitBodyTime(request, limits.bodyTimeoutMs);
    if (call === undefined) {
      const serve = paths?.get(path);
      const door = serve === undefined ? doorOf(request, doors) : undefined;
      const answered = async (): Promise<void> =>
        door === undefined
          ? (serve ?? fallback)(request, response)
          : door.serve(request, response, (answer) => passOverBody(request, answer));
      answered().catch((error: unknown) => onFailure(request, response, error, door));
      return;
    }
    const refusal = checkQuery(request) ?? limitCallTimeout(request, limits.callTimeoutMs);
    if (refusal !== undefined) {
      refuse(request, response, refusal);
      return;
    }
    const grpcCall = grpcCalls.get(path);
    if (grpcCall !== undefined && isPlainGrpc(request)) {
      answerGrpc(request, response, grpcCall).catch((error: unknown) => onFailure(request, response, error));
      return;
    }
    call(universalRequestFromNodeRequest(request, response, undefined, contextValues?.(request)))
      .then((answer) => {
        // The library's own has no body, so that who forgot the type would see nothing.
        if (answer.status === 415 && !isGrpcType(request)) return refuse(request, response, wrongType(request));
        return universalResponseToNodeResponse(withPlainGrpcMessage(answer), response);
      })
      .catch((error) => onFailure(request, response, error));
  };
}

function doorOf(request: ServerRequest, doors: readonly PathDoor[] = []): PathDoor | undefined {
  return doors.find(({ prefix }) => request.url?.startsWith(prefix));
}

function isGrpcType({ headers }: ServerRequest): boolean {
  return headers["content-type"]?.startsWith("application/grpc") === true;
}

function wrongType({ headers }: ServerRequest): Refusal {
  const type = headers["content-type"];
  const found =
    type === undefined
      ? "the request has no content-type"
      : `the content-type is ${JSON.stringify(type.slice(0, 100))}`;
  const message = `${found}; application/json, application/proto or one of gRPC's is wanted`;
  return { error: new ConnectError(message, Code.InvalidArgument), httpStatus: 415 };
}

/** Cuts an HTTP/2 request whose body is not whole in time; HTTP/1.1 has its server's own timer for this. */
function limitBodyTime(request: ServerRequest, timeoutMs: number): void {
  if (!("stream" in request) || request.stream.endAfterHeaders) return;
  const { stream } = request;
  const timer = setTimeout(() => stream.close(constants.NGHTTP2_CANCEL), timeoutMs);
  stream.once("end", () => clearTimeout(timer));
  stream.once("close", () => clearTimeout(timer));
}

/** The message of a Connect GET is checked here because the library calls a broken one our own fault. */
function checkQuery(request: ServerRequest): Refusal | undefined {
  const query = request.method === "GET" ? request.url?.split("?", 2)[1] : undefined;
  if (query === undefined) return undefined;
  const parameters = new URLSearchParams(query);
  if (parameters.get("base64") !== "1") return undefined;
  const message = (parameters.get("message") ?? "").replace(/={1,2}$/, "");
  if (/^[A-Za-z0-9+/_-]*$/.test(message) && message.length % 4 !== 1) return undefined;
  return { error: new ConnectError("the message parameter is not valid base64", Code.InvalidArgument) };
}

const callTypes = /^application\/(?:proto|json|connect\+(?:proto|json))(?:;|$)/;
/** `/package.Service/Method`. */
const callPath = /^\/\w+(?:\.\w+)+\/\w+$/;

function answerNotFound(request: ServerRequest, response: ServerResponse): void {
  const contentType = request.headers["content-type"] ?? "";
  const error = new ConnectError("no such method", Code.Unimplemented);
  if (contentType.startsWith("application/grpc")) {
    refuse(request, response, { error });
  } else if (request.method === "POST" && callTypes.test(contentType) && callPath.test(request.url ?? "")) {
    refuse(request, response, { error, httpStatus: 404 });
  } else {
    const message = "there is nothing at this path; RPCs are at /package.Service/Method, vendors' APIs below /v1/";
    refuse(request, response, { error: new ConnectError(message, Code.NotFound) });
  }
}

function refusalWhenStopping(shuttingDown: AbortSignal): Refusal | undefined {
  if (!shuttingDown.aborted) return undefined;
  return { error: new ConnectError("the server is stopping; try another or try again", Code.Unavailable) };
}

/** Resolves to false when the promise has not settled, or has settled to false, within the time. */
async function settlesWithin(promise: Promise<boolean>, timeoutMs: number): Promise<boolean> {
  const late = Promise.withResolvers<boolean>();
  const timer = setTimeout(() => late.resolve(false), timeoutMs);
  try {
    return await Promise.race([promise, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}
