import { AgentError, invalidField } from "../chat/error.ts";
import type { LogRecord, PendingRequest } from "../chat/log-event.ts";
import type { PlanVersion } from "../chat/plan.ts";
import type { Budget } from "../chat/request.ts";
import { planVersionFromText } from "../convert/proto/plan.ts";
import type { Store } from "../log/store.ts";
import { isPruned, type LogBatch } from "../session/follow-log.ts";
import type { LogReading } from "../session/log-reading.ts";
import { requestHash } from "../session/request-hash.ts";
import { otherPayload } from "../session/session-errors.ts";
import type { SessionView } from "../session/session-view.ts";
import type { Principal, Sessions } from "../session/sessions.ts";
import { isRecord } from "../tool/check-value.ts";
import {
  beginExecution,
  checkRunnable,
  executionMetadata,
  executionRequestId,
  type NewExecution,
  unlessNotFound,
} from "./begin-execution.ts";
import { fitValues } from "./fit-values.ts";
import { instanceKey, type StepPlace } from "./instance-key.ts";
import { PlanEvents } from "./plan-events.ts";
import type { PlanReader } from "./plan-reader.ts";
import { stepsWithin } from "./steps-within.ts";

/** Asks to run a plan. */
export interface ExecutionRequest {
  readonly planId: string;
  /** Absent means the newest. */
  readonly version: number | undefined;
  /** JSON text; empty means `{}`. */
  readonly input: string;
  /** `provider/model`; empty means the session's, else the server's default. */
  readonly model: string;
  readonly budget: Budget | undefined;
  /** Empty means none. */
  readonly requestId: string;
}

/** An execution that somebody reads from a cursor on. */
export interface ExecutionReading extends LogReading {
  readonly planId: string;
  readonly executionId: string;
  /** Has been given what comes before the cursor. */
  readonly events: PlanEvents;
}

/** What became of a `SubmitPlanInput`. */
export interface SubmittedInput {
  /** With the defaults filled in, as JSON text. */
  readonly values: string;
  /** Of the event that says so. */
  readonly seq: number;
}

export interface ExecutionsOptions {
  readonly store: Store;
  readonly sessions: Sessions;
  readonly plans: PlanReader;
  /** For plans of no session. */
  readonly workspace: string;
  readonly newId: (prefix: string) => string;
}

const pageLimit = 1000;
const submitLimitMs = 30_000;

/** Plans as the store has them. */
export function storedPlans(store: Store): PlanReader {
  return {
    async read(tenant, planId, version) {
      const stored = await store.readPlan(tenant, planId, version);
      if (stored === undefined) return undefined;
      const plan = planVersionFromText(new TextDecoder().decode(stored.body));
      return { plan, executionId: stored.executionId };
    },
  };
}

/** The executions of plans: begins, reads and ends them, and brings answers in. Each is the first turn of its session. */
export class Executions {
  readonly #options: ExecutionsOptions;

  constructor(options: ExecutionsOptions) {
    this.#options = options;
  }

  /**
   * Begins an execution, or joins the one that its request id has begun, and reads it from a cursor. It goes on without
   * readers.
   * @throws {AgentError} `not_found`, `invalid_request` for an input that does not fit and a cursor beyond the head,
   *   `failed_precondition` for a plan that can't run, `already_exists` for a request id with another payload, as
   *   `Sessions.startTurn`.
   */
  async execute(principal: Principal, request: ExecutionRequest, afterSeq: number): Promise<ExecutionReading> {
    const { sessions, newId, store } = this.#options;
    const { planId, requestId } = request;
    const executionId =
      requestId === "" ? newId("exec") : `exec_${requestHash([principal.tenant, planId, requestId]).slice(0, 32)}`;
    const hash = requestHash(request);
    const found = requestId === "" ? undefined : await sessions.get(principal, executionId).catch(unlessNotFound);
    const metadata = found?.config.metadata ?? {};
    if (found !== undefined && metadata[executionMetadata.request] !== hash) throw otherPayload(requestId);
    if (found === undefined || (found.headSeq === 0 && found.waitingTurns === 0)) {
      if (afterSeq > 0) throw invalidField("after_seq", `is ${afterSeq}, the execution has not begun`);
      const version = found === undefined ? request.version : Number(metadata[executionMetadata.version]);
      const plan = await this.#plan(principal, planId, version);
      const execution = await this.#new(principal, plan, executionId, request, hash);
      await beginExecution(sessions, principal, execution);
      await store.setPlanExecution(principal.tenant, planId, executionId);
    }
    return this.read(principal, planId, executionId, afterSeq);
  }

  /**
   * Reads an execution from a cursor.
   * @param planId has to be its plan; empty for whichever it is
   * @throws {AgentError} `not_found`, `invalid_request` for a cursor beyond the head.
   */
  async read(principal: Principal, planId: string, executionId: string, afterSeq: number): Promise<ExecutionReading> {
    const { sessions } = this.#options;
    const view = await this.#execution(principal, planId, executionId);
    const follow = stateOf(view) !== "over";
    const log = await sessions.subscribe(principal, executionId, afterSeq, follow);
    const events = new PlanEvents();
    if (afterSeq > 0) {
      const before = await sessions.subscribe(principal, executionId, 0, false);
      for await (const batch of before.read(new AbortController().signal)) {
        if (isPruned(batch)) continue;
        for (const record of batch) if (record.seq <= afterSeq) events.add(record);
      }
    }
    return {
      planId: view.config.metadata[executionMetadata.plan] ?? planId,
      executionId,
      events,
      headSeq: log.headSeq,
      earliestSeq: log.earliestSeq,
      read: (signal) => (events.hasEnded ? nothing() : untilFinished(log.read(signal))),
      waitingBytes: log.waitingBytes,
    };
  }

  /**
   * Answers a `user_input` step.
   * @param executionId empty means the plan's newest
   * @throws {AgentError} `not_found`, `failed_precondition` when the step does not wait, `invalid_request` that names the
   *   fields that do not fit.
   */
  async submit(
    principal: Principal,
    planId: string,
    executionId: string,
    place: StepPlace,
    values: string,
    signal: AbortSignal,
  ): Promise<SubmittedInput> {
    const { sessions } = this.#options;
    const id = await this.#idOf(principal, planId, executionId);
    if (id === "") throw unknownExecution(planId, executionId);
    const view = await this.#execution(principal, planId, id);
    const key = instanceKey(place);
    const { requests } = await sessions.pendingRequests(principal, id, undefined, pageLimit);
    const waiting = requests.find(({ request }) => request.kind === "question" && request.toolCallId === key)?.request;
    if (waiting === undefined) {
      await this.#checkInputStep(principal, view, place.stepId);
      throw new AgentError("failed_precondition", `step ${key} of execution ${id} does not wait for values`, {
        reason: "STEP_NOT_WAITING",
      });
    }
    const fitted = fitValues(schemaOf(waiting), values);
    if (!fitted.ok) throw invalidField("values", fitted.problem);
    const { requestId } = waiting;
    await sessions.respond(principal, id, [{ requestId, decision: "answer", text: fitted.text }]);
    const log = await sessions.subscribe(principal, id, 0, true);
    const limit = AbortSignal.any([signal, AbortSignal.timeout(submitLimitMs)]);
    for await (const { seq, event } of recordsIn(log.read(limit))) {
      if (event.type === "request-resolved" && event.requestId === requestId) return { values: fitted.text, seq };
    }
    throw new AgentError("unavailable", "the answer was taken, and its event can't be read now");
  }

  /**
   * Asks an execution to end.
   * @param executionId empty means the plan's newest
   * @returns an empty id where none ran
   * @throws {AgentError} `not_found`.
   */
  async cancel(principal: Principal, planId: string, executionId: string) {
    const none = { executionId: "", wasRunning: false };
    const id = await this.#idOf(principal, planId, executionId);
    if (id === "") return none;
    const view = await this.#execution(principal, planId, id).catch(unlessNotFound);
    if (view === undefined && executionId === "") return none;
    if (view === undefined) throw unknownExecution(planId, executionId);
    if (stateOf(view) === "over") return { executionId: id, wasRunning: false };
    const { wasRunning } = await this.#options.sessions.cancelTurn(principal, id, "", "");
    return { executionId: id, wasRunning };
  }

  /** `running`, `waiting`, or what it came to; undefined for one that is gone. */
  async state(principal: Principal, executionId: string): Promise<string | undefined> {
    const { sessions } = this.#options;
    const view = await sessions.get(principal, executionId).catch(unlessNotFound);
    if (view === undefined) return undefined;
    const state = stateOf(view);
    if (state !== "over") return state;
    const log = await sessions.subscribe(principal, executionId, Math.max(0, view.headSeq - 1), false);
    for await (const { event } of recordsIn(log.read(new AbortController().signal)))
      if (event.type === "turn-finished" && event.plan !== undefined) return event.plan.state;
    // Somebody has talked in its session since.
    const whole = await sessions.subscribe(principal, executionId, 0, false);
    for await (const { event } of recordsIn(whole.read(new AbortController().signal)))
      if (event.type === "turn-finished") return event.plan?.state;
    return undefined;
  }

  async #new(
    principal: Principal,
    plan: PlanVersion,
    executionId: string,
    { input, model, budget, requestId }: ExecutionRequest,
    hash: string,
  ): Promise<NewExecution> {
    const { sessions, workspace } = this.#options;
    checkRunnable(plan);
    const fitted = fitValues(plan.inputSchema, input);
    if (!fitted.ok) throw invalidField("input", fitted.problem);
    const session = plan.sessionId === "" ? undefined : await sessions.get(principal, plan.sessionId);
    const { permissions, approvalTimeoutMs, placement, lanes } = session?.config ?? {};
    return {
      executionId,
      requestId: requestId === "" ? executionRequestId : requestId,
      version: plan,
      input: fitted.text,
      model,
      options: budget === undefined ? {} : { budget },
      config: {
        workspace: session?.config.workspace ?? workspace,
        model: session?.config.model ?? "",
        metadata: {
          [executionMetadata.plan]: plan.planId,
          [executionMetadata.version]: String(plan.version),
          [executionMetadata.request]: hash,
          ...(plan.sessionId === "" ? {} : { [executionMetadata.parent]: plan.sessionId }),
        },
        ...(permissions === undefined ? {} : { permissions }),
        ...(approvalTimeoutMs === undefined ? {} : { approvalTimeoutMs }),
        ...(placement === undefined ? {} : { placement }),
        ...(lanes === undefined ? {} : { lanes }),
      },
    };
  }

  async #plan(principal: Principal, planId: string, version: number | undefined): Promise<PlanVersion> {
    const found = await this.#options.plans.read(principal.tenant, planId, version);
    if (found !== undefined) return found.plan;
    throw new AgentError(
      "not_found",
      `there is no plan ${planId}${version === undefined ? "" : ` with a version ${version}`}`,
      { reason: "PLAN_NOT_FOUND" },
    );
  }

  /** The execution that is meant; empty where the plan has none. */
  async #idOf(principal: Principal, planId: string, executionId: string): Promise<string> {
    if (executionId !== "") return executionId;
    const found = await this.#options.plans.read(principal.tenant, planId);
    if (found === undefined) await this.#plan(principal, planId, undefined);
    return found?.executionId ?? "";
  }

  async #execution(principal: Principal, planId: string, executionId: string): Promise<SessionView> {
    const view = await this.#options.sessions.get(principal, executionId).catch(unlessNotFound);
    const plan = view?.config.metadata[executionMetadata.plan];
    if (view === undefined || plan === undefined || (planId !== "" && plan !== planId))
      throw unknownExecution(planId, executionId);
    return view;
  }

  async #checkInputStep(principal: Principal, { config, sessionId }: SessionView, stepId: string): Promise<void> {
    const { [executionMetadata.plan]: planId = "", [executionMetadata.version]: version = "" } = config.metadata;
    const plan = await this.#plan(principal, planId, Number(version));
    if (stepsWithin(plan.steps).some(({ id, details }) => id === stepId && details.kind === "user_input")) return;
    throw new AgentError("not_found", `execution ${sessionId} has no step ${stepId} that asks for values`, {
      reason: "STEP_NOT_FOUND",
    });
  }
}

function unknownExecution(planId: string, executionId: string): AgentError {
  const what =
    executionId === "" ? `plan ${planId} has no execution` : `plan ${planId} has no execution ${executionId}`;
  return new AgentError("not_found", what, { reason: "EXECUTION_NOT_FOUND" });
}

function stateOf({ state, headSeq, summary }: SessionView): "running" | "waiting" | "over" {
  if (headSeq === 0 || summary.currentTurnId !== "") return state === "waiting" ? "waiting" : "running";
  return "over";
}

function schemaOf({ arguments: given = "{}" }: PendingRequest): string {
  const question: unknown = JSON.parse(given);
  const schema = isRecord(question) ? question["schema"] : undefined;
  return typeof schema === "string" ? schema : "";
}

/** The log up to the end of its first turn. */
async function* untilFinished(batches: AsyncGenerator<LogBatch>): AsyncGenerator<LogBatch> {
  for await (const batch of batches) {
    if (isPruned(batch)) {
      yield batch;
      continue;
    }
    const last = batch.findIndex(({ event }) => event.type === "turn-finished");
    yield last === -1 ? batch : batch.slice(0, last + 1);
    if (last !== -1) return;
  }
}

async function* nothing(): AsyncGenerator<LogBatch> {}

async function* recordsIn(batches: AsyncIterable<LogBatch>): AsyncGenerator<LogRecord> {
  for await (const batch of batches) if (!isPruned(batch)) yield* batch;
}
