import { AgentError } from "../../chat/error.ts";
import type { BlockDelta, LogEvent } from "../../chat/log-event.ts";
import type { ContentBlock } from "../../chat/message.ts";
import { thinkingOfBlock } from "./message.ts";
import type { ReasoningDetail } from "./reasoning-details.ts";
import type { CompletionFinishReason } from "./response.ts";
import { completionFinishReasons, completionId } from "./response.ts";
import type { CompletionUsage } from "./usage.ts";
import { usageToOpenAI } from "./usage.ts";

export interface ToolCallDelta {
  index: number;
  id?: string;
  type?: "function";
  function?: { name?: string; arguments?: string };
}

export interface ChatCompletionDelta {
  role?: "assistant";
  content?: string;
  /** Thinking in the open; not of OpenAI itself, but common among those who speak its shape. */
  reasoning_content?: string;
  /** What there is no form for, to be sent back with the message (`turnDetails`); in one chunk before the end's. */
  reasoning_details?: ReasoningDetail[];
  tool_calls?: ToolCallDelta[];
}

/** A piece of an answer in OpenAI's shape. */
export interface ChatCompletionChunk {
  id: string;
  object: "chat.completion.chunk";
  /** Seconds since 1970. */
  created: number;
  model: string;
  choices: {
    index: number;
    delta: ChatCompletionDelta;
    finish_reason: CompletionFinishReason | null;
    logprobs: null;
  }[];
  /** Only where usage was asked for: null until the last chunk, which has no choices. */
  usage?: CompletionUsage | null;
}

export interface ChunkOptions {
  readonly turnId: string;
  /** Told in each chunk; `turn-started` has a better one where it comes. */
  readonly model: string;
  /** When the turn was asked for, in milliseconds since 1970. */
  readonly createdMs: number;
  /** Names of the functions the client runs itself; other calls are the server's own and not shown. */
  readonly clientTools: ReadonlySet<string>;
  readonly includeUsage: boolean;
  /** What `holdsText` says of the turn, where its first event is not among those given. */
  readonly holdsText?: boolean;
  /** What goes along with the message, asked for at the end of the turn. */
  readonly details?: () => ReasoningDetail[] | undefined;
}

/** A block of the step that runs, and how much of it the client has. */
interface OpenBlock {
  sentText: string;
  /** Number of the call among those shown to the client. */
  readonly callIndex: number | undefined;
}

/** Whether the text of a turn is shown only at its end. */
export function holdsText({ options }: Extract<LogEvent, { type: "turn-started" }>): boolean {
  return options.responseFormat !== undefined && options.responseFormat.type !== "text";
}

/**
 * Turns the events of one turn, in order, into OpenAI's chunks: first the role, then text, thinking and the client's calls
 * as they come, then what goes along in one chunk (clients that put chunks together keep of fields they do not know the last
 * value only), then the reason of the end in a chunk of its own, then usage where it was asked for and is known.
 *
 * A turn is one answer: text of later steps goes on where the earlier ended, and what the server's own tools did is not
 * shown. What was sent cannot be taken back: text that a new attempt at a step voids stays, and a call that it voids ends
 * the stream. Where JSON was asked for, text waits for the end of the turn, since only the last answer has the form that
 * was asked for. Signatures, redacted and encrypted thinking, images and notices are not shown; `details` may hold them.
 * @returns takes an event and gives the chunks it makes, often none.
 * @throws {AgentError} from the returned function: the turn's own error where it failed, and `unavailable` where a new
 * attempt voids a call the client has seen.
 */
export function chunksFromLogEvents(options: ChunkOptions): (event: LogEvent) => ChatCompletionChunk[] {
  const { createdMs, clientTools, includeUsage } = options;
  let { model } = options;
  let started = false;
  let callCount = 0;
  let blocks = new Map<number, OpenBlock>();
  /** Text of the last answer, where it has to wait. */
  let held: ChatCompletionChunk[] | undefined = options.holdsText ? [] : undefined;

  const chunk = (
    choices: ChatCompletionChunk["choices"],
    usage: CompletionUsage | null = null,
  ): ChatCompletionChunk => ({
    id: completionId(options.turnId),
    object: "chat.completion.chunk",
    created: Math.floor(createdMs / 1000),
    model,
    choices,
    ...(includeUsage ? { usage } : {}),
  });
  const choice = (delta: ChatCompletionDelta, finish_reason: CompletionFinishReason | null = null) =>
    chunk([{ index: 0, delta, finish_reason, logprobs: null }]);
  const start = (): ChatCompletionChunk[] => {
    if (started) return [];
    started = true;
    return [choice({ role: "assistant", content: "" })];
  };
  const openBlock = (index: number, name?: string): OpenBlock => {
    const open = { sentText: "", callIndex: name !== undefined && clientTools.has(name) ? callCount++ : undefined };
    blocks.set(index, open);
    return open;
  };
  const startCall = (open: OpenBlock, id: string, name: string): ChatCompletionChunk[] => {
    if (open.callIndex === undefined) return [];
    const call: ToolCallDelta = { index: open.callIndex, id, type: "function", function: { name, arguments: "" } };
    return [...start(), choice({ tool_calls: [call] })];
  };
  const send = (open: OpenBlock, delta: BlockDelta): ChatCompletionChunk[] => {
    const shown = shownDelta(delta, open.callIndex);
    if (shown === undefined || shown.text === "") return [];
    open.sentText += shown.text;
    if (held === undefined || delta.type !== "text") return [...start(), choice(shown.delta)];
    held.push(choice(shown.delta));
    return start();
  };

  return (event) => {
    switch (event.type) {
      case "turn-started":
        model = event.model || model;
        if (holdsText(event)) held = [];
        return [];
      case "step-started": {
        const voidsCall = event.attempt > 1 && [...blocks.values()].some((block) => block.callIndex !== undefined);
        if (voidsCall)
          throw new AgentError(
            "unavailable",
            `the model broke off after its call of a tool had been streamed, and attempt ${event.attempt} begins anew; ask again`,
            { detail: { retryable: true } },
          );
        blocks = new Map();
        if (held !== undefined) held = [];
        return start();
      }
      case "block-start":
        return startCall(openBlock(event.index, event.name), event.id ?? "", event.name ?? "");
      case "block-delta":
        return send(blocks.get(event.index) ?? openBlock(event.index), event.delta);
      case "block-stop": {
        const { block } = event;
        const known = blocks.get(event.index);
        const open = known ?? openBlock(event.index, block.type === "tool_use" ? block.name : undefined);
        const opened = known === undefined && block.type === "tool_use" ? startCall(open, block.id, block.name) : [];
        const rest = wholeDelta(block, open.sentText);
        return rest === undefined ? opened : [...opened, ...send(open, rest)];
      }
      case "turn-finished": {
        const { error } = event;
        if (error !== undefined) throw new AgentError(error.kind, error.message, error);
        const reasoning_details = options.details?.();
        const details = reasoning_details === undefined ? [] : [choice({ reasoning_details })];
        const end = choice({}, completionFinishReasons[event.finishReason]);
        const ended = [...start(), ...(held ?? []), ...details, end];
        const usage = includeUsage ? usageToOpenAI(event.usage) : undefined;
        return usage === undefined ? ended : [...ended, chunk([], usage)];
      }
      case "step-finished":
      case "tool-started":
      case "tool-output":
      case "tool-finished":
      case "request-opened":
      case "request-resolved":
      case "history-compacted":
      case "plan-step":
      case "tools-changed":
      case "notice":
        return [];
      default:
        return event satisfies never;
    }
  };
}

function shownDelta(
  delta: BlockDelta,
  callIndex: number | undefined,
): { text: string; delta: ChatCompletionDelta } | undefined {
  switch (delta.type) {
    case "text":
      return { text: delta.text, delta: { content: delta.text } };
    case "thinking":
      return { text: delta.thinking, delta: { reasoning_content: delta.thinking } };
    case "reasoning":
      return { text: delta.reasoning, delta: { reasoning_content: delta.reasoning } };
    case "input_json": {
      if (callIndex === undefined) return undefined;
      const call: ToolCallDelta = { index: callIndex, function: { arguments: delta.inputJson } };
      return { text: delta.inputJson, delta: { tool_calls: [call] } };
    }
    case "signature":
      return undefined;
    default:
      return delta satisfies never;
  }
}

/** What of a whole block the client has not got yet; nothing where it got something else. */
function wholeDelta(block: ContentBlock, sentText: string): BlockDelta | undefined {
  const rest = (text: string): string => (text.startsWith(sentText) ? text.slice(sentText.length) : "");
  if (block.type === "text") return { type: "text", text: rest(block.text) };
  if (block.type === "tool_use") return { type: "input_json", inputJson: rest(block.input) };
  if (block.type === "thinking" || block.type === "reasoning")
    return { type: "thinking", thinking: rest(thinkingOfBlock(block)) };
  return undefined;
}
