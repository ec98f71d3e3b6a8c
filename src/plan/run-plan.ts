import { AgentError } from "../chat/error.ts";
import type { TurnError } from "../chat/log-event.ts";
import type { PlanOutcome, PlanStepChange, PlanVersion } from "../chat/plan.ts";
import { addUsage, type Usage } from "../chat/usage.ts";
import { planVersionFromText } from "../convert/proto/plan.ts";
import {
  isLeft,
  type PlanProgress,
  type PlanWork,
  type RunPlan,
  record,
  recordRequest,
  StoppedError,
} from "../session/run-turn.ts";
import type { PlanEndingCode, PlanTurnState } from "../session/state.ts";
import { turnErrorFrom } from "../session/turn-error.ts";
import { checkGoals } from "./check-goals.ts";
import { compensationKey } from "./instance-key.ts";
import { nextPlanSteps, type PlanAction, type PlanEnd, type PlanNext } from "./next-plan-steps.ts";
import type { PlanReader } from "./plan-reader.ts";
import { PlanState, type StepInstance } from "./plan-state.ts";
import { cancelStep, runStep, type StepWork, undoStep } from "./run-step.ts";

export interface RunPlanOptions {
  /** Where the plans of `sub_plan` steps are found. */
  readonly plans: PlanReader;
  /** Steps of one execution that run at the same time. */
  readonly maxParallelSteps: number;
}

/** A wait shorter than this is waited for; for longer ones the execution gives its place up. */
const shortWaitMs = 1000;
const longestTimerMs = 3_600_000;
/** How often times that have come are looked at in a session that is paused. */
const pausedLookMs = 60_000;
/** Most characters of the output of an execution. */
const maxOutput = 200_000;

/** Makes what executes the plans of turns. */
export function planRunner(options: RunPlanOptions): RunPlan {
  return async (work) => {
    const { plan } = work.turn;
    if (plan === undefined) throw new AgentError("internal", "the turn has no plan");
    return new Execution(work, plan, planVersionFromText(plan.run.plan), options).run();
  };
}

interface Busy {
  readonly abort: AbortController;
  readonly done: Promise<void>;
}

/** Ends one step, and nothing else. */
class StepStopped extends Error {
  override readonly name = "StepStopped";
}

/**
 * Executes a plan: folds what its steps came to, asks what is next, does it. What began is in the log before anything
 * happens, so that after a crash nothing is done twice without knowing.
 */
class Execution {
  readonly #work: PlanWork;
  readonly #plan: PlanTurnState;
  readonly #version: PlanVersion;
  readonly #options: RunPlanOptions;
  readonly #state: PlanState;
  readonly #busy = new Map<string, Busy>();
  /** How many changes the state has. */
  #applied = 0;
  #failure: { readonly error: unknown } | undefined;
  /** Others are to go on with it as soon as nothing runs. */
  #handsOver: StoppedError | undefined;
  #hasNews = false;
  #onNews: (() => void) | undefined;

  constructor(work: PlanWork, plan: PlanTurnState, version: PlanVersion, options: RunPlanOptions) {
    this.#work = work;
    this.#plan = plan;
    this.#version = version;
    this.#options = options;
    this.#state = new PlanState(version.steps, inputFrom(plan.run.input));
  }

  async run(): Promise<PlanProgress> {
    const { session, signal } = this.#work;
    const news = () => this.#tell();
    const stopWatching = session.watch?.(news);
    signal.addEventListener("abort", news, { once: true });
    try {
      for (;;) {
        const progress = await this.#goOn();
        if (progress !== undefined) return progress;
      }
    } catch (error) {
      for (const { abort } of this.#busy.values()) abort.abort(error);
      await Promise.all([...this.#busy.values()].map(({ done }) => done));
      throw error;
    } finally {
      stopWatching?.();
      signal.removeEventListener("abort", news);
    }
  }

  /** One round; gives what the execution came to when there is no other. */
  async #goOn(): Promise<PlanProgress | undefined> {
    this.#throwIfOver();
    this.#hasNews = false;
    await this.#work.takeAnswers();
    this.#throwIfOver();
    this.#noteEnding();
    this.#noteHandOver();
    const next = this.#next();
    const records = next.actions.flatMap((action) => (action.type === "record" ? action.change : []));
    for (const change of records) this.#record(change);
    if (records.length > 0) return undefined;
    for (const action of next.actions) this.#act(action);
    if (next.end !== undefined && !this.#isPaused) return this.#finish(next.end);
    if (this.#hasNews) return undefined;
    const { now } = this.#work.session.environment;
    // What would be due is looked at when the session goes on, and some time before that.
    const wakeAtMs = this.#isPaused ? Math.max(next.wakeAtMs, now() + pausedLookMs) : next.wakeAtMs;
    if (this.#busy.size === 0 && wakeAtMs > now() + shortWaitMs) return { type: "waits", untilMs: wakeAtMs };
    await this.#newsBy(wakeAtMs - now());
    return undefined;
  }

  /** No step begins until the session is resumed, but those that undo others where the execution is to end. */
  get #isPaused(): boolean {
    return this.#work.session.state.paused && this.#plan.ending === undefined;
  }

  get #beginsNothing(): boolean {
    return this.#handsOver !== undefined || this.#isPaused;
  }

  #next(): PlanNext {
    const { session } = this.#work;
    this.#sync();
    const { ending } = this.#plan;
    return nextPlanSteps(this.#state, {
      nowMs: session.environment.now(),
      busy: new Set(this.#busy.keys()),
      limit: this.#beginsNothing ? 0 : this.#options.maxParallelSteps,
      ...(ending === undefined ? {} : { ending: endingFrom(ending) }),
    });
  }

  /** Brings the state up to the log. */
  #sync(): void {
    const { changes, requests } = this.#plan;
    for (const change of changes.slice(this.#applied)) this.#state.apply(change);
    this.#applied = changes.length;
    for (const { request, seq, answer } of requests) {
      const { toolCallId: key = "", expireTimeMs } = request;
      this.#state.noteRequest({
        key,
        seq,
        ...(expireTimeMs === undefined ? {} : { expireTimeMs }),
        ...(answer === undefined ? {} : { answer }),
      });
    }
  }

  #act(action: PlanAction): void {
    switch (action.type) {
      case "record":
        return;
      case "run":
        if (this.#beginsNothing) return;
        this.#start(action.instance.key, action.instance, (step) => runStep(step, action.instance, action.attempt));
        return;
      case "undo":
        if (this.#beginsNothing) return;
        this.#start(compensationKey(action.instance), action.instance, (step) => undoStep(step, action.instance));
        return;
      case "stop":
        this.#stop(action.instance.key, action.instance);
        return;
      default:
        action satisfies never;
    }
  }

  #start(key: string, instance: StepInstance, run: (step: StepWork) => Promise<void>): void {
    const abort = new AbortController();
    const { session, turn, functions } = this.#work;
    const step: StepWork = {
      ...{ session, turn, functions, key },
      plans: this.#options.plans,
      state: this.#state,
      signal: abort.signal,
      record: (change) => this.#record(change),
    };
    const done = run(step)
      .catch(async (error: unknown) => {
        if (!abort.signal.aborted || error !== abort.signal.reason) throw error;
        if (error instanceof StepStopped) await this.#endStopped(instance);
      })
      .catch((error: unknown) => {
        this.#failure ??= { error };
      })
      .finally(() => {
        this.#busy.delete(key);
        this.#tell();
      });
    this.#busy.set(key, { abort, done });
  }

  #stop(key: string, { stepId, itemPath, attempt }: StepInstance): void {
    const { session, turn } = this.#work;
    const busy = this.#busy.get(key);
    if (busy !== undefined) {
      if (!busy.abort.signal.aborted) busy.abort.abort(new StepStopped("the step was stopped"));
      return;
    }
    for (const { request } of this.#plan.requests.filter((each) => each.answer === undefined)) {
      if (request.toolCallId !== key) continue;
      const text = "the step was stopped";
      const answer = { requestId: request.requestId, decision: "expired", author: "", text };
      recordRequest(session, turn.turnId, { type: "request-resolved", ...answer });
    }
    this.#record({ stepId, itemPath, state: "cancelled", attempt });
    this.#hasNews = true;
  }

  /** Of a step that was stopped before it began nothing is recorded. */
  async #endStopped({ step, itemPath }: StepInstance): Promise<void> {
    this.#sync();
    const instance = this.#state.instance(step, itemPath);
    if (instance.state !== "running" && instance.state !== "waiting") return;
    await cancelStep(this.#work, instance);
    this.#record({ stepId: step.id, itemPath, state: "cancelled", attempt: instance.attempt });
  }

  async #finish(end: PlanEnd): Promise<PlanProgress | undefined> {
    const { session, signal, turn } = this.#work;
    if (this.#busy.size > 0) return undefined;
    const { successCriteria } = this.#version;
    const output = JSON.stringify(this.#state.valueOfList({ steps: this.#state.steps, itemPath: [] }));
    const unknown = (evidence: string) =>
      successCriteria.map((criterion) => ({ criterion, state: "unknown", evidence }) as const);
    let goalChecks: PlanOutcome["goalChecks"] = unknown("the execution did not come to its end");
    let usage: Usage | undefined;
    if (end.state === "completed") {
      const leave = new AbortController();
      const stopWatching = session.watch?.(() => {
        const reason = this.#leaving();
        if (reason !== undefined) leave.abort(reason);
      });
      try {
        const checked = await checkGoals(
          session,
          turn,
          this.#version,
          this.#state,
          AbortSignal.any([signal, leave.signal]),
        );
        ({ goalChecks, usage } = checked);
      } catch (error) {
        this.#throwIfOver();
        if (!signal.aborted) throw error;
        return undefined; // it is cancelled after all
      } finally {
        stopWatching?.();
      }
    }
    const isTooLong = output.length > maxOutput;
    if (isTooLong)
      record(session, turn.turnId, {
        type: "notice",
        level: "warning",
        code: "PLAN_OUTPUT_TOO_LONG",
        message: `the output has ${output.length} characters and is left out: ${maxOutput} is the most; the steps have it`,
      });
    const isCompleted = end.state === "completed";
    const { failedStepId } = end;
    const outcome = { state: end.state, goalChecks, output: isCompleted && !isTooLong ? output : "null", failedStepId };
    const spent = usage === undefined ? turn.usage : addUsage(turn.usage, usage);
    return {
      type: "ended",
      finishReason: isCompleted ? "stop" : end.state === "cancelled" ? "cancelled" : this.#failedReason(),
      outcome,
      ...(end.state === "failed" ? { error: end.error ?? unknownFailure } : {}),
      ...(spent === undefined ? {} : { usage: spent }),
    };
  }

  #failedReason(): "budget" | "error" {
    return this.#plan.ending?.code === "PLAN_BUDGET_EXHAUSTED" ? "budget" : "error";
  }

  #record(change: PlanStepChange): void {
    const { session, turn } = this.#work;
    record(session, turn.turnId, { type: "plan-step", ...change });
  }

  #leaving(): unknown {
    const { signal, session } = this.#work;
    if (signal.aborted && !isEnding(signal.reason)) return signal.reason;
    return session.leaving?.();
  }

  /** @throws what makes going on impossible, and why it is left as it is. */
  #throwIfOver(): void {
    if (this.#failure !== undefined) throw this.#failure.error;
    const leaving = this.#leaving();
    if (leaving !== undefined) throw leaving;
  }

  /** Records, once, that it ends before its time. */
  #noteEnding(): void {
    const { signal, session, turn } = this.#work;
    if (!signal.aborted || this.#plan.ending !== undefined || !isEnding(signal.reason)) return;
    const { message, kind, reason } = signal.reason;
    const code: PlanEndingCode =
      kind === "cancelled"
        ? "PLAN_CANCELLED"
        : reason === "BUDGET_DURATION"
          ? "PLAN_BUDGET_EXHAUSTED"
          : "PLAN_TIME_OVER";
    record(session, turn.turnId, { type: "notice", level: "warning", code, message });
  }

  #noteHandOver(): void {
    try {
      this.#work.session.checkpoint?.();
    } catch (error) {
      if (!(error instanceof StoppedError)) throw error;
      this.#handsOver = error;
    }
    if (this.#handsOver !== undefined && this.#busy.size === 0) throw this.#handsOver;
  }

  #tell(): void {
    this.#hasNews = true;
    this.#onNews?.();
  }

  /** Waits until something has happened or the time is over. */
  async #newsBy(delayMs: number): Promise<void> {
    if (this.#hasNews) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#onNews = resolve;
    const timer = setTimeout(resolve, Math.min(Math.max(0, delayMs), longestTimerMs));
    await promise;
    clearTimeout(timer);
    this.#onNews = undefined;
  }
}

/** The turn ends before its time, and that is recorded; other reasons leave it as it is. */
function isEnding(reason: unknown): reason is AgentError {
  if (!(reason instanceof AgentError) || isLeft(reason)) return false;
  return reason.kind === "cancelled" || reason.reason === "TURN_TIMEOUT" || reason.reason === "BUDGET_DURATION";
}

function endingFrom({ code, message }: NonNullable<PlanTurnState["ending"]>): {
  state: "failed" | "cancelled";
  error?: TurnError;
} {
  if (code === "PLAN_CANCELLED") return { state: "cancelled" };
  const error =
    code === "PLAN_TIME_OVER"
      ? new AgentError("deadline", message, { reason: "TURN_TIMEOUT" })
      : new AgentError("resource_exhausted", message, { reason: "BUDGET_DURATION" });
  return { state: "failed", error: turnErrorFrom(error, true) };
}

const unknownFailure = turnErrorFrom(new AgentError("failed_precondition", "a step failed"), true);

function inputFrom(text: string): unknown {
  return text.trim() === "" ? {} : JSON.parse(text);
}
