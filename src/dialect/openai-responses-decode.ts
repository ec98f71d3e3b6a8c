import { AgentError } from "../chat/error.ts";
import type { ChatEvent } from "../chat/event.ts";
import type { FinishReason } from "../chat/finish-reason.ts";
import type { SseMessage } from "../stream/sse.ts";
import type { DecodeContext } from "./dialect.ts";
import { arrayOf, isJsonObject, type JsonObject, objectOf, parseJson, textOf } from "./json.ts";
import { elementSlices, memberSlices } from "./json-slices.ts";
import { usageFromOpenaiResponses } from "./openai-responses-usage.ts";
import { pairedText } from "./paired-text.ts";
import { readBatch } from "./read-batch.ts";
import { faultFromJson, type UpstreamFault, upstreamError } from "./upstream-error.ts";

/**
 * Reads a streamed answer: the events listed at developers.openai.com/api/reference, "Streaming events". An answer is
 * whole when one of its last events came: completed, incomplete or failed. Unknown events are passed over.
 */
export async function* decodeStream(
  messages: AsyncIterable<readonly SseMessage[]>,
  context: DecodeContext,
): AsyncGenerator<ChatEvent[]> {
  const answer = openaiResponsesAnswer(context);
  const read = (reading: typeof answer, message: SseMessage) => readMessage(reading, message, context);
  for await (const batch of messages) {
    const { events, failure } = readBatch(answer, batch, read);
    if (events.length > 0) yield events;
    if (failure !== undefined) throw failure.error;
    if (answer.done()) return;
  }
  throw new AgentError("provider_unavailable", `${context.provider}'s answer was cut off before its end`, {
    detail: { retryable: true, ...who(context) },
  });
}

/** Reads an answer that came as one JSON body. */
export function decodeWhole(bodyText: string, context: DecodeContext): ChatEvent[] {
  const body = parseJson(bodyText);
  if (!isJsonObject(body)) {
    throw faultIn(body, context) ?? unreadable("an answer that is no JSON object", bodyText, context);
  }
  const status = textOf(body["status"]);
  const output = body["output"];
  if (status !== "failed" && (body["error"] || !Array.isArray(output))) {
    const fault = faultFromJson(body);
    if (fault !== undefined) throw upstreamError(fault, context);
  }
  if (status === "queued" || status === "in_progress") {
    throw unreadable(`an answer that is not finished (${status})`, bodyText, context);
  }
  if (!Array.isArray(output) && status !== "failed") throw unreadable("an answer without output", bodyText, context);
  const answer = openaiResponsesAnswer(context);
  answer.finish(body, bodyText);
  return answer.take();
}

type Answer = ReturnType<typeof openaiResponsesAnswer>;

function readMessage(answer: Answer, message: SseMessage, context: DecodeContext): void {
  const data = message.data.trim();
  if (data === "" || data === "[DONE]") return;
  const event = parseJson(data);
  const type = (isJsonObject(event) ? textOf(event["type"]) : "") || (message.event ?? "");
  if (type === "error" || (type === "" && isJsonObject(event) && isJsonObject(event["error"]))) {
    throw upstreamError(faultFromJson(event) ?? { message: data, type: "", code: "" }, context);
  }
  if (isJsonObject(event)) {
    answer.read(type, event, data);
    return;
  }
  const told = faultIn(event, context);
  if (told !== undefined) throw told;
  if (type !== "keepalive" && type !== "ping" && !message.unterminated) {
    throw unreadable("an event that is no JSON object", data, context);
  }
}

function faultIn(value: unknown, context: DecodeContext): AgentError | undefined {
  const fault = faultFromJson(value);
  return fault === undefined ? undefined : upstreamError(fault, context);
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

/** One item of the output: a message, a call, reasoning, or something this reader has no name for. */
interface Item {
  /** Of its block. */
  readonly index: number;
  readonly type: string;
  callId: string;
  name: string;
  /** The id under which a call was announced; empty before that. */
  givenId: string;
  /** What was streamed of it. Of a call that is not announced yet it waits. */
  text: string;
  /** Of a message: the text streamed of each of its parts. */
  readonly parts: Map<unknown, string>;
  /** Of a message; some tell it only at its end. */
  phase: string;
  /** The phase its deltas told. */
  toldPhase: string;
  /** Of a call: its text is an empty object and not shown yet, since some gateways send one before the arguments. */
  isHeld: boolean;
  /** Of reasoning: which of its parts was shown last. */
  part: string;
  done: boolean;
}

type Delta = Extract<ChatEvent, { readonly type: "text-delta" | "reasoning-delta" | "tool-call-delta" }>;

/** The state of one answer: events of the wire in by `read`, ours out by `take`; `finish` closes it. */
function openaiResponsesAnswer(context: DecodeContext) {
  let events: ChatEvent[] = [];
  const whole = pairedText();
  const items: Item[] = [];
  /** By their place in the output: ids are not the same from event to event at some gateways. */
  const byPlace = new Map<string, Item>();
  let lastPlace = "";
  let refused = false;
  let finished = false;
  let responseText = "";
  let usageText = "";

  /** @param source the event as it came, for the parts of it that are kept byte for byte. */
  const read = (type: string, event: JsonObject, source: string): void => {
    switch (type) {
      case "response.created":
      case "response.in_progress":
      case "response.queued":
        readResponse(objectOf(event["response"]));
        return;
      case "response.output_item.added":
        openItem(placeOf(event), objectOf(event["item"]));
        return;
      case "response.output_item.done":
        closeItem(placeOf(event), objectOf(event["item"]), () => memberSlices(source).get("item") ?? "");
        return;
      case "response.refusal.delta":
        refused = true;
        addPart(event, textOf(event["delta"]));
        return;
      case "response.output_text.delta":
        addPart(event, textOf(event["delta"]));
        return;
      case "response.output_text.done":
        completePart(event, textOf(event["text"]));
        return;
      case "response.refusal.done":
        refused = true;
        completePart(event, textOf(event["refusal"]));
        return;
      case "response.reasoning_summary_text.delta":
        addReasoning(openFor(event, "reasoning"), `summary ${event["summary_index"] ?? 0}`, textOf(event["delta"]));
        return;
      case "response.reasoning_text.delta":
        addReasoning(openFor(event, "reasoning"), `content ${event["content_index"] ?? 0}`, textOf(event["delta"]));
        return;
      case "response.function_call_arguments.delta":
        addArguments(openFor(event, "function_call"), textOf(event["delta"]));
        return;
      case "response.function_call_arguments.done":
        completeArguments(openFor(event, "function_call"), textOf(event["arguments"]));
        return;
      case "response.completed":
      case "response.done":
      case "response.incomplete":
      case "response.failed":
      case "response.cancelled": {
        const response = objectOf(event["response"]);
        // Some end every answer with the same event.
        const isWorse = ["incomplete", "failed", "cancelled"].includes(textOf(response["status"]));
        const told = type === "response.done" ? "completed" : type.slice("response.".length);
        const status = isWorse ? response["status"] : told;
        finish({ ...response, status }, memberSlices(source).get("response") ?? "");
        return;
      }
    }
  };

  const readResponse = (response: JsonObject): void => {
    const id = textOf(response["id"]);
    const model = textOf(response["model"]);
    if ((id === "" && model === "") || responseText === JSON.stringify([id, model])) return;
    responseText = JSON.stringify([id, model]);
    events.push({
      type: "response",
      ...(id === "" ? {} : { id }),
      ...(model === "" ? {} : { model }),
      ...(context.upstreamRequestId === undefined ? {} : { upstreamRequestId: context.upstreamRequestId }),
    });
  };

  const readUsage = (value: unknown): void => {
    const usage = usageFromOpenaiResponses(value);
    if (usage === undefined || usageText === JSON.stringify(usage)) return;
    usageText = JSON.stringify(usage);
    events.push({ type: "usage", usage });
  };

  const placeOf = (event: JsonObject): string => {
    const index = event["output_index"];
    const id = textOf(event["item_id"]) || textOf(objectOf(event["item"])["id"]);
    lastPlace = typeof index === "number" ? `index ${index}` : id === "" ? lastPlace : `id ${id}`;
    return lastPlace;
  };

  const newItem = (place: string, type: string): Item => {
    const item: Item = {
      index: items.length,
      type,
      callId: "",
      name: "",
      givenId: "",
      text: "",
      parts: new Map(),
      phase: "",
      toldPhase: "",
      isHeld: false,
      part: "",
      done: false,
    };
    items.push(item);
    byPlace.set(place, item);
    return item;
  };

  /** The item a delta belongs to, whether or not it was announced; undefined where it is finished. */
  const openFor = (event: JsonObject, type: string): Item | undefined => {
    const place = placeOf(event);
    const known = byPlace.get(place);
    const item = known?.type === type ? known : newItem(place, type);
    return item.done ? undefined : item;
  };

  const openItem = (place: string, wire: JsonObject): Item => {
    const type = textOf(wire["type"]);
    const callId = textOf(wire["call_id"]);
    const known = byPlace.get(place);
    const same =
      known?.type === type && !known.done && (known.callId === "" || callId === "" || known.callId === callId);
    const item = same ? known : newItem(place, type);
    item.phase = textOf(wire["phase"]) || item.phase;
    if (type === "function_call") {
      item.callId ||= callId;
      item.name ||= textOf(wire["name"]);
      if (item.callId !== "" && item.name !== "") startCall(item);
    }
    return item;
  };

  /** Only a finished item is complete: its encrypted reasoning for one is not what the announcement had. */
  const closeItem = (place: string, wire: JsonObject, source: () => string): void => {
    const type = textOf(wire["type"]);
    const before = byPlace.get(place);
    const isOther = type === "function_call" && before?.callId !== textOf(wire["call_id"]);
    if (type === "" || (before?.type === type && before.done && !isOther)) return;
    const item = openItem(place, wire);
    if (type === "message") closeMessage(item, wire);
    else if (type === "function_call") {
      startCall(item);
      completeArguments(item, textOf(wire["arguments"]));
    } else if (type === "reasoning") closeReasoning(item, wire, source());
    else {
      const origin = { provider: context.provider, dialect: "openai-responses", raw: Buffer.from(source()) };
      events.push({ type: "block", index: item.index, block: { type: "unknown", unknownType: type, ...origin } });
    }
    item.done = true;
  };

  const closeMessage = (item: Item, wire: JsonObject): void => {
    const parts = arrayOf(wire["content"]).map(objectOf);
    if (parts.some((part) => part["type"] === "refusal")) refused = true;
    const text = parts.map((part) => textOf(part["text"]) || textOf(part["refusal"])).join("");
    addText(item, missingOf(text, item.text));
    if (item.text !== "" && item.phase !== item.toldPhase) {
      events.push({ type: "text-delta", index: item.index, text: "", phase: item.phase });
    }
  };

  const closeReasoning = (item: Item, wire: JsonObject, source: string): void => {
    const content = arrayOf(wire["content"]).map((part) => textOf(objectOf(part)["text"]));
    const summary = arrayOf(wire["summary"]).map((part) => textOf(objectOf(part)["text"]));
    const encrypted = textOf(wire["encrypted_content"]);
    const id = textOf(wire["id"]);
    const shown = content.join("") === "" ? summary : content;
    if (item.text === "") addDelta({ type: "reasoning-delta", index: item.index, text: shown.join(partBreak) });
    events.push({
      type: "block",
      index: item.index,
      block: {
        type: "reasoning",
        content: content.join("").toWellFormed(),
        ...(encrypted === "" ? {} : { encrypted }),
        summary: summary.map((text) => text.toWellFormed()),
        ...(id === "" ? {} : { id }),
        provider: context.provider,
        dialect: "openai-responses",
        raw: Buffer.from(source),
      },
    });
  };

  /** What a delta adds to one of the parts of a message. */
  const addPart = (event: JsonObject, text: string): void => {
    const item = openFor(event, "message");
    if (item === undefined || text === "") return;
    const part = event["content_index"] ?? 0;
    item.parts.set(part, (item.parts.get(part) ?? "") + text);
    addText(item, text);
  };

  /** A part of a message is told as a whole at its end, by some only there. */
  const completePart = (event: JsonObject, text: string): void => {
    const item = openFor(event, "message");
    addPart(event, missingOf(text, item?.parts.get(event["content_index"] ?? 0) ?? ""));
  };

  const addText = (item: Item | undefined, text: string): void => {
    if (item === undefined || text === "") return;
    item.text += text;
    item.toldPhase = item.phase;
    const { index, phase } = item;
    addDelta({ type: "text-delta", index, text, ...(phase === "" ? {} : { phase }) });
  };

  /** Shown while it comes; what goes back is read from the finished item. Of summary and text only one is shown. */
  const addReasoning = (item: Item | undefined, part: string, text: string): void => {
    if (item === undefined || text === "") return;
    if (item.part !== "" && item.part.split(" ")[0] !== part.split(" ")[0]) return;
    const shown = item.part === "" || item.part === part ? text : partBreak + text;
    item.part = part;
    item.text += shown;
    addDelta({ type: "reasoning-delta", index: item.index, text: shown });
  };

  const startCall = (item: Item): void => {
    if (item.givenId !== "") return;
    if (item.name === "") throw unreadable("a tool call without a name", item.text || item.callId, context);
    const isTaken = item.callId === "" || items.some((other) => other.givenId === item.callId);
    item.givenId = isTaken ? context.createToolCallId() : item.callId;
    events.push({ type: "tool-call-start", index: item.index, id: item.givenId, name: item.name });
    if (!item.isHeld) addDelta({ type: "tool-call-delta", index: item.index, argumentsText: item.text });
  };

  const addArguments = (item: Item | undefined, added: string): void => {
    if (item === undefined || added === "") return;
    if (item.text === "" && added.trim() === "{}") {
      item.text = added;
      item.isHeld = true;
      return;
    }
    const begins = item.isHeld && added.trimStart().startsWith("{");
    const argumentsText = item.isHeld && !begins ? item.text + added : added;
    item.text = begins ? added : item.text + added;
    item.isHeld = false;
    if (item.givenId !== "") addDelta({ type: "tool-call-delta", index: item.index, argumentsText });
  };

  const completeArguments = (item: Item | undefined, argumentsText: string): void => {
    const isEmpty = argumentsText.trim() === "{}";
    addArguments(item, item?.isHeld && !isEmpty ? argumentsText : missingOf(argumentsText, item?.text ?? ""));
    if (item !== undefined) releaseArguments(item);
  };

  /** Nothing more of a call's arguments follows. */
  const releaseArguments = (item: Item): void => {
    if (!item.isHeld || item.givenId === "") return;
    item.isHeld = false;
    addDelta({ type: "tool-call-delta", index: item.index, argumentsText: item.text });
  };

  /** Halves of surrogate pairs wait for their other half, and neighbours of one block that came in one read are one. */
  const addDelta = (delta: Delta): void => {
    const { index } = delta;
    const last = events.at(-1);
    if (delta.type === "tool-call-delta") {
      const argumentsText = whole.add(index, delta.argumentsText);
      if (argumentsText === "") return;
      if (last?.type === delta.type && last.index === index) {
        events[events.length - 1] = { ...last, argumentsText: last.argumentsText + argumentsText };
      } else events.push({ ...delta, argumentsText });
      return;
    }
    const text = whole.add(index, delta.text);
    if (text === "") return;
    if (last?.type === delta.type && last.index === index) {
      events[events.length - 1] = { ...last, ...delta, text: last.text + text };
    } else events.push({ ...delta, text });
  };

  /** @param source the response as it came. */
  const finish = (response: JsonObject, source: string): void => {
    const status = textOf(response["status"]);
    readResponse(response);
    readUsage(response["usage"]);
    if (status === "failed" || status === "cancelled") throw upstreamError(faultOfResponse(response, status), context);
    readMissing(arrayOf(response["output"]).map(objectOf), source);
    for (const item of items) {
      if (item.type !== "function_call") continue;
      startCall(item);
      releaseArguments(item);
    }
    finished = true;
    const reason = textOf(objectOf(response["incomplete_details"])["reason"]);
    const rawFinishReason = reason || status;
    events.push({ type: "finish", finishReason: finishReasonOf(status, reason), rawFinishReason });
  };

  /**
   * Items that only the end tells of. Where items were streamed the end may hold none, or hold them in other places, so
   * of those only what is surely new is read: calls of other ids, and kinds of items that were not there.
   */
  const readMissing = (output: readonly JsonObject[], source: string): void => {
    const streamed = [...items];
    let sources: string[] | undefined;
    for (const [place, wire] of output.entries()) {
      const key = `index ${place}`;
      const known = byPlace.get(key);
      const type = textOf(wire["type"]);
      const callId = textOf(wire["call_id"]);
      const isCall = type === "function_call" && callId !== "";
      const open = known?.type === type && (!isCall || known.callId === "" || known.callId === callId);
      const seen = streamed.some((item) => (isCall ? item.callId === callId : item.type === type));
      if (open ? known.done : seen) continue;
      closeItem(open || known === undefined ? key : `end ${place}`, wire, () => {
        sources ??= elementSlices(memberSlices(source).get("output") ?? "");
        return sources[place] ?? "";
      });
    }
  };

  const finishReasonOf = (status: string, reason: string): FinishReason => {
    if (status === "incomplete") return reason === "content_filter" ? "content_filter" : "length";
    if (refused) return "content_filter";
    return items.some((item) => item.type === "function_call") ? "tool_calls" : "stop";
  };

  return {
    read,
    finish,
    /** The answer has ended. */
    done: () => finished,
    take: (): ChatEvent[] => {
      const taken = events;
      events = [];
      return taken;
    },
  };
}

/** Between the parts of reasoning, where they are shown as one text. */
const partBreak = "\n\n";

/** What a text that was streamed lacks of its final form. Where they differ, what was shown stays. */
function missingOf(text: string, streamed: string): string {
  return text.startsWith(streamed) ? text.slice(streamed.length) : "";
}

/** Of the codes a failed response may have, those that speak of its input are the request's fault. */
function faultOfResponse(response: JsonObject, status: string): UpstreamFault {
  const fault = faultFromJson({ error: response["error"] }) ?? { message: "", type: "", code: "" };
  if (fault.type !== "") return fault;
  if (fault.message === "" && fault.code === "") return { ...fault, message: `a ${status} response without words` };
  return /image|policy|prompt/.test(fault.code) ? { ...fault, type: "invalid_request_error" } : fault;
}
