import { createHash } from "node:crypto";
import type { FunctionDefinition, FunctionProvider } from "./function-provider.ts";

/** A function and the provider that runs it. */
export interface IndexedFunction {
  readonly definition: FunctionDefinition;
  readonly provider: FunctionProvider;
  /** What the provider calls it; another name than the definition's where an earlier function has that one. */
  readonly name: string;
}

/** The functions of several providers by name, as they were when the index was made. */
export interface FunctionIndex {
  /** In the order of the providers, each provider's sorted by name: the same set gives the same bytes. */
  readonly definitions: readonly FunctionDefinition[];
  /** Functions that got a qualified name because an earlier one has theirs. */
  readonly renamed: readonly IndexedFunction[];
  /** The same for the same functions, on any server: SHA-256 in hexadecimal over all that a caller can see of them. */
  readonly digest: string;
  find(name: string): IndexedFunction | undefined;
}

/** Names of MCP tools say which server's they are, and rules rely on it. */
const ofMcpOnly = "mcp__";
/** The longest name that every model provider takes. */
const maxNameCharacters = 64;

/**
 * Asks each provider for its functions. Where two have the same name the earlier provider's keeps it, and the other one is
 * offered as `<source>__<name>`; so is what has the name of an MCP tool and is none.
 * @throws what a provider's `list` throws.
 */
export async function indexFunctions(providers: readonly FunctionProvider[]): Promise<FunctionIndex> {
  const lists = await Promise.all(providers.map(async (provider) => ({ provider, functions: await provider.list() })));
  const byName = new Map<string, IndexedFunction>();
  const renamed: IndexedFunction[] = [];
  for (const { provider, functions } of lists) {
    for (const definition of functions.toSorted(byNameOf)) {
      const { name, source } = definition;
      const isReserved = name.startsWith(ofMcpOnly) && !source.startsWith("mcp:");
      if (!isReserved && !byName.has(name)) {
        byName.set(name, { definition, provider, name });
        continue;
      }
      const other = { definition: { ...definition, name: freeName(byName, definition) }, provider, name };
      byName.set(other.definition.name, other);
      renamed.push(other);
    }
  }
  const definitions = [...byName.values()].map((entry) => entry.definition);
  return {
    definitions,
    renamed,
    digest: createHash("sha256").update(JSON.stringify(definitions)).digest("hex"),
    find: (name) => byName.get(name),
  };
}

/** A name that says where the function comes from, for one whose own is taken. */
function freeName(taken: ReadonlyMap<string, unknown>, { source, name }: FunctionDefinition): string {
  const plain = `${source}__${name}`.replace(/[^\p{ASCII}]|[^A-Za-z0-9_-]/gu, "_");
  for (let count = 0; ; count++) {
    const candidate = shortName(count === 0 ? plain : `${plain}_${count + 1}`);
    if (!taken.has(candidate)) return candidate;
  }
}

/** A name as it is, or its beginning with a digest of the whole where it is longer than providers take. */
export function shortName(name: string): string {
  if (name.length <= maxNameCharacters) return name;
  const digest = createHash("sha256").update(name).digest("hex").slice(0, 8);
  return `${name.slice(0, maxNameCharacters - digest.length - 1)}_${digest}`;
}

/** By code unit, so that the order is the same on every machine. */
function byNameOf(left: FunctionDefinition, right: FunctionDefinition): number {
  return left.name < right.name ? -1 : left.name > right.name ? 1 : 0;
}
