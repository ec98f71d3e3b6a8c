import { create } from "@bufbuild/protobuf";
import {
  type CronExecution,
  CronExecutionSchema,
  CronExecutionStatus,
} from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { AgentError } from "../../chat/error.ts";
import type { LogEvent } from "../../chat/log-event.ts";
import { isPruned } from "../../session/follow-log.ts";
import type { RunView } from "../../session/schedules.ts";
import type { Principal, Sessions } from "../../session/sessions.ts";
import { boundedText } from "../../tool/bounded-text.ts";
import { commandEnd } from "../../tool/run-command.ts";

type Ended = Extract<LogEvent, { readonly type: "turn-finished" }>;

/** What the log of a run says of it. */
interface RunLog {
  readonly stdout: string;
  readonly stderr: string;
  /** Why the command failed; empty where it did not. */
  readonly error: string;
  readonly isDone: boolean;
  /** Why somebody has to approve it before it goes on; empty where nobody has. */
  readonly waitsFor: string;
  readonly startedMs: number | undefined;
  /** Absent while it goes on. */
  readonly ended?: { readonly event: Ended; readonly atMs: number };
}

const nothing: RunLog = { stdout: "", stderr: "", error: "", isDone: false, waitsFor: "", startedMs: undefined };

/** A run whose outputs are kept; more of each is left out of what is read. */
const keptCharacters = 512 * 1024;

/**
 * Reads the log of a run; one whose session is gone says nothing.
 * @param follow waits for the end, or until somebody is asked, unless it is aborted before; absent for no waiting
 */
export async function readRun(
  sessions: Sessions,
  principal: Principal,
  { sessionId, turnId }: Pick<RunView, "sessionId" | "turnId">,
  follow?: AbortSignal,
): Promise<RunLog> {
  const output = { stdout: "", stderr: "" };
  let lasting = "";
  let error = "";
  let isDone = false;
  let waitsFor = "";
  let startedMs: number | undefined;
  let ended: RunLog["ended"];
  try {
    const log = await sessions.subscribe(principal, sessionId, 0, follow !== undefined);
    reading: for await (const batch of log.read(follow ?? new AbortController().signal)) {
      if (isPruned(batch)) continue;
      for (const { event, timeMs, turnId: ofTurn } of batch) {
        if (ofTurn !== turnId) continue;
        startedMs ??= timeMs;
        if (event.type === "tool-output") {
          const stream = event.stream === "stderr" ? "stderr" : "stdout";
          if (output[stream].length < keptCharacters) output[stream] += event.text;
        } else if (event.type === "plan-step") {
          if (event.state === "completed") {
            isDone = true;
            lasting = outputFrom(event.output ?? "null");
          } else if (event.state === "failed") error = event.error?.message ?? event.reason ?? "";
        } else if (event.type === "request-opened") {
          waitsFor = event.request.explanation ?? event.request.title;
          if (follow !== undefined) break reading;
        } else if (event.type === "request-resolved") waitsFor = "";
        else if (event.type === "turn-finished") {
          ended = { event, atMs: timeMs };
          break reading;
        }
      }
    }
  } catch (cause) {
    if (follow?.aborted !== true && !(cause instanceof AgentError && cause.kind === "not_found")) throw cause;
  }
  // The pieces that an output came in are removed some days after the end; what the step gave stays.
  const stdout = output.stdout === "" && output.stderr === "" ? lasting : output.stdout;
  return { ...output, stdout, error, isDone, waitsFor, startedMs, ...(ended === undefined ? {} : { ended }) };
}

/**
 * A run as the earlier service tells it. Its status is `UNKNOWN` and it has no end while it goes on; a run that was left out
 * since the one before had not ended is `CANCELLED`.
 * @param limitBytes most of each output; the middle of a longer one is left out
 */
export function executionFrom(run: RunView, log: RunLog = nothing, limitBytes: number): CronExecution {
  const { runId, scheduleId } = run;
  const startedMs = log.startedMs ?? run.startedMs ?? run.scheduledMs;
  const endedMs = log.ended?.atMs ?? run.endedMs;
  const { status, error, exitCode } = outcomeOf(run, log);
  return create(CronExecutionSchema, {
    ...{ id: runId, jobId: scheduleId, status },
    startedAt: BigInt(startedMs),
    ...(endedMs === undefined
      ? {}
      : { endedAt: BigInt(endedMs), durationMs: BigInt(Math.max(0, endedMs - startedMs)) }),
    ...(exitCode === undefined ? {} : { exitCode }),
    stdout: boundedText(log.stdout, limitBytes).text,
    stderr: boundedText(log.stderr, limitBytes).text,
    ...(error === "" ? {} : { error }),
  });
}

function outcomeOf(run: RunView, log: RunLog) {
  const { UNKNOWN, SUCCESS, FAILED, TIMEOUT, CANCELLED } = CronExecutionStatus;
  if (run.state === "skipped") return { status: CANCELLED, error: `not run: ${run.error?.message ?? "skipped"}` };
  if (run.state === "deleted") return { status: UNKNOWN, error: "its session was deleted, and its log with it" };
  const finishReason = log.ended?.event.finishReason ?? run.finishReason;
  if (finishReason === undefined)
    return { status: UNKNOWN, error: log.waitsFor === "" ? "" : `it waits for an approval: ${log.waitsFor}` };
  if (finishReason === "cancelled") return { status: CANCELLED, error: "the run was cancelled" };
  if (log.isDone) return { status: SUCCESS, error: "", exitCode: 0 };
  const error = log.error === "" ? (log.ended?.event.error?.message ?? run.error?.message ?? "it failed") : log.error;
  const { exitCode, isLate } = commandEnd(error);
  if (isLate) return { status: TIMEOUT, error };
  return { status: FAILED, error, ...(exitCode === undefined ? {} : { exitCode }) };
}

/** The text of a step's output, which is JSON. */
function outputFrom(json: string): string {
  if (json === "null") return "";
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === "string" ? value : json;
  } catch {
    return json;
  }
}
