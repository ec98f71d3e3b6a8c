import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { PlanStep, PlanStepChange } from "../../src/chat/plan.ts";
import { compensationKey, instanceKey } from "../../src/plan/instance-key.ts";
import { changeAfterFailure, nextPlanSteps, stepFailure } from "../../src/plan/next-plan-steps.ts";
import {
  isComposite,
  type PlanCount,
  PlanState,
  type RecordedChange,
  type StepInstance,
  type StepList,
  type StepRequest,
} from "../../src/plan/plan-state.ts";
import { resolveParameters } from "../../src/plan/references.ts";
import { seeded } from "../session/kill-loop.ts";
import { type RandomPlan, randomPlan } from "./random-plan.ts";
import { interpret } from "./reference-interpreter.ts";

interface Simulation {
  readonly log: readonly RecordedChange[];
  readonly state: PlanState;
  readonly end: NonNullable<ReturnType<typeof nextPlanSteps>["end"]>;
  /** How often each attempt began to do something, by `key#attempt`; of compensations by their key. */
  readonly effects: ReadonlyMap<string, number>;
}

const limit = 4;

/**
 * Executes a plan in a world that is only played: time stands still until somebody waits for it, what runs ends in any
 * order, and between any two events the process may die and be followed by one that knows nothing but the log.
 */
function simulate(plan: RandomPlan, random: () => number, crashShare: number, cancelShare: number): Simulation {
  const log: RecordedChange[] = [];
  const requests = new Map<string, StepRequest>();
  const effects = new Map<string, number>();
  const input = { yes: true };
  let state = new PlanState(plan.steps, input);
  let busy = new Map<string, () => PlanStepChange>();
  let nowMs = 0;
  let isCancelled = false;
  let hasCrashed = false;

  const append = (change: PlanStepChange) => {
    const recorded = { ...change, seq: log.length + 1, timeMs: nowMs };
    log.push(recorded);
    state.apply(recorded);
    if (random() >= crashShare) return;
    hasCrashed = true;
    busy = new Map();
    state = new PlanState(plan.steps, input);
    for (const each of log) state.apply(each);
    for (const each of requests.values()) state.noteRequest(each);
  };
  /** What people are asked and answer is in the log as well. */
  const note = (request: StepRequest) => {
    requests.set(request.key, request);
    state.noteRequest(request);
  };
  const begin = (key: string) => effects.set(key, (effects.get(key) ?? 0) + 1);

  function run(instance: StepInstance, attempt: number): void {
    const { stepId, itemPath, step, key } = instance;
    const behaviour = plan.behaviours.get(stepId);
    assert.ok(behaviour !== undefined, `${stepId} does nothing itself`);
    const given = resolveParameters(behaviour.parameters, state.scopeOf(instance));
    if (step.details.kind === "user_input") {
      const asked = requests.get(key);
      if (asked === undefined || asked.seq < instance.seq) {
        begin(`${key}#${attempt}`);
        note({ key, seq: log.length + 0.5 });
        return;
      }
      assert.ok(asked.answer !== undefined, `${key} goes on only when it was answered`);
      append(
        attempt <= behaviour.failures
          ? changeAfterFailure(instance, attempt, stepFailure("deadline", "INPUT_EXPIRED", "no"), nowMs)
          : { stepId, itemPath, state: "completed", attempt, output: JSON.stringify({ by: stepId, given }) },
      );
      return;
    }
    if (instance.state !== "running") {
      append({ stepId, itemPath, state: "running", attempt, repeatable: behaviour.isRepeatable });
      if (hasCrashed) return;
    }
    begin(`${key}#${attempt}`);
    const output = JSON.stringify({ by: stepId, given });
    busy.set(key, () =>
      attempt <= behaviour.failures
        ? changeAfterFailure(instance, attempt, stepFailure("internal", "STEP_FAILED", "no"), nowMs)
        : { stepId, itemPath, state: "completed", attempt, output },
    );
  }

  function undo(instance: StepInstance): void {
    const { stepId, itemPath, attempt } = instance;
    const key = compensationKey(instance);
    append({ stepId, itemPath, state: "compensating", attempt });
    if (hasCrashed) return;
    begin(key);
    busy.set(key, () => ({ stepId, itemPath, state: "compensated", attempt }));
  }

  for (let rounds = 0; rounds < 5000; rounds++) {
    hasCrashed = false;
    isCancelled ||= random() < cancelShare;
    assert.ok(busy.size <= limit, "no more than the limit at the same time");
    const ending = isCancelled ? { ending: { state: "cancelled" as const } } : {};
    const next = nextPlanSteps(state, { nowMs, busy: new Set(busy.keys()), limit, ...ending });
    const again = nextPlanSteps(state, { nowMs, busy: new Set(busy.keys()), limit, ...ending });
    assert.deepEqual(again, next, "asked again, it says the same");
    if (random() < 0.1 || next.end !== undefined) assert.deepEqual(state.count, counted(state));
    if (next.end !== undefined) return { log, state, end: next.end, effects };
    for (const action of next.actions) {
      if (hasCrashed) break;
      if (action.type === "record") append(action.change);
      else if (action.type === "run") run(action.instance, action.attempt);
      else if (action.type === "undo") undo(action.instance);
      else {
        const { stepId, itemPath, attempt, key } = action.instance;
        busy.delete(key);
        const asked = requests.get(key);
        if (asked !== undefined && asked.answer === undefined)
          note({ ...asked, answer: { requestId: key, decision: "expired", author: "" } });
        append({ stepId, itemPath, state: "cancelled", attempt });
      }
    }
    if (next.actions.length > 0 && (hasCrashed || random() < 0.7)) continue;
    const waiting = [...requests.values()].filter((each) => each.answer === undefined);
    const answered = waiting[Math.floor(random() * waiting.length)];
    if (answered !== undefined && (busy.size === 0 || random() < 0.5)) {
      note({ ...answered, answer: { requestId: answered.key, decision: "answer", author: "", text: "{}" } });
      continue;
    }
    const keys = [...busy.keys()];
    const key = keys[Math.floor(random() * keys.length)];
    const ends = busy.get(key ?? "");
    if (key !== undefined && ends !== undefined) {
      busy.delete(key);
      append(ends());
    } else if (next.actions.length === 0) {
      assert.ok(Number.isFinite(next.wakeAtMs), "nothing runs, nothing is to be done and nothing is waited for");
      nowMs = Math.max(nowMs, next.wakeAtMs);
    }
  }
  throw new Error("the execution does not end");
}

/** How far an execution is, by a walk through all of its steps. */
function counted(state: PlanState): PlanCount {
  const count = { finishedSteps: 0, totalSteps: 0, runningSteps: 0 };
  const visit = ({ steps, itemPath }: StepList) => {
    for (const step of steps) {
      const instance = state.instance(step, itemPath);
      count.totalSteps++;
      if (instance.state === "running" || instance.state === "compensating") count.runningSteps++;
      else if (instance.state !== "pending" && instance.state !== "waiting") count.finishedSteps++;
      if (instance.attempt > 0 && isComposite(step)) for (const list of state.listsOf(instance)) visit(list);
    }
  };
  visit({ steps: state.steps, itemPath: [] });
  return count;
}

/** Attempts that were cut off by a crash and may have changed something. */
function interruptedIn(log: readonly RecordedChange[]): ReadonlySet<string> {
  const found = log.filter(({ state, error }) => state === "failed" && error?.reason === "INTERRUPTED");
  return new Set(found.map((change) => `${instanceKey(change)}#${change.attempt}`));
}

function checkEffects(plan: RandomPlan, { log, state, effects, end }: Simulation, mayCrash: boolean): void {
  for (const [key, times] of effects) {
    const behaviour = plan.behaviours.get(/^s\d+/.exec(key)?.[0] ?? "");
    if (!mayCrash || behaviour?.isRepeatable !== true) assert.equal(times, 1, `${key} was done more than once`);
  }
  for (const instance of state.instances) {
    if (instance.state === "completed" && plan.behaviours.has(instance.stepId))
      assert.ok(effects.has(`${instance.key}#${instance.attempt}`), `${instance.key} completed without being done`);
    assert.ok(!["running", "waiting", "compensating"].includes(instance.state), `${instance.key} is left over`);
    const isUndone = instance.state === "compensated" || instance.state === "compensation_failed";
    const isToUndo = end.state !== "completed" && instance.completedSeq > 0 && instance.step.compensation !== undefined;
    assert.equal(isUndone, isToUndo, `${instance.key} is undone where it should be`);
  }
  const undone = log.filter((change) => change.state === "compensating").map((change) => instanceKey(change));
  const completed = log.filter((change) => change.state === "completed").map((change) => instanceKey(change));
  const places = undone.map((key) => completed.indexOf(key));
  assert.deepEqual(
    places,
    places.toSorted((left, right) => right - left),
    "the last completed is undone first",
  );
}

test("loops within loops have a bound together", () => {
  const leaf = { description: "", dependsOn: [], condition: "", onError: "continue" } as const;
  const loop = (id: string, steps: PlanStep[]): PlanStep => {
    const items = JSON.stringify(Array.from({ length: 200 }, (_, index) => index));
    return { ...leaf, id, details: { kind: "for_each", items, steps, maxConcurrency: 200 } };
  };
  const work: PlanStep = {
    ...leaf,
    id: "work",
    details: { kind: "function_call", function: "work", parameters: "{}" },
  };
  const state = new PlanState([loop("outer", [loop("inner", [work])])], {});
  for (let round = 1; round <= 2; round++) {
    const { actions } = nextPlanSteps(state, { nowMs: 0, busy: new Set(), limit });
    for (const action of actions)
      if (action.type === "record") state.apply({ ...action.change, seq: round, timeMs: 0 });
  }
  const states = [...state.instances].filter(({ stepId }) => stepId === "inner").map((each) => each.state);
  assert.deepEqual([states.indexOf("failed"), states.lastIndexOf("running"), states.length], [48, 47, 200]);
  assert.ok(state.count.totalSteps <= 10_000);
});

for (const [name, crashShare, runs] of [
  ["without crashes", 0, 300],
  ["with crashes between any two events", 0.1, 500],
] as const) {
  test(`random plans come to what the reference interpreter says, ${name}`, () => {
    fc.assert(
      fc.property(fc.integer(), fc.integer(), (planSeed, worldSeed) => {
        const plan = randomPlan(seeded(planSeed));
        const simulation = simulate(plan, seeded(worldSeed), crashShare, 0);
        const { log, state, end } = simulation;
        checkEffects(plan, simulation, crashShare > 0);
        const expected = interpret(plan, interruptedIn(log));
        assert.equal(end.state, expected.hasFailed ? "failed" : "completed");
        if (expected.hasFailed) {
          assert.notEqual(end.failedStepId, "");
          return;
        }
        assert.deepEqual(state.valueOfList({ steps: plan.steps, itemPath: [] }), expected.output);
        const seen = new Map([...state.instances].map((instance) => [instance.key, instance]));
        for (const [key, { state: ended, attempts, value }] of expected.steps) {
          const instance = seen.get(key);
          assert.deepEqual([key, instance?.state, instance?.attempt, instance?.value], [key, ended, attempts, value]);
        }
      }),
      { numRuns: runs },
    );
  });
}

test("a random plan that is cancelled at any time ends, and what completed is undone once", () => {
  fc.assert(
    fc.property(fc.integer(), fc.integer(), (planSeed, worldSeed) => {
      const plan = randomPlan(seeded(planSeed));
      const simulation = simulate(plan, seeded(worldSeed), 0.05, 0.1);
      checkEffects(plan, simulation, true);
      assert.ok(["cancelled", "failed", "completed"].includes(simulation.end.state));
    }),
    { numRuns: 300 },
  );
});
