import { isRecord, shortened } from "../check-value.ts";
import { valueAt } from "./template.ts";

type Mapping = Readonly<Record<string, unknown>>;

/** Something of a document that no function can be made of; the message says what. */
export class Unsupported extends Error {
  override readonly name = "Unsupported";
}

const maxNodes = 4000;
const maxInlinedNodes = 600;
const maxDepth = 48;
const maxDescriptionCharacters = 300;

/** Keywords whose value is a schema, a list of them or a mapping to them. */
const schemaKeywords = ["items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"];
const schemaLists = ["allOf", "anyOf", "oneOf", "prefixItems"];
const schemaMappings = ["properties", "patternProperties", "dependentSchemas"];
const plainKeywords = [
  "type",
  "format",
  "title",
  "enum",
  "const",
  "default",
  "required",
  "pattern",
  "minLength",
  "maxLength",
  "minimum",
  "maximum",
  "multipleOf",
  "minItems",
  "maxItems",
  "uniqueItems",
  "minProperties",
  "maxProperties",
  "minContains",
  "maxContains",
];

/**
 * The target of a reference within the document, through any chain of them.
 * @throws {Unsupported} for a reference to elsewhere, to nothing or to itself.
 */
export function resolved(document: Mapping, value: unknown): Mapping {
  let at = value;
  for (let hops = 0; hops < 16; hops++) {
    if (!isRecord(at)) throw new Unsupported("a part of it is no mapping");
    const reference = at["$ref"];
    if (typeof reference !== "string") return at;
    at = targetOf(document, reference);
  }
  throw new Unsupported("its references lead in a circle");
}

function targetOf(document: Mapping, reference: string): unknown {
  if (!reference.startsWith("#/")) throw new Unsupported(`it refers to ${shortened(reference)}, outside the document`);
  try {
    return valueAt(document, decodeURIComponent(reference.slice(1)));
  } catch {
    throw new Unsupported(`it refers to ${shortened(reference)}, which is not there`);
  }
}

/** Makes JSON Schemas (2020-12) of the schemas of a document, for the arguments of one function. */
export class SchemaReader {
  readonly #document: Mapping;
  readonly #keepReferences: boolean;
  /** Names of definitions by reference. */
  readonly #names = new Map<string, string>();
  readonly #definitions = new Map<string, unknown>();
  #nodes = 0;

  /** @param keepReferences leaves every reference one; else only what refers to itself stays one. */
  constructor(document: Mapping, keepReferences: boolean) {
    this.#document = document;
    this.#keepReferences = keepReferences;
  }

  /** What the schemas read so far refer to, for `$defs`. */
  get definitions(): Mapping {
    return Object.fromEntries(this.#definitions);
  }

  /** @throws {Unsupported} for what no schema can be made of, and `TooManyNodes` where inlining makes too much. */
  read(schema: unknown, depth = 0): unknown {
    if (typeof schema === "boolean") return schema;
    if (!isRecord(schema)) throw new Unsupported("a schema of it is no mapping");
    if (depth > maxDepth) throw new Unsupported(`its schemas are nested more than ${maxDepth} levels deep`);
    if (++this.#nodes > (this.#keepReferences ? maxNodes : maxInlinedNodes)) throw new TooManyNodes();
    const reference = schema["$ref"];
    if (typeof reference === "string") return this.#referred(schema, reference, depth);
    if (schema["$dynamicRef"] !== undefined) throw new Unsupported("its schemas have references of a dynamic kind");
    return this.#plain(schema, depth);
  }

  #referred(schema: Mapping, reference: string, depth: number): unknown {
    const target = resolved(this.#document, schema);
    const description = schema["description"];
    const beside =
      typeof description === "string" ? { description: shortened(description, maxDescriptionCharacters) } : {};
    const refersToItself = !this.#keepReferences && this.#leadsBack(reference);
    if (!this.#keepReferences && !refersToItself) {
      const inlined = this.read(target, depth + 1);
      return isRecord(inlined) ? { ...inlined, ...beside } : inlined;
    }
    const known = this.#names.get(reference);
    const name = known ?? this.#newName(reference);
    if (known === undefined) {
      this.#names.set(reference, name);
      this.#definitions.set(name, true);
      this.#definitions.set(name, this.read(target, depth + 1));
    }
    return { $ref: `#/$defs/${name}`, ...beside };
  }

  /** Whether a schema is reached again from within itself. */
  #leadsBack(reference: string): boolean {
    const seen = new Set<string>();
    const ahead: unknown[] = [targetOf(this.#document, reference)];
    for (let steps = 0; ahead.length > 0; steps++) {
      if (steps > 20_000) throw new TooManyNodes();
      const at = ahead.pop();
      if (typeof at !== "object" || at === null) continue;
      const inner = isRecord(at) ? at["$ref"] : undefined;
      if (typeof inner === "string") {
        if (inner === reference) return true;
        if (!seen.has(inner)) ahead.push(targetOf(this.#document, inner));
        seen.add(inner);
      }
      ahead.push(...Object.values(at));
    }
    return false;
  }

  #newName(reference: string): string {
    const last = reference.split("/").at(-1) ?? "";
    const base = last.replace(/[^A-Za-z0-9_-]/g, "_").slice(0, 60) || "schema";
    const taken = new Set(this.#names.values());
    let name = base;
    for (let count = 2; taken.has(name); count++) name = `${base}_${count}`;
    return name;
  }

  #plain(schema: Mapping, depth: number): unknown {
    const inner = (value: unknown) => this.read(value, depth + 1);
    const made: Record<string, unknown> = {};
    const description = schema["description"];
    if (typeof description === "string") made["description"] = shortened(description.trim(), maxDescriptionCharacters);
    for (const key of plainKeywords) if (schema[key] !== undefined) made[key] = schema[key];
    for (const key of schemaKeywords) if (schema[key] !== undefined) made[key] = inner(schema[key]);
    for (const key of schemaLists) {
      const list = schema[key];
      if (Array.isArray(list) && list.length > 0) made[key] = list.map(inner);
    }
    for (const key of schemaMappings) {
      const mapping = schema[key];
      if (isRecord(mapping))
        made[key] = Object.fromEntries(this.#entries(mapping, key).map(([name, value]) => [name, inner(value)]));
    }
    const properties = made["properties"];
    if (Array.isArray(made["required"])) {
      const gone = isRecord(schema["properties"]) && isRecord(properties) ? schema["properties"] : {};
      const kept = made["required"].filter(
        (name) =>
          typeof name === "string" &&
          (!Object.hasOwn(gone, name) || (isRecord(properties) && Object.hasOwn(properties, name))),
      );
      if (kept.length > 0) made["required"] = kept;
      else delete made["required"];
    }
    limit(made, schema, "exclusiveMinimum", "minimum");
    limit(made, schema, "exclusiveMaximum", "maximum");
    return schema["nullable"] === true ? orNull(made) : made;
  }

  /** Without what a service says and never takes. */
  #entries(mapping: Mapping, key: string): [string, unknown][] {
    const entries = Object.entries(mapping);
    if (key !== "properties") return entries;
    return entries.filter(([, value]) => !(isRecord(value) && value["readOnly"] === true));
  }
}

/** Inlining made too much of a schema. */
export class TooManyNodes extends Error {}

/** A limit that is excluded: a flag beside the limit in OpenAPI 3.0, the limit itself in 3.1. */
function limit(made: Record<string, unknown>, schema: Mapping, exclusive: string, plain: string): void {
  const value = schema[exclusive];
  if (typeof value === "number") made[exclusive] = value;
  if (value !== true || typeof made[plain] !== "number") return;
  made[exclusive] = made[plain];
  delete made[plain];
}

function orNull(schema: Record<string, unknown>): Record<string, unknown> {
  const { type, enum: values } = schema;
  if (typeof type !== "string") return { anyOf: [schema, { type: "null" }] };
  return {
    ...schema,
    type: [type, "null"],
    ...(Array.isArray(values) && !values.includes(null) ? { enum: [...values, null] } : {}),
  };
}
