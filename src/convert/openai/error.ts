import type { AgentError, AgentErrorKind } from "../../chat/error.ts";

/** An error in OpenAI's shape. */
export interface OpenAIErrorBody {
  error: { message: string; type: string; param: string | null; code: string | null };
}

/** An error as OpenAI's clients get it. */
export interface OpenAIErrorAnswer {
  readonly status: number;
  readonly body: OpenAIErrorBody;
  readonly headers: Readonly<Record<string, string>>;
}

interface Told {
  readonly status: number;
  readonly type: string;
  /** Absent: the error's own reason, in lower case, where it says more than its kind. */
  readonly code?: string;
  /** Asking once more may do, where the error itself does not say. */
  readonly isRetryable?: true;
}

const invalid = "invalid_request_error";
const limited = "rate_limit_error";
const broken = "server_error";

/**
 * How each kind of error is told, in the words of developers.openai.com/docs/guides/error-codes and of what the service is
 * seen to answer. A key that a provider refuses is the server's, so it is no 401: that would blame the caller's.
 */
const told = {
  invalid_request: { status: 400, type: invalid },
  not_found: { status: 404, type: invalid },
  already_exists: { status: 409, type: invalid },
  failed_precondition: { status: 400, type: invalid },
  unauthenticated: { status: 401, type: invalid, code: "invalid_api_key" },
  permission_denied: { status: 403, type: invalid, code: "permission_denied" },
  resource_exhausted: { status: 429, type: limited, code: "rate_limit_exceeded" },
  deadline: { status: 504, type: broken, code: "timeout" },
  cancelled: { status: 499, type: broken, code: "cancelled" },
  unimplemented: { status: 501, type: invalid, code: "unsupported" },
  data_loss: { status: 500, type: broken },
  unavailable: { status: 503, type: broken, isRetryable: true },
  internal: { status: 500, type: broken },
  provider_auth: { status: 502, type: broken, code: "provider_auth" },
  provider_rejected: { status: 400, type: invalid, code: "provider_rejected" },
  provider_not_found: { status: 404, type: invalid, code: "model_not_found" },
  rate_limited: { status: 429, type: limited, code: "rate_limit_exceeded", isRetryable: true },
  provider_unavailable: { status: 503, type: broken, isRetryable: true },
  provider_protocol: { status: 502, type: broken },
  context_length: { status: 400, type: invalid, code: "context_length_exceeded" },
  answer_invalid: { status: 502, type: broken, code: "answer_invalid" },
} as const satisfies Record<AgentErrorKind, Told>;

/** Our names of fields, where OpenAI's are not just without `options.` before them. */
const fields: Readonly<Record<string, string>> = {
  "thinking.effort": "reasoning_effort",
  thinking: "reasoning_effort",
  stateful: "store",
};

const maxMessageLength = 2000;

/**
 * Says an error in OpenAI's shape. `x-should-retry` is what OpenAI's clients go by before the status (`shouldRetry` of their
 * client package): they would else try again what can only fail again, and an agent's turn costs more than a model call.
 */
export function openAIError(error: AgentError): OpenAIErrorAnswer {
  const { type, status, code, isRetryable } = tellingOf(error);
  const field = error.fieldViolations[0]?.field ?? "";
  const param = paramOf(field);
  const message =
    field !== "" && error.message.startsWith(field) ? param + error.message.slice(field.length) : error.message;
  const retries = (error.detail.retryable ?? isRetryable ?? false) && error.detail.sideEffectPossible !== true;
  return {
    status,
    body: {
      error: { message: bounded(message), type, param: param === "" ? null : param, code: code ?? codeOf(error) },
    },
    headers: { "x-should-retry": String(retries) },
  };
}

function tellingOf(error: AgentError): Told {
  const { kind, reason } = error;
  if (kind === "not_found" && reason === "NOT_FOUND" && error.message.startsWith("the model "))
    return { status: 404, type: invalid, code: "model_not_found" };
  // A 400, unlike anything else that is not there (as in github.com/maximhq/bifrost/issues/2441).
  if (reason === "PREVIOUS_RESPONSE_NOT_FOUND") return told.invalid_request;
  if (kind !== "resource_exhausted") return told[kind];
  // A budget does not fill up again by waiting, and a request that is too large does not shrink.
  if (reason.startsWith("BUDGET")) return { status: 429, type: "insufficient_quota", code: "insufficient_quota" };
  if (error.fieldViolations.length > 0) return told.invalid_request;
  return told.resource_exhausted;
}

function codeOf({ kind, reason }: AgentError): string | null {
  return reason === kind.toUpperCase() ? null : reason.toLowerCase();
}

function paramOf(field: string): string {
  const [, option, rest = ""] = /^options\.(\w+)(.*)$/.exec(field) ?? [];
  return option === undefined ? field : (fields[option + rest] ?? (fields[option] ?? option) + rest);
}

function bounded(message: string): string {
  return message.length <= maxMessageLength ? message : `${message.slice(0, maxMessageLength).toWellFormed()} …`;
}
