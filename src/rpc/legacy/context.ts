import type { ServiceImpl } from "@connectrpc/connect";
import type { CodeAgentService } from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { theCaller } from "../caller.ts";
import { sessionIdFrom } from "../request-fields.ts";
import { contextUsageOf } from "./context-usage.ts";
import type { LegacyCore } from "./legacy-core.ts";

/** Of the earlier service: context usage, compaction, clearing. */
export function contextHandlers({ sessions }: LegacyCore) {
  return {
    async getContextUsage(request) {
      return { usage: await contextUsageOf(sessions, sessionIdFrom(request.sessionId)) };
    },
    // Comes after what runs and waits in the session. With nothing to leave out it is done as well.
    async compactContext(request, context) {
      const sessionId = sessionIdFrom(request.sessionId);
      const before = await contextUsageOf(sessions, sessionId);
      await sessions.compact(theCaller, sessionId, "", "", context.signal);
      return { success: true, before, after: await contextUsageOf(sessions, sessionId) };
    },
    // As above; the log keeps what was said.
    async clearContext(request, context) {
      await sessions.clearHistory(theCaller, sessionIdFrom(request.sessionId), "", context.signal);
      return { success: true };
    },
  } satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}
