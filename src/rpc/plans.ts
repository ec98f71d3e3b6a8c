import type { ServiceImpl } from "@connectrpc/connect";
import { type CreatePlanRequest, type Plan, PlanService } from "../../gen/codeagent/v1/plan_service_pb.ts";
import { invalidField } from "../chat/error.ts";
import type { Budget } from "../chat/request.ts";
import { planDraftFromProto, planVersionToProto } from "../convert/proto/plan.ts";
import { budgetFromProto } from "../convert/proto/request.ts";
import type { Plans, PlanView } from "../plan/plans.ts";
import { theCaller } from "./caller.ts";
import type { OnceCalls } from "./once.ts";
import {
  checkLength,
  checkMapLength,
  optionalSessionIdFrom,
  pageSizeFrom,
  pageTokenFor,
  pageTokenFrom,
  sessionIdFrom,
} from "./request-fields.ts";

const maxPage = 1000;
const maxWords = 100_000;
const maxAllowedFunctions = 1000;

/** Plans are made, changed and read. */
export function planHandlers(plans: Plans, once: OnceCalls) {
  /** A call without a request id ends with its caller; with one it goes on, so that the caller can come back for it. */
  const endOf = (requestId: string, signal: AbortSignal) => (requestId === "" ? signal : new AbortController().signal);
  return {
    createPlan(request, context) {
      return once.change(PlanService.method.createPlan, request, async (note) => {
        const asked = newPlanFrom(request);
        const noteView = (view: PlanView) => note(viewToProto(view));
        const signal = endOf(request.requestId, context.signal);
        return viewToProto(await plans.create(theCaller, asked, noteView, signal));
      });
    },
    async getPlan(request) {
      const planId = planIdFrom(request.planId);
      return viewToProto(await plans.get(theCaller, planId, versionFrom(request.version)));
    },
    async listPlans(request) {
      const limit = pageSizeFrom(request.pageSize, 50, maxPage);
      const sessionId = optionalSessionIdFrom(request.sessionId);
      const [createdMs, planId] = pageTokenFrom(request.pageToken) ?? [];
      const before = typeof createdMs === "number" && typeof planId === "string" ? { createdMs, planId } : undefined;
      if (request.pageToken !== "" && before === undefined)
        throw invalidField("page_token", "is not a token of this list; leave it out to begin anew");
      const page = await plans.list(theCaller, sessionId, before, limit);
      return {
        plans: page.plans.map(viewToProto),
        nextPageToken: page.next === undefined ? "" : pageTokenFor([page.next.createdMs, page.next.planId]),
      };
    },
    refinePlan(request, context) {
      return once.change(PlanService.method.refinePlan, request, async (note) => {
        const { feedback, model, plan } = request;
        const planId = planIdFrom(request.planId);
        const version = versionFrom(request.version);
        checkWords(feedback, "feedback");
        checkLength(model, 1000, "model");
        if (plan === undefined && feedback.trim() === "")
          throw invalidField("feedback", "is empty; say what to change, or send the plan as edited");
        if (plan !== undefined && feedback !== "")
          throw invalidField("feedback", "has to be empty when a plan is given: that is taken over as it is");
        const draft = draftFrom(plan);
        const asked = { planId, version, feedback, draft, model, budget: budgetOf(request) };
        const noteView = (view: PlanView) => note(viewToProto(view));
        const signal = endOf(request.requestId, context.signal);
        return viewToProto(await plans.refine(theCaller, asked, noteView, signal));
      });
    },
  } satisfies Partial<ServiceImpl<typeof PlanService>>;
}

function newPlanFrom(request: CreatePlanRequest) {
  const { requirement, context, model, allowedFunctions, metadata, plan } = request;
  const sessionId = optionalSessionIdFrom(request.sessionId);
  checkWords(requirement, "requirement");
  checkWords(context, "context");
  checkLength(model, 1000, "model");
  checkMapLength({ ...plan?.metadata, ...metadata }, 64 * 1024, "metadata");
  if (plan === undefined && requirement.trim() === "")
    throw invalidField("requirement", "is empty; say what is wanted, or send a plan");
  if (allowedFunctions.length > maxAllowedFunctions)
    throw invalidField("allowed_functions", `has ${allowedFunctions.length} names; ${maxAllowedFunctions} is the most`);
  const draft = draftFrom(plan);
  return { sessionId, requirement, context, draft, model, allowedFunctions, metadata, budget: budgetOf(request) };
}

function draftFrom(plan: Plan | undefined) {
  if (plan === undefined) return undefined;
  checkMapLength(plan.metadata, 64 * 1024, "plan.metadata");
  return planDraftFromProto(plan, "plan");
}

function budgetOf({ budget }: Pick<CreatePlanRequest, "budget">): Budget | undefined {
  return budget === undefined ? undefined : budgetFromProto(budget);
}

function checkWords(text: string, field: string): void {
  checkLength(text, maxWords, field);
  if (!text.isWellFormed()) throw invalidField(field, "has half a surrogate pair");
}

function planIdFrom(value: string): string {
  if (value === "") throw invalidField("plan_id", "is empty; name a plan");
  return sessionIdFrom(value, "plan_id");
}

function versionFrom(version: number | undefined): number | undefined {
  if (version === 0) throw invalidField("version", "is 0; versions are counted from 1");
  return version;
}

function viewToProto({ version, state, executionId }: PlanView): Plan {
  return planVersionToProto(version, { state, executionId });
}
