import { once } from "node:events";
import type { GenerateChunk, PendingRequest } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { grammarCheck } from "./grammar.ts";

/** Reads a stream of events in the background, through the automaton of the grammar. */
export function readAlong(chunks: AsyncIterable<GenerateChunk>) {
  const seen: GenerateChunk[] = [];
  const news = new EventTarget();
  const check = grammarCheck();
  let isOver = false;
  const ended = (async () => {
    try {
      for await (const chunk of chunks) {
        check.add(chunk);
        seen.push(chunk);
        news.dispatchEvent(new Event("news"));
      }
    } finally {
      isOver = true;
      news.dispatchEvent(new Event("news"));
    }
  })();
  ended.catch(() => undefined); // whoever waits for the end hears of it
  return {
    seen,
    /** Waits for the end of the stream, and for the turn's. */
    async end(): Promise<readonly GenerateChunk[]> {
      await ended;
      check.end();
      return seen;
    },
    /** Waits until so many requests were opened, and gives them in order. */
    async requests(count: number): Promise<readonly PendingRequest[]> {
      for (;;) {
        const opened = seen.flatMap(({ event }) =>
          event.case === "requestOpened" && event.value.request !== undefined ? [event.value.request] : [],
        );
        if (opened.length >= count) return opened;
        if (isOver) throw new Error(`the stream ended after ${opened.length} of ${count} requests`);
        await once(news, "news");
      }
    },
    /** Waits until a tool of that name has finished so often. */
    async finished(name: string, count = 1): Promise<void> {
      const times = () => seen.filter(({ event }) => event.case === "toolFinished" && event.value.name === name).length;
      while (times() < count) {
        if (isOver) throw new Error(`the stream ended before ${name} had finished`);
        await once(news, "news");
      }
    },
  };
}
