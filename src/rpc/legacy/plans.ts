import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import { type CodeAgentService, Complexity, StepStatus } from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { AgentError, invalidField } from "../../chat/error.ts";
import type { PlanComplexity, PlanStepState } from "../../chat/plan.ts";
import { judgeCriterion } from "../../plan/check-goals.ts";
import { extractGoal } from "../../plan/extract-goal.ts";
import { functionsCalled, type PlanView } from "../../plan/plans.ts";
import { stepsWithin } from "../../plan/steps-within.ts";
import { isPruned } from "../../session/follow-log.ts";
import type { Model } from "../../session/models.ts";
import { tooMany } from "../../session/session-errors.ts";
import { theCaller } from "../caller.ts";
import { checkLength, sessionIdFrom } from "../request-fields.ts";
import { serverIsStopping } from "../stopping.ts";
import type { LegacyCore } from "./legacy-core.ts";

/** The response header with the id of the plan: the earlier service's plan has no field for it. */
export const planIdHeader = "x-plan-id";

const maxWords = 100_000;
const maxCriteria = 50;

const complexities = {
  simple: Complexity.SIMPLE,
  medium: Complexity.MEDIUM,
  complex: Complexity.COMPLEX,
  very_complex: Complexity.VERY_COMPLEX,
} satisfies Record<PlanComplexity, Complexity>;

/** What was undone counts as failed: its work is not there. */
const statuses = {
  running: StepStatus.IN_PROGRESS,
  waiting: StepStatus.IN_PROGRESS,
  compensating: StepStatus.IN_PROGRESS,
  completed: StepStatus.COMPLETED,
  failed: StepStatus.FAILED,
  cancelled: StepStatus.FAILED,
  compensated: StepStatus.FAILED,
  compensation_failed: StepStatus.FAILED,
  skipped: StepStatus.SKIPPED,
} satisfies Record<PlanStepState, StepStatus>;

/** Of the earlier service: plans and goals. */
export function legacyPlanHandlers(core: LegacyCore) {
  const { plans, sessions, environment, stopping } = core;
  let asking = 0;
  /** Has the model of a session answer something; the same number of questions at once as of turns. */
  const ask = async <Answer>(
    sessionId: string,
    { signal }: HandlerContext,
    question: (models: readonly Model[], signal: AbortSignal) => Promise<Answer>,
  ): Promise<Answer> => {
    if (sessions.draining || stopping.aborted) throw serverIsStopping("try again");
    const { maxTurnsInFlight } = environment.limits;
    if (asking >= maxTurnsInFlight)
      throw tooMany(`${maxTurnsInFlight} questions about goals are being answered`, "TOO_MANY_QUESTIONS");
    asking++;
    try {
      const { config } = await sessions.get(theCaller, sessionId);
      // The bounds of a session are for its turns: what is asked here is not in its log.
      const { budget: _, ...unbounded } = config;
      const request = { sessionId, messages: [], model: "", options: {}, tools: [], requestId: "" };
      const { model } = await sessions.admit(request, unbounded);
      return await question(environment.models.find(model), AbortSignal.any([signal, stopping]));
    } catch (error) {
      if (stopping.aborted && !signal.aborted) throw serverIsStopping("try again");
      throw error;
    } finally {
      asking--;
    }
  };
  /** How far each step of the newest execution has come. */
  const statesOf = async (executionId: string): Promise<ReadonlyMap<string, PlanStepState>> => {
    const states = new Map<string, PlanStepState>();
    if (executionId === "") return states;
    const log = await sessions.subscribe(theCaller, executionId, 0, false);
    for await (const batch of log.read(AbortSignal.timeout(10_000))) {
      if (isPruned(batch)) continue;
      for (const { event } of batch)
        if (event.type === "plan-step" && event.itemPath.length === 0) states.set(event.stepId, event.state);
    }
    return states;
  };
  const answer = async (view: PlanView, context: HandlerContext) => {
    context.responseHeader.set(planIdHeader, view.version.planId);
    return { plan: planToProto(view, await statesOf(view.executionId)) };
  };
  return {
    async createPlan(request, context) {
      const sessionId = sessionIdFrom(request.sessionId, "session_id");
      checkWords(request.prompt, "prompt");
      checkLength(request.context ?? "", maxWords, "context");
      const view = await plans.create(
        theCaller,
        {
          sessionId,
          requirement: request.prompt,
          context: request.context ?? "",
          ...{ draft: undefined, model: "", allowedFunctions: [], metadata: {}, budget: undefined },
        },
        () => undefined,
        context.signal,
      );
      if (view.version.steps.length > 0) return answer(view, context);
      const [problem] = view.version.problems;
      throw new AgentError(
        "answer_invalid",
        `the model wrote a plan without steps${problem === undefined ? "" : `: ${problem.message}`}; try again`,
        { detail: { retryable: true } },
      );
    },
    async getPlan(request, context) {
      const sessionId = request.sessionId === "" ? "" : sessionIdFrom(request.sessionId, "session_id");
      if (request.planId !== "") {
        const planId = sessionIdFrom(request.planId, "plan_id");
        const view = await plans.get(theCaller, planId, undefined);
        if (sessionId !== "" && view.version.sessionId !== sessionId)
          throw new AgentError("not_found", `session ${sessionId} has no plan ${planId}`, { reason: "PLAN_NOT_FOUND" });
        return answer(view, context);
      }
      if (sessionId === "") throw invalidField("plan_id", "is empty, as is session_id; name one of them");
      const { plans: newest } = await plans.list(theCaller, sessionId, undefined, 1);
      const [view] = newest;
      if (view !== undefined) return answer(view, context);
      await sessions.get(theCaller, sessionId);
      throw new AgentError("not_found", `session ${sessionId} has no plan`, { reason: "PLAN_NOT_FOUND" });
    },
    async extractGoal(request, context) {
      const sessionId = sessionIdFrom(request.sessionId, "session_id");
      checkWords(request.prompt, "prompt");
      const { description, successCriteria } = await ask(sessionId, context, (models, signal) =>
        extractGoal(request.prompt, models, environment, signal),
      );
      return { goal: { description, successCriteria: [...successCriteria], createdAt: BigInt(environment.now()) } };
    },
    async checkGoalAchievement({ sessionId: named, goal, currentState }, context) {
      const sessionId = sessionIdFrom(named, "session_id");
      if (goal === undefined) throw invalidField("goal", "is missing; say what is to be reached");
      const { description, successCriteria } = goal;
      // A goal that names no criteria is one itself.
      const criteria = successCriteria.length === 0 ? [description] : successCriteria;
      if (criteria.length > maxCriteria)
        throw invalidField("goal.success_criteria", `has ${criteria.length} entries; ${maxCriteria} is the most`);
      checkLength(description, maxWords, "goal.description");
      for (const [index, text] of criteria.entries())
        checkWords(text, successCriteria.length === 0 ? "goal.description" : `goal.success_criteria[${index}]`);
      checkLength(currentState, maxWords, "current_state");
      const results = currentState.trim() === "" ? "(nothing is told)" : currentState;
      const remainingCriteria = await ask(sessionId, context, async (models, signal) => {
        const remaining: string[] = [];
        for (const criterion of criteria) {
          const question = { models, goal: description, criterion, results };
          const judged = await judgeCriterion(question, environment, signal);
          if (!judged.ok) throw judged.error;
          if (judged.state !== "met") remaining.push(criterion);
        }
        return remaining;
      });
      const progress = (criteria.length - remainingCriteria.length) / criteria.length;
      return { achieved: remainingCriteria.length === 0, progress, remainingCriteria };
    },
  } satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}

function checkWords(text: string, field: string): void {
  if (text.trim() === "") throw invalidField(field, "is empty; say it in words");
  checkLength(text, maxWords, field);
  if (!text.isWellFormed()) throw invalidField(field, "has half a surrogate pair");
}

/** Steps within steps are counted and not shown: the earlier plan has one level. */
function planToProto({ version }: PlanView, states: ReadonlyMap<string, PlanStepState>) {
  const { goal, steps, complexity } = version;
  const all = stepsWithin(steps);
  return {
    goal,
    steps: steps.map(({ id, description, dependsOn, details }) => {
      const state = states.get(id);
      return {
        id,
        description,
        dependencies: [...dependsOn],
        status: state === undefined ? StepStatus.PENDING : statuses[state],
        ...(details.kind === "function_call" ? { tool: details.function } : {}),
      };
    }),
    complexity: complexities[complexity],
    requiredTools: [...new Set(all.flatMap(functionsCalled))],
    estimatedSteps: all.length,
  };
}
