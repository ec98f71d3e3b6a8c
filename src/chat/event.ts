import type { FinishReason } from "./finish-reason.ts";
import type { ContentBlock } from "./message.ts";
import type { Usage } from "./usage.ts";

/**
 * What a dialect reads from a provider's answer, streamed or whole. An event names its block by `index`; a new index
 * opens a block, and the end of the events closes all. Deltas of different tool calls may interleave, as on the wire;
 * `orderBlocks` puts them in order. Errors are thrown, not yielded. Exactly one `finish` comes, last but for `usage`.
 */
export type ChatEvent =
  /** `phase` is what the whole text is for, where the provider says so; it may come late, with no text. */
  | { readonly type: "text-delta"; readonly index: number; readonly text: string; readonly phase?: string }
  | { readonly type: "thinking-delta"; readonly index: number; readonly text: string }
  | { readonly type: "signature-delta"; readonly index: number; readonly signature: string }
  | { readonly type: "reasoning-delta"; readonly index: number; readonly text: string }
  | { readonly type: "tool-call-start"; readonly index: number; readonly id: string; readonly name: string }
  | { readonly type: "tool-call-delta"; readonly index: number; readonly argumentsText: string }
  /** A whole block at once; where deltas of it came before, this form replaces what they add up to. */
  | { readonly type: "block"; readonly index: number; readonly block: ContentBlock }
  /** Facts about the answer, as soon as they are known; later ones win. */
  | { readonly type: "response"; readonly id?: string; readonly model?: string; readonly upstreamRequestId?: string }
  /** Usage of the whole answer; later ones replace earlier ones. */
  | { readonly type: "usage"; readonly usage: Usage }
  | {
      readonly type: "finish";
      readonly finishReason: FinishReason;
      readonly rawFinishReason: string;
      /** The provider paused and wants to be asked to go on, the answer so far being the end of the history. */
      readonly continues?: true;
    };
