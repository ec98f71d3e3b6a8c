/** What went wrong, in our own list; one table in `rpc` speaks gRPC. */
export const agentErrorKinds = [
  "invalid_request",
  "not_found",
  "already_exists",
  "failed_precondition",
  "unauthenticated",
  "permission_denied",
  "resource_exhausted",
  "deadline",
  "cancelled",
  "unimplemented",
  "data_loss",
  "unavailable",
  "internal",
  "provider_auth",
  "provider_rejected",
  "provider_not_found",
  "rate_limited",
  "provider_unavailable",
  "provider_protocol",
  "context_length",
  "answer_invalid",
] as const;
export type AgentErrorKind = (typeof agentErrorKinds)[number];

/** The field of a request that is wrong, as a path like `messages[2].role`, and what is wrong with it. */
export interface FieldViolation {
  readonly field: string;
  readonly description: string;
}

/** Particulars that reach the client with the error. */
export interface AgentErrorDetail {
  /** The same request may succeed later. */
  readonly retryable?: boolean;
  /** A tool may have changed something before the error. */
  readonly sideEffectPossible?: boolean;
  /** HTTP status of the provider. */
  readonly upstreamStatus?: number;
  readonly provider?: string;
  readonly upstreamRequestId?: string;
}

export interface AgentErrorOptions {
  /** A word for programs; by default the kind in capitals. */
  readonly reason?: string;
  readonly fieldViolations?: readonly FieldViolation[];
  readonly detail?: AgentErrorDetail;
  /** How long to wait before trying again, in milliseconds, where waiting helps. */
  readonly retryAfterMs?: number;
  /** More facts for programs; becomes `ErrorInfo.metadata`. */
  readonly metadata?: Readonly<Record<string, string>>;
  readonly cause?: unknown;
}

/** An error the caller must act on. Its message is for people: what, which, how much, what to do. */
export class AgentError extends Error {
  override readonly name = "AgentError";
  readonly kind: AgentErrorKind;
  readonly reason: string;
  readonly fieldViolations: readonly FieldViolation[];
  readonly detail: AgentErrorDetail;
  readonly retryAfterMs: number | undefined;
  readonly metadata: Readonly<Record<string, string>>;

  constructor(kind: AgentErrorKind, message: string, options: AgentErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.kind = kind;
    this.reason = options.reason ?? kind.toUpperCase();
    this.fieldViolations = options.fieldViolations ?? [];
    this.detail = options.detail ?? {};
    this.retryAfterMs = options.retryAfterMs;
    this.metadata = options.metadata ?? {};
  }
}

/** A provider's answer broke off after it had begun: asking again may do, but what it said has been shown. */
export class CutAnswerError extends AgentError {
  constructor(error: AgentError) {
    const { reason, detail, retryAfterMs } = error;
    super("provider_unavailable", error.message, {
      reason,
      detail,
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    });
  }
}

/** Bad input: names the field and what is wrong with it. */
export function invalidField(field: string, description: string): AgentError {
  return new AgentError("invalid_request", `${field}: ${description}`, { fieldViolations: [{ field, description }] });
}
