import {
  type ElicitRequestFormParams,
  type InputRequest,
  type InputResponseView,
  inputRequired,
} from "@modelcontextprotocol/server";
import type { PendingRequest } from "../../sdk/proto.ts";
import { shownWhole } from "../cli/terminal.ts";
import { boundedText } from "../tool/bounded-text.ts";
import { isRecord } from "../tool/check-value.ts";

/** An answer as `RespondToRequest` takes it. */
export interface Answer {
  readonly decision: string;
  readonly text: string;
}

const shownBytes = 16 * 1024;
const answerCharacters = 64 * 1024;
const decisionWords: Readonly<Record<string, string>> = {
  allow_once: "allow this once",
  allow_session: "allow it in this session from now on",
  deny: "deny it",
};

/** Whether a client shows forms to its user. @param capabilities as the client gave them */
export function canAsk(capabilities: unknown): boolean {
  const elicitation = isRecord(capabilities) ? capabilities["elicitation"] : undefined;
  return isRecord(elicitation) && (isRecord(elicitation["form"]) || elicitation["url"] === undefined);
}

/** Whether a person can answer it with words; what a program has to answer is left to that program. */
export function isForPeople({ kind }: PendingRequest): boolean {
  return kind !== "client_tool";
}

/** The form in which a client asks its user. All that would run is shown, or how much of it is not. */
export function formFor(request: PendingRequest): InputRequest {
  return inputRequired.elicit(request.kind === "question" ? questionForm(request) : approvalForm(request));
}

function questionForm({ title, explanation, options }: PendingRequest): ElicitRequestFormParams {
  const offered = options.length === 0 ? [] : [`Options:\n${options.map((option) => `- ${shown(option)}`).join("\n")}`];
  return {
    mode: "form",
    message: [shown(title), shown(explanation), ...offered].join("\n\n"),
    requestedSchema: {
      type: "object",
      properties: {
        answer: { type: "string", title: "Answer", description: "one of the options, or your own words" },
      },
      required: ["answer"],
    },
  };
}

function approvalForm({
  title,
  explanation,
  toolName,
  arguments: given,
  options,
}: PendingRequest): ElicitRequestFormParams {
  const whole = given === "" ? [] : [`${toolName} ${shown(given)}`];
  const meaning = options.map((option) => `${option}: ${decisionWords[option] ?? option}`).join("; ");
  return {
    mode: "form",
    message: [shown(title), shown(explanation), ...whole].join("\n\n"),
    requestedSchema: {
      type: "object",
      properties: {
        decision: { type: "string", title: "Decision", description: meaning, enum: [...options] },
        words: { type: "string", title: "Words to the agent", description: "for example why it is denied" },
      },
      required: ["decision"],
    },
  };
}

/** What the user said, held to what was asked; whoever declines or closes the form denies. */
export function answerFrom(
  view: InputResponseView,
  { kind, options }: { readonly kind: string; readonly options: readonly string[] },
): Answer {
  if (view.kind !== "elicit" || view.action !== "accept") return { decision: "deny", text: "" };
  const { decision, words, answer } = view.content ?? {};
  if (kind === "question") {
    const text = wordsOf(answer);
    return text.trim() === "" ? { decision: "deny", text: "" } : { decision: "answer", text };
  }
  const allowed = options.find((option) => option === decision);
  return allowed === undefined ? { decision: "deny", text: "" } : { decision: allowed, text: wordsOf(words) };
}

/** The answer where nobody can be asked. */
export const nobodyToAsk: Answer = {
  decision: "deny",
  text: "nobody is there to be asked: this MCP client can't put questions to its user; the session's permissions can allow it",
};

function wordsOf(value: unknown): string {
  return typeof value === "string" ? value.slice(0, answerCharacters).toWellFormed() : "";
}

function shown(text: string): string {
  return boundedText(shownWhole(text), shownBytes).text;
}
