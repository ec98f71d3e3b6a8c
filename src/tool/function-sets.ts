import { type FunctionIndex, indexFunctions } from "./function-index.ts";
import type { FunctionProvider } from "./function-provider.ts";

/** The functions that agents of a workspace have, from one change to the next. */
export interface FunctionSet extends FunctionIndex {
  /** Grows with each change while the process lives. */
  readonly generation: number;
  /** When it came to be, in milliseconds since 1970. */
  readonly timeMs: number;
}

/** How two sets differ, by names in order. */
export interface FunctionSetChange {
  readonly added: readonly string[];
  readonly removed: readonly string[];
  readonly changed: readonly string[];
}

/** A source whose functions depend on the workspace. Its caller closes it. */
export interface WorkspaceFunctions {
  /**
   * Providers as they are now; what they list and run stays the same for whoever holds them. Quick, and the same array
   * as before while nothing has changed.
   */
  providersFor(workspace: string): Promise<readonly FunctionProvider[]>;
  /** Calls `onChange` after each change of what `providersFor` gives for a workspace, until the returned function is called. */
  watch(workspace: string, onChange: () => void): () => void;
}

export interface FunctionSetsOptions {
  /** Offered in every workspace; the first has the first claim to a name. Not closed here. */
  readonly providers: readonly FunctionProvider[];
  /** Offered after those. Not closed here. */
  readonly ofWorkspace?: WorkspaceFunctions;
  /**
   * Sources (`mcp:github`) or kinds of them (`mcp`) in the order of their claims to a name. Those of no kind (`local`) come
   * before them, those that are not named after them.
   */
  readonly order?: readonly string[];
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

interface CachedSet {
  readonly set: FunctionSet;
  readonly version: number;
  readonly own: readonly FunctionProvider[];
}

const setsRemembered = 256;
const none: readonly FunctionProvider[] = [];

/** Composes the functions of all providers into one set for each workspace, anew only when something has changed. */
export class FunctionSets {
  readonly #options: FunctionSetsOptions;
  /** By workspace. */
  readonly #current = new Map<string, CachedSet>();
  /** By digest, to tell what has changed since. */
  readonly #remembered = new Map<string, FunctionSet>();
  readonly #listeners = new Set<() => void>();
  readonly #stops: readonly (() => void)[];
  /** Counts the changes of the providers that all workspaces share. */
  #version = 0;
  #generation = 0;

  constructor(options: FunctionSetsOptions) {
    this.#options = options;
    this.#stops = options.providers.flatMap((provider) => provider.watch?.(() => this.#sharedChanged()) ?? []);
  }

  /** The set that holds now. @throws what a provider's `list` throws. */
  async current(workspace: string): Promise<FunctionSet> {
    const { providers, ofWorkspace, order = [], now } = this.#options;
    const own = (await ofWorkspace?.providersFor(workspace)) ?? none;
    const before = this.#current.get(workspace);
    if (before !== undefined && before.version === this.#version && before.own === own) return before.set;
    const version = this.#version;
    const index = await indexFunctions(inOrder([...providers, ...own], order));
    // What has changed gets a new number, also when it is as it once was.
    const known = before === undefined ? this.#remembered.get(index.digest) : before.set;
    const same = known?.digest === index.digest ? known : undefined;
    const { generation, timeMs } = same ?? { generation: ++this.#generation, timeMs: now() };
    const set = { ...index, generation, timeMs };
    remember(this.#current, workspace, { set, version, own });
    remember(this.#remembered, set.digest, set);
    return set;
  }

  /** How a set differs from an earlier one of that digest; `undefined` for one that is not remembered. */
  changeSince(digest: string, set: FunctionIndex): FunctionSetChange | undefined {
    const before = this.#remembered.get(digest);
    return before === undefined ? undefined : functionSetChange(before, set);
  }

  /** Calls `onChange` when the set of a workspace may have changed, until the returned function is called. */
  watch(workspace: string, onChange: () => void): () => void {
    this.#listeners.add(onChange);
    const stop = this.#options.ofWorkspace?.watch(workspace, onChange);
    return () => {
      this.#listeners.delete(onChange);
      stop?.();
    };
  }

  /** Stops listening to the providers. */
  close(): void {
    for (const stop of this.#stops) stop();
    this.#listeners.clear();
  }

  #sharedChanged(): void {
    this.#version++;
    for (const listener of this.#listeners) listener();
  }
}

/** What is new, gone and different in `after`. */
export function functionSetChange(before: FunctionIndex, after: FunctionIndex): FunctionSetChange {
  const names = (index: FunctionIndex) => index.definitions.map(({ name }) => name);
  const isSame = (name: string) =>
    JSON.stringify(before.find(name)?.definition) === JSON.stringify(after.find(name)?.definition);
  return {
    added: names(after).filter((name) => before.find(name) === undefined),
    removed: names(before).filter((name) => after.find(name) === undefined),
    changed: names(after).filter((name) => before.find(name) !== undefined && !isSame(name)),
  };
}

function inOrder(providers: readonly FunctionProvider[], order: readonly string[]): FunctionProvider[] {
  const place = ({ source }: FunctionProvider) => {
    const [kind = source, name] = source.split(":", 2);
    if (name === undefined) return -1;
    const found = order.includes(source) ? order.indexOf(source) : order.indexOf(kind);
    return found === -1 ? order.length : found;
  };
  return providers.toSorted((left, right) => place(left) - place(right));
}

/** Keeps what was noted last, up to a bound. */
function remember<Key, Value>(map: Map<Key, Value>, key: Key, value: Value): void {
  map.delete(key);
  map.set(key, value);
  for (const oldest of map.keys()) {
    if (map.size <= setsRemembered) break;
    map.delete(oldest);
  }
}
