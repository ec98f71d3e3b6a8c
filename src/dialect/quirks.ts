/** How an endpoint differs from its wire family, as data. */
export interface Quirks {
  /** The field for the upper bound of tokens to write. Default `max_tokens`. */
  readonly maxTokensField: "max_tokens" | "max_completion_tokens";
  /** The field in which thinking comes and goes back; others are read too. Default `reasoning_content`. */
  readonly thinkingField: string;
  /**
   * Which assistant messages carry their thinking back: none, those since the last user message while tools are used,
   * or all. Default `none`.
   */
  readonly thinkingReplay: "none" | "tool-turn" | "all";
  /**
   * An assistant message with tool calls always has the thinking field, as an empty text where no thinking goes back.
   * Default false.
   */
  readonly emptyThinking: boolean;
  /** `<think>` tags at the beginning of the content hold thinking, in Chat Completions. Default false. */
  readonly thinkTags: boolean;
  /** A stream's usage has to be asked for by `stream_options.include_usage`. Default true. */
  readonly usageOption: boolean;
  /** How a developer message is called. Default `system`, which every endpoint knows. */
  readonly developerRole: "developer" | "system";
  /** A thinking effort is sent as `reasoning_effort`. Default true. */
  readonly reasoningEffort: boolean;
  /** Whether answers are to be kept by the provider is sent as `store`. Default false. */
  readonly storeField: boolean;
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

export const defaultQuirks: Quirks = {
  maxTokensField: "max_tokens",
  thinkingField: "reasoning_content",
  thinkingReplay: "none",
  emptyThinking: false,
  thinkTags: false,
  usageOption: true,
  developerRole: "system",
  reasoningEffort: true,
  storeField: false,
  emptyContent: null,
  defaultMaxTokens: 32_000,
  cacheControl: true,
};
