import type { ServiceImpl } from "@connectrpc/connect";
import type { CodeAgentService } from "../../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { setTodoStatuses, type Todo, todoPriorities } from "../../chat/todo.ts";
import { checkDistinct } from "../../convert/content-check.ts";
import { wordFromProto } from "../../convert/proto/field.ts";
import { theCaller } from "../caller.ts";
import { sessionIdFrom } from "../request-fields.ts";
import type { LegacyCore } from "./legacy-core.ts";

/**
 * Of the earlier service: todos. The list is the one that the agent keeps with `update_todos`; an item it wrote has its place,
 * from 1, as its id, and the priority `medium`.
 */
export function todoHandlers({ sessions }: LegacyCore) {
  const shown = async (sessionId: string) => ({
    todos: (await sessions.todos(theCaller, sessionId)).map(
      ({ id, content, status, priority = "medium" }: Todo, index) => ({
        id: id ?? String(index + 1),
        content,
        status,
        priority,
      }),
    ),
  });
  return {
    async getTodos(request) {
      return shown(sessionIdFrom(request.sessionId));
    },
    async setTodos(request) {
      const sessionId = sessionIdFrom(request.sessionId);
      const todos = request.todos.map(({ id, content, status, priority }, index): Todo => {
        const path = `todos[${index}]`;
        return {
          content,
          status: wordFromProto(status || "pending", setTodoStatuses, `${path}.status`),
          ...(id === "" ? {} : { id }),
          ...(priority === "" ? {} : { priority: wordFromProto(priority, todoPriorities, `${path}.priority`) }),
        };
      });
      checkDistinct(
        todos.map(({ id }, index) => id ?? String(index + 1)),
        (index) => `todos[${index}].id`,
      );
      await sessions.setTodos(theCaller, sessionId, todos);
      return { success: true, ...(await shown(sessionId)) };
    },
  } satisfies Partial<ServiceImpl<typeof CodeAgentService>>;
}
