import type { MemoryStore } from "./memory-store.ts";
import type { PlanStore } from "./plan-store.ts";
import type { ScheduleStore } from "./schedule-store.ts";

/**
 * The memory of the service: sessions, their logs and their inboxes. Everything is bytes and numbers here; what they
 * mean is said in `convert`. SQLite and PostgreSQL are two drivers of this interface, held to one suite of tests.
 *
 * Every method resolves when its effect is durable, and rejects with `AgentError` `resource_exhausted` when there is no
 * room and `unavailable` when the store can't be reached.
 */
export interface Store extends ScheduleStore, PlanStore, MemoryStore {
  /** Whether other processes work on the same sessions; `start` has to be called then before anything else. */
  readonly shared: boolean;
  /**
   * Makes this process known to those that share the store and begins to tell the listener what they do; a store that is
   * not shared tells it at most `heldBack`. To be called once.
   */
  start(listener: StoreListener): Promise<void>;

  /**
   * Creates a session. When the tenant's request id has made a session before, or the session id is taken, nothing changes
   * and that session is returned.
   * @param answered noted in the same commit; `answered`: there is a note under its id, and nothing changes
   */
  createSession(session: NewSession): Promise<MadeSession>;
  createSession(session: NewSession, answered: AnsweredRequest | undefined): Promise<MadeSession | "answered">;
  readSession(tenant: string, sessionId: string): Promise<StoredSession | undefined>;
  /** Newest first; `before` is the last of the page before. */
  listSessions(tenant: string, before: SessionPosition | undefined, limit: number): Promise<readonly StoredSession[]>;
  /** Replaces the config if it still is the version that was read; says whether it was. `answered` as in `createSession`. */
  updateConfig(
    sessionId: string,
    seenVersion: number,
    config: Uint8Array,
    atMs: number,
    answered?: AnsweredRequest,
  ): Promise<boolean | "answered">;
  /**
   * Removes a session with its log, inbox, blobs and memories; its owner is fenced from then on. Schedules that run in it are broken
   * (`sessionGone`), plans that name it stay. Says whether it was there.
   */
  deleteSession(tenant: string, sessionId: string, answered?: AnsweredRequest): Promise<boolean | "answered">;
  /**
   * Creates a session whose log is the first `throughSeq` events of the parent's, as far as they were not pruned. As
   * `createSession` when an id is taken.
   */
  forkSession(parentId: string, throughSeq: number, session: NewSession): Promise<MadeSession | undefined>;
  forkSession(
    parentId: string,
    throughSeq: number,
    session: NewSession,
    answered: AnsweredRequest | undefined,
  ): Promise<MadeSession | "answered" | undefined>;

  /** What is noted of a tenant's request; `undefined` for nothing. */
  readRequest(tenant: string, requestId: string): Promise<StoredRequest | undefined>;
  /**
   * Notes that this process does what a request asks for. `undefined`: it is noted. Otherwise there is a note under its id
   * already, and nothing changes.
   */
  beginRequest(request: NewRequest): Promise<StoredRequest | undefined>;
  /** Notes the answer to a request, begun or not; the first answer stays. */
  answerRequest(answered: AnsweredRequest): Promise<void>;
  /** Removes at most `limit` notes of requests made before a time; says how many. */
  pruneRequests(beforeMs: number, limit: number): Promise<number>;

  /**
   * Puts a command into a session's inbox and makes the session runnable. When the key is taken nothing changes and the
   * entry that has it is returned with `inserted: false`. `undefined`: there is no such session. `full`: as many
   * entries of this kind wait as `waitingLimit` allows.
   */
  send(entry: NewInboxEntry): Promise<SentEntry | "full" | undefined>;
  /** The commands that were not taken yet, in order of arrival, without what they say. */
  readInbox(sessionId: string): Promise<readonly InboxEntry[]>;
  /** What a command that was not taken yet says, and the session's config as it is now. */
  readCommand(
    sessionId: string,
    key: string,
  ): Promise<{ readonly body: Uint8Array; readonly config: Uint8Array } | undefined>;

  /**
   * Takes ownership if nobody alive has it. `undefined`: somebody has, or there is no such session. Until it is released
   * or parked the session counts as runnable, so that whatever becomes of its owner somebody goes on with it.
   */
  claim(sessionId: string): Promise<Claim | undefined>;
  /**
   * Gives ownership up; says whether there is more to do, so that somebody should claim again.
   * @param unfinished a turn was begun and has not finished
   * @param pauseMs for how long nobody is to claim it; default not at all
   */
  release(sessionId: string, fence: Fence, unfinished: boolean, pauseMs?: number): Promise<boolean>;
  /**
   * Gives ownership up of a session whose turn waits for an answer. It is not runnable until a command comes; says
   * whether one that is not among `seenKeys` is there already, so that somebody should claim again.
   * @param wakeAtMs when somebody should look again without a command (`parkedSessions`)
   * @param seenKeys commands that the owner has seen and leaves for later
   */
  park(sessionId: string, fence: Fence, wakeAtMs: number, seenKeys: readonly string[]): Promise<boolean>;
  /**
   * Sessions that nobody alive owns and somebody has to look at later, those to be woken first first: parked ones, and
   * those left alone for a while since their owners died one after another.
   */
  parkedSessions(limit: number): Promise<readonly ParkedSession[]>;
  /**
   * Sessions in which something waits for an answer (`Append.waitingSinceMs`), those that wait longest first, then by id;
   * `after` is the last of the page before.
   */
  listWaiting(tenant: string, after: WaitingPosition | undefined, limit: number): Promise<readonly WaitingSession[]>;
  /**
   * The only way to write a log. `undefined`: fenced, somebody else owns the session now, or the log does not end before
   * `firstSeq`; write nothing more.
   */
  append(append: Append): Promise<{ readonly baseSeq: number } | undefined>;
  /** Sessions with waiting commands or an unfinished turn that nobody alive owns. */
  runnableSessions(limit: number): Promise<readonly string[]>;

  /**
   * Removes what only somebody needs who reads a turn as it goes (`deltaKinds`), of the turns that finished up to a time.
   * At most `limit` events of one session at a call; whatever goes is out of reach from the session's first call on.
   * Harmless when several processes do it at once.
   * @returns `more` when there may be more to remove
   */
  pruneDeltas(finishedUntilMs: number, limit: number): Promise<{ readonly removed: number; readonly more: boolean }>;

  /**
   * Events after a cursor, in order, at most `limit` of them and no more than about `limitBytes`. Their numbers have gaps
   * where events were pruned (`StoredSession.prunedSeq`), and nowhere else.
   */
  readEvents(sessionId: string, afterSeq: number, limit: number, limitBytes: number): Promise<readonly StoredEvent[]>;
  /** Events of the given kinds, in order: what a fold needs. */
  readHistory(sessionId: string, afterSeq: number, limit: number): Promise<readonly StoredEvent[]>;
  /** The bytes kept beside the log under their digest. */
  readBlob(sessionId: string, digest: string): Promise<Uint8Array | undefined>;

  /** Waits for what was begun, then closes. Sessions still owned by this process are free for others at once. */
  close(): Promise<void>;
}

/** What a store tells its process. None of these throws or waits. */
export interface StoreListener {
  /** Another process committed events up to this one. May come again, late or out of order. */
  grown(sessionId: string, headSeq: number): void;
  /** There is something to do in a session that nobody owns. */
  runnable(sessionId: string): void;
  /** A command came for a session that this process owns. */
  commanded(sessionId: string): void;
  deleted(sessionId: string): void;
  /** The log ends before an event that was seen here: the database lost what it had committed. */
  shortened(sessionId: string, headSeq: number): void;
  /** A session is held back for good (`StoredSession.heldBack`); `here` when it was this process that found out. */
  heldBack(sessionId: string, here: boolean): void;
  /**
   * Others may take this process for dead: it has to stop at once what it does in sessions, and write nothing about it.
   * It may claim again later.
   */
  fenced(): void;
  /** The sessions somebody reads here, each with the last event known. */
  watched(): Iterable<readonly [sessionId: string, headSeq: number]>;
}

/** Version of what builds write into logs; a session that a newer build wrote is not claimed by an older one. */
export const stateVersion = 1;

/** How many owners may die in a row before a session is held back for longer and longer, and then for good. */
const deathsBeforePause = 3;
const deathsBeforeHold = 8;

/** Stands for ever. */
export const heldForGood = Number.MAX_SAFE_INTEGER;

/**
 * Until when nobody is to claim a session whose owners died one after another without getting anywhere, so that one that
 * kills its process does not kill them all.
 * @param deaths at least 1
 * @returns milliseconds since 1970; `undefined` for no pause
 */
export function heldUntil(deaths: number, nowMs: number): number | undefined {
  if (deaths >= deathsBeforeHold) return heldForGood;
  return deaths < deathsBeforePause ? undefined : nowMs + 1000 * 2 ** (deaths - deathsBeforePause);
}

/** Events after which an owner has got somewhere. */
export const progressKinds: ReadonlySet<string> = new Set([
  "step-finished",
  "tool-finished",
  "plan-step",
  "history-compacted",
  "turn-finished",
]);

/** Events that a `block-stop` or a `tool-finished` stands for once their turn has finished. */
export const deltaKinds: readonly string[] = ["block-start", "block-delta", "tool-output"];

/** Says who may write a log: changes with every claim, so that an owner that was declared dead can't write. */
export interface Fence {
  readonly epoch: number;
  readonly token: string;
}

export interface NewSession {
  readonly sessionId: string;
  readonly tenant: string;
  readonly parentId: string;
  readonly parentSeq: number;
  readonly config: Uint8Array;
  readonly summary: Uint8Array;
  /** Bytes kept beside the log. */
  readonly blobs: readonly Blob[];
  /** Idempotency key of the request that creates it, empty for none, and a hash of its payload. */
  readonly requestId: string;
  readonly requestHash: string;
  /** Only processes of that name claim it; empty or absent means any. */
  readonly placement?: string;
  readonly atMs: number;
}

export interface StoredSession {
  readonly sessionId: string;
  readonly parentId: string;
  readonly parentSeq: number;
  readonly config: Uint8Array;
  readonly configVersion: number;
  /** What the owner noted last of the fold, so that lists need not fold. */
  readonly summary: Uint8Array;
  /** 0 for an empty log. */
  readonly headSeq: number;
  /** The last event that was pruned, 0 for none: all of `deltaKinds` up to it are gone, and all else is there. */
  readonly prunedSeq: number;
  readonly requestId: string;
  readonly requestHash: string;
  /** Turns in the inbox. */
  readonly waitingTurns: number;
  /** Its owners died so often that nobody claims it any more; a command of kind `cancel` frees it. */
  readonly heldBack: boolean;
  readonly createdMs: number;
  readonly updatedMs: number;
}

export interface MadeSession {
  readonly created: boolean;
  readonly session: StoredSession;
}

/** A request that is to be done once, whatever becomes of whoever made it. */
export interface NewRequest {
  readonly tenant: string;
  /** Unique in the tenant, whatever is asked for. Not empty. */
  readonly requestId: string;
  /** What is asked for, and a hash of its payload. */
  readonly method: string;
  readonly hash: string;
  readonly atMs: number;
}

export interface AnsweredRequest extends NewRequest {
  readonly answer: Uint8Array;
}

export interface StoredRequest {
  readonly method: string;
  readonly hash: string;
  /** `undefined` while there is none. */
  readonly answer: Uint8Array | undefined;
  /** Who began it: this process, another one that lives, or one that is gone. */
  readonly owner: "here" | "elsewhere" | "gone";
}

export interface SessionPosition {
  readonly createdMs: number;
  readonly sessionId: string;
}

export interface ParkedSession {
  readonly sessionId: string;
  readonly wakeAtMs: number;
}

export interface WaitingPosition {
  readonly waitingSinceMs: number;
  readonly sessionId: string;
}

export interface WaitingSession extends WaitingPosition {
  readonly summary: Uint8Array;
}

export interface Blob {
  readonly digest: string;
  readonly body: Uint8Array;
}

/** `answer`: a response to a pending request. `change`: what holds at once, in the middle of a turn too (`SessionChange`). */
export const inboxKinds = ["turn", "cancel", "answer", "compact", "change"] as const;
export type InboxKind = (typeof inboxKinds)[number];

export interface NewInboxEntry {
  readonly sessionId: string;
  readonly tenant: string;
  /** Unique in the session: what makes a command idempotent. */
  readonly key: string;
  readonly kind: InboxKind;
  /** The turn it asks for or is about. */
  readonly turnId: string;
  /** Who sends it. */
  readonly principal: string;
  readonly body: Uint8Array;
  readonly hash: string;
  readonly atMs: number;
  /** Most entries of this kind that may wait. */
  readonly waitingLimit: number;
}

export interface InboxEntry {
  readonly key: string;
  readonly kind: InboxKind;
  readonly turnId: string;
  readonly principal: string;
  readonly atMs: number;
}

export interface SentEntry {
  readonly inserted: boolean;
  /** The turn of the entry that has the key. */
  readonly turnId: string;
  readonly hash: string;
  /** For an entry already taken: the first event of its turn. */
  readonly firstSeq: number | undefined;
  /** The log's head when the command was sent. */
  readonly headSeq: number;
}

export interface Claim {
  readonly fence: Fence;
  readonly tenant: string;
  /** Token of the owner before; a fold kept from then is still true if head and token agree. */
  readonly previousToken: string;
  readonly headSeq: number;
  readonly config: Uint8Array;
}

export interface Append {
  readonly sessionId: string;
  readonly fence: Fence;
  readonly events: readonly { readonly kind: string; readonly body: Uint8Array }[];
  /** The number that the first event has to get; absent when any will do. */
  readonly firstSeq?: number;
  readonly turnId: string;
  readonly atMs: number;
  /** Bytes kept beside the log, for what is too large for an event. */
  readonly blobs?: readonly Blob[];
  /** Inbox entries that these events answer. */
  readonly takenKeys?: readonly string[];
  readonly summary?: Uint8Array;
  /** Since when something in the session waits for an answer, in milliseconds since 1970; `null` when nothing does. */
  readonly waitingSinceMs?: number | null;
}

export interface StoredEvent {
  readonly seq: number;
  readonly body: Uint8Array;
}
