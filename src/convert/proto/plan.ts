import { create, fromJsonString, type MessageInitShape, toJsonString } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type {
  Plan,
  PlanBranch,
  PlanBranchCaseSchema,
  PlanCompensationSchema,
  PlanForEach,
  PlanModelCall,
  PlanParallel,
  PlanRetrySchema,
  PlanStepSchema,
  PlanCompensation as ProtoPlanCompensation,
  PlanRetry as ProtoPlanRetry,
  PlanStep as ProtoPlanStep,
} from "../../../gen/codeagent/v1/plan_service_pb.ts";
import { PlanSchema } from "../../../gen/codeagent/v1/plan_service_pb.ts";
import { invalidField } from "../../chat/error.ts";
import {
  onErrorPolicies,
  type PlanCompensation,
  type PlanDraft,
  type PlanRetry,
  type PlanStep,
  type PlanStepDetails,
  type PlanVersion,
  planComplexities,
  planStepKinds,
} from "../../chat/plan.ts";
import { present } from "../present.ts";
import { readStored } from "./error.ts";
import { checkStrings, countFromProto, integerToProto, type Source, timeFromProto, wordFromProto } from "./field.ts";
import { usageFromProto, usageToProto } from "./usage.ts";

/** How large a plan may be that somebody hands in. */
export const planLimits = {
  /** Steps, nested ones included. */
  steps: 500,
  /** Lists of steps within each other: the plan's own is the first. */
  nesting: 8,
  /** Bytes of each text, JSON or not. */
  textBytes: 64 * 1024,
  /** Success criteria, cases of a branch, branches of a parallel step: each at most as many. */
  listItems: 100,
  maxAttempts: 20,
  /** One hour. */
  delayMs: 3_600_000,
  backoffFactor: 100,
  /** One day. */
  maxDelayMs: 86_400_000,
  /** 30 days. */
  timeoutMs: 30 * 86_400_000,
  concurrency: 64,
} as const;

const severities = ["error", "warning"] as const;

/** What only the newest execution of a plan knows. */
export interface PlanStanding {
  readonly state: string;
  /** Empty where there is none. */
  readonly executionId: string;
}

/**
 * Reads what people and models write of a plan; what the server fills in is left aside.
 * @param path where the plan stands in its request, as in `plan`; empty for the request itself
 * @throws {AgentError} `invalid_request` with the path of the field that is wrong, as in
 * `plan.steps[2].for_each.steps[0].condition`.
 */
export function planDraftFromProto(plan: Plan, path: string, source: Source = "client"): PlanDraft {
  const at = (field: string) => (path === "" ? field : `${path}.${field}`);
  if (source === "client") checkStrings(PlanSchema, plan, path);
  const reader = new StepReader(source);
  reader.text(plan.goal, at("goal"));
  reader.text(plan.requirement, at("requirement"));
  reader.text(plan.inputSchema, at("input_schema"));
  reader.items(plan.successCriteria, at("success_criteria"));
  for (const [index, criterion] of plan.successCriteria.entries()) {
    reader.filled(criterion, at(`success_criteria[${index}]`));
  }
  return {
    goal: plan.goal,
    requirement: plan.requirement,
    successCriteria: [...plan.successCriteria],
    complexity: wordFromProto(plan.complexity || "simple", planComplexities, at("complexity")),
    steps: reader.steps(plan.steps, at("steps"), 1),
    inputSchema: plan.inputSchema,
    metadata: { ...plan.metadata },
  };
}

/** Writes a version of a plan, with what its newest execution says. */
export function planVersionToProto(version: PlanVersion, { state, executionId }: PlanStanding): Plan {
  return create(PlanSchema, {
    ...draftInit(version),
    id: version.planId,
    version: version.version,
    missingFunctions: version.missingFunctions.map((missing) => ({ ...missing, stepIds: [...missing.stepIds] })),
    problems: version.problems.map((problem) => ({ ...problem })),
    state,
    sessionId: version.sessionId,
    executionId,
    usage: version.usage && usageToProto(version.usage),
    model: version.model,
    createTime: timestampFromMs(version.createTimeMs),
    updateTime: timestampFromMs(version.updateTimeMs),
  });
}

/** Writes what people and models write of a plan. */
export function planDraftToProto(draft: PlanDraft): Plan {
  return create(PlanSchema, draftInit(draft));
}

/** A version as the log and the store keep it: JSON text of the contract's `Plan`, without state and execution. */
export function planVersionText(version: PlanVersion): string {
  return toJsonString(PlanSchema, planVersionToProto(version, { state: "", executionId: "" }));
}

/**
 * Reads a version as the log and the store keep it.
 * @throws {AgentError} `data_loss` where the text cannot be read.
 */
export function planVersionFromText(text: string): PlanVersion {
  return readStored("a plan", () =>
    planVersionFromProto(fromJsonString(PlanSchema, text, { ignoreUnknownFields: true })),
  );
}

/** Reads a version a server wrote. */
export function planVersionFromProto(plan: Plan): PlanVersion {
  return {
    ...planDraftFromProto(plan, "", "server"),
    ...present({ usage: plan.usage && usageFromProto(plan.usage) }),
    planId: plan.id,
    version: plan.version,
    sessionId: plan.sessionId,
    missingFunctions: plan.missingFunctions.map(({ name, description, parameters, stepIds }) => ({
      name,
      description,
      parameters,
      stepIds: [...stepIds],
    })),
    problems: plan.problems.map(({ message, severity, stepId, field, code }, index) => ({
      message,
      severity: wordFromProto(severity, severities, `problems[${index}].severity`),
      stepId,
      field,
      code,
    })),
    model: plan.model,
    createTimeMs: timeFromProto(plan.createTime, "create_time") ?? 0,
    updateTimeMs: timeFromProto(plan.updateTime, "update_time") ?? 0,
  };
}

/** Reads the steps of one plan and counts them. What a server wrote is not held to the bounds. */
class StepReader {
  readonly #isStrict: boolean;
  #count = 0;

  constructor(source: Source) {
    this.#isStrict = source === "client";
  }

  steps(steps: readonly ProtoPlanStep[], path: string, depth: number): readonly PlanStep[] {
    if (this.#isStrict && steps.length > 0 && depth > planLimits.nesting)
      throw invalidField(path, `nests steps ${depth} deep; at most ${planLimits.nesting}`);
    return steps.map((step, index) => {
      this.#count += 1;
      if (this.#isStrict && this.#count > planLimits.steps)
        throw invalidField(`${path}[${index}]`, `is one step too many; a plan has at most ${planLimits.steps} in all`);
      return this.#step(step, `${path}[${index}]`, depth);
    });
  }

  /** Refuses a text that is too long. */
  text(value: string, path: string): string {
    const bytes = Buffer.byteLength(value);
    if (this.#isStrict && bytes > planLimits.textBytes)
      throw invalidField(path, `has ${bytes} bytes; at most ${planLimits.textBytes}`);
    return value;
  }

  /** Refuses a text that is empty or too long. */
  filled(value: string, path: string): string {
    if (this.#isStrict && value.trim() === "") throw invalidField(path, "is empty");
    return this.text(value, path);
  }

  items<Item>(list: readonly Item[], path: string): readonly Item[] {
    if (this.#isStrict && list.length > planLimits.listItems)
      throw invalidField(path, `has ${list.length} entries; at most ${planLimits.listItems}`);
    return list;
  }

  #step(step: ProtoPlanStep, path: string, depth: number): PlanStep {
    this.#id(step.id, `${path}.id`);
    for (const [index, id] of step.dependsOn.entries()) this.#id(id, `${path}.depends_on[${index}]`);
    if (this.#isStrict && step.dependsOn.length > planLimits.steps)
      throw invalidField(`${path}.depends_on`, `has ${step.dependsOn.length} entries; at most ${planLimits.steps}`);
    return {
      id: step.id,
      description: this.text(step.description, `${path}.description`),
      dependsOn: [...step.dependsOn],
      condition: this.text(step.condition, `${path}.condition`),
      ...present({
        retry: step.retry && this.#retry(step.retry, `${path}.retry`),
        timeoutMs: this.#inRange(
          countFromProto(step.timeoutMs, `${path}.timeout_ms`),
          1,
          planLimits.timeoutMs,
          `${path}.timeout_ms`,
        ),
        compensation: step.compensation && this.#compensation(step.compensation, `${path}.compensation`),
      }),
      onError: wordFromProto(step.onError || "fail", onErrorPolicies, `${path}.on_error`),
      details: this.#details(step, path, depth),
    };
  }

  #id(id: string, path: string): void {
    if (!this.#isStrict || /^[\w-]{1,64}$/.test(id)) return;
    const problem = id === "" ? "is empty" : `is ${JSON.stringify(id.slice(0, 80))}`;
    throw invalidField(path, `${problem}; an id has 1 to 64 of A-Z a-z 0-9 _ -`);
  }

  #retry(retry: ProtoPlanRetry, path: string): PlanRetry {
    const { maxAttempts, delayMs, backoffFactor, maxDelayMs } = planLimits;
    const delay = countFromProto(retry.delayMs, `${path}.delay_ms`);
    const longest = countFromProto(retry.maxDelayMs, `${path}.max_delay_ms`);
    return present({
      maxAttempts: this.#inRange(retry.maxAttempts, 1, maxAttempts, `${path}.max_attempts`),
      delayMs: this.#inRange(delay, 0, delayMs, `${path}.delay_ms`),
      backoffFactor: this.#inRange(retry.backoffFactor, 1, backoffFactor, `${path}.backoff_factor`),
      maxDelayMs: this.#inRange(longest, 0, maxDelayMs, `${path}.max_delay_ms`),
    });
  }

  #compensation(compensation: ProtoPlanCompensation, path: string): PlanCompensation {
    return {
      function: this.filled(compensation.function, `${path}.function`),
      parameters: this.text(compensation.parameters, `${path}.parameters`),
      description: this.text(compensation.description, `${path}.description`),
    };
  }

  #details(step: ProtoPlanStep, path: string, depth: number): PlanStepDetails {
    const kind = wordFromProto(step.kind, planStepKinds, `${path}.kind`);
    const { details } = step;
    if (this.#isStrict && kind !== "function_call") {
      if (step.function !== "")
        throw invalidField(`${path}.function`, `is for steps of kind function_call, not ${kind}`);
      if (step.parameters !== "")
        throw invalidField(`${path}.parameters`, `is for steps of kind function_call, not ${kind}`);
    }
    const given = details.case === undefined ? undefined : detailFields[details.case];
    if (given !== undefined && given !== kind)
      throw invalidField(`${path}.${given}`, `is for steps of kind ${given}; this one is a ${kind}`);
    if (kind === "function_call") {
      return {
        kind,
        function: this.filled(step.function, `${path}.function`),
        parameters: this.text(step.parameters, `${path}.parameters`),
      };
    }
    const at = `${path}.${kind}`;
    switch (details.case) {
      case "userInput": {
        const { prompt, schema } = details.value;
        return {
          kind: "user_input",
          prompt: this.filled(prompt, `${at}.prompt`),
          schema: this.text(schema, `${at}.schema`),
        };
      }
      case "branch":
        return this.#branch(details.value, at, depth);
      case "forEach":
        return this.#forEach(details.value, at, depth);
      case "parallel":
        return this.#parallel(details.value, at, depth);
      case "model":
        return this.#model(details.value, at);
      case "subPlan": {
        const { planId, version, input } = details.value;
        return {
          kind: "sub_plan",
          planId: this.filled(planId, `${at}.plan_id`),
          ...present({ version: this.#inRange(version, 1, 0xffff_ffff, `${at}.version`) }),
          input: this.text(input, `${at}.input`),
        };
      }
      case undefined:
        throw invalidField(at, `is missing; a step of kind ${kind} needs it`);
      default:
        return details satisfies never;
    }
  }

  #branch({ cases, otherwise }: PlanBranch, path: string, depth: number): PlanStepDetails {
    this.items(cases, `${path}.cases`);
    if (this.#isStrict && cases.length === 0)
      throw invalidField(`${path}.cases`, "is empty; a branch has at least one");
    return {
      kind: "branch",
      cases: cases.map(({ condition, steps }, index) => ({
        condition: this.filled(condition, `${path}.cases[${index}].condition`),
        steps: this.steps(steps, `${path}.cases[${index}].steps`, depth + 1),
      })),
      otherwise: this.steps(otherwise, `${path}.otherwise`, depth + 1),
    };
  }

  #forEach({ items, steps, maxConcurrency }: PlanForEach, path: string, depth: number): PlanStepDetails {
    return {
      kind: "for_each",
      items: this.filled(items, `${path}.items`),
      steps: this.steps(steps, `${path}.steps`, depth + 1),
      ...present({ maxConcurrency: this.#concurrency(maxConcurrency, path) }),
    };
  }

  #parallel({ branches, maxConcurrency }: PlanParallel, path: string, depth: number): PlanStepDetails {
    this.items(branches, `${path}.branches`);
    return {
      kind: "parallel",
      branches: branches.map(({ name, steps }, index) => ({
        name: this.text(name, `${path}.branches[${index}].name`),
        steps: this.steps(steps, `${path}.branches[${index}].steps`, depth + 1),
      })),
      ...present({ maxConcurrency: this.#concurrency(maxConcurrency, path) }),
    };
  }

  #model({ prompt, systemPrompt, model, schema, maxTokens }: PlanModelCall, path: string): PlanStepDetails {
    const tokens = countFromProto(maxTokens, `${path}.max_tokens`);
    return {
      kind: "model",
      prompt: this.filled(prompt, `${path}.prompt`),
      systemPrompt: this.text(systemPrompt, `${path}.system_prompt`),
      model: this.text(model, `${path}.model`),
      schema: this.text(schema, `${path}.schema`),
      ...present({ maxTokens: this.#inRange(tokens, 1, Number.MAX_SAFE_INTEGER, `${path}.max_tokens`) }),
    };
  }

  #concurrency(value: number | undefined, path: string): number | undefined {
    return this.#inRange(value, 1, planLimits.concurrency, `${path}.max_concurrency`);
  }

  /** Absent stays absent. */
  #inRange(value: number | undefined, least: number, most: number, path: string): number | undefined {
    if (value === undefined || !this.#isStrict || (value >= least && value <= most)) return value;
    throw invalidField(path, `is ${value}; must lie within ${least} and ${most}`);
  }
}

const detailFields = {
  userInput: "user_input",
  branch: "branch",
  forEach: "for_each",
  parallel: "parallel",
  model: "model",
  subPlan: "sub_plan",
} as const satisfies Record<NonNullable<ProtoPlanStep["details"]["case"]>, PlanStepDetails["kind"]>;

function draftInit(draft: PlanDraft) {
  return {
    goal: draft.goal,
    requirement: draft.requirement,
    successCriteria: [...draft.successCriteria],
    complexity: draft.complexity,
    steps: draft.steps.map(stepToProto),
    inputSchema: draft.inputSchema,
    metadata: { ...draft.metadata },
  };
}

function stepToProto(step: PlanStep): MessageInitShape<typeof PlanStepSchema> {
  const { details } = step;
  return {
    id: step.id,
    kind: details.kind,
    description: step.description,
    dependsOn: [...step.dependsOn],
    condition: step.condition,
    retry: step.retry && retryToProto(step.retry),
    timeoutMs: integerToProto(step.timeoutMs),
    onError: step.onError,
    compensation: step.compensation && compensationToProto(step.compensation),
    ...detailsToProto(details),
  };
}

function retryToProto({
  maxAttempts,
  delayMs,
  backoffFactor,
  maxDelayMs,
}: PlanRetry): MessageInitShape<typeof PlanRetrySchema> {
  return { maxAttempts, delayMs: integerToProto(delayMs), backoffFactor, maxDelayMs: integerToProto(maxDelayMs) };
}

function compensationToProto(compensation: PlanCompensation): MessageInitShape<typeof PlanCompensationSchema> {
  return { ...compensation };
}

type DetailsInit = Pick<MessageInitShape<typeof PlanStepSchema>, "function" | "parameters" | "details">;

function detailsToProto(details: PlanStepDetails): DetailsInit {
  switch (details.kind) {
    case "function_call":
      return { function: details.function, parameters: details.parameters };
    case "user_input":
      return { details: { case: "userInput", value: { prompt: details.prompt, schema: details.schema } } };
    case "branch": {
      const cases: MessageInitShape<typeof PlanBranchCaseSchema>[] = details.cases.map(({ condition, steps }) => ({
        condition,
        steps: steps.map(stepToProto),
      }));
      return { details: { case: "branch", value: { cases, otherwise: details.otherwise.map(stepToProto) } } };
    }
    case "for_each": {
      const { items, steps, maxConcurrency } = details;
      return { details: { case: "forEach", value: { items, steps: steps.map(stepToProto), maxConcurrency } } };
    }
    case "parallel": {
      const branches = details.branches.map(({ name, steps }) => ({ name, steps: steps.map(stepToProto) }));
      return { details: { case: "parallel", value: { branches, maxConcurrency: details.maxConcurrency } } };
    }
    case "model": {
      const { prompt, systemPrompt, model, schema, maxTokens } = details;
      const value = { prompt, systemPrompt, model, schema, maxTokens: integerToProto(maxTokens) };
      return { details: { case: "model", value } };
    }
    case "sub_plan": {
      const { planId, version, input } = details;
      return { details: { case: "subPlan", value: { planId, version, input } } };
    }
    default:
      return details satisfies never;
  }
}
