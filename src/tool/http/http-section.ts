import { isRecord, schemaFault } from "../check-value.ts";
import { argumentsIn, argumentsInJson, type TextTemplate, textTemplate } from "./template.ts";

const methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] as const;
export type HttpMethod = (typeof methods)[number];

/** A header as it is written: texts, arguments and secrets of the environment. */
export interface WrittenHeader {
  readonly name: string;
  readonly pieces: readonly (TextTemplate[number] | { readonly env: string })[];
}

/** A function as an operator writes it, checked. */
export interface HttpFunctionSection {
  readonly kind: "function";
  readonly name: string;
  /** Where it is written, for messages. */
  readonly place: string;
  readonly description: string;
  /** JSON Schema of the arguments, as JSON text. */
  readonly parameters: string;
  readonly method: HttpMethod;
  readonly origin: string;
  readonly path: readonly TextTemplate[];
  readonly query: readonly WrittenQuery[];
  /** Arguments that stand nowhere else: in the query of a method without a body, else in the body. */
  readonly rest: readonly string[];
  readonly headers: readonly WrittenHeader[];
  /** A JSON value with places for arguments; absent for all arguments that stand nowhere else. */
  readonly body?: unknown;
  readonly bodyType: "json" | "form";
  readonly response?: string;
  readonly timeoutMs: number;
  readonly readOnly: boolean;
}

/** One pair of a query. Its value is encoded already where it is a text of the template. */
export interface WrittenQuery {
  readonly name: string;
  readonly value: TextTemplate;
}

/** Functions that a document describes. */
export interface OpenApiSection {
  readonly kind: "openapi";
  readonly name: string;
  readonly place: string;
  /** A URL, or the absolute path of a file. */
  readonly document: string;
  /** Globs of operation ids, or of methods and paths as `GET /pets/*`; empty for all. */
  readonly include: readonly string[];
  readonly headers: readonly WrittenHeader[];
  readonly baseUrl?: string;
  readonly timeoutMs: number;
}

export type HttpSection = HttpFunctionSection | OpenApiSection;

const functionFields = [
  "description",
  "parameters",
  "method",
  "url",
  "query",
  "headers",
  "body",
  "body_type",
  "response",
  "timeout_ms",
  "read_only",
];
const openApiFields = ["openapi", "include", "headers", "base_url", "timeout_ms"];
const defaultTimeoutMs = 30_000;
const maxTimeoutMs = 600_000;
const connectionHeaders: ReadonlySet<string> = new Set([
  "host",
  "connection",
  "content-length",
  "transfer-encoding",
  "accept-encoding",
  "keep-alive",
  "upgrade",
  "te",
  "trailer",
  "expect",
  "proxy-authorization",
  "proxy-connection",
]);

/**
 * Reads an entry of `http` as it stands in the configuration.
 * @param resolvePath makes a path absolute
 * @throws {Error} one sentence that says where and what is wanted; it shows no value of a header.
 */
export function readHttpSection(
  name: string,
  value: unknown,
  place: string,
  resolvePath: (path: string) => string,
): HttpSection {
  if (!/^[A-Za-z][A-Za-z0-9_-]{0,63}$/.test(name))
    throw new Error(`${place}: a name of letters, digits, - and _ is wanted, which begins with a letter`);
  const given = mapping(value, place);
  return given["openapi"] === undefined
    ? functionSection(name, given, place)
    : openApiSection(name, given, place, resolvePath);
}

function functionSection(name: string, given: Readonly<Record<string, unknown>>, place: string): HttpFunctionSection {
  refuseOthers(given, functionFields, place);
  const description = text(given["description"], `${place}.description`);
  const method = methods.find((one) => one === (given["method"] ?? "GET"));
  if (method === undefined) throw new Error(`${place}.method: one of ${methods.join(", ")} is wanted`);
  const hasBody = method === "POST" || method === "PUT" || method === "PATCH";
  const { parameters, names, required } = readParameters(given["parameters"], `${place}.parameters`);
  const { origin, path, query: inUrl } = readUrlTemplate(text(given["url"], `${place}.url`), `${place}.url`);
  const inQuery = readQuery(given["query"], `${place}.query`);
  const headers = readHeaders(given["headers"], `${place}.headers`);
  const bodyType = given["body_type"] ?? "json";
  if (bodyType !== "json" && bodyType !== "form") throw new Error(`${place}.body_type: json or form is wanted`);
  if (given["body"] !== undefined && !hasBody) throw new Error(`${place}.body: ${method} has no body`);
  if (bodyType === "form" && given["body"] !== undefined && !isRecord(given["body"]))
    throw new Error(`${place}.body: fields as "key: value" are wanted for a form`);
  const query = [...inUrl, ...inQuery];
  const inHeaders = headers.flatMap(({ pieces }) =>
    pieces.flatMap((piece) => ("argument" in piece ? [piece.argument] : [])),
  );
  const named = [
    ...path.flatMap(argumentsIn),
    ...query.flatMap(({ value }) => argumentsIn(value)),
    ...inHeaders,
    ...argumentsInJson(given["body"]),
  ];
  const unknown = named.find((one) => !names.includes(one));
  if (unknown !== undefined) throw new Error(`${place}: {${unknown}} is not one of the parameters`);
  const optional = path.flatMap(argumentsIn).find((one) => !required.includes(one));
  if (optional !== undefined)
    throw new Error(`${place}: {${optional}} is a part of the path, so it has to be required`);
  const response = given["response"];
  if (response !== undefined && (typeof response !== "string" || !/^(?:\/(?:[^~]|~[01])*)?$/.test(response)))
    throw new Error(`${place}.response: a JSON Pointer is wanted, for example /data/items`);
  const readOnly = given["read_only"] ?? (method === "GET" || method === "HEAD");
  if (typeof readOnly !== "boolean") throw new Error(`${place}.read_only: true or false is wanted`);
  return {
    kind: "function",
    name,
    place,
    description,
    parameters,
    method,
    origin,
    path,
    query,
    rest: (hasBody ? given["body"] : given["query"]) === undefined ? names.filter((one) => !named.includes(one)) : [],
    headers,
    ...(given["body"] === undefined ? {} : { body: given["body"] }),
    bodyType,
    ...(response === undefined || response === "" ? {} : { response }),
    timeoutMs: timeout(given["timeout_ms"], place),
    readOnly,
  };
}

function openApiSection(
  name: string,
  given: Readonly<Record<string, unknown>>,
  place: string,
  resolvePath: (path: string) => string,
): OpenApiSection {
  refuseOthers(given, openApiFields, place);
  const document = text(given["openapi"], `${place}.openapi`);
  const include = given["include"] ?? [];
  if (!Array.isArray(include) || !include.every((one): one is string => typeof one === "string" && one.length <= 500))
    throw new Error(`${place}.include: a list of operation ids or of "GET /path" is wanted`);
  const headers = readHeaders(given["headers"], `${place}.headers`);
  if (headers.some(({ pieces }) => pieces.some((piece) => "argument" in piece)))
    throw new Error(`${place}.headers: arguments can't be named here, the document says what there are`);
  const baseUrl = given["base_url"];
  return {
    kind: "openapi",
    name,
    place,
    document: /^https?:/i.test(document) ? document : resolvePath(document),
    include,
    headers,
    ...(baseUrl === undefined ? {} : { baseUrl: plainUrl(text(baseUrl, `${place}.base_url`), `${place}.base_url`) }),
    timeoutMs: timeout(given["timeout_ms"], place),
  };
}

function readParameters(value: unknown, place: string) {
  const schema = value === undefined ? { properties: {}, additionalProperties: false } : mapping(value, place);
  const type = "type" in schema ? schema["type"] : "object";
  if (type !== "object") throw new Error(`${place}: a JSON Schema of the type object is wanted`);
  const properties = "properties" in schema ? mapping(schema["properties"], `${place}.properties`) : {};
  const required = "required" in schema && Array.isArray(schema["required"]) ? schema["required"] : [];
  const parameters = JSON.stringify({ type, ...schema });
  const fault = schemaFault(parameters);
  if (fault !== undefined) throw new Error(`${place}: this is no JSON Schema that can be used: ${fault}`);
  return { parameters, names: Object.keys(properties), required: required.map(String) };
}

/** A URL in which `{name}` stands for an argument, in segments of the path and values of the query alone. */
function readUrlTemplate(template: string, place: string) {
  const found = /^(https?:\/\/[^/?#\\]+)([^?#]*)(?:\?([^#]*))?$/i.exec(template);
  if (found === null) throw new Error(`${place}: an http: or https: URL without # is wanted`);
  const [, origin = "", path = "", query = ""] = found;
  if (/[{}]/.test(origin)) throw new Error(`${place}: no argument may decide the host; name it as it is`);
  const { origin: plain } = new URL(plainUrl(origin, place));
  if (!/^[\x21-\x7e]*$/.test(path + query) || path.includes("\\"))
    throw new Error(`${place}: characters that URLs do not have are wanted in their encoded form (%20)`);
  const segments = path.split("/").slice(1);
  if (segments.some((segment) => /^(?:\.|%2e){1,2}$/i.test(segment)))
    throw new Error(`${place}: "." and ".." are not wanted in the path`);
  const pairs = query
    .split("&")
    .filter((pair) => pair !== "")
    .map((pair): WrittenQuery => {
      const [name = "", ...rest] = pair.split("=");
      if (/[{}]/.test(name)) throw new Error(`${place}: no argument may decide the name of a query parameter`);
      return { name, value: textTemplate(rest.join("=")) };
    });
  return { origin: plain, path: segments.map(textTemplate), query: pairs };
}

/** An origin or the beginning of URLs, without anything that could hide another host. */
function plainUrl(value: string, place: string): string {
  const url = URL.parse(value);
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:"))
    throw new Error(`${place}: an http: or https: URL is wanted`);
  if (url.username !== "" || url.password !== "")
    throw new Error(`${place}: no user and no password may stand in the URL; use headers`);
  if (url.search !== "" || url.hash !== "") throw new Error(`${place}: a URL without ? and # is wanted`);
  return url.href;
}

function readQuery(value: unknown, place: string): WrittenQuery[] {
  if (value === undefined) return [];
  return Object.entries(mapping(value, place)).map(([name, written]) => {
    if (typeof written !== "string" && typeof written !== "number" && typeof written !== "boolean")
      throw new Error(`${place}.${name}: a text is wanted, for example "{name}"`);
    const template = textTemplate(String(written));
    const encoded = template.map((piece) => ("text" in piece ? { text: encodeURIComponent(piece.text) } : piece));
    return { name: encodeURIComponent(name), value: encoded };
  });
}

function readHeaders(value: unknown, place: string): WrittenHeader[] {
  if (value === undefined) return [];
  return Object.entries(mapping(value, place)).map(([name, written]) => {
    if (!/^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/.test(name))
      throw new Error(`${place}: ${JSON.stringify(name)} is no header's name`);
    if (connectionHeaders.has(name.toLowerCase()))
      throw new Error(`${place}.${name} belongs to the connection and can't be set`);
    if (typeof written !== "string" || !/^[\t\x20-\x7e]*$/.test(written))
      throw new Error(`${place}.${name}: a text in ASCII on one line is wanted; put numbers in quotes`);
    const pieces = written
      .split(/(\$\{env:[A-Za-z_][A-Za-z0-9_]*\})/)
      .flatMap((part): WrittenHeader["pieces"] =>
        part.startsWith("${env:") && part.endsWith("}") ? [{ env: part.slice(6, -1) }] : textTemplate(part),
      );
    return { name, pieces };
  });
}

function timeout(value: unknown, place: string): number {
  if (value === undefined) return defaultTimeoutMs;
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= 1 && value <= maxTimeoutMs) return value;
  throw new Error(`${place}.timeout_ms: a whole number from 1 to ${maxTimeoutMs} is wanted`);
}

function text(value: unknown, place: string): string {
  if (typeof value === "string" && value.trim() !== "") return value;
  throw new Error(`${place}: a text is wanted`);
}

function mapping(value: unknown, place: string): Readonly<Record<string, unknown>> {
  if (!isRecord(value)) throw new Error(`${place}: entries as "key: value" are wanted`);
  return value;
}

function refuseOthers(given: Readonly<Record<string, unknown>>, known: readonly string[], place: string): void {
  const other = Object.keys(given).find((key) => !known.includes(key));
  if (other !== undefined) throw new Error(`${place}: there is no ${other}; there are: ${known.join(", ")}`);
}
