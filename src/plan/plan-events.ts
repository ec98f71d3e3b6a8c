import type { LogRecord, PendingRequest, TurnError } from "../chat/log-event.ts";
import type { PlanOutcome, PlanStepChange } from "../chat/plan.ts";
import { addUsage, type Usage } from "../chat/usage.ts";
import { planVersionFromText } from "../convert/proto/plan.ts";
import { isRecord } from "../tool/check-value.ts";
import { placeOf, type StepPlace } from "./instance-key.ts";
import { type PlanCount, PlanState } from "./plan-state.ts";

/** An event of an execution as its readers get it, one for each event of its log. */
export type PlanEvent =
  | {
      readonly type: "started";
      readonly version: number;
      readonly requestId: string;
      readonly principal: string;
      readonly input: string;
    }
  | { readonly type: "step-changed"; readonly change: PlanStepChange }
  | { readonly type: "step-output"; readonly place: StepPlace; readonly stream: string; readonly text: string }
  | {
      readonly type: "input-requested";
      readonly place: StepPlace;
      readonly prompt: string;
      /** JSON text. */
      readonly schema: string;
      readonly expireTimeMs?: number;
    }
  | { readonly type: "notice"; readonly level: "info" | "warning"; readonly code: string; readonly message: string }
  | {
      readonly type: "finished";
      readonly outcome: PlanOutcome;
      readonly error?: TurnError;
      readonly usage?: Usage;
      readonly durationMs: number;
      /** How many steps ended in each state. */
      readonly stepCounts: Readonly<Record<string, number>>;
    };

export interface PlanCountWithUsage extends PlanCount {
  readonly usage?: Usage;
}

/** Makes events for the readers of an execution out of its log. To be given every record of it, from the first on. */
export class PlanEvents {
  #state: PlanState | undefined;
  #startedMs = 0;
  #usage: Usage | undefined;
  #hasEnded = false;
  readonly #asked = new Map<string, PendingRequest>();

  /** The plan's first turn is over; what follows in the log is not about the execution. */
  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  get progress(): PlanCountWithUsage | undefined {
    if (this.#state === undefined) return undefined;
    return { ...this.#state.count, ...(this.#usage === undefined ? {} : { usage: this.#usage }) };
  }

  add({ event, seq, timeMs }: LogRecord): PlanEvent {
    switch (event.type) {
      case "turn-started": {
        const { requestId, principal, plan } = event;
        this.#startedMs = timeMs;
        if (plan !== undefined) this.#state ??= new PlanState(planVersionFromText(plan.plan).steps, parsed(plan.input));
        return { type: "started", version: plan?.version ?? 0, requestId, principal, input: plan?.input ?? "{}" };
      }
      case "plan-step": {
        const { type: _, ...change } = event;
        this.#state?.apply({ ...change, seq, timeMs });
        if (event.usage !== undefined) this.#usage = addUsage(this.#usage, event.usage);
        return { type: "step-changed", change };
      }
      case "tool-output":
        return {
          type: "step-output",
          place: knownPlace(event.toolCallId),
          stream: event.stream,
          text: event.text,
        };
      case "request-opened": {
        const { request } = event;
        this.#asked.set(request.requestId, request);
        const { toolCallId = "", explanation = "" } = request;
        if (request.kind === "question") return inputRequested(request);
        return { type: "step-changed", change: this.#waiting(toolCallId, `${request.title}: ${explanation}`) };
      }
      case "request-resolved": {
        const asked = this.#asked.get(event.requestId);
        this.#asked.delete(event.requestId);
        const by = event.author === "" ? "" : ` by ${event.author}`;
        const { state: _, ...change } = this.#waiting(asked?.toolCallId ?? "", `answered ${event.decision}${by}`);
        const isUndone = placeOf(asked?.toolCallId ?? "")?.isCompensation === true;
        return { type: "step-changed", change: { ...change, state: isUndone ? "compensating" : "running" } };
      }
      case "notice":
        return { type: "notice", level: event.level, code: event.code, message: event.message };
      case "tools-changed":
        return {
          type: "notice",
          level: "info",
          code: "TOOLS_CHANGED",
          message: "the functions of the server are not those of the turn before",
        };
      case "turn-finished": {
        this.#hasEnded = true;
        const { plan, error, usage } = event;
        return {
          type: "finished",
          outcome: plan ?? { state: "failed", goalChecks: [], output: "null", failedStepId: "" },
          durationMs: Math.max(0, timeMs - this.#startedMs),
          stepCounts: this.#stepCounts(),
          ...(error === undefined ? {} : { error }),
          ...(usage === undefined ? {} : { usage }),
        };
      }
      case "step-started":
      case "step-finished":
      case "block-start":
      case "block-delta":
      case "block-stop":
      case "tool-started":
      case "tool-finished":
      case "history-compacted":
        return {
          type: "notice",
          level: "info",
          code: event.type.toUpperCase().replaceAll("-", "_"),
          message: event.type,
        };
      default:
        return event satisfies never;
    }
  }

  #waiting(key: string, reason: string): PlanStepChange {
    const { stepId, itemPath, isCompensation } = placeOf(key) ?? { stepId: key, itemPath: [], isCompensation: false };
    const step = this.#state?.stepOf(stepId);
    const instance = step && this.#state?.instance(step, itemPath);
    const attempt = Math.max(1, instance?.attempt ?? 0);
    return { stepId, itemPath, state: isCompensation ? "compensating" : "waiting", attempt, reason };
  }

  #stepCounts(): Readonly<Record<string, number>> {
    const counts: Record<string, number> = {};
    for (const { state } of this.#state?.instances ?? []) counts[state] = (counts[state] ?? 0) + 1;
    return counts;
  }
}

function inputRequested({ toolCallId = "", arguments: given = "{}", title, expireTimeMs }: PendingRequest): PlanEvent {
  const question = parsed(given);
  const { prompt, schema } = isRecord(question) ? question : {};
  return {
    type: "input-requested",
    place: knownPlace(toolCallId),
    prompt: typeof prompt === "string" ? prompt : title,
    schema: typeof schema === "string" ? schema : "",
    ...(expireTimeMs === undefined ? {} : { expireTimeMs }),
  };
}

function knownPlace(key: string): StepPlace {
  const { stepId, itemPath } = placeOf(key) ?? { stepId: key, itemPath: [] };
  return { stepId, itemPath };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}
