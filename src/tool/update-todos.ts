import { maxTodoCharacters, maxTodos, todoStatuses, todosFrom, todosText, updateTodosName } from "../chat/todo.ts";
import { toolFailure } from "../chat/tool-result.ts";
import type { LocalFunction } from "./local-function.ts";

/** Replaces the list of what is to be done. The session keeps it: its log has the call. */
export const updateTodos: LocalFunction = {
  definition: {
    name: updateTodosName,
    title: "Update the todo list",
    description:
      "Keeps the list of what is to be done in this session, for work of several steps: write it when you have a " +
      "plan, and again whenever an item is begun or done or the plan changes. Each call replaces the whole list, so " +
      "name every item; one item at a time is in_progress. The list outlasts a summary of the conversation.",
    parameters: JSON.stringify({
      type: "object",
      properties: {
        todos: {
          type: "array",
          maxItems: maxTodos,
          items: {
            type: "object",
            properties: {
              content: {
                type: "string",
                minLength: 1,
                maxLength: maxTodoCharacters,
                description: "What is to be done, in a line",
              },
              status: { type: "string", enum: todoStatuses },
            },
            required: ["content", "status"],
            additionalProperties: false,
          },
          description: "The whole list, in order",
        },
      },
      required: ["todos"],
      additionalProperties: false,
    }),
    source: "local",
    readOnly: true,
    timeoutMs: 30_000,
    returns: "The list as it is now: [ ] pending, [>] in progress, [x] completed.",
  },

  async run(given, { turnId }) {
    if (turnId === "") return toolFailure("update_todos works inside a turn only: the list belongs to a session");
    const todos = todosFrom(given) ?? [];
    if (todos.length === 0) return { success: true, output: "the list is empty" };
    const done = todos.filter(({ status }) => status === "completed").length;
    return { success: true, output: `${todosText(todos)}\n${done} of ${todos.length} done` };
  },
};
