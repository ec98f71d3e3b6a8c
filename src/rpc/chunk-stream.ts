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
 * Events as a client gets them, with a `keep_alive` after every `silenceMs` without one. Closes the events when left.
 */
export async function* chunkStream(
  sessionId: string,
  batches: AsyncGenerator<readonly LogRecord[]>,
  silenceMs: number,
): AsyncGenerator<GenerateChunk> {
  let timer: NodeJS.Timeout | undefined;
  try {
    let next = batches.next();
    for (;;) {
      const silence = new Promise<"silence">((resolve) => {
        timer = setTimeout(resolve, silenceMs, "silence");
      });
      const result = await Promise.race([next, silence]);
      clearTimeout(timer);
      if (result === "silence") {
        next.catch(() => undefined); // it may fail after the reader has left here
        yield controlChunk(sessionId, { case: "keepAlive", value: {} });
        continue;
      }
      if (result.done) return;
      for (const record of result.value) yield logRecordToProto(sessionId, record);
      next = batches.next();
    }
  } finally {
    clearTimeout(timer);
    await batches.return(undefined);
  }
}
