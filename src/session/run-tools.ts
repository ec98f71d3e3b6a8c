import type { PendingRequest } from "../chat/log-event.ts";
import { type ToolResult, toolFailure } from "../chat/tool-result.ts";
import type { FunctionIndex } from "../tool/function-index.ts";
import { hiddenFiles } from "../tool/permission.ts";
import { runFunction } from "../tool/run-function.ts";
import { callTitle } from "./call-title.ts";
import { clientSource, type HandOver, handOverRequest } from "./hand-over.ts";
import { type Approval, judgeCall, sessionRules } from "./judge-call.ts";
import type { PlannedCall } from "./next-step.ts";
import { questionRequest } from "./questions.ts";
import { runTask } from "./run-task.ts";
import { type RunningSession, record, recordRequest } from "./run-turn.ts";
import type { TurnState } from "./state.ts";

/**
 * Runs the calls of an answer. Calls that only read run side by side, one that may change something runs alone and in
 * its place; tasks that are handed over together are worked on together. `tool-started` is committed before a tool runs,
 * so that after a crash nothing is run twice without knowing. For a call that has to be asked for a request is opened; it
 * is left for later, and the others run meanwhile.
 * @throws the signal's reason.
 */
export async function runTools(
  session: RunningSession,
  turn: TurnState,
  functions: FunctionIndex,
  calls: readonly PlannedCall[],
  signal: AbortSignal,
): Promise<void> {
  const { limits } = session.environment;
  const toRun: PlannedCall[] = [];
  for (const each of calls) {
    const planned = repeatedWherePossible(functions, each);
    const verdict = await judgeCall(session, turn, functions, planned);
    if (verdict.type === "run") toRun.push(planned);
    else if (verdict.type === "ask")
      openRequest(session, turn, planned.call.use, approvalOf(planned, verdict.approval));
    else if (verdict.type === "question")
      openRequest(session, turn, planned.call.use, questionRequest(verdict.question));
    else if (verdict.type === "hand-over") openHandOver(session, turn, planned.call.use, verdict.handOver);
    else settle(session, turn, functions, planned, verdict.result, verdict.type === "handed-back");
  }
  for (const group of groups(functions, toRun, limits.maxParallelTools)) {
    for (const { call, action } of group) {
      if (action !== "run") continue;
      const definition = functions.find(call.use.name)?.definition;
      record(session, turn.turnId, {
        type: "tool-started",
        toolCallId: call.use.id,
        name: call.use.name,
        source: definition?.source ?? "unknown",
        readOnly: definition?.readOnly ?? true,
      });
    }
    await session.writer.flushed();
    const running = group.map(async ({ call, action }) => ({
      call,
      result:
        action === "report-interrupted" ? outcomeUnknown : await runCall(session, turn, functions, call.use, signal),
    }));
    const ended = Promise.allSettled(running);
    let failure: { readonly error: unknown } | undefined;
    // Recorded in the order of the calls. Of calls side by side all only read or find again what they began, so one that
    // waits here for an earlier one when the server dies is simply run again. All have ended before anything else happens: none writes into a turn
    // that is over.
    for (const outcome of running) {
      try {
        const { call, result } = await outcome;
        record(session, turn.turnId, { type: "tool-finished", toolCallId: call.use.id, name: call.use.name, result });
      } catch (error) {
        failure ??= { error };
      }
    }
    await ended;
    if (failure !== undefined) throw failure.error;
  }
}

/** What finds again what it began is run again after a crash, also where it changes something. */
function repeatedWherePossible(functions: FunctionIndex, planned: PlannedCall): PlannedCall {
  const isRepeatable = functions.find(planned.call.use.name)?.definition.repeatable === true;
  return planned.action === "report-interrupted" && isRepeatable ? { ...planned, action: "run-again" } : planned;
}

const outcomeUnknown = toolFailure(
  "interrupted: the server stopped while this ran; the outcome is unknown, check before trying again",
);

async function runCall(
  session: RunningSession,
  turn: TurnState,
  functions: FunctionIndex,
  use: PlannedCall["call"]["use"],
  signal: AbortSignal,
): Promise<ToolResult> {
  const { callPlan } = session.environment;
  const isHidden = hiddenFiles(sessionRules(session, turn), session.config.workspace);
  return runFunction(
    functions,
    { name: use.name, argumentsText: use.input },
    {
      ...(isHidden === undefined ? {} : { isHidden }),
      sessionId: session.sessionId,
      turnId: turn.turnId,
      toolCallId: use.id,
      workspace: session.config.workspace,
      signal,
      onOutput: (stream, text) =>
        void record(session, turn.turnId, { type: "tool-output", toolCallId: use.id, stream, text }),
      runTask: (task, own) => runTask({ session, turn, functions, toolCallId: use.id }, task, own),
      ...(callPlan === undefined || !session.isKept
        ? {}
        : { callPlan: (call, own) => callPlan({ session, turn, functions, toolCallId: use.id }, call, own) }),
    },
  );
}

/** Asks people about a call; what they answer is found with the call. */
export function openRequest(
  session: RunningSession,
  turn: TurnState,
  use: PlannedCall["call"]["use"],
  asked: Pick<PendingRequest, "kind" | "title" | "options" | "explanation" | "contentSha256" | "lane">,
  timeoutMs = session.config.approvalTimeoutMs ?? session.environment.limits.approvalTimeoutMs,
): void {
  const { environment } = session;
  recordRequest(session, turn.turnId, {
    type: "request-opened",
    request: {
      requestId: environment.newId("req"),
      ...asked,
      toolName: use.name,
      toolCallId: use.id,
      arguments: use.input,
      expireTimeMs: environment.now() + timeoutMs,
    },
  });
}

/** Asks a client to run a call; its result is found with the call. */
export function openHandOver(
  session: RunningSession,
  turn: TurnState,
  use: PlannedCall["call"]["use"],
  handOver: HandOver,
): void {
  openRequest(session, turn, use, handOverRequest(handOver, callTitle(use)), handOver.timeoutMs);
}

/** What people are asked to approve. */
export function approvalOf({ call }: PlannedCall, { explanation, contentSha256, grantable }: Approval) {
  const options = grantable ? ["allow_once", "allow_session", "deny"] : ["allow_once", "deny"];
  return {
    kind: "approval",
    title: callTitle(call.use),
    options,
    explanation,
    ...(contentSha256 === "" ? {} : { contentSha256 }),
  } as const;
}

/** In one commit: a call that never ran is not to look, after a crash, as if it had begun. */
function settle(
  session: RunningSession,
  turn: TurnState,
  functions: FunctionIndex,
  { call: { use }, action }: PlannedCall,
  result: ToolResult,
  ranElsewhere: boolean,
): void {
  const definition = functions.find(use.name)?.definition;
  const call = { toolCallId: use.id, name: use.name };
  const { readOnly = true } = definition ?? {};
  const source = ranElsewhere ? clientSource : (definition?.source ?? "unknown");
  if (action === "run") record(session, turn.turnId, { type: "tool-started", ...call, source, readOnly });
  record(session, turn.turnId, { type: "tool-finished", ...call, result });
}

/** Neighbouring calls that only read together, neighbouring tasks too, every other call by itself. */
function groups(functions: FunctionIndex, calls: readonly PlannedCall[], most: number): PlannedCall[][] {
  const all: PlannedCall[][] = [];
  let last: { readonly kind: "read" | "task"; readonly calls: PlannedCall[] } | undefined;
  for (const planned of calls) {
    const { readOnly, repeatable, delegates } = functions.find(planned.call.use.name)?.definition ?? { readOnly: true };
    const kind = readOnly ? "read" : repeatable === true && delegates === true ? "task" : undefined;
    if (kind !== undefined && last?.kind === kind && last.calls.length < most) {
      last.calls.push(planned);
      continue;
    }
    const begun = [planned];
    all.push(begun);
    last = kind === undefined ? undefined : { kind, calls: begun };
  }
  return all;
}
