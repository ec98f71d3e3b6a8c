import { constants } from "node:fs";
import { access, stat, statfs } from "node:fs/promises";
import { createServer } from "node:net";
import { dirname } from "node:path";
import { rgPath } from "@vscode/ripgrep";
import type { Config } from "../config.ts";
import { configuredMcpServers } from "../configured-mcp.ts";
import { configuredSandbox } from "../configured-sandbox.ts";
import { createProviderRegistry, type ProviderInfo, type ProviderRegistry } from "../provider/registry.ts";
import { scripted } from "../provider/scripted.ts";
import type { Profile } from "../session/profile.ts";
import { headersWithSecrets } from "../tool/http/configured-function.ts";
import { resolveWorkspace } from "../tool/workspace.ts";
import { version } from "../version.ts";
import { type ConfigFlags, configFrom } from "./config-flags.ts";
import { hideDatabases, type TakenEnvironment } from "./secrets.ts";
import { sentenceOf } from "./sentence.ts";
import { dataDirOwner, isLocked } from "./service.ts";
import { pageOn } from "./terminal.ts";

export type DoctorFlags = ConfigFlags;

/** What was found. `failed` means the service can't work so; `warning`, that somebody will miss something. */
interface Finding {
  readonly state: "ok" | "warning" | "failed" | "none";
  readonly what: string;
  readonly detail: string;
}

const leastNodeMajor = 24;
const reachLimitMs = 3000;
const leastFreeBytes = 64 * 1024 * 1024;
const fewFreeBytes = 1024 * 1024 * 1024;
/** Some take longer to start than doctors wait. */
const mcpLimitMs = 20_000;
const shownErrorLines = 10;

/**
 * Looks at everything a server needs and says what it found, without starting one. Keys are neither shown nor sent; MCP
 * servers are connected to as a server would, with their headers and variables.
 * @returns the exit code: 1 when something that is needed is missing.
 */
export async function doctor(flags: DoctorFlags, { env, redactor }: TakenEnvironment): Promise<number> {
  const config = configFrom(flags, env);
  redactor.hide(config.token);
  hideDatabases([config.database_url, config["postgres.listen_url"]], redactor);
  const findings = (
    await Promise.all([
      [nodeVersion()],
      dataDirectory(config),
      database(config),
      workspace(config),
      modelsAndProviders(config, env),
      ripgrep(),
      sandbox(config, env),
      httpFunctions(config, env),
      mcpServers(config, env),
      port(config),
    ])
  ).flat();
  const page = pageOn(process.stdout);
  page.write(`codeagent ${version}\n`, "bold");
  for (const { state, what, detail } of findings) {
    const mark = state === "none" ? "-" : state;
    const line = `${mark.padEnd(8)} ${what}: ${redactor.redact(detail)}\n`;
    if (state === "ok") page.write(line);
    else page.write(line, state === "none" ? "dim" : "red");
  }
  return findings.some(({ state }) => state === "failed") ? 1 : 0;
}

function nodeVersion(): Finding {
  const good = Number(process.versions.node.split(".")[0]) >= leastNodeMajor;
  const detail = `${process.version} on ${process.platform}-${process.arch}`;
  return good
    ? { state: "ok", what: "Node.js", detail }
    : { state: "failed", what: "Node.js", detail: `${detail}; ${leastNodeMajor} or newer is needed` };
}

async function dataDirectory({ data_dir: dataDir }: Config): Promise<Finding[]> {
  const what = "data directory";
  const place = await nearestExisting(dataDir);
  try {
    if (!(await stat(place)).isDirectory()) throw new Error(`${place} is no directory`);
    await access(place, constants.W_OK | constants.X_OK);
  } catch (error) {
    return [{ state: "failed", what, detail: `${dataDir} can't be written: ${sentenceOf(error)}` }];
  }
  const { bavail, bsize } = await statfs(place);
  const freeBytes = bavail * bsize;
  const free = `${(freeBytes / 1e9).toFixed(1)} GB free`;
  const made = place === dataDir ? "writable" : "will be made";
  return [
    { state: "ok", what, detail: `${dataDir}, ${made}` },
    freeBytes < leastFreeBytes
      ? { state: "failed", what: "free space", detail: `${free}; make room` }
      : { state: freeBytes < fewFreeBytes ? "warning" : "ok", what: "free space", detail: free },
    { state: "none", what: "in use by", detail: isLocked(dataDir) ? (dataDirOwner(dataDir)?.name ?? "?") : "nobody" },
  ];
}

async function database({ database_url: url, "postgres.pgbouncer": pgbouncer }: Config): Promise<Finding[]> {
  const what = "database";
  if (url === "") return [{ state: "none", what, detail: "SQLite, a file in the data directory" }];
  const { inspectPostgres } = await import("../log/postgres-inspect.ts");
  try {
    const { place, version: known, servers, schemaVersion, synchronous } = await inspectPostgres(url, pgbouncer);
    const tables = schemaVersion === 0 ? "tables will be made" : `${servers} servers use it now`;
    const standby = synchronous ? [] : [lossyFailover];
    return [{ state: "ok", what, detail: `${place}, PostgreSQL ${known}, ${tables}` }, ...standby];
  } catch (error) {
    return [{ state: "failed", what, detail: sentenceOf(error) }];
  }
}

const lossyFailover: Finding = {
  state: "none",
  what: "failover",
  detail: "no synchronous standby: a failover may lose what was committed last (synchronous_standby_names)",
};

async function nearestExisting(path: string): Promise<string> {
  for (let place = path; ; place = dirname(place)) {
    const found = await stat(place).catch(() => undefined);
    if (found !== undefined || dirname(place) === place) return place;
  }
}

async function workspace(config: Config): Promise<Finding[]> {
  const what = "workspace";
  try {
    const found = await resolveWorkspace(config.workspace, [config.workspace]);
    await access(found, constants.R_OK | constants.X_OK);
    return [{ state: "ok", what, detail: found }];
  } catch (error) {
    return [{ state: "failed", what, detail: `${config.workspace}: ${sentenceOf(error)}` }];
  }
}

async function modelsAndProviders(config: Config, env: TakenEnvironment["env"]): Promise<Finding[]> {
  const file = config["scripted.file"];
  let registry: ProviderRegistry;
  try {
    const settings = {
      endpoints: config.providers,
      dataDir: config.data_dir,
      ...(file === "" ? {} : { scripted: { file } }),
    };
    registry = createProviderRegistry({ env, settings });
  } catch (error) {
    return [{ state: "failed", what: "script", detail: sentenceOf(error) }];
  }
  try {
    const model = modelFinding(config.model, registry);
    const chosen = config.model.split("/", 1)[0];
    const found = await Promise.all(
      registry.list().map((provider): Promise<Finding> | Finding => {
        const { id, configured } = provider;
        if (configured) return reach(provider, env, id === chosen);
        return { state: "none", what: id, detail: `not configured: ${whatIsMissing(registry, id)}` };
      }),
    );
    const some = found.some(({ state }) => state !== "none");
    const detail = "none is configured; set OPENAI_API_KEY, or FORWARD_BASE_URL for any compatible endpoint";
    const profiles = config.profiles.map((profile) => profileFinding(profile, registry));
    return [model, ...profiles, ...found, ...(some ? [] : [{ state: "failed", what: "providers", detail } as const])];
  } finally {
    registry.close();
  }
}

function modelFinding(model: string, registry: ProviderRegistry): Finding {
  const what = "default model";
  if (model === "") {
    return { state: "warning", what, detail: "none; each request has to name one, or set CODEAGENT_MODEL" };
  }
  try {
    resolveEach(model, registry);
    return { state: "ok", what, detail: model };
  } catch (error) {
    return { state: "failed", what, detail: sentenceOf(error) };
  }
}

/** The server works without; who asks for the profile is refused. */
function profileFinding({ name, model }: Profile, registry: ProviderRegistry): Finding {
  const what = `profile ${name}`;
  if (model === "") return { state: "ok", what, detail: "the model that is asked otherwise" };
  try {
    resolveEach(model, registry);
    return { state: "ok", what, detail: model };
  } catch (error) {
    return { state: "warning", what, detail: sentenceOf(error) };
  }
}

/** @throws {AgentError} as `ProviderRegistry.resolve`, for the first of a list that can't be asked. */
function resolveEach(models: string, registry: ProviderRegistry): void {
  for (const model of models.split(",")) registry.resolve(model.trim());
}

function whatIsMissing(registry: ProviderRegistry, id: string): string {
  try {
    registry.resolve(`${id}/any`);
    return "";
  } catch (error) {
    return sentenceOf(error);
  }
}

/** Any answer will do: it is not asked for anything, and gets no key. */
async function reach(
  { id, baseUrl = "", apiKeyEnv = "" }: ProviderInfo,
  env: TakenEnvironment["env"],
  needed: boolean,
): Promise<Finding> {
  if (id === scripted.id) return { state: "ok", what: id, detail: "configured; answers from its script" };
  const url = URL.parse(baseUrl);
  if (url === null) return { state: "failed", what: id, detail: "has no base URL" };
  const keyed = (env[apiKeyEnv] ?? "") === "" ? "no key" : "key set";
  try {
    const answer = await fetch(url, { redirect: "manual", signal: AbortSignal.timeout(reachLimitMs) });
    await answer.body?.cancel();
    return { state: "ok", what: id, detail: `configured, ${keyed}, ${url.href} is reachable` };
  } catch (error) {
    const why = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    const detail = `configured, ${keyed}, but ${url.href} can't be reached within ${reachLimitMs / 1000} s: ${sentenceOf(why)}`;
    return { state: needed ? "failed" : "warning", what: id, detail };
  }
}

/** Connects to each MCP server once; of one that fails the end of its standard error is shown too. */
async function mcpServers(config: Config, env: TakenEnvironment["env"]): Promise<Finding[]> {
  const findings: Finding[] = [];
  const report = (_level: string, message: string, facts: Record<string, unknown> = {}) => {
    const { diagnostics } = facts;
    const more = Array.isArray(diagnostics) ? `: ${diagnostics.join("; ")}` : "";
    // What a server's state says is said below.
    if (facts["error"] === undefined) findings.push({ state: "warning", what: "MCP", detail: `${message}${more}` });
  };
  const workspace = await resolveWorkspace(config.workspace, [config.workspace]).catch(() => undefined);
  if (workspace === undefined) return [];
  const walls = configuredSandbox(config, env);
  const options = { sandbox: walls, env, workspace, connectsAtOnce: true, now: Date.now, report };
  const servers = await configuredMcpServers(config, options);
  try {
    await servers.settled(mcpLimitMs);
    for (const { server, state, error, toolNames, serverInfo } of servers.views()) {
      const what = `MCP server ${server.name}`;
      if (state === "ready") findings.push({ state: "ok", what, detail: `${toolNames.length} tools, ${serverInfo}` });
      else {
        const said = servers.errorText(server.name).trim().split("\n").slice(-shownErrorLines).join("\n         ");
        const detail = `${state}${error === "" ? "" : `: ${error}`}${said === "" ? "" : `; it wrote:\n         ${said}`}`;
        findings.push({ state: "warning", what, detail });
      }
    }
    return findings;
  } finally {
    await servers.close();
    await walls.close();
  }
}

async function ripgrep(): Promise<Finding[]> {
  try {
    await access(rgPath, constants.X_OK);
    return [{ state: "ok", what: "ripgrep", detail: "present" }];
  } catch {
    return [{ state: "failed", what: "ripgrep", detail: "missing, so files can't be searched; run npm install again" }];
  }
}

async function sandbox(config: Config, env: TakenEnvironment["env"]): Promise<Finding[]> {
  const what = "sandbox";
  const walls = configuredSandbox(config, env);
  try {
    const { kind, isReady, detail } = await walls.describe();
    if (!isReady) return [{ state: "warning", what, detail }];
    if (kind !== "none") return [{ state: "ok", what, detail }];
    return [{ state: "warning", what, detail: `${detail}, because the configuration says so` }];
  } finally {
    await walls.close();
  }
}

function httpFunctions({ http }: Config, env: TakenEnvironment["env"]): Finding[] {
  return http.map(({ name, place, headers }) => {
    const what = `http.${name}`;
    try {
      headersWithSecrets(headers, env, place);
      return { state: "ok", what, detail: "configured; nothing was asked" };
    } catch (error) {
      return { state: "failed", what, detail: sentenceOf(error) };
    }
  });
}

async function port(config: Config): Promise<Finding[]> {
  const what = "address";
  const where = `port ${config.port} on ${config.host}`;
  const probe = createServer();
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  probe.once("error", reject);
  probe.listen(config.port, config.host, resolve);
  try {
    await promise;
    return [{ state: "ok", what, detail: `${where} is free` }];
  } catch (error) {
    const owner = dataDirOwner(config.data_dir);
    const ours = URL.parse(owner?.url ?? "")?.port === String(config.port) && isLocked(config.data_dir);
    if (ours) return [{ state: "ok", what, detail: `${where} is what ${owner?.name} listens on` }];
    return [
      { state: "failed", what, detail: `${where} can't be had: ${sentenceOf(error)}; choose another with --port` },
    ];
  } finally {
    probe.close();
  }
}
