import { toJson } from "@bufbuild/protobuf";
import {
  type Model,
  type ModelPrice,
  ModelSchema,
  type Provider,
  type ValidateProviderResponse,
} from "../../gen/codeagent/v1/model_service_pb.ts";
import type { CodeAgentClient } from "../../sdk/index.ts";
import type { TakenEnvironment } from "./secrets.ts";
import { type ConnectionFlags, openModelService } from "./service.ts";
import { jsonLine, type Page, pageOn } from "./terminal.ts";

export interface ModelsFlags extends ConnectionFlags {
  readonly json?: boolean;
  readonly validate?: boolean;
  readonly all?: boolean;
}

type ModelClient = Pick<CodeAgentClient, "models">;

const pageSize = 1000;

/**
 * Shows the models of a provider, or of all that are configured; with `--validate` asks the providers instead whether
 * they answer.
 * @returns the exit code: 1 when a provider that was asked does not answer.
 */
export async function listModels(
  provider: string | undefined,
  flags: ModelsFlags,
  taken: TakenEnvironment,
): Promise<number> {
  await using service = await openModelService(flags, taken);
  const page = pageOn(process.stdout);
  if (flags.validate === true) return await validate(service, provider, flags, page);
  const isAll = flags.all === true || provider !== undefined;
  const models: Model[] = [];
  for await (const model of modelsOf(service, provider ?? "", !isAll)) {
    if (flags.json === true) page.write(jsonLine(toJson(ModelSchema, model)));
    else models.push(model);
  }
  if (flags.json === true) return 0;
  if (models.length > 0) writeTable(page, [heading, ...models.map(rowOf)]);
  else page.write(`${await whyNone(service, provider)}\n`, "dim");
  const sources = [...new Set(models.map(({ priceSource }) => priceSource))].filter((source) => source !== "");
  if (sources.length > 0)
    page.write(`\ndollars per million tokens; + means that long inputs cost more; from ${sources.join(", ")}\n`, "dim");
  return 0;
}

async function validate(
  client: ModelClient,
  wanted: string | undefined,
  flags: ModelsFlags,
  page: Page,
): Promise<number> {
  const { providers } = await client.models.listProviders({});
  const asked = wanted === undefined ? providers.filter(({ configured }) => configured).map(({ id }) => id) : [wanted];
  if (asked.length === 0 && flags.json !== true) page.write(`${noneConfigured(providers)}\n`, "dim");
  let exitCode = 0;
  for (const id of asked) {
    const check = await client.models.validateProvider({ provider: id });
    if (!check.valid) exitCode = 1;
    if (flags.json === true) {
      page.write(jsonLine({ provider: id, ...factsOf(check) }));
      continue;
    }
    const took = check.latencyMs === undefined ? "" : ` (${check.latencyMs} ms)`;
    const line = `${check.state.padEnd(16)} ${check.message}${took}\n`;
    if (check.valid) page.write(line);
    else page.write(line, "red");
  }
  return exitCode;
}

async function* modelsOf(client: ModelClient, provider: string, configuredOnly: boolean): AsyncGenerator<Model> {
  let pageToken = "";
  do {
    const found = await client.models.listModels({ provider, configuredOnly, pageSize, pageToken });
    yield* found.models;
    pageToken = found.nextPageToken;
  } while (pageToken !== "");
}

const heading = ["model", "context", "input", "output", "can"];

function rowOf(model: Model): string[] {
  const [price] = model.prices;
  const more = model.prices.length > 1 ? "+" : "";
  return [
    model.name,
    tokensText(model.contextWindowTokens),
    dollarsText(price?.inputNanoUsdPerMillionTokens, more),
    dollarsText(price?.outputNanoUsdPerMillionTokens, more),
    model.features.join(" "),
  ];
}

function tokensText(tokens: bigint | undefined): string {
  if (tokens === undefined) return "-";
  const thousands = Number(tokens) / 1000;
  return thousands < 1000 ? `${Math.round(thousands)}k` : `${Number((thousands / 1000).toFixed(2))}M`;
}

/** All its digits: cheap models cost fractions of a cent. */
function dollarsText(nanoUsd: ModelPrice["inputNanoUsdPerMillionTokens"], more: string): string {
  if (nanoUsd === undefined) return "-";
  const fraction = String(nanoUsd % 1_000_000_000n)
    .padStart(9, "0")
    .replace(/0{1,7}$/, "");
  return `${nanoUsd / 1_000_000_000n}.${fraction}${more}`;
}

/** The first and the last column begin on the left, numbers end on the right. */
function writeTable(page: Page, rows: readonly (readonly string[])[]): void {
  const widths = heading.map((_, column) => Math.max(...rows.map((row) => (row[column] ?? "").length)));
  for (const [position, row] of rows.entries()) {
    const cells = row.map((cell, column) => {
      const width = widths[column] ?? 0;
      return column === 0 ? cell.padEnd(width) : column === heading.length - 1 ? cell : cell.padStart(width);
    });
    const line = `${cells.join("  ").trimEnd()}\n`;
    if (position === 0) page.write(line, "bold");
    else page.write(line);
  }
}

async function whyNone({ models }: ModelClient, provider: string | undefined): Promise<string> {
  if (provider !== undefined)
    return `no models are known of ${provider}; any that it has can be asked as ${provider}/model`;
  const { providers } = await models.listProviders({});
  return providers.some(({ configured }) => configured)
    ? "no models are known of the providers that are configured; --all shows those of the others"
    : `${noneConfigured(providers)}; --all shows the models there are`;
}

function noneConfigured(providers: readonly Provider[]): string {
  const keys = [...new Set(providers.map(({ apiKeyEnv }) => apiKeyEnv))].filter((name) => name !== "");
  const others = "FORWARD_BASE_URL for any compatible endpoint, or run codeagent login copilot";
  return `no provider is configured; set one of ${keys.join(", ")}, or ${others}`;
}

function factsOf({ valid, state, message, latencyMs, upstreamStatus }: ValidateProviderResponse) {
  return {
    valid,
    state,
    message,
    ...(latencyMs === undefined ? {} : { latencyMs: Number(latencyMs) }),
    ...(upstreamStatus === undefined ? {} : { upstreamStatus }),
  };
}
