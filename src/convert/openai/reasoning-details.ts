import { invalidField } from "../../chat/error.ts";
import type { ContentBlock } from "../../chat/message.ts";
import { readObject, readOptionalArray, readOptionalText, readText } from "../json-field.ts";
import { present, presentText } from "../present.ts";
import type { Place, SealableBlock } from "../sealed-reasoning.ts";
import { isSealedReasoning, openPlacedBlock, sealBlock } from "../sealed-reasoning.ts";

/**
 * Something of an answer that Chat Completions has no form for, to be sent back as it is. The field and its shape are
 * OpenRouter's (openrouter.ai/docs/guides/best-practices/reasoning-tokens), so that clients who know it keep it; `unknown`
 * is its word for the format of others, which clients who check the word let pass.
 */
export interface ReasoningDetail {
  type: "reasoning.encrypted";
  /** An envelope (`sealBlock`). */
  data: string;
  id: string;
  format: "unknown";
  index: number;
}

/** What a turn added, in its order: a block, or text and calls that the message itself shows. */
export interface SaidBlock {
  readonly block: SealableBlock;
  readonly isShown: boolean;
}

/**
 * What has to go along with a message so that it can be read as it was: an envelope for each block that the message does
 * not show, with its place among those it shows, and for each text that says what it is to its model (`phase`). Absent where
 * the message shows everything but whose its thinking in the open is.
 * @param name what the ids of the envelopes begin with.
 */
export function sealDetails(said: readonly SaidBlock[], name: string): ReasoningDetail[] | undefined {
  const shown = said.map(({ block, isShown }) => (isShown && block.type === "text" ? block.text.length : 0));
  const textInAll = shown.reduce((sum, length) => sum + length, 0);
  const details: ReasoningDetail[] = [];
  let textBefore = 0;
  let callsBefore = 0;
  let isNeeded = false;
  const add = (block: SealableBlock): void => {
    const index = details.length;
    const data = sealBlock(block, { textBefore, textInAll, callsBefore });
    details.push({ type: "reasoning.encrypted", data, id: `${name}_${index}`, format: "unknown", index });
  };
  for (const { block, isShown } of said) {
    if (isShown && block.type === "text") {
      if (block.phase !== undefined && block.text !== "") add({ ...block, text: "" });
      textBefore += block.text.length;
    } else if (isShown) callsBefore++;
    else if (!isNothing(block)) {
      isNeeded ||= !isInTheOpen(block);
      add(block);
    }
  }
  return isNeeded ? details : undefined;
}

/** Something read out of `reasoning_details`; without a place it stands before what the message shows. */
export interface ReadDetail {
  readonly block: SealableBlock;
  readonly place?: Place;
}

/**
 * Reads `reasoning_details`: our envelopes, and of what others wrote the thinking in the open, with its signature where it
 * is Claude's, and Claude's redacted thinking. The rest only its own service could read; it is passed over.
 * @throws {AgentError} `invalid_request` with the path of what is no detail, and of an envelope that is damaged.
 */
export function readDetails(value: unknown, path: string): ReadDetail[] {
  const read: ReadDetail[] = [];
  let before: ForeignText | undefined;
  for (const [index, entry] of readOptionalArray(value, path).entries()) {
    const detail = readDetail(entry, `${path}[${index}]`);
    const goesOn = before !== undefined && detail?.type === "text" && isPieceAfter(before, detail);
    if (before !== undefined && detail?.type === "text" && goesOn) {
      before = { ...detail, text: before.text + detail.text };
      read[read.length - 1] = { block: thinkingOf(before) };
      continue;
    }
    before = detail?.type === "text" ? detail : undefined;
    if (detail?.type === "text") read.push({ block: thinkingOf(detail) });
    else if (detail !== undefined) read.push(detail.read);
  }
  return read.filter(({ block }) => !isNothing(block));
}

/** Thinking in the open as another service wrote it. */
interface ForeignText {
  readonly type: "text";
  readonly kind: string;
  readonly index: unknown;
  readonly text: string;
  /** Of Claude's. */
  readonly signature: string | undefined;
}

const claude = { format: "anthropic-claude-v1", dialect: "anthropic-messages" } as const;

function readDetail(entry: unknown, path: string): ForeignText | { type: "read"; read: ReadDetail } | undefined {
  const fields = readObject(entry, path);
  const { type: kind, format, index } = fields;
  switch (kind) {
    case "reasoning.encrypted": {
      const data = readText(fields["data"], `${path}.data`);
      if (isSealedReasoning(data)) {
        const opened = openPlacedBlock(data);
        if (opened === undefined) throw invalidField(`${path}.data`, "is damaged; send it back as it came");
        return { type: "read", read: present(opened) };
      }
      if (format !== claude.format) return undefined;
      return { type: "read", read: { block: { type: "redacted_thinking", data, dialect: claude.dialect } } };
    }
    case "reasoning.text": {
      const signature = presentText(readOptionalText(fields["signature"], `${path}.signature`) ?? "");
      const isClaudes = format === undefined || format === null || format === claude.format;
      const text = readOptionalText(fields["text"], `${path}.text`) ?? "";
      return { type: "text", kind, index, text, signature: isClaudes ? signature : undefined };
    }
    case "reasoning.summary": {
      const text = readOptionalText(fields["summary"], `${path}.summary`) ?? "";
      return { type: "text", kind, index, text, signature: undefined };
    }
    default:
      return undefined;
  }
}

/** Clients that keep the pieces of a stream send them back as such; a signature ends what they add up to. */
function isPieceAfter(before: ForeignText, { kind, index }: ForeignText): boolean {
  return before.kind === kind && before.index === index && typeof index === "number" && before.signature === undefined;
}

function thinkingOf({ text, signature }: ForeignText): ContentBlock & { type: "thinking" } {
  const dialect = signature === undefined ? undefined : claude.dialect;
  return present({ type: "thinking", thinking: text, signature, dialect });
}

/** Thinking that says nothing. */
function isNothing(block: SealableBlock): boolean {
  return block.type === "thinking" && block.thinking === "" && !block.signature && block.raw === undefined;
}

/** Whether all there is to a block is thinking that `reasoning_content` tells. */
function isInTheOpen(block: SealableBlock): boolean {
  if (block.type === "thinking") return !block.signature && block.raw === undefined;
  return block.type === "reasoning" && !block.encrypted && !block.id && block.raw === undefined;
}
