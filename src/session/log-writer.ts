import type { BlockDelta, LogEvent, LogRecord } from "../chat/log-event.ts";
import type { Blob } from "../log/store.ts";

/** What goes into the same commit as the events it is said with. */
export interface CommitExtras {
  readonly takenKeys?: readonly string[];
  readonly blobs?: readonly Blob[];
  readonly summary?: Uint8Array;
  /** Since when something waits for an answer; `null` when nothing does. */
  readonly waitingSinceMs?: number | null;
}

/** A log as its only writer sees it. */
export interface OwnedLog {
  /** Resolves when the events are committed and readers have them; in the order of the calls. */
  append(turnId: string, records: readonly LogRecord[], extras: CommitExtras): Promise<void>;
}

/** Deltas are merged up to this length, in UTF-16 units. */
const maxMergedLength = 64 * 1024;

/**
 * Numbers the events of a session and commits them in order. The first is committed at once; what comes while a commit
 * is under way goes into the next one, deltas of one block merged into one event. So nothing waits for a timer, and a
 * slow disk gets fewer and larger commits.
 */
export class LogWriter {
  readonly #log: OwnedLog;
  readonly #now: () => number;
  readonly #onFailure: (error: unknown) => void;
  #seq: number;
  #turnId = "";
  #pending: LogRecord[] = [];
  #extras = noExtras();
  #running: Promise<void> | undefined;
  #failure: { readonly error: unknown } | undefined;

  /**
   * @param headSeq the last event of the log
   * @param onFailure told once when a commit fails: from then on nothing can be written, so what is under way may stop
   */
  constructor(
    log: OwnedLog,
    headSeq: number,
    now: () => number,
    onFailure: (error: unknown) => void = () => undefined,
  ) {
    this.#log = log;
    this.#seq = headSeq;
    this.#now = now;
    this.#onFailure = onFailure;
  }

  /** Adds an event; returns it with its number, unless it went into the delta before it. All waiting events are of one turn. */
  add(turnId: string, event: LogEvent, extras: CommitExtras = {}): LogRecord {
    this.#turnId = turnId;
    this.attach(extras);
    const last = this.#pending.at(-1);
    const merged = last === undefined ? undefined : mergeDeltas(last.event, event);
    if (last !== undefined && merged !== undefined) {
      const record = { ...last, event: merged };
      this.#pending[this.#pending.length - 1] = record;
      return record;
    }
    const record: LogRecord = { seq: ++this.#seq, turnId, timeMs: this.#now(), event };
    this.#pending.push(record);
    this.#running ??= this.#run();
    return record;
  }

  /** Puts more into the commit of the event added last. To be called in the same breath as `add`. */
  attach(extras: CommitExtras): void {
    if (extras.takenKeys !== undefined) this.#extras.takenKeys.push(...extras.takenKeys);
    if (extras.blobs !== undefined) this.#extras.blobs.push(...extras.blobs);
    if (extras.summary !== undefined) this.#extras.summary = extras.summary;
    if (extras.waitingSinceMs !== undefined) this.#extras.waitingSinceMs = extras.waitingSinceMs;
  }

  /** Events that wait for their commit. */
  get waiting(): number {
    return this.#pending.length;
  }

  /**
   * Resolves when everything added so far is committed.
   * @throws what the log threw; nothing can be written after that.
   */
  async flushed(): Promise<void> {
    while (this.#running !== undefined) await this.#running;
    if (this.#failure !== undefined) throw this.#failure.error;
  }

  async #run(): Promise<void> {
    // What one moment brings goes into one commit: a tool's result and the beginning of the step that follows it.
    await new Promise<void>((resolve) => setImmediate(resolve));
    while (this.#pending.length > 0 && this.#failure === undefined) {
      const records = this.#pending;
      const { takenKeys, blobs, summary, waitingSinceMs } = this.#extras;
      this.#pending = [];
      this.#extras = noExtras();
      try {
        await this.#log.append(this.#turnId, records, {
          takenKeys,
          blobs,
          ...(summary === undefined ? {} : { summary }),
          ...(waitingSinceMs === undefined ? {} : { waitingSinceMs }),
        });
      } catch (error) {
        this.#failure = { error };
        this.#onFailure(error);
      }
    }
    this.#running = undefined;
  }
}

interface CollectedExtras {
  readonly takenKeys: string[];
  readonly blobs: Blob[];
  summary: Uint8Array | undefined;
  waitingSinceMs: number | null | undefined;
}

function noExtras(): CollectedExtras {
  return { takenKeys: [], blobs: [], summary: undefined, waitingSinceMs: undefined };
}

function mergeDeltas(before: LogEvent, next: LogEvent): LogEvent | undefined {
  if (before.type !== "block-delta" || next.type !== "block-delta" || before.index !== next.index) return undefined;
  const delta = joinDeltas(before.delta, next.delta);
  return delta === undefined ? undefined : { ...before, delta };
}

function joinDeltas(before: BlockDelta, next: BlockDelta): BlockDelta | undefined {
  if (before.type === "text" && next.type === "text") {
    return fits(before.text, next.text) ? { type: "text", text: before.text + next.text } : undefined;
  }
  if (before.type === "thinking" && next.type === "thinking") {
    return fits(before.thinking, next.thinking)
      ? { type: "thinking", thinking: before.thinking + next.thinking }
      : undefined;
  }
  if (before.type === "reasoning" && next.type === "reasoning") {
    return fits(before.reasoning, next.reasoning)
      ? { type: "reasoning", reasoning: before.reasoning + next.reasoning }
      : undefined;
  }
  if (before.type === "input_json" && next.type === "input_json") {
    return fits(before.inputJson, next.inputJson)
      ? { type: "input_json", inputJson: before.inputJson + next.inputJson }
      : undefined;
  }
  return undefined;
}

function fits(before: string, next: string): boolean {
  return before.length + next.length <= maxMergedLength;
}
