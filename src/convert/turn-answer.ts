import type { FinishReason } from "../chat/finish-reason.ts";
import type { Message, ToolUseBlock } from "../chat/message.ts";
import type { Usage } from "../chat/usage.ts";

/** What a turn came to, as the contract and OpenAI's shape both tell it. */
export interface TurnAnswer {
  readonly sessionId: string;
  readonly turnId: string;
  /** The model that answered, as `provider/model`. */
  readonly model: string;
  /** The last answer of the model; absent where the turn ended before any. */
  readonly message?: Message;
  /** The calls left for the client, when `finishReason` is `tool_calls`. */
  readonly toolCalls: readonly ToolUseBlock[];
  /** Of all steps together. */
  readonly usage?: Usage;
  readonly finishReason: FinishReason;
  /** The provider's own word for it; empty where it said none. */
  readonly rawFinishReason: string;
  /** The provider's id of its last answer. */
  readonly responseId?: string;
  /** Number of the turn's last event in the log. */
  readonly lastSeq: number;
  /** Number of model calls. */
  readonly steps: number;
  /** The request's, and what the server adds. */
  readonly metadata: Readonly<Record<string, string>>;
}
