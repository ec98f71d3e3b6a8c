import { AgentError } from "../chat/error.ts";
import type { FinishReason } from "../chat/finish-reason.ts";
import { messageText } from "../chat/message.ts";
import { checkValue } from "../tool/check-value.ts";
import { answerId, type SessionState, type TurnState } from "./state.ts";

const words = { whole: "the answer", property: "a property" };

/** Why an answer is not the JSON that was asked for. */
export interface AnswerFault {
  /** The end of a sentence that begins with `the answer`. */
  readonly what: string;
  /** Another answer may do. */
  readonly isRepairable: boolean;
}

/**
 * What is wrong with the last answer of a turn that was asked for JSON. Undefined where it is as asked, where no form was
 * asked for, and where something else ended the turn.
 */
export function answerFault(state: SessionState, turn: TurnState, finishReason: FinishReason): AnswerFault | undefined {
  const format = turn.options.responseFormat;
  if (format === undefined || format.type === "text") return undefined;
  if (finishReason !== "stop" && finishReason !== "length") return undefined;
  const message = state.messages.findLast(({ id }) => id === answerId(turn.turnId, turn.step));
  const text = message === undefined ? "" : messageText(message);
  const isRepairable = finishReason === "stop";
  const schema = format.type === "json_schema" ? format.schema : '{"type":"object"}';
  const read = readJsonAnswer(text, schema);
  if (read.ok) return undefined;
  if (read.isJson || finishReason !== "length" || text.trim() === "")
    return { what: read.what, isRepairable: isRepairable && read.isRepairable };
  return { what: "was cut at the most tokens it may have", isRepairable };
}

export type ReadAnswer =
  | { readonly ok: true; readonly value: unknown }
  /** `value` is what it says where it is JSON, else undefined. */
  | ({ readonly ok: false; readonly isJson: boolean; readonly value: unknown } & AnswerFault);

/**
 * Reads the text of an answer that was to be JSON.
 * @param schema what it is to fit, as JSON text
 */
export function readJsonAnswer(text: string, schema: string): ReadAnswer {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const none = { ok: false, isJson: false, value, isRepairable: true } as const;
    if (text.trim() === "") return { ...none, what: "is empty" };
    const why = error instanceof Error ? error.message.slice(0, 200) : "unreadable";
    return { ...none, what: `is no JSON (${why})` };
  }
  const check = checkValue(schema, value, Buffer.byteLength(text), words);
  if (check.ok) return { ok: true, value };
  const { fault, problems } = check;
  const misfit = { ok: false, isJson: true, value } as const;
  return fault === "value" || fault === "depth"
    ? { ...misfit, what: `does not fit the schema: ${problems}`, isRepairable: true }
    : { ...misfit, what: `can't be checked with the schema, which ${problems}`, isRepairable: false };
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
