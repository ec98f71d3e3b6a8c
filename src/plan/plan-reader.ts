import type { PlanVersion } from "../chat/plan.ts";

/** Finds plans. */
export interface PlanReader {
  /** The newest version where none is named; undefined where there is none. */
  read(
    tenant: string,
    planId: string,
    version?: number,
  ): Promise<{ readonly plan: PlanVersion; readonly executionId: string } | undefined>;
}
