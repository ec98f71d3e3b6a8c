import { AgentError } from "../chat/error.ts";
import type { LogRecord } from "../chat/log-event.ts";
import { isPruned, type LogBatch } from "./follow-log.ts";
import type { LogReading } from "./log-reading.ts";

/** What readers of streams are told and allowed. */
export interface StreamLimits {
  /** Silence after which a reader is told that the stream is alive. */
  readonly silenceMs: number;
  /** For how long a reader may take nothing while more than `slowReaderBytes` wait for it; 0 for as long as it likes. */
  readonly slowReaderMs: number;
  readonly slowReaderBytes: number;
}

export const defaultStreamLimits: StreamLimits = {
  silenceMs: 15_000,
  slowReaderMs: 30_000,
  slowReaderBytes: 64 * 1024,
};

/** How events and control frames of one kind of stream are made. */
export interface StreamFrames<Frame> {
  ofRecord(record: LogRecord): Iterable<Frame>;
  keepAlive(): Frame;
  /** Events up to this one were pruned. */
  resync(prunedSeq: number): Frame;
  notice(notice: { readonly level: string; readonly code: string; readonly message: string }): Frame;
  /** What to do after a stream was ended for reading too slowly; by default to come back with `after_seq`. */
  afterSlow?(lastSeq: number): string;
}

/**
 * Events as a client gets them, as many at a time as are ready, each made when it is taken; a `keep_alive` after every
 * `silenceMs` without one, a `resync` before events that follow a gap. Closes the reading when left.
 *
 * A reader that takes nothing for half of `slowReaderMs` is warned by a `notice` without `seq`; one that takes nothing for
 * all of it while too much waits is given up: what it holds here is let go, and when it has taken what was on its way it is
 * told so, with the last `seq` it got.
 * @param first is said before any event
 * @param signal ends the reading; the generator then throws the signal's reason
 */
export async function* frameBatches<Frame>(
  reading: LogReading,
  signal: AbortSignal,
  limits: StreamLimits,
  frames: StreamFrames<Frame>,
  first?: Frame,
): AsyncGenerator<Iterable<Frame>> {
  const givingUp = new AbortController();
  const batches = reading.read(AbortSignal.any([signal, givingUp.signal]));
  const pace = new ReaderPace(reading, limits, frames, (error) => {
    givingUp.abort(error);
    // Ends it where it waits for the reader; where it waits for events the signal does.
    batches.return(undefined).catch(() => undefined);
  });
  let onSilence: (() => void) | undefined;
  const timer = setTimeout(() => onSilence?.(), limits.silenceMs);
  try {
    if (first !== undefined) yield [first];
    let next = batches.next();
    for (;;) {
      timer.refresh();
      const result = await new Promise<IteratorResult<LogBatch> | "silence">((resolve, reject) => {
        onSilence = () => resolve("silence");
        next.then(resolve, reject);
      });
      onSilence = undefined;
      if (result === "silence") {
        yield pace.handing([], frames.keepAlive());
        continue;
      }
      if (result.done) {
        pace.throwIfSlow();
        return;
      }
      const batch = result.value;
      if (isPruned(batch)) yield pace.handing([], frames.resync(batch.prunedSeq));
      else yield pace.handing(batch);
      pace.throwIfSlow();
      next = batches.next();
    }
  } finally {
    clearTimeout(timer);
    pace.end();
    await batches.return(undefined);
  }
}

/** Watches how one reader takes what it is handed. */
class ReaderPace<Frame> {
  readonly #reading: LogReading;
  readonly #limits: StreamLimits;
  readonly #frames: StreamFrames<Frame>;
  readonly #giveUp: (error: AgentError) => void;
  readonly #timer: NodeJS.Timeout | undefined;
  /** Counts what was taken, so that standing still shows. */
  #taken = 0;
  #takenBefore = -1;
  #stillFor = 0;
  /** Something was handed over and not taken yet. */
  #isHanding = false;
  #isWarned = true;
  #lastSeq = 0;
  #slow: AgentError | undefined;

  constructor(
    reading: LogReading,
    limits: StreamLimits,
    frames: StreamFrames<Frame>,
    giveUp: (error: AgentError) => void,
  ) {
    this.#reading = reading;
    this.#limits = limits;
    this.#frames = frames;
    this.#giveUp = giveUp;
    this.#timer =
      limits.slowReaderMs === 0 ? undefined : setInterval(() => void this.#look(), Math.ceil(limits.slowReaderMs / 2));
  }

  /** What was read, one by one. @throws {AgentError} when the reader comes back after it was given up. */
  *handing(records: readonly LogRecord[], control?: Frame): Generator<Frame> {
    if (control !== undefined) yield* this.#hand(control);
    for (const record of records) {
      this.#lastSeq = record.seq;
      for (const frame of this.#frames.ofRecord(record)) yield* this.#hand(frame);
      if (!this.#isWarned) {
        this.#isWarned = true;
        yield this.#frames.notice(slowReaderNotice(this.#limits));
      }
    }
  }

  throwIfSlow(): void {
    if (this.#slow !== undefined) throw this.#slow;
  }

  end(): void {
    clearInterval(this.#timer);
  }

  *#hand(chunk: Frame): Generator<Frame> {
    this.#isHanding = true;
    yield chunk;
    this.#isHanding = false;
    this.#taken++;
    this.throwIfSlow();
  }

  async #look(): Promise<void> {
    const stands = this.#isHanding && this.#taken === this.#takenBefore;
    this.#takenBefore = this.#taken;
    this.#stillFor = stands ? this.#stillFor + 1 : 0;
    if (!stands || this.#slow !== undefined) return;
    this.#isWarned = false;
    if (this.#stillFor < 2) return;
    const { slowReaderBytes } = this.#limits;
    const taken = this.#taken;
    // What a store that fails has to say is said to those that read.
    const waiting = await this.#reading.waitingBytes(this.#lastSeq, slowReaderBytes + 1).catch(() => 0);
    if (waiting <= slowReaderBytes || taken !== this.#taken || this.#slow !== undefined) return;
    this.end();
    const whatToDo = this.#frames.afterSlow?.(this.#lastSeq) ?? `come back with after_seq ${this.#lastSeq}`;
    this.#slow = slowReader(this.#limits, this.#lastSeq, whatToDo);
    this.#giveUp(this.#slow);
  }
}

function slowReaderNotice({ slowReaderMs, slowReaderBytes }: StreamLimits) {
  return {
    level: "warning",
    code: "SLOW_READER",
    message: `this stream is read too slowly: when nothing is taken for ${slowReaderMs} ms while more than ${slowReaderBytes} bytes wait, it is ended`,
  };
}

function slowReader({ slowReaderMs, slowReaderBytes }: StreamLimits, lastSeq: number, whatToDo: string): AgentError {
  return new AgentError(
    "unavailable",
    `nothing was taken from this stream for ${slowReaderMs} ms while more than ${slowReaderBytes} bytes waited; ${whatToDo}`,
    { reason: "SLOW_READER", detail: { retryable: true }, metadata: { lastSeq: String(lastSeq) } },
  );
}
