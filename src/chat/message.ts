/** Who speaks. `function` of older clients is read as `tool`. */
export const roles = ["system", "developer", "user", "assistant", "tool"] as const;
export type Role = (typeof roles)[number];

/** One message of a conversation. There is one form of content inside the service: blocks, in the provider's order. */
export interface Message {
  readonly role: Role;
  readonly blocks: readonly ContentBlock[];
  /** Id within the session; given by the server. */
  readonly id?: string;
  /** Name of the speaker, where several share a role. */
  readonly name?: string;
  /** Free data of the caller; never sent to a model. */
  readonly metadata?: Readonly<Record<string, string>>;
  /** When it entered the history, in milliseconds since 1970; given by the server. */
  readonly createTimeMs?: number;
}

/** Where a block came from, so that it goes back only to who can read it. */
export interface BlockOrigin {
  readonly provider?: string;
  readonly model?: string;
  /** Wire family, for example `openai-chat`. */
  readonly dialect?: string;
  /** The block as it came on the wire, byte for byte, where it came as one piece. */
  readonly raw?: Uint8Array;
}

export type ContentBlock =
  | TextBlock
  | ThinkingBlock
  | RedactedThinkingBlock
  | ReasoningBlock
  | ToolUseBlock
  | ToolResultBlock
  | ImageBlock
  | FileBlock
  | AudioBlock
  | UnknownBlock;

export interface TextBlock {
  readonly type: "text";
  readonly text: string;
  /** What the text is to the model that wrote it, in its provider's word: `commentary`, `final_answer`. */
  readonly phase?: string;
}

/** Thinking in the open. Empty thinking with a signature is legal and has to go back. */
export interface ThinkingBlock extends BlockOrigin {
  readonly type: "thinking";
  readonly thinking: string;
  readonly signature?: string;
}

/** Thinking that only the provider can read. */
export interface RedactedThinkingBlock extends BlockOrigin {
  readonly type: "redacted_thinking";
  readonly data: string;
}

export interface ReasoningBlock extends BlockOrigin {
  readonly type: "reasoning";
  readonly content: string;
  /** Encrypted reasoning, sent back unchanged. */
  readonly encrypted?: string;
  readonly summary: readonly string[];
  readonly id?: string;
}

/** A call of a function. */
export interface ToolUseBlock {
  readonly type: "tool_use";
  readonly id: string;
  readonly name: string;
  /** JSON text exactly as the model wrote it; may be invalid JSON. */
  readonly input: string;
}

/** The result of a call. */
export interface ToolResultBlock {
  readonly type: "tool_result";
  readonly toolUseId: string;
  /** What the model reads. */
  readonly content: string;
  readonly isError?: boolean;
  /** The content as blocks, where it is more than one text; `content` is then the text of it. */
  readonly parts?: readonly (TextBlock | ImageBlock | FileBlock | AudioBlock)[];
}

export interface ImageBlock {
  readonly type: "image";
  /** An `https:` or `data:` URL. The server never fetches it. */
  readonly url: string;
  /** `auto`, `low` or `high`; absent means `auto`. */
  readonly detail?: string;
}

export interface FileBlock {
  readonly type: "file";
  /** A `data:` URL with the content. */
  readonly data?: string;
  /** Id of a file uploaded to the provider. */
  readonly fileId?: string;
  readonly filename?: string;
}

export interface AudioBlock {
  readonly type: "audio";
  /** Base64 of the encoded audio. */
  readonly data: string;
  /** `wav`, `mp3`. */
  readonly format: string;
}

/** A block this service has no name for, kept so that it can go back. */
export interface UnknownBlock extends BlockOrigin {
  readonly type: "unknown";
  /** The provider's own word for its type. */
  readonly unknownType: string;
}

/** All text of a message, thinking left out. */
export function messageText(message: Message): string {
  let text = "";
  for (const block of message.blocks) if (block.type === "text") text += block.text;
  return text;
}

/** The calls a message makes, in order. */
export function toolUses(message: Message): ToolUseBlock[] {
  return message.blocks.filter((block) => block.type === "tool_use");
}
