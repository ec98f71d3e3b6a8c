import { readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { createClient, createRouterTransport } from "@connectrpc/connect";
import { ModelService } from "../../gen/codeagent/v1/model_service_pb.ts";
import { type CodeAgentClient, createCodeAgentClient } from "../../sdk/index.ts";
import type { App } from "../app.ts";
import type { Config } from "../config.ts";
import { type ConfigFlags, configFrom, readToken } from "./config-flags.ts";
import { createLog } from "./log.ts";
import { hideDatabases, type TakenEnvironment } from "./secrets.ts";
import { sentenceOf } from "./sentence.ts";

/** Flags of commands that talk to a server. */
export interface ConnectionFlags extends ConfigFlags {
  /** URL of a running server. */
  readonly server?: string;
}

/** A service to talk to, wherever it runs. */
export interface Service extends AsyncDisposable {
  readonly client: CodeAgentClient;
  /** Whether it runs in this process, so that the settings of the command line are its settings. */
  readonly own: boolean;
  readonly url: string;
  /** Ends what runs in this process without waiting for turns; they go on at the next start. */
  leave(): Promise<void>;
}

/**
 * Finds the service a command works with: the one named by `--server`, else the one that runs over the data directory,
 * else one in this process, on a free port, that ends when this is disposed of.
 * @throws {Error} one sentence, when there is none and none can be started.
 */
export async function openService(flags: ConnectionFlags, { env, redactor }: TakenEnvironment): Promise<Service> {
  const config = configFrom(flags, env);
  hideDatabases([config.database_url, config["postgres.listen_url"]], redactor);
  const token = readToken(config);
  redactor.hide(token);
  if (flags.server !== undefined) return remote(serverUrl(flags.server), token);
  const { startApp } = await import("../app.ts");
  const report = createLog(config.log_level, redactor);
  const quiet: Config = { ...config, host: "127.0.0.1", port: 0, insecure: false, "tls.cert": "", "tls.key": "" };
  let app: App;
  try {
    // Whoever only looks is not to begin the work of a server.
    app = await startApp({ config: quiet, env, report, runSchedules: false });
  } catch (error) {
    // Whoever has the data directory keeps its name there; nobody else's name can be.
    const owner = dataDirOwner(config.data_dir);
    if (owner?.url === undefined) throw error;
    return remote(owner.url, token);
  }
  const client = clientOf(app.url, token);
  const close = async (graceMs?: number) => {
    client.close();
    await app.close(graceMs);
  };
  return { client, own: true, url: app.url, leave: () => close(0), [Symbol.asyncDispose]: () => close() };
}

/**
 * Finds the service that is asked for models: the one named by `--server`, else the one that runs over the data
 * directory, else one in this process. That one leaves the data directory to others: it keeps nothing there.
 */
export async function openModelService(
  flags: ConnectionFlags,
  { env, redactor }: TakenEnvironment,
): Promise<AsyncDisposable & Pick<CodeAgentClient, "models">> {
  const config = configFrom(flags, env);
  const token = readToken(config);
  redactor.hide(token);
  if (flags.server !== undefined) return modelsOf(remote(serverUrl(flags.server), token));
  const owner = dataDirOwner(config.data_dir);
  if (owner?.url !== undefined && isLocked(config.data_dir)) return modelsOf(remote(owner.url, token));
  const [{ configuredModels }, { modelHandlers }, { errorInterceptor }] = await Promise.all([
    import("../configured-models.ts"),
    import("../rpc/models.ts"),
    import("../rpc/error-interceptor.ts"),
  ]);
  const report = createLog(config.log_level, redactor);
  const { registry, catalog } = configuredModels(config, { env, now: Date.now, report });
  const { list: providers, featuresOf, validate } = registry;
  const handlers = modelHandlers({ providers, catalog, featuresOf, validate, now: Date.now });
  const interceptors = [errorInterceptor((message, facts) => report("error", message, facts))];
  const transport = createRouterTransport((router) => router.service(ModelService, handlers), {
    router: { interceptors },
  });
  return { models: createClient(ModelService, transport), [Symbol.asyncDispose]: async () => registry.close() };
}

function modelsOf(service: Service): AsyncDisposable & Pick<CodeAgentClient, "models"> {
  return { models: service.client.models, [Symbol.asyncDispose]: () => service[Symbol.asyncDispose]() };
}

/** Who says to have the data directory; it may have died without a word since. */
export function dataDirOwner(dataDir: string): { readonly name: string; readonly url: string | undefined } | undefined {
  let name: string;
  try {
    name = readFileSync(join(dataDir, "owner"), "utf8").trim();
  } catch {
    return undefined;
  }
  return { name, url: /^process \d+ at (https?:\/\/\S+)$/.exec(name)?.[1] };
}

/** Whether a server has the data directory: reading its lock file fails as long as it does. */
export function isLocked(dataDir: string): boolean {
  let lock: DatabaseSync | undefined;
  try {
    lock = new DatabaseSync(join(dataDir, "lock"), { readOnly: true });
    lock.exec("select count(*) from sqlite_master");
    return false;
  } catch (error) {
    return sentenceOf(error).includes("locked");
  } finally {
    lock?.close();
  }
}

function remote(url: string, token: string): Service {
  const client = clientOf(url, token);
  const close = async () => client.close();
  return { client, own: false, url, leave: close, [Symbol.asyncDispose]: close };
}

function clientOf(baseUrl: string, token: string): CodeAgentClient {
  return createCodeAgentClient({ baseUrl, ...(token === "" ? {} : { token }) });
}

function serverUrl(given: string): string {
  const url = URL.parse(given);
  if (url?.protocol !== "http:" && url?.protocol !== "https:") {
    throw new Error(`--server is ${JSON.stringify(given)}: a URL like http://127.0.0.1:4088 is wanted`);
  }
  return url.href.replace(/\/+$/, "");
}
