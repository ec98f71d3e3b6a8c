import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  CancelPlanResponseSchema,
  type ExecutePlanRequest,
  PlanEventSchema,
  type PlanFinishedSchema,
  PlanService,
  type PlanEvent as ProtoPlanEvent,
  SubmitPlanInputResponseSchema,
} from "../../gen/codeagent/v1/plan_service_pb.ts";
import { invalidField } from "../chat/error.ts";
import type { LogRecord } from "../chat/log-event.ts";
import { turnErrorToProto } from "../convert/proto/error.ts";
import { planStepToProto } from "../convert/proto/plan-event.ts";
import { budgetFromProto } from "../convert/proto/request.ts";
import { usageToProto } from "../convert/proto/usage.ts";
import type { ExecutionReading, Executions } from "../plan/executions.ts";
import type { PlanEvent } from "../plan/plan-events.ts";
import { theCaller } from "./caller.ts";
import { defaultStreamLimits, frameBatches, type StreamFrames, type StreamLimits } from "./chunk-stream.ts";
import type { OnceCalls } from "./once.ts";
import { checkLength, requestIdFrom, seqFrom, sessionIdFrom } from "./request-fields.ts";
import { serverIsStopping } from "./stopping.ts";

const maxItemPath = 16;
/** Fits a million characters of JSON text. */
const maxValuesLength = 1_000_000;

/** Plans are run, answered and stopped. */
export function planExecutionHandlers(
  executions: Executions,
  once: OnceCalls,
  shuttingDown: AbortSignal,
  limits: StreamLimits = defaultStreamLimits,
) {
  return {
    async *executePlan(request, context) {
      const reading = await readingOf(executions, request);
      // Who began the execution sees what becomes of it while the server drains, as with turns.
      const isBegun = request.executionId === "";
      const signal = isBegun ? context.signal : AbortSignal.any([context.signal, shuttingDown]);
      const value = { headSeq: BigInt(reading.headSeq), earliestSeq: BigInt(reading.earliestSeq) };
      const ready = control(reading, { case: "streamReady", value });
      try {
        for await (const frames of frameBatches(reading, signal, limits, framesOf(reading), ready)) yield* frames;
      } catch (error) {
        if (!shuttingDown.aborted || context.signal.aborted) throw error;
        throw serverIsStopping("come back with the last seq you have");
      }
    },
    submitPlanInput(request, context) {
      return once.change(PlanService.method.submitPlanInput, request, async () => {
        const planId = sessionIdFrom(request.planId, "plan_id");
        const executionId = request.executionId === "" ? "" : sessionIdFrom(request.executionId, "execution_id");
        const stepId = sessionIdFrom(request.stepId, "step_id");
        if (request.itemPath.length > maxItemPath)
          throw invalidField("item_path", `has ${request.itemPath.length} entries; ${maxItemPath} is the most`);
        checkLength(request.values, maxValuesLength, "values");
        const place = { stepId, itemPath: [...request.itemPath] };
        const given = request.values;
        const taken = await executions.submit(theCaller, planId, executionId, place, given, context.signal);
        return create(SubmitPlanInputResponseSchema, { values: taken.values, seq: BigInt(taken.seq) });
      });
    },
    cancelPlan(request) {
      return once.change(PlanService.method.cancelPlan, request, async () => {
        const planId = sessionIdFrom(request.planId, "plan_id");
        const executionId = request.executionId === "" ? "" : sessionIdFrom(request.executionId, "execution_id");
        return create(CancelPlanResponseSchema, await executions.cancel(theCaller, planId, executionId));
      });
    },
  } satisfies Partial<ServiceImpl<typeof PlanService>>;
}

function readingOf(executions: Executions, request: ExecutePlanRequest): Promise<ExecutionReading> {
  const { executionId, version, input, model, budget, requestId } = request;
  const planId = sessionIdFrom(request.planId, "plan_id");
  const afterSeq = seqFrom(request.afterSeq, "after_seq");
  if (executionId !== "") {
    const others = { version, input, model, budget, request_id: requestId };
    for (const [field, value] of Object.entries(others))
      if (value !== undefined && value !== "")
        throw invalidField(field, "has to be empty when an execution is named: that is only read");
    return executions.read(theCaller, planId, sessionIdFrom(executionId, "execution_id"), afterSeq);
  }
  if (version === 0) throw invalidField("version", "is 0; versions are counted from 1");
  checkLength(model, 1000, "model");
  checkLength(input, maxValuesLength, "input");
  return executions.execute(
    theCaller,
    {
      planId,
      version,
      input,
      model,
      budget: budget === undefined ? undefined : budgetFromProto(budget),
      requestId: requestIdFrom(requestId),
    },
    afterSeq,
  );
}

type EventInit = NonNullable<MessageInitShape<typeof PlanEventSchema>["event"]>;

function control({ planId, executionId }: ExecutionReading, event: EventInit): ProtoPlanEvent {
  return create(PlanEventSchema, { planId, executionId, event });
}

function framesOf(reading: ExecutionReading): StreamFrames<ProtoPlanEvent> {
  const { planId, executionId, events } = reading;
  return {
    *ofRecord(record: LogRecord) {
      const event = events.add(record);
      const time = timestampFromMs(record.timeMs);
      yield create(PlanEventSchema, { seq: BigInt(record.seq), planId, executionId, time, event: eventToProto(event) });
      if (event.type === "step-changed") yield progressOf(reading);
    },
    keepAlive: () => control(reading, { case: "keepAlive", value: {} }),
    resync: (prunedSeq) =>
      control(reading, { case: "resync", value: { reason: "PRUNED", earliestSeq: BigInt(prunedSeq + 1) } }),
    notice: (value) => control(reading, { case: "notice", value }),
  };
}

function progressOf(reading: ExecutionReading): ProtoPlanEvent {
  const { usage, ...counts } = reading.events.progress ?? { finishedSteps: 0, totalSteps: 0, runningSteps: 0 };
  return control(reading, { case: "progress", value: { ...counts, usage: usage && usageToProto(usage) } });
}

function eventToProto(event: PlanEvent): EventInit {
  switch (event.type) {
    case "started": {
      const { version, requestId, principal, input } = event;
      return { case: "started", value: { version, requestId, principal, input } };
    }
    case "step-changed":
      return { case: "stepChanged", value: planStepToProto(event.change) };
    case "step-output": {
      const { place, stream, text } = event;
      return { case: "stepOutput", value: { stepId: place.stepId, itemPath: [...place.itemPath], stream, text } };
    }
    case "input-requested": {
      const { place, prompt, schema, expireTimeMs } = event;
      const expireTime = expireTimeMs === undefined ? undefined : timestampFromMs(expireTimeMs);
      const value = { stepId: place.stepId, itemPath: [...place.itemPath], prompt, schema, expireTime };
      return { case: "inputRequested", value };
    }
    case "notice": {
      const { level, code, message } = event;
      return { case: "notice", value: { level, code, message } };
    }
    case "finished":
      return { case: "finished", value: finishedToProto(event) };
    default:
      return event satisfies never;
  }
}

function finishedToProto({
  outcome,
  error,
  usage,
  durationMs,
  stepCounts,
}: Extract<PlanEvent, { type: "finished" }>): MessageInitShape<typeof PlanFinishedSchema> {
  const { state, goalChecks, output, failedStepId } = outcome;
  const isJudged = goalChecks.length > 0 && goalChecks.every((check) => check.state !== "unknown");
  return {
    state,
    ...(isJudged ? { goalMet: goalChecks.every((check) => check.state === "met") } : {}),
    goalChecks: goalChecks.map((check) => ({ ...check })),
    output,
    error: error && turnErrorToProto(error),
    failedStepId,
    usage: usage && usageToProto(usage),
    durationMs: BigInt(durationMs),
    stepCounts: { ...stepCounts },
  };
}
