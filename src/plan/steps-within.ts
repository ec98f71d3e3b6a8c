import type { PlanStep } from "../chat/plan.ts";

/** All steps of a list, those within other steps included, in the order they stand. */
export function stepsWithin(steps: readonly PlanStep[]): readonly PlanStep[] {
  return steps.flatMap((step) => [step, ...stepsWithin(ownSteps(step))]);
}

function ownSteps({ details }: PlanStep): readonly PlanStep[] {
  switch (details.kind) {
    case "branch":
      return [...details.cases.flatMap(({ steps }) => steps), ...details.otherwise];
    case "for_each":
      return details.steps;
    case "parallel":
      return details.branches.flatMap(({ steps }) => steps);
    default:
      return [];
  }
}
