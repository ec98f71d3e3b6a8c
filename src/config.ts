import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { isAbsolute, join, resolve } from "node:path";
import { parse } from "yaml";
import { permissionModes } from "./chat/session-config.ts";
import { readNamedEndpoint } from "./provider/named-endpoint.ts";
import type { NamedEndpoint } from "./provider/registry.ts";
import { adminModes } from "./rpc/admin-right.ts";
import { roleFormats } from "./rpc/legacy/legacy-core.ts";
import type { Profile } from "./session/profile.ts";
import { readProfile } from "./session/read-profile.ts";
import { type HttpSection, readHttpSection } from "./tool/http/http-section.ts";
import type { McpServerConfig } from "./tool/mcp/mcp-server-config.ts";
import { readMcpServer } from "./tool/mcp/read-mcp-server.ts";
import { nearNames } from "./tool/near-names.ts";
import { readAllowed } from "./tool/net/address-policy.ts";
import { ruleFault } from "./tool/permission.ts";
import { sandboxKinds } from "./tool/sandbox/sandbox.ts";

/** Reads one value; throws a sentence that says what is wanted. */
type Read<Value> = (value: unknown, base: string) => Value;

interface Setting<Value> {
  readonly read: Read<Value>;
  readonly byDefault: Value;
  /** What it is for, for the table of settings. */
  readonly about: string;
}

function setting<Value>(read: Read<Value>, byDefault: Value, about: string): Setting<Value> {
  return { read, byDefault, about };
}

const text: Read<string> = (value) => {
  if (typeof value === "string") return value;
  if (typeof value === "number") return String(value);
  throw new Error("a text is wanted");
};
const path: Read<string> = (value, base) => {
  const named = text(value, base);
  if (named === "") throw new Error("a path is wanted");
  if (named === "~" || named.startsWith("~/")) return join(homedir(), named.slice(1));
  return isAbsolute(named) ? named : resolve(base, named);
};
const reachable: Read<string> = (value, base) => {
  const named = text(value, base);
  readAllowed(named);
  return named;
};
const flag: Read<boolean> = (value) => {
  if (value === true || value === "true" || value === "1") return true;
  if (value === false || value === "false" || value === "0" || value === "") return false;
  throw new Error("true or false is wanted");
};
const list =
  (read: Read<string>): Read<readonly string[]> =>
  (value, base) => {
    const items: unknown[] = typeof value === "string" ? value.split(",") : Array.isArray(value) ? value : [];
    if (typeof value !== "string" && !Array.isArray(value))
      throw new Error("a list is wanted, or texts with commas between");
    return items.filter((item) => item !== "").map((item) => read(typeof item === "string" ? item.trim() : item, base));
  };
const integer =
  (least: number, most: number): Read<number> =>
  (value) => {
    const number = typeof value === "string" && /^\d+$/.test(value) ? Number(value) : value;
    if (typeof number === "number" && Number.isSafeInteger(number) && number >= least && number <= most) return number;
    throw new Error(`a whole number from ${least} to ${most} is wanted`);
  };
const share: Read<number> = (value) => {
  const number = typeof value === "string" && /^(?:0?\.\d+|0|1)$/.test(value) ? Number(value) : value;
  if (typeof number === "number" && number >= 0 && number <= 1) return number;
  throw new Error("a share from 0 to 1 is wanted, for example 0.8");
};
const oneOf =
  <const Word extends string>(words: readonly Word[]): Read<Word> =>
  (value) => {
    const word = words.find((candidate) => candidate === value);
    if (word === undefined) throw new Error(`one of ${words.join(", ")} is wanted`);
    return word;
  };

/** Texts have a rule on each line, or commas between: outside of parentheses, as a rule may have some itself. */
const rules: Read<readonly string[]> = (value, base) => {
  const given = typeof value === "string" ? value.split(/[,\n](?![^()]*\))/) : value;
  const read = list(text)(given, base).filter((rule) => rule !== "");
  for (const rule of read) {
    const fault = ruleFault(rule);
    if (fault !== undefined) throw new Error(`the rule ${rule} ${fault}`);
  }
  return read;
};

/** Every setting there is: the key in `codeagent.yaml`, and as `CODEAGENT_<KEY>` in the environment. */
export const settings = {
  host: setting(text, "127.0.0.1", "Address to listen on. Anything but loopback needs a token."),
  port: setting(integer(0, 65_535), 4088, "Port to listen on; 0 for any free one."),
  data_dir: setting(path, join(homedir(), ".codeagent"), "Where sessions are kept."),
  database_url: setting(
    text,
    "",
    "PostgreSQL for the sessions of any number of servers, as postgres://user:password@host/name; also DATABASE_URL.",
  ),
  "postgres.listen_url": setting(
    text,
    "",
    "The same database without PgBouncer between, to hear what other servers do; by default database_url.",
  ),
  "postgres.pgbouncer": setting(
    flag,
    false,
    "database_url is a PgBouncer in transaction mode: nothing is kept on a connection.",
  ),
  "postgres.connections": setting(integer(2, 1000), 10, "Most connections to PostgreSQL, besides two."),
  "postgres.commit_interval_ms": setting(
    integer(0, 1000),
    0,
    "Least time between two commits of events; more makes a slow database do less.",
  ),
  "postgres.replica_ttl_ms": setting(
    integer(1000, 600_000),
    10_000,
    "A server the database has not heard of for so long is dead, and others go on with its sessions.",
  ),
  "postgres.poll_ms": setting(integer(50, 60_000), 1000, "How often a server looks for what it was not told."),
  placement: setting(
    list(text),
    [],
    "Names under which sessions may ask for this server, as for a volume that only it has.",
  ),
  workspace: setting(path, process.cwd(), "The folder agents work in when a session names none."),
  workspace_roots: setting(
    list(path),
    [],
    "Folders that sessions may choose their workspace in; by default the workspace.",
  ),
  "permissions.mode": setting(
    oneOf(permissionModes),
    "ask",
    "What agents of sessions that do not say may do without asking: ask, read-only, accept-edits or bypass.",
  ),
  "permissions.allow": setting(rules, [], "Rules for all sessions that allow, as run_command(git status:*)."),
  "permissions.ask": setting(rules, [], "Rules for all sessions that ask; no session's rules get around them."),
  "permissions.deny": setting(rules, [], "Rules for all sessions that deny, whatever else allows."),
  sandbox: setting(
    oneOf(sandboxKinds),
    "bwrap",
    "Walls around programs that run for a model: bubblewrap's, those of the sandbox runtime (srt), or none.",
  ),
  sandbox_network: setting(
    flag,
    false,
    "Programs in the sandbox reach the network, and with it this server and all else on this machine.",
  ),
  sandbox_domains: setting(list(text), [], "With srt: the domains that this network consists of, as *.npmjs.org."),
  sandbox_readable: setting(
    list(path),
    [],
    "What programs in the sandbox may read besides the system and the workspace.",
  ),
  sandbox_writable: setting(
    list(path),
    [],
    "What they may change besides the workspace: caches, or its .git, which is read-only else.",
  ),
  skills_dir: setting(
    list(path),
    [],
    "Folders of skills, the first before the others; by default skills in the data directory.",
  ),
  bundled_skills: setting(flag, true, "Offer the skills that come with this server."),
  model: setting(text, "", "The model asked when neither request nor session names one, as provider/model."),
  system_prompt: setting(text, "", "System prompt of sessions that have none of their own."),
  token: setting(text, "", "Asked for on every path, as `Authorization: Bearer`."),
  token_file: setting(path, "", "A file with the token in it."),
  insecure: setting(flag, false, "Listen beyond loopback without a token."),
  allowed_hosts: setting(list(text), [], "Values of Host that are answered, besides our own address."),
  allowed_origins: setting(list(text), [], "Origins of web pages that may call."),
  "tls.cert": setting(path, "", "Certificate (PEM); with tls.key the port speaks TLS."),
  "tls.key": setting(path, "", "Private key (PEM)."),
  log_level: setting(
    oneOf(["trace", "debug", "info", "warn", "error", "silent"]),
    "warn",
    "What is logged, as JSON lines on stderr.",
  ),
  "scripted.file": setting(path, "", "Script (YAML) of the provider `scripted`."),
  record: setting(path, "", "Folder that gets each exchange with a model provider as a file, without credentials."),
  replay: setting(path, "", "Folder of recorded exchanges to answer from, in place of all model providers."),
  "mcp_server.tools": setting(
    flag,
    false,
    "Offer the functions themselves over MCP too, besides the agent that uses them.",
  ),
  "prices.file": setting(
    path,
    "",
    "Prices of models (YAML or JSON), in dollars per million tokens; they win over the built-in ones.",
  ),
  "limits.max_message_bytes": setting(integer(1024, 1 << 30), 16 * 1024 * 1024, "Largest message received or sent."),
  "limits.max_steps": setting(integer(1, 10_000), 50, "Model calls in a turn that names no bound."),
  "limits.max_turn_ms": setting(integer(1, 86_400_000), 30 * 60_000, "Longest turn, in milliseconds."),
  "limits.max_queued_turns": setting(integer(1, 10_000), 16, "Turns that may wait in one session."),
  "limits.max_one_off_bytes": setting(
    integer(0, 2 ** 40),
    512 * 1024 * 1024,
    "A turn without a session is refused while the answers of others, which are in memory, are larger together.",
  ),
  "limits.max_turns_in_flight": setting(integer(1, 100_000), 512, "Turns that run at the same time."),
  "limits.connections_per_address": setting(
    integer(1, 1_000_000),
    64,
    "Connections from one address that is not this machine; a proxy may need one for each call.",
  ),
  "limits.max_answer_repairs": setting(
    integer(0, 10),
    2,
    "Times a model is told that its answer is not the JSON that was asked for.",
  ),
  "plan.max_parallel_steps": setting(
    integer(1, 1000),
    8,
    "Steps of one execution of a plan that run at the same time.",
  ),
  "plan.max_repairs": setting(
    integer(0, 10),
    3,
    "Times a model that writes a plan is told what is wrong with it before the plan is given back with its faults.",
  ),
  function_order: setting(
    list(text),
    ["skill", "http", "mcp"],
    "Sources of functions, or kinds of them, in the order of their claims to a name; the server's own come first.",
  ),
  "limits.repeated_calls": setting(
    integer(0, 100),
    3,
    "Somebody is asked when a model makes the same call with the same arguments so many times running; 0 for never.",
  ),
  approval_timeout_ms: setting(
    integer(1, 7 * 86_400_000),
    5 * 60_000,
    "How long an approval or a question is waited for, where the session does not say; then it counts as denied.",
  ),
  "upstream.connect_timeout_ms": setting(
    integer(1, 600_000),
    10_000,
    "Longest wait for a connection to a model provider.",
  ),
  "upstream.idle_timeout_ms": setting(
    integer(1, 3_600_000),
    60_000,
    "Longest silence of a model provider, before its answer and within it.",
  ),
  "upstream.total_timeout_ms": setting(integer(1, 86_400_000), 30 * 60_000, "Longest model call, with its retries."),
  "net.allow": setting(
    list(reachable),
    [],
    "What fetch_url and HTTP functions may reach besides the public internet: host names, addresses, networks (10.1.0.0/16), each with or without :port.",
  ),
  "circuit.failures": setting(
    integer(0, 1000),
    5,
    "Calls in a row that end without an answer before a model is left alone for a while; 0 for never.",
  ),
  "circuit.open_ms": setting(
    integer(1, 300_000),
    15_000,
    "How long it is left alone at first; twice as long each time it fails again, up to five minutes.",
  ),
  "legacy.roleFormat": setting(
    oneOf(roleFormats),
    "string",
    "How roles are told to callers of the earlier gRPC service where nothing tells their era; also by the header x-role-format.",
  ),
  admin_api: setting(
    oneOf(adminModes),
    "local",
    "Who may add MCP servers over RPC, which start programs: callers on this machine (local), all callers (on), nobody (off).",
  ),
  retry_cut_answers: setting(
    flag,
    true,
    "Ask once more for an answer cut after nothing but text and thinking was shown.",
  ),
  "compaction.at_share": setting(
    share,
    0.8,
    "Part of a model's context window that a history may take before it is summarised; 0 for never.",
  ),
  "compaction.window_tokens": setting(
    integer(0, 1_000_000_000),
    0,
    "Context window of models whose own is unknown, in tokens; 0 for none: then they are asked until they refuse.",
  ),
  "limits.slow_reader_ms": setting(
    integer(0, 3_600_000),
    30_000,
    "How long the reader of a stream may take nothing before it is cut off; it can come back. 0 for as long as it likes.",
  ),
  "limits.slow_reader_bytes": setting(
    integer(0, 1 << 30),
    64 * 1024,
    "As long as no more than so many bytes wait for it, it is not cut off.",
  ),
  "retention.deltas_ms": setting(
    integer(0, Number.MAX_SAFE_INTEGER),
    7 * 86_400_000,
    "How long the pieces a turn was streamed in are kept after its end; its messages and results stay. 0 for ever.",
  ),
  "retention.sweep_ms": setting(integer(1, 86_400_000), 60_000, "How often what is too old is looked for."),
  "limits.drain_ms": setting(integer(0, 3_600_000), 30_000, "Time running turns get to finish at SIGTERM."),
} as const;

type Settings = typeof settings;
export type SettingKey = keyof Settings;

/** All settings, each with its value. */
export type Config = { readonly [Key in SettingKey]: Settings[Key] extends Setting<infer Value> ? Value : never } & {
  /** The file that was read, absolute; empty for none. */
  readonly file: string;
  /** Endpoints of the operator's own; from the file only. */
  readonly providers: readonly NamedEndpoint[];
  /** How agents are set up that callers choose by a name; from the file only. */
  readonly profiles: readonly Profile[];
  /** MCP servers to connect to; from the file only. */
  readonly mcp: readonly McpServerConfig[];
  /** Functions that are HTTP requests; from the file only. */
  readonly http: readonly HttpSection[];
};

export interface ConfigSources {
  /** Path of the YAML file; without it `codeagent.yaml` in the working directory, if there is one. */
  readonly file?: string;
  /** Values that win over everything, by key; from the command line. */
  readonly flags?: { readonly [Key in SettingKey]?: unknown };
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly workingDirectory: string;
}

/**
 * Reads the configuration: flags, else environment, else file, else defaults. Relative paths count from the working
 * directory, those of the file from the file.
 * @throws {Error} one sentence naming key, source and what is wanted.
 */
export function readConfig(sources: ConfigSources): Config {
  const { workingDirectory } = sources;
  const file = sources.file ?? join(workingDirectory, "codeagent.yaml");
  const fromFile = sources.file !== undefined || existsSync(file) ? readFile(file) : new Map<string, unknown>();
  for (const key of fromFile.keys()) {
    if (key === "http" || key.startsWith(httpPrefix)) continue;
    if (key === "mcp" || key.startsWith(mcpPrefix)) continue;
    if (key === "profiles" || key.startsWith(profilesPrefix)) continue;
    if (key === "providers" || key.startsWith(providersPrefix) || Object.hasOwn(settings, key)) continue;
    const sections = ["http", "mcp", "profiles", "providers"];
    const known = [...Object.keys(settings), ...sections];
    const nearKeys = nearNames(known, key);
    const near = nearKeys.length > 0 ? nearKeys : nearNames(sections, key.split(".", 1)[0] ?? "");
    const help = near.length > 0 ? `is ${near.join(" or ")} meant?` : `there are: ${known.join(", ")}`;
    throw new Error(`${file}: there is no setting ${key}; ${help}`);
  }
  const value = <Value>(key: SettingKey, { read, byDefault }: Setting<Value>): Value => {
    const flagged = sources.flags?.[key];
    const readFrom = (source: string, given: unknown, base: string): Value => {
      try {
        return read(given, base);
      } catch (error) {
        const wanted = error instanceof Error ? error.message : String(error);
        const secret = key === "token" || key === "database_url" || key === "postgres.listen_url";
        const shown = secret ? "unfit" : JSON.stringify(given);
        throw new Error(`${source} is ${shown}: ${wanted}`, { cause: error });
      }
    };
    if (flagged !== undefined) return readFrom(`${key} (command line)`, flagged, workingDirectory);
    const name = environmentName(key);
    const fromEnvironment = sources.env[name] || (key === "database_url" ? sources.env["DATABASE_URL"] : undefined);
    if (fromEnvironment !== undefined && fromEnvironment !== "")
      return readFrom(name, fromEnvironment, workingDirectory);
    const written = fromFile.get(key);
    return written === undefined ? byDefault : readFrom(`${key} in ${file}`, written, resolve(file, ".."));
  };
  return {
    file: fromFile.size === 0 ? "" : resolve(workingDirectory, file),
    providers: providersOf(fromFile, file),
    profiles: profilesOf(fromFile, file),
    mcp: mcpServersOf(fromFile, file),
    http: httpOf(fromFile, file),
    host: value("host", settings.host),
    port: value("port", settings.port),
    data_dir: value("data_dir", settings.data_dir),
    database_url: value("database_url", settings.database_url),
    "postgres.listen_url": value("postgres.listen_url", settings["postgres.listen_url"]),
    "postgres.pgbouncer": value("postgres.pgbouncer", settings["postgres.pgbouncer"]),
    "postgres.connections": value("postgres.connections", settings["postgres.connections"]),
    "postgres.commit_interval_ms": value("postgres.commit_interval_ms", settings["postgres.commit_interval_ms"]),
    "postgres.replica_ttl_ms": value("postgres.replica_ttl_ms", settings["postgres.replica_ttl_ms"]),
    "postgres.poll_ms": value("postgres.poll_ms", settings["postgres.poll_ms"]),
    placement: value("placement", settings.placement),
    workspace: value("workspace", { ...settings.workspace, byDefault: workingDirectory }),
    workspace_roots: value("workspace_roots", settings.workspace_roots),
    "permissions.mode": value("permissions.mode", settings["permissions.mode"]),
    "permissions.allow": value("permissions.allow", settings["permissions.allow"]),
    "permissions.ask": value("permissions.ask", settings["permissions.ask"]),
    "permissions.deny": value("permissions.deny", settings["permissions.deny"]),
    sandbox: value("sandbox", settings.sandbox),
    sandbox_network: value("sandbox_network", settings.sandbox_network),
    sandbox_domains: value("sandbox_domains", settings.sandbox_domains),
    sandbox_readable: value("sandbox_readable", settings.sandbox_readable),
    sandbox_writable: value("sandbox_writable", settings.sandbox_writable),
    skills_dir: value("skills_dir", settings.skills_dir),
    bundled_skills: value("bundled_skills", settings.bundled_skills),
    model: value("model", settings.model),
    system_prompt: value("system_prompt", settings.system_prompt),
    token: value("token", settings.token),
    token_file: value("token_file", settings.token_file),
    insecure: value("insecure", settings.insecure),
    allowed_hosts: value("allowed_hosts", settings.allowed_hosts),
    allowed_origins: value("allowed_origins", settings.allowed_origins),
    "tls.cert": value("tls.cert", settings["tls.cert"]),
    "tls.key": value("tls.key", settings["tls.key"]),
    log_level: value("log_level", settings.log_level),
    "scripted.file": value("scripted.file", settings["scripted.file"]),
    record: value("record", settings.record),
    replay: value("replay", settings.replay),
    function_order: value("function_order", settings.function_order),
    "limits.repeated_calls": value("limits.repeated_calls", settings["limits.repeated_calls"]),
    approval_timeout_ms: value("approval_timeout_ms", settings.approval_timeout_ms),
    "upstream.connect_timeout_ms": value("upstream.connect_timeout_ms", settings["upstream.connect_timeout_ms"]),
    "upstream.idle_timeout_ms": value("upstream.idle_timeout_ms", settings["upstream.idle_timeout_ms"]),
    "upstream.total_timeout_ms": value("upstream.total_timeout_ms", settings["upstream.total_timeout_ms"]),
    "net.allow": value("net.allow", settings["net.allow"]),
    "circuit.failures": value("circuit.failures", settings["circuit.failures"]),
    "circuit.open_ms": value("circuit.open_ms", settings["circuit.open_ms"]),
    "mcp_server.tools": value("mcp_server.tools", settings["mcp_server.tools"]),
    "prices.file": value("prices.file", settings["prices.file"]),
    "limits.max_message_bytes": value("limits.max_message_bytes", settings["limits.max_message_bytes"]),
    "limits.max_steps": value("limits.max_steps", settings["limits.max_steps"]),
    "limits.max_turn_ms": value("limits.max_turn_ms", settings["limits.max_turn_ms"]),
    "limits.max_queued_turns": value("limits.max_queued_turns", settings["limits.max_queued_turns"]),
    "limits.max_one_off_bytes": value("limits.max_one_off_bytes", settings["limits.max_one_off_bytes"]),
    "limits.max_turns_in_flight": value("limits.max_turns_in_flight", settings["limits.max_turns_in_flight"]),
    "limits.connections_per_address": value(
      "limits.connections_per_address",
      settings["limits.connections_per_address"],
    ),
    "limits.max_answer_repairs": value("limits.max_answer_repairs", settings["limits.max_answer_repairs"]),
    "plan.max_parallel_steps": value("plan.max_parallel_steps", settings["plan.max_parallel_steps"]),
    "plan.max_repairs": value("plan.max_repairs", settings["plan.max_repairs"]),
    "legacy.roleFormat": value("legacy.roleFormat", settings["legacy.roleFormat"]),
    admin_api: value("admin_api", settings.admin_api),
    retry_cut_answers: value("retry_cut_answers", settings.retry_cut_answers),
    "compaction.at_share": value("compaction.at_share", settings["compaction.at_share"]),
    "compaction.window_tokens": value("compaction.window_tokens", settings["compaction.window_tokens"]),
    "limits.slow_reader_ms": value("limits.slow_reader_ms", settings["limits.slow_reader_ms"]),
    "limits.slow_reader_bytes": value("limits.slow_reader_bytes", settings["limits.slow_reader_bytes"]),
    "retention.deltas_ms": value("retention.deltas_ms", settings["retention.deltas_ms"]),
    "retention.sweep_ms": value("retention.sweep_ms", settings["retention.sweep_ms"]),
    "limits.drain_ms": value("limits.drain_ms", settings["limits.drain_ms"]),
  };
}

const providersPrefix = "providers.";

function providersOf(fromFile: ReadonlyMap<string, unknown>, file: string): NamedEndpoint[] {
  if (fromFile.has("providers")) throw new Error(`${file}: providers: endpoints by their names are wanted`);
  return [...fromFile]
    .filter(([key]) => key.startsWith(providersPrefix))
    .map(([key, value]) => readNamedEndpoint(key.slice(providersPrefix.length), value, `${file}: ${key}`));
}

const profilesPrefix = "profiles.";

function profilesOf(fromFile: ReadonlyMap<string, unknown>, file: string): Profile[] {
  if (fromFile.has("profiles")) throw new Error(`${file}: profiles: profiles by their names are wanted`);
  return [...fromFile]
    .filter(([key]) => key.startsWith(profilesPrefix))
    .map(([key, value]) => readProfile(key.slice(profilesPrefix.length), value, `${file}: ${key}`));
}

const httpPrefix = "http.";

function httpOf(fromFile: ReadonlyMap<string, unknown>, file: string): HttpSection[] {
  if (fromFile.has("http")) throw new Error(`${file}: http: functions by their names are wanted`);
  const absolute = (path: string) => resolve(file, "..", path);
  return [...fromFile]
    .filter(([key]) => key.startsWith(httpPrefix))
    .map(([key, value]) => readHttpSection(key.slice(httpPrefix.length), value, `${file}: ${key}`, absolute));
}

const mcpPrefix = "mcp.";

function mcpServersOf(fromFile: ReadonlyMap<string, unknown>, file: string): McpServerConfig[] {
  if (fromFile.has("mcp")) throw new Error(`${file}: mcp: servers by their names are wanted`);
  return [...fromFile]
    .filter(([key]) => key.startsWith(mcpPrefix))
    .map(([key, value]) => readMcpServer(key.slice(mcpPrefix.length), value, resolve(file, ".."), `${file}: ${key}`));
}

/** The name of a setting in the environment. */
export function environmentName(key: string): string {
  return `CODEAGENT_${key.replaceAll(".", "_").toUpperCase()}`;
}

/** A file that was not named is read without a word when it is missing; a named one has to be there. */
function readFile(file: string): Map<string, unknown> {
  let content: unknown;
  try {
    content = parse(readFileSync(file, "utf8"), { maxAliasCount: 0 });
  } catch (cause) {
    throw new Error(`${file} can't be read: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
  }
  if (content === null || content === undefined) return new Map();
  if (!isMapping(content)) throw new Error(`${file}: settings as "key: value" are wanted`);
  const flat = new Map<string, unknown>();
  for (const [key, value] of Object.entries(content)) {
    if (!isMapping(value)) flat.set(key, value);
    else for (const [inner, innerValue] of Object.entries(value)) flat.set(`${key}.${inner}`, innerValue);
  }
  return flat;
}

function isMapping(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
