import { create, type DescMessage, type MessageShape, toBinary } from "@bufbuild/protobuf";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import {
  type CodeAgentService,
  type ContentBlock,
  ContentBlockSchema,
  ContextUsageSchema,
  type ConversationMessage,
  ConversationMessageSchema,
  CreateSessionResponseSchema,
  type SessionConfig as LegacyConfig,
  type LLMConfig,
  LLMConfigSchema,
  type Session,
  SessionConfigSchema,
  SessionSchema,
  SessionState,
  StorageType,
} from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import type { EitherEraService } from "../../../gen/codeagent/legacy/v1/either_era_pb.ts";
import { invalidField } from "../../chat/error.ts";
import type { ContentBlock as Block, Message } from "../../chat/message.ts";
import type { SessionConfig } from "../../chat/session-config.ts";
import type { SessionPosition } from "../../log/store.ts";
import type { SessionView } from "../../session/session-view.ts";
import { theCaller } from "../caller.ts";
import { checkLength, checkMessageCount, optionalSessionIdFrom, sessionIdFrom } from "../request-fields.ts";
import { contextUsageOf } from "./context-usage.ts";
import { readRequest } from "./era.ts";
import { type KeptSettings, keptFrom, withKept } from "./kept-settings.ts";
import type { LegacyCore } from "./legacy-core.ts";

/** Most bytes of sessions or messages in one answer: clients take 4 MB where they don't say otherwise. */
const maxAnswerBytes = 3 * 1024 * 1024;
const maxSessions = 5000;
const maxMessages = 1000;
const pageSize = 500;
const maxTemperature = 2;

type ServerSide = typeof EitherEraService & typeof CodeAgentService;

/** Of the earlier service: sessions and their messages. */
export function legacySessionHandlers(core: LegacyCore) {
  const { sessions } = core;

  const told = async (view: SessionView): Promise<Session> =>
    sessionToLegacy(view, await contextUsageOf(sessions, view.sessionId));

  /** Keys of providers are the server's own; one that comes over the wire is not looked at. */
  const warnOfKey = (sessionId: string, llm: LLMConfig | undefined): void => {
    if (llm === undefined || llm.apiKey === "") return;
    core.events.publish({
      type: "WARNING",
      sessionId,
      message: "config.llm.api_key was dropped: the server asks providers with keys of its own configuration",
      data: { field: "config.llm.api_key" },
      timeMs: core.environment.now(),
    });
  };

  return {
    async getSession(request) {
      return { session: await told(await sessions.get(theCaller, sessionIdFrom(request.sessionId))) };
    },
    /**
     * Newest first: there are no pages, so the oldest are left out where there are more than fit an answer. How many tokens
     * each has is told where a single one is asked for.
     */
    async listSessions() {
      const found: Session[] = [];
      const fits = answerRoom(SessionSchema);
      let before: SessionPosition | undefined;
      while (found.length < maxSessions) {
        const page = await sessions.list(theCaller, before, Math.min(pageSize, maxSessions - found.length));
        for (const view of page.sessions) {
          const session = sessionToLegacy(view);
          if (!fits(session)) return { sessions: found };
          found.push(session);
        }
        const last = page.sessions.at(-1);
        if (!page.more || last === undefined) break;
        before = { createdMs: last.createdMs, sessionId: last.sessionId };
      }
      return { sessions: found };
    },
    async destroySession(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      await sessions.delete(theCaller, sessionId);
      core.events.publish({
        type: "SESSION_DESTROYED",
        sessionId,
        message: `session ${sessionId} was destroyed`,
        data: {},
        timeMs: core.environment.now(),
      });
      return { success: true };
    },
    /** Changes the fields that are set; an empty text, 0 and false leave what there is. */
    async configureSession(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      const given = request.config ?? create(SessionConfigSchema);
      const before = await sessions.get(theCaller, sessionId);
      checkConfig(given);
      const model = modelFrom(given.llm, core);
      const workspace =
        given.workspace === ""
          ? before.config.workspace
          : await core.workspaceFrom(given.workspace, "config.workspace");
      if (workspace !== before.config.workspace)
        throw invalidField("config.workspace", "can't be changed; create a session for another folder");
      const change = (config: SessionConfig): SessionConfig => ({
        ...config,
        ...(given.name === "" ? {} : { title: given.name }),
        ...(given.systemPrompt === "" ? {} : { systemPrompt: given.systemPrompt }),
        ...(model === "" ? {} : { model }),
        metadata: withKept(config.metadata, { ...keptFrom(config), ...keptOf(given) }),
      });
      const view = await sessions.update(theCaller, sessionId, change);
      warnOfKey(sessionId, given.llm);
      return { session: await told(view) };
    },
    /** At most a thousand, and no more than fit an answer: `has_more` says that there are others. */
    async getMessages(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      const offset = request.offset ?? 0;
      const limit = Math.min(request.limit || maxMessages, maxMessages);
      const { messages, more } = await sessions.messages(theCaller, sessionId, offset, limit);
      const { summary, createdMs } = await sessions.get(theCaller, sessionId);
      const fits = answerRoom(ConversationMessageSchema);
      const all = messages.map((message) => messageToLegacy(message, createdMs));
      const first = all.findIndex((message) => !fits(message));
      return {
        messages: first === -1 ? all : all.slice(0, first),
        // A turn may have added some since.
        totalCount: Math.max(summary.messageCount, all.length === 0 ? 0 : offset + all.length),
        hasMore: more || first !== -1,
      };
    },
    async createSession(
      request: Parameters<ServiceImpl<typeof EitherEraService>["createSession"]>[0],
      context: HandlerContext,
    ) {
      const asked = optionalSessionIdFrom(request.sessionId ?? "");
      const given = request.config ?? create(SessionConfigSchema);
      checkMessageCount(request.initialContext.length, "initial_context");
      const { messages } = readRequest(request.initialContext, "initial_context", context, core.roleFormat);
      checkConfig(given);
      const config: SessionConfig = {
        title: given.name,
        workspace: await core.workspaceFrom(given.workspace, "config.workspace"),
        model: modelFrom(given.llm, core),
        systemPrompt: given.systemPrompt,
        initialMessages: messages,
        metadata: withKept({}, keptOf(given)),
      };
      const view = await sessions.create(theCaller, config, asked, "");
      const { sessionId } = view;
      core.events.publish({
        type: "SESSION_CREATED",
        sessionId,
        message: `session ${sessionId} was created`,
        data: { name: config.title },
        timeMs: core.environment.now(),
      });
      warnOfKey(sessionId, given.llm);
      return create(CreateSessionResponseSchema, { sessionId, session: await told(view) });
    },
  } satisfies Partial<ServiceImpl<ServerSide>>;
}

/** Whether one more fits an answer with those before; the first one always does. */
function answerRoom<Schema extends DescMessage>(schema: Schema): (message: MessageShape<Schema>) => boolean {
  let bytes = 0;
  return (message) => {
    const before = bytes;
    bytes += toBinary(schema, message).length + 8;
    return before === 0 || bytes <= maxAnswerBytes;
  };
}

function checkConfig({ name, systemPrompt, llm }: LegacyConfig): void {
  checkLength(name, 1000, "config.name");
  checkLength(systemPrompt, 256 * 1024, "config.system_prompt");
  for (const [field, text] of Object.entries({ name, system_prompt: systemPrompt }))
    if (!text.isWellFormed()) throw invalidField(`config.${field}`, "holds half a surrogate pair");
  const temperature = llm?.temperature ?? 0;
  if (!(temperature >= 0 && temperature <= maxTemperature))
    throw invalidField("config.llm.temperature", `is ${temperature}; it lies between 0 and ${maxTemperature}`);
}

/**
 * The model as `provider/model`, or the name of a profile; empty for the server's default.
 * @throws {AgentError} for a model that can't be asked and for an address that is not the configured one: where requests
 *   go, and with them the server's keys, is for the operator to say.
 */
function modelFrom(llm: LLMConfig | undefined, { registry, defaultModel, environment }: LegacyCore): string {
  if (llm === undefined) return "";
  const [defaultProvider = ""] = defaultModel.split("/", 1);
  const provider = llm.provider || defaultProvider;
  if (llm.baseUrl !== "" && addressOf(llm.baseUrl) !== configuredAddress(registry.list(), provider))
    throw invalidField(
      "config.llm.base_url",
      "is not the configured address of the provider; leave it out, or have the operator configure an endpoint",
    );
  if (llm.provider === "" && (llm.model === "" || environment.profiles.has(llm.model))) return llm.model;
  if (llm.model === "")
    throw invalidField("config.llm.model", `is empty; name a model of ${llm.provider}, or leave out the provider`);
  const isWhole = llm.provider === "" && llm.model.includes("/");
  const name = isWhole ? llm.model : `${provider}/${llm.model}`;
  registry.resolve(name);
  return name;
}

function configuredAddress(providers: readonly { id: string; baseUrl?: string }[], provider: string): string {
  const { baseUrl } = providers.find(({ id }) => id === provider) ?? {};
  return baseUrl === undefined ? "none" : addressOf(baseUrl);
}

function addressOf(url: string): string {
  return (URL.parse(url)?.href ?? url).replace(/\/+$/, "");
}

/** A temperature comes as 32 bits: the shortest number that reads the same is what was meant. */
function keptOf({ llm, maxContextLength, autoCompact, storageType }: LegacyConfig): KeptSettings {
  const { temperature = 0, maxTokens = 0 } = llm ?? {};
  return {
    ...(temperature === 0 ? {} : { temperature: Number(temperature.toPrecision(7)) }),
    ...(maxTokens === 0 ? {} : { maxTokens }),
    ...(maxContextLength === 0 ? {} : { maxContextLength }),
    ...(autoCompact ? { autoCompact } : {}),
    ...(storageType === StorageType.UNSPECIFIED ? {} : { storageType }),
  };
}

const states: Readonly<Record<string, SessionState>> = { paused: SessionState.PAUSED };

function sessionToLegacy(view: SessionView, contextUsage = sizeOf(view)): Session {
  return create(SessionSchema, {
    sessionId: view.sessionId,
    config: configToLegacy(view.config),
    state: states[view.state] ?? SessionState.ACTIVE,
    contextUsage,
    createdAt: BigInt(Math.round(view.createdMs)),
    updatedAt: BigInt(Math.round(view.updatedMs)),
  });
}

function sizeOf({ summary }: SessionView) {
  return create(ContextUsageSchema, { messageCount: summary.messageCount });
}

function configToLegacy(config: SessionConfig): LegacyConfig {
  const { temperature = 0, maxTokens = 0, ...kept } = keptFrom(config);
  const [provider = "", ...model] = config.model.includes("/") ? config.model.split("/") : ["", config.model];
  const hasModel = config.model !== "" || temperature !== 0 || maxTokens !== 0;
  return create(SessionConfigSchema, {
    name: config.title,
    workspace: config.workspace,
    systemPrompt: config.systemPrompt,
    ...kept,
    ...(hasModel ? { llm: create(LLMConfigSchema, { provider, model: model.join("/"), temperature, maxTokens }) } : {}),
  });
}

/**
 * Text, calls and results; thinking and attachments have no form here.
 * @param createdMs when the session was created, and with it the messages that have no time of their own
 */
function messageToLegacy(message: Message, createdMs: number): ConversationMessage {
  const { id = "", role, blocks, createTimeMs = createdMs, metadata = {} } = message;
  return create(ConversationMessageSchema, {
    id,
    role: role === "developer" ? "system" : role,
    content: blocks.flatMap(blockToLegacy),
    timestamp: BigInt(Math.round(createTimeMs)),
    metadata: { ...metadata },
  });
}

function blockToLegacy(block: Block): ContentBlock[] {
  switch (block.type) {
    case "text":
      return [create(ContentBlockSchema, { block: { case: "text", value: { text: block.text } } })];
    case "tool_use": {
      const { id, name, input } = block;
      return [create(ContentBlockSchema, { block: { case: "toolUse", value: { id, name, arguments: input } } })];
    }
    case "tool_result": {
      const { toolUseId, content, isError = false } = block;
      return [create(ContentBlockSchema, { block: { case: "toolResult", value: { toolUseId, content, isError } } })];
    }
    default:
      return [];
  }
}
