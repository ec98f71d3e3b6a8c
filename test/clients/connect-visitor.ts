import { fromJson, toJson } from "@bufbuild/protobuf";
import { ConnectError, createContextValues, type Interceptor, type Transport } from "@connectrpc/connect";
import { CallFailed, type Visitor } from "./visit.ts";

/** Sends a token with each call. */
export function withToken(token: string): Interceptor {
  return (next) => (request) => {
    request.header.set("authorization", `Bearer ${token}`);
    return next(request);
  };
}

/** A transport of Connect's own libraries as a visitor. */
export function connectVisitor(transport: Transport): Visitor {
  const timeoutMs = 15_000;
  return {
    async unary(method, request) {
      try {
        const input = fromJson(method.input, request);
        const answer = await transport.unary(method, undefined, timeoutMs, undefined, input, createContextValues());
        return toJson(method.output, answer.message);
      } catch (error) {
        throw callFailed(error);
      }
    },
    async stream(method, request) {
      try {
        const input = (async function* () {
          yield fromJson(method.input, request);
        })();
        const answer = await transport.stream(method, undefined, timeoutMs, undefined, input, createContextValues());
        const messages = [];
        for await (const message of answer.message) messages.push(toJson(method.output, message));
        return messages;
      } catch (error) {
        throw callFailed(error);
      }
    },
  };
}

function callFailed(error: unknown): unknown {
  if (!(error instanceof ConnectError)) return error;
  const details = error.details.flatMap((detail) => ("type" in detail ? [detail] : []));
  return new CallFailed(error.code, error.rawMessage, details);
}
