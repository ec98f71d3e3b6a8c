import { setTimeout as wait } from "node:timers/promises";
import { AgentError } from "../chat/error.ts";
import type { LogRecord } from "../chat/log-event.ts";
import type { TurnRequest } from "../chat/request.ts";
import { type ToolResult, toolFailure } from "../chat/tool-result.ts";
import type { TurnAnswer } from "../convert/turn-answer.ts";
import type { FunctionIndex } from "../tool/function-index.ts";
import type { FunctionContext } from "../tool/function-provider.ts";
import { type PlanCall, runPlanName } from "../tool/plan-functions.ts";
import { type Task, taskName } from "../tool/task.ts";
import { budgetLeft } from "./budgets.ts";
import { callTitle } from "./call-title.ts";
import { isPruned, type LogBatch } from "./follow-log.ts";
import { noTools } from "./profile.ts";
import { requestHash } from "./request-hash.ts";
import { type RunningSession, record, StoppedError } from "./run-turn.ts";
import type { Principal, Sessions } from "./sessions.ts";
import type { CallState, TurnState } from "./state.ts";
import { taskUsageMetadata } from "./task-usage.ts";
import { foldTurnAnswer } from "./turn-answer.ts";

/** What tasks need of the sessions of this process. */
export type TaskSessions = Pick<
  Sessions,
  "get" | "create" | "delete" | "startTurn" | "subscribe" | "cancelTurn" | "goOn"
>;

/** The call of a running turn that hands work over. */
export interface Giver {
  readonly session: RunningSession;
  readonly turn: TurnState;
  readonly functions: FunctionIndex;
  readonly toolCallId: string;
}

/** What ends the work, and what people are told of it. */
export type Own = Pick<FunctionContext, "signal" | "onOutput">;

/** Does what a model asks of plans, for a call of a turn. @throws the reason of the signal. */
export type RunPlanCall = (giver: Giver, call: PlanCall, own: Own) => Promise<ToolResult>;

/** The one turn of a session that is made for a task. */
const taskRequestId = "task";
const metadataKeys = { session: "parent_session_id", call: "parent_tool_call_id" } as const;
/** Before the log of a task is read again that could not be read. */
const retryMs = 500;

/**
 * Has a task done in a session of its own, made for this call: whoever calls again after a crash finds that session and goes
 * on waiting. It has the workspace, the rules and the prompt of its giver, at most its functions, and its share of what is
 * left of the budgets. A task of a one-off turn is a one-off turn too.
 * @throws the reason of the signal. The task is then ended by `cancelTasks`, or goes on where its giver does.
 */
export async function runTask(giver: Giver, task: Task, own: Own): Promise<ToolResult> {
  const { sessions } = giver.session.environment;
  if (sessions === undefined) return toolFailure("tasks can't be handed over here");
  try {
    const plan = planOf(giver, task);
    if (typeof plan === "string") return toolFailure(`the task was not begun: ${plan}`);
    return giver.session.isKept
      ? await runKept(giver, sessions, task, plan, own)
      : await runOneOff(giver, sessions, plan, own);
  } catch (error) {
    if (own.signal.reason instanceof StoppedError && (await isGone(giver.session, giver.turn, sessions)))
      await cancelTasks(giver.session, giver.turn);
    own.signal.throwIfAborted();
    if (!(error instanceof AgentError)) throw error;
    if (error.reason === "SHUTTING_DOWN") await aborted(own.signal); // the next start goes on with the call
    return toolFailure(`the task was not done: ${error.message}`);
  }
}

/** Ends the tasks of a turn that can't go on. */
export async function cancelTasks(session: RunningSession, turn: TurnState): Promise<void> {
  const { sessions } = session.environment;
  if (sessions === undefined || !session.isKept) return;
  for (const call of turn.answer?.calls ?? []) {
    if (call.started === undefined || call.result !== undefined) continue;
    if (!isTask(call) && call.use.name !== runPlanName) continue;
    const id = isTask(call) ? taskSessionId : planExecutionId;
    const sessionId = id(session, turn, call.use.id);
    await cancel(session, sessions, principalOf(session, turn), sessionId, "");
  }
}

/** Ends the task of one call. */
export async function cancelTask(session: RunningSession, turn: TurnState, toolCallId: string): Promise<void> {
  const { sessions } = session.environment;
  if (sessions === undefined || !session.isKept) return;
  const sessionId = taskSessionId(session, turn, toolCallId);
  await cancel(session, sessions, principalOf(session, turn), sessionId, "");
}

/** Id of the execution that a call of `run_plan` begins: the same for the same call of the same turn, on any server. */
export function planExecutionId(
  { sessionId }: Pick<RunningSession, "sessionId">,
  { turnId }: Pick<TurnState, "turnId">,
  toolCallId: string,
): string {
  return `exec_${requestHash([sessionId, turnId, toolCallId]).slice(0, 32)}`;
}

/** The session of the giver was deleted. */
export async function isGone(session: RunningSession, turn: TurnState, sessions: TaskSessions): Promise<boolean> {
  if (!session.isKept) return false;
  return sessions.get(principalOf(session, turn), session.sessionId).then(
    () => false,
    (error: unknown) => error instanceof AgentError && error.kind === "not_found",
  );
}

function isTask({ use }: CallState): boolean {
  return use.name === taskName;
}

/** The same for the same call of the same turn, on any server. */
function taskSessionId({ sessionId }: RunningSession, { turnId }: TurnState, toolCallId: string): string {
  return `ses_${requestHash([sessionId, turnId, toolCallId]).slice(0, 32)}`;
}

export function principalOf({ tenant }: RunningSession, { principal }: TurnState): Principal {
  return { tenant, name: principal };
}

type Plan = Omit<TurnRequest, "sessionId" | "requestId">;

/** The turn that does a task, or why there can be none. */
function planOf({ session, turn, functions, toolCallId }: Giver, task: Task): Plan | string {
  const { allowedTools, maxSteps, profile } = turn.options;
  const offered = functions.definitions
    .filter(({ name, delegates }) => delegates !== true && (allowedTools === undefined || allowedTools.includes(name)))
    .map(({ name }) => name);
  const unknown = (task.tools ?? []).filter((name) => !offered.includes(name));
  if (unknown.length > 0)
    return `it can't be given ${unknown.join(", ")}; what it can be given is: ${offered.join(", ") || "none"}`;
  const open = turn.answer?.calls.filter((call) => isTask(call) && call.result === undefined).length ?? 1;
  const budget = budgetLeft(session.state, session.config.budget, Math.max(1, open));
  if (budget !== undefined && Object.values(budget).some((most) => most === 0)) return "no budget is left for it";
  const allowed = task.tools ?? offered;
  const model = task.model ?? turn.model;
  session.environment.models.find(model);
  return {
    messages: [{ role: "user", blocks: [{ type: "text", text: task.prompt }] }],
    model,
    options: {
      allowedTools: allowed.length === 0 ? noTools : allowed,
      ...(maxSteps === undefined ? {} : { maxSteps }),
      ...(profile === undefined ? {} : { profile }),
      ...(budget === undefined ? {} : { budget }),
      metadata: { [metadataKeys.session]: session.sessionId, [metadataKeys.call]: toolCallId },
    },
    tools: [],
  };
}

async function runKept(
  giver: Giver,
  sessions: TaskSessions,
  task: Task,
  plan: Plan,
  { signal, onOutput }: Own,
): Promise<ToolResult> {
  const { session, turn, toolCallId } = giver;
  const principal = principalOf(session, turn);
  const sessionId = taskSessionId(session, turn, toolCallId);
  const found = await sessions.get(principal, sessionId).catch(unlessNotFound);
  if (found === undefined) {
    const { systemPrompt, workspace, permissions, approvalTimeoutMs, placement, lanes } = session.config;
    await sessions.create(
      principal,
      {
        title: task.description,
        workspace,
        model: plan.model,
        systemPrompt,
        initialMessages: [],
        metadata: plan.options.metadata ?? {},
        ...(permissions === undefined ? {} : { permissions }),
        ...(approvalTimeoutMs === undefined ? {} : { approvalTimeoutMs }),
        ...(placement === undefined ? {} : { placement }),
        ...(lanes === undefined ? {} : { lanes }),
      },
      sessionId,
      "",
    );
  }
  signal.throwIfAborted();
  const isBegun = found !== undefined && (found.headSeq > 0 || found.waitingTurns > 0);
  if (isBegun) {
    onOutput?.("progress", `goes on in session ${sessionId}\n`);
    sessions.goOn(sessionId); // room or not: our own turn holds the place that it would wait for
  } else {
    try {
      await sessions.startTurn(principal, { ...plan, sessionId, requestId: taskRequestId });
    } catch (error) {
      // With nothing in it, it would only be in the way.
      if (found === undefined) await sessions.delete(principal, sessionId).catch(() => undefined);
      throw error;
    }
    onOutput?.("progress", `begins in session ${sessionId}\n`);
  }
  const watch = watchTask(giver, sessionId, isBegun ? found.headSeq : 0, onOutput);
  let cursor = 0;
  for (;;) {
    try {
      const reading = await sessions.subscribe(principal, sessionId, cursor, true);
      for await (const logged of recordsOf(reading.read(signal))) {
        cursor = logged.seq;
        const result = watch.add(logged);
        if (result !== undefined) return result;
      }
    } catch (error) {
      signal.throwIfAborted();
      // Others may have to take it over first; it is not lost.
      if (!(error instanceof AgentError) || error.kind !== "unavailable" || error.reason === "SHUTTING_DOWN")
        throw error;
    }
    await wait(retryMs, undefined, { signal });
    sessions.goOn(sessionId);
  }
}

async function runOneOff(
  giver: Giver,
  sessions: TaskSessions,
  plan: Plan,
  { signal, onOutput }: Own,
): Promise<ToolResult> {
  const { session, turn } = giver;
  const principal = principalOf(session, turn);
  const started = await sessions.startTurn(principal, { ...plan, sessionId: "", requestId: "" });
  const { sessionId } = started;
  const watch = watchTask(giver, sessionId, 0, onOutput);
  try {
    for await (const logged of recordsOf(started.read(signal))) {
      const result = watch.add(logged);
      if (result !== undefined) return result;
    }
  } finally {
    if (signal.aborted) await cancel(session, sessions, principal, sessionId, started.turnId);
  }
  return toolFailure("the task broke off");
}

/** The records of a reading, without what was pruned. */
export async function* recordsOf(batches: AsyncIterable<LogBatch>): AsyncGenerator<LogRecord> {
  for await (const batch of batches) if (!isPruned(batch)) yield* batch;
}

async function cancel(
  { environment }: RunningSession,
  sessions: TaskSessions,
  principal: Principal,
  sessionId: string,
  turnId: string,
): Promise<void> {
  try {
    await sessions.cancelTurn(principal, sessionId, turnId, "");
  } catch (error) {
    if (error instanceof AgentError && error.kind === "not_found") return; // it was not begun, or is gone
    environment.report("warn", "a task could not be cancelled with the turn that gave it", { sessionId, error });
  }
}

/** Follows the first turn of a log, tells people how it goes, and gives what it came to when it ends. */
function watchTask(
  { session, turn, toolCallId }: Giver,
  sessionId: string,
  toldSeq: number,
  onOutput: Own["onOutput"],
) {
  const fold = foldTurnAnswer(sessionId);
  const calls = new Map<string, string>();
  let turnId = "";
  const tell = (text: string) => onOutput?.("progress", `${text}\n`);

  function show({ seq, event }: LogRecord): void {
    if (event.type === "block-stop" && event.block.type === "tool_use") calls.set(event.block.id, title(event.block));
    if (seq <= toldSeq) return;
    if (event.type === "step-started") tell(`step ${event.step}${event.attempt > 1 ? ", once more" : ""}`);
    else if (event.type === "tool-started") tell(`runs ${calls.get(event.toolCallId) ?? event.name}`);
    else if (event.type === "request-opened") {
      const message = `waits for an answer: ${event.request.title} (session ${sessionId})`;
      tell(message);
      const told = `the task of call ${toolCallId} ${message}`;
      record(session, turn.turnId, { type: "notice", level: "info", code: "TASK_WAITS", message: told });
    }
  }

  return {
    add(logged: LogRecord): ToolResult | undefined {
      if (turnId === "" && logged.event.type === "turn-started") turnId = logged.turnId;
      if (turnId === "" || logged.turnId !== turnId) return undefined;
      fold.add(logged);
      show(logged);
      return fold.answer === undefined ? undefined : resultOf(fold.answer, fold.failure);
    },
  };
}

function title(use: Parameters<typeof callTitle>[0]): string {
  try {
    return callTitle(use);
  } catch {
    return use.name; // its arguments are no JSON; it fails by itself
  }
}

function resultOf(answer: TurnAnswer, failure: Error | undefined): ToolResult {
  const { sessionId, turnId, finishReason, steps, model, usage, message } = answer;
  const output = (message?.blocks ?? []).flatMap((block) => (block.type === "text" ? block.text : [])).join("\n");
  const metadata = {
    session_id: sessionId,
    turn_id: turnId,
    finish_reason: finishReason,
    steps: String(steps),
    model,
    ...taskUsageMetadata(usage),
  };
  if (finishReason === "stop" && output.trim() !== "") return { success: true, output, metadata };
  const why =
    failure?.message ?? (finishReason === "stop" ? "it ended without an answer" : `it ended early (${finishReason})`);
  return { ...toolFailure(`the task was not done: ${why}`), output, metadata };
}

function unlessNotFound(error: unknown): undefined {
  if (error instanceof AgentError && error.kind === "not_found") return undefined;
  throw error;
}

/** @throws the reason of the signal, as soon as it has one. */
export async function aborted(signal: AbortSignal): Promise<never> {
  for (;;) {
    signal.throwIfAborted();
    await wait(longestWaitMs, undefined, { signal }).catch(() => undefined);
  }
}

const longestWaitMs = 60_000;
