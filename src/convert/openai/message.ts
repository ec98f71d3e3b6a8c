import { invalidField } from "../../chat/error.ts";
import type { ContentBlock, Message, ThinkingBlock, ToolResultBlock, ToolUseBlock } from "../../chat/message.ts";
import { messageText, toolUses } from "../../chat/message.ts";
import { checkFileData, checkImageDetail, checkImageUrl } from "../content-check.ts";
import type { JsonObject } from "../json-field.ts";
import {
  isAbsent,
  readArray,
  readFilledText,
  readObject,
  readOptionalArray,
  readOptionalObject,
  readOptionalText,
  readText,
  readWord,
} from "../json-field.ts";
import { present, presentText } from "../present.ts";
import type { PartBlock } from "../proto/block.ts";
import { isPartBlock } from "../proto/block.ts";
import { resultOfParts } from "../proto/message.ts";
import { type ReadDetail, readDetails, type SaidBlock, sealDetails } from "./reasoning-details.ts";

export interface TextPart {
  type: "text";
  text: string;
}

export interface ImagePart {
  type: "image_url";
  image_url: { url: string; detail?: "auto" | "low" | "high" };
}

export interface AudioPart {
  type: "input_audio";
  input_audio: { data: string; format: "wav" | "mp3" };
}

export interface FilePart {
  type: "file";
  file: { file_data?: string; file_id?: string; filename?: string };
}

export interface RefusalPart {
  type: "refusal";
  refusal: string;
}

export type ContentPart = TextPart | ImagePart | AudioPart | FilePart;

export interface ChatCompletionToolCall {
  id: string;
  type: "function";
  function: { name: string; arguments: string };
}

export interface SystemMessageParam {
  role: "system" | "developer";
  content: string | TextPart[];
  name?: string;
}

export interface UserMessageParam {
  role: "user";
  content: string | ContentPart[];
  name?: string;
}

export interface AssistantMessageParam {
  role: "assistant";
  content?: string | (TextPart | RefusalPart)[] | null;
  /** Thinking in the open; not of OpenAI itself, but common among those who speak its shape. */
  reasoning_content?: string | null;
  /** What this shape has no form for, as an answer gave it (`ReasoningDetail`) or another service's did. */
  reasoning_details?: readonly unknown[] | null;
  refusal?: string | null;
  name?: string;
  tool_calls?: ChatCompletionToolCall[];
  /** The form of a single call before `tool_calls`. */
  function_call?: { name: string; arguments: string } | null;
}

export interface ToolMessageParam {
  role: "tool";
  content: string | TextPart[];
  tool_call_id: string;
}

/** The form of a result before `tool`. */
export interface FunctionMessageParam {
  role: "function";
  name: string;
  content: string | null;
}

/** A message in OpenAI's shape. */
export type ChatCompletionMessageParam =
  | SystemMessageParam
  | UserMessageParam
  | AssistantMessageParam
  | ToolMessageParam
  | FunctionMessageParam;

const messageRoles = ["system", "developer", "user", "assistant", "tool", "function"] as const;

/**
 * Reads a message in OpenAI's shape, which may be several of ours: what the server did within an assistant's answer stands
 * in its place again, where the client sends back the `reasoning_details` that hold it (`readDetails`).
 *
 * Thinking comes first, then what is said, then the calls; what `reasoning_details` hold stands where it stood, and
 * `reasoning_content`, which says the same once more, is not read beside them. A content that is not the one the answer had
 * comes after all of it. A refusal is read as text; the id of audio said before is not read. `function_call` and `function` messages have no call id: they get
 * `function_<name>_<functionCall>`.
 * @param path of the message in its request, for errors.
 * @param functionCall how many `function_call`s the conversation has up to here, this one included; it tells the calls of
 * one function apart.
 * @throws {AgentError} `invalid_request` with the path of the field that is wrong, as in `messages[1].content[0].type`.
 */
export function messagesFromOpenAI(param: unknown, path = "messages[0]", functionCall = 1): Message[] {
  const fields = readObject(param, path);
  const role = readWord(fields["role"], messageRoles, `${path}.role`);
  const name = presentText(readOptionalText(fields["name"], `${path}.name`) ?? "");
  switch (role) {
    case "system":
    case "developer":
      return [present({ role, blocks: partsFromOpenAI(fields["content"], `${path}.content`, ["text"]), name })];
    case "user": {
      const blocks = partsFromOpenAI(fields["content"], `${path}.content`, [
        "text",
        "image_url",
        "input_audio",
        "file",
      ]);
      if (isEmpty(blocks)) throw invalidField(`${path}.content`, "is empty");
      return [present({ role, blocks, name })];
    }
    case "assistant": {
      const details = readDetails(fields["reasoning_details"], `${path}.reasoning_details`);
      const thinking = thinkingOf(fields, path).map((block) => ({ block }));
      const shown = { said: saidOf(fields, path), calls: callsOf(fields, path, functionCall) };
      const messages = inOrder(details.length === 0 ? thinking : details, shown, name);
      if (messages.every(({ blocks }) => isEmpty(blocks)))
        throw invalidField(
          `${path}.content`,
          "is empty, and there are no tool_calls; an assistant message has one of them",
        );
      return messages;
    }
    case "tool": {
      const parts = partsFromOpenAI(fields["content"], `${path}.content`, ["text", "image_url", "input_audio", "file"]);
      const blocks = [resultOfParts(readFilledText(fields["tool_call_id"], `${path}.tool_call_id`), parts)];
      return [present({ role, blocks, name })];
    }
    case "function": {
      const called = readFilledText(fields["name"], `${path}.name`);
      const parts = partsFromOpenAI(fields["content"], `${path}.content`, ["text"]);
      return [present({ role: "tool", blocks: [resultOfParts(functionCallId(called, functionCall), parts)], name })];
    }
    default:
      return role satisfies never;
  }
}

/**
 * Writes a message in OpenAI's shape. Signed, redacted and encrypted thinking, unknown blocks and their places go along in
 * `reasoning_details`. What cannot be held is left out: ids, times and metadata of messages; whose thinking in the open is;
 * whether a tool failed; results in other than `tool` messages; images, files and audio in other than `user` messages;
 * names of `tool` messages; and that an assistant's text and calls took turns: its text is joined before its calls.
 */
export function messageToOpenAI(message: Message): Exclude<ChatCompletionMessageParam, FunctionMessageParam> {
  switch (message.role) {
    case "system":
    case "developer":
      return present({ role: message.role, content: textToOpenAI(message.blocks), name: message.name });
    case "user":
      return present({ role: message.role, content: partsToOpenAI(message.blocks), name: message.name });
    case "assistant": {
      const calls = toolUses(message).map(toolCallToOpenAI);
      const text = messageText(message);
      return present({
        role: message.role,
        content: text === "" && calls.length > 0 ? null : text,
        reasoning_content: presentText(thinkingText(message)),
        reasoning_details: sealDetails(saidIn(message), "rd"),
        name: message.name,
        tool_calls: calls.length === 0 ? undefined : calls,
      });
    }
    case "tool": {
      const result = message.blocks.find((block) => block.type === "tool_result");
      return { role: message.role, content: resultToOpenAI(result), tool_call_id: result?.toolUseId ?? "" };
    }
    default:
      return message.role satisfies never;
  }
}

/** Writes a call in OpenAI's shape. */
export function toolCallToOpenAI(call: ToolUseBlock): ChatCompletionToolCall {
  return { id: call.id, type: "function", function: { name: call.name, arguments: call.input } };
}

/** All thinking of a message that is in the open; of a reasoning item without text, its summaries. */
export function thinkingText(message: Message): string {
  return message.blocks.map(thinkingOfBlock).join("");
}

/** The thinking of a block that is in the open. */
export function thinkingOfBlock(block: ContentBlock): string {
  if (block.type === "thinking") return block.thinking;
  if (block.type === "reasoning") return block.content || block.summary.join("\n\n");
  return "";
}

/** What of an assistant's message there is a form for. */
function saidIn({ blocks }: Message): SaidBlock[] {
  return blocks.flatMap((block): SaidBlock[] => {
    switch (block.type) {
      case "text":
      case "tool_use":
        return [{ block, isShown: true }];
      case "thinking":
      case "redacted_thinking":
      case "reasoning":
      case "unknown":
        return [{ block, isShown: false }];
      case "tool_result":
      case "image":
      case "file":
      case "audio":
        return [];
      default:
        return block satisfies never;
    }
  });
}

interface Shown {
  readonly said: readonly ContentBlock[];
  readonly calls: readonly ToolUseBlock[];
}

/**
 * The messages of one answer: what went along with it in its places among what it shows. Each place where the server ran
 * its tools, or said something, ends a message.
 */
function inOrder(details: readonly ReadDetail[], shown: Shown, name: string | undefined): Message[] {
  const messages: Message[] = [];
  const text = joinedText(shown.said);
  let blocks: ContentBlock[] = [];
  let textAt = 0;
  let callsAt = 0;
  let phase: string | undefined;
  const endAnswer = (): void => {
    if (blocks.length > 0) messages.push(present({ role: "assistant", blocks, name }));
    blocks = [];
  };
  const showText = (end: number): void => {
    const piece = text.slice(textAt, end);
    if (piece === "") return;
    blocks.push(present({ type: "text", text: piece, phase }));
    textAt += piece.length;
    phase = undefined;
  };
  for (const { block, place } of details) {
    const fits = place !== undefined && place.textInAll === text.length && isBoundary(text, place.textBefore);
    if (fits) {
      showText(place.textBefore);
      blocks.push(...shown.calls.slice(callsAt, place.callsBefore));
      callsAt = Math.max(callsAt, place.callsBefore);
    }
    if (block.type === "tool_result" || block.type === "note") {
      endAnswer();
      messages.push(
        block.type === "note"
          ? { role: "user", blocks: [{ type: "text", text: block.text }] }
          : { role: "tool", blocks: [block] },
      );
    } else if (block.type === "text" && block.text === "") phase = fits ? block.phase : undefined;
    else blocks.push(block);
  }
  if (textAt === 0 && phase === undefined) blocks.push(...shown.said);
  else showText(text.length);
  blocks.push(...shown.calls.slice(callsAt));
  endAnswer();
  return messages;
}

/** Empty where there is more than text: nothing has a place in it then. */
function joinedText(said: readonly ContentBlock[]): string {
  const texts = said.map((block) => (block.type === "text" ? block.text : undefined));
  return texts.includes(undefined) ? "" : texts.join("");
}

/** Whether a text can be parted there: not within a pair of surrogates. */
function isBoundary(text: string, at: number): boolean {
  return at <= text.length && (text.codePointAt(at - 1) ?? 0) <= 0xffff;
}

function isEmpty(blocks: readonly ContentBlock[]): boolean {
  return blocks.every((block) => block.type === "text" && block.text === "");
}

function functionCallId(name: string, functionCall: number): string {
  return `function_${name}_${functionCall}`;
}

function thinkingOf(fields: JsonObject, path: string): ThinkingBlock[] {
  const thinking = readOptionalText(fields["reasoning_content"], `${path}.reasoning_content`) ?? "";
  return thinking === "" ? [] : [{ type: "thinking", thinking }];
}

function saidOf(fields: JsonObject, path: string): ContentBlock[] {
  const said = saidParts(fields["content"], `${path}.content`);
  const refusal = readOptionalText(fields["refusal"], `${path}.refusal`) ?? "";
  return refusal === "" ? said : [...said, { type: "text", text: refusal }];
}

/** Parts of type `thinking` are Mistral's (docs.mistral.ai/capabilities/reasoning): their text is in parts again. */
function saidParts(content: unknown, path: string): ContentBlock[] {
  if (isAbsent(content) || typeof content === "string") return partsFromOpenAI(content, path, ["text", "refusal"]);
  return readArray(content, path).map((part, index): ContentBlock => {
    const partPath = `${path}[${index}]`;
    const fields = readObject(part, partPath);
    if (fields["type"] !== "thinking") return partFromOpenAI(part, partPath, ["text", "refusal"]);
    const { thinking } = fields;
    if (typeof thinking === "string") {
      return { type: "thinking", thinking: readText(thinking, `${partPath}.thinking`) };
    }
    const texts = readArray(thinking, `${partPath}.thinking`).map((piece, place) => {
      const piecePath = `${partPath}.thinking[${place}]`;
      return readOptionalText(readObject(piece, piecePath)["text"], `${piecePath}.text`) ?? "";
    });
    return { type: "thinking", thinking: texts.join("") };
  });
}

function callsOf(fields: JsonObject, path: string, functionCall: number): ToolUseBlock[] {
  const calls = readOptionalArray(fields["tool_calls"], `${path}.tool_calls`).map((call, index) =>
    toolCallFromOpenAI(call, `${path}.tool_calls[${index}]`),
  );
  const called = readOptionalObject(fields["function_call"], `${path}.function_call`);
  if (called === undefined) return calls;
  const name = readFilledText(called["name"], `${path}.function_call.name`);
  const input = readText(called["arguments"], `${path}.function_call.arguments`);
  return [...calls, { type: "tool_use", id: functionCallId(name, functionCall), name, input }];
}

function toolCallFromOpenAI(call: unknown, path: string): ToolUseBlock {
  const fields = readObject(call, path);
  if (fields["type"] !== undefined) readWord(fields["type"], ["function"], `${path}.type`);
  const called = readObject(fields["function"], `${path}.function`);
  return {
    type: "tool_use",
    id: readFilledText(fields["id"], `${path}.id`),
    name: readFilledText(called["name"], `${path}.function.name`),
    input: readText(called["arguments"], `${path}.function.arguments`),
  };
}

type PartType = (ContentPart | RefusalPart)["type"];

function partsFromOpenAI(content: unknown, path: string, types: readonly PartType[]): PartBlock[] {
  if (isAbsent(content)) return [];
  if (typeof content !== "string")
    return readArray(content, path).map((part, index) => partFromOpenAI(part, `${path}[${index}]`, types));
  return content === "" ? [] : [{ type: "text", text: readText(content, path) }];
}

function partFromOpenAI(part: unknown, path: string, types: readonly PartType[]): PartBlock {
  const fields = readObject(part, path);
  const type = readWord(fields["type"], types, `${path}.type`);
  switch (type) {
    case "text":
      return { type: "text", text: readText(fields["text"], `${path}.text`) };
    case "refusal":
      return { type: "text", text: readText(fields["refusal"], `${path}.refusal`) };
    case "image_url": {
      const image = readObject(fields["image_url"], `${path}.image_url`);
      const url = readText(image["url"], `${path}.image_url.url`);
      const detail = readOptionalText(image["detail"], `${path}.image_url.detail`);
      checkImageUrl(url, `${path}.image_url.url`);
      checkImageDetail(detail, `${path}.image_url.detail`);
      return present({ type: "image", url, detail });
    }
    case "input_audio": {
      const audio = readObject(fields["input_audio"], `${path}.input_audio`);
      return {
        type: "audio",
        data: readFilledText(audio["data"], `${path}.input_audio.data`),
        format: readFilledText(audio["format"], `${path}.input_audio.format`),
      };
    }
    case "file": {
      const file = readObject(fields["file"], `${path}.file`);
      const data = presentText(readOptionalText(file["file_data"], `${path}.file.file_data`) ?? "");
      const fileId = presentText(readOptionalText(file["file_id"], `${path}.file.file_id`) ?? "");
      const filename = presentText(readOptionalText(file["filename"], `${path}.file.filename`) ?? "");
      if (data === undefined && fileId === undefined)
        throw invalidField(`${path}.file`, "is empty; give file_data or file_id");
      checkFileData(data, `${path}.file.file_data`);
      return present({ type: "file", data, fileId, filename });
    }
    default:
      return type satisfies never;
  }
}

function textToOpenAI(blocks: readonly ContentBlock[]): string | TextPart[] {
  const texts = blocks.filter((block) => block.type === "text");
  if (texts.length <= 1) return texts[0]?.text ?? "";
  return texts.map(({ text }) => ({ type: "text", text }));
}

function partsToOpenAI(blocks: readonly ContentBlock[]): string | ContentPart[] {
  const parts = blocks.filter(isPartBlock);
  return parts.every((part) => part.type === "text") ? textToOpenAI(parts) : parts.map(partToOpenAI);
}

function resultToOpenAI(result: ToolResultBlock | undefined): string | TextPart[] {
  return result?.parts?.some((part) => part.type === "text") ? textToOpenAI(result.parts) : (result?.content ?? "");
}

function partToOpenAI(block: PartBlock): ContentPart {
  switch (block.type) {
    case "text":
      return { type: "text", text: block.text };
    case "image": {
      const detail = (["auto", "low", "high"] as const).find((known) => known === block.detail);
      return { type: "image_url", image_url: present({ url: block.url, detail }) };
    }
    case "file": {
      const { data, fileId, filename } = block;
      return { type: "file", file: present({ file_data: data, file_id: fileId, filename }) };
    }
    case "audio": {
      // OpenAI's own list of formats is shorter than that of those who speak its shape; they judge what they get.
      return { type: "input_audio", input_audio: { data: block.data, format: block.format as "wav" | "mp3" } };
    }
    default:
      return block satisfies never;
  }
}
