import type {
  BlockOrigin,
  ReasoningBlock,
  RedactedThinkingBlock,
  TextBlock,
  ThinkingBlock,
  ToolResultBlock,
  ToolUseBlock,
  UnknownBlock,
} from "../chat/message.ts";
import { present } from "./present.ts";

/** What a model thought, in any of its forms. */
export type ReasoningLikeBlock = ThinkingBlock | RedactedThinkingBlock | ReasoningBlock;

const prefix = "codeagent.1.";
/** Longest envelope that is opened, in characters. */
const mostCharacters = 8 * 1024 * 1024;

/** What the server told the model as a user, such as what is wrong with an answer. */
export interface NoteBlock {
  readonly type: "note";
  readonly text: string;
}

/** What of a turn a vendor's format may have no form for. The result of a call holds one text. */
export type SealableBlock =
  | ReasoningLikeBlock
  | TextBlock
  | ToolUseBlock
  | Omit<ToolResultBlock, "parts">
  | UnknownBlock
  | NoteBlock;

/**
 * A block of reasoning as one opaque text, for formats whose clients keep such a text and send it back: a `signature`, an
 * `encrypted_content`. It holds the block whole and who wrote it, so that it goes back to its writer byte for byte, however
 * many models a conversation has.
 *
 * It is neither encrypted nor signed: whoever has it can read it and can make one. That gains nobody anything. A client
 * of the RPCs may give reasoning and its origin in plain fields, and a provider checks its own signatures.
 */
export function sealReasoning(block: ReasoningLikeBlock): string {
  return sealBlock(block);
}

/**
 * As `sealReasoning`, for all that a turn added to the history and a format cannot show: without it a model that is asked
 * to go on does not know what it did, and providers refuse reasoning that comes after something that is missing.
 */
export function sealBlock(block: SealableBlock): string {
  return `${prefix}${Buffer.from(JSON.stringify(fieldsOf(block)), "utf8").toString("base64url")}`;
}

/** Whether a text claims to be an envelope of ours; it may still be damaged. */
export function isSealedReasoning(text: string): boolean {
  return text.startsWith(prefix);
}

/**
 * The block that `sealReasoning` sealed; nothing for any other text, for one that was damaged, and for one of more than
 * 8 Mi characters.
 */
export function openReasoning(text: string): ReasoningLikeBlock | undefined {
  const block = openBlock(text);
  return block?.type === "thinking" || block?.type === "redacted_thinking" || block?.type === "reasoning"
    ? block
    : undefined;
}

/** As `openReasoning`, for what `sealBlock` sealed. */
export function openBlock(text: string): SealableBlock | undefined {
  if (!isSealedReasoning(text) || text.length > mostCharacters) return undefined;
  const fields = parseObject(Buffer.from(text.slice(prefix.length), "base64url").toString("utf8"));
  return fields === undefined ? undefined : blockOf(fields);
}

type Fields = Readonly<Record<string, unknown>>;

function blockOf(fields: Fields): SealableBlock | undefined {
  const at = (name: string) => textOf(fields[name]);
  switch (fields["type"]) {
    case "thinking": {
      const thinking = at("thinking");
      if (thinking === undefined) return undefined;
      return present({ type: "thinking", thinking, signature: at("signature"), ...originOf(fields) });
    }
    case "redacted_thinking": {
      const data = at("data");
      return data === undefined ? undefined : { type: "redacted_thinking", data, ...originOf(fields) };
    }
    case "reasoning": {
      const content = at("content");
      const summary = textsOf(fields["summary"]);
      if (content === undefined || summary === undefined) return undefined;
      const encrypted = at("encrypted");
      return present({ type: "reasoning", content, encrypted, summary, id: at("id"), ...originOf(fields) });
    }
    case "text": {
      const text = at("text");
      return text === undefined ? undefined : present({ type: "text", text, phase: at("phase") });
    }
    case "note": {
      const text = at("text");
      return text === undefined ? undefined : { type: "note", text };
    }
    case "tool_use": {
      const { id, name, input } = { id: at("id"), name: at("name"), input: at("input") };
      if (!id || !name || input === undefined) return undefined;
      return { type: "tool_use", id, name, input };
    }
    case "tool_result": {
      const { toolUseId, content } = { toolUseId: at("toolUseId"), content: at("content") };
      if (!toolUseId || content === undefined) return undefined;
      return present({ type: "tool_result", toolUseId, content, isError: fields["isError"] === true || undefined });
    }
    case "unknown": {
      const unknownType = at("unknownType");
      return unknownType === undefined ? undefined : { type: "unknown", unknownType, ...originOf(fields) };
    }
    default:
      return undefined;
  }
}

function fieldsOf(block: SealableBlock): object {
  switch (block.type) {
    case "thinking":
      return { type: block.type, thinking: block.thinking, signature: block.signature, ...originFields(block) };
    case "redacted_thinking":
      return { type: block.type, data: block.data, ...originFields(block) };
    case "reasoning": {
      const { type, content, encrypted, summary, id } = block;
      return { type, content, encrypted, summary, id, ...originFields(block) };
    }
    case "unknown":
      return { type: block.type, unknownType: block.unknownType, ...originFields(block) };
    case "tool_result": {
      const { type, toolUseId, content, isError } = block;
      return { type, toolUseId, content, isError };
    }
    case "text":
    case "note":
    case "tool_use":
      return block;
    default:
      return block satisfies never;
  }
}

function originFields({ provider, model, dialect, raw }: BlockOrigin): object {
  return { provider, model, dialect, raw: raw === undefined ? undefined : Buffer.from(raw).toString("base64") };
}

function originOf(fields: Fields): BlockOrigin {
  const raw = textOf(fields["raw"]);
  return present({
    provider: textOf(fields["provider"]),
    model: textOf(fields["model"]),
    dialect: textOf(fields["dialect"]),
    raw: raw === undefined ? undefined : new Uint8Array(Buffer.from(raw, "base64")),
  });
}

function parseObject(json: string): Fields | undefined {
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === "object" && value !== null ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}

/** A string that no half of a surrogate pair is in; nothing for anything else. */
function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value.isWellFormed() ? value : undefined;
}

function textsOf(value: unknown): string[] | undefined {
  if (!Array.isArray(value)) return undefined;
  const texts = value.map(textOf).filter((text) => text !== undefined);
  return texts.length === value.length ? texts : undefined;
}
