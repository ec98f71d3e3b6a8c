import type { AgentErrorDetail, AgentErrorKind } from "../chat/error.ts";
import type { TurnError } from "../chat/log-event.ts";
import type { PlanRetry, PlanStep, PlanStepChange } from "../chat/plan.ts";
import { present } from "../convert/present.ts";
import { evaluateCondition } from "./expression.ts";
import { compensationKey } from "./instance-key.ts";
import { PlanValueError } from "./plan-scope.ts";
import { choiceOutput, isComposite, type PlanState, type StepInstance, type StepList } from "./plan-state.ts";

/** What is to be done next in an execution. */
export type PlanAction =
  /** Nothing but to record it; then ask again. */
  | { readonly type: "record"; readonly change: PlanStepChange }
  /** Try a step that does something itself. */
  | { readonly type: "run"; readonly instance: StepInstance; readonly attempt: number }
  /** Undo a step that had completed. */
  | { readonly type: "undo"; readonly instance: StepInstance }
  /** End what runs here, or what waits for an answer; it is then recorded as cancelled. */
  | { readonly type: "stop"; readonly instance: StepInstance };

export interface PlanNext {
  readonly actions: readonly PlanAction[];
  /** When something is due that nothing else brings about; infinity for never. */
  readonly wakeAtMs: number;
  /** Nothing is left to do. */
  readonly end: PlanEnd | undefined;
}

export interface PlanEnd {
  readonly state: "completed" | "failed" | "cancelled";
  /** Empty where none made it fail. */
  readonly failedStepId: string;
  readonly error?: TurnError;
}

export interface PlanMoment {
  readonly nowMs: number;
  /** Keys of the steps and compensations that this process is busy with. */
  readonly busy: ReadonlySet<string>;
  /** Most steps at the same time. */
  readonly limit: number;
  /** The execution is to end before its time. */
  readonly ending?: { readonly state: "failed" | "cancelled"; readonly error?: TurnError };
}

/** Most items of a `for_each`. */
export const maxPlanItems = 1000;
/** Most steps of an execution, those of each item counted; loops within loops would have a million. */
export const maxExecutedSteps = 10_000;

const defaultParallelBranches = 4;

/**
 * Says what is to be done next in an execution; the same for the same changes, whoever asks. What may be busy is bounded;
 * what is left out for that comes when it is asked again.
 */
export function nextPlanSteps(state: PlanState, moment: PlanMoment): PlanNext {
  return new Walk(state, moment).next();
}

class Walk {
  readonly #state: PlanState;
  readonly #moment: PlanMoment;
  readonly #actions: PlanAction[] = [];
  #wakeAtMs = Number.POSITIVE_INFINITY;
  /** Steps that have begun and not ended. */
  #active = 0;
  #room: number;
  /** Steps that are known, with those of the loops that begin now. */
  #steps: number;

  constructor(state: PlanState, moment: PlanMoment) {
    this.#state = state;
    this.#moment = moment;
    this.#room = moment.limit - moment.busy.size;
    this.#steps = state.count.totalSteps;
  }

  next(): PlanNext {
    const root: StepList = { steps: this.#state.steps, itemPath: [] };
    const { ending } = this.#moment;
    const failed = this.#failureIn(root);
    const isStopping = ending !== undefined || failed !== undefined;
    const hasEnded = this.#list(root, isStopping);
    if (this.#active > 0 || this.#actions.length > 0) return this.#result(undefined);
    if (!isStopping) return this.#result(hasEnded ? { state: "completed", failedStepId: "" } : undefined);
    this.#compensate();
    if (this.#active > 0 || this.#actions.length > 0) return this.#result(undefined);
    if (ending !== undefined) return this.#result({ failedStepId: "", ...ending });
    const cause = this.#deepestFailure(failed);
    return this.#result({ state: "failed", failedStepId: cause?.stepId ?? "", ...present({ error: cause?.error }) });
  }

  #result(end: PlanEnd | undefined): PlanNext {
    // What is recorded may change all else.
    const records = this.#actions.filter(({ type }) => type === "record");
    return { actions: records.length > 0 ? records : this.#actions, wakeAtMs: this.#wakeAtMs, end };
  }

  /** Says whether all steps of a list have ended. */
  #list(list: StepList, isStopping: boolean): boolean {
    const order = this.#state.orderOf(list.steps);
    let hasEnded = true;
    for (const step of list.steps) if (!this.#step(step, list, order, isStopping)) hasEnded = false;
    return hasEnded;
  }

  #step(step: PlanStep, list: StepList, order: Order, isStopping: boolean): boolean {
    const instance = this.#state.instance(step, list.itemPath);
    const isBusy = this.#moment.busy.has(instance.key);
    switch (instance.state) {
      case "pending":
        if (isBusy || this.#isAsked(instance)) this.#hold(instance, isBusy, isStopping);
        else if (!isStopping) this.#begin(instance, list, order);
        return false;
      case "waiting":
        if (isBusy || this.#isAsked(instance)) this.#hold(instance, isBusy, isStopping);
        else {
          this.#active++;
          if (isStopping) this.#record(cancelled(instance));
          else if (instance.dueTimeMs > this.#moment.nowMs) this.#wakeAt(instance.dueTimeMs);
          else this.#run(instance, instance.attempt + 1);
        }
        return false;
      case "running":
        if (isComposite(step)) this.#composite(instance, isStopping);
        else if (isBusy) this.#hold(instance, true, isStopping);
        else {
          this.#active++;
          if (!instance.isRepeatable) this.#record(interrupted(instance));
          else if (isStopping) this.#record(cancelled(instance));
          else this.#run(instance, instance.attempt);
        }
        return false;
      case "completed":
      case "failed":
      case "skipped":
      case "cancelled":
      case "compensating":
      case "compensated":
      case "compensation_failed":
        return true;
      default:
        return instance.state satisfies never;
    }
  }

  /** It is busy, or waits for an answer. */
  #hold(instance: StepInstance, isBusy: boolean, isStopping: boolean): void {
    this.#active++;
    if (isStopping) this.#actions.push({ type: "stop", instance });
    else if (!isBusy) this.#wakeAt(this.#state.requestOf(instance)?.expireTimeMs ?? Number.POSITIVE_INFINITY);
  }

  #isAsked(instance: StepInstance): boolean {
    const request = this.#state.requestOf(instance);
    return request !== undefined && request.answer === undefined;
  }

  #begin(instance: StepInstance, { itemPath }: StepList, order: Order): void {
    const { step } = instance;
    const waitsFor = (order.get(step.id) ?? []).flatMap((id) => {
      const other = this.#state.stepOf(id);
      return other === undefined ? [] : this.#state.instance(other, itemPath);
    });
    if (waitsFor.some(({ state }) => state === "pending" || state === "running" || state === "waiting")) return;
    const blocking = waitsFor.find((other) => this.#isBlocking(other, order));
    if (blocking !== undefined) {
      const reason = `${blocking.stepId}, which it depends on, ${blocking.state === "failed" ? "failed" : "was skipped"}`;
      this.#record({ ...place(instance), state: "skipped", attempt: 0, reason });
      return;
    }
    try {
      const scope = this.#state.scopeOf(instance);
      if (!evaluateCondition(step.condition, scope)) {
        this.#record({ ...place(instance), state: "skipped", attempt: 0, reason: "its condition does not hold" });
        return;
      }
      if (isComposite(step)) this.#record({ ...place(instance), ...this.#composed(instance) });
      else this.#run(instance, instance.attempt + 1);
    } catch (error) {
      if (!(error instanceof PlanValueError)) throw error;
      this.#record(failedBy(instance, 0, valueFailure(error)));
    }
  }

  /** It failed and those that depend on it are to be skipped, or it was skipped for that itself. */
  #isBlocking(instance: StepInstance, order: Order): boolean {
    if (instance.state === "failed") return instance.step.onError === "skip";
    if (instance.state !== "skipped") return false;
    return (order.get(instance.stepId) ?? []).some((id) => {
      const other = this.#state.stepOf(id);
      return other !== undefined && this.#isBlocking(this.#state.instance(other, instance.itemPath), order);
    });
  }

  /** How a composite begins. @throws {PlanValueError} */
  #composed(instance: StepInstance): Pick<PlanStepChange, "state" | "attempt" | "repeatable" | "reason" | "output"> {
    const begins = { state: "running", attempt: 1, repeatable: true } as const;
    const { details } = instance.step;
    if (details.kind === "branch") {
      const scope = this.#state.scopeOf(instance);
      const choice = details.cases.findIndex(({ condition }) => evaluateCondition(condition, scope));
      const reason = choice === -1 ? "no case holds" : `case ${choice + 1} of ${details.cases.length} holds`;
      return { ...begins, reason, output: choiceOutput(choice) };
    }
    if (details.kind !== "for_each") return begins;
    const items = this.#state.itemsFor(instance);
    if (!Array.isArray(items)) throw new PlanValueError("its items are no list");
    if (items.length > maxPlanItems)
      throw new PlanValueError(`it has ${items.length} items; ${maxPlanItems} is the most`);
    const steps = this.#steps + items.length * details.steps.length;
    if (steps > maxExecutedSteps)
      throw new PlanValueError(
        `with its ${items.length} items the execution has ${steps} steps; ${maxExecutedSteps} is the most`,
      );
    this.#steps = steps;
    return { ...begins, reason: `${items.length} ${items.length === 1 ? "item" : "items"}` };
  }

  #composite(instance: StepInstance, isStopping: boolean): void {
    const { step, startedMs } = instance;
    const { nowMs } = this.#moment;
    const lists = this.#state.listsOf(instance);
    const endsAtMs = step.timeoutMs === undefined ? Number.POSITIVE_INFINITY : startedMs + step.timeoutMs;
    const cause = earliest(lists.flatMap((list) => this.#failureIn(list) ?? []));
    const before = this.#active++;
    if (isStopping || cause !== undefined || endsAtMs <= nowMs) {
      for (const list of lists) this.#list(list, true);
      if (this.#active > before + 1) return;
      if (isStopping) this.#record(cancelled(instance));
      else this.#record(failedBy(instance, 1, cause === undefined ? timeUp(step.timeoutMs) : failureOf(cause)));
      return;
    }
    this.#wakeAt(endsAtMs);
    let atOnce = concurrencyOf(step);
    for (const list of lists) {
      if (atOnce <= 0) return;
      if (!this.#list(list, false)) atOnce--;
    }
    // Each list that has not ended took one.
    if (atOnce < concurrencyOf(step)) return;
    const output = JSON.stringify(this.#state.compositeValue(instance));
    this.#record({
      ...place(instance),
      state: "completed",
      attempt: 1,
      ...boundedOutput(output),
      durationMs: Math.max(0, nowMs - startedMs),
    });
  }

  /** The step of a list that makes all of it fail, the first in time. */
  #failureIn({ steps, itemPath }: StepList): StepInstance | undefined {
    const failed = steps
      .filter(({ onError }) => onError === "fail")
      .map((step) => this.#state.instance(step, itemPath))
      .filter(({ state }) => state === "failed");
    return earliest(failed);
  }

  #deepestFailure(instance: StepInstance | undefined): StepInstance | undefined {
    if (instance === undefined || !isComposite(instance.step) || instance.attempt === 0) return instance;
    const inner = earliest(this.#state.listsOf(instance).flatMap((list) => this.#failureIn(list) ?? []));
    return inner === undefined ? instance : this.#deepestFailure(inner);
  }

  /** One at a time, the last completed step first. */
  #compensate(): void {
    let last: StepInstance | undefined;
    for (const instance of this.#state.instances) {
      if (instance.step.compensation === undefined) continue;
      if (instance.state === "compensating") {
        this.#active++;
        if (this.#moment.busy.has(compensationKey(instance))) return;
        if (instance.isRepeatable) this.#actions.push({ type: "undo", instance });
        else
          this.#record({
            ...place(instance),
            state: "compensation_failed",
            attempt: instance.attempt,
            ...unknownOutcome,
          });
        return;
      }
      if (instance.state === "completed" && instance.completedSeq > (last?.completedSeq ?? 0)) last = instance;
    }
    if (last === undefined) return;
    this.#active++;
    if (this.#moment.busy.has(compensationKey(last))) return;
    const request = this.#state.compensationRequestOf(last);
    if (request !== undefined && request.answer === undefined) {
      this.#wakeAt(request.expireTimeMs ?? Number.POSITIVE_INFINITY);
      return;
    }
    this.#actions.push({ type: "undo", instance: last });
  }

  #run(instance: StepInstance, attempt: number): void {
    if (this.#room <= 0) return;
    this.#room--;
    this.#active++;
    this.#actions.push({ type: "run", instance, attempt });
  }

  #record(change: PlanStepChange): void {
    this.#actions.push({ type: "record", change });
  }

  #wakeAt(timeMs: number): void {
    this.#wakeAtMs = Math.min(this.#wakeAtMs, timeMs);
  }
}

type Order = ReadonlyMap<string, readonly string[]>;

/** How an attempt failed. */
export interface StepFailure {
  readonly reason: string;
  readonly error: TurnError;
  /** Trying again is of no use, or nobody knows what it did. */
  readonly isFinal: boolean;
}

/** @param code a word for programs */
export function stepFailure(
  kind: AgentErrorKind,
  code: string,
  message: string,
  { isFinal = false, detail = {} }: { readonly isFinal?: boolean; readonly detail?: AgentErrorDetail } = {},
): StepFailure {
  return { reason: message, error: { kind, reason: code, message, detail }, isFinal };
}

/** What is recorded of an attempt that failed: that it is tried again later, or that the step failed. */
export function changeAfterFailure(
  { step, stepId, itemPath }: Pick<StepInstance, "step" | "stepId" | "itemPath">,
  attempt: number,
  failure: StepFailure,
  nowMs: number,
): PlanStepChange {
  const { reason, error } = failure;
  const { maxAttempts = step.retry === undefined ? 1 : 3 } = step.retry ?? {};
  if (failure.isFinal || attempt >= maxAttempts) return { stepId, itemPath, state: "failed", attempt, reason, error };
  const dueTimeMs = nowMs + pauseMs(step.retry ?? {}, attempt);
  return { stepId, itemPath, state: "waiting", attempt, reason: `tried again: ${reason}`, error, dueTimeMs };
}

/** The pause after an attempt. */
function pauseMs({ delayMs = 1000, backoffFactor = 2, maxDelayMs = 60_000 }: PlanRetry, attempt: number): number {
  return Math.round(Math.min(delayMs * backoffFactor ** (attempt - 1), maxDelayMs));
}

/** A step's time was over. */
export function timeUp(timeoutMs: number | undefined): StepFailure {
  return stepFailure("deadline", "STEP_TIMEOUT", `it took longer than ${timeoutMs} ms`);
}

/** A reference or a condition of a step has no value. */
export function valueFailure({ message }: PlanValueError): StepFailure {
  return stepFailure("invalid_request", "VALUE_ERROR", message, { isFinal: true });
}

function failureOf({ reason, error, stepId }: StepInstance): StepFailure {
  const message = `${stepId} failed: ${reason}`;
  return error === undefined
    ? stepFailure("internal", "STEP_FAILED", message)
    : { reason: message, error, isFinal: true };
}

function failedBy(instance: StepInstance, attempt: number, { reason, error }: StepFailure): PlanStepChange {
  return { ...place(instance), state: "failed", attempt, reason, error };
}

function cancelled(instance: StepInstance): PlanStepChange {
  return { ...place(instance), state: "cancelled", attempt: instance.attempt };
}

const interruptedFailure = stepFailure(
  "unavailable",
  "INTERRUPTED",
  "interrupted: the server stopped while it ran; the outcome is unknown, check before trying again",
  { isFinal: true, detail: { sideEffectPossible: true } },
);
const unknownOutcome = { reason: interruptedFailure.reason, error: interruptedFailure.error };

function interrupted(instance: StepInstance): PlanStepChange {
  return failedBy(instance, instance.attempt, interruptedFailure);
}

function place({ stepId, itemPath }: StepInstance): Pick<PlanStepChange, "stepId" | "itemPath"> {
  return { stepId, itemPath };
}

function concurrencyOf({ details }: PlanStep): number {
  if (details.kind === "for_each") return details.maxConcurrency ?? 1;
  return details.kind === "parallel" ? (details.maxConcurrency ?? defaultParallelBranches) : 1;
}

/** Most characters of an output in an event. */
const shownOutput = 200_000;

/** An output as an event shows it. */
export function boundedOutput(output: string): Pick<PlanStepChange, "output" | "truncated"> {
  return output.length <= shownOutput
    ? { output }
    : { output: output.slice(0, shownOutput).toWellFormed(), truncated: true };
}

function earliest(instances: readonly StepInstance[]): StepInstance | undefined {
  return instances.toSorted((left, right) => left.seq - right.seq)[0];
}
