import type { ModelOptions, ToolDefinition } from "../chat/request.ts";
import { createPlanName, planFunctionNames, runPlanName } from "../tool/plan-functions.ts";
import type { TurnState } from "./state.ts";

/** Whether a function may be called in a turn as far as its strategy goes. */
export function fitsStrategy({ options }: Pick<TurnState, "options">, name: string): boolean {
  return !planFunctionNames.includes(name) || (options.strategy ?? "direct") !== "direct";
}

/** Whether a turn may call a function: its strategy says so of the functions for plans, `allowed_tools` of all others. */
export function mayCall(turn: Pick<TurnState, "options">, name: string): boolean {
  if (planFunctionNames.includes(name)) return fitsStrategy(turn, name);
  return turn.options.allowedTools?.includes(name) ?? true;
}

/** What a planned turn has to do next; undefined once it may do what it likes. */
export function plannedCall({ options, planning }: Pick<TurnState, "options" | "planning">): string | undefined {
  if (options.strategy !== "planned" || planning === "over") return undefined;
  return planning === "none" ? createPlanName : runPlanName;
}

/** The functions of a model call, and how it is made: while a turn has to plan there is nothing else to call. */
export function withStrategy(
  turn: Pick<TurnState, "options" | "planning">,
  tools: readonly ToolDefinition[],
  options: ModelOptions,
): { readonly tools: readonly ToolDefinition[]; readonly options: ModelOptions } {
  const wanted = plannedCall(turn);
  const only = tools.filter(({ name }) => name === wanted);
  if (wanted === undefined || only.length === 0) return { tools, options };
  // Whoever thinks can't be forced; there is nothing else to call, and the prompt says so.
  const { thinking } = options;
  const thinks = thinking !== undefined && thinking.enabled !== false;
  return { tools: only, options: { ...options, toolChoice: thinks ? "auto" : wanted } };
}

/** What the strategy of a turn adds to its system prompt; empty for `direct`. The same for each of its model calls. */
export function strategyPrompt({ options }: Pick<TurnState, "options">): string {
  switch (options.strategy) {
    case "planned":
      return "This turn is planned. First call create_plan with all that is wanted, then run_plan with the id of the plan, and then answer from what it came to. Where no plan can be made or it fails, go on with the other tools, and say so.";
    case "auto":
      return "You can make plans: with create_plan, update_plan and run_plan. A plan is worth it for work of several steps that can be named beforehand, above all where they run side by side, loop over a list, ask people or have to be undone when something fails. For everything else use the other tools directly.";
    default:
      return "";
  }
}
