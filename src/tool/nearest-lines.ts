import { TooSlow, withinTime } from "./within-time.ts";

/** The place of a text that comes nearest to lines that were looked for. */
export interface NearestLines {
  /** Number of the first line, counted from 1. */
  readonly line: number;
  /** As many lines as were looked for. */
  readonly lines: readonly string[];
  /** How they differ, as the end of a sentence; empty where they differ in words. */
  readonly difference: string;
}

const searchLimitMs = 100;
const lineLimitCharacters = 400;
const leastLikeness = 0.5;

/** Ways to read a line with less and less of what is easily got wrong. */
const readings: readonly (readonly [difference: string, read: (line: string) => string])[] = [
  ["only in spaces at the ends of lines", (line) => line.trimEnd()],
  ["only in indentation", (line) => line.trim()],
  ["only in spaces and tabs", (line) => line.replace(/\s+/g, " ").trim()],
  [
    "only in the kind of quotation marks, dashes or spaces",
    (line) => plainCharacters(line).replace(/\s+/g, " ").trim(),
  ],
  ["only in upper and lower case", (line) => plainCharacters(line).replace(/\s+/g, " ").trim().toLowerCase()],
];

function plainCharacters(line: string): string {
  return line
    .replace(/[\u2018\u2019\u201a\u201b]/g, "'")
    .replace(/[\u201c\u201d\u201e\u201f]/g, '"')
    .replace(/[\u2010-\u2015\u2212]/g, "-")
    .replace(/\u2026/g, "...");
}

/**
 * Finds what somebody may have meant who looked for lines that are not there. Gives up after 100 ms.
 * @param lines those of the text, without line ends.
 * @param wanted those looked for.
 */
export function nearestLines(lines: readonly string[], wanted: readonly string[]): NearestLines | undefined {
  if (wanted.every((line) => line.trim() === "")) return undefined;
  try {
    return withinTime(searchLimitMs, () => findNearest(lines, wanted));
  } catch (error) {
    if (error instanceof TooSlow) return undefined;
    throw error;
  }
}

function findNearest(lines: readonly string[], wanted: readonly string[]): NearestLines | undefined {
  const at = (index: number, difference: string) => ({
    line: index + 1,
    lines: lines.slice(index, index + wanted.length),
    difference,
  });
  for (const [difference, read] of readings) {
    const [found] = placesOf(lines.map(read), wanted.map(read));
    if (found !== undefined) return at(found, difference);
  }
  const offset = wanted.findIndex((line) => line.trim() !== "");
  const sought = pairsOf(wanted[offset] ?? "");
  let best: { readonly index: number; readonly likeness: number } | undefined;
  for (const [index, line] of lines.entries()) {
    const likeness = likenessOf(pairsOf(line), sought);
    if (likeness >= leastLikeness && likeness > (best?.likeness ?? 0)) best = { index, likeness };
  }
  return best === undefined ? undefined : at(Math.max(0, best.index - offset), "");
}

/** Where lines stand in a row among others: the indexes of the first of them, in order. */
export function placesOf(lines: readonly string[], wanted: readonly string[], from = 0): number[] {
  const places: number[] = [];
  for (let start = from; start + wanted.length <= lines.length; start++) {
    if (wanted.every((line, index) => lines[start + index] === line)) places.push(start);
  }
  return places;
}

function pairsOf(line: string): Map<string, number> {
  const text = line.trim().slice(0, lineLimitCharacters);
  const pairs = new Map<string, number>();
  for (let index = 0; index + 1 < text.length; index++) {
    const pair = text.slice(index, index + 2);
    pairs.set(pair, (pairs.get(pair) ?? 0) + 1);
  }
  return pairs;
}

/** From 0 for nothing in common to 1 for the same pairs of characters (the coefficient of Sørensen and Dice). */
function likenessOf(left: ReadonlyMap<string, number>, right: ReadonlyMap<string, number>): number {
  let common = 0;
  let all = 0;
  for (const [pair, count] of left) {
    common += Math.min(count, right.get(pair) ?? 0);
    all += count;
  }
  for (const count of right.values()) all += count;
  return all === 0 ? 0 : (2 * common) / all;
}

/** Lines as `read_file` shows them. */
export function numberedLines({ line, lines }: Pick<NearestLines, "line" | "lines">): string {
  return lines.map((text, index) => `${line + index}\t${text.slice(0, lineLimitCharacters)}`).join("\n");
}
