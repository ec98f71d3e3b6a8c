import { create } from "@bufbuild/protobuf";
import {
  type ToolResult as ProtoToolResult,
  type Usage as ProtoUsage,
  type ToolCall,
  ToolCallSchema,
  ToolResultSchema,
  UsageSchema,
} from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { AgentError } from "../../chat/error.ts";
import type { LogEvent } from "../../chat/log-event.ts";
import type { ToolUseBlock } from "../../chat/message.ts";
import type { ToolResult } from "../../chat/tool-result.ts";
import type { Usage } from "../../chat/usage.ts";
import { type Chunk, legacyFinishReasons } from "./era.ts";

/** A turn as clients of the earlier service see it. */
export interface LegacyTurn {
  /**
   * Takes the turn's events in order and gives the chunks each makes, often none.
   * @throws {AgentError} the error the turn ended with.
   */
  add(event: LogEvent): Chunk[];
  /** All calls of the turn so far, each with its result where it has one. */
  readonly toolCalls: ToolCall[];
}

/**
 * Turns the events of one turn into chunks: text as it comes, each call when its step is over, each result when it is
 * there, and `done` with all text again and what the turn used. Thinking, notices and approvals are not shown: no client
 * of the earlier service knows a chunk for them.
 *
 * What was sent cannot be taken back. Text that a new attempt at a step voids stays with the client, and only `done`
 * tells the text without it; calls wait for the end of their step, so that none is told that is not made.
 */
export function legacyTurn(): LegacyTurn {
  const toolCalls: ToolCall[] = [];
  let text = "";
  /** Of the attempt that runs. */
  let attempt = { text: "", calls: [] as ToolUseBlock[], sent: new Map<number, number>() };

  const say = (index: number, words: string): Chunk[] => {
    if (words === "") return [];
    attempt.text += words;
    attempt.sent.set(index, (attempt.sent.get(index) ?? 0) + words.length);
    return [{ type: "content", content: words }];
  };

  return {
    toolCalls,
    add(event) {
      switch (event.type) {
        case "step-started":
          attempt = { text: "", calls: [], sent: new Map() };
          return [];
        case "block-delta":
          return event.delta.type === "text" ? say(event.index, event.delta.text) : [];
        case "block-stop": {
          const { block, index } = event;
          if (block.type === "tool_use") attempt.calls.push(block);
          return block.type === "text" ? say(index, block.text.slice(attempt.sent.get(index) ?? 0)) : [];
        }
        case "step-finished": {
          text += attempt.text;
          const calls = attempt.calls.map(callToProto);
          attempt = { text: "", calls: [], sent: new Map() };
          toolCalls.push(...calls);
          return calls.map((toolCall) => ({ type: "tool_call", toolCall: create(ToolCallSchema, { ...toolCall }) }));
        }
        case "tool-finished": {
          const { toolCallId, name, result } = event;
          const toolResult = resultToProto(result);
          const call = toolCalls.findLast(({ id }) => id === toolCallId);
          if (call !== undefined) call.result = toolResult;
          return [{ type: "tool_result", toolResult, metadata: { tool_call_id: toolCallId, tool_name: name } }];
        }
        case "turn-finished": {
          const { error, usage, finishReason } = event;
          if (error !== undefined) throw new AgentError(error.kind, error.message, error);
          const metadata = { ...usageMetadata(usage), ...reasonMetadata(finishReason) };
          return [
            {
              type: "done",
              content: text + attempt.text,
              metadata,
              finishReason: legacyFinishReasons[finishReason],
            },
          ];
        }
        default:
          return [];
      }
    },
  };
}

/** What a turn used, as an answer tells it. */
export function usageToLegacy(usage: Usage | undefined): ProtoUsage {
  const { inputTokens = 0, outputTokens = 0, totalTokens = inputTokens + outputTokens } = usage ?? {};
  return create(UsageSchema, {
    promptTokens: inputTokens,
    completionTokens: outputTokens,
    totalTokens,
  });
}

/** Our word for the end of a turn, where the earlier service has none of its own. */
export function reasonMetadata(reason: keyof typeof legacyFinishReasons): Record<string, string> {
  return legacyFinishReasons[reason] === reason ? {} : { finish_reason: reason };
}

function usageMetadata(usage: Usage | undefined): Record<string, string> {
  const { promptTokens, completionTokens, totalTokens } = usageToLegacy(usage);
  return {
    prompt_tokens: String(promptTokens),
    completion_tokens: String(completionTokens),
    total_tokens: String(totalTokens),
  };
}

function callToProto({ id, name, input }: ToolUseBlock): ToolCall {
  return create(ToolCallSchema, { id, name, arguments: input });
}

function resultToProto({ success, output, error = "", metadata, truncated }: ToolResult): ProtoToolResult {
  const facts = { ...metadata, ...(truncated === true ? { truncated: "true" } : {}) };
  return create(ToolResultSchema, { success, output, error, metadata: facts });
}
