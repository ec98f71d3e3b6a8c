import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { at, type LegacyClient, type LegacyMessage } from "./legacy-client.ts";

/** Subscribes to events, waits until the server listens, and reads along in the background. */
export async function listenToEvents(client: LegacyClient, request: LegacyMessage = {}) {
  const stream = client.stream("SubscribeEvents", request);
  assert.ok(stream instanceof EventEmitter);
  await once(stream, "metadata", { signal: AbortSignal.timeout(5000) });
  const seen: LegacyMessage[] = [];
  const news = new EventTarget();
  let isOver = false;
  const ended = (async () => {
    try {
      for await (const event of stream) {
        seen.push(event);
        news.dispatchEvent(new Event("news"));
      }
    } finally {
      isOver = true;
      news.dispatchEvent(new Event("news"));
    }
  })();
  ended.catch(() => undefined); // whoever waits for the end hears of it
  const ofType = (type: string) => seen.filter((event) => event["type"] === `EVENT_TYPE_${type}`);
  return {
    seen,
    /** Names of the types seen, without their prefix. */
    types: () => seen.map((event) => String(event["type"]).replace("EVENT_TYPE_", "")),
    /** Waits for the nth event of a type, and gives it. */
    async next(type: string, nth = 1): Promise<LegacyMessage> {
      for (;;) {
        const found = ofType(type)[nth - 1];
        if (found !== undefined) return found;
        if (isOver) throw new Error(`the stream ended before ${type} came`);
        await once(news, "news", { signal: AbortSignal.timeout(5000) });
      }
    },
    /** Waits for the end. @throws {ServiceError} of grpc-js. */
    end: () => ended,
    cancel: () => stream.cancel(),
  };
}

/** A value of an event's data. */
export function data(event: LegacyMessage, key: string): string {
  return String(at(event, `data.${key}`));
}
