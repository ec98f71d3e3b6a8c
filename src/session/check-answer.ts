import { AgentError } from "../chat/error.ts";
import type { FinishReason } from "../chat/finish-reason.ts";
import { messageText } from "../chat/message.ts";
import { checkValue } from "../tool/check-value.ts";
import { answerId, type SessionState, type TurnState } from "./state.ts";

const words = { whole: "the answer", property: "a property" };

/**
 * What is wrong with the last answer of a turn that was asked for JSON, as the end of a sentence that begins with `the
 * answer`. Undefined where it is as asked, where no form was asked for, and where something else ended the turn.
 */
export function answerFault(state: SessionState, turn: TurnState, finishReason: FinishReason): string | undefined {
  const format = turn.options.responseFormat;
  if (format === undefined || format.type === "text") return undefined;
  if (finishReason !== "stop" && finishReason !== "length") return undefined;
  const message = state.messages.findLast(({ id }) => id === answerId(turn.turnId, turn.step));
  const text = message === undefined ? "" : messageText(message);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    if (text.trim() === "") return "is empty";
    if (finishReason === "length") return "was cut at the most tokens it may have";
    return `is no JSON (${error instanceof Error ? error.message.slice(0, 200) : "unreadable"})`;
  }
  const schema = format.type === "json_schema" ? format.schema : '{"type":"object"}';
  const check = checkValue(schema, value, Buffer.byteLength(text), words);
  return check.ok ? undefined : `does not fit the schema: ${check.problems}`;
}

/** What the model is told of an answer in the wrong form. */
export function repairText(fault: string): string {
  return `Your answer can't be used: it ${fault}. Answer again, with nothing but the JSON that was asked for: no other words, no code fence.`;
}

/** Why a turn fails whose model doesn't give the form that was asked for. */
export function answerInvalid(turn: TurnState, fault: string): AgentError {
  const times = turn.rejectedAnswers === 0 ? "" : ` after being told ${turn.rejectedAnswers} times`;
  const name = turn.asked === undefined ? turn.model : `${turn.asked.provider}/${turn.asked.model}`;
  return new AgentError(
    "answer_invalid",
    `${name} gave no answer in the form that was asked for${times}: it ${fault}`,
    {
      detail: { retryable: true, ...(turn.asked === undefined ? {} : { provider: turn.asked.provider }) },
    },
  );
}
