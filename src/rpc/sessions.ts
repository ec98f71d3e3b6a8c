import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  CancelTurnResponseSchema,
  CodeAgentService,
  type CreateSessionRequest,
  DeleteSessionResponseSchema,
  PauseSessionResponseSchema,
  ResumeSessionResponseSchema,
  type Session,
  SessionSchema,
  type UpdateSessionRequest,
} from "../../gen/codeagent/v1/code_agent_pb.ts";
import { invalidField } from "../chat/error.ts";
import type { PermissionMode, PermissionPolicy, SessionConfig } from "../chat/session-config.ts";
import { historyCompactedToProto } from "../convert/proto/event.ts";
import { lanesToProto } from "../convert/proto/lanes.ts";
import { messageToProto } from "../convert/proto/message.ts";
import { budgetToProto } from "../convert/proto/request.ts";
import {
  permissionPolicyToProto,
  sessionConfigFromProto,
  sessionConfigToProto,
} from "../convert/proto/session-config.ts";
import { todoToProto } from "../convert/proto/todo.ts";
import { usageToProto } from "../convert/proto/usage.ts";
import type { NoteOf } from "../session/requests.ts";
import type { SessionView } from "../session/session-view.ts";
import type { Sessions } from "../session/sessions.ts";
import { ruleFault } from "../tool/permission.ts";
import { theCaller } from "./caller.ts";
import type { OnceCalls } from "./once.ts";
import {
  checkLength,
  checkMapLength,
  checkMessageCount,
  optionalSessionIdFrom,
  pageSizeFrom,
  pageTokenFor,
  pageTokenFrom,
  requestIdFrom,
  seqFrom,
  sessionIdFrom,
} from "./request-fields.ts";

const maxPage = 1000;
const methods = CodeAgentService.method;

/** Sessions as resources. */
export function sessionHandlers(
  sessions: Sessions,
  once: OnceCalls,
  /** The real folder behind the one a request names; the server's own for an empty one. */
  workspaceFrom: (named: string) => Promise<string>,
  /** Refuses a model that can't be asked. */
  checkModel: (name: string) => void,
  modes: {
    /** Of sessions whose permissions name none. */
    readonly byDefault: PermissionMode;
    /** Refuses a mode that can't be in force here. */
    readonly check: (mode: PermissionMode) => Promise<void>;
  },
) {
  return {
    async createSession(request) {
      const sessionId = optionalSessionIdFrom(request.sessionId);
      const requestId = requestIdFrom(request.requestId);
      checkMessageCount(request.initialMessages.length, "initial_messages");
      const config = configFrom(request, modes.byDefault);
      if (config.model !== "") checkModel(config.model);
      return once.change(methods.createSession, request, async (note) => {
        if (config.permissions !== undefined) await modes.check(config.permissions.mode);
        const workspace = await workspaceFrom(config.workspace);
        const whole = { ...config, workspace };
        return sessionToProto(await sessions.create(theCaller, whole, sessionId, requestId, noteOfSession(note)));
      });
    },
    async getSession(request) {
      return sessionToProto(await sessions.get(theCaller, sessionIdFrom(request.sessionId)));
    },
    async listSessions(request) {
      const limit = pageSizeFrom(request.pageSize, 50, maxPage);
      const [createdMs, sessionId] = pageTokenFrom(request.pageToken) ?? [];
      if (request.pageToken !== "" && (typeof createdMs !== "number" || typeof sessionId !== "string")) {
        throw invalidField("page_token", "is not a token of this list; leave it out to begin anew");
      }
      const before =
        typeof createdMs === "number" && typeof sessionId === "string" ? { createdMs, sessionId } : undefined;
      const page = await sessions.list(theCaller, before, limit);
      const last = page.sessions.at(-1);
      return {
        sessions: page.sessions.map(sessionToProto),
        nextPageToken: page.more && last !== undefined ? pageTokenFor([last.createdMs, last.sessionId]) : "",
      };
    },
    async updateSession(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      // The fields are checked by the same code as those of a new session.
      const given = configFrom(updateAsCreate(request), modes.byDefault);
      if (given.model !== "") checkModel(given.model);
      const change = (config: SessionConfig) => updatedConfig(config, given, request);
      return once.change(methods.updateSession, request, async (note) => {
        if (given.permissions !== undefined) await modes.check(given.permissions.mode);
        return sessionToProto(await sessions.update(theCaller, sessionId, change, noteOfSession(note)));
      });
    },
    async deleteSession(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      return once.change(methods.deleteSession, request, async (note) => {
        const gone = create(DeleteSessionResponseSchema);
        await sessions.delete(theCaller, sessionId, () => note(gone));
        return gone;
      });
    },
    async forkSession(request) {
      const throughSeq = request.throughSeq === undefined ? undefined : seqFrom(request.throughSeq, "through_seq");
      const sessionId = sessionIdFrom(request.sessionId);
      const forked = {
        sessionId: optionalSessionIdFrom(request.newSessionId, "new_session_id"),
        title: request.title,
        requestId: requestIdFrom(request.requestId),
      };
      return once.change(methods.forkSession, request, async (note) =>
        sessionToProto(await sessions.fork(theCaller, sessionId, throughSeq, forked, noteOfSession(note))),
      );
    },
    async listMessages(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      const limit = pageSizeFrom(request.pageSize, 100, maxPage);
      const [offset = 0] = pageTokenFrom(request.pageToken) ?? [];
      if (typeof offset !== "number" || !Number.isSafeInteger(offset) || offset < 0) {
        throw invalidField("page_token", "is not a token of this list; leave it out to begin anew");
      }
      const { messages, more } = await sessions.messages(theCaller, sessionId, offset, limit);
      return {
        messages: messages.map(messageToProto),
        nextPageToken: more ? pageTokenFor([offset + messages.length]) : "",
      };
    },
    async listTodos(request) {
      const todos = await sessions.todos(theCaller, sessionIdFrom(request.sessionId));
      return { todos: todos.map(todoToProto) };
    },
    async cancelTurn(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      return once.change(methods.cancelTurn, request, async () => {
        const requestId = requestIdFrom(request.requestId);
        const said = await sessions.cancelTurn(theCaller, sessionId, request.turnId ?? "", requestId);
        return create(CancelTurnResponseSchema, said);
      });
    },
    async pauseSession(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      return once.change(methods.pauseSession, request, async () => {
        const view = await sessions.pause(theCaller, sessionId, requestIdFrom(request.requestId));
        return create(PauseSessionResponseSchema, { session: sessionToProto(view) });
      });
    },
    async resumeSession(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      return once.change(methods.resumeSession, request, async () => {
        const view = await sessions.resume(theCaller, sessionId, requestIdFrom(request.requestId));
        return create(ResumeSessionResponseSchema, { session: sessionToProto(view) });
      });
    },
    async compactSession(request, context) {
      const { instructions } = request;
      const sessionId = sessionIdFrom(request.sessionId);
      const requestId = requestIdFrom(request.requestId);
      checkLength(instructions, 16 * 1024, "instructions");
      const { seq, event } = await sessions.compact(theCaller, sessionId, instructions, requestId, context.signal);
      return { compacted: historyCompactedToProto(event), seq: BigInt(seq) };
    },
  } satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}

/** Reads what a session is to be made of, as long as an answer can show it. */
export function noteOfSession(note: NoteOf<Session>): NoteOf<SessionView> {
  return (view) => note(sessionToProto(view));
}

/** Reads what a session is to be made of, as long as an answer can show it. */
export function configFrom(request: CreateSessionRequest, defaultMode: PermissionMode): SessionConfig {
  if (request.permissions?.mode === "") request.permissions.mode = defaultMode;
  const config = sessionConfigFromProto(request);
  checkLength(config.title, 1000, "title");
  checkLength(config.systemPrompt, 256 * 1024, "system_prompt");
  checkMapLength(config.metadata, 64 * 1024, "metadata");
  if (config.permissions !== undefined) checkRules(config.permissions);
  return config;
}

const maxRules = 1000;

function checkRules(permissions: PermissionPolicy): void {
  for (const list of ["allow", "ask", "deny"] as const) {
    const rules = permissions[list];
    if (rules.length > maxRules)
      throw invalidField(`permissions.${list}`, `has ${rules.length} rules; ${maxRules} is the most`);
    for (const [index, rule] of rules.entries()) {
      const fault = ruleFault(rule);
      if (fault !== undefined) throw invalidField(`permissions.${list}[${index}]`, fault);
    }
  }
}

function updateAsCreate(request: UpdateSessionRequest): CreateSessionRequest {
  const carrier = sessionConfigToProto({
    title: request.title ?? "",
    workspace: "",
    model: request.model ?? "",
    systemPrompt: request.systemPrompt ?? "",
    initialMessages: [],
    metadata: { ...request.metadata },
  });
  if (request.permissions !== undefined) carrier.permissions = request.permissions;
  if (request.approvalTimeoutMs !== undefined) carrier.approvalTimeoutMs = request.approvalTimeoutMs;
  if (request.budget !== undefined) carrier.budget = request.budget;
  if (request.lanes !== undefined) carrier.lanes = request.lanes;
  return carrier;
}

function updatedConfig(config: SessionConfig, given: SessionConfig, request: UpdateSessionRequest): SessionConfig {
  const metadata = Object.entries({ ...config.metadata, ...given.metadata }).filter(([, value]) => value !== "");
  return {
    ...config,
    ...(request.title === undefined ? {} : { title: given.title }),
    ...(request.model === undefined ? {} : { model: given.model }),
    ...(request.systemPrompt === undefined ? {} : { systemPrompt: given.systemPrompt }),
    ...(given.permissions === undefined ? {} : { permissions: given.permissions }),
    ...(given.budget === undefined ? {} : { budget: given.budget }),
    ...(given.lanes === undefined ? {} : { lanes: given.lanes }),
    ...(given.approvalTimeoutMs === undefined ? {} : { approvalTimeoutMs: given.approvalTimeoutMs }),
    metadata: Object.fromEntries(metadata),
  };
}

function sessionToProto(view: SessionView): Session {
  const { config, summary } = view;
  return create(SessionSchema, {
    sessionId: view.sessionId,
    title: config.title,
    workspace: config.workspace,
    model: config.model,
    state: view.state,
    messageCount: summary.messageCount,
    headSeq: BigInt(view.headSeq),
    createTime: timestampFromMs(view.createdMs),
    updateTime: timestampFromMs(view.updatedMs),
    systemPrompt: config.systemPrompt,
    metadata: { ...config.metadata },
    parentSessionId: view.parentId,
    parentSeq: BigInt(view.parentSeq),
    currentTurnId: summary.currentTurnId,
    queuedTurns: view.waitingTurns,
    placement: config.placement ?? "",
    ...(summary.usage === undefined ? {} : { usage: usageToProto(summary.usage) }),
    ...(config.permissions === undefined ? {} : { permissions: permissionPolicyToProto(config.permissions) }),
    ...(config.approvalTimeoutMs === undefined ? {} : { approvalTimeoutMs: BigInt(config.approvalTimeoutMs) }),
    ...(config.budget === undefined ? {} : { budget: budgetToProto(config.budget) }),
    ...(config.lanes === undefined ? {} : { lanes: lanesToProto(config.lanes) }),
  });
}
