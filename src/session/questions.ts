import type { PendingRequest, RequestAnswer } from "../chat/log-event.ts";
import { type ToolResult, toolFailure } from "../chat/tool-result.ts";
import { chosenOptions, type Question } from "../tool/ask-user.ts";
import { boundedText } from "../tool/bounded-text.ts";
import { shortLine } from "./short-line.ts";

/** The decisions a question takes. */
export const questionDecisions: readonly string[] = ["answer", "deny"];

const answerLimitBytes = 256 * 1024;

/** What people see of a question; who asks and until when is added by the turn. */
export function questionRequest({
  text,
  options,
  multiple,
}: Question): Pick<PendingRequest, "kind" | "title" | "options" | "explanation"> {
  const free = "answer in your own words";
  const explanation =
    options.length === 0
      ? `the agent asks: ${free}`
      : `the agent asks: ${multiple ? "choose one or more, a line each" : "choose one"}, or ${free}`;
  return { kind: "question", title: shortLine(text), options, explanation };
}

/** What the model is told of a question that is over. */
export function questionResult(question: Question, { decision, text = "" }: RequestAnswer): ToolResult {
  const words = boundedText(text.trim(), answerLimitBytes).text;
  if (decision === "answer") {
    const chosen = chosenOptions(question, words);
    const metadata = chosen.length === 0 ? {} : { metadata: { chosen: JSON.stringify(chosen) } };
    return { success: true, output: answerText(question, words, chosen), ...metadata };
  }
  if (decision === "expired")
    return toolFailure(
      "nobody answered in time; go on with what you know, and say in the end what you assumed instead of an answer",
    );
  return toolFailure(`the user does not answer this question${words === "" ? "" : `, and says: ${words}`}`);
}

function answerText({ options }: Question, words: string, chosen: readonly string[]): string {
  if (chosen.length === 1) return `The user chose: ${chosen[0]}`;
  if (chosen.length > 1) return `The user chose:\n${chosen.map((option) => `- ${option}`).join("\n")}`;
  return options.length === 0 ? words : `The user chose none of the options, and says: ${words}`;
}
