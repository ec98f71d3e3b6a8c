import type { AgentError, AgentErrorKind } from "../../chat/error.ts";

/** Anthropic's words for what went wrong (platform.claude.com/docs/en/api/errors). */
export type AnthropicErrorType =
  | "invalid_request_error"
  | "authentication_error"
  | "permission_error"
  | "not_found_error"
  | "conflict_error"
  | "request_too_large"
  | "rate_limit_error"
  | "api_error"
  | "timeout_error"
  | "overloaded_error";

/** An error in Anthropic's shape. */
export interface AnthropicErrorBody {
  type: "error";
  error: {
    type: AnthropicErrorType;
    message: string;
    /** A word for programs, and the field that is wrong where it is one. */
    details: { error_code: string; field?: string };
  };
  /** Of the request to the provider that failed; null where none was made. */
  request_id: string | null;
}

/** Status and word of each kind. That the key of a provider is refused is the server's fault, not the caller's. */
export const anthropicErrors = {
  invalid_request: [400, "invalid_request_error"],
  not_found: [404, "not_found_error"],
  already_exists: [409, "conflict_error"],
  failed_precondition: [400, "invalid_request_error"],
  unauthenticated: [401, "authentication_error"],
  permission_denied: [403, "permission_error"],
  resource_exhausted: [429, "rate_limit_error"],
  deadline: [504, "timeout_error"],
  cancelled: [400, "invalid_request_error"],
  unimplemented: [400, "invalid_request_error"],
  data_loss: [500, "api_error"],
  unavailable: [529, "overloaded_error"],
  internal: [500, "api_error"],
  provider_auth: [500, "api_error"],
  provider_rejected: [400, "invalid_request_error"],
  provider_not_found: [404, "not_found_error"],
  rate_limited: [429, "rate_limit_error"],
  provider_unavailable: [529, "overloaded_error"],
  provider_protocol: [500, "api_error"],
  context_length: [400, "invalid_request_error"],
  answer_invalid: [500, "api_error"],
} as const satisfies Record<AgentErrorKind, readonly [status: number, type: AnthropicErrorType]>;

const tooLarge = [413, "request_too_large"] as const;

/** Says an error in Anthropic's shape, with the HTTP status that goes with it. */
export function errorToAnthropic(error: AgentError): { readonly status: number; readonly body: AnthropicErrorBody } {
  const [status, type] = tellingOf(error);
  const [violation] = error.fieldViolations;
  const details = {
    error_code: error.reason.toLowerCase(),
    ...(violation === undefined ? {} : { field: violation.field }),
  };
  return {
    status,
    body: {
      type: "error",
      error: { type, message: messageOf(error), details },
      request_id: error.detail.upstreamRequestId ?? null,
    },
  };
}

function tellingOf({ kind, reason, fieldViolations }: AgentError): readonly [status: number, type: AnthropicErrorType] {
  if (reason === "REQUEST_TOO_LARGE") return tooLarge;
  // A request that has too much of something does not shrink by waiting.
  if (kind === "resource_exhausted" && fieldViolations.length > 0) return anthropicErrors.invalid_request;
  return anthropicErrors[kind];
}

/** Clients that make room in a conversation know by these words that they have to. */
function messageOf({ kind, message }: AgentError): string {
  return kind === "context_length" ? `prompt is too long: ${message}` : message;
}
