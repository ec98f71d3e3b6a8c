import type { FinishReason } from "../../chat/finish-reason.ts";
import { messageText } from "../../chat/message.ts";
import { present, presentText } from "../present.ts";
import type { TurnAnswer } from "../turn-answer.ts";
import type { ChatCompletionToolCall } from "./message.ts";
import { thinkingText, toolCallToOpenAI } from "./message.ts";
import type { ReasoningDetail } from "./reasoning-details.ts";
import type { CompletionUsage } from "./usage.ts";
import { usageToOpenAI } from "./usage.ts";

/** OpenAI's words for why an answer ended. */
export type CompletionFinishReason = "stop" | "length" | "tool_calls" | "content_filter";

/** The answer in OpenAI's shape. */
export interface ChatCompletionMessage {
  role: "assistant";
  content: string | null;
  refusal: null;
  /** Thinking in the open; not of OpenAI itself, but common among those who speak its shape. */
  reasoning_content?: string;
  /** What there is no form for, to be sent back with the message (`turnDetails`). */
  reasoning_details?: ReasoningDetail[];
  tool_calls?: ChatCompletionToolCall[];
}

export interface ChatCompletion {
  id: string;
  object: "chat.completion";
  /** Seconds since 1970. */
  created: number;
  model: string;
  choices: { index: number; message: ChatCompletionMessage; finish_reason: CompletionFinishReason; logprobs: null }[];
  usage?: CompletionUsage;
}

/**
 * OpenAI's word for each reason. Its list has none for the last four: an answer cut off by a bound of ours (`budget`,
 * `max_steps`) is told as `length`, one that was cancelled as `stop`. A turn that failed has no answer; callers throw its
 * error instead, and `error` is `stop` only for want of a word.
 */
export const completionFinishReasons = {
  stop: "stop",
  length: "length",
  tool_calls: "tool_calls",
  content_filter: "content_filter",
  cancelled: "stop",
  error: "stop",
  budget: "length",
  max_steps: "length",
} as const satisfies Record<FinishReason, CompletionFinishReason>;

/**
 * Writes what a turn came to in OpenAI's shape. Of several steps it tells the last answer only, as the contract does, with
 * the calls that are left for the client; what the server's tools did is not shown. Signed, redacted and encrypted
 * thinking and what the turn did before can go along in `reasoning_details`. Images, metadata and cost are lost.
 * @param createdMs when the turn was asked for, in milliseconds since 1970.
 * @param details what goes along (`turnDetails`).
 */
export function completionFromResponse(
  answer: TurnAnswer,
  createdMs: number,
  details?: ReasoningDetail[],
): ChatCompletion {
  const calls = answer.toolCalls.map(toolCallToOpenAI);
  const text = answer.message === undefined ? "" : messageText(answer.message);
  const message: ChatCompletionMessage = present({
    role: "assistant",
    content: text === "" && calls.length > 0 ? null : text,
    refusal: null,
    reasoning_content: answer.message && presentText(thinkingText(answer.message)),
    reasoning_details: details,
    tool_calls: calls.length === 0 ? undefined : calls,
  });
  const finish_reason = completionFinishReasons[answer.finishReason];
  const usage = usageToOpenAI(answer.usage);
  return {
    id: completionId(answer.turnId),
    object: "chat.completion",
    created: Math.floor(createdMs / 1000),
    model: answer.model,
    choices: [{ index: 0, message, finish_reason, logprobs: null }],
    ...(usage === undefined ? {} : { usage }),
  };
}

/** The id of a turn's answer in OpenAI's shape. */
export function completionId(turnId: string): string {
  return `chatcmpl-${turnId}`;
}
