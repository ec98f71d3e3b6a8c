import { create, type MessageInitShape } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  type CodeAgentService,
  ConfirmationPolicySchema,
  type ConfirmToolExecutionRequest,
  TimeoutAction,
} from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { AgentError, invalidField } from "../../chat/error.ts";
import type { PendingRequest, RequestAnswer } from "../../chat/log-event.ts";
import { checkRange } from "../../convert/content-check.ts";
import { countFromProto } from "../../convert/proto/field.ts";
import { longestTimeMs } from "../../convert/proto/request.ts";
import { logRecordFrom } from "../../session/load-state.ts";
import { answeredBy } from "../../session/session-errors.ts";
import { theCaller } from "../caller.ts";
import { checkLength, sessionIdFrom } from "../request-fields.ts";
import type { LegacyCore } from "./legacy-core.ts";
import { changeSessionPolicy, readSessionPolicy, type SessionPolicy } from "./session-policy.ts";

const maxIdLength = 256;
const maxReasonLength = 64 * 1024;
const mostPending = 1000;
const historyPage = 1024;

/**
 * Of the earlier service: approvals and when to ask.
 *
 * `tool_id` is the id of a pending request or of the call that it is about. An approval is the core's own: it holds for one
 * run of what was shown, and is asked for again when that changes; then only the new request's id approves it. Nothing here
 * lets calls run unasked as a whole: `enabled: false` leaves the session's mode as it is, a timeout always denies, and no
 * lane is left out. The policy that is answered is the one in force.
 */
export function confirmationHandlers(core: LegacyCore) {
  return {
    async confirmToolExecution(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      const { toolId, reason = "" } = request;
      if (toolId === "") throw invalidField("tool_id", "is empty; name a pending request or its call");
      checkLength(toolId, maxIdLength, "tool_id");
      checkLength(reason, maxReasonLength, "reason");
      if (!reason.isWellFormed()) throw invalidField("reason", "has half a surrogate pair");
      const error = await confirm(core, sessionId, request);
      return { success: error === "", error };
    },
    async setConfirmationPolicy(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      const { policy } = request;
      if (policy === undefined) throw invalidField("policy", "is missing; give a policy");
      const timeoutMs = countFromProto(policy.defaultTimeoutMs, "policy.default_timeout_ms") ?? 0;
      checkRange(timeoutMs, 0, longestTimeMs, "policy.default_timeout_ms");
      const confirmation = {
        enabled: policy.enabled,
        autoApprove: [...new Set(policy.autoApproveTools)],
        requireConfirm: [...new Set(policy.requireConfirmTools)],
      };
      const change = (before: SessionPolicy["policies"]) => ({ ...before, confirmation });
      const after = await changeSessionPolicy(core, sessionId, change, timeoutMs);
      return { success: true, policy: policyToProto(after) };
    },
    async getConfirmationPolicy(request) {
      return { policy: policyToProto(await readSessionPolicy(core, sessionIdFrom(request.sessionId))) };
    },
  } satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}

/** Answers a pending request. @returns a sentence why that can't be, or nothing */
async function confirm(
  core: LegacyCore,
  sessionId: string,
  { toolId, approved, reason = "" }: Pick<ConfirmToolExecutionRequest, "toolId" | "approved" | "reason">,
): Promise<string> {
  const { requests } = await core.sessions.pendingRequests(theCaller, sessionId, undefined, mostPending);
  const pending = requests.map(({ request }) => request);
  const byId = pending.find(({ requestId }) => requestId === toolId);
  const ofCall = pending.filter(({ toolCallId }) => toolCallId === toolId);
  const request = byId ?? ofCall[0];
  if (request === undefined) return whatBecameOf(core, sessionId, toolId);
  if (byId === undefined && ofCall.length > 1)
    return `${ofCall.length} requests are about the call ${toolId}; name one`;
  if (request.kind === "client_tool") return `${toolId} is a task for a client: answer it with CompleteExternalTask`;
  if (request.kind === "question" && approved && reason.trim() === "")
    return `${toolId} is a question: give the answer as the reason, or say that it is not approved`;
  if (byId === undefined && approved && (await timesAsked(core, sessionId, toolId)) > 1)
    return `the call ${toolId} was asked for before; look at the new request and name that: ${request.requestId}`;
  try {
    await core.sessions.respond(theCaller, sessionId, [
      { requestId: request.requestId, decision: decisionOn(request, approved), text: reason },
    ]);
    return "";
  } catch (error) {
    if (error instanceof AgentError && error.reason === "REQUEST_RESOLVED") return error.message;
    throw error;
  }
}

function decisionOn({ kind }: PendingRequest, approved: boolean): string {
  if (!approved) return "deny";
  return kind === "question" ? "answer" : "allow_once";
}

/** Says why what was named does not wait any more. @throws {AgentError} `not_found` where it never did. */
async function whatBecameOf(core: LegacyCore, sessionId: string, toolId: string): Promise<string> {
  const [last] = (await asked(core, sessionId, toolId)).slice(-1);
  if (last === undefined)
    throw new AgentError("not_found", `nothing in session ${sessionId} waits for an approval of ${toolId}`, {
      reason: "REQUEST_NOT_FOUND",
    });
  const { request, answer } = last;
  if (answer === undefined || answer.decision === "expired")
    return `request ${request.requestId} expired before it was answered: the call was not run`;
  return `request ${request.requestId} ${answeredBy(answer.decision, answer.author)} before; that stays`;
}

async function timesAsked(core: LegacyCore, sessionId: string, toolId: string): Promise<number> {
  const all = await asked(core, sessionId, toolId);
  const turnId = all.at(-1)?.turnId;
  return all.filter((each) => each.turnId === turnId).length;
}

interface Asked {
  readonly request: PendingRequest;
  readonly turnId: string;
  answer?: RequestAnswer;
}

/** Requests of that id or about that call, in order, with their answers; from the log, for what is rarely asked. */
async function asked(core: LegacyCore, sessionId: string, toolId: string): Promise<readonly Asked[]> {
  const found: Asked[] = [];
  for (let cursor = 0; ; ) {
    const page = await core.store.readHistory(sessionId, cursor, historyPage);
    for (const stored of page) {
      const { event, turnId } = logRecordFrom(stored);
      if (event.type === "request-opened") {
        const { request } = event;
        if (request.requestId === toolId || request.toolCallId === toolId) found.push({ request, turnId });
      } else if (event.type === "request-resolved") {
        const open = found.find(({ request }) => request.requestId === event.requestId);
        if (open !== undefined) open.answer = event;
      }
    }
    const last = page.at(-1);
    if (last === undefined || page.length < historyPage) return found;
    cursor = last.seq;
  }
}

/** What holds: a mode in which nobody is asked is told as not enabled. */
function policyToProto({ policies, permissions, approvalTimeoutMs }: SessionPolicy) {
  const { autoApprove = [], requireConfirm = [] } = policies.confirmation ?? {};
  const policy: MessageInitShape<typeof ConfirmationPolicySchema> = {
    enabled: permissions.mode !== "bypass",
    autoApproveTools: [...autoApprove],
    requireConfirmTools: [...requireConfirm],
    defaultTimeoutMs: BigInt(approvalTimeoutMs),
    timeoutAction: TimeoutAction.REJECT,
    yoloLanes: [],
  };
  return create(ConfirmationPolicySchema, policy);
}
