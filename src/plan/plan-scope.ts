/** What references and conditions of a step can see. All values are JSON values. */
export interface PlanScope {
  /** What the execution was given. */
  readonly input: unknown;
  /** Result of a step; null for one without, and for one that never ran. */
  step(id: string): unknown;
  /** Within `for_each`: the item of the innermost one. */
  readonly item?: unknown;
  /** Within `for_each`: its index, from 0. */
  readonly index?: number;
}

/** A condition or a reference of a step has no value. The message is a sentence for people. */
export class PlanValueError extends Error {
  override readonly name = "PlanValueError";
}
