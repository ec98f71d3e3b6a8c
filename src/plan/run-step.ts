import { AgentError } from "../chat/error.ts";
import type { PlanStepChange } from "../chat/plan.ts";
import { noOutput, toolResultText } from "../chat/tool-result.ts";
import type { Usage } from "../chat/usage.ts";
import { askModel } from "../session/ask-model.ts";
import { spentBudget } from "../session/budgets.ts";
import { judgeCall } from "../session/judge-call.ts";
import type { PlannedCall } from "../session/next-step.ts";
import { cancelTask, runTask } from "../session/run-task.ts";
import { approvalOf, openHandOver, openRequest } from "../session/run-tools.ts";
import { type PlanWork, record, recordRequest } from "../session/run-turn.ts";
import { shortLine } from "../session/short-line.ts";
import type { RequestState } from "../session/state.ts";
import { taskUsageOf } from "../session/task-usage.ts";
import { turnErrorFrom } from "../session/turn-error.ts";
import { runFunction } from "../tool/run-function.ts";
import { fitValues } from "./fit-values.ts";
import { changeAfterFailure, type StepFailure, stepFailure, timeUp, valueFailure } from "./next-plan-steps.ts";
import type { PlanReader } from "./plan-reader.ts";
import { PlanValueError } from "./plan-scope.ts";
import type { PlanState, StepInstance } from "./plan-state.ts";
import { resolveParameters, resolveText } from "./references.ts";
import { cancelSubPlan, runSubPlan } from "./run-sub-plan.ts";

/** One step, or the compensation of one, and where it is done. */
export interface StepWork extends Pick<PlanWork, "session" | "turn" | "functions"> {
  /** How events name it. */
  readonly key: string;
  readonly state: PlanState;
  readonly plans: PlanReader;
  /** Ends the step. */
  readonly signal: AbortSignal;
  readonly record: (change: PlanStepChange) => void;
}

/** What an attempt came to; undefined where people have to be asked first. */
type Attempt =
  | {
      readonly ok: true;
      /** JSON text. */
      readonly output: string;
      /** A part of it is lost. */
      readonly isCut?: boolean;
      readonly usage?: Usage;
    }
  | { readonly ok: false; readonly failure: StepFailure; readonly usage?: Usage }
  | undefined;

/** A step that is told nothing else may take so long to ask a model. */
const modelLimitMs = 10 * 60_000;
/** Most characters of a value that is recorded whole. */
const maxValue = 400_000;

/**
 * Tries a step that does something itself, and records what it came to, or asks people and leaves it for later.
 * @throws the signal's reason, and what the log throws.
 */
export async function runStep(work: StepWork, instance: StepInstance, attempt: number): Promise<void> {
  const startMs = performance.now();
  const { stepId, itemPath, step } = instance;
  // One that goes on after a crash is in the log already.
  const isBegun = instance.state === "running";
  const begin = async (isRepeatable: boolean) => {
    work.signal.throwIfAborted();
    if (isBegun) return;
    const repeatable = isRepeatable ? { repeatable: true } : {};
    work.record({ stepId, itemPath, state: "running", attempt, ...repeatable });
    await work.session.writer.flushed();
  };
  const limit = new AbortController();
  // People who are asked have their own time.
  const timer =
    step.timeoutMs === undefined || step.details.kind === "user_input"
      ? undefined
      : setTimeout(() => limit.abort(new Error("its time is over")), Math.min(step.timeoutMs, 2 ** 31 - 1));
  const signal = AbortSignal.any([work.signal, limit.signal]);
  let came: Attempt;
  try {
    came = await tryStep({ ...work, signal }, instance, attempt, isBegun, begin);
  } catch (error) {
    work.signal.throwIfAborted();
    if (error instanceof PlanValueError) came = { ok: false, failure: valueFailure(error) };
    else if (limit.signal.aborted) came = { ok: false, failure: timeUp(step.timeoutMs) };
    else throw error;
    if (limit.signal.aborted) await cancelStep(work, { ...instance, attempt });
  } finally {
    clearTimeout(timer);
  }
  work.signal.throwIfAborted();
  if (came === undefined) return;
  const durationMs = Math.round(performance.now() - startMs);
  const facts = { durationMs, ...(came.usage === undefined ? {} : { usage: came.usage }) };
  if (!came.ok) {
    const { now } = work.session.environment;
    work.record({ ...changeAfterFailure(instance, attempt, came.failure, now()), ...facts });
    return;
  }
  const cut = came.isCut === true ? { truncated: true } : {};
  work.record({ stepId, itemPath, state: "completed", attempt, output: came.output, ...cut, ...facts });
}

async function tryStep(
  work: StepWork,
  instance: StepInstance,
  attempt: number,
  isBegun: boolean,
  begin: (isRepeatable: boolean) => Promise<void>,
): Promise<Attempt> {
  const { details } = instance.step;
  switch (details.kind) {
    case "function_call":
      return callFunction(work, instance, {
        ...{ name: details.function, parameters: details.parameters, attempt, isBegun },
        begin,
      });
    case "user_input":
      return askPerson(work, instance, details);
    case "model":
      return askForText(work, instance, details, begin);
    case "sub_plan": {
      const input = JSON.stringify(resolveParameters(details.input, work.state.scopeOf(instance)));
      const ended = await runSubPlan(work, instance, { ...details, input, attempt }, begin);
      if (ended.ok) return { ...ended, ...(ended.output.length > maxValue ? cutText(ended.output) : {}) };
      return ended;
    }
    case "branch":
    case "for_each":
    case "parallel":
      throw new AgentError("internal", `step ${instance.stepId} does nothing itself`);
    default:
      return details satisfies never;
  }
}

/**
 * Undoes a step, and records what that came to, or asks people and leaves it for later.
 * @throws the signal's reason, and what the log throws.
 */
export async function undoStep(work: StepWork, instance: StepInstance): Promise<void> {
  const { compensation } = instance.step;
  if (compensation === undefined) return;
  const { stepId, itemPath, attempt } = instance;
  const isBegun = instance.state === "compensating";
  const startMs = performance.now();
  let came: Attempt;
  try {
    came = await callFunction(work, instance, {
      name: compensation.function,
      parameters: compensation.parameters,
      attempt,
      isBegun,
      begin: async (isRepeatable) => {
        work.signal.throwIfAborted();
        if (isBegun) return;
        const repeatable = isRepeatable ? { repeatable: true } : {};
        work.record({ stepId, itemPath, state: "compensating", attempt, ...repeatable });
        await work.session.writer.flushed();
      },
    });
  } catch (error) {
    work.signal.throwIfAborted();
    if (!(error instanceof PlanValueError)) throw error;
    came = { ok: false, failure: valueFailure(error) };
  }
  if (came === undefined) return;
  const durationMs = Math.round(performance.now() - startMs);
  if (came.ok) work.record({ stepId, itemPath, state: "compensated", attempt, durationMs });
  else {
    const { reason, error } = came.failure;
    work.record({ stepId, itemPath, state: "compensation_failed", attempt, durationMs, reason, error });
  }
}

/** Ends what a step that was stopped has begun elsewhere. */
export async function cancelStep(
  work: Pick<PlanWork, "session" | "turn" | "functions">,
  { key, attempt, step: { details } }: StepInstance,
): Promise<void> {
  if (details.kind === "sub_plan") await cancelSubPlan(work, key, attempt);
  if (details.kind !== "function_call") return;
  if (work.functions.find(details.function)?.definition.delegates !== true) return;
  await cancelTask(work.session, work.turn, callId(key, attempt));
}

/** Each attempt is a call of its own. */
function callId(key: string, attempt: number): string {
  return `${key}#${attempt}`;
}

interface WantedCall {
  readonly name: string;
  /** JSON text, with references. */
  readonly parameters: string;
  readonly attempt: number;
  /** It may have run already. */
  readonly isBegun: boolean;
  readonly begin: (isRepeatable: boolean) => Promise<void>;
}

async function callFunction(
  work: StepWork,
  instance: StepInstance,
  { name, parameters, attempt, isBegun, begin }: WantedCall,
): Promise<Attempt> {
  const { session, turn, functions, key, signal } = work;
  const input = JSON.stringify(resolveParameters(parameters, work.state.scopeOf(instance)));
  const call: PlannedCall = {
    call: {
      use: { type: "tool_use", id: key, name, input },
      started: undefined,
      request: requestOf(work, key),
      result: undefined,
    },
    action: isBegun ? "run-again" : "run",
  };
  const verdict = await judgeCall(session, turn, functions, call);
  signal.throwIfAborted();
  switch (verdict.type) {
    case "run":
      break;
    case "ask":
      openRequest(session, turn, call.call.use, approvalOf(call, verdict.approval));
      return undefined;
    case "question":
      return failed("failed_precondition", "STEP_FAILED", `${name} asks people; use a user_input step for that`);
    case "hand-over":
      openHandOver(session, turn, call.call.use, verdict.handOver);
      return undefined;
    case "handed-back":
      break;
    case "settle":
      return failed("permission_denied", "DENIED", verdict.result.error ?? toolResultText(verdict.result));
    default:
      return verdict satisfies never;
  }
  const definition = functions.find(name)?.definition;
  await begin(definition?.readOnly === true || definition?.repeatable === true);
  const run = () =>
    runFunction(
      functions,
      { name, argumentsText: input },
      {
        sessionId: session.sessionId,
        turnId: turn.turnId,
        toolCallId: callId(key, attempt),
        workspace: session.config.workspace,
        signal,
        onOutput: (stream, text) =>
          void record(session, turn.turnId, { type: "tool-output", toolCallId: key, stream, text }),
        runTask: (task, own) => runTask({ session, turn, functions, toolCallId: callId(key, attempt) }, task, own),
      },
    );
  const result = verdict.type === "handed-back" ? verdict.result : await run();
  const used = taskUsageOf(result);
  const usage = definition?.delegates === true && used !== undefined ? { usage: used } : {};
  if (!result.success) {
    const message = result.error ?? toolResultText(result);
    const kind = functions.find(name) === undefined ? "not_found" : "failed_precondition";
    return { ok: false, failure: stepFailure(kind, "STEP_FAILED", message), ...usage };
  }
  return { ok: true, output: outputOf(result.output), ...(result.truncated === true ? { isCut: true } : {}), ...usage };
}

/** JSON that a function wrote is the value itself, other text is a text, nothing is null. */
function outputOf(text: string): string {
  if (text.trim() === "" || text === noOutput) return "null";
  try {
    JSON.parse(text);
    return text;
  } catch {
    return JSON.stringify(text);
  }
}

function requestOf({ turn }: StepWork, key: string): RequestState | undefined {
  return turn.plan?.requests.findLast(({ request }) => request.toolCallId === key);
}

function failed(...[kind, code, message]: Parameters<typeof stepFailure>): Attempt {
  return { ok: false, failure: stepFailure(kind, code, message, { isFinal: true }) };
}

/** What a question to people carries, so that they can be shown a form. */
export interface InputQuestion {
  readonly prompt: string;
  /** JSON Schema of the answer, as JSON text. */
  readonly schema: string;
}

/** An answer without a schema may have any fields. */
export function inputSchema(schema: string): string {
  return schema.trim() === "" ? '{"type":"object"}' : schema;
}

async function askPerson(work: StepWork, instance: StepInstance, details: InputQuestion): Promise<Attempt> {
  const { session, turn, key } = work;
  const asked = requestOf(work, key);
  // A question that an earlier attempt was about is over.
  const answer = asked !== undefined && asked.seq > instance.seq ? asked.answer : undefined;
  let explanation = "the plan asks for values: answer with a JSON object that fits the schema";
  let expireTimeMs =
    instance.step.timeoutMs === undefined ? undefined : session.environment.now() + instance.step.timeoutMs;
  if (answer !== undefined) {
    const { decision, text = "" } = answer;
    if (decision === "expired")
      return { ok: false, failure: stepFailure("deadline", "INPUT_EXPIRED", "nobody answered in time") };
    if (decision !== "answer")
      return failed("permission_denied", "DENIED", `the question was refused${text === "" ? "" : `: ${text}`}`);
    const fitted = fitValues(inputSchema(details.schema), text);
    if (fitted.ok) return { ok: true, output: fitted.text };
    explanation = `the answer ${fitted.problem}; answer again with a JSON object that fits the schema`;
    ({ expireTimeMs } = asked?.request ?? {});
  }
  const prompt = resolveText(details.prompt, work.state.scopeOf(instance));
  const question: InputQuestion = { prompt, schema: inputSchema(details.schema) };
  recordRequest(session, turn.turnId, {
    type: "request-opened",
    request: {
      requestId: session.environment.newId("req"),
      kind: "question",
      title: shortLine(prompt),
      toolName: "user_input",
      toolCallId: key,
      arguments: JSON.stringify(question),
      options: [],
      explanation,
      ...(expireTimeMs === undefined ? {} : { expireTimeMs }),
    },
  });
  return undefined;
}

async function askForText(
  work: StepWork,
  instance: StepInstance,
  details: Extract<StepInstance["step"]["details"], { kind: "model" }>,
  begin: (isRepeatable: boolean) => Promise<void>,
): Promise<Attempt> {
  const { session, turn, key, signal } = work;
  const { environment, config, state } = session;
  const spent = spentBudget(state, { budget: config.budget, nowMs: environment.now() });
  if (spent !== undefined) return failed("resource_exhausted", spent.reason, spent.message);
  const scope = work.state.scopeOf(instance);
  const prompt = resolveText(details.prompt, scope);
  const systemPrompt = resolveText(details.systemPrompt, scope);
  const name = details.model === "" ? turn.model : details.model;
  if (name === "") return failed("failed_precondition", "NO_MODEL", "no model is named, and the server has no default");
  let models: Parameters<typeof askModel>[0]["models"];
  try {
    models = environment.models.find(name);
  } catch (error) {
    if (!(error instanceof AgentError)) throw error;
    return { ok: false, failure: { reason: error.message, error: turnErrorFrom(error, false), isFinal: true } };
  }
  await begin(true);
  const pieces = textPieces(
    (text) => void record(session, turn.turnId, { type: "tool-output", toolCallId: key, stream: "text", text }),
    () => session.writer.waiting === 0,
  );
  const text = (role: "system" | "user", words: string) => ({ role, blocks: [{ type: "text", text: words } as const] });
  const reply = await askModel(
    {
      models,
      messages: [...(systemPrompt === "" ? [] : [text("system", systemPrompt)]), text("user", prompt)],
      ...(details.schema === "" ? {} : { format: { name: formatName(instance.stepId), schema: details.schema } }),
      ...(details.maxTokens === undefined ? {} : { maxTokens: details.maxTokens }),
      limitMs: instance.step.timeoutMs ?? modelLimitMs,
      onText: pieces.add,
    },
    environment,
    signal,
  );
  pieces.end();
  const usage = reply.usage === undefined ? {} : { usage: reply.usage };
  if (!reply.ok) {
    const { error } = reply;
    return {
      ok: false,
      failure: { reason: error.message, error: turnErrorFrom(error, false), isFinal: false },
      ...usage,
    };
  }
  if (details.schema === "" && reply.text.length > maxValue) return { ok: true, ...cutText(reply.text), ...usage };
  const output = JSON.stringify(details.schema === "" ? reply.text : reply.value);
  if (output.length > maxValue) return { ...tooLong(output), ...usage };
  return { ok: true, output, ...usage };
}

/** A value that is too long for an event becomes the beginning of its text. */
function cutText(text: string) {
  return { output: JSON.stringify(text.slice(0, maxValue / 2).toWellFormed()), isCut: true };
}

function tooLong({ length }: string) {
  const message = `the answer has ${length} characters; ${maxValue} is the most`;
  return {
    ok: false,
    failure: stepFailure("resource_exhausted", "OUTPUT_TOO_LONG", message, { isFinal: true }),
  } as const;
}

/** Providers take letters, digits, `_` and `-` as the name of a format. */
function formatName(stepId: string): string {
  return stepId.replace(/[^\w-]/g, "_");
}

/** Joins the pieces of a text until the log takes the next one; none ends in half a character. */
function textPieces(write: (text: string) => void, isFree: () => boolean) {
  let held = "";
  const longest = 32 * 1024;
  return {
    add(piece: string): void {
      held += piece;
      if (!isFree() && held.length < longest) return;
      const last = held.charCodeAt(held.length - 1);
      const keep = last >= 0xd800 && last <= 0xdbff ? 1 : 0;
      if (held.length > keep) write(held.slice(0, held.length - keep));
      held = held.slice(held.length - keep);
    },
    end(): void {
      if (held !== "") write(held);
      held = "";
    },
  };
}
