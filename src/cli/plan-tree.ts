import type { PlanStep } from "../../gen/codeagent/v1/plan_service_pb.ts";
import { oneLine } from "./terminal.ts";

/** One line of the tree of a plan's steps. */
export interface TreeLine {
  /** What leads to it from the left. */
  readonly lead: string;
  /** The step; empty for a case of a branch or a branch of a parallel step. */
  readonly stepId: string;
  readonly text: string;
  /** What it does, for people; may be empty. */
  readonly description: string;
}

const parametersCharacters = 60;
const promptCharacters = 60;

/** The steps of a plan as a tree, in their order: what they are, when they run, and what is within them. */
export function planTree(steps: readonly PlanStep[]): readonly TreeLine[] {
  return linesOf(steps.map(nodeOf), "");
}

/** A step, and all steps within it. */
export function withStepsWithin(step: PlanStep): readonly PlanStep[] {
  return [step, ...listsOf(step).flatMap(({ steps }) => steps.flatMap(withStepsWithin))];
}

interface Node {
  readonly stepId: string;
  readonly text: string;
  readonly description: string;
  readonly children: readonly Node[];
}

function linesOf(nodes: readonly Node[], lead: string): TreeLine[] {
  return nodes.flatMap(({ children, ...node }, index) => {
    const isLast = index === nodes.length - 1;
    const own = { ...node, lead: `${lead}${isLast ? "└─ " : "├─ "}` };
    return [own, ...linesOf(children, `${lead}${isLast ? "   " : "│  "}`)];
  });
}

function nodeOf(step: PlanStep): Node {
  const lists = listsOf(step);
  const [only] = lists;
  const children =
    lists.length === 1 && only?.title === ""
      ? only.steps.map(nodeOf)
      : lists.map(({ title, steps }) => ({
          stepId: "",
          text: title,
          description: "",
          children: steps.map(nodeOf),
        }));
  const text = [`${step.id}: ${whatOf(step)}`, ...conditionsOf(step)].join(", ");
  return { stepId: step.id, text, description: oneLine(step.description, 100), children };
}

function whatOf({ kind, function: name, parameters, details }: PlanStep): string {
  switch (details.case) {
    case "userInput":
      return `user_input ${JSON.stringify(oneLine(details.value.prompt, promptCharacters))}`;
    case "branch":
      return "branch";
    case "forEach": {
      const { items, maxConcurrency = 1 } = details.value;
      return `for_each ${shownJson(items)}${maxConcurrency > 1 ? `, ${maxConcurrency} at a time` : ""}`;
    }
    case "parallel":
      return `parallel, ${details.value.maxConcurrency ?? 4} at a time`;
    case "model": {
      const { model, prompt } = details.value;
      const asked = JSON.stringify(oneLine(prompt, promptCharacters));
      return `model ${model === "" ? "" : `${model} `}${asked}`;
    }
    case "subPlan": {
      const { planId, version } = details.value;
      return `sub_plan ${planId}${version === undefined ? "" : ` version ${version}`}`;
    }
    default: {
      const given = shownJson(parameters);
      return `${kind || "function_call"} ${name}${given === "" || given === "{}" ? "" : ` ${given}`}`;
    }
  }
}

function conditionsOf({ dependsOn, condition, retry, onError, compensation, timeoutMs }: PlanStep): string[] {
  return [
    ...(dependsOn.length === 0 ? [] : [`after ${dependsOn.join(" and ")}`]),
    ...(condition === "" ? [] : [`if ${oneLine(condition, 100)}`]),
    ...(retry === undefined ? [] : [`tried ${retry.maxAttempts ?? 3} times`]),
    ...(timeoutMs === undefined ? [] : [`at most ${timeoutMs} ms`]),
    ...(onError === "" || onError === "fail" ? [] : [`on error ${onError}`]),
    ...(compensation === undefined ? [] : [`undone by ${compensation.function}`]),
  ];
}

/** The lists of steps within a step; a title where there can be more than one. */
function listsOf({ details }: PlanStep): readonly { readonly title: string; readonly steps: readonly PlanStep[] }[] {
  switch (details.case) {
    case "branch": {
      const { cases, otherwise } = details.value;
      const titled = cases.map(({ condition, steps }) => ({ title: `if ${oneLine(condition, 100)}`, steps }));
      return otherwise.length === 0 ? titled : [...titled, { title: "otherwise", steps: otherwise }];
    }
    case "forEach":
      return [{ title: "", steps: details.value.steps }];
    case "parallel":
      return details.value.branches.map(({ name, steps }, index) => ({
        title: `beside: ${name === "" ? index + 1 : oneLine(name, promptCharacters)}`,
        steps,
      }));
    default:
      return [];
  }
}

/** JSON text on one line, a reference as its path. */
function shownJson(text: string): string {
  const paths = text.replace(/\{\s*"ref"\s*:\s*"((?:[^"\\]|\\.)*)"\s*\}/g, "$1");
  return oneLine(paths, parametersCharacters);
}
