import type { DescMethod } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import { PlanService } from "../../gen/codeagent/v1/plan_service_pb.ts";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";

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

const { executePlan, submitPlanInput, cancelPlan } = PlanService.method;
const withoutExecutions =
  "CodeAgentService.StreamGenerate runs tools until the model is done, and can be told of a plan in its message";

/** Plans can be made and not run yet. */
export const planExecutionsToCome = {
  executePlan: methodToCome(executePlan, withoutExecutions),
  submitPlanInput: methodToCome(submitPlanInput, withoutExecutions),
  cancelPlan: methodToCome(cancelPlan, withoutExecutions),
};
