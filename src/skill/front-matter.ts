import { isAlias, isMap, isScalar, isSeq, type ParsedNode, parseDocument } from "yaml";
import { TooSlow, withinTime } from "../tool/within-time.ts";
import { errorIn, type Place, type SkillDiagnostic, skillFile } from "./diagnostic.ts";

/** The head of a SKILL.md and what follows it. */
export interface FrontMatter {
  /** Own properties only. */
  readonly fields: Readonly<Record<string, unknown>>;
  /** Where a value begins, or where its key does for `key: true`; for what is not there, what it would be in. */
  placeOf(path: readonly (string | number)[], options?: { readonly key?: boolean }): Place;
  /** A text, number or truth value as it was written; `undefined` for all others. */
  writtenAt(path: readonly (string | number)[]): string | undefined;
  /** The Markdown after it. */
  readonly body: string;
}

export type FrontMatterReading =
  | { readonly ok: true; readonly frontMatter: FrontMatter }
  | { readonly ok: false; readonly diagnostic: SkillDiagnostic };

const maxBytes = 64 * 1024;
const maxDepth = 16;
const parseLimitMs = 80;

/** A fault at an offset of the whole text. */
class Fault extends Error {
  readonly code: string;
  readonly offset: number | undefined;

  constructor(code: string, message: string, offset?: number) {
    super(message);
    this.code = code;
    this.offset = offset;
  }
}

/**
 * Reads the YAML between the first line, which has to be `---`, and the next line that is `---` and nothing else. Inside
 * YAML such a line can't stand in a text: there it is indented, or the text begins and ends on one line. Plain YAML 1.2
 * with its core types only: nothing that refers, merges, or names types.
 */
export function readFrontMatter(text: string): FrontMatterReading {
  const begin = text.startsWith("\u{feff}") ? 1 : 0;
  try {
    const { start, end, bodyStart } = bounds(text, begin);
    const yaml = text.slice(start, end);
    const bytes = Buffer.byteLength(yaml);
    if (bytes > maxBytes)
      throw new Fault("FRONT_MATTER_TOO_LARGE", `the front matter has ${bytes} bytes; ${maxBytes} is the most`);
    return { ok: true, frontMatter: parsed(text, yaml, start, begin, text.slice(bodyStart)) };
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    const place = error.offset === undefined ? undefined : placeAt(text, error.offset, begin);
    return { ok: false, diagnostic: errorIn(skillFile, error.code, error.message, place) };
  }
}

function bounds(
  text: string,
  begin: number,
): { readonly start: number; readonly end: number; readonly bodyStart: number } {
  const [opening = ""] = /^[^\n]*\n?/.exec(text.slice(begin, begin + maxBytes)) ?? [];
  const first = opening.trimEnd();
  if (first !== "---") {
    const language = /^---\s*[A-Za-z]/.test(first);
    throw language
      ? new Fault(
          "FRONT_MATTER_LANGUAGE",
          "the first line has to be --- alone; the front matter is YAML, no other language is read",
          begin,
        )
      : new Fault(
          "MISSING_FRONT_MATTER",
          "the file has to begin with a line --- and then name and description, as YAML",
          begin,
        );
  }
  const start = begin + opening.length;
  const marker = /^---[ \t]*\r?(?:\n|$)/gm;
  marker.lastIndex = start;
  const closing = marker.exec(text);
  if (closing === null)
    throw new Fault("UNTERMINATED_FRONT_MATTER", "the front matter has no end: a line --- has to follow it", begin);
  return { start, end: closing.index, bodyStart: closing.index + closing[0].length };
}

function parsed(text: string, yaml: string, start: number, begin: number, body: string): FrontMatter {
  const offsets = new Map<string, { readonly key: number; readonly value: number }>();
  const written = new Map<string, string>();
  // After such a line nothing would be read, without a word.
  const ending = yaml.search(/^\.\.\.(?:\s|$)/m);
  if (ending !== -1)
    throw new Fault("YAML_SYNTAX", "the line ... ends the YAML too early; leave it out", start + ending);
  const directive = yaml.search(/^%/m);
  const fields = withLimits(() => {
    const document = parseDocument(yaml, {
      version: "1.2",
      schema: "core",
      merge: false,
      uniqueKeys: false,
      prettyErrors: false,
      logLevel: "silent",
    });
    const [error] = document.errors;
    // Inside a text a line may begin so too.
    const directed = /^%(?:YAML|TAG)\b/m.test(yaml) || (directive !== -1 && error !== undefined);
    if (directed)
      throw new Fault("YAML_DIRECTIVE", "YAML directives are not read; leave the line out", start + directive);
    if (error !== undefined) throw syntaxFault(error.code, error.message, start + error.pos[0]);
    if (document.contents === null)
      throw new Fault("NOT_A_MAPPING", "the front matter is empty; name and description are wanted", begin);
    const value = plain(document.contents, [], 0);
    if (!isMap(document.contents))
      throw new Fault("NOT_A_MAPPING", 'the front matter has to be fields as "name: value"', start);
    // A tag that is not known does not make an error, only a warning.
    const [warning] = document.warnings;
    if (warning !== undefined)
      throw new Fault("YAML_TAG", "types named by ! are not read; write the value without", start + warning.pos[0]);
    return value;
  }, start);

  function plain(node: ParsedNode | null, path: readonly (string | number)[], depth: number): unknown {
    if (node === null) return null;
    const offset = start + (node.range[0] ?? 0);
    if (depth > maxDepth)
      throw new Fault("YAML_TOO_DEEP", `the values are nested more than ${maxDepth} levels deep`, offset);
    if (isAlias(node)) throw new Fault("YAML_ALIAS", `*${node.source} refers to another value; write it out`, offset);
    if (node.anchor !== undefined)
      throw new Fault("YAML_ANCHOR", `&${node.anchor} names a value; anchors are not read, leave it out`, offset);
    if (node.tag !== undefined)
      throw new Fault("YAML_TAG", `the type ${node.tag} is not read; write the value without`, offset);
    if (isSeq(node)) {
      return node.items.map((item, index) => {
        const at = [...path, index];
        const place = start + (item?.range[0] ?? 0);
        offsets.set(keyOf(at), { key: place, value: place });
        return plain(item, at, depth + 1);
      });
    }
    if (isMap(node)) {
      const entries = new Map<string, unknown>();
      for (const { key, value } of node.items) {
        const name = nameOf(key);
        const keyOffset = start + (key?.range[0] ?? 0);
        if (entries.has(name)) throw new Fault("YAML_DUPLICATE_KEY", `${name} is there twice; keep one`, keyOffset);
        const at = [...path, name];
        offsets.set(keyOf(at), { key: keyOffset, value: value === null ? keyOffset : start + value.range[0] });
        entries.set(name, plain(value, at, depth + 1));
      }
      return Object.fromEntries(entries);
    }
    if (!isScalar(node)) throw new Fault("YAML_SYNTAX", "this value can't be read", offset);
    const { value, source } = node;
    if (typeof value === "string" || typeof value === "boolean" || typeof value === "number") {
      written.set(keyOf(path), typeof value === "string" ? value : (source ?? String(value)));
      // JSON has no words for infinity and for what is no number.
      return typeof value === "number" && !Number.isFinite(value) ? (source ?? String(value)) : value;
    }
    return null;
  }

  function nameOf(key: ParsedNode | null): string {
    const offset = start + (key?.range[0] ?? 0);
    if (isAlias(key)) throw new Fault("YAML_ALIAS", `*${key.source} refers to another value; write it out`, offset);
    if (!isScalar(key) || key.value === null)
      throw new Fault("YAML_KEY", "the name of a field has to be a plain word", offset);
    if (key.anchor !== undefined)
      throw new Fault("YAML_ANCHOR", `&${key.anchor} names a value; anchors are not read, leave it out`, offset);
    if (key.tag !== undefined)
      throw new Fault("YAML_TAG", `the type ${key.tag} is not read; write the name without`, offset);
    const name = typeof key.value === "string" ? key.value : (key.source ?? String(key.value));
    if (name === "<<")
      throw new Fault("YAML_MERGE_KEY", "<< merges values; that is not read, write the fields out", offset);
    if (name === "__proto__")
      throw new Fault("YAML_KEY", "__proto__ can't be the name of a field; take another", offset);
    return name;
  }

  return {
    fields,
    body,
    placeOf(path, options) {
      for (let at = path; at.length > 0; at = at.slice(0, -1)) {
        const known = offsets.get(keyOf(at));
        if (known !== undefined) return placeAt(text, options?.key === true ? known.key : known.value, begin);
      }
      return placeAt(text, begin, begin);
    },
    writtenAt: (path) => written.get(keyOf(path)),
  };
}

/** A hostile text keeps the parser busy for seconds, or nests until its stack is full. */
function withLimits(work: () => unknown, offset: number): Record<string, unknown> {
  let value: unknown;
  try {
    value = withinTime(parseLimitMs, work);
  } catch (error) {
    if (error instanceof TooSlow)
      throw new Fault(
        "YAML_TOO_SLOW",
        `the front matter takes more than ${parseLimitMs} ms to read; make it simpler`,
        offset,
      );
    if (error instanceof RangeError)
      throw new Fault("YAML_TOO_DEEP", `the values are nested more than ${maxDepth} levels deep`, offset);
    throw error;
  }
  if (typeof value !== "object" || value === null)
    throw new Fault("NOT_A_MAPPING", 'the front matter has to be fields as "name: value"', offset);
  return Object.fromEntries(Object.entries(value));
}

function syntaxFault(code: string, message: string, offset: number): Fault {
  if (code === "RESOURCE_EXHAUSTION")
    return new Fault("YAML_TOO_DEEP", `the values are nested more than ${maxDepth} levels deep`, offset);
  if (code === "MULTIPLE_DOCS") return new Fault("YAML_SYNTAX", "the front matter has to be one YAML document", offset);
  const [line = ""] = message.split("\n", 1);
  return new Fault("YAML_SYNTAX", `this is no YAML: ${line.charAt(0).toLowerCase()}${line.slice(1, 300)}`, offset);
}

function keyOf(path: readonly (string | number)[]): string {
  return JSON.stringify(path);
}

function placeAt(text: string, offset: number, begin: number): Place {
  const before = text.slice(begin, Math.max(begin, offset));
  const lineStart = before.lastIndexOf("\n") + 1;
  return { line: before.split("\n").length, column: [...before.slice(lineStart)].length + 1 };
}
