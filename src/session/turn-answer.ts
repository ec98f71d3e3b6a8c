import type { LogRecord } from "../chat/log-event.ts";
import type { Message } from "../chat/message.ts";
import type { TurnAnswer } from "../convert/turn-answer.ts";
import { answerId, emptyState, foldRecord } from "./state.ts";
import { agentErrorFrom } from "./turn-error.ts";

/** Folds the events of one turn into what a unary call answers. */
export function foldTurnAnswer(sessionId: string) {
  const state = emptyState([]);
  let answer: TurnAnswer | undefined;
  let provider = "";
  let model = "";
  let failure: Error | undefined;

  function finish(record: LogRecord): void {
    const { event } = record;
    const { turn } = state;
    if (event.type !== "turn-finished" || turn === undefined) return;
    if (event.error !== undefined) failure = agentErrorFrom(event.error);
    const ownId = answerId(turn.turnId, 0).slice(0, -1);
    const message: Message | undefined = state.messages.findLast(
      ({ role, id }) => role === "assistant" && id?.startsWith(ownId) === true,
    );
    const clientTools = new Set(turn.clientTools.map((tool) => tool.name));
    const usage = event.usage ?? turn.usage;
    answer = {
      sessionId,
      turnId: turn.turnId,
      model: model === "" ? turn.model : `${provider}/${model}`,
      toolCalls:
        event.finishReason === "tool_calls"
          ? (turn.answer?.calls ?? []).map((call) => call.use).filter((use) => clientTools.has(use.name))
          : [],
      finishReason: event.finishReason,
      rawFinishReason: turn.answer?.rawFinishReason ?? "",
      lastSeq: record.seq,
      steps: event.steps,
      metadata: { ...turn.options.metadata, ...(provider === "" ? {} : { "codeagent.provider": provider }) },
      ...(message === undefined ? {} : { message }),
      ...(usage === undefined ? {} : { usage }),
      ...(turn.answer === undefined || turn.answer.responseId === "" ? {} : { responseId: turn.answer.responseId }),
    };
  }

  return {
    add(record: LogRecord): void {
      if (record.event.type === "step-started") ({ provider, model } = record.event);
      finish(record);
      foldRecord(state, record);
    },
    /** What the turn came to; `undefined` before its end. */
    get answer(): TurnAnswer | undefined {
      return answer;
    },
    /** The error the turn ended with. */
    get failure(): Error | undefined {
      return failure;
    },
  };
}
