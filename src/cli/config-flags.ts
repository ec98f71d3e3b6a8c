import { readFileSync } from "node:fs";
import { type Config, readConfig, type SettingKey } from "../config.ts";
import { sentenceOf } from "./sentence.ts";

/** The settings that can be given on the command line; all others come from the environment and the file. */
export interface ConfigFlags {
  readonly config?: string;
  readonly host?: string;
  readonly port?: string;
  readonly dataDir?: string;
  readonly workspace?: string;
  readonly workspaceRoot?: readonly string[];
  readonly skillsDir?: readonly string[];
  readonly model?: string;
  readonly tokenFile?: string;
  readonly logLevel?: string;
  readonly insecure?: boolean;
  readonly script?: string;
  readonly record?: string;
  readonly replay?: string;
  /** Offers functions over MCP. */
  readonly tools?: boolean;
}

/** @throws {Error} one sentence naming the setting, where it was given and what is wanted. */
export function configFrom(flags: ConfigFlags, env: Readonly<Record<string, string | undefined>>): Config {
  const given: { [Key in SettingKey]?: unknown } = {
    host: flags.host,
    port: flags.port,
    data_dir: flags.dataDir,
    workspace: flags.workspace,
    workspace_roots: flags.workspaceRoot,
    skills_dir: flags.skillsDir,
    model: flags.model,
    token_file: flags.tokenFile,
    log_level: flags.logLevel,
    insecure: flags.insecure,
    "scripted.file": flags.script,
    record: flags.record,
    replay: flags.replay,
    "mcp_server.tools": flags.tools,
  };
  return readConfig({
    ...(flags.config === undefined ? {} : { file: flags.config }),
    flags: given,
    env,
    workingDirectory: process.cwd(),
  });
}

/**
 * The token callers have to show; empty where there is none.
 * @throws {Error} one sentence, when its file can't be read.
 */
export function readToken(config: Config): string {
  if (config.token_file === "") return config.token;
  try {
    return readFileSync(config.token_file, "utf8").trim();
  } catch (cause) {
    throw new Error(`token_file: ${config.token_file} can't be read (${sentenceOf(cause)})`, { cause });
  }
}
