import type { TurnRequest } from "../chat/request.ts";
import { OneOffTurn } from "./one-off-turn.ts";
import { requestHash } from "./request-hash.ts";
import type { TurnEnvironment } from "./run-turn.ts";
import { otherPayload } from "./session-errors.ts";
import type { Timers } from "./timers.ts";

export interface OneOffTurnsOptions {
  /** Where they work; an absolute path. */
  readonly workspace: string;
  /** How long a turn outlives its last reader; default 2 s. */
  readonly graceMs?: number;
  /** How long a finished turn with a request id can be joined; default 60 s. */
  readonly keptMs?: number;
}

const defaultGraceMs = 2000;
const defaultKeptMs = 60_000;
const maxKept = 256;

/** The turns without a session, while they run and a little longer. */
export class OneOffTurns {
  readonly #environment: TurnEnvironment;
  readonly #options: OneOffTurnsOptions;
  readonly #timers: Timers;
  readonly #turns = new Map<string, OneOffTurn>();
  readonly #requests = new Map<string, { readonly turn: OneOffTurn; readonly hash: string }>();
  /** All whose logs are in memory: also those that have ended long ago, while somebody still reads them. */
  readonly #inMemory = new Set<OneOffTurn>();
  #running = 0;

  constructor(environment: TurnEnvironment, options: OneOffTurnsOptions, timers: Timers) {
    this.#environment = environment;
    this.#options = options;
    this.#timers = timers;
  }

  get running(): number {
    return this.#running;
  }

  /** About how many bytes of their events are in memory. */
  get bytes(): number {
    let bytes = 0;
    const joinable = new Set([...this.#requests.values()].map(({ turn }) => turn));
    for (const turn of this.#inMemory) {
      const isHeld = turn.isRead || this.#turns.has(turn.sessionId) || joinable.has(turn);
      if (turn.hasEnded && !isHeld) this.#inMemory.delete(turn);
      else bytes += turn.tail.bytes;
    }
    return bytes;
  }

  /** The turn that runs, or ran a moment ago, under the id of a session. */
  get(tenant: string, sessionId: string): OneOffTurn | undefined {
    const turn = this.#turns.get(sessionId);
    return turn?.tenant === tenant ? turn : undefined;
  }

  /** Those of a tenant that run, or ran a moment ago. */
  list(tenant: string): readonly OneOffTurn[] {
    return [...this.#turns.values()].filter((turn) => turn.tenant === tenant);
  }

  /**
   * The turn a request id stands for.
   * @throws {AgentError} `already_exists` when it stands for another payload.
   */
  known(tenant: string, { requestId }: TurnRequest, hash: string): OneOffTurn | undefined {
    if (requestId === "") return undefined;
    const known = this.#requests.get(requestHash([tenant, requestId]));
    if (known !== undefined && known.hash !== hash) throw otherPayload(requestId);
    return known?.turn;
  }

  /** Begins a turn. */
  start(tenant: string, principal: string, request: TurnRequest, hash: string): OneOffTurn {
    const graceMs = this.#options.graceMs ?? defaultGraceMs;
    const { newId } = this.#environment;
    const turn = new OneOffTurn(
      {
        tenant,
        sessionId: newId("ses"),
        turnId: newId("turn"),
        principal,
        request,
        workspace: this.#options.workspace,
        graceMs,
      },
      this.#environment,
    );
    this.#turns.set(turn.sessionId, turn);
    this.#inMemory.add(turn);
    this.#running++;
    const key = request.requestId === "" ? undefined : requestHash([tenant, request.requestId]);
    if (key !== undefined) this.#requests.set(key, { turn, hash });
    void turn.ended.then(() => {
      this.#running--;
      // A reader that lost its connection near the end may still come back for the rest.
      this.#timers.later(graceMs, () => this.#turns.delete(turn.sessionId));
      if (key === undefined) return;
      // Who asks again for a turn that was ended because nobody read it wants it done, not told that it was cancelled.
      if (turn.abandoned) this.#requests.delete(key);
      else this.#timers.later(this.#options.keptMs ?? defaultKeptMs, () => this.#requests.delete(key));
    });
    if (this.#requests.size > maxKept) {
      // One that runs is known to its end, or it would be run twice.
      const over = [...this.#requests].find(([, known]) => known.turn.hasEnded);
      if (over !== undefined) this.#requests.delete(over[0]);
    }
    return turn;
  }

  /** Resolves when all that run have ended; those that wait for an answer end at once. */
  settled(): Promise<unknown> {
    for (const turn of this.#turns.values()) turn.stopWhenWaiting();
    return Promise.allSettled([...this.#turns.values()].map((turn) => turn.ended));
  }

  /** Ends all that run. */
  stop(): void {
    for (const turn of this.#turns.values()) turn.stop();
  }
}
