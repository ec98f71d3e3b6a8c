import { realpathSync } from "node:fs";
import { join } from "node:path";
import type { Config } from "./config.ts";
import { addedProvidersFile } from "./provider/added-providers.ts";
import { createSandbox } from "./tool/sandbox/create-sandbox.ts";
import type { Environment } from "./tool/sandbox/environment.ts";
import type { ServerSandbox } from "./tool/sandbox/sandbox.ts";

/** The walls that the configuration asks for. */
export function configuredSandbox(config: Config, env: Environment): ServerSandbox {
  return createSandbox({
    kind: config.sandbox,
    dataDir: withoutLinks(config.data_dir),
    hidden: secretFiles(config),
    readable: config.sandbox_readable.map(withoutLinks),
    writable: config.sandbox_writable.map(withoutLinks),
    network: config.sandbox_network,
    domains: config.sandbox_domains,
    env,
  });
}

/** Files that no agent is to read, without links in their paths. */
export function secretFiles(config: Config): string[] {
  const configured = [config.file, config.token_file, config["tls.key"]].filter((path) => path !== "");
  const added = join(withoutLinks(config.data_dir), addedProvidersFile);
  return [...configured.map(withoutLinks), ...["", ".new", ".damaged"].map((end) => `${added}${end}`)];
}

/** What is mounted is found by the path without links; what is not there yet stays as it is named. */
function withoutLinks(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}
