import { Code, ConnectError } from "@connectrpc/connect";
import { AgentErrorDetailSchema } from "../gen/codeagent/v1/code_agent_pb.ts";
import { BadRequestSchema, ErrorInfoSchema, RetryInfoSchema } from "../gen/google/rpc/error_details_pb.ts";
import { AgentError, type AgentErrorDetail, type FieldViolation } from "../src/chat/error.ts";
import { errorCodes, errorDetailFromProto } from "../src/convert/proto/error.ts";

export type { AgentErrorDetail, FieldViolation } from "../src/chat/error.ts";

/** What is known of a turn when reading it fails: enough to look for it, or to read on with `followSession`. */
export interface TurnPosition {
  /** Empty where the server had not named it yet. */
  readonly sessionId: string;
  /** Empty where the server had not named it yet. */
  readonly turnId: string;
  /** The last event seen, 0 for none. */
  readonly lastSeq: bigint;
  /** The idempotency key the turn was asked for with. */
  readonly requestId: string;
}

export interface CodeAgentErrorOptions {
  readonly reason?: string;
  readonly fieldViolations?: readonly FieldViolation[];
  readonly retryAfterMs?: number | undefined;
  readonly detail?: AgentErrorDetail;
  readonly metadata?: Readonly<Record<string, string>>;
  readonly turn?: TurnPosition | undefined;
  readonly cause?: unknown;
}

/** What the helpers of this package throw: an error of the server, or of the way to it, with its details read. */
export class CodeAgentError extends Error {
  override readonly name = "CodeAgentError";
  /** The gRPC status code. */
  readonly code: Code;
  /** A word for programs, for example `SESSION_NOT_FOUND`; empty where the server gave none. */
  readonly reason: string;
  /** The fields of the request that are wrong. */
  readonly fieldViolations: readonly FieldViolation[];
  /** How long to wait before trying again, in milliseconds, where waiting helps. */
  readonly retryAfterMs: number | undefined;
  readonly detail: AgentErrorDetail;
  /** More facts for programs. */
  readonly metadata: Readonly<Record<string, string>>;
  /** The turn that was read, where there was one. */
  readonly turn: TurnPosition | undefined;

  constructor(message: string, code: Code, options: CodeAgentErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.reason = options.reason ?? "";
    this.fieldViolations = options.fieldViolations ?? [];
    this.retryAfterMs = options.retryAfterMs;
    this.detail = options.detail ?? {};
    this.metadata = options.metadata ?? {};
    this.turn = options.turn;
  }
}

/**
 * Reads whatever a call threw, with the details the server attached. The generated clients throw Connect's own
 * `ConnectError`; hand it in here to get at what it says. The error handed in is the `cause`.
 */
export function codeAgentErrorFrom(error: unknown, turn?: TurnPosition): CodeAgentError {
  if (error instanceof CodeAgentError && (turn === undefined || error.turn !== undefined)) return error;
  if (error instanceof CodeAgentError) return new CodeAgentError(error.message, error.code, { ...error, turn });
  if (error instanceof AgentError) {
    const { reason, fieldViolations, retryAfterMs, detail, metadata } = error;
    const told = { reason, fieldViolations, retryAfterMs, detail, metadata, turn, cause: error };
    return new CodeAgentError(error.message, codeOf(errorCodes[error.kind]), told);
  }
  const told = ConnectError.from(error);
  const info = told.findDetails(ErrorInfoSchema)[0];
  const detail = told.findDetails(AgentErrorDetailSchema)[0];
  return new CodeAgentError(told.rawMessage, told.code, {
    reason: info?.reason ?? "",
    metadata: { ...info?.metadata },
    fieldViolations: told
      .findDetails(BadRequestSchema)
      .flatMap((request) => request.fieldViolations.map(({ field, description }) => ({ field, description }))),
    retryAfterMs: retryAfterMs(told),
    detail: detail === undefined ? {} : errorDetailFromProto(detail),
    turn,
    cause: error,
  });
}

/** Whether a handler of the server said this, rather than the connection or something on the way. */
export function isSaidByServer(error: unknown): boolean {
  return error instanceof ConnectError && error.findDetails(ErrorInfoSchema).length > 0;
}

function retryAfterMs(error: ConnectError): number | undefined {
  const delay = error.findDetails(RetryInfoSchema)[0]?.retryDelay;
  return delay === undefined ? undefined : Number(delay.seconds) * 1000 + delay.nanos / 1_000_000;
}

/** The numbers of gRPC and Connect's codes are the same. */
function codeOf(number: number): Code {
  for (const code of Object.values(Code)) if (code === number) return Number(code);
  return Code.Unknown;
}
