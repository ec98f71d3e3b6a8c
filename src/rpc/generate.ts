import type { ServiceImpl } from "@connectrpc/connect";
import type {
  CodeAgentService,
  GenerateChunk,
  GenerateRequest,
  GenerateResponse,
} from "../../gen/codeagent/v1/code_agent_pb.ts";
import { AgentError, invalidField } from "../chat/error.ts";
import type { TurnRequest } from "../chat/request.ts";
import { turnRequestFromProto } from "../convert/proto/request.ts";
import { turnAnswerToProto } from "../convert/proto/response.ts";
import { isPruned } from "../session/follow-log.ts";
import { checkRequestBounds } from "../session/request-bounds.ts";
import type { Sessions } from "../session/sessions.ts";
import { foldTurnAnswer } from "../session/turn-answer.ts";
import { theCaller } from "./caller.ts";
import { chunkBatches, controlChunk, defaultStreamLimits, type StreamLimits } from "./chunk-stream.ts";
import { checkMessageCount, optionalSessionIdFrom, requestIdFrom, seqFrom, sessionIdFrom } from "./request-fields.ts";
import { serverIsStopping } from "./stopping.ts";

/** Turns, apart from the protocol they are asked for in. */
export interface TurnCalls {
  /** Runs a turn and gives what it came to. @throws {AgentError} */
  generate(request: GenerateRequest, signal: AbortSignal): Promise<GenerateResponse>;
  /** Begins a turn and gives its events, as many at a time as are ready; to be read or closed. @throws {AgentError} */
  streamGenerate(request: GenerateRequest, signal: AbortSignal): Promise<AsyncGenerator<Iterable<GenerateChunk>>>;
}

/** What both ways into the service answer turns with; a signal ends the reading, with its reason. */
export function turnCalls(sessions: Sessions, limits: StreamLimits = defaultStreamLimits): TurnCalls {
  return {
    async generate(request, signal) {
      const turn = await sessions.startTurn(theCaller, turnRequestFrom(request));
      const fold = foldTurnAnswer(turn.sessionId);
      for await (const batch of turn.read(signal)) if (!isPruned(batch)) for (const record of batch) fold.add(record);
      if (fold.failure !== undefined) throw fold.failure;
      if (fold.answer === undefined) throw new AgentError("internal", `turn ${turn.turnId} ended without a last event`);
      return turnAnswerToProto(fold.answer);
    },
    async streamGenerate(request, signal) {
      const turn = await sessions.startTurn(theCaller, turnRequestFrom(request));
      if (!turn.queued) return chunkBatches(turn.sessionId, turn, signal, limits);
      // So that the caller knows the id of a turn that has not begun, and can cancel it.
      const value = { headSeq: BigInt(turn.headSeq), earliestSeq: BigInt(turn.earliestSeq) };
      const ready = controlChunk(turn.sessionId, { case: "streamReady", value }, turn.turnId);
      return chunkBatches(turn.sessionId, turn, signal, limits, ready);
    },
  };
}

/** Turns and the streams of their events. */
export function generateHandlers(
  turns: TurnCalls,
  sessions: Sessions,
  shuttingDown: AbortSignal,
  limits: StreamLimits = defaultStreamLimits,
) {
  return {
    generate: (request, context) => turns.generate(request, context.signal),
    async *streamGenerate(request, context) {
      for await (const chunks of await turns.streamGenerate(request, context.signal)) yield* chunks;
    },
    async *subscribeSession(request, context) {
      const sessionId = sessionIdFrom(request.sessionId);
      const afterSeq = seqFrom(request.afterSeq, "after_seq");
      const log = await sessions.subscribe(theCaller, sessionId, afterSeq, request.follow);
      const signal = AbortSignal.any([context.signal, shuttingDown]);
      const ready = controlChunk(sessionId, {
        case: "streamReady",
        value: { headSeq: BigInt(log.headSeq), earliestSeq: BigInt(log.earliestSeq) },
      });
      try {
        for await (const chunks of chunkBatches(sessionId, log, signal, limits, ready)) yield* chunks;
      } catch (error) {
        if (!shuttingDown.aborted || context.signal.aborted) throw error;
        throw serverIsStopping("come back with the last seq you have");
      }
    },
  } satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}

/** Refuses what asks nothing, and what is in the contract and not in this version, rather than leave it out in silence. */
function turnRequestFrom(message: GenerateRequest): TurnRequest {
  if (message.messages.length === 0) throw invalidField("messages", "is empty; send at least one");
  checkMessageCount(message.messages.length, "messages");
  const request = turnRequestFromProto(message);
  optionalSessionIdFrom(request.sessionId);
  requestIdFrom(request.requestId);
  checkRequestBounds(request);
  return request;
}
