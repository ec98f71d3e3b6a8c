import { AgentError } from "../chat/error.ts";
import {
  type ContentBlock,
  type Message,
  messageText,
  type ToolResultBlock,
  type ToolUseBlock,
  toolUses,
} from "../chat/message.ts";
import type { ChatRequest, ModelOptions, ResponseFormat, ThinkingOptions, ToolDefinition } from "../chat/request.ts";
import { budgetOfEffort, type Effort, effortOf, leastEffort, nearestEffort, thinkingWish } from "./effort.ts";
import { parseJson } from "./json.ts";
import { isFrom, type Reader } from "./origin.ts";
import type { Quirks, ThinkingReplay } from "./quirks.ts";
import { detailsOf, joinedDetails } from "./reasoning-details.ts";
import { isObjectFormat, schemaInstruction, withInstruction } from "./schema-instruction.ts";
import { sentArguments, sentName, unusualNames } from "./sent-call.ts";

const dialectId = "openai-chat";

/**
 * The request for a streamed answer, as JSON text.
 *
 * - Thinking goes back only to the provider and model that wrote it, and as the quirks say: in the thinking field, or
 *   unchanged in `reasoning_details`, or in `reasoning_opaque` with its `reasoning_text`.
 * - Thinking is turned on and off in the words of `thinkingSwitch`. Where a wire knows efforts and no budgets, a budget
 *   becomes the effort it stands for, and the other way round (`effortOfBudget`, `budgetOfEffort`); asked for without
 *   either where only efforts are known, it is `medium`.
 * - `stateful` has no counterpart here and is left out.
 *
 * @param provider who will read it.
 * @throws {AgentError} `invalid_request` for a schema that is no JSON and for an effort nobody knows.
 */
export function encode(request: ChatRequest, quirks: Quirks, provider: string): string {
  const { options, tools } = request;
  const format = formatOf(options.responseFormat, quirks);
  const messages =
    format.instruction === undefined ? request.messages : withInstruction(request.messages, format.instruction);
  const thinking = thinkingFields(options.thinking, quirks);
  const rest = JSON.stringify({
    ...samplingOf(options, quirks),
    [quirks.maxTokensField]: options.maxTokens,
    stop: options.stop !== undefined && options.stop.length > 0 ? options.stop : undefined,
    seed: options.seed,
    tool_choice: tools.length > 0 ? toolChoice(options.toolChoice) : undefined,
    parallel_tool_calls: tools.length > 0 ? options.parallelToolCalls : undefined,
    ...thinking,
    stream: true,
    stream_options: quirks.usageOption ? { include_usage: true } : undefined,
  });
  const parts = [
    `"model":${JSON.stringify(request.model)}`,
    `"messages":[${encodeMessages(messages, quirks, { provider, model: request.model, namesOffered: unusualNames(tools, maxNameLength) })}]`,
  ];
  if (tools.length > 0) parts.push(`"tools":[${tools.map(encodeTool).join(",")}]`);
  if (format.field !== undefined) parts.push(`"response_format":${format.field}`);
  return `{${parts.join(",")},${rest.slice(1)}`;
}

function samplingOf({ temperature, topP, thinking }: ModelOptions, { sampling }: Quirks): object {
  const sent = sampling === "always" || (sampling === "without-thinking" && thinkingWish(thinking).type !== "on");
  return sent ? { temperature, top_p: topP } : {};
}

/** As OpenAI has them (developers.openai.com/api/reference, "Create chat completion", `reasoning_effort`). */
const familyEfforts: readonly Effort[] = ["none", "minimal", "low", "medium", "high", "xhigh"];

function thinkingFields(options: ThinkingOptions | undefined, quirks: Quirks): Record<string, unknown> {
  const wish = thinkingWish(options);
  if (wish.type === "unsaid") return {};
  const levels = quirks.efforts.length > 0 ? quirks.efforts : familyEfforts;
  const isOn = wish.type === "on";
  const wanted = isOn ? effortOf(wish) : undefined;
  const nearest = wanted === undefined ? undefined : nearestEffort(wanted, levels);
  const least = leastEffort(levels.filter((level) => level !== "none" || !quirks.thinkingAlways));
  const effort = quirks.reasoningEffort ? nearest : undefined;
  const leastSent = quirks.reasoningEffort ? { reasoning_effort: least } : {};
  switch (quirks.thinkingSwitch) {
    case "none":
      if (!isOn || !quirks.reasoningEffort) return leastSent;
      return { reasoning_effort: effort ?? nearestEffort("medium", levels) };
    case "thinking-type":
      if (isOn) return { thinking: { type: "enabled" }, reasoning_effort: effort };
      return quirks.thinkingAlways ? leastSent : { thinking: { type: "disabled" } };
    case "reasoning-object":
      if (!isOn) return { reasoning: quirks.thinkingAlways ? { effort: least } : { enabled: false } };
      // One of both only; the budget says more.
      if (wish.budgetTokens !== undefined) return { reasoning: { max_tokens: wish.budgetTokens } };
      return { reasoning: effort === undefined ? { enabled: true } : { effort } };
    case "enable-thinking": {
      if (!isOn) return { enable_thinking: quirks.thinkingAlways };
      const budget = wish.budgetTokens ?? (wish.effort === undefined ? undefined : budgetOfEffort(wish.effort));
      return { enable_thinking: true, thinking_budget: budget };
    }
    case "template-kwargs":
      return {
        chat_template_kwargs: { enable_thinking: isOn || quirks.thinkingAlways },
        reasoning_effort: effort,
      };
    default:
      return quirks.thinkingSwitch satisfies never;
  }
}

function toolChoice(choice: string | undefined): unknown {
  if (choice === undefined || choice === "") return undefined;
  if (choice === "auto" || choice === "none" || choice === "required") return choice;
  return { type: "function", function: { name: choice } };
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
    // The schema goes out in its own text: its key order is part of what the model reads.
    const { name, description, strict } = format;
    const head = JSON.stringify({ name, description: description || undefined, strict });
    return { field: `{"type":"json_schema","json_schema":${head.slice(0, -1)},"schema":${format.schema.trim()}}}` };
  }
  const instruction = schemaInstruction(format);
  const hasMode = jsonSchema === "json-object" && isObjectFormat(format, schema);
  return hasMode ? { field: jsonMode, instruction } : { instruction };
}

function notJson(field: string, name: string): AgentError {
  const description = `the schema of ${name} is no JSON`;
  return new AgentError("invalid_request", `${field}: ${description}`, { fieldViolations: [{ field, description }] });
}

/** Tools and messages stay the same from step to step, so each is written once and its text kept as long as it lives. */
const toolTexts = new WeakMap<ToolDefinition, string>();
const messageTexts = new WeakMap<Message, { readonly quirks: Quirks; readonly key: string; readonly text: string }>();

function encodeTool(tool: ToolDefinition): string {
  const kept = toolTexts.get(tool);
  if (kept !== undefined) return kept;
  // The schema goes out in its own text: its key order is part of what the model reads.
  const parameters = tool.parameters.trim() || '{"type":"object","properties":{}}';
  if (parseJson(parameters) === undefined) throw notJson("tools.parameters", tool.name);
  const fields = [`"name":${JSON.stringify(tool.name)}`];
  if (tool.description !== "") fields.push(`"description":${JSON.stringify(tool.description)}`);
  fields.push(`"parameters":${parameters}`);
  if (tool.strict !== undefined) fields.push(`"strict":${tool.strict}`);
  const text = `{"type":"function","function":{${fields.join(",")}}}`;
  toolTexts.set(tool, text);
  return text;
}

/**
 * Messages in the order the endpoint demands: the results of an assistant's calls follow it directly, in the order of
 * the calls, whatever stood between. A call nobody answered gets a result that says so, since endpoints refuse a
 * history without one.
 */
function encodeMessages(messages: readonly Message[], quirks: Quirks, reader: MessageReader): string {
  const texts: string[] = [];
  const mayReplay = replayed(messages);
  for (let position = 0; position < messages.length; ) {
    const message = messages[position];
    if (message === undefined) break;
    if (message.role !== "assistant") {
      texts.push(...encodeInput(message, quirks, undefined));
      position++;
      continue;
    }
    const assistant = encodeAssistant(message, quirks, {
      ...reader,
      thinking: mayReplay(position, quirks.thinkingReplay),
      opaque: mayReplay(position, quirks.opaqueReplay),
    });
    position++;
    if (assistant !== undefined) texts.push(assistant);
    const calls = toolUses(message);
    if (calls.length === 0) continue;

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
    const placed = new Set<ToolResultBlock>();
    for (const call of calls) {
      const result = results.get(call.id);
      if (result !== undefined) placed.add(result);
      texts.push(encodeToolResult(call.id, result?.content ?? "error: the call was not answered"));
    }
    const attachments = [...placed].flatMap((result) => (result.parts ?? []).filter((part) => part.type !== "text"));
    if (attachments.length > 0) texts.push(encodeContent("user", undefined, attachments));
    for (const next of following) texts.push(...encodeInput(next, quirks, placed));
  }
  return texts.join(",");
}

/** Tells whether the thinking of the message at a position goes back. */
function replayed(messages: readonly Message[]): (position: number, replay: ThinkingReplay) => boolean {
  let turn = 0;
  const turns = messages.map((message) => (message.role === "user" && !isToolResults(message) ? ++turn : turn));
  const withTools = new Set<number>();
  for (const [position, message] of messages.entries()) {
    if (message.role === "assistant" && toolUses(message).length > 0) withTools.add(turns[position] ?? turn);
  }
  return (position, replay) => {
    const own = turns[position] ?? turn;
    if (replay === "tool-turns") return own === turn || withTools.has(own);
    return replay === "all" || (replay === "tool-turn" && own === turn);
  };
}

function isToolResults(message: Message): boolean {
  return message.blocks.some((block) => block.type === "tool_result");
}

function encodeToolResult(toolCallId: string, content: string): string {
  return JSON.stringify({ role: "tool", tool_call_id: toolCallId, content });
}

/** A message that is not the assistant's, without the results that have been placed already. */
function encodeInput(message: Message, quirks: Quirks, placed: ReadonlySet<ToolResultBlock> | undefined): string[] {
  const texts: string[] = [];
  const rest: ContentBlock[] = [];
  for (const block of message.blocks) {
    if (block.type !== "tool_result") rest.push(block);
    else if (!placed?.has(block)) texts.push(encodeToolResult(block.toolUseId, block.content));
  }
  if (rest.every((block) => contentPart(block).length === 0) && rest.every(({ type }) => type !== "text")) return texts;
  if (rest.length === message.blocks.length) return [kept(message, quirks, "", () => encodeWhole(message, quirks))];
  texts.push(encodeContent(message.role === "tool" ? "user" : message.role, message.name, rest));
  return texts;
}

function encodeWhole(message: Message, quirks: Quirks): string {
  const role = message.role === "developer" ? quirks.developerRole : message.role === "tool" ? "user" : message.role;
  return encodeContent(role, message.name, message.blocks);
}

function kept(message: Message, quirks: Quirks, key: string, write: () => string): string {
  const known = messageTexts.get(message);
  if (known?.quirks === quirks && known.key === key) return known.text;
  const text = write();
  messageTexts.set(message, { quirks, key, text });
  return text;
}

function encodeContent(role: string, name: string | undefined, blocks: readonly ContentBlock[]): string {
  const parts = blocks.flatMap(contentPart);
  const [first] = parts;
  const content = parts.length === 0 ? "" : parts.length === 1 && first?.type === "text" ? first.text : parts;
  return JSON.stringify({ role, name: speakerName(name), content });
}

/** OpenAI refuses white space and some signs in the name of a speaker, and names of more than 64 characters. */
function speakerName(name: string | undefined): string | undefined {
  return name?.replace(/[\s<|\\/>]+/g, "_").slice(0, 64) || undefined;
}

interface ContentPart {
  readonly type: string;
  readonly text?: string;
  readonly [field: string]: unknown;
}

function contentPart(block: ContentBlock): ContentPart[] {
  switch (block.type) {
    case "text":
      return [{ type: "text", text: block.text }];
    case "image":
      return [{ type: "image_url", image_url: { url: block.url, detail: block.detail || undefined } }];
    case "file":
      return [{ type: "file", file: { file_data: block.data, file_id: block.fileId, filename: block.filename } }];
    case "audio":
      return [{ type: "input_audio", input_audio: { data: block.data, format: block.format } }];
    // Thinking, calls and unknown blocks are no input here.
    case "thinking":
    case "redacted_thinking":
    case "reasoning":
    case "tool_use":
    case "tool_result":
    case "unknown":
      return [];
    default:
      return block satisfies never;
  }
}

/** Of a function's name (developers.openai.com/api/reference, "Create chat completion", `tools`). */
const maxNameLength = 64;

interface MessageReader extends Reader {
  /** Names of tools in the request that are longer than usual or hold other characters. */
  readonly namesOffered: readonly string[];
}

/** Who reads an assistant's message, and which of its thinking goes back. */
interface AssistantReader extends MessageReader {
  readonly thinking: boolean;
  readonly opaque: boolean;
}

/** Undefined for a message that would say nothing; endpoints refuse an empty one. */
function encodeAssistant(message: Message, quirks: Quirks, reader: AssistantReader): string | undefined {
  if (!message.blocks.some((block) => block.type === "tool_use" || (block.type === "text" && block.text !== ""))) {
    return undefined;
  }
  const { provider, model, thinking, opaque, namesOffered } = reader;
  const key = JSON.stringify([provider, model, thinking, opaque, namesOffered]);
  return kept(message, quirks, key, () => writeAssistant(message, quirks, reader));
}

function writeAssistant(message: Message, quirks: Quirks, reader: AssistantReader): string {
  const text = messageText(message);
  const calls = toolUses(message);
  const own = ownThinking(message, reader);
  const thinking = reader.thinking ? own.thinking : "";
  const opaque = reader.opaque ? own.opaque : "";
  const written = JSON.stringify({
    role: "assistant",
    name: speakerName(message.name),
    content: text === "" ? quirks.emptyContent : text,
    ...(opaque === "" ? {} : { reasoning_text: own.thinking || undefined, reasoning_opaque: opaque }),
    ...(thinking === "" && !(quirks.emptyThinking && calls.length > 0) ? {} : { [quirks.thinkingField]: thinking }),
    tool_calls: calls.length === 0 ? undefined : calls.map((call) => encodeCall(call, reader)),
  });
  const details = reader.opaque ? joinedDetails(own.details) : undefined;
  return details === undefined ? written : `${written.slice(0, -1)},"reasoning_details":${details}}`;
}

function encodeCall({ id, name, input }: ToolUseBlock, { namesOffered }: MessageReader): object {
  const sent = { name: sentName(name, maxNameLength, namesOffered), arguments: sentArguments(input) };
  return { id, type: "function", function: sent };
}

/** What a message holds of its reader's own thinking, in its order. */
function ownThinking(message: Message, reader: Reader) {
  let thinking = "";
  let opaque = "";
  const details: string[] = [];
  for (const block of message.blocks) {
    if (block.type !== "thinking" && block.type !== "redacted_thinking") continue;
    if (!isFrom(block, reader, dialectId)) continue;
    const array = detailsOf(block);
    if (array !== undefined) details.push(array);
    if (block.type === "redacted_thinking") continue;
    thinking += block.thinking;
    opaque += block.signature ?? "";
  }
  return { thinking, opaque, details };
}
