import { AgentError } from "../chat/error.ts";
import type { ChatEvent } from "../chat/event.ts";
import type { LogEvent } from "../chat/log-event.ts";
import type { ContentBlock, Message } from "../chat/message.ts";
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
 * One step of a turn: asks the model and records what it says, as it says it. An answer that is cut after nothing but
 * text and thinking was shown is asked for once more, as a new attempt; any other that breaks off is recorded as far as
 * it came, with a `step-finished` that says so.
 * @throws what broke the answer off.
 */
export async function callModel(
  session: RunningSession,
  turn: TurnState,
  functions: FunctionIndex,
  { step, attempt }: { readonly step: number; readonly attempt: number },
  signal: AbortSignal,
): Promise<void> {
  const lastResponseId = turn.answer?.responseId ?? "";
  const call = { session, turn, functions, step, lastResponseId, signal };
  const mayAskAgain = session.environment.limits.retryCutAnswers;
  if ((await askModel({ ...call, attempt, mayAskAgain })) === "cut") {
    await askModel({ ...call, attempt: attempt + 1, mayAskAgain: false });
  }
}

interface ModelCall {
  readonly session: RunningSession;
  readonly turn: TurnState;
  readonly functions: FunctionIndex;
  readonly step: number;
  readonly attempt: number;
  /** The provider's id of the answer before this one in the turn. */
  readonly lastResponseId: string;
  /** Whether a cut answer may be left as it is, for another attempt to void it. */
  readonly mayAskAgain: boolean;
  readonly signal: AbortSignal;
}

async function askModel(call: ModelCall): Promise<"finished" | "cut"> {
  const { session, turn, step, attempt, signal } = call;
  const model = session.environment.models.find(turn.model);
  const { provider, dialect } = model;
  record(session, turn.turnId, { type: "step-started", step, attempt, model: model.model, provider });
  const order = orderBlocks({ provider, model: model.model, dialect }, uniqueCallIds(session));
  let finish: Finish = { finishReason: "stop", rawFinishReason: "" };
  let usage: Usage | undefined;
  let responseId: string | undefined;
  let upstreamRequestId: string | undefined;
  const shown = new Set<ContentBlock["type"]>();
  const show = (events: readonly LogEvent[]) => {
    for (const event of events) {
      if (event.type === "block-start") shown.add(event.blockType);
      record(session, turn.turnId, event);
    }
  };
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
      tools: offeredTools(turn, call.functions),
      options: modelOptions(turn.options, step, call.lastResponseId),
    };
    for await (const events of model.stream(request, signal)) {
      for (const event of events) {
        if (event.type === "usage") usage = event.usage;
        else if (event.type === "finish") {
          const { type: _, ...said } = event;
          finish = said;
        } else if (event.type === "response") {
          responseId = event.id ?? responseId;
          upstreamRequestId = event.upstreamRequestId ?? upstreamRequestId;
        }
      }
      show(order.push(events));
      if (session.writer.waiting > maxWaitingEvents) await session.writer.flushed();
    }
    show(order.finish());
    finishStep();
    return "finished";
  } catch (error) {
    if (error instanceof FencedError || error instanceof StoppedError) throw error;
    if (call.mayAskAgain && isCut(error, shown)) return "cut";
    show(order.finish());
    const reason = finishReasonOf(error);
    finish = { finishReason: reason === "budget" ? "cancelled" : reason, rawFinishReason: "" };
    finishStep();
    throw error;
  }
}

type Finish = Omit<Extract<ChatEvent, { type: "finish" }>, "type">;

/** The stream broke after it had begun, and what it showed can be said again: no call has been named. */
function isCut(error: unknown, shown: ReadonlySet<ContentBlock["type"]>): boolean {
  const repeatable = [...shown].every((type) => type === "text" || type === "thinking" || type === "reasoning");
  return error instanceof AgentError && error.kind === "provider_unavailable" && shown.size > 0 && repeatable;
}

/** Gives a call its own id where the model gave none, or one that the session has seen. */
function uniqueCallIds({ state, environment }: RunningSession): (wanted: string) => string {
  const used = new Set<string>();
  for (const message of state.messages) {
    for (const block of message.blocks) if (block.type === "tool_use") used.add(block.id);
  }
  return (wanted) => {
    const id = wanted === "" || used.has(wanted) ? environment.newId("call") : wanted;
    used.add(id);
    return id;
  };
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
