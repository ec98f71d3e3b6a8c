import type { Answer } from "./upstream.ts";
import { eventStream, key } from "./upstream.ts";

export const dialectIds = ["openai-chat", "openai-responses", "anthropic-messages"] as const;
export type DialectId = (typeof dialectIds)[number];

/** What a model says, in its order. Texts are sent in two deltas each, a call's arguments too. */
export type Said =
  | { readonly type: "text" | "thinking"; readonly text: string }
  | { readonly type: "call"; readonly id: string; readonly name: string; readonly argumentsText: string };

export const text = (words: string): Said => ({ type: "text", text: words });
export const thinking = (words: string): Said => ({ type: "thinking", text: words });
export const call = (id: string, name: string, argumentsText = "{}"): Said => ({
  type: "call",
  id,
  name,
  argumentsText,
});

/** `length`: the answer was cut by its bound of tokens. */
export type Ending = "whole" | "length";

/** A provider that speaks the dialect, at the URL of a fake upstream: the model to ask, and the environment for it. */
export function providerAt(dialect: DialectId, url: string): { model: string; env: Readonly<Record<string, string>> } {
  switch (dialect) {
    case "openai-chat":
      return { model: "forward/m", env: { FORWARD_BASE_URL: url, FORWARD_API_KEY: key } };
    case "openai-responses":
      return { model: "openai-responses/m", env: { OPENAI_BASE_URL: url, OPENAI_API_KEY: key } };
    case "anthropic-messages": {
      const env = { ANTHROPIC_BASE_URL: url.replace(/\/v1$/, ""), ANTHROPIC_API_KEY: key };
      return { model: "anthropic/m", env };
    }
    default:
      return dialect satisfies never;
  }
}

export interface StreamedAnswer {
  /** Each a server-sent event with the blank line after it. */
  readonly events: readonly string[];
  /** After so many events an orderly end of the body leaves nothing open. */
  readonly wholeFrom: number;
}

/** A streamed answer as the dialect's own vendor writes it. */
export function streamedAnswer(dialect: DialectId, said: readonly Said[], ending: Ending = "whole"): StreamedAnswer {
  switch (dialect) {
    case "openai-chat": {
      const events = chatEvents(said, ending);
      return { events, wholeFrom: events.length - 2 };
    }
    case "openai-responses": {
      const events = responsesEvents(said, ending);
      return { events, wholeFrom: events.length };
    }
    case "anthropic-messages": {
      const events = anthropicEvents(said, ending);
      return { events, wholeFrom: events.length - 1 };
    }
    default:
      return dialect satisfies never;
  }
}

/** An upstream's answer that says all of it and ends. */
export function says(dialect: DialectId, said: readonly Said[], ending: Ending = "whole"): Answer {
  return (_, response) =>
    response.writeHead(200, eventStream).end(streamedAnswer(dialect, said, ending).events.join(""));
}

/** The events of an answer up to the first that holds the mark. */
export function eventsThrough(dialect: DialectId, said: readonly Said[], mark: string): string {
  const { events } = streamedAnswer(dialect, said);
  const place = events.findIndex((event) => event.includes(mark));
  if (place === -1) throw new Error(`no event holds ${mark}`);
  return events.slice(0, place + 1).join("");
}

/** The dialect of a request, by the path it came to. */
export function dialectOf(url: string): DialectId {
  if (url.endsWith("/messages")) return "anthropic-messages";
  return url.endsWith("/responses") ? "openai-responses" : "openai-chat";
}

/** The body of an error as the dialect's vendor writes it. */
export function errorBody(dialect: DialectId, type: string, message: string): object {
  const error = { type, message };
  return dialect === "anthropic-messages" ? { type: "error", error } : { error: { ...error, code: type, param: null } };
}

/** An error in the middle of a stream, as one event. */
export function errorEvent(dialect: DialectId, type: string, message: string): string {
  switch (dialect) {
    case "openai-chat":
      return data(errorBody(dialect, type, message));
    case "openai-responses":
      return named({
        type: "response.failed",
        response: { id: "resp_1", status: "failed", error: { code: type, message } },
      });
    case "anthropic-messages":
      return `event: error\n${data(errorBody(dialect, type, message))}`;
    default:
      return dialect satisfies never;
  }
}

function data(value: object): string {
  return `data: ${JSON.stringify(value)}\n\n`;
}

function named(value: { readonly type: string; readonly [member: string]: unknown }): string {
  return `event: ${value.type}\n${data(value)}`;
}

/** In two, between characters. */
function halves(words: string): string[] {
  const characters = [...words];
  const middle = Math.ceil(characters.length / 2);
  return [characters.slice(0, middle).join(""), characters.slice(middle).join("")].filter((half) => half !== "");
}

function chatEvents(said: readonly Said[], ending: Ending): string[] {
  const chunk = (delta: object, finish: string | null = null) =>
    data({
      id: "chat-1",
      object: "chat.completion.chunk",
      created: 1,
      model: "m",
      choices: [{ index: 0, delta, finish_reason: finish }],
      usage: null,
    });
  const events = [chunk({ role: "assistant", content: "" })];
  let index = 0;
  for (const one of said) {
    if (one.type === "call") {
      const head = { index, id: one.id, type: "function", function: { name: one.name, arguments: "" } };
      events.push(chunk({ tool_calls: [head] }));
      for (const half of halves(one.argumentsText)) {
        events.push(chunk({ tool_calls: [{ index, function: { arguments: half } }] }));
      }
      index++;
      continue;
    }
    const field = one.type === "text" ? "content" : "reasoning_content";
    for (const half of halves(one.text)) events.push(chunk({ [field]: half }));
  }
  const usage = { prompt_tokens: 7, completion_tokens: 5, total_tokens: 12 };
  events.push(chunk({}, ending === "length" ? "length" : index > 0 ? "tool_calls" : "stop"));
  events.push(data({ id: "chat-1", object: "chat.completion.chunk", created: 1, model: "m", choices: [], usage }));
  events.push("data: [DONE]\n\n");
  return events;
}

function responsesEvents(said: readonly Said[], ending: Ending): string[] {
  const response = { id: "resp_1", object: "response", model: "m" };
  const events = [named({ type: "response.created", response: { ...response, status: "in_progress", output: [] } })];
  const output: object[] = [];
  for (const [index, one] of said.entries()) {
    const id = `item_${index}`;
    const place = { output_index: index, item_id: id };
    const isCut = ending === "length" && index === said.length - 1;
    const status = isCut ? "incomplete" : "completed";
    const { begun, deltaType, done } = responsesItem(one, id, status);
    events.push(named({ type: "response.output_item.added", output_index: index, item: begun }));
    for (const half of halves(one.type === "call" ? one.argumentsText : one.text)) {
      events.push(named({ type: deltaType, ...place, content_index: 0, summary_index: 0, delta: half }));
    }
    events.push(named({ type: "response.output_item.done", output_index: index, item: done }));
    output.push(done);
  }
  const usage = { input_tokens: 7, output_tokens: 5, total_tokens: 12 };
  const end =
    ending === "length"
      ? { status: "incomplete", incomplete_details: { reason: "max_output_tokens" } }
      : { status: "completed", incomplete_details: null };
  const type = ending === "length" ? "response.incomplete" : "response.completed";
  events.push(named({ type, response: { ...response, ...end, output, usage } }));
  return events;
}

function responsesItem(one: Said, id: string, status: string): { begun: object; deltaType: string; done: object } {
  switch (one.type) {
    case "text": {
      const item = { type: "message", id, role: "assistant" };
      const content = [{ type: "output_text", text: one.text, annotations: [] }];
      return {
        begun: { ...item, status: "in_progress", content: [] },
        deltaType: "response.output_text.delta",
        done: { ...item, status, content },
      };
    }
    case "thinking": {
      const item = { type: "reasoning", id };
      const summary = [{ type: "summary_text", text: one.text }];
      return {
        begun: { ...item, summary: [], encrypted_content: "early" },
        deltaType: "response.reasoning_summary_text.delta",
        done: { ...item, summary, encrypted_content: `sealed-${id}==` },
      };
    }
    case "call": {
      const item = { type: "function_call", id, call_id: one.id, name: one.name };
      return {
        begun: { ...item, arguments: "", status: "in_progress" },
        deltaType: "response.function_call_arguments.delta",
        done: { ...item, arguments: one.argumentsText, status },
      };
    }
    default:
      return one satisfies never;
  }
}

function anthropicEvents(said: readonly Said[], ending: Ending): string[] {
  const message = { id: "msg_1", type: "message", role: "assistant", model: "m", content: [], stop_reason: null };
  const events = [
    named({ type: "message_start", message: { ...message, usage: { input_tokens: 7, output_tokens: 1 } } }),
    named({ type: "ping" }),
  ];
  for (const [index, one] of said.entries()) {
    const { begun, deltas } = anthropicBlock(one);
    events.push(named({ type: "content_block_start", index, content_block: begun }));
    for (const delta of deltas) events.push(named({ type: "content_block_delta", index, delta }));
    events.push(named({ type: "content_block_stop", index }));
  }
  const calls = said.some(({ type }) => type === "call");
  const reason = ending === "length" ? "max_tokens" : calls ? "tool_use" : "end_turn";
  const delta = { stop_reason: reason, stop_sequence: null };
  events.push(named({ type: "message_delta", delta, usage: { output_tokens: 5 } }));
  events.push(named({ type: "message_stop" }));
  return events;
}

function anthropicBlock(one: Said): { begun: object; deltas: object[] } {
  switch (one.type) {
    case "text":
      return {
        begun: { type: "text", text: "" },
        deltas: halves(one.text).map((half) => ({ type: "text_delta", text: half })),
      };
    case "thinking":
      return {
        begun: { type: "thinking", thinking: "", signature: "" },
        deltas: [
          ...halves(one.text).map((half) => ({ type: "thinking_delta", thinking: half })),
          { type: "signature_delta", signature: "c2lnbmVk" },
        ],
      };
    case "call":
      return {
        begun: { type: "tool_use", id: one.id, name: one.name, input: {} },
        deltas: halves(one.argumentsText).map((half) => ({ type: "input_json_delta", partial_json: half })),
      };
    default:
      return one satisfies never;
  }
}
