import type { FunctionDefinition, FunctionProvider } from "./function-provider.ts";

/** A function and the provider that runs it. */
export interface IndexedFunction {
  readonly definition: FunctionDefinition;
  readonly provider: FunctionProvider;
}

/** The functions of several providers by name, as they were when the index was made. */
export interface FunctionIndex {
  /** In the order of the providers, each provider's sorted by name. */
  readonly definitions: readonly FunctionDefinition[];
  /** Functions left out because an earlier one has their name. */
  readonly shadowed: readonly FunctionDefinition[];
  find(name: string): IndexedFunction | undefined;
}

/**
 * Asks each provider for its functions. Where two have the same name the earlier provider's stays.
 * @throws what a provider's `list` throws.
 */
export async function indexFunctions(providers: readonly FunctionProvider[]): Promise<FunctionIndex> {
  const lists = await Promise.all(providers.map(async (provider) => ({ provider, functions: await provider.list() })));
  const byName = new Map<string, IndexedFunction>();
  const shadowed: FunctionDefinition[] = [];
  for (const { provider, functions } of lists) {
    for (const definition of functions.toSorted(byNameOf)) {
      if (byName.has(definition.name)) shadowed.push(definition);
      else byName.set(definition.name, { definition, provider });
    }
  }
  return {
    definitions: [...byName.values()].map((entry) => entry.definition),
    shadowed,
    find: (name) => byName.get(name),
  };
}

/** By code unit, so that the order is the same on every machine. */
function byNameOf(left: FunctionDefinition, right: FunctionDefinition): number {
  return left.name < right.name ? -1 : left.name > right.name ? 1 : 0;
}
