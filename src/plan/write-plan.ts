import { AgentError } from "../chat/error.ts";
import type { Message } from "../chat/message.ts";
import type { PlanDraft, PlanProblem } from "../chat/plan.ts";
import type { Budget } from "../chat/request.ts";
import { addUsage, type Usage } from "../chat/usage.ts";
import { type AskMeans, askModel } from "../session/ask-model.ts";
import { type SpentBudget, spentOf } from "../session/budgets.ts";
import type { Model } from "../session/models.ts";
import type { PlanCheck, PlanFunctions } from "./check-plan.ts";
import { offeredFunctions } from "./offered-functions.ts";
import { type PlanAnswer, planFromAnswer, planSchema } from "./plan-schema.ts";
import { plannerPrompt } from "./planner-prompt.ts";

/** What a plan is wanted for. */
export interface PlanWish {
  readonly requirement: string;
  /** What the model should know besides; may be empty. */
  readonly context: string;
  /** The plan to be changed, as the model's own form has it, and how; absent for a new one. */
  readonly change?: { readonly current: string; readonly feedback: string };
  /** Names of functions that are shown to the model in any case. */
  readonly neededFunctions: ReadonlySet<string>;
}

export interface WritePlanOptions {
  readonly models: readonly Model[];
  readonly means: AskMeans;
  /** The functions the plan may call. */
  readonly functions: PlanFunctions;
  check(draft: PlanDraft): Promise<PlanCheck>;
  /** Times the model is told what is wrong and asked again. */
  readonly maxRepairs: number;
  readonly budget: Budget | undefined;
  /** Longest time for all of it, in milliseconds. */
  readonly maxDurationMs: number;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

export interface WrittenPlan extends PlanCheck {
  readonly draft: PlanDraft;
  /** Of all tries. */
  readonly usage: Usage | undefined;
  /** Who wrote it, as `provider/model`. */
  readonly model: string;
}

/** Longest list of what is wrong that a model is told at once. */
const mostTold = 40;
/** Of an answer that can't be used, the model is shown so much again. */
const mostAnswerCharacters = 100_000;

/**
 * Has a model write a plan and checks it. What is wrong with a plan the model is told, and asked again; of plans that stay
 * wrong the one with the fewest faults comes back with them.
 * @param signal ends it
 * @throws {AgentError} `answer_invalid` where no answer could be read as a plan, `resource_exhausted` where the budget is
 *   used up before there is any plan, what asking a model failed with; the signal's reason.
 */
export async function writePlan(wish: PlanWish, options: WritePlanOptions, signal: AbortSignal): Promise<WrittenPlan> {
  const { models, means, functions, budget, now } = options;
  const startMs = now();
  const maxMs = Math.min(options.maxDurationMs, budget?.maxDurationMs ?? Number.POSITIVE_INFINITY);
  const wanted = [wish.requirement, wish.context, wish.change?.feedback ?? ""].join("\n");
  const offered = offeredFunctions(functions.definitions, wanted, wish.neededFunctions);
  const opening: readonly Message[] = [message("system", plannerPrompt(offered)), message("user", wordsOf(wish))];
  const format = { name: "plan", schema: planSchema({ definitions: offered.shown }) };
  const limit = AbortSignal.timeout(Math.max(1, Math.ceil(maxMs)));
  const ending = AbortSignal.any([signal, limit]);
  let usage: Usage | undefined;
  let best: WrittenPlan | undefined;
  let repair: readonly Message[] = [];
  let fault = "";
  for (let tries = 0; tries <= options.maxRepairs; tries++) {
    const spent = spentOf("plan", budget, usage, now() - startMs);
    if (spent !== undefined) return endedBy(spent);
    const question = { models, messages: [...opening, ...repair], format, limitMs: Math.max(1, Math.ceil(maxMs)) };
    let reply: Awaited<ReturnType<typeof askModel>>;
    try {
      reply = await askModel(question, means, ending);
    } catch (error) {
      signal.throwIfAborted();
      if (!limit.aborted) throw error;
      return endedBy(outOfTime(maxMs));
    }
    if (reply.usage !== undefined) usage = addUsage(usage, reply.usage);
    if (!reply.ok && reply.fault === undefined) {
      if (limit.aborted) return endedBy(outOfTime(maxMs));
      throw reply.error;
    }
    // What doesn't fit the schema is read all the same: that says more precisely what is wrong, or takes it.
    const answer: PlanAnswer =
      reply.ok || reply.value !== undefined
        ? planFromAnswer(reply.value, wish.requirement)
        : { ok: false, faults: [`the answer ${reply.fault}`] };
    let faults: readonly string[];
    if (answer.ok) {
      const written = { draft: answer.draft, ...(await options.check(answer.draft)), usage, model: reply.model };
      const errors = errorsOf(written);
      if (best === undefined || errors.length <= errorsOf(best).length) best = written;
      if (errors.length === 0) return written;
      faults = errors.map(problemWords);
    } else {
      fault = answer.faults.slice(0, 5).join("; ");
      faults = answer.faults;
    }
    // Only the last answer goes along: what was wrong before it is of no use any more.
    repair = [message("assistant", shownAnswer(reply.text)), message("user", repairWords(faults))];
  }
  if (best !== undefined) return { ...best, usage };
  const times = options.maxRepairs === 0 ? "" : ` after being told ${options.maxRepairs} times`;
  throw new AgentError("answer_invalid", `no plan was written${times}: ${fault}`, { detail: { retryable: true } });

  function endedBy({ reason, message }: SpentBudget): WrittenPlan {
    if (best === undefined) throw new AgentError("resource_exhausted", `no plan was written: ${message}`, { reason });
    const problem: PlanProblem = {
      message: `The plan was not repaired any further: ${message}.`,
      severity: "warning",
      stepId: "",
      field: "",
      code: reason,
    };
    return { ...best, problems: [...best.problems, problem], usage };
  }
}

function outOfTime(maxMs: number): SpentBudget {
  return { reason: "BUDGET_DURATION", message: `writing a plan may take ${maxMs} ms, and they are over` };
}

/** Of functions that are missing there is a problem too. */
function errorsOf({ problems }: PlanCheck): readonly PlanProblem[] {
  return problems.filter(({ severity }) => severity === "error");
}

function problemWords({ stepId, field, code, message: words }: PlanProblem): string {
  const place = [stepId === "" ? "the plan" : `step ${stepId}`, ...(field === "" ? [] : [field])].join(", ");
  return `${place}: ${words} (${code})`;
}

function repairWords(faults: readonly string[]): string {
  const told = faults.slice(0, mostTold).map((fault, index) => `${index + 1}. ${fault}`);
  const more = faults.length > mostTold ? [`And ${faults.length - mostTold} more of the kind.`] : [];
  return [
    "This plan can't be used yet. What is wrong with it:",
    ...told,
    ...more,
    "Write the whole plan again with all of this put right, and nothing but the JSON.",
  ].join("\n");
}

function shownAnswer(text: string): string {
  if (text.trim() === "") return "(an empty answer)";
  return text.length <= mostAnswerCharacters ? text : `${text.slice(0, mostAnswerCharacters).toWellFormed()}…`;
}

function wordsOf({ requirement, context, change }: PlanWish): string {
  const parts = [`<requirement>\n${requirement}\n</requirement>`];
  if (context !== "") parts.push(`<context>\n${context}\n</context>`);
  if (change === undefined) return [...parts, "Write the plan."].join("\n\n");
  parts.push(`<current_plan>\n${change.current}\n</current_plan>`, `<feedback>\n${change.feedback}\n</feedback>`);
  return [...parts, "Write the whole plan anew, changed as the feedback asks; leave all else as it is."].join("\n\n");
}

function message(role: "system" | "user" | "assistant", text: string): Message {
  return { role, blocks: [{ type: "text", text }] };
}
