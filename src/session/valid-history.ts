import { type ContentBlock, type Message, type ToolResultBlock, toolUses } from "../chat/message.ts";

/**
 * The history as every provider accepts it, whatever happened: each call is followed by exactly one result, in the order
 * of the calls and before anything else is said, wherever the client put it; results that answer no call and messages
 * without content are left out. A call under an id that another one has, as clients may send, gets one of its own.
 */
export function validHistory(messages: readonly Message[]): Message[] {
  const valid: Message[] = [];
  const results = resultsById(messages);
  const idOf = uniqueIds();
  for (const [index, message] of messages.entries()) {
    if (message.role === "tool") continue;
    const blocks = message.blocks.filter((block) => !isEmptyText(block) && block.type !== "tool_result");
    if (blocks.length === 0) continue;
    if (message.role !== "assistant") {
      valid.push(blocks.length === message.blocks.length ? message : { ...message, blocks });
      continue;
    }
    const ids = new Map(toolUses(message).map((use) => [use, idOf(use.id)]));
    const renamed = [...ids].some(([use, id]) => use.id !== id);
    const said = renamed ? blocks.map((block) => withId(block, ids)) : blocks;
    valid.push(!renamed && blocks.length === message.blocks.length ? message : { ...message, blocks: said });
    for (const [use, id] of ids) valid.push(resultMessage(nextResult(results.get(use.id), index), use.id, id));
  }
  return valid;
}

/** Gives back an id the first time, and another one each time it comes again. */
function uniqueIds(): (id: string) => string {
  /** How often each id has come. */
  const counts = new Map<string, number>();
  return (id) => {
    let count = counts.get(id) ?? 0;
    let unique = id;
    while (counts.has(unique)) unique = `${id}_${++count + 1}`;
    counts.set(id, Math.max(count, counts.get(id) ?? 0));
    if (unique !== id) counts.set(unique, 0);
    return unique;
  };
}

function withId(block: ContentBlock, ids: ReadonlyMap<ContentBlock, string>): ContentBlock {
  const id = ids.get(block);
  return id === undefined || block.type !== "tool_use" ? block : { ...block, id };
}

function resultMessage(answered: Result | undefined, callId: string, id: string): Message {
  if (answered === undefined)
    return { role: "tool", blocks: [{ type: "tool_result", toolUseId: id, content: noResult, isError: true }] };
  const { message, block } = answered;
  if (callId !== id) return { role: "tool", blocks: [{ ...block, toolUseId: id }] };
  return message.role === "tool" && message.blocks.length === 1 ? message : { role: "tool", blocks: [block] };
}

const noResult = "error: no result was given for this call";

interface Result {
  readonly index: number;
  readonly message: Message;
  readonly block: ToolResultBlock;
}

/** Each call id's results, the earliest last. */
function resultsById(messages: readonly Message[]): Map<string, Result[]> {
  const results = new Map<string, Result[]>();
  for (const [index, message] of [...messages.entries()].toReversed()) {
    if (message.role === "assistant") continue;
    for (const block of message.blocks.toReversed()) {
      if (block.type !== "tool_result") continue;
      const known = results.get(block.toolUseId);
      if (known === undefined) results.set(block.toolUseId, [{ index, message, block }]);
      else known.push({ index, message, block });
    }
  }
  return results;
}

/** Takes the next result that comes after its call; those before it answer nothing. */
function nextResult(results: Result[] | undefined, callIndex: number): Result | undefined {
  for (;;) {
    const result = results?.pop();
    if (result === undefined || result.index > callIndex) return result;
  }
}

function isEmptyText(block: ContentBlock): boolean {
  return block.type === "text" && block.text === "";
}
