import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type {
  PlanOutcomeSchema,
  PlanRunSchema,
  PlanStepChanged,
  PlanStepChangedSchema,
  PlanOutcome as ProtoPlanOutcome,
  PlanRun as ProtoPlanRun,
} from "../../../gen/codeagent/v1/code_agent_pb.ts";
import {
  goalStates,
  type PlanOutcome,
  type PlanRun,
  type PlanStepChange,
  planOutcomeStates,
  planStepStates,
} from "../../chat/plan.ts";
import { present, presentText } from "../present.ts";
import { turnErrorFromProto, turnErrorToProto } from "./error.ts";
import { countFromProto, integerToProto, timeFromProto, wordFromProto } from "./field.ts";
import { usageFromProto, usageToProto } from "./usage.ts";

/** Reads which plan a turn executes. */
export function planRunFromProto({ planId, version, plan, input }: ProtoPlanRun): PlanRun {
  return { planId, version, plan, input };
}

/** Writes which plan a turn executes. */
export function planRunToProto({ planId, version, plan, input }: PlanRun): MessageInitShape<typeof PlanRunSchema> {
  return { planId, version, plan, input };
}

/** Reads a step's change of state. */
export function planStepFromProto(change: PlanStepChanged, path: string): PlanStepChange {
  const { stepId, itemPath, state, attempt, output, reason, error, durationMs, usage, dueTime, repeatable } = change;
  return present({
    stepId,
    itemPath: [...itemPath],
    state: wordFromProto(state, planStepStates, `${path}.state`),
    attempt,
    output: presentText(output),
    truncated: change.truncated ? true : undefined,
    reason: presentText(reason),
    error: error && turnErrorFromProto(error, `${path}.error`),
    durationMs: countFromProto(durationMs, `${path}.duration_ms`),
    usage: usage && usageFromProto(usage, `${path}.usage`),
    dueTimeMs: timeFromProto(dueTime, `${path}.due_time`),
    repeatable: repeatable ? true : undefined,
  });
}

/** Writes a step's change of state. */
export function planStepToProto(change: PlanStepChange): MessageInitShape<typeof PlanStepChangedSchema> {
  const { stepId, itemPath, state, attempt, output = "", reason = "", truncated = false, repeatable = false } = change;
  return {
    stepId,
    itemPath: [...itemPath],
    state,
    attempt,
    output,
    truncated,
    reason,
    error: change.error && turnErrorToProto(change.error),
    durationMs: integerToProto(change.durationMs),
    usage: change.usage && usageToProto(change.usage),
    dueTime: change.dueTimeMs === undefined ? undefined : timestampFromMs(change.dueTimeMs),
    repeatable,
  };
}

/** Reads what an execution came to. */
export function planOutcomeFromProto(
  { state, goalChecks, output, failedStepId }: ProtoPlanOutcome,
  path: string,
): PlanOutcome {
  return {
    state: wordFromProto(state, planOutcomeStates, `${path}.state`),
    goalChecks: goalChecks.map((check, index) => ({
      criterion: check.criterion,
      state: wordFromProto(check.state, goalStates, `${path}.goal_checks[${index}].state`),
      evidence: check.evidence,
    })),
    output,
    failedStepId,
  };
}

/** Writes what an execution came to. */
export function planOutcomeToProto({
  state,
  goalChecks,
  output,
  failedStepId,
}: PlanOutcome): MessageInitShape<typeof PlanOutcomeSchema> {
  return { state, goalChecks: goalChecks.map((check) => ({ ...check })), output, failedStepId };
}
