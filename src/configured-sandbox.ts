import { realpathSync } from "node:fs";
import type { Config } from "./config.ts";
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

/** Files of the configuration that no agent is to read, without links in their paths. */
export function secretFiles(config: Config): string[] {
  return [config.file, config.token_file, config["tls.key"]].filter((path) => path !== "").map(withoutLinks);
}

/** What is mounted is found by the path without links; what is not there yet stays as it is named. */
function withoutLinks(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}
