import type { ConnectRouter } from "@connectrpc/connect";
import { confirmationHandlers } from "./confirmation.ts";
import { contextHandlers } from "./context.ts";
import { controlHandlers } from "./control.ts";
import { cronHandlers } from "./cron.ts";
import { eitherEraMethods, sharedMethods } from "./either-era-service.ts";
import { eventHandlers } from "./events.ts";
import { legacyGenerateHandlers } from "./generate.ts";
import { laneHandlers } from "./lanes.ts";
import { languageServerHandlers } from "./language-servers.ts";
import type { LegacyCore } from "./legacy-core.ts";
import { lifecycleHandlers } from "./lifecycle.ts";
import { legacyMcpHandlers } from "./mcp.ts";
import { memoryHandlers } from "./memories.ts";
import { legacyPermissionHandlers } from "./permissions.ts";
import { legacyPlanHandlers } from "./plans.ts";
import { providerHandlers } from "./providers.ts";
import { legacySessionHandlers } from "./sessions.ts";
import { legacySkillHandlers } from "./skills.ts";
import { todoHandlers } from "./todos.ts";

/** Answers the clients of the earlier service, whose package is `a3s.code.agent.v1`, from the same core. */
export function legacyRoutes(router: ConnectRouter, core: LegacyCore): void {
  const { createSession, ...sessionHandlers } = legacySessionHandlers(core);
  router.service(eitherEraMethods, { createSession, ...legacyGenerateHandlers(core) });
  router.service(sharedMethods, {
    ...lifecycleHandlers(core),
    ...sessionHandlers,
    ...contextHandlers(core),
    ...controlHandlers(core),
    ...laneHandlers(core),
    ...todoHandlers(core),
    ...confirmationHandlers(core),
    ...legacyPermissionHandlers(core),
    ...eventHandlers(core),
    ...legacySkillHandlers(core),
    ...legacyMcpHandlers(core),
    ...memoryHandlers(core),
    ...cronHandlers(core),
    ...languageServerHandlers(core),
    ...providerHandlers(core),
    ...legacyPlanHandlers(core),
  });
}
