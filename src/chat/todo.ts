export const todoStatuses = ["pending", "in_progress", "completed"] as const;
export type TodoStatus = (typeof todoStatuses)[number];

/** One item of a session's list of what is to be done. Its id is its place. */
export interface Todo {
  readonly content: string;
  readonly status: TodoStatus;
}

/** The function whose calls replace the list. */
export const updateTodosName = "update_todos";

/** The list that a call of `update_todos` sets; undefined for arguments of another form. */
export function todosFrom(given: unknown): readonly Todo[] | undefined {
  const todos = typeof given === "object" && given !== null && "todos" in given ? given.todos : undefined;
  if (!Array.isArray(todos)) return undefined;
  const list = todos.flatMap((item: unknown) => todoFrom(item) ?? []);
  return list.length === todos.length ? list : undefined;
}

function todoFrom(item: unknown): Todo | undefined {
  if (typeof item !== "object" || item === null || !("content" in item) || !("status" in item)) return undefined;
  const { content } = item;
  const status = todoStatuses.find((each) => each === item.status);
  return typeof content === "string" && status !== undefined ? { content, status } : undefined;
}

const marks = { pending: "[ ]", in_progress: "[>]", completed: "[x]" } as const satisfies Record<TodoStatus, string>;

/** The list as a model reads it: a line for each item, its place, a mark and its words. */
export function todosText(todos: readonly Todo[]): string {
  return todos
    .map(({ content, status }, index) => `${index + 1}. ${marks[status]} ${content.replace(/\s+/g, " ").trim()}`)
    .join("\n");
}
