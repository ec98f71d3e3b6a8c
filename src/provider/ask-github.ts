import http from "node:http";
import https from "node:https";
import { AgentError } from "../chat/error.ts";
import { type JsonObject, objectOf, parseJson } from "../dialect/json.ts";

export interface GithubRequest {
  readonly method: "GET" | "POST";
  readonly url: URL;
  /** Names in small letters. */
  readonly headers: Readonly<Record<string, string>>;
  /** Sent as JSON. */
  readonly body?: Readonly<Record<string, string>>;
  /** Ends it at once; its reason is then thrown. */
  readonly signal: AbortSignal;
  /** Longest time for all of it, in milliseconds. */
  readonly limitMs: number;
}

export interface GithubAnswer {
  readonly status: number;
  readonly headers: http.IncomingHttpHeaders;
  /** Empty where the answer is no JSON object. */
  readonly body: JsonObject;
}

const maxBodyBytes = 256 * 1024;

/** Whether a secret may be sent there: encrypted, or without leaving this machine. */
export function isSafeForSecrets({ protocol, hostname }: URL): boolean {
  return protocol === "https:" || (protocol === "http:" && isLoopback(hostname));
}

/** Whether a host name as URLs write it is this machine. */
export function isLoopback(hostname: string): boolean {
  return hostname === "localhost" || hostname === "[::1]" || /^127\.\d+\.\d+\.\d+$/.test(hostname);
}

/**
 * One request for JSON over a connection of its own. What it carries goes to the URL's host and nowhere else: a redirect
 * is an answer like any other. Answers of every status are returned.
 * @throws {AgentError} `provider_unavailable` for no connection, a broken one or the limit, `provider_protocol` for an
 * answer longer than 256 KB or one that is not HTTP.
 * @throws {TypeError} for a URL no secret may be sent to.
 */
export async function askGithub(request: GithubRequest): Promise<GithubAnswer> {
  const { method, url, signal, limitMs } = request;
  signal.throwIfAborted();
  if (!isSafeForSecrets(url)) throw new TypeError(`${url.host} is to be asked over https:`);
  const body = request.body === undefined ? undefined : JSON.stringify(request.body);
  const outgoing = (url.protocol === "https:" ? https : http).request(url, {
    method,
    agent: false,
    headers: {
      accept: "application/json",
      "accept-encoding": "identity",
      "user-agent": "codeagent",
      ...(body === undefined
        ? {}
        : { "content-type": "application/json", "content-length": String(Buffer.byteLength(body)) }),
      ...request.headers,
    },
  });
  const onAbort = () => outgoing.destroy(new Error("aborted"));
  signal.addEventListener("abort", onAbort, { once: true });
  let isLate = false;
  const limit = setTimeout(() => {
    isLate = true;
    outgoing.destroy(new Error("late"));
  }, limitMs);
  try {
    const incoming = await new Promise<http.IncomingMessage>((resolve, reject) => {
      outgoing.on("error", reject).once("response", resolve).end(body);
    });
    const text = await readBody(incoming, url.host);
    return { status: incoming.statusCode ?? 0, headers: incoming.headers, body: objectOf(parseJson(text)) };
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    if (error instanceof AgentError) throw error;
    const code = error instanceof Error && "code" in error ? String(error.code) : "no answer";
    if (code.startsWith("HPE_")) throw failure("provider_protocol", `${url.host} does not speak HTTP (${code})`, error);
    const why = isLate ? `did not answer within ${limitMs} ms` : `cannot be reached (${code})`;
    throw failure("provider_unavailable", `${url.host} ${why}`, error);
  } finally {
    clearTimeout(limit);
    signal.removeEventListener("abort", onAbort);
    outgoing.destroy();
  }
}

async function readBody(incoming: http.IncomingMessage, host: string): Promise<string> {
  const pieces: Uint8Array[] = [];
  let length = 0;
  for await (const bytes of incoming) {
    const piece: Uint8Array = bytes;
    pieces.push(piece);
    length += piece.byteLength;
    if (length > maxBodyBytes)
      throw failure("provider_protocol", `the answer of ${host} is longer than ${maxBodyBytes} bytes`, undefined);
  }
  return Buffer.concat(pieces).toString("utf8");
}

function failure(kind: "provider_unavailable" | "provider_protocol", message: string, cause: unknown): AgentError {
  return new AgentError(kind, message, {
    ...(cause === undefined ? {} : { cause }),
    detail: { retryable: kind === "provider_unavailable", provider: "copilot" },
  });
}
