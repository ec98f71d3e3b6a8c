import { AgentError, invalidField } from "../chat/error.ts";
import type { GenerateOptions } from "../chat/request.ts";
import { readObject } from "../convert/json-field.ts";
import { completionChunks } from "../convert/openai/completion-chunks.ts";
import { openAIError } from "../convert/openai/error.ts";
import { turnRequestFromOpenAI } from "../convert/openai/request.ts";
import { completionFromResponse } from "../convert/openai/response.ts";
import { turnDetails } from "../convert/openai/turn-details.ts";
import { refuseUnsupported } from "../convert/openai/unsupported.ts";
import { foldTurnAnswer } from "../session/turn-answer.ts";
import { agentErrorFrom } from "../session/turn-error.ts";
import type { RestAnswer, RestApi, RestTurnFacts } from "./rest-api.ts";

/**
 * OpenAI's Chat Completions, `POST /v1/chat/completions`. What is read and refused is told by `turnRequestFromOpenAI` and
 * `refuseUnsupported`; that an answer be stored (`store`) is no wish to a model and is passed over. Thinking in the open is
 * `reasoning_content`; what else the next request has to hold goes along in `reasoning_details`, unless a session keeps it.
 * A stream ends with `[DONE]`, or with an error and without it.
 */
export const chatCompletionsApi: RestApi = {
  read(body) {
    const fields = readObject(body, "body");
    refuseUnsupported(fields);
    const { request, stream, includeUsage } = turnRequestFromOpenAI(fields);
    if (request.messages.length === 0) throw invalidField("messages", "is empty; send at least one");
    const asked = { ...request, options: withoutStore(request.options) };
    const clientTools = new Set(request.tools.map(({ name }) => name));
    const { model } = request;
    return {
      request: asked,
      stream,
      answer: (turn) => completionAnswer(turn, { model, clientTools, includeUsage, stream }),
    };
  },
  error: openAIError,
};

interface Asked {
  readonly model: string;
  readonly clientTools: ReadonlySet<string>;
  readonly includeUsage: boolean;
  readonly stream: boolean;
}

function completionAnswer({ sessionId, turnId, createdMs, isKept }: RestTurnFacts, asked: Asked): RestAnswer {
  const fold = foldTurnAnswer(sessionId);
  const { clientTools } = asked;
  const chunks = asked.stream ? completionChunks({ turnId, createdMs, isKept, ...asked }, begunAnew) : undefined;
  const gathered = asked.stream || isKept ? undefined : turnDetails({ turnId, clientTools, streams: false });
  return {
    push(record) {
      const { event } = record;
      fold.add(record);
      gathered?.push(event);
      if (event.type === "turn-finished") {
        if (event.error !== undefined) throw agentErrorFrom(event.error);
        // OpenAI has no word for an answer that somebody cut off, and `stop` would call it whole.
        if (event.finishReason === "cancelled")
          throw new AgentError("cancelled", `turn ${turnId} was cancelled before its answer was whole`, {
            reason: "TURN_CANCELLED",
          });
      }
      const frames = (chunks?.push(event) ?? []).map((chunk) => ({ data: JSON.stringify(chunk) }));
      return event.type === "turn-finished" ? [...frames, { data: "[DONE]" }] : frames;
    },
    body() {
      if (fold.answer === undefined) throw new AgentError("internal", `turn ${turnId} ended without a last event`);
      return completionFromResponse(fold.answer, createdMs, gathered?.details());
    },
    failure: (error) => [{ data: JSON.stringify(openAIError(error).body) }],
  };
}

function withoutStore({ stateful, ...options }: GenerateOptions): GenerateOptions {
  return stateful?.store === false ? { ...options, stateful } : options;
}

function begunAnew(message: string): AgentError {
  return new AgentError("unavailable", message, { reason: "ANSWER_BEGUN_ANEW", detail: { retryable: true } });
}
