import { create } from "@bufbuild/protobuf";
import {
  LaneHandlerSchema,
  LanesSchema,
  type LaneHandler as ProtoLaneHandler,
  type Lanes as ProtoLanes,
} from "../../../gen/codeagent/v1/code_agent_pb.ts";
import {
  type LaneHandler,
  type Lanes,
  laneModes,
  longestLaneMs,
  plainLane,
  shortestLaneMs,
} from "../../chat/session-config.ts";
import { checkRange } from "../content-check.ts";
import { present } from "../present.ts";
import { countFromProto, integerToProto, wordFromProto } from "./field.ts";

/**
 * Reads who runs the calls of a session's agent.
 * @throws {AgentError} `invalid_request` with the path of the field that is wrong, as in `lanes.query.mode`.
 */
export function lanesFromProto({ query, execute }: ProtoLanes, path = "lanes"): Lanes {
  return present({
    query: query && laneHandlerFromProto(query, `${path}.query`),
    execute: execute && laneHandlerFromProto(execute, `${path}.execute`),
  });
}

/** Writes who runs the calls of a session's agent. */
export function lanesToProto({ query, execute }: Lanes): ProtoLanes {
  return create(LanesSchema, {
    ...(query === undefined ? {} : { query: laneHandlerToProto(query) }),
    ...(execute === undefined ? {} : { execute: laneHandlerToProto(execute) }),
  });
}

function laneHandlerFromProto(handler: ProtoLaneHandler, path: string): LaneHandler {
  const mode = wordFromProto(handler.mode || plainLane.mode, laneModes, `${path}.mode`);
  const timeoutMs = countFromProto(handler.timeoutMs, `${path}.timeout_ms`) ?? plainLane.timeoutMs;
  checkRange(timeoutMs, shortestLaneMs, longestLaneMs, `${path}.timeout_ms`);
  return { mode, timeoutMs };
}

function laneHandlerToProto({ mode, timeoutMs }: LaneHandler): ProtoLaneHandler {
  const handler = create(LaneHandlerSchema, { mode });
  const wanted = integerToProto(timeoutMs);
  return wanted === undefined ? handler : { ...handler, timeoutMs: wanted };
}
