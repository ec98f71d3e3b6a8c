import type { PendingRequest } from "../chat/log-event.ts";
import { type Lane, type LaneHandler, type Lanes, plainLane } from "../chat/session-config.ts";
import { loadSkillName } from "../chat/skill.ts";
import { updateTodosName } from "../chat/todo.ts";
import { type ToolResult, toolFailure } from "../chat/tool-result.ts";
import type { FunctionDefinition } from "../tool/function-provider.ts";
import { planFunctionNames } from "../tool/plan-functions.ts";
import { presentable } from "../tool/run-function.ts";
import type { RequestState } from "./state.ts";

/** A call that a client is to run. */
export interface HandOver {
  readonly lane: Lane;
  readonly timeoutMs: number;
  /** Of what would run here besides the arguments, where this server runs it after all. */
  readonly contentSha256: string;
}

/** Where a call is recorded as coming from that a client ran: nothing that functions of the server say of themselves holds. */
export const clientSource = "client";

/** What a client answers a call with. */
export const toolDecisions: readonly string[] = ["answer", "deny"];

const ofTheSession: ReadonlySet<string> = new Set([updateTodosName, loadSkillName, ...planFunctionNames]);

/** The lane of a function; undefined for one that works on the session itself, which only this server can run. */
export function laneOf({ name, readOnly, asks, delegates }: FunctionDefinition): Lane | undefined {
  if (asks === true || delegates === true || ofTheSession.has(name)) return undefined;
  return readOnly ? "query" : "execute";
}

/** What a session says of a lane. */
export function laneHandler(lanes: Lanes | undefined, lane: Lane): LaneHandler {
  return lanes?.[lane] ?? plainLane;
}

/** What a client is asked to run. */
export function handOverRequest({ lane, contentSha256 }: HandOver, title: string) {
  return {
    kind: "client_tool",
    title,
    options: [...toolDecisions],
    explanation: `calls of the lane ${lane} are run by a client of this session: run it and answer with the result`,
    lane,
    ...(contentSha256 === "" ? {} : { contentSha256 }),
  } as const satisfies Partial<PendingRequest>;
}

/**
 * What a call came to that was handed over and is over.
 * @returns undefined where this server is to run it after all
 */
export function handedBack(
  { request, answer, openedMs }: RequestState,
  mode: LaneHandler["mode"],
): ToolResult | undefined {
  if (answer === undefined) return undefined;
  const { decision, text = "", toolResult } = answer;
  if (decision === "answer" && toolResult !== undefined) return toolResult;
  if (decision === "expired") {
    if (mode !== "external") return undefined;
    const { expireTimeMs = openedMs } = request;
    return toolFailure(`not run: nobody completed it within ${expireTimeMs - openedMs} ms`);
  }
  return toolFailure(`not run: the client that runs such calls refused it${text === "" ? "" : `, and says: ${text}`}`);
}

/** The result of a client as results of the server's own functions are: bounded, without control characters. */
export function boundedResult(result: ToolResult, workspace: string): ToolResult {
  const { output, error, truncated, metadata } = presentable(result, { workspace }, {});
  const { success, durationMs } = result;
  const kept = metadata !== undefined && JSON.stringify(metadata).length <= maxMetadataCharacters ? { metadata } : {};
  return {
    success,
    output,
    ...(success ? {} : { error: error ?? "the client says that it failed" }),
    ...(durationMs === undefined ? {} : { durationMs }),
    ...(truncated === true ? { truncated } : {}),
    ...kept,
  };
}

/** More facts of a client than that are left out. */
const maxMetadataCharacters = 64 * 1024;
