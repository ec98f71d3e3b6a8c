import type { ServiceImpl } from "@connectrpc/connect";
import type { CodeAgentService } from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import type { LegacyCore } from "./legacy-core.ts";

/** Of the earlier service: sessions and their messages. */
export function legacySessionHandlers(_core: LegacyCore) {
  return {} satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}
