import { AgentError, invalidField } from "../chat/error.ts";
import type { PlanDraft, PlanProblem, PlanStep, PlanVersion } from "../chat/plan.ts";
import type { Budget } from "../chat/request.ts";
import type { SessionConfig } from "../chat/session-config.ts";
import type { Usage } from "../chat/usage.ts";
import { planVersionFromText, planVersionText } from "../convert/proto/plan.ts";
import type { PlanPosition, StoredPlan } from "../log/plan-store.ts";
import type { Store } from "../log/store.ts";
import { fullName, type Model } from "../session/models.ts";
import { type NoteOf, RequestAnsweredError } from "../session/requests.ts";
import type { TurnEnvironment } from "../session/run-turn.ts";
import { shuttingDown, tooMany } from "../session/session-errors.ts";
import type { Principal, Sessions } from "../session/sessions.ts";
import type { FunctionSet } from "../tool/function-sets.ts";
import { planFunctionNames } from "../tool/plan-functions.ts";
import { type CheckedPlan, checkPlan, isRunnable, type PlanCheck, type PlanFunctions } from "./check-plan.ts";
import { planToYaml } from "./plan-yaml.ts";
import { stepsWithin } from "./steps-within.ts";
import { writePlan } from "./write-plan.ts";

export interface PlansOptions {
  readonly store: Store;
  readonly environment: Pick<TurnEnvironment, "models" | "functions" | "limits" | "now" | "newId" | "report">;
  readonly sessions: Pick<Sessions, "get" | "admit" | "draining">;
  /** The server's own workspace, for plans of no session. */
  readonly workspace: string;
  /** Times a model is told what is wrong with its plan. */
  readonly maxRepairs: number;
  /** The state of an execution as `Plan.state` names it; `undefined` for one that is gone. */
  readonly executionState?: (principal: Principal, executionId: string) => Promise<string | undefined>;
}

/** How a version is written by a model. */
export interface Writing {
  /** As `provider/model`; empty means the session's, else the server's default. */
  readonly model: string;
  readonly budget: Budget | undefined;
}

export interface NewPlanRequest extends Writing {
  /** Id wanted; absent for a new one. */
  readonly planId?: string;
  /** Empty means the server's own workspace and functions. */
  readonly sessionId: string;
  /** Empty only where a draft is given. */
  readonly requirement: string;
  readonly context: string;
  /** Taken over instead of asking a model. */
  readonly draft: PlanDraft | undefined;
  /** Names of the functions the plan may call; empty means all. */
  readonly allowedFunctions: readonly string[];
  /** Wins over that of the draft. */
  readonly metadata: Readonly<Record<string, string>>;
}

export interface RefineRequest extends Writing {
  readonly planId: string;
  /** The version to begin from, which has to be the newest; absent means the newest. */
  readonly version: number | undefined;
  /** What to change, in words; empty where a draft is given. */
  readonly feedback: string;
  /** The plan as edited, taken over whole. */
  readonly draft: PlanDraft | undefined;
}

/** A version of a plan as its readers see it. */
export interface PlanView {
  readonly version: PlanVersion;
  /** That of the newest execution, else `ready` or `invalid`. */
  readonly state: string;
  /** The newest execution; empty for none. */
  readonly executionId: string;
}

/** An execution has its plan in one event. */
const maxPlanBytes = 512 * 1024;
/** Most bytes of plans in one page of a list. */
const maxPageBytes = 6 * 1024 * 1024;

/** What a version is before it has its place: the draft, what the check found, and who wrote it. */
interface Made extends PlanCheck {
  readonly draft: PlanDraft;
  readonly usage?: Usage | undefined;
  /** Empty where no model wrote it. */
  readonly model: string;
}

/** The plans of this server: made, changed and read. Plans stay when their session goes. */
export class Plans {
  readonly #options: PlansOptions;
  readonly #stopping = new AbortController();
  readonly #writing = new Set<Promise<unknown>>();

  constructor(options: PlansOptions) {
    this.#options = options;
  }

  /**
   * Makes a plan: a model writes it, or it is taken over. A plan that can't run is made too and says why.
   * @param note makes the note of the answer that is committed with it
   * @param signal ends the writing
   * @throws {AgentError} `not_found` for an unknown session, `invalid_request` for functions that are not there, as
   *   `writePlan`; the signal's reason.
   */
  async create(
    principal: Principal,
    request: NewPlanRequest,
    note: NoteOf<PlanView>,
    signal: AbortSignal,
  ): Promise<PlanView> {
    const { environment, store } = this.#options;
    const { sessionId, requirement, context, allowedFunctions } = request;
    const functions = await this.#functionsOf(principal, sessionId);
    for (const [index, name] of allowedFunctions.entries()) {
      if (functions.find(name) === undefined)
        throw invalidField(`allowed_functions[${index}]`, `names no function of the server; ListTools has them all`);
    }
    const planId = request.planId ?? environment.newId("plan");
    const check = this.#checking(principal, functions, allowedFunctions, planId);
    const { draft } = request;
    const wish = { requirement, context, neededFunctions: new Set<string>() };
    const made: Made =
      draft === undefined
        ? await this.#written(principal, sessionId, request, wish, allowed(functions, allowedFunctions), check, signal)
        : { draft, ...(await check(draft)), model: "" };
    const whole = {
      ...made.draft,
      requirement: requirement || made.draft.requirement,
      metadata: { ...made.draft.metadata, ...request.metadata },
    };
    const atMs = environment.now();
    const version = versionOf({ ...made, draft: whole }, { planId, version: 1, sessionId, createdMs: atMs, atMs });
    const view = viewOf(version, undefined, "");
    const body = bodyOf(version);
    const stored = await store.createPlan({ tenant: principal.tenant, planId, sessionId, body, atMs }, note(view));
    if (stored === "answered") throw new RequestAnsweredError();
    if (!stored.created) throw new AgentError("internal", `plan ${planId} exists already; try again`);
    return view;
  }

  /**
   * Makes the next version of a plan. Executions of older ones go on.
   * @param note as in `create`
   * @throws {AgentError} `not_found` for an unknown plan or where its session is gone, `failed_precondition` when the
   *   version begun from is not the newest, also when another one came meanwhile; as `writePlan`; the signal's reason.
   */
  async refine(
    principal: Principal,
    request: RefineRequest,
    note: NoteOf<PlanView>,
    signal: AbortSignal,
  ): Promise<PlanView> {
    const { environment, store } = this.#options;
    const { planId, draft, feedback } = request;
    const stored = await this.#stored(principal, planId, undefined);
    const seenVersion = request.version ?? stored.version;
    if (seenVersion !== stored.version) throw notNewest(planId, seenVersion, stored.version);
    const current = versionFrom(stored);
    const { sessionId } = stored;
    const functions = await this.#functionsOf(principal, sessionId);
    const check = this.#checking(principal, functions, [], planId);
    const wish = {
      requirement: current.requirement,
      context: "",
      change: { current: planToYaml({ ...current, requirement: "", metadata: {} }), feedback },
      neededFunctions: new Set(stepsWithin(current.steps).flatMap(functionsCalled)),
    };
    const made: Made =
      draft === undefined
        ? await this.#written(principal, sessionId, request, wish, functions, check, signal)
        : { draft, ...(await check(draft)), model: "" };
    const whole = {
      ...made.draft,
      requirement: made.draft.requirement || current.requirement,
      metadata: draft === undefined ? current.metadata : draft.metadata,
    };
    const atMs = environment.now();
    const place = { planId, version: seenVersion + 1, sessionId, createdMs: stored.createdMs, atMs };
    const version = versionOf({ ...made, draft: whole }, place);
    const view = viewOf(version, await this.#stateOf(principal, stored.executionId), stored.executionId);
    const change = { tenant: principal.tenant, planId, seenVersion, body: bodyOf(version), atMs };
    const added = await store.addPlanVersion(change, note(view));
    if (added === "answered") throw new RequestAnsweredError();
    if (added === undefined) throw unknownPlan(planId);
    if (added === "stale") {
      const { newestVersion } = await this.#stored(principal, planId, undefined);
      throw notNewest(planId, seenVersion, newestVersion);
    }
    return view;
  }

  /**
   * Reads a version, the newest where none is named.
   * @throws {AgentError} `not_found`.
   */
  async get(principal: Principal, planId: string, version: number | undefined): Promise<PlanView> {
    return this.#view(principal, await this.#stored(principal, planId, version));
  }

  /**
   * Plans in their newest version, newest first: at most `limit`, and no more bytes than fit an answer.
   * @param sessionId only those of this session; empty means all
   */
  async list(principal: Principal, sessionId: string, before: PlanPosition | undefined, limit: number) {
    const stored = await this.#options.store.listPlans(principal.tenant, sessionId, before, limit + 1);
    let bytes = 0;
    const page = stored.slice(0, limit).filter((plan, index) => {
      bytes += plan.body.length;
      return bytes <= maxPageBytes || index === 0;
    });
    const plans = await Promise.all(page.map((plan) => this.#view(principal, plan)));
    const last = page.at(-1);
    return { plans, next: stored.length > page.length ? last : undefined };
  }

  /** Ends what models still write. */
  async stop(): Promise<void> {
    this.#stopping.abort(shuttingDown());
    await Promise.allSettled(this.#writing);
  }

  async #written(
    principal: Principal,
    sessionId: string,
    { model: named, budget }: Writing,
    wish: Parameters<typeof writePlan>[0],
    functions: PlanFunctions,
    check: (draft: PlanDraft) => Promise<PlanCheck>,
    signal: AbortSignal,
  ): Promise<Made> {
    const { environment, sessions, maxRepairs } = this.#options;
    const { models, limits, now } = environment;
    if (sessions.draining || this.#stopping.signal.aborted) throw shuttingDown();
    if (this.#writing.size >= limits.maxTurnsInFlight)
      throw tooMany(`${limits.maxTurnsInFlight} plans are being written`, "TOO_MANY_PLANS");
    const config = sessionId === "" ? undefined : (await sessions.get(principal, sessionId)).config;
    const request = { sessionId, messages: [], model: named, options: {}, tools: [], requestId: "" };
    const list = models.find((await sessions.admit(request, config && withoutBudget(config))).model);
    if (budget?.maxCostNanoUsd !== undefined) await checkPrices(list);
    const maxDurationMs = limits.maxTurnMs;
    const options = { models: list, means: environment, functions, check, maxRepairs, budget, maxDurationMs, now };
    const writing = writePlan(wish, options, AbortSignal.any([signal, this.#stopping.signal]));
    this.#writing.add(writing);
    try {
      return await writing;
    } finally {
      this.#writing.delete(writing);
    }
  }

  async #functionsOf(principal: Principal, sessionId: string): Promise<FunctionSet> {
    const { environment, sessions, workspace } = this.#options;
    const of = sessionId === "" ? workspace : (await sessions.get(principal, sessionId)).config.workspace;
    return withoutPlanFunctions(await environment.functions.current(of));
  }

  #checking(
    principal: Principal,
    functions: PlanFunctions,
    allowedNames: readonly string[],
    planId: string,
  ): (draft: PlanDraft) => Promise<PlanCheck> {
    const plans = async (id: string, version?: number): Promise<CheckedPlan | undefined> => {
      const stored = await this.#options.store.readPlan(principal.tenant, id, version);
      return stored === undefined ? undefined : versionFrom(stored);
    };
    return async (draft) => {
      const { missingFunctions, problems } = await checkPlan(draft, { functions, plans, planId });
      return { missingFunctions, problems: [...forbidden(draft, functions, allowedNames), ...problems] };
    };
  }

  async #stored({ tenant }: Principal, planId: string, version: number | undefined): Promise<StoredPlan> {
    const stored = await this.#options.store.readPlan(tenant, planId, version);
    if (stored !== undefined) return stored;
    const newest = version === undefined ? undefined : await this.#options.store.readPlan(tenant, planId);
    if (newest === undefined || version === undefined) throw unknownPlan(planId);
    throw new AgentError("not_found", `plan ${planId} has no version ${version}; the newest is ${newest.version}`, {
      reason: "PLAN_VERSION_NOT_FOUND",
    });
  }

  async #view(principal: Principal, stored: StoredPlan): Promise<PlanView> {
    const state = await this.#stateOf(principal, stored.executionId);
    return viewOf(versionFrom(stored), state, stored.executionId);
  }

  async #stateOf(principal: Principal, executionId: string): Promise<string | undefined> {
    return executionId === "" ? undefined : this.#options.executionState?.(principal, executionId);
  }
}

/** The steps of a plan make no plans. */
function withoutPlanFunctions(set: FunctionSet): FunctionSet {
  return {
    ...set,
    definitions: set.definitions.filter(({ name }) => !planFunctionNames.includes(name)),
    find: (name) => (planFunctionNames.includes(name) ? undefined : set.find(name)),
  };
}

function allowed(functions: PlanFunctions, names: readonly string[]): PlanFunctions {
  if (names.length === 0) return functions;
  const known = new Set(names);
  return {
    definitions: functions.definitions.filter(({ name }) => known.has(name)),
    find: (name) => (known.has(name) ? functions.find(name) : undefined),
  };
}

/** Calls of functions that there are and the plan may not call. */
function forbidden(draft: PlanDraft, functions: PlanFunctions, allowedNames: readonly string[]): PlanProblem[] {
  if (allowedNames.length === 0) return [];
  return stepsWithin(draft.steps).flatMap((step) =>
    functionsCalled(step)
      .filter((name) => !allowedNames.includes(name) && functions.find(name) !== undefined)
      .map((name) => ({
        message: `The plan may not call ${name}; it may call ${allowedNames.join(", ")}.`,
        severity: "error",
        stepId: step.id,
        field:
          step.details.kind === "function_call" && step.details.function === name
            ? "function"
            : "compensation.function",
        code: "FUNCTION_NOT_ALLOWED",
      })),
  );
}

/** Names of the functions that a step calls itself. */
export function functionsCalled({ details, compensation }: PlanStep): string[] {
  return [
    ...(details.kind === "function_call" ? [details.function] : []),
    ...(compensation === undefined ? [] : [compensation.function]),
  ];
}

async function checkPrices(models: readonly Model[]): Promise<void> {
  for (const model of models) {
    if (await model.hasPrice()) continue;
    throw new AgentError(
      "failed_precondition",
      `budget.max_cost_nano_usd can't be held: the price of ${fullName(model)} is unknown; give it in the file of prices, or bound tokens or time`,
      { reason: "PRICE_UNKNOWN" },
    );
  }
}

/** A session's own bounds are for its turns: what planning uses is not in its log. */
function withoutBudget({ budget: _, ...config }: SessionConfig): SessionConfig {
  return config;
}

interface VersionPlace {
  readonly planId: string;
  readonly version: number;
  readonly sessionId: string;
  readonly createdMs: number;
  readonly atMs: number;
}

function versionOf({ draft, missingFunctions, problems, usage, model }: Made, place: VersionPlace): PlanVersion {
  const { planId, version, sessionId, createdMs, atMs } = place;
  return {
    ...draft,
    ...{ planId, version, sessionId, missingFunctions, problems, model },
    ...(usage === undefined ? {} : { usage }),
    createTimeMs: createdMs,
    updateTimeMs: atMs,
  };
}

function versionFrom({ body }: StoredPlan): PlanVersion {
  return planVersionFromText(new TextDecoder().decode(body));
}

function bodyOf(version: PlanVersion): Uint8Array {
  const body = new TextEncoder().encode(planVersionText(version));
  if (body.length <= maxPlanBytes) return body;
  throw new AgentError(
    "resource_exhausted",
    `the plan has ${body.length} bytes with all its texts; ${maxPlanBytes} is the most`,
    { reason: "PLAN_TOO_LARGE" },
  );
}

function viewOf(version: PlanVersion, executionState: string | undefined, executionId: string): PlanView {
  if (executionState !== undefined) return { version, state: executionState, executionId };
  // Its session may have been deleted since.
  return { version, state: isRunnable(version) ? "ready" : "invalid", executionId: "" };
}

/** There is none, or it is somebody else's. */
function unknownPlan(planId: string): AgentError {
  return new AgentError("not_found", `there is no plan ${planId}`, { reason: "PLAN_NOT_FOUND" });
}

function notNewest(planId: string, seen: number, newest: number): AgentError {
  return new AgentError(
    "failed_precondition",
    `version ${seen} of plan ${planId} is not the newest, ${newest} is; read it and change that one`,
    { reason: "PLAN_CHANGED" },
  );
}
