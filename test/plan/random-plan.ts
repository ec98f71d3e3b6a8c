import type { OnErrorPolicy, PlanStep, PlanStepDetails } from "../../src/chat/plan.ts";

/** How a step that does something itself behaves in the simulated world. */
export interface Behaviour {
  /** Attempts that fail before one works. */
  readonly failures: number;
  readonly isRepeatable: boolean;
  /** The step before it in its list that it takes a value from. */
  readonly from: string | undefined;
  readonly inLoop: boolean;
  /** What it is given, with references. */
  readonly parameters: string;
}

export interface RandomPlan {
  readonly steps: readonly PlanStep[];
  readonly behaviours: ReadonlyMap<string, Behaviour>;
}

type Random = () => number;

/** A plan of all kinds of steps, the same for the same random numbers. */
export function randomPlan(random: Random): RandomPlan {
  const behaviours = new Map<string, Behaviour>();
  let left = 14;
  let count = 0;
  const below = (most: number) => Math.floor(random() * most);
  const oneOf = <Item>(items: readonly [Item, ...Item[]]): Item => items[below(items.length)] ?? items[0];
  const chance = (share: number) => random() < share;

  function list(depth: number, inLoop: boolean): PlanStep[] {
    const steps: PlanStep[] = [];
    const length = 1 + below(depth === 0 ? 5 : 3);
    for (let index = 0; index < length && left > 0; index++) steps.push(step(steps, depth, inLoop));
    return steps;
  }

  function step(before: readonly PlanStep[], depth: number, inLoop: boolean): PlanStep {
    left--;
    const id = `s${++count}`;
    const earlier = before.map((each) => each.id);
    const from = earlier.length > 0 && chance(0.4) ? earlier[below(earlier.length)] : undefined;
    const dependsOn = earlier.filter((each) => each === from || chance(0.3));
    const other = dependsOn[0];
    const condition =
      other === undefined || chance(0.6)
        ? oneOf(["", "", "", "true", "1 > 2"])
        : oneOf([`step.${other}.result == null`, `step.${other}.result != null`]);
    const isLeaf = depth >= 3 || chance(0.6);
    const details = isLeaf ? leaf(id, from, inLoop) : composite(depth, inLoop);
    return {
      id,
      description: "",
      dependsOn,
      condition,
      onError: oneOf<OnErrorPolicy>(["fail", "continue", "skip", "continue"]),
      details,
      ...(isLeaf && chance(0.4) ? { retry: { maxAttempts: 1 + below(3), delayMs: below(50) } } : {}),
      ...(isLeaf && chance(0.4) ? { compensation: { function: "undo", parameters: "{}", description: "" } } : {}),
    };
  }

  function leaf(id: string, from: string | undefined, inLoop: boolean): PlanStepDetails {
    const parameters = JSON.stringify({
      from: from === undefined ? null : { ref: `step.${from}.result` },
      ...(inLoop ? { item: { ref: "item" } } : {}),
    });
    behaviours.set(id, {
      failures: chance(0.7) ? 0 : 1 + below(3),
      isRepeatable: chance(0.5),
      from,
      inLoop,
      parameters,
    });
    switch (oneOf(["function_call", "function_call", "user_input", "model", "sub_plan"])) {
      case "user_input":
        return { kind: "user_input", prompt: "which?", schema: '{"type":"object"}' };
      case "model":
        return { kind: "model", prompt: "why?", systemPrompt: "", model: "", schema: "" };
      case "sub_plan":
        return { kind: "sub_plan", planId: "other", input: parameters };
      default:
        return { kind: "function_call", function: "work", parameters };
    }
  }

  function composite(depth: number, inLoop: boolean): PlanStepDetails {
    switch (oneOf(["branch", "for_each", "parallel"])) {
      case "branch":
        return {
          kind: "branch",
          cases: [
            { condition: oneOf(["true", "1 > 2", "input.yes"]), steps: list(depth + 1, inLoop) },
            { condition: oneOf(["true", "1 > 2"]), steps: list(depth + 1, inLoop) },
          ],
          otherwise: chance(0.5) ? list(depth + 1, inLoop) : [],
        };
      case "for_each":
        return {
          kind: "for_each",
          items: JSON.stringify(Array.from({ length: below(4) }, (_, index) => index * 10)),
          steps: list(depth + 1, true),
          maxConcurrency: 1 + below(3),
        };
      default:
        return {
          kind: "parallel",
          branches: Array.from({ length: 1 + below(3) }, (_, index) => ({
            name: `b${index}`,
            steps: list(depth + 1, inLoop),
          })),
          maxConcurrency: 1 + below(3),
        };
    }
  }

  return { steps: list(0, false), behaviours };
}
