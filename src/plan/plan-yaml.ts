import { invalidField } from "../chat/error.ts";
import type { PlanDraft } from "../chat/plan.ts";

/**
 * Reads a plan as people write it.
 * @throws {AgentError} `invalid_request` that names line and path of what is wrong.
 */
export function planFromYaml(_text: string): PlanDraft {
  throw invalidField("yaml", "is not read yet");
}

/** Writes a plan for people; `planFromYaml` reads the same plan from it. */
export function planToYaml(draft: PlanDraft): string {
  return JSON.stringify(draft);
}
