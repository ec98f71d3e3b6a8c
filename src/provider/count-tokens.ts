import { AgentError } from "../chat/error.ts";
import type { ChatRequest } from "../chat/request.ts";
import { countOf, objectOf, parseJson } from "../dialect/json.ts";
import { memberSlices } from "../dialect/json-slices.ts";
import { upstreamError } from "../dialect/upstream-error.ts";
import { hidingSecrets } from "./credentials.ts";
import { authAdvice, type Endpoint, urlBelow } from "./endpoint.ts";
import type { HttpResponse } from "./http-request.ts";

/** What of a request is counted; the vendor refuses all else (platform.claude.com/docs/en/api/messages-count-tokens). */
const counted = ["model", "system", "tools", "messages", "tool_choice", "thinking", "output_config"];
/** Said by endpoints that speak the format and do not count. */
const notThere = [404, 405, 501];
const maxBodyBytes = 64 * 1024;
const maxMessageLength = 2000;

/**
 * Asks a provider how many tokens a request is, once. Follows no redirect.
 * @param timeoutMs longest wait for a connection, and for the answer after that
 * @returns nothing where the provider cannot be asked: only Anthropic's format has the question, and not every endpoint
 * that speaks it.
 * @throws {AgentError} as a model call does: `provider_auth`, `rate_limited`, `provider_unavailable`, ...
 */
export async function countTokens(
  endpoint: Endpoint,
  request: ChatRequest,
  { signal, timeoutMs }: { readonly signal: AbortSignal; readonly timeoutMs: number },
): Promise<number | undefined> {
  const { provider, dialect, credentials } = endpoint;
  if (dialect.id !== "anthropic-messages") return undefined;
  const members = memberSlices(dialect.encode(request, endpoint.quirksOf(request.model), provider));
  const parts = counted.flatMap((name) => (members.has(name) ? `${JSON.stringify(name)}:${members.get(name)}` : []));
  const secrets = new Set(endpoint.secrets);
  try {
    const credential = await credentials.take(signal);
    for (const secret of credential.secrets) secrets.add(secret);
    const response = await endpoint.send({
      provider,
      url: urlBelow(credential.baseUrl ?? endpoint.baseUrl, `${dialect.path}/count_tokens`),
      headers: {
        "content-type": "application/json",
        accept: "application/json",
        ...endpoint.headers,
        ...endpoint.headersFor?.(request),
        ...credential.headers,
        ...endpoint.ownHeaders,
      },
      body: `{${parts.join(",")}}`,
      secrets: [...secrets],
      signal: AbortSignal.any([signal, AbortSignal.timeout(2 * timeoutMs)]),
      connectTimeoutMs: timeoutMs,
      headTimeoutMs: timeoutMs,
    });
    return countFrom(response.status, await readText(response), endpoint);
  } catch (error) {
    signal.throwIfAborted();
    if (error instanceof AgentError) throw withoutSecrets(error, secrets);
    throw new AgentError("provider_unavailable", `${provider} did not count the tokens of a request in time`, {
      detail: { retryable: true, provider },
      cause: error,
    });
  }
}

function countFrom(status: number, text: string, endpoint: Endpoint): number | undefined {
  const { provider, dialect } = endpoint;
  if (notThere.includes(status)) return undefined;
  if (status >= 400) {
    const fault = dialect.decodeError(text) ?? { message: "", type: "", code: "" };
    throw upstreamError(fault, { provider, status, authAdvice: authAdvice(endpoint) });
  }
  const count = status < 300 ? countOf(objectOf(parseJson(text))["input_tokens"]) : undefined;
  if (count !== undefined) return count;
  throw new AgentError(
    "provider_protocol",
    `${provider} answered HTTP ${status} with something that is no count of tokens; check its base URL`,
    { detail: { provider, upstreamStatus: status } },
  );
}

/** What is longer than any count is cut, and so cannot be read. */
async function readText(response: HttpResponse): Promise<string> {
  const pieces: Uint8Array[] = [];
  let length = 0;
  let how: "read" | "abandoned" = "abandoned";
  try {
    for await (const piece of response.body) {
      length += piece.byteLength;
      if (length > maxBodyBytes) break;
      pieces.push(piece);
    }
    if (length <= maxBodyBytes) how = "read";
  } finally {
    response.close(how);
  }
  return Buffer.concat(pieces).toString("utf8");
}

function withoutSecrets(error: AgentError, secrets: ReadonlySet<string>): AgentError {
  const { kind, reason, detail, retryAfterMs } = error;
  const message = hidingSecrets(secrets, "***")(error.message).slice(0, maxMessageLength).toWellFormed();
  return new AgentError(kind, message, { reason, detail, ...(retryAfterMs === undefined ? {} : { retryAfterMs }) });
}
