/** Keywords that hold a schema, and a list of schemas. */
const inner = ["items", "not", "if", "then", "else", "contains", "propertyNames"] as const;
const innerLists = ["anyOf", "oneOf", "allOf", "prefixItems"] as const;

/**
 * Whether every object in a JSON Schema names all members it may have and no schema refers to itself. Models can be held
 * to such schemas where their providers refuse others: open objects and recursion (ax-llm/ax pull 459 and others tell so
 * of Anthropic's structured outputs).
 */
export function isClosedSchema(schema: unknown): boolean {
  return isClosed(schema, schema, []);
}

function isClosed(schema: unknown, root: unknown, within: readonly string[]): boolean {
  if (schema === true || !isObject(schema)) return schema === undefined || schema === false;
  const { $ref: reference, type, additionalProperties, properties } = schema;
  if (reference !== undefined) {
    if (typeof reference !== "string" || within.includes(reference)) return false;
    return isClosed(schemaAt(root, reference), root, [...within, reference]);
  }
  const isOfObjects = type === "object" || (Array.isArray(type) && type.includes("object")) || "properties" in schema;
  if (isOfObjects && additionalProperties !== false) return false;
  if (type === undefined && !["enum", "const", ...innerLists].some((keyword) => keyword in schema)) return isOfObjects;
  if ((type === "array" || (Array.isArray(type) && type.includes("array"))) && !("items" in schema)) return false;
  return (
    inner.every((keyword) => !(keyword in schema) || isClosed(schema[keyword], root, within)) &&
    innerLists.every((keyword) => listOf(schema[keyword]).every((each) => isClosed(each, root, within))) &&
    Object.values(isObject(properties) ? properties : {}).every((each) => isClosed(each, root, within))
  );
}

/** What a local reference as `#/$defs/name` leads to; undefined for others, which are open then. */
function schemaAt(root: unknown, reference: string): unknown {
  if (reference !== "#" && !reference.startsWith("#/")) return true;
  const names = reference.split("/").slice(1);
  let found: unknown = root;
  for (const name of names) {
    const member = name.replaceAll("~1", "/").replaceAll("~0", "~");
    if (!isObject(found) || !Object.hasOwn(found, member)) return true;
    found = found[member];
  }
  return found;
}

function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
