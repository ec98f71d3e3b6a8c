import type { PlanDraft } from "../chat/plan.ts";
import type { PlanFunctions } from "./check-plan.ts";

/** What a model's answer was read as. */
export type PlanAnswer =
  | { readonly ok: true; readonly draft: PlanDraft }
  /** Sentences that tell the model what to change. */
  | { readonly ok: false; readonly faults: readonly string[] };

/** JSON Schema, as JSON text, of the answer a model gives when it writes a plan. */
export function planSchema(_functions: Pick<PlanFunctions, "definitions">): string {
  return '{"type":"object"}';
}

/** Reads a model's answer, whose form `planSchema` tells. The requirement is the caller's and not read from it. */
export function planFromAnswer(_answer: unknown, _requirement: string): PlanAnswer {
  return { ok: false, faults: ["the answer is not read yet"] };
}
