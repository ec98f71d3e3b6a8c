import { lineEndOf } from "./file-text.ts";
import { linesText } from "./lines-text.ts";
import { nearestLines, numberedLines, placesOf } from "./nearest-lines.ts";
import type { PatchHunk } from "./patch-text.ts";
import { TooSlow, withinTime } from "./within-time.ts";

/** A hunk that does not fit. */
export interface HunkFault {
  /** A sentence without a full stop. */
  readonly problem: string;
  /** Lines of the file that come near to it, with their numbers; empty where nothing does. */
  readonly nearest: string;
}

export type PatchedText =
  | { readonly ok: true; readonly text: string }
  | { readonly ok: false; readonly faults: readonly HunkFault[] };

interface FileLine {
  readonly text: string;
  readonly end: "" | "\n" | "\r\n";
}

/** Lines of the file, from `start` up to `end`, and the hunk that takes their place. */
interface PlacedHunk {
  readonly start: number;
  readonly end: number;
  readonly hunk: PatchHunk;
}

const placeLimitMs = 150;
const allLimitMs = 600;
const nearestShown = 20;
const tooSlow = "takes too long to be found; send a smaller patch";

/**
 * Applies the hunks of a patch to a text. A hunk fits where its lines stand, spaces at line ends aside, and only where that
 * is one place: several are told apart by the lines the hunk comes after, by its number of line, and by the hunks before it.
 * What stays keeps its bytes; new lines get the line end most others have.
 */
export function applyHunks(text: string, hunks: readonly PatchHunk[]): PatchedText {
  const lines = splitLines(text);
  const texts = lines.map((line) => line.text);
  const placed: PlacedHunk[] = [];
  const faults: HunkFault[] = [];
  const endMs = performance.now() + allLimitMs;
  for (const hunk of hunks) {
    const leftMs = Math.ceil(Math.min(placeLimitMs, endMs - performance.now()));
    if (leftMs <= 0) return { ok: false, faults: [...faults, faultOf(hunk, tooSlow)] };
    const found = placeInTime(texts, hunk, placed, leftMs);
    if ("problem" in found) faults.push(found);
    else placed.push(found);
  }
  return faults.length > 0 ? { ok: false, faults } : { ok: true, text: joined(lines, placed, lineEndOf(text)) };
}

function splitLines(text: string): FileLine[] {
  const pieces = text.split("\n");
  const last = pieces.pop() ?? "";
  const lines = pieces.map(
    (line): FileLine => (line.endsWith("\r") ? { text: line.slice(0, -1), end: "\r\n" } : { text: line, end: "\n" }),
  );
  return last === "" ? lines : [...lines, { text: last, end: "" }];
}

function placeInTime(
  texts: readonly string[],
  hunk: PatchHunk,
  placed: readonly PlacedHunk[],
  limitMs: number,
): PlacedHunk | HunkFault {
  try {
    return withinTime(limitMs, () => placeHunk(texts, hunk, placed));
  } catch (error) {
    if (error instanceof TooSlow) return faultOf(hunk, tooSlow);
    throw error;
  }
}

function placeHunk(texts: readonly string[], hunk: PatchHunk, placed: readonly PlacedHunk[]): PlacedHunk | HunkFault {
  const old = hunk.lines.filter((line) => line.kind !== "add").map((line) => line.text);
  const previous = placed.at(-1);
  const anchored = hunk.anchors.length === 0 ? undefined : anchorEnds(texts, hunk.anchors);
  if (anchored?.length === 0) {
    return faultOf(hunk, `comes after ${JSON.stringify(hunk.anchors.join(" @@ "))}, which is no line of the file`);
  }
  const at = (start: number): PlacedHunk => ({ start, end: start + old.length, hunk });
  if (old.length === 0) {
    if (hunk.isAtEnd || texts.length === 0) return at(texts.length);
    const [only, ...others] = anchored ?? [];
    if (only !== undefined && others.length === 0 && placed.every(({ start, end }) => only <= start || only >= end)) {
      return at(only);
    }
    return faultOf(hunk, "only adds lines, and nothing says where: put lines of the file around them");
  }
  const everywhere = matchingPlaces(texts, old).filter(
    (start) =>
      (!hunk.isAtEnd || start + old.length === texts.length) &&
      placed.every((other) => start + old.length <= other.start || start >= other.end),
  );
  const later = everywhere.filter((start) => start >= (previous?.end ?? 0));
  const places = later.length > 0 ? later : everywhere;
  const [first, ...others] = anchored === undefined ? places : firstAfter(anchored, places);
  if (first === undefined) return notFound(texts, hunk, old, places);
  if (others.length === 0) return at(first);
  const expected = expectedPlace(hunk, previous);
  if (expected !== undefined && places.includes(expected)) return at(expected);
  const numbers = linesText([first, ...others].map((start) => start + 1));
  return faultOf(hunk, `fits in ${others.length + 1} places, at ${numbers}: put more lines around the change`);
}

function matchingPlaces(texts: readonly string[], old: readonly string[]): number[] {
  const exact = placesOf(texts, old);
  if (exact.length > 0) return exact;
  return placesOf(
    texts.map((line) => line.trimEnd()),
    old.map((line) => line.trimEnd()),
  );
}

/** Where a hunk would begin if the file had changed since only in front of the hunk before it. */
function expectedPlace(hunk: PatchHunk, previous: PlacedHunk | undefined): number | undefined {
  if (hunk.oldStart === undefined) return undefined;
  const drift = previous?.hunk.oldStart === undefined ? 0 : previous.start - (previous.hunk.oldStart - 1);
  return hunk.oldStart - 1 + drift;
}

/** The indexes after the last of the anchors, for each place where they stand one after the other. */
function anchorEnds(texts: readonly string[], anchors: readonly string[]): number[] {
  const trimmed = texts.map((line) => line.trim());
  const indexesOf = (anchor: string): number[] => {
    const exact = trimmed.flatMap((line, index) => (line === anchor ? [index] : []));
    return exact.length > 0 ? exact : trimmed.flatMap((line, index) => (line.startsWith(anchor) ? [index] : []));
  };
  let ends: number[] | undefined;
  for (const anchor of anchors) {
    const indexes = indexesOf(anchor);
    const before: readonly number[] = ends ?? [];
    ends =
      ends === undefined ? indexes.map((index) => index + 1) : firstAfter(before, indexes).map((index) => index + 1);
  }
  return ends ?? [];
}

/** The first place at or after each beginning, each once; both come in order. */
function firstAfter(beginnings: readonly number[], places: readonly number[]): number[] {
  const found = beginnings.flatMap((beginning) => places.find((place) => place >= beginning) ?? []);
  return [...new Set(found)];
}

function notFound(
  texts: readonly string[],
  hunk: PatchHunk,
  old: readonly string[],
  places: readonly number[],
): HunkFault {
  if (places.length > 0) {
    const numbers = linesText(places.map((start) => start + 1));
    return faultOf(hunk, `stands at ${numbers}, but not after ${JSON.stringify(hunk.anchors.join(" @@ "))}`);
  }
  const whole = matchingPlaces(texts, old);
  if (whole.length > 0) {
    const numbers = linesText(whole.map((start) => start + 1));
    return faultOf(
      hunk,
      hunk.isAtEnd
        ? `stands at ${numbers}, but not at the end of the file`
        : `stands at ${numbers}, which an earlier hunk changes: put both into one hunk`,
    );
  }
  const nearest = nearestLines(texts, old);
  if (nearest === undefined) return faultOf(hunk, "has lines that do not stand in the file, nor anything like them");
  const how = nearest.difference === "" ? "the nearest are shown" : `they differ ${nearest.difference}`;
  return {
    ...faultOf(hunk, `has lines that do not stand in the file so; ${how}`),
    nearest: numberedLines({ ...nearest, lines: nearest.lines.slice(0, nearestShown) }),
  };
}

function faultOf(hunk: PatchHunk, what: string): HunkFault {
  return { problem: `${hunk.at} ${what}`, nearest: "" };
}

function joined(lines: readonly FileLine[], placed: readonly PlacedHunk[], usualEnd: "\n" | "\r\n"): string {
  const result: FileLine[] = [];
  let next = 0;
  const keep = () => {
    const line = lines[next++];
    if (line !== undefined) result.push(line);
  };
  for (const { start, hunk } of placed.toSorted((left, right) => left.start - right.start || left.end - right.end)) {
    while (next < start) keep();
    for (const { kind, text } of hunk.lines) {
      if (kind === "add") {
        result.push({ text, end: usualEnd });
        continue;
      }
      if (kind === "keep") keep();
      else next++;
    }
  }
  while (next < lines.length) keep();
  const marked = placed.map(({ hunk }) => hunk.endsAfter).findLast((ends) => ends !== undefined);
  const isEnded = marked ?? (lines.length === 0 || lines.at(-1)?.end !== "");
  return result
    .map(({ text, end }, index) => {
      const isLast = index === result.length - 1;
      if (isLast && !isEnded) return text;
      return text + (end === "" ? usualEnd : end);
    })
    .join("");
}
