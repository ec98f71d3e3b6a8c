import type { MessageInitShape } from "@bufbuild/protobuf";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type {
  GenerateChunk,
  HistoryCompacted,
  BlockDelta as ProtoBlockDelta,
  ContentBlock as ProtoContentBlock,
  PendingRequest as ProtoPendingRequest,
  RequestResolved as ProtoRequestResolved,
  ToolResult as ProtoToolResult,
} from "../../../gen/codeagent/v1/code_agent_pb.ts";
import {
  type BlockDeltaSchema,
  GenerateChunkSchema,
  HistoryCompactedSchema,
  PendingRequestSchema,
  RequestResolvedSchema,
} from "../../../gen/codeagent/v1/code_agent_pb.ts";
import { invalidField } from "../../chat/error.ts";
import { finishReasons } from "../../chat/finish-reason.ts";
import {
  type BlockDelta,
  compactionTriggers,
  type LogEvent,
  type LogRecord,
  type PendingRequest,
  type RequestAnswer,
} from "../../chat/log-event.ts";
import type { ContentBlock } from "../../chat/message.ts";
import { lanes } from "../../chat/session-config.ts";
import { todosSet } from "../../chat/todo.ts";
import type { ToolResult } from "../../chat/tool-result.ts";
import { present, presentText } from "../present.ts";
import { blockFromProto, blockToProto } from "./block.ts";
import { readStored, turnErrorFromProto, turnErrorToProto } from "./error.ts";
import { countFromProto, integerToProto, timeFromProto, wordFromProto } from "./field.ts";
import { messageFromProto, messageToProto } from "./message.ts";
import {
  planOutcomeFromProto,
  planOutcomeToProto,
  planRunFromProto,
  planRunToProto,
  planStepFromProto,
  planStepToProto,
} from "./plan-event.ts";
import { optionsFromProto, optionsToProto, toolDefinitionFromProto, toolDefinitionToProto } from "./request.ts";
import { todoFromProto, todoToProto } from "./todo.ts";
import { toolResultFromProto, toolResultToProto } from "./tool-result.ts";
import { usageFromProto, usageToProto } from "./usage.ts";

const blockTypes = [
  "text",
  "thinking",
  "redacted_thinking",
  "reasoning",
  "tool_use",
  "tool_result",
  "image",
  "file",
  "audio",
  "unknown",
] as const satisfies ContentBlock["type"][];

const pendingRequestKinds = ["approval", "question", "client_tool", "budget"] as const;

/** An event of the log without its place in it. */
export interface StoredEvent {
  /** Empty where the event belongs to no turn. */
  readonly turnId: string;
  /** When it was recorded, in milliseconds since 1970. */
  readonly timeMs: number;
  readonly event: LogEvent;
}

/** Writes a record of a session's log as clients read it. */
export function logRecordToProto(sessionId: string, record: LogRecord): GenerateChunk {
  return placed(chunkOf(record.turnId, record.timeMs, record.event), sessionId, record.seq);
}

/**
 * Reads a record of a session's log. The session's id stays with the chunk.
 * @throws {AgentError} `invalid_request` for a control frame and for an event this version has no word for.
 */
export function logRecordFromProto(chunk: GenerateChunk): LogRecord {
  return {
    seq: countFromProto(chunk.seq, "seq") ?? 0,
    turnId: chunk.turnId,
    timeMs: timeFromProto(chunk.time, "time") ?? 0,
    event: eventFromProto(chunk.event),
  };
}

/** The form the store keeps: a chunk without number and session, which the row has. */
export function encodeLogEvent(turnId: string, timeMs: number, event: LogEvent): Uint8Array {
  return toBinary(GenerateChunkSchema, chunkOf(turnId, timeMs, event));
}

/**
 * Reads the form the store keeps.
 * @throws {AgentError} `data_loss` where the bytes cannot be read.
 */
export function decodeLogEvent(bytes: Uint8Array): StoredEvent {
  return readStored("an event", () => {
    const { turnId, timeMs, event } = logRecordFromProto(fromBinary(GenerateChunkSchema, bytes));
    return { turnId, timeMs, event };
  });
}

/**
 * Makes what clients read of what the store keeps, without looking into the event.
 * @throws {AgentError} `data_loss` where the bytes cannot be read.
 */
export function chunkFromStored(sessionId: string, seq: number, bytes: Uint8Array): GenerateChunk {
  return placed(
    readStored("an event", () => fromBinary(GenerateChunkSchema, bytes)),
    sessionId,
    seq,
  );
}

/** Reads what waits for a person or a client; the session and the turn stay with the message. */
export function pendingRequestFromProto(request: ProtoPendingRequest, path = "request"): PendingRequest {
  return present({
    requestId: request.requestId,
    kind: wordFromProto(request.kind, pendingRequestKinds, `${path}.kind`),
    title: request.title,
    toolName: presentText(request.toolName),
    toolCallId: presentText(request.toolCallId),
    arguments: presentText(request.arguments),
    options: [...request.options],
    explanation: presentText(request.explanation),
    contentSha256: presentText(request.contentSha256),
    expireTimeMs: timeFromProto(request.expireTime, `${path}.expire_time`),
    lane: request.lane === "" ? undefined : wordFromProto(request.lane, lanes, `${path}.lane`),
  });
}

/** Writes what a compaction dropped and kept. */
export function historyCompactedToProto(event: Extract<LogEvent, { type: "history-compacted" }>): HistoryCompacted {
  const { droppedMessages, keptMessages, summary, trigger } = event;
  const { firstKeptMessageId = "", model = "", fallbackReason = "", requestId = "" } = event;
  const tokensBefore = integerToProto(event.tokensBefore);
  const tokensAfter = integerToProto(event.tokensAfter);
  const counts = { droppedMessages, keptMessages, tokensBefore, tokensAfter };
  const kept = { firstKeptMessageId, keptMessageIds: [...event.keptMessageIds] };
  const usage = event.usage && usageToProto(event.usage);
  const texts = { summary, trigger, model, fallbackReason, requestId };
  return create(HistoryCompactedSchema, { ...counts, ...kept, ...texts, usage });
}

/** Reads what became of a pending request. */
export function requestAnswerFromProto(resolved: ProtoRequestResolved, path: string): RequestAnswer {
  const { requestId, decision, author, text, toolResult } = resolved;
  return present({
    requestId,
    decision,
    author,
    text: presentText(text),
    toolResult: toolResult && toolResultFromProto(toolResult, `${path}.tool_result`),
  });
}

/** Writes what became of a pending request. */
export function requestAnswerToProto(answer: RequestAnswer): ProtoRequestResolved {
  const { requestId, decision, author, text = "" } = answer;
  const toolResult = answer.toolResult && toolResultToProto(answer.toolResult);
  return create(RequestResolvedSchema, { requestId, decision, author, text, toolResult });
}

/** The form in which an answer waits in the inbox. */
export function encodeRequestAnswer(answer: RequestAnswer): Uint8Array {
  return toBinary(RequestResolvedSchema, requestAnswerToProto(answer));
}

/**
 * Reads the form in which an answer waits in the inbox.
 * @throws {AgentError} `data_loss` where the bytes cannot be read.
 */
export function decodeRequestAnswer(bytes: Uint8Array): RequestAnswer {
  return readStored("an answer", () => requestAnswerFromProto(fromBinary(RequestResolvedSchema, bytes), "answer"));
}

/** Writes what waits for a person or a client. */
export function pendingRequestToProto(request: PendingRequest, sessionId: string, turnId: string): ProtoPendingRequest {
  return create(PendingRequestSchema, {
    requestId: request.requestId,
    sessionId,
    turnId,
    kind: request.kind,
    title: request.title,
    toolName: request.toolName ?? "",
    arguments: request.arguments ?? "",
    options: [...request.options],
    expireTime: request.expireTimeMs === undefined ? undefined : timestampFromMs(request.expireTimeMs),
    toolCallId: request.toolCallId ?? "",
    explanation: request.explanation ?? "",
    contentSha256: request.contentSha256 ?? "",
    lane: request.lane ?? "",
  });
}

function placed(chunk: GenerateChunk, sessionId: string, seq: number): GenerateChunk {
  chunk.seq = BigInt(seq);
  chunk.sessionId = sessionId;
  if (chunk.event.case === "requestOpened" && chunk.event.value.request !== undefined)
    chunk.event.value.request.sessionId = sessionId;
  return chunk;
}

function chunkOf(turnId: string, timeMs: number, event: LogEvent): GenerateChunk {
  return create(GenerateChunkSchema, { turnId, time: timestampFromMs(timeMs), event: eventToProto(turnId, event) });
}

type EventInit = NonNullable<Extract<MessageInitShape<typeof GenerateChunkSchema>, { event?: unknown }>["event"]>;

function eventToProto(turnId: string, event: LogEvent): EventInit {
  switch (event.type) {
    case "turn-started": {
      const { requestId, principal, model, toolsDigest = "" } = event;
      const plan = event.plan && planRunToProto(event.plan);
      const messages = event.messages.map(messageToProto);
      const tools = event.tools.map(toolDefinitionToProto);
      const options = optionsToProto(event.options);
      return {
        case: "turnStarted",
        value: { requestId, principal, model, messages, options, tools, toolsDigest, plan },
      };
    }
    case "step-started": {
      const { step, attempt, model, provider } = event;
      const voidedUsage = event.voidedUsage && usageToProto(event.voidedUsage);
      return { case: "stepStarted", value: { step, attempt, model, provider, voidedUsage } };
    }
    case "block-start": {
      const { index, blockType, id = "", name = "" } = event;
      return { case: "blockStart", value: { index, type: blockType, id, name } };
    }
    case "block-delta":
      return { case: "blockDelta", value: { index: event.index, delta: deltaToProto(event.delta) } };
    case "block-stop":
      return { case: "blockStop", value: { index: event.index, block: blockToProto(event.block) } };
    case "step-finished": {
      const { step, attempt, finishReason, rawFinishReason, responseId = "", upstreamRequestId = "" } = event;
      const usage = event.usage && usageToProto(event.usage);
      const continues = event.continues ?? false;
      const value = { step, attempt, finishReason, rawFinishReason, usage, responseId, upstreamRequestId, continues };
      return { case: "stepFinished", value };
    }
    case "tool-started": {
      const { toolCallId, name, source, readOnly } = event;
      return { case: "toolStarted", value: { toolCallId, name, source, readOnly } };
    }
    case "tool-output": {
      const { toolCallId, stream, text } = event;
      return { case: "toolOutput", value: { toolCallId, stream, text } };
    }
    case "tool-finished": {
      const { toolCallId, name } = event;
      return { case: "toolFinished", value: { toolCallId, name, result: toolResultToProto(event.result) } };
    }
    case "request-opened":
      return { case: "requestOpened", value: { request: pendingRequestToProto(event.request, "", turnId) } };
    case "request-resolved":
      return { case: "requestResolved", value: requestAnswerToProto(event) };
    case "history-compacted":
      return { case: "historyCompacted", value: historyCompactedToProto(event) };
    case "tools-changed": {
      const generation = integerToProto(event.generation) ?? 0n;
      const [added, removed, changed] = [[...event.added], [...event.removed], [...event.changed]];
      return { case: "toolsChanged", value: { generation, added, removed, changed } };
    }
    case "notice": {
      const { level, code, message, modelText = "" } = event;
      const todos = (event.todos ?? []).map(todoToProto);
      return { case: "notice", value: { level, code, message, modelText, todos } };
    }
    case "turn-finished": {
      const { finishReason, steps } = event;
      const usage = event.usage && usageToProto(event.usage);
      const error = event.error && turnErrorToProto(event.error);
      const plan = event.plan && planOutcomeToProto(event.plan);
      return { case: "turnFinished", value: { finishReason, usage, error, steps, plan } };
    }
    case "plan-step":
      return { case: "planStep", value: planStepToProto(event) };
    default:
      return event satisfies never;
  }
}

function eventFromProto(event: GenerateChunk["event"]): LogEvent {
  switch (event.case) {
    case "turnStarted": {
      const { requestId, principal, model, messages, options, tools, toolsDigest, plan } = event.value;
      const path = "turn_started";
      return present({
        type: "turn-started",
        requestId,
        principal,
        model,
        messages: messages.map((message, index) => messageFromProto(message, `${path}.messages[${index}]`, "server")),
        options: options === undefined ? {} : optionsFromProto(options, `${path}.options`, "server"),
        tools: tools.map((tool, index) => toolDefinitionFromProto(tool, `${path}.tools[${index}]`, "server")),
        toolsDigest: presentText(toolsDigest),
        plan: plan && planRunFromProto(plan),
      });
    }
    case "stepStarted": {
      const { step, attempt, model, provider, voidedUsage } = event.value;
      const usage = voidedUsage && usageFromProto(voidedUsage, "step_started.voided_usage");
      return present({ type: "step-started", step, attempt, model, provider, voidedUsage: usage });
    }
    case "blockStart": {
      const { index, type, id, name } = event.value;
      const blockType = wordFromProto(type, blockTypes, "block_start.type");
      return present({ type: "block-start", index, blockType, id: presentText(id), name: presentText(name) });
    }
    case "blockDelta":
      return { type: "block-delta", index: event.value.index, delta: deltaFromProto(event.value) };
    case "blockStop":
      return { type: "block-stop", index: event.value.index, block: requiredBlock(event.value.block) };
    case "stepFinished": {
      const { step, attempt, finishReason, rawFinishReason, usage, responseId, upstreamRequestId } = event.value;
      return present({
        type: "step-finished",
        step,
        attempt,
        finishReason: wordFromProto(finishReason, finishReasons, "step_finished.finish_reason"),
        rawFinishReason,
        continues: event.value.continues || undefined,
        usage: usage && usageFromProto(usage, "step_finished.usage"),
        responseId: presentText(responseId),
        upstreamRequestId: presentText(upstreamRequestId),
      });
    }
    case "toolStarted": {
      const { toolCallId, name, source, readOnly } = event.value;
      return { type: "tool-started", toolCallId, name, source, readOnly };
    }
    case "toolOutput": {
      const { toolCallId, stream, text } = event.value;
      return { type: "tool-output", toolCallId, stream, text };
    }
    case "toolFinished": {
      const { toolCallId, name, result } = event.value;
      return { type: "tool-finished", toolCallId, name, result: requiredResult(result) };
    }
    case "requestOpened": {
      if (event.value.request === undefined) throw invalidField("request_opened.request", "is missing");
      return {
        type: "request-opened",
        request: pendingRequestFromProto(event.value.request, "request_opened.request"),
      };
    }
    case "requestResolved":
      return { type: "request-resolved", ...requestAnswerFromProto(event.value, "request_resolved") };
    case "historyCompacted": {
      const { droppedMessages, keptMessages, summary, usage } = event.value;
      return present({
        type: "history-compacted",
        droppedMessages,
        keptMessages,
        summary,
        tokensBefore: countFromProto(event.value.tokensBefore, "history_compacted.tokens_before"),
        tokensAfter: countFromProto(event.value.tokensAfter, "history_compacted.tokens_after"),
        firstKeptMessageId: presentText(event.value.firstKeptMessageId),
        keptMessageIds: [...event.value.keptMessageIds],
        usage: usage && usageFromProto(usage, "history_compacted.usage"),
        trigger: wordFromProto(event.value.trigger, compactionTriggers, "history_compacted.trigger"),
        model: presentText(event.value.model),
        fallbackReason: presentText(event.value.fallbackReason),
        requestId: presentText(event.value.requestId),
      });
    }
    case "toolsChanged": {
      const generation = countFromProto(event.value.generation, "tools_changed.generation") ?? 0;
      const { added, removed, changed } = event.value;
      return { type: "tools-changed", generation, added: [...added], removed: [...removed], changed: [...changed] };
    }
    case "notice": {
      const { level: word, code, message } = event.value;
      const level = wordFromProto(word, ["info", "warning"], "notice.level");
      const modelText = presentText(event.value.modelText);
      const todos = code === todosSet ? event.value.todos.map(todoFromProto) : undefined;
      return present({ type: "notice", level, code, message, modelText, todos });
    }
    case "turnFinished": {
      const { finishReason, usage, error, steps, plan } = event.value;
      return present({
        type: "turn-finished",
        finishReason: wordFromProto(finishReason, finishReasons, "turn_finished.finish_reason"),
        usage: usage && usageFromProto(usage, "turn_finished.usage"),
        error: error && turnErrorFromProto(error, "turn_finished.error"),
        steps,
        plan: plan && planOutcomeFromProto(plan, "turn_finished.plan"),
      });
    }
    case "planStep":
      return { type: "plan-step", ...planStepFromProto(event.value, "plan_step") };
    case "streamReady":
    case "keepAlive":
    case "resync":
      throw invalidField("event", `is the control frame ${event.case}, which is no part of a log`);
    case undefined:
      throw invalidField("event", "is none that this version knows");
    default:
      return event satisfies never;
  }
}

type DeltaInit = NonNullable<Extract<MessageInitShape<typeof BlockDeltaSchema>, { delta?: unknown }>["delta"]>;

function deltaToProto(delta: BlockDelta): DeltaInit {
  switch (delta.type) {
    case "text":
      return { case: "text", value: delta.text };
    case "thinking":
      return { case: "thinking", value: delta.thinking };
    case "signature":
      return { case: "signature", value: delta.signature };
    case "reasoning":
      return { case: "reasoning", value: delta.reasoning };
    case "input_json":
      return { case: "inputJson", value: delta.inputJson };
    default:
      return delta satisfies never;
  }
}

function deltaFromProto({ delta }: ProtoBlockDelta): BlockDelta {
  switch (delta.case) {
    case "text":
      return { type: "text", text: delta.value };
    case "thinking":
      return { type: "thinking", thinking: delta.value };
    case "signature":
      return { type: "signature", signature: delta.value };
    case "reasoning":
      return { type: "reasoning", reasoning: delta.value };
    case "inputJson":
      return { type: "input_json", inputJson: delta.value };
    case undefined:
      throw invalidField("block_delta.delta", "is none that this version knows");
    default:
      return delta satisfies never;
  }
}

function requiredBlock(block: ProtoContentBlock | undefined): ContentBlock {
  if (block === undefined) throw invalidField("block_stop.block", "is missing");
  return blockFromProto(block, "block_stop.block", "server");
}

function requiredResult(result: ProtoToolResult | undefined): ToolResult {
  if (result === undefined) throw invalidField("tool_finished.result", "is missing");
  return toolResultFromProto(result, "tool_finished.result");
}
