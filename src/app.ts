import { randomUUID } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { ConnectRouter } from "@connectrpc/connect";
import {
  file_a3s_code_agent_v1_code_agent,
  CodeAgentService as LegacyService,
} from "../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { CodeAgentService, file_codeagent_v1_code_agent } from "../gen/codeagent/v1/code_agent_pb.ts";
import { file_codeagent_v1_mcp_service, McpService } from "../gen/codeagent/v1/mcp_service_pb.ts";
import { file_codeagent_v1_model_service, ModelService } from "../gen/codeagent/v1/model_service_pb.ts";
import { file_codeagent_v1_plan_service, PlanService } from "../gen/codeagent/v1/plan_service_pb.ts";
import { file_codeagent_v1_schedule_service, ScheduleService } from "../gen/codeagent/v1/schedule_service_pb.ts";
import { file_codeagent_v1_skill_service, SkillService } from "../gen/codeagent/v1/skill_service_pb.ts";
import { file_codeagent_v1_tool_service, ToolService } from "../gen/codeagent/v1/tool_service_pb.ts";
import { file_grpc_health_v1_health, Health } from "../gen/grpc/health/v1/health_pb.ts";
import { AgentError } from "./chat/error.ts";
import type { PermissionMode } from "./chat/session-config.ts";
import type { Config } from "./config.ts";
import { configuredMcpServers } from "./configured-mcp.ts";
import { configuredModels } from "./configured-models.ts";
import { configuredSandbox, secretFiles } from "./configured-sandbox.ts";
import { configuredSkills } from "./configured-skills.ts";
import { makeDataDir } from "./data-dir.ts";
import { dialects } from "./dialect/dialect.ts";
import { lockDataDir } from "./log/lock-file.ts";
import { openOrRescue } from "./log/open-or-rescue.ts";
import type { Store } from "./log/store.ts";
import { createMcpPath, type McpPath, mcpPath } from "./mcp-server/mcp-path.ts";
import { planCaller } from "./plan/call-plan.ts";
import { Executions, storedPlans } from "./plan/executions.ts";
import { Plans } from "./plan/plans.ts";
import { planRunner } from "./plan/run-plan.ts";
import type { ModelCatalog } from "./provider/model-catalog.ts";
import type { ProviderRegistry, ResolvedModel } from "./provider/registry.ts";
import { conversationRoutes } from "./rest/conversations.ts";
import { countTokensRoute } from "./rest/count-tokens.ts";
import { modelRoutes } from "./rest/models.ts";
import { RestDoor } from "./rest/rest-door.ts";
import { adminRight, originValues } from "./rpc/admin-right.ts";
import { theCaller } from "./rpc/caller.ts";
import { capabilityHandlers } from "./rpc/capabilities.ts";
import { defaultStreamLimits } from "./rpc/chunk-stream.ts";
import { errorInterceptor, type ReportFault } from "./rpc/error-interceptor.ts";
import { generateHandlers, turnCalls } from "./rpc/generate.ts";
import { encodedTurnCalls } from "./rpc/grpc-fast-path.ts";
import { createHealthRegistry, healthService, ServingStatus } from "./rpc/health.ts";
import { encodedEventCalls } from "./rpc/legacy/events.ts";
import { LegacyEvents } from "./rpc/legacy/legacy-events.ts";
import { legacyRoutes } from "./rpc/legacy/legacy-service.ts";
import { mcpHandlers } from "./rpc/mcp.ts";
import { modelHandlers } from "./rpc/models.ts";
import { OnceCalls } from "./rpc/once.ts";
import { pendingRequestHandlers } from "./rpc/pending-requests.ts";
import { planExecutionHandlers } from "./rpc/plan-executions.ts";
import { planHandlers } from "./rpc/plans.ts";
import { reflectionRoutes } from "./rpc/reflection.ts";
import { scheduleHandlers } from "./rpc/schedules.ts";
import { sessionHandlers } from "./rpc/sessions.ts";
import { skillHandlers } from "./rpc/skills.ts";
import { toolHandlers } from "./rpc/tools.ts";
import { type RunningServer, startServer } from "./server.ts";
import type { Model, Models } from "./session/models.ts";
import type { Profiles } from "./session/profile.ts";
import { Requests } from "./session/requests.ts";
import { Retention } from "./session/retention.ts";
import { defaultSessionLimits, type TurnEnvironment } from "./session/run-turn.ts";
import { Schedules } from "./session/schedules.ts";
import { Sessions } from "./session/sessions.ts";
import { summaryOfLog } from "./session/summary-of-log.ts";
import { fetchUrl } from "./tool/fetch-url.ts";
import type { FunctionProvider } from "./tool/function-provider.ts";
import { FunctionSets } from "./tool/function-sets.ts";
import { openHttpFunctions } from "./tool/http/open-http-functions.ts";
import { localFunctions } from "./tool/local.ts";
import { LanguageServers } from "./tool/lsp/language-servers.ts";
import { addressPolicy } from "./tool/net/address-policy.ts";
import { guardedClient } from "./tool/net/guarded-client.ts";
import { runCommand } from "./tool/run-command.ts";
import { resolveWorkspace } from "./tool/workspace.ts";
import { version } from "./version.ts";

/** Takes what an operator should know; `facts` may hold an `error`. */
export type Report = (
  level: "debug" | "info" | "warn" | "error",
  message: string,
  facts?: Record<string, unknown>,
) => void;

export interface AppOptions {
  readonly config: Config;
  /** Where provider keys and base URLs are found. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly report: Report;
  /** Functions of the embedding program, offered before the server's own. Closed with the app. */
  readonly functions?: readonly FunctionProvider[];
  /** Milliseconds since 1970; default the system's clock. */
  readonly now?: () => number;
  /** Runs schedules when their time comes; default true. */
  readonly runSchedules?: boolean;
  /** Asks the process to end in good order, as a stop signal does; absent where it is not the server's to end. */
  readonly requestStop?: () => void;
  /** Answers turns asked for over plain gRPC without going through Connect's library; default true. */
  readonly grpcFastPath?: boolean;
}

export interface App {
  /** Where it listens. */
  readonly url: string;
  readonly sessions: Sessions;
  readonly schedules: Schedules;
  /**
   * Ends in good order: no new calls, running turns get `graceMs` (default: the config's) to finish, what does not is
   * left to go on at the next start. Calling it again shortens the grace to nothing.
   */
  close(graceMs?: number): Promise<void>;
}

const defaultSystemPrompt = `You are a coding agent. You work in a folder of source code, the workspace, and have tools to look into it. Paths are relative to the workspace. Look before you answer: list, search and read what the question is about, and name the files and lines your answer rests on. Say so when you don't know.`;

/**
 * Starts the service: data directory, store, providers, functions, sessions and the port.
 * @throws {Error} one sentence for the operator, when something it needs can't be had; everything begun is undone.
 */
export async function startApp({
  config,
  env,
  report,
  functions: added = [],
  now = Date.now,
  runSchedules = true,
  grpcFastPath = true,
  requestStop,
}: AppOptions): Promise<App> {
  if (config.record !== "" && config.replay !== "")
    throw new Error("record and replay exclude each other; start the server with one of them");
  const token = tokenFrom(config);
  if (config.sandbox_network && config.sandbox !== "srt" && token === "")
    throw new Error(
      "sandbox_network: programs of agents would reach this server's own port, which asks nobody for a token, and could answer for people; set token_file, or leave it off",
    );
  const tls = tlsFrom(config);
  makeDataDir(config.data_dir);
  const undo = new AsyncDisposableStack();
  try {
    // A database that is shared needs no lock: any number of processes may work on it.
    const shared = config.database_url !== "";
    const lock = shared ? undefined : undo.adopt(lockDataDir(config.data_dir), (held) => held.release());
    const path = join(config.data_dir, "codeagent.db");
    const opened = shared ? await openSharedStore(config) : openOrRescue({ path, report, summaryOfLog, now });
    const store = undo.adopt(opened, (held) => held.close());
    const { registry, catalog, added: addedProviders } = configuredModels(config, { env, now, report });
    undo.defer(() => registry.close());
    const roots = config.workspace_roots.length === 0 ? [config.workspace] : config.workspace_roots;
    if (!existsSync(config.workspace))
      throw new Error(`workspace: ${config.workspace} does not exist; make it or name another`);
    const defaultWorkspace = await resolveWorkspace(config.workspace, [config.workspace]);
    const sandbox = undo.adopt(configuredSandbox(config, env), (held) => held.close());
    const skills = undo.adopt(configuredSkills(config, { sandbox, env, now, report }), (held) => held.close());
    const local = undo.adopt(localFunctions(), (provider) => provider.close());
    const commands = localFunctions([runCommand(sandbox)]);
    const policy = addressPolicy({ allow: config["net.allow"] });
    const web = localFunctions([fetchUrl(guardedClient(policy))]);
    const http = await openHttpFunctions(config.http, { policy, env, report });
    for (const provider of http) undo.defer(() => provider.close());
    for (const provider of added) undo.defer(() => provider.close());
    const mcpServers = undo.adopt(
      await configuredMcpServers(config, {
        ...{ sandbox, env, now, report },
        workspace: defaultWorkspace,
        connectsAtOnce: runSchedules,
      }),
      (held) => held.close(),
    );
    const languageServers = undo.adopt(new LanguageServers({ sandbox, path: env["PATH"], version, report }), (held) =>
      held.close(),
    );
    const functions = new FunctionSets({
      providers: [...added, local, commands, web, ...http, mcpServers],
      ofWorkspace: skills,
      order: config.function_order,
      now,
    });
    undo.defer(() => functions.close());
    const models = modelsOf(registry, catalog, now);
    const windowTokens = config["compaction.window_tokens"];
    const environment: TurnEnvironment = {
      models,
      functions,
      systemPrompt: config.system_prompt === "" ? defaultSystemPrompt : config.system_prompt,
      permissions: {
        mode: config["permissions.mode"],
        allow: config["permissions.allow"],
        ask: config["permissions.ask"],
        deny: [...config["permissions.deny"], ...secretFiles(config).map(denyReading)],
        sandbox: sandbox.kind,
      },
      limits: {
        ...defaultSessionLimits,
        maxSteps: config["limits.max_steps"],
        maxTurnMs: config["limits.max_turn_ms"],
        maxQueuedTurns: config["limits.max_queued_turns"],
        maxTurnsInFlight: config["limits.max_turns_in_flight"],
        maxOneOffBytes: config["limits.max_one_off_bytes"],
        retryCutAnswers: config.retry_cut_answers,
        maxAnswerRepairs: config["limits.max_answer_repairs"],
        maxRepeatedCalls: config["limits.repeated_calls"],
        approvalTimeoutMs: config.approval_timeout_ms,
        compactAtShare: config["compaction.at_share"],
        ...(windowTokens === 0 ? {} : { contextWindowTokens: windowTokens }),
      },
      profiles: profilesOf(config, registry),
      callPlan: (giver, call, own) => callPlan(giver, call, own),
      runPlan: planRunner({ plans: storedPlans(store), maxParallelSteps: config["plan.max_parallel_steps"] }),
      now,
      newId: (prefix) => `${prefix}_${randomUUID().replaceAll("-", "")}`,
      report,
    };
    const sessions = new Sessions({
      store,
      environment,
      get defaultModel() {
        return addedProviders.defaultModel;
      },
      placements: config.placement,
      oneOff: { workspace: defaultWorkspace },
    });
    const schedules = new Schedules({
      ...{ store, environment, sessions },
      get defaultModel() {
        return addedProviders.defaultModel;
      },
    });
    undo.defer(() => schedules.stop());
    const workspace = defaultWorkspace;
    const { newId } = environment;
    const executions = new Executions({ store, sessions, plans: storedPlans(store), workspace, newId });
    const maxRepairs = config["plan.max_repairs"];
    const executionState = executions.state.bind(executions);
    const plans = new Plans({ store, environment, sessions, workspace, maxRepairs, executionState });
    undo.defer(() => plans.stop());
    const callPlan = planCaller({ plans, sessions, store });
    const health = createHealthRegistry();
    const stopping = new AbortController();
    stopping.signal.addEventListener("abort", () => void schedules.stop(), { once: true });
    const capabilities = {
      version,
      maxMessageBytes: config["limits.max_message_bytes"],
      limits: environment.limits,
      get defaultModel() {
        return addedProviders.defaultModel;
      },
      profiles: [...environment.profiles.keys()],
      providers: () => registry.list(),
      async sandbox() {
        const { kind, isReady } = await sandbox.describe();
        return isReady ? kind : "";
      },
      functions: () => functions.current(defaultWorkspace),
    };
    const checkModel = (name: string) => {
      if (!environment.profiles.has(name)) registry.resolveAll(name);
    };
    const workspaceFrom = async (named: string, field?: string) =>
      named === "" ? defaultWorkspace : resolveWorkspace(named, roots, field);
    const checkMode = async (mode: PermissionMode) => {
      if (mode !== "bypass") return;
      const { kind, isReady, detail } = await sandbox.describe();
      if (isReady && kind !== "none") return;
      const why = isReady ? "" : `: ${detail}`;
      throw new AgentError("failed_precondition", `the mode bypass needs a sandbox, and there is none${why}`, {
        reason: "NO_SANDBOX",
      });
    };
    if (config["permissions.mode"] === "bypass") await checkMode("bypass");
    for (const { permissions } of environment.profiles.values()) await checkMode(permissions?.mode ?? "ask");
    const requests = new Requests(store, now);
    const once = new OnceCalls(requests);
    const retention = new Retention({
      store,
      requests,
      now,
      deltasMs: config["retention.deltas_ms"],
      everyMs: config["retention.sweep_ms"],
      report,
    });
    undo.defer(() => retention.stop());
    stopping.signal.addEventListener("abort", () => requests.stop(), { once: true });
    const streamLimits = {
      ...defaultStreamLimits,
      slowReaderMs: config["limits.slow_reader_ms"],
      slowReaderBytes: config["limits.slow_reader_bytes"],
    };
    const turns = turnCalls(sessions, streamLimits);
    const reportFault: ReportFault = (message, facts) => report("error", message, facts);
    const admin = adminRight(config.admin_api);
    const legacy = {
      ...{ sessions, schedules, plans, executions, store, registry, catalog, functions, skills, mcpServers, sandbox },
      ...{ languageServers, addedProviders },
      ...{ environment, admin, defaultWorkspace, workspaceFrom, checkMode, streamLimits, version },
      events: new LegacyEvents(),
      roleFormat: config["legacy.roleFormat"],
      get defaultModel() {
        return addedProviders.defaultModel;
      },
      defaultMode: config["permissions.mode"],
      stopping: stopping.signal,
      maxMessageBytes: config["limits.max_message_bytes"],
      ...(requestStop === undefined ? {} : { requestStop }),
    };
    const routes = (router: ConnectRouter) => {
      router.service(CodeAgentService, {
        ...generateHandlers(turns, sessions, stopping.signal, streamLimits),
        ...sessionHandlers(sessions, once, workspaceFrom, checkModel, {
          byDefault: config["permissions.mode"],
          check: checkMode,
        }),
        ...pendingRequestHandlers(sessions),
        ...capabilityHandlers(capabilities),
      });
      const { featuresOf, validate } = registry;
      router.service(ModelService, modelHandlers({ providers: registry.list, catalog, featuresOf, validate, now }));
      router.service(ToolService, toolHandlers(sessions, once, functions, stopping.signal));
      router.service(SkillService, skillHandlers(sessions, once, skills));
      const scheduleCalls = scheduleHandlers(schedules, once, workspaceFrom, config["permissions.mode"], admin);
      router.service(ScheduleService, scheduleCalls);
      router.service(McpService, mcpHandlers(mcpServers, once, admin));
      router.service(PlanService, {
        ...planHandlers(plans, once),
        ...planExecutionHandlers(executions, once, stopping.signal, streamLimits),
      });
      legacyRoutes(router, legacy);
      router.service(Health, healthService(health));
      reflectionRoutes([...contractFiles, file_a3s_code_agent_v1_code_agent, file_grpc_health_v1_health])(router);
    };
    const services = [
      CodeAgentService,
      ModelService,
      ToolService,
      SkillService,
      McpService,
      ScheduleService,
      PlanService,
      LegacyService,
    ];
    for (const service of services) health.set(service.typeName, ServingStatus.SERVING);
    const interceptors = [errorInterceptor(reportFault)];
    const mcp = createMcpPath({ routes, interceptors, offerTools: config["mcp_server.tools"], report });
    const { profiles } = environment;
    const restMeans = { sessions, principal: theCaller, workspace: defaultWorkspace, newId };
    const rest = new RestDoor({
      ...restMeans,
      routes: [
        ...modelRoutes({
          ...{ catalog, now },
          providers: () => registry.list(),
          profiles: [...profiles.keys()],
          get defaultModel() {
            return addedProviders.defaultModel;
          },
        }),
        ...conversationRoutes(restMeans),
        countTokensRoute({
          resolveAll: registry.resolveAll,
          countTokens: registry.countTokens,
          functions: async () => (await functions.current(defaultWorkspace)).definitions,
          ...{ profiles, systemPrompt: environment.systemPrompt },
          get defaultModel() {
            return addedProviders.defaultModel;
          },
        }),
      ],
      maxBodyBytes: config["limits.max_message_bytes"],
      ...{ streamLimits, now, report },
    });
    const server = await startServer({
      host: config.host,
      port: config.port,
      allowedHosts: [...config.allowed_hosts],
      allowedOrigins: [...config.allowed_origins],
      insecure: config.insecure,
      limits: {
        readMaxBytes: config["limits.max_message_bytes"],
        // A message of the largest size is shown twice in an answer: as blocks and as OpenAI shapes it.
        writeMaxBytes: 2 * config["limits.max_message_bytes"] + 1024 * 1024,
        connectionsPerAddress: config["limits.connections_per_address"],
      },
      routes,
      connect: { interceptors, contextValues: originValues },
      paths: new Map([[mcpPath, mcp.handle]]),
      doors: [rest],
      ...(grpcFastPath
        ? { grpcCalls: new Map([...encodedTurnCalls(turns, reportFault), ...encodedEventCalls(legacy, reportFault)]) }
        : {}),
      log: report,
      ...(token === "" ? {} : { token }),
      ...(tls === undefined ? {} : { tls }),
    });
    lock?.describe(`process ${process.pid} at ${server.url}`);
    await sessions.recover();
    if (runSchedules) schedules.start();
    const resources = undo.move();
    return {
      url: server.url,
      sessions,
      schedules,
      close: closing(server, mcp, sessions, health, stopping, resources, config["limits.drain_ms"]),
    };
  } catch (error) {
    await undo.disposeAsync();
    throw error;
  }
}

/** Every proto file of the contract, for reflection. */
export const contractFiles = [
  file_codeagent_v1_code_agent,
  file_codeagent_v1_model_service,
  file_codeagent_v1_tool_service,
  file_codeagent_v1_skill_service,
  file_codeagent_v1_mcp_service,
  file_codeagent_v1_plan_service,
  file_codeagent_v1_schedule_service,
];

function closing(
  server: RunningServer,
  mcp: McpPath,
  sessions: Sessions,
  health: ReturnType<typeof createHealthRegistry>,
  stopping: AbortController,
  resources: AsyncDisposableStack,
  drainMs: number,
) {
  let closed: Promise<void> | undefined;
  const close = async (graceMs: number) => {
    health.drain();
    stopping.abort();
    // The turns end first, then the streams that read them: the server's own grace is for their last words.
    const turnsEnd = sessions.drain(graceMs).then(() => mcp.close());
    await Promise.all([turnsEnd, server.drain(graceMs + 1000)]);
    await resources.disposeAsync();
  };
  return async (graceMs = drainMs) => {
    if (closed !== undefined) {
      await Promise.all([sessions.drain(0), server.close()]);
    }
    closed ??= close(graceMs);
    return closed;
  };
}

/** Longest wait for a provider that asks for one, where another model can be asked, in milliseconds. */
const shortWaitMs = 2000;

function modelsOf(registry: ProviderRegistry, catalog: ModelCatalog, now: () => number): Models {
  const modelOf = (resolved: ResolvedModel): Model => {
    const { provider, model, dialect, features } = resolved;
    // They change while the service runs.
    const asked = registry.list().find(({ id }) => id === provider) ?? { id: provider };
    return {
      provider,
      model,
      dialect,
      features,
      check: (request) => registry.check(resolved, request),
      refusal: () => registry.refusal(resolved),
      withholds: (message) => dialects[dialect].withholds(message, { provider, model }),
      async contextWindow() {
        const known = await catalog.find(asked, model, now()).catch(() => undefined);
        return known?.contextWindowTokens;
      },
      async hasPrice() {
        const known = await catalog.find(asked, model, now()).catch(() => undefined);
        return known !== undefined && known.prices.length > 0;
      },
      async priced(usage) {
        return { ...usage, ...(await catalog.costOf({ provider: asked, model, usage, atMs: now() })) };
      },
      stream: (request, signal, hasOthers) =>
        registry.streamChat(resolved, request, { signal, ...(hasOthers ? { maxWaitMs: shortWaitMs } : {}) }),
    };
  };
  return {
    find(names) {
      const [first, ...others] = registry.resolveAll(names);
      return [modelOf(first), ...others.map(modelOf)];
    },
  };
}

/** @throws {Error} one sentence for the operator, when a profile asks for a provider that there is none of. */
function profilesOf({ profiles }: Config, registry: ProviderRegistry): Profiles {
  for (const { name, model } of profiles) {
    try {
      if (model !== "") registry.resolveAll(model);
    } catch (error) {
      // A key may be missing; it is asked for when the profile is used.
      if (error instanceof AgentError && error.kind === "failed_precondition") continue;
      throw new Error(`profiles.${name}.model: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  return new Map(profiles.map((profile) => [profile.name, profile]));
}

/** @throws {Error} one sentence for the operator, when the database can't be used. */
async function openSharedStore(config: Config): Promise<Store> {
  const { openPostgresStore } = await import("./log/postgres.ts");
  const listenUrl = config["postgres.listen_url"];
  return openPostgresStore({
    url: config.database_url,
    ...(listenUrl === "" ? {} : { listenUrl }),
    pgbouncer: config["postgres.pgbouncer"],
    connections: config["postgres.connections"],
    commitIntervalMs: config["postgres.commit_interval_ms"],
    ttlMs: config["postgres.replica_ttl_ms"],
    pollMs: config["postgres.poll_ms"],
    placements: config.placement,
    build: version,
  });
}

/** A rule about one file, whatever its name is made of. */
function denyReading(path: string): string {
  return `read_file(${path.replace(/[\\*?[\]{}()!+@]/g, "?")})`;
}

function tokenFrom(config: Config): string {
  const token = config.token_file === "" ? config.token : readText("token_file", config.token_file).trim();
  const named = config.token_file !== "" || config.token !== "";
  if (named && token.trim() === "")
    throw new Error("the token is blank; set a text of at least 16 characters, or none");
  return token;
}

function tlsFrom(config: Config): { cert: string; key: string } | undefined {
  const { "tls.cert": cert, "tls.key": key } = config;
  if (cert === "" && key === "") return undefined;
  if (cert === "" || key === "") throw new Error("tls.cert and tls.key go together; one of them is missing");
  return { cert: readText("tls.cert", cert), key: readText("tls.key", key) };
}

function readText(setting: string, file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (cause) {
    throw new Error(`${setting}: ${file} can't be read (${cause instanceof Error ? cause.message : String(cause)})`, {
      cause,
    });
  }
}
