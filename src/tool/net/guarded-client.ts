import http from "node:http";
import https from "node:https";
import { isIP, type LookupFunction } from "node:net";
import { pipeline, type Readable } from "node:stream";
import { createBrotliDecompress, createGunzip, createInflate } from "node:zlib";
import { type AddressPolicy, plainAddress, RefusedUrl } from "./address-policy.ts";

export interface GuardedRequest {
  /** Default GET. */
  readonly method?: string;
  readonly url: string | URL;
  /** Kept from other origins, except for those that say what is understood. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array;
  /** Ends the exchange at once, also while the answer is read. */
  readonly signal: AbortSignal;
  /** How many redirects are followed; default 5. With 0 a redirect is an answer like any other. */
  readonly maxRedirects?: number;
  /** Default: 10 s to connect, 30 s of silence, 60 s in all, 5 MiB of body. */
  readonly limits?: Partial<ExchangeLimits>;
  /** Certificate (PEM) that is trusted in place of the system's authorities. */
  readonly trust?: string;
}

export interface ExchangeLimits {
  /** Longest wait for an address and a connection, for each hop. */
  readonly connectMs: number;
  /** Longest silence before and within the answer; 0 for any. */
  readonly idleMs: number;
  /** Longest exchange with all its redirects, until the last byte; 0 for any. */
  readonly totalMs: number;
  /** Most bytes of the body, counted after decompression; 0 for any. */
  readonly bodyBytes: number;
}

export interface GuardedResponse {
  /** Who answered, after all redirects. */
  readonly url: URL;
  readonly status: number;
  /** Names in small letters; repeated ones with commas between, except that of `set-cookie` the last is kept. */
  readonly headers: Readonly<Record<string, string>>;
  /**
   * Decompressed. To be read once; leaving early closes the connection.
   * @throws {FailedExchange} when it breaks, is silent or too long for the limits, or not what its headers say.
   */
  readonly body: AsyncGenerator<Uint8Array, void, undefined>;
  /** Ends the exchange where the body is not read; harmless afterwards. */
  close(): void;
}

/** Sends requests that the policy permits; holds nothing open between them. */
export interface GuardedClient {
  /**
   * @throws {RefusedUrl} when the policy or a rule of redirects forbids it.
   * @throws {FailedExchange} when there is no answer.
   * @throws the reason of the signal.
   */
  send(request: GuardedRequest): Promise<GuardedResponse>;
}

/** Thrown when no whole answer came. The message says no more than that, since a model reads it. */
export class FailedExchange extends Error {
  override readonly name = "FailedExchange";
}

/** The body is longer than was asked for. */
export class TooLong extends FailedExchange {}

const defaultLimits: ExchangeLimits = {
  connectMs: 10_000,
  idleMs: 30_000,
  totalMs: 60_000,
  bodyBytes: 5 * 1024 * 1024,
};

const maxHeaderBytes = 16 * 1024;
/** What may be told to an origin that was not meant. */
const harmlessHeaders: ReadonlySet<string> = new Set(["accept", "accept-language", "user-agent"]);
const redirects: ReadonlySet<number> = new Set([301, 302, 303, 307, 308]);

interface Hop {
  readonly method: string;
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | Uint8Array | undefined;
}

/** A client that reaches what the policy permits and nothing else, each connection pinned to an address that was checked. */
export function guardedClient(policy: AddressPolicy): GuardedClient {
  return {
    async send(request) {
      const limits = { ...defaultLimits, ...request.limits };
      const { maxRedirects = 5 } = request;
      const stop = stopFor(request.signal, limits.totalMs);
      try {
        let hop: Hop = {
          method: request.method ?? "GET",
          url: policy.checkUrl(request.url),
          headers: request.headers ?? {},
          body: request.body,
        };
        for (let followed = 0; ; followed++) {
          stop.signal.throwIfAborted();
          const incoming = await exchange(policy, hop, limits, stop.signal, request.trust);
          const next = maxRedirects === 0 ? undefined : nextHop(policy, hop, incoming);
          if (next === undefined) return responseOf(hop.url, incoming, limits, stop);
          incoming.destroy();
          if (followed === maxRedirects)
            throw new RefusedUrl(`more than ${maxRedirects} redirects, the last one at ${hop.url.host}`);
          hop = next;
        }
      } catch (error) {
        stop.clear();
        throw error;
      }
    },
  };
}

/** Where a redirect leads; undefined for an answer that is none. */
function nextHop(policy: AddressPolicy, hop: Hop, incoming: http.IncomingMessage): Hop | undefined {
  const { location } = incoming.headers;
  const status = incoming.statusCode ?? 0;
  if (!redirects.has(status) || location === undefined) return undefined;
  try {
    const target = URL.parse(location, hop.url);
    if (target === null) throw new RefusedUrl(`${hop.url.host} redirects to something that is not a URL`);
    const url = policy.checkUrl(target);
    if (hop.url.protocol === "https:" && url.protocol === "http:")
      throw new RefusedUrl(`${hop.url.host} redirects from https: to http:, which is not followed`);
    const isSame = url.origin === hop.url.origin;
    const headers = isSame
      ? hop.headers
      : Object.fromEntries(Object.entries(hop.headers).filter(([name]) => harmlessHeaders.has(name.toLowerCase())));
    if (hop.method === "GET" || hop.method === "HEAD") return { ...hop, url, headers };
    if (status === 303) return { method: "GET", url, headers: withoutBody(headers), body: undefined };
    if (isSame && (status === 307 || status === 308)) return { ...hop, url, headers };
    throw new RefusedUrl(`${hop.url.host} redirects a ${hop.method} to elsewhere, which is not followed`);
  } catch (error) {
    incoming.destroy();
    throw error;
  }
}

function withoutBody(headers: Hop["headers"]): Hop["headers"] {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !name.toLowerCase().startsWith("content-")));
}

/** One request and the head of its answer. */
async function exchange(
  policy: AddressPolicy,
  hop: Hop,
  limits: ExchangeLimits,
  signal: AbortSignal,
  trust: string | undefined,
): Promise<http.IncomingMessage> {
  const { url } = hop;
  const connectStop = stopFor(signal, limits.connectMs, `${url.host} did not accept a connection`);
  let addresses: readonly string[];
  try {
    addresses = await unlessStopped(policy.addressesFor(url), connectStop.signal);
  } catch (error) {
    connectStop.clear();
    throw error;
  }
  const { promise, resolve, reject } = Promise.withResolvers<http.IncomingMessage>();
  const isTls = url.protocol === "https:";
  const body = hop.body;
  const hostname = url.hostname.replace(/^\[(.*)\]$/, "$1");
  const options: https.RequestOptions = {
    method: hop.method,
    protocol: url.protocol,
    hostname,
    port: url.port === "" ? (isTls ? 443 : 80) : url.port,
    path: `${url.pathname}${url.search}`,
    headers: {
      ...hop.headers,
      host: url.host,
      "accept-encoding": "gzip, br",
      connection: "close",
      ...(body === undefined
        ? hop.method === "GET" || hop.method === "HEAD"
          ? {}
          : { "content-length": 0 }
        : { "content-length": Buffer.byteLength(body) }),
    },
    lookup: pinned(addresses),
    maxHeaderSize: maxHeaderBytes,
    ...(trust === undefined ? {} : { ca: trust }),
    ...(isTls && isIP(hostname) === 0 ? { servername: hostname.replace(/\.$/, "") } : {}),
  };
  let outgoing: http.ClientRequest;
  try {
    // An agent of its own: no connection is used again, and no proxy of the environment comes between.
    outgoing = isTls
      ? https.request({ ...options, agent: new https.Agent({ keepAlive: false }) })
      : http.request({ ...options, agent: new http.Agent({ keepAlive: false }) });
  } catch (error) {
    connectStop.clear();
    throw new FailedExchange(
      "the request cannot be sent: a header or the path has a character that HTTP does not take",
      {
        cause: error,
      },
    );
  }
  const onStop = () => outgoing.destroy(asError(connectStop.signal.reason));
  connectStop.signal.addEventListener("abort", onStop, { once: true });
  let headTimer: NodeJS.Timeout | undefined;
  outgoing.on("socket", (socket) => {
    socket.once("connect", () => {
      const remote = plainAddress(socket.remoteAddress?.split("%", 1)[0] ?? "");
      if (remote !== undefined && addresses.includes(remote)) return;
      outgoing.destroy(new RefusedUrl(`${url.host} was reached at an address that was not checked`));
    });
    socket.once(isTls ? "secureConnect" : "connect", () => {
      connectStop.clear();
      connectStop.signal.removeEventListener("abort", onStop);
      if (limits.idleMs > 0)
        headTimer = setTimeout(
          () => outgoing.destroy(new FailedExchange(`${url.host} did not begin to answer within ${limits.idleMs} ms`)),
          limits.idleMs,
        );
    });
  });
  const onAbort = () => outgoing.destroy(asError(signal.reason));
  signal.addEventListener("abort", onAbort, { once: true });
  outgoing.on("response", (incoming) => {
    clearTimeout(headTimer);
    incoming.once("close", () => signal.removeEventListener("abort", onAbort));
    resolve(incoming);
  });
  outgoing.on("upgrade", (_response, socket) => {
    socket.destroy();
    reject(new FailedExchange(`${url.host} wants another protocol`));
  });
  outgoing.on("error", (error) => {
    clearTimeout(headTimer);
    connectStop.clear();
    signal.removeEventListener("abort", onAbort);
    reject(signal.aborted ? signal.reason : described(error, url));
  });
  outgoing.end(body);
  return promise;
}

/** Gives a connection the addresses that were checked, whatever name it asks for. */
function pinned(addresses: readonly string[]): LookupFunction {
  const found = addresses.map((address) => ({ address, family: isIP(address) }));
  return (_hostname, options, callback) => {
    const [first] = found;
    if (options.all === true) callback(null, found);
    else callback(null, first?.address ?? "", first?.family);
  };
}

function described(error: Error, url: URL): Error {
  if (error instanceof RefusedUrl || error instanceof FailedExchange) return error;
  const code = "code" in error && typeof error.code === "string" ? error.code : "";
  const because = { cause: error };
  if (code === "HPE_HEADER_OVERFLOW")
    return new FailedExchange(`${url.host} answered with more than ${maxHeaderBytes} bytes of headers`, because);
  if (code.startsWith("HPE_"))
    return new FailedExchange(`${url.host} answered with something that is not HTTP`, because);
  if (/CERT|SELF_SIGNED|ALTNAME|ISSUER|LEAF_SIGNATURE/.test(code))
    return new FailedExchange(`the certificate of ${url.host} is not one to be trusted (${code})`, because);
  if (code === "EPROTO" || code.startsWith("ERR_SSL"))
    return new FailedExchange(`${url.host} does not speak TLS as https: wants it`, because);
  return new FailedExchange(`${url.host} gave no answer`, because);
}

function responseOf(
  url: URL,
  incoming: http.IncomingMessage,
  limits: ExchangeLimits,
  stop: { signal: AbortSignal; clear(): void },
): GuardedResponse {
  const headers: Record<string, string> = {};
  for (const [name, values] of Object.entries(incoming.headersDistinct)) {
    if (values !== undefined) headers[name] = name === "set-cookie" ? (values.at(-1) ?? "") : values.join(", ");
  }
  incoming.on("error", () => undefined);
  return {
    url,
    status: incoming.statusCode ?? 0,
    headers,
    body: bodyOf(url, incoming, headers["content-encoding"] ?? "", limits, stop),
    close() {
      stop.clear();
      incoming.destroy();
    },
  };
}

async function* bodyOf(
  url: URL,
  incoming: http.IncomingMessage,
  encoding: string,
  limits: ExchangeLimits,
  stop: { signal: AbortSignal; clear(): void },
): AsyncGenerator<Uint8Array, void, undefined> {
  let idle: NodeJS.Timeout | undefined;
  const wait = () => {
    clearTimeout(idle);
    if (limits.idleMs > 0)
      idle = setTimeout(
        () => incoming.destroy(new FailedExchange(`${url.host} fell silent for ${limits.idleMs} ms within its answer`)),
        limits.idleMs,
      );
  };
  try {
    const source = inflated(url, incoming, encoding);
    let bytes = 0;
    wait();
    for await (const chunk of source) {
      clearTimeout(idle);
      if (!(chunk instanceof Uint8Array)) throw new FailedExchange(`${url.host} gave no bytes`);
      bytes += chunk.length;
      if (limits.bodyBytes > 0 && bytes > limits.bodyBytes)
        throw new TooLong(`the answer of ${url.host} is longer than ${limits.bodyBytes} bytes`);
      yield chunk;
      wait();
    }
  } catch (error) {
    if (stop.signal.aborted) throw stop.signal.reason;
    if (error instanceof FailedExchange) throw error;
    throw new FailedExchange(`${url.host} broke off within its answer, or it is not what its headers say`, {
      cause: error,
    });
  } finally {
    clearTimeout(idle);
    stop.clear();
    incoming.destroy();
  }
}

function inflated(url: URL, incoming: http.IncomingMessage, encoding: string): Readable {
  switch (encoding.trim().toLowerCase()) {
    case "":
    case "identity":
      return incoming;
    case "gzip":
    case "x-gzip":
      return pipeline(incoming, createGunzip(), () => undefined);
    case "deflate":
      return pipeline(incoming, createInflate(), () => undefined);
    case "br":
      return pipeline(incoming, createBrotliDecompress(), () => undefined);
    default:
      throw new FailedExchange(`${url.host} answered in an encoding that was not asked for`);
  }
}

/** A signal that follows another and ends on its own after a time. */
function stopFor(signal: AbortSignal, limitMs: number, what = "the request was not over") {
  const stop = new AbortController();
  const onAbort = () => stop.abort(signal.reason);
  if (signal.aborted) onAbort();
  else signal.addEventListener("abort", onAbort, { once: true });
  const timer =
    limitMs > 0 ? setTimeout(() => stop.abort(new FailedExchange(`${what} within ${limitMs} ms`)), limitMs) : undefined;
  return {
    signal: stop.signal,
    clear() {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
    },
  };
}

async function unlessStopped<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>();
  const onAbort = () => reject(signal.reason);
  if (signal.aborted) onAbort();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([work, promise]);
  } finally {
    signal.removeEventListener("abort", onAbort);
    work.catch(() => undefined);
  }
}

function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error(String(reason));
}
