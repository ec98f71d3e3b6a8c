import type { ChatEvent } from "../chat/event.ts";
import type { ContentBlock, Message } from "../chat/message.ts";
import type { ChatRequest } from "../chat/request.ts";
import type { SseMessage } from "../stream/sse.ts";
import { anthropicMessages } from "./anthropic-messages.ts";
import { openaiChat } from "./openai-chat.ts";
import { openaiResponses } from "./openai-responses.ts";
import type { Reader } from "./origin.ts";
import type { Quirks } from "./quirks.ts";
import type { UpstreamFault } from "./upstream-error.ts";

/** What a reader needs to know about the call whose answer it reads. */
export interface DecodeContext {
  /** Who answers: for messages, error details and the origin of blocks. */
  readonly provider: string;
  /** The model that was asked, without its provider. */
  readonly model: string;
  readonly quirks: Quirks;
  readonly upstreamRequestId?: string;
  /** Makes an id for a tool call that came without one; unique within a session. */
  createToolCallId(): string;
}

/** A wire family: pure translation of requests and answers, streamed or whole. */
export interface Dialect {
  readonly id: string;
  /** Where the call goes, below the base URL. */
  readonly path: string;
  /**
   * The request for a streamed answer, as JSON text.
   * @param provider who will read it: thinking and reasoning of other providers or models is left out.
   * @throws {AgentError} `invalid_request` for a schema that is no JSON and for an effort of thinking nobody knows.
   */
  encode(request: ChatRequest, quirks: Quirks, provider: string): string;
  /**
   * Whether a message holds thinking, reasoning or blocks without a name here that the reader is not sent because they
   * are somebody else's; sent to their author again, they go along. What the family or a quirk leaves out anyway, such
   * as the thinking of old turns, does not count.
   */
  withholds(message: Message, reader: Reader): boolean;
  /**
   * Why a block of a new message cannot be sent, as the end of a sentence; undefined where it can. In older messages such
   * a block is replaced by words that say so, since they can't be refused any more.
   */
  unreadable(block: ContentBlock): string | undefined;
  /**
   * The events of a streamed answer, one array for each array of messages that says something.
   * @throws {AgentError} what the provider reports, `provider_protocol` for what cannot be read, and
   * `provider_unavailable` for a stream that ends before its answer does.
   */
  decodeStream(messages: AsyncIterable<readonly SseMessage[]>, context: DecodeContext): AsyncGenerator<ChatEvent[]>;
  /**
   * The events of an answer that came as one body.
   * @throws {AgentError} what the provider reports, and `provider_protocol` for what cannot be read.
   */
  decodeWhole(bodyText: string, context: DecodeContext): ChatEvent[];
  /** What the body of an HTTP error says; undefined where it is not the family's. */
  decodeError(bodyText: string): UpstreamFault | undefined;
}

export const dialects = {
  "anthropic-messages": anthropicMessages,
  "openai-chat": openaiChat,
  "openai-responses": openaiResponses,
} as const satisfies Record<string, Dialect>;
export type DialectId = keyof typeof dialects;
