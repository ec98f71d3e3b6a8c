import type { LogEvent } from "../../../src/chat/log-event.ts";
import type { ContentBlock } from "../../../src/chat/message.ts";
import type { GenerateOptions } from "../../../src/chat/request.ts";
import { type AnthropicAnswerOptions, anthropicAnswer } from "../../../src/convert/anthropic/event.ts";

// Turns as the log tells them.

export const clientTool = "client_tool";

export function turnStarted(options: GenerateOptions = {}): LogEvent {
  const tools = [{ name: clientTool, description: "", parameters: "" }];
  return { type: "turn-started", requestId: "", principal: "", model: "p/m", messages: [], options, tools };
}

export function stepStarted(step: number, attempt = 1): LogEvent {
  return { type: "step-started", step, attempt, model: "m", provider: "p" };
}

export function stepFinished(step = 1, rawFinishReason = ""): LogEvent {
  return { type: "step-finished", step, attempt: 1, finishReason: "stop", rawFinishReason };
}

export function turnFinished(
  finishReason: Extract<LogEvent, { type: "turn-finished" }>["finishReason"] = "stop",
): LogEvent {
  return {
    type: "turn-finished",
    finishReason,
    steps: 1,
    usage: { inputTokens: 9, outputTokens: 4, cacheReadTokens: 2 },
  };
}

export function toolFinished(toolCallId: string, output: string, success = true): LogEvent {
  const result = success ? { success, output } : { success, output: "", error: output };
  return { type: "tool-finished", toolCallId, name: "shell", result };
}

/** A block in pieces of so many characters. */
export function blockEvents(index: number, block: ContentBlock, size = 3): LogEvent[] {
  const call = block.type === "tool_use" ? { id: block.id, name: block.name } : {};
  return [
    { type: "block-start", index, blockType: block.type, ...call },
    ...deltas(block, size).map((delta): LogEvent => ({ type: "block-delta", index, delta })),
    { type: "block-stop", index, block },
  ];
}

/** As `blockEvents`, without the end. */
export function cutBlock(index: number, block: ContentBlock): LogEvent[] {
  return blockEvents(index, block).slice(0, -1);
}

type Delta = Extract<LogEvent, { type: "block-delta" }>["delta"];

function deltas(block: ContentBlock, size: number): Delta[] {
  const pieces = (text: string) => text.match(new RegExp(`.{1,${size}}`, "gsu")) ?? [];
  switch (block.type) {
    case "text":
      return pieces(block.text).map((text) => ({ type: "text", text }));
    case "thinking":
      return [
        ...pieces(block.thinking).map((thinking): Delta => ({ type: "thinking", thinking })),
        ...(block.signature === undefined ? [] : [{ type: "signature", signature: block.signature } as const]),
      ];
    case "reasoning":
      return pieces(block.content).map((reasoning) => ({ type: "reasoning", reasoning }));
    case "tool_use":
      return pieces(block.input).map((inputJson) => ({ type: "input_json", inputJson }));
    default:
      return [];
  }
}

export function tell(events: readonly LogEvent[], options: Partial<AnthropicAnswerOptions> = {}) {
  const answer = anthropicAnswer({
    turnId: "t1",
    model: "p/m",
    clientTools: new Set([clientTool]),
    stopSequences: [],
    stream: true,
    omitsThinking: false,
    isKept: false,
    ...options,
  });
  const told = events.flatMap((event) => answer.push(event));
  return { told, message: answer.message() };
}
