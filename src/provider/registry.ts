import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { AgentError, invalidField } from "../chat/error.ts";
import type { ChatEvent } from "../chat/event.ts";
import { type Feature, features } from "../chat/feature.ts";
import type { ChatRequest } from "../chat/request.ts";
import { type DialectId, dialects } from "../dialect/dialect.ts";
import { anthropic } from "./anthropic.ts";
import { type CircuitLimits, Circuits, defaultCircuitLimits } from "./circuit.ts";
import { copilot } from "./copilot.ts";
import { createCopilotCredentials } from "./copilot-credentials.ts";
import { countTokens } from "./count-tokens.ts";
import { deepseek } from "./deepseek.ts";
import {
  configuredEndpoint,
  type Endpoint,
  endpointOf,
  isConfigured,
  type ProviderSettings,
  type Unconfigured,
} from "./endpoint.ts";
import { forward } from "./forward.ts";
import { createHttpSender, type SendHttp } from "./http-request.ts";
import { kimi } from "./kimi.ts";
import { openai } from "./openai.ts";
import { openaiResponses } from "./openai-responses.ts";
import type { ProviderSpec } from "./provider-spec.ts";
import { type RecordMeans, recordExchanges } from "./record-exchanges.ts";
import { replayExchanges } from "./replay-exchanges.ts";
import { createScriptedSender, scripted } from "./scripted.ts";
import { type CallMeans, defaultTimeouts, streamChat, type UpstreamTimeouts } from "./stream-chat.ts";
import { type ProviderCheck, type ValidateOptions, validateProvider } from "./validate-provider.ts";

/** Every provider there is without being configured. */
export const providerSpecs = [
  openai,
  openaiResponses,
  anthropic,
  deepseek,
  kimi,
  copilot,
  forward,
  scripted,
] as const satisfies readonly ProviderSpec[];
export type ProviderId = (typeof providerSpecs)[number]["id"];

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
  /** The data directory, where logins are kept. */
  readonly dataDir?: string;
  /** A folder that gets a cassette of each exchange with a provider. */
  readonly record?: { readonly directory: string; readonly report: RecordMeans["report"] };
  /** A folder of cassettes to answer from, in place of all providers but `scripted`; none needs a key then. */
  readonly replay?: { readonly directory: string };
  readonly timeouts?: Partial<UpstreamTimeouts>;
  readonly circuit?: Partial<CircuitLimits>;
}

export interface ProviderRegistryOptions extends Partial<CallMeans> {
  readonly settings?: ProviderRegistrySettings;
  /** Where keys and base URLs are looked up, for example `process.env`. Read once. */
  readonly env: Readonly<Record<string, string | undefined>>;
}

export interface ProviderInfo {
  readonly id: string;
  /** Its name for people. */
  readonly displayName: string;
  readonly dialect: DialectId;
  /** Where it is asked, without credentials and query; absent where it has no address. */
  readonly baseUrl?: string;
  /** The environment variable its key is read from; never the key. */
  readonly apiKeyEnv?: string;
  /** It has all it needs to be called. */
  readonly configured: boolean;
  /** What its models can be asked for, where nothing else is said of one. */
  readonly features: readonly Feature[];
}

/** A model that can be called. */
export interface ResolvedModel {
  readonly provider: string;
  /** The model's own name, without its provider. */
  readonly model: string;
  readonly dialect: DialectId;
  readonly features: readonly Feature[];
}

export interface StreamChatOptions {
  /** Destroys the call's connection; the generator then throws the signal's reason. */
  readonly signal: AbortSignal;
  readonly timeouts?: Partial<UpstreamTimeouts>;
  /** Longest wait before another try, in milliseconds; default a minute. */
  readonly maxWaitMs?: number;
}

export interface ProviderRegistry {
  list(): ProviderInfo[];
  /** Adds an endpoint or puts it in the place of the one with its id; calls under way end as they began. */
  put(endpoint: NamedEndpoint): void;
  /** Of the providers there are without being configured none can be removed. */
  remove(provider: string): void;
  /**
   * @param model `provider/model`; the model part may hold slashes.
   * @throws {AgentError} `not_found` for a provider nobody knows or an empty model part, `failed_precondition` for no
   * model at all or a provider that lacks its key or base URL.
   */
  resolve(model: string): ResolvedModel;
  /**
   * The models of a list with commas between, in its order: the first is asked, the others when it cannot answer.
   * @throws {AgentError} as `resolve`, and `invalid_request` for an empty entry or more than eight of them.
   */
  resolveAll(models: string): readonly [ResolvedModel, ...ResolvedModel[]];
  /** What a model can be asked for; of a provider nobody knows nothing. */
  featuresOf(provider: string, model: string): readonly Feature[];
  /**
   * Refuses what a model cannot be asked at all, without asking it.
   * @param messages those that are new
   * @throws {AgentError} `invalid_request` that names the field.
   */
  check(resolved: ResolvedModel, request: Pick<ChatRequest, "messages" | "tools" | "options">): void;
  /** Why a model cannot be asked now, after it failed again and again; undefined when it can. */
  refusal(resolved: ResolvedModel): AgentError | undefined;
  /**
   * One model call. `request.model` is not looked at: the resolved model is asked.
   * @throws {AgentError} see `streamChat`.
   */
  streamChat(resolved: ResolvedModel, request: ChatRequest, options: StreamChatOptions): AsyncGenerator<ChatEvent[]>;
  /**
   * Asks a provider once whether it answers; that it does not is an answer.
   * @param model the model's own name, to be asked for one word; empty for the cheapest question there is.
   */
  validate(provider: string, model: string, options: Omit<ValidateOptions, "answersItself">): Promise<ProviderCheck>;
  /**
   * How many tokens a request is, by its provider; nothing where that one does not tell. `request.model` is not looked at.
   * @throws {AgentError} see `countTokens`.
   */
  countTokens(resolved: ResolvedModel, request: ChatRequest, signal: AbortSignal): Promise<number | undefined>;
  /** Closes the connections that are kept. */
  close(): void;
}

/**
 * @throws {AgentError} `invalid_request` for a script that cannot be read. What is wrong with a key or a base URL is
 * told by `resolve`, so that the others can be used.
 */
export function createProviderRegistry(options: ProviderRegistryOptions): ProviderRegistry {
  const settings = options.settings ?? {};
  const replayed = settings.replay !== undefined;
  const delay: CallMeans["delay"] = options.delay ?? (async (delayMs, signal) => wait(delayMs, undefined, { signal }));
  const means: CallMeans = {
    // What a provider wants to be waited for was waited for when it was recorded.
    delay: replayed ? async (_, signal) => signal.throwIfAborted() : delay,
    random: options.random ?? Math.random,
    now: options.now ?? Date.now,
    createToolCallId: options.createToolCallId ?? (() => `call_${randomUUID()}`),
  };
  const http = createHttpSender();
  const send = senderOf(settings, http.send);
  const copilotCredentials = () =>
    createCopilotCredentials({
      env: options.env,
      now: means.now,
      ...(settings.dataDir === undefined ? {} : { dataDir: settings.dataDir }),
      ...(settings.providers?.copilot === undefined ? {} : { settings: settings.providers.copilot }),
    });
  const circuits = new Circuits(
    { ...defaultCircuitLimits, ...settings.circuit, ...(replayed ? { failures: 0 } : {}) },
    means.now,
  );
  const script = settings.scripted === undefined ? undefined : readScript(settings.scripted.file, { ...means, delay });
  const endpoints = new Map<string, Endpoint | Unconfigured>();
  const named = settings.endpoints ?? [];
  const specs = new Map<string, ProviderSpec>();
  const add = (spec: ProviderSpec, own: ProviderSettings, send: SendHttp | undefined): void => {
    specs.set(spec.id, spec);
    endpoints.set(
      spec.id,
      send === undefined
        ? { missing: "has no script; set scripted.file" }
        : endpointOf(spec, own, {
            env: options.env,
            send,
            now: means.now,
            replayed,
            ...(spec.id === copilot.id && !replayed ? { credentials: copilotCredentials() } : {}),
          }),
    );
  };
  for (const spec of providerSpecs)
    add(spec, settings.providers?.[spec.id] ?? {}, spec.id === scripted.id ? script : send);
  for (const { spec, settings: own } of named) add(spec, own, send);

  const featuresOf = (provider: string, model: string): readonly Feature[] => {
    const spec = specs.get(provider);
    if (spec === undefined) return [];
    const has = new Set(spec.features);
    for (const { models, adds = [], lacks = [] } of spec.traits ?? []) {
      if (!models.test(model)) continue;
      for (const feature of adds) has.add(feature);
      for (const feature of lacks) has.delete(feature);
    }
    return features.filter((feature) => has.has(feature));
  };
  const resolve = (model: string): ResolvedModel => {
    if (model === "") throw new AgentError("failed_precondition", "no model is configured; name one as provider/model");
    const slash = model.indexOf("/");
    const word = slash === -1 ? model : model.slice(0, slash);
    const name = slash === -1 ? "" : model.slice(slash + 1);
    const spec = specs.get(word);
    if (spec === undefined || name === "") {
      const what = spec === undefined ? "has no known provider" : `names no model of ${spec.id}`;
      const ids = [...specs.keys()].join(", ");
      throw new AgentError(
        "not_found",
        `the model ${JSON.stringify(model.slice(0, 100))} ${what}; write provider/model, with one of the providers ${ids}`,
      );
    }
    const { id, dialect } = spec;
    const endpoint = configuredEndpoint(endpoints.get(id));
    if ("missing" in endpoint) {
      throw new AgentError("failed_precondition", `the provider ${id} ${endpoint.missing}`, {
        detail: { provider: id },
      });
    }
    return { provider: id, model: name, dialect, features: featuresOf(id, name) };
  };
  return {
    put({ spec, settings: own }) {
      add(spec, own, send);
      circuits.forget(spec.id);
    },
    remove(provider) {
      if (providerSpecs.some(({ id }) => id === provider)) throw new Error(`${provider} can't be removed`);
      specs.delete(provider);
      endpoints.delete(provider);
    },
    list: () =>
      [...specs.values()].map((spec) => ({
        id: spec.id,
        displayName: spec.displayName ?? spec.id,
        dialect: spec.dialect,
        features: spec.features,
        configured: isConfigured(endpoints.get(spec.id)),
        ...addressOf(spec, endpoints.get(spec.id)),
        ...(spec.apiKeyEnv === undefined ? {} : { apiKeyEnv: spec.apiKeyEnv }),
      })),
    resolve,
    resolveAll(models) {
      const [first = "", ...others] = models.split(",").map((model) => model.trim());
      if (others.length >= maxModels)
        throw invalidField("model", `names ${others.length + 1} models; ${maxModels} is the most`);
      if (others.length > 0 && [first, ...others].includes(""))
        throw invalidField("model", "has an empty entry; write models with one comma between");
      return [resolve(first), ...others.map(resolve)];
    },
    featuresOf,
    check({ provider, model, dialect }, { messages, tools, options }) {
      for (const [index, { blocks }] of messages.entries()) {
        const fault = blocks.map((block) => dialects[dialect].unreadable(block)).find((one) => one !== undefined);
        if (fault !== undefined) throw invalidField(`messages[${index}]`, `holds ${fault}`);
      }
      const endpoint = endpoints.get(provider);
      if (endpoint === undefined || "missing" in endpoint) return;
      // What is said does not matter here: the rest is refused or not whatever it is.
      const said = { role: "user", blocks: [{ type: "text", text: "." }] } as const;
      endpoint.dialect.encode({ model, messages: [said], tools, options }, endpoint.quirksOf(model), provider);
    },
    refusal: ({ provider, model }) => circuits.refusal(provider, model),
    async *streamChat(resolved, request, { signal, timeouts, maxWaitMs }) {
      const { provider, model } = resolved;
      const endpoint = endpoints.get(provider);
      if (endpoint === undefined || "missing" in endpoint)
        throw new AgentError("not_found", `there is no provider ${provider}; it may have been removed`);
      const refusal = circuits.refusal(provider, model);
      if (refusal !== undefined) throw refusal;
      const limits = { ...defaultTimeouts, ...settings.timeouts, ...timeouts };
      const call = circuits.begin(provider, model);
      let isSettled = false;
      const settle = (how: "answered" | "failed" | "leftAlone") => {
        if (!isSettled) call[how]();
        isSettled = true;
      };
      try {
        const asked = { ...request, model };
        for await (const events of streamChat(endpoint, asked, signal, limits, means, maxWaitMs)) {
          settle("answered"); // others may ask from now on, and not only when a long answer is over
          yield events;
        }
        settle("answered");
      } catch (error) {
        // Whatever else the provider says, it is there.
        if (error instanceof AgentError && !signal.aborted)
          settle(error.kind === "provider_unavailable" ? "failed" : "answered");
        throw error;
      } finally {
        settle("leftAlone");
      }
    },
    validate(provider, model, asked) {
      const answersItself = replayed || provider === scripted.id;
      const endpoint = configuredEndpoint(endpoints.get(provider));
      return validateProvider(provider, endpoint, model, { ...asked, answersItself }, means);
    },
    async countTokens({ provider, model }, request, signal) {
      const endpoint = endpoints.get(provider);
      if (replayed || provider === scripted.id || endpoint === undefined || "missing" in endpoint) return undefined;
      return countTokens(endpoint, { ...request, model }, { signal, timeoutMs: countTimeoutMs });
    },
    close: () => http.close(),
  };
}

/** Counting is quick, and somebody waits before they even ask. */
const countTimeoutMs = 10_000;

/** For people to see: a query may hold a key. */
function addressOf(spec: ProviderSpec, endpoint: Endpoint | Unconfigured | undefined): { readonly baseUrl?: string } {
  if (spec.id === scripted.id) return {};
  const url = isConfigured(endpoint) ? new URL(endpoint.baseUrl) : URL.parse(spec.baseUrl ?? "");
  if (url === null) return {};
  url.username = "";
  url.password = "";
  url.search = "";
  url.hash = "";
  return { baseUrl: url.href.replace(/\/+$/, "") };
}

const maxModels = 8;

/** How providers are reached: over the network, over it with a record of all, or not at all. */
function senderOf({ record, replay }: ProviderRegistrySettings, send: SendHttp): SendHttp {
  if (replay !== undefined) return replayExchanges(replay.directory);
  return record === undefined ? send : recordExchanges(send, record.directory, record);
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
