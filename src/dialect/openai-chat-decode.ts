import { AgentError } from "../chat/error.ts";
import type { ChatEvent } from "../chat/event.ts";
import type { FinishReason } from "../chat/finish-reason.ts";
import type { SseMessage } from "../stream/sse.ts";
import type { DecodeContext } from "./dialect.ts";
import { arrayOf, isJsonObject, type JsonObject, objectOf, parseJson, textOf } from "./json.ts";
import { elementSlices, memberSlices } from "./json-slices.ts";
import { usageFromOpenaiChat } from "./openai-chat-usage.ts";
import { pairedText } from "./paired-text.ts";
import { readBatch } from "./read-batch.ts";
import { encryptedIn, reasoningDetails } from "./reasoning-details.ts";
import { type TaggedPiece, thinkTags } from "./think-tags.ts";
import { faultFromJson, upstreamError } from "./upstream-error.ts";

/** Reads a streamed answer. A stream is whole when it gave a finish reason or its `[DONE]`; one of them is enough. */
export async function* decodeStream(
  messages: AsyncIterable<readonly SseMessage[]>,
  context: DecodeContext,
): AsyncGenerator<ChatEvent[]> {
  const answer = openaiChatAnswer(context);
  const read = (reading: typeof answer, message: SseMessage) => readMessage(reading, message, context);
  for await (const batch of messages) {
    const { events, failure } = readBatch(answer, batch, read);
    if (events.length > 0) yield events;
    if (failure !== undefined) throw failure.error;
    if (answer.done()) return;
  }
  if (!answer.finished()) throw cutOff(context);
  let failure: unknown;
  try {
    answer.finish();
  } catch (error) {
    failure = error;
  }
  yield answer.take();
  if (failure !== undefined) throw failure;
}

/** Reads an answer that came as one JSON body. */
export function decodeWhole(bodyText: string, context: DecodeContext): ChatEvent[] {
  const body = parseJson(bodyText);
  if (!isJsonObject(body))
    throw faultIn(body, context) ?? unreadable("an answer that is no JSON object", bodyText, context);
  const answer = openaiChatAnswer(context);
  answer.read(body, bodyText);
  if (arrayOf(body["choices"]).length === 0) throw unreadable("an answer without choices", bodyText, context);
  answer.finish();
  return answer.take();
}

type Answer = ReturnType<typeof openaiChatAnswer>;

function readMessage(answer: Answer, message: SseMessage, context: DecodeContext): void {
  const data = message.data.trim();
  if (data === "") return;
  if (data === "[DONE]") {
    answer.finish();
    return;
  }
  const chunk = parseJson(data);
  if (message.event === "error") {
    const fault = faultFromJson(chunk) ?? { message: data, type: "", code: "" };
    throw upstreamError(fault, context);
  }
  if (isJsonObject(chunk)) {
    answer.read(chunk, data);
    return;
  }
  const told = faultIn(chunk, context);
  if (told !== undefined) throw told;
  if (!message.unterminated) throw unreadable("an event that is no JSON object", data, context);
}

function faultIn(value: unknown, context: DecodeContext): AgentError | undefined {
  const fault = faultFromJson(value);
  return fault === undefined ? undefined : upstreamError(fault, context);
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

type Delta = Extract<ChatEvent, { readonly type: "text-delta" | "thinking-delta" | "tool-call-delta" }>;

interface ToolCall {
  readonly index: number;
  id: string;
  name: string;
  /** What came before the call could be announced. */
  held: string;
  argumentsText: string;
  started: boolean;
  /** An empty object that is held back: some gateways send one before the arguments. */
  emptyObject: string;
}

/** The state of one answer: chunks in by `read`, events out by `take`; `finish` closes it. */
function openaiChatAnswer(context: DecodeContext) {
  const origin = { provider: context.provider, model: context.model, dialect: "openai-chat" };
  let events: ChatEvent[] = [];
  const at = blockCursor();
  const whole = pairedText();
  const tags = context.quirks.thinkTags ? thinkTags() : undefined;
  const calls = new Map<string, ToolCall>();
  const allCalls: ToolCall[] = [];
  let lastCall: ToolCall | undefined;
  let choiceIndex: unknown;
  let finishWord = "";
  let doneSeen = false;
  let said = false;
  /** Text or a call has begun. */
  let answered = false;
  let thinkingField = "";
  /** Their URLs: a stream's end may repeat what was streamed. */
  const images = new Set<string>();
  const details = reasoningDetails();
  /** The `reasoning_details` of a whole answer, as they came. */
  let wholeDetails = "";
  let opaque = "";
  /** The thinking block that is being written. */
  let thinkingRuns = 0;
  let thinkingRun: { readonly index: number; text: string } | undefined;
  let responseId = "";
  let responseModel = "";
  let responseTold = false;
  let usageText = "";

  /** @param source the chunk as it came, for the parts of it that are kept byte for byte. */
  const read = (chunk: JsonObject, source: string): void => {
    readResponse(chunk);
    readUsage(chunk["usage"]);
    readUsage(objectOf(chunk["x_groq"])["usage"]);
    for (const [place, choice] of arrayOf(chunk["choices"]).entries()) {
      if (isJsonObject(choice)) readChoice(choice, () => choiceSlice(source, place));
    }
    const fault = faultIn(chunk, context);
    if (fault !== undefined) throw fault;
  };

  const readResponse = (chunk: JsonObject): void => {
    const id = textOf(chunk["id"]) || responseId;
    const model = textOf(chunk["model"]) || responseModel;
    if (responseTold && id === responseId && model === responseModel) return;
    if (id === "" && model === "") return;
    responseId = id;
    responseModel = model;
    responseTold = true;
    events.push({
      type: "response",
      ...(id === "" ? {} : { id }),
      ...(model === "" ? {} : { model }),
      ...(context.upstreamRequestId === undefined ? {} : { upstreamRequestId: context.upstreamRequestId }),
    });
  };

  const readUsage = (value: unknown): void => {
    const usage = usageFromOpenaiChat(value);
    if (usage === undefined) return;
    const text = JSON.stringify(usage);
    if (text === usageText) return;
    usageText = text;
    events.push({ type: "usage", usage });
  };

  /** Only one choice is read: the first that came. Nobody here asks for several. */
  const readChoice = (choice: JsonObject, source: () => string): void => {
    const index = choice["index"] ?? 0;
    choiceIndex ??= index;
    readUsage(choice["usage"]);
    if (index !== choiceIndex) return;
    const delta = choice["delta"];
    const message = choice["message"];
    if (isJsonObject(delta)) {
      readDelta(
        delta,
        (array) => details.add(array),
        () => memberOf(source(), "delta"),
      );
    }
    // A stream may repeat the whole message at its end; it counts only where nothing was streamed.
    if (isJsonObject(message) && !said) {
      const keepWhole = (array: string) => {
        wholeDetails = array;
      };
      readDelta(message, keepWhole, () => memberOf(source(), "message"));
    }
    const fault = faultIn({ error: choice["error"] }, context);
    if (fault !== undefined) throw fault;
    finishWord = textOf(choice["finish_reason"]) || finishWord;
    if (finishWord !== "") releaseArguments();
  };

  /** @param keepDetails takes the `reasoning_details` as they came. */
  const readDelta = (delta: JsonObject, keepDetails: (array: string) => void, source: () => string): void => {
    readThinking(delta);
    if (arrayOf(delta["reasoning_details"]).length > 0) keepDetails(memberOf(source(), "reasoning_details"));
    opaque += textOf(delta["reasoning_opaque"]);
    readContent(delta["content"]);
    addText("text", textOf(objectOf(delta["audio"])["transcript"]));
    addText("refusal", textOf(delta["refusal"]));
    for (const image of arrayOf(delta["images"])) addImage(objectOf(image));
    for (const call of arrayOf(delta["tool_calls"])) {
      if (isJsonObject(call)) readToolCall(call);
    }
    const legacyCall = delta["function_call"];
    if (isJsonObject(legacyCall)) readToolCall({ index: "function_call", function: legacyCall });
  };

  /** Gateways send the same thinking in several fields; the first field that says something is the one read. */
  const readThinking = (delta: JsonObject): void => {
    for (const field of thinkingField === "" ? thinkingFields(context) : [thinkingField]) {
      const text = field === "reasoning_details" ? detailsText(delta[field]) : textOf(delta[field]);
      if (text === "") continue;
      thinkingField = field;
      addThinking(text);
      return;
    }
  };

  const readContent = (content: unknown): void => {
    if (typeof content === "string") addTagged(content);
    else if (isJsonObject(content)) addText("text", JSON.stringify(content));
    for (const part of arrayOf(content)) {
      if (typeof part === "string") addTagged(part);
      const { type, text, thinking } = objectOf(part);
      if (type === "text" || type === "output_text") addTagged(textOf(text));
      if (type === "refusal") addText("refusal", textOf(objectOf(part)["refusal"]));
      if (type === "thinking") addThinking(typeof thinking === "string" ? thinking : partsText(thinking));
    }
  };

  /** Text that may have thinking in tags. */
  const addTagged = (text: string): void => {
    if (tags === undefined) {
      addText("text", text);
      return;
    }
    // What waits for the rest of its tag counts as said, too.
    said ||= text !== "";
    addPieces(tags.add(text));
  };

  const addPieces = (pieces: readonly TaggedPiece[]): void => {
    for (const { type, text } of pieces) {
      if (type === "thinking") addThinking(text);
      else addText("text", text);
    }
  };

  const addText = (key: "text" | "refusal", text: string): void => {
    if (text === "") return;
    releaseArguments();
    beginAnswer();
    const index = at(key);
    const paired = whole.add(index, text);
    if (paired !== "") pushDelta({ type: "text-delta", index, text: paired });
  };

  /** An image the model made (openrouter.ai/docs/features/multimodal/image-generation). */
  const addImage = (part: JsonObject): void => {
    const { image_url: image } = part;
    const url = textOf(image) || textOf(objectOf(image)["url"]);
    if (url === "" || images.has(url)) return;
    images.add(url);
    releaseArguments();
    beginAnswer();
    events.push({ type: "block", index: at(`image ${images.size}`), block: { type: "image", url } });
  };

  const addThinking = (text: string): void => {
    if (text === "") return;
    releaseArguments();
    said = true;
    thinkingRun ??= { index: at(`thinking ${thinkingRuns}`), text: "" };
    const { index } = thinkingRun;
    const paired = whole.add(index, text);
    thinkingRun.text += paired;
    if (paired !== "") pushDelta({ type: "thinking-delta", index, text: paired });
  };

  /** What comes late, with text or calls before it and nothing to read, waits for the end, so that it cuts no text. */
  const beginAnswer = (): void => {
    said = true;
    if (thinkingRun !== undefined || !answered) closeThinking();
    answered = true;
  };

  /**
   * Ends the thinking block that is being written, with what has to go back unchanged: `reasoning_opaque` as its
   * signature, `reasoning_details` as its raw form. Where there is nothing to read of it, it is a block of its own. Only
   * here, since half of a signature, kept in a history, would have every later request refused.
   */
  const closeThinking = (): void => {
    const array = wholeDetails === "" ? details.take() : wholeDetails;
    if (thinkingRun === undefined && array === undefined && opaque === "") return;
    const index = thinkingRun?.index ?? at(`thinking ${thinkingRuns}`);
    thinkingRuns++;
    const text = thinkingRun?.text ?? "";
    const signature = opaque === "" ? {} : { signature: opaque };
    if (array === undefined) {
      if (opaque !== "") events.push({ type: "signature-delta", index, signature: opaque });
    } else {
      const kept = { ...origin, raw: Buffer.from(array, "utf8") };
      const isReadable = text !== "" || opaque !== "";
      events.push({
        type: "block",
        index,
        block: isReadable
          ? { type: "thinking", thinking: text, ...signature, ...kept }
          : { type: "redacted_thinking", data: encryptedIn(array), ...kept },
      });
    }
    wholeDetails = "";
    opaque = "";
    thinkingRun = undefined;
  };

  /** Neighbours of one block that came in one read go on as one. */
  const pushDelta = (delta: Delta): void => {
    const last = events.at(-1);
    if (last?.type === "tool-call-delta" && last.type === delta.type && last.index === delta.index) {
      events[events.length - 1] = { ...last, argumentsText: last.argumentsText + delta.argumentsText };
    } else if (last?.type === "text-delta" && last.type === delta.type && last.index === delta.index) {
      events[events.length - 1] = { ...last, text: last.text + delta.text };
    } else if (last?.type === "thinking-delta" && last.type === delta.type && last.index === delta.index) {
      events[events.length - 1] = { ...last, text: last.text + delta.text };
    } else {
      events.push(delta);
    }
  };

  const readToolCall = (delta: JsonObject): void => {
    const id = textOf(delta["id"]);
    const called = objectOf(delta["function"]);
    const name = textOf(called["name"]);
    const given = called["arguments"];
    const argumentsText = isJsonObject(given) ? JSON.stringify(given) : textOf(given);
    if (id === "" && name === "" && argumentsText === "") return;
    addPieces(tags?.flush() ?? []);
    beginAnswer();
    const call = callOf(delta["index"], id, name, argumentsText);
    if (call !== lastCall) releaseArguments();
    lastCall = call;
    if (!call.started) {
      call.id ||= id;
      call.name ||= name;
    }
    call.argumentsText += argumentsText;
    if (call.started) {
      addArguments(call, argumentsText);
    } else {
      call.held += argumentsText;
      if (call.name !== "" && (call.id !== "" || call.held !== "")) startCall(call);
    }
  };

  /**
   * Which call a delta belongs to: by index, where it has a usable one, and else by id. Some endpoints give each of
   * several calls the same index, so a new id with a name begins a new call, as does a name with whole arguments
   * after whole arguments where there are no ids at all.
   */
  const callOf = (index: unknown, id: string, name: string, argumentsText: string): ToolCall => {
    const indexed = (typeof index === "number" && index >= 0) || typeof index === "string";
    const known = indexed ? calls.get(`index ${index}`) : id === "" ? lastCall : calls.get(`id ${id}`);
    const begins =
      known === undefined ||
      (name !== "" && id !== "" && known.id !== "" && id !== known.id) ||
      (name !== "" && id === "" && known.name !== "" && !indexed) ||
      (name !== "" && id === "" && argumentsText !== "" && parseJson(known.argumentsText) !== undefined);
    if (!begins) return known;
    const call: ToolCall = {
      index: at(`call ${allCalls.length}`),
      id: "",
      name: "",
      held: "",
      argumentsText: "",
      started: false,
      emptyObject: "",
    };
    allCalls.push(call);
    if (indexed) calls.set(`index ${index}`, call);
    if (id !== "") calls.set(`id ${id}`, call);
    return call;
  };

  const startCall = (call: ToolCall): void => {
    if (call.id === "" || allCalls.some((other) => other.started && other.id === call.id)) {
      call.id = context.createToolCallId();
    }
    call.started = true;
    events.push({ type: "tool-call-start", index: call.index, id: call.id, name: call.name });
    addArguments(call, call.held);
    call.held = "";
  };

  const addArguments = (call: ToolCall, added: string): void => {
    if (added === "") return;
    if (call.argumentsText === added && added.trim() === "{}") {
      call.emptyObject = added;
      return;
    }
    const begins = call.emptyObject !== "" && added.trimStart().startsWith("{");
    const text = begins ? added : call.emptyObject + added;
    if (begins) call.argumentsText = added;
    call.emptyObject = "";
    pushArguments(call, text);
  };

  /** What is held back of the last call: nothing more of its arguments follows directly. */
  const releaseArguments = (): void => {
    if (lastCall === undefined || lastCall.emptyObject === "") return;
    pushArguments(lastCall, lastCall.emptyObject);
    lastCall.emptyObject = "";
  };

  const pushArguments = (call: ToolCall, text: string): void => {
    const argumentsText = whole.add(call.index, text);
    if (argumentsText !== "") pushDelta({ type: "tool-call-delta", index: call.index, argumentsText });
  };

  const finish = (): void => {
    doneSeen = true;
    releaseArguments();
    addPieces(tags?.flush() ?? []);
    closeThinking();
    for (const call of allCalls) {
      if (call.started) continue;
      if (call.name === "") throw unreadable("a tool call without a name", call.held || call.id, context);
      startCall(call);
    }
    releaseArguments();
    const failure = failureWords.get(finishWord);
    if (failure !== undefined) throw upstreamError({ message: failure, type: "", code: "" }, context);
    events.push({
      type: "finish",
      finishReason: finishReasonOf(finishWord, allCalls.length > 0),
      rawFinishReason: finishWord,
    });
  };

  return {
    read,
    finish,
    /** Everything was read and `finish` was called. */
    done: () => doneSeen,
    /** A finish reason came; more may follow it. */
    finished: () => finishWord !== "",
    take: (): ChatEvent[] => {
      const taken = events;
      events = [];
      return taken;
    },
  };
}

/** The JSON text of a member, as it came. */
function memberOf(source: string, name: string): string {
  return memberSlices(source).get(name) ?? "";
}

function choiceSlice(source: string, place: number): string {
  return elementSlices(memberOf(source, "choices"))[place] ?? "";
}

/**
 * Words that end an answer which is not whole: DeepSeek's (api-docs.deepseek.com, "Create Chat Completion",
 * `finish_reason`), Z.ai's (docs.z.ai, "Chat Completion", `finish_reason`) and those of gateways.
 */
const failureWords: ReadonlyMap<string, string> = new Map([
  ["error", "the model stopped with an error"],
  ["insufficient_system_resource", "the answer was interrupted (insufficient_system_resource)"],
  ["network_error", "the answer was interrupted (network_error)"],
]);

/** Those of OpenAI, Mistral and Z.ai, and Gemini's own (ai.google.dev/api/generate-content, "FinishReason"). */
const lengthWords: ReadonlySet<string> = new Set([
  "length",
  "max_tokens",
  "model_length",
  "model_context_window_exceeded",
]);
const filterWords: ReadonlySet<string> = new Set([
  "content_filter",
  "content_filtered",
  "sensitive",
  "safety",
  "image_safety",
  "recitation",
  "blocklist",
  "prohibited_content",
  "spii",
  "refusal",
]);

/** What an answer holds says more than the word it ends with: forced calls end with `stop` at some endpoints. */
function finishReasonOf(told: string, hasCalls: boolean): FinishReason {
  const word = told.toLowerCase().replaceAll("-", "_");
  if (lengthWords.has(word)) return "length";
  if (filterWords.has(word)) return "content_filter";
  return hasCalls ? "tool_calls" : "stop";
}

function thinkingFields(context: DecodeContext): readonly string[] {
  return [context.quirks.thinkingField, "reasoning_content", "reasoning", "reasoning_text", "reasoning_details"];
}

function detailsText(details: unknown): string {
  let text = "";
  for (const detail of arrayOf(details))
    text += textOf(objectOf(detail)["text"]) || textOf(objectOf(detail)["summary"]);
  return text;
}

function partsText(parts: unknown): string {
  let text = "";
  for (const part of arrayOf(parts)) text += textOf(objectOf(part)["text"]);
  return text;
}

/**
 * Hands out block indexes. Text and thinking begin a new block when something else came between, so their order
 * survives; a tool call has its own key and keeps its index.
 */
function blockCursor(): (key: string) => number {
  const indexes = new Map<string, number>();
  let last = "";
  let next = 0;
  return (key) => {
    if (key !== last && !key.startsWith("call ")) indexes.delete(key);
    last = key;
    const index = indexes.get(key) ?? next++;
    indexes.set(key, index);
    return index;
  };
}
