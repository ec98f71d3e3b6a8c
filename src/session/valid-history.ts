import { type ContentBlock, type Message, type ToolResultBlock, toolUses } from "../chat/message.ts";

/**
 * The history as every provider accepts it, whatever happened: each call is followed by exactly one result, in the order
 * of the calls and before anything else is said; results that answer no call and messages without content are left out.
 */
export function validHistory(messages: readonly Message[]): Message[] {
  const valid: Message[] = [];
  const used = new Set<ToolResultBlock>();
  for (const [index, message] of messages.entries()) {
    if (message.role === "tool") continue;
    const blocks = message.blocks.filter((block) => !isEmptyText(block));
    if (blocks.length === 0) continue;
    valid.push(blocks.length === message.blocks.length ? message : { ...message, blocks });
    if (message.role !== "assistant") continue;
    for (const use of toolUses(message)) {
      const answered = answerTo(use.id, messages, index + 1, used);
      if (answered === undefined) {
        valid.push({
          role: "tool",
          blocks: [{ type: "tool_result", toolUseId: use.id, content: noResult, isError: true }],
        });
      } else {
        used.add(answered.block);
        valid.push(
          answered.message.blocks.length === 1 ? answered.message : { ...answered.message, blocks: [answered.block] },
        );
      }
    }
  }
  return valid;
}

const noResult = "error: no result was given for this call";

/** The next result for a call id that no earlier call of the same id has taken, before the id is called again. */
function answerTo(id: string, messages: readonly Message[], from: number, used: ReadonlySet<ToolResultBlock>) {
  for (let index = from; index < messages.length; index++) {
    const message = messages[index];
    if (message === undefined || message.role !== "tool") continue;
    for (const block of message.blocks) {
      if (block.type === "tool_result" && block.toolUseId === id && !used.has(block)) return { message, block };
    }
  }
  return undefined;
}

function isEmptyText(block: ContentBlock): boolean {
  return block.type === "text" && block.text === "";
}
