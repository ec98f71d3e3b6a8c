import type { ChatRequest } from "../chat/request.ts";
import { type Dialect, dialects } from "../dialect/dialect.ts";
import { defaultQuirks, type Quirks } from "../dialect/quirks.ts";
import { type Credentials, isSecret, secretsOfHeaders } from "./credentials.ts";
import type { SendHttp } from "./http-request.ts";
import { keyRing } from "./key-ring.ts";
import type { ProviderSpec } from "./provider-spec.ts";

/** A provider as it was configured. Holds keys, so it never leaves this room. */
export interface Endpoint {
  readonly provider: string;
  readonly dialect: Dialect;
  /** Where it is asked, unless a credential names another place; without the dialect's path, user and password. */
  readonly baseUrl: URL;
  /** Sent with each request. */
  readonly headers: Readonly<Record<string, string>>;
  readonly headersFor?: (request: ChatRequest) => Readonly<Record<string, string>>;
  /** Those the operator wants; they win over all others. */
  readonly ownHeaders: Readonly<Record<string, string>>;
  readonly credentials: Credentials;
  /** The environment variable its key is read from, for messages; absent where there is none. */
  readonly apiKeyEnv?: string;
  /** Texts that no message may hold, besides those of the credentials. */
  readonly secrets: readonly string[];
  readonly send: SendHttp;
  /** The same object for models that are alike. */
  quirksOf(model: string): Quirks;
}

/** What is missing, as the end of a sentence about the provider. */
export interface Unconfigured {
  readonly missing: string;
}

/** The endpoint, where it has all it needs to be called just now. */
export function configuredEndpoint(endpoint: Endpoint | Unconfigured | undefined): Endpoint | Unconfigured {
  if (endpoint === undefined) return { missing: "is not configured" };
  const missing = "missing" in endpoint ? endpoint.missing : endpoint.credentials.missing?.();
  return missing === undefined ? endpoint : { missing };
}

export function isConfigured(endpoint: Endpoint | Unconfigured | undefined): endpoint is Endpoint {
  return !("missing" in configuredEndpoint(endpoint));
}

/** What an operator may set for one provider; wins over the environment. */
export interface ProviderSettings {
  /** A key, or several with commas between them: the next one is used when one is limited. */
  readonly apiKey?: string;
  /** With the version part the vendor's clients expect, for example `https://api.openai.com/v1`. */
  readonly baseUrl?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly quirks?: Partial<Quirks>;
}

export interface EndpointMeans {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly send: SendHttp;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  /** In place of keys, for a provider that is not let in with one. */
  readonly credentials?: Credentials;
  /** Nothing goes to the provider: no address is needed, and keys are not looked at. */
  readonly replayed?: boolean;
}

/** The key goes to the host of the base URL it was configured with and nowhere else. */
export function endpointOf(
  spec: ProviderSpec,
  settings: ProviderSettings,
  { env, send, now, credentials, replayed = false }: EndpointMeans,
): Endpoint | Unconfigured {
  const fromEnv = (name: string | undefined) => (name === undefined ? undefined : env[name]?.trim() || undefined);
  const keys = replayed ? [] : (keysFrom(settings.apiKey) ?? keysFrom(fromEnv(spec.apiKeyEnv)) ?? []);
  const nowhere = replayed ? "http://replayed.invalid" : undefined;
  const baseUrl = settings.baseUrl?.trim() || fromEnv(spec.baseUrlEnv) || spec.baseUrl || nowhere;
  if (baseUrl === undefined) return { missing: `has no base URL; set ${spec.baseUrlEnv ?? "its baseUrl"}` };
  const url = URL.parse(baseUrl);
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:")) {
    return { missing: `has a base URL that is no http: or https: URL; correct ${spec.baseUrlEnv ?? "its baseUrl"}` };
  }
  const keyName = spec.apiKeyEnv ?? "its apiKey";
  if (keys.length === 0 && spec.keyRequired && credentials === undefined && !replayed)
    return { missing: `has no key; set ${keyName}` };
  if (keys.some((key) => !/^[\x21-\x7e]+$/.test(key)))
    return { missing: `has a key with characters that no header can carry; correct ${keyName}` };
  const login =
    url.username === "" && url.password === ""
      ? undefined
      : `${percentDecoded(url.username)}:${percentDecoded(url.password)}`;
  const basic = login === undefined ? undefined : Buffer.from(login).toString("base64");
  const passwords = [url.password, percentDecoded(url.password), basic].filter(isSecret);
  url.username = "";
  url.password = "";
  url.hash = "";
  const inHeader = spec.auth ?? "bearer";
  const headersOf = (key: string): Record<string, string> =>
    inHeader === "x-api-key" ? { "x-api-key": key } : { authorization: `Bearer ${key}` };
  return {
    provider: spec.id,
    dialect: dialects[spec.dialect],
    baseUrl: url,
    headers: {
      ...(basic === undefined ? {} : { authorization: `Basic ${basic}` }),
      ...spec.headers,
    },
    ...(spec.headersFor === undefined ? {} : { headersFor: spec.headersFor }),
    ...(spec.apiKeyEnv === undefined ? {} : { apiKeyEnv: spec.apiKeyEnv }),
    credentials: credentials ?? keyRing(keys, headersOf, now),
    secrets: [...passwords, ...secretsOfHeaders(settings.headers ?? {})],
    send,
    ownHeaders: lowerCaseNames(settings.headers ?? {}),
    quirksOf: quirksByTraits(spec, settings.quirks ?? {}),
  };
}

/** What a person can do about a refused credential. */
export function authAdvice({ apiKeyEnv }: Endpoint): string {
  return `check ${apiKeyEnv ?? "its key or login"}`;
}

/** Address of a call below a base URL. */
export function urlBelow(baseUrl: URL, path: string): URL {
  const url = new URL(baseUrl);
  url.pathname = `${url.pathname.replace(/\/+$/, "")}${path}`;
  return url;
}

function keysFrom(text: string | undefined): string[] | undefined {
  const keys = (text ?? "").split(",").flatMap((key) => key.trim() || []);
  return keys.length === 0 ? undefined : keys;
}

/** Dialects keep what they have written by the quirks it was written for, so models that are alike share one object. */
function quirksByTraits(spec: ProviderSpec, own: Partial<Quirks>): (model: string) => Quirks {
  const known = new Map<string, Quirks>();
  return (model) => {
    const fitting = (spec.traits ?? []).filter(({ models, quirks }) => quirks !== undefined && models.test(model));
    const likeness = fitting.map(({ models }) => models.source).join(" ");
    let quirks = known.get(likeness);
    if (quirks === undefined) {
      quirks = { ...defaultQuirks, ...spec.quirks };
      for (const traits of fitting) quirks = { ...quirks, ...traits.quirks };
      quirks = { ...quirks, ...own };
      known.set(likeness, quirks);
    }
    return quirks;
  };
}

function percentDecoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function lowerCaseNames(headers: Readonly<Record<string, string>>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
}
