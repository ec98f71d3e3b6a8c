import type { ServiceImpl } from "@connectrpc/connect";
import type { CodeAgentService } from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { theCaller } from "../caller.ts";
import { checkLength, sessionIdFrom } from "../request-fields.ts";
import type { LegacyCore } from "./legacy-core.ts";

const maxIdLength = 256;

/**
 * Of the earlier service: cancel, pause, resume. An operation is a turn. A pause outlasts a restart; what runs when it comes is
 * finished first, and the answer does not wait for that.
 */
export function controlHandlers({ sessions }: LegacyCore) {
  return {
    async cancel(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      const { operationId = "" } = request;
      checkLength(operationId, maxIdLength, "operation_id");
      const { wasRunning } = await sessions.cancelTurn(theCaller, sessionId, operationId, "");
      return { success: wasRunning };
    },
    async pause(request) {
      await sessions.pause(theCaller, sessionIdFrom(request.sessionId));
      return { success: true };
    },
    async resume(request) {
      await sessions.resume(theCaller, sessionIdFrom(request.sessionId));
      return { success: true };
    },
  } satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}
