import { invalidField } from "../chat/error.ts";
import { boundsText, quoted } from "./content-check.ts";

// Readers of JSON from outside. `null` counts as absent, as it does with OpenAI.

/** Fields of a JSON object nobody has looked at yet. */
export type JsonObject = Readonly<Record<string, unknown>>;

export function readObject(value: unknown, path: string): JsonObject {
  if (isObject(value)) return value;
  throw invalidField(path, `${found(value)}; must be an object`);
}

export function readOptionalObject(value: unknown, path: string): JsonObject | undefined {
  return isAbsent(value) ? undefined : readObject(value, path);
}

export function readArray(value: unknown, path: string): readonly unknown[] {
  if (Array.isArray(value)) return value;
  throw invalidField(path, `${found(value)}; must be an array`);
}

export function readOptionalArray(value: unknown, path: string): readonly unknown[] {
  return isAbsent(value) ? [] : readArray(value, path);
}

/** A string without halves of surrogate pairs. */
export function readText(value: unknown, path: string): string {
  if (typeof value !== "string") throw invalidField(path, `${found(value)}; must be a string`);
  if (!value.isWellFormed()) throw invalidField(path, "holds half a surrogate pair, which no UTF-8 can hold");
  return value;
}

export function readOptionalText(value: unknown, path: string): string | undefined {
  return isAbsent(value) ? undefined : readText(value, path);
}

export function readFilledText(value: unknown, path: string): string {
  const text = readText(value, path);
  if (text === "") throw invalidField(path, "is empty");
  return text;
}

export function readOptionalNumber(value: unknown, least: number, most: number, path: string): number | undefined {
  if (isAbsent(value)) return undefined;
  if (typeof value !== "number") throw invalidField(path, `${found(value)}; must be a number`);
  if (!(value >= least && value <= most)) throw invalidField(path, `is ${value}; must be ${boundsText(least, most)}`);
  return value;
}

export function readOptionalInteger(value: unknown, least: number, path: string): number | undefined {
  const number = readOptionalNumber(value, least, Number.MAX_SAFE_INTEGER, path);
  if (number !== undefined && !Number.isSafeInteger(number)) throw invalidField(path, `is ${number}; must be whole`);
  return number;
}

export function readOptionalBoolean(value: unknown, path: string): boolean | undefined {
  if (isAbsent(value)) return undefined;
  if (typeof value !== "boolean") throw invalidField(path, `${found(value)}; must be true or false`);
  return value;
}

/** One of a list of words. */
export function readWord<const Word extends string>(value: unknown, words: readonly Word[], path: string): Word {
  const word = words.find((known) => known === value);
  if (word !== undefined) return word;
  throw invalidField(path, `${found(value)}; use one of ${words.join(", ")}`);
}

/** A map of strings; absent and empty are the same. */
export function readOptionalMap(value: unknown, path: string): Readonly<Record<string, string>> | undefined {
  const object = readOptionalObject(value, path);
  if (object === undefined || Object.keys(object).length === 0) return undefined;
  return Object.fromEntries(
    Object.entries(object).map(([key, text]) => [readText(key, path), readText(text, `${path}.${key}`)]),
  );
}

export function isAbsent(value: unknown): value is null | undefined {
  return value === undefined || value === null;
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function found(value: unknown): string {
  if (value === undefined) return "is missing";
  if (typeof value === "string") return value === "" ? "is empty" : `is ${quoted(value)}`;
  if (value === null || typeof value === "number" || typeof value === "boolean") return `is ${value}`;
  return `is an ${Array.isArray(value) ? "array" : "object"}`;
}
