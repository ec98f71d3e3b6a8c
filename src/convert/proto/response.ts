import { create } from "@bufbuild/protobuf";
import type { GenerateResponse } from "../../../gen/codeagent/v1/code_agent_pb.ts";
import { GenerateResponseSchema } from "../../../gen/codeagent/v1/code_agent_pb.ts";
import { finishReasons } from "../../chat/finish-reason.ts";
import { present, presentText } from "../present.ts";
import type { TurnAnswer } from "../turn-answer.ts";
import { countFromProto, wordFromProto } from "./field.ts";
import { messageFromProto, messageToProto, toolCallFromProto, toolCallToProto } from "./message.ts";
import { usageFromProto, usageToProto } from "./usage.ts";

/**
 * Reads what a turn came to.
 * @throws {AgentError} `invalid_request` where the server used a word this version does not know.
 */
export function turnAnswerFromProto(response: GenerateResponse): TurnAnswer {
  return present({
    sessionId: response.sessionId,
    turnId: response.turnId,
    model: response.model,
    message: response.message && messageFromProto(response.message, "message", "server"),
    toolCalls: response.toolCalls.map((call, index) => toolCallFromProto(call, `tool_calls[${index}]`, "server")),
    usage: response.usage && usageFromProto(response.usage),
    finishReason: wordFromProto(response.finishReason, finishReasons, "finish_reason"),
    rawFinishReason: response.rawFinishReason,
    responseId: presentText(response.responseId),
    lastSeq: countFromProto(response.lastSeq, "last_seq") ?? 0,
    steps: response.steps,
    metadata: { ...response.metadata },
  });
}

/** Writes what a turn came to. */
export function turnAnswerToProto(answer: TurnAnswer): GenerateResponse {
  return create(GenerateResponseSchema, {
    sessionId: answer.sessionId,
    turnId: answer.turnId,
    model: answer.model,
    message: answer.message && messageToProto(answer.message),
    toolCalls: answer.toolCalls.map(toolCallToProto),
    usage: answer.usage && usageToProto(answer.usage),
    finishReason: answer.finishReason,
    rawFinishReason: answer.rawFinishReason,
    responseId: answer.responseId ?? "",
    lastSeq: BigInt(answer.lastSeq),
    steps: answer.steps,
    metadata: { ...answer.metadata },
  });
}
