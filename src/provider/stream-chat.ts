import { AgentError, type AgentErrorDetail, CutAnswerError } from "../chat/error.ts";
import type { ChatEvent } from "../chat/event.ts";
import type { ChatRequest } from "../chat/request.ts";
import type { DecodeContext } from "../dialect/dialect.ts";
import { needsPayment, upstreamError } from "../dialect/upstream-error.ts";
import { withIdleTimeout } from "../stream/idle-timeout.ts";
import { defaultMaxBodyBytes, readSse, TooLongError } from "../stream/sse.ts";
import { type Credential, hidingSecrets } from "./credentials.ts";
import { authAdvice, type Endpoint, urlBelow } from "./endpoint.ts";
import { type HttpResponse, TimeLimitError } from "./http-request.ts";

export interface UpstreamTimeouts {
  /** For a connection; default 10 s. */
  readonly connectMs: number;
  /** Between two reads of the answer, and for its head; default 60 s. */
  readonly idleMs: number;
  /** For the whole call with its retries; default 30 min. */
  readonly totalMs: number;
}

export const defaultTimeouts: UpstreamTimeouts = { connectMs: 10_000, idleMs: 60_000, totalMs: 30 * 60_000 };

/** What a call takes from outside, so that tests can give it. */
export interface CallMeans {
  /** Waits; fails with the signal's reason when aborted. */
  delay(delayMs: number, signal: AbortSignal): Promise<void>;
  /** From 0 up to 1. */
  random(): number;
  now(): number;
  createToolCallId(): string;
}

const maxTries = 3;
const firstBackoffMs = 500;
const maxBackoffMs = 30_000;
const maxRetryAfterMs = 60_000;
/** Times a call changes to another key, beside its tries. */
const maxChanges = 8;
/** How long a key is left alone that was limited without a word on how long, in milliseconds. */
const limitedMs = 10_000;
/** The same, where the account behind the key has nothing left. */
const emptyMs = 10 * 60_000;
const maxMessageBytes = 2048;
const maxErrorBodyBytes = 64 * 1024;

/**
 * Asks the provider and streams its answer. Tries again only while no answer has begun: after that the caller has seen
 * events that cannot be taken back.
 * @param signal destroys the connection at once; the generator then throws the signal's reason.
 * @param maxWaitMs longest wait before another try, in milliseconds; default a minute.
 * @throws {AgentError} `provider_auth` (401, 403), `provider_not_found` (404), `provider_rejected` and `context_length`
 * (the request's fault), `rate_limited` (429), `provider_unavailable` (5xx, no connection, cut answer, time limits) and
 * `provider_protocol` (unreadable); a `CutAnswerError` where the answer had begun and broke off, but not where
 * the whole call took too long. No message holds the key or is longer than 2 KB.
 */
export async function* streamChat(
  endpoint: Endpoint,
  request: ChatRequest,
  signal: AbortSignal,
  timeouts: UpstreamTimeouts,
  means: CallMeans,
  maxWaitMs = maxRetryAfterMs,
): AsyncGenerator<ChatEvent[]> {
  signal.throwIfAborted();
  const call = new AbortController();
  const onAbort = () => call.abort(signal.reason);
  signal.addEventListener("abort", onAbort, { once: true });
  const total = setTimeout(() => {
    call.abort(
      fail("provider_unavailable", `${endpoint.provider} did not end within ${timeouts.totalMs} ms`, endpoint, {}),
    );
  }, timeouts.totalMs);
  let response: HttpResponse | undefined;
  let how: "read" | "abandoned" = "abandoned";
  const secrets = new Set(endpoint.secrets);
  try {
    response = await sendWithRetries(endpoint, request, secrets, call.signal, timeouts, means, maxWaitMs);
    yield* readAnswer(response, endpoint, request.model, timeouts, means);
    how = "read";
  } catch (error) {
    if (call.signal.aborted) throw call.signal.reason;
    if (!(error instanceof AgentError)) throw error;
    const told = withoutSecrets(error, secrets);
    throw response !== undefined && told.kind === "provider_unavailable" ? new CutAnswerError(told) : told;
  } finally {
    clearTimeout(total);
    signal.removeEventListener("abort", onAbort);
    response?.close(how);
  }
}

async function sendWithRetries(
  endpoint: Endpoint,
  request: ChatRequest,
  secrets: Set<string>,
  signal: AbortSignal,
  timeouts: UpstreamTimeouts,
  means: CallMeans,
  maxWaitMs: number,
): Promise<HttpResponse> {
  const body = endpoint.dialect.encode(request, endpoint.quirksOf(request.model), endpoint.provider);
  let changes = 0;
  for (let attempt = 1; ; attempt++) {
    let credential: Credential | undefined;
    let error: AgentError;
    try {
      credential = await endpoint.credentials.take(signal);
      for (const secret of credential.secrets) secrets.add(secret);
      const response = await endpoint.send({
        provider: endpoint.provider,
        url: urlBelow(credential.baseUrl ?? endpoint.baseUrl, endpoint.dialect.path),
        headers: {
          "content-type": "application/json",
          accept: "text/event-stream",
          ...endpoint.headers,
          ...endpoint.headersFor?.(request),
          ...credential.headers,
          ...endpoint.ownHeaders,
        },
        body,
        keyChanges: changes,
        secrets: [...secrets],
        signal,
        connectTimeoutMs: timeouts.connectMs,
        headTimeoutMs: timeouts.idleMs,
      });
      if (response.status >= 200 && response.status < 300) return response;
      error = await httpError(response, endpoint, timeouts, means);
    } catch (thrown) {
      if (!(thrown instanceof AgentError)) throw thrown;
      error = thrown;
    }
    const freeInMs = credential && nextFreeInMs(endpoint, credential, error, means);
    if (freeInMs === 0 && changes < maxChanges) {
      changes++;
      attempt--;
      continue;
    }
    const backoffMs = Math.min(firstBackoffMs * 2 ** (attempt - 1), maxBackoffMs) * (0.5 + means.random() / 2);
    // Of several keys the one that is free first is waited for, not the one that was asked last.
    const waitMs = freeInMs || (error.retryAfterMs ?? backoffMs);
    // A time limit that ran out is no reason to wait once more.
    const again = freeInMs || (error.detail.retryable && !(error instanceof TimeLimitError));
    if (!again || attempt === maxTries || waitMs > maxWaitMs) {
      const untold = error.retryAfterMs === undefined || freeInMs;
      throw error.kind === "rate_limited" && untold && error.detail.retryable
        ? new AgentError(error.kind, error.message, { ...optionsOf(error), retryAfterMs: Math.round(waitMs) })
        : error;
    }
    await means.delay(waitMs, signal);
  }
}

/** In how many milliseconds another key, of several, may do better; undefined where it is not about the key. */
function nextFreeInMs(
  endpoint: Endpoint,
  credential: Credential,
  error: AgentError,
  means: CallMeans,
): number | undefined {
  if (error.kind !== "provider_auth" && error.kind !== "rate_limited") return undefined;
  const untilMs = means.now() + (error.retryAfterMs ?? (error.detail.retryable ? limitedMs : emptyMs));
  const { credentials } = endpoint;
  const freeAtMs =
    error.kind === "provider_auth" ? credentials.refused(credential) : credentials.limited(credential, untilMs);
  return freeAtMs === undefined ? undefined : Math.max(0, freeAtMs - means.now());
}

/** What an answer other than 2xx means. */
async function httpError(
  response: HttpResponse,
  endpoint: Endpoint,
  timeouts: UpstreamTimeouts,
  means: CallMeans,
): Promise<AgentError> {
  const { status } = response;
  const answered = `${endpoint.provider} answered HTTP ${status}`;
  if (status < 400) {
    response.close("abandoned");
    const words = status >= 300 ? "a redirect, which is not followed; check its base URL" : "which is no answer";
    return fail("provider_protocol", `${answered}, ${words}`, endpoint, response);
  }
  let bodyText = "";
  let how: "read" | "abandoned" = "read";
  try {
    bodyText = await readText(bodyWithIdle(response, endpoint, timeouts), maxErrorBodyBytes, "cut");
    if (bodyText.length >= maxErrorBodyBytes) how = "abandoned";
  } catch (error) {
    how = "abandoned";
    // The status says what happened; a body that broke off adds nothing, but an abort goes through.
    if (!(error instanceof AgentError)) throw error;
  } finally {
    response.close(how);
  }
  const fault = endpoint.dialect.decodeError(bodyText) ?? {
    message: describeBody(bodyText, response.headers["content-type"]),
    type: "",
    code: "",
  };
  const requestId = requestIdOf(response);
  const retryAfterMs = retryAfterOf(response, means.now());
  const error = upstreamError(fault, {
    provider: endpoint.provider,
    status,
    authAdvice: authAdvice(endpoint),
    ...(requestId === undefined ? {} : { upstreamRequestId: requestId }),
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  });
  if (response.headers["x-should-retry"] !== "false" || needsPayment(fault)) return error;
  return new AgentError(error.kind, error.message, {
    ...optionsOf(error),
    detail: { ...error.detail, retryable: false },
  });
}

async function* readAnswer(
  response: HttpResponse,
  endpoint: Endpoint,
  model: string,
  timeouts: UpstreamTimeouts,
  means: CallMeans,
): AsyncGenerator<ChatEvent[]> {
  const encoding = response.headers["content-encoding"] ?? "identity";
  if (encoding !== "identity") {
    throw fail(
      "provider_protocol",
      `${endpoint.provider} sent an answer in the encoding ${encoding}, which was not asked for`,
      endpoint,
      response,
    );
  }
  const requestId = requestIdOf(response);
  const context: DecodeContext = {
    provider: endpoint.provider,
    model,
    quirks: endpoint.quirksOf(model),
    createToolCallId: means.createToolCallId,
    ...(requestId === undefined ? {} : { upstreamRequestId: requestId }),
  };
  try {
    const { kind, body } = await lookAhead(bodyWithIdle(response, endpoint, timeouts));
    switch (kind) {
      case "events":
        yield* endpoint.dialect.decodeStream(readSse(body), context);
        return;
      case "json":
        yield endpoint.dialect.decodeWhole(await readText(body, defaultMaxBodyBytes, "fail"), context);
        return;
      case "empty":
        throw fail("provider_unavailable", `${endpoint.provider} sent an empty answer`, endpoint, response);
      case "other": {
        const text = await readText(body, maxErrorBodyBytes, "cut");
        const words = describeBody(text, response.headers["content-type"]);
        throw fail(
          "provider_protocol",
          `${endpoint.provider} sent neither events nor JSON: ${words}`,
          endpoint,
          response,
        );
      }
      default:
        kind satisfies never;
    }
  } catch (error) {
    if (error instanceof TooLongError) {
      throw fail("provider_protocol", `the answer of ${endpoint.provider} ${error.message}`, endpoint, response);
    }
    if (!(error instanceof AgentError)) throw error;
    throw new AgentError(error.kind, error.message, {
      ...optionsOf(error),
      detail: { ...detailOf(endpoint, response), retryable: error.kind === "provider_unavailable", ...error.detail },
    });
  }
}

function bodyWithIdle(
  response: HttpResponse,
  endpoint: Endpoint,
  timeouts: UpstreamTimeouts,
): AsyncIterable<Uint8Array> {
  return withIdleTimeout(response.body, timeouts.idleMs, () =>
    fail("provider_unavailable", `${endpoint.provider} sent nothing for ${timeouts.idleMs} ms`, endpoint, response),
  );
}

/**
 * Tells by its first character what a body is, since content types do not: gateways answer streams with JSON errors.
 * White space before it says nothing and is dropped.
 */
async function lookAhead(
  body: AsyncIterable<Uint8Array>,
): Promise<{ kind: "events" | "json" | "empty" | "other"; body: AsyncIterable<Uint8Array> }> {
  const iterator = body[Symbol.asyncIterator]();
  let seen = Buffer.alloc(0);
  let start = -1;
  while (start === -1) {
    const item = await iterator.next();
    if (item.done) return { kind: seen.length === 0 ? "empty" : "other", body: (async function* () {})() };
    seen = Buffer.concat([seen, item.value]);
    const markLength = seen[0] === 0xef ? 3 : 0;
    if (seen.length <= markLength) continue;
    start = seen.findIndex((byte, position) => position >= markLength && !isWhiteSpace(byte));
    if (start === -1) seen = Buffer.alloc(0);
  }
  const first = String.fromCharCode(seen[start] ?? 0);
  const rest = async function* () {
    try {
      yield seen.subarray(start);
      for (;;) {
        const item = await iterator.next();
        if (item.done) return;
        yield item.value;
      }
    } finally {
      await iterator.return?.();
    }
  };
  const kind = first === "{" || first === "[" ? "json" : /[:deir]/.test(first) ? "events" : "other";
  return { kind, body: rest() };
}

function isWhiteSpace(byte: number): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}

async function readText(
  body: AsyncIterable<Uint8Array>,
  maxBytes: number,
  whenLonger: "cut" | "fail",
): Promise<string> {
  const pieces: Uint8Array[] = [];
  let length = 0;
  for await (const piece of body) {
    pieces.push(piece);
    length += piece.byteLength;
    if (length <= maxBytes) continue;
    if (whenLonger === "fail") throw new TooLongError(`is longer than ${maxBytes} bytes`);
    break;
  }
  return Buffer.concat(pieces).subarray(0, maxBytes).toString("utf8");
}

/** A body that is not the dialect's, in few words: a page of HTML tells nobody anything. */
function describeBody(text: string, contentType: string | undefined): string {
  const trimmed = text.trim();
  if (trimmed === "") return "an empty body";
  if (trimmed.startsWith("<")) return `a page of ${contentType ?? "markup"}`;
  return trimmed.slice(0, 500);
}

const requestIdHeaders = ["x-request-id", "request-id", "apim-request-id", "msh-request-id", "x-ds-trace-id", "cf-ray"];

function requestIdOf(response: HttpResponse): string | undefined {
  for (const name of requestIdHeaders) {
    const value = response.headers[name];
    if (value) return value.slice(0, 200);
  }
  return undefined;
}

function retryAfterOf({ headers }: HttpResponse, nowMs: number): number | undefined {
  const milliseconds = headers["retry-after-ms"];
  const seconds = headers["retry-after"];
  if (seconds !== undefined && /^\d+(\.\d+)?$/.test(seconds)) {
    // Some send both, with 0 for the milliseconds.
    const exact = milliseconds !== undefined && /^\d+(\.\d+)?$/.test(milliseconds) ? Number(milliseconds) : 0;
    return exact > 0 ? exact : Number(seconds) * 1000;
  }
  if (milliseconds !== undefined && /^\d+(\.\d+)?$/.test(milliseconds)) return Number(milliseconds);
  const dateMs = seconds === undefined ? Number.NaN : Date.parse(seconds);
  return Number.isNaN(dateMs) ? undefined : Math.max(0, dateMs - nowMs);
}

function fail(
  kind: "provider_protocol" | "provider_unavailable",
  message: string,
  endpoint: Endpoint,
  response: { readonly status?: number; readonly headers?: Readonly<Record<string, string>> },
): AgentError {
  return new AgentError(kind, message, {
    detail: {
      retryable: kind === "provider_unavailable",
      provider: endpoint.provider,
      ...(response.status === undefined || response.status < 300 ? {} : { upstreamStatus: response.status }),
    },
  });
}

function detailOf(endpoint: Endpoint, response: HttpResponse): AgentErrorDetail {
  const requestId = requestIdOf(response);
  return { provider: endpoint.provider, ...(requestId === undefined ? {} : { upstreamRequestId: requestId }) };
}

/** The error with every secret taken out of its words, and the words kept to their limit. Its cause stays behind. */
function withoutSecrets(error: AgentError, secrets: ReadonlySet<string>): AgentError {
  const clean = hidingSecrets(secrets, "***");
  const message = clean(error.message);
  const { upstreamRequestId } = error.detail;
  const { cause: _, ...options } = optionsOf(error);
  return new AgentError(error.kind, Buffer.byteLength(message) > maxMessageBytes ? cutText(message) : message, {
    ...options,
    detail: {
      ...error.detail,
      ...(upstreamRequestId === undefined ? {} : { upstreamRequestId: clean(upstreamRequestId) }),
    },
  });
}

function cutText(text: string): string {
  const kept = Buffer.from(text, "utf8").subarray(0, maxMessageBytes - 4);
  return `${new TextDecoder().decode(kept, { stream: true })}…`;
}

function optionsOf(error: AgentError) {
  const { reason, fieldViolations, detail, metadata, cause, retryAfterMs } = error;
  return {
    reason,
    fieldViolations,
    detail,
    metadata,
    ...(cause === undefined ? {} : { cause }),
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  };
}
