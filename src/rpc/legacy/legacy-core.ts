import type { PermissionMode } from "../../chat/session-config.ts";
import type { Store } from "../../log/store.ts";
import type { Executions } from "../../plan/executions.ts";
import type { Plans } from "../../plan/plans.ts";
import type { AddedProviders } from "../../provider/added-providers.ts";
import type { ModelCatalog } from "../../provider/model-catalog.ts";
import type { ProviderRegistry } from "../../provider/registry.ts";
import type { TurnEnvironment } from "../../session/run-turn.ts";
import type { Schedules } from "../../session/schedules.ts";
import type { Sessions } from "../../session/sessions.ts";
import type { Skills } from "../../skill/skills.ts";
import type { FunctionSets } from "../../tool/function-sets.ts";
import type { LanguageServers } from "../../tool/lsp/language-servers.ts";
import type { McpServers } from "../../tool/mcp/mcp-servers.ts";
import type { Sandbox } from "../../tool/sandbox/sandbox.ts";
import type { AdminRight } from "../admin-right.ts";
import type { StreamLimits } from "../chunk-stream.ts";
import type { LegacyEvents } from "./legacy-events.ts";

/** How roles are told to callers of whom nothing says which era they are of. */
export const roleFormats = ["string", "enum"] as const;
export type RoleFormat = (typeof roleFormats)[number];

/** What the earlier service is answered from: the same parts that answer `codeagent.v1`. */
export interface LegacyCore {
  readonly sessions: Sessions;
  readonly schedules: Schedules;
  readonly plans: Plans;
  readonly executions: Executions;
  readonly store: Store;
  readonly registry: ProviderRegistry;
  readonly catalog: ModelCatalog;
  readonly addedProviders: AddedProviders;
  readonly functions: FunctionSets;
  readonly skills: Skills;
  readonly mcpServers: McpServers;
  readonly languageServers: LanguageServers;
  readonly sandbox: Sandbox;
  readonly environment: TurnEnvironment;
  readonly events: LegacyEvents;
  readonly admin: AdminRight;
  readonly roleFormat: RoleFormat;
  /** `provider/model`; empty for none. May be another one each time it is read. */
  readonly defaultModel: string;
  /** Absolute path of the server's own workspace. */
  readonly defaultWorkspace: string;
  /** The folder a caller names, checked; the server's own for an empty name. @throws {AgentError} that names the field. */
  readonly workspaceFrom: (named: string, field?: string) => Promise<string>;
  /** @throws {AgentError} `failed_precondition` for a mode that can't be had here. */
  readonly checkMode: (mode: PermissionMode) => Promise<void>;
  readonly defaultMode: PermissionMode;
  readonly streamLimits: StreamLimits;
  /** Aborted when the server begins to stop. */
  readonly stopping: AbortSignal;
  readonly version: string;
  readonly maxMessageBytes: number;
  /** Asks the process to end in good order; absent where it is not ours to end. */
  readonly requestStop?: () => void;
}
