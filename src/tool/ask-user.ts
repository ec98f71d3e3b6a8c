import { toolFailure } from "../chat/tool-result.ts";
import type { FunctionCall } from "./function-provider.ts";
import { type LocalFunction, textArgument } from "./local-function.ts";

const maxOptions = 8;

/** A question of the model to people. */
export interface Question {
  readonly text: string;
  /** Answers that are offered; any other one may be given too. */
  readonly options: readonly string[];
  /** More than one of them may be chosen. */
  readonly multiple: boolean;
}

/** Asks a person. A turn makes a pending request of the call and never runs it. */
export const askUser: LocalFunction = {
  definition: {
    name: "ask_user",
    title: "Ask the user",
    description:
      "Asks the user one question and waits for the answer, for decisions and facts that only they have and without " +
      "which the work would go wrong. Not for what can be found out in the workspace, and not for permission to use " +
      "a tool: that is asked by itself.",
    parameters: JSON.stringify({
      type: "object",
      properties: {
        question: { type: "string", minLength: 1, maxLength: 4000, description: "The question, complete in itself" },
        options: {
          type: "array",
          items: { type: "string", minLength: 1, maxLength: 500 },
          maxItems: maxOptions,
          description: "Answers to choose from, where there are some; the user may say something else",
        },
        multiple: { type: "boolean", description: "More than one of the options may be chosen; default false" },
      },
      required: ["question"],
      additionalProperties: false,
    }),
    source: "local",
    readOnly: true,
    asks: true,
    timeoutMs: 30_000,
    returns: "What the user answered, and which of the options that is.",
  },

  async run() {
    return toolFailure("ask_user works inside a turn only: there is nobody to be asked here");
  },
};

/** The question of a call whose arguments the schema has checked. */
export function questionOf(given: FunctionCall["arguments"]): Question {
  const options = Array.isArray(given["options"]) ? given["options"] : [];
  return {
    text: textArgument(given, "question") ?? "",
    options: [...new Set(options.filter((option) => typeof option === "string"))],
    multiple: given["multiple"] === true,
  };
}

/**
 * The options that an answer names: the whole answer, or with `multiple` each of its parts between line ends or commas.
 * Case and the space around do not count.
 */
export function chosenOptions({ options, multiple }: Question, answer: string): readonly string[] {
  const find = (text: string) => options.find((option) => plain(option) === plain(text));
  const whole = find(answer);
  if (whole !== undefined) return [whole];
  if (!multiple) return [];
  for (const separator of [/\r?\n/, /,/]) {
    const parts = answer.split(separator).filter((part) => part.trim() !== "");
    const found = parts.flatMap((part) => find(part) ?? []);
    if (parts.length > 0 && found.length === parts.length) return [...new Set(found)];
  }
  return [];
}

function plain(text: string): string {
  return text.trim().toLowerCase();
}
