import { setTimeout as wait } from "node:timers/promises";
import { AgentError } from "../chat/error.ts";
import type { LogEvent } from "../chat/log-event.ts";
import type { Usage } from "../chat/usage.ts";
import { budgetLeft } from "../session/budgets.ts";
import { requestHash } from "../session/request-hash.ts";
import { aborted, recordsOf, type TaskSessions } from "../session/run-task.ts";
import { type PlanWork, record } from "../session/run-turn.ts";
import type { Principal } from "../session/sessions.ts";
import { turnErrorFrom } from "../session/turn-error.ts";
import { beginExecution, executionMetadata, executionRequestId, unlessNotFound } from "./begin-execution.ts";
import { fitValues } from "./fit-values.ts";
import { type StepFailure, stepFailure } from "./next-plan-steps.ts";
import type { StepInstance } from "./plan-state.ts";
import type { StepWork } from "./run-step.ts";

/** The plan that a step runs. */
export interface SubPlan {
  readonly planId: string;
  /** Absent means the newest when the step begins. */
  readonly version?: number;
  /** JSON text. */
  readonly input: string;
  readonly attempt: number;
}

type SubPlanResult =
  | { readonly ok: true; readonly output: string; readonly usage?: Usage }
  | { readonly ok: false; readonly failure: StepFailure; readonly usage?: Usage };

/** Executions within executions. */
const maxDepth = 8;
/** Before a log is read again that could not be read. */
const retryMs = 500;

/**
 * Runs another plan as an execution of its own, in a session made for this attempt: whoever calls again after a crash finds
 * that session and goes on waiting.
 * @throws the reason of the signal. The execution is then ended by `cancelSubPlan`, or goes on where its giver does.
 */
export async function runSubPlan(
  work: StepWork,
  instance: StepInstance,
  plan: SubPlan,
  begin: (isRepeatable: boolean) => Promise<void>,
): Promise<SubPlanResult> {
  const { session, signal } = work;
  const { sessions } = session.environment;
  if (sessions === undefined) return failed("failed_precondition", "plans can't be run here");
  const principal = principalOf(work);
  const executionId = subExecutionId(work, instance.key, plan.attempt);
  try {
    const found = await sessions.get(principal, executionId).catch(unlessNotFound);
    const isBegun = found !== undefined && (found.headSeq > 0 || found.waitingTurns > 0);
    if (isBegun) {
      await begin(true);
      sessions.goOn(executionId); // room or not: our own turn holds the place that it would wait for
    } else {
      const refused = await beginNew(work, sessions, executionId, plan, begin);
      if (refused !== undefined) return refused;
    }
    return await ended(work, sessions, executionId, isBegun ? (found?.headSeq ?? 0) : 0, plan.planId);
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof AgentError)) throw error;
    if (error.reason === "SHUTTING_DOWN") await aborted(signal); // the next start goes on with the step
    return { ok: false, failure: { reason: error.message, error: turnErrorFrom(error, false), isFinal: false } };
  }
}

/** Ends the execution that a step began. */
export async function cancelSubPlan(
  work: Pick<PlanWork, "session" | "turn">,
  key: string,
  attempt: number,
): Promise<void> {
  const { environment } = work.session;
  const executionId = subExecutionId(work, key, attempt);
  try {
    await environment.sessions?.cancelTurn(principalOf(work), executionId, "", "");
  } catch (error) {
    if (error instanceof AgentError && error.kind === "not_found") return; // it was not begun
    environment.report("warn", "the plan of a step could not be cancelled with it", { sessionId: executionId, error });
  }
}

/** The same for the same attempt of the same step, on any server. */
function subExecutionId({ session, turn }: Pick<PlanWork, "session" | "turn">, key: string, attempt: number): string {
  return `exec_${requestHash([session.sessionId, turn.turnId, key, attempt]).slice(0, 32)}`;
}

function principalOf({ session, turn }: Pick<PlanWork, "session" | "turn">): Principal {
  return { tenant: session.tenant, name: turn.principal };
}

/** Begins the execution, or says why not. */
async function beginNew(
  work: StepWork,
  sessions: TaskSessions,
  executionId: string,
  { planId, version, input }: SubPlan,
  begin: (isRepeatable: boolean) => Promise<void>,
): Promise<SubPlanResult | undefined> {
  const { session, turn, signal } = work;
  const { workspace, permissions, approvalTimeoutMs, placement, lanes, metadata } = session.config;
  const { profile } = turn.options;
  const depth = Number(metadata[executionMetadata.depth] ?? 0) + 1;
  if (depth > maxDepth) return failed("failed_precondition", `plans run each other ${maxDepth} deep at most`);
  const found = await work.plans.read(session.tenant, planId, version);
  if (found === undefined)
    return failed(
      "not_found",
      `there is no plan ${planId}${version === undefined ? "" : ` with a version ${version}`}`,
    );
  const fitted = fitValues(found.plan.inputSchema, input);
  if (!fitted.ok) return failed("invalid_request", `the input of plan ${planId} ${fitted.problem}`);
  const budget = budgetLeft(session.state, session.config.budget, 1);
  await begin(true);
  signal.throwIfAborted();
  await beginExecution(sessions, principalOf(work), {
    executionId,
    requestId: executionRequestId,
    version: found.plan,
    input: fitted.text,
    model: turn.model,
    options: { ...(budget === undefined ? {} : { budget }), ...(profile === undefined ? {} : { profile }) },
    config: {
      workspace,
      model: turn.model,
      metadata: {
        [executionMetadata.plan]: planId,
        [executionMetadata.version]: String(found.plan.version),
        [executionMetadata.parent]: session.sessionId,
        [executionMetadata.depth]: String(depth),
      },
      ...(permissions === undefined ? {} : { permissions }),
      ...(approvalTimeoutMs === undefined ? {} : { approvalTimeoutMs }),
      ...(placement === undefined ? {} : { placement }),
      ...(lanes === undefined ? {} : { lanes }),
    },
  });
  return undefined;
}

/** Waits for the end of an execution, and tells when it waits for people. */
async function ended(
  work: StepWork,
  sessions: TaskSessions,
  executionId: string,
  toldSeq: number,
  planId: string,
): Promise<SubPlanResult> {
  const { session, turn, signal, key } = work;
  let cursor = 0;
  for (;;) {
    try {
      const reading = await sessions.subscribe(principalOf(work), executionId, cursor, true);
      for await (const { seq, event } of recordsOf(reading.read(signal))) {
        cursor = seq;
        if (event.type === "turn-finished") return resultOf(event, planId);
        if (event.type !== "request-opened" || seq <= toldSeq) continue;
        const message = `step ${key} waits: ${event.request.title} (execution ${executionId})`;
        record(session, turn.turnId, { type: "notice", level: "info", code: "SUB_PLAN_WAITS", message });
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

function resultOf({ plan, error, usage }: Extract<LogEvent, { type: "turn-finished" }>, planId: string): SubPlanResult {
  const used = usage === undefined ? {} : { usage };
  if (plan?.state === "completed") return { ok: true, output: plan.output, ...used };
  const what = plan?.state === "cancelled" ? "was cancelled" : `failed: ${error?.message ?? "it has no outcome"}`;
  const failure = stepFailure("failed_precondition", "SUB_PLAN_FAILED", `plan ${planId} ${what}`);
  return { ok: false, failure, ...used };
}

function failed(kind: Parameters<typeof stepFailure>[0], message: string): SubPlanResult {
  return { ok: false, failure: stepFailure(kind, "STEP_FAILED", message, { isFinal: true }) };
}
