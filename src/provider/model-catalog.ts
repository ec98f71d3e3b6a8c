import type { ModelInfo, ModelPrice, Provider } from "@pydantic/genai-prices";
import type { Usage } from "../chat/usage.ts";
import { costOfUsage, nanoUsdOf, type PriceTier } from "./model-price.ts";
import type { PriceFile } from "./price-file.ts";

/** Whose models they are. */
export interface CatalogProvider {
  readonly id: string;
  /** Where it is asked, without credentials. Finds the vendor of a provider that may be anybody. */
  readonly baseUrl?: string;
}

/** What is known of a model. */
export interface CatalogModel {
  /** The provider's own id of it. */
  readonly id: string;
  readonly displayName?: string;
  readonly contextWindowTokens?: number;
  readonly maxOutputTokens?: number;
  /** In ascending order; empty means unknown. */
  readonly prices: readonly PriceTier[];
  /** Where the prices came from; empty where there are none. */
  readonly priceSource: string;
  /** Since when the prices hold, in milliseconds since 1970, where that is known. */
  readonly priceFromMs?: number;
}

/** A call that has been answered. */
export interface PricedCall {
  readonly provider: CatalogProvider;
  /** The model's own name, without its provider. */
  readonly model: string;
  readonly usage: Usage;
  /** When it was asked, in milliseconds since 1970. */
  readonly atMs: number;
}

export interface Cost {
  readonly costNanoUsd: number;
  readonly priceSource: string;
}

/**
 * What is known of models: their prices and how much they read. The operator's file wins over the data of
 * `@pydantic/genai-prices`, which is loaded when it is first needed: it takes some 20 MB and 50 ms.
 */
export interface ModelCatalog {
  /**
   * What a call cost; undefined where the provider has told it, where the price is unknown and where the usage tells too
   * little. Tokens written to a cache count at the price of the shortest time they are kept. Never fails: an answer is
   * worth more than its price.
   */
  costOf(call: PricedCall): Promise<Cost | undefined>;
  /** What is known of one model; undefined where nothing is. */
  find(provider: CatalogProvider, model: string, atMs: number): Promise<CatalogModel | undefined>;
  /** The models one can talk with that are known of a provider, in order of their ids. Those that are given up are left out. */
  list(provider: CatalogProvider, atMs: number): Promise<CatalogModel[]>;
}

/** The release of the data, as its package and the registry it came from name it. */
export const priceData = { version: "0.1.8", date: "2026-09-23" } as const;
const priceDataSource = `genai-prices ${priceData.version} (${priceData.date})`;
const priceFileSource = "prices file";

/** Our providers in the data. A call of a provider that takes a subscription has no price of its own. */
const vendors: ReadonlyMap<string, { readonly id: string; readonly isSubscribed?: true }> = new Map([
  ["openai", { id: "openai" }],
  ["openai-responses", { id: "openai" }],
  ["anthropic", { id: "anthropic" }],
  ["deepseek", { id: "deepseek" }],
  ["kimi", { id: "moonshotai" }],
  ["copilot", { id: "github-copilot", isSubscribed: true }],
]);

/** Prices of what our usage does not count apart: a model that has one has no price here. */
const uncounted = ["requests_kcount", "output_citation_mtok", "input_text_messages_kcount"];
/**
 * Prices of other tokens than those of text, and the price of text in each place. Our usage counts them together, so a
 * model whose prices differ has no price here.
 */
const likeText: readonly (readonly [other: string, text: string])[] = [
  ["input_audio_mtok", "input_mtok"],
  ["input_image_mtok", "input_mtok"],
  ["input_video_mtok", "input_mtok"],
  ["cache_audio_read_mtok", "cache_read_mtok"],
  ["cache_image_read_mtok", "cache_read_mtok"],
  ["output_audio_mtok", "output_mtok"],
  ["output_image_mtok", "output_mtok"],
  ["output_video_mtok", "output_mtok"],
];
/** Models that write down what they hear. */
const transcribers = /-transcribe\b/;
/** Models that hear and speak; the data does not tell for each of them what sound costs. */
const soundModels = /(?:^|[-/])audio\b/;
/** Prices of models that make sounds or pictures, which are not for talking. */
const otherOutput = ["output_audio_mtok", "output_image_mtok", "output_video_mtok"];

type PriceData = Pick<typeof import("@pydantic/genai-prices"), "calcPrice" | "findProvider">;

export interface ModelCatalogOptions {
  readonly priceFile?: PriceFile;
  /** Loads the data; called once at most, or again after it failed. */
  readonly load?: () => Promise<PriceData>;
}

export function createModelCatalog({ priceFile, load = loadPriceData }: ModelCatalogOptions = {}): ModelCatalog {
  let loading: Promise<PriceData> | undefined;
  const vendorOf = async ({ id, baseUrl }: CatalogProvider): Promise<Vendor | undefined> => {
    const vendor = vendors.get(id);
    // No vendor is asked without TLS, so an endpoint of one's own does not make the data be loaded.
    if (vendor === undefined && URL.parse(baseUrl ?? "")?.protocol !== "https:") return undefined;
    loading ??= load().catch((error: unknown) => {
      loading = undefined;
      throw error;
    });
    const data = await loading;
    const provider = data.findProvider(
      vendor === undefined ? { providerApiUrl: baseUrl ?? "" } : { providerId: vendor.id },
    );
    return provider && { data, provider, isSubscribed: vendor?.isSubscribed ?? false };
  };
  const find: ModelCatalog["find"] = async (provider, model, atMs) => {
    const own = priceFile?.find(`${provider.id}/${model}`);
    const vendor = await vendorOf(provider);
    const found = vendor && modelOf(vendor, model, atMs);
    if (own === undefined) return found && { ...found.known, id: model };
    return { ...found?.known, ...ownFacts(own, found?.known), id: model };
  };
  return {
    find,
    async costOf({ provider, model, usage, atMs }) {
      if (usage.costNanoUsd !== undefined) return undefined;
      // What is said by the operator does not need the data.
      const own = priceFile?.find(`${provider.id}/${model}`);
      const { prices, priceSource } =
        own !== undefined && own.prices.length > 0
          ? { prices: own.prices, priceSource: priceFileSource }
          : ((await find(provider, model, atMs).catch(() => undefined)) ?? { prices: [], priceSource: "" });
      const costNanoUsd = costOfUsage(prices, usage);
      return costNanoUsd === undefined ? undefined : { costNanoUsd, priceSource };
    },
    async list(provider, atMs) {
      const models = new Map<string, CatalogModel>();
      const vendor = await vendorOf(provider);
      for (const { id } of vendor?.provider.models ?? []) {
        const found = vendor && modelOf(vendor, id, atMs);
        if (found?.info.id !== id || !isForTalking(found)) continue;
        const own = priceFile?.find(`${provider.id}/${id}`);
        models.set(id, own === undefined ? found.known : { ...found.known, ...ownFacts(own, found.known) });
      }
      for (const name of priceFile?.names ?? []) {
        if (!name.startsWith(`${provider.id}/`)) continue;
        const id = name.slice(provider.id.length + 1);
        const model = models.has(id) ? undefined : await find(provider, id, atMs);
        if (model !== undefined) models.set(id, model);
      }
      return [...models.values()].sort((one, other) => (one.id < other.id ? -1 : 1));
    },
  };
}

async function loadPriceData(): Promise<PriceData> {
  return import("@pydantic/genai-prices");
}

/** What the file says, and its prices wherever it tells some. */
function ownFacts({ prices, ...facts }: NonNullable<ReturnType<PriceFile["find"]>>, known: CatalogModel | undefined) {
  if (prices.length === 0) return { prices: known?.prices ?? [], priceSource: known?.priceSource ?? "", ...facts };
  const { priceFromMs: _, ...rest } = known ?? {};
  return { ...rest, ...facts, prices, priceSource: priceFileSource };
}

interface Vendor {
  readonly data: PriceData;
  readonly provider: Provider;
  readonly isSubscribed: boolean;
}

interface FoundModel {
  readonly info: ModelInfo;
  readonly price: ModelPrice;
  readonly known: CatalogModel;
}

function modelOf({ data, provider, isSubscribed }: Vendor, model: string, atMs: number): FoundModel | undefined {
  // Without usage it costs nothing and says which model and which of its prices it would have taken.
  const found = data.calcPrice({}, model, { providerId: provider.id, timestamp: new Date(atMs) });
  if (found === null) return undefined;
  const { model: info, model_price: price } = found;
  const prices = isSubscribed || soundModels.test(info.id) ? [] : tiersOf(price);
  const priceFromMs = prices.length === 0 ? undefined : startOf(info, price);
  const known = {
    id: info.id,
    ...(info.name === undefined ? {} : { displayName: info.name }),
    ...(info.context_window === undefined ? {} : { contextWindowTokens: info.context_window }),
    prices,
    priceSource: prices.length === 0 ? "" : priceDataSource,
    ...(priceFromMs === undefined ? {} : { priceFromMs }),
  };
  return { info, price, known };
}

/** The data lists what makes texts, sounds, pictures and vectors alike; it tells the window of what one talks with. */
function isForTalking({ info, price }: FoundModel): boolean {
  const isUnpriced = Object.keys(price).length === 0;
  return (
    info.deprecated !== true &&
    info.context_window !== undefined &&
    !transcribers.test(info.id) &&
    (isUnpriced || (price["input_mtok"] !== undefined && price["output_mtok"] !== undefined)) &&
    !otherOutput.some((key) => price[key] !== undefined)
  );
}

/** The prices of our counts; none where some count would have no price or something else is paid for as well. */
function tiersOf(price: ModelPrice): PriceTier[] {
  const { input_mtok: input, output_mtok: output, output_reasoning_mtok: reasoning } = price;
  if (input === undefined || output === undefined) return [];
  const differ = (one: unknown, other: unknown) => one !== undefined && JSON.stringify(one) !== JSON.stringify(other);
  if (differ(reasoning, output) || likeText.some(([other, text]) => differ(price[other], price[text]))) return [];
  if (uncounted.some((key) => price[key] !== undefined)) return [];
  const { cache_read_mtok: cacheRead, cache_write_mtok: cacheCreation } = price;
  // A price of the data holds for calls that read more than its start.
  const starts = [input, output, cacheRead, cacheCreation].flatMap((one) =>
    typeof one === "object" ? one.tiers.map(({ start }) => start + 1) : [],
  );
  return [...new Set([0, ...starts])]
    .sort((one, other) => one - other)
    .map((fromInputTokens) => {
      const inputNanoUsd = nanoUsdAt(input, fromInputTokens);
      const outputNanoUsd = nanoUsdAt(output, fromInputTokens);
      const cacheReadNanoUsd = nanoUsdAt(cacheRead, fromInputTokens);
      const cacheCreationNanoUsd = nanoUsdAt(cacheCreation, fromInputTokens);
      return {
        fromInputTokens,
        ...(inputNanoUsd === undefined ? {} : { inputNanoUsd }),
        ...(outputNanoUsd === undefined ? {} : { outputNanoUsd }),
        ...(cacheReadNanoUsd === undefined ? {} : { cacheReadNanoUsd }),
        ...(cacheCreationNanoUsd === undefined ? {} : { cacheCreationNanoUsd }),
      };
    });
}

function nanoUsdAt(price: ModelPrice[string], fromInputTokens: number): number | undefined {
  if (price === undefined) return undefined;
  if (typeof price === "number") return nanoUsdOf(price, "round");
  const tier = price.tiers.findLast(({ start }) => fromInputTokens > start);
  return nanoUsdOf(tier?.price ?? price.base, "round");
}

function startOf(info: ModelInfo, price: ModelPrice): number | undefined {
  if (!Array.isArray(info.prices)) return undefined;
  const constraint = info.prices.find(({ prices }) => prices === price)?.constraint;
  return constraint !== undefined && "start_date" in constraint ? Date.parse(constraint.start_date) : undefined;
}
