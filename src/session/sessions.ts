import { AgentError, invalidField } from "../chat/error.ts";
import type { LogRecord } from "../chat/log-event.ts";
import type { Message } from "../chat/message.ts";
import type { TurnRequest } from "../chat/request.ts";
import type { SessionConfig } from "../chat/session-config.ts";
import { decodeSessionConfig, encodeSessionConfig } from "../convert/proto/session-config.ts";
import { encodeTurnRequest } from "../convert/proto/stored-request.ts";
import type { NewSession, SessionPosition, Store, StoredSession } from "../log/store.ts";
import type { Tail } from "../log/tail.ts";
import { followLog, type ReadPage } from "./follow-log.ts";
import { separateLargeContent, withLargeContent, withoutReservedMetadata } from "./large-messages.ts";
import { LiveTails } from "./live-tails.ts";
import { loadState, logRecordFrom } from "./load-state.ts";
import { OneOffTurn } from "./one-off-turn.ts";
import { requestHash } from "./request-hash.ts";
import type { TurnEnvironment } from "./run-turn.ts";
import { cancelKey, type KeptState, LostSessionError, SessionWorker } from "./session-worker.ts";
import { emptyState } from "./state.ts";
import { decodeSummary, encodeSummary, summaryOf } from "./summary.ts";

export interface SessionsOptions {
  readonly store: Store;
  readonly environment: TurnEnvironment;
  /** The model asked where neither request nor session names one; empty for none. */
  readonly defaultModel: string;
  /** Where one-off turns and sessions without a workspace of their own work; an absolute path. */
  readonly defaultWorkspace: string;
  /** How long a one-off turn outlives its last reader; default 2 s. */
  readonly oneOffGraceMs?: number;
  /** How long a finished one-off turn with a request id can be joined; default 60 s. */
  readonly oneOffKeptMs?: number;
}

/** Who calls. Nothing of another tenant can be seen. */
export interface Principal {
  readonly tenant: string;
  readonly name: string;
}

/** A session as its readers see it. */
export interface SessionView {
  readonly sessionId: string;
  readonly config: SessionConfig;
  readonly state: "idle" | "running";
  readonly summary: ReturnType<typeof decodeSummary>;
  readonly headSeq: number;
  readonly parentId: string;
  readonly parentSeq: number;
  readonly waitingTurns: number;
  readonly createdMs: number;
  readonly updatedMs: number;
}

/** A turn that was admitted. */
export interface AdmittedTurn {
  readonly sessionId: string;
  readonly turnId: string;
  /** Another turn of the session runs or waits before it. */
  readonly queued: boolean;
  /** The session's last event when the turn was admitted. */
  readonly headSeq: number;
  /**
   * The events of this turn as they are committed, from `turn-started` to `turn-finished`. Leaving a one-off turn ends
   * it after a grace time; other turns go on.
   * @param signal ends the reading; the generator then throws the signal's reason.
   */
  read(signal: AbortSignal): AsyncGenerator<readonly LogRecord[]>;
}

const keptStates = 256;
const keptOneOffs = 1024;
const defaultOneOffGraceMs = 2000;
const defaultOneOffKeptMs = 60_000;

/** All sessions of this process: resources, turns and readers. */
export class Sessions {
  readonly #store: Store;
  readonly #environment: TurnEnvironment;
  readonly #options: SessionsOptions;
  readonly #tails = new LiveTails();
  readonly #workers = new Map<string, { readonly worker: SessionWorker; again: boolean; done: Promise<void> }>();
  readonly #oneOffs = new Map<string, OneOffTurn>();
  readonly #oneOffRequests = new Map<string, { readonly turn: OneOffTurn; readonly hash: string }>();
  readonly #kept = new Map<string, KeptState>();
  readonly #timers = new Set<NodeJS.Timeout>();
  /** Work on sessions that were deleted meanwhile, until it has ended. */
  readonly #leaving = new Set<Promise<void>>();
  /** How often in a row the work on a session broke off. */
  readonly #failures = new Map<string, number>();
  /** Turns of idle sessions on their way into the inbox. */
  #admitting = 0;
  /** Of `#oneOffs`, which also holds turns that have ended a moment ago. */
  #runningOneOffs = 0;
  #draining = false;

  constructor(options: SessionsOptions) {
    this.#store = options.store;
    this.#environment = options.environment;
    this.#options = options;
  }

  /** Goes on with the turns that were running when the server stopped last. */
  async recover(): Promise<void> {
    for (const sessionId of await this.#store.runnableSessions(this.#environment.limits.maxTurnsInFlight))
      this.#wake(sessionId);
  }

  /** @throws {AgentError} `already_exists` when the id is taken by another request. */
  async create(
    principal: Principal,
    config: SessionConfig,
    sessionId: string,
    requestId: string,
  ): Promise<SessionView> {
    const { messages, blobs } = separateLargeContent(config.initialMessages.map(withoutReservedMetadata));
    const small = { ...config, initialMessages: messages };
    const { created, session } = await this.#store.createSession({
      ...this.#newSession(principal, sessionId, requestId, { sessionId, config }),
      parentId: "",
      parentSeq: 0,
      config: encodeSessionConfig(small),
      summary: encodeSummary(summaryOf(emptyState(messages))),
      blobs,
    });
    return this.#createdView(created, session, requestId, requestHash({ sessionId, config }));
  }

  /** @throws {AgentError} `not_found`. */
  async get(principal: Principal, sessionId: string): Promise<SessionView> {
    return viewOf(await this.#stored(principal, sessionId));
  }

  async list(
    principal: Principal,
    before: SessionPosition | undefined,
    limit: number,
  ): Promise<readonly SessionView[]> {
    return (await this.#store.listSessions(principal.tenant, before, limit)).map(viewOf);
  }

  /** @throws {AgentError} `not_found`. */
  async update(
    principal: Principal,
    sessionId: string,
    change: (config: SessionConfig) => SessionConfig,
  ): Promise<SessionView> {
    for (;;) {
      const stored = await this.#stored(principal, sessionId);
      const config = encodeSessionConfig(change(decodeSessionConfig(stored.config)));
      if (await this.#store.updateConfig(sessionId, stored.configVersion, config, this.#environment.now())) {
        return this.get(principal, sessionId);
      }
    }
  }

  /** @throws {AgentError} `not_found`. */
  async delete(principal: Principal, sessionId: string): Promise<void> {
    if (!(await this.#store.deleteSession(principal.tenant, sessionId))) throw unknownSession(sessionId);
    const working = this.#workers.get(sessionId);
    if (working !== undefined) {
      // A new session may take the id before this work has ended: it gets a worker of its own.
      this.#workers.delete(sessionId);
      this.#leaving.add(working.done);
      void working.done.then(() => this.#leaving.delete(working.done));
      working.worker.stop();
    }
    this.#kept.delete(sessionId);
    this.#failures.delete(sessionId);
    this.#tails.end(sessionId, unknownSession(sessionId));
  }

  /**
   * @param throughSeq the last event to take over; absent means the last one of the last finished turn
   * @throws {AgentError} `not_found`, `already_exists`, `invalid_request` for a `throughSeq` that no turn ends at.
   */
  async fork(
    principal: Principal,
    sessionId: string,
    throughSeq: number | undefined,
    forked: { readonly sessionId: string; readonly title: string; readonly requestId: string },
  ): Promise<SessionView> {
    const parent = await this.#stored(principal, sessionId);
    const config = decodeSessionConfig(parent.config);
    if (throughSeq !== undefined && throughSeq > parent.headSeq) {
      throw invalidField("through_seq", `is ${throughSeq}, the log ends at ${parent.headSeq}`);
    }
    const state = await loadState(this.#store, sessionId, config, throughSeq ?? parent.headSeq);
    const through = throughSeq ?? state.lastTurn?.seq ?? 0;
    if (throughSeq !== undefined && state.turn !== undefined) {
      throw invalidField(
        "through_seq",
        `event ${throughSeq} is inside turn ${state.turn.turnId}; name the last event of a turn, the one before ends at ${state.lastTurn?.seq ?? 0}`,
      );
    }
    const request = { sessionId, throughSeq, forked };
    const { created, session } = await this.#store.forkSession(sessionId, through, {
      ...this.#newSession(principal, forked.sessionId, forked.requestId, request),
      parentId: sessionId,
      parentSeq: through,
      config: encodeSessionConfig({ ...config, title: forked.title === "" ? config.title : forked.title }),
      summary: encodeSummary(
        summaryOf(state.turn === undefined ? state : await loadState(this.#store, sessionId, config, through)),
      ),
      blobs: [],
    });
    return this.#createdView(created, session, forked.requestId, requestHash(request));
  }

  /** The history, oldest first, from `offset`. */
  async messages(principal: Principal, sessionId: string, offset: number, limit: number) {
    const stored = await this.#stored(principal, sessionId);
    const kept = this.#kept.get(sessionId);
    const idle = kept !== undefined && kept.state.seq === stored.headSeq && !this.#workers.has(sessionId);
    const state = idle
      ? kept.state
      : await loadState(this.#store, sessionId, decodeSessionConfig(stored.config), stored.headSeq);
    const page: Message[] = await withLargeContent(state.messages.slice(offset, offset + limit), (digest) =>
      this.#store.readBlob(sessionId, digest),
    );
    return { messages: page, more: state.messages.length > offset + limit };
  }

  /**
   * Admits a turn: from then on it runs to its end, whatever becomes of the caller.
   * @throws {AgentError} `not_found`, `failed_precondition` (no model), `already_exists` (request id with another payload),
   *   `resource_exhausted` (too many turns), `unavailable` (shutting down).
   */
  async startTurn(principal: Principal, asked: TurnRequest): Promise<AdmittedTurn> {
    if (this.#draining) throw shuttingDown();
    const hash = asked.requestId === "" ? "" : requestHash(asked);
    const request = { ...asked, messages: asked.messages.map(withoutReservedMetadata) };
    return request.sessionId === ""
      ? this.#startOneOff(principal, request, hash)
      : this.#startSessionTurn(principal, request, hash);
  }

  /**
   * Asks a turn to end.
   * @param turnId empty means the one that runs, else the next that waits
   * @throws {AgentError} `not_found` for an unknown session or turn.
   */
  async cancelTurn(
    principal: Principal,
    sessionId: string,
    turnId: string,
  ): Promise<{ turnId: string; wasRunning: boolean }> {
    const oneOff = this.#oneOffs.get(sessionId);
    if (oneOff !== undefined) {
      if (turnId !== "" && turnId !== oneOff.turnId) throw unknownTurn(turnId, sessionId);
      const wasRunning = !oneOff.hasEnded;
      oneOff.cancel();
      return { turnId: oneOff.turnId, wasRunning };
    }
    const stored = await this.#stored(principal, sessionId);
    const inbox = await this.#store.readInbox(sessionId);
    const waiting = inbox.filter((entry) => entry.kind === "turn").map((entry) => entry.turnId);
    const running = decodeSummary(stored.summary).currentTurnId;
    const target = turnId !== "" ? turnId : running !== "" ? running : (waiting[0] ?? "");
    if (target === "") return { turnId: "", wasRunning: false };
    if (target !== running && !waiting.includes(target)) {
      if (await this.#hadTurn(principal, sessionId, target, stored)) return { turnId: target, wasRunning: false };
      throw unknownTurn(target, sessionId);
    }
    await this.#store.send({
      sessionId,
      tenant: principal.tenant,
      key: cancelKey(target),
      kind: "cancel",
      turnId: target,
      principal: principal.name,
      body: new Uint8Array(),
      hash: "",
      atMs: this.#environment.now(),
      waitingLimit: Number.MAX_SAFE_INTEGER,
    });
    this.#workers.get(sessionId)?.worker.cancel(target);
    this.#wake(sessionId);
    return { turnId: target, wasRunning: true };
  }

  /**
   * Reads the log of a session from a cursor.
   * @throws {AgentError} `not_found`, `invalid_request` for a cursor beyond the head.
   */
  async subscribe(principal: Principal, sessionId: string, afterSeq: number, follow: boolean) {
    const oneOff = this.#oneOffs.get(sessionId);
    if (oneOff !== undefined) {
      checkCursor(afterSeq, oneOff.tail.headSeq);
      const { tail } = oneOff;
      return {
        headSeq: tail.headSeq,
        earliestSeq: Math.min(1, tail.headSeq),
        read: (signal: AbortSignal) => readTail(tail, () => oneOff.enter(), noPage, afterSeq, follow, signal),
      };
    }
    const stored = await this.#stored(principal, sessionId);
    checkCursor(afterSeq, stored.headSeq);
    return {
      headSeq: stored.headSeq,
      earliestSeq: Math.min(1, stored.headSeq),
      read: (signal: AbortSignal) => this.#readSession(principal, sessionId, afterSeq, follow, stored.headSeq, signal),
    };
  }

  /** Refuses new turns, lets running ones finish, and leaves those that do not within the grace time for the next start. */
  async drain(graceMs: number): Promise<void> {
    this.#draining = true;
    const running = [...[...this.#workers.values()].map((entry) => entry.done), ...this.#leaving];
    const oneOffs = [...this.#oneOffs.values()].map((turn) => turn.ended);
    const all = Promise.allSettled([...running, ...oneOffs]);
    const { promise: late, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, graceMs);
    await Promise.race([all, late]);
    clearTimeout(timer);
    for (const { worker } of this.#workers.values()) worker.stop();
    for (const turn of this.#oneOffs.values()) turn.stop();
    this.#tails.endAll(shuttingDown());
    await all;
    for (const pending of this.#timers) clearTimeout(pending);
    this.#timers.clear();
  }

  get draining(): boolean {
    return this.#draining;
  }

  #newSession(principal: Principal, sessionId: string, requestId: string, payload: object) {
    const { environment } = this.#options;
    // Without an id of its own, a session asked for again under one request id has to be the same one.
    const derived =
      requestId === "" ? environment.newId("ses") : `ses_${requestHash([principal.tenant, requestId]).slice(0, 32)}`;
    return {
      sessionId: sessionId === "" ? derived : sessionId,
      tenant: principal.tenant,
      requestId,
      requestHash: requestHash(payload),
      atMs: environment.now(),
    } satisfies Partial<NewSession>;
  }

  #createdView(created: boolean, session: StoredSession, requestId: string, hash: string): SessionView {
    if (created || (requestId !== "" && session.requestId === requestId && session.requestHash === hash))
      return viewOf(session);
    if (requestId !== "" && session.requestId === requestId) throw otherPayload(requestId);
    throw new AgentError("already_exists", `session ${session.sessionId} exists; choose another id or leave it out`, {
      reason: "SESSION_EXISTS",
    });
  }

  async #startSessionTurn(principal: Principal, request: TurnRequest, hash: string): Promise<AdmittedTurn> {
    const { sessionId } = request;
    const stored = await this.#stored(principal, sessionId);
    const model = this.#modelName(request.model, decodeSessionConfig(stored.config).model);
    const queued = this.#workers.has(sessionId);
    if (!queued) this.#checkRoom();
    const turnId = this.#environment.newId("turn");
    const { maxQueuedTurns } = this.#environment.limits;
    if (!queued) this.#admitting++;
    const sending = this.#store.send({
      sessionId,
      tenant: principal.tenant,
      key: `turn:${request.requestId === "" ? turnId : request.requestId}`,
      kind: "turn",
      turnId,
      principal: principal.name,
      body: encodeTurnRequest({ ...request, model }),
      hash,
      atMs: this.#environment.now(),
      waitingLimit: maxQueuedTurns,
    });
    const sent = await sending.finally(() => {
      if (!queued) this.#admitting--;
    });
    if (sent === undefined) throw unknownSession(sessionId);
    if (sent === "full")
      throw tooMany(`${maxQueuedTurns} turns wait in session ${sessionId} already`, "TURN_QUEUE_FULL");
    if (sent.hash !== hash) throw otherPayload(request.requestId);
    this.#wake(sessionId);
    const afterSeq = sent.firstSeq === undefined ? sent.headSeq : sent.firstSeq - 1;
    return {
      sessionId,
      turnId: sent.turnId,
      queued: queued && sent.firstSeq === undefined,
      headSeq: sent.headSeq,
      read: (signal) =>
        onlyTurn(sent.turnId, this.#readSession(principal, sessionId, afterSeq, true, sent.headSeq, signal)),
    };
  }

  #startOneOff(principal: Principal, request: TurnRequest, hash: string): AdmittedTurn {
    const key = request.requestId === "" ? "" : requestHash([principal.tenant, request.requestId]);
    const known = key === "" ? undefined : this.#oneOffRequests.get(key);
    if (known !== undefined && known.hash !== hash) throw otherPayload(request.requestId);
    const turn = known?.turn ?? this.#newOneOff(principal, { ...request, model: this.#modelName(request.model, "") });
    if (known === undefined && key !== "") {
      this.#oneOffRequests.set(key, { turn, hash });
      const oldest = this.#oneOffRequests.keys().next();
      if (this.#oneOffRequests.size > keptOneOffs && oldest.done === false) this.#oneOffRequests.delete(oldest.value);
      void turn.ended.then(() =>
        this.#later(this.#options.oneOffKeptMs ?? defaultOneOffKeptMs, () => this.#oneOffRequests.delete(key)),
      );
    }
    return {
      sessionId: turn.sessionId,
      turnId: turn.turnId,
      queued: false,
      headSeq: 0,
      read: (signal) => readTail(turn.tail, () => turn.enter(), noPage, 0, true, signal),
    };
  }

  #newOneOff(principal: Principal, request: TurnRequest): OneOffTurn {
    this.#checkRoom();
    const graceMs = this.#options.oneOffGraceMs ?? defaultOneOffGraceMs;
    const { newId } = this.#environment;
    const turn = new OneOffTurn(
      {
        sessionId: newId("ses"),
        turnId: newId("turn"),
        principal: principal.name,
        request,
        workspace: this.#options.defaultWorkspace,
        graceMs,
      },
      this.#environment,
    );
    this.#oneOffs.set(turn.sessionId, turn);
    this.#runningOneOffs++;
    void turn.ended.then(() => {
      this.#runningOneOffs--;
      // A reader that lost its connection near the end may still come back for the rest.
      this.#later(graceMs, () => this.#oneOffs.delete(turn.sessionId));
    });
    return turn;
  }

  async *#readSession(
    principal: Principal,
    sessionId: string,
    afterSeq: number,
    follow: boolean,
    headSeq: number,
    signal: AbortSignal,
  ) {
    const { tail, release } = this.#tails.hold(sessionId);
    try {
      // Deleted before the tail was held: nobody would ever end it.
      if (follow) await this.#stored(principal, sessionId);
      tail.advanceTo(headSeq);
      const readPage = async (cursor: number, limit: number, limitBytes: number) =>
        (await this.#store.readEvents(sessionId, cursor, limit, limitBytes)).map(logRecordFrom);
      yield* followLog(tail, readPage, afterSeq, follow, signal);
    } finally {
      release();
    }
  }

  /** Sees to it that somebody works on a session; harmless when somebody does. */
  #wake(sessionId: string): void {
    const working = this.#workers.get(sessionId);
    if (working !== undefined) {
      working.again = true;
      return;
    }
    if (this.#draining) return;
    const { tail, release } = this.#tails.hold(sessionId);
    const worker = new SessionWorker(sessionId, this.#store, this.#environment, tail);
    const entry = { worker, again: false, done: Promise.resolve() };
    this.#workers.set(sessionId, entry);
    entry.done = this.#work(sessionId, entry, release);
  }

  async #work(sessionId: string, entry: { worker: SessionWorker; again: boolean }, release: () => void): Promise<void> {
    try {
      for (;;) {
        entry.again = false;
        const { kept, more } = await entry.worker.run(this.#kept.get(sessionId));
        if (this.#workers.get(sessionId) !== entry) return;
        this.#keep(sessionId, kept);
        this.#failures.delete(sessionId);
        if (!more && !entry.again) return;
        if (this.#draining) return;
      }
    } catch (error) {
      if (this.#workers.get(sessionId) !== entry) return;
      this.#kept.delete(sessionId);
      this.#environment.report("error", "a session could not go on", { sessionId, error });
      this.#tails.end(sessionId, storeTrouble(error));
      this.#tryAgain(sessionId, error);
    } finally {
      if (this.#workers.get(sessionId) === entry) this.#workers.delete(sessionId);
      release();
    }
  }

  /**
   * The work on a session broke off: goes on with it as soon as the store works again. What no waiting mends (a log that
   * can't be read) is tried less and less often.
   */
  #tryAgain(sessionId: string, error: unknown): void {
    if (this.#draining) return; // the next start goes on with it
    const lost = error instanceof LostSessionError ? error : undefined;
    const cause = lost === undefined ? error : lost.cause;
    const mends = cause instanceof AgentError && (cause.kind === "unavailable" || cause.kind === "resource_exhausted");
    const failures = this.#failures.get(sessionId) ?? 0;
    this.#failures.set(sessionId, failures + 1);
    const delayMs = Math.min(1000 * 2 ** Math.min(failures, 10), mends ? 4000 : 300_000);
    // Given up at once where that works, so that the next request need not wait for the next try.
    const released = lost === undefined ? Promise.resolve() : this.#store.release(sessionId, lost.claim.fence, true);
    released.then(
      () => this.#later(delayMs, () => this.#wake(sessionId)),
      () => this.#later(delayMs, () => this.#tryAgain(sessionId, error)),
    );
  }

  #keep(sessionId: string, kept: KeptState | undefined): void {
    this.#kept.delete(sessionId);
    if (kept === undefined) return;
    this.#kept.set(sessionId, kept);
    const oldest = this.#kept.keys().next();
    if (this.#kept.size > keptStates && oldest.done === false) this.#kept.delete(oldest.value);
  }

  #later(delayMs: number, action: () => void): void {
    if (this.#draining) {
      action();
      return;
    }
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      action();
    }, delayMs);
    this.#timers.add(timer);
  }

  #modelName(asked: string, ofSession: string): string {
    const name = asked || ofSession || this.#options.defaultModel;
    if (name === "") {
      throw new AgentError(
        "failed_precondition",
        "no model is named in the request or the session and the server has no default; name one as provider/model, or start the server with CODEAGENT_MODEL",
        { reason: "NO_MODEL" },
      );
    }
    this.#environment.models.find(name);
    return name;
  }

  #checkRoom(): void {
    const { maxTurnsInFlight } = this.#environment.limits;
    if (this.#workers.size + this.#admitting + this.#runningOneOffs >= maxTurnsInFlight)
      throw tooMany(`${maxTurnsInFlight} turns run already`, "TOO_MANY_TURNS");
  }

  async #stored(principal: Principal, sessionId: string): Promise<StoredSession> {
    const stored = await this.#store.readSession(principal.tenant, sessionId);
    if (stored === undefined) throw unknownSession(sessionId);
    return stored;
  }

  async #hadTurn(
    principal: Principal,
    sessionId: string,
    turnId: string,
    { headSeq }: StoredSession,
  ): Promise<boolean> {
    const { signal } = new AbortController();
    for await (const records of this.#readSession(principal, sessionId, 0, false, headSeq, signal)) {
      if (records.some((record) => record.turnId === turnId)) return true;
    }
    return false;
  }
}

/** Follows a log as somebody who counts: `enter` is called when the reading begins, what it returns when it ends. */
async function* readTail(
  tail: Tail,
  enter: () => () => void,
  readPage: ReadPage,
  afterSeq: number,
  follow: boolean,
  signal: AbortSignal,
): AsyncGenerator<readonly LogRecord[]> {
  const leave = enter();
  try {
    yield* followLog(tail, readPage, afterSeq, follow, signal);
  } finally {
    leave();
  }
}

async function* onlyTurn(
  turnId: string,
  batches: AsyncGenerator<readonly LogRecord[]>,
): AsyncGenerator<readonly LogRecord[]> {
  for await (const records of batches) {
    const own = records.filter((record) => record.turnId === turnId);
    if (own.length > 0) yield own;
    if (own.at(-1)?.event.type === "turn-finished") return;
  }
}

async function noPage(): Promise<readonly LogRecord[]> {
  throw new AgentError("internal", "a one-off turn keeps its whole log");
}

function viewOf(stored: StoredSession): SessionView {
  const summary = decodeSummary(stored.summary);
  return {
    sessionId: stored.sessionId,
    config: decodeSessionConfig(stored.config),
    state: summary.currentTurnId !== "" || stored.waitingTurns > 0 ? "running" : "idle",
    summary,
    headSeq: stored.headSeq,
    parentId: stored.parentId,
    parentSeq: stored.parentSeq,
    waitingTurns: stored.waitingTurns,
    createdMs: stored.createdMs,
    updatedMs: stored.updatedMs,
  };
}

function checkCursor(afterSeq: number, headSeq: number): void {
  if (afterSeq > headSeq) throw invalidField("after_seq", `is ${afterSeq}, the log ends at ${headSeq}`);
}

function unknownSession(sessionId: string): AgentError {
  return new AgentError("not_found", `there is no session ${sessionId}`, { reason: "SESSION_NOT_FOUND" });
}

function unknownTurn(turnId: string, sessionId: string): AgentError {
  return new AgentError("not_found", `session ${sessionId} has no turn ${turnId}`, { reason: "TURN_NOT_FOUND" });
}

function otherPayload(requestId: string): AgentError {
  return new AgentError("already_exists", `request_id ${requestId} was used with another payload; choose a new one`, {
    reason: "REQUEST_ID_REUSED",
  });
}

function tooMany(what: string, reason: string): AgentError {
  return new AgentError("resource_exhausted", `${what}; try again when one has ended`, {
    reason,
    retryAfterMs: 1000,
    detail: { retryable: true },
  });
}

function shuttingDown(): AgentError {
  return new AgentError("unavailable", "the server is shutting down; come back with the last seq you have", {
    reason: "SHUTTING_DOWN",
    retryAfterMs: 1000,
    detail: { retryable: true },
  });
}

function storeTrouble(error: unknown): AgentError {
  const cause = error instanceof LostSessionError ? error.cause : error;
  return cause instanceof AgentError
    ? cause
    : new AgentError("unavailable", "the session can't go on now; come back with the last seq you have", {
        detail: { retryable: true },
        cause,
      });
}
