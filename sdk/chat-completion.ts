import { timestampMs } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import type { GenerateChunk } from "../gen/codeagent/v1/code_agent_pb.ts";
import { invalidField } from "../src/chat/error.ts";
import { messagesFromAnyShape } from "../src/convert/any-message.ts";
import type { ChatCompletionChunk } from "../src/convert/openai/event.ts";
import type { ChatCompletionMessageParam as ReadableMessage } from "../src/convert/openai/message.ts";
import {
  type FunctionTool,
  type ChatCompletionCreateParams as ReadableParams,
  type ToolChoice,
  turnRequestFromOpenAI,
} from "../src/convert/openai/request.ts";
import { type ChatCompletion, completionFromResponse } from "../src/convert/openai/response.ts";
import { turnDetails } from "../src/convert/openai/turn-details.ts";
import { logRecordFromProto } from "../src/convert/proto/event.ts";
import { turnRequestToProto } from "../src/convert/proto/request.ts";
import { foldTurnAnswer } from "../src/session/turn-answer.ts";
import { type AbortableStream, mapStream } from "./abortable-stream.ts";
import { completionChunks } from "./completion-chunks.ts";
import { CodeAgentError, codeAgentErrorFrom, type TurnPosition } from "./error.ts";
import type { AnyMessage } from "./messages.ts";
import { newRequestId, type ResumeOptions, retellings, streamTurn, type TurnClient } from "./turn-stream.ts";

export type { ChatCompletionChunk } from "../src/convert/openai/event.ts";
export type { ChatCompletion } from "../src/convert/openai/response.ts";

/** Forms of OpenAI's own that this service refuses when it reads them, so that its types can be handed over as they are. */
interface CustomCall {
  id: string;
  type: "custom";
  custom: { name: string; input: string };
}
interface CustomTool {
  type: "custom";
  custom: { name: string };
}
interface OtherToolChoice {
  type: "custom" | "allowed_tools";
}
interface OtherImagePart {
  type: "image_url";
  image_url: { url: string; detail?: "auto" | "low" | "high" | "original" };
}

type UserMessage = Extract<ReadableMessage, { role: "user" }>;
type UserPart = Exclude<UserMessage["content"], string>[number];
type AssistantMessage = Extract<ReadableMessage, { role: "assistant" }>;
type AssistantCall = NonNullable<AssistantMessage["tool_calls"]>[number];

/** A message in OpenAI's shape. */
export type ChatCompletionMessageParam =
  | Exclude<ReadableMessage, { role: "user" | "assistant" }>
  | (Omit<UserMessage, "content"> & { content: string | (UserPart | OtherImagePart)[] })
  | (Omit<AssistantMessage, "tool_calls"> & { tool_calls?: (AssistantCall | CustomCall)[] });

/**
 * OpenAI's request, and what is ours. What OpenAI's has beyond these fields is left unread, unless the answer would have
 * another shape for it: then it is refused (`n` other than 1, `logprobs`, spoken answers, custom tools).
 */
export interface ChatCompletionParams extends Omit<ReadableParams, "model" | "messages" | "tools" | "tool_choice"> {
  /** `provider/model`; absent or empty means the session's, else the server's default. */
  model?: string;
  /**
   * The conversation; with a `session_id`, what is new in it. Messages of the contract may stand beside OpenAI's, as
   * `messageFromResponse` gives them, and roles may be written as in `ROLE_USER`.
   */
  messages: AnyMessage[];
  /** Functions the caller runs: a call of one ends the answer with `tool_calls`. The server runs its own by itself. */
  tools?: (FunctionTool | CustomTool)[];
  tool_choice?: ToolChoice | OtherToolChoice;
  /** The session whose history the messages are added to. Absent means a one-off turn that leaves nothing behind. */
  session_id?: string;
  /** Makes asking again safe: the same id joins the same turn. One is made where it is absent. */
  request_id?: string;
  /** Most model calls; default is the server's. */
  max_steps?: number;
  /** Names of the server's own tools the model may use; absent means all. */
  allowed_tools?: string[];
  /** Cancels the turn; the call then throws the signal's reason. */
  signal?: AbortSignal;
}

/**
 * Asks for an answer, OpenAI's way: runs a turn, with the server's own tools where the model wants them, and resolves to
 * its last answer. What OpenAI's message has no form for (signed and encrypted reasoning, what the server's tools did) goes
 * along in its `reasoning_details`, unless a session keeps it: send the message back as it is. Lost connections are got
 * back as `streamTurn` does.
 * @throws {CodeAgentError} for a field that is wrong (with its path), what the server refuses, a turn that failed, one that
 *   somebody else cancelled (`TURN_CANCELLED`), and a connection that can't be got back.
 */
export async function chatCompletion(
  client: TurnClient,
  params: ChatCompletionParams,
  resume: ResumeOptions = {},
): Promise<ChatCompletion> {
  const { request, clientTools, isKept } = readParams(params);
  const { signal } = params;
  const stream = streamTurn(client, request, { ...resume, ...(signal === undefined ? {} : { signal }) });
  let createdMs = Date.now();
  const isToldAnew = retellings();
  let fold: ReturnType<typeof foldTurnAnswer> | undefined;
  let gathered: ReturnType<typeof turnDetails> | undefined;
  let turn: TurnPosition | undefined;
  for await (const chunk of stream) {
    if (isToldAnew(chunk)) {
      fold = undefined;
      gathered?.restart();
    }
    if (chunk.seq === 0n || chunk.event.case === undefined) continue;
    turn = positionOf(chunk, request.requestId);
    if (chunk.event.case === "turnStarted") createdMs = timeOf(chunk) ?? createdMs;
    checkNotCancelled(chunk, turn);
    fold ??= foldTurnAnswer(chunk.sessionId);
    if (!isKept) gathered ??= turnDetails({ turnId: chunk.turnId, clientTools, streams: false });
    const record = logRecordFromProto(chunk);
    fold.add(record);
    gathered?.push(record.event);
  }
  if (fold?.failure !== undefined) throw codeAgentErrorFrom(fold.failure, turn);
  if (fold?.answer === undefined) throw codeAgentErrorFrom(new Error("the turn ended without an answer"), turn);
  return completionFromResponse(fold.answer, createdMs, gathered?.details());
}

/**
 * Asks for an answer and streams it in OpenAI's chunks: the role first, then text, thinking (`reasoning_content`) and the
 * caller's calls as they come, what goes along (`reasoning_details`, in one chunk), the reason of the end, and usage last
 * where `stream_options.include_usage` asks for it.
 *
 * Begins with the first read. Leaving the loop cancels a one-off turn, while the turn of a session goes on; `abort()` and
 * `params.signal` cancel both. Lost connections are got back as `streamTurn` does, unseen.
 *
 * What was shown can't be taken back. Where the model is asked anew (after a restart of the server), its new answer is
 * shown only from where it goes beyond what the old one showed; where it says something else, reading throws
 * `ANSWER_BEGUN_ANEW`. A session's turn then still goes on, and its history has the whole answer.
 * @throws {CodeAgentError} at once for a field that is wrong; from reading, also in the middle of an answer, as
 *   `chatCompletion` does. Its `turn` tells where the turn can be found.
 */
export function streamChatCompletion(
  client: TurnClient,
  params: ChatCompletionParams,
  resume: ResumeOptions = {},
): AbortableStream<ChatCompletionChunk> {
  const { request, includeUsage, clientTools, isKept } = readParams(params);
  const { signal } = params;
  const stream = streamTurn(client, request, { ...resume, ...(signal === undefined ? {} : { signal }) });
  const isToldAnew = retellings();
  let toChunks: ReturnType<typeof completionChunks> | undefined;
  return mapStream(stream, (chunk) => {
    if (isToldAnew(chunk)) toChunks?.restart();
    if (chunk.seq === 0n || chunk.event.case === undefined) return [];
    toChunks ??= completionChunks({
      turnId: chunk.turnId,
      model: params.model ?? "",
      createdMs: timeOf(chunk) ?? Date.now(),
      clientTools,
      includeUsage,
      isKept,
    });
    const turn = positionOf(chunk, request.requestId);
    checkNotCancelled(chunk, turn);
    try {
      return toChunks.push(logRecordFromProto(chunk).event);
    } catch (error) {
      throw codeAgentErrorFrom(error, turn);
    }
  });
}

function readParams(params: ChatCompletionParams) {
  try {
    const { session_id = "", request_id, max_steps, allowed_tools, signal: _, ...openai } = params;
    if (max_steps !== undefined && !(Number.isSafeInteger(max_steps) && max_steps > 0))
      throw invalidField("max_steps", `is ${max_steps}; must be a whole number from 1`);
    if (allowed_tools?.length === 0)
      throw invalidField("allowed_tools", 'is empty; leave it out for all, or set tool_choice to "none" for none');
    const { request, includeUsage } = turnRequestFromOpenAI(openai, messagesFromAnyShape);
    const options = {
      ...request.options,
      ...(max_steps === undefined ? {} : { maxSteps: max_steps }),
      ...(allowed_tools === undefined ? {} : { allowedTools: allowed_tools }),
    };
    return {
      request: turnRequestToProto({
        ...request,
        options,
        sessionId: session_id,
        requestId: request_id || newRequestId(),
      }),
      includeUsage,
      clientTools: new Set(request.tools.map((tool) => tool.name)),
      isKept: session_id !== "",
    };
  } catch (error) {
    throw codeAgentErrorFrom(error);
  }
}

/** OpenAI's shape has no word for an answer that somebody else cut off, and `stop` would call it whole. */
function checkNotCancelled({ event }: GenerateChunk, turn: TurnPosition): void {
  if (event.case !== "turnFinished" || event.value.finishReason !== "cancelled") return;
  throw new CodeAgentError(`turn ${turn.turnId} was cancelled before its answer was whole`, Code.Canceled, {
    reason: "TURN_CANCELLED",
    turn,
  });
}

function timeOf(chunk: GenerateChunk): number | undefined {
  return chunk.time === undefined ? undefined : timestampMs(chunk.time);
}

function positionOf({ sessionId, turnId, seq }: GenerateChunk, requestId: string): TurnPosition {
  return { sessionId, turnId, lastSeq: seq, requestId };
}
