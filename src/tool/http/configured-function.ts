import { createHash } from "node:crypto";
import type { FunctionRequest, HttpFunction } from "./http-functions.ts";
import type { HttpFunctionSection, WrittenHeader } from "./http-section.ts";
import {
  type Arguments,
  argumentText,
  filledHeader,
  filledJson,
  filledSegment,
  filledText,
  percentEncoded,
  type TextTemplate,
  valueText,
} from "./template.ts";

/** A header with the secrets in their places. */
export interface HeaderTemplate {
  readonly name: string;
  readonly value: TextTemplate;
}

const credentialHeader = /authorization|cookie|key|token|secret|password|credential/i;

/**
 * Puts the secrets of the environment into headers.
 * @returns the headers, and the texts in them that nobody may see
 * @throws {Error} one sentence naming the variable that is missing or is not fit for a header.
 */
export function headersWithSecrets(
  given: readonly WrittenHeader[],
  env: Readonly<Record<string, string | undefined>>,
  place: string,
): { readonly headers: readonly HeaderTemplate[]; readonly secrets: readonly string[] } {
  const secrets: string[] = [];
  const headers = given.map(({ name, pieces }) => {
    const value = pieces.map((piece) => {
      if (!("env" in piece)) return piece;
      const found = env[piece.env];
      if (found === undefined || found.trim() === "")
        throw new Error(`${place}.headers.${name}: the environment has no ${piece.env}; set it`);
      const secret = found.trim();
      if (!/^[\t\x20-\x7e]*$/.test(secret))
        throw new Error(`${place}.headers.${name}: ${piece.env} has characters that no header can hold`);
      secrets.push(secret);
      return { text: secret };
    });
    // A key that is written out here is a secret as well, with and without the scheme before it.
    const written = pieces.some((piece) => "env" in piece)
      ? ""
      : value.map((piece) => ("text" in piece ? piece.text : "")).join("");
    if (credentialHeader.test(name)) secrets.push(written, written.trim().split(/\s+/).at(-1) ?? "");
    return { name, value };
  });
  return { headers, secrets };
}

/** Makes a function of what an operator wrote. */
export function configuredFunction(section: HttpFunctionSection, headers: readonly HeaderTemplate[]): HttpFunction {
  const { name, description, parameters, readOnly, timeoutMs, response } = section;
  return {
    definition: {
      name,
      description,
      parameters,
      source: `http:${name}`,
      readOnly,
      openWorld: true,
      timeoutMs,
      digest: createHash("sha256")
        .update(JSON.stringify({ ...section, place: "" }))
        .digest("hex"),
    },
    requestFor: (given) => requestOf(section, headers, given),
    ...(response === undefined ? {} : { response }),
  };
}

function requestOf(
  { method, origin, path, query, rest, body, bodyType }: HttpFunctionSection,
  headerTemplates: readonly HeaderTemplate[],
  given: Arguments,
): FunctionRequest {
  const hasBody = method === "POST" || method === "PUT" || method === "PATCH";
  const segments = path.map((segment) => filledSegment(segment, given));
  const pairs = [
    ...query.flatMap(({ name, value }) => queryPairs(name, value, given)),
    ...(hasBody ? [] : rest.flatMap((name) => queryPairs(encodeURIComponent(name), [{ argument: name }], given))),
  ];
  const url = `${origin}/${segments.join("/")}${pairs.length === 0 ? "" : `?${pairs.join("&")}`}`;
  const headers: Record<string, string> = {};
  if (hasBody) headers["content-type"] = bodyType === "json" ? "application/json" : "application/x-www-form-urlencoded";
  Object.assign(headers, filledHeaders(headerTemplates, given));
  if (!hasBody) return { method, url, headers };
  const content =
    body === undefined
      ? Object.fromEntries(rest.flatMap((name) => (Object.hasOwn(given, name) ? [[name, given[name]]] : [])))
      : filledJson(body, given);
  return { method, url, headers, body: bodyType === "json" ? JSON.stringify(content) : formText(content) };
}

/** @throws {UnfitArgument} for what no header can hold. */
export function filledHeaders(templates: readonly HeaderTemplate[], given: Arguments): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const { name, value } of templates) {
    const filled = filledHeader(name, value, given);
    if (filled !== undefined) headers[name.toLowerCase()] = filled;
  }
  return headers;
}

/** A pair of a query; several for a list, none for an argument that was not given. */
function queryPairs(name: string, template: TextTemplate, given: Arguments): string[] {
  const [only] = template;
  if (template.length === 1 && only !== undefined && "argument" in only) {
    const value = Object.hasOwn(given, only.argument) ? given[only.argument] : undefined;
    const values: readonly unknown[] = Array.isArray(value) ? value : [value];
    return values.flatMap((each) => {
      const text = valueText(each);
      return text === undefined ? [] : [`${name}=${percentEncoded(only.argument, text)}`];
    });
  }
  const encoded = template.map((piece) => {
    if ("text" in piece) return piece;
    return { text: percentEncoded(piece.argument, argumentText(given, piece.argument) ?? "") };
  });
  return [`${name}=${filledText(encoded, given) ?? ""}`];
}

/** An object as a form: lists repeat their name, objects are JSON. */
export function formText(content: unknown): string {
  const form = new URLSearchParams();
  for (const [name, value] of Object.entries(typeof content === "object" && content !== null ? content : {})) {
    const values: readonly unknown[] = Array.isArray(value) ? value : [value];
    for (const each of values) {
      const text = valueText(each);
      if (text !== undefined) form.append(name, text.toWellFormed());
    }
  }
  return form.toString();
}
