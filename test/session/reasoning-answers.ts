import { createHash } from "node:crypto";
import { type JsonSource, readJsonSource } from "../support/json-source.ts";

/** How an answer comes: in server-sent events, or as one body. */
export const forms = ["stream", "whole"] as const;
export type Form = (typeof forms)[number];

/** An answer of a provider, and what later requests hold of it. */
export interface ReasoningAnswer {
  /** The body, by the form it comes in. */
  readonly body: Readonly<Record<Form, string>>;
  /** What the answer says, in its order, as `saidIn` reads it out of a request. */
  readonly said: Readonly<Record<Form, readonly string[]>>;
}

export interface ReasoningCase {
  readonly name: string;
  readonly provider: string;
  /** What the names of its models begin with. */
  readonly model: string;
  readonly callsTool: ReasoningAnswer;
  readonly ends: ReasoningAnswer;
  /** What requests of later turns hold of both answers, where that is not all of them. */
  readonly saidLater?: Readonly<Record<"callsTool" | "ends", readonly string[]>>;
}

/** What is told apart by its bytes: a piece of thinking, an item of reasoning. */
export function unit(kind: string, source: string): string {
  return `${kind} ${createHash("sha256").update(source, "utf8").digest("hex")}`;
}

/** Whether `saidIn` read it as a unit of reasoning. */
export function isUnit(said: string): boolean {
  return / [0-9a-f]{64}$/.test(said);
}

// What a request holds

/** All that was said before, as a request has it: `user …`, `text …`, `call <id>`, `result <id>`, and units. */
export function saidIn(body: string): string[] {
  const { members } = readJsonSource(body);
  const items = members.get("input");
  if (items !== undefined) return items.elements.flatMap(saidInItem);
  const isAnthropic = !members.get("messages")?.elements.some((message) => textAt(message, "content") !== undefined);
  return (members.get("messages")?.elements ?? []).flatMap(isAnthropic ? saidInBlocks : saidInChatMessage);
}

function textAt({ members }: JsonSource, name: string): string | undefined {
  const value: unknown = JSON.parse(members.get(name)?.source ?? "null");
  return typeof value === "string" ? value : undefined;
}

function partsText({ members }: JsonSource): string {
  return (members.get("content")?.elements ?? []).map((part) => textAt(part, "text")).join("");
}

function saidInItem(item: JsonSource): string[] {
  const type = textAt(item, "type");
  if (type === "reasoning") return [unit("reasoning", item.source)];
  if (type === "function_call") return [`call ${textAt(item, "call_id")}`];
  if (type === "function_call_output") return [`result ${textAt(item, "call_id")}`];
  const phase = textAt(item, "phase");
  const words = `${phase === undefined ? "" : `(${phase}) `}${partsText(item)}`;
  return [`${textAt(item, "role") === "user" ? "user" : "text"} ${words}`];
}

function saidInBlocks(message: JsonSource): string[] {
  return (message.members.get("content")?.elements ?? []).map((block) => {
    const type = textAt(block, "type");
    if (type === "text") return `${textAt(message, "role") === "user" ? "user" : "text"} ${textAt(block, "text")}`;
    if (type === "tool_use") return `call ${textAt(block, "id")}`;
    if (type === "tool_result") return `result ${textAt(block, "tool_use_id")}`;
    return unit(String(type), block.source);
  });
}

/** A message has its fields in no order of their own, so units come first, by the names of their fields. */
function saidInChatMessage(message: JsonSource): string[] {
  const role = textAt(message, "role");
  if (role === "system") return [];
  if (role === "tool") return [`result ${textAt(message, "tool_call_id")}`];
  if (role === "user") return [`user ${textAt(message, "content")}`];
  const fields = [...message.members].filter(([name]) => name.startsWith("reasoning"));
  fields.sort(([one], [other]) => (one < other ? -1 : 1));
  const words = textAt(message, "content");
  return [
    ...fields.map(([name, value]) => unit(name, value.source)),
    ...(words === undefined ? [] : [`text ${words}`]),
    ...(message.members.get("tool_calls")?.elements ?? []).map((call) => `call ${textAt(call, "id")}`),
  ];
}

// Awkward content, as JSON texts

const raw = String.raw;
/** Escapes that could be written otherwise, both halves of a pair, control characters, space at both ends. */
const nasty = raw`"  caf\u00e9 café cafe\u0301 \/ / \u0000\u001f\t\u2028 😀 \ud83d\ude00 \u003c/think> 1.0 \"q\" \\u00e9 \n end \n  "`;
const short = raw`"Then \ud83d\udc69\u200d\ud83d\ude80 that. "`;
const sealed = raw`"c2VhbGVk\/+Zg\u003d="`;
/** So much that a message with it is kept beside the log. */
const large = `"${"QUJD".repeat(70_000)}"`;
/** Members that nobody here has a name for. */
const numbers = raw`"10":1.0, "2" :12345678901234567890, "caf\u00e9": {"b":[ ],"a":1e2,"7":-0}`;

/** The same value in the one way in which streamed texts are written. */
function plain(literal: string): string {
  return JSON.stringify(JSON.parse(literal));
}

/** A text in as many deltas as can be: one for each character or escape, so that pairs of escapes are cut in half. */
function pieces(literal: string): string[] {
  return (literal.slice(1, -1).match(/\\u[0-9a-f]{4}|\\.|[^\\]/gu) ?? []).map((piece) => `"${piece}"`);
}

function inTwo(literal: string): string[] {
  const all = pieces(literal).map((piece) => piece.slice(1, -1));
  const middle = all.length >> 1;
  return [all.slice(0, middle), all.slice(middle)].map((half) => `"${half.join("")}"`);
}

function event(type: string, members: string): string {
  return `event: ${type}\ndata: {"type":"${type}",${members}}\n\n`;
}

function data(json: string): string {
  return `data: ${json}\n\n`;
}

function inBothForms(said: readonly string[]): Record<Form, readonly string[]> {
  return { stream: said, whole: said };
}

// Anthropic

interface AnthropicBlock {
  readonly whole: string;
  /** The block as its stream begins, and the deltas that follow. */
  readonly begun: string;
  readonly deltas: readonly string[];
  readonly said: Readonly<Record<Form, string>>;
}

function thinkingBlock(thinking: string, signature: string): AnthropicBlock {
  const whole = `{ "signature":${signature}, ${numbers},"type":"thinking",  "thinking":${thinking} }`;
  const streamed = `{"type":"thinking","thinking":${plain(thinking)},"signature":${plain(signature)}}`;
  return {
    whole,
    begun: `{"type":"thinking","thinking":"","signature":""}`,
    deltas: [
      ...pieces(thinking).map((piece) => `{"type":"thinking_delta","thinking":${piece}}`),
      ...inTwo(signature).map((piece) => `{"type":"signature_delta","signature":${piece}}`),
    ],
    said: { stream: unit("thinking", streamed), whole: unit("thinking", whole) },
  };
}

/** A block that comes with its announcement also in a stream. */
function announcedBlock(type: string, members: string): AnthropicBlock {
  const whole = `{${members}, "type" : "${type}", ${numbers} }`;
  const said = unit(type, whole);
  return { whole, begun: whole, deltas: [], said: { stream: said, whole: said } };
}

function textBlock(words: string): AnthropicBlock {
  const said = `text ${words}`;
  return {
    whole: `{"type":"text","text":${JSON.stringify(words)}}`,
    begun: `{"type":"text","text":""}`,
    deltas: pieces(JSON.stringify(words)).map((piece) => `{"type":"text_delta","text":${piece}}`),
    said: { stream: said, whole: said },
  };
}

function callBlock(id: string): AnthropicBlock {
  const head = `"type":"tool_use","id":"${id}","name":"list_files"`;
  const said = `call ${id}`;
  return {
    whole: `{${head},"input":{"path":"."}}`,
    begun: `{${head},"input":{}}`,
    deltas: [raw`{"type":"input_json_delta","partial_json":"{\"path\": \".\"}"}`],
    said: { stream: said, whole: said },
  };
}

function anthropicAnswer(stopReason: string, blocks: readonly AnthropicBlock[]): ReasoningAnswer {
  const head = `"id":"msg_1","type":"message","role":"assistant","model":"m","stop_sequence":null`;
  const usage = `"usage":{"input_tokens":7,"output_tokens":5}`;
  const events = blocks.map(({ begun, deltas }, index) =>
    [
      event("content_block_start", `"index":${index},"content_block":${begun}`),
      ...deltas.map((delta) => event("content_block_delta", `"index":${index},"delta":${delta}`)),
      event("content_block_stop", `"index":${index}`),
    ].join(""),
  );
  const stream = [
    event("message_start", `"message":{${head},"content":[],"stop_reason":null,${usage}}`),
    ...events,
    event("message_delta", `"delta":{"stop_reason":"${stopReason}","stop_sequence":null},"usage":{"output_tokens":5}`),
    `event: message_stop\n${data('{"type":"message_stop"}')}`,
  ];
  const content = blocks.map(({ whole }) => whole).join(" , ");
  return {
    body: { stream: stream.join(""), whole: `{${head},"content":[${content}],"stop_reason":"${stopReason}",${usage}}` },
    said: { stream: blocks.map(({ said }) => said.stream), whole: blocks.map(({ said }) => said.whole) },
  };
}

// Responses

interface ResponsesItem {
  readonly whole: string;
  readonly begun: string;
  /** The events between its announcement and its end, without their place. */
  readonly deltas: readonly { readonly type: string; readonly members: string }[];
  readonly said: string;
}

/** Goes back without its id, which nobody keeps, and without its status. */
function reasoningItem(id: string, encrypted: string, summaries: readonly string[]): ResponsesItem {
  const parts = summaries.map((text) => `{"text":${text}, "type":"summary_text"}`);
  const members = [
    `"encrypted_content":${encrypted}`,
    `"10":1.0`,
    `"type":"reasoning"`,
    `"summary":[${parts.join(" , ")}]`,
    `"2":12345678901234567890`,
    `"content":[ ]`,
    raw`"café":{"b":[ ],"\u0061":1e2,"7":-0, "text":${nasty}}`,
  ];
  const written = (others: readonly string[]) => `{${others.join(",")}}`;
  return {
    whole: `{ "id":"${id}", ${members.join(" ,\n ")}, "status":"completed" }`,
    begun: `{"type":"reasoning","id":"${id}","summary":[],"encrypted_content":"ZWFybHk="}`,
    deltas: summaries.flatMap((text, index) =>
      pieces(text).map((piece) => ({
        type: "response.reasoning_summary_text.delta",
        members: `"summary_index":${index},"delta":${piece}`,
      })),
    ),
    said: unit("reasoning", written(members)),
  };
}

function messageItem(id: string, phase: string, words: string): ResponsesItem {
  const head = `"type":"message","id":"${id}","role":"assistant","phase":"${phase}"`;
  const literal = JSON.stringify(words);
  return {
    whole: `{${head},"status":"completed","content":[{"type":"output_text","text":${literal},"annotations":[]}]}`,
    begun: `{${head},"status":"in_progress","content":[]}`,
    deltas: pieces(literal).map((piece) => ({
      type: "response.output_text.delta",
      members: `"content_index":0,"delta":${piece}`,
    })),
    said: `text (${phase}) ${words}`,
  };
}

function callItem(id: string): ResponsesItem {
  const head = `"type":"function_call","id":"fc_${id}","call_id":"${id}","name":"list_files"`;
  return {
    whole: raw`{${head},"arguments":"{\"path\": \".\"}","status":"completed"}`,
    begun: `{${head},"arguments":"","status":"in_progress"}`,
    deltas: [{ type: "response.function_call_arguments.delta", members: raw`"delta":"{\"path\": \".\"}"` }],
    said: `call ${id}`,
  };
}

function responsesAnswer(items: readonly ResponsesItem[]): ReasoningAnswer {
  const events = items.map(({ whole, begun, deltas }, index) => {
    const place = `"output_index":${index}`;
    // An event is one line.
    const item = whole.replaceAll("\n", "");
    return [
      event("response.output_item.added", `${place},"item":${begun}`),
      ...deltas.map(({ type, members }) => event(type, `${place},${members}`)),
      event("response.output_item.done", `${place},"item":${item}`),
    ].join("");
  });
  const head = `"id":"resp_1","object":"response","model":"m"`;
  const usage = `"usage":{"input_tokens":7,"output_tokens":5,"total_tokens":12}`;
  const begun = event("response.created", `"response":{${head},"status":"in_progress","output":[]}`);
  const ended = event("response.completed", `"response":{${head},"status":"completed","output":[],${usage}}`);
  const output = items.map(({ whole }) => whole).join(",");
  return {
    body: {
      stream: begun + events.join("") + ended,
      whole: `{${head},"status":"completed","output":[${output}],${usage}}`,
    },
    said: inBothForms(items.map(({ said }) => said)),
  };
}

// Chat Completions

/** A field of the assistant's message: how it is written whole and streamed, and what of it goes back. */
interface ChatField {
  readonly name: string;
  readonly whole: string;
  /** The values it has in the deltas. */
  readonly deltas: readonly string[];
  readonly said: Readonly<Record<Form, readonly string[]>>;
}

function textField(name: string, literal: string): ChatField {
  return { name, whole: literal, deltas: pieces(literal), said: inBothForms([unit(name, plain(literal))]) };
}

/** A field whose content goes back in another one. */
function unsentField(field: ChatField): ChatField {
  return { ...field, said: inBothForms([]) };
}

const content = (words: string): ChatField => ({
  name: "content",
  whole: JSON.stringify(words),
  deltas: pieces(JSON.stringify(words)),
  said: inBothForms([`text ${words}`]),
});

const toolCall = (id: string): ChatField => {
  const call = (place: string) =>
    raw`[{${place}"id":"${id}","type":"function","function":{"name":"list_files","arguments":"{\"path\": \".\"}"}}]`;
  return { name: "tool_calls", whole: call(""), deltas: [call(`"index":0,`)], said: inBothForms([`call ${id}`]) };
};

/** A readable detail, which a stream brings in pieces, and one that comes as one. */
function detailsField(text: string, encrypted: string): ChatField {
  const head = `"type":"reasoning.text","format":"anthropic-claude-v1","index":0`;
  const opaque = `{"data":${encrypted} , "type":"reasoning.encrypted", ${numbers},"index":1}`;
  const whole = `[ {"signature":${sealed}, "text":${text},${head}, ${numbers}},${opaque} ]`;
  const streamed = `[{${head},"text":${plain(text)},"signature":${plain(sealed)}},${opaque}]`;
  const deltas = [...pieces(text).map((piece) => `[{${head},"text":${piece}}]`)];
  deltas.push(`[{${head},"text":"","signature":${sealed}}]`, `[ ${opaque} ]`);
  const name = "reasoning_details";
  return { name, whole, deltas, said: { stream: [unit(name, streamed)], whole: [unit(name, whole)] } };
}

function chatAnswer(fields: readonly ChatField[]): ReasoningAnswer {
  const head = `"id":"chat-1","model":"m"`;
  const finish = fields.some(({ name }) => name === "tool_calls") ? "tool_calls" : "stop";
  const usage = `{"prompt_tokens":7,"completion_tokens":5,"total_tokens":12}`;
  const chunk = (delta: string, reason: string, used = "null") =>
    data(`{${head},"choices":[{"index":0,"delta":{${delta}},"finish_reason":${reason}}],"usage":${used}}`);
  const chunks = fields.flatMap(({ name, deltas }) =>
    deltas.map((value) => chunk(`${name === "content" ? "" : '"content":null,'}"${name}":${value}`, "null")),
  );
  const stream = [chunk(`"role":"assistant","content":""`, "null"), ...chunks, chunk("", `"${finish}"`, usage)];
  const members = fields.map(({ name, whole }) => `"${name}":${whole}`);
  if (!fields.some(({ name }) => name === "content")) members.push('"content":null');
  const message = `{"role":"assistant",${members.join(",")}}`;
  return {
    body: {
      stream: `${stream.join("")}data: [DONE]\n\n`,
      whole: `{${head},"choices":[{"index":0,"message":${message},"finish_reason":"${finish}"}],"usage":${usage}}`,
    },
    said: {
      stream: unitsFirst(fields).flatMap(({ said }) => said.stream),
      whole: unitsFirst(fields).flatMap(({ said }) => said.whole),
    },
  };
}

/** As `saidInChatMessage` reads a message, whose fields have no order of their own. */
function unitsFirst(fields: readonly ChatField[]): ChatField[] {
  const place = ({ name }: ChatField) => (name.startsWith("reasoning") ? name : `~${name}`);
  return fields.toSorted((one, other) => (place(one) < place(other) ? -1 : 1));
}

const thought = "reasoning_content";
/** Stands for thinking where a call has none and the provider wants the field. */
export const emptyThinking = unit(thought, '""');
/** Chat Completions in which thinking comes as one text. */
const thinkingChat = {
  callsTool: chatAnswer([textField(thought, nasty), toolCall("call_1")]),
  ends: chatAnswer([textField(thought, short), content("Done.")]),
};

/** A turn of two answers for each way in which providers send reasoning. */
export const reasoningCases: readonly ReasoningCase[] = [
  {
    name: "Anthropic",
    provider: "anthropic",
    model: "m",
    callsTool: anthropicAnswer("tool_use", [
      thinkingBlock(nasty, sealed),
      announcedBlock("redacted_thinking", `"data":${sealed}`),
      textBlock("I look. "),
      callBlock("call_1"),
      thinkingBlock('""', sealed),
      callBlock("call_2"),
      announcedBlock("thinking", `"signature":${sealed},"thinking":${short}`),
      textBlock("And again."),
    ]),
    ends: anthropicAnswer("end_turn", [
      announcedBlock("redacted_thinking", `"data":${large}`),
      thinkingBlock(short, `"ZW5kZWQ="`),
      textBlock("Done."),
    ]),
  },
  {
    name: "OpenAI Responses",
    provider: "openai-responses",
    model: "m",
    callsTool: responsesAnswer([
      reasoningItem("rs_1", sealed, [nasty, short]),
      messageItem("msg_1", "commentary", "I look."),
      reasoningItem("rs_2", '"c2Vjb25k"', []),
      callItem("call_1"),
    ]),
    ends: responsesAnswer([
      reasoningItem("rs_3", '"dGhpcmQ="', [short]),
      messageItem("msg_2", "commentary", "I have seen it."),
      reasoningItem("rs_4", large, [nasty]),
      messageItem("msg_3", "final_answer", "Done."),
    ]),
  },
  { name: "DeepSeek", provider: "deepseek", model: "deepseek-reasoner", ...thinkingChat },
  {
    name: "Kimi, which wants it in its turn only",
    provider: "kimi",
    model: "kimi-k2-thinking",
    ...thinkingChat,
    saidLater: { callsTool: [emptyThinking, "call call_1"], ends: ["text Done."] },
  },
  { name: "Kimi K3", provider: "kimi", model: "kimi-k3", ...thinkingChat },
  {
    name: "Copilot",
    provider: "copilot",
    model: "m",
    callsTool: chatAnswer([
      textField("reasoning_text", nasty),
      textField("reasoning_opaque", sealed),
      content("I look."),
      toolCall("call_1"),
    ]),
    ends: chatAnswer([
      textField("reasoning_text", short),
      textField("reasoning_opaque", '"ZW5kZWQ="'),
      content("Done."),
    ]),
  },
  {
    name: "OpenRouter",
    provider: "forward",
    model: "m",
    callsTool: chatAnswer([
      unsentField(textField("reasoning", nasty)),
      detailsField(nasty, sealed),
      content("I look."),
      toolCall("call_1"),
    ]),
    ends: chatAnswer([detailsField(short, large), content("Done.")]),
  },
];
