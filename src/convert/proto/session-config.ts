import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import type {
  CreateSessionRequest,
  PermissionPolicy as ProtoPermissionPolicy,
} from "../../../gen/codeagent/v1/code_agent_pb.ts";
import { CreateSessionRequestSchema, PermissionPolicySchema } from "../../../gen/codeagent/v1/code_agent_pb.ts";
import { invalidField } from "../../chat/error.ts";
import type { PermissionPolicy, SessionConfig } from "../../chat/session-config.ts";
import { permissionModes } from "../../chat/session-config.ts";
import { checkFilled, checkRange } from "../content-check.ts";
import { present } from "../present.ts";
import { readStored } from "./error.ts";
import type { Source } from "./field.ts";
import { checkStrings, countFromProto, integerToProto, wordFromProto } from "./field.ts";
import { lanesFromProto, lanesToProto } from "./lanes.ts";
import { messageFromProto, messageToProto, messageWithoutView } from "./message.ts";
import { budgetFromProto, budgetToProto, longestTimeMs } from "./request.ts";

/**
 * Reads what a session is to be made of. Its id and the idempotency key stay with the request.
 * @throws {AgentError} `invalid_request` with the path of the field that is wrong, as in `permissions.mode`.
 */
export function sessionConfigFromProto(request: CreateSessionRequest, source: Source = "client"): SessionConfig {
  if (source === "client") checkStrings(CreateSessionRequestSchema, { ...request, initialMessages: [] }, "");
  const approvalTimeoutMs = countFromProto(request.approvalTimeoutMs, "approval_timeout_ms");
  if (source === "client") checkRange(approvalTimeoutMs, 0, longestTimeMs, "approval_timeout_ms");
  return present({
    title: request.title,
    workspace: request.workspace,
    model: request.model,
    systemPrompt: request.systemPrompt,
    permissions: request.permissions && permissionPolicyFromProto(request.permissions, "permissions", source),
    approvalTimeoutMs,
    budget: request.budget && budgetFromProto(request.budget, "budget", source),
    initialMessages: request.initialMessages.map((message, index) =>
      messageFromProto(message, `initial_messages[${index}]`, source),
    ),
    placement: request.placement === "" ? undefined : placementFromProto(request.placement),
    lanes: request.lanes && lanesFromProto(request.lanes),
    metadata: { ...request.metadata },
  });
}

function placementFromProto(placement: string): string {
  if (/^[\w.-]{1,64}$/.test(placement)) return placement;
  throw invalidField("placement", "is no name: 1 to 64 letters, digits and _ . - are wanted");
}

/** Writes what a session is made of, as the request that would make it, without id and idempotency key. */
export function sessionConfigToProto(config: SessionConfig): CreateSessionRequest {
  return create(CreateSessionRequestSchema, {
    title: config.title,
    workspace: config.workspace,
    model: config.model,
    systemPrompt: config.systemPrompt,
    permissions: config.permissions && permissionPolicyToProto(config.permissions),
    approvalTimeoutMs: integerToProto(config.approvalTimeoutMs),
    budget: config.budget && budgetToProto(config.budget),
    initialMessages: config.initialMessages.map(messageToProto),
    placement: config.placement ?? "",
    lanes: config.lanes && lanesToProto(config.lanes),
    metadata: { ...config.metadata },
  });
}

/** The form the store keeps. */
export function encodeSessionConfig(config: SessionConfig): Uint8Array {
  const request = sessionConfigToProto({ ...config, initialMessages: [] });
  request.initialMessages = config.initialMessages.map(messageWithoutView);
  return toBinary(CreateSessionRequestSchema, request);
}

/**
 * Reads the form the store keeps.
 * @throws {AgentError} `data_loss` where the bytes cannot be read.
 */
export function decodeSessionConfig(bytes: Uint8Array): SessionConfig {
  return readStored("a session's configuration", () =>
    sessionConfigFromProto(fromBinary(CreateSessionRequestSchema, bytes), "server"),
  );
}

/** Reads what an agent may do without asking; an empty mode means `ask`. */
export function permissionPolicyFromProto(
  policy: ProtoPermissionPolicy,
  path = "permissions",
  source: Source = "client",
): PermissionPolicy {
  const mode = wordFromProto(policy.mode || "ask", permissionModes, `${path}.mode`);
  const { allow, ask, deny } = policy;
  if (source === "client")
    for (const [list, rules] of Object.entries({ allow, ask, deny }))
      for (const [index, rule] of rules.entries()) checkFilled(rule, `${path}.${list}[${index}]`);
  return { mode, allow: [...allow], ask: [...ask], deny: [...deny] };
}

/** Writes what an agent may do without asking. */
export function permissionPolicyToProto(policy: PermissionPolicy): ProtoPermissionPolicy {
  return create(PermissionPolicySchema, {
    mode: policy.mode,
    allow: [...policy.allow],
    ask: [...policy.ask],
    deny: [...policy.deny],
  });
}
