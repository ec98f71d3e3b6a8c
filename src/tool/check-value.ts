import { Ajv2020, type ErrorObject, type ValidateFunction } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { harmlessText } from "./bounded-text.ts";
import { TooSlow, withinTime } from "./within-time.ts";

const maxSchemaBytes = 256 * 1024;
const maxDepth = 64;
const maxCompiled = 512;
const compileLimitMs = 1000;
const checkLimitMs = 150;
/** Bytes of schema times bytes of the value: a few milliseconds at the most. */
const maxUnwatchedWork = 16 * 1024 * 1024;
const shownErrors = 5;
const shownCharacters = 80;

const noProperties = '{"type":"object","additionalProperties":false}';

type Compiled =
  | {
      readonly ok: true;
      readonly validate: ValidateFunction;
      /** No keyword of the schema can take more than a walk over the value. */
      readonly isPlain: boolean;
      readonly schemaBytes: number;
    }
  | { readonly ok: false; readonly error: string };

/** What the parts of a value are called in the sentences about it. */
export interface ValueWords {
  /** The value as a whole, for example `the object of arguments`. */
  readonly whole: string;
  /** One property of it, for example `an argument`. */
  readonly property: string;
}

export type ValueCheck =
  | { readonly ok: true }
  /** The value does not fit: which parts, what was given, what is wanted. */
  | { readonly ok: false; readonly fault: "value"; readonly problems: string }
  /** Nested too deep. */
  | { readonly ok: false; readonly fault: "depth"; readonly problems: string }
  /** Nobody can say whether it fits: the schema can't be used, or the check takes too long. */
  | { readonly ok: false; readonly fault: "schema" | "time" | "check"; readonly problems: string };

/**
 * Holds a JSON value to a schema (JSON Schema 2020-12, as JSON text; empty text means an object without properties).
 * Nothing is coerced or filled in.
 * @param bytes length of the value's text
 * @param open stands in the value for parts that are not known yet: whatever they turn out to be fits
 */
export function checkValue(
  schemaText: string,
  value: unknown,
  bytes: number,
  words: ValueWords,
  open?: object,
): ValueCheck {
  if (isDeeperThan(value, maxDepth))
    return { ok: false, fault: "depth", problems: `nested more than ${maxDepth} levels deep` };
  const compiled = compiledSchema(schemaText);
  if (!compiled.ok) return { ok: false, fault: "schema", problems: compiled.error };
  const { validate } = compiled;
  // The watch over a check costs more than most checks: 0.2 ms.
  const isShort = compiled.isPlain && compiled.schemaBytes * bytes <= maxUnwatchedWork;
  try {
    if (isShort ? validate(value) : withinTime(checkLimitMs, () => validate(value))) return { ok: true };
  } catch (error) {
    if (error instanceof TooSlow)
      return { ok: false, fault: "time", problems: `took more than ${checkLimitMs} ms to check` };
    return { ok: false, fault: "check", problems: "cannot be checked against the schema" };
  }
  const errors = withoutOpen(worthTelling(validate.errors ?? []), open);
  if (errors.length === 0) return { ok: true };
  const problems = [...new Set(errors.map((error) => explained(error, words)))];
  const more = problems.length > shownErrors ? [`and ${problems.length - shownErrors} more`] : [];
  return { ok: false, fault: "value", problems: [...problems.slice(0, shownErrors), ...more].join("; ") };
}

/** Why a schema can't be used, as the end of a sentence; undefined when it can. */
export function schemaFault(schemaText: string): string | undefined {
  const compiled = compiledSchema(schemaText);
  return compiled.ok ? undefined : compiled.error;
}

/** By schema text; the one used longest ago goes first. */
const cache = new Map<string, Compiled>();

function compiledSchema(schemaText: string): Compiled {
  const known = cache.get(schemaText);
  cache.delete(schemaText);
  const compiled = known ?? compileSchema(schemaText);
  if (cache.size >= maxCompiled) for (const oldest of cache.keys()) if (cache.delete(oldest)) break;
  cache.set(schemaText, compiled);
  return compiled;
}

function compileSchema(schemaText: string): Compiled {
  const bytes = Buffer.byteLength(schemaText);
  if (bytes > maxSchemaBytes) return { ok: false, error: `${bytes} bytes, at most ${maxSchemaBytes} are taken` };
  let parsed: unknown;
  try {
    parsed = JSON.parse(schemaText.trim() === "" ? noProperties : schemaText);
  } catch {
    return { ok: false, error: "not JSON" };
  }
  if (!isRecord(parsed)) return { ok: false, error: "not a JSON object" };
  if (isDeeperThan(parsed, maxDepth)) return { ok: false, error: `nested more than ${maxDepth} levels deep` };
  const foreign = foreignReference(parsed);
  if (foreign !== undefined) return { ok: false, error: `refers to ${shortened(foreign)}, outside itself` };
  // Older drafts name themselves here and would not be found; what they share with 2020-12 is what tools use.
  const { $schema: _, ...schema } = parsed;
  try {
    // An instance each: one that is stopped in the middle may be broken, and a shared one would keep every schema for ever.
    const validate = withinTime(compileLimitMs, () => newValidator().compile(schema));
    return { ok: true, validate, isPlain: isPlain(schema), schemaBytes: bytes };
  } catch (error) {
    if (error instanceof TooSlow) return { ok: false, error: `took more than ${compileLimitMs} ms to read` };
    return { ok: false, error: error instanceof Error ? shortened(error.message, 300) : "not a JSON Schema" };
  }
}

function newValidator(): Ajv2020 {
  const validator = new Ajv2020({
    strict: false,
    allErrors: true,
    verbose: true,
    ownProperties: true,
    validateSchema: false,
    meta: false,
    logger: false,
    code: { regExp: Object.assign(patternOf, { code: "patternOf" }) },
  });
  addFormats.default(validator);
  return validator;
}

/** Schemas from elsewhere are often written for expressions without the `u` flag. */
function patternOf(source: string, flags: string): RegExp {
  try {
    return new RegExp(source, flags);
  } catch {
    return new RegExp(source);
  }
}

/** Whether a schema has none of the keywords whose cost has no bound: expressions, formats, recursion, comparing all with all. */
function isPlain(value: unknown): boolean {
  if (typeof value !== "object" || value === null) return true;
  return Object.entries(value).every(([key, inner]) => {
    if (key === "patternProperties" || key === "uniqueItems") return inner === false;
    // A property may have these names; then its value is a schema and no text.
    if (["pattern", "format", "$ref", "$dynamicRef"].includes(key) && typeof inner === "string") return false;
    return isPlain(inner);
  });
}

/** The first reference that does not stay in the schema itself. */
function foreignReference(value: unknown): string | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  for (const [key, inner] of Object.entries(value)) {
    if ((key === "$ref" || key === "$dynamicRef") && typeof inner === "string" && !inner.startsWith("#")) return inner;
    const found = foreignReference(inner);
    if (found !== undefined) return found;
  }
  return undefined;
}

function isDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  return levels === 0 || Object.values(value).some((inner) => isDeeperThan(inner, levels - 1));
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Leaves out the errors of single branches where the error of the choice as a whole says more. */
function worthTelling(errors: readonly ErrorObject[]): readonly ErrorObject[] {
  const choices = errors.filter((error) => error.keyword === "anyOf" || error.keyword === "oneOf");
  const inChoice = (error: ErrorObject) =>
    choices.some((choice) => choice !== error && error.schemaPath.startsWith(`${choice.schemaPath}/`));
  return errors.filter((error) => !inChoice(error) && error.keyword !== "if");
}

/** Keywords that look at the names of an object's properties, or at what kind of value it is, and not into it. */
const outerKeywords = new Set([
  "required",
  "dependentRequired",
  "additionalProperties",
  "unevaluatedProperties",
  "type",
  "minItems",
  "maxItems",
  "minProperties",
  "maxProperties",
]);

/** Leaves out the errors that another value in place of the parts that are not known may not have. */
function withoutOpen(errors: readonly ErrorObject[], open: object | undefined): readonly ErrorObject[] {
  if (open === undefined) return errors;
  const holds = (value: unknown): boolean =>
    value === open || (typeof value === "object" && value !== null && Object.values(value).some(holds));
  const isSettled = (error: ErrorObject) =>
    error.data !== open && (outerKeywords.has(error.keyword) || !holds(error.data));
  // What is wrong within a choice that is not settled may be right in another of its forms.
  const unsettled = errors.filter((error) => !isSettled(error)).map((error) => error.instancePath);
  const isWithin = (path: string) => unsettled.some((outer) => path === outer || path.startsWith(`${outer}/`));
  return errors.filter((error) => isSettled(error) && !isWithin(error.instancePath));
}

function explained(error: ErrorObject, words: ValueWords): string {
  const quoted = (path: string, name?: unknown) => quotedPath(path, words, name);
  const at = pathOf(error.instancePath);
  const params: Readonly<Record<string, unknown>> = error.params;
  const given = `${described(error.data)} was given`;
  switch (error.keyword) {
    case "required":
    case "dependentRequired":
      return `${quoted(at, params["missingProperty"])} is missing`;
    case "additionalProperties":
    case "unevaluatedProperties": {
      const extra = params["additionalProperty"] ?? params["unevaluatedProperty"];
      return `${quoted(at, extra)} is not ${words.property} it has${knownNames(error.parentSchema)}`;
    }
    case "type":
      return `${quoted(at)} must be ${[params["type"]].flat().join(" or ")}; ${given}`;
    case "enum":
      return `${quoted(at)} must be one of ${shortened(JSON.stringify(params["allowedValues"]), 300)}; ${given}`;
    case "const":
      return `${quoted(at)} must be ${described(params["allowedValue"])}; ${given}`;
    case "anyOf":
    case "oneOf":
      return `${quoted(at)} fits none or more than one of the forms it may have; ${given}`;
    default:
      return `${quoted(at)} ${shortened(error.message ?? "does not fit", 200)}; ${given}`;
  }
}

function knownNames(schema: unknown): string {
  const properties = isRecord(schema) ? schema["properties"] : undefined;
  const names = isRecord(properties) ? Object.keys(properties) : [];
  return names.length === 0 ? " (it has none here)" : ` (it has: ${shortened(names.join(", "), 300)})`;
}

/** `/items/0/name` as `items[0].name`. */
function pathOf(pointer: string): string {
  let path = "";
  for (const part of pointer.split("/").slice(1)) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    path += /^\d+$/.test(name) ? `[${name}]` : path === "" ? name : `.${name}`;
  }
  return path;
}

function quotedPath(path: string, words: ValueWords, name?: unknown): string {
  if (name === undefined) return path === "" ? words.whole : `"${shortened(path)}"`;
  return `"${shortened(path === "" ? `${name}` : `${path}.${name}`)}"`;
}

export function described(value: unknown): string {
  if (Array.isArray(value)) return `an array of ${value.length}`;
  if (isRecord(value)) return "an object";
  return shortened(JSON.stringify(value) ?? "nothing");
}

export function shortened(text: string, characters = shownCharacters): string {
  return harmlessText(text.length <= characters ? text : `${text.slice(0, characters - 3)}...`);
}
