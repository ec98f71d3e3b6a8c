import { toolFailure } from "../chat/tool-result.ts";
import { type LocalFunction, textArgument } from "./local-function.ts";

/** Work that is handed to an agent of its own. */
export interface Task {
  /** A few words for people. */
  readonly description: string;
  readonly prompt: string;
  /** Names of the functions it may use; absent for all that its giver may. */
  readonly tools?: readonly string[];
  /** As in a request: `provider/model`; absent for that of its giver. */
  readonly model?: string;
}

export const taskName = "task";

/** The turn that a task belongs to ends it, at its own limit of time; this is only for one that has none. */
const longestTaskMs = 24 * 3_600_000;

/** Hands a task to a session of its own, where the turn that calls it can make one. */
export const task: LocalFunction = {
  definition: {
    name: taskName,
    title: "Hand over a task",
    description:
      "Hands a task to another agent, which works on it in a conversation of its own with tools like yours, in the " +
      "same workspace, and comes back with its last answer. For work that needs many steps of which only the outcome " +
      "matters here; several tasks of one answer are worked on at the same time, so hand over only such together as do " +
      "not change the same files. The other agent knows nothing of this conversation: put all it needs into the prompt, " +
      "and what exactly it is to answer. It cannot hand tasks on.",
    parameters: JSON.stringify({
      type: "object",
      properties: {
        description: { type: "string", minLength: 1, maxLength: 200, description: "The task in a few words" },
        prompt: { type: "string", minLength: 1, maxLength: 100_000, description: "All that the other agent is told" },
        tools: {
          type: "array",
          items: { type: "string", minLength: 1, maxLength: 200 },
          maxItems: 1000,
          description: "Names of the tools it may use; default all of yours but this one",
        },
        model: {
          type: "string",
          minLength: 1,
          maxLength: 500,
          description: "provider/model; default the one asked here",
        },
      },
      required: ["description", "prompt"],
      additionalProperties: false,
    }),
    source: "local",
    readOnly: false,
    repeatable: true,
    delegates: true,
    timeoutMs: longestTaskMs,
    returns: "The last answer of the other agent.",
  },

  async run(given, { runTask, signal, onOutput }) {
    if (runTask === undefined)
      return toolFailure("task works inside a turn only: here there is no session to hand it from");
    const { tools } = given;
    const model = textArgument(given, "model");
    const names = Array.isArray(tools) ? tools.filter((name) => typeof name === "string") : undefined;
    return runTask(
      {
        description: textArgument(given, "description") ?? "",
        prompt: textArgument(given, "prompt") ?? "",
        ...(names === undefined ? {} : { tools: names }),
        ...(model === undefined ? {} : { model }),
      },
      { signal, ...(onOutput === undefined ? {} : { onOutput }) },
    );
  },
};
