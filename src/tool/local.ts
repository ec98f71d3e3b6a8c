import { toolFailure } from "../chat/tool-result.ts";
import { applyPatch } from "./apply-patch.ts";
import { askUser } from "./ask-user.ts";
import { editFile } from "./edit-file.ts";
import type { FunctionProvider } from "./function-provider.ts";
import { listFiles } from "./list-files.ts";
import type { LocalFunction } from "./local-function.ts";
import { planFunctions } from "./plan-functions.ts";
import { readFile } from "./read-file.ts";
import { searchText } from "./search-text.ts";
import { task } from "./task.ts";
import { updateTodos } from "./update-todos.ts";
import { WorkspacePathError } from "./workspace.ts";
import { writeFile } from "./write-file.ts";

const ownFunctions: readonly LocalFunction[] = [
  readFile,
  listFiles,
  searchText,
  askUser,
  updateTodos,
  task,
  ...planFunctions,
  writeFile,
  editFile,
  applyPatch,
];

/** The functions that come with the server. They hold nothing open between calls. */
export function localFunctions(functions: readonly LocalFunction[] = ownFunctions): FunctionProvider {
  return {
    source: "local",
    list: async () => functions.map((each) => each.definition),
    async call(call, context) {
      const found = functions.find((each) => each.definition.name === call.name);
      if (found === undefined) return toolFailure(`there is no local function "${call.name}"`);
      try {
        return await found.run(call.arguments, context);
      } catch (error) {
        if (error instanceof WorkspacePathError) return toolFailure(error.message);
        throw error;
      }
    },
    async fingerprint(call, context) {
      const found = functions.find((each) => each.definition.name === call.name);
      return (await found?.fingerprint?.(call.arguments, context)) ?? "";
    },
    close: async () => {},
  };
}
