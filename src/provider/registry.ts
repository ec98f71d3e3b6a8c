import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { AgentError } from "../chat/error.ts";
import type { ChatEvent } from "../chat/event.ts";
import type { ChatRequest } from "../chat/request.ts";
import { type DialectId, dialects } from "../dialect/dialect.ts";
import { defaultQuirks, type Quirks } from "../dialect/quirks.ts";
import { anthropic } from "./anthropic.ts";
import { deepseek } from "./deepseek.ts";
import { forward } from "./forward.ts";
import { createHttpSender, type SendHttp } from "./http-request.ts";
import { kimi } from "./kimi.ts";
import { openai } from "./openai.ts";
import { openaiResponses } from "./openai-responses.ts";
import type { ProviderSpec } from "./provider-spec.ts";
import { createScriptedSender, scripted } from "./scripted.ts";
import { type CallMeans, defaultTimeouts, type Endpoint, streamChat, type UpstreamTimeouts } from "./stream-chat.ts";

/** Every provider there is without being configured. */
export const providerSpecs = [
  openai,
  openaiResponses,
  anthropic,
  deepseek,
  kimi,
  forward,
  scripted,
] as const satisfies readonly ProviderSpec[];
export type ProviderId = (typeof providerSpecs)[number]["id"];

/** What an operator may set for one provider; wins over the environment. */
export interface ProviderSettings {
  readonly apiKey?: string;
  /** With the version part the vendor's clients expect, for example `https://api.openai.com/v1`. */
  readonly baseUrl?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly quirks?: Partial<Quirks>;
}

/** An endpoint of the operator's own, used as `<id>/model`. */
export interface NamedEndpoint {
  readonly spec: ProviderSpec;
  readonly settings: ProviderSettings;
}

export interface ProviderRegistrySettings {
  /** Endpoints besides the known providers; their ids differ from those and from each other. */
  readonly endpoints?: readonly NamedEndpoint[];
  readonly providers?: { readonly [Id in ProviderId]?: ProviderSettings };
  /** Path of the script that the provider `scripted` answers from; it is read once. */
  readonly scripted?: { readonly file: string };
  readonly timeouts?: Partial<UpstreamTimeouts>;
}

export interface ProviderRegistryOptions extends Partial<CallMeans> {
  readonly settings?: ProviderRegistrySettings;
  /** Where keys and base URLs are looked up, for example `process.env`. Read once. */
  readonly env: Readonly<Record<string, string | undefined>>;
}

export interface ProviderInfo {
  readonly id: string;
  readonly dialect: DialectId;
  /** It has all it needs to be called. */
  readonly configured: boolean;
  readonly features: readonly string[];
}

/** A model that can be called. */
export interface ResolvedModel {
  readonly provider: string;
  /** The model's own name, without its provider. */
  readonly model: string;
  readonly dialect: DialectId;
  readonly features: readonly string[];
}

export interface StreamChatOptions {
  /** Destroys the call's connection; the generator then throws the signal's reason. */
  readonly signal: AbortSignal;
  readonly timeouts?: Partial<UpstreamTimeouts>;
}

export interface ProviderRegistry {
  list(): ProviderInfo[];
  /**
   * @param model `provider/model`; the model part may hold slashes.
   * @throws {AgentError} `not_found` for a provider nobody knows or an empty model part, `failed_precondition` for no
   * model at all or a provider that lacks its key or base URL.
   */
  resolve(model: string): ResolvedModel;
  /**
   * One model call. `request.model` is not looked at: the resolved model is asked.
   * @throws {AgentError} see `streamChat`.
   */
  streamChat(resolved: ResolvedModel, request: ChatRequest, options: StreamChatOptions): AsyncGenerator<ChatEvent[]>;
  /** Closes the connections that are kept. */
  close(): void;
}

/**
 * @throws {AgentError} `invalid_request` for a script that cannot be read. What is wrong with a key or a base URL is
 * told by `resolve`, so that the others can be used.
 */
export function createProviderRegistry(options: ProviderRegistryOptions): ProviderRegistry {
  const settings = options.settings ?? {};
  const means: CallMeans = {
    delay: options.delay ?? (async (delayMs, signal) => wait(delayMs, undefined, { signal })),
    random: options.random ?? Math.random,
    now: options.now ?? Date.now,
    createToolCallId: options.createToolCallId ?? (() => `call_${randomUUID()}`),
  };
  const http = createHttpSender();
  const script = settings.scripted === undefined ? undefined : readScript(settings.scripted.file, means);
  const endpoints = new Map<string, Endpoint | Unconfigured>();
  const named = settings.endpoints ?? [];
  const specs: readonly ProviderSpec[] = [...providerSpecs, ...named.map(({ spec }) => spec)];
  for (const { spec, settings: own } of named) endpoints.set(spec.id, endpointOf(spec, own, options.env, http.send));
  for (const spec of providerSpecs) {
    const send: SendHttp | undefined = spec.id === scripted.id ? script : http.send;
    endpoints.set(
      spec.id,
      send === undefined
        ? { missing: "has no script; set scripted.file" }
        : endpointOf(spec, settings.providers?.[spec.id] ?? {}, options.env, send),
    );
  }
  return {
    list: () =>
      specs.map(({ id, dialect, features }) => ({
        id,
        dialect,
        features,
        configured: isConfigured(endpoints.get(id)),
      })),
    resolve(model) {
      if (model === "")
        throw new AgentError("failed_precondition", "no model is configured; name one as provider/model");
      const slash = model.indexOf("/");
      const word = slash === -1 ? model : model.slice(0, slash);
      const name = slash === -1 ? "" : model.slice(slash + 1);
      const spec = specs.find(({ id }) => id === word);
      if (spec === undefined || name === "") {
        const what = spec === undefined ? "has no known provider" : `names no model of ${spec.id}`;
        const ids = specs.map(({ id }) => id).join(", ");
        throw new AgentError(
          "not_found",
          `the model ${JSON.stringify(model.slice(0, 100))} ${what}; write provider/model, with one of the providers ${ids}`,
        );
      }
      const { id, dialect, features } = spec;
      const endpoint = endpoints.get(id);
      if (!isConfigured(endpoint)) {
        throw new AgentError("failed_precondition", `the provider ${id} ${endpoint?.missing ?? "is not configured"}`, {
          detail: { provider: id },
        });
      }
      return { provider: id, model: name, dialect, features };
    },
    streamChat(resolved, request, { signal, timeouts }) {
      const endpoint = endpoints.get(resolved.provider);
      if (!isConfigured(endpoint)) throw new Error(`the provider ${resolved.provider} was not resolved here`);
      const limits = { ...defaultTimeouts, ...settings.timeouts, ...timeouts };
      return streamChat(endpoint, { ...request, model: resolved.model }, signal, limits, means);
    },
    close: () => http.close(),
  };
}

/** What is missing, as the end of a sentence about the provider. */
interface Unconfigured {
  readonly missing: string;
}

function isConfigured(endpoint: Endpoint | Unconfigured | undefined): endpoint is Endpoint {
  return endpoint !== undefined && !("missing" in endpoint);
}

/** The key goes to the host of the base URL it was configured with and nowhere else. */
function endpointOf(
  spec: ProviderSpec,
  settings: ProviderSettings,
  env: Readonly<Record<string, string | undefined>>,
  send: SendHttp,
): Endpoint | Unconfigured {
  const fromEnv = (name: string | undefined) => (name === undefined ? undefined : env[name]?.trim() || undefined);
  const key = settings.apiKey?.trim() || fromEnv(spec.apiKeyEnv);
  const baseUrl = settings.baseUrl?.trim() || fromEnv(spec.baseUrlEnv) || spec.baseUrl;
  if (baseUrl === undefined) return { missing: `has no base URL; set ${spec.baseUrlEnv ?? "its baseUrl"}` };
  const url = URL.parse(baseUrl);
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:")) {
    return { missing: `has a base URL that is no http: or https: URL; correct ${spec.baseUrlEnv ?? "its baseUrl"}` };
  }
  if (key === undefined && spec.keyRequired) return { missing: `has no key; set ${spec.apiKeyEnv ?? "its apiKey"}` };
  if (key !== undefined && !/^[\x21-\x7e]+$/.test(key)) {
    return { missing: `has a key with characters that no header can carry; correct ${spec.apiKeyEnv ?? "its apiKey"}` };
  }
  const login =
    url.username === "" && url.password === ""
      ? undefined
      : `${percentDecoded(url.username)}:${percentDecoded(url.password)}`;
  const basic = login === undefined ? undefined : Buffer.from(login).toString("base64");
  const secrets = [key, key && encodeURIComponent(key), url.password, percentDecoded(url.password), basic];
  secrets.push(...Object.values(settings.headers ?? {}));
  url.username = "";
  url.password = "";
  url.hash = "";
  const dialect = dialects[spec.dialect];
  url.pathname = `${url.pathname.replace(/\/+$/, "")}${dialect.path}`;
  const keyHeader: Record<string, string> =
    key === undefined ? {} : spec.auth === "x-api-key" ? { "x-api-key": key } : { authorization: `Bearer ${key}` };
  return {
    provider: spec.id,
    dialect,
    quirks: { ...defaultQuirks, ...spec.quirks, ...settings.quirks },
    url,
    headers: {
      ...(basic === undefined ? {} : { authorization: `Basic ${basic}` }),
      ...keyHeader,
      ...spec.headers,
      ...lowerCaseNames(settings.headers ?? {}),
    },
    secrets: secrets.filter((secret): secret is string => secret !== undefined && secret.length >= 4),
    send,
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

function readScript(file: string, means: CallMeans): SendHttp {
  let text: string;
  try {
    text = readFileSync(file, "utf8");
  } catch (error) {
    const code = error instanceof Error && "code" in error ? String(error.code) : "unknown error";
    throw new AgentError("invalid_request", `scripted.file: ${file} cannot be read (${code})`, { cause: error });
  }
  return createScriptedSender(text, means.delay);
}
