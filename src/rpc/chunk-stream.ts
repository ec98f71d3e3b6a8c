import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type GenerateChunk, GenerateChunkSchema } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { logRecordToProto } from "../convert/proto/event.ts";
import { frameBatches, type StreamFrames, type StreamLimits } from "../session/frame-batches.ts";
import type { LogReading } from "../session/log-reading.ts";

export { defaultStreamLimits, frameBatches, type StreamFrames, type StreamLimits } from "../session/frame-batches.ts";

/** A frame without `seq`: it says something of the stream, not of the session. */
export function controlChunk(
  sessionId: string,
  event: MessageInitShape<typeof GenerateChunkSchema>["event"] & object,
  turnId = "",
): GenerateChunk {
  return create(GenerateChunkSchema, { sessionId, turnId, event });
}

/**
 * Events as a client gets them: see `frameBatches`.
 * @param first is said before any event
 * @param signal ends the reading; the generator then throws the signal's reason
 */
export function chunkBatches(
  sessionId: string,
  reading: LogReading,
  signal: AbortSignal,
  limits: StreamLimits,
  first?: GenerateChunk,
): AsyncGenerator<Iterable<GenerateChunk>> {
  const frames: StreamFrames<GenerateChunk> = {
    ofRecord: (record) => [logRecordToProto(sessionId, record)],
    keepAlive: () => controlChunk(sessionId, { case: "keepAlive", value: {} }),
    resync: (prunedSeq) => resyncChunk(sessionId, prunedSeq),
    notice: (value) => controlChunk(sessionId, { case: "notice", value }),
  };
  return frameBatches(reading, signal, limits, frames, first);
}

function resyncChunk(sessionId: string, prunedSeq: number): GenerateChunk {
  return controlChunk(sessionId, { case: "resync", value: { reason: "PRUNED", earliestSeq: BigInt(prunedSeq + 1) } });
}
