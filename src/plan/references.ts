import { type PlanScope, PlanValueError } from "./plan-scope.ts";

/** What a reference begins with: a step's result, the input of the execution, or the item of a `for_each`. */
export type ReferenceRoot = "step" | "input" | "item" | "index";

/** A place a plan takes a value from, like `step.build.result.items[0].name`, `input.path` or `item["odd key"]`. */
export interface Reference {
  /** As it was written. */
  readonly text: string;
  readonly root: ReferenceRoot;
  /** Id of the step; empty where it is about none. */
  readonly stepId: string;
  /** Members and indexes within the value. */
  readonly path: readonly (string | number)[];
}

export type ParsedReference =
  | { readonly ok: true; readonly reference: Reference }
  /** `fault` is the end of a sentence. */
  | { readonly ok: false; readonly fault: string };

const maxReferenceLength = 1000;
const maxPathLength = 64;
const maxTextCharacters = 1024 * 1024;
/** Of all that the references of one JSON text give, as JSON text. */
const maxGivenCharacters = 8 * 1024 * 1024;
const forms = 'write step.<id>.result, input, item or index, and then members as .name, [0] or ["odd name"]';

/**
 * Reads the text of a reference: `step.<id>.result`, `input`, `item` or `index`, and then members. A member that is no
 * plain word is quoted, as is a step's id where that is easier to read: `step["a-b"].result`.
 */
export function parseReference(text: string): ParsedReference {
  const refuse = (fault: string): ParsedReference => ({ ok: false, fault });
  if (text.length > maxReferenceLength)
    return refuse(`has ${text.length} characters; a reference has at most ${maxReferenceLength}`);
  const root = /^(step|input|item|index)(?![\w-])/.exec(text)?.[1];
  if (!isRoot(root)) return refuse(`is no reference; ${forms}`);
  const path = membersOf(text, root.length);
  if (typeof path === "number") return refuse(`can't be read from character ${path + 1} on; ${forms}`);
  if (path.length > maxPathLength) return refuse(`has more than ${maxPathLength} members`);
  if (root === "index" && path.length > 0) return refuse("goes into index, which is a number");
  if (root !== "step") return { ok: true, reference: { text, root, stepId: "", path } };
  const [stepId, result, ...rest] = path;
  if (typeof stepId !== "string" || !/^[\w-]{1,64}$/.test(stepId)) return refuse(`names no step; ${forms}`);
  if (result !== "result") return refuse(`has to go on with .result after the step's id: step.${stepId}.result`);
  return { ok: true, reference: { text, root, stepId, path: rest } };
}

function isRoot(word: string | undefined): word is ReferenceRoot {
  return word === "step" || word === "input" || word === "item" || word === "index";
}

/** The members from an offset on; where they can't be read, the offset of the fault. */
function membersOf(text: string, start: number): (string | number)[] | number {
  const path: (string | number)[] = [];
  // A step's id may be all digits, as in step.2.result.
  const member = /\.([\w-]+)|\[(0|[1-9]\d{0,8})\]|\[("(?:[^"\\]|\\.)*")\]/y;
  let offset = start;
  while (offset < text.length) {
    member.lastIndex = offset;
    const found = member.exec(text);
    if (found === null) return offset;
    const [whole, name, index, quoted] = found;
    if (name !== undefined) path.push(name);
    else if (index !== undefined) path.push(Number(index));
    else {
      const parsed = jsonOf(quoted ?? "");
      if (typeof parsed !== "string") return offset;
      path.push(parsed);
    }
    offset += whole.length;
  }
  return path;
}

/** What references a JSON text or a text with `${...}` has, and which of them can't be read. */
export interface ReferencesFound {
  readonly references: readonly Reference[];
  /** Sentences. */
  readonly faults: readonly string[];
}

/**
 * The references in a JSON text: its objects with exactly the one key `ref` and a text as value. Blank text has none.
 * @throws {PlanValueError} where it is no JSON.
 */
export function referencesIn(jsonText: string): ReferencesFound {
  const references: Reference[] = [];
  const faults: string[] = [];
  visit(parsedJson(jsonText));
  return { references, faults };

  function visit(value: unknown): void {
    if (typeof value !== "object" || value === null) return;
    const text = referenceTextOf(value);
    if (text === undefined) {
      for (const inner of Object.values(value)) visit(inner);
      return;
    }
    const parsed = parseReference(text);
    if (parsed.ok) references.push(parsed.reference);
    else faults.push(`the reference ${quoted(text)} ${parsed.fault}`);
  }
}

/** The references `${...}` in a prompt. `$${` is not one: it stands for the characters `${`. */
export function referencesInText(text: string): ReferencesFound {
  const references: Reference[] = [];
  const faults: string[] = [];
  for (const { inner } of placesIn(text)) {
    const parsed = parseReference(inner);
    if (parsed.ok) references.push(parsed.reference);
    else faults.push(`the reference ${quoted(inner)} ${parsed.fault}; for the characters \${ write $\${`);
  }
  return { references, faults };
}

/**
 * The value of a JSON text with its references filled in, each with its type. Blank text is `{}`. A path into nothing is
 * null. Whole numbers beyond 2^53 lose digits, as everywhere in JSON values.
 * @throws {PlanValueError} where the text is no JSON, a reference can't be read or all of them together give more than 8 MiB.
 */
export function resolveParameters(jsonText: string, scope: PlanScope): unknown {
  const lengths = new Map<unknown, number>();
  let given = 0;
  return filled(parsedJson(jsonText), (text) => {
    const value = referencedValue(referenceOf(text), scope);
    const length = lengths.get(value) ?? JSON.stringify(value).length;
    lengths.set(value, length);
    given += length;
    if (given > maxGivenCharacters)
      throw new PlanValueError(`the references give more than ${maxGivenCharacters} characters; refer to less`);
    return value;
  });
}

/**
 * A prompt with its references filled in: `${step.build.result.name}`. Texts stand as they are, all else as JSON text.
 * `$${` stands for the characters `${`.
 * @throws {PlanValueError} where a reference can't be read or the text grows beyond 1 MiB.
 */
export function resolveText(text: string, scope: PlanScope): string {
  let result = "";
  let end = 0;
  for (const { start, inner, length } of placesIn(text)) {
    const value = referencedValue(referenceOf(inner), scope);
    result += unescaped(text.slice(end, start)) + (typeof value === "string" ? value : JSON.stringify(value));
    end = start + length;
    if (result.length > maxTextCharacters)
      throw new PlanValueError(`the text has more than ${maxTextCharacters} characters with its references filled in`);
  }
  return result + unescaped(text.slice(end));
}

/** The value a reference stands for; null where there is nothing. Only what a value itself has is read. */
export function referencedValue(reference: Reference, scope: PlanScope): unknown {
  return within(rootOf(reference, scope), reference.path) ?? null;
}

function rootOf({ root, stepId }: Reference, scope: PlanScope): unknown {
  switch (root) {
    case "step":
      return scope.step(stepId);
    case "input":
      return scope.input;
    case "item":
      return scope.item;
    case "index":
      return scope.index;
    default:
      return root satisfies never;
  }
}

function within(value: unknown, path: readonly (string | number)[]): unknown {
  let current = value;
  for (const key of path) {
    if (Array.isArray(current)) {
      if (typeof key !== "number") return null;
      current = current[key];
    } else if (typeof current === "object" && current !== null) {
      current = Object.getOwnPropertyDescriptor(current, key)?.value;
    } else return null;
  }
  return current;
}

function filled(value: unknown, read: (reference: string) => unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map((inner) => filled(inner, read));
  const text = referenceTextOf(value);
  if (text !== undefined) return read(text);
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, filled(inner, read)]));
}

/** The text of an object that is a reference: exactly the one key `ref`, with a text. */
export function referenceTextOf(value: object): string | undefined {
  if (Array.isArray(value)) return undefined;
  const entries = Object.entries(value);
  const [key, text] = entries[0] ?? [];
  return entries.length === 1 && key === "ref" && typeof text === "string" ? text : undefined;
}

function referenceOf(text: string): Reference {
  const parsed = parseReference(text);
  if (parsed.ok) return parsed.reference;
  throw new PlanValueError(`the reference ${quoted(text)} ${parsed.fault}`);
}

/** The `${...}` of a text, and where they stand. */
function placesIn(
  text: string,
): readonly { readonly start: number; readonly length: number; readonly inner: string }[] {
  // Quoted members may have a closing brace in them.
  const places = text.matchAll(/\$\$\{|\$\{((?:"(?:[^"\\]|\\.)*"|[^"}])*)\}?/g);
  return [...places].flatMap((place) =>
    place[1] === undefined ? [] : [{ start: place.index, length: place[0].length, inner: place[1].trim() }],
  );
}

function unescaped(text: string): string {
  return text.replaceAll("$${", "${");
}

function parsedJson(text: string): unknown {
  if (text.trim() === "") return {};
  const value = jsonOf(text);
  if (value === undefined) throw new PlanValueError("the text is not valid JSON");
  return value;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function quoted(text: string): string {
  return JSON.stringify(text.length <= 80 ? text : `${text.slice(0, 77)}...`);
}
