import { AgentError } from "../chat/error.ts";

export interface CircuitLimits {
  /** Calls in a row that end without an answer before a model is left alone; 0 means never. Default 5. */
  readonly failures: number;
  /** How long it is then left alone, in milliseconds; twice as long each time it fails again. Default 15 s. */
  readonly openMs: number;
}

export const defaultCircuitLimits: CircuitLimits = { failures: 5, openMs: 15_000 };

const longestOpenMs = 5 * 60_000;
const maxModels = 1000;

interface State {
  failures: number;
  /** Times it opened in a row. */
  opened: number;
  opensUntilMs: number;
  /** One call is on its way to find out whether the model answers again. */
  probing: boolean;
}

/**
 * Leaves a model alone for a while whose provider has failed again and again, so that callers are told at once, and when
 * to come back, rather than after three tries each. Failing means that no answer began: a cut answer shows that the
 * provider works.
 */
export class Circuits {
  readonly #limits: CircuitLimits;
  readonly #now: () => number;
  /** By `provider/model`; without an entry all is well. */
  readonly #states = new Map<string, State>();

  constructor(limits: CircuitLimits, now: () => number) {
    this.#limits = limits;
    this.#now = now;
  }

  /** Why the model cannot be asked now; undefined when it can. */
  refusal(provider: string, model: string): AgentError | undefined {
    const state = this.#states.get(`${provider}/${model}`);
    if (state === undefined || !this.#isOpen(state)) return undefined;
    const waitMs = state.opensUntilMs - this.#now();
    if (waitMs <= 0 && !state.probing) return undefined;
    const retryAfterMs = Math.max(waitMs, 1000);
    const seconds = Math.ceil(retryAfterMs / 1000);
    return new AgentError(
      "provider_unavailable",
      `${provider} gave no answer ${state.failures} times in a row for ${model}; it is asked again in ${seconds} s`,
      { retryAfterMs, detail: { provider, retryable: true } },
    );
  }

  /** A call begins; `refusal` has been asked. Tell the returned functions, once, how it went. */
  begin(provider: string, model: string): { answered(): void; failed(): void; leftAlone(): void } {
    const key = `${provider}/${model}`;
    const probed = this.#states.get(key);
    const isProbe = probed !== undefined && this.#isOpen(probed);
    if (isProbe) probed.probing = true;
    return {
      answered: () => void this.#states.delete(key),
      failed: () => {
        const state = this.#states.get(key) ?? { failures: 0, opened: 0, opensUntilMs: 0, probing: false };
        state.failures++;
        if (isProbe) state.probing = false;
        // Calls that were under way when it opened say nothing new.
        if (this.#isOpen(state) && (isProbe || state.opened === 0)) {
          state.opensUntilMs = this.#now() + Math.min(this.#limits.openMs * 2 ** state.opened, longestOpenMs);
          state.opened++;
        }
        this.#states.delete(key); // the newest is last
        const [oldest] = this.#states.keys();
        if (oldest !== undefined && this.#states.size >= maxModels) this.#states.delete(oldest);
        this.#states.set(key, state);
      },
      leftAlone: () => {
        if (isProbe) probed.probing = false;
      },
    };
  }

  /** What was configured anew has not failed yet. */
  forget(provider: string): void {
    for (const key of this.#states.keys()) if (key.startsWith(`${provider}/`)) this.#states.delete(key);
  }

  #isOpen({ failures }: State): boolean {
    return this.#limits.failures > 0 && failures >= this.#limits.failures;
  }
}
