import type { RequestAnswer, TurnError } from "../chat/log-event.ts";
import type { PlanStep, PlanStepChange, PlanStepState } from "../chat/plan.ts";
import { orderOf } from "./check-plan.ts";
import { compensationKey, instanceKey, type StepPlace } from "./instance-key.ts";
import type { PlanScope } from "./plan-scope.ts";
import { resolveParameters } from "./references.ts";

/** A change with its place in the log. */
export type RecordedChange = PlanStepChange & { readonly seq: number; readonly timeMs: number };

/** What was asked about a step (`key`: `instanceKey`) or its compensation (`compensationKey`). */
export interface StepRequest {
  readonly key: string;
  readonly seq: number;
  readonly expireTimeMs?: number;
  /** Absent while it waits. */
  readonly answer?: RequestAnswer;
}

/** One run of a step: what its changes add up to. */
export interface StepInstance extends StepPlace {
  readonly step: PlanStep;
  readonly key: string;
  readonly state: PlanStepState | "pending";
  readonly attempt: number;
  /** Parsed; null without one. */
  readonly value: unknown;
  readonly reason: string;
  readonly error: TurnError | undefined;
  readonly dueTimeMs: number;
  readonly isRepeatable: boolean;
  /** When its attempt began, in milliseconds since 1970. */
  readonly startedMs: number;
  /** Of its last change; 0 for none. */
  readonly seq: number;
  /** Where it completed; 0 where it did not. */
  readonly completedSeq: number;
  /** Of a branch that runs: the case, -1 for `otherwise`. */
  readonly choice: number | undefined;
}

/** Steps that run within a composite, once for each item path. */
export interface StepList {
  readonly steps: readonly PlanStep[];
  readonly itemPath: readonly number[];
}

/** How far an execution is; items count as soon as their number is known. */
export interface PlanCount {
  readonly finishedSteps: number;
  readonly totalSteps: number;
  readonly runningSteps: number;
}

interface KnownStep {
  readonly step: PlanStep;
  /** The `for_each` steps around it, outermost first. */
  readonly loops: readonly PlanStep[];
}

/** What an execution has come to: the fold of its changes over its plan. */
export class PlanState {
  readonly steps: readonly PlanStep[];
  readonly input: unknown;
  readonly #known = new Map<string, KnownStep>();
  readonly #orders = new Map<readonly PlanStep[], ReadonlyMap<string, readonly string[]>>();
  readonly #instances = new Map<string, StepInstance>();
  readonly #items = new Map<string, readonly unknown[]>();
  readonly #requests = new Map<string, StepRequest>();
  #count: PlanCount;

  constructor(steps: readonly PlanStep[], input: unknown) {
    this.steps = steps;
    this.input = input;
    this.#count = { finishedSteps: 0, totalSteps: steps.length, runningSteps: 0 };
    this.#know(steps, []);
  }

  /** Adds the next change. What the plan does not have is left aside. */
  apply(change: RecordedChange): void {
    const known = this.#known.get(change.stepId);
    if (known === undefined) return;
    const before = this.instance(known.step, change.itemPath);
    const isCompleted = change.state === "completed";
    const next: StepInstance = {
      ...before,
      state: change.state,
      attempt: Math.max(before.attempt, change.attempt),
      reason: change.reason ?? "",
      error: change.error ?? (change.state === "failed" ? undefined : before.error),
      dueTimeMs: change.dueTimeMs ?? 0,
      isRepeatable: change.repeatable ?? false,
      startedMs: change.state === "running" || change.state === "compensating" ? change.timeMs : before.startedMs,
      seq: change.seq,
      completedSeq: isCompleted ? change.seq : before.completedSeq,
      choice: change.state === "running" ? choiceFrom(change.output) : before.choice,
    };
    this.#instances.set(next.key, next);
    if (isCompleted) this.#instances.set(next.key, { ...next, value: this.#valueOf(next, change.output) });
    this.#recount(before, next);
  }

  /** Kept with every change, so that whoever asks after each one does not walk through all steps. */
  get count(): PlanCount {
    return this.#count;
  }

  /** Adds or replaces what was asked about a step. */
  noteRequest(request: StepRequest): void {
    this.#requests.set(request.key, request);
  }

  /** What was asked last about a run of a step. */
  requestOf(instance: StepPlace): StepRequest | undefined {
    return this.#requests.get(instanceKey(instance));
  }

  compensationRequestOf(instance: StepPlace): StepRequest | undefined {
    return this.#requests.get(compensationKey(instance));
  }

  get requests(): Iterable<StepRequest> {
    return this.#requests.values();
  }

  /** All that have changed. */
  get instances(): Iterable<StepInstance> {
    return this.#instances.values();
  }

  stepOf(stepId: string): PlanStep | undefined {
    return this.#known.get(stepId)?.step;
  }

  /** A run of a step; pending where nothing has happened to it. */
  instance(step: PlanStep, itemPath: readonly number[]): StepInstance {
    const place = { stepId: step.id, itemPath };
    const key = instanceKey(place);
    return (
      this.#instances.get(key) ?? {
        ...place,
        step,
        key,
        state: "pending",
        attempt: 0,
        value: null,
        reason: "",
        error: undefined,
        dueTimeMs: 0,
        isRepeatable: false,
        startedMs: 0,
        seq: 0,
        completedSeq: 0,
        choice: undefined,
      }
    );
  }

  /** What each step of a list waits for, ids of the same list. */
  orderOf(steps: readonly PlanStep[]): ReadonlyMap<string, readonly string[]> {
    const known = this.#orders.get(steps) ?? orderOf(steps);
    this.#orders.set(steps, known);
    return known;
  }

  /** The lists of steps that a composite runs: the case of a branch, each item, each branch side by side. */
  listsOf({ step: { details }, itemPath, choice, key }: StepInstance): readonly StepList[] {
    switch (details.kind) {
      case "branch": {
        const steps = choice === undefined ? [] : (details.cases[choice]?.steps ?? details.otherwise);
        return [{ steps, itemPath }];
      }
      case "for_each":
        return this.#itemsOf(key, details.items, itemPath, this.#known.get(keyStep(key))).map((_, index) => ({
          steps: details.steps,
          itemPath: [...itemPath, index],
        }));
      case "parallel":
        return details.branches.map(({ steps }) => ({ steps, itemPath }));
      default:
        return [];
    }
  }

  /**
   * What references and conditions of a step can see.
   * @param stepId the step they are written in
   */
  scopeOf({ stepId, itemPath }: StepPlace): PlanScope {
    const loops = this.#known.get(stepId)?.loops ?? [];
    return this.#scope(loops, itemPath);
  }

  /**
   * The items of a `for_each`. Results it refers to don't change any more, so it always has the same.
   * @throws {PlanValueError}
   */
  itemsFor({ stepId, itemPath, step }: StepInstance): unknown {
    return step.details.kind === "for_each"
      ? resolveParameters(step.details.items, this.scopeOf({ stepId, itemPath }))
      : undefined;
  }

  /** What a list comes to: the value of its last step. */
  valueOfList({ steps, itemPath }: StepList): unknown {
    const last = steps.at(-1);
    return last === undefined ? null : resultOf(this.instance(last, itemPath));
  }

  /** What a composite comes to when all of it has ended. */
  compositeValue(instance: StepInstance): unknown {
    const values = this.listsOf(instance).map((list) => this.valueOfList(list));
    return instance.step.details.kind === "branch" ? (values[0] ?? null) : values;
  }

  #recount(before: StepInstance, next: StepInstance): void {
    const { finishedSteps, totalSteps, runningSteps } = this.#count;
    const begins = before.attempt === 0 && next.attempt > 0;
    const inner = begins ? this.listsOf(next).reduce((sum, { steps }) => sum + steps.length, 0) : 0;
    this.#count = {
      finishedSteps: finishedSteps + Number(hasEnded(next)) - Number(hasEnded(before)),
      totalSteps: totalSteps + inner,
      runningSteps: runningSteps + Number(isRunning(next)) - Number(isRunning(before)),
    };
  }

  #know(steps: readonly PlanStep[], loops: readonly PlanStep[]): void {
    for (const step of steps) {
      this.#known.set(step.id, { step, loops });
      const { details } = step;
      if (details.kind === "branch") {
        for (const each of details.cases) this.#know(each.steps, loops);
        this.#know(details.otherwise, loops);
      } else if (details.kind === "for_each") this.#know(details.steps, [...loops, step]);
      else if (details.kind === "parallel") for (const { steps: inner } of details.branches) this.#know(inner, loops);
    }
  }

  #valueOf(instance: StepInstance, output: string | undefined): unknown {
    if (isComposite(instance.step)) return this.compositeValue(instance);
    return output === undefined ? null : parsed(output);
  }

  #scope(loops: readonly PlanStep[], itemPath: readonly number[]): PlanScope {
    const innermost = loops.at(-1);
    const index = itemPath[loops.length - 1];
    const scope = {
      input: this.input,
      step: (id: string): unknown => {
        const known = this.#known.get(id);
        if (known === undefined) return null;
        const shares = known.loops.every((loop, depth) => loops[depth] === loop);
        return shares ? resultOf(this.instance(known.step, itemPath.slice(0, known.loops.length))) : null;
      },
    };
    if (innermost === undefined || index === undefined || innermost.details.kind !== "for_each") return scope;
    const outerPath = itemPath.slice(0, loops.length - 1);
    const key = instanceKey({ stepId: innermost.id, itemPath: outerPath });
    const items = this.#itemsOf(key, innermost.details.items, outerPath, this.#known.get(innermost.id));
    return { ...scope, item: items[index] ?? null, index };
  }

  #itemsOf(key: string, items: string, itemPath: readonly number[], known: KnownStep | undefined): readonly unknown[] {
    const before = this.#items.get(key);
    if (before !== undefined) return before;
    const value = resolveParameters(items, this.#scope(known?.loops ?? [], itemPath));
    const list: readonly unknown[] = Array.isArray(value) ? value : [];
    this.#items.set(key, list);
    return list;
  }
}

/** What others read of a step: null where it has not completed. */
export function resultOf({ completedSeq, value }: StepInstance): unknown {
  return completedSeq === 0 ? null : value;
}

function isRunning({ state }: StepInstance): boolean {
  return state === "running" || state === "compensating";
}

function hasEnded(instance: StepInstance): boolean {
  return !isRunning(instance) && instance.state !== "pending" && instance.state !== "waiting";
}

/** It runs steps of its own, and does nothing itself. */
export function isComposite({ details: { kind } }: PlanStep): boolean {
  return kind === "branch" || kind === "for_each" || kind === "parallel";
}

/** The output that is recorded of a branch when it begins. */
export function choiceOutput(choice: number): string {
  return JSON.stringify({ case: choice });
}

function choiceFrom(output: string | undefined): number | undefined {
  const value = output === undefined ? undefined : parsed(output);
  if (typeof value !== "object" || value === null || !("case" in value)) return undefined;
  return typeof value.case === "number" ? value.case : undefined;
}

function keyStep(key: string): string {
  const bracket = key.indexOf("[");
  return bracket === -1 ? key : key.slice(0, bracket);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
