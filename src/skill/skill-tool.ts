import { checkValue, isRecord, schemaFault } from "../tool/check-value.ts";
import { errorIn, type Place, type SkillDiagnostic, skillFile, warningIn } from "./diagnostic.ts";
import type { FrontMatter } from "./front-matter.ts";

/** A script of a skill that the model can call. */
export interface ScriptTool {
  readonly name: string;
  readonly description: string;
  /** Path of the script from the skill's folder, as it was written. */
  readonly command: string;
  /** Where that stands in SKILL.md. */
  readonly commandPlace: Place;
  /** JSON Schema of the arguments, as JSON text; only what it declares is taken. */
  readonly parameters: string;
  /** The arguments there are. */
  readonly argumentNames: readonly string[];
  /** What an argument is when it is not given. */
  readonly defaults: Readonly<Record<string, unknown>>;
  /** What it gives, in words for the model. */
  readonly returns?: string;
  readonly title?: string;
  readonly timeoutMs: number;
  /** Its author says that it changes nothing. */
  readonly readOnly: boolean;
  /** Its author says that it needs the network. */
  readonly network: boolean;
}

const defaultTimeoutMs = 30_000;
const maxTimeoutMs = 600_000;
const maxTools = 64;
const maxDescriptionCharacters = 4096;
const maxSchemaBytes = 32 * 1024;
const namePattern = /^[A-Za-z][A-Za-z0-9_-]{0,63}$/;
const argumentPattern = /^[A-Za-z][A-Za-z0-9_]{0,63}$/;
const simpleTypes = ["string", "number", "integer", "boolean", "array", "object"];
const knownKeys = [
  "name",
  "description",
  "command",
  "parameters",
  "returns",
  "title",
  "timeout_ms",
  "read_only",
  "network",
];

type Path = readonly (string | number)[];

/** What is wrong with one tool. */
class ToolFault extends Error {
  readonly code: string;
  readonly path: Path;

  constructor(code: string, path: Path, message: string) {
    super(message);
    this.code = code;
    this.path = path;
  }
}

/** The tools a skill declares. One that is wrong is left out, with a diagnostic; the others work. */
export function readTools(
  frontMatter: FrontMatter,
  diagnose: (diagnostic: SkillDiagnostic) => void,
): readonly ScriptTool[] {
  const given = frontMatter.fields["tools"];
  if (given === undefined || given === null) return [];
  const fail = (code: string, path: Path, message: string) =>
    diagnose(errorIn(skillFile, code, message, frontMatter.placeOf(path)));
  if (!Array.isArray(given)) {
    fail("INVALID_TOOLS", ["tools"], "tools has to be a list, each with name, description and command");
    return [];
  }
  const tools = new Map<string, ScriptTool>();
  for (const [index, entry] of given.entries()) {
    const path = ["tools", index];
    if (index === maxTools) {
      fail("TOO_MANY_TOOLS", path, `there are ${given.length} tools; ${maxTools} is the most, the others are left out`);
      break;
    }
    try {
      const tool = readTool(entry, path, frontMatter, diagnose);
      if (tools.has(tool.name))
        throw new ToolFault("DUPLICATE_TOOL", path, `a tool ${tool.name} is there already; name this one differently`);
      tools.set(tool.name, tool);
    } catch (error) {
      if (!(error instanceof ToolFault)) throw error;
      fail(error.code, error.path, error.message);
    }
  }
  return [...tools.values()];
}

function readTool(
  entry: unknown,
  path: Path,
  frontMatter: FrontMatter,
  diagnose: (diagnostic: SkillDiagnostic) => void,
): ScriptTool {
  if (!isRecord(entry))
    throw new ToolFault("INVALID_TOOL", path, "a tool has to be a map of name, description and command");
  const name = entry["name"];
  if (typeof name !== "string" || !namePattern.test(name))
    throw new ToolFault(
      "INVALID_TOOL_NAME",
      [...path, "name"],
      "a tool's name has to be a letter and up to 63 of A-Z a-z 0-9 _ -",
    );
  const text = (key: string, most: number): string | undefined => {
    const value = entry[key];
    if (value === undefined || value === null) return undefined;
    const written = frontMatter.writtenAt([...path, key]);
    if (written === undefined || written.trim() === "" || written.length > most)
      throw new ToolFault(
        "INVALID_TOOL",
        [...path, key],
        `${key} of ${name} has to be a text of 1 to ${most} characters`,
      );
    return written.trim();
  };
  const flag = (key: string): boolean => {
    const value = entry[key] ?? false;
    if (typeof value !== "boolean")
      throw new ToolFault("INVALID_TOOL", [...path, key], `${key} of ${name} has to be true or false`);
    return value;
  };
  for (const key of Object.keys(entry)) {
    if (knownKeys.includes(key)) continue;
    const place = frontMatter.placeOf([...path, key], { key: true });
    const sentence = `the tool ${name} has a field ${key.slice(0, 64)} that means nothing here; there are: ${knownKeys.join(", ")}`;
    diagnose(warningIn(skillFile, "UNKNOWN_TOOL_FIELD", sentence, place));
  }
  const description = text("description", maxDescriptionCharacters);
  if (description === undefined)
    throw new ToolFault("MISSING_TOOL_DESCRIPTION", path, `the tool ${name} has no description; the model needs one`);
  const command = text("command", 1024);
  if (command === undefined)
    throw new ToolFault(
      "MISSING_COMMAND",
      path,
      `the tool ${name} has no command; name its script, for example scripts/run.sh`,
    );
  const timeoutMs = entry["timeout_ms"] ?? defaultTimeoutMs;
  if (typeof timeoutMs !== "number" || !Number.isInteger(timeoutMs) || timeoutMs < 1 || timeoutMs > maxTimeoutMs)
    throw new ToolFault(
      "INVALID_TOOL",
      [...path, "timeout_ms"],
      `timeout_ms of ${name} has to be a whole number from 1 to ${maxTimeoutMs}`,
    );
  const title = text("title", 200);
  const returns = text("returns", maxDescriptionCharacters);
  return {
    name,
    description,
    command,
    commandPlace: frontMatter.placeOf([...path, "command"]),
    ...readParameters(name, entry["parameters"], [...path, "parameters"]),
    timeoutMs,
    readOnly: flag("read_only"),
    network: flag("network"),
    ...(title === undefined ? {} : { title }),
    ...(returns === undefined ? {} : { returns }),
  };
}

/** Either a JSON Schema of an object, or arguments by their names: `{path: {type: string, required: true}}`, `{path: string}`. */
function readParameters(
  tool: string,
  given: unknown,
  path: Path,
): Pick<ScriptTool, "parameters" | "argumentNames" | "defaults"> {
  const fault = (message: string, at: Path = path) =>
    new ToolFault("INVALID_PARAMETERS", at, `parameters of ${tool}: ${message}`);
  if (given !== undefined && given !== null && !isRecord(given))
    throw fault("a JSON Schema or a map of arguments is wanted");
  const isSchema = isRecord(given) && looksLikeSchema(given);
  const schema = isSchema ? given : schemaOf(given ?? {}, path, fault);
  if ((schema["type"] ?? "object") !== "object") throw fault('the arguments are an object: write "type: object"');
  const properties = schema["properties"] ?? {};
  if (!isRecord(properties)) throw fault("properties has to be a map of arguments");
  const argumentNames = Object.keys(properties);
  const inCapitals = new Map<string, string>();
  for (const name of argumentNames) {
    const at = isSchema ? [...path, "properties", name] : [...path, name];
    if (!argumentPattern.test(name))
      throw fault(`the name "${name.slice(0, 80)}" has to be a letter and then letters, digits and _, up to 64`, at);
    const other = inCapitals.get(name.toUpperCase());
    if (other !== undefined)
      throw fault(`${other} and ${name} would be the same variable ARG_${name.toUpperCase()}`, at);
    inCapitals.set(name.toUpperCase(), name);
  }
  // Nothing undeclared gets through, whatever the schema says.
  const { patternProperties: _, unevaluatedProperties: __, ...kept } = schema;
  const closed = { ...kept, type: "object", properties, additionalProperties: false };
  const parameters = JSON.stringify(closed);
  const bytes = Buffer.byteLength(parameters);
  if (bytes > maxSchemaBytes) throw fault(`the schema has ${bytes} bytes; ${maxSchemaBytes} is the most`);
  const unusable = schemaFault(parameters);
  if (unusable !== undefined) throw fault(`the schema is unusable: ${unusable}`);
  const defaults = Object.entries(properties).flatMap(([name, property]) =>
    isRecord(property) && Object.hasOwn(property, "default") ? [[name, property["default"]] as const] : [],
  );
  for (const [name, value] of defaults) {
    const check = checkValue(JSON.stringify({ ...closed, required: [] }), { [name]: value }, bytes, {
      whole: "it",
      property: "an argument",
    });
    if (!check.ok) throw fault(`the default of ${name} does not fit: ${check.problems}`);
  }
  return { parameters, argumentNames, defaults: Object.fromEntries(defaults) };
}

/** An argument may be called `type` or `properties`; then its value is a map, or a type's name that is not `object`. */
function looksLikeSchema(given: Readonly<Record<string, unknown>>): boolean {
  const { type, properties } = given;
  if (type === "object") return !isRecord(properties) || typeof properties["type"] !== "string" || "required" in given;
  return isRecord(properties) && Object.values(properties).every((each) => isRecord(each));
}

function schemaOf(
  given: Readonly<Record<string, unknown>>,
  path: Path,
  fault: (message: string, at?: Path) => ToolFault,
): Record<string, unknown> {
  const properties: Record<string, unknown> = {};
  const required: string[] = [];
  for (const [name, value] of Object.entries(given)) {
    const at = [...path, name];
    const short = typeof value === "string" ? { type: value } : value;
    if (!isRecord(short)) throw fault(`${name} has to be a map with type and description, or the name of a type`, at);
    const { required: isRequired = false, ...property } = short;
    if (typeof isRequired !== "boolean")
      throw fault(`required of ${name} has to be true or false`, [...at, "required"]);
    const type = property["type"] ?? (property["enum"] === undefined ? "string" : undefined);
    if (type !== undefined && (typeof type !== "string" || !simpleTypes.includes(type)))
      throw fault(`type of ${name} has to be one of ${simpleTypes.join(", ")}`, [...at, "type"]);
    properties[name] = type === undefined ? property : { ...property, type };
    // What has a default need not be given.
    if (isRequired && !Object.hasOwn(property, "default")) required.push(name);
  }
  return { type: "object", properties, required };
}
