import type { LogRecord } from "../chat/log-event.ts";
import type { Message } from "../chat/message.ts";
import type { TurnAnswer } from "../convert/turn-answer.ts";
import { emptyState, foldRecord } from "./state.ts";
import { agentErrorFrom } from "./turn-error.ts";

/** Folds the events of one turn into what a unary call answers. */
export function foldTurnAnswer(sessionId: string) {
  const state = emptyState([]);
  let answer: TurnAnswer | undefined;
  /** Messages the request brought, which are no answer. */
  let asked = 0;
  let provider = "";
  let model = "";
  let failure: Error | undefined;

  function finish(record: LogRecord): void {
    const { event } = record;
    const { turn } = state;
    if (event.type !== "turn-finished" || turn === undefined) return;
    if (event.error !== undefined) failure = agentErrorFrom(event.error);
    const message: Message | undefined = state.messages
      .slice(asked)
      .findLast((candidate) => candidate.role === "assistant");
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
      if (record.event.type === "turn-started") asked = state.messages.length;
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
