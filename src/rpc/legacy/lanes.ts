import type { ServiceImpl } from "@connectrpc/connect";
import { type CodeAgentService, SessionLane, TaskHandlerMode } from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { AgentError, invalidField } from "../../chat/error.ts";
import {
  type Lane,
  type LaneHandler,
  type LaneMode,
  longestLaneMs,
  plainLane,
  shortestLaneMs,
} from "../../chat/session-config.ts";
import { checkRange } from "../../convert/content-check.ts";
import { countFromProto } from "../../convert/proto/field.ts";
import { laneHandler } from "../../session/hand-over.ts";
import { theCaller } from "../caller.ts";
import { checkLength, sessionIdFrom } from "../request-fields.ts";
import type { LegacyCore } from "./legacy-core.ts";

const maxIdLength = 256;
const mostTasks = 1000;

const laneNames: ReadonlyMap<SessionLane, Lane> = new Map([
  [SessionLane.QUERY, "query"],
  [SessionLane.EXECUTE, "execute"],
]);
const laneNumbers: Readonly<Record<Lane, SessionLane>> = { query: SessionLane.QUERY, execute: SessionLane.EXECUTE };
const modeNames: ReadonlyMap<TaskHandlerMode, LaneMode> = new Map([
  [TaskHandlerMode.INTERNAL, "internal"],
  [TaskHandlerMode.EXTERNAL, "external"],
  [TaskHandlerMode.HYBRID, "hybrid"],
]);
const modeNumbers: Readonly<Record<LaneMode, TaskHandlerMode>> = {
  internal: TaskHandlerMode.INTERNAL,
  external: TaskHandlerMode.EXTERNAL,
  hybrid: TaskHandlerMode.HYBRID,
};

/**
 * Of the earlier service: lanes and external tasks. `QUERY` are calls of functions that only read, `EXECUTE` those of functions
 * that may change something; `CONTROL` and `GENERATE` are always internal. An external task is a pending request of kind
 * `client_tool`: what the permissions deny never becomes one, and what is to be approved is approved first. A task of a
 * hybrid lane that nobody completes in time is run by the server.
 */
export function laneHandlers({ sessions, environment }: LegacyCore) {
  return {
    async setLaneHandler(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      const { lane, config } = request;
      if (config === undefined) throw invalidField("config", "is missing; give a mode");
      const name = laneFrom(lane);
      const mode = modeNames.get(config.mode);
      if (mode === undefined) throw invalidField("config.mode", "is not said; choose internal, external or hybrid");
      const timeoutMs = countFromProto(config.timeoutMs, "config.timeout_ms") || plainLane.timeoutMs;
      checkRange(timeoutMs, shortestLaneMs, longestLaneMs, "config.timeout_ms");
      const handler: LaneHandler = { mode, timeoutMs };
      if (name === undefined) {
        if (mode !== "internal") throw alwaysInternal(lane);
        await sessions.get(theCaller, sessionId);
        return { success: true, config: configOf(plainLane) };
      }
      await sessions.update(theCaller, sessionId, (before) => ({
        ...before,
        lanes: { ...before.lanes, [name]: handler },
      }));
      return { success: true, config: configOf(handler) };
    },
    async getLaneHandler(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      const name = laneFrom(request.lane);
      const { config } = await sessions.get(theCaller, sessionId);
      return { config: configOf(name === undefined ? plainLane : laneHandler(config.lanes, name)) };
    },
    async completeExternalTask(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      const { taskId, success, result, error } = request;
      if (taskId === "") throw invalidField("task_id", "is empty; name a pending task");
      checkLength(taskId, maxIdLength, "task_id");
      const { requests } = await sessions.pendingRequests(theCaller, sessionId, undefined, mostTasks);
      const kind = requests.find((each) => each.request.requestId === taskId)?.request.kind ?? "client_tool";
      if (kind !== "client_tool")
        throw invalidField("task_id", `is a request of kind ${kind}; answer it with ConfirmToolExecution`);
      const toolResult = { success, output: result, ...(success || error === "" ? {} : { error }) };
      try {
        const answer = { requestId: taskId, decision: "answer", text: "", toolResult };
        await sessions.respond(theCaller, sessionId, [answer]);
        return { success: true };
      } catch (refusal) {
        // Somebody was faster, or the time was over.
        if (!(refusal instanceof AgentError) || refusal.kind !== "failed_precondition") throw refusal;
        return { success: false, error: refusal.message };
      }
    },
    async listPendingExternalTasks(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      const { requests } = await sessions.pendingRequests(theCaller, sessionId, undefined, mostTasks);
      const nowMs = environment.now();
      const tasks = requests.flatMap(({ request: waiting, openedMs }) => {
        const { requestId, kind, lane = "execute", toolName = "", arguments: payload = "", expireTimeMs } = waiting;
        if (kind !== "client_tool") return [];
        const untilMs = expireTimeMs ?? nowMs;
        return {
          taskId: requestId,
          sessionId,
          lane: laneNumbers[lane],
          commandType: toolName,
          payload,
          timeoutMs: BigInt(Math.max(0, untilMs - openedMs)),
          remainingMs: BigInt(Math.max(0, untilMs - nowMs)),
        };
      });
      return { tasks };
    },
  } satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}

/** @returns undefined for a lane that is always internal */
function laneFrom(lane: SessionLane): Lane | undefined {
  const isKnown = laneNames.has(lane) || lane === SessionLane.CONTROL || lane === SessionLane.GENERATE;
  if (!isKnown) throw invalidField("lane", "is not said; choose control, query, execute or generate");
  return laneNames.get(lane);
}

function alwaysInternal(lane: SessionLane): AgentError {
  const name = lane === SessionLane.CONTROL ? "control" : "generate";
  const what = lane === SessionLane.CONTROL ? "what controls a session" : "asking the model";
  return new AgentError(
    "unimplemented",
    `the lane ${name} can't be external: ${what} is done by this server alone; only query and execute can be`,
  );
}

function configOf({ mode, timeoutMs }: LaneHandler) {
  return { mode: modeNumbers[mode], timeoutMs: BigInt(timeoutMs) };
}
