import { Code, ConnectError } from "@connectrpc/connect";
import type { Refusal, ServerRequest } from "./refuse.ts";

const grpcUnitMs: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1_000, m: 1, u: 1e-3, n: 1e-6 };

/** The milliseconds a `grpc-timeout` says; undefined for what is none. */
export function grpcTimeoutMs(value: string): number | undefined {
  const [, digits, unit = ""] = /^(\d{1,8})([HMSmun])$/.exec(value) ?? [];
  const unitMs = grpcUnitMs[unit];
  return unitMs === undefined ? undefined : Number(digits) * unitMs;
}

function malformed(field: string, shape: string): Refusal {
  return { error: new ConnectError(`${field} is malformed; send ${shape}`, Code.InvalidArgument) };
}

/**
 * Shortens the caller's deadline to `maxMs` in the request's own header fields. A timer counts in 32 bits and fires at
 * once when asked for more, so a caller with endless patience would otherwise be told that the time is up.
 */
export function limitCallTimeout(request: ServerRequest, maxMs: number): Refusal | undefined {
  const grpc = request.headers["grpc-timeout"];
  if (grpc !== undefined) {
    const askedMs = typeof grpc === "string" ? grpcTimeoutMs(grpc) : undefined;
    if (askedMs === undefined) return malformed("grpc-timeout", "at most 8 digits and one of H, M, S, m, u, n");
    if (askedMs > maxMs) request.headers["grpc-timeout"] = `${maxMs}m`;
  }
  const connect = request.headers["connect-timeout-ms"];
  if (connect !== undefined) {
    if (typeof connect !== "string" || !/^\d{1,10}$/.test(connect)) {
      return malformed("connect-timeout-ms", "at most 10 digits");
    }
    if (Number(connect) > maxMs) request.headers["connect-timeout-ms"] = String(maxMs);
  }
  return undefined;
}
