import { checkValue, isRecord } from "../tool/check-value.ts";

/** Values for a form, held to its schema. */
export type FittedValues =
  | {
      readonly ok: true;
      readonly values: Readonly<Record<string, unknown>>;
      /** As JSON text. */
      readonly text: string;
    }
  /** `problem` is the end of a sentence that names what does not fit. */
  | { readonly ok: false; readonly problem: string };

const maxBytes = 256 * 1024;
const words = { whole: "the object of values", property: "a value" };
const maxDepth = 32;

/**
 * Reads values (a JSON object as JSON text; blank text means `{}`), fills in the defaults of a schema and holds them to it.
 * @param schema JSON Schema as JSON text; empty means an object without properties
 */
export function fitValues(schema: string, text: string): FittedValues {
  const bytes = Buffer.byteLength(text);
  if (bytes > maxBytes) return { ok: false, problem: `has ${bytes} bytes; ${maxBytes} is the most` };
  let given: unknown;
  try {
    given = text.trim() === "" ? {} : JSON.parse(text);
  } catch {
    return { ok: false, problem: "is no JSON; send one JSON object" };
  }
  if (!isRecord(given)) return { ok: false, problem: "is no JSON object" };
  const values = withDefaults(given, schemaFrom(schema), 0);
  if (!isRecord(values)) return { ok: false, problem: "is no JSON object" };
  const check = checkValue(schema, values, bytes, words);
  if (!check.ok) return { ok: false, problem: `does not fit: ${check.problems}` };
  return { ok: true, values, text: JSON.stringify(values) };
}

function schemaFrom(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // said by the check
  }
}

function withDefaults(value: unknown, schema: unknown, depth: number): unknown {
  if (!isRecord(value) || !isRecord(schema) || !isRecord(schema["properties"]) || depth > maxDepth) return value;
  const filled = Object.entries(schema["properties"]).flatMap(([name, inner]): [string, unknown][] => {
    if (Object.hasOwn(value, name)) return [[name, withDefaults(value[name], inner, depth + 1)]];
    return isRecord(inner) && Object.hasOwn(inner, "default") ? [[name, inner["default"]]] : [];
  });
  // As own properties, whatever they are called.
  return Object.fromEntries([...Object.entries(value), ...filled]);
}
