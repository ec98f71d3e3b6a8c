import type { ChatEvent } from "../chat/event.ts";
import type { SseMessage } from "../stream/sse.ts";

/** An answer while it is read. */
interface Answer {
  /** Nothing that follows belongs to it. */
  done(): boolean;
  /** What was read since it was asked last. */
  take(): ChatEvent[];
}

/** What a batch of messages says: the events before a failure are not lost for it. */
export interface ReadBatch {
  readonly events: ChatEvent[];
  /** To be thrown once the events are handed on. */
  readonly failure?: { readonly error: unknown };
}

/** Reads the messages of one network read, up to the end of the answer. */
export function readBatch<Reading extends Answer>(
  answer: Reading,
  batch: readonly SseMessage[],
  read: (answer: Reading, message: SseMessage) => void,
): ReadBatch {
  try {
    for (const message of batch) {
      if (answer.done()) break;
      read(answer, message);
    }
  } catch (error) {
    return { events: answer.take(), failure: { error } };
  }
  return { events: answer.take() };
}
