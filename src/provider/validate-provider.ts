import { AgentError, type AgentErrorKind } from "../chat/error.ts";
import type { ChatRequest } from "../chat/request.ts";
import { askModels } from "./ask-models.ts";
import { type Credentials, hidingSecrets } from "./credentials.ts";
import { type Endpoint, isConfigured, type Unconfigured } from "./endpoint.ts";
import type { SendHttp } from "./http-request.ts";
import { type CallMeans, defaultTimeouts, streamChat } from "./stream-chat.ts";

/** What came of asking a provider whether it answers. */
export interface ProviderCheck {
  readonly state:
    | "ok"
    | "not_configured"
    | "unauthorized"
    | "model_not_found"
    | "rate_limited"
    | "unreachable"
    | "failed";
  /** A sentence for people, without secrets. */
  readonly message: string;
  /** How long it took; absent where it was not asked. */
  readonly latencyMs?: number;
  /** HTTP status of the answer; absent where none came. */
  readonly upstreamStatus?: number;
}

export interface ValidateOptions {
  /** Ends the question; its reason is then thrown. */
  readonly signal: AbortSignal;
  /** Longest wait for the whole answer, in milliseconds. */
  readonly timeoutMs: number;
  /** Nothing goes out for this provider: it answers from a script or a record. */
  readonly answersItself?: boolean;
}

/** The least that every family takes: the Responses API refuses less than 16. */
const fewTokens = 16;
const maxMessageLength = 1000;
const advice: { readonly [Kind in AgentErrorKind]?: string } = {
  provider_not_found: "check the model's name and the base URL",
  rate_limited: "try again later",
};

/**
 * Asks a provider once, with the configured key, whether it answers: with a model for one word, without for its list of
 * models. Nothing is tried again, so the answer tells of one call.
 * @param provider for the message, where it is not configured.
 * @param model the model's own name; empty for none.
 */
export async function validateProvider(
  provider: string,
  endpoint: Endpoint | Unconfigured,
  model: string,
  { signal, timeoutMs, answersItself = false }: ValidateOptions,
  means: CallMeans,
): Promise<ProviderCheck> {
  if (!isConfigured(endpoint))
    return { state: "not_configured", message: `the provider ${provider} ${endpoint.missing}` };
  if (answersItself) return { state: "ok", message: `${provider} is configured and answers without being asked` };
  signal.throwIfAborted();
  const limit = AbortSignal.timeout(timeoutMs);
  const both = AbortSignal.any([signal, limit]);
  const secrets = new Set(endpoint.secrets);
  const begunMs = means.now();
  let status: number | undefined;
  const onStatus = (seen: number) => {
    status = seen;
  };
  const check = (state: ProviderCheck["state"], message: string): ProviderCheck => ({
    state,
    message: cut(hidingSecrets(secrets, "***")(message)),
    latencyMs: Math.max(0, Math.round(means.now() - begunMs)),
    ...(status === undefined ? {} : { upstreamStatus: status }),
  });
  try {
    if (model === "") {
      const { count } = await askModels(endpoint, {
        signal: both,
        timeoutMs: timeoutMs + 1000,
        onStatus,
        onSecrets: (more) => {
          for (const secret of more) secrets.add(secret);
        },
      });
      const said =
        count === undefined
          ? "answers, and has no list of models; name a model to see whether it takes the key"
          : `answers and lists ${count} model${count === 1 ? "" : "s"}`;
      return check("ok", `${provider} ${said}`);
    }
    const asked = {
      ...endpoint,
      send: once(endpoint.send, onStatus),
      credentials: unwaited(endpoint.credentials, means),
    };
    const timeouts = { ...defaultTimeouts, totalMs: timeoutMs + 1000 };
    const answer = streamChat(asked, question(model), both, timeouts, means);
    while (!(await answer.next()).done);
    return check("ok", `${provider} answers with the model ${model}`);
  } catch (error) {
    signal.throwIfAborted();
    if (limit.aborted) return check("unreachable", `${provider} did not answer within ${timeoutMs} ms`);
    if (!(error instanceof AgentError)) throw error;
    // Whoever could not even get its credential has said what to do about that.
    const whatToDo = status === undefined ? undefined : advice[error.kind];
    return check(stateOf(error, status), whatToDo === undefined ? error.message : `${error.message}; ${whatToDo}`);
  }
}

function question(model: string): ChatRequest {
  const message = { role: "user", blocks: [{ type: "text", text: "Say ok." }] } as const;
  return { model, messages: [message], tools: [], options: { maxTokens: fewTokens } };
}

function stateOf({ kind }: AgentError, status: number | undefined): ProviderCheck["state"] {
  if (kind === "failed_precondition") return "not_configured";
  if (kind === "provider_auth") return "unauthorized";
  if (kind === "provider_not_found") return "model_not_found";
  if (kind === "rate_limited") return "rate_limited";
  return kind === "provider_unavailable" && status === undefined ? "unreachable" : "failed";
}

/** Sends what it is given and marks what comes of it as final, so that nobody tries again. */
function once(send: SendHttp, onStatus: (status: number) => void): SendHttp {
  return async (request) => {
    try {
      const response = await send(request);
      onStatus(response.status);
      return { ...response, headers: { ...response.headers, "x-should-retry": "false" } };
    } catch (error) {
      if (!(error instanceof AgentError)) throw error;
      throw new AgentError(error.kind, error.message, { cause: error, detail: { ...error.detail, retryable: false } });
    }
  };
}

/** Another key may be asked that is free, but none is waited for. */
function unwaited(credentials: Credentials, means: CallMeans): Credentials {
  const ifFree = (atMs: number | undefined) => (atMs !== undefined && atMs <= means.now() ? atMs : undefined);
  return {
    take: (signal) => credentials.take(signal),
    refused: (credential) => ifFree(credentials.refused(credential)),
    limited: (credential, untilMs) => ifFree(credentials.limited(credential, untilMs)),
  };
}

function cut(text: string): string {
  return text.length <= maxMessageLength ? text : `${text.slice(0, maxMessageLength).toWellFormed()}…`;
}
