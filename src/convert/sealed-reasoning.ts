import type { BlockOrigin, ReasoningBlock, RedactedThinkingBlock, ThinkingBlock } from "../chat/message.ts";
import { present } from "./present.ts";

/** What a model thought, in any of its forms. */
export type ReasoningLikeBlock = ThinkingBlock | RedactedThinkingBlock | ReasoningBlock;

const prefix = "codeagent.1.";
/** Longest envelope that is opened, in characters. */
const mostCharacters = 8 * 1024 * 1024;

/**
 * A block of reasoning as one opaque text, for formats whose clients keep such a text and send it back: a `signature`, an
 * `encrypted_content`. It holds the block whole and who wrote it, so that it goes back to its writer byte for byte, however
 * many models a conversation has.
 *
 * It is neither encrypted nor signed: whoever has it can read it and can make one. That gains nobody anything. A client
 * of the RPCs may give reasoning and its origin in plain fields, and a provider checks its own signatures.
 */
export function sealReasoning(block: ReasoningLikeBlock): string {
  const { provider, model, dialect, raw } = block;
  const origin = { provider, model, dialect, raw: raw === undefined ? undefined : Buffer.from(raw).toString("base64") };
  return `${prefix}${Buffer.from(JSON.stringify({ ...fieldsOf(block), ...origin }), "utf8").toString("base64url")}`;
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
  if (!isSealedReasoning(text) || text.length > mostCharacters) return undefined;
  const fields = parseObject(Buffer.from(text.slice(prefix.length), "base64url").toString("utf8"));
  if (fields === undefined) return undefined;
  const origin = originOf(fields);
  switch (fields["type"]) {
    case "thinking": {
      const thinking = textOf(fields["thinking"]);
      if (thinking === undefined) return undefined;
      return present({ type: "thinking", thinking, signature: textOf(fields["signature"]), ...origin });
    }
    case "redacted_thinking": {
      const data = textOf(fields["data"]);
      return data === undefined ? undefined : { type: "redacted_thinking", data, ...origin };
    }
    case "reasoning": {
      const content = textOf(fields["content"]);
      const summary = textsOf(fields["summary"]);
      if (content === undefined || summary === undefined) return undefined;
      const encrypted = textOf(fields["encrypted"]);
      return present({ type: "reasoning", content, encrypted, summary, id: textOf(fields["id"]), ...origin });
    }
    default:
      return undefined;
  }
}

function fieldsOf(block: ReasoningLikeBlock): object {
  switch (block.type) {
    case "thinking":
      return { type: block.type, thinking: block.thinking, signature: block.signature };
    case "redacted_thinking":
      return { type: block.type, data: block.data };
    case "reasoning": {
      const { type, content, encrypted, summary, id } = block;
      return { type, content, encrypted, summary, id };
    }
    default:
      return block satisfies never;
  }
}

function originOf(fields: Readonly<Record<string, unknown>>): BlockOrigin {
  const raw = textOf(fields["raw"]);
  return present({
    provider: textOf(fields["provider"]),
    model: textOf(fields["model"]),
    dialect: textOf(fields["dialect"]),
    raw: raw === undefined ? undefined : new Uint8Array(Buffer.from(raw, "base64")),
  });
}

function parseObject(json: string): Readonly<Record<string, unknown>> | undefined {
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === "object" && value !== null ? { ...value } : undefined;
  } catch {
    return undefined;
  }
}

/** A string no half of a surrogate pair is in; nothing for anything else. */
function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value.isWellFormed() ? value : undefined;
}

function textsOf(value: unknown): string[] | undefined {
  if (!Array.isArray(value)) return undefined;
  const texts = value.map(textOf).filter((text) => text !== undefined);
  return texts.length === value.length ? texts : undefined;
}
