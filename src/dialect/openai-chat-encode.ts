import { AgentError } from "../chat/error.ts";
import { type ContentBlock, type Message, messageText, type ToolResultBlock, toolUses } from "../chat/message.ts";
import type { ChatRequest, ResponseFormat, ToolDefinition } from "../chat/request.ts";
import { parseJson } from "./json.ts";
import type { Quirks } from "./quirks.ts";

/** The request for a streamed answer, as JSON text. */
export function encode(request: ChatRequest, quirks: Quirks): string {
  const { options, tools } = request;
  const { thinking } = options;
  const rest = JSON.stringify({
    temperature: options.temperature,
    top_p: options.topP,
    [quirks.maxTokensField]: options.maxTokens,
    stop: options.stop !== undefined && options.stop.length > 0 ? options.stop : undefined,
    seed: options.seed,
    tool_choice: tools.length > 0 ? toolChoice(options.toolChoice) : undefined,
    parallel_tool_calls: tools.length > 0 ? options.parallelToolCalls : undefined,
    response_format: responseFormat(options.responseFormat),
    reasoning_effort: quirks.reasoningEffort && thinking?.enabled !== false ? thinking?.effort || undefined : undefined,
    store: quirks.storeField ? options.stateful?.store : undefined,
    stream: true,
    stream_options: quirks.usageOption ? { include_usage: true } : undefined,
  });
  const parts = [
    `"model":${JSON.stringify(request.model)}`,
    `"messages":[${encodeMessages(request.messages, quirks)}]`,
  ];
  if (tools.length > 0) parts.push(`"tools":[${tools.map(encodeTool).join(",")}]`);
  return `{${parts.join(",")},${rest.slice(1)}`;
}

function toolChoice(choice: string | undefined): unknown {
  if (choice === undefined || choice === "") return undefined;
  if (choice === "auto" || choice === "none" || choice === "required") return choice;
  return { type: "function", function: { name: choice } };
}

function responseFormat(format: ResponseFormat | undefined): unknown {
  if (format === undefined || format.type === "text") return undefined;
  if (format.type === "json_object") return { type: "json_object" };
  const { name, description, strict } = format;
  const schema = parseJson(format.schema);
  if (schema === undefined) throw notJson("options.responseFormat.schema", name);
  return { type: "json_schema", json_schema: { name, description, schema, strict } };
}

function notJson(field: string, name: string): AgentError {
  const description = `the schema of ${name} is no JSON`;
  return new AgentError("invalid_request", `${field}: ${description}`, { fieldViolations: [{ field, description }] });
}

/** Tools and messages stay the same from step to step, so each is written once and its text kept as long as it lives. */
const toolTexts = new WeakMap<ToolDefinition, string>();
const messageTexts = new WeakMap<Quirks, WeakMap<Message, string>>();
const messageTextsWithThinking = new WeakMap<Quirks, WeakMap<Message, string>>();

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
function encodeMessages(messages: readonly Message[], quirks: Quirks): string {
  const texts: string[] = [];
  const lastUser = messages.findLastIndex((message) => message.role === "user" && !isToolResults(message));
  for (let position = 0; position < messages.length; ) {
    const message = messages[position];
    if (message === undefined) break;
    position++;
    if (message.role !== "assistant") {
      texts.push(...encodeInput(message, quirks, undefined));
      continue;
    }
    const withThinking =
      quirks.thinkingReplay === "all" || (quirks.thinkingReplay === "tool-turn" && position > lastUser);
    const assistant = encodeAssistant(message, quirks, withThinking);
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
  if (rest.length === 0) return texts;
  if (rest.length === message.blocks.length)
    return [kept(messageTexts, message, quirks, () => encodeWhole(message, quirks))];
  texts.push(encodeContent(message.role === "tool" ? "user" : message.role, message.name, rest));
  return texts;
}

function encodeWhole(message: Message, quirks: Quirks): string {
  const role = message.role === "developer" ? quirks.developerRole : message.role === "tool" ? "user" : message.role;
  return encodeContent(role, message.name, message.blocks);
}

function kept(
  store: WeakMap<Quirks, WeakMap<Message, string>>,
  message: Message,
  quirks: Quirks,
  write: () => string,
): string {
  let texts = store.get(quirks);
  if (texts === undefined) {
    texts = new WeakMap();
    store.set(quirks, texts);
  }
  const text = texts.get(message) ?? write();
  texts.set(message, text);
  return text;
}

function encodeContent(role: string, name: string | undefined, blocks: readonly ContentBlock[]): string {
  const parts = blocks.flatMap(contentPart);
  const [first] = parts;
  const content = parts.length === 0 ? "" : parts.length === 1 && first?.type === "text" ? first.text : parts;
  return JSON.stringify({ role, name: name || undefined, content });
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

/** Undefined for a message that would say nothing; endpoints refuse an empty one. */
function encodeAssistant(message: Message, quirks: Quirks, withThinking: boolean): string | undefined {
  const write = () => {
    const text = messageText(message);
    const calls = toolUses(message);
    const thinking = withThinking ? thinkingText(message) : "";
    return JSON.stringify({
      role: "assistant",
      name: message.name || undefined,
      content: text === "" ? quirks.emptyContent : text,
      ...(thinking === "" && !(quirks.emptyThinking && calls.length > 0) ? {} : { [quirks.thinkingField]: thinking }),
      tool_calls:
        calls.length === 0
          ? undefined
          : calls.map(({ id, name, input }) => ({
              id,
              type: "function",
              function: { name, arguments: input || "{}" },
            })),
    });
  };
  if (!message.blocks.some((block) => block.type === "tool_use" || (block.type === "text" && block.text !== ""))) {
    return undefined;
  }
  return kept(withThinking ? messageTextsWithThinking : messageTexts, message, quirks, write);
}

function thinkingText(message: Message): string {
  let text = "";
  for (const block of message.blocks) if (block.type === "thinking") text += block.thinking;
  return text;
}
