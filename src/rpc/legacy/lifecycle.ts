import { create } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  AgentInfoSchema,
  type CodeAgentService,
  HealthCheckResponse_Status as Status,
} from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { AgentError } from "../../chat/error.ts";
import { isJsonObject, parseJson } from "../../dialect/json.ts";
import type { Model } from "../../session/models.ts";
import type { LegacyCore } from "./legacy-core.ts";

/** What of the earlier service works here. */
const features = [
  "generate",
  "streaming",
  "structured_output",
  "sessions",
  "context_compaction",
  "events",
  "cancel",
  "confirmation",
  "permissions",
  "lanes",
  "todos",
  "skills",
  "providers",
  "plans",
  "memory",
  "mcp",
  "lsp",
  "cron",
];

/** Of the earlier service: healthCheck, getCapabilities, initialize, shutdown. */
export function lifecycleHandlers(core: LegacyCore) {
  const { environment, sessions, functions, version } = core;
  const info = () =>
    create(AgentInfoSchema, {
      name: "codeagent",
      version,
      description: "A coding agent as a service",
      license: "Apache-2.0",
    });

  return {
    async healthCheck() {
      const isStopping = core.stopping.aborted || sessions.draining;
      return {
        status: isStopping ? Status.DEGRADED : Status.HEALTHY,
        message: isStopping ? "the server is shutting down" : "the server is ready",
        details: { version, working_sessions: String(sessions.working) },
      };
    },
    /** The models are those that a request without one asks; ListProviders tells of all. */
    async getCapabilities() {
      const { definitions } = await functions.current(core.defaultWorkspace);
      const models = defaultModels(core);
      const windowTokens = await models[0]?.contextWindow();
      const { limits } = environment;
      return {
        info: info(),
        features,
        tools: definitions.map(({ name, description, parameters }) => ({
          name,
          description,
          parameters: propertiesOf(parameters),
        })),
        models: models.map(({ provider, model, features }) => ({ provider, model, features: [...features] })),
        limits: {
          maxContextTokens: BigInt(windowTokens ?? limits.contextWindowTokens ?? 0),
          maxConcurrentSessions: limits.maxTurnsInFlight,
          maxToolsPerRequest: limits.maxCallsPerStep,
        },
        metadata: { max_message_bytes: String(core.maxMessageBytes) },
      };
    },
    /** Changes nothing: the server has its workspace and environment from its operator. A folder it may use is confirmed. */
    async initialize(request) {
      const count = Object.keys(request.env).length;
      const variables =
        count === 0
          ? ""
          : `; ${count === 1 ? "the variable" : `the ${count} variables`} of env ${count === 1 ? "was" : "were"} not taken over, since the server's environment is set where it is started`;
      try {
        await core.workspaceFrom(request.workspace);
      } catch (error) {
        if (!(error instanceof AgentError)) throw error;
        return { success: false, message: error.message + variables, info: info() };
      }
      return { success: true, message: `ready${variables}`, info: info() };
    },
    async shutdown(_request, context) {
      core.admin(context);
      if (core.requestStop === undefined)
        throw new AgentError(
          "unimplemented",
          "the server is part of another program, which alone can end it; stop that program",
        );
      core.requestStop();
      return { success: true, message: "the server ends once the turns that run have had their time" };
    },
  } satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}

/** None where none is set, or what is set can't be asked. */
function defaultModels({ defaultModel, environment }: LegacyCore): readonly Model[] {
  if (defaultModel === "") return [];
  try {
    return environment.models.find(defaultModel);
  } catch (error) {
    if (error instanceof AgentError) return [];
    throw error;
  }
}

/** Names of a function's arguments. */
function propertiesOf(parameters: string): string[] {
  const schema = parseJson(parameters);
  const properties = isJsonObject(schema) ? schema["properties"] : undefined;
  return isJsonObject(properties) ? Object.keys(properties) : [];
}
