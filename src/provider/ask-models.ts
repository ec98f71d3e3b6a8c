import { AgentError } from "../chat/error.ts";
import type { DialectId } from "../dialect/dialect.ts";
import { isJsonObject, parseJson } from "../dialect/json.ts";
import { upstreamError } from "../dialect/upstream-error.ts";
import { authAdvice, type Endpoint, urlBelow } from "./endpoint.ts";
import type { HttpResponse } from "./http-request.ts";

/** What a provider said when it was asked for its models. */
export interface ModelListAnswer {
  readonly status: number;
  /** How many it named on its first page; absent where it has no list. */
  readonly count?: number;
}

export interface AskModelsOptions {
  /** Destroys the connection at once; the call then fails with the signal's reason. */
  readonly signal: AbortSignal;
  /** Longest wait for a connection, and for the head of the answer after that, in milliseconds. */
  readonly timeoutMs: number;
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
 * Asks a provider for its list of models, once. Follows no redirect. An endpoint that has
 * no list (404) has answered too.
 * @throws {AgentError} as a model call does: `provider_auth`, `rate_limited`, `provider_unavailable`, ... Its message
 * may hold secrets.
 */
export async function askModels(
  endpoint: Endpoint,
  { signal, timeoutMs, onSecrets, onStatus }: AskModelsOptions,
): Promise<ModelListAnswer> {
  const { provider, dialect, credentials } = endpoint;
  const credential = await credentials.take(signal);
  onSecrets(credential.secrets);
  const url = urlBelow(credential.baseUrl ?? endpoint.baseUrl, listPaths[dialect.id] ?? "/models");
  const headers = { ...endpoint.headers, ...credential.headers, ...endpoint.ownHeaders };
  const response = await endpoint.send({
    provider,
    method: "GET",
    url,
    headers: { accept: "application/json", ...headers },
    body: "",
    secrets: [...endpoint.secrets, ...credential.secrets],
    signal,
    connectTimeoutMs: timeoutMs,
    headTimeoutMs: timeoutMs,
  });
  const { status } = response;
  onStatus(status);
  let text: string;
  let how: "read" | "abandoned" = "abandoned";
  try {
    text = await readText(response, provider);
    how = "read";
  } finally {
    response.close(how);
  }
  if (status === 404) return { status };
  if (status >= 300 && status < 400) {
    throw new AgentError(
      "provider_protocol",
      `${provider} answered HTTP ${status}, a redirect, which is not followed; check its base URL`,
    );
  }
  if (status >= 400) {
    const fault = dialect.decodeError(text) ?? { message: "", type: "", code: "" };
    throw upstreamError(fault, { provider, status, authAdvice: authAdvice(endpoint) });
  }
  const answer = parseJson(text);
  const list = isJsonObject(answer) ? (answer["data"] ?? answer["models"]) : answer;
  if (Array.isArray(list)) return { status, count: list.length };
  throw new AgentError(
    "provider_protocol",
    `${provider} answered HTTP ${status} with something that is no list of models; check its base URL`,
  );
}

/** @throws {AgentError} for a body that is too long. */
async function readText({ status, body }: HttpResponse, provider: string): Promise<string> {
  const pieces: Uint8Array[] = [];
  let length = 0;
  for await (const piece of body) {
    length += piece.byteLength;
    if (length > maxBodyBytes) {
      const what = `${provider} answered HTTP ${status} with more than ${maxBodyBytes} bytes; check its base URL`;
      throw new AgentError("provider_protocol", what);
    }
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString("utf8");
}
