/** The part of a store that keeps memories. Each belongs to a session and goes with it; a fork begins without any. */
export interface MemoryStore {
  /**
   * Keeps a memory. One that has its id in the session is replaced, and what is known of its recalls stays.
   * @param limit how many a session may have
   * @returns `full` when it has as many without this one; `undefined` when there is no such session
   */
  storeMemory(memory: NewMemory, limit: number): Promise<StoredMemory | "full" | undefined>;
  /** Reads a memory and notes that it was recalled; what is given says so already. `undefined`: there is none. */
  recallMemory(tenant: string, sessionId: string, memoryId: string, atMs: number): Promise<StoredMemory | undefined>;
  searchMemories(search: MemorySearch): Promise<FoundMemories>;
  /** How many there are of each kind; kinds without any are left out. */
  countMemories(tenant: string, sessionId: string): Promise<ReadonlyMap<string, number>>;
  /** Removes all memories of these kinds; says how many. */
  clearMemories(tenant: string, sessionId: string, kinds: readonly string[]): Promise<number>;
}

export interface NewMemory {
  readonly tenant: string;
  readonly sessionId: string;
  /** Unique in the session. */
  readonly memoryId: string;
  readonly kind: string;
  /** A whole number; more is more important. */
  readonly importance: number;
  /** When it happened, in milliseconds since 1970. */
  readonly atMs: number;
  /** What is remembered. */
  readonly body: Uint8Array;
  /** What it is found by, each once. */
  readonly terms: readonly string[];
}

export interface StoredMemory {
  readonly memoryId: string;
  readonly kind: string;
  readonly importance: number;
  readonly atMs: number;
  readonly body: Uint8Array;
  /** How often it was recalled, and when it was last; `undefined` for never. */
  readonly accessCount: number;
  readonly accessedMs: number | undefined;
}

/** A term, or the beginning of one, that a memory is looked for by. */
export interface SearchWord {
  readonly term: string;
  readonly isPrefix: boolean;
}

/** What is left out restricts nothing. */
export interface MemorySearch {
  readonly tenant: string;
  readonly sessionId: string;
  /** A memory has to have one of these; the more of them it has the earlier it comes. */
  readonly words?: readonly SearchWord[];
  /** A memory has to have one of these terms too. */
  readonly labels?: readonly string[];
  readonly minImportance?: number;
  /** `best`: by how many of the words are there, then by importance, then the newest first. */
  readonly order: "best" | "newest";
  readonly limit: number;
}

export interface FoundMemories {
  readonly memories: readonly StoredMemory[];
  /** How many there are without the limit. */
  readonly totalCount: number;
}

/** The terms that a word stands for: all from the first to the last, as bytes are ordered. */
export function termRange({ term, isPrefix }: SearchWord): readonly [first: string, last: string] {
  return [term, isPrefix ? `${term}\u{10ffff}` : term];
}
