import { isJsonObject } from "../dialect/json.ts";
import { hiddenMark } from "./cassette.ts";

/** A place where two requests differ. */
export interface Difference {
  /** As in `messages[3].content`; empty for the whole body. */
  readonly path: string;
  /** What was recorded there, in short; absent where nothing was. */
  readonly recorded?: string;
  /** What is asked there, in short; absent where nothing is. */
  readonly asked?: string;
  /** From nearly 0 for texts that are almost the same up to 1. */
  readonly weight: number;
}

/** The ids that our own server makes for tool calls whose provider gave none or a used one: new ones in every run. */
const ownId = /^call_(?:[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/;

/**
 * Where the JSON of a request differs from that of a recorded one; nothing where they are equal. The order of keys says
 * nothing. Ids of our own making are equal when each stands for the same other one wherever it occurs, and a secret that
 * was hidden in the recording is equal to any text.
 */
export function requestDifferences(recorded: unknown, asked: unknown): Generator<Difference, void, undefined> {
  return differencesAt("", recorded, asked, { toAsked: new Map(), toRecorded: new Map() });
}

interface OwnIds {
  readonly toAsked: Map<string, string>;
  readonly toRecorded: Map<string, string>;
}

function* differencesAt(path: string, recorded: unknown, asked: unknown, ids: OwnIds): Generator<Difference> {
  if (typeof recorded === "string" && typeof asked === "string") {
    if (!isSameText(recorded, asked, ids)) yield textDifference(path, recorded, asked);
  } else if (Array.isArray(recorded) && Array.isArray(asked)) {
    const common = Math.min(recorded.length, asked.length);
    // What is there once only comes first: it costs nothing to find.
    for (let index = common; index < recorded.length; index++)
      yield { path: `${path}[${index}]`, recorded: short(recorded[index]), weight: 1 };
    for (let index = common; index < asked.length; index++)
      yield { path: `${path}[${index}]`, asked: short(asked[index]), weight: 1 };
    for (let index = 0; index < common; index++)
      yield* differencesAt(`${path}[${index}]`, recorded[index], asked[index], ids);
  } else if (isJsonObject(recorded) && isJsonObject(asked)) {
    for (const [name, value] of Object.entries(recorded)) {
      if (Object.hasOwn(asked, name)) yield* differencesAt(member(path, name), value, asked[name], ids);
      else yield { path: member(path, name), recorded: short(value), weight: 1 };
    }
    for (const [name, value] of Object.entries(asked))
      if (!Object.hasOwn(recorded, name)) yield { path: member(path, name), asked: short(value), weight: 1 };
  } else if (recorded !== asked) {
    yield { path, recorded: short(recorded), asked: short(asked), weight: 1 };
  }
}

function isSameText(recorded: string, asked: string, { toAsked, toRecorded }: OwnIds): boolean {
  if (ownId.test(recorded) && ownId.test(asked)) {
    const known = toAsked.get(recorded);
    if (known === undefined && !toRecorded.has(asked)) {
      toAsked.set(recorded, asked);
      toRecorded.set(asked, recorded);
      return true;
    }
    return known === asked;
  }
  return recorded === asked || isSameButHidden(recorded, asked);
}

function isSameButHidden(recorded: string, asked: string): boolean {
  const [first = "", ...rest] = recorded.split(hiddenMark);
  const last = rest.pop();
  if (last === undefined || !asked.startsWith(first)) return false;
  let end = first.length;
  for (const part of rest) {
    const start = asked.indexOf(part, end);
    if (start === -1) return false;
    end = start + part.length;
  }
  return asked.length >= end + last.length && asked.endsWith(last);
}

/** Characters shown of a value. */
const shownLength = 60;
/** Characters shown of what is the same, before the first that is not. */
const shownBefore = 20;

function textDifference(path: string, recorded: string, asked: string): Difference {
  const shorter = Math.min(recorded.length, asked.length);
  let before = 0;
  while (before < shorter && recorded[before] === asked[before]) before++;
  let after = 0;
  while (after < shorter - before && recorded.at(-1 - after) === asked.at(-1 - after)) after++;
  const start = before <= shownBefore ? 0 : before - shownBefore;
  return {
    path,
    recorded: excerpt(recorded, start),
    asked: excerpt(asked, start),
    weight: Math.max(0.01, 1 - (before + after) / Math.max(recorded.length, asked.length)),
  };
}

function excerpt(text: string, start: number): string {
  const end = start + shownLength;
  const shown = text.slice(start, end).toWellFormed();
  return JSON.stringify(`${start > 0 ? "…" : ""}${shown}${end < text.length ? "…" : ""}`);
}

function short(value: unknown): string {
  if (typeof value === "string") return excerpt(value, 0);
  const text = JSON.stringify(value);
  return text.length <= shownLength ? text : `${text.slice(0, shownLength).toWellFormed()}…`;
}

function member(path: string, name: string): string {
  const shown = name.length <= shownLength ? name : `${name.slice(0, shownLength).toWellFormed()}…`;
  if (!/^[A-Za-z_$][\w$…]*$/.test(shown)) return `${path}[${JSON.stringify(shown)}]`;
  return path === "" ? shown : `${path}.${shown}`;
}
