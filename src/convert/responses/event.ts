import { AgentError } from "../../chat/error.ts";
import type { FinishReason } from "../../chat/finish-reason.ts";
import type { LogEvent, LogRecord, TurnError } from "../../chat/log-event.ts";
import type { ContentBlock } from "../../chat/message.ts";
import { toolResultText } from "../../chat/tool-result.ts";
import { holdsText } from "../openai/event.ts";
import { type SealableBlock, sealBlock, sealReasoning } from "../sealed-reasoning.ts";
import { type AskedResponse, askedFromTurn } from "./asked.ts";
import type { FunctionCallItem, ItemStatus, OutputItem, OutputTextPart } from "./item.ts";
import { itemId, messageItem, outputText, phaseToItem, reasoningItem, shownReasoning } from "./item.ts";
import { type ResponseBody, responseBody, responseEndings } from "./response.ts";
import { responseId } from "./response-id.ts";
import { type ResponseUsage, usageToResponses } from "./usage.ts";

interface Place {
  item_id: string;
  output_index: number;
}

type SummaryPart = { type: "summary_text"; text: string };

/** An event of a streamed answer in the shape of the Responses API, without its number. */
type Unnumbered =
  | {
      type:
        | "response.created"
        | "response.in_progress"
        | "response.completed"
        | "response.incomplete"
        | "response.failed";
      response: ResponseBody;
    }
  | { type: "response.output_item.added" | "response.output_item.done"; output_index: number; item: OutputItem }
  | ({
      type: "response.content_part.added" | "response.content_part.done";
      content_index: 0;
      part: OutputTextPart;
    } & Place)
  | ({ type: "response.output_text.delta"; content_index: 0; delta: string; logprobs: [] } & Place)
  | ({ type: "response.output_text.done"; content_index: 0; text: string; logprobs: [] } & Place)
  | ({
      type: "response.reasoning_summary_part.added" | "response.reasoning_summary_part.done";
      summary_index: 0;
      part: SummaryPart;
    } & Place)
  | ({ type: "response.reasoning_summary_text.delta"; summary_index: 0; delta: string } & Place)
  | ({ type: "response.reasoning_summary_text.done"; summary_index: 0; text: string } & Place)
  | ({ type: "response.function_call_arguments.delta"; delta: string } & Place)
  | ({ type: "response.function_call_arguments.done"; name: string; arguments: string } & Place);

/** An event of a streamed answer in the shape of the Responses API. */
export type ResponseEvent = Unnumbered & { sequence_number: number };

export interface ResponseFoldOptions {
  readonly sessionId: string;
  readonly turnId: string;
  /** When the turn was asked for, in milliseconds since 1970; `turn-started` has a better time. */
  readonly createdMs: number;
  /** What was asked for; absent means as `turn-started` has it. */
  readonly asked?: AskedResponse;
  /**
   * Somebody reads the events as they come: what they were shown can't be taken back. Otherwise only whole blocks are
   * read, and what a new attempt voids is gone.
   */
  readonly streams: boolean;
}

/** An item of the output, as far as it is. */
interface Shown {
  readonly kind: "message" | "reasoning" | "function_call";
  readonly id: string;
  readonly outputIndex: number;
  readonly step: number;
  status: ItemStatus;
  /** Text, thinking or arguments. */
  text: string;
  /** How much of the text the attempt that runs has said; less than all of it only where it says again what one before did. */
  saidLength: number;
  phase?: "commentary" | "final_answer";
  sealed?: string;
  readonly callId: string;
  readonly name: string;
}

/**
 * Folds the events of one turn, in order, into a response and the events it is streamed by
 * (developers.openai.com/api/reference, "Streaming events").
 *
 * A turn is one response. Its output has the items of all its steps in order: what the model thought, as a summary
 * whatever its form was, with our envelope where it was asked for; what it said, one message to a block of text; and the
 * calls left for the client. Where JSON was asked for, text waits for the end of the turn, since only the last answer has
 * the form that was asked for.
 *
 * What the server's own tools did is not shown, nor an answer that was rejected. Where envelopes are asked for, that goes
 * along in reasoning items that nobody can read: a client that keeps the conversation itself then sends back all of it.
 *
 * What was streamed can't be taken back. A new attempt at a step that says the same again adds nothing until it says
 * more; thinking of the one before stays, `incomplete` and without envelope. Where a new attempt says something else, or
 * a call was shown, the stream can't go on.
 *
 * A turn that was cancelled ends with `response.incomplete`, whose response says `cancelled`: there is no event of that name.
 */
export function responseFold(options: ResponseFoldOptions) {
  const { sessionId, turnId, streams } = options;
  let { asked, createdMs } = options;
  let askedModel = "";
  let answeredModel = "";
  let clientTools = new Set(asked?.tools.map(({ name }) => name));
  let begun = false;
  let count = 0;
  let step = 0;
  const shown: Shown[] = [];
  /** By the index of their blocks in the step; a block that is not shown has none. */
  let blocks = new Map<number, Shown | undefined>();
  /** Messages of an attempt that was voided, in order, which this one has to say again. */
  let unsaid: Shown[] = [];
  let hidesReasoning = false;
  /** Text waits until it is known whether it is of the last answer. */
  let holds = asked !== undefined && isJson(asked);
  /** Blocks of the step that are not shown, or not yet. */
  let waiting: SealableBlock[] = [];
  let finishReason: FinishReason | undefined;
  let finishedMs: number | undefined;
  let failure: TurnError | undefined;
  let usage: ResponseUsage | undefined;

  const snapshot = (): ResponseBody =>
    responseBody(asked ?? { options: {}, tools: [] }, {
      id: responseId(sessionId, turnId),
      createdMs,
      finishedMs,
      model: answeredModel || askedModel,
      output: shown.map(itemOf),
      finishReason,
      error: failure,
      usage,
    });
  const begin = (): Unnumbered[] => {
    if (begun) return [];
    begun = true;
    const response = snapshot();
    return [
      { type: "response.created", response },
      { type: "response.in_progress", response },
    ];
  };

  const open = (kind: Shown["kind"], call = { id: "", name: "" }): [Shown, Unnumbered[]] => {
    const begins = begin();
    const outputIndex = shown.length;
    const id = itemId(kind === "message" ? "msg" : kind === "reasoning" ? "rs" : "fc", turnId, outputIndex);
    const status = "in_progress";
    const one: Shown = {
      ...{ kind, id, outputIndex, step, status, text: "", saidLength: 0 },
      ...{ callId: call.id, name: call.name },
    };
    shown.push(one);
    return [one, [...begins, { type: "response.output_item.added", output_index: outputIndex, item: itemOf(one) }]];
  };
  const firstPart = (one: Shown): Unnumbered[] => {
    if (one.kind === "message")
      return [{ type: "response.content_part.added", ...placeOf(one), content_index: 0, part: outputText("") }];
    if (one.kind === "function_call") return [];
    const part: SummaryPart = { type: "summary_text", text: "" };
    return [{ type: "response.reasoning_summary_part.added", ...placeOf(one), summary_index: 0, part }];
  };
  /** Adds what an attempt says next; what was shown of it before is passed over. */
  const say = (one: Shown, piece: string): Unnumbered[] => {
    const again = one.text.slice(one.saidLength, one.saidLength + piece.length);
    if (!piece.startsWith(again)) throw begunAnew();
    one.saidLength += piece.length;
    const rest = piece.slice(again.length);
    if (rest === "") return [];
    if (one.status !== "in_progress") throw begunAnew();
    const part = one.text === "" ? firstPart(one) : [];
    one.text += rest;
    return [...part, deltaOf(one, rest)];
  };
  const close = (one: Shown, status: ItemStatus): Unnumbered[] => {
    if (one.status !== "in_progress") return [];
    one.status = status;
    return [...partsDone(one), { type: "response.output_item.done", output_index: one.outputIndex, item: itemOf(one) }];
  };

  /** The item of a block, opened where it is not yet; none where the block is not shown. */
  const itemFor = (index: number, type: ContentBlock["type"]): [Shown | undefined, Unnumbered[]] => {
    if (blocks.has(index)) return [blocks.get(index), []];
    const opened = openFor(type);
    blocks.set(index, opened[0]);
    return opened;
  };
  const openFor = (type: ContentBlock["type"]): [Shown | undefined, Unnumbered[]] => {
    const isText = type === "text";
    const isReasoning = type === "thinking" || type === "reasoning" || type === "redacted_thinking";
    if (isText ? holds : !isReasoning || hidesReasoning || waitsInOrder()) return [undefined, []];
    const before = flush();
    const again = isText ? unsaid.shift() : undefined;
    if (again !== undefined) return [again, before];
    const [one, events] = open(isText ? "message" : "reasoning");
    return [one, [...before, ...events]];
  };
  /** Where text has to wait, what comes after it in the same answer waits too, if a client is to have it all in order. */
  const waitsInOrder = (): boolean => holds && asked?.seals === true && waiting.length > 0;
  /** What is not shown goes along before what is. */
  const flush = (): Unnumbered[] => (holds ? [] : endStep("more"));
  const startCall = (index: number, id: string, name: string): Unnumbered[] => {
    if (!clientTools.has(name) || waitsInOrder()) {
      blocks.set(index, undefined);
      return [];
    }
    const before = flush();
    const [one, events] = open("function_call", { id, name });
    blocks.set(index, one);
    return [...before, ...events];
  };
  const addDelta = (event: Extract<LogEvent, { type: "block-delta" }>): Unnumbered[] => {
    const { delta } = event;
    if (delta.type === "signature") return [];
    if (delta.type === "input_json") {
      const call = blocks.get(event.index);
      return call === undefined ? [] : say(call, delta.inputJson);
    }
    const text = delta.type === "text" ? delta.text : delta.type === "thinking" ? delta.thinking : delta.reasoning;
    if (text === "") return [];
    const [one, events] = itemFor(event.index, delta.type);
    return one === undefined ? events : [...events, ...say(one, text)];
  };
  /** What of a block its deltas did not have, and its end. Where the two differ, what was shown stays. */
  const finishBlock = (index: number, block: ContentBlock): Unnumbered[] => {
    switch (block.type) {
      case "text": {
        if (holds && block.text !== "") waiting.push(block);
        if (block.text === "" && !blocks.has(index)) return [];
        const [one, events] = itemFor(index, "text");
        if (one === undefined) return events;
        const phase = phaseToItem(block.phase);
        if (phase !== undefined && one.status === "in_progress") one.phase = phase;
        return [...events, ...finish(one, block.text)];
      }
      case "thinking":
      case "redacted_thinking":
      case "reasoning": {
        const text = shownReasoning(block);
        const seals = asked?.seals === true;
        if (text === "" && !seals && !blocks.has(index)) return [];
        const [one, events] = itemFor(index, block.type);
        if (one === undefined && holds) waiting.push(block);
        if (one === undefined) return events;
        if (seals) one.sealed = sealReasoning(block);
        return [...events, ...finish(one, text)];
      }
      case "tool_use": {
        const events = blocks.has(index) ? [] : startCall(index, block.id, block.name);
        const one = blocks.get(index);
        if (one === undefined) waiting.push(block);
        return one === undefined ? events : [...events, ...finish(one, block.input)];
      }
      case "unknown":
        waiting.push(block);
        return [];
      case "tool_result":
      case "image":
      case "file":
      case "audio":
        return [];
      default:
        return block satisfies never;
    }
  };
  const finish = (one: Shown, text: string): Unnumbered[] => {
    const said = one.text.slice(0, one.saidLength);
    const rest = text.startsWith(said) ? say(one, text.slice(said.length)) : [];
    if (one.saidLength < one.text.length) throw begunAnew();
    return [...rest, ...close(one, "completed")];
  };

  const seal = (block: SealableBlock): Unnumbered[] => {
    if (asked?.seals !== true) return [];
    const [one, events] = open("reasoning");
    one.sealed = sealBlock(block);
    const isReasoning = block.type === "thinking" || block.type === "redacted_thinking" || block.type === "reasoning";
    return [...events, ...finish(one, isReasoning ? shownReasoning(block) : "")];
  };
  /** Tells what waits of the step. Text is shown where the turn ends with it. */
  const endStep = (next: "more" | "end"): Unnumbered[] => {
    const blocksOfStep = waiting;
    waiting = [];
    return blocksOfStep.flatMap((block) => {
      if (block.type === "tool_use" && clientTools.has(block.name)) {
        const [one, events] = open("function_call", block);
        return [...events, ...finish(one, block.input)];
      }
      if (block.type !== "text" || next === "more") return seal(block);
      const [one, events] = open("message");
      const phase = phaseToItem(block.phase);
      if (phase !== undefined) one.phase = phase;
      return [...events, ...finish(one, block.text)];
    });
  };

  const startStep = (event: Extract<LogEvent, { type: "step-started" }>): Unnumbered[] => {
    const isAnew = event.step === step && event.attempt > 1;
    if (isAnew) waiting = [];
    const before = endStep("more");
    step = event.step;
    answeredModel = `${event.provider}/${event.model}`;
    const voided = isAnew ? shown.filter((one) => one.step === event.step) : [];
    blocks = new Map();
    if (!streams) {
      shown.length -= voided.length;
      return [];
    }
    if (voided.some(({ kind }) => kind === "function_call")) throw begunAnew();
    unsaid = voided.filter(({ kind }) => kind === "message");
    // Thinking comes before what it led to, and that has been shown.
    hidesReasoning = unsaid.length > 0;
    for (const one of unsaid) one.saidLength = 0;
    return [
      ...begin(),
      ...before,
      ...voided.flatMap((one) => {
        if (one.kind !== "reasoning") return [];
        delete one.sealed;
        return close(one, "incomplete");
      }),
    ];
  };
  const endTurn = (event: Extract<LogEvent, { type: "turn-finished" }>, timeMs: number): Unnumbered[] => {
    const begins = begin();
    const unfinished = shown.flatMap((one) => close(one, "incomplete"));
    const last = event.error === undefined ? endStep("end") : [];
    finishReason = event.finishReason;
    finishedMs = timeMs;
    failure = event.error;
    usage = usageToResponses(event.usage);
    const { status } = responseEndings[event.finishReason];
    const type = status === "cancelled" ? "response.incomplete" : (`response.${status}` as const);
    return [...begins, ...unfinished, ...last, { type, response: snapshot() }];
  };
  const eventsOf = ({ event, timeMs }: LogRecord): Unnumbered[] => {
    switch (event.type) {
      case "turn-started":
        createdMs = timeMs;
        askedModel = event.model;
        if (asked === undefined) {
          asked = askedFromTurn(event);
          clientTools = new Set(asked.tools.map(({ name }) => name));
        }
        holds ||= holdsText(event);
        return begin();
      case "step-started":
        return startStep(event);
      case "block-start":
        return event.blockType === "tool_use" ? startCall(event.index, event.id ?? "", event.name ?? "") : [];
      case "block-delta":
        return streams ? addDelta(event) : [];
      case "block-stop":
        return finishBlock(event.index, event.block);
      case "step-finished": {
        const isWhole = event.finishReason !== "error" && event.finishReason !== "cancelled";
        if (isWhole && unsaid.length > 0) throw begunAnew();
        return [];
      }
      case "turn-finished":
        return endTurn(event, timeMs);
      case "tool-finished": {
        const { toolCallId: toolUseId, result } = event;
        const isError = result.success ? {} : { isError: true };
        const content = toolResultText(result);
        return [...endStep("more"), ...seal({ type: "tool_result", toolUseId, content, ...isError })];
      }
      case "notice":
        if (event.modelText === undefined) return [];
        return [...endStep("more"), ...seal({ type: "note", text: event.modelText })];
      case "tool-started":
      case "tool-output":
      case "request-opened":
      case "request-resolved":
      case "history-compacted":
      case "plan-step":
      case "tools-changed":
        return [];
      default:
        return event satisfies never;
    }
  };

  return {
    /**
     * Takes the next event of the turn and gives the events it makes, often none. A turn that failed makes
     * `response.failed`.
     * @throws {AgentError} `unavailable` where a stream can't go on.
     */
    push(record: LogRecord): ResponseEvent[] {
      return eventsOf(record).map((event) => ({ ...event, sequence_number: count++ }));
    },
    /** The response as far as it is. */
    snapshot,
    /** The number of the stream's next event. */
    get nextNumber(): number {
      return count;
    },
  };
}

function isJson({ options }: AskedResponse): boolean {
  return options.responseFormat !== undefined && options.responseFormat.type !== "text";
}

function itemOf(one: Shown): OutputItem {
  switch (one.kind) {
    case "message": {
      const item = messageItem(one.id, one.status, one.text, one.phase);
      return one.text === "" ? { ...item, content: [] } : item;
    }
    case "reasoning":
      return reasoningItem(one.id, one.status, one.text, one.status === "completed" ? one.sealed : undefined);
    case "function_call": {
      const { id, status, callId, name, text } = one;
      const item: FunctionCallItem = { id, type: one.kind, status, call_id: callId, name, arguments: text };
      return item;
    }
    default:
      return one.kind satisfies never;
  }
}

function placeOf({ id, outputIndex }: Shown): Place {
  return { item_id: id, output_index: outputIndex };
}

function deltaOf(one: Shown, delta: string): Unnumbered {
  const place = placeOf(one);
  switch (one.kind) {
    case "message":
      return { type: "response.output_text.delta", ...place, content_index: 0, delta, logprobs: [] };
    case "reasoning":
      return { type: "response.reasoning_summary_text.delta", ...place, summary_index: 0, delta };
    case "function_call":
      return { type: "response.function_call_arguments.delta", ...place, delta };
    default:
      return one.kind satisfies never;
  }
}

function partsDone(one: Shown): Unnumbered[] {
  const { kind, text, name } = one;
  const place = placeOf(one);
  if (kind === "function_call")
    return [{ type: "response.function_call_arguments.done", ...place, name, arguments: text }];
  if (text === "") return [];
  if (kind === "message")
    return [
      { type: "response.output_text.done", ...place, content_index: 0, text, logprobs: [] },
      { type: "response.content_part.done", ...place, content_index: 0, part: outputText(text) },
    ];
  const part: SummaryPart = { type: "summary_text", text };
  return [
    { type: "response.reasoning_summary_text.done", ...place, summary_index: 0, text },
    { type: "response.reasoning_summary_part.done", ...place, summary_index: 0, part },
  ];
}

function begunAnew(): AgentError {
  return new AgentError(
    "unavailable",
    "the model was asked anew in the middle of its answer and says something else now; what was streamed is void, ask again",
    { reason: "ANSWER_BEGUN_ANEW", detail: { retryable: true } },
  );
}
