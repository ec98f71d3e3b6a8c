import { AgentError, invalidField } from "../chat/error.ts";
import type { LogEvent, RequestAnswer } from "../chat/log-event.ts";
import type { Message } from "../chat/message.ts";
import type { TurnRequest } from "../chat/request.ts";
import type { SessionConfig } from "../chat/session-config.ts";
import { maxTodoCharacters, maxTodos, type Todo } from "../chat/todo.ts";
import { decodeSessionConfig, encodeSessionConfig } from "../convert/proto/session-config.ts";
import { encodeTurnRequest } from "../convert/proto/stored-request.ts";
import type { NewSession, SessionPosition, Store, StoredSession, StoreListener } from "../log/store.ts";
import { type PermissionGrant, rulesOf, type SessionRules } from "../tool/permission.ts";
import { checkToolChoice, checkTurn, namedTool } from "./admission.ts";
import { budgetError, type SpentBudget, spentOf } from "./budgets.ts";
import { type CompactionRequest, encodeCompactionRequest } from "./compaction-request.ts";
import { followLog, isPruned, type LogPages } from "./follow-log.ts";
import { grantsOf } from "./grants.ts";
import { messageBytes, separateLargeContent, withLargeContent, withoutReservedMetadata } from "./large-messages.ts";
import { LiveTails, type LogListener } from "./live-tails.ts";
import { loadState, logRecordFrom } from "./load-state.ts";
import { earliestSeqOf, type LogReading, onlyTurn, readingOf } from "./log-reading.ts";
import { newMessages, nothingNew } from "./new-messages.ts";
import { OneOffTurns, type OneOffTurnsOptions } from "./one-off-turns.ts";
import { type GivenAnswer, PendingRequests, type RequestPosition } from "./pending-requests.ts";
import { checkProfile, type TurnTerms, turnTerms, withProfileNames } from "./profile.ts";
import { requestHash } from "./request-hash.ts";
import { type NoteOf, RequestAnsweredError } from "./requests.ts";
import type { TurnEnvironment } from "./run-turn.ts";
import { decodeSessionChange, encodeSessionChange, type SessionChange } from "./session-change.ts";
import {
  heldBack,
  lostSuffix,
  otherPayload,
  shuttingDown,
  tooMany,
  unknownSession,
  unknownTurn,
} from "./session-errors.ts";
import { asStored, type SessionView, viewOf } from "./session-view.ts";
import { cancelKey } from "./session-worker.ts";
import { emptyState } from "./state.ts";
import { decodeSummary, encodeSummary, summaryOf } from "./summary.ts";
import { Timers } from "./timers.ts";
import { Workers } from "./workers.ts";

export interface SessionsOptions {
  readonly store: Store;
  readonly environment: TurnEnvironment;
  /** The model asked where neither request nor session names one; empty for none. May be another one each time. */
  readonly defaultModel: string;
  readonly oneOff: OneOffTurnsOptions;
  /** Names under which sessions may ask for this server; default none. */
  readonly placements?: readonly string[];
}

/** Who calls. Nothing of another tenant can be seen. */
export interface Principal {
  readonly tenant: string;
  readonly name: string;
}

/** What a session's calls are judged by. */
export interface SessionPermissions {
  readonly rules: SessionRules;
  readonly grants: readonly PermissionGrant[];
  readonly workspace: string;
}

/**
 * A turn that was admitted, and its events, from `turn-started` to `turn-finished`. Leaving a one-off turn ends it after a
 * grace time; other turns go on.
 */
export interface AdmittedTurn extends LogReading {
  readonly sessionId: string;
  readonly turnId: string;
  /** Another turn of the session runs or waits before it. */
  readonly queued: boolean;
}

/** All sessions of this process: resources, turns and readers. */
export class Sessions {
  readonly #store: Store;
  readonly #environment: TurnEnvironment;
  readonly #options: SessionsOptions;
  readonly #tails = new LiveTails();
  readonly #timers = new Timers();
  readonly #workers: Workers;
  readonly #oneOffs: OneOffTurns;
  readonly #requests: PendingRequests;
  /** Turns of idle sessions on their way into the inbox. */
  #admitting = 0;
  #draining = false;

  constructor(options: SessionsOptions) {
    const { store } = options;
    const environment = { ...options.environment, sessions: this };
    this.#store = store;
    this.#environment = environment;
    this.#options = options;
    this.#workers = new Workers(store, environment, this.#tails, this.#timers);
    this.#oneOffs = new OneOffTurns(environment, options.oneOff, this.#timers);
    this.#requests = new PendingRequests(store, environment.now, this.#workers, this.#oneOffs);
  }

  /** Goes on with the turns that were running when the server stopped last, and with those other processes leave. */
  async recover(): Promise<void> {
    await this.#store.start(this.#listener());
    await this.#workers.recover();
  }

  /** @throws {AgentError} `failed_precondition` for a placement that no server can have. */
  checkPlacement({ placement = "" }: SessionConfig): void {
    if (placement === "" || this.#store.shared || this.#options.placements?.includes(placement) === true) return;
    throw new AgentError(
      "failed_precondition",
      `no server has the placement ${placement}: this one keeps its sessions to itself and does not; leave it out, or add it to the setting placement`,
      { reason: "NO_PLACEMENT" },
    );
  }

  /**
   * @throws {AgentError} `already_exists` when the id is taken by another request, `failed_precondition` for a placement
   *   that no server can have.
   */
  async create(
    principal: Principal,
    config: SessionConfig,
    sessionId: string,
    requestId: string,
    note: NoteOf<SessionView> = nothingToNote,
  ): Promise<SessionView> {
    this.checkPlacement(config);
    const { messages, blobs } = separateLargeContent(config.initialMessages.map(withoutReservedMetadata));
    const small = { ...config, initialMessages: messages };
    const session = {
      ...this.#newSession(principal, sessionId, requestId, { sessionId, config }),
      parentId: "",
      parentSeq: 0,
      placement: config.placement ?? "",
      config: encodeSessionConfig(small),
      summary: encodeSummary(summaryOf(emptyState(messages))),
      blobs,
    };
    const made = await this.#store.createSession(session, note(viewOf(asStored(session, 0))));
    if (made === "answered") throw new RequestAnsweredError();
    return this.#createdView(made.created, made.session, requestId, requestHash({ sessionId, config }));
  }

  /** @throws {AgentError} `not_found`. */
  async get(principal: Principal, sessionId: string): Promise<SessionView> {
    return viewOf(await this.#stored(principal, sessionId));
  }

  /** Newest first: at most `limit` sessions and no more bytes than fit an answer. */
  async list(principal: Principal, before: SessionPosition | undefined, limit: number) {
    const stored = await this.#store.listSessions(principal.tenant, before, limit + 1);
    let bytes = 0;
    const page = stored.slice(0, limit).filter((session, index) => {
      bytes += session.config.length;
      return bytes <= maxPageBytes || index === 0;
    });
    return { sessions: page.map(viewOf), more: stored.length > page.length };
  }

  /** @throws {AgentError} `not_found`. */
  async update(
    principal: Principal,
    sessionId: string,
    change: (config: SessionConfig) => SessionConfig,
    note: NoteOf<SessionView> = nothingToNote,
  ): Promise<SessionView> {
    for (;;) {
      const stored = await this.#stored(principal, sessionId);
      const config = encodeSessionConfig(change(decodeSessionConfig(stored.config)));
      const atMs = this.#environment.now();
      const view = viewOf({ ...stored, config, updatedMs: atMs });
      const done = await this.#store.updateConfig(sessionId, stored.configVersion, config, atMs, note(view));
      if (done === "answered") throw new RequestAnsweredError();
      if (done) return view;
    }
  }

  /** @throws {AgentError} `not_found`. */
  async delete(principal: Principal, sessionId: string, note: NoteOf<void> = nothingToNote): Promise<void> {
    const done = await this.#store.deleteSession(principal.tenant, sessionId, note());
    if (done === "answered") throw new RequestAnsweredError();
    if (!done) throw unknownSession(sessionId);
    this.#workers.forget(sessionId);
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
    note: NoteOf<SessionView> = nothingToNote,
  ): Promise<SessionView> {
    const parent = await this.#stored(principal, sessionId);
    const config = decodeSessionConfig(parent.config);
    if (throughSeq !== undefined && throughSeq > parent.headSeq) {
      throw invalidField("through_seq", `is ${throughSeq}, the log ends at ${parent.headSeq}`);
    }
    const state = await loadState(this.#store, sessionId, config, throughSeq ?? parent.headSeq);
    const through = throughSeq ?? state.settledSeq;
    if (throughSeq !== undefined && state.turn !== undefined) {
      throw invalidField(
        "through_seq",
        `event ${throughSeq} is inside turn ${state.turn.turnId}; name the last event of a turn, the one before ends at ${state.settledSeq}`,
      );
    }
    const request = { sessionId, throughSeq, forked };
    const session = {
      ...this.#newSession(principal, forked.sessionId, forked.requestId, request),
      parentId: sessionId,
      parentSeq: through,
      placement: config.placement ?? "",
      config: encodeSessionConfig({ ...config, title: forked.title === "" ? config.title : forked.title }),
      summary: encodeSummary(
        summaryOf(state.turn === undefined ? state : await loadState(this.#store, sessionId, config, through)),
      ),
      blobs: [],
    };
    const done = await this.#store.forkSession(sessionId, through, session, note(viewOf(asStored(session, through))));
    if (done === undefined) throw unknownSession(sessionId);
    if (done === "answered") throw new RequestAnsweredError();
    return this.#createdView(done.created, done.session, forked.requestId, requestHash(request));
  }

  /** The history, oldest first, from `offset`: at most `limit` messages and no more bytes than fit an answer, but one. */
  async messages(principal: Principal, sessionId: string, offset: number, limit: number) {
    const stored = await this.#stored(principal, sessionId);
    const { messages } =
      this.#workers.idleState(sessionId, stored.headSeq) ??
      (await loadState(this.#store, sessionId, decodeSessionConfig(stored.config), stored.headSeq));
    const page: Message[] = [];
    let bytes = 0;
    for (const message of messages.slice(offset, offset + limit)) {
      const whole = await withLargeContent([message], (digest) => this.#store.readBlob(sessionId, digest));
      bytes += whole.reduce((sum, each) => sum + messageBytes(each), 0);
      if (bytes > maxPageBytes && page.length > 0) break;
      page.push(...whole);
    }
    return { messages: page, more: messages.length > offset + page.length };
  }

  /**
   * What is to be done in a session, as its agent wrote it down last or somebody set it.
   * @throws {AgentError} `not_found`.
   */
  async todos(principal: Principal, sessionId: string): Promise<readonly Todo[]> {
    const oneOff = this.#oneOffs.get(principal.tenant, sessionId);
    if (oneOff !== undefined) return oneOff.todos;
    const before = await this.#stored(principal, sessionId);
    const waiting = await this.#waitingTodos(sessionId);
    if (waiting !== undefined) return waiting;
    const stored =
      decodeSummary(before.summary).currentTurnId === "" ? before : await this.#stored(principal, sessionId);
    const { todos } =
      this.#workers.idleState(sessionId, stored.headSeq) ??
      (await loadState(this.#store, sessionId, decodeSessionConfig(stored.config), stored.headSeq));
    return todos;
  }

  /**
   * Sets what is to be done in a session, in place of what its agent wrote down. The agent goes on with it from its next
   * step on, and is told.
   * @throws {AgentError} `not_found`, `invalid_request` for a list that is too long, `failed_precondition` for a one-off turn.
   */
  async setTodos(principal: Principal, sessionId: string, todos: readonly Todo[]): Promise<void> {
    checkTodos(todos);
    await this.#change(principal, sessionId, { type: "todos", todos }, "");
  }

  /**
   * Pauses a session until it is resumed, over restarts too: what runs is finished, then no model call and no tool begins,
   * and turns and compactions wait. Turns can be cancelled meanwhile, and requests answered.
   * @param requestId the same id again is about the same pause; empty for none
   * @returns the session, `paused` unless something runs in it that is finished first
   * @throws {AgentError} `not_found`, `failed_precondition` for a one-off turn.
   */
  pause(principal: Principal, sessionId: string, requestId = ""): Promise<SessionView> {
    return this.#pauseOrResume(principal, sessionId, "pause", requestId);
  }

  /**
   * Lets a session go on that was paused; one that was not goes on as it does.
   * @throws {AgentError} as `pause`.
   */
  resume(principal: Principal, sessionId: string, requestId = ""): Promise<SessionView> {
    return this.#pauseOrResume(principal, sessionId, "resume", requestId);
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
   * Whether a turn was admitted to a session under a request id, so that asking again would join it.
   * @throws {AgentError} `not_found`.
   */
  async knowsTurn(principal: Principal, sessionId: string, requestId: string): Promise<boolean> {
    await this.#stored(principal, sessionId);
    // With no room, only a known key fits.
    const known = await this.#store.send({
      sessionId,
      tenant: principal.tenant,
      key: `turn:${requestId}`,
      kind: "turn",
      turnId: "",
      principal: principal.name,
      body: new Uint8Array(),
      hash: "",
      atMs: this.#environment.now(),
      waitingLimit: 0,
    });
    return known !== "full" && known !== undefined;
  }

  /**
   * The last event of a turn that has finished, and whether nothing came after it: no other turn began or waits.
   * @throws {AgentError} `not_found`, `failed_precondition` for a turn that has not finished.
   */
  async turnEnd(
    principal: Principal,
    sessionId: string,
    turnId: string,
  ): Promise<{ readonly seq: number; readonly isLast: boolean }> {
    const stored = await this.#stored(principal, sessionId);
    const { headSeq, waitingTurns } = stored;
    const { signal } = new AbortController();
    // It is mostly near the end.
    for (const afterSeq of [Math.max(0, headSeq - lastEvents), 0]) {
      let seq: number | undefined;
      let isKnown = false;
      let isLast = waitingTurns === 0;
      for await (const records of this.#readSession(principal, stored, afterSeq, false, headSeq, signal)) {
        if (isPruned(records)) continue;
        for (const record of records) {
          if (record.turnId === turnId) isKnown = true;
          if (seq !== undefined && record.event.type === "turn-started") isLast = false;
          if (record.turnId === turnId && record.event.type === "turn-finished") ({ seq } = record);
        }
      }
      if (seq !== undefined) return { seq, isLast };
      if (isKnown)
        throw new AgentError("failed_precondition", `turn ${turnId} has not finished; go on when it has`, {
          reason: "TURN_NOT_FINISHED",
        });
    }
    throw unknownTurn(turnId, sessionId);
  }

  /**
   * Has the history of a session compacted, after what runs and waits there, and waits for it.
   * @param instructions what to keep, in somebody's words; may be empty
   * @param requestId the same id again is about the same compaction; empty for none
   * @param signal ends the waiting, not the compaction; its reason is then thrown.
   * @throws {AgentError} `not_found`, `failed_precondition` (no model), `already_exists` (request id with another payload),
   *   `resource_exhausted` (too much waits, or a budget is used up), `unavailable` (shutting down).
   */
  async compact(
    principal: Principal,
    sessionId: string,
    instructions: string,
    requestId: string,
    signal: AbortSignal,
  ): Promise<{ seq: number; event: Extract<LogEvent, { type: "history-compacted" }> }> {
    if (this.#draining) throw shuttingDown();
    const stored = await this.#stored(principal, sessionId);
    const config = decodeSessionConfig(stored.config);
    const model = this.#modelOf(config);
    this.#environment.models.find(model);
    const spent = spentBySession(config, stored);
    return this.#compacted(principal, stored, { requestId, model, instructions }, spent, signal);
  }

  /**
   * Empties the history of a session, after what runs and waits there, and waits for it: the next turn begins with nothing
   * but the system prompt. The log keeps all that was said; what was allowed for the session stays allowed, and the todo
   * list stays.
   * @param requestId the same id again is about the same clearing; empty for none
   * @param signal ends the waiting, not the clearing; its reason is then thrown.
   * @returns the event that says so
   * @throws {AgentError} `not_found`, `already_exists` (request id with another payload), `failed_precondition` (paused),
   *   `resource_exhausted` (too much waits), `unavailable` (shutting down).
   */
  async clearHistory(
    principal: Principal,
    sessionId: string,
    requestId: string,
    signal: AbortSignal,
  ): Promise<{ seq: number; event: Extract<LogEvent, { type: "history-compacted" }> }> {
    if (this.#draining) throw shuttingDown();
    const stored = await this.#stored(principal, sessionId);
    const request = { requestId, model: "", instructions: "", clears: true } as const;
    return this.#compacted(principal, stored, request, undefined, signal);
  }

  /** @param spent the budget that is used up, so that nothing new is begun */
  async #compacted(
    principal: Principal,
    stored: StoredSession,
    request: CompactionRequest,
    spent: SpentBudget | undefined,
    signal: AbortSignal,
  ): Promise<{ seq: number; event: Extract<LogEvent, { type: "history-compacted" }> }> {
    const { sessionId } = stored;
    const { requestId, instructions, clears } = request;
    if (decodeSummary(stored.summary).paused === true) throw isPaused(sessionId);
    if (!this.#workers.has(sessionId)) this.#checkRoom();
    const id = requestId === "" ? this.#environment.newId("compact") : requestId;
    const hash = requestHash(clears === true ? { sessionId, clears } : { sessionId, instructions });
    const { maxQueuedTurns } = this.#environment.limits;
    const sent = await this.#store.send({
      sessionId,
      tenant: principal.tenant,
      key: `compact:${id}`,
      kind: "compact",
      turnId: "",
      principal: principal.name,
      body: encodeCompactionRequest({ ...request, requestId: id }),
      hash,
      atMs: this.#environment.now(),
      waitingLimit: spent === undefined ? maxQueuedTurns : 0,
    });
    if (sent === undefined) throw unknownSession(sessionId);
    if (sent === "full") {
      if (spent !== undefined) throw budgetError(sessionId, spent);
      throw tooMany(`${maxQueuedTurns} compactions wait in session ${sessionId} already`, "TURN_QUEUE_FULL");
    }
    if (sent.hash !== hash) throw otherPayload(requestId);
    this.#workers.wake(sessionId);
    const afterSeq = sent.firstSeq === undefined ? sent.headSeq : sent.firstSeq - 1;
    for await (const records of this.#readSession(principal, stored, afterSeq, true, sent.headSeq, signal)) {
      if (isPruned(records)) continue;
      for (const { seq, event } of records)
        if (event.type === "history-compacted" && event.requestId === id) return { seq, event };
    }
    throw shuttingDown();
  }

  /**
   * Asks a turn to end.
   * @param turnId empty means the one that runs, else the next that waits
   * @param requestId the same id again is about the same turn; empty for none
   * @throws {AgentError} `not_found` for an unknown session or turn.
   */
  async cancelTurn(
    principal: Principal,
    sessionId: string,
    turnId: string,
    requestId: string,
  ): Promise<{ turnId: string; wasRunning: boolean }> {
    const oneOff = this.#oneOffs.get(principal.tenant, sessionId);
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
    const next = turnId !== "" ? turnId : running !== "" ? running : (waiting[0] ?? "");
    if (next === "") return { turnId: "", wasRunning: false };
    const command = (key: string, target: string) =>
      this.#store.send({
        sessionId,
        tenant: principal.tenant,
        key,
        kind: "cancel",
        turnId: target,
        principal: principal.name,
        body: new Uint8Array(),
        hash: "",
        atMs: this.#environment.now(),
        waitingLimit: Number.MAX_SAFE_INTEGER,
      });
    const meant = requestId === "" ? undefined : await command(`cancel-request:${requestId}`, next);
    const target = typeof meant === "object" ? meant.turnId : next;
    if (target !== running && !waiting.includes(target)) {
      if (await this.#hadTurn(principal, target, stored)) return { turnId: target, wasRunning: false };
      throw unknownTurn(target, sessionId);
    }
    await command(cancelKey(target), target);
    this.#workers.cancel(sessionId, target);
    this.#workers.wake(sessionId);
    return { turnId: target, wasRunning: true };
  }

  /**
   * What waits for an answer, those that wait longest first.
   * @param sessionId empty for all sessions of the tenant
   * @param after the last of the page before
   * @throws {AgentError} `not_found`.
   */
  pendingRequests(principal: Principal, sessionId: string, after: RequestPosition | undefined, limit: number) {
    return this.#requests.list(principal.tenant, sessionId, after, limit);
  }

  /**
   * Answers pending requests of one session. The first answer to a request stays; the same answer again is no error.
   * @returns what became of each, in order
   * @throws {AgentError} `not_found` for an unknown request, and then none is answered; `failed_precondition` when one was
   *   resolved otherwise before, after the others were answered.
   */
  respond(principal: Principal, sessionId: string, answers: readonly GivenAnswer[]): Promise<readonly RequestAnswer[]> {
    return this.#requests.answer(principal, sessionId, answers);
  }

  /**
   * What a session's calls are judged by.
   * @param sessionId empty for a session of which nothing is said
   * @throws {AgentError} `not_found`.
   */
  async permissions(principal: Principal, sessionId: string): Promise<SessionPermissions> {
    const { permissions: server, profiles } = this.#environment;
    if (sessionId === "")
      return { rules: rulesOf(server, undefined), grants: [], workspace: this.#options.oneOff.workspace };
    const stored = await this.#stored(principal, sessionId);
    const config = decodeSessionConfig(stored.config);
    const state =
      this.#workers.idleState(sessionId, stored.headSeq) ??
      (await loadState(this.#store, sessionId, config, stored.headSeq));
    return {
      rules: rulesOf(server, config.permissions, state.loadedSkills, profiles.get(config.model)?.permissions),
      grants: grantsOf(state),
      workspace: config.workspace,
    };
  }

  /**
   * Reads the log of a session from a cursor.
   * @throws {AgentError} `not_found`, `invalid_request` for a cursor beyond the head.
   */
  async subscribe(principal: Principal, sessionId: string, afterSeq: number, follow: boolean): Promise<LogReading> {
    const oneOff = this.#oneOffs.get(principal.tenant, sessionId);
    if (oneOff !== undefined) {
      checkCursor(afterSeq, oneOff.tail.headSeq);
      const { tail } = oneOff;
      return {
        headSeq: tail.headSeq,
        ...readingOf(tail, () => oneOff.enter(), afterSeq, follow),
      };
    }
    const stored = await this.#stored(principal, sessionId);
    // A database that others take over from may come back without its last commits; a file has what it had.
    if (this.#store.shared && afterSeq > stored.headSeq) throw lostSuffix(sessionId, afterSeq, stored.headSeq);
    checkCursor(afterSeq, stored.headSeq);
    return {
      headSeq: stored.headSeq,
      earliestSeq: earliestSeqOf(stored),
      read: (signal: AbortSignal) => this.#readSession(principal, stored, afterSeq, follow, stored.headSeq, signal),
      waitingBytes: this.#waitingBytes(sessionId),
    };
  }

  /**
   * Calls `listener`, which must not throw, whenever the log of a session that is worked on or read in this process grows,
   * until the returned function is called. Says nothing of one-off turns.
   */
  listen(listener: LogListener): () => void {
    return this.#tails.listen(listener);
  }

  /**
   * Checks that a turn's models can do what it asks for, and gives their names and its profile.
   * @param config of its session; absent for a one-off turn
   * @throws {AgentError} as `startTurn` for what can't be asked.
   */
  async admit(request: TurnRequest, config: SessionConfig | undefined): Promise<TurnTerms> {
    const { profiles, models } = this.#environment;
    const terms = turnTerms(profiles, request, config?.model ?? "", this.#options.defaultModel);
    checkProfile(profiles, terms.options);
    if (request.plan !== undefined && terms.model === "") return terms;
    const model = named(terms.model);
    let found: ReturnType<typeof models.find>;
    try {
      found = models.find(model);
    } catch (error) {
      throw withProfileNames(error, profiles, model);
    }
    await checkTurn(request, found, config?.budget);
    if (namedTool(request.options.toolChoice) !== undefined)
      checkToolChoice(request, await this.#functionNames(config?.workspace ?? this.#options.oneOff.workspace));
    return terms;
  }

  /** Undefined where they can't be listed: the turn itself meets that again, and tells it. */
  async #functionNames(workspace: string): Promise<readonly string[] | undefined> {
    const set = await this.#environment.functions.current(workspace).catch(() => undefined);
    return set?.definitions.map(({ name }) => name);
  }

  /** A turn was put into a session's inbox by other means: it begins at once, or when there is room. */
  wake(sessionId: string): void {
    this.#workers.wakeInTurn(sessionId);
  }

  /** Somebody here waits for what is under way in a session: it goes on at once, whether or not there is room. */
  goOn(sessionId: string): void {
    this.#workers.wake(sessionId);
  }

  /** Refuses new turns, lets running ones finish, and leaves those that do not within the grace time for the next start. */
  async drain(graceMs: number): Promise<void> {
    this.#draining = true;
    const all = Promise.all([this.#workers.drain(), this.#oneOffs.settled()]);
    const { promise: late, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, graceMs);
    await Promise.race([all, late]);
    clearTimeout(timer);
    this.#workers.stop();
    this.#oneOffs.stop();
    this.#tails.endAll(shuttingDown());
    await all;
    this.#timers.end();
  }

  /** Sessions that somebody works on in this process; one whose turn waits for an answer is not among them. */
  get working(): number {
    return this.#workers.size;
  }

  get draining(): boolean {
    return this.#draining;
  }

  /** What other processes do to the sessions of this one. */
  #listener(): StoreListener {
    const workers = this.#workers;
    const tails = this.#tails;
    return {
      grown: (sessionId, headSeq) => tails.advance(sessionId, headSeq),
      runnable: (sessionId) => workers.offer(sessionId),
      commanded: (sessionId) => workers.commanded(sessionId),
      deleted: (sessionId) => workers.forget(sessionId),
      shortened: (sessionId, headSeq) => tails.end(sessionId, lostSuffix(sessionId, headSeq + 1, headSeq)),
      heldBack: (sessionId, here) => {
        if (here)
          this.#environment.report("error", "the server died again and again over a session; it is held back", {
            sessionId,
          });
        tails.end(sessionId, heldBack(sessionId));
      },
      fenced: () => {
        const working = workers.size;
        if (working > 0)
          this.#environment.report("warn", "other processes may take this one for dead; it gives up its sessions", {
            working,
          });
        workers.fence();
      },
      watched: () => tails.heads(),
    };
  }

  async #pauseOrResume(
    principal: Principal,
    sessionId: string,
    type: "pause" | "resume",
    requestId: string,
  ): Promise<SessionView> {
    const { stored, key, sent } = await this.#change(principal, sessionId, { type }, requestId);
    const { currentTurnId, requests, paused } = decodeSummary(stored.summary);
    // Where a step of a turn runs that may take a while. Nobody waits for it.
    const isBusy = currentTurnId !== "" && requests.length === 0 && paused !== true;
    if (!isBusy && sent.firstSeq === undefined) await this.#untilTaken(principal, stored, key, sent.headSeq);
    return this.get(principal, sessionId);
  }

  /** Makes a change of a session: it is durable when this resolves, and made when the owner of the session has read it. */
  async #change(principal: Principal, sessionId: string, change: SessionChange, requestId: string) {
    if (this.#oneOffs.get(principal.tenant, sessionId) !== undefined)
      throw new AgentError("failed_precondition", `${sessionId} is a one-off turn; it can only be cancelled`, {
        reason: "ONE_OFF_TURN",
      });
    const stored = await this.#stored(principal, sessionId);
    const key = `change:${requestId === "" ? this.#environment.newId("change") : requestId}`;
    const sent = await this.#store.send({
      sessionId,
      tenant: principal.tenant,
      key,
      kind: "change",
      turnId: "",
      principal: principal.name,
      body: encodeSessionChange(change),
      hash: "",
      atMs: this.#environment.now(),
      waitingLimit: maxWaitingChanges,
    });
    if (sent === undefined) throw unknownSession(sessionId);
    if (sent === "full")
      throw tooMany(`${maxWaitingChanges} changes wait in session ${sessionId} already`, "CHANGE_QUEUE_FULL");
    this.#workers.wake(sessionId);
    return { stored, key, sent };
  }

  /** Waits a little for a command to be taken; whether or not it was, it is durable. */
  async #untilTaken(principal: Principal, stored: StoredSession, key: string, afterSeq: number): Promise<void> {
    const signal = AbortSignal.timeout(takenWithinMs);
    try {
      for await (const _ of this.#readSession(principal, stored, afterSeq, true, afterSeq, signal))
        if ((await this.#store.readCommand(stored.sessionId, key)) === undefined) return;
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /** The list that was set last and that the owner of the session has not read yet. */
  async #waitingTodos(sessionId: string): Promise<readonly Todo[] | undefined> {
    let todos: readonly Todo[] | undefined;
    for (const { kind, key } of await this.#store.readInbox(sessionId)) {
      const command = kind === "change" ? await this.#store.readCommand(sessionId, key) : undefined;
      const change = command && decodeSessionChange(command.body);
      if (change?.type === "todos") todos = change.todos;
    }
    return todos;
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
    const config = decodeSessionConfig(stored.config);
    const turnId = this.#environment.newId("turn");
    const { maxQueuedTurns } = this.#environment.limits;
    const send = (body: Uint8Array, waitingLimit: number) =>
      this.#store.send({
        sessionId,
        tenant: principal.tenant,
        key: `turn:${request.requestId === "" ? turnId : request.requestId}`,
        kind: "turn",
        turnId,
        principal: principal.name,
        body,
        hash,
        atMs: this.#environment.now(),
        waitingLimit,
      });
    const { requests, paused } = decodeSummary(stored.summary);
    const queued = this.#workers.has(sessionId) || requests.length > 0 || paused === true;
    let sent: Awaited<ReturnType<typeof send>>;
    try {
      const spent = spentBySession(config, stored);
      if (spent !== undefined) throw budgetError(sessionId, spent);
      if (stored.heldBack) throw heldBack(sessionId);
      const hasHistory = decodeSummary(stored.summary).messageCount > 0;
      if (request.wholeHistory && newMessages(hasHistory, request.messages).length === 0) throw nothingNew();
      const terms = await this.admit(request, config);
      if (!queued) this.#checkRoom();
      if (!queued) this.#admitting++;
      sent = await send(encodeTurnRequest({ ...request, ...terms }), maxQueuedTurns).finally(() => {
        if (!queued) this.#admitting--;
      });
    } catch (error) {
      // What was admitted before is joined, also when it would not be admitted now: with no room, only a known key fits.
      const known = request.requestId === "" ? "full" : await send(new Uint8Array(), 0);
      if (known === "full" || known === undefined) throw error;
      sent = known;
    }
    if (sent === undefined) throw unknownSession(sessionId);
    if (sent === "full")
      throw tooMany(`${maxQueuedTurns} turns wait in session ${sessionId} already`, "TURN_QUEUE_FULL");
    if (sent.hash !== hash) throw otherPayload(request.requestId);
    this.#workers.wake(sessionId);
    const afterSeq = sent.firstSeq === undefined ? sent.headSeq : sent.firstSeq - 1;
    return {
      sessionId,
      turnId: sent.turnId,
      queued: queued && sent.firstSeq === undefined,
      headSeq: sent.headSeq,
      earliestSeq: earliestSeqOf(stored),
      read: (signal) =>
        onlyTurn(sent.turnId, this.#readSession(principal, stored, afterSeq, true, sent.headSeq, signal)),
      waitingBytes: this.#waitingBytes(sessionId),
    };
  }

  async #startOneOff(principal: Principal, request: TurnRequest, hash: string): Promise<AdmittedTurn> {
    let turn = this.#oneOffs.known(principal.tenant, request, hash);
    if (turn === undefined) {
      const terms = await this.admit(request, undefined);
      // It may have come once more meanwhile.
      turn = this.#oneOffs.known(principal.tenant, request, hash);
      if (turn === undefined) {
        this.#checkRoom();
        this.#checkMemory();
        turn = this.#oneOffs.start(principal.tenant, principal.name, { ...request, ...terms }, hash);
      }
    }
    const { sessionId, turnId, tail } = turn;
    const enter = () => turn.enter();
    return {
      sessionId,
      turnId,
      queued: false,
      headSeq: 0,
      ...readingOf(tail, enter, 0, true),
    };
  }

  async *#readSession(
    principal: Principal,
    { sessionId, prunedSeq }: StoredSession,
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
      const pages: LogPages = {
        read: async (cursor, limit, limitBytes) =>
          (await this.#store.readEvents(sessionId, cursor, limit, limitBytes)).map(logRecordFrom),
        prunedSeq: async () => (await this.#stored(principal, sessionId)).prunedSeq,
      };
      yield* followLog(tail, pages, afterSeq, prunedSeq, follow, signal);
    } finally {
      release();
    }
  }

  #waitingBytes(sessionId: string): LogReading["waitingBytes"] {
    return async (afterSeq, most) => {
      const events = await this.#store.readEvents(sessionId, afterSeq, countedEvents, most);
      return events.reduce((sum, event) => sum + event.body.length, 0);
    };
  }

  /** What a session asks where a request names nothing else. */
  #modelOf({ model }: SessionConfig): string {
    const { profiles } = this.#environment;
    return named(turnTerms(profiles, { model: "", options: {} }, model, this.#options.defaultModel).model);
  }

  #checkRoom(): void {
    const { maxTurnsInFlight } = this.#environment.limits;
    if (this.#workers.size + this.#admitting + this.#oneOffs.running >= maxTurnsInFlight)
      throw tooMany(`${maxTurnsInFlight} turns run already`, "TOO_MANY_TURNS");
  }

  #checkMemory(): void {
    const { maxOneOffBytes } = this.#environment.limits;
    if (this.#oneOffs.bytes > maxOneOffBytes)
      throw tooMany(
        `turns without a session hold more than ${maxOneOffBytes} bytes that their callers have not read yet`,
        "TOO_MANY_UNREAD",
      );
  }

  async #stored(principal: Principal, sessionId: string): Promise<StoredSession> {
    const stored = await this.#store.readSession(principal.tenant, sessionId);
    if (stored === undefined) throw unknownSession(sessionId);
    return stored;
  }

  async #hadTurn(principal: Principal, turnId: string, stored: StoredSession): Promise<boolean> {
    const { signal } = new AbortController();
    for await (const records of this.#readSession(principal, stored, 0, false, stored.headSeq, signal)) {
      if (!isPruned(records) && records.some((record) => record.turnId === turnId)) return true;
    }
    return false;
  }
}

/** Most bytes of messages or sessions in one answer: shown twice, as blocks and as OpenAI shapes them, they still fit. */
const maxPageBytes = 6 * 1024 * 1024;

/** How many events at the end of a log are looked at before all of it is. */
const lastEvents = 16;

/** Most events looked at to count what waits for a reader. */
const countedEvents = 4096;

/** Changes of one session that may wait for its owner. */
const maxWaitingChanges = 100;
/** How long somebody who pauses a session waits to see it paused. */
const takenWithinMs = 2000;

function isPaused(sessionId: string): AgentError {
  return new AgentError("failed_precondition", `session ${sessionId} is paused; resume it first`, {
    reason: "SESSION_PAUSED",
  });
}

function checkTodos(todos: readonly Todo[]): void {
  if (todos.length > maxTodos) throw invalidField("todos", `has ${todos.length} items; ${maxTodos} is the most`);
  for (const [index, { content, id = "" }] of todos.entries()) {
    const path = `todos[${index}]`;
    if (content.trim() === "") throw invalidField(`${path}.content`, "is empty; say what is to be done");
    for (const [field, text, most] of [["content", content, maxTodoCharacters] as const, ["id", id, 64] as const]) {
      if (!text.isWellFormed()) throw invalidField(`${path}.${field}`, "has half a surrogate pair");
      if (text.length > most)
        throw invalidField(`${path}.${field}`, `has ${text.length} characters; ${most} is the most`);
    }
  }
}

function nothingToNote(): undefined {}

function named(model: string): string {
  if (model !== "") return model;
  throw new AgentError(
    "failed_precondition",
    "no model is named in the request or the session and the server has no default; name one as provider/model, or start the server with CODEAGENT_MODEL",
    { reason: "NO_MODEL" },
  );
}

/** The budget of a session that its finished turns have used up. */
function spentBySession({ budget }: SessionConfig, { summary }: StoredSession): SpentBudget | undefined {
  const { usage, ranMs } = decodeSummary(summary);
  return spentOf("session", budget, usage, ranMs);
}

function checkCursor(afterSeq: number, headSeq: number): void {
  if (afterSeq > headSeq) throw invalidField("after_seq", `is ${afterSeq}, the log ends at ${headSeq}`);
}
