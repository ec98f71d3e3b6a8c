import type { PlanStep } from "../../src/chat/plan.ts";
import type { RandomPlan } from "./random-plan.ts";

/** What a step came to; one that never began is not told. */
export interface StepResult {
  readonly state: "completed" | "failed" | "skipped";
  readonly attempts: number;
  readonly value: unknown;
}

export interface PlanResult {
  readonly hasFailed: boolean;
  readonly output: unknown;
  /** By key; of steps within a composite that failed nothing is told. */
  readonly steps: ReadonlyMap<string, StepResult>;
}

interface Environment {
  readonly results: Map<string, unknown>;
  readonly path: readonly number[];
  readonly item: unknown;
}

/**
 * Runs a plan one step after the other, by recursion and without a log. Steps only look at steps before them in their
 * list, so that order is theirs.
 * @param interrupted attempts that ended with an unknown outcome
 */
export function interpret({ steps, behaviours }: RandomPlan, interrupted: ReadonlySet<string>): PlanResult {
  const told = new Map<string, StepResult>();

  function list(steps: readonly PlanStep[], outer: Environment, own: Map<string, StepResult>) {
    const environment = { ...outer, results: new Map(outer.results) };
    const ended = new Map<string, { blocks: boolean }>();
    let value: unknown = null;
    for (const step of steps) {
      const key = environment.path.length === 0 ? step.id : `${step.id}[${environment.path.join()}]`;
      const isBlocked = step.dependsOn.some((id) => ended.get(id)?.blocks === true);
      const result = isBlocked || !holds(step.condition, environment) ? skipped : run(step, key, environment, own);
      own.set(key, result);
      if (result.state === "failed" && step.onError === "fail") return { hasFailed: true, value: null };
      ended.set(step.id, { blocks: isBlocked || (result.state === "failed" && step.onError === "skip") });
      environment.results.set(step.id, result.value);
      ({ value } = result);
    }
    return { hasFailed: false, value };
  }

  function run(step: PlanStep, key: string, environment: Environment, own: Map<string, StepResult>): StepResult {
    const { details } = step;
    const behaviour = behaviours.get(step.id);
    if (behaviour !== undefined) {
      const most = step.retry === undefined ? 1 : (step.retry.maxAttempts ?? 3);
      for (let attempt = 1; attempt <= most; attempt++) {
        if (interrupted.has(`${key}#${attempt}`)) return { state: "failed", attempts: attempt, value: null };
        if (attempt <= behaviour.failures) continue;
        const from = behaviour.from === undefined ? null : (environment.results.get(behaviour.from) ?? null);
        const given = behaviour.inLoop ? { from, item: environment.item } : { from };
        return { state: "completed", attempts: attempt, value: { by: step.id, given } };
      }
      return { state: "failed", attempts: most, value: null };
    }
    const inner = new Map<string, StepResult>();
    const values: unknown[] = [];
    for (const [steps, within] of listsOf(details, environment)) {
      const { hasFailed, value } = list(steps, within, inner);
      if (hasFailed) return { state: "failed", attempts: 1, value: null };
      values.push(value);
    }
    for (const [innerKey, result] of inner) own.set(innerKey, result);
    return { state: "completed", attempts: 1, value: details.kind === "branch" ? (values[0] ?? null) : values };
  }

  const { hasFailed, value } = list(steps, { results: new Map(), path: [], item: undefined }, told);
  return { hasFailed, output: hasFailed ? null : value, steps: told };
}

const skipped: StepResult = { state: "skipped", attempts: 0, value: null };

function listsOf(
  details: PlanStep["details"],
  environment: Environment,
): readonly (readonly [readonly PlanStep[], Environment])[] {
  if (details.kind === "branch") {
    const steps = details.cases.find(({ condition }) => holds(condition, environment))?.steps ?? details.otherwise;
    return [[steps, environment]];
  }
  if (details.kind === "parallel") return details.branches.map(({ steps }) => [steps, environment] as const);
  if (details.kind !== "for_each") return [];
  const items: unknown = JSON.parse(details.items);
  return (Array.isArray(items) ? items : []).map(
    (item: unknown, index) => [details.steps, { ...environment, path: [...environment.path, index], item }] as const,
  );
}

/** The few conditions that random plans have. */
function holds(condition: string, { results }: Environment): boolean {
  if (condition === "" || condition === "true" || condition === "input.yes") return true;
  if (condition === "1 > 2") return false;
  const [, id = "", comparison] = /^step\.(\w+)\.result (==|!=) null$/.exec(condition) ?? [];
  return ((results.get(id) ?? null) === null) === (comparison === "==");
}
