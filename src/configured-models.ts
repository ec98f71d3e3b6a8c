import type { Config } from "./config.ts";
import { AddedProviders } from "./provider/added-providers.ts";
import { createModelCatalog, type ModelCatalog } from "./provider/model-catalog.ts";
import { type PriceFile, readPriceFile } from "./provider/price-file.ts";
import { createProviderRegistry, type ProviderRegistry } from "./provider/registry.ts";

export interface ConfiguredModelsMeans {
  /** Where provider keys and base URLs are found. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  /** Takes what could not be recorded. */
  readonly report: (level: "warn", message: string, facts?: Record<string, unknown>) => void;
}

export interface ConfiguredModels {
  /** To be closed by whoever asked for it. */
  readonly registry: ProviderRegistry;
  readonly catalog: ModelCatalog;
  /** Providers and the default model as they were set while the service ran. */
  readonly added: AddedProviders;
}

/**
 * The providers and prices of a configuration. Of the data directory only the logins and the providers that were added are
 * read, so that it may be in use.
 * @throws {Error} one sentence for the operator, about the script, the recordings or the file of prices.
 */
export function configuredModels(config: Config, { env, now, report }: ConfiguredModelsMeans): ConfiguredModels {
  const reportRecording = (message: string, error?: unknown) =>
    report("warn", message, error === undefined ? {} : { error });
  const registry = createProviderRegistry({
    env,
    now,
    settings: {
      endpoints: config.providers,
      dataDir: config.data_dir,
      timeouts: {
        connectMs: config["upstream.connect_timeout_ms"],
        idleMs: config["upstream.idle_timeout_ms"],
        totalMs: config["upstream.total_timeout_ms"],
      },
      circuit: { failures: config["circuit.failures"], openMs: config["circuit.open_ms"] },
      ...(config.record === "" ? {} : { record: { directory: config.record, report: reportRecording } }),
      ...(config.replay === "" ? {} : { replay: { directory: config.replay } }),
      ...(config["scripted.file"] === "" ? {} : { scripted: { file: config["scripted.file"] } }),
    },
  });
  try {
    const file = config["prices.file"];
    const { data_dir: dataDir, model: configuredModel } = config;
    const added = new AddedProviders({ registry, dataDir, configuredModel, report });
    const providers = registry.list().map(({ id }) => id);
    const own = file === "" ? undefined : readPriceFile(file, providers);
    return { registry, added, catalog: createModelCatalog({ priceFile: bothPrices(own, added) }) };
  } catch (error) {
    registry.close();
    throw error;
  }
}

/** The operator's file says more of a model than whoever added its provider. */
function bothPrices(own: PriceFile | undefined, added: AddedProviders): PriceFile {
  return {
    find: (name) => own?.find(name) ?? added.prices.find(name),
    get names() {
      return [...new Set([...(own?.names ?? []), ...added.prices.names])];
    },
  };
}
