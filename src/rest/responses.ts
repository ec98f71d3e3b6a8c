import { AgentError } from "../chat/error.ts";
import { type ResponseEvent, responseFold } from "../convert/responses/event.ts";
import { turnRequestFromResponses } from "../convert/responses/request.ts";
import type { RestAnswer, RestApi, RestError, RestTurnFacts, SseFrame } from "./rest-api.ts";

/**
 * OpenAI's Responses API, `POST /v1/responses`. What is read, ignored and refused stands at `turnRequestFromResponses`, how
 * a turn is told at `responseFold`. Each event of a stream is named by its type; nothing follows the last, no `[DONE]`
 * (developers.openai.com/api/reference, "Streaming events").
 */
export const responsesApi: RestApi = {
  read(body) {
    const { request, stream, binding, isKept, asked } = turnRequestFromResponses(body);
    return {
      ...{ request, stream, isKept },
      ...(binding === undefined ? {} : { binding }),
      answer: (turn) => responseAnswer(turn, asked, stream),
    };
  },
  error: openAIError,
};

function responseAnswer(
  { sessionId, turnId, createdMs }: RestTurnFacts,
  asked: Parameters<typeof responseFold>[0]["asked"],
  streams: boolean,
): RestAnswer {
  const fold = responseFold({ sessionId, turnId, createdMs, streams, ...(asked === undefined ? {} : { asked }) });
  /** What ends the stream of a turn that failed. */
  let ending: readonly SseFrame[] | undefined;
  return {
    push(record) {
      const frames = fold.push(record).map(frameOf);
      const { event } = record;
      if (event.type !== "turn-finished" || event.error === undefined) return streams ? frames : [];
      ending = frames;
      throw new AgentError(event.error.kind, event.error.message, event.error);
    },
    body: () => fold.snapshot(),
    // Where the turn itself did not fail, it goes on, and its response is not a failed one.
    failure: (error) => ending ?? [errorFrame(error, fold.nextNumber)],
  };
}

function frameOf(event: ResponseEvent): SseFrame {
  return { event: event.type, data: JSON.stringify(event) };
}

function errorFrame(error: AgentError, sequence_number: number): SseFrame {
  const type = "error";
  const code = error.reason.toLowerCase();
  const param = error.fieldViolations[0]?.field ?? null;
  return { event: type, data: JSON.stringify({ type, code, message: error.message, param, sequence_number }) };
}

function openAIError(error: AgentError): RestError {
  const status = error.kind === "invalid_request" ? 400 : error.kind === "not_found" ? 404 : 500;
  const param = error.fieldViolations[0]?.field ?? null;
  const type = status === 500 ? "server_error" : "invalid_request_error";
  return { status, body: { error: { message: error.message, type, param, code: error.reason.toLowerCase() } } };
}
