import { AgentError } from "../chat/error.ts";
import type { PlanDraft } from "../chat/plan.ts";
import { onErrorPolicies, planComplexities, planStepKinds } from "../chat/plan.ts";
import { planDraftFromProto, planDraftToProto } from "../convert/proto/plan.ts";
import type { PlanFunctions } from "./check-plan.ts";
import { draftFromPlain, plainPathText } from "./plain-plan.ts";

/** What a model's answer was read as. */
export type PlanAnswer =
  | { readonly ok: true; readonly draft: PlanDraft }
  /** Sentences that tell the model what to change. */
  | { readonly ok: false; readonly faults: readonly string[] };

/** A name in the description of a schema costs tokens in each request. */
const maxNames = 50;
const maxFaults = 20;

const text = { type: "string" };
const texts = { type: "array", items: text };
const whole = { type: "integer" };
/** Written out, or as JSON text. */
const json = { type: ["object", "string"] };
const steps = { type: "array", items: { $ref: "#/$defs/step" } };

/**
 * JSON Schema, as JSON text, of the answer a model gives when it writes a plan: the form of `draftFromPlain`. A step may
 * name a function that isn't there: then the plan says that it is missing. Steps nest, and parameters are objects nobody
 * can foresee, so this is for modes that are not strict.
 */
export function planSchema({ definitions }: Pick<PlanFunctions, "definitions">): string {
  const names = definitions.slice(0, maxNames).map(({ name }) => name);
  const known = names.length === 0 ? "" : `, for example ${names.join(", ")}`;
  const functionName = { type: "string", description: `Name of a function${known}` };
  return JSON.stringify({
    ...closed(
      {
        goal: text,
        success_criteria: texts,
        complexity: { enum: planComplexities },
        input_schema: json,
        steps,
      },
      ["goal", "success_criteria", "complexity", "steps"],
    ),
    $defs: { step: stepSchema(functionName) },
  });
}

/** One form for all kinds: what a kind may not have is told by `planFromAnswer`, in better words than a choice has. */
function stepSchema(functionName: object): object {
  return closed(
    {
      id: text,
      kind: { enum: planStepKinds },
      description: text,
      depends_on: texts,
      condition: text,
      function: functionName,
      parameters: json,
      user_input: closed({ prompt: text, schema: json }, ["prompt", "schema"]),
      branch: closed(
        {
          cases: { type: "array", items: closed({ condition: text, steps }, ["condition", "steps"]) },
          otherwise: steps,
        },
        ["cases"],
      ),
      for_each: closed({ items: { type: ["object", "array", "string"] }, steps, max_concurrency: whole }, [
        "items",
        "steps",
      ]),
      parallel: closed(
        { branches: { type: "array", items: closed({ name: text, steps }, ["steps"]) }, max_concurrency: whole },
        ["branches"],
      ),
      model: closed({ prompt: text, system_prompt: text, model: text, schema: json, max_tokens: whole }, ["prompt"]),
      sub_plan: closed({ plan_id: text, version: whole, input: json }, ["plan_id"]),
      retry: closed({
        max_attempts: whole,
        delay_ms: whole,
        backoff_factor: { type: "number" },
        max_delay_ms: whole,
      }),
      timeout_ms: whole,
      on_error: { enum: onErrorPolicies },
      compensation: closed({ function: functionName, parameters: json, description: text }, ["function"]),
    },
    ["id", "kind", "description"],
  );
}

function closed(properties: object, required: readonly string[] = []): object {
  return { type: "object", properties, required, additionalProperties: false };
}

/**
 * Reads a model's answer, whose form `planSchema` tells; JSON may stand in it written out or as text. The requirement is
 * the caller's and not read from it.
 */
export function planFromAnswer(answer: unknown, requirement: string): PlanAnswer {
  const { draft, faults } = draftFromPlain(answer);
  if (faults.length > 0) {
    const sentences = faults.map(({ path, message }) => `${plainPathText(path) || "the answer"} ${message}`);
    return { ok: false, faults: sentences.slice(0, maxFaults) };
  }
  try {
    return { ok: true, draft: planDraftFromProto(planDraftToProto({ ...draft, requirement }), "") };
  } catch (error) {
    if (!(error instanceof AgentError)) throw error;
    return { ok: false, faults: error.fieldViolations.map(({ field, description }) => `${field} ${description}`) };
  }
}
