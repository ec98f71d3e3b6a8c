import type { SearchWord } from "../../log/memory-store.ts";

/** Scripts that write words without spaces between them. */
const dense =
  "\\p{Script=Han}\\p{Script=Hiragana}\\p{Script=Katakana}\\p{Script=Thai}\\p{Script=Lao}\\p{Script=Khmer}\\p{Script=Myanmar}ー";
const runs = new RegExp(`([${dense}][${dense}\\p{M}]*)|(?:(?![${dense}])[\\p{L}\\p{N}\\p{M}])+`, "gu");
/** Where `camelCase` goes on with another word. */
const humps = /(?<=[\p{Ll}\p{N}])(?=\p{Lu})/gu;

const mostCharacters = 64;
const mostWords = 32;
/** A shorter word is looked for as it is: too many begin with it. */
const leastBeginning = 3;

/**
 * What a memory is found by: the words of its text and its tags in lower case, each once. Of writing without spaces these
 * are all pairs of neighbours and the last character; of `camelCase` also its parts. A tag counts as a whole, too (`labelOf`).
 */
export function memoryTerms(content: string, tags: readonly string[]): readonly string[] {
  const terms = new Set<string>();
  for (const text of [content, ...tags])
    for (const { run, isDense } of [...runsOf(text), ...runsOf(text.replace(humps, " "))]) {
      if (!isDense) terms.add(cut(run));
      else for (const term of pairsOf(run)) terms.add(term);
    }
  for (const tag of tags) terms.add(labelOf(tag));
  return [...terms];
}

/**
 * The words that people look for. All characters besides letters and digits only separate them, so that nothing in a query is
 * a command; words of three characters and more find those that begin so. After the first 32 the rest is passed over.
 */
export function searchWords(query: string): readonly SearchWord[] {
  const words = new Map<string, SearchWord>();
  const add = (term: string, isPrefix: boolean) => void words.set(term, { term, isPrefix });
  for (const { run, isDense } of runsOf(query)) {
    const characters = [...run];
    if (!isDense) add(cut(run), characters.length >= leastBeginning);
    else if (characters.length === 1) add(run, true);
    else for (const pair of pairsOf(run).slice(0, -1)) add(pair, false);
  }
  return [...words.values()].slice(0, mostWords);
}

/** The term of a tag as a whole; upper and lower case are the same. */
export function labelOf(tag: string): string {
  return `#${plain(tag).trim()}`;
}

function* runsOf(text: string): Generator<{ readonly run: string; readonly isDense: boolean }> {
  for (const [run, denseRun] of plain(text).matchAll(runs)) yield { run, isDense: denseRun !== undefined };
}

function plain(text: string): string {
  return text.normalize("NFKC").toLowerCase();
}

function pairsOf(run: string): string[] {
  const characters = [...run];
  return characters.map((character, index) => character + (characters[index + 1] ?? ""));
}

function cut(word: string): string {
  return word.length <= mostCharacters ? word : [...word].slice(0, mostCharacters).join("");
}
