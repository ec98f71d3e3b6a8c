import http from "node:http";
import https from "node:https";
import { AgentError } from "../chat/error.ts";
import type { DialectId } from "../dialect/dialect.ts";
import { isJsonObject, parseJson } from "../dialect/json.ts";
import { upstreamError } from "../dialect/upstream-error.ts";
import { type Endpoint, urlBelow } from "./endpoint.ts";

/** What a provider said when it was asked for its models. */
export interface ModelListAnswer {
  readonly status: number;
  /** How many it named on its first page; absent where it has no list. */
  readonly count?: number;
}

export interface AskModelsOptions {
  /** Destroys the connection at once; the call then fails with the signal's reason. */
  readonly signal: AbortSignal;
  /** Takes each secret the question is sent with, before it is sent. */
  readonly onSecrets: (secrets: readonly string[]) => void;
  /** Takes the status of the answer, as soon as it is there. */
  readonly onStatus: (status: number) => void;
}

/**
 * Where each family has its list of models, below the base URL
 * (platform.openai.com/docs/api-reference/models/list, platform.claude.com/docs/en/api/models-list).
 */
const listPaths: Readonly<Record<string, string>> = {
  "openai-chat": "/models",
  "openai-responses": "/models",
  "anthropic-messages": "/v1/models",
} satisfies Record<DialectId, string>;

/** Gateways name hundreds of models with a page about each. */
const maxBodyBytes = 16 * 1024 * 1024;

/**
 * Asks a provider for its list of models, once, over a connection of its own. Follows no redirect. An endpoint that has
 * no list (404) has answered too.
 * @throws {AgentError} as a model call does: `provider_auth`, `rate_limited`, `provider_unavailable`, ... Its message
 * may hold secrets.
 */
export async function askModels(
  endpoint: Endpoint,
  { signal, onSecrets, onStatus }: AskModelsOptions,
): Promise<ModelListAnswer> {
  const { provider, dialect, credentials } = endpoint;
  const credential = await credentials.take(signal);
  onSecrets(credential.secrets);
  const url = urlBelow(credential.baseUrl ?? endpoint.baseUrl, listPaths[dialect.id] ?? "/models");
  const headers = { ...endpoint.headers, ...credential.headers, ...endpoint.ownHeaders };
  const { status, text } = await get(provider, url, headers, signal, onStatus);
  if (status === 404) return { status };
  if (status >= 300 && status < 400) {
    throw new AgentError(
      "provider_protocol",
      `${provider} answered HTTP ${status}, a redirect, which is not followed; check its base URL`,
    );
  }
  if (status >= 400) {
    const fault = dialect.decodeError(text) ?? { message: "", type: "", code: "" };
    throw upstreamError(fault, { provider, status });
  }
  const answer = parseJson(text);
  const list = isJsonObject(answer) ? (answer["data"] ?? answer["models"]) : answer;
  if (Array.isArray(list)) return { status, count: list.length };
  throw new AgentError(
    "provider_protocol",
    `${provider} answered HTTP ${status} with something that is no list of models; check its base URL`,
  );
}

async function get(
  provider: string,
  url: URL,
  headers: Readonly<Record<string, string>>,
  signal: AbortSignal,
  onStatus: (status: number) => void,
): Promise<{ readonly status: number; readonly text: string }> {
  const options = {
    method: "GET",
    headers: { accept: "application/json", "accept-encoding": "identity", ...headers },
    agent: false,
    signal,
  } as const;
  const request = url.protocol === "https:" ? https.request(url, options) : http.request(url, options);
  try {
    const { promise, resolve, reject } = Promise.withResolvers<http.IncomingMessage>();
    request.once("response", resolve);
    request.on("error", reject);
    request.end();
    const response = await promise;
    const status = response.statusCode ?? 0;
    onStatus(status);
    const pieces: Buffer[] = [];
    let length = 0;
    for await (const piece of response) {
      if (!Buffer.isBuffer(piece)) continue;
      length += piece.length;
      if (length > maxBodyBytes) {
        const what = `${provider} answered HTTP ${status} with more than ${maxBodyBytes} bytes; check its base URL`;
        throw new AgentError("provider_protocol", what);
      }
      pieces.push(piece);
    }
    return { status, text: Buffer.concat(pieces).toString("utf8") };
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof AgentError) throw error;
    const code = error instanceof Error && "code" in error ? String(error.code) : "";
    if (code.startsWith("HPE_"))
      throw new AgentError("provider_protocol", `${provider} answered with something that is not HTTP (${code})`);
    throw new AgentError(
      "provider_unavailable",
      `${provider} at ${url.host} cannot be reached (${code || "no connection"})`,
      { cause: error },
    );
  } finally {
    request.destroy();
  }
}
