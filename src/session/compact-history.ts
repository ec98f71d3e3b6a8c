import type { LogEvent } from "../chat/log-event.ts";
import { type ContentBlock, type Message, toolUses } from "../chat/message.ts";
import { type Todo, todosText } from "../chat/todo.ts";

type Compacted = Extract<LogEvent, { type: "history-compacted" }>;

/** Which messages a compaction keeps as they are. */
export interface CompactionPlan {
  /** Replaced by the summary, in order. */
  readonly dropped: readonly Message[];
  /** Kept from before the end: system and developer messages and the last request, in order. */
  readonly pinned: readonly Message[];
  /** Kept as it is, to the last message. */
  readonly tail: readonly Message[];
}

export interface CompactionBounds {
  /** What is kept should take no more tokens, if that can be had. */
  readonly keepTokens: number;
  /** What comes to the history with the next step: results of tools. */
  readonly comingTokens: number;
  /** `request`: nothing before the last request is kept. `anywhere`: as many rounds as fit. */
  readonly from: "request" | "anywhere";
}

/**
 * Plans what a compaction drops. System and developer messages stay, and so does the last request of the user with what
 * followed it, as far as that fits; where it doesn't, the oldest rounds after it go. The last answer always stays, and no
 * call is parted from its result.
 * @param messages with their content, and their ids
 * @returns undefined where there is nothing to drop but an earlier summary.
 */
export function planCompaction(messages: readonly Message[], bounds: CompactionBounds): CompactionPlan | undefined {
  const mayBeCut = placesToCut(messages);
  const cutAtOrBefore = (place: number) => mayBeCut.lastIndexOf(true, place);
  const request = lastRequest(messages);
  const lastAnswer = messages.findLastIndex(({ role }) => role === "assistant");
  // A request that brings results stays where it is, behind the calls they answer.
  const isMovable = !messages.slice(request.start, request.end).some(holdsResult);
  const latest = cutAtOrBefore(isMovable && lastAnswer > request.start ? lastAnswer : request.start);
  const first = bounds.from === "anywhere" ? 0 : Math.min(latest, cutAtOrBefore(request.start));

  const instructions = distinctInstructions(messages);
  const isPinned = (index: number) => instructions.has(index) || (index >= request.start && index < request.end);
  const tokens = messages.map(messageTokens);
  let pinnedTokens = sum(tokens.filter((_, index) => index < first && isPinned(index)));
  let tailTokens = sum(tokens.slice(first));
  let cut = latest;
  for (let place = first; place <= latest; place++) {
    if (mayBeCut[place] === true && pinnedTokens + tailTokens + bounds.comingTokens <= bounds.keepTokens) {
      cut = place;
      break;
    }
    tailTokens -= tokens[place] ?? 0;
    if (isPinned(place)) pinnedTokens += tokens[place] ?? 0;
  }
  const before = messages.slice(0, cut);
  const dropped = before.filter((_, index) => !isPinned(index));
  if (dropped.every(isSummary)) return undefined;
  return { dropped, pinned: before.filter((_, index) => isPinned(index)), tail: messages.slice(cut) };
}

/**
 * The history after a compaction: instructions, the summary as a message of the user, the last request, the rest.
 * @param todos told with the summary, since the calls that wrote them down may be gone
 */
export function compactedHistory(
  messages: readonly Message[],
  event: Compacted,
  place: { readonly seq: number; readonly timeMs: number },
  todos: readonly Todo[] = [],
): readonly Message[] {
  const { firstKeptMessageId } = event;
  const cut =
    firstKeptMessageId === undefined ? messages.length : messages.findIndex(({ id }) => id === firstKeptMessageId);
  if (event.droppedMessages === 0 || cut === -1) return messages;
  if (event.keptMessages === 0 && event.summary === "") return []; // it was asked to be forgotten
  const keptIds = new Set(event.keptMessageIds);
  const pinned = messages.slice(0, cut).filter(({ id }) => id !== undefined && keptIds.has(id));
  return [
    ...pinned.filter(isInstruction),
    summaryMessage(event, place, todos),
    ...pinned.filter((message) => !isInstruction(message)),
    ...messages.slice(cut),
  ];
}

/**
 * Of the user, since every wire family takes that before an answer and between other messages, and since the system
 * prompt, which prompt caches begin with, stays as it was.
 */
function summaryMessage(
  event: Compacted,
  { seq, timeMs }: { readonly seq: number; readonly timeMs: number },
  todos: readonly Todo[],
): Message {
  const summary = event.model === undefined ? event.summary : `${summaryHeading}\n\n${event.summary}`;
  const text = todos.length === 0 ? summary : `${summary}\n\n${todosHeading}\n${todosText(todos)}`;
  return {
    role: "user",
    blocks: [{ type: "text", text }],
    id: `${summaryIdPrefix}${seq}`,
    metadata: { "codeagent.summary": event.trigger },
    createTimeMs: timeMs,
  };
}

const todosHeading = "The todo list of this session as it was then (update_todos replaces it):";
const summaryIdPrefix = "compacted-";
const summaryHeading =
  "The older part of this conversation is not shown any more. This is a summary of it; what follows is as it was said, and the request in it may have been worked on already as the summary tells.";

function isSummary({ id }: Message): boolean {
  return id?.startsWith(summaryIdPrefix) ?? false;
}

function isInstruction({ role }: Message): boolean {
  return role === "system" || role === "developer";
}

function holdsResult({ blocks }: Message): boolean {
  return blocks.some(({ type }) => type === "tool_result");
}

/** Ids are the server's: nobody can make a summary or a notice of the server look like a request, or the other way round. */
const requestId = /(?:^initial-|-in)\d+$/;

/** The messages of the user that were sent last, together; an empty range at the last message where there are none. */
function lastRequest(messages: readonly Message[]): { readonly start: number; readonly end: number } {
  const isRequest = ({ role, id = "" }: Message) => role === "user" && requestId.test(id);
  const last = messages.findLastIndex(isRequest);
  if (last === -1) return { start: Math.max(0, messages.length - 1), end: 0 };
  const sentWith = (message: Message | undefined) => message?.id?.replace(/\d+$/, "");
  let start = last;
  for (let before = messages[start - 1]; before !== undefined; before = messages[start - 1]) {
    if (!isRequest(before) || sentWith(before) !== sentWith(messages[last])) break;
    start--;
  }
  return { start, end: last + 1 };
}

/** Places of system and developer messages; what is said again in the same words counts once. */
function distinctInstructions(messages: readonly Message[]): ReadonlySet<number> {
  const said = new Set<string>();
  const places = new Set<number>();
  for (const [index, message] of messages.entries()) {
    if (!isInstruction(message)) continue;
    const words = JSON.stringify([message.role, message.name, message.blocks]);
    if (!said.has(words)) places.add(index);
    said.add(words);
  }
  return places;
}

/** Whether the history can be cut before each message: between no call and its result, and in no answer of two parts. */
function placesToCut(messages: readonly Message[]): boolean[] {
  const mayBeCut = messages.map(({ role }, index) => role !== "assistant" || messages[index - 1]?.role !== "assistant");
  const open = new Map<string, number[]>();
  // Calls whose results come furthest: a pair forbids the places after its call up to its result.
  const lastResult = new Map<number, number>();
  for (const [index, message] of messages.entries()) {
    for (const { id } of toolUses(message)) open.set(id, [...(open.get(id) ?? []), index]);
    for (const block of message.blocks) {
      const call = block.type === "tool_result" ? open.get(block.toolUseId)?.shift() : undefined;
      if (call !== undefined) lastResult.set(call, index);
    }
  }
  let forbiddenThrough = -1;
  for (const index of messages.keys()) {
    if (index <= forbiddenThrough) mayBeCut[index] = false;
    forbiddenThrough = Math.max(forbiddenThrough, lastResult.get(index) ?? -1);
  }
  if (mayBeCut.length > 0) mayBeCut[0] = true;
  return mayBeCut;
}

/** About how many tokens messages take; what their providers count differs by some tens of percent. */
export function estimateTokens(messages: readonly Message[]): number {
  return sum(messages.map(messageTokens));
}

function messageTokens(message: Message): number {
  return 4 + sum(message.blocks.map(blockTokens));
}

const imageTokens = 1600;

function blockTokens(block: ContentBlock): number {
  switch (block.type) {
    case "text":
      return textTokens(block.text);
    case "thinking":
      return textTokens(block.thinking) + textTokens(block.signature ?? "");
    case "redacted_thinking":
      return textTokens(block.data);
    case "reasoning":
      return textTokens(block.content) + textTokens(block.encrypted ?? "") + textTokens(block.summary.join("\n"));
    case "tool_use":
      return 8 + textTokens(block.name) + textTokens(block.input);
    case "tool_result":
      return 8 + (block.parts === undefined ? textTokens(block.content) : sum(block.parts.map(blockTokens)));
    case "image":
      return imageTokens;
    case "file":
      return Math.max(1000, Math.ceil((block.data?.length ?? 0) / 30));
    case "audio":
      return Math.max(100, Math.ceil(block.data.length / 1000));
    case "unknown":
      return Math.ceil((block.raw?.length ?? 0) / 4);
    default:
      return block satisfies never;
  }
}

/** About how many tokens a text takes: four letters of English, or one character of other scripts. */
export function textTokens(text: string): number {
  let others = 0;
  for (let index = 0; index < text.length; index++) if (text.charCodeAt(index) > 0x7f) others++;
  return Math.ceil((text.length - others) / 4) + others;
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}

/**
 * Messages as a text to summarise, at most about so many tokens long: what takes much room is cut in its middle, and if
 * that is not enough, so is the whole.
 */
export function transcriptOf(messages: readonly Message[], maxTokens: number): string {
  const said = messages.flatMap(saidIn);
  for (const mostLength of [64_000, 16_000, 4000, 1000, 300]) {
    const text = said.map(({ who, words }) => `[${who}]\n${middleCut(words, mostLength)}`).join("\n\n");
    if (textTokens(text) <= maxTokens) return text;
    if (mostLength === 300) {
      const share = maxTokens / textTokens(text);
      return middleCut(text, Math.floor(text.length * share));
    }
  }
  return "";
}

function middleCut(text: string, mostLength: number): string {
  if (text.length <= mostLength) return text;
  const half = Math.floor(mostLength / 2);
  const left = text.slice(0, half).toWellFormed();
  return `${left}\n[… ${text.length - 2 * half} characters left out …]\n${text.slice(text.length - half).toWellFormed()}`;
}

function saidIn(message: Message): { who: string; words: string }[] {
  const words = (block: ContentBlock): string => {
    switch (block.type) {
      case "text":
        return block.text;
      case "tool_result":
        return block.parts === undefined ? block.content : block.parts.map(words).join("\n");
      case "image":
      case "audio":
        return `(${block.type})`;
      case "file":
        return `(file ${block.filename ?? ""})`;
      default:
        return "";
    }
  };
  return message.blocks.flatMap((block) => {
    if (block.type === "tool_use") return [{ who: `${message.role} calls ${block.name}`, words: block.input }];
    const text = words(block);
    const who = block.type === "tool_result" ? `result${block.isError === true ? ", an error" : ""}` : message.role;
    return text === "" ? [] : [{ who, words: text }];
  });
}
