import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { GenerateRequestSchema, PlanRunSchema } from "../../../gen/codeagent/v1/code_agent_pb.ts";
import type { TurnRequest } from "../../chat/request.ts";
import { readStored } from "./error.ts";
import { planRunFromProto, planRunToProto } from "./plan-event.ts";
import { turnRequestFromProto, turnRequestToProto } from "./request.ts";

/** Before a request that executes a plan: no message of the contract begins with it. */
const planMark = 0;
const lengthBytes = 4;

/** A turn's request as the inbox keeps it; the plan it executes stands before it, with its length. */
export function encodeTurnRequest(request: TurnRequest): Uint8Array {
  const body = toBinary(GenerateRequestSchema, turnRequestToProto(request));
  if (request.plan === undefined) return body;
  const plan = toBinary(PlanRunSchema, create(PlanRunSchema, planRunToProto(request.plan)));
  const head = Buffer.alloc(1 + lengthBytes);
  head.writeUInt8(planMark);
  head.writeUInt32BE(plan.length, 1);
  return Buffer.concat([head, plan, body]);
}

/** @throws {AgentError} `data_loss` when the bytes are no request. */
export function decodeTurnRequest(bytes: Uint8Array): TurnRequest {
  return readStored("turn request", () => {
    const read = (body: Uint8Array) => turnRequestFromProto(fromBinary(GenerateRequestSchema, body), "server");
    if (bytes[0] !== planMark) return read(bytes);
    const planStart = 1 + lengthBytes;
    const planEnd = planStart + Buffer.from(bytes.subarray(1, planStart)).readUInt32BE();
    const plan = planRunFromProto(fromBinary(PlanRunSchema, bytes.subarray(planStart, planEnd)));
    return { ...read(bytes.subarray(planEnd)), plan };
  });
}
