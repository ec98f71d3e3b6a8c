import { AgentError, CutAnswerError } from "../chat/error.ts";
import type { Message } from "../chat/message.ts";
import type { ModelOptions } from "../chat/request.ts";
import { addUsage, type Usage } from "../chat/usage.ts";
import { readJsonAnswer } from "./check-answer.ts";
import { fullName, type Model } from "./models.ts";
import { orderBlocks } from "./order-blocks.ts";

/** Something a model is asked outside of a conversation, without tools. */
export interface ModelQuestion {
  /** Asked one after the other until one answers. */
  readonly models: readonly Model[];
  /** The system prompt first, where there is one. */
  readonly messages: readonly Message[];
  /** The answer is to be JSON that fits a schema (JSON text); absent means plain text. The name is for the provider. */
  readonly format?: { readonly name: string; readonly schema: string };
  /** Upper bound of output tokens; absent means the provider's. */
  readonly maxTokens?: number;
  /** Longest wait for the answer of one model, in milliseconds. */
  readonly limitMs: number;
  /** Says what is wrong with the text of an answer, as a sentence, so that the next model is asked; undefined when nothing is. */
  readonly faultOf?: (text: string, model: Model) => string | undefined;
  /** Told each piece of text as it comes. Once it was told something, a cut answer is not asked for again. */
  readonly onText?: (piece: string) => void;
}

/** What asking takes from the rest of the house; a `TurnEnvironment` has it. */
export interface AskMeans {
  readonly newId: (prefix: string) => string;
  readonly report: (level: "info" | "warn" | "error", message: string, facts: Record<string, unknown>) => void;
}

/** `usage` is that of all models that were asked, with prices where they are known; undefined where none told any. */
export type ModelReply =
  | {
      readonly ok: true;
      readonly text: string;
      /** The parsed text where a format was asked for, else undefined. */
      readonly value: unknown;
      /** Who answered, as `provider/model`. */
      readonly model: string;
      readonly usage: Usage | undefined;
    }
  | {
      readonly ok: false;
      /** `answer_invalid` for an answer in the wrong form, or with a fault; else why the last model asked gave none. */
      readonly error: AgentError;
      /** What is wrong with an answer in the wrong form, as the end of a sentence that begins with `the answer`. */
      readonly fault?: string;
      /** What the answer says, where it is JSON in the wrong form. */
      readonly value?: unknown;
      /** The answer, where there is one. */
      readonly text: string;
      /** Who was asked last, as `provider/model`; empty where there was nobody to ask. */
      readonly model: string;
      readonly usage: Usage | undefined;
    };

/**
 * Asks a model and waits for its whole answer. Before an answer begins the provider's retries hold; one that is cut is
 * asked for once more; a model that gives none makes way for the next. An answer in the wrong form comes back as it is:
 * whether to ask again, and with which words, is the caller's to say.
 * @param signal ends the call
 * @returns also what went wrong, since it costs something too
 * @throws the signal's reason, and nothing else.
 */
export async function askModel(question: ModelQuestion, means: AskMeans, signal: AbortSignal): Promise<ModelReply> {
  let usage: Usage | undefined;
  let failed: { readonly error: AgentError; readonly text: string; readonly model: string } = {
    error: new AgentError("failed_precondition", "no model can be asked"),
    text: "",
    model: "",
  };
  for (const model of question.models) {
    const name = fullName(model);
    for (const isLastTry of [false, true]) {
      const answer = await oneAnswer(question, model, means, signal);
      if (answer.usage !== undefined) usage = addUsage(usage, await model.priced(answer.usage));
      const { text } = answer;
      if (answer.error !== undefined) {
        failed = { error: answer.error, text, model: name };
        if (!isLastTry && answer.error instanceof CutAnswerError && !answer.wasTold) continue;
        break;
      }
      const fault = question.faultOf?.(text, model);
      if (fault !== undefined) {
        failed = { error: new AgentError("answer_invalid", fault), text, model: name };
        break;
      }
      if (question.format === undefined) return { ok: true, text, value: undefined, model: name, usage };
      const read = readJsonAnswer(withoutFence(text), question.format.schema);
      if (read.ok) return { ok: true, text, value: read.value, model: name, usage };
      const error = new AgentError(
        "answer_invalid",
        `${name} gave no answer in the form that was asked for: it ${read.what}`,
        { detail: { retryable: true, provider: model.provider } },
      );
      return { ok: false, error, fault: read.what, value: read.value, text, model: name, usage };
    }
  }
  return { ok: false, ...failed, usage };
}

interface OneAnswer {
  readonly text: string;
  readonly usage: Usage | undefined;
  /** Absent where the answer is whole. */
  readonly error?: AgentError;
  readonly wasTold: boolean;
}

async function oneAnswer(
  { models, messages, format, maxTokens, limitMs, onText }: ModelQuestion,
  model: Model,
  { newId, report }: AskMeans,
  signal: AbortSignal,
): Promise<OneAnswer> {
  signal.throwIfAborted();
  const { provider, dialect } = model;
  const options: ModelOptions = {
    ...(maxTokens === undefined ? {} : { maxTokens }),
    ...(format === undefined ? {} : { responseFormat: { type: "json_schema", ...format } }),
  };
  const order = orderBlocks({ provider, model: model.model, dialect }, () => newId("call"));
  const limit = AbortSignal.timeout(limitMs);
  let text = "";
  let usage: Usage | undefined;
  let wasTold = false;
  let finishReason = "stop";
  const read = (shown: ReturnType<typeof order.push>) => {
    for (const event of shown) {
      if (event.type === "block-stop" && event.block.type === "text") text += event.block.text;
      if (event.type !== "block-delta" || event.delta.type !== "text" || onText === undefined) continue;
      wasTold = true;
      onText(event.delta.text);
    }
  };
  try {
    const request = { model: model.model, messages, tools: [], options };
    for await (const events of model.stream(request, AbortSignal.any([signal, limit]), model !== models.at(-1))) {
      for (const event of events) {
        if (event.type === "usage") usage = event.usage;
        if (event.type === "finish") finishReason = event.finishReason;
      }
      read(order.push(events));
    }
    read(order.finish());
  } catch (error) {
    signal.throwIfAborted();
    if (limit.aborted)
      return {
        text,
        usage,
        wasTold,
        error: new AgentError("deadline", `no answer within ${limitMs} ms`, { cause: error }),
      };
    if (error instanceof AgentError) return { text, usage, wasTold, error };
    report("error", "asking a model failed", { model: fullName(model), error });
    return { text, usage, wasTold, error: new AgentError("internal", "it failed", { cause: error }) };
  }
  if (finishReason !== "stop") {
    const why =
      finishReason === "length" ? "it was cut at the most tokens it may have" : `it ended with ${finishReason}`;
    return { text, usage, wasTold, error: new AgentError("provider_protocol", `the answer is not whole: ${why}`) };
  }
  return { text, usage, wasTold };
}

/** Models that are told of a schema in words like to put a fence around their answer. */
function withoutFence(text: string): string {
  return /^\s*```(?:json)?\s*\n([\s\S]*?)\n?\s*```\s*$/.exec(text)?.[1] ?? text;
}
