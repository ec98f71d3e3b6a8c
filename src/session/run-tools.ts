import { type ToolResult, toolFailure } from "../chat/tool-result.ts";
import type { FunctionIndex } from "../tool/function-index.ts";
import { runFunction } from "../tool/run-function.ts";
import type { PlannedCall } from "./next-step.ts";
import { type RunningSession, record } from "./run-turn.ts";
import type { TurnState } from "./state.ts";

/**
 * Runs the calls of an answer. Calls that only read run side by side, one that may change something runs alone and in
 * its place. `tool-started` is committed before a tool runs, so that after a crash nothing is run twice without knowing.
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
  for (const group of groups(functions, calls, limits.maxParallelTools)) {
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
  const { limits } = session.environment;
  const position = turn.answer?.calls.findIndex((call) => call.use.id === use.id) ?? 0;
  if (position >= limits.maxCallsPerStep) {
    return toolFailure(
      `not run: an answer may call ${limits.maxCallsPerStep} tools at most; call this one again in the next`,
    );
  }
  const { allowedTools } = turn.options;
  if (allowedTools !== undefined && !allowedTools.includes(use.name)) {
    return toolFailure(`the tool ${use.name} is not allowed in this turn; allowed are: ${allowedTools.join(", ")}`);
  }
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
