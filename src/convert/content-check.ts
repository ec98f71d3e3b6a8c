import { invalidField } from "../chat/error.ts";

/** Refuses an empty text. */
export function checkFilled(value: string, path: string): void {
  if (value === "") throw invalidField(path, "is empty");
}

/** Refuses an image that is nowhere, or where no provider should be sent to look. */
export function checkImageUrl(url: string, path: string): void {
  checkFilled(url, path);
  if (!/^(?:https?|data):/i.test(url)) throw invalidField(path, "is not an https:, http: or data: URL");
}

/** Refuses a detail other than `auto`, `low` and `high`; absent is fine. */
export function checkImageDetail(detail: string | undefined, path: string): void {
  if (detail !== undefined && !["auto", "low", "high"].includes(detail))
    throw invalidField(path, `is ${quoted(detail)}; use auto, low or high`);
}

/** Refuses content of a file that is no `data:` URL; absent is fine. */
export function checkFileData(data: string | undefined, path: string): void {
  if (data !== undefined && !/^data:/i.test(data))
    throw invalidField(path, "is not a data: URL; write data:<media type>;base64,<content>");
}

/** Refuses text that is no JSON object. */
export function checkJsonObject(text: string, path: string): void {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw invalidField(path, `is not JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw invalidField(path, "is JSON, but not an object");
}

/** Refuses a number outside of its bounds, or none at all; absent is fine. */
export function checkRange(value: number | undefined, least: number, most: number, path: string): void {
  if (value !== undefined && !(value >= least && value <= most))
    throw invalidField(path, `is ${value}; must be ${boundsText(least, most)}`);
}

/** The bounds of a number, where what it has to be is said; the largest whole number there is counts as none. */
export function boundsText(least: number, most: number): string {
  return most === Number.MAX_SAFE_INTEGER ? `at least ${least}` : `from ${least} to ${most}`;
}

/** Refuses a name that came before. `pathOf` gives the path of the name at an index. */
export function checkDistinct(names: readonly string[], pathOf: (index: number) => string): void {
  const seen = new Set<string>();
  for (const [index, name] of names.entries()) {
    if (seen.has(name)) throw invalidField(pathOf(index), `${quoted(name)} is there twice; names must differ`);
    seen.add(name);
  }
}

/** A word of the caller, short enough for a message and with nothing in it that ends the line. */
export function quoted(word: string): string {
  return JSON.stringify(word.length > 64 ? `${word.slice(0, 64)}…` : word);
}
