import { type ToolResult, toolFailure } from "../chat/tool-result.ts";
import type { FunctionCall, FunctionContext } from "./function-provider.ts";
import { type LocalFunction, textArgument } from "./local-function.ts";

/** What a model asks for of plans. */
export type PlanCall =
  | { readonly type: "create"; readonly requirement: string; readonly context: string }
  | { readonly type: "update"; readonly planId: string; readonly feedback: string }
  /** `input` is JSON text; empty means `{}`. */
  | { readonly type: "run"; readonly planId: string; readonly input: string };

export const createPlanName = "create_plan";
export const updatePlanName = "update_plan";
export const runPlanName = "run_plan";
/** They are offered where a turn asks for plans, and nowhere else. */
export const planFunctionNames: readonly string[] = [createPlanName, updatePlanName, runPlanName];

/** The turn that a call belongs to ends it, at its own limit of time; this is only for one that has none. */
const longestCallMs = 24 * 3_600_000;
const planId = { type: "string", minLength: 1, maxLength: 200, description: "Id of the plan" };
const words = { type: "string", minLength: 1, maxLength: 100_000 };

/** All that they do is done by others, each call judged there; called again after a crash they find what they began. */
const common = {
  source: "local",
  readOnly: false,
  repeatable: true,
  delegates: true,
  timeoutMs: longestCallMs,
} as const;

const createPlan: LocalFunction = {
  definition: {
    ...common,
    name: createPlanName,
    title: "Make a plan",
    description:
      "Makes a plan for work that takes several steps: another model writes it over the tools there are, and it is " +
      "checked. Steps that do not depend on each other run side by side; there are conditions, loops, questions to people " +
      "and ways to undo. Say all that is wanted: who writes the plan knows nothing of this conversation.",
    parameters: JSON.stringify({
      type: "object",
      properties: {
        requirement: { ...words, description: "What is wanted, in full" },
        context: { ...words, minLength: 0, description: "Facts that help: paths, names, what was found out" },
      },
      required: ["requirement"],
      additionalProperties: false,
    }),
    returns: "JSON: plan_id, version, goal and steps; of a plan that can't run, what is missing or wrong.",
  },
  run: (given, context) =>
    handOver(context, {
      type: "create",
      requirement: textArgument(given, "requirement") ?? "",
      context: textArgument(given, "context") ?? "",
    }),
};

const updatePlan: LocalFunction = {
  definition: {
    ...common,
    name: updatePlanName,
    title: "Change a plan",
    description:
      "Has the next version of a plan written, with what is to be different. What ran already stays as it is.",
    parameters: JSON.stringify({
      type: "object",
      properties: { plan_id: planId, feedback: { ...words, description: "What to change" } },
      required: ["plan_id", "feedback"],
      additionalProperties: false,
    }),
    returns: "As create_plan.",
  },
  run: (given, context) =>
    handOver(context, {
      type: "update",
      planId: textArgument(given, "plan_id") ?? "",
      feedback: textArgument(given, "feedback") ?? "",
    }),
};

const runPlan: LocalFunction = {
  definition: {
    ...common,
    name: runPlanName,
    title: "Run a plan",
    description:
      "Runs the newest version of a plan to its end. Its steps may ask people; that is waited for. Each call runs it anew.",
    parameters: JSON.stringify({
      type: "object",
      properties: {
        plan_id: planId,
        input: { type: "object", description: "The values the plan asks for, if it does" },
      },
      required: ["plan_id"],
      additionalProperties: false,
    }),
    returns: "JSON: state, output of the last step, the step that failed, and what became of each success criterion.",
  },
  run: (given, context) =>
    handOver(context, { type: "run", planId: textArgument(given, "plan_id") ?? "", input: inputText(given) }),
};

/** Make, change and run plans, where the turn that calls them can. */
export const planFunctions: readonly LocalFunction[] = [createPlan, updatePlan, runPlan];

function inputText({ input }: FunctionCall["arguments"]): string {
  return input === undefined ? "" : JSON.stringify(input);
}

async function handOver({ callPlan, signal, onOutput }: FunctionContext, call: PlanCall): Promise<ToolResult> {
  if (callPlan === undefined) return toolFailure("plans are made and run inside the turn of a session only");
  return callPlan(call, { signal, ...(onOutput === undefined ? {} : { onOutput }) });
}
