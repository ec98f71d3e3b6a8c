import { isRecord, shortened } from "../check-value.ts";

/** Arguments of a call, already checked against its schema. */
export type Arguments = Readonly<Record<string, unknown>>;

/** An argument that cannot stand where the template wants it. The message is for the model. */
export class UnfitArgument extends Error {
  override readonly name = "UnfitArgument";
}

/** A piece of a text template: what stands there, or the argument to put there. */
type Piece = { readonly text: string } | { readonly argument: string };

/** A text with places for arguments. */
export type TextTemplate = readonly Piece[];

const reference = /\{([A-Za-z_][A-Za-z0-9_]*)\}/g;

/** Reads a text in which `{name}` stands for an argument. */
export function textTemplate(text: string): TextTemplate {
  const pieces: Piece[] = [];
  let end = 0;
  for (const match of text.matchAll(reference)) {
    if (match.index > end) pieces.push({ text: text.slice(end, match.index) });
    pieces.push({ argument: match[1] ?? "" });
    end = match.index + match[0].length;
  }
  if (end < text.length) pieces.push({ text: text.slice(end) });
  return pieces;
}

/** The arguments a template names. */
export function argumentsIn(template: TextTemplate): string[] {
  return template.flatMap((piece) => ("argument" in piece ? [piece.argument] : []));
}

/** An argument as text: a text as it is, anything else as JSON; undefined where it was not given or is null. */
export function argumentText(given: Arguments, name: string): string | undefined {
  return Object.hasOwn(given, name) ? valueText(given[name]) : undefined;
}

/** A text as it is, anything else as JSON; undefined for nothing and null. */
export function valueText(value: unknown): string | undefined {
  if (value === undefined || value === null) return undefined;
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** A part of a URL that an argument decides. @throws {UnfitArgument} for a lone surrogate. */
export function percentEncoded(name: string, text: string): string {
  if (!text.isWellFormed()) throw new UnfitArgument(`"${name}" holds half a character`);
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

/**
 * Fills a segment of a path. It stays one segment and never leads up.
 * @throws {UnfitArgument} for a value that is missing or empty, has control characters or would be read as `.` or `..`.
 */
export function filledSegment(template: TextTemplate, given: Arguments): string {
  const filled = template
    .map((piece) => {
      if ("text" in piece) return piece.text;
      const text = argumentText(given, piece.argument);
      if (text === undefined || text === "")
        throw new UnfitArgument(`"${piece.argument}" is missing or empty; it is a part of the path`);
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is looked for
      if (/[\u0000-\u001f\u007f]/.test(text))
        throw new UnfitArgument(`"${piece.argument}" has a control character; it is a part of the path`);
      return percentEncoded(piece.argument, text);
    })
    .join("");
  if (argumentsIn(template).length > 0 && leadsElsewhere(filled))
    throw new UnfitArgument(
      `${argumentsIn(template).join(" and ")} would lead to another path; "." and ".." are not taken`,
    );
  return filled;
}

/** Whether some server could read a segment as one that leads up, also one that decodes more than it should. */
function leadsElsewhere(segment: string): boolean {
  let text = segment;
  for (let round = 0; round < 4; round++) {
    if (text.split(/[/\\]/).some((part) => /^\.{1,2}(?:;.*)?$/s.test(part))) return true;
    const next = text.replace(/%([0-9A-Fa-f]{2})/g, (_, code: string) =>
      String.fromCharCode(Number.parseInt(code, 16)),
    );
    if (next === text) return false;
    text = next;
  }
  return true;
}

/**
 * Fills the value of a header; undefined where an argument in it was not given.
 * @throws {UnfitArgument} for what no header can hold.
 */
export function filledHeader(header: string, template: TextTemplate, given: Arguments): string | undefined {
  let filled = "";
  for (const piece of template) {
    const text = "text" in piece ? piece.text : argumentText(given, piece.argument);
    if (text === undefined) return undefined;
    filled += text;
  }
  if (!/^[\t\x20-\x7e]*$/.test(filled))
    throw new UnfitArgument(
      `${argumentsIn(template).join(" and ")} cannot be sent in the header ${header}: one line of ASCII is wanted`,
    );
  return filled;
}

/** Fills a plain text; undefined where it is nothing but arguments and none of them was given. */
export function filledText(template: TextTemplate, given: Arguments): string | undefined {
  const texts = template.map((piece) => ("text" in piece ? piece.text : argumentText(given, piece.argument)));
  const isBare = template.length > 0 && template.every((piece) => "argument" in piece);
  if (isBare && texts.every((text) => text === undefined)) return undefined;
  return texts.map((text) => text ?? "").join("");
}

/** Marks a place that has no value, to be left out. */
const absent = Symbol("absent");

/**
 * Fills a JSON value: a text that is `{name}` and nothing else becomes the argument with its type, or is left out with its key
 * where that was not given; in other texts `{name}` is put in as text.
 */
export function filledJson(template: unknown, given: Arguments): unknown {
  const filled = fill(template, given);
  return filled === absent ? null : filled;
}

function fill(template: unknown, given: Arguments): unknown {
  if (typeof template === "string") {
    const pieces = textTemplate(template);
    const [only] = pieces;
    if (pieces.length === 1 && only !== undefined && "argument" in only)
      return Object.hasOwn(given, only.argument) ? given[only.argument] : absent;
    return filledText(pieces, given) ?? "";
  }
  if (Array.isArray(template)) return template.map((item) => fill(item, given)).filter((item) => item !== absent);
  if (!isRecord(template)) return template;
  const entries = Object.entries(template)
    .map(([key, value]) => [key, fill(value, given)] as const)
    .filter(([, value]) => value !== absent);
  return Object.fromEntries(entries);
}

/** Every argument that a JSON template names. */
export function argumentsInJson(template: unknown): string[] {
  if (typeof template === "string") return argumentsIn(textTemplate(template));
  if (typeof template !== "object" || template === null) return [];
  return Object.values(template).flatMap(argumentsInJson);
}

/**
 * The value a JSON Pointer (RFC 6901) leads to.
 * @throws {Error} one sentence when there is none.
 */
export function valueAt(value: unknown, pointer: string): unknown {
  let at = value;
  for (const part of pointer.split("/").slice(1)) {
    const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
    const inner: unknown =
      Array.isArray(at) && /^(?:0|[1-9]\d*)$/.test(key)
        ? at[Number(key)]
        : isRecord(at) && Object.hasOwn(at, key)
          ? at[key]
          : undefined;
    if (inner === undefined) throw new Error(`there is nothing at ${shortened(pointer.slice(1).replaceAll("/", "."))}`);
    at = inner;
  }
  return at;
}
