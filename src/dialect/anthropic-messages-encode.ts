import { invalidField } from "../chat/error.ts";
import type {
  BlockOrigin,
  ContentBlock,
  FileBlock,
  ImageBlock,
  Message,
  TextBlock,
  ToolResultBlock,
  ToolUseBlock,
} from "../chat/message.ts";
import type { ChatRequest, ModelOptions, ResponseFormat, ToolDefinition } from "../chat/request.ts";
import { isClosedSchema } from "./closed-schema.ts";
import { parseDataUrl } from "./data-url.ts";
import { budgetOfEffort, type Effort, effortOf, nearestEffort, type ThinkingWish, thinkingWish } from "./effort.ts";
import { isJsonObject, type JsonObject, parseJson } from "./json.ts";
import { isFrom, isFromProvider, type Reader } from "./origin.ts";
import type { Quirks } from "./quirks.ts";
import { schemaInstruction } from "./schema-instruction.ts";
import { sentArguments, sentName } from "./sent-call.ts";

/**
 * The request for a streamed answer, as JSON text. Each request repeats the one before it and adds to its end, which
 * keeps both the prompt cache and the signatures of thinking valid
 * (platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks).
 *
 * - System and developer messages, wherever they stand, become the `system` prompt. `seed` and `stateful` have no
 *   counterpart and are left out.
 * - Thinking goes back only to the provider and the very model that wrote it: by docs/en/build-with-claude/
 *   preserved-thinking ("Switching models mid-conversation") each model reads only a fixed set of others' thinking, and
 *   older models refuse a request over a signature they cannot read. Withheld thinking is sent again after switching
 *   back. Thinking without a signature is never sent.
 * - Thinking: a budget asks for `enabled`, no budget for `adaptive`, and `enabled: false` for `disabled`
 *   (docs/en/build-with-claude/adaptive-thinking). Effort is `output_config.effort` (docs/en/build-with-claude/effort).
 *   To a model that knows only one of them a budget becomes the effort it stands for, or the other way round
 *   (`effortOfBudget`, `budgetOfEffort`); one that is only told to think gets the budget of a medium effort.
 * - `max_tokens` is required; without one the quirk's default is sent, or more where a thinking budget needs it.
 * - JSON without a schema has no mode here, so the model is told at the end of the system prompt, as it is of a schema
 *   where the provider does not hold it to one.
 *
 * - Of what Anthropic cannot read, such as audio, files of other types than PDF, image and text, only that it is left out
 *   is said; see `unreadable`.
 *
 * @throws {AgentError} `invalid_request` for what Anthropic cannot be sent: a thinking budget below 1024 or not below `maxTokens`, a forced tool beside a thinking budget
 * (docs/en/build-with-claude/thinking-tool-workflows), an effort nobody knows, a schema that is no JSON object, no
 * message at all.
 */
export function encode(request: ChatRequest, quirks: Quirks, provider: string): string {
  const { options, tools } = request;
  const turns = turnsOf(request.messages, { provider, model: request.model });
  if (turns.length === 0) throw invalidField("messages", "say nothing that could be sent");
  const mark = quirks.cacheControl ? marked : (text: string) => text;
  const wish = thinkingWish(options.thinking);
  const { thinking, maxTokens } = thinkingOf(wish, options, quirks, turns);
  const format = formatOf(options.responseFormat, quirks);
  const system = [...systemOf(request.messages), ...format.instruction];
  const outputConfig = outputConfigOf(wish, quirks, format.field);
  const isThinking = thinking !== undefined && thinking.type !== "disabled";
  const samples = quirks.sampling === "always" || (quirks.sampling === "without-thinking" && !isThinking);
  const rest = JSON.stringify({
    temperature: samples ? options.temperature : undefined,
    top_p: samples ? options.topP : undefined,
    stop_sequences: options.stop !== undefined && options.stop.length > 0 ? options.stop : undefined,
    thinking,
    tool_choice: tools.length > 0 ? toolChoice(options) : undefined,
    stream: true,
  });
  const parts = [`"model":${quoted(request.model)}`, `"max_tokens":${maxTokens}`];
  if (system.length > 0) parts.push(`"system":[${markLast(system, mark).join(",")}]`);
  if (tools.length > 0) parts.push(`"tools":[${markLast(tools.map(encodeTool), mark).join(",")}]`);
  parts.push(`"messages":[${encodeTurns(turns, mark).join(",")}]`);
  if (outputConfig !== "") parts.push(`"output_config":{${outputConfig}}`);
  return `{${parts.join(",")},${rest.slice(1)}`;
}

/** JSON text in which no half of a surrogate pair stands alone; Anthropic refuses a body with one. */
function quoted(text: string): string {
  return JSON.stringify(text.toWellFormed());
}

/** JSON text as it is, unless a string in it has half of a surrogate pair. */
function wellFormed(json: string): string {
  if (!/\\ud[89a-f]/i.test(json)) return json.toWellFormed();
  let broken = false;
  const value: unknown = JSON.parse(json, (_, member: unknown) => {
    if (typeof member !== "string" || member.isWellFormed()) return member;
    broken = true;
    return member.toWellFormed();
  });
  return broken ? JSON.stringify(value) : json;
}

function marked(block: string): string {
  return `${block.slice(0, -1)},"cache_control":{"type":"ephemeral"}}`;
}

function markLast(blocks: readonly string[], mark: (block: string) => string): readonly string[] {
  return blocks.map((block, index) => (index === blocks.length - 1 ? mark(block) : block));
}

function systemOf(messages: readonly Message[]): string[] {
  return messages
    .filter(({ role }) => role === "system" || role === "developer")
    .flatMap(({ blocks }) => blocks)
    .flatMap((block) => (block.type === "text" && !isBlank(block.text) ? [textJson(block)] : []));
}

// Options

const leastBudget = 1024;
/** What is left for the answer where the budget alone would fill the default. */
const answerTokens = 4096;

interface ThinkingParameter {
  readonly type: "enabled" | "adaptive" | "disabled";
  readonly budget_tokens?: number;
}

function thinkingOf(
  wish: ThinkingWish,
  { maxTokens, toolChoice }: ModelOptions,
  quirks: Quirks,
  turns: readonly Turn[],
): { readonly thinking?: ThinkingParameter | undefined; readonly maxTokens: number } {
  const asked = thinkingAsked(wish, quirks, maxTokens);
  const budget = asked?.budget_tokens;
  if (budget === undefined) {
    return { thinking: asked, maxTokens: maxTokens ?? quirks.defaultMaxTokens };
  }
  if (budget < leastBudget) {
    throw invalidField("options.thinking.budgetTokens", `is ${budget}; must be at least ${leastBudget}`);
  }
  if (maxTokens !== undefined && budget >= maxTokens) {
    throw invalidField(
      "options.thinking.budgetTokens",
      `is ${budget}, but must be below options.maxTokens, which is ${maxTokens}`,
    );
  }
  const thinks = mayThink(turns);
  if (thinks && toolChoice !== undefined && !["", "auto", "none"].includes(toolChoice)) {
    throw invalidField("options.toolChoice", `is ${toolChoice}; with a thinking budget it may only be auto or none`);
  }
  return {
    thinking: thinks ? asked : undefined,
    maxTokens: maxTokens ?? Math.max(quirks.defaultMaxTokens, budget + answerTokens),
  };
}

function thinkingAsked(
  wish: ThinkingWish,
  { thinkingMode, thinkingAlways, reasoningEffort }: Quirks,
  maxTokens: number | undefined,
): ThinkingParameter | undefined {
  if (wish.type === "unsaid" || thinkingMode === "none") return undefined;
  if (wish.type === "off") return thinkingAlways ? undefined : { type: "disabled" };
  const { enabled, effort, budgetTokens } = wish;
  if (thinkingMode === "adaptive") return enabled || budgetTokens !== undefined ? { type: "adaptive" } : undefined;
  if (budgetTokens !== undefined) return { type: "enabled", budget_tokens: budgetTokens };
  if (thinkingMode === "any") return enabled ? { type: "adaptive" } : undefined;
  // An effort that is known needs no thinking to have its effect.
  if (!enabled && reasoningEffort) return undefined;
  return { type: "enabled", budget_tokens: fittingBudget(budgetOfEffort(effort ?? "medium"), maxTokens) };
}

/** A budget nobody named leaves at least half of the tokens to the answer, where that is enough to think at all. */
function fittingBudget(budget: number, maxTokens: number | undefined): number {
  if (maxTokens === undefined) return budget;
  if (maxTokens <= leastBudget) {
    const wanted = `more than ${leastBudget} are wanted, for thinking and the answer`;
    throw invalidField("options.maxTokens", `is ${maxTokens}; ${wanted}`);
  }
  return Math.max(leastBudget, Math.min(budget, Math.floor(maxTokens / 2)));
}

/**
 * Thinking with a budget cannot begin amid a loop of tool calls that began without it, as after a change of the model:
 * the loop is one assistant turn with one configuration (docs/en/build-with-claude/thinking-tool-workflows), and the
 * request would be refused. So it is not asked for until the next user message.
 */
function mayThink(turns: readonly Turn[]): boolean {
  let position = turns.length - 1;
  while (position > 1 && turns[position]?.pieces[0]?.kind === "result") position -= 2;
  const first = turns[position + 1]?.pieces[0];
  return first === undefined || first.kind === "thinking";
}

const familyEfforts: readonly Effort[] = ["low", "medium", "high", "xhigh", "max"];

function outputConfigOf(wish: ThinkingWish, quirks: Quirks, format: string): string {
  const parts: string[] = [];
  const effort = effortAsked(wish, quirks);
  if (effort !== undefined) parts.push(`"effort":"${effort}"`);
  if (format !== "") parts.push(`"format":${format}`);
  return parts.join(",");
}

function effortAsked(wish: ThinkingWish, quirks: Quirks): Effort | undefined {
  if (!quirks.reasoningEffort || wish.type === "unsaid") return undefined;
  const levels = quirks.efforts.length > 0 ? quirks.efforts : familyEfforts;
  if (wish.type === "off") return quirks.thinkingAlways ? nearestEffort("minimal", levels) : undefined;
  // A budget that can be sent as it is says enough.
  const wanted = quirks.thinkingMode === "adaptive" ? effortOf(wish) : wish.effort;
  return wanted === undefined ? undefined : nearestEffort(wanted, levels);
}

/**
 * By docs/en/build-with-claude/structured-outputs the answer is held to a schema; there is no other JSON mode. Where a
 * schema is one that can't be asked for so, the model is told.
 * @returns the field as JSON text, or the instruction as blocks of the system prompt.
 */
function formatOf(
  format: ResponseFormat | undefined,
  { jsonSchema }: Quirks,
): { readonly field: string; readonly instruction: readonly string[] } {
  if (format === undefined || format.type === "text") return { field: "", instruction: [] };
  if (format.type === "json_schema") {
    const schema = format.schema.trim();
    const parsed = parseJson(schema);
    if (!isJsonObject(parsed)) {
      throw invalidField("options.responseFormat.schema", `the schema of ${format.name} is no JSON object`);
    }
    if (jsonSchema === "native" && isClosedSchema(parsed))
      return { field: `{"type":"json_schema","schema":${schema}}`, instruction: [] };
  }
  return { field: "", instruction: [textOfWords(schemaInstruction(format))] };
}

function toolChoice({ toolChoice: choice, parallelToolCalls }: ModelOptions): unknown {
  const serial = parallelToolCalls === false ? { disable_parallel_tool_use: true } : {};
  if (choice === undefined || choice === "") {
    return parallelToolCalls === false ? { type: "auto", ...serial } : undefined;
  }
  if (choice === "none") return { type: "none" };
  if (choice === "auto") return { type: "auto", ...serial };
  if (choice === "required") return { type: "any", ...serial };
  return { type: "tool", name: choice, ...serial };
}

/** Blocks and tools stay the same from step to step, so each is written once and its text kept as long as it lives. */
const texts = new WeakMap<object, string>();

function kept(key: object, write: () => string): string {
  const text = texts.get(key) ?? write();
  texts.set(key, text);
  return text;
}

function encodeTool(tool: ToolDefinition): string {
  return kept(tool, () => {
    // The schema goes out in its own text: its key order is part of what the model reads.
    const schema = tool.parameters.trim() || '{"type":"object","properties":{}}';
    if (!isJsonObject(parseJson(schema)))
      throw invalidField("tools.parameters", `the schema of ${tool.name} is no JSON object`);
    const fields = [`"name":${quoted(tool.name)}`];
    if (tool.description !== "") fields.push(`"description":${quoted(tool.description)}`);
    fields.push(`"input_schema":${schema}`);
    if (tool.strict) fields.push('"strict":true');
    return `{${fields.join(",")}}`;
  });
}

// Messages

/** One block as it is sent. */
interface Piece {
  /** A blank is a text of white space, which nobody may say alone. */
  readonly kind: "text" | "blank" | "thinking" | "result" | "other";
  readonly json: string;
  /** For a text of the assistant: what it says. */
  readonly words?: string;
}

interface Turn {
  readonly role: "user" | "assistant";
  readonly pieces: Piece[];
}

function encodeTurns(turns: readonly Turn[], mark: (block: string) => string): string[] {
  // The end of the request is kept for the next one, and the end of the last one is where this one finds its own.
  const kept = turns.flatMap(({ role }, index) => (role === "user" ? [index] : [])).slice(-2);
  return turns.map(({ role, pieces }, index) => {
    const blocks = pieces.map(({ json }) => json);
    return `{"role":"${role}","content":[${(kept.includes(index) ? markLast(blocks, mark) : blocks).join(",")}]}`;
  });
}

/**
 * The conversation in turns of user and assistant, as Anthropic wants it: neighbours of one role are one; all results of
 * one answer stand first in the user turn that follows it, in the order of its calls, and a call nobody answered gets a
 * result that says so; no turn and no text is empty; no assistant turn ends in thinking; the user speaks first. White
 * space that the model put between its blocks goes back, since the signatures of what follows may cover it.
 */
function turnsOf(messages: readonly Message[], reader: Reader): Turn[] {
  const turns: Turn[] = [];
  const add = (role: Turn["role"], pieces: readonly Piece[]): void => {
    if (pieces.length === 0) return;
    if (role === "user") endAssistant(turns);
    const last = turns.at(-1);
    if (last?.role === role) last.pieces.push(...pieces);
    else turns.push({ role, pieces: [...pieces] });
  };
  const ids = callIds();
  const spoken = messages.filter(({ role }) => role !== "system" && role !== "developer");
  for (let position = 0; position < spoken.length; ) {
    const message = spoken[position];
    if (message === undefined) break;
    position++;
    if (message.role !== "assistant") {
      add("user", inputPieces(message));
      continue;
    }
    const { pieces, calls } = assistantPieces(message, reader, ids);
    add("assistant", pieces);
    if (calls.length === 0) continue;
    const following: Message[] = [];
    for (; position < spoken.length; position++) {
      const next = spoken[position];
      if (next === undefined || next.role === "assistant") break;
      following.push(next);
    }
    add("user", [...resultPieces(calls, following), ...following.flatMap(inputPieces)]);
  }
  endAssistant(turns);
  trimEnd(turns);
  if (turns[0]?.role === "assistant") turns.unshift({ role: "user", pieces: [opening] });
  return turns;
}

/** Stands where a history that begins with the assistant has no user message. */
const opening: Piece = { kind: "other", json: '{"type":"text","text":"(What was said before is left out.)"}' };

/** An assistant turn that ends in thinking, or says nothing else, as when it was cut short, is refused. */
function endAssistant(turns: Turn[]): void {
  const last = turns.at(-1);
  if (last?.role !== "assistant") return;
  while (last.pieces.at(-1)?.kind === "thinking") last.pieces.pop();
  if (last.pieces.every(({ kind }) => kind === "thinking" || kind === "blank")) turns.pop();
}

/** An assistant turn at the very end, which the model is to go on with, must not end in white space. */
function trimEnd(turns: Turn[]): void {
  for (;;) {
    const last = turns.at(-1);
    const piece = last?.pieces.at(-1);
    if (last?.role !== "assistant" || piece?.words === undefined) return;
    const words = piece.words.trimEnd();
    if (words === piece.words) return;
    last.pieces.pop();
    if (words !== "") last.pieces.push({ ...piece, words, json: textOfWords(words) });
    else endAssistant(turns);
  }
}

interface SentCall {
  readonly id: string;
  readonly call: ToolUseBlock;
}

/** Ids as Anthropic takes them: of letters, digits, `_` and `-`, and each only once in a request. */
function callIds(): (id: string) => string {
  const used = new Set<string>();
  return (id) => {
    const plain = id.replace(/[^a-zA-Z0-9_-]/g, "_") || "call";
    let sent = plain;
    for (let count = 2; used.has(sent); count++) sent = `${plain}_${count}`;
    used.add(sent);
    return sent;
  };
}

function assistantPieces(
  message: Message,
  reader: Reader,
  sentId: (id: string) => string,
): { pieces: Piece[]; calls: SentCall[] } {
  const pieces: Piece[] = [];
  const calls: SentCall[] = [];
  for (const [index, block] of message.blocks.entries()) {
    switch (block.type) {
      case "text": {
        if (block.text === "") break;
        const full = fullForm(message.blocks[index + 1], "text", reader, ({ text }) => text === block.text);
        const kind = isBlank(block.text) ? "blank" : "text";
        pieces.push({ kind, words: block.text, json: full ?? textJson(block) });
        break;
      }
      case "thinking":
        if (!isFrom(block, reader, dialectId) || !block.signature) break;
        pieces.push({
          kind: "thinking",
          json: rawJson(block, "thinking") ?? thinkingJson(block.thinking, block.signature),
        });
        break;
      case "redacted_thinking":
        if (!isFrom(block, reader, dialectId)) break;
        pieces.push({
          kind: "thinking",
          json: rawJson(block, "redacted_thinking") ?? `{"type":"redacted_thinking","data":${quoted(block.data)}}`,
        });
        break;
      case "tool_use": {
        const id = sentId(block.id);
        const full = fullForm(message.blocks[index + 1], "tool_use", reader, (plain) => plain["id"] === id);
        pieces.push({ kind: "other", json: full ?? callJson(block, id) });
        calls.push({ id, call: block });
        break;
      }
      case "unknown": {
        // Fuller forms of texts and calls go out in their place.
        if (
          !isFromProvider(block, reader, dialectId) ||
          block.unknownType === "text" ||
          block.unknownType === "tool_use"
        )
          break;
        const json = rawJson(block, block.unknownType);
        if (json !== undefined) pieces.push({ kind: "other", json });
        break;
      }
      // Reasoning of other wire families, and what only a user can say.
      case "reasoning":
      case "tool_result":
      case "image":
      case "file":
      case "audio":
        break;
      default:
        block satisfies never;
    }
  }
  return { pieces, calls };
}

function isBlank(text: string): boolean {
  return text.trim() === "";
}

const dialectId = "anthropic-messages";

interface RawForm {
  readonly text: string;
  /** Its plain members: type, and id or text where it has them. */
  readonly plain: JsonObject;
}

const rawForms = new WeakMap<object, RawForm | undefined>();

/** The wire form a block came in. Whatever is no JSON object is not believed: it would break the request. */
function rawForm(block: BlockOrigin): RawForm | undefined {
  if (block.raw === undefined) return undefined;
  if (rawForms.has(block)) return rawForms.get(block);
  const text = Buffer.from(block.raw).toString("utf8").trim();
  const value = parseJson(text);
  const form = isJsonObject(value)
    ? { text, plain: { type: value["type"], id: value["id"], text: value["text"] } }
    : undefined;
  rawForms.set(block, form);
  return form;
}

function rawJson(block: BlockOrigin, type: string): string | undefined {
  const form = rawForm(block);
  return form?.plain["type"] === type ? form.text : undefined;
}

/**
 * A text with citations, or a call with more than a name and an input, is kept in two blocks: the plain one, which
 * everyone can read, and directly behind it the whole one, as an unknown block of the same type. Only the whole one
 * goes back.
 */
function fullForm(
  next: ContentBlock | undefined,
  type: "text" | "tool_use",
  reader: Reader,
  matches: (plain: JsonObject) => boolean,
): string | undefined {
  if (next?.type !== "unknown" || next.unknownType !== type || !isFromProvider(next, reader, dialectId))
    return undefined;
  const form = rawForm(next);
  return form !== undefined && form.plain["type"] === type && matches(form.plain) ? form.text : undefined;
}

function textJson(block: TextBlock): string {
  return kept(block, () => textOfWords(block.text));
}

function textOfWords(words: string): string {
  return `{"type":"text","text":${quoted(words)}}`;
}

function thinkingJson(thinking: string, signature: string): string {
  return `{"type":"thinking","thinking":${quoted(thinking)},"signature":${quoted(signature)}}`;
}

/** A call, its arguments as the object that their text is. */
function callJson({ name, input }: ToolUseBlock, id: string): string {
  const fields = [`"id":${JSON.stringify(id)}`, `"name":${JSON.stringify(sentName(name, 128))}`];
  return `{"type":"tool_use",${fields.join(",")},"input":${wellFormed(sentArguments(input.trim()))}}`;
}

function resultPieces(calls: readonly SentCall[], following: readonly Message[]): Piece[] {
  const results = new Map<string, ToolResultBlock[]>();
  for (const block of following.flatMap(({ blocks }) => blocks)) {
    if (block.type !== "tool_result") continue;
    const known = results.get(block.toolUseId);
    if (known === undefined) results.set(block.toolUseId, [block]);
    else known.push(block);
  }
  return calls.map(({ id, call }) => {
    const result = results.get(call.id)?.shift();
    const json = resultJson(id, result ?? { type: "tool_result", toolUseId: id, content: unanswered, isError: true });
    return { kind: "result", json };
  });
}

const unanswered = "error: the call was not answered";

/** A failed call may say so only in text, and has to say something. */
function resultJson(id: string, result: ToolResultBlock): string {
  const fields = [`"type":"tool_result"`, `"tool_use_id":${JSON.stringify(id)}`];
  if (result.isError) {
    fields.push(`"content":${quoted(isBlank(result.content) ? "error" : result.content)}`, `"is_error":true`);
  } else if (result.parts !== undefined && result.parts.length > 0) {
    const parts = result.parts.flatMap(resultPart);
    if (parts.length > 0) fields.push(`"content":[${parts.join(",")}]`);
  } else if (!isBlank(result.content)) {
    fields.push(`"content":${quoted(result.content)}`);
  }
  return `{${fields.join(",")}}`;
}

/** Why Anthropic cannot read a block of input; undefined where it can. New messages are refused for it. */
export function unreadable(block: ContentBlock): string | undefined {
  if (block.type === "audio") return `audio (${block.format}) cannot be sent to Anthropic; send its text`;
  if (block.type !== "image" && block.type !== "file") return undefined;
  const sent = attachment(block);
  return typeof sent === "string" ? undefined : sent.problem;
}

/** Results of tools and what was said before cannot be refused, so what Anthropic does not read is named in words. */
function resultPart(part: NonNullable<ToolResultBlock["parts"]>[number]): string[] {
  switch (part.type) {
    case "text":
      return isBlank(part.text) ? [] : [textJson(part)];
    case "image":
    case "file": {
      const sent = attachment(part);
      return [typeof sent === "string" ? sent : textOfWords(`(left out: ${sent.problem})`)];
    }
    case "audio":
      return [textOfWords(`(left out: audio of type ${part.format})`)];
    default:
      return part satisfies never;
  }
}

/** What a user says in a message; the results in it are placed with their calls. */
function inputPieces(message: Message): Piece[] {
  return message.blocks.flatMap((block): Piece[] => {
    switch (block.type) {
      case "text":
        return isBlank(block.text) ? [] : [{ kind: "text", json: textJson(block) }];
      case "image":
      case "file":
      case "audio":
        return resultPart(block).map((json) => ({ kind: "other", json }));
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
  });
}

const imageTypes = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/** The image or document block of an attachment, as JSON text, or why there is none. */
function attachment(block: ImageBlock | FileBlock): string | { readonly problem: string } {
  const known = texts.get(block);
  if (known !== undefined) return known;
  const sent = block.type === "image" ? imageOf(block.url) : documentOf(block);
  if ("problem" in sent) return { problem: sent.problem };
  const text = JSON.stringify(sent);
  texts.set(block, text);
  return text;
}

type Attachment = { readonly problem: string } | { readonly type: "image" | "document"; readonly source: object };

function imageOf(url: string): Attachment {
  const data = parseDataUrl(url);
  if (data === undefined) {
    return /^https:/i.test(url)
      ? { type: "image", source: { type: "url", url } }
      : { problem: "an image that is neither a data: URL nor at an https: address" };
  }
  if (!imageTypes.includes(data.mediaType)) {
    return { problem: `an image of type ${data.mediaType}; Anthropic reads ${imageTypes.join(", ")}` };
  }
  return { type: "image", source: { type: "base64", media_type: data.mediaType, data: data.base64 } };
}

/** Files by id need the header `anthropic-beta: files-api-2025-04-14`, which the operator may add to the provider. */
function documentOf({ data: url, fileId, filename }: FileBlock): Attachment {
  const title = filename === undefined || filename === "" ? {} : { title: filename };
  if (url === undefined) {
    return fileId === undefined
      ? { problem: "a file without content" }
      : { type: "document", source: { type: "file", file_id: fileId }, ...title };
  }
  const data = parseDataUrl(url);
  if (data === undefined) return { problem: "a file that is no data: URL" };
  const { mediaType, base64 } = data;
  if (mediaType.startsWith("image/")) return imageOf(url);
  if (mediaType === "application/pdf") {
    return { type: "document", source: { type: "base64", media_type: mediaType, data: base64 }, ...title };
  }
  if (!/^text\/|[/+](json|xml|yaml|toml|javascript|typescript|sql)$/.test(mediaType)) {
    return { problem: `a file of type ${mediaType}; Anthropic reads PDF, images and text` };
  }
  const text = Buffer.from(base64, "base64").toString("utf8");
  return { type: "document", source: { type: "text", media_type: "text/plain", data: text }, ...title };
}
