import type { DescMethod, DescMethodServerStreaming, DescMethodUnary, DescService } from "@bufbuild/protobuf";
import { Code, ConnectError, type ConnectRouter } from "@connectrpc/connect";
import { PlanService } from "../../gen/codeagent/v1/plan_service_pb.ts";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";

/** Services of the contract that have no implementation yet, and what a caller can do until they have one. */
const servicesToCome: readonly (readonly [service: DescService, meanwhile: string])[] = [
  [PlanService, "CodeAgentService.StreamGenerate runs tools until the model is done, without a plan made beforehand"],
];

/** Answers UNIMPLEMENTED to every method of the services that are in the contract but not in this server. */
export function registerServicesToCome(router: ConnectRouter): void {
  for (const [service, meanwhile] of servicesToCome) {
    for (const method of service.methods.filter(takesOneRequest)) router.rpc(method, methodToCome(method, meanwhile));
  }
}

/**
 * An implementation that refuses every call with UNIMPLEMENTED. It never returns, so it fits a unary method and a stream
 * alike, and can stand in for a single method of a service whose other methods work.
 * @param meanwhile what a caller can do instead, as the end of a sentence, without a full stop.
 */
export function methodToCome(method: DescMethod, meanwhile: string): () => never {
  const name = `${method.parent.typeName}.${method.name}`;
  return () => {
    throw new ConnectError(
      `${name} is not available in this version of the server; until it is: ${meanwhile}.`,
      Code.Unimplemented,
      undefined,
      [{ desc: ErrorInfoSchema, value: { reason: "UNIMPLEMENTED", domain: "codeagent", metadata: { method: name } } }],
    );
  };
}

/** All methods of the contract do: browsers cannot stream a request's body. */
function takesOneRequest(method: DescMethod): method is DescMethodUnary | DescMethodServerStreaming {
  return method.methodKind === "unary" || method.methodKind === "server_streaming";
}
