import type { AnsweredRequest } from "./store.ts";

/** The part of a store that keeps plans and all their versions. Plans outlive the session they name. */
export interface PlanStore {
  /**
   * Creates a plan with its version 1. When its id is taken nothing changes, and the plan that has it in this tenant is
   * returned in its newest version.
   * @param answered noted in the same commit; `answered`: there is a note under its id, and nothing changes
   */
  createPlan(
    plan: NewPlan,
    answered?: AnsweredRequest,
  ): Promise<{ readonly created: boolean; readonly plan: StoredPlan | undefined } | "answered">;
  /**
   * Adds the version after the one that was seen. `stale`: that is not the newest any more, and nothing changes.
   * `undefined`: there is no such plan. `answered` as in `createPlan`.
   */
  addPlanVersion(
    version: NewPlanVersion,
    answered?: AnsweredRequest,
  ): Promise<StoredPlan | "stale" | "answered" | undefined>;
  /** Reads a version of a plan, the newest where none is named. */
  readPlan(tenant: string, planId: string, version?: number): Promise<StoredPlan | undefined>;
  /**
   * Plans in their newest version, newest plan first, then by id backwards; `before` is the last of the page before.
   * @param sessionId only those of this session; empty means all
   */
  listPlans(
    tenant: string,
    sessionId: string,
    before: PlanPosition | undefined,
    limit: number,
  ): Promise<readonly StoredPlan[]>;
  /** Notes the newest execution of a plan. Says whether the plan is there. */
  setPlanExecution(tenant: string, planId: string, executionId: string): Promise<boolean>;
}

export interface NewPlan {
  readonly tenant: string;
  readonly planId: string;
  /** The session whose functions and rules hold; empty means the server's own. */
  readonly sessionId: string;
  /** Version 1. */
  readonly body: Uint8Array;
  readonly atMs: number;
}

export interface NewPlanVersion {
  readonly tenant: string;
  readonly planId: string;
  /** The newest version as it was read; the new one has the next number. */
  readonly seenVersion: number;
  readonly body: Uint8Array;
  readonly atMs: number;
}

export interface PlanPosition {
  readonly createdMs: number;
  readonly planId: string;
}

/** One version of a plan. */
export interface StoredPlan extends PlanPosition {
  readonly tenant: string;
  readonly sessionId: string;
  readonly version: number;
  readonly newestVersion: number;
  readonly body: Uint8Array;
  /** When this version was made. */
  readonly updatedMs: number;
  /** The newest execution, of whatever version; empty for none. */
  readonly executionId: string;
}
