import { spawn } from "node:child_process";
import { once } from "node:events";

/**
 * Lets a person change a file in an editor of theirs, which has the terminal meanwhile.
 * @param command the program with its words, as `EDITOR` has it
 * @throws {Error} one sentence, when the editor can't be started or ends with a failure.
 */
export async function openEditor(command: string, file: string): Promise<void> {
  const [program = "vi", ...words] = command.trim().split(/\s+/);
  const editor = spawn(program, [...words, file], { stdio: "inherit" });
  let code: unknown;
  try {
    [code] = await once(editor, "exit");
  } catch {
    throw new Error(`the editor ${program} can't be started; name another one in EDITOR, or give --file`);
  }
  if (code !== 0) throw new Error(`the editor ${program} ended with ${code ?? "a signal"}; nothing was sent`);
}
