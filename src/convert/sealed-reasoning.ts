import { base64Decode, base64Encode } from "@bufbuild/protobuf/wire";
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
 * Where a block stood among what a message shows of the same turn: after so much of its text (`textBefore` of `textInAll`,
 * in UTF-16 code units) and after so many of its calls.
 */
export interface Place {
  readonly textBefore: number;
  readonly textInAll: number;
  readonly callsBefore: number;
}

/**
 * As `sealReasoning`, for all that a turn added to the history and a format cannot show: without it a model that is asked
 * to go on does not know what it did, and providers refuse reasoning that comes after something that is missing.
 * @param place for formats that tell what is sealed apart from what is shown
 */
export function sealBlock(block: SealableBlock, place?: Place): string {
  const fields = place === undefined ? fieldsOf(block) : { ...fieldsOf(block), place: { ...place } };
  return `${prefix}${base64Encode(new TextEncoder().encode(JSON.stringify(fields)), "url")}`;
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
  return openPlacedBlock(text)?.block;
}

/** As `openBlock`, with the place that was sealed with it. */
export function openPlacedBlock(
  text: string,
): { readonly block: SealableBlock; readonly place: Place | undefined } | undefined {
  if (!isSealedReasoning(text) || text.length > mostCharacters) return undefined;
  const bytes = bytesOf(text.slice(prefix.length));
  const fields = bytes === undefined ? undefined : parseObject(new TextDecoder().decode(bytes));
  const block = fields === undefined ? undefined : blockOf(fields);
  return block === undefined ? undefined : { block, place: placeOf(fields?.["place"]) };
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
  return { provider, model, dialect, raw: raw === undefined ? undefined : base64Encode(raw) };
}

function originOf(fields: Fields): BlockOrigin {
  const raw = textOf(fields["raw"]);
  return present({
    provider: textOf(fields["provider"]),
    model: textOf(fields["model"]),
    dialect: textOf(fields["dialect"]),
    raw: raw === undefined ? undefined : bytesOf(raw),
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

function bytesOf(base64: string): Uint8Array | undefined {
  try {
    return base64Decode(base64);
  } catch {
    return undefined;
  }
}

function placeOf(value: unknown): Place | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const fields: Fields = { ...value };
  const at = (name: string) => countOf(fields[name]);
  const { textBefore, textInAll, callsBefore } = {
    textBefore: at("textBefore"),
    textInAll: at("textInAll"),
    callsBefore: at("callsBefore"),
  };
  if (textBefore === undefined || textInAll === undefined || callsBefore === undefined) return undefined;
  return { textBefore, textInAll, callsBefore };
}

function countOf(value: unknown): number | undefined {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
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
