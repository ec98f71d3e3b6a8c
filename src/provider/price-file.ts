import { readFileSync } from "node:fs";
import { parse } from "yaml";
import { fileFault } from "./file-fault.ts";
import { mostDollars, nanoUsdOf, type PriceTier } from "./model-price.ts";

/** What an operator says of a model; what is absent, others may know. */
export interface OwnModel {
  readonly displayName?: string;
  readonly contextWindowTokens?: number;
  readonly maxOutputTokens?: number;
  /** In ascending order; empty where no price is told. */
  readonly prices: readonly PriceTier[];
}

/** An operator's prices. */
export interface PriceFile {
  /** What it says of a model, `provider/model`. The model's own name wins over patterns, a long pattern over a short one. */
  find(name: string): OwnModel | undefined;
  /** The models it names without a pattern. */
  readonly names: readonly string[];
}

const priceKeys = ["input", "output", "cache_read", "cache_creation"] as const;
const modelKeys = [...priceKeys, "tiers", "context_window", "max_output", "display_name"];

type Mapping = Readonly<Record<string, unknown>>;

/**
 * Reads prices in dollars per million tokens, as YAML or JSON:
 *
 * ```yaml
 * forward/big: { input: 3, output: 15, cache_read: 0.3, cache_creation: 3.75, context_window: 200000, max_output: 64000,
 *                display_name: Big, tiers: [{ from_input_tokens: 200000, input: 6, output: 22.5 }] }
 * forward/small*: { input: 0.1, output: 0.4 }   # all models whose names begin so
 * ```
 * @param providers ids of the providers there are.
 * @throws {Error} one sentence that names the file, the place in it and what is wanted.
 */
export function readPriceFile(file: string, providers: readonly string[]): PriceFile {
  let content: unknown;
  try {
    content = parse(readFileSync(file, "utf8"), { maxAliasCount: 0 });
  } catch (cause) {
    throw new Error(`prices.file: ${file} can't be read: ${fileFault(cause)}`, { cause });
  }
  try {
    return pricesFrom(content ?? {}, providers);
  } catch (cause) {
    const what = cause instanceof Error ? cause.message : String(cause);
    throw new Error(`prices.file: ${file}: ${what}`, { cause });
  }
}

/**
 * As `readPriceFile`, of what was read elsewhere.
 * @throws {Error} one sentence that names the place and what is wanted.
 */
export function pricesFrom(content: unknown, providers: readonly string[]): PriceFile {
  const exact = new Map<string, OwnModel>();
  const patterns: { readonly beginning: string; readonly model: OwnModel }[] = [];
  for (const [name, value] of Object.entries(mapping(content, "the file"))) {
    const [, provider = "", own = ""] = /^([^/]+)\/(.+)$/.exec(name) ?? [];
    if (own === "" || own.slice(0, -1).includes("*"))
      throw new Error(`${name}: a model is wanted as provider/model; a * may stand at its end, for any more letters`);
    if (!providers.includes(provider))
      throw new Error(`${name}: there is no provider ${provider}; there are: ${providers.join(", ")}`);
    const model = readModel(mapping(value, name), name);
    if (name.endsWith("*")) patterns.push({ beginning: name.slice(0, -1), model });
    else exact.set(name, model);
  }
  patterns.sort((one, other) => other.beginning.length - one.beginning.length);
  return {
    find: (name) => exact.get(name) ?? patterns.find(({ beginning }) => name.startsWith(beginning))?.model,
    names: [...exact.keys()],
  };
}

function readModel(given: Mapping, path: string): OwnModel {
  refuseOthers(given, modelKeys, path);
  const isPriced = [...priceKeys, "tiers"].some((key) => given[key] !== undefined);
  const displayName = given["display_name"];
  if (displayName !== undefined && typeof displayName !== "string")
    throw new Error(`${path}.display_name: a text is wanted`);
  const contextWindowTokens = tokenCount(given, "context_window", path);
  const maxOutputTokens = tokenCount(given, "max_output", path);
  return {
    prices: isPriced ? [{ fromInputTokens: 0, ...readPrices(given, path) }, ...readTiers(given["tiers"], path)] : [],
    ...(displayName === undefined ? {} : { displayName }),
    ...(contextWindowTokens === undefined ? {} : { contextWindowTokens }),
    ...(maxOutputTokens === undefined ? {} : { maxOutputTokens }),
  };
}

function readTiers(value: unknown, path: string): PriceTier[] {
  if (value === undefined) return [];
  if (!Array.isArray(value)) throw new Error(`${path}.tiers: a list is wanted`);
  let last = 0;
  return value.map((row: unknown, position) => {
    const at = `${path}.tiers[${position}]`;
    const given = mapping(row, at);
    refuseOthers(given, ["from_input_tokens", ...priceKeys], at);
    const fromInputTokens = tokenCount(given, "from_input_tokens", at) ?? 0;
    if (fromInputTokens <= last)
      throw new Error(`${at}.from_input_tokens: a whole number of tokens above ${last} is wanted`);
    last = fromInputTokens;
    return { fromInputTokens, ...readPrices(given, at) };
  });
}

/** Half a price would leave each call without a cost and the reader without a reason. */
function readPrices(given: Mapping, path: string): Omit<PriceTier, "fromInputTokens"> {
  for (const key of ["input", "output"]) {
    if (given[key] === undefined) throw new Error(`${path}.${key} is missing; input and output go together`);
  }
  const inputNanoUsd = dollars(given, "input", path);
  const outputNanoUsd = dollars(given, "output", path);
  const cacheReadNanoUsd = dollars(given, "cache_read", path);
  const cacheCreationNanoUsd = dollars(given, "cache_creation", path);
  return {
    ...(inputNanoUsd === undefined ? {} : { inputNanoUsd }),
    ...(outputNanoUsd === undefined ? {} : { outputNanoUsd }),
    ...(cacheReadNanoUsd === undefined ? {} : { cacheReadNanoUsd }),
    ...(cacheCreationNanoUsd === undefined ? {} : { cacheCreationNanoUsd }),
  };
}

function dollars(given: Mapping, key: string, path: string): number | undefined {
  const value = given[key];
  if (value === undefined) return undefined;
  const nanoUsd = typeof value === "number" ? nanoUsdOf(value, "refuse") : undefined;
  if (nanoUsd !== undefined) return nanoUsd;
  throw new Error(
    `${path}.${key}: dollars per million tokens are wanted, a number from 0 to ${mostDollars} with up to 9 decimals`,
  );
}

function tokenCount(given: Mapping, key: string, path: string): number | undefined {
  const value = given[key];
  if (value === undefined) return undefined;
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= 1) return value;
  throw new Error(`${path}.${key}: a whole number of tokens from 1 is wanted`);
}

function mapping(value: unknown, path: string): Mapping {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw new Error(`${path}: entries as "key: value" are wanted`);
  return { ...value };
}

function refuseOthers(given: Mapping, known: readonly string[], path: string): void {
  const other = Object.keys(given).find((key) => !known.includes(key));
  if (other !== undefined) throw new Error(`${path}: there is no ${other}; there are: ${known.join(", ")}`);
}
