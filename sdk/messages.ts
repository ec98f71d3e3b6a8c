import type { ContentBlock, GenerateResponse, Message } from "../gen/codeagent/v1/code_agent_pb.ts";
import { type ContractMessage, messagesFromAnyShape } from "../src/convert/any-message.ts";
import type { ChatCompletion, ChatCompletionMessage } from "../src/convert/openai/response.ts";
import { messageToProto } from "../src/convert/proto/message.ts";
import type { ChatCompletionMessageParam } from "./chat-completion.ts";
import { codeAgentErrorFrom } from "./error.ts";

/** A role in the spelling of clients of the earlier gRPC service. */
type EnumRole = 1 | 2 | 3 | 4 | "ROLE_USER" | "ROLE_ASSISTANT" | "ROLE_SYSTEM" | "ROLE_TOOL";

/** A message of plain text with such a role. */
export interface EnumRoleMessage {
  role: EnumRole;
  content: string;
  metadata?: Record<string, string>;
}

/** A message in the contract's shape (with `blocks`, `contentParts` or `content`) or OpenAI's, with a role in any spelling. */
export type AnyMessage = ChatCompletionMessageParam | ContractMessage | EnumRoleMessage;

/**
 * Messages of any shape as `generate` and `streamTurn` take them. `chatCompletion` needs no help: it reads them itself.
 * @throws {CodeAgentError} with the path of the field that is wrong, as in `messages[1].role`.
 */
export function messagesFrom(messages: readonly AnyMessage[]): Message[] {
  try {
    return messages.flatMap((message, index) =>
      messagesFromAnyShape(message, `messages[${index}]`, index + 1).map(messageToProto),
    );
  } catch (error) {
    throw codeAgentErrorFrom(error);
  }
}

/** What `generate` or `chatCompletion` answered. */
export type AnyResponse = GenerateResponse | ChatCompletion;

/** The text of an answer, thinking left out; empty where it only calls functions. */
export function responseText(response: AnyResponse): string {
  if (isCompletion(response)) return completionMessage(response)?.content ?? "";
  return blocksOf(response)
    .map(({ block }) => (block.case === "text" ? block.value.text : ""))
    .join("");
}

/** What the model thought in the open; of a reasoning item without text, its summaries. Empty where it showed nothing. */
export function responseThinking(response: AnyResponse): string {
  if (isCompletion(response)) return completionMessage(response)?.reasoning_content ?? "";
  return blocksOf(response)
    .map(({ block }) => {
      if (block.case === "thinking") return block.value.thinking;
      if (block.case === "reasoning") return block.value.content || block.value.summary.join("\n\n");
      return "";
    })
    .join("");
}

/** Whether the answer leaves calls to the caller, who runs them and sends their results as `tool` messages. */
export function hasToolCalls(response: AnyResponse): boolean {
  return isCompletion(response)
    ? (completionMessage(response)?.tool_calls ?? []).length > 0
    : response.toolCalls.length > 0;
}

/**
 * The answer as a message of the next request, for callers who keep the history themselves. It keeps every block, thinking
 * with its signature and encrypted reasoning included, so that it goes back to its provider byte for byte. The message of
 * `chatCompletion` also has what the turn did before its last answer (`reasoning_details`), unless the turn was a session's.
 * @throws {TypeError} where there was no answer.
 */
export function messageFromResponse(response: GenerateResponse): Message;
export function messageFromResponse(response: ChatCompletion): ChatCompletionMessage;
export function messageFromResponse(response: AnyResponse): Message | ChatCompletionMessage {
  const message = isCompletion(response) ? completionMessage(response) : response.message;
  if (message === undefined)
    throw new TypeError("the response has no message: the turn ended before the model answered");
  return message;
}

function isCompletion(response: AnyResponse): response is ChatCompletion {
  return "choices" in response;
}

function completionMessage({ choices }: ChatCompletion): ChatCompletionMessage | undefined {
  return choices[0]?.message;
}

function blocksOf({ message }: GenerateResponse): readonly ContentBlock[] {
  return message?.blocks ?? [];
}
