import { createHash } from "node:crypto";
import picomatch from "picomatch";
import { parse } from "yaml";
import { isRecord, schemaFault, shortened } from "../check-value.ts";
import { shortName } from "../function-index.ts";
import { filledHeaders, formText, type HeaderTemplate } from "./configured-function.ts";
import type { FunctionRequest, HttpFunction } from "./http-functions.ts";
import { resolved, SchemaReader, TooManyNodes, Unsupported } from "./openapi-schema.ts";
import {
  type Arguments,
  argumentText,
  filledSegment,
  percentEncoded,
  type TextTemplate,
  UnfitArgument,
  valueText,
} from "./template.ts";

type Mapping = Readonly<Record<string, unknown>>;

export interface OpenApiOptions {
  readonly source: string;
  /** Where the document came from, if it was fetched. */
  readonly documentUrl?: URL;
  /** Where its paths begin; default: the first server the document names. */
  readonly baseUrl?: string;
  /** Globs of operation ids, or of methods and paths as `GET /pets/*`; empty for all. */
  readonly include: readonly string[];
  readonly headers: readonly HeaderTemplate[];
  readonly timeoutMs: number;
}

export interface OpenApiFunctions {
  readonly functions: readonly HttpFunction[];
  /** What could not be taken, each a sentence for the operator. */
  readonly diagnostics: readonly string[];
}

const maxJsonCharacters = 16 * 1024 * 1024;
const maxYamlCharacters = 2 * 1024 * 1024;
const maxDocumentDepth = 100;
const maxFunctions = 200;
const maxDescriptionCharacters = 1000;
const methods = ["get", "head", "post", "put", "patch", "delete"] as const;
/** Headers that are none of a function's business, as the specification says, and those of the connection. */
const otherHeaders =
  /^(?:accept|content-type|authorization|host|connection|content-length|transfer-encoding|accept-encoding|cookie|expect|te|trailer|upgrade|proxy-.*|keep-alive)$/i;

/**
 * Reads a description of a service: OpenAPI 3.0 or 3.1, as JSON or YAML.
 * @throws {Error} one sentence when no function can be made of it.
 */
export function openApiFunctions(text: string, options: OpenApiOptions): OpenApiFunctions {
  const document = readDocument(text);
  const version = document["openapi"];
  if (typeof version !== "string" || !/^3\.[01](?:\.|$)/.test(version))
    throw new Error(
      `it is no document of OpenAPI 3.0 or 3.1 (openapi: ${shortened(String(version ?? document["swagger"] ?? "missing"))})`,
    );
  const base = baseOf(document, options);
  const diagnostics: string[] = [];
  const functions: HttpFunction[] = [];
  const wanted = includeFilter(options.include);
  const names = new Set<string>();
  for (const { path, method, item, operation } of operationsOf(document, diagnostics)) {
    const label = `${method.toUpperCase()} ${shortened(path, 200)}`;
    const id = typeof operation["operationId"] === "string" ? operation["operationId"] : "";
    if (!wanted.takes(id, `${method.toUpperCase()} ${path}`)) continue;
    if (functions.length >= maxFunctions) {
      diagnostics.push(`only the first ${maxFunctions} operations are taken; name those you want in include`);
      break;
    }
    try {
      if (isElsewhere(operation["servers"] ?? item["servers"], base, options.documentUrl))
        throw new Unsupported("it has a server of its own; name it as base_url in an entry of its own");
      const name = freeName(names, id === "" ? `${method} ${path.replace(/^\/+/, "")}` : id);
      functions.push(
        functionOf(document, { path, method, item, operation, name, base }, options, (what) =>
          diagnostics.push(`${label}: ${what}`),
        ),
      );
      names.add(name);
    } catch (error) {
      if (!(error instanceof Unsupported)) throw error;
      diagnostics.push(`${label} is left out: ${error.message}`);
    }
  }
  return { functions, diagnostics: [...diagnostics, ...wanted.unused()] };
}

function readDocument(text: string): Mapping {
  const isJson = /^\s*\{/.test(text);
  const most = isJson ? maxJsonCharacters : maxYamlCharacters;
  if (text.length > most)
    throw new Error(`it has ${text.length} characters; at most ${most} are taken${isJson ? "" : ", more as JSON"}`);
  let document: unknown;
  try {
    document = isJson ? JSON.parse(text) : parse(text, { maxAliasCount: 0 });
  } catch (error) {
    const why = error instanceof Error ? shortened(error.message.split("\n", 1)[0] ?? "", 200) : "unreadable";
    throw new Error(`it can't be read: ${why}`, { cause: error });
  }
  if (!isRecord(document)) throw new Error("it is no mapping");
  if (isDeeper(document, maxDocumentDepth)) throw new Error(`it is nested more than ${maxDocumentDepth} levels deep`);
  return document;
}

function isDeeper(value: unknown, levels: number): boolean {
  if (typeof value !== "object" || value === null) return false;
  return levels === 0 || Object.values(value).some((inner) => isDeeper(inner, levels - 1));
}

/** Where the paths of the document begin, without a slash at the end. */
function baseOf(document: Mapping, { baseUrl, documentUrl }: OpenApiOptions): string {
  if (baseUrl !== undefined) return baseUrl.replace(/\/+$/, "");
  const base = serverUrl(document["servers"], documentUrl);
  if (base === undefined) throw new Error("it names no server; set base_url");
  // A document from elsewhere does not decide who gets our headers.
  if (documentUrl !== undefined && new URL(base).origin !== documentUrl.origin)
    throw new Error(`its server is ${new URL(base).host}, not ${documentUrl.host} where it comes from; set base_url`);
  return base;
}

function serverUrl(servers: unknown, documentUrl: URL | undefined): string | undefined {
  const first: unknown = Array.isArray(servers) ? servers[0] : documentUrl === undefined ? undefined : { url: "/" };
  if (!isRecord(first) || typeof first["url"] !== "string") return undefined;
  const variables = isRecord(first["variables"]) ? first["variables"] : {};
  const text = first["url"].replace(/\{([^{}]*)\}/g, (_, name: string) => {
    const variable = Object.hasOwn(variables, name) ? variables[name] : undefined;
    return isRecord(variable) && typeof variable["default"] === "string" ? variable["default"] : "";
  });
  const url = URL.parse(text, documentUrl);
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:")) return undefined;
  if (url.username !== "" || url.password !== "") return undefined;
  return `${url.origin}${url.pathname}`.replace(/\/+$/, "");
}

function isElsewhere(servers: unknown, base: string, documentUrl: URL | undefined): boolean {
  if (!Array.isArray(servers) || servers.length === 0) return false;
  return serverUrl(servers, documentUrl ?? new URL(base)) !== base;
}

interface Operation {
  readonly path: string;
  readonly method: (typeof methods)[number];
  readonly item: Mapping;
  readonly operation: Mapping;
}

function* operationsOf(document: Mapping, diagnostics: string[]): Generator<Operation> {
  const paths = document["paths"];
  for (const [path, written] of Object.entries(isRecord(paths) ? paths : {})) {
    if (!path.startsWith("/")) continue;
    let item: Mapping;
    try {
      item = resolved(document, written);
    } catch (error) {
      if (!(error instanceof Unsupported)) throw error;
      diagnostics.push(`${shortened(path, 200)} is left out: ${error.message}`);
      continue;
    }
    for (const method of methods) {
      const operation = item[method];
      if (isRecord(operation)) yield { path, method, item, operation };
    }
  }
}

function includeFilter(include: readonly string[]) {
  const filters = include.map((pattern) => ({ pattern, matches: picomatch(pattern, { dot: true }), used: false }));
  return {
    takes(id: string, methodAndPath: string): boolean {
      let taken = filters.length === 0;
      for (const filter of filters) {
        const { pattern, matches } = filter;
        if (pattern !== methodAndPath && pattern !== id && !(id !== "" && matches(id)) && !matches(methodAndPath))
          continue;
        filter.used = true;
        taken = true;
      }
      return taken;
    },
    unused: () =>
      filters
        .filter(({ used }) => !used)
        .map(({ pattern }) => `nothing in it is called ${shortened(pattern)} (include)`),
  };
}

function freeName(taken: ReadonlySet<string>, wanted: string): string {
  const plain = wanted.replace(/[^A-Za-z0-9_-]+/g, "_").replace(/^[_-]+|[_-]+$/g, "");
  const base = /^[A-Za-z]/.test(plain) ? plain : `operation_${plain}`;
  for (let count = 1; ; count++) {
    const name = shortName(count === 1 ? base : `${base}_${count}`);
    if (!taken.has(name)) return name;
  }
}

type Place = "path" | "query" | "header" | "body";

/** A parameter and the argument it comes from. */
interface Parameter {
  readonly place: Place;
  readonly name: string;
  readonly argument: string;
  readonly required: boolean;
  readonly explode: boolean;
  readonly asJson: boolean;
  readonly schema: unknown;
  readonly description: string;
}

interface FoundOperation extends Operation {
  readonly name: string;
  readonly base: string;
}

function functionOf(
  document: Mapping,
  found: FoundOperation,
  { source, headers, timeoutMs }: OpenApiOptions,
  diagnose: (what: string) => void,
): HttpFunction {
  const { path, method, operation, name, base } = found;
  const parameters = parametersOf(document, found, diagnose);
  const body = method === "get" || method === "head" ? undefined : bodyOf(document, operation, parameters);
  const inOrder = body === undefined ? parameters : [...parameters, body.parameter];
  const schema = parametersSchema(document, inOrder);
  const fault = schemaFault(schema);
  if (fault !== undefined) throw new Unsupported(`its schemas cannot be used: ${fault}`);
  const segments = pathTemplate(path, parameters);
  const texts = [operation["summary"], operation["description"]].filter(
    (one) => typeof one === "string" && one.trim() !== "",
  );
  const description = texts.length === 0 ? `${method.toUpperCase()} ${path}` : texts.join("\n");
  const digest = { method, path, base, schema, body: body?.type, places: inOrder.map((one) => [one.place, one.name]) };
  return {
    definition: {
      name,
      description: shortened(description, maxDescriptionCharacters),
      parameters: schema,
      source,
      readOnly: method === "get" || method === "head",
      openWorld: true,
      timeoutMs,
      digest: createHash("sha256").update(JSON.stringify(digest)).digest("hex"),
    },
    requestFor(given): FunctionRequest {
      const query = parameters.filter(({ place }) => place === "query").flatMap((one) => queryPairs(one, given));
      const end = query.length === 0 ? "" : `?${query.join("&")}`;
      const content = body === undefined ? undefined : given[body.parameter.argument];
      const sent = body === undefined || content === undefined ? undefined : body.encode(content);
      return {
        method: method.toUpperCase(),
        url: `${base}/${segments.map((segment) => filledSegment(segment, listsAsText(parameters, given))).join("/")}${end}`,
        headers: {
          ...filledHeaders(headerTemplates(parameters), listsAsText(parameters, given)),
          ...(sent === undefined || body === undefined ? {} : { "content-type": body.type }),
          ...filledHeaders(headers, {}),
        },
        ...(sent === undefined ? {} : { body: sent }),
      };
    },
  };
}

/** Segments of the path, in which `{name}` may be any name, not only one that a template takes. */
function pathTemplate(path: string, parameters: readonly Parameter[]): TextTemplate[] {
  if (!/^[\x21-\x7e]*$/.test(path) || /[?#\\]/.test(path))
    throw new Unsupported("its path has characters that no path has");
  return path
    .split("/")
    .slice(1)
    .map((segment) => {
      if (/^(?:\.|%2e){1,2}$/i.test(segment)) throw new Unsupported('its path has "." or ".."');
      return segment
        .split(/(\{[^{}]*\})/)
        .filter((part) => part !== "")
        .map((part) => {
          if (!part.startsWith("{")) return { text: part };
          const name = part.slice(1, -1);
          const parameter = parameters.find((one) => one.place === "path" && one.name === name);
          if (parameter === undefined)
            throw new Unsupported(`its path has {${shortened(name)}}, which is no parameter`);
          return { argument: parameter.argument };
        });
    });
}

function headerTemplates(parameters: readonly Parameter[]): HeaderTemplate[] {
  return parameters
    .filter(({ place }) => place === "header")
    .map(({ name, argument }) => ({ name, value: [{ argument }] }));
}

/** The style "simple" of paths and headers: items with commas between. */
function listsAsText(parameters: readonly Parameter[], given: Arguments): Arguments {
  const entries = parameters
    .filter(({ place }) => place === "path" || place === "header")
    .map(({ argument }): [string, unknown] => {
      const value = Object.hasOwn(given, argument) ? given[argument] : undefined;
      return [argument, Array.isArray(value) ? value.map((item) => valueText(item) ?? "").join(",") : value];
    });
  return Object.fromEntries(entries);
}

function queryPairs({ name, argument, explode, asJson }: Parameter, given: Arguments): string[] {
  const value = Object.hasOwn(given, argument) ? given[argument] : undefined;
  if (value === undefined) return [];
  const pair = (text: string) => `${encodeURIComponent(name)}=${percentEncoded(argument, text)}`;
  if (asJson) return [pair(JSON.stringify(value))];
  if (!Array.isArray(value)) {
    const text = argumentText(given, argument);
    return text === undefined ? [] : [pair(text)];
  }
  const texts = value.map((item) => valueText(item) ?? "");
  if (explode) return texts.map(pair);
  const encoded = texts.map((text) => percentEncoded(argument, text));
  return encoded.length === 0 ? [] : [`${encodeURIComponent(name)}=${encoded.join(",")}`];
}

function parametersOf(
  document: Mapping,
  { item, operation }: Operation,
  diagnose: (what: string) => void,
): Parameter[] {
  const byKey = new Map<string, Mapping>();
  for (const list of [item["parameters"], operation["parameters"]]) {
    for (const written of Array.isArray(list) ? list : []) {
      const parameter = resolved(document, written);
      byKey.set(`${parameter["in"]} ${parameter["name"]}`, parameter);
    }
  }
  const parameters: Parameter[] = [];
  const taken = new Set<string>();
  for (const written of byKey.values()) {
    const required = written["required"] === true || written["in"] === "path";
    try {
      const parameter = readParameter(document, written, required);
      if (parameter === undefined) continue;
      const argument = argumentName(taken, parameter.name, parameter.place);
      taken.add(argument);
      parameters.push({ ...parameter, argument });
    } catch (error) {
      if (!(error instanceof Unsupported) || required) throw error;
      diagnose(`the parameter ${shortened(String(written["name"]))} is left out: ${error.message}`);
    }
  }
  return parameters;
}

function readParameter(
  document: Mapping,
  written: Mapping,
  required: boolean,
): Omit<Parameter, "argument"> | undefined {
  const { name, in: place, content } = written;
  if (typeof name !== "string" || name === "" || name.length > 200 || !name.isWellFormed())
    throw new Unsupported("a parameter of it has no name");
  if (place !== "path" && place !== "query" && place !== "header")
    throw new Unsupported(`${shortened(name)} goes into the ${shortened(String(place))}, which is not supported`);
  if (place === "header" && otherHeaders.test(name)) return undefined;
  if (place === "header" && !/^[A-Za-z0-9!#$%&'*+.^_`|~-]+$/.test(name))
    throw new Unsupported(`${shortened(name)} is no header's name`);
  const style = written["style"] ?? (place === "query" ? "form" : "simple");
  if (style !== (place === "query" ? "form" : "simple"))
    throw new Unsupported(`${shortened(name)} has the style ${shortened(String(style))}, which is not supported`);
  const json = isRecord(content) ? content["application/json"] : undefined;
  if (isRecord(content) && (!isRecord(json) || place !== "query"))
    throw new Unsupported(`${shortened(name)} has a content that is not supported`);
  const schema = isRecord(json) ? (json["schema"] ?? {}) : (written["schema"] ?? {});
  const isObject = isRecord(schema) && isRecord(resolved(document, schema)) && mayBeObject(resolved(document, schema));
  if (!isRecord(json) && isObject)
    throw new Unsupported(`${shortened(name)} is an object, which is not supported there`);
  const { description } = written;
  return {
    place,
    name,
    required,
    explode: typeof written["explode"] === "boolean" ? written["explode"] : style === "form",
    asJson: isRecord(json),
    schema,
    description: typeof description === "string" ? shortened(description.trim(), 300) : "",
  };
}

function mayBeObject(schema: Mapping): boolean {
  const { type } = schema;
  return (
    type === "object" ||
    (Array.isArray(type) && type.includes("object")) ||
    (type === undefined && isRecord(schema["properties"]))
  );
}

function argumentName(taken: ReadonlySet<string>, name: string, place: Place): string {
  const plain = name.replace(/[^A-Za-z0-9_-]/g, "_").slice(0, 60);
  if (!taken.has(plain)) return plain;
  for (let count = 1; ; count++) {
    const candidate = `${plain.slice(0, 50)}_${place}${count === 1 ? "" : `_${count}`}`;
    if (!taken.has(candidate)) return candidate;
  }
}

function bodyOf(document: Mapping, operation: Mapping, parameters: readonly Parameter[]) {
  if (operation["requestBody"] === undefined) return undefined;
  const written = resolved(document, operation["requestBody"]);
  const content = isRecord(written["content"]) ? written["content"] : {};
  const types = Object.keys(content);
  const json = types.find((type) => /^application\/(?:[\w.-]+\+)?json(?:\s*;.*)?$/i.test(type));
  const type = json ?? types.find((one) => one.toLowerCase() === "application/x-www-form-urlencoded");
  const required = written["required"] === true;
  if (type === undefined) {
    if (types.length === 0 || !required) return undefined;
    throw new Unsupported(`it wants a body of the type ${shortened(types.join(", "))}, which is not supported`);
  }
  const media = content[type];
  const { description } = written;
  const parameter: Parameter = {
    place: "body",
    name: "body",
    argument: argumentName(new Set(parameters.map(({ argument }) => argument)), "body", "body"),
    required,
    explode: false,
    asJson: true,
    schema: isRecord(media) ? (media["schema"] ?? {}) : {},
    description: typeof description === "string" ? shortened(description.trim(), 300) : "",
  };
  const isJson = json !== undefined;
  const encode = (value: unknown) => {
    if (isJson) return JSON.stringify(value);
    if (!isRecord(value)) throw new UnfitArgument(`"${parameter.argument}" must be an object`);
    return formText(value);
  };
  return { parameter, type, encode };
}

function parametersSchema(document: Mapping, parameters: readonly Parameter[]): string {
  try {
    return schemaWith(new SchemaReader(document, false), parameters);
  } catch (error) {
    if (!(error instanceof TooManyNodes)) throw error;
  }
  try {
    return schemaWith(new SchemaReader(document, true), parameters);
  } catch (error) {
    if (error instanceof TooManyNodes) throw new Unsupported("its schemas are too large");
    throw error;
  }
}

function schemaWith(reader: SchemaReader, parameters: readonly Parameter[]): string {
  const properties = parameters.map(({ argument, schema, description }): [string, unknown] => {
    const made = reader.read(schema);
    return [argument, isRecord(made) && description !== "" ? { ...made, description } : made];
  });
  const required = parameters.filter((one) => one.required).map(({ argument }) => argument);
  const definitions = reader.definitions;
  return JSON.stringify({
    type: "object",
    properties: Object.fromEntries(properties),
    ...(required.length === 0 ? {} : { required }),
    additionalProperties: false,
    ...(Object.keys(definitions).length === 0 ? {} : { $defs: definitions }),
  });
}
