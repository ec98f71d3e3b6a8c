import { invalidField } from "../../chat/error.ts";
import type { BlockOrigin, ContentBlock, Message } from "../../chat/message.ts";
import { checkFileData, checkImageDetail, checkImageUrl, quoted } from "../content-check.ts";
import type { JsonObject } from "../json-field.ts";
import {
  isAbsent,
  readArray,
  readFilledText,
  readObject,
  readOptionalArray,
  readOptionalText,
  readText,
  readWord,
} from "../json-field.ts";
import { present, presentText } from "../present.ts";
import type { PartBlock } from "../proto/block.ts";
import { isPartBlock } from "../proto/block.ts";
import { resultOfParts } from "../proto/message.ts";
import type { ReasoningLikeBlock } from "../sealed-reasoning.ts";
import { isSealedReasoning, openBlock, sealReasoning } from "../sealed-reasoning.ts";

export interface InputTextPart {
  type: "input_text";
  text: string;
}

export interface InputImagePart {
  type: "input_image";
  image_url: string;
  detail: "auto" | "low" | "high";
}

export interface InputFilePart {
  type: "input_file";
  file_data?: string;
  file_id?: string;
  filename?: string;
}

export interface OutputTextPart {
  type: "output_text";
  text: string;
  annotations: [];
  logprobs: [];
}

export type InputPart = InputTextPart | InputImagePart | InputFilePart;
export type ItemStatus = "in_progress" | "completed" | "incomplete";

export interface InputMessageItem {
  id: string;
  type: "message";
  role: "user" | "system" | "developer";
  status: ItemStatus;
  content: InputPart[];
}

export interface OutputMessageItem {
  id: string;
  type: "message";
  role: "assistant";
  status: ItemStatus;
  content: OutputTextPart[];
  /** What the text is to the model that wrote it. */
  phase?: "commentary" | "final_answer";
}

export interface FunctionCallItem {
  id: string;
  type: "function_call";
  status: ItemStatus;
  call_id: string;
  name: string;
  arguments: string;
}

export interface FunctionCallOutputItem {
  id: string;
  type: "function_call_output";
  status: ItemStatus;
  call_id: string;
  output: string | InputPart[];
}

export interface ReasoningItem {
  id: string;
  type: "reasoning";
  status: ItemStatus;
  summary: { type: "summary_text"; text: string }[];
  /** Our envelope around the block; it goes back to who wrote it. */
  encrypted_content?: string;
}

export type OutputItem = OutputMessageItem | FunctionCallItem | ReasoningItem;
export type ConversationItem = InputMessageItem | OutputItem | FunctionCallOutputItem;

/**
 * Reads the `input` of a request: a text, which the user says, or items in the order of the conversation
 * (developers.openai.com/api/reference, "Create a model response", `input`).
 *
 * What the model said (reasoning, assistant messages, calls) becomes one message up to the next item that is somebody
 * else's; each `function_call_output` is a message of its own. A refusal is read as text. What is in an envelope of ours,
 * reasoning or what the server did between, comes out as it went in, whatever the item's readable fields say. Another's `encrypted_content` is kept for the model the request
 * asks for, as its provider's own; reasoning without any is kept for the record, and no model is sent it.
 *
 * Refused by name: `item_reference` and other items than these, since what they stand for is not here; images by
 * `file_id`, files by `file_url`, which nobody fetches.
 * @param model the one asked for, as `provider/model`; may be empty
 * @throws {AgentError} `invalid_request` with the path of the field that is wrong, as in `input[1].content[0].type`.
 */
export function messagesFromItems(input: unknown, model: string, path = "input"): Message[] {
  if (typeof input === "string")
    return [{ role: "user", blocks: [{ type: "text", text: readFilledText(input, path) }] }];
  const messages: Message[] = [];
  let said: ContentBlock[] = [];
  const endAnswer = () => {
    if (said.length > 0) messages.push({ role: "assistant", blocks: said });
    said = [];
  };
  for (const [index, item] of readArray(input, path).entries()) {
    const read = readItem(item, model, `${path}[${index}]`);
    if ("role" in read) {
      endAnswer();
      messages.push(read);
    } else said.push(...read.said);
  }
  endAnswer();
  return messages;
}

/** What an item is: a message of somebody else than the model, or a part of what it said. */
type Read = Message | { readonly said: readonly ContentBlock[] };

function readItem(item: unknown, model: string, path: string): Read {
  const fields = readObject(item, path);
  const type = isAbsent(fields["type"]) ? impliedType(fields) : readText(fields["type"], `${path}.type`);
  switch (type) {
    case "message":
      return readMessage(fields, path);
    case "function_call":
      return {
        said: [
          {
            type: "tool_use",
            id: readFilledText(fields["call_id"], `${path}.call_id`),
            name: readFilledText(fields["name"], `${path}.name`),
            input: readText(fields["arguments"], `${path}.arguments`),
          },
        ],
      };
    case "function_call_output": {
      const callId = readFilledText(fields["call_id"], `${path}.call_id`);
      const parts = readParts(fields["output"], `${path}.output`, inputParts);
      return { role: "tool", blocks: [resultOfParts(callId, parts)] };
    }
    case "reasoning":
      return readReasoning(fields, model, path);
    case "item_reference":
      throw invalidField(
        path,
        "refers to an item by its id, and items can't be looked up; send the item itself, or go on after its response with previous_response_id",
      );
    default:
      throw invalidField(
        `${path}.type`,
        `is ${quoted(type)}; use message, function_call, function_call_output or reasoning`,
      );
  }
}

function impliedType(fields: JsonObject): string {
  return isAbsent(fields["role"]) && !isAbsent(fields["id"]) ? "item_reference" : "message";
}

const inputParts = ["input_text", "input_image", "input_file", "input_audio"] as const;
const saidParts = ["output_text", "refusal", "input_text"] as const;
type PartType = (typeof inputParts)[number] | (typeof saidParts)[number];

function readMessage(fields: JsonObject, path: string): Read {
  const role = readWord(fields["role"], ["user", "assistant", "system", "developer"], `${path}.role`);
  if (role === "assistant") {
    const phase = presentText(readOptionalText(fields["phase"], `${path}.phase`) ?? "");
    const blocks = readParts(fields["content"], `${path}.content`, saidParts);
    return {
      said: blocks
        .filter((block) => block.type !== "text" || block.text !== "")
        .map((block) => (block.type === "text" ? present({ ...block, phase }) : block)),
    };
  }
  const types = role === "user" ? inputParts : (["input_text"] as const);
  const blocks = readParts(fields["content"], `${path}.content`, types);
  if (role === "user" && blocks.every((block) => block.type === "text" && block.text === ""))
    throw invalidField(`${path}.content`, "is empty");
  return { role, blocks };
}

function readParts(content: unknown, path: string, types: readonly PartType[]): PartBlock[] {
  if (typeof content !== "string")
    return readArray(content, path).map((part, index) => readPart(part, types, `${path}[${index}]`));
  return content === "" ? [] : [{ type: "text", text: readText(content, path) }];
}

function readPart(part: unknown, types: readonly PartType[], path: string): PartBlock {
  const fields = readObject(part, path);
  const type = readWord(fields["type"], types, `${path}.type`);
  switch (type) {
    case "input_text":
    case "output_text":
      return { type: "text", text: readText(fields["text"], `${path}.text`) };
    case "refusal":
      return { type: "text", text: readText(fields["refusal"], `${path}.refusal`) };
    case "input_image": {
      if (!isAbsent(fields["file_id"]))
        throw invalidField(`${path}.file_id`, "names an uploaded file, and there are none here; send image_url");
      const url = readText(fields["image_url"], `${path}.image_url`);
      const detail = readOptionalText(fields["detail"], `${path}.detail`);
      checkImageUrl(url, `${path}.image_url`);
      checkImageDetail(detail, `${path}.detail`);
      return present({ type: "image", url, detail });
    }
    case "input_file": {
      if (!isAbsent(fields["file_url"]))
        throw invalidField(`${path}.file_url`, "is a place to fetch from, and nothing is fetched; send file_data");
      const data = presentText(readOptionalText(fields["file_data"], `${path}.file_data`) ?? "");
      const fileId = presentText(readOptionalText(fields["file_id"], `${path}.file_id`) ?? "");
      const filename = presentText(readOptionalText(fields["filename"], `${path}.filename`) ?? "");
      if (data === undefined && fileId === undefined) throw invalidField(path, "is empty; give file_data or file_id");
      checkFileData(data, `${path}.file_data`);
      return present({ type: "file", data, fileId, filename });
    }
    case "input_audio": {
      const audio = readObject(fields["input_audio"], `${path}.input_audio`);
      return {
        type: "audio",
        data: readFilledText(audio["data"], `${path}.input_audio.data`),
        format: readFilledText(audio["format"], `${path}.input_audio.format`),
      };
    }
    default:
      return type satisfies never;
  }
}

function readReasoning(fields: JsonObject, model: string, path: string): Read {
  const encrypted = presentText(readOptionalText(fields["encrypted_content"], `${path}.encrypted_content`) ?? "");
  if (encrypted !== undefined && isSealedReasoning(encrypted)) {
    const block = openBlock(encrypted);
    if (block === undefined)
      throw invalidField(`${path}.encrypted_content`, "is damaged; send it back as it came, or leave the item out");
    if (block.type === "tool_result") return { role: "tool", blocks: [block] };
    if (block.type === "note") return { role: "user", blocks: [{ type: "text", text: block.text }] };
    return { said: [block] };
  }
  const texts = (name: string) =>
    readOptionalArray(fields[name], `${path}.${name}`).map((part, index) => {
      const partPath = `${path}.${name}[${index}]`;
      return readText(readObject(part, partPath)["text"], `${partPath}.text`);
    });
  const summary = texts("summary");
  const content = texts("content").join("");
  const id = presentText(readOptionalText(fields["id"], `${path}.id`) ?? "");
  if (encrypted === undefined && content === "" && summary.every((text) => text === "")) return { said: [] };
  return { said: [present({ type: "reasoning", content, encrypted, summary, id, ...originAsked(model) })] };
}

/** Reasoning of unknown origin is taken for that of the model the client asks now, which it kept it for. */
function originAsked(model: string): BlockOrigin {
  const slash = model.indexOf("/");
  const dialect = "openai-responses";
  return slash <= 0 ? { dialect } : { provider: model.slice(0, slash), model: model.slice(slash + 1), dialect };
}

/** How an item of a message's block is called: the same each time the log is read. */
export function itemId(kind: "msg" | "rs" | "fc" | "fco", turnId: string, number: number): string {
  return `${kind}_${turnId}_${number}`;
}

/** The phase of a text in OpenAI's words; its other words have no place there. */
export function phaseToItem(phase: string | undefined): "commentary" | "final_answer" | undefined {
  return phase === "commentary" || phase === "final_answer" ? phase : undefined;
}

/** What of reasoning can be read, as one text. */
export function shownReasoning(block: ReasoningLikeBlock): string {
  switch (block.type) {
    case "thinking":
      return block.thinking;
    case "reasoning":
      return block.content === "" ? block.summary.join("\n\n") : block.content;
    case "redacted_thinking":
      return "";
    default:
      return block satisfies never;
  }
}

/**
 * Writes messages as items, in order. Whether a tool failed, audio, unknown blocks, names and metadata of messages are
 * lost; an image's detail that is none of OpenAI's becomes `auto`.
 * @param owner goes into the ids of the items, which are numbered
 * @param seals reasoning carries our envelope; without it, reasoning that can't be read is left out
 */
export function itemsFromMessages(messages: readonly Message[], owner: string, seals: boolean): ConversationItem[] {
  const items: ConversationItem[] = [];
  const status = "completed";
  const nextId = (kind: Parameters<typeof itemId>[0]) => itemId(kind, owner, items.length);
  for (const { role, blocks } of messages) {
    if (role === "user" || role === "system" || role === "developer") {
      const content = blocks.filter(isPartBlock).flatMap(partToItem);
      if (content.length > 0) items.push({ id: nextId("msg"), type: "message", role, status, content });
    }
    for (const block of blocks) {
      if (block.type === "tool_result") {
        const parts = block.parts?.flatMap(partToItem);
        const output = parts ?? block.content;
        items.push({ id: nextId("fco"), type: "function_call_output", status, call_id: block.toolUseId, output });
      }
      if (role !== "assistant") continue;
      if (block.type === "text" && block.text !== "")
        items.push(messageItem(nextId("msg"), status, block.text, phaseToItem(block.phase)));
      if (block.type === "tool_use")
        items.push({
          id: nextId("fc"),
          type: "function_call",
          status,
          call_id: block.id,
          name: block.name,
          arguments: block.input,
        });
      if (block.type === "thinking" || block.type === "redacted_thinking" || block.type === "reasoning") {
        const text = shownReasoning(block);
        const sealed = seals ? sealReasoning(block) : undefined;
        if (text !== "" || sealed !== undefined) items.push(reasoningItem(nextId("rs"), status, text, sealed));
      }
    }
  }
  return items;
}

export function messageItem(
  id: string,
  status: ItemStatus,
  text: string,
  phase: "commentary" | "final_answer" | undefined,
): OutputMessageItem {
  const content = [outputText(text)];
  return present({ id, type: "message", role: "assistant", status, content, phase });
}

export function outputText(text: string): OutputTextPart {
  return { type: "output_text", text, annotations: [], logprobs: [] };
}

export function reasoningItem(
  id: string,
  status: ItemStatus,
  text: string,
  encrypted_content: string | undefined,
): ReasoningItem {
  const summary = text === "" ? [] : [{ type: "summary_text" as const, text }];
  return present({ id, type: "reasoning", status, summary, encrypted_content });
}

function partToItem(block: PartBlock): InputPart[] {
  switch (block.type) {
    case "text":
      return [{ type: "input_text", text: block.text }];
    case "image": {
      const detail = (["low", "high"] as const).find((known) => known === block.detail) ?? "auto";
      return [{ type: "input_image", image_url: block.url, detail }];
    }
    case "file":
      return [present({ type: "input_file", file_data: block.data, file_id: block.fileId, filename: block.filename })];
    case "audio":
      return [];
    default:
      return block satisfies never;
  }
}
