import { readFileSync } from "node:fs";
import { rename } from "node:fs/promises";
import { join } from "node:path";
import { AgentError, invalidField } from "../chat/error.ts";
import { isRecord } from "../tool/check-value.ts";
import { writePrivateFile } from "../tool/private-file.ts";
import { readNamedEndpoint } from "./named-endpoint.ts";
import { type PriceFile, pricesFrom } from "./price-file.ts";
import { type NamedEndpoint, type ProviderRegistry, providerSpecs } from "./registry.ts";

/** Where providers that are added while the service runs are kept, in the data directory. It holds keys. */
export const addedProvidersFile = "providers.json";

/** What is known of a model of an added provider, in dollars per million tokens and in tokens; see `readPriceFile`. */
export interface AddedModel {
  readonly id: string;
  readonly displayName?: string;
  readonly input?: number;
  readonly output?: number;
  readonly cacheRead?: number;
  readonly cacheCreation?: number;
  readonly contextWindow?: number;
  readonly maxOutput?: number;
}

/** An endpoint that speaks Chat Completions, as somebody adds it. */
export interface AddedProvider {
  readonly name: string;
  readonly baseUrl: string;
  /** Empty for none. */
  readonly apiKey: string;
  readonly models: readonly AddedModel[];
}

export interface AddedProvidersOptions {
  readonly registry: Pick<ProviderRegistry, "list" | "put" | "remove" | "resolve">;
  readonly dataDir: string;
  /** The default model of the configuration; empty for none. */
  readonly configuredModel: string;
  readonly report: (level: "warn", message: string, facts?: Record<string, unknown>) => void;
}

const maxProviders = 64;
const maxModels = 1000;
const maxKeyCharacters = 10_000;
const maxUrlCharacters = 2048;

/** An added provider as it is kept and asked. */
interface Kept {
  readonly provider: AddedProvider;
  readonly endpoint: NamedEndpoint;
  readonly prices: PriceFile;
}

/**
 * The providers and the default model that were set while the service ran, kept in its data directory: they hold at the next
 * start too, and only for this server. Of the configuration's providers none is changed.
 */
export class AddedProviders {
  readonly #options: AddedProvidersOptions;
  readonly #file: string;
  readonly #kept = new Map<string, Kept>();
  /** Empty where the configuration's holds. */
  #chosenModel = "";
  /** The file could not be read and is not to be written over. */
  #isDamaged = false;
  /** Changes, one after another. Never rejects. */
  #changed: Promise<unknown> = Promise.resolve();

  /** Reads what was set earlier and tells the registry; what can't be used is passed over and reported. */
  constructor(options: AddedProvidersOptions) {
    this.#options = options;
    this.#file = join(options.dataDir, addedProvidersFile);
    const content = this.#read();
    for (const [name, value] of Object.entries(isRecord(content["providers"]) ? content["providers"] : {})) {
      try {
        if (this.#isTaken(name)) throw new Error("the configuration has one of that name");
        this.#take(this.#checked(providerFrom(name, value)));
      } catch (error) {
        const why = error instanceof Error ? error.message : "it can't be read";
        options.report("warn", `the provider ${name} that was added is passed over: ${why}`);
      }
    }
    const chosen = content["default_model"];
    if (typeof chosen !== "string" || chosen === "") return;
    this.#chosenModel = chosen;
    try {
      options.registry.resolve(chosen);
    } catch (error) {
      // A key may be missing for now.
      if (error instanceof AgentError && error.kind === "failed_precondition") return;
      this.#chosenModel = "";
      options.report("warn", `the default model ${chosen} that was set is passed over: it has no provider any more`);
    }
  }

  /** The one that was set, else that of the configuration; empty for none. May be another one each time. */
  get defaultModel(): string {
    return this.#chosenModel || this.#options.configuredModel;
  }

  /** What was told of the models of added providers. */
  get prices(): PriceFile {
    const all = [...this.#kept.values()].map(({ prices }) => prices);
    return {
      find: (name) => all.map((prices) => prices.find(name)).find((model) => model !== undefined),
      names: all.flatMap(({ names }) => names),
    };
  }

  /** @throws {AgentError} `invalid_request` that names the field, `already_exists`, `resource_exhausted`, `unavailable`. */
  add(provider: AddedProvider): Promise<void> {
    return this.#afterOthers(async () => {
      const { name } = provider;
      if (this.#kept.has(name) || this.#isTaken(name))
        throw new AgentError(
          "already_exists",
          `there is a provider ${name} already; choose another name, or change it`,
        );
      if (this.#kept.size >= maxProviders)
        throw new AgentError("resource_exhausted", `${maxProviders} providers were added, the most there can be`);
      const kept = this.#checked(provider);
      await this.#save([...this.#kept.values(), kept], this.#chosenModel);
      this.#take(kept);
    });
  }

  /**
   * Changes what is given. A key goes to no other host than the one it was given for.
   * @throws {AgentError} as `add`; `not_found`, `failed_precondition` for one that was not added.
   */
  update({ name, ...change }: Partial<AddedProvider> & Pick<AddedProvider, "name">): Promise<void> {
    return this.#afterOthers(async () => {
      const { provider } = this.#addedOne(name);
      const kept = this.#checked({ ...provider, ...change });
      const isMoved = URL.parse(kept.provider.baseUrl)?.origin !== URL.parse(provider.baseUrl)?.origin;
      if (isMoved && provider.apiKey !== "" && change.apiKey === undefined)
        throw invalidField("provider.api_key", "is missing; the key of before is not sent to another host");
      const others = [...this.#kept.values()].filter((each) => each.provider.name !== name);
      await this.#save([...others, kept], this.#chosenModel);
      this.#take(kept);
    });
  }

  /** @throws {AgentError} `not_found`, `failed_precondition` for one that was not added or has the default model. */
  remove(name: string): Promise<void> {
    return this.#afterOthers(async () => {
      this.#addedOne(name);
      if (this.defaultModel.split(",").some((model) => model.trim().startsWith(`${name}/`)))
        throw new AgentError(
          "failed_precondition",
          `the default model ${this.defaultModel} is of ${name}; set another one first`,
        );
      await this.#save(
        [...this.#kept.values()].filter(({ provider }) => provider.name !== name),
        this.#chosenModel,
      );
      this.#kept.delete(name);
      this.#options.registry.remove(name);
    });
  }

  /**
   * @param model `provider/model`; empty for that of the configuration
   * @throws {AgentError} as `ProviderRegistry.resolve`; `unavailable`.
   */
  setDefaultModel(model: string): Promise<void> {
    return this.#afterOthers(async () => {
      if (model !== "") this.#options.registry.resolve(model);
      await this.#save([...this.#kept.values()], model);
      this.#chosenModel = model;
    });
  }

  #afterOthers<Value>(work: () => Promise<Value>): Promise<Value> {
    const result = this.#changed.then(work);
    this.#changed = result.catch(() => undefined);
    return result;
  }

  #take(kept: Kept): void {
    this.#kept.set(kept.provider.name, kept);
    this.#options.registry.put(kept.endpoint);
  }

  #isTaken(name: string): boolean {
    return !this.#kept.has(name) && this.#options.registry.list().some(({ id }) => id === name);
  }

  #addedOne(name: string): Kept {
    const kept = this.#kept.get(name);
    if (kept !== undefined) return kept;
    const own = providerSpecs.find(({ id }) => id === name);
    if (own !== undefined || this.#isTaken(name)) {
      const where = own === undefined ? "in the configuration" : "by the environment";
      throw new AgentError(
        "failed_precondition",
        `the provider ${name} was not added here; set it up ${where}, or add one of another name with its base URL`,
      );
    }
    throw new AgentError("not_found", `there is no provider ${JSON.stringify(name.slice(0, 100))}`);
  }

  /** @throws {AgentError} `invalid_request` that names the field. */
  #checked(provider: AddedProvider): Kept {
    const { name, baseUrl, apiKey, models } = provider;
    if (baseUrl.length > maxUrlCharacters)
      throw invalidField("provider.base_url", `has ${baseUrl.length} characters; ${maxUrlCharacters} is the most`);
    const { username = "", password = "" } = URL.parse(baseUrl) ?? {};
    if (username !== "" || password !== "")
      throw invalidField("provider.base_url", "has a user name or password; give the provider's api_key");
    if (apiKey.length > maxKeyCharacters || !/^[\x21-\x7e]*$/.test(apiKey))
      throw invalidField("provider.api_key", "is too long or has characters that no header can carry");
    if (models.length > maxModels)
      throw invalidField("provider.models", `has ${models.length} entries; ${maxModels} is the most`);
    try {
      const { spec, settings } = readNamedEndpoint(name, { dialect: "openai-chat", base_url: baseUrl }, "provider");
      const endpoint = { spec, settings: { ...settings, ...(apiKey === "" ? {} : { apiKey }) } };
      const told = Object.fromEntries(models.map((model) => [`${name}/${model.id}`, modelToJson(model)]));
      return { provider, endpoint, prices: pricesFrom(told, [name]) };
    } catch (error) {
      const message = error instanceof Error ? error.message : "it can't be read";
      const [, field = "provider", what = message] = /^(provider\S*): (.*)$/s.exec(message) ?? [];
      throw invalidField(field, what);
    }
  }

  #read(): Readonly<Record<string, unknown>> {
    try {
      const content: unknown = JSON.parse(readFileSync(this.#file, "utf8"));
      if (isRecord(content)) return content;
    } catch (error) {
      if (error instanceof Error && "code" in error && error.code === "ENOENT") return {};
    }
    this.#isDamaged = true;
    this.#options.report("warn", `${this.#file} can't be read; it will be set aside by the next change`);
    return {};
  }

  async #save(kept: readonly Kept[], defaultModel: string): Promise<void> {
    const providers = Object.fromEntries(kept.map(({ provider }) => [provider.name, providerToJson(provider)]));
    try {
      if (this.#isDamaged) await rename(this.#file, `${this.#file}.damaged`);
      this.#isDamaged = false;
      const content = { default_model: defaultModel, providers };
      await writePrivateFile(this.#file, `${JSON.stringify(content, undefined, 2)}\n`);
    } catch (cause) {
      throw new AgentError("unavailable", "the change can't be kept; is the data directory writable?", { cause });
    }
  }
}

function providerToJson({ baseUrl, apiKey, models }: AddedProvider): Record<string, unknown> {
  const told = Object.fromEntries(models.map((model) => [model.id, modelToJson(model)]));
  return { base_url: baseUrl, api_key: apiKey, models: told };
}

/** @throws {Error} */
function providerFrom(name: string, value: unknown): AddedProvider {
  if (!isRecord(value) || typeof value["base_url"] !== "string" || typeof value["api_key"] !== "string")
    throw new Error("it has no base_url or no api_key");
  const models = Object.entries(isRecord(value["models"]) ? value["models"] : {});
  return {
    name,
    baseUrl: value["base_url"],
    apiKey: value["api_key"],
    models: models.map(([id, model]) => modelFrom(id, isRecord(model) ? model : {})),
  };
}

/** As the file of prices has it. */
function modelToJson(model: AddedModel): Record<string, unknown> {
  return Object.fromEntries(
    [
      ["display_name", model.displayName],
      ["input", model.input],
      ["output", model.output],
      ["cache_read", model.cacheRead],
      ["cache_creation", model.cacheCreation],
      ["context_window", model.contextWindow],
      ["max_output", model.maxOutput],
    ].filter(([, value]) => value !== undefined),
  );
}

function modelFrom(id: string, told: Readonly<Record<string, unknown>>): AddedModel {
  const { display_name: displayName } = told;
  const number = <Key extends string>(key: Key, from: string) => {
    const value = told[from];
    return typeof value === "number" ? { [key]: value } : {};
  };
  return {
    id,
    ...(typeof displayName === "string" ? { displayName } : {}),
    ...number("input", "input"),
    ...number("output", "output"),
    ...number("cacheRead", "cache_read"),
    ...number("cacheCreation", "cache_creation"),
    ...number("contextWindow", "context_window"),
    ...number("maxOutput", "max_output"),
  };
}
