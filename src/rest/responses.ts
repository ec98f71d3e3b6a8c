import { AgentError } from "../chat/error.ts";
import { withFieldNames } from "../convert/field-names.ts";
import { openAIError } from "../convert/openai/error.ts";
import { type ResponseEvent, responseFold } from "../convert/responses/event.ts";
import { turnRequestFromResponses } from "../convert/responses/request.ts";
import type { RestAnswer, RestApi, RestTurnFacts, SseFrame } from "./rest-api.ts";

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
  error: (error) => openAIError(inItsWords(error)),
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
  const { message, code, param } = openAIError(inItsWords(error)).body.error;
  return { event: type, data: JSON.stringify({ type, code, message, param, sequence_number }) };
}

/** Names of what requests become, where the Responses API has others. */
const fieldNames = [
  ["options.response_format.json_schema", "text.format"],
  ["options.response_format", "text.format"],
  ["options.responseFormat", "text.format"],
  ["options.thinking", "reasoning"],
  ["options.maxTokens", "max_output_tokens"],
  ["options.max_tokens", "max_output_tokens"],
  ["options.toolChoice", "tool_choice"],
] as const;

/** Fields by the names that clients of this API know. */
function inItsWords(error: AgentError): AgentError {
  return withFieldNames(error, fieldNames);
}
