import type { Effort } from "./effort.ts";

/** How an endpoint differs from its wire family, as data. */
export interface Quirks {
  /** The field for the upper bound of tokens to write. Default `max_tokens`. */
  readonly maxTokensField: "max_tokens" | "max_completion_tokens";
  /** The field in which thinking comes and goes back; others are read too. Default `reasoning_content`. */
  readonly thinkingField: string;
  /** Which assistant messages carry their thinking back in the thinking field. Default `none`. */
  readonly thinkingReplay: ThinkingReplay;
  /**
   * Which assistant messages carry back, unchanged, what came in `reasoning_details` or `reasoning_opaque`. Default
   * `all`: an endpoint that sends these wants them back.
   */
  readonly opaqueReplay: ThinkingReplay;
  /**
   * An assistant message with tool calls always has the thinking field, as an empty text where no thinking goes back.
   * Default false.
   */
  readonly emptyThinking: boolean;
  /** `<think>` tags at the beginning of the content hold thinking, in Chat Completions. Default false. */
  readonly thinkTags: boolean;
  /**
   * How thinking is turned on and off in Chat Completions. Default `none`.
   *
   * - `none`: only by effort, where that is known
   * - `thinking-type`: `thinking: {type: "enabled" | "disabled"}`
   * - `reasoning-object`: `reasoning: {enabled, effort, max_tokens}`
   * - `enable-thinking`: `enable_thinking`, with a budget in `thinking_budget`
   * - `template-kwargs`: `chat_template_kwargs: {enable_thinking}`
   */
  readonly thinkingSwitch: "none" | "thinking-type" | "reasoning-object" | "enable-thinking" | "template-kwargs";
  /** Thinking can't be turned off: where it is not wanted, the least effort is asked for. Default false. */
  readonly thinkingAlways: boolean;
  /**
   * How thinking is asked for in Anthropic's Messages: the model decides how much (`adaptive`), it gets a `budget`, it
   * knows both (`any`), or it does not think (`none`). Default `any`.
   */
  readonly thinkingMode: "any" | "adaptive" | "budget" | "none";
  /** A thinking effort is known. Default true. */
  readonly reasoningEffort: boolean;
  /** The efforts that are known; others become the nearest of them. Default empty: those of the wire family. */
  readonly efforts: readonly Effort[];
  /**
   * Whether `temperature` and `top_p` are sent: `always`, only where no thinking is asked for (`without-thinking`) or
   * `never`, for models that refuse them. Default `always`.
   */
  readonly sampling: "always" | "without-thinking" | "never";
  /**
   * How an answer is held to a JSON Schema: by the provider (`native`), by its JSON mode and an instruction
   * (`json-object`), or by an instruction alone (`prompt`). Default `native`.
   */
  readonly jsonSchema: "native" | "json-object" | "prompt";
  /** Encrypted reasoning may be asked for in the Responses API. Default true. */
  readonly encryptedReasoning: boolean;
  /** A stream's usage has to be asked for by `stream_options.include_usage`. Default true. */
  readonly usageOption: boolean;
  /** How a developer message is called. Default `system`, which every endpoint knows. */
  readonly developerRole: "developer" | "system";
  /** Content of an assistant message that only calls tools. Default null. */
  readonly emptyContent: null | "";
  /** The bound of tokens to write where it has to be sent and nobody named one. Default 32,000. */
  readonly defaultMaxTokens: number;
  /**
   * The ends of the tools, of the system prompt and of the last two user turns are marked for the prompt cache, where
   * the wire family has marks for it. Default true.
   */
  readonly cacheControl: boolean;
}

/**
 * Which assistant messages carry thinking back. A turn goes from one message of the user to the next.
 *
 * - `none` of them
 * - `tool-turn`: those of the last turn
 * - `tool-turns`: those of the last turn and of every turn in which tools were called
 * - `all` of them
 */
export type ThinkingReplay = "none" | "tool-turn" | "tool-turns" | "all";

export const defaultQuirks: Quirks = {
  maxTokensField: "max_tokens",
  thinkingField: "reasoning_content",
  thinkingReplay: "none",
  opaqueReplay: "all",
  emptyThinking: false,
  thinkTags: false,
  thinkingSwitch: "none",
  thinkingAlways: false,
  thinkingMode: "any",
  reasoningEffort: true,
  efforts: [],
  sampling: "always",
  jsonSchema: "native",
  encryptedReasoning: true,
  usageOption: true,
  developerRole: "system",
  emptyContent: null,
  defaultMaxTokens: 32_000,
  cacheControl: true,
};
