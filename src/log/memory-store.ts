import { createHash } from "node:crypto";

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

/**
 * The terms of a memory as both databases are given them, with a space between: each stands there so that their text search
 * takes it for one word, which begins with the session's own letters. So a search never meets words of other sessions.
 */
export function indexedTerms(sessionId: string, terms: readonly string[]): string {
  const prefix = sessionPrefix(sessionId);
  return terms.map((term) => prefix + oneWord(term)).join(" ");
}

/** A term, or the beginning of one, as it stands among the indexed terms of a session; in it is nothing to be quoted. */
export function indexedTerm(sessionId: string, term: string): string {
  return sessionPrefix(sessionId) + oneWord(term);
}

/** Two sessions may have the same: it is for speed, and who searches looks at the session, too. */
function sessionPrefix(sessionId: string): string {
  return createHash("sha256").update(sessionId).digest("hex").slice(0, 12);
}

/** Small letters, digits and what is not ASCII stay; another character becomes `_` and its code. Beginnings stay beginnings. */
function oneWord(term: string): string {
  const escaped = (character: string) => `_${character.charCodeAt(0).toString(16).padStart(2, "0")}`;
  return term.toWellFormed().replace(/[^a-z0-9\u{80}-\u{10ffff}]/gu, escaped);
}
