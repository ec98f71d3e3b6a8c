import { AgentError } from "../chat/error.ts";
import type { PlanVersion } from "../chat/plan.ts";
import type { GenerateOptions } from "../chat/request.ts";
import type { SessionConfig } from "../chat/session-config.ts";
import { planVersionText } from "../convert/proto/plan.ts";
import type { TaskSessions } from "../session/run-task.ts";
import type { AdmittedTurn, Principal } from "../session/sessions.ts";

/** An execution that is to begin. */
export interface NewExecution {
  /** Id of the session that is made for it. */
  readonly executionId: string;
  /** The same id again is about the same turn; empty for none. */
  readonly requestId: string;
  readonly version: PlanVersion;
  /** With the defaults filled in, as JSON text. */
  readonly input: string;
  /** `provider/model`; empty means the session's, else the server's default. */
  readonly model: string;
  readonly options: GenerateOptions;
  /** What its session is made of; its own title and metadata are filled in. */
  readonly config: Omit<SessionConfig, "title" | "initialMessages" | "systemPrompt" | "budget">;
}

/** Keys of the metadata of an execution's session. */
export const executionMetadata = {
  plan: "plan_id",
  version: "plan_version",
  request: "plan_request",
  parent: "parent_session_id",
  depth: "plan_depth",
} as const;

/** The request id of the one turn of an execution that nobody gave one. */
export const executionRequestId = "plan";

/** Most bytes of a plan and its input, which have to fit the first event of the execution. */
const maxRunBytes = 700_000;

/**
 * Begins an execution, or finds the one that was begun under this id.
 * @throws {AgentError} `failed_precondition` for a plan that can't run; as `Sessions.create` and `startTurn`.
 */
export async function beginExecution(
  sessions: TaskSessions,
  principal: Principal,
  { executionId, requestId, version, input, model, options, config }: NewExecution,
): Promise<AdmittedTurn> {
  checkRunnable(version);
  const plan = { planId: version.planId, version: version.version, plan: planVersionText(version), input };
  const bytes = Buffer.byteLength(plan.plan) + Buffer.byteLength(input);
  if (bytes > maxRunBytes)
    throw new AgentError(
      "failed_precondition",
      `plan ${version.planId} and its input have ${bytes} bytes; ${maxRunBytes} is the most that can run`,
      { reason: "PLAN_TOO_LARGE" },
    );
  const found = await sessions.get(principal, executionId).catch(unlessNotFound);
  if (found === undefined)
    await sessions.create(
      principal,
      { ...config, title: version.goal.slice(0, 200), systemPrompt: "", initialMessages: [] },
      executionId,
      "",
    );
  return sessions.startTurn(principal, {
    sessionId: executionId,
    requestId,
    messages: [],
    tools: [],
    model,
    options,
    plan,
  });
}

/** @throws {AgentError} `failed_precondition` while functions are missing or there are errors. */
export function checkRunnable({ planId, version, missingFunctions, problems }: PlanVersion): void {
  const errors = problems.filter(({ severity }) => severity === "error");
  if (missingFunctions.length === 0 && errors.length === 0) return;
  const missing = missingFunctions.map(({ name }) => name).join(", ");
  const what = [missing === "" ? [] : [`missing are ${missing}`], errors.slice(0, 3).map(({ message }) => message)];
  throw new AgentError(
    "failed_precondition",
    `version ${version} of plan ${planId} can't run: ${what.flat().join("; ")}; make a better version with RefinePlan`,
    { reason: "PLAN_INVALID" },
  );
}

export function unlessNotFound(error: unknown): undefined {
  if (error instanceof AgentError && error.kind === "not_found") return undefined;
  throw error;
}
