import type { ServiceImpl } from "@connectrpc/connect";
import type { CodeAgentService } from "../../gen/codeagent/v1/code_agent_pb.ts";
import type { SessionLimits } from "../session/run-turn.ts";
import type { FunctionIndex } from "../tool/function-index.ts";

/** What of the contract works here; grows as services come. */
const features = [
  "generate",
  "stream",
  "sessions",
  "subscribe",
  "fork",
  "cancel",
  "client_tools",
  "local_tools",
  "models",
  "fallback",
  "structured_output",
  "costs",
  "schedules",
  "compaction",
  "session_budgets",
  "permissions",
  "approvals",
  "questions",
  "tasks",
  "todos",
  "sandbox",
  "skills",
  "mcp",
  "http_functions",
  "plans",
  "profiles",
  "pause",
  "lanes",
];

export interface Capabilities {
  readonly version: string;
  readonly maxMessageBytes: number;
  readonly limits: SessionLimits;
  readonly defaultModel: string;
  readonly providers: () => readonly {
    readonly id: string;
    readonly dialect: string;
    readonly configured: boolean;
    readonly features: readonly string[];
  }[];
  /** Names of the profiles that are configured. */
  readonly profiles: readonly string[];
  /** The kind of sandbox in force; empty where programs can't be started. */
  readonly sandbox: () => Promise<string>;
  /** Those of the server's own workspace. */
  readonly functions: () => Promise<FunctionIndex>;
}

/** What the server can do. */
export function capabilityHandlers(capabilities: Capabilities) {
  const { limits } = capabilities;
  return {
    async getCapabilities() {
      const { definitions } = await capabilities.functions();
      return {
        version: capabilities.version,
        features,
        limits: {
          maxMessageBytes: BigInt(capabilities.maxMessageBytes),
          maxEventBytes: 1_000_000n,
          maxSteps: limits.maxSteps,
          maxTurnMs: BigInt(limits.maxTurnMs),
          maxTurnsInFlight: limits.maxTurnsInFlight,
          maxQueuedTurns: limits.maxQueuedTurns,
          maxToolOutputBytes: BigInt(256 * 1024),
        },
        providers: capabilities.providers().map((provider) => ({ ...provider, features: [...provider.features] })),
        toolCount: definitions.length,
        defaultModel: capabilities.defaultModel,
        sandbox: await capabilities.sandbox(),
        profiles: [...capabilities.profiles],
      };
    },
  } satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}
