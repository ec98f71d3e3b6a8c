import { constants, type FileHandle, open, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";

/** Writes a file that only we may read, in a folder that is there: it is the old or the new one, also after a crash. */
export async function writePrivateFile(file: string, text: string): Promise<void> {
  const temporary = `${file}.new`;
  await rm(temporary, { force: true });
  let handle: FileHandle | undefined;
  try {
    handle = await open(
      temporary,
      constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | constants.O_NOFOLLOW,
      0o600,
    );
    await handle.writeFile(text);
    await handle.sync();
  } finally {
    await handle?.close();
  }
  await rename(temporary, file);
  const folder = await open(dirname(file), "r");
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}
