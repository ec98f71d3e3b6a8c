import {
  onErrorPolicies,
  type PlanBranchCase,
  type PlanCompensation,
  type PlanDraft,
  type PlanParallelBranch,
  type PlanRetry,
  type PlanStep,
  type PlanStepDetails,
  planComplexities,
  planStepKinds,
} from "../chat/plan.ts";
import { present } from "../convert/present.ts";
import { isRecord } from "../tool/check-value.ts";
import { exactJsonText, parseExactJson } from "./exact-json.ts";

/** Members and indexes, like `steps`, 2, `for_each`. */
export type PlainPath = readonly (string | number)[];

/** What is wrong at a place; `message` is the end of a sentence. */
export interface PlainFault {
  readonly path: PlainPath;
  readonly message: string;
}

/**
 * Reads a plan in the form people and models write: the fields of the contract's `Plan` by their names, where what is JSON
 * text there may be written out, and nothing else. Of two forms of an answer both are the same: null and a field left out.
 * @param value may have `bigint` for whole numbers beyond 2^53
 */
export function draftFromPlain(value: unknown): { readonly draft: PlanDraft; readonly faults: readonly PlainFault[] } {
  const faults: PlainFault[] = [];
  const fields = new Fields(value, [], faults);
  const draft: PlanDraft = {
    goal: fields.text("goal"),
    requirement: fields.text("requirement"),
    successCriteria: fields.texts("success_criteria"),
    complexity: fields.word("complexity", planComplexities, "simple"),
    steps: fields.list("steps").map(stepFromPlain),
    inputSchema: fields.json("input_schema"),
    metadata: fields.textMap("metadata"),
  };
  fields.end();
  return { draft, faults };
}

function stepFromPlain(fields: Fields): PlanStep {
  const step = {
    id: fields.text("id"),
    description: fields.text("description"),
    dependsOn: fields.texts("depends_on"),
    condition: fields.text("condition"),
    ...present({
      retry: fields.part("retry", retryFromPlain),
      timeoutMs: fields.count("timeout_ms"),
      compensation: fields.part("compensation", compensationFromPlain),
    }),
    onError: fields.word("on_error", onErrorPolicies, "fail"),
    details: detailsFromPlain(fields),
  };
  fields.end();
  return step;
}

function retryFromPlain(fields: Fields): PlanRetry {
  return present({
    maxAttempts: fields.count("max_attempts"),
    delayMs: fields.count("delay_ms"),
    backoffFactor: fields.number("backoff_factor"),
    maxDelayMs: fields.count("max_delay_ms"),
  });
}

function compensationFromPlain(fields: Fields): PlanCompensation {
  return {
    function: fields.text("function"),
    parameters: fields.json("parameters"),
    description: fields.text("description"),
  };
}

function detailsFromPlain(fields: Fields): PlanStepDetails {
  const kind = fields.word("kind", planStepKinds, "function_call");
  switch (kind) {
    case "function_call":
      return { kind, function: fields.text("function"), parameters: fields.json("parameters") };
    case "user_input":
      return fields.whole(kind, (own) => ({ kind, prompt: own.text("prompt"), schema: own.json("schema") }));
    case "branch":
      return fields.whole(kind, (own) => ({
        kind,
        cases: own.list("cases").map((one): PlanBranchCase => {
          const found = { condition: one.text("condition"), steps: one.list("steps").map(stepFromPlain) };
          one.end();
          return found;
        }),
        otherwise: own.list("otherwise").map(stepFromPlain),
      }));
    case "for_each":
      return fields.whole(kind, (own) => ({
        kind,
        items: own.json("items"),
        steps: own.list("steps").map(stepFromPlain),
        ...present({ maxConcurrency: own.count("max_concurrency") }),
      }));
    case "parallel":
      return fields.whole(kind, (own) => ({
        kind,
        branches: own.list("branches").map((one): PlanParallelBranch => {
          const found = { name: one.text("name"), steps: one.list("steps").map(stepFromPlain) };
          one.end();
          return found;
        }),
        ...present({ maxConcurrency: own.count("max_concurrency") }),
      }));
    case "model":
      return fields.whole(kind, (own) => ({
        kind,
        prompt: own.text("prompt"),
        systemPrompt: own.text("system_prompt"),
        model: own.text("model"),
        schema: own.json("schema"),
        ...present({ maxTokens: own.count("max_tokens") }),
      }));
    case "sub_plan":
      return fields.whole(kind, (own) => ({
        kind,
        planId: own.text("plan_id"),
        ...present({ version: own.count("version") }),
        input: own.json("input"),
      }));
    default:
      return kind satisfies never;
  }
}

/** The fields of one object, each read once. */
class Fields {
  readonly #values: ReadonlyMap<string, unknown>;
  readonly #path: PlainPath;
  readonly #faults: PlainFault[];
  readonly #read = new Set<string>();

  constructor(value: unknown, path: PlainPath, faults: PlainFault[]) {
    this.#path = path;
    this.#faults = faults;
    if (!isRecord(value)) faults.push({ path, message: `has to be fields with names; it is ${described(value)}` });
    this.#values = new Map(isRecord(value) ? Object.entries(value).filter(([, inner]) => inner !== null) : []);
  }

  text(name: string): string {
    const value = this.#take(name);
    // In YAML a text may look like a number.
    if (typeof value === "number" || typeof value === "bigint" || typeof value === "boolean") return `${value}`;
    if (value === undefined || typeof value === "string") return value ?? "";
    return this.#wrong(name, `has to be a text; it is ${described(value)}`, "");
  }

  texts(name: string): readonly string[] {
    const value = this.#take(name) ?? [];
    if (!Array.isArray(value)) return this.#wrong(name, `has to be a list of texts; it is ${described(value)}`, []);
    return value.map((item: unknown, index) => {
      if (typeof item === "string") return item;
      if (typeof item === "number" || typeof item === "bigint") return `${item}`;
      this.#faults.push({ path: [...this.#path, name, index], message: `has to be a text; it is ${described(item)}` });
      return "";
    });
  }

  textMap(name: string): Readonly<Record<string, string>> {
    const value = this.#take(name) ?? {};
    if (!isRecord(value)) return this.#wrong(name, `has to be names with texts; it is ${described(value)}`, {});
    const entries = Object.entries(value).map(([key, inner]) => {
      if (typeof inner === "object") this.#wrong(`${name}.${key}`, `has to be a text; it is ${described(inner)}`, "");
      return [key, typeof inner === "string" ? inner : String(inner)] as const;
    });
    return Object.fromEntries(entries);
  }

  word<const Word extends string>(name: string, words: readonly Word[], otherwise: Word): Word {
    const value = this.#take(name);
    if (value === undefined || value === "") return otherwise;
    const word = words.find((known) => known === value);
    return word ?? this.#wrong(name, `is ${described(value)}; use one of ${words.join(", ")}`, otherwise);
  }

  number(name: string): number | undefined {
    const value = this.#take(name);
    if (value === undefined || (typeof value === "number" && Number.isFinite(value))) return value;
    return this.#wrong(name, `has to be a number; it is ${described(value)}`, undefined);
  }

  count(name: string): number | undefined {
    const value = this.#take(name);
    if (value === undefined || (typeof value === "number" && Number.isSafeInteger(value) && value >= 0)) return value;
    return this.#wrong(name, `has to be a whole number from 0; it is ${described(value)}`, undefined);
  }

  /** A text is JSON text already; a value that is written out becomes it. */
  json(name: string): string {
    const value = this.#take(name);
    if (typeof value === "string") return value;
    return value === undefined ? "" : exactJsonText(value);
  }

  list(name: string): readonly Fields[] {
    const value = this.#take(name) ?? [];
    if (!Array.isArray(value)) return this.#wrong(name, `has to be a list; it is ${described(value)}`, []);
    return value.map((item: unknown, index) => new Fields(item, [...this.#path, name, index], this.#faults));
  }

  part<Value>(name: string, read: (fields: Fields) => Value): Value | undefined {
    return this.#values.has(name) ? this.whole(name, read) : undefined;
  }

  whole<Value>(name: string, read: (fields: Fields) => Value): Value {
    const value = this.#take(name);
    if (value === undefined) this.#wrong(name, "is missing", undefined);
    const fields = new Fields(value ?? {}, [...this.#path, name], this.#faults);
    const found = read(fields);
    fields.end();
    return found;
  }

  /** Tells of fields that nobody has read. */
  end(): void {
    const known = [...this.#read].join(", ");
    for (const name of this.#values.keys()) {
      if (!this.#read.has(name)) this.#wrong(name, `is no field here; there are: ${known}`, undefined);
    }
  }

  #take(name: string): unknown {
    this.#read.add(name);
    return this.#values.get(name);
  }

  #wrong<Value>(name: string, message: string, instead: Value): Value {
    this.#faults.push({ path: [...this.#path, name], message });
    return instead;
  }
}

/** A path as people read it: `steps[2].for_each.items`. */
export function plainPathText(path: PlainPath): string {
  let text = "";
  for (const part of path) text += typeof part === "number" ? `[${part}]` : text === "" ? part : `.${part}`;
  return text;
}

/** Writes a plan in the form that `draftFromPlain` reads, without what is empty; JSON is written out where it is readable. */
export function draftToPlain(draft: PlanDraft): Readonly<Record<string, unknown>> {
  return filledFields({
    goal: draft.goal,
    requirement: draft.requirement,
    success_criteria: draft.successCriteria,
    complexity: draft.complexity,
    input_schema: jsonToPlain(draft.inputSchema),
    metadata: draft.metadata,
    steps: draft.steps.map(stepToPlain),
  });
}

function stepToPlain({ details, ...step }: PlanStep): Readonly<Record<string, unknown>> {
  return filledFields({
    id: step.id,
    kind: details.kind,
    description: step.description,
    depends_on: step.dependsOn,
    condition: step.condition,
    ...detailsToPlain(details),
    retry:
      step.retry &&
      present({
        max_attempts: step.retry.maxAttempts,
        delay_ms: step.retry.delayMs,
        backoff_factor: step.retry.backoffFactor,
        max_delay_ms: step.retry.maxDelayMs,
      }),
    timeout_ms: step.timeoutMs,
    on_error: step.onError === "fail" ? "" : step.onError,
    compensation:
      step.compensation &&
      filledFields({
        function: step.compensation.function,
        parameters: jsonToPlain(step.compensation.parameters),
        description: step.compensation.description,
      }),
  });
}

function detailsToPlain(details: PlanStepDetails): Readonly<Record<string, unknown>> {
  switch (details.kind) {
    case "function_call":
      return { function: details.function, parameters: jsonToPlain(details.parameters) };
    case "user_input":
      return { user_input: filledFields({ prompt: details.prompt, schema: jsonToPlain(details.schema) }) };
    case "branch":
      return {
        branch: filledFields({
          cases: details.cases.map(({ condition, steps }) => ({ condition, steps: steps.map(stepToPlain) })),
          otherwise: details.otherwise.map(stepToPlain),
        }),
      };
    case "for_each":
      return {
        for_each: filledFields({
          items: jsonToPlain(details.items),
          max_concurrency: details.maxConcurrency,
          steps: details.steps.map(stepToPlain),
        }),
      };
    case "parallel":
      return {
        parallel: filledFields({
          max_concurrency: details.maxConcurrency,
          branches: details.branches.map(({ name, steps }) => filledFields({ name, steps: steps.map(stepToPlain) })),
        }),
      };
    case "model":
      return {
        model: filledFields({
          prompt: details.prompt,
          system_prompt: details.systemPrompt,
          model: details.model,
          schema: jsonToPlain(details.schema),
          max_tokens: details.maxTokens,
        }),
      };
    case "sub_plan":
      return {
        sub_plan: filledFields({
          plan_id: details.planId,
          version: details.version,
          input: jsonToPlain(details.input),
        }),
      };
    default:
      return details satisfies never;
  }
}

function filledFields(fields: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    Object.entries(fields).filter(([name, value]) => {
      if (value === undefined || value === "") return false;
      if (name === "metadata" && isRecord(value)) return Object.keys(value).length > 0;
      return !Array.isArray(value) || value.length > 0 || name === "items";
    }),
  );
}

const maxPlainDepth = 20;

/** An object or a list is written out; what isn't stays the text it is. */
function jsonToPlain(text: string): unknown {
  let value: unknown;
  try {
    value = parseExactJson(text);
  } catch {
    return text;
  }
  return typeof value === "object" && value !== null && isPlain(value, maxPlainDepth) ? value : text;
}

function isPlain(value: unknown, depth: number): boolean {
  if (typeof value === "number") return Number.isFinite(value) && !Object.is(value, -0);
  if (typeof value !== "object" || value === null) return true;
  if (depth === 0 || Object.hasOwn(value, "__proto__") || Object.hasOwn(value, "<<")) return false;
  return Object.values(value).every((inner) => isPlain(inner, depth - 1));
}

function described(value: unknown): string {
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (isRecord(value)) return "an object";
  if (typeof value === "bigint") return `${value}`;
  return (JSON.stringify(value) ?? "nothing").slice(0, 80);
}
