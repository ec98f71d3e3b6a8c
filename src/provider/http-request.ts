import http from "node:http";
import https from "node:https";
import { AgentError, type AgentErrorDetail } from "../chat/error.ts";

/** One question to a provider. */
export interface HttpRequest {
  /** Who is asked, for messages. */
  readonly provider: string;
  /** Default POST; a GET has an empty body. */
  readonly method?: "GET" | "POST";
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** How many keys of several were refused or limited before in the same call; default 0. */
  readonly keyChanges?: number;
  /** Texts that a recording of the exchange must not hold. */
  readonly secrets?: readonly string[];
  /** Destroys the connection at once, also while the answer is read; the send or the read then fails. */
  readonly signal: AbortSignal;
  /** Longest wait for a connection, in milliseconds. */
  readonly connectTimeoutMs: number;
  /** Longest wait for the head of the answer after that, in milliseconds. */
  readonly headTimeoutMs: number;
}

export interface HttpResponse {
  readonly status: number;
  /** Names in small letters; of repeated headers the first. */
  readonly headers: Readonly<Record<string, string>>;
  /** Fails with `provider_unavailable` when the connection breaks before the end. */
  readonly body: AsyncIterable<Uint8Array>;
  /** Ends the exchange. A body read to its last event is let out, so that the connection can be used again. */
  close(how: "read" | "abandoned"): void;
}

/** How requests reach a provider. Fails with `provider_unavailable` where there was no answer. */
export type SendHttp = (request: HttpRequest) => Promise<HttpResponse>;

/** How long the rest of a body that has said all may take, in milliseconds. */
const drainTimeoutMs = 1000;

/** Sends over connections that are kept for the next request. Redirects are answers like any other; nothing follows them. */
export function createHttpSender(): { readonly send: SendHttp; close(): void } {
  const agents = { http: new http.Agent({ keepAlive: true }), https: new https.Agent({ keepAlive: true }) };
  const send: SendHttp = async (request) => {
    for (;;) {
      try {
        return await exchange(request, agents);
      } catch (error) {
        // A kept connection that the other side had closed meanwhile says nothing about the provider.
        if (!(error instanceof StaleConnectionError)) throw error;
      }
    }
  };
  return {
    send,
    close() {
      agents.http.destroy();
      agents.https.destroy();
    },
  };
}

/** A provider kept us waiting for too long. Another time it may not; asking again at once makes no sense. */
export class TimeLimitError extends AgentError {
  constructor(message: string, detail: AgentErrorDetail) {
    super("provider_unavailable", message, { detail: { ...detail, retryable: true } });
  }
}

class StaleConnectionError extends Error {}

function exchange(request: HttpRequest, agents: { http: http.Agent; https: https.Agent }): Promise<HttpResponse> {
  const { promise, resolve, reject } = Promise.withResolvers<HttpResponse>();
  const { url, signal } = request;
  signal.throwIfAborted();
  const { method = "POST", body } = request;
  const options = {
    method,
    headers: {
      ...request.headers,
      "accept-encoding": "identity",
      ...(method === "GET" ? {} : { "content-length": Buffer.byteLength(body) }),
    },
  };
  const outgoing =
    url.protocol === "https:"
      ? https.request(url, { ...options, agent: agents.https })
      : http.request(url, { ...options, agent: agents.http });

  const onAbort = () => outgoing.destroy(asError(signal.reason));
  signal.addEventListener("abort", onAbort, { once: true });
  let timer: NodeJS.Timeout | undefined;
  const limit = (timeoutMs: number, what: string) => {
    clearTimeout(timer);
    timer = setTimeout(
      () =>
        outgoing.destroy(
          new TimeLimitError(`${request.provider} ${what} within ${timeoutMs} ms`, { provider: request.provider }),
        ),
      timeoutMs,
    );
  };
  const settle = () => {
    clearTimeout(timer);
    timer = undefined;
  };

  outgoing.on("socket", (socket) => {
    const connected = () => limit(request.headTimeoutMs, "did not begin to answer");
    if (!socket.connecting) connected();
    else {
      limit(request.connectTimeoutMs, "did not accept a connection");
      socket.once(url.protocol === "https:" ? "secureConnect" : "connect", connected);
    }
  });
  outgoing.on("error", (error) => {
    settle();
    signal.removeEventListener("abort", onAbort);
    if (signal.aborted) reject(signal.reason);
    else if (error instanceof AgentError) reject(error);
    else if (outgoing.reusedSocket && ["ECONNRESET", "EPIPE"].includes(codeOf(error)))
      reject(new StaleConnectionError());
    else reject(connectionError(request, error));
  });
  outgoing.on("response", (incoming) => {
    settle();
    resolve({
      status: incoming.statusCode ?? 0,
      headers: headersOf(incoming),
      body: bodyOf(incoming, request),
      close(how) {
        signal.removeEventListener("abort", onAbort);
        if (incoming.readableEnded) return;
        if (how === "abandoned") {
          outgoing.destroy();
          return;
        }
        const drain = setTimeout(() => outgoing.destroy(), drainTimeoutMs);
        drain.unref();
        incoming.once("close", () => clearTimeout(drain));
        incoming.on("error", () => undefined);
        incoming.resume();
      },
    });
  });
  outgoing.end(body);
  return promise;
}

async function* bodyOf(incoming: http.IncomingMessage, request: HttpRequest): AsyncGenerator<Uint8Array> {
  try {
    for await (const bytes of incoming.iterator({ destroyOnReturn: false })) yield bytes;
  } catch (error) {
    if (request.signal.aborted) throw request.signal.reason;
    throw unavailable(request, "broke the connection in the middle of its answer", error);
  }
}

function headersOf(incoming: http.IncomingMessage): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const [name, values] of Object.entries(incoming.headersDistinct)) {
    const [first] = values ?? [];
    if (first !== undefined) headers[name] = first;
  }
  return headers;
}

function connectionError(request: HttpRequest, error: Error): AgentError {
  const code = codeOf(error);
  if (code.startsWith("HPE_")) {
    return new AgentError(
      "provider_protocol",
      `${request.provider} answered with something that is not HTTP (${code})`,
      {
        cause: error,
        detail: { retryable: false, provider: request.provider },
      },
    );
  }
  return unavailable(request, `at ${request.url.host} cannot be reached (${code || error.message})`, error);
}

function unavailable(request: HttpRequest, what: string, cause: unknown): AgentError {
  return new AgentError("provider_unavailable", `${request.provider} ${what}`, {
    cause,
    detail: { retryable: true, provider: request.provider },
  });
}

function codeOf(error: Error): string {
  return "code" in error && typeof error.code === "string" ? error.code : "";
}

function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error(String(reason));
}
