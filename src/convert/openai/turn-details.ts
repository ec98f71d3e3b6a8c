import type { LogEvent } from "../../chat/log-event.ts";
import type { ContentBlock } from "../../chat/message.ts";
import { type ToolResult, toolResultText } from "../../chat/tool-result.ts";
import type { SealableBlock } from "../sealed-reasoning.ts";
import { holdsText } from "./event.ts";
import { type ReasoningDetail, type SaidBlock, sealDetails } from "./reasoning-details.ts";

export interface TurnDetailsOptions {
  readonly turnId: string;
  /** Names of the functions the client runs itself; other calls are the server's own. */
  readonly clientTools: ReadonlySet<string>;
  /** The message has the text of all steps; otherwise of the last answer only. */
  readonly streams: boolean;
}

interface Step {
  blocks: SealableBlock[];
  readonly results: Map<string, ToolResult>;
  readonly notes: string[];
}

/**
 * Gathers from the events of one turn, in order, what its message does not show: thinking with its signature, encrypted
 * and redacted thinking, the calls and results of the server's own tools, rejected answers and what was said of them, and in a
 * whole answer the text of earlier steps. A client that sends it back (`reasoning_details`) has the model go on from all it
 * did, where no session keeps it. What a new attempt at a step voids is not part of it.
 *
 * After the history was compacted amid the turn its reasoning is left out: it goes on from a history the client does not have.
 */
export function turnDetails({ turnId, clientTools, streams }: TurnDetailsOptions) {
  let steps: Step[] = [];
  let isJson = false;
  let isForgotten = false;

  const lastStep = (): Step => {
    const last = steps.at(-1);
    if (last !== undefined) return last;
    const first: Step = { blocks: [], results: new Map(), notes: [] };
    steps.push(first);
    return first;
  };
  const saidInStep = ({ blocks, results, notes }: Step, isLast: boolean): SaidBlock[] => {
    const isTextShown = isLast || (streams && !isJson);
    const said = blocks.map((block) => {
      const isCall = block.type === "tool_use" && clientTools.has(block.name) && (isLast || streams);
      return { block, isShown: isCall || (block.type === "text" && isTextShown) };
    });
    const hidden: SealableBlock[] = [];
    for (const block of blocks) {
      const result = block.type === "tool_use" ? results.get(block.id) : undefined;
      if (block.type !== "tool_use" || result === undefined) continue;
      const isError = result.success ? {} : { isError: true };
      hidden.push({ type: "tool_result", toolUseId: block.id, content: toolResultText(result), ...isError });
    }
    for (const text of notes) hidden.push({ type: "note", text });
    return [...said, ...hidden.map((block) => ({ block, isShown: false }))];
  };

  return {
    /** What follows tells the turn from its beginning. */
    restart(): void {
      steps = [];
      isForgotten = false;
    },
    /** Takes the turn's next event. */
    push(event: LogEvent): void {
      switch (event.type) {
        case "turn-started":
          isJson = holdsText(event);
          return;
        case "step-started":
          if (event.attempt > 1) lastStep().blocks = [];
          else steps.push({ blocks: [], results: new Map(), notes: [] });
          return;
        case "block-stop":
          if (isSealable(event.block) && !(isForgotten && isReasoning(event.block)))
            lastStep().blocks.push(event.block);
          return;
        case "tool-finished":
          lastStep().results.set(event.toolCallId, event.result);
          return;
        case "notice":
          if (event.modelText !== undefined) lastStep().notes.push(event.modelText);
          return;
        case "history-compacted":
          isForgotten ||= event.droppedMessages > 0;
          return;
        case "block-start":
        case "block-delta":
        case "step-finished":
        case "tool-started":
        case "tool-output":
        case "request-opened":
        case "request-resolved":
        case "plan-step":
        case "tools-changed":
        case "turn-finished":
          return;
        default:
          event satisfies never;
      }
    },
    /** What goes along with the message; absent where the message shows all there is. */
    details(): ReasoningDetail[] | undefined {
      const last = steps.findLast(({ blocks }) => blocks.length > 0);
      return sealDetails(
        steps.flatMap((step) => saidInStep(step, step === last)),
        `rd_${turnId}`,
      );
    },
  };
}

type AnswerBlock = Extract<ContentBlock, SealableBlock>;

function isSealable(block: ContentBlock): block is Exclude<AnswerBlock, { type: "tool_result" }> {
  return !["tool_result", "image", "file", "audio"].includes(block.type);
}

function isReasoning({ type }: SealableBlock): boolean {
  return type === "thinking" || type === "redacted_thinking" || type === "reasoning";
}
