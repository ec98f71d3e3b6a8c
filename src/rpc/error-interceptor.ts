import { Code, ConnectError, type Interceptor } from "@connectrpc/connect";
import { AgentError } from "../chat/error.ts";
import { connectErrorFrom } from "./error-table.ts";

export type ReportFault = (message: string, facts: Record<string, unknown>) => void;

/**
 * What clients may see of what a handler threw: our own errors with their details, errors of the protocol as they are,
 * and of everything else only that it happened; `report` gets the rest.
 * @param signal aborts when the caller hangs up
 */
export function errorForClient(
  error: unknown,
  method: string,
  report: ReportFault,
  signal?: AbortSignal,
): ConnectError {
  if (error instanceof AgentError) return connectErrorFrom(error);
  if (error instanceof ConnectError) return error;
  if (isHangUp(error) || (signal?.aborted === true && error === signal.reason))
    return new ConnectError("the caller hung up", Code.Canceled);
  report("a call failed", { method, error });
  return new ConnectError("the server failed in a way it has no name for; its log says more", Code.Internal);
}

/** A caller that leaves in the middle of its request is no fault of ours. */
function isHangUp(error: unknown): boolean {
  if (!(error instanceof Error) || !("code" in error)) return false;
  const { code } = error;
  return code === "ERR_STREAM_PREMATURE_CLOSE" || code === "ERR_HTTP2_INVALID_STREAM" || code === "ECONNRESET";
}

/** Turns what handlers throw into what clients may see. */
export function errorInterceptor(report: ReportFault): Interceptor {
  return (next) => async (request) => {
    const method = `${request.service.typeName}/${request.method.name}`;
    try {
      const response = await next(request);
      return response.stream
        ? {
            ...response,
            message: guarded(response.message, (error) => errorForClient(error, method, report, request.signal)),
          }
        : response;
    } catch (error) {
      throw errorForClient(error, method, report, request.signal);
    }
  };
}

async function* guarded<Item>(items: AsyncIterable<Item>, seen: (error: unknown) => Error): AsyncGenerator<Item> {
  try {
    yield* items;
  } catch (error) {
    throw seen(error);
  }
}
