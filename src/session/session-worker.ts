import { AgentError } from "../chat/error.ts";
import type { RequestAnswer } from "../chat/log-event.ts";
import type { SessionConfig } from "../chat/session-config.ts";
import { decodeRequestAnswer, encodeRequestAnswer } from "../convert/proto/event.ts";
import { decodeSessionConfig } from "../convert/proto/session-config.ts";
import { decodeTurnRequest } from "../convert/proto/stored-request.ts";
import type { Claim, InboxEntry, NewInboxEntry, Store } from "../log/store.ts";
import type { Tail } from "../log/tail.ts";
import type { FunctionIndex } from "../tool/function-index.ts";
import { clearHistory, compactOnRequest } from "./compaction.ts";
import { decodeCompactionRequest } from "./compaction-request.ts";
import { separateLargeContent, withLargeContent } from "./large-messages.ts";
import { loadState } from "./load-state.ts";
import { LogWriter } from "./log-writer.ts";
import { newMessages, nothingNew } from "./new-messages.ts";
import { FencedError, storedLog } from "./owned-log.ts";
import { withinProfile } from "./profile.ts";
import { requestHash } from "./request-hash.ts";
import {
  type ArrivedAnswer,
  type RunningSession,
  record,
  recordEnd,
  runTurn,
  StoppedError,
  type TurnEnvironment,
  type WaitingTurn,
} from "./run-turn.ts";
import { decodeSessionChange, noticeOfChange } from "./session-change.ts";
import { lostSuffix } from "./session-errors.ts";
import type { SessionState } from "./state.ts";
import { encodeSummary, summaryOf, waitingSince } from "./summary.ts";
import { turnErrorFrom } from "./turn-error.ts";

/** A fold kept from the last time this process owned the session. */
export interface KeptState {
  readonly state: SessionState;
  /** The token under which it was written. */
  readonly token: string;
}

/**
 * Owns one session while there is something to do in it: claims it, goes on with an unfinished turn, takes turns from
 * the inbox in order, and gives the session up.
 */
export class SessionWorker {
  readonly #sessionId: string;
  readonly #store: Store;
  readonly #environment: TurnEnvironment;
  readonly #tail: Tail;
  #turn: { readonly turnId: string; readonly abort: AbortController } | undefined;
  #stopped: StoppedError | undefined;
  #handsOver = false;
  #fenced: FencedError | undefined;
  readonly #onNews = new Set<() => void>();
  /** The commands of the inbox as they were when it was read last. */
  #seenKeys: readonly string[] = [];
  /** Changes may have come since it was looked for them. */
  #mayHaveChanges = false;
  /** Turns and compactions that wait until the session is resumed. */
  #leftForLater: readonly string[] = [];

  constructor(sessionId: string, store: Store, environment: TurnEnvironment, tail: Tail) {
    this.#sessionId = sessionId;
    this.#store = store;
    this.#environment = environment;
    this.#tail = tail;
  }

  /** Ends a turn if it is the one that runs. That it is to end has to be in the inbox before. */
  cancel(turnId: string): void {
    if (this.#turn?.turnId === turnId) this.#turn.abort.abort(cancelledError());
  }

  /** A command came from elsewhere: what runs may have to end. */
  async commanded(): Promise<void> {
    this.tell();
    const { turnId = "" } = this.#turn ?? {};
    if (turnId === "") return;
    const inbox = await this.#store.readInbox(this.#sessionId);
    if (inbox.some((entry) => entry.key === cancelKey(turnId))) this.cancel(turnId);
  }

  /** Something may have come for the turn that runs. */
  tell(): void {
    this.#mayHaveChanges = true;
    for (const onNews of this.#onNews) onNews();
  }

  /** Gives the session up for somebody else to go on with it, as soon as a step ends. */
  handOver(): void {
    this.#handsOver = true;
    this.tell();
  }

  /** Others may have taken the session over: ends what runs at once and writes nothing about it. */
  fence(): void {
    this.#fenced ??= new FencedError(`session ${this.#sessionId} may have another owner`);
    this.#turn?.abort.abort(this.#fenced);
    this.tell();
  }

  /** Leaves the turn as it is and gives the session up. */
  stop(): void {
    this.#stopped ??= new StoppedError("the server is shutting down");
    this.#turn?.abort.abort(this.#stopped);
    this.tell();
  }

  /**
   * Works until nothing is left to do here.
   * @returns the fold to keep for the next time, when the session was given up in good order and does not wait for an
   *   answer; where it does, when to go on with it without one.
   * @throws what the store throws; the session is then still marked as owned.
   */
  async run(kept: KeptState | undefined): Promise<{ kept: KeptState | undefined; more: boolean; wakeAtMs?: number }> {
    this.#fenced = undefined; // a fence that comes from now on is about this claim
    const claim = await this.#store.claim(this.#sessionId);
    if (claim === undefined) return { kept: undefined, more: false };
    let session: RunningSession | undefined;
    try {
      this.#checkFence();
      if (claim.headSeq < this.#tail.headSeq) throw lostSuffix(this.#sessionId, this.#tail.headSeq, claim.headSeq);
      this.#tail.advanceTo(claim.headSeq);
      session = await this.#open(claim, kept);
      while (
        this.#stopped === undefined &&
        !this.#handsOver &&
        (session.state.turn !== undefined || (await this.#beginTurn(session, claim)))
      ) {
        const waiting = await this.#runTurn(session);
        if (waiting === undefined) continue;
        const { wakeAtMs } = waiting;
        const more = await this.#store.park(this.#sessionId, claim.fence, wakeAtMs, this.#seenKeys);
        return { kept: undefined, more: more && this.#stopped === undefined, wakeAtMs };
      }
      await session.writer.flushed();
      const unfinished = session.state.turn !== undefined;
      if (!unfinished && this.#leftForLater.length > 0) {
        const more = await this.#store.park(this.#sessionId, claim.fence, Number.MAX_SAFE_INTEGER, this.#leftForLater);
        return { kept: undefined, more: more && this.#stopped === undefined };
      }
      const more = await this.#store.release(this.#sessionId, claim.fence, unfinished);
      return {
        kept: { state: session.state, token: claim.fence.token },
        more: more && this.#stopped === undefined && !this.#handsOver,
      };
    } catch (error) {
      if (error instanceof FencedError) return { kept: undefined, more: false };
      if (!(error instanceof StoppedError)) throw new LostSessionError(claim, error);
      // What can't be written any more (the session is gone, the store fails) is left to whoever goes on with it.
      await session?.writer.flushed().catch(() => undefined);
      await this.#store.release(this.#sessionId, claim.fence, true);
      return { kept: undefined, more: false };
    }
  }

  #checkFence(): void {
    if (this.#fenced !== undefined) throw this.#fenced;
  }

  async #open(claim: Claim, kept: KeptState | undefined): Promise<RunningSession> {
    const config = decodeSessionConfig(claim.config);
    const usable = kept !== undefined && kept.token === claim.previousToken && kept.state.seq === claim.headSeq;
    const state = usable ? kept.state : await loadState(this.#store, this.#sessionId, config, claim.headSeq);
    const log = storedLog(this.#store, this.#sessionId, claim.fence, this.#tail);
    const writer = new LogWriter(log, claim.headSeq, this.#environment.now, (error) => this.#turn?.abort.abort(error));
    const session: RunningSession = {
      sessionId: this.#sessionId,
      tenant: claim.tenant,
      isKept: true,
      isUnattended: false,
      config,
      state,
      writer,
      environment: this.#environment,
      withContent: (messages) =>
        withLargeContent(messages, async (digest) => {
          await writer.flushed(); // the content may have come with the turn that has just begun
          return this.#store.readBlob(this.#sessionId, digest);
        }),
      checkpoint: () => {
        if (this.#handsOver) throw new StoppedError("the server is shutting down");
      },
      leaving: () => this.#fenced ?? this.#stopped,
      watch: (onNews) => {
        this.#onNews.add(onNews);
        return () => void this.#onNews.delete(onNews);
      },
      noted: (folded) => ({ summary: encodeSummary(summaryOf(folded)), waitingSinceMs: waitingSince(folded) }),
      takeChanges: async (turnId) => {
        // What another process has sent is heard of a little later than it counts.
        if (!this.#mayHaveChanges && !this.#store.shared) return;
        this.#mayHaveChanges = false;
        await this.#takeChanges(session, turnId, await this.#store.readInbox(this.#sessionId));
      },
      answers: (turnId) => this.#answers(turnId),
      settle: async (turnId, answer) =>
        void (await this.#store.send(
          answerEntry(this.#sessionId, claim.tenant, turnId, answer, this.#environment.now()),
        )),
      keysAnsweredAtEnd: (turnId) => [cancelKey(turnId)],
    };
    return session;
  }

  /** Brings into the log what of the inbox holds at once, in order. */
  async #takeChanges(session: RunningSession, turnId: string, inbox: readonly InboxEntry[]): Promise<void> {
    // What a restart finds waiting beside them is no news.
    this.#seenKeys = inbox.map(({ key }) => key);
    if (turnId !== "" && this.#seenKeys.includes(cancelKey(turnId))) this.cancel(turnId);
    const changes = inbox.filter(({ kind }) => kind === "change");
    for (const { key } of changes) {
      const command = await this.#store.readCommand(this.#sessionId, key);
      if (command === undefined) throw new FencedError(`session ${this.#sessionId} is gone`);
      record(session, turnId, noticeOfChange(decodeSessionChange(command.body)), { takenKeys: [key] });
      session.writer.attach(session.noted(session.state));
    }
    // Committed before the inbox is read again, or they would be made twice.
    if (changes.length > 0) await session.writer.flushed();
  }

  /** Begins the turn that waits longest, after the compactions that were asked for before it; says whether there was one. */
  async #beginTurn(session: RunningSession, claim: Claim): Promise<boolean> {
    this.#leftForLater = [];
    const all = await this.#store.readInbox(this.#sessionId);
    await this.#takeChanges(session, "", all);
    const inbox = all.filter(({ kind }) => kind !== "change");
    const isCancelled = ({ turnId }: InboxEntry) => inbox.some(({ key }) => key === cancelKey(turnId));
    const waiting = inbox.filter(({ kind }) => kind === "turn" || kind === "compact");
    // A turn that is cancelled ends before it does anything.
    const entry = waiting.find((each) => !session.state.paused || (each.kind === "turn" && isCancelled(each)));
    if (entry === undefined) {
      this.#leftForLater = waiting.map(({ key }) => key);
      const stale = inbox.filter((each) => !waiting.includes(each)).map(({ key }) => key);
      if (stale.length > 0) await this.#answerWithoutEvent(claim, stale);
      return false;
    }
    const command = await this.#store.readCommand(this.#sessionId, entry.key);
    if (command === undefined) throw new FencedError(`session ${this.#sessionId} is gone`);
    session.config = decodeSessionConfig(command.config); // it may have changed since the claim
    if (entry.kind === "compact") {
      await this.#compact(session, entry.key, command.body);
      return !this.#handsOver && this.#beginTurn(session, claim);
    }
    const { functions } = this.#environment;
    // A failure here is met again, and told, by the turn itself.
    const set = await functions.current(session.config.workspace).catch(() => undefined);
    const { toolsDigest: before } = session.state;
    this.#recordTurnStarted(session, entry, command.body, set);
    if (set !== undefined && before !== undefined && before !== set.digest) {
      const change = functions.changeSince(before, set) ?? { added: [], removed: [], changed: [] };
      record(session, entry.turnId, { type: "tools-changed", generation: set.generation, ...change });
    }
    return true;
  }

  async #compact(session: RunningSession, key: string, body: Uint8Array): Promise<void> {
    const abort = new AbortController();
    this.#turn = { turnId: "", abort };
    try {
      if (this.#stopped !== undefined) throw this.#stopped;
      this.#checkFence();
      const request = decodeCompactionRequest(body);
      const extras = { takenKeys: [key] };
      if (request.clears === true) clearHistory(session, request.requestId, extras);
      else await compactOnRequest(session, request, extras, abort.signal);
      await session.writer.flushed();
    } finally {
      this.#turn = undefined;
    }
  }

  #recordTurnStarted(
    session: RunningSession,
    entry: InboxEntry,
    body: Uint8Array,
    functions: FunctionIndex | undefined,
  ): void {
    const { profiles } = this.#environment;
    const request = decodeTurnRequest(body);
    const names = functions?.definitions.map(({ name }) => name) ?? [];
    const toolsDigest = functions?.digest;
    const asked = request.wholeHistory
      ? newMessages(session.state.messages.length > 0, request.messages)
      : request.messages;
    const { messages, blobs } = separateLargeContent(asked);
    record(
      session,
      entry.turnId,
      {
        type: "turn-started",
        requestId: request.requestId,
        principal: entry.principal,
        model: request.model,
        messages,
        options: withinProfile(profiles.get(request.options.profile ?? ""), request.options, names),
        tools: request.tools,
        ...(toolsDigest === undefined ? {} : { toolsDigest }),
        ...(request.plan === undefined ? {} : { plan: request.plan }),
      },
      { takenKeys: [entry.key], blobs },
    );
    session.writer.attach(session.noted(session.state));
    const { turn } = session.state;
    if (!request.wholeHistory || asked.length > 0 || turn === undefined) return;
    // What was new when the turn was admitted is no longer: the turn before it has answered it.
    recordEnd(session, turn, {
      type: "turn-finished",
      finishReason: "error",
      steps: 0,
      error: turnErrorFrom(nothingNew(), false),
    });
  }

  async #runTurn(session: RunningSession): Promise<WaitingTurn | undefined> {
    const { turn } = session.state;
    if (turn === undefined) {
      // It ended as it began; until that is committed, the inbox still has it.
      await session.writer.flushed();
      return undefined;
    }
    const abort = new AbortController();
    this.#turn = { turnId: turn.turnId, abort };
    try {
      if (this.#stopped !== undefined) throw this.#stopped;
      this.#checkFence();
      this.#mayHaveChanges = false;
      const inbox = await this.#store.readInbox(this.#sessionId);
      if (inbox.some((entry) => entry.key === cancelKey(turn.turnId))) abort.abort(cancelledError());
      await this.#takeChanges(session, turn.turnId, inbox);
      return await runTurn(session, abort.signal);
    } finally {
      this.#turn = undefined;
    }
  }

  /** Reads the answers in the inbox, and sees on the way whether the turn is to end. */
  async #answers(turnId: string): Promise<readonly ArrivedAnswer[]> {
    const inbox = await this.#store.readInbox(this.#sessionId);
    this.#seenKeys = inbox.map(({ key }) => key);
    if (this.#seenKeys.includes(cancelKey(turnId))) this.cancel(turnId);
    const found: ArrivedAnswer[] = [];
    for (const entry of inbox) {
      if (entry.kind !== "answer" || entry.turnId !== turnId) continue;
      const command = await this.#store.readCommand(this.#sessionId, entry.key);
      if (command !== undefined) found.push({ answer: decodeRequestAnswer(command.body), takenKeys: [entry.key] });
    }
    return found;
  }

  async #answerWithoutEvent(claim: Claim, keys: readonly string[]): Promise<void> {
    const done = await this.#store.append({
      sessionId: this.#sessionId,
      fence: claim.fence,
      events: [],
      turnId: "",
      atMs: this.#environment.now(),
      takenKeys: keys,
    });
    if (done === undefined) throw new FencedError(`session ${this.#sessionId} has another owner`);
  }
}

/** The store failed while a session was owned: it has to be released before anybody can go on with it. */
export class LostSessionError extends Error {
  override readonly name = "LostSessionError";
  readonly claim: Claim;

  constructor(claim: Claim, cause: unknown) {
    super("the store failed while a session was owned", { cause });
    this.claim = claim;
  }
}

/** The command that answers a request; whoever sends it first has the key. */
export function answerEntry(
  sessionId: string,
  tenant: string,
  turnId: string,
  answer: RequestAnswer,
  nowMs: number,
): NewInboxEntry {
  const { author, decision, text, toolResult } = answer;
  return {
    sessionId,
    tenant,
    key: answerKey(answer.requestId),
    kind: "answer",
    turnId,
    principal: author,
    body: encodeRequestAnswer(answer),
    hash: requestHash({ decision, text, toolResult }),
    atMs: nowMs,
    waitingLimit: Number.MAX_SAFE_INTEGER,
  };
}

/** Key of the command that answers a request. */
export function answerKey(requestId: string): string {
  return `answer:${requestId}`;
}

/** Key of the command that cancels a turn. */
export function cancelKey(turnId: string): string {
  return `cancel:${turnId}`;
}

/** What a session is made of when nothing else is said. */
export function plainConfig(workspace: string): SessionConfig {
  return { title: "", workspace, model: "", systemPrompt: "", initialMessages: [], metadata: {} };
}

export function cancelledError(): AgentError {
  return new AgentError("cancelled", "the turn was cancelled");
}
