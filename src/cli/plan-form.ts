import { isRecord } from "../tool/check-value.ts";
import type { AskPerson } from "./approvals.ts";
import { oneLine, type Page, shownWhole } from "./terminal.ts";

/** What a step asks of a person. */
export interface PlanForm {
  readonly prompt: string;
  /** JSON Schema of the answer, as JSON text. */
  readonly schema: string;
}

interface Field {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly type: string;
  readonly choices: readonly unknown[];
  readonly byDefault: unknown;
  readonly isRequired: boolean;
}

type ReadValue =
  | { readonly ok: true; readonly value: unknown }
  | { readonly ok: true; readonly isLeftOut: true }
  | { readonly ok: false; readonly why: string };

/**
 * Asks for the fields of a form, one after the other; of what does not fit its type the person is told, and asked again.
 * What stands as a default is left to the server.
 * @returns the answer, a JSON object as JSON text.
 * @throws the reason of the signal.
 */
export async function askForm(
  { prompt, schema }: PlanForm,
  ask: AskPerson,
  page: Page,
  signal: AbortSignal,
): Promise<string> {
  const tell = (text: string, style: "bold" | "dim" | "red") => {
    page.endLine();
    page.write(text, style);
    page.endLine();
  };
  for (const line of prompt.split(/\r?\n/)) tell(shownWhole(line), "bold");
  const values: Record<string, unknown> = {};
  for (const field of fieldsOf(schema)) {
    if (field.description !== "") tell(shownWhole(oneLine(field.description, 400)), "dim");
    for (const [index, choice] of field.choices.entries()) tell(`${index + 1}. ${shownWhole(textOf(choice))}`, "dim");
    for (;;) {
      const read = readField(field, await ask(questionOf(field), signal));
      if (!read.ok) {
        tell(read.why, "red");
        continue;
      }
      if (!("isLeftOut" in read)) Object.defineProperty(values, field.name, { value: read.value, enumerable: true });
      break;
    }
  }
  return JSON.stringify(values);
}

function fieldsOf(schema: string): Field[] {
  const parsed = jsonOf(schema);
  const properties = isRecord(parsed) && isRecord(parsed["properties"]) ? parsed["properties"] : {};
  const required: readonly unknown[] = isRecord(parsed) && Array.isArray(parsed["required"]) ? parsed["required"] : [];
  return Object.entries(properties).map(([name, given]) => {
    const property = isRecord(given) ? given : {};
    const { title, description, type, enum: choices, default: byDefault } = property;
    return {
      name,
      title: typeof title === "string" && title !== "" ? title : name,
      description: typeof description === "string" ? description : "",
      type: typeof type === "string" ? type : "",
      choices: Array.isArray(choices) ? choices : [],
      byDefault,
      isRequired: required.includes(name),
    };
  });
}

function questionOf({ title, type, choices, byDefault, isRequired }: Field): string {
  const forms: Record<string, string> = { boolean: "y or n", array: "JSON list", object: "JSON object" };
  const form = choices.length > 0 ? "a number or its text" : (forms[type] ?? type);
  const absent =
    byDefault !== undefined ? `nothing = ${textOf(byDefault)}` : isRequired ? "" : "nothing = leave it out";
  const hints = [form, absent].filter((hint) => hint !== "").join("; ");
  return `${shownWhole(oneLine(title, 100))}${hints === "" ? "" : ` (${shownWhole(hints)})`}: `;
}

function readField({ type, choices, byDefault, isRequired }: Field, said: string): ReadValue {
  const text = said.trim();
  if (text === "") {
    const isText = type === "string" && choices.length === 0;
    if (byDefault !== undefined || !isRequired) return { ok: true, isLeftOut: true };
    return { ok: false, why: isText ? "say something" : "an answer is needed" };
  }
  if (choices.length > 0) {
    const byText = choices.find((choice) => textOf(choice) === text);
    const choice = byText ?? (/^\d+$/.test(text) ? choices[Number(text) - 1] : undefined);
    return choice === undefined ? { ok: false, why: `choose 1 to ${choices.length}` } : { ok: true, value: choice };
  }
  switch (type) {
    case "string":
      return { ok: true, value: said };
    case "boolean":
      if (/^(y|yes|true)$/i.test(text)) return { ok: true, value: true };
      return /^(n|no|false)$/i.test(text) ? { ok: true, value: false } : { ok: false, why: "say y or n" };
    case "integer":
    case "number": {
      const value = Number(text);
      const fits = type === "integer" ? Number.isSafeInteger(value) : Number.isFinite(value);
      return fits
        ? { ok: true, value }
        : { ok: false, why: `${type === "integer" ? "a whole" : "a"} number is wanted` };
    }
    case "array":
    case "object": {
      const value = jsonOf(text);
      const fits = type === "array" ? Array.isArray(value) : isRecord(value);
      return fits ? { ok: true, value } : { ok: false, why: `write it as a JSON ${type === "array" ? "list" : type}` };
    }
    default: {
      const value = jsonOf(text);
      return { ok: true, value: value === undefined ? said : value };
    }
  }
}

function textOf(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
