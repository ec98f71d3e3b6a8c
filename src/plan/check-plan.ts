import type { MissingFunction, PlanDraft, PlanProblem, PlanStep } from "../chat/plan.ts";
import { checkValue, isRecord, schemaFault } from "../tool/check-value.ts";
import type { FunctionDefinition } from "../tool/function-provider.ts";
import { nearNames } from "../tool/near-names.ts";
import { inexactNumberIn, parseExactJson } from "./exact-json.ts";
import { checkCondition } from "./expression.ts";
import { referenceTextOf } from "./references.ts";
import { listsWithin, type StepUse, stepsUsedWithin, usesOf } from "./step-uses.ts";

/** The functions a plan may call. A `FunctionIndex` is one. */
export interface PlanFunctions {
  readonly definitions: readonly FunctionDefinition[];
  find(name: string): { readonly definition: FunctionDefinition } | undefined;
}

/** What a plan is checked against. */
export interface PlanCheckContext {
  readonly functions: PlanFunctions;
  /** Reads another plan, the newest version where none is named. */
  plans(planId: string, version?: number): Promise<CheckedPlan | undefined>;
  /** Id of the plan itself, where it has one already. */
  readonly planId?: string;
}

/** What the check reads of another plan. */
export type CheckedPlan = Pick<PlanDraft, "steps" | "inputSchema"> & { readonly planId: string };

export interface PlanCheck {
  readonly missingFunctions: readonly MissingFunction[];
  /** Errors first. */
  readonly problems: readonly PlanProblem[];
}

/** Plans that one plan may reach over others. */
const maxReachedPlans = 100;
/** More than these help nobody. */
const maxProblems = 100;

/** Checks all that can be known of a plan before it runs. It can run when nothing is missing and no problem is an error. */
export async function checkPlan(draft: PlanDraft, context: PlanCheckContext): Promise<PlanCheck> {
  const check = new Check(draft, context);
  return check.run();
}

/** Whether a plan may run that was checked so. */
export function isRunnable({ missingFunctions, problems }: PlanCheck): boolean {
  return missingFunctions.length === 0 && problems.every(({ severity }) => severity !== "error");
}

/**
 * What each step of one list waits for, ids of the same list only: its `depends_on`, and the steps that it or a step
 * within it refers to.
 */
export function orderOf(steps: readonly PlanStep[]): ReadonlyMap<string, readonly string[]> {
  const ids = new Set(steps.map(({ id }) => id));
  return new Map(
    steps.map((step) => {
      const before = new Set([...step.dependsOn, ...stepsUsedWithin(step)].filter((id) => ids.has(id)));
      before.delete(step.id);
      return [step.id, [...before]];
    }),
  );
}

/** Where a step stands: which steps it can see. */
interface Place {
  /** Steps of the list it is in. */
  readonly ids: ReadonlySet<string>;
  /** The step, or the one it is within. */
  readonly step: PlanStep;
  /** That of the step it is within. */
  readonly outer: Place | undefined;
  readonly inForEach: boolean;
}

class Check {
  readonly #draft: PlanDraft;
  readonly #context: PlanCheckContext;
  readonly #problems: PlanProblem[] = [];
  readonly #missing = new Map<string, { definition: MissingFunction; readonly stepIds: string[] }>();
  /** Ids of all steps, each with those of the steps it is within, outermost first. */
  readonly #outerIds = new Map<string, readonly string[]>();
  /** Names an execution's input may have; undefined where any may be. */
  #inputs: ReadonlySet<string> | undefined;

  constructor(draft: PlanDraft, context: PlanCheckContext) {
    this.#draft = draft;
    this.#context = context;
  }

  async run(): Promise<PlanCheck> {
    const { steps, goal, successCriteria } = this.#draft;
    if (goal.trim() === "")
      this.#add(
        "warning",
        "NO_GOAL",
        "the plan has no goal; say in a sentence what is true when it has worked",
        "",
        "goal",
      );
    if (steps.length === 0) this.#add("error", "EMPTY_PLAN", "the plan has no steps; add one", "", "steps");
    for (const [index, criterion] of successCriteria.entries()) {
      if (successCriteria.indexOf(criterion) !== index)
        this.#add(
          "warning",
          "DUPLICATE_CRITERION",
          `the success criterion ${quoted(criterion)} is there twice; keep one`,
          "",
          `success_criteria[${index}]`,
        );
    }
    this.#checkInputSchema();
    this.#collectIds(steps, []);
    await this.#checkList(steps, undefined, false);
    const errors = this.#problems.filter(({ severity }) => severity === "error");
    const warnings = this.#problems.filter(({ severity }) => severity === "warning");
    return {
      missingFunctions: [...this.#missing.values()].map(({ definition, stepIds }) => ({ ...definition, stepIds })),
      problems: [...errors, ...warnings].slice(0, maxProblems),
    };
  }

  #add(severity: PlanProblem["severity"], code: string, message: string, stepId: string, field: string): void {
    this.#problems.push({ message, severity, stepId, field, code });
  }

  #checkInputSchema(): void {
    const { inputSchema } = this.#draft;
    if (inputSchema.trim() === "") {
      this.#inputs = new Set();
      return;
    }
    const fault = objectSchemaFault(inputSchema);
    if (fault !== undefined)
      this.#add(
        "error",
        "INVALID_SCHEMA",
        `the schema of the plan's input can't be used: ${fault}`,
        "",
        "input_schema",
      );
    else this.#inputs = propertiesOf(inputSchema);
  }

  #collectIds(steps: readonly PlanStep[], outer: readonly string[]): void {
    for (const step of steps) {
      if (!/^[\w-]{1,64}$/.test(step.id))
        this.#add(
          "error",
          "INVALID_STEP_ID",
          `${quoted(step.id)} can't be the id of a step; take 1 to 64 of A-Z a-z 0-9 _ -`,
          step.id,
          "id",
        );
      else if (this.#outerIds.has(step.id))
        this.#add(
          "error",
          "DUPLICATE_STEP_ID",
          `there is more than one step ${step.id}; give each an id of its own, nested steps too`,
          step.id,
          "id",
        );
      if (!this.#outerIds.has(step.id)) this.#outerIds.set(step.id, outer);
      for (const { steps: inner } of listsWithin(step)) this.#collectIds(inner, [...outer, step.id]);
    }
  }

  async #checkList(steps: readonly PlanStep[], outer: Place | undefined, inForEach: boolean): Promise<void> {
    const ids = new Set(steps.map(({ id }) => id));
    for (const step of steps) {
      const place: Place = { ids, step, outer, inForEach };
      this.#checkDependencies(step, ids);
      for (const use of usesOf(step)) this.#checkUse(use, place);
      await this.#checkDetails(step, place);
      for (const { field, steps: inner } of listsWithin(step)) {
        if (inner.length === 0 && field !== "branch.otherwise")
          this.#add(
            "warning",
            "NO_STEPS",
            `${field} of the step ${step.id} is empty; nothing happens there`,
            step.id,
            field,
          );
        await this.#checkList(inner, place, inForEach || step.details.kind === "for_each");
      }
    }
    this.#checkCycle(steps);
  }

  #checkDependencies({ id, dependsOn }: PlanStep, ids: ReadonlySet<string>): void {
    for (const [index, other] of dependsOn.entries()) {
      const field = `depends_on[${index}]`;
      if (other === id)
        this.#add("error", "SELF_DEPENDENCY", `the step ${id} depends on itself; take it out of depends_on`, id, field);
      else if (!this.#outerIds.has(other))
        this.#add(
          "error",
          "UNKNOWN_STEP",
          `the step ${id} depends on ${quoted(other)}, which is no step of the plan${this.#nearStep(other)}`,
          id,
          field,
        );
      else if (!ids.has(other))
        this.#add(
          "error",
          "DEPENDENCY_OUT_OF_REACH",
          `the step ${id} depends on ${other}, which is in another list of steps; depend on a step of the same list`,
          id,
          field,
        );
    }
  }

  #checkUse({ field, stepIds, inputs, usesItem, faults }: StepUse, place: Place): void {
    const { step, inForEach } = place;
    for (const fault of faults)
      this.#add("error", "INVALID_REFERENCE", `in ${field} of the step ${step.id}, ${fault}`, step.id, field);
    for (const stepId of stepIds) this.#checkReach(stepId, field, place);
    if (usesItem && !inForEach)
      this.#add(
        "error",
        "NO_ITEM",
        `${field} of the step ${step.id} refers to item or index, which are there only within for_each`,
        step.id,
        field,
      );
    for (const name of inputs) {
      if (this.#inputs === undefined || this.#inputs.has(name)) continue;
      const have =
        this.#inputs.size === 0
          ? "the plan's input_schema has none"
          : `it has: ${[...this.#inputs].slice(0, 20).join(", ")}`;
      this.#add(
        "warning",
        "UNKNOWN_INPUT",
        `${field} of the step ${step.id} refers to input.${name}, which the plan's input does not have (${have}); it will be null`,
        step.id,
        field,
      );
    }
  }

  #checkReach(stepId: string, field: string, place: Place): void {
    const fault = this.#reachFault(stepId, field, place);
    if (fault === undefined) return;
    const { id } = place.step;
    this.#add("error", fault.code, `${field} of the step ${id} refers to ${fault.message}`, id, field);
  }

  #reachFault(stepId: string, field: string, place: Place): Pick<PlanProblem, "code" | "message"> | undefined {
    const outer = this.#outerIds.get(stepId);
    if (outer === undefined) {
      const message = `${quoted(stepId)}, which is no step of the plan${this.#nearStep(stepId)}`;
      return { code: "UNKNOWN_STEP", message };
    }
    for (let at: Place | undefined = place; at !== undefined; at = at.outer) {
      if (!at.ids.has(stepId)) continue;
      if (at.step.id !== stepId) return undefined;
      // What undoes a step may look at what it did.
      if (at === place && field === "compensation.parameters") return undefined;
      if (at === place) return { code: "SELF_REFERENCE", message: "the step itself, which has no result yet" };
      const message = `${stepId}, which it is a part of and which has no result yet`;
      return { code: "REFERENCE_OUT_OF_REACH", message };
    }
    let hint = "and can't be seen from here";
    for (let at: Place | undefined = place; at !== undefined; at = at.outer) {
      const { ids, step } = at;
      const visible = outer.find((id) => ids.has(id));
      if (visible === undefined) continue;
      hint =
        visible === step.id
          ? `which is in another list of steps within ${visible} and can't be seen from here`
          : `which is within ${visible} and can't be seen from outside; refer to step.${visible}.result`;
      break;
    }
    return { code: "REFERENCE_OUT_OF_REACH", message: `${stepId}, ${hint}` };
  }

  #nearStep(wanted: string): string {
    const near = nearNames([...this.#outerIds.keys()], wanted);
    return near.length === 0 ? "" : `; did you mean ${near.join(" or ")}?`;
  }

  #checkCycle(steps: readonly PlanStep[]): void {
    const cycle = cycleIn(orderOf(steps));
    const [first] = cycle;
    if (first === undefined) return;
    const reasons = cycle.map((id, index) => {
      const next = cycle[(index + 1) % cycle.length] ?? first;
      const isDeclared = steps.some((step) => step.id === id && step.dependsOn.includes(next));
      return `${id} ${isDeclared ? "depends on" : "refers to"} ${next}`;
    });
    this.#add(
      "error",
      "DEPENDENCY_CYCLE",
      `the steps ${[...cycle, first].join(" → ")} wait for each other: ${reasons.join(", ")}; take out one of these`,
      first,
      "depends_on",
    );
  }

  async #checkDetails(step: PlanStep, { inForEach }: Place): Promise<void> {
    const { id, details, compensation } = step;
    this.#checkCondition(step.condition, "condition", id, inForEach);
    if (compensation !== undefined)
      this.#checkCall(compensation.function, compensation.parameters, step, "compensation.");
    switch (details.kind) {
      case "function_call":
        this.#checkCall(details.function, details.parameters, step, "");
        break;
      case "user_input":
        this.#checkFilled(details.prompt, "user_input.prompt", id);
        this.#checkAnswerSchema(details.schema, id);
        break;
      case "branch":
        for (const [index, { condition }] of details.cases.entries()) {
          const field = `branch.cases[${index}].condition`;
          this.#checkFilled(condition, field, id);
          this.#checkCondition(condition, field, id, inForEach);
        }
        if (details.cases.length === 0)
          this.#add("error", "NO_CASES", `the branch ${id} has no cases; add one with a condition`, id, "branch.cases");
        break;
      case "for_each":
        this.#checkItems(details.items, id);
        break;
      case "parallel":
        if (details.branches.length === 0)
          this.#add(
            "warning",
            "NO_STEPS",
            `the parallel step ${id} has no branches; nothing happens there`,
            id,
            "parallel.branches",
          );
        break;
      case "model": {
        this.#checkFilled(details.prompt, "model.prompt", id);
        const fault = details.schema.trim() === "" ? undefined : schemaFault(details.schema);
        if (fault !== undefined)
          this.#add(
            "error",
            "INVALID_SCHEMA",
            `the schema of the answer of the step ${id} can't be used: ${fault}`,
            id,
            "model.schema",
          );
        break;
      }
      case "sub_plan":
        await this.#checkSubPlan(id, details.planId, details.version, details.input);
        break;
      default:
        details satisfies never;
    }
  }

  #checkFilled(text: string, field: string, stepId: string): void {
    if (text.trim() === "") this.#add("error", "EMPTY_FIELD", `${field} of the step ${stepId} is empty`, stepId, field);
  }

  #checkCondition(text: string, field: string, stepId: string, inForEach: boolean): void {
    const fault = checkCondition(text, { inForEach });
    if (fault !== undefined)
      this.#add(
        "error",
        "INVALID_CONDITION",
        `the condition ${quoted(text)} of the step ${stepId} ${fault}`,
        stepId,
        field,
      );
  }

  #checkAnswerSchema(schema: string, stepId: string): void {
    const fault = schema.trim() === "" ? "it is empty" : objectSchemaFault(schema);
    if (fault !== undefined)
      this.#add(
        "error",
        "INVALID_SCHEMA",
        `the schema of the answer to the step ${stepId} can't be used: ${fault}; give an object whose properties are the fields of the form`,
        stepId,
        "user_input.schema",
      );
  }

  #checkItems(text: string, stepId: string): void {
    const value = jsonOf(text);
    const isReference = isRecord(value) && referenceTextOf(value) !== undefined;
    if (!Array.isArray(value) && !isReference)
      this.#add(
        "error",
        "INVALID_ITEMS",
        `the items of the step ${stepId} have to be a JSON array or one reference, like {"ref": "step.<id>.result"}`,
        stepId,
        "for_each.items",
      );
    else this.#checkDigits(value, stepId, "for_each.items");
  }

  #checkDigits(value: unknown, stepId: string, field: string): void {
    const number = inexactNumberIn(value);
    if (number !== undefined)
      this.#add(
        "warning",
        "NUMBER_PRECISION",
        `${field} of the step ${stepId} has the number ${number}, whose last digits are lost beyond 2^53; write it as a text where they matter`,
        stepId,
        field,
      );
  }

  /** @param prefix of the fields: what stands before `function` and `parameters` */
  #checkCall(name: string, parameters: string, step: PlanStep, prefix: string): void {
    const field = `${prefix}parameters`;
    const value = parameters.trim() === "" ? {} : jsonOf(parameters);
    if (!isRecord(value) || referenceTextOf(value) !== undefined) {
      const what = value === undefined ? "are not valid JSON" : "have to be a JSON object";
      this.#add("error", "INVALID_PARAMETERS", `the ${field} of the step ${step.id} ${what}`, step.id, field);
    } else this.#checkDigits(value, step.id, field);
    const definition = this.#context.functions.find(name)?.definition;
    if (definition === undefined) {
      this.#addMissing(name, isRecord(value) ? value : {}, step, `${prefix}function`);
      return;
    }
    if (definition.asks === true)
      this.#add(
        "error",
        "ASKS_PEOPLE",
        `the step ${step.id} calls ${name}, which asks people; make it a step of the kind user_input`,
        step.id,
        `${prefix}function`,
      );
    if (!isRecord(value)) return;
    const fault = misfit(definition.parameters, value, parameters.length);
    if (fault !== undefined)
      this.#add(
        "error",
        "PARAMETERS_DO_NOT_FIT",
        `the ${field} of the step ${step.id} do not fit ${name}: ${fault}`,
        step.id,
        field,
      );
  }

  #addMissing(name: string, parameters: Readonly<Record<string, unknown>>, step: PlanStep, field: string): void {
    const known = this.#missing.get(name);
    if (known === undefined) {
      const definition = { name, description: step.description, parameters: guessedSchema(parameters), stepIds: [] };
      this.#missing.set(name, { definition, stepIds: [step.id] });
    } else if (!known.stepIds.includes(step.id)) known.stepIds.push(step.id);
    const near = nearNames(
      this.#context.functions.definitions.map((definition) => definition.name),
      name,
    );
    const hint = near.length === 0 ? "take another one, or have it added" : `did you mean ${near.join(" or ")}?`;
    this.#add(
      "error",
      "MISSING_FUNCTION",
      `the step ${step.id} calls ${quoted(name)}, a function the server does not have; ${hint}`,
      step.id,
      field,
    );
  }

  async #checkSubPlan(stepId: string, planId: string, version: number | undefined, input: string): Promise<void> {
    const value = input.trim() === "" ? {} : jsonOf(input);
    const isReference = isRecord(value) && referenceTextOf(value) !== undefined;
    if (!isRecord(value))
      this.#add(
        "error",
        "INVALID_PARAMETERS",
        `the input of the step ${stepId} has to be a JSON object`,
        stepId,
        "sub_plan.input",
      );
    else this.#checkDigits(value, stepId, "sub_plan.input");
    const plan = await this.#context.plans(planId, version);
    const named = version === undefined ? planId : `${planId} in version ${version}`;
    const way = plan === undefined ? undefined : await this.#wayBack(plan);
    if (plan === undefined) {
      const message = `the step ${stepId} runs the plan ${quoted(named)}, which there is not`;
      this.#add("error", "UNKNOWN_PLAN", message, stepId, "sub_plan.plan_id");
    } else if (way !== undefined) {
      const message = `the step ${stepId} runs a plan that ${way}; a plan can't reach itself`;
      this.#add("error", "PLAN_CYCLE", message, stepId, "sub_plan.plan_id");
    }
    if (plan === undefined || !isRecord(value) || isReference) return;
    const fault = plan.inputSchema.trim() === "" ? undefined : misfit(plan.inputSchema, value, input.length);
    if (fault !== undefined)
      this.#add(
        "error",
        "PARAMETERS_DO_NOT_FIT",
        `the input of the step ${stepId} does not fit the plan ${planId}: ${fault}`,
        stepId,
        "sub_plan.input",
      );
  }

  /** How a plan comes back to the one that is checked, or to itself; undefined where it does not. */
  async #wayBack(start: CheckedPlan): Promise<string | undefined> {
    const done = new Set<string>();
    const { plans, planId: own } = this.#context;
    return visit(start, own === undefined ? [] : [own]);

    async function visit(plan: CheckedPlan, before: readonly string[]): Promise<string | undefined> {
      const way = [...before, plan.planId];
      if (before.includes(plan.planId)) return cycleText(way);
      if (done.has(plan.planId)) return undefined;
      if (done.size >= maxReachedPlans) return `reaches more than ${maxReachedPlans} plans`;
      done.add(plan.planId);
      for (const { planId, version } of subPlansOf(plan.steps)) {
        if (way.includes(planId)) return cycleText([...way, planId]);
        const next = await plans(planId, version);
        const found = next === undefined ? undefined : await visit(next, way);
        if (found !== undefined) return found;
      }
      return undefined;
    }

    function cycleText(way: readonly string[]): string {
      return `reaches itself: ${way.slice(way.indexOf(way.at(-1) ?? "")).join(" → ")}`;
    }
  }
}

function subPlansOf(steps: readonly PlanStep[]): readonly { readonly planId: string; readonly version?: number }[] {
  return steps.flatMap((step) => {
    const inner = listsWithin(step).flatMap((list) => subPlansOf(list.steps));
    return step.details.kind === "sub_plan" ? [step.details, ...inner] : inner;
  });
}

/** The steps of a cycle, each waiting for the next and the last for the first; empty where there is none. */
function cycleIn(order: ReadonlyMap<string, readonly string[]>): readonly string[] {
  const done = new Set<string>();
  for (const start of order.keys()) {
    const found = from(start, []);
    if (found.length > 0) return found;
  }
  return [];

  function from(id: string, way: readonly string[]): readonly string[] {
    const begin = way.indexOf(id);
    if (begin !== -1) return way.slice(begin);
    if (done.has(id)) return [];
    for (const next of order.get(id) ?? []) {
      const found = from(next, [...way, id]);
      if (found.length > 0) return found;
    }
    done.add(id);
    return [];
  }
}

const words = { whole: "the object", property: "a property" };
/** Stands for what a reference will give. */
const open = Object.freeze({});

/** Why values can't fit a schema whatever their references give; undefined where they may. */
function misfit(schema: string, value: unknown, length: number): string | undefined {
  const check = checkValue(schema, withOpen(value), length, words, open);
  return check.ok ? undefined : check.problems;
}

function withOpen(value: unknown): unknown {
  if (typeof value === "bigint") return Number(value);
  if (Array.isArray(value)) return value.map(withOpen);
  if (!isRecord(value)) return value;
  if (referenceTextOf(value) !== undefined) return open;
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, withOpen(inner)]));
}

function objectSchemaFault(schema: string): string | undefined {
  const fault = schemaFault(schema);
  if (fault !== undefined) return fault;
  const parsed = jsonOf(schema);
  return isRecord(parsed) && parsed["type"] === "object" ? undefined : 'its "type" has to be "object"';
}

/** The properties an object may have; undefined where a schema allows others. */
function propertiesOf(schema: string): ReadonlySet<string> | undefined {
  const parsed = jsonOf(schema);
  if (!isRecord(parsed)) return undefined;
  const combines = ["$ref", "allOf", "anyOf", "oneOf", "patternProperties"].some((key) => Object.hasOwn(parsed, key));
  const { properties, additionalProperties = false } = parsed;
  if (combines || additionalProperties !== false) return undefined;
  return new Set(isRecord(properties) ? Object.keys(properties) : []);
}

/** A schema of what a call gives to a function nobody has written yet. */
function guessedSchema(parameters: Readonly<Record<string, unknown>>): string {
  const names = Object.keys(parameters);
  if (names.length === 0) return "";
  const properties = Object.fromEntries(names.map((name) => [name, guessedType(parameters[name])]));
  return JSON.stringify({ type: "object", properties, required: names });
}

function guessedType(value: unknown): object {
  if (Array.isArray(value)) return { type: "array" };
  if (isRecord(value)) return referenceTextOf(value) === undefined ? { type: "object" } : {};
  if (value === null) return {};
  if (typeof value === "bigint") return { type: "integer" };
  if (typeof value === "number") return { type: Number.isInteger(value) ? "integer" : "number" };
  return { type: typeof value };
}

/** With whole numbers beyond 2^53 as `bigint`; undefined where the text is no JSON. */
function jsonOf(text: string): unknown {
  try {
    return parseExactJson(text);
  } catch {
    return undefined;
  }
}

function quoted(text: string): string {
  return JSON.stringify(text.length <= 100 ? text : `${text.slice(0, 97)}...`);
}
