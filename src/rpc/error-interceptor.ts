import { Code, ConnectError, type Interceptor } from "@connectrpc/connect";
import { AgentError } from "../chat/error.ts";
import { connectErrorFrom } from "./error-table.ts";

/**
 * Turns what handlers throw into what clients may see: our own errors with their details, errors of the protocol as
 * they are, and of everything else only that it happened; `report` gets the rest.
 */
export function errorInterceptor(report: (message: string, facts: Record<string, unknown>) => void): Interceptor {
  const seen = (error: unknown, method: string): ConnectError => {
    if (error instanceof AgentError) return connectErrorFrom(error);
    if (error instanceof ConnectError) return error;
    report("a call failed", { method, error });
    return new ConnectError("the server failed in a way it has no name for; its log says more", Code.Internal);
  };
  return (next) => async (request) => {
    const method = `${request.service.typeName}/${request.method.name}`;
    try {
      const response = await next(request);
      return response.stream
        ? { ...response, message: guarded(response.message, (error) => seen(error, method)) }
        : response;
    } catch (error) {
      throw seen(error, method);
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
