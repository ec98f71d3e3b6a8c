import { type DescMethod, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, type ServiceImpl } from "@connectrpc/connect";
import {
  type AgentEvent,
  AgentEventSchema,
  CodeAgentService,
  type SubscribeEventsRequest,
  SubscribeEventsRequestSchema,
} from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { AgentError } from "../../chat/error.ts";
import type { LogRecord, PendingRequestKind } from "../../chat/log-event.ts";
import { isPruned } from "../../session/follow-log.ts";
import type { Sessions } from "../../session/sessions.ts";
import { theCaller } from "../caller.ts";
import { errorForClient, type ReportFault } from "../error-interceptor.ts";
import { optionalSessionIdFrom } from "../request-fields.ts";
import { serverIsStopping } from "../stopping.ts";
import { eventFromLegacy, eventsFromRecord, isTold, sessionDestroyed, typesFrom, warning } from "./event-mapping.ts";
import type { LegacyCore } from "./legacy-core.ts";
import type { LegacyEvent } from "./legacy-events.ts";

/** From the bytes of a request to the bytes of the messages that answer it, as many at a time as are ready. */
type EncodedCall = (request: Uint8Array, signal: AbortSignal) => AsyncIterable<readonly Uint8Array[]>;

/** Events that are in no log wait for a slow reader up to so many; the oldest go first. */
const mostWaiting = 1000;
/** Requests of which is known what they are about. */
const mostKinds = 10_000;

type SubscribeEvents = Pick<SubscribeEventsRequest, "sessionId" | "eventTypes">;

/** Where the events come from. */
export interface EventSources extends Pick<LegacyCore, "events" | "stopping"> {
  readonly sessions: Pick<Sessions, "listen" | "subscribe" | "pendingRequests">;
  readonly environment: Pick<LegacyCore["environment"], "now">;
}

/** Of the earlier service: the stream of events. */
export function eventHandlers(core: LegacyCore) {
  return {
    async *subscribeEvents(request, context) {
      for await (const events of eventBatches(core, request, context.signal)) yield* events;
    },
  } satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}

/**
 * `SubscribeEvents` from bytes to bytes, by path. Says at once, by the headers of the answer, that it listens: Connect's
 * library would keep them until the first event.
 */
export function encodedEventCalls(core: LegacyCore, report: ReportFault): ReadonlyMap<string, EncodedCall> {
  const path = pathOf(CodeAgentService.method.subscribeEvents);
  const subscribe: EncodedCall = async function* (bytes, signal) {
    try {
      for await (const events of eventBatches(core, requestFrom(bytes), signal))
        yield events.map((event) => toBinary(AgentEventSchema, event));
    } catch (error) {
      throw errorForClient(error, path.slice(1), report);
    }
  };
  return new Map([[path, subscribe]]);
}

function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

function requestFrom(bytes: Uint8Array): SubscribeEvents {
  try {
    return fromBinary(SubscribeEventsRequestSchema, bytes);
  } catch (error) {
    throw new ConnectError(`parse binary: ${error instanceof Error ? error.message : String(error)}`, Code.Internal);
  }
}

/**
 * What happens from now on, in one session or in all that this process works on: first an empty batch, when it listens, then
 * events as they come. What is in a log is read from there when the reader has taken what came before, so a slow reader
 * costs no memory; of what is in none, a bounded number waits, and a warning says how much was left out. Ends when the one
 * session is deleted.
 * @param signal ends it; the generator then throws the signal's reason
 * @throws {AgentError} `invalid_request`, `not_found`; `unavailable` when the server stops.
 */
export async function* eventBatches(
  core: EventSources,
  request: SubscribeEvents,
  signal: AbortSignal,
): AsyncGenerator<readonly AgentEvent[]> {
  const isWanted = typesFrom(request.eventTypes);
  const sessionId = optionalSessionIdFrom(request.sessionId ?? "");
  const kinds = new Map<string, PendingRequestKind>();
  const leaving = new AbortController();
  const ended = AbortSignal.any([signal, core.stopping, leaving.signal]);
  let wake: (() => void) | undefined;
  const waiting = new WaitingEvents(() => wake?.());
  const stopListening = core.events.listen((event) => {
    // That its own session is gone is told by the end of its log.
    const isOwn = event.sessionId === sessionId && event.type !== "SESSION_DESTROYED";
    if (sessionId === "" || isOwn) waiting.add(event);
  });
  let records: AsyncGenerator<SessionRecords> | undefined;
  try {
    records = sessionId === "" ? recordsOfAll(core, ended) : await recordsOf(core, sessionId, ended);
    let read = nextOf(records, () => wake?.());
    for (const { request: open } of await openRequests(core, sessionId)) kinds.set(open.requestId, open.kind);
    yield [];
    for (;;) {
      ended.throwIfAborted();
      const others = waiting.take(sessionId, core.environment.now()).filter(isWanted);
      if (others.length > 0) yield others;
      const { outcome } = read;
      if (outcome === undefined) {
        if (!waiting.isEmpty) continue;
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
        wake = undefined;
        continue;
      }
      if ("error" in outcome) {
        const isGone = outcome.error instanceof AgentError && outcome.error.kind === "not_found";
        if (!isGone || sessionId === "") throw outcome.error;
        yield [sessionDestroyed(sessionId, core.environment.now())].filter(isWanted);
        return;
      }
      if (outcome.result.done === true) return;
      const { sessionId: from, records: batch } = outcome.result.value;
      const events = batch.flatMap((record) => eventsFromRecord(from, record, kinds)).filter(isWanted);
      if (kinds.size > mostKinds) kinds.clear();
      if (events.length > 0) yield events;
      read = nextOf(records, () => wake?.());
    }
  } catch (error) {
    if (core.stopping.aborted && !signal.aborted) throw serverIsStopping("subscribe again when it is back");
    throw error;
  } finally {
    stopListening();
    // Ends it where it waits for news.
    leaving.abort();
    await records?.return(undefined);
  }
}

/** What waits for people when somebody begins to listen, so that its answers can be told apart. */
async function openRequests(core: EventSources, sessionId: string) {
  return (await core.sessions.pendingRequests(theCaller, sessionId, undefined, 1000)).requests;
}

interface SessionRecords {
  readonly sessionId: string;
  readonly records: readonly LogRecord[];
}

type Outcome = { readonly result: IteratorResult<SessionRecords, unknown> } | { readonly error: unknown };

/** What a generator gives next, once it does. */
function nextOf(records: AsyncGenerator<SessionRecords>, onSettled: () => void): { readonly outcome?: Outcome } {
  const read: { outcome?: Outcome } = {};
  const settle = (outcome: Outcome) => {
    read.outcome = outcome;
    onSettled();
  };
  records.next().then(
    (result) => settle({ result }),
    (error: unknown) => settle({ error }),
  );
  return read;
}

/** @throws {AgentError} `not_found`. */
async function recordsOf(
  { sessions }: EventSources,
  sessionId: string,
  signal: AbortSignal,
): Promise<AsyncGenerator<SessionRecords>> {
  const { headSeq } = await sessions.subscribe(theCaller, sessionId, 0, false);
  const reading = await sessions.subscribe(theCaller, sessionId, headSeq, true);
  return (async function* () {
    for await (const batch of reading.read(signal))
      if (!isPruned(batch)) yield { sessionId, records: batch.filter(isTold) };
  })();
}

/** Holds, of each session in which something happened, only from where it has to be read. */
async function* recordsOfAll({ sessions }: EventSources, signal: AbortSignal): AsyncGenerator<SessionRecords> {
  const grown = new Map<string, number>();
  let wake: (() => void) | undefined;
  const stopListening = sessions.listen((sessionId, afterSeq, records) => {
    if (records?.some(isTold) === false || grown.has(sessionId)) return;
    grown.set(sessionId, afterSeq);
    wake?.();
  });
  const onAbort = () => wake?.();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    for (;;) {
      signal.throwIfAborted();
      const [next] = grown;
      if (next === undefined) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
        wake = undefined;
        continue;
      }
      const [sessionId, afterSeq] = next;
      grown.delete(sessionId);
      let cursor = afterSeq;
      try {
        const reading = await sessions.subscribe(theCaller, sessionId, afterSeq, false);
        for await (const batch of reading.read(signal)) {
          if (isPruned(batch)) continue;
          cursor = batch.at(-1)?.seq ?? cursor;
          yield { sessionId, records: batch.filter(isTold) };
        }
      } catch (error) {
        // Deleted meanwhile, or of somebody else: there is nothing to tell.
        const isGone = error instanceof AgentError && error.kind === "not_found";
        if (!isGone) throw error;
      }
      // It may have grown while it was read.
      if (grown.has(sessionId)) grown.set(sessionId, Math.max(cursor, grown.get(sessionId) ?? 0));
    }
  } finally {
    stopListening();
    signal.removeEventListener("abort", onAbort);
  }
}

/** Events that are in no log, until they are taken. */
class WaitingEvents {
  #events: LegacyEvent[] = [];
  #leftOut = 0;
  readonly #onNews: () => void;

  constructor(onNews: () => void) {
    this.#onNews = onNews;
  }

  get isEmpty(): boolean {
    return this.#events.length === 0;
  }

  add(event: LegacyEvent): void {
    if (this.#events.length >= mostWaiting) {
      this.#events.shift();
      this.#leftOut++;
    }
    this.#events.push(event);
    this.#onNews();
  }

  /** @param sessionId that the subscriber listens to */
  take(sessionId: string, nowMs: number): AgentEvent[] {
    const events = this.#events.splice(0).flatMap(eventFromLegacy);
    if (this.#leftOut === 0) return events;
    const message = `this stream is read too slowly: ${this.#leftOut} events were left out here`;
    this.#leftOut = 0;
    return [warning(sessionId, nowMs, message, "SLOW_READER"), ...events];
  }
}
