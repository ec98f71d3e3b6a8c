import { type ContentBlock, type Message, type ToolResultBlock, toolUses } from "../chat/message.ts";

/**
 * The history as every provider accepts it, whatever happened: each call is followed by exactly one result, in the order
 * of the calls and before anything else is said; results that answer no call and messages without content are left out.
 */
export function validHistory(messages: readonly Message[]): Message[] {
  const valid: Message[] = [];
  const results = resultsById(messages);
  for (const [index, message] of messages.entries()) {
    if (message.role === "tool") continue;
    const blocks = message.blocks.filter((block) => !isEmptyText(block));
    if (blocks.length === 0) continue;
    valid.push(blocks.length === message.blocks.length ? message : { ...message, blocks });
    if (message.role !== "assistant") continue;
    for (const use of toolUses(message)) {
      const answered = nextResult(results.get(use.id), index);
      if (answered === undefined) {
        valid.push({
          role: "tool",
          blocks: [{ type: "tool_result", toolUseId: use.id, content: noResult, isError: true }],
        });
      } else {
        valid.push(
          answered.message.blocks.length === 1 ? answered.message : { ...answered.message, blocks: [answered.block] },
        );
      }
    }
  }
  return valid;
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
    if (message.role !== "tool") continue;
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
