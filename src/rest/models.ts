import { AgentError } from "../chat/error.ts";
import type { CatalogModel, ModelCatalog } from "../provider/model-catalog.ts";
import type { RestCall, RestRoute } from "./rest-api.ts";

export interface ModelListMeans {
  readonly providers: () => readonly {
    readonly id: string;
    readonly configured: boolean;
    readonly baseUrl?: string;
  }[];
  readonly catalog: Pick<ModelCatalog, "list">;
  /** Names of the profiles, which can be asked like models. */
  readonly profiles: readonly string[];
  /** Models the server asks where none is named: `provider/model`, several with commas between; empty for none. */
  readonly defaultModel: string;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  /** How long one provider's list is waited for, in milliseconds; default 5000. */
  readonly timeoutMs?: number;
}

interface ListedModel {
  readonly id: string;
  readonly ownedBy: string;
  readonly displayName: string;
}

/**
 * `GET /v1/models` and `GET /v1/models/{id}`: the profiles, the server's own models, and what is known of the providers that
 * are configured. In OpenAI's shape, or in Anthropic's for requests that name an `anthropic-version`. When a model was made
 * is not known: the time told is 1970, as Anthropic's does then (platform.claude.com/docs/en/api/models/list).
 */
export function modelRoutes(means: ModelListMeans): RestRoute[] {
  return [
    {
      method: "GET",
      path: "/v1/models",
      async handle(call) {
        const models = await listModels(means);
        if (!isForAnthropic(call)) return { body: { object: "list", data: models.map(toOpenAI) } };
        const data = models.map(toAnthropic);
        return { body: { data, has_more: false, first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null } };
      },
    },
    {
      method: "GET",
      path: "/v1/models/{id+}",
      async handle(call) {
        const { id = "" } = call.params;
        const model = (await listModels(means)).find((listed) => listed.id === id);
        if (model === undefined)
          throw new AgentError(
            "not_found",
            `the model ${JSON.stringify(id.slice(0, 100))} is not among those of GET /v1/models`,
          );
        return { body: isForAnthropic(call) ? toAnthropic(model) : toOpenAI(model) };
      },
    },
  ];
}

async function listModels(means: ModelListMeans): Promise<ListedModel[]> {
  const { profiles, defaultModel, timeoutMs = defaultTimeoutMs } = means;
  const own = defaultModel.split(",").map((name) => name.trim());
  const named = own.filter((name) => name.includes("/")).map((name) => listed(name.slice(0, name.indexOf("/")), name));
  const configured = means.providers().filter((provider) => provider.configured);
  const known = await Promise.all(
    configured.map(async (provider) => {
      const models = await settledWithin(means.catalog.list(provider, means.now()), timeoutMs);
      return models.map(({ id, displayName }) => listed(provider.id, `${provider.id}/${id}`, displayName));
    }),
  );
  const all = [...profiles.map((name) => listed("codeagent", name)), ...named, ...known.flat()];
  return [...new Map(all.toReversed().map((model) => [model.id, model])).values()].toReversed();
}

const defaultTimeoutMs = 5000;

function listed(ownedBy: string, id: string, displayName = id): ListedModel {
  return { id, ownedBy, displayName };
}

/** A provider whose models can't be told now has none for the moment. */
async function settledWithin(models: Promise<CatalogModel[]>, timeoutMs: number): Promise<CatalogModel[]> {
  const { promise: late, resolve } = Promise.withResolvers<CatalogModel[]>();
  const timer = setTimeout(() => resolve([]), timeoutMs);
  try {
    return await Promise.race([models.catch(() => []), late]);
  } finally {
    clearTimeout(timer);
  }
}

function isForAnthropic({ headers }: RestCall): boolean {
  return headers["anthropic-version"] !== undefined;
}

function toOpenAI({ id, ownedBy }: ListedModel) {
  return { id, object: "model", created: 0, owned_by: ownedBy };
}

function toAnthropic({ id, displayName }: ListedModel) {
  return { type: "model", id, display_name: displayName, created_at: "1970-01-01T00:00:00Z" };
}
