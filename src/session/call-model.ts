import type { FinishReason } from "../chat/finish-reason.ts";
import type { Message } from "../chat/message.ts";
import type { ChatRequest, ToolDefinition } from "../chat/request.ts";
import type { SessionConfig } from "../chat/session-config.ts";
import type { Usage } from "../chat/usage.ts";
import type { FunctionIndex } from "../tool/function-index.ts";
import { modelOptions } from "./model-options.ts";
import { orderBlocks } from "./order-blocks.ts";
import { FencedError } from "./owned-log.ts";
import { finishReasonOf, type RunningSession, record, StoppedError } from "./run-turn.ts";
import type { TurnState } from "./state.ts";
import { validHistory } from "./valid-history.ts";

/** Events that may wait for their commit before the model is read no further. */
const maxWaitingEvents = 1024;

/**
 * One step of a turn: asks the model and records what it says, as it says it. An answer that breaks off is recorded as
 * far as it came, with a `step-finished` that says so.
 * @throws what broke the answer off.
 */
export async function callModel(
  session: RunningSession,
  turn: TurnState,
  functions: FunctionIndex,
  { step, attempt }: { readonly step: number; readonly attempt: number },
  signal: AbortSignal,
): Promise<void> {
  const model = session.environment.models.find(turn.model);
  const { provider, dialect } = model;
  const lastResponseId = turn.answer?.responseId ?? "";
  record(session, turn.turnId, { type: "step-started", step, attempt, model: model.model, provider });
  const usedIds = new Set<string>();
  for (const message of session.state.messages) {
    for (const block of message.blocks) if (block.type === "tool_use") usedIds.add(block.id);
  }
  const order = orderBlocks({ provider, model: model.model, dialect }, (wanted) => {
    const id = wanted === "" || usedIds.has(wanted) ? session.environment.newId("call") : wanted;
    usedIds.add(id);
    return id;
  });
  let finish: { finishReason: FinishReason; rawFinishReason: string } = { finishReason: "stop", rawFinishReason: "" };
  let usage: Usage | undefined;
  let responseId: string | undefined;
  let upstreamRequestId: string | undefined;
  const finishStep = () =>
    record(session, turn.turnId, {
      type: "step-finished",
      step,
      attempt,
      ...finish,
      ...(usage === undefined ? {} : { usage }),
      ...(responseId === undefined ? {} : { responseId }),
      ...(upstreamRequestId === undefined ? {} : { upstreamRequestId }),
    });
  try {
    const messages = validHistory(await session.withContent(session.state.messages));
    const request: ChatRequest = {
      model: model.model,
      messages: withSystemPrompt(messages, session.config, session.environment.systemPrompt),
      tools: offeredTools(turn, functions),
      options: modelOptions(turn.options, step, lastResponseId),
    };
    for await (const events of model.stream(request, signal)) {
      for (const event of events) {
        if (event.type === "usage") usage = event.usage;
        else if (event.type === "finish")
          finish = { finishReason: event.finishReason, rawFinishReason: event.rawFinishReason };
        else if (event.type === "response") {
          responseId = event.id ?? responseId;
          upstreamRequestId = event.upstreamRequestId ?? upstreamRequestId;
        }
      }
      for (const event of order.push(events)) record(session, turn.turnId, event);
      if (session.writer.waiting > maxWaitingEvents) await session.writer.flushed();
    }
    for (const event of order.finish()) record(session, turn.turnId, event);
    finishStep();
  } catch (error) {
    if (error instanceof FencedError || error instanceof StoppedError) throw error;
    for (const event of order.finish()) record(session, turn.turnId, event);
    const reason = finishReasonOf(error);
    finish = { finishReason: reason === "budget" ? "cancelled" : reason, rawFinishReason: "" };
    finishStep();
    throw error;
  }
}

function withSystemPrompt(
  messages: readonly Message[],
  config: SessionConfig,
  serverPrompt: string,
): readonly Message[] {
  const hasOwn = messages.some((message) => message.role === "system" || message.role === "developer");
  const prompt = config.systemPrompt !== "" ? config.systemPrompt : hasOwn ? "" : serverPrompt;
  return prompt === "" ? messages : [{ role: "system", blocks: [{ type: "text", text: prompt }] }, ...messages];
}

function offeredTools(turn: TurnState, functions: FunctionIndex): ToolDefinition[] {
  const clients = new Set(turn.clientTools.map((tool) => tool.name));
  const allowed = turn.options.allowedTools === undefined ? undefined : new Set(turn.options.allowedTools);
  const ours = functions.definitions.filter(
    (definition) => !clients.has(definition.name) && (allowed === undefined || allowed.has(definition.name)),
  );
  return [...turn.clientTools, ...ours];
}
