import { accessSync, constants, statSync } from "node:fs";
import { isAbsolute, join } from "node:path";

/** The absolute path of a program in the folders of a PATH. */
export function findProgram(name: string, path: string | undefined): string | undefined {
  return (path ?? "/usr/local/bin:/usr/bin:/bin")
    .split(":")
    .filter((folder) => isAbsolute(folder))
    .map((folder) => join(folder, name))
    .find((file) => {
      try {
        accessSync(file, constants.X_OK);
        return statSync(file).isFile();
      } catch {
        return false;
      }
    });
}
