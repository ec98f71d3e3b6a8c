import { setTimeout as wait } from "node:timers/promises";
import { AgentError } from "../chat/error.ts";
import type { LogEvent } from "../chat/log-event.ts";
import { type ToolResult, toolFailure } from "../chat/tool-result.ts";
import type { Store } from "../log/store.ts";
import { budgetLeft } from "../session/budgets.ts";
import { requestHash } from "../session/request-hash.ts";
import {
  aborted,
  cancelTasks,
  type Giver,
  isGone,
  type Own,
  planExecutionId,
  principalOf,
  type RunPlanCall,
  recordsOf,
  type TaskSessions,
} from "../session/run-task.ts";
import { record, StoppedError } from "../session/run-turn.ts";
import { taskUsageMetadata } from "../session/task-usage.ts";
import type { FunctionIndex } from "../tool/function-index.ts";
import { type PlanCall, planFunctionNames } from "../tool/plan-functions.ts";
import { beginExecution, executionMetadata, executionRequestId, unlessNotFound } from "./begin-execution.ts";
import { isRunnable } from "./check-plan.ts";
import { fitValues } from "./fit-values.ts";
import { instanceKey } from "./instance-key.ts";
import { functionsCalled, type Plans, type PlanView } from "./plans.ts";
import { stepsWithin } from "./steps-within.ts";

export interface CallPlanOptions {
  readonly plans: Plans;
  readonly sessions: TaskSessions;
  readonly store: Pick<Store, "setPlanExecution">;
}

type Call<Type extends PlanCall["type"]> = Extract<PlanCall, { readonly type: Type }>;

/** Before a log is read again that could not be read. */
const retryMs = 500;
/** Nothing is noted: the id of what a call makes follows from the call. */
const noNote = () => undefined;

/**
 * Makes what does the calls of `create_plan`, `update_plan` and `run_plan`. A plan belongs to the session of the turn; an
 * execution is a session of its own, made for the call, so that after a crash it is found again.
 */
export function planCaller(options: CallPlanOptions): RunPlanCall {
  return async (giver, call, own) => {
    try {
      switch (call.type) {
        case "create":
          return await create(options, giver, call, own);
        case "update":
          return await update(options, giver, call, own);
        case "run":
          return await run(options, giver, call, own);
        default:
          return call satisfies never;
      }
    } catch (error) {
      const { session, turn } = giver;
      if (own.signal.reason instanceof StoppedError && (await isGone(session, turn, options.sessions)))
        await cancelTasks(session, turn);
      own.signal.throwIfAborted();
      if (!(error instanceof AgentError)) throw error;
      if (error.reason === "SHUTTING_DOWN") await aborted(own.signal); // the next start goes on with the call
      if (call.type === "create") tellOfNoPlan(giver, error.message);
      return toolFailure(`${call.type === "run" ? "the plan was not run" : "no plan was made"}: ${error.message}`);
    }
  };
}

async function create(
  { plans }: CallPlanOptions,
  giver: Giver,
  { requirement, context }: Call<"create">,
  { signal, onOutput }: Own,
): Promise<ToolResult> {
  const { session, turn, functions, toolCallId } = giver;
  const principal = principalOf(session, turn);
  const planId = `plan_${requestHash([session.sessionId, turn.turnId, toolCallId]).slice(0, 32)}`;
  const found = await plans.get(principal, planId, undefined).catch(unlessNotFound);
  if (found === undefined) onOutput?.("progress", "the plan is being written\n");
  const view =
    found ??
    (await plans.create(
      principal,
      {
        planId,
        sessionId: session.sessionId,
        requirement,
        context,
        draft: undefined,
        model: turn.model,
        budget: shareOf(giver),
        allowedFunctions: allowedOf(giver, functions),
        metadata: {},
      },
      noNote,
      signal,
    ));
  if (!isRunnable(view.version)) tellOfNoPlan(giver, faultsOf(view));
  return planResult(view);
}

async function update(
  { plans }: CallPlanOptions,
  giver: Giver,
  { planId, feedback }: Call<"update">,
  { signal, onOutput }: Own,
): Promise<ToolResult> {
  const { session, turn } = giver;
  onOutput?.("progress", "the next version is being written\n");
  const refusal = await foreignPlan(plans, giver, planId);
  if (refusal !== undefined) return toolFailure(`no plan was made: ${refusal}`);
  const request = { planId, version: undefined, feedback, draft: undefined, model: turn.model, budget: shareOf(giver) };
  return planResult(await plans.refine(principalOf(session, turn), request, noNote, signal));
}

async function run(options: CallPlanOptions, giver: Giver, call: Call<"run">, own: Own): Promise<ToolResult> {
  const { session, turn, toolCallId } = giver;
  const { sessions } = options;
  const principal = principalOf(session, turn);
  const executionId = planExecutionId(session, turn, toolCallId);
  const found = await sessions.get(principal, executionId).catch(unlessNotFound);
  const isBegun = found !== undefined && (found.headSeq > 0 || found.waitingTurns > 0);
  if (isBegun) {
    own.onOutput?.("progress", `goes on as execution ${executionId}\n`);
    sessions.goOn(executionId); // room or not: our own turn holds the place that it would wait for
  } else {
    const refusal = await begin(options, giver, call, executionId, own.signal);
    if (refusal !== undefined) return toolFailure(`the plan was not run: ${refusal}`);
    own.onOutput?.("progress", `begins as execution ${executionId}\n`);
  }
  return ended(sessions, giver, executionId, isBegun ? found.headSeq : 0, own);
}

/** Begins an execution, or says why there is none. */
async function begin(
  { plans, sessions, store }: CallPlanOptions,
  giver: Giver,
  { planId, input }: Call<"run">,
  executionId: string,
  signal: AbortSignal,
): Promise<string | undefined> {
  const { session, turn } = giver;
  const principal = principalOf(session, turn);
  const refusal = await foreignPlan(plans, giver, planId);
  if (refusal !== undefined) return refusal;
  const { version } = await plans.get(principal, planId, undefined);
  const { allowedTools, profile } = turn.options;
  const forbidden = stepsWithin(version.steps)
    .flatMap(functionsCalled)
    .filter((name) => allowedTools !== undefined && !allowedTools.includes(name));
  if (forbidden.length > 0) return `it calls ${[...new Set(forbidden)].join(", ")}, not allowed in this turn`;
  const fitted = fitValues(version.inputSchema, input);
  if (!fitted.ok) return `its input ${fitted.problem}`;
  const budget = shareOf(giver);
  if (budget !== undefined && Object.values(budget).some((most) => most === 0)) return "no budget is left for it";
  signal.throwIfAborted();
  const { workspace, permissions, approvalTimeoutMs, placement, lanes } = session.config;
  await beginExecution(sessions, principal, {
    executionId,
    requestId: executionRequestId,
    version,
    input: fitted.text,
    model: turn.model,
    options: { ...(budget === undefined ? {} : { budget }), ...(profile === undefined ? {} : { profile }) },
    config: {
      workspace,
      model: turn.model,
      metadata: {
        [executionMetadata.plan]: planId,
        [executionMetadata.version]: String(version.version),
        [executionMetadata.parent]: session.sessionId,
      },
      ...(permissions === undefined ? {} : { permissions }),
      ...(approvalTimeoutMs === undefined ? {} : { approvalTimeoutMs }),
      ...(placement === undefined ? {} : { placement }),
      ...(lanes === undefined ? {} : { lanes }),
    },
  });
  await store.setPlanExecution(session.tenant, planId, executionId);
  return undefined;
}

/** Follows an execution to its end, tells people how it goes, and gives what it came to. */
async function ended(
  sessions: TaskSessions,
  { session, turn, toolCallId }: Giver,
  executionId: string,
  toldSeq: number,
  { signal, onOutput }: Own,
): Promise<ToolResult> {
  let cursor = 0;
  for (;;) {
    try {
      const reading = await sessions.subscribe(principalOf(session, turn), executionId, cursor, true);
      for await (const { seq, event } of recordsOf(reading.read(signal))) {
        cursor = seq;
        if (event.type === "turn-finished") return outcomeOf(event, executionId);
        if (seq <= toldSeq) continue;
        if (event.type === "plan-step") {
          const why = event.reason === undefined ? "" : `: ${event.reason}`;
          onOutput?.("progress", `${instanceKey(event)} ${event.state}${why}\n`);
        } else if (event.type === "request-opened") {
          const message = `waits for an answer: ${event.request.title} (execution ${executionId})`;
          onOutput?.("progress", `${message}\n`);
          const told = `the plan of call ${toolCallId} ${message}`;
          record(session, turn.turnId, { type: "notice", level: "info", code: "TASK_WAITS", message: told });
        }
      }
    } catch (error) {
      signal.throwIfAborted();
      // Others may have to take it over first; it is not lost.
      if (!(error instanceof AgentError) || error.kind !== "unavailable" || error.reason === "SHUTTING_DOWN")
        throw error;
    }
    await wait(retryMs, undefined, { signal });
    sessions.goOn(executionId);
  }
}

function outcomeOf(
  { plan, error, usage }: Extract<LogEvent, { type: "turn-finished" }>,
  executionId: string,
): ToolResult {
  const state = plan?.state ?? "failed";
  const said = {
    state,
    output: jsonOf(plan?.output ?? "null"),
    ...(plan?.failedStepId ? { failed_step: plan.failedStepId } : {}),
    ...(error === undefined ? {} : { error: error.message }),
    ...(plan === undefined || plan.goalChecks.length === 0 ? {} : { goal_checks: plan.goalChecks }),
  };
  const output = JSON.stringify(said);
  const metadata = { execution_id: executionId, state, ...taskUsageMetadata(usage) };
  if (state === "completed") return { success: true, output, metadata };
  const why =
    state === "cancelled" ? "the plan was cancelled" : `the plan failed: ${error?.message ?? "no reason is known"}`;
  return { ...toolFailure(why), output, metadata };
}

function planResult(view: PlanView): ToolResult {
  const { planId, version, goal, steps, inputSchema, missingFunctions, problems, usage } = view.version;
  const output = JSON.stringify({
    plan_id: planId,
    version,
    goal,
    steps: stepsWithin(steps).map(({ id, description, details, dependsOn }) => ({
      id,
      kind: details.kind,
      ...(details.kind === "function_call" ? { function: details.function } : {}),
      ...(description === "" ? {} : { description }),
      ...(dependsOn.length === 0 ? {} : { depends_on: dependsOn }),
    })),
    ...(inputSchema === "" ? {} : { input_schema: jsonOf(inputSchema) }),
    ...(missingFunctions.length === 0 ? {} : { missing_functions: missingFunctions.map(({ name }) => name) }),
    ...(problems.length === 0 ? {} : { problems: problems.map(({ severity, message }) => `${severity}: ${message}`) }),
  });
  const metadata = { plan_id: planId, plan_version: String(version), ...taskUsageMetadata(usage) };
  if (isRunnable(view.version)) return { success: true, output, metadata };
  return { ...toolFailure(`the plan can't run: ${faultsOf(view)}`), output, metadata };
}

function faultsOf({ version: { problems } }: PlanView): string {
  const errors = problems.filter(({ severity }) => severity === "error").map(({ message }) => message);
  return errors.slice(0, 5).join("; ");
}

/** A planned turn goes on without a plan. */
function tellOfNoPlan({ session, turn }: Giver, why: string): void {
  if (turn.options.strategy !== "planned" || turn.planning !== "none") return;
  const message = `there is no plan that can run, so the turn goes on without one: ${why}`;
  record(session, turn.turnId, { type: "notice", level: "warning", code: "NO_PLAN", message });
}

/** Why a turn has nothing to do with a plan: another session has made it. */
async function foreignPlan(plans: Plans, { session, turn }: Giver, planId: string): Promise<string | undefined> {
  const { version } = await plans.get(principalOf(session, turn), planId, undefined);
  return version.sessionId === session.sessionId ? undefined : `plan ${planId} does not belong to this session`;
}

/** What a call may spend: its part of what is left, where several calls of the answer wait for theirs. */
function shareOf({ session, turn }: Giver) {
  const open = turn.answer?.calls.filter(({ use, result }) => planFunctionNames.includes(use.name) && !result) ?? [];
  return budgetLeft(session.state, session.config.budget, Math.max(1, open.length));
}

/** What a plan may call; empty means all. */
function allowedOf({ turn }: Giver, functions: FunctionIndex): readonly string[] {
  const { allowedTools } = turn.options;
  if (allowedTools === undefined) return [];
  const known = allowedTools.filter((name) => functions.find(name) !== undefined);
  if (known.length > 0) return known;
  throw new AgentError("failed_precondition", "a plan has nothing to call: no function is allowed in this turn");
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
