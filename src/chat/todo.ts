/** What an agent says of an item. */
export const todoStatuses = ["pending", "in_progress", "completed"] as const;
/** What a caller may say of it. */
export const setTodoStatuses = [...todoStatuses, "cancelled"] as const;
export type TodoStatus = (typeof setTodoStatuses)[number];
export const todoPriorities = ["low", "medium", "high"] as const;

/** One item of a session's list of what is to be done. */
export interface Todo {
  readonly content: string;
  readonly status: TodoStatus;
  /** What a caller calls it that has set it; absent where its place is its id. */
  readonly id?: string;
  /** Absent where nobody has said. */
  readonly priority?: (typeof todoPriorities)[number];
}

/** As many items a list has at most, and as many characters an item. */
export const maxTodos = 100;
export const maxTodoCharacters = 500;

/** Code of the notice that a caller has set the list. */
export const todosSet = "TODOS_SET";

/** The function whose calls replace the list. */
export const updateTodosName = "update_todos";

/** The list that a call of `update_todos` sets, or somebody else; undefined for values of another form. */
export function todosFrom(given: unknown): readonly Todo[] | undefined {
  const todos = typeof given === "object" && given !== null && "todos" in given ? given.todos : undefined;
  if (!Array.isArray(todos)) return undefined;
  const list = todos.flatMap((item: unknown) => todoFrom(item) ?? []);
  return list.length === todos.length ? list : undefined;
}

function todoFrom(item: unknown): Todo | undefined {
  if (typeof item !== "object" || item === null || !("content" in item) || !("status" in item)) return undefined;
  const { content } = item;
  const status = setTodoStatuses.find((each) => each === item.status);
  if (typeof content !== "string" || status === undefined) return undefined;
  const id = "id" in item && typeof item.id === "string" ? { id: item.id } : {};
  const given = "priority" in item ? todoPriorities.find((each) => each === item.priority) : undefined;
  return { content, status, ...id, ...(given === undefined ? {} : { priority: given }) };
}

const marks = {
  pending: "[ ]",
  in_progress: "[>]",
  completed: "[x]",
  cancelled: "[-]",
} as const satisfies Record<TodoStatus, string>;

/** The list as a model reads it: a line for each item, its place, a mark and its words. */
export function todosText(todos: readonly Todo[]): string {
  return todos
    .map(({ content, status }, index) => `${index + 1}. ${marks[status]} ${content.replace(/\s+/g, " ").trim()}`)
    .join("\n");
}
