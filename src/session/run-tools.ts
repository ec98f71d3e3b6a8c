import type { PendingRequest } from "../chat/log-event.ts";
import { plainPermissions } from "../chat/session-config.ts";
import { type ToolResult, toolFailure } from "../chat/tool-result.ts";
import { type Question, questionOf } from "../tool/ask-user.ts";
import { checkArguments } from "../tool/check-arguments.ts";
import type { FunctionIndex } from "../tool/function-index.ts";
import { decidePermission, mainArgumentText, type PermissionFinding } from "../tool/permission.ts";
import { runFunction } from "../tool/run-function.ts";
import { grantsOf } from "./grants.ts";
import type { PlannedCall } from "./next-step.ts";
import { questionRequest, questionResult } from "./questions.ts";
import { type RunningSession, record, recordRequest } from "./run-turn.ts";
import { shortLine } from "./short-line.ts";
import type { TurnState } from "./state.ts";

/**
 * Runs the calls of an answer. Calls that only read run side by side, one that may change something runs alone and in
 * its place. `tool-started` is committed before a tool runs, so that after a crash nothing is run twice without knowing.
 * For a call that has to be asked for a request is opened; it is left for later, and the others run meanwhile.
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
  for (const planned of calls) {
    const verdict = verdictOn(session, turn, functions, planned);
    if (verdict.type === "run") toRun.push(planned);
    else if (verdict.type === "ask") openRequest(session, turn, planned.call.use, approvalOf(planned, verdict.finding));
    else if (verdict.type === "question")
      openRequest(session, turn, planned.call.use, questionRequest(verdict.question));
    else settle(session, turn, functions, planned, verdict.result);
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
    // Recorded in the order of the calls. Of calls side by side all only read, so one that waits here for an earlier one
    // when the server dies is simply run again. All have ended before anything else happens: none writes into a turn
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
  return runFunction(
    functions,
    { name: use.name, argumentsText: use.input },
    {
      sessionId: session.sessionId,
      turnId: turn.turnId,
      toolCallId: use.id,
      workspace: session.config.workspace,
      signal,
      onOutput: (stream, text) =>
        void record(session, turn.turnId, { type: "tool-output", toolCallId: use.id, stream, text }),
    },
  );
}

type Verdict =
  | { readonly type: "run" }
  | { readonly type: "ask"; readonly finding: PermissionFinding }
  | { readonly type: "question"; readonly question: Question }
  /** It does not run. */
  | { readonly type: "settle"; readonly result: ToolResult };

/** What becomes of a call. What can't run anyhow (no such function, bad arguments) is not asked for: it fails by itself. */
function verdictOn(
  session: RunningSession,
  turn: TurnState,
  functions: FunctionIndex,
  { call, action }: PlannedCall,
): Verdict {
  if (action === "report-interrupted") return { type: "run" };
  const { use, request } = call;
  const { maxCallsPerStep } = session.environment.limits;
  const position = turn.answer?.calls.findIndex((each) => each.use.id === use.id) ?? 0;
  if (position >= maxCallsPerStep)
    return refused(`not run: an answer may call ${maxCallsPerStep} tools at most; call this one again in the next`);
  const { allowedTools } = turn.options;
  if (allowedTools !== undefined && !allowedTools.includes(use.name))
    return refused(`the tool ${use.name} is not allowed in this turn; allowed are: ${allowedTools.join(", ")}`);
  const definition = functions.find(use.name)?.definition;
  if (definition === undefined) return { type: "run" };
  const checked = checkArguments(definition, use.input);
  if (!checked.ok) return { type: "run" };
  const { config, state } = session;
  const subject = { ...definition, arguments: checked.arguments, workspace: config.workspace };
  const finding = decidePermission(config.permissions ?? plainPermissions, grantsOf(state), subject);
  if (finding.decision === "deny") return refused(`denied by the policy: ${finding.explanation}`);
  if (definition.asks === true) {
    const question = questionOf(checked.arguments);
    if (request?.answer === undefined) return { type: "question", question };
    return { type: "settle", result: questionResult(question, request.answer) };
  }
  if (request?.answer !== undefined) {
    const { decision, text = "" } = request.answer;
    if (decision === "allow_once" || decision === "allow_session") return { type: "run" };
    const why = decision === "expired" ? "nobody approved it in time" : "the person who was asked denied it";
    return refused(`not run: ${why}${text === "" ? "" : `, and says: ${text}`}`);
  }
  // One that was begun before a crash was allowed then.
  return finding.decision === "allow" || action === "run-again" ? { type: "run" } : { type: "ask", finding };
}

function refused(error: string): Verdict {
  return { type: "settle", result: toolFailure(error) };
}

function openRequest(
  session: RunningSession,
  turn: TurnState,
  use: PlannedCall["call"]["use"],
  asked: Pick<PendingRequest, "kind" | "title" | "options" | "explanation">,
): void {
  const { environment, config } = session;
  const timeoutMs = config.approvalTimeoutMs ?? environment.limits.approvalTimeoutMs;
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

function approvalOf({ call }: PlannedCall, { explanation }: PermissionFinding) {
  const options = ["allow_once", "allow_session", "deny"];
  return { kind: "approval", title: titleOf(call.use), options, explanation } as const;
}

/** One line; the whole is in the arguments. */
function titleOf({ name, input }: PlannedCall["call"]["use"]): string {
  const given: unknown = JSON.parse(input.trim() === "" ? "{}" : input);
  const isObject = typeof given === "object" && given !== null;
  const main = isObject ? mainArgumentText({ name, arguments: { ...given } }) : "";
  return shortLine(`${name} ${main === "" ? input : main}`);
}

/** In one commit: a call that never ran is not to look, after a crash, as if it had begun. */
function settle(
  session: RunningSession,
  turn: TurnState,
  functions: FunctionIndex,
  { call: { use }, action }: PlannedCall,
  result: ToolResult,
): void {
  const definition = functions.find(use.name)?.definition;
  const call = { toolCallId: use.id, name: use.name };
  const { source = "unknown", readOnly = true } = definition ?? {};
  if (action === "run") record(session, turn.turnId, { type: "tool-started", ...call, source, readOnly });
  record(session, turn.turnId, { type: "tool-finished", ...call, result });
}

/** Neighbouring calls that only read together, every other call by itself. */
function groups(functions: FunctionIndex, calls: readonly PlannedCall[], most: number): PlannedCall[][] {
  const all: PlannedCall[][] = [];
  let reading: PlannedCall[] | undefined;
  for (const planned of calls) {
    const readOnly = functions.find(planned.call.use.name)?.definition.readOnly ?? true;
    if (!readOnly) {
      all.push([planned]);
      reading = undefined;
    } else if (reading === undefined || reading.length >= most) {
      reading = [planned];
      all.push(reading);
    } else {
      reading.push(planned);
    }
  }
  return all;
}
