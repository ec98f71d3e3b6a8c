import { type AgentError, invalidField } from "../chat/error.ts";
import {
  type BlockOrigin,
  type ContentBlock,
  type Message,
  messageText,
  type ReasoningBlock,
  type ToolResultBlock,
  toolUses,
  type UnknownBlock,
} from "../chat/message.ts";
import type { ChatRequest, ResponseFormat, ToolDefinition } from "../chat/request.ts";
import { type Effort, effortOf, leastEffort, nearestEffort, type ThinkingWish, thinkingWish } from "./effort.ts";
import { arrayOf, isJsonObject, objectOf, parseJson, textOf } from "./json.ts";
import { memberSlices } from "./json-slices.ts";
import { isFrom, isFromProvider } from "./origin.ts";
import type { Quirks } from "./quirks.ts";
import { isObjectFormat, schemaInstruction, withInstruction } from "./schema-instruction.ts";
import { sentArguments, sentName, unusualNames } from "./sent-call.ts";

/**
 * The request for a streamed answer, as JSON text (developers.openai.com/api/reference, "Create a model response").
 *
 * Nothing is kept by the provider unless the options ask for it: then the whole history goes along each time, reasoning
 * in its encrypted form and without the ids of items nobody stored. With `stateful.previousResponseId` the provider has
 * all up to the last assistant message, and only what comes after it goes (same site, "Conversation state").
 *
 * The first system message becomes `instructions`, which are not carried over from response to response; later ones stay
 * in their places. Reasoning goes back only to the provider and model that wrote it, items without a name here to the
 * provider. `seed` has no place in this API and is left out; a budget of thinking tokens becomes the effort it stands
 * for (`effortOfBudget`).
 *
 * @throws {AgentError} `invalid_request` for a schema that is no JSON, an effort nobody knows and stop sequences.
 */
export function encode(request: ChatRequest, quirks: Quirks, provider: string): string {
  const { options, tools } = request;
  const { stateful, thinking } = options;
  if (options.stop !== undefined && options.stop.length > 0) {
    throw invalidField("options.stop", "the Responses API knows no stop sequences; leave them out");
  }
  const previousResponseId = stateful?.previousResponseId || undefined;
  const store = stateful?.store ?? previousResponseId !== undefined;
  const reader: Reader = {
    provider,
    model: request.model,
    store,
    developerRole: quirks.developerRole,
    namesOffered: unusualNames(tools, maxNameLength),
  };
  const format = formatOf(options.responseFormat, quirks);
  const all =
    format.instruction === undefined ? request.messages : withInstruction(request.messages, format.instruction);
  const [first, ...others] = all;
  const instructions = first?.role === "system" && first.blocks.every(isText) ? messageText(first) : undefined;
  const messages = instructions === undefined ? all : others;
  const wish = thinkingWish(thinking);
  const samples = quirks.sampling === "always" || (quirks.sampling === "without-thinking" && wish.type !== "on");

  const parts = [`"model":${JSON.stringify(request.model)}`];
  if (instructions) parts.push(`"instructions":${JSON.stringify(instructions)}`);
  parts.push(`"input":[${encodeInput(messages, reader, previousResponseId !== undefined)}]`);
  if (tools.length > 0) parts.push(`"tools":[${tools.map(encodeTool).join(",")}]`);
  if (format.field !== undefined) parts.push(`"text":{"format":${format.field}}`);
  const rest = JSON.stringify({
    tool_choice: tools.length > 0 ? toolChoice(options.toolChoice) : undefined,
    parallel_tool_calls: tools.length > 0 ? options.parallelToolCalls : undefined,
    temperature: samples ? options.temperature : undefined,
    top_p: samples ? options.topP : undefined,
    max_output_tokens: options.maxTokens,
    reasoning: quirks.reasoningEffort ? reasoning(wish, quirks) : undefined,
    include:
      quirks.encryptedReasoning && (stateful?.includeEncrypted ?? !store) ? ["reasoning.encrypted_content"] : undefined,
    previous_response_id: previousResponseId,
    store,
    stream: true,
  });
  return `{${parts.join(",")},${rest.slice(1)}`;
}

/** Who reads a request, as far as its items depend on it. */
interface Reader {
  readonly provider: string;
  readonly model: string;
  /** It keeps the answer, so that its items can be named by their ids. */
  readonly store: boolean;
  readonly developerRole: string;
  /** Names of tools in the request that are longer than usual or hold other characters. */
  readonly namesOffered: readonly string[];
}

/** Of a function's name in a call that goes back (developers.openai.com/api/reference, "Create a model response"). */
const maxNameLength = 128;

/** As OpenAI has them (developers.openai.com/api/reference, "Create a model response", `reasoning.effort`). */
const familyEfforts: readonly Effort[] = ["none", "minimal", "low", "medium", "high", "xhigh"];

/**
 * Thinking asked for by name comes with summaries and, since some models do not think of their own accord, with a medium
 * effort where none is named. An effort or a budget alone changes nothing that is shown. Where thinking is not wanted
 * and `none` is no level, the least is.
 */
function reasoning(wish: ThinkingWish, { efforts, thinkingAlways }: Quirks): unknown {
  if (wish.type === "unsaid") return undefined;
  const levels = (efforts.length > 0 ? efforts : familyEfforts).filter((one) => one !== "none" || !thinkingAlways);
  if (wish.type === "off") return { effort: leastEffort(levels) };
  const effort = nearestEffort(effortOf(wish) ?? "medium", levels);
  return { effort, summary: wish.enabled ? "auto" : undefined };
}

function toolChoice(choice: string | undefined): unknown {
  if (choice === undefined || choice === "") return undefined;
  if (choice === "auto" || choice === "none" || choice === "required") return choice;
  return { type: "function", name: choice };
}

/** What the provider is told of the answer's format, as JSON text, and what the model is. */
function formatOf(
  format: ResponseFormat | undefined,
  { jsonSchema }: Quirks,
): { readonly field?: string; readonly instruction?: string } {
  if (format === undefined || format.type === "text") return {};
  const schema = format.type === "json_schema" ? parseJson(format.schema) : undefined;
  if (format.type === "json_schema" && schema === undefined) {
    throw notJson("options.responseFormat.schema", format.name);
  }
  const jsonMode = '{"type":"json_object"}';
  if (jsonSchema === "native") {
    if (format.type === "json_object") return { field: jsonMode };
    const { name, description, strict } = format;
    const head = JSON.stringify({ type: "json_schema", name, description: description || undefined, strict });
    return { field: `${head.slice(0, -1)},"schema":${format.schema.trim()}}` };
  }
  const instruction = schemaInstruction(format);
  const hasMode = jsonSchema === "json-object" && isObjectFormat(format, schema);
  return hasMode ? { field: jsonMode, instruction } : { instruction };
}

function notJson(field: string, name: string): AgentError {
  return invalidField(field, `the schema of ${name} is no JSON`);
}

/** Tools and messages stay the same from step to step, so each is written once and its text kept as long as it lives. */
const toolTexts = new WeakMap<ToolDefinition, string>();
const messageTexts = new WeakMap<Message, { readonly reader: string; readonly items: readonly string[] }>();

function encodeTool(tool: ToolDefinition): string {
  const kept = toolTexts.get(tool);
  if (kept !== undefined) return kept;
  // The schema goes out in its own text: its key order is part of what the model reads.
  const parameters = tool.parameters.trim() || '{"type":"object","properties":{}}';
  if (parseJson(parameters) === undefined) throw notJson("tools.parameters", tool.name);
  const fields = [`"type":"function","name":${JSON.stringify(tool.name)}`];
  if (tool.description !== "") fields.push(`"description":${JSON.stringify(tool.description)}`);
  // This API holds models to schemas unless told not to.
  fields.push(`"parameters":${parameters}`, `"strict":${tool.strict ?? false}`);
  const text = `{${fields.join(",")}}`;
  toolTexts.set(tool, text);
  return text;
}

/**
 * Messages as items, in the order the API demands: an answer's items in their own order, then the results of its calls
 * in the order of the calls. A call nobody answered gets a result that says so, and a result of no call is left out: both
 * are refused. With `onlyNew` what the provider already has is left out; it knows the calls then.
 */
function encodeInput(messages: readonly Message[], reader: Reader, onlyNew: boolean): string {
  const items: string[] = [];
  const lastAnswer = messages.findLastIndex((message) => message.role === "assistant");
  for (let position = onlyNew ? Math.max(lastAnswer, 0) : 0; position < messages.length; ) {
    const message = messages[position];
    if (message === undefined) break;
    position++;
    if (message.role !== "assistant") {
      items.push(...encodeMessage(message, reader));
      if (onlyNew) for (const block of message.blocks) if (block.type === "tool_result") items.push(outputItem(block));
      continue;
    }
    if (!onlyNew) items.push(...encodeMessage(message, reader));
    const calls = toolUses(message);
    const results = new Map<string, ToolResultBlock>();
    const following: Message[] = [];
    for (; position < messages.length; position++) {
      const next = messages[position];
      if (next === undefined || next.role === "assistant") break;
      following.push(next);
      for (const block of next.blocks) {
        if (block.type === "tool_result" && !results.has(block.toolUseId)) results.set(block.toolUseId, block);
      }
    }
    for (const call of calls) items.push(outputItem(results.get(call.id) ?? unanswered(call.id)));
    for (const next of following) items.push(...encodeMessage(next, reader));
  }
  return items.join(",");
}

function unanswered(toolUseId: string): ToolResultBlock {
  return { type: "tool_result", toolUseId, content: "error: the call was not answered" };
}

function outputItem(result: ToolResultBlock): string {
  const parts = (result.parts ?? []).flatMap(inputPart);
  const output = parts.some((part) => part.type !== "input_text") ? parts : result.content;
  return JSON.stringify({ type: "function_call_output", call_id: result.toolUseId, output });
}

/** The items of a message without results of tools; none where it says nothing. */
function encodeMessage(message: Message, reader: Reader): readonly string[] {
  const readerText = JSON.stringify(reader);
  const kept = messageTexts.get(message);
  if (kept?.reader === readerText) return kept.items;
  const items = message.role === "assistant" ? answerItems(message, reader) : inputItems(message, reader);
  messageTexts.set(message, { reader: readerText, items });
  return items;
}

function inputItems(message: Message, reader: Reader): string[] {
  const role = message.role === "developer" ? reader.developerRole : message.role === "tool" ? "user" : message.role;
  const items: string[] = [];
  let content: InputPart[] = [];
  const endMessage = () => {
    if (content.length > 0) items.push(JSON.stringify({ type: "message", role, content }));
    content = [];
  };
  for (const block of message.blocks) {
    const item = block.type === "unknown" ? unknownItem(block, reader) : undefined;
    if (item === undefined) content.push(...inputPart(block));
    else {
      endMessage();
      items.push(item);
    }
  }
  endMessage();
  return items;
}

interface InputPart {
  readonly type: string;
  readonly [field: string]: unknown;
}

function inputPart(block: ContentBlock): InputPart[] {
  switch (block.type) {
    case "text":
      return block.text === "" ? [] : [{ type: "input_text", text: block.text }];
    case "image":
      return [{ type: "input_image", image_url: block.url, detail: block.detail || "auto" }];
    case "file":
      return [{ type: "input_file", file_id: block.fileId, filename: block.filename, file_data: block.data }];
    case "audio":
      return [{ type: "input_text", text: "(left out: audio, which this model does not read)" }];
    // Results have items of their own; thinking, calls and unknown blocks are no input here.
    case "tool_result":
    case "thinking":
    case "redacted_thinking":
    case "reasoning":
    case "tool_use":
    case "unknown":
      return [];
    default:
      return block satisfies never;
  }
}

function answerItems(message: Message, reader: Reader): string[] {
  const items: string[] = [];
  let followed = items.length;
  for (const block of message.blocks) {
    const item = answerItem(block, reader);
    if (item === undefined) continue;
    items.push(item);
    if (block.type !== "reasoning") followed = items.length;
  }
  // Stored reasoning is refused without the item it led to.
  return reader.store ? items.slice(0, followed) : items;
}

function answerItem(block: ContentBlock, reader: Reader): string | undefined {
  switch (block.type) {
    case "text": {
      if (block.text === "") return undefined;
      const content = [{ type: "output_text", text: block.text }];
      return JSON.stringify({ type: "message", role: "assistant", phase: block.phase || undefined, content });
    }
    case "tool_use": {
      const name = sentName(block.name, maxNameLength, reader.namesOffered);
      const input = sentArguments(block.input);
      return JSON.stringify({ type: "function_call", call_id: block.id, name, arguments: input });
    }
    case "reasoning":
      return isFrom(block, reader, dialectId) ? reasoningItem(block, reader) : undefined;
    case "unknown":
      return unknownItem(block, reader);
    // Thinking is of another family; the rest is nothing a model writes here.
    case "thinking":
    case "redacted_thinking":
    case "tool_result":
    case "image":
    case "file":
    case "audio":
      return undefined;
    default:
      return block satisfies never;
  }
}

const dialectId = "openai-responses";

/**
 * Reasoning as it came, each member byte for byte, without its status, which is refused as input, and, where nothing
 * was stored, without its id, which would be looked up in vain (developers.openai.com/api/docs/guides/reasoning).
 * Undefined where it has nothing its author could read.
 */
function reasoningItem(block: ReasoningBlock, { store }: Reader): string | undefined {
  const members = rawMembers(block, "reasoning") ?? memberSlices(writtenReasoning(block));
  const value = (name: string) => parseJson(members.get(name) ?? "");
  const isReadable =
    textOf(value("encrypted_content")) !== "" ||
    arrayOf(value("content")).some((part) => textOf(objectOf(part)["text"]) !== "") ||
    (store && textOf(value("id")) !== "");
  if (!isReadable) return undefined;
  if (!members.has("summary")) members.set("summary", "[]");
  const fields: string[] = [];
  for (const [name, source] of members) {
    if (name === "status" || (name === "id" && !store) || source === "null") continue;
    fields.push(`${JSON.stringify(name)}:${source}`);
  }
  return `{${fields.join(",")}}`;
}

/** Without a raw form only what is encrypted can be read again: of plain text nobody knows who wrote it. */
function writtenReasoning({ id, summary, encrypted }: ReasoningBlock): string {
  return JSON.stringify({
    type: "reasoning",
    id,
    summary: summary.map((text) => ({ type: "summary_text", text })),
    encrypted_content: encrypted || undefined,
  });
}

function unknownItem(block: UnknownBlock, reader: Reader): string | undefined {
  if (!isFromProvider(block, reader, dialectId) || block.raw === undefined) return undefined;
  return rawMembers(block, block.unknownType) === undefined ? undefined : decodeText(block.raw);
}

/** The members of a block's raw form; undefined where that is no item of the type, as a client may have made it. */
function rawMembers({ raw }: BlockOrigin, type: string): Map<string, string> | undefined {
  if (raw === undefined) return undefined;
  const text = decodeText(raw);
  const value = parseJson(text);
  return isJsonObject(value) && value["type"] === type ? memberSlices(text) : undefined;
}

function decodeText(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("utf8");
}

function isText(block: ContentBlock): boolean {
  return block.type === "text";
}

/** Why the Responses API cannot read a block of input; undefined where it can. New messages are refused for it. */
export function unreadable(block: ContentBlock): string | undefined {
  if (block.type !== "audio") return undefined;
  return "audio, which the Responses API does not take; send its transcript as text";
}
