import { AgentError } from "../chat/error.ts";
import type { ChatEvent } from "../chat/event.ts";
import type { FinishReason } from "../chat/finish-reason.ts";
import type { SseMessage } from "../stream/sse.ts";
import { laterCounts, usageFromAnthropicMessages } from "./anthropic-messages-usage.ts";
import type { DecodeContext } from "./dialect.ts";
import { arrayOf, isJsonObject, type JsonObject, objectOf, parseJson, textOf } from "./json.ts";
import { elementSlices, memberSlices } from "./json-slices.ts";
import { pairedText } from "./paired-text.ts";
import { readBatch } from "./read-batch.ts";
import { faultFromJson, firstOf, type UpstreamFault, upstreamError } from "./upstream-error.ts";

/**
 * Reads a streamed answer. It is whole with its `message_stop` (or a gateway's `[DONE]`), and also when the stream ends
 * without one after a stop reason has come and every block was closed: nothing of the answer can be missing then.
 */
export async function* decodeStream(
  messages: AsyncIterable<readonly SseMessage[]>,
  context: DecodeContext,
): AsyncGenerator<ChatEvent[]> {
  const answer = anthropicAnswer(context);
  const read = (reading: typeof answer, message: SseMessage) => readMessage(reading, message, context);
  for await (const batch of messages) {
    const { events, failure } = readBatch(answer, batch, read);
    if (events.length > 0) yield events;
    if (failure !== undefined) throw failure.error;
    if (answer.done()) return;
  }
  if (!answer.complete()) throw cutOff(context);
  answer.finish();
  yield answer.take();
}

/** Reads an answer that came as one JSON body. */
export function decodeWhole(bodyText: string, context: DecodeContext): ChatEvent[] {
  const body = parseJson(bodyText);
  const fault = faultOf(body);
  if (fault !== undefined) throw upstreamError(fault, context);
  if (!isJsonObject(body)) throw unreadable("an answer that is no JSON object", bodyText, context);
  if (!Array.isArray(body["content"])) throw unreadable("an answer without content", bodyText, context);
  const answer = anthropicAnswer(context);
  answer.readWhole(body, bodyText);
  answer.finish();
  return answer.take();
}

/** What the body of an HTTP error says; its `request_id` stands beside the error. */
export function decodeError(bodyText: string): UpstreamFault | undefined {
  return faultOf(parseJson(bodyText));
}

/** The HTTP status that goes with each type of error (platform.claude.com/docs/en/api/errors), for errors in a 200. */
const statusOfType: Readonly<Record<string, number>> = {
  invalid_request_error: 400,
  authentication_error: 401,
  billing_error: 402,
  permission_error: 403,
  not_found_error: 404,
  request_too_large: 413,
  rate_limit_error: 429,
  api_error: 500,
  timeout_error: 504,
  overloaded_error: 529,
};

function faultOf(told: unknown): UpstreamFault | undefined {
  const value = firstOf(told);
  if (isJsonObject(value) && value["type"] === "message") return undefined;
  const fault = faultFromJson(value);
  if (fault === undefined) return undefined;
  const status = fault.status ?? statusOfType[fault.type];
  const requestId = textOf(objectOf(value)["request_id"]).slice(0, 200);
  return {
    ...fault,
    ...(status === undefined ? {} : { status }),
    ...(requestId === "" ? {} : { requestId }),
  };
}

type Answer = ReturnType<typeof anthropicAnswer>;

function readMessage(answer: Answer, message: SseMessage, context: DecodeContext): void {
  const data = message.data.trim();
  if (data === "") return;
  if (data === "[DONE]") {
    answer.finish();
    return;
  }
  const event = parseJson(data);
  if (message.event === "error" || objectOf(firstOf(event))["type"] === "error") {
    if (event === undefined && message.unterminated) return;
    throw upstreamError(faultOf(event) ?? { message: data, type: "", code: "" }, context);
  }
  if (isJsonObject(event)) {
    answer.read(event, data);
    return;
  }
  const fault = faultOf(event);
  if (fault !== undefined) throw upstreamError(fault, context);
  if (!message.unterminated) throw unreadable("an event that is no JSON object", data, context);
}

function cutOff(context: DecodeContext): AgentError {
  return new AgentError("provider_unavailable", `${context.provider}'s answer was cut off before its end`, {
    detail: { retryable: true, ...who(context) },
  });
}

function unreadable(what: string, text: string, context: DecodeContext): AgentError {
  const shown = text.trim().slice(0, 200);
  return new AgentError("provider_protocol", `${context.provider} sent ${what}: ${shown}`, {
    detail: { retryable: false, ...who(context) },
  });
}

function who({ provider, upstreamRequestId }: DecodeContext): { provider: string; upstreamRequestId?: string } {
  return upstreamRequestId === undefined ? { provider } : { provider, upstreamRequestId };
}

/** A content block between its start and its stop. */
interface OpenBlock {
  readonly index: number;
  readonly type: string;
  readonly start: JsonObject;
  /** JSON text of the block as it began. */
  readonly source: string;
  /** What deltas added to each of its text members; for blocks nobody here has a name for. */
  readonly added: Map<string, string>;
  /** JSON texts of the citations that came in deltas. */
  readonly citations: string[];
  text: string;
  signature: string;
  input: string;
  /** Deltas came, so the block as it began is not all of it. */
  grown: boolean;
}

/** The state of one answer: events in by `read`, or a body by `readWhole`; our events out by `take`; `finish` closes it. */
function anthropicAnswer(context: DecodeContext) {
  const origin = { provider: context.provider, model: context.model, dialect: "anthropic-messages" };
  let events: ChatEvent[] = [];
  const open = new Map<unknown, OpenBlock>();
  const callIds = new Set<string>();
  const whole = pairedText();
  let nextIndex = 0;
  let counts: JsonObject = {};
  let usageText = "";
  let finishWord = "";
  let finished = false;

  const read = (event: JsonObject, source: string): void => {
    switch (event["type"]) {
      case "message_start":
        readWhole(objectOf(event["message"]), memberSlices(source).get("message") ?? "{}");
        return;
      case "content_block_start":
        closeAll();
        start(event["index"], memberSlices(source).get("content_block") ?? "{}");
        return;
      case "content_block_delta":
        readDelta(event["index"], objectOf(event["delta"]), source);
        return;
      case "content_block_stop":
        close(event["index"]);
        return;
      case "message_delta":
        finishWord = textOf(objectOf(event["delta"])["stop_reason"]) || finishWord;
        readUsage(event["usage"]);
        return;
      case "message_stop":
        finish();
        return;
      default:
      // `ping` and whatever is new say nothing of the answer.
    }
  };

  /** A message with all or none of its content: a body, or the start of a stream. */
  const readWhole = (message: JsonObject, source: string): void => {
    const id = textOf(message["id"]);
    const model = textOf(message["model"]);
    if (id !== "" || model !== "") {
      events.push({
        type: "response",
        ...(id === "" ? {} : { id }),
        ...(model === "" ? {} : { model }),
        ...(context.upstreamRequestId === undefined ? {} : { upstreamRequestId: context.upstreamRequestId }),
      });
    }
    for (const [index, block] of elementSlices(memberSlices(source).get("content") ?? "[]").entries()) {
      start(index, block);
      close(index);
    }
    finishWord = textOf(message["stop_reason"]) || finishWord;
    readUsage(message["usage"]);
  };

  const readUsage = (report: unknown): void => {
    counts = laterCounts(counts, report);
    const usage = usageFromAnthropicMessages(counts);
    const text = JSON.stringify(usage);
    if (usage === undefined || text === usageText) return;
    usageText = text;
    events.push({ type: "usage", usage });
  };

  const start = (wireIndex: unknown, source: string): OpenBlock => {
    const value = objectOf(parseJson(source));
    const block: OpenBlock = {
      index: nextIndex++,
      type: textOf(value["type"]),
      start: value,
      source,
      added: new Map(),
      citations: [],
      text: "",
      signature: "",
      input: "",
      grown: false,
    };
    open.set(wireIndex, block);
    if (block.type === "text") addText(block, textOf(value["text"]));
    if (block.type === "thinking") addText(block, textOf(value["thinking"]));
    if (block.type === "thinking") block.signature = textOf(value["signature"]);
    if (block.type === "tool_use") startCall(block);
    return block;
  };

  const startCall = (block: OpenBlock): void => {
    const name = textOf(block.start["name"]);
    if (name === "") throw unreadable("a tool call without a name", block.source, context);
    const given = textOf(block.start["id"]);
    const id = given === "" || callIds.has(given) ? context.createToolCallId() : given;
    callIds.add(id);
    events.push({ type: "tool-call-start", index: block.index, id, name });
  };

  const readDelta = (wireIndex: unknown, delta: JsonObject, source: string): void => {
    const type = textOf(delta["type"]);
    const block = open.get(wireIndex) ?? startUnannounced(wireIndex, type, source);
    block.grown = true;
    if (type === "input_json_delta") {
      const text = textOf(delta["partial_json"]);
      block.input += text;
      if (block.type === "tool_use") addArguments(block, text);
    } else if (type === "signature_delta" && block.type === "thinking") {
      block.signature += textOf(delta["signature"]);
    } else if (type === "text_delta" && block.type === "text") {
      addText(block, textOf(delta["text"]));
    } else if (type === "thinking_delta" && block.type === "thinking") {
      addText(block, textOf(delta["thinking"]));
    } else if (type === "citations_delta") {
      const citation = memberSlices(memberSlices(source).get("delta") ?? "{}").get("citation");
      if (citation !== undefined) block.citations.push(citation);
    } else {
      for (const [name, value] of Object.entries(delta)) {
        if (name === "type" || typeof value !== "string") continue;
        block.added.set(name, (block.added.get(name) ?? textOf(block.start[name])) + value);
      }
    }
  };

  /** Text and thinking whose start got lost on the way can still be read; anything else cannot. */
  const startUnannounced = (wireIndex: unknown, deltaType: string, source: string): OpenBlock => {
    const type = deltaType === "text_delta" ? "text" : deltaType === "thinking_delta" ? "thinking" : undefined;
    if (type === undefined) throw unreadable("a delta of a block that is not open", source, context);
    closeAll();
    return start(wireIndex, `{"type":"${type}","${type}":""}`);
  };

  const addText = (block: OpenBlock, added: string): void => {
    const text = whole.add(block.index, added);
    if (text === "") return;
    block.text += text;
    const type = block.type === "text" ? "text-delta" : "thinking-delta";
    const last = events.at(-1);
    if (last?.type === type && last.index === block.index)
      events[events.length - 1] = { ...last, text: last.text + text };
    else events.push({ type, index: block.index, text });
  };

  const addArguments = (block: OpenBlock, added: string): void => {
    const argumentsText = whole.add(block.index, added);
    if (argumentsText === "") return;
    const last = events.at(-1);
    if (last?.type === "tool-call-delta" && last.index === block.index) {
      events[events.length - 1] = { ...last, argumentsText: last.argumentsText + argumentsText };
    } else {
      events.push({ type: "tool-call-delta", index: block.index, argumentsText });
    }
  };

  const closeAll = (): void => {
    for (const wireIndex of [...open.keys()]) close(wireIndex);
  };

  const close = (wireIndex: unknown): void => {
    const block = open.get(wireIndex);
    if (block === undefined) return;
    open.delete(wireIndex);
    switch (block.type) {
      case "text":
        closeText(block);
        return;
      case "thinking":
        closeThinking(block);
        return;
      case "redacted_thinking":
        events.push({
          type: "block",
          index: block.index,
          block: {
            type: "redacted_thinking",
            data: textOf(block.start["data"]),
            ...origin,
            raw: Buffer.from(block.source, "utf8"),
          },
        });
        return;
      case "tool_use":
        closeCall(block);
        return;
      default:
        closeUnknown(block);
    }
  };

  /**
   * A signature is handed on when its block is closed: half of one, kept in a history, would have every later request
   * refused, where thinking without a signature is just left out.
   */
  const closeThinking = (block: OpenBlock): void => {
    const { index, text, signature } = block;
    if (text === "" && signature === "") return;
    if (signature !== "") events.push({ type: "signature-delta", index, signature });
    if (block.grown) return;
    events.push({
      type: "block",
      index,
      block: {
        type: "thinking",
        thinking: text,
        ...(signature === "" ? {} : { signature }),
        ...origin,
        raw: Buffer.from(block.source, "utf8"),
      },
    });
  };

  const closeText = (block: OpenBlock): void => {
    if (block.citations.length === 0 && !hasMore(block.start, ["type", "text"])) return;
    const changes = new Map([["text", JSON.stringify(block.text)]]);
    if (block.citations.length > 0) {
      const before = elementSlices(memberSlices(block.source).get("citations") ?? "[]");
      changes.set("citations", `[${[...before, ...block.citations].join(",")}]`);
    }
    if (block.text !== "") keep(block, block.grown ? changes : new Map());
  };

  const closeCall = (block: OpenBlock): void => {
    if (block.input === "") {
      const given = block.start["input"];
      const source = memberSlices(block.source).get("input") ?? "";
      block.input =
        typeof given === "string" ? given : isJsonObject(given) && Object.keys(given).length > 0 ? source : "";
      addArguments(block, block.input);
    }
    const { caller } = block.start;
    const names = ["type", "id", "name", "input"];
    if (objectOf(caller)["type"] === "direct") names.push("caller");
    if (!hasMore(block.start, names)) return;
    const input = block.input === "" ? "{}" : block.input;
    if (isJsonObject(parseJson(input))) keep(block, new Map([["input", input]]));
  };

  const closeUnknown = (block: OpenBlock): void => {
    const changes = new Map([...block.added].map(([name, text]) => [name, JSON.stringify(text)]));
    if (isJsonObject(parseJson(block.input))) changes.set("input", block.input);
    if (block.citations.length > 0) changes.set("citations", `[${block.citations.join(",")}]`);
    if (block.type !== "") keep(block, changes, block.index);
  };

  /** Keeps a block in its wire form, as it has to go back. */
  const keep = (block: OpenBlock, changes: ReadonlyMap<string, string>, index = nextIndex++): void => {
    const raw = Buffer.from(withMembers(block.source, changes), "utf8");
    events.push({ type: "block", index, block: { type: "unknown", unknownType: block.type, ...origin, raw } });
  };

  const finish = (): void => {
    closeAll();
    finished = true;
    events.push({
      type: "finish",
      finishReason: finishReasonOf(finishWord, callIds.size > 0),
      rawFinishReason: finishWord,
      ...(finishWord === "pause_turn" ? { continues: true } : {}),
    });
  };

  return {
    read,
    readWhole,
    finish,
    /** `finish` was called. */
    done: () => finished,
    /** A stop reason came and no block is open. */
    complete: () => finishWord !== "" && open.size === 0,
    take: (): ChatEvent[] => {
      const taken = events;
      events = [];
      return taken;
    },
  };
}

/** Whether a block says more than its plain members do. */
function hasMore(block: JsonObject, plain: readonly string[]): boolean {
  return Object.entries(block).some(
    ([name, value]) =>
      !plain.includes(name) && value !== null && !(Array.isArray(value) && arrayOf(value).length === 0),
  );
}

/** The JSON text of an object with some members replaced or added; the others stay as they were written. */
function withMembers(source: string, changes: ReadonlyMap<string, string>): string {
  if (changes.size === 0) return source;
  const members = new Map([...memberSlices(source), ...changes]);
  return `{${[...members].map(([name, value]) => `${JSON.stringify(name)}:${value}`).join(",")}}`;
}

/**
 * What the words of platform.claude.com/docs/en/build-with-claude/handling-stop-reasons mean here. `pause_turn` ends an
 * answer that is to be sent back for the model to go on.
 */
function finishReasonOf(word: string, hasCalls: boolean): FinishReason {
  if (word === "max_tokens" || word === "model_context_window_exceeded") return "length";
  if (word === "refusal") return "content_filter";
  return hasCalls ? "tool_calls" : "stop";
}
