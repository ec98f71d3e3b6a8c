import type { FunctionDefinition } from "../tool/function-provider.ts";

/** How many functions a planner is shown, and how many bytes of them. */
const mostFunctions = 120;
const mostBytes = 120 * 1024;
const mostDescriptionCharacters = 1000;
const mostParametersCharacters = 6000;

/** The functions a planner is shown, one a line. */
export interface OfferedFunctions {
  readonly shown: readonly FunctionDefinition[];
  readonly text: string;
  /** How many there are that it is not shown. */
  readonly leftOut: number;
}

/**
 * Chooses the functions a planner is shown: all of them while they are few, else those whose names and descriptions share
 * the most words with what is wanted. No model is asked for it, and the same set and words give the same text. They stay in
 * the order of the set.
 * @param wanted what is wanted, in somebody's words
 * @param needed names of functions that are shown in any case
 */
export function offeredFunctions(
  definitions: readonly FunctionDefinition[],
  wanted: string,
  needed: ReadonlySet<string>,
): OfferedFunctions {
  const lines = definitions.map(lineOf);
  const byWords = scoresOf(definitions, wordsOf(wanted));
  const scores = definitions.map(({ name }, index) =>
    needed.has(name) ? Number.POSITIVE_INFINITY : (byWords[index] ?? 0),
  );
  const order = definitions.map((_, index) => index);
  const best = order.toSorted((one, other) => compare(scores[other] ?? 0, scores[one] ?? 0) || one - other);
  const chosen = new Set<number>();
  let bytes = 0;
  for (const index of best) {
    bytes += Buffer.byteLength(lines[index] ?? "") + 1;
    if (chosen.size >= mostFunctions || bytes > mostBytes) break;
    chosen.add(index);
  }
  return {
    shown: definitions.filter((_, index) => chosen.has(index)),
    text: lines.filter((_, index) => chosen.has(index)).join("\n"),
    leftOut: definitions.length - chosen.size,
  };
}

function lineOf({ name, description, parameters }: FunctionDefinition): string {
  const schema = parsed(parameters.trim() === "" ? '{"type":"object"}' : parameters);
  const isLong = parameters.length > mostParametersCharacters;
  const note = isLong ? " (its parameters are too long to be shown here)" : "";
  return JSON.stringify({
    name,
    description: shortened(description) + note,
    parameters: isLong ? { type: "object" } : schema,
  });
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

function shortened(text: string): string {
  if (text.length <= mostDescriptionCharacters) return text;
  return `${text.slice(0, mostDescriptionCharacters).toWellFormed()}…`;
}

/** How much each function has to do with the words: rare words say more than common ones, and a name more than a description. */
function scoresOf(definitions: readonly FunctionDefinition[], wanted: ReadonlySet<string>): number[] {
  const words = definitions.map(({ name, description }) => ({
    name: wordsOf(name),
    description: wordsOf(shortened(description)),
  }));
  const counts = new Map<string, number>();
  for (const { name, description } of words)
    for (const word of name.union(description)) counts.set(word, (counts.get(word) ?? 0) + 1);
  const weightOf = (shared: ReadonlySet<string>) =>
    [...shared].reduce((sum, word) => sum + Math.log(1 + definitions.length / (counts.get(word) ?? 1)), 0);
  return words.map(
    ({ name, description }) => 3 * weightOf(name.intersection(wanted)) + weightOf(description.intersection(wanted)),
  );
}

/** The words of a text in small letters, those of `camelCase` and `snake_case` each; an `s` at the end is left off. */
function wordsOf(text: string): ReadonlySet<string> {
  const apart = text.replaceAll(/(\p{Ll})(\p{Lu})/gu, "$1 $2").toLowerCase();
  const words = apart.match(/[\p{L}\p{N}]{2,}/gu) ?? [];
  return new Set(words.map((word) => (word.length > 3 && word.endsWith("s") ? word.slice(0, -1) : word)));
}

function compare(one: number, other: number): number {
  return one === other ? 0 : one < other ? -1 : 1;
}
