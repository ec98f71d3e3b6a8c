import { fromBinary, toBinary } from "@bufbuild/protobuf";
import { GenerateRequestSchema } from "../../../gen/codeagent/v1/code_agent_pb.ts";
import type { TurnRequest } from "../../chat/request.ts";
import { readStored } from "./error.ts";
import { turnRequestFromProto, turnRequestToProto } from "./request.ts";

/** A turn's request as the inbox keeps it. */
export function encodeTurnRequest(request: TurnRequest): Uint8Array {
  return toBinary(GenerateRequestSchema, turnRequestToProto(request));
}

/** @throws {AgentError} `data_loss` when the bytes are no request. */
export function decodeTurnRequest(bytes: Uint8Array): TurnRequest {
  return readStored("turn request", () => turnRequestFromProto(fromBinary(GenerateRequestSchema, bytes), "server"));
}
