import { create } from "@bufbuild/protobuf";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import {
  GenerateStructuredChunkSchema,
  GenerateStructuredResponseSchema,
} from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import type {
  EitherEraService,
  GenerateRequest,
  GenerateStructuredRequest,
} from "../../../gen/codeagent/legacy/v1/either_era_pb.ts";
import { AgentError, invalidField } from "../../chat/error.ts";
import type { LogRecord } from "../../chat/log-event.ts";
import { messageText } from "../../chat/message.ts";
import type { GenerateOptions, TurnRequest } from "../../chat/request.ts";
import type { TurnAnswer } from "../../convert/turn-answer.ts";
import { isPruned } from "../../session/follow-log.ts";
import type { AdmittedTurn } from "../../session/sessions.ts";
import { foldTurnAnswer } from "../../session/turn-answer.ts";
import { schemaFault } from "../../tool/check-value.ts";
import { theCaller } from "../caller.ts";
import { frameBatches } from "../chunk-stream.ts";
import { checkMessageCount, optionalSessionIdFrom } from "../request-fields.ts";
import { callsThatFit } from "./calls-that-fit.ts";
import { type CallForm, type Chunk, generateChunk, generateResponse, legacyFinishReasons, readRequest } from "./era.ts";
import { keptFrom } from "./kept-settings.ts";
import type { LegacyCore } from "./legacy-core.ts";
import { type LegacyTurn, legacyTurn, reasonMetadata, usageToLegacy } from "./legacy-turn.ts";

/** Most bytes of the texts in one answer: clients take 4 MB where they don't say otherwise. */
const maxAnswerBytes = 3 * 1024 * 1024;

interface Started {
  readonly turn: AdmittedTurn;
  readonly form: CallForm;
}

/**
 * Of the earlier service: turns and structured answers. A session's turns go on when their caller leaves; the next one
 * waits for them. Without a session id a turn stands alone, and nothing of it is kept; what would have to be approved is
 * denied then, but in `StreamGenerate`, whose chunks tell what the turn can be approved by.
 */
export function legacyGenerateHandlers(core: LegacyCore) {
  const { sessions, streamLimits } = core;

  const start = async (
    request: GenerateRequest | GenerateStructuredRequest,
    context: HandlerContext,
    options: GenerateOptions,
    isUnattended = true,
  ): Promise<Started> => {
    const sessionId = optionalSessionIdFrom(request.sessionId);
    if (request.messages.length === 0) throw invalidField("messages", "is empty; send at least one");
    checkMessageCount(request.messages.length, "messages");
    const { form, messages } = readRequest(request.messages, "messages", context, core.roleFormat);
    if (messages.length === 0) throw invalidField("messages", "are all empty; send at least one that says something");
    const kept = sessionId === "" ? {} : keptFrom((await sessions.get(theCaller, sessionId)).config);
    const { temperature, maxTokens } = kept;
    const turnRequest: TurnRequest = {
      sessionId,
      messages,
      model: "",
      options: {
        ...options,
        ...(temperature === undefined ? {} : { temperature }),
        ...(maxTokens === undefined ? {} : { maxTokens }),
      },
      tools: [],
      requestId: "",
      isUnattended: isUnattended && sessionId === "",
    };
    return { turn: await sessions.startTurn(theCaller, turnRequest), form };
  };

  const answerOf = async ({ turn }: Started, signal: AbortSignal, told?: LegacyTurn): Promise<TurnAnswer> => {
    const fold = foldTurnAnswer(turn.sessionId);
    for await (const batch of turn.read(signal)) {
      if (isPruned(batch)) continue;
      for (const record of batch) {
        const { event } = record;
        fold.add(record);
        told?.add(event);
      }
    }
    if (fold.failure !== undefined) throw fold.failure;
    if (fold.answer === undefined) throw new AgentError("internal", `turn ${turn.turnId} ended without a last event`);
    return fold.answer;
  };

  /** Only chunks that clients know: silence, gaps and notices are not told. */
  async function* chunksOf(turn: AdmittedTurn, signal: AbortSignal): AsyncGenerator<Chunk> {
    const told = legacyTurn();
    const nothing = (): undefined => undefined;
    const frames = {
      ofRecord: ({ event }: LogRecord) => told.add(event),
      keepAlive: nothing,
      resync: nothing,
      notice: nothing,
    };
    for await (const chunks of frameBatches<Chunk | undefined>(turn, signal, streamLimits, frames))
      for (const chunk of chunks) if (chunk !== undefined) yield chunk;
  }

  return {
    async generate(request, context) {
      const started = await start(request, context, {});
      const { turn, form } = started;
      const told = legacyTurn();
      const answer = await answerOf(started, context.signal, told);
      const text = textOf(answer);
      return generateResponse(
        {
          sessionId: turn.sessionId,
          text,
          toolCalls: callsThatFit(told.toolCalls, maxAnswerBytes - Buffer.byteLength(text)),
          usage: usageToLegacy(answer.usage),
          finishReason: legacyFinishReasons[answer.finishReason],
          metadata: factsOf(answer),
        },
        form,
      );
    },
    async *streamGenerate(request, context) {
      const { turn, form } = await start(request, context, {}, false);
      for await (const chunk of chunksOf(turn, context.signal)) yield generateChunk(turn.sessionId, chunk, form);
    },
    async generateStructured(request, context) {
      const started = await start(request, context, structured(request.schema));
      const answer = await answerOf(started, context.signal);
      return create(GenerateStructuredResponseSchema, {
        sessionId: started.turn.sessionId,
        data: textOf(answer),
        usage: usageToLegacy(answer.usage),
        metadata: factsOf(answer),
      });
    },
    // Only the last answer has the form that was asked for, and nothing tells which one is the last before it is over.
    async *streamGenerateStructured(request, context) {
      const started = await start(request, context, structured(request.schema));
      const { sessionId } = started.turn;
      const answer = await answerOf(started, context.signal);
      yield create(GenerateStructuredChunkSchema, { sessionId, data: textOf(answer) });
      yield create(GenerateStructuredChunkSchema, { sessionId, done: true });
    },
  } satisfies Partial<ServiceImpl<typeof EitherEraService>>;
}

function structured(schema: string): GenerateOptions {
  if (schema.trim() === "") throw invalidField("schema", "is empty; send a JSON Schema as JSON text");
  const fault = schemaFault(schema);
  if (fault !== undefined) throw invalidField("schema", `can't be used: ${fault}`);
  return { responseFormat: { type: "json_schema", name: "answer", schema } };
}

function textOf({ message }: TurnAnswer): string {
  return message === undefined ? "" : messageText(message);
}

function factsOf({ turnId, model, finishReason }: TurnAnswer): Record<string, string> {
  return { turn_id: turnId, model, ...reasonMetadata(finishReason) };
}
