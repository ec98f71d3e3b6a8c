import { AgentError } from "../../chat/error.ts";
import type { LogEvent } from "../../chat/log-event.ts";
import type { ContentBlock, ToolUseBlock } from "../../chat/message.ts";
import { type ToolResult, toolResultText } from "../../chat/tool-result.ts";
import { holdsText } from "../openai/event.ts";
import { thinkingOfBlock } from "../openai/message.ts";
import type { ReasoningLikeBlock, SealableBlock } from "../sealed-reasoning.ts";
import { sealBlock, sealReasoning } from "../sealed-reasoning.ts";
import type { AnthropicBlock, AnthropicMessage, AnthropicStreamEvent } from "./response.ts";
import { stopToAnthropic, usageToAnthropic } from "./response.ts";

export interface AnthropicAnswerOptions {
  readonly turnId: string;
  /** Told until a step says which model is asked. */
  readonly model: string;
  /** Functions the client runs itself; the calls of others are the server's own. */
  readonly clientTools: ReadonlySet<string>;
  readonly stopSequences: readonly string[];
  /** Somebody reads the events as they come, so that nothing can be taken back; else there are none. */
  readonly stream: boolean;
  /** Thinking is shown without its text. */
  readonly omitsThinking: boolean;
  /** A session keeps what the turn did, so that the client need not. */
  readonly isKept: boolean;
}

/** A block of the answer as it grows. */
interface Shown {
  readonly kind: "text" | "thinking" | "tool_use" | "redacted_thinking";
  /** What deltas add up to: a text, thinking or the JSON text of arguments. */
  text: string;
  /** Of a call. */
  readonly id: string;
  readonly name: string;
  /** Of redacted thinking. */
  readonly data: string;
  /** Of thinking that is complete. */
  signature: string | undefined;
  isClosed: boolean;
}

/** What an attempt at a step has shown, and how far the one that voids it has come in saying it again. */
interface Repetition {
  readonly blocks: readonly Shown[];
  position: number;
  /** In the text of the block at the position. */
  offset: number;
}

/**
 * Tells one turn in Anthropic's shape, from its events. A turn is one message: what the model says in all its steps, in
 * order. Of the server's own calls and results, which a client would try to run or answer, and of blocks that have no
 * counterpart, there is a `redacted_thinking` each: an envelope (`sealBlock`) that clients keep and send back, so that the
 * model goes on from all it did where no session keeps it. Signatures of thinking are envelopes as well, so that it goes
 * back to whoever wrote it, byte for byte.
 *
 * - Where JSON was asked for, text waits for the end, since only the last answer has the form that was asked for; texts
 *   before it go into envelopes.
 * - A new attempt at a step voids what was shown of it. In a stream that cannot be taken back: what comes again is not
 *   shown again, thinking alone stays and is never sent back, and anything else ends the stream.
 * - After the history was compacted amid a turn, its reasoning is shown but never sent back: it goes on from a history the
 *   client does not have.
 */
export function anthropicAnswer(options: AnthropicAnswerOptions) {
  const { clientTools, stream } = options;
  let { model } = options;
  const content: Shown[] = [];
  let events: AnthropicStreamEvent[] = [];
  let isStarted = false;
  /** Where the blocks of the attempt begin in the content. */
  let attemptStart = 0;
  let repetition: Repetition | undefined;
  let isJson = false;
  /** Blocks of the step that wait to be shown; absent while none has to. */
  let held: Shown[] | undefined;
  let current: Shown | undefined;
  /** Of the block of the log that is open: its text so far. */
  let said = "";
  let calls: ToolUseBlock[] = [];
  let results = new Map<string, ToolResult>();
  let notes: string[] = [];
  let isForgotten = false;
  let rawFinishReason = "";
  let ending = stopToAnthropic("stop", "", []);
  let usage = usageToAnthropic(undefined);

  const emit = (...added: AnthropicStreamEvent[]): void => {
    if (!stream) return;
    if (!isStarted) events.push({ type: "message_start", message: { ...messageNow(), content: [], ...notStopped } });
    isStarted = true;
    events.push(...added);
  };
  const messageNow = (): AnthropicMessage => ({
    id: `msg_${options.turnId}`,
    type: "message",
    role: "assistant",
    model,
    content: content.map(blockToAnthropic),
    ...ending,
    usage: { ...usage, cache_creation: null, inference_geo: null, service_tier: null, speed: null },
    container: null,
    diagnostics: null,
  });

  // Showing blocks. A block of thinking that is complete is closed by the next one, since an attempt that is voided
  // after nothing else must not have given its signature.

  const settle = (): void => {
    const last = content.at(-1);
    if (last === undefined || last.isClosed) return;
    last.isClosed = true;
    const index = content.length - 1;
    if (last.kind === "thinking") {
      const signature = last.signature ?? unsent();
      last.signature = signature;
      emit({ type: "content_block_delta", index, delta: { type: "signature_delta", signature } });
    }
    emit({ type: "content_block_stop", index });
  };
  const show = (block: Shown): void => {
    settle();
    content.push(block);
    emit({
      type: "content_block_start",
      index: content.length - 1,
      content_block: blockToAnthropic({ ...block, text: "", signature: "" }),
    });
    showText(block, block.text);
  };
  /** More text of the last block. */
  const showText = (block: Shown, text: string): void => {
    const delta = textDelta(block.kind, text);
    if (delta !== undefined) emit({ type: "content_block_delta", index: content.length - 1, delta });
  };
  /** The next block; whether it is shown, held or was shown before decides what becomes of it. */
  const open = (block: Shown): void => {
    close();
    current = block;
    if (held !== undefined) held.push(block);
    else if (repetition !== undefined) repeatBlock(repetition, block);
    else show(block);
  };
  const grow = (text: string): void => {
    if (current === undefined || text === "") return;
    if (held === undefined && repetition !== undefined) {
      repeatText(repetition, text);
      return;
    }
    current.text += text;
    if (held === undefined) showText(current, text);
  };
  const close = (signature?: string): void => {
    if (current === undefined) return;
    const block = current;
    current = undefined;
    if (held === undefined && repetition !== undefined) {
      repeatEnd(repetition, signature);
      return;
    }
    block.signature = signature;
    if (held === undefined && block.kind !== "thinking") settle();
  };
  const openWhole = (block: Shown, signature?: string): void => {
    open(block);
    close(signature);
  };
  const carry = (block: SealableBlock): void => {
    if (!options.isKept) openWhole(redacted(sealBlock(block)));
  };

  // What a new attempt says again.

  const repeatBlock = (before: Repetition, block: Shown): void => {
    const known = before.blocks[before.position];
    if (known === undefined) {
      // All there was has come again.
      repetition = undefined;
      show(block);
      return;
    }
    if (known.kind !== block.kind || known.id !== block.id || known.name !== block.name || known.data !== block.data)
      throw begunAnew();
    current = known;
    before.offset = 0;
    repeatText(before, block.text);
  };
  const repeatText = (before: Repetition, text: string): void => {
    const known = before.blocks[before.position];
    if (known === undefined) return;
    const repeated = known.text.slice(before.offset, before.offset + text.length);
    const rest = text.slice(repeated.length);
    if (!text.startsWith(repeated) || (rest !== "" && known.isClosed)) throw begunAnew();
    before.offset += text.length;
    known.text += rest;
    showText(known, rest);
  };
  const repeatEnd = (before: Repetition, signature: string | undefined): void => {
    const known = before.blocks[before.position];
    before.position++;
    if (known === undefined) return;
    if (before.offset < known.text.length) throw begunAnew();
    if (known.isClosed && known.signature !== signature) throw begunAnew();
    known.signature = signature;
    if (known.kind !== "thinking") settle();
  };
  const voidAttempt = (): void => {
    current = undefined;
    held = stream ? undefined : [];
    const blocks = content.slice(attemptStart);
    const isOnlyThinking = blocks.every(({ kind, isClosed }) => kind === "thinking" && !isClosed);
    if (isOnlyThinking) {
      const last = blocks.at(-1);
      if (last !== undefined) last.signature = unsent();
      settle();
      attemptStart = content.length;
    }
    repetition = isOnlyThinking || blocks.length === 0 ? undefined : { blocks, position: 0, offset: 0 };
  };
  const checkRepeated = (): void => {
    if (repetition !== undefined && repetition.position < repetition.blocks.length) throw begunAnew();
    repetition = undefined;
  };

  // What becomes of a step.

  const release = (isLast: boolean): void => {
    close();
    checkRepeated();
    const waiting = held ?? [];
    held = undefined;
    for (const block of waiting) {
      if (block.kind !== "text" || !isJson || isLast) openWhole(block, block.signature);
      else if (block.text !== "") carry({ type: "text", text: block.text });
    }
  };
  const endStep = (isLast: boolean): void => {
    release(isLast);
    for (const { id } of calls) {
      const result = results.get(id);
      if (result === undefined) continue;
      const isError = result.success ? {} : { isError: true };
      carry({ type: "tool_result", toolUseId: id, content: toolResultText(result), ...isError });
    }
    for (const text of notes) carry({ type: "note", text });
    calls = [];
    results = new Map();
    notes = [];
    attemptStart = content.length;
  };
  const endBlock = (block: ContentBlock): void => {
    switch (block.type) {
      case "text":
        growText("text", restOf(block.text, said));
        close();
        return;
      case "thinking":
      case "reasoning": {
        const whole = thinkingOfBlock(block);
        const isNothing = block.type === "thinking" && whole === "" && !block.signature && block.raw === undefined;
        if (isNothing) return;
        if (current === undefined) open(newShown("thinking"));
        if (!options.omitsThinking) grow(restOf(whole, said));
        close(isForgotten ? unsent() : sealReasoning(block));
        return;
      }
      case "redacted_thinking":
        if (!isForgotten) openWhole(redacted(sealReasoning(block)));
        return;
      case "tool_use":
        calls.push(block);
        if (!clientTools.has(block.name)) carry(block);
        else {
          if (current === undefined) open(newShown("tool_use", block));
          grow(restOf(block.input, said));
          close();
        }
        return;
      case "unknown":
        carry(block);
        return;
      case "tool_result":
      case "image":
      case "file":
      case "audio":
        return;
      default:
        block satisfies never;
    }
  };
  const growText = (kind: "text" | "thinking", text: string): void => {
    if (text === "") return;
    if (kind === "text" && isJson && held === undefined) held = [];
    if (current === undefined) open(newShown(kind));
    grow(text);
  };

  const read = (event: LogEvent): void => {
    switch (event.type) {
      case "turn-started":
        model = event.model || model;
        isJson = holdsText(event);
        return;
      case "step-started":
        if (event.attempt > 1) voidAttempt();
        else {
          endStep(false);
          held = stream ? undefined : [];
        }
        if (!isStarted) model = `${event.provider}/${event.model}`;
        calls = [];
        return;
      case "block-start":
        said = "";
        if (event.blockType === "tool_use" && clientTools.has(event.name ?? ""))
          open(newShown("tool_use", { id: event.id ?? "", name: event.name ?? "" }));
        return;
      case "block-delta": {
        const { delta } = event;
        if (delta.type === "signature") return;
        const text = deltaText(delta);
        said += text;
        if (delta.type === "input_json") grow(text);
        else if (delta.type === "text") growText("text", text);
        else if (!options.omitsThinking) growText("thinking", text);
        return;
      }
      case "block-stop":
        endBlock(event.block);
        said = "";
        return;
      case "step-finished":
        rawFinishReason = event.rawFinishReason;
        return;
      case "tool-finished":
        results.set(event.toolCallId, event.result);
        return;
      case "notice":
        if (event.modelText !== undefined) notes.push(event.modelText);
        return;
      case "history-compacted":
        isForgotten ||= event.droppedMessages > 0;
        return;
      case "turn-finished": {
        const { error } = event;
        if (error !== undefined) throw new AgentError(error.kind, error.message, error);
        endStep(true);
        settle();
        emit();
        ending = stopToAnthropic(event.finishReason, rawFinishReason, options.stopSequences);
        usage = usageToAnthropic(event.usage);
        emit({ type: "message_delta", delta: { ...ending, container: null }, usage }, { type: "message_stop" });
        return;
      }
      case "tool-started":
      case "tool-output":
      case "request-opened":
      case "request-resolved":
      case "plan-step":
      case "tools-changed":
        return;
      default:
        event satisfies never;
    }
  };

  return {
    /**
     * Takes the turn's next event and gives those it makes, often none.
     * @throws {AgentError} the turn's own error where it failed, and `unavailable` where a new attempt says something else
     * than what was shown.
     */
    push(event: LogEvent): AnthropicStreamEvent[] {
      events = [];
      read(event);
      return events;
    },
    /** The whole message; its last fields are known once the turn has finished. */
    message: messageNow,
  };
}

const notStopped = { stop_reason: null, stop_sequence: null, stop_details: null } as const;

function newShown(kind: Shown["kind"], call: { readonly id: string; readonly name: string } = noCall): Shown {
  return { kind, text: "", id: call.id, name: call.name, data: "", signature: undefined, isClosed: false };
}

const noCall = { id: "", name: "" };

function redacted(data: string): Shown {
  return { ...newShown("redacted_thinking"), data };
}

/** A signature of thinking that is never sent back: no provider reads this wire family. */
function unsent(): string {
  const nobodys: ReasoningLikeBlock = { type: "thinking", thinking: "", dialect: "none" };
  return sealReasoning(nobodys);
}

function restOf(whole: string, said: string): string {
  return whole.startsWith(said) ? whole.slice(said.length) : "";
}

function deltaText(delta: Exclude<Extract<LogEvent, { type: "block-delta" }>["delta"], { type: "signature" }>): string {
  switch (delta.type) {
    case "text":
      return delta.text;
    case "thinking":
      return delta.thinking;
    case "reasoning":
      return delta.reasoning;
    case "input_json":
      return delta.inputJson;
    default:
      return delta satisfies never;
  }
}

type Delta = Extract<AnthropicStreamEvent, { type: "content_block_delta" }>["delta"];

function textDelta(kind: Shown["kind"], text: string): Delta | undefined {
  if (text === "") return undefined;
  switch (kind) {
    case "text":
      return { type: "text_delta", text };
    case "thinking":
      return { type: "thinking_delta", thinking: text };
    case "tool_use":
      return { type: "input_json_delta", partial_json: text };
    case "redacted_thinking":
      return undefined;
    default:
      return kind satisfies never;
  }
}

function blockToAnthropic({ kind, text, id, name, data, signature = "" }: Shown): AnthropicBlock {
  switch (kind) {
    case "text":
      return { type: "text", text, citations: null };
    case "thinking":
      return { type: "thinking", thinking: text, signature };
    case "tool_use":
      return { type: "tool_use", id, name, input: argumentsOf(text), caller: { type: "direct" } };
    case "redacted_thinking":
      return { type: "redacted_thinking", data };
    default:
      return kind satisfies never;
  }
}

/** Arguments that were cut, or are none, are no object. */
function argumentsOf(input: string): unknown {
  try {
    const value: unknown = JSON.parse(input);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
  } catch {
    return {};
  }
}

function begunAnew(): AgentError {
  return new AgentError(
    "unavailable",
    "the model broke off amid its answer and says something else now; what was shown is void, ask again",
    { reason: "ANSWER_BEGUN_ANEW", detail: { retryable: true } },
  );
}
