import { create } from "@bufbuild/protobuf";
import { type Todo as ProtoTodo, TodoSchema } from "../../../gen/codeagent/v1/code_agent_pb.ts";
import { setTodoStatuses, type Todo, todoPriorities } from "../../chat/todo.ts";
import { present, presentText } from "../present.ts";
import { wordFromProto } from "./field.ts";

/** Writes an item of a list of what is to be done. */
export function todoToProto({ content, status, id = "", priority }: Todo): ProtoTodo {
  return create(TodoSchema, { content, status, id, priority: priority ?? "" });
}

/** Reads an item of a list of what is to be done. */
export function todoFromProto({ content, status, id, priority }: ProtoTodo): Todo {
  return present({
    content,
    status: wordFromProto(status, setTodoStatuses, "todos.status"),
    id: presentText(id),
    priority: priority === "" ? undefined : wordFromProto(priority, todoPriorities, "todos.priority"),
  });
}
