import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type GenerateChunk, GenerateChunkSchema } from "../../gen/codeagent/v1/code_agent_pb.ts";
import type { LogRecord } from "../chat/log-event.ts";
import { logRecordToProto } from "../convert/proto/event.ts";

/** A frame without `seq`: it says something of the stream, not of the session. */
export function controlChunk(
  sessionId: string,
  event: MessageInitShape<typeof GenerateChunkSchema>["event"] & object,
  turnId = "",
): GenerateChunk {
  return create(GenerateChunkSchema, { sessionId, turnId, event });
}

/**
 * Events as a client gets them, as many at a time as are ready, each made when it is taken; a `keep_alive` after every
 * `silenceMs` without one. Closes the events when left.
 * @param first is said before any event
 */
export async function* chunkBatches(
  sessionId: string,
  batches: AsyncGenerator<readonly LogRecord[]>,
  silenceMs: number,
  first?: GenerateChunk,
): AsyncGenerator<Iterable<GenerateChunk>> {
  let onSilence: (() => void) | undefined;
  const timer = setTimeout(() => onSilence?.(), silenceMs);
  try {
    if (first !== undefined) yield [first];
    let next = batches.next();
    for (;;) {
      timer.refresh();
      const result = await new Promise<IteratorResult<readonly LogRecord[]> | "silence">((resolve, reject) => {
        onSilence = () => resolve("silence");
        next.then(resolve, reject);
      });
      onSilence = undefined;
      if (result === "silence") {
        yield [controlChunk(sessionId, { case: "keepAlive", value: {} })];
        continue;
      }
      if (result.done) return;
      yield chunksOf(sessionId, result.value);
      next = batches.next();
    }
  } finally {
    clearTimeout(timer);
    await batches.return(undefined);
  }
}

function* chunksOf(sessionId: string, records: readonly LogRecord[]): Generator<GenerateChunk> {
  for (const record of records) yield logRecordToProto(sessionId, record);
}
