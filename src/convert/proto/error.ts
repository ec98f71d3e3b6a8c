import { create } from "@bufbuild/protobuf";
import type {
  AgentErrorDetail as ProtoAgentErrorDetail,
  TurnError as ProtoTurnError,
} from "../../../gen/codeagent/v1/code_agent_pb.ts";
import { AgentErrorDetailSchema, TurnErrorSchema } from "../../../gen/codeagent/v1/code_agent_pb.ts";
import type { AgentErrorDetail, AgentErrorKind } from "../../chat/error.ts";
import { AgentError, agentErrorKinds } from "../../chat/error.ts";
import type { TurnError } from "../../chat/log-event.ts";
import { present, presentText } from "../present.ts";
import { countFromProto, integerToProto } from "./field.ts";

/** The gRPC status number of each kind of error. */
export const errorCodes = {
  invalid_request: 3,
  not_found: 5,
  already_exists: 6,
  failed_precondition: 9,
  unauthenticated: 16,
  permission_denied: 7,
  resource_exhausted: 8,
  deadline: 4,
  cancelled: 1,
  unimplemented: 12,
  data_loss: 15,
  unavailable: 14,
  internal: 13,
  provider_auth: 9,
  provider_rejected: 3,
  provider_not_found: 5,
  rate_limited: 8,
  provider_unavailable: 14,
  provider_protocol: 13,
  context_length: 3,
  answer_invalid: 13,
} as const satisfies Record<AgentErrorKind, number>;

/**
 * The kind an error had before it crossed the wire: named by its reason where that is a kind in capitals, else the first
 * kind with that gRPC status number. A number without a kind is `internal`. So a provider's error with a reason of its own
 * comes back as the general kind of the same number.
 */
export function errorKindOf(code: number, reason: string): AgentErrorKind {
  return (
    agentErrorKinds.find((kind) => kind.toUpperCase() === reason && errorCodes[kind] === code) ??
    agentErrorKinds.find((kind) => errorCodes[kind] === code) ??
    "internal"
  );
}

/** Reads why a turn failed. */
export function turnErrorFromProto(error: ProtoTurnError, path = "error"): TurnError {
  return present({
    kind: errorKindOf(error.code, error.reason),
    reason: error.reason,
    message: error.message,
    detail: error.detail === undefined ? {} : errorDetailFromProto(error.detail),
    retryAfterMs: countFromProto(error.retryAfterMs, `${path}.retry_after_ms`),
  });
}

/** Writes why a turn failed. */
export function turnErrorToProto(error: TurnError): ProtoTurnError {
  return create(TurnErrorSchema, {
    code: errorCodes[error.kind],
    reason: error.reason,
    message: error.message,
    detail: errorDetailToProto(error.detail),
    retryAfterMs: integerToProto(error.retryAfterMs),
  });
}

/** Reads the particulars of an error; false, 0 and empty are read as absent. */
export function errorDetailFromProto(detail: ProtoAgentErrorDetail): AgentErrorDetail {
  return present({
    retryable: detail.retryable || undefined,
    sideEffectPossible: detail.sideEffectPossible || undefined,
    upstreamStatus: detail.upstreamStatus || undefined,
    provider: presentText(detail.provider),
    upstreamRequestId: presentText(detail.upstreamRequestId),
  });
}

/** Writes the particulars of an error. */
export function errorDetailToProto(detail: AgentErrorDetail): ProtoAgentErrorDetail {
  return create(AgentErrorDetailSchema, {
    retryable: detail.retryable ?? false,
    sideEffectPossible: detail.sideEffectPossible ?? false,
    upstreamStatus: detail.upstreamStatus ?? 0,
    provider: detail.provider ?? "",
    upstreamRequestId: detail.upstreamRequestId ?? "",
  });
}

/** Reads what the store kept: what cannot be read there is lost data, and no fault of whoever asks for it. */
export function readStored<Value>(what: string, read: () => Value): Value {
  try {
    return read();
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new AgentError("data_loss", `${what} in the store cannot be read: ${reason}`, { cause: error });
  }
}
