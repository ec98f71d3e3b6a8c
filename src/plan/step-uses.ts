import type { PlanStep } from "../chat/plan.ts";
import { inputsNamedIn, stepsNamedIn } from "./expression.ts";
import { PlanValueError } from "./plan-scope.ts";
import { type Reference, type ReferencesFound, referencesIn, referencesInText } from "./references.ts";

/** A field of a step that takes values from elsewhere. */
export interface StepUse {
  /** Path of the field, like `parameters` or `branch.cases[0].condition`. */
  readonly field: string;
  readonly stepIds: readonly string[];
  /** Members of the execution's input. */
  readonly inputs: readonly string[];
  /** It takes the item or the index of a `for_each`; of conditions it is not known. */
  readonly usesItem: boolean;
  /** Sentences about references that can't be read. */
  readonly faults: readonly string[];
}

/** Steps don't change, so each is looked through once. */
const known = new WeakMap<PlanStep, readonly StepUse[]>();

/** What a step's own fields take from elsewhere; not what the steps within it do. */
export function usesOf(step: PlanStep): readonly StepUse[] {
  const before = known.get(step);
  if (before !== undefined) return before;
  const uses = found(step);
  known.set(step, uses);
  return uses;
}

function found({ condition, compensation, details }: PlanStep): readonly StepUse[] {
  const uses: StepUse[] = [ofCondition("condition", condition)];
  if (compensation !== undefined) uses.push(ofJson("compensation.parameters", compensation.parameters));
  switch (details.kind) {
    case "function_call":
      uses.push(ofJson("parameters", details.parameters));
      break;
    case "user_input":
      uses.push(ofText("user_input.prompt", details.prompt));
      break;
    case "branch":
      for (const [index, branch] of details.cases.entries())
        uses.push(ofCondition(`branch.cases[${index}].condition`, branch.condition));
      break;
    case "for_each":
      uses.push(ofJson("for_each.items", details.items));
      break;
    case "parallel":
      break;
    case "model":
      uses.push(ofText("model.prompt", details.prompt), ofText("model.system_prompt", details.systemPrompt));
      break;
    case "sub_plan":
      uses.push(ofJson("sub_plan.input", details.input));
      break;
    default:
      details satisfies never;
  }
  return uses;
}

function ofCondition(field: string, text: string): StepUse {
  return { field, stepIds: stepsNamedIn(text), inputs: inputsNamedIn(text), usesItem: false, faults: [] };
}

function ofText(field: string, text: string): StepUse {
  return ofReferences(field, referencesInText(text));
}

/** A text that is no JSON has no references; what is wrong with it is told elsewhere. */
function ofJson(field: string, text: string): StepUse {
  try {
    return ofReferences(field, referencesIn(text));
  } catch (error) {
    if (error instanceof PlanValueError) return ofReferences(field, { references: [], faults: [] });
    throw error;
  }
}

function ofReferences(field: string, { references, faults }: ReferencesFound): StepUse {
  return {
    field,
    stepIds: [...new Set(references.filter(({ root }) => root === "step").map(({ stepId }) => stepId))],
    inputs: [...new Set(references.flatMap(inputOf))],
    usesItem: references.some(({ root }) => root === "item" || root === "index"),
    faults,
  };
}

function inputOf({ root, path }: Reference): readonly string[] {
  const [name] = path;
  return root === "input" && typeof name === "string" ? [name] : [];
}

/** The lists of steps within a step, and what a path to them begins with. */
export function listsWithin({
  details,
}: PlanStep): readonly { readonly field: string; readonly steps: readonly PlanStep[] }[] {
  switch (details.kind) {
    case "branch":
      return [
        ...details.cases.map(({ steps }, index) => ({ field: `branch.cases[${index}].steps`, steps })),
        { field: "branch.otherwise", steps: details.otherwise },
      ];
    case "for_each":
      return [{ field: "for_each.steps", steps: details.steps }];
    case "parallel":
      return details.branches.map(({ steps }, index) => ({ field: `parallel.branches[${index}].steps`, steps }));
    case "function_call":
    case "user_input":
    case "model":
    case "sub_plan":
      return [];
    default:
      return details satisfies never;
  }
}

/** Ids of all steps that a step and the steps within it take values from. */
export function stepsUsedWithin(step: PlanStep): ReadonlySet<string> {
  const ids = new Set(usesOf(step).flatMap(({ stepIds }) => stepIds));
  for (const { steps } of listsWithin(step))
    for (const inner of steps) for (const id of stepsUsedWithin(inner)) ids.add(id);
  return ids;
}
