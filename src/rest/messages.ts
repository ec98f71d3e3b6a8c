import type { AgentError } from "../chat/error.ts";
import { errorToAnthropic } from "../convert/anthropic/error.ts";
import { anthropicAnswer } from "../convert/anthropic/event.ts";
import { turnRequestFromAnthropic } from "../convert/anthropic/request.ts";
import type { AnthropicStreamEvent } from "../convert/anthropic/response.ts";
import { type FieldName, withFieldNames } from "../convert/field-names.ts";
import type { RestApi, RestError, RestTurn, SseFrame } from "./rest-api.ts";

/**
 * Anthropic's Messages, `POST /v1/messages`. Any `anthropic-version` will do, also none, and `anthropic-beta` is not
 * read: a field is read for what it says. What is read, refused and passed over is told by `turnRequestFromAnthropic`,
 * what an answer holds by `anthropicAnswer`.
 */
export const messagesApi: RestApi = { read, error: errorAnswer };

function read(body: unknown): RestTurn {
  const { request, stream, omitsThinking } = turnRequestFromAnthropic(body);
  const clientTools = new Set(request.tools.map(({ name }) => name));
  return {
    request,
    stream,
    answer({ turnId, isKept }) {
      const { model, options } = request;
      const stopSequences = options.stop ?? [];
      const answer = anthropicAnswer({ turnId, model, clientTools, stopSequences, stream, omitsThinking, isKept });
      return {
        push: ({ event }) => answer.push(event).map(frame),
        body: answer.message,
        failure: (error) => [{ event: "error", data: JSON.stringify(errorToAnthropic(error).body) }],
        ping: { event: "ping", data: '{"type":"ping"}' },
      };
    },
  };
}

function frame(event: AnthropicStreamEvent): SseFrame {
  return { event: event.type, data: JSON.stringify(event) };
}

/** The vendor's clients try again by status, unless they are told whether it helps (`x-should-retry`). */
function errorAnswer(error: AgentError): RestError {
  const { retryable = error.kind === "unavailable" || error.retryAfterMs !== undefined } = error.detail;
  const helps = retryable && error.detail.sideEffectPossible !== true;
  return { ...errorToAnthropic(withFieldNames(error, fieldNames)), headers: { "x-should-retry": String(helps) } };
}

/** Names of what requests become, where this API has others. */
const fieldNames: readonly FieldName[] = [
  ["options.response_format.json_schema", "output_config.format"],
  ["options.response_format", "output_config.format"],
  ["options.responseFormat", "output_config.format"],
  ["options.thinking.effort", "output_config.effort"],
  ["options.thinking", "thinking"],
  ["options.maxTokens", "max_tokens"],
  ["options.toolChoice", "tool_choice"],
  ["options.tool_choice", "tool_choice.name"],
  ["options.stop", "stop_sequences"],
  ["options.", ""],
];
