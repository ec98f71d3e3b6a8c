import type { ServiceImpl } from "@connectrpc/connect";
import type { CodeAgentService } from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import type { LegacyCore } from "./legacy-core.ts";

/** Of the earlier service: approvals and when to ask. */
export function confirmationHandlers(_core: LegacyCore) {
  return {} satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}
