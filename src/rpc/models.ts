import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import type { Model, ModelPrice, ModelService } from "../../gen/codeagent/v1/model_service_pb.ts";
import { AgentError, invalidField } from "../chat/error.ts";
import type { CatalogModel, ModelCatalog } from "../provider/model-catalog.ts";
import type { PriceTier } from "../provider/model-price.ts";
import type { ProviderCheck } from "../provider/validate-provider.ts";
import { checkLength, pageSizeFrom, pageTokenFor, pageTokenFrom } from "./request-fields.ts";

const maxPage = 1000;
const maxTimeoutMs = 60_000;
const defaultTimeoutMs = 10_000;
const maxNameLength = 512;

/** A provider as its list shows it. */
export interface ListedProvider {
  readonly id: string;
  readonly displayName: string;
  readonly dialect: string;
  readonly configured: boolean;
  readonly features: readonly string[];
  /** Without credentials and query. */
  readonly baseUrl?: string;
  readonly apiKeyEnv?: string;
  readonly defaultModel?: string;
}

export interface ModelServiceMeans {
  readonly providers: () => readonly ListedProvider[];
  readonly catalog: Pick<ModelCatalog, "list">;
  readonly featuresOf: (provider: string, model: string) => readonly string[];
  /** See `ProviderRegistry.validate`. */
  readonly validate: (
    provider: string,
    model: string,
    options: { readonly signal: AbortSignal; readonly timeoutMs: number },
  ) => Promise<ProviderCheck>;
  /** Milliseconds since 1970. */
  readonly now: () => number;
}

/** Which models there are, and whether they answer; keys are never shown. */
export function modelHandlers({ providers, catalog, featuresOf, validate, now }: ModelServiceMeans) {
  const find = (id: string): ListedProvider => {
    const all = providers();
    const found = all.find((provider) => provider.id === id);
    if (found !== undefined) return found;
    const ids = all.map((provider) => provider.id).join(", ");
    throw new AgentError(
      "not_found",
      `there is no provider ${JSON.stringify(id.slice(0, 100))}; the providers are ${ids}`,
    );
  };
  return {
    async listProviders() {
      const sorted = [...providers()].sort((one, other) => (one.id < other.id ? -1 : 1));
      return {
        providers: sorted.map(({ features, baseUrl = "", apiKeyEnv = "", defaultModel = "", ...provider }) => ({
          ...provider,
          features: [...features],
          baseUrl,
          apiKeyEnv,
          defaultModel,
        })),
      };
    },
    async listModels(request) {
      const pageSize = pageSizeFrom(request.pageSize, 100, maxPage);
      const position = pageTokenFrom(request.pageToken);
      const [after = ""] = position ?? [];
      if (position !== undefined && (position.length !== 1 || typeof after !== "string" || after === ""))
        throw invalidField("page_token", "is not a token of this list; leave it out to begin anew");
      const asked = request.provider === "" ? providers() : [find(request.provider)];
      const models: ModelInit[] = [];
      for (const provider of asked) {
        if (request.configuredOnly && !provider.configured) continue;
        for (const model of await catalog.list(provider, now())) {
          const name = `${provider.id}/${model.id}`;
          if (typeof after === "string" && name > after)
            models.push(modelToProto(provider, model, featuresOf(provider.id, model.id)));
        }
      }
      models.sort((one, other) => (one.name < other.name ? -1 : 1));
      const page = models.slice(0, pageSize);
      const last = page.at(-1);
      return {
        models: page,
        nextPageToken: last !== undefined && models.length > pageSize ? pageTokenFor([last.name]) : "",
      };
    },
    async validateProvider(request, { signal }) {
      const { provider } = request;
      find(provider);
      const timeoutMs = timeoutFrom(request.timeoutMs);
      const check = await validate(provider, modelOf(request.model, provider), { signal, timeoutMs });
      return {
        valid: check.state === "ok",
        state: check.state,
        message: check.message,
        ...(check.latencyMs === undefined ? {} : { latencyMs: BigInt(check.latencyMs) }),
        ...(check.upstreamStatus === undefined ? {} : { upstreamStatus: check.upstreamStatus }),
      };
    },
  } satisfies Partial<ServiceImpl<typeof ModelService>>;
}

type ModelInit = Omit<Model, "$typeName" | "$unknown" | "prices"> & {
  readonly prices: Omit<ModelPrice, "$typeName" | "$unknown">[];
};

function modelToProto(provider: ListedProvider, model: CatalogModel, features: readonly string[]): ModelInit {
  const { id, contextWindowTokens, maxOutputTokens, priceFromMs } = model;
  return {
    name: `${provider.id}/${id}`,
    provider: provider.id,
    id,
    displayName: model.displayName ?? "",
    ...(contextWindowTokens === undefined ? {} : { contextWindowTokens: BigInt(contextWindowTokens) }),
    ...(maxOutputTokens === undefined ? {} : { maxOutputTokens: BigInt(maxOutputTokens) }),
    features: [...features],
    prices: model.prices.map(priceToProto),
    priceSource: model.priceSource,
    ...(priceFromMs === undefined ? {} : { priceTime: timestampFromMs(priceFromMs) }),
    configured: provider.configured,
  };
}

function priceToProto(tier: PriceTier): ModelInit["prices"][number] {
  const { inputNanoUsd, outputNanoUsd, cacheReadNanoUsd, cacheCreationNanoUsd } = tier;
  return {
    fromInputTokens: BigInt(tier.fromInputTokens),
    ...(inputNanoUsd === undefined ? {} : { inputNanoUsdPerMillionTokens: BigInt(inputNanoUsd) }),
    ...(outputNanoUsd === undefined ? {} : { outputNanoUsdPerMillionTokens: BigInt(outputNanoUsd) }),
    ...(cacheReadNanoUsd === undefined ? {} : { cacheReadNanoUsdPerMillionTokens: BigInt(cacheReadNanoUsd) }),
    ...(cacheCreationNanoUsd === undefined
      ? {}
      : { cacheCreationNanoUsdPerMillionTokens: BigInt(cacheCreationNanoUsd) }),
  };
}

/** The model's own name, where one is named. */
function modelOf(name: string, provider: string): string {
  if (name === "") return "";
  checkLength(name, maxNameLength, "model");
  const own = name.startsWith(`${provider}/`) ? name.slice(provider.length + 1) : "";
  if (own === "") throw invalidField("model", `names no model of the provider; write ${provider}/model`);
  return own;
}

function timeoutFrom(given: bigint | undefined): number {
  if (given === undefined) return defaultTimeoutMs;
  if (given >= 1n && given <= BigInt(maxTimeoutMs)) return Number(given);
  throw invalidField("timeout_ms", `is ${given}; from 1 to ${maxTimeoutMs} is wanted`);
}
