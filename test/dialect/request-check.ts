import assert from "node:assert/strict";
import { isJsonObject, type JsonObject } from "../../src/dialect/json.ts";

/** What the checks of requests are made of. Each throws a sentence that begins with the path of what is wrong. */
export function demand(condition: boolean, path: string, sentence: string): asserts condition {
  assert.ok(condition, `${path}: ${sentence}`);
}

export function objectAt(value: unknown, path: string): JsonObject {
  demand(isJsonObject(value), path, "an object is wanted");
  return value;
}

/** The elements of an array that is not empty, each with its path. */
export function elementsAt(value: unknown, path: string): { readonly value: JsonObject; readonly path: string }[] {
  demand(Array.isArray(value) && value.length > 0, path, "an array that is not empty is wanted");
  return value.map((element: unknown, index) => ({
    value: objectAt(element, `${path}[${index}]`),
    path: `${path}[${index}]`,
  }));
}

/** A text that is not empty. */
export function textAt(value: unknown, path: string): string {
  demand(typeof value === "string" && value !== "", path, "a text that is not empty is wanted");
  return value;
}

export function wordAt<const Word extends string>(value: unknown, words: readonly Word[], path: string): Word {
  const word = words.find((one) => one === value);
  demand(word !== undefined, path, `one of ${words.join(", ")} is wanted, not ${JSON.stringify(value)}`);
  return word;
}

/** @param known names with spaces between them. */
export function onlyFields(object: JsonObject, known: string, path: string): void {
  const names = known.split(" ");
  for (const name of Object.keys(object))
    demand(names.includes(name), `${path}.${name}`, "the API knows no such field");
}

/** Everywhere in the value: no text holds half of a surrogate pair, and `null` stands only where it is `allowed`. */
export function checkLeaves(value: unknown, path: string, allowed: (path: string) => boolean = () => false): void {
  if (value === null) demand(allowed(path), path, "null is refused");
  else if (typeof value === "string") demand(value.isWellFormed(), path, "a text holds half of a surrogate pair");
  else if (Array.isArray(value)) {
    for (const [index, element] of value.entries()) checkLeaves(element, `${path}[${index}]`, allowed);
  } else if (typeof value === "object") {
    for (const [name, member] of Object.entries(value)) checkLeaves(member, `${path}.${name}`, allowed);
  }
}

/** Notes an id; throws for one that was noted before. */
export function addOnce(ids: Set<string>, id: string, path: string): void {
  demand(!ids.has(id), path, `the id ${id} is used twice`);
  ids.add(id);
}
