import type { ServiceImpl } from "@connectrpc/connect";
import type {
  CodeAgentService,
  ModelInfo,
  ProviderInfo as ProviderMessage,
} from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { AgentError, invalidField } from "../../chat/error.ts";
import type { Feature } from "../../chat/feature.ts";
import type { AddedModel } from "../../provider/added-providers.ts";
import type { CatalogModel } from "../../provider/model-catalog.ts";
import type { ProviderInfo } from "../../provider/registry.ts";
import { checkLength } from "../request-fields.ts";
import type { LegacyCore } from "./legacy-core.ts";

const nanoUsdPerUsd = 1e9;
const mostUint32 = 2 ** 32 - 1;

/**
 * Of the earlier service: providers and the default model. Keys go in and never come out. What is changed is kept in the data
 * directory of this server, and wins over the configuration's default model.
 */
export function providerHandlers(core: LegacyCore) {
  const { registry, catalog, addedProviders, admin, environment } = core;
  const toProto = async (provider: ProviderInfo) => {
    const known = await catalog.list(provider, environment.now());
    return {
      name: provider.id,
      ...(provider.baseUrl === undefined ? {} : { baseUrl: provider.baseUrl }),
      models: known.map((model) => modelToProto(model, registry.featuresOf(provider.id, model.id))),
    };
  };
  const find = (name: string): ProviderInfo => {
    const all = registry.list();
    const found = all.find(({ id }) => id === name);
    if (found !== undefined) return found;
    const known = all.map(({ id }) => id).join(", ");
    throw new AgentError(
      "not_found",
      `there is no provider ${JSON.stringify(name.slice(0, 100))}; the providers are ${known}`,
    );
  };
  return {
    async listProviders() {
      const usable = registry.list().filter(({ configured }) => configured);
      const { provider, model } = partsOf(core.defaultModel);
      return {
        providers: await Promise.all(usable.map(toProto)),
        ...(provider === "" ? {} : { defaultProvider: provider }),
        ...(model === "" ? {} : { defaultModel: model }),
      };
    },
    async getProvider({ name }) {
      return { provider: await toProto(find(nameFrom(name, "name"))) };
    },
    async addProvider({ provider }, context) {
      admin(context);
      const { name, apiKey, baseUrl, models } = given(provider);
      // One that is there needs no address: whoever gives it a key only is told that it is there.
      const isNew = registry.list().every(({ id }) => id !== name);
      if (isNew && (baseUrl ?? "") === "")
        throw invalidField("provider.base_url", "is missing; name the address of an OpenAI-compatible endpoint");
      await addedProviders.add({
        name,
        baseUrl: baseUrl ?? "",
        apiKey: apiKey ?? "",
        models: models.map(modelFromProto),
      });
      return { success: true, provider: await toProto(find(name)) };
    },
    async updateProvider({ provider }, context) {
      admin(context);
      const { name, apiKey, baseUrl, models } = given(provider);
      await addedProviders.update({
        name,
        ...(apiKey === undefined ? {} : { apiKey }),
        ...(baseUrl === undefined || baseUrl === "" ? {} : { baseUrl }),
        ...(models.length === 0 ? {} : { models: models.map(modelFromProto) }),
      });
      return { success: true, provider: await toProto(find(name)) };
    },
    async removeProvider({ name }, context) {
      admin(context);
      await addedProviders.remove(nameFrom(name, "name"));
      return { success: true };
    },
    async setDefaultModel({ provider, model }, context) {
      admin(context);
      checkLength(provider, 100, "provider");
      checkLength(model, 1000, "model");
      if (model.includes(",")) throw invalidField("model", "holds a comma; name one model");
      if ((provider === "") !== (model === ""))
        throw invalidField(provider === "" ? "provider" : "model", "is empty; provider and model go together");
      await addedProviders.setDefaultModel(model === "" ? "" : `${provider}/${model}`);
      return { success: true, ...partsOf(core.defaultModel) };
    },
    async getDefaultModel() {
      const { provider, model } = partsOf(core.defaultModel);
      return { ...(provider === "" ? {} : { provider }), ...(model === "" ? {} : { model }) };
    },
  } satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}

/** Of a list the first; a name without a provider is a model alone. */
function partsOf(name: string): { readonly provider: string; readonly model: string } {
  const [first = ""] = name.split(",").map((one) => one.trim());
  const slash = first.indexOf("/");
  return slash === -1
    ? { provider: "", model: first }
    : { provider: first.slice(0, slash), model: first.slice(slash + 1) };
}

function nameFrom(name: string, field: string): string {
  if (name === "") throw invalidField(field, "is empty; name a provider");
  checkLength(name, 100, field);
  return name;
}

function given(provider: ProviderMessage | undefined): ProviderMessage {
  if (provider === undefined) throw invalidField("provider", "is missing; describe the provider");
  nameFrom(provider.name, "provider.name");
  return provider;
}

function modelFromProto({ id, name, apiKey, baseUrl, cost, limit }: ModelInfo, index: number): AddedModel {
  const field = `provider.models[${index}]`;
  if (id === "" || id.includes("*")) throw invalidField(`${field}.id`, "is empty or holds a *; name a model");
  checkLength(id, 500, `${field}.id`);
  checkLength(name, 500, `${field}.name`);
  // A key or an address of one model only would be a provider of its own.
  if ((apiKey ?? "") !== "") throw invalidField(`${field}.api_key`, "can't be set for a model; set that of a provider");
  if ((baseUrl ?? "") !== "")
    throw invalidField(`${field}.base_url`, "can't be set for a model; add a provider for it");
  const told = <Key extends string>(key: Key, value: number | undefined) =>
    value === undefined || value === 0 ? {} : { [key]: value };
  return {
    id,
    ...(name === "" || name === id ? {} : { displayName: name }),
    ...(cost === undefined ? {} : { input: cost.input, output: cost.output }),
    ...told("cacheRead", cost?.cacheRead),
    ...told("cacheCreation", cost?.cacheWrite),
    ...told("contextWindow", limit?.context),
    ...told("maxOutput", limit?.output),
  };
}

/** Prices are those of short calls where long ones cost more. */
function modelToProto(model: CatalogModel, features: readonly Feature[]) {
  const { id, displayName, contextWindowTokens = 0, maxOutputTokens = 0, prices } = model;
  const has = (...some: readonly Feature[]) => some.some((feature) => features.includes(feature));
  const [price] = prices;
  const read = price?.cacheReadNanoUsd;
  const write = price?.cacheCreationNanoUsd;
  const dollars = (nanoUsd: number | undefined) => (nanoUsd ?? 0) / nanoUsdPerUsd;
  return {
    id,
    name: displayName ?? id,
    attachment: has("vision", "files"),
    reasoning: has("thinking", "reasoning"),
    toolCall: has("tools"),
    // It is taken for all, and left out for those that refuse it.
    temperature: true,
    modalities: {
      input: [
        "text",
        ...(has("vision") ? ["image"] : []),
        ...(has("audio") ? ["audio"] : []),
        ...(has("files") ? ["pdf"] : []),
      ],
      output: ["text"],
    },
    ...(price === undefined
      ? {}
      : {
          cost: {
            input: dollars(price.inputNanoUsd),
            output: dollars(price.outputNanoUsd),
            // What is not told costs as much as other input.
            cacheRead: dollars(read ?? price.inputNanoUsd),
            cacheWrite: dollars(write ?? price.inputNanoUsd),
          },
        }),
    limit: { context: Math.min(contextWindowTokens, mostUint32), output: Math.min(maxOutputTokens, mostUint32) },
  };
}
