import { chmod, mkdir, mkdtemp, realpath, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

/** A folder without links in its path that is gone after the test. */
export async function temporaryFolder(context: { after(work: () => unknown): void }): Promise<string> {
  const folder = await realpath(await mkdtemp(join(tmpdir(), "codeagent-skills-")));
  context.after(() => rm(folder, { recursive: true, force: true, maxRetries: 3 }));
  return folder;
}

/** Writes files beneath a folder, by their paths. What begins with #! may be run. */
export async function writeFiles(folder: string, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [path, content] of Object.entries(files)) {
    const file = join(folder, path);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, content);
    if (content.startsWith("#!")) await chmod(file, 0o755);
  }
}

/** A SKILL.md. @param more further lines of its front matter. */
export function skillText(name: string, more = "", body = `How to ${name}.\n`): string {
  return `---\nname: ${name}\ndescription: It does ${name}\n${more}---\n${body}`;
}

/** Entries of `tools` for scripts by the tools' names. @param more further lines of each entry. */
export function toolsText(commands: Readonly<Record<string, string>>, more = ""): string {
  const entries = Object.entries(commands).map(
    ([name, command]) => `  - name: ${name}\n    description: runs ${name}\n    command: ${command}\n${more}`,
  );
  return `tools:\n${entries.join("")}`;
}

/** Looks again until something holds, for `limitMs` at most; gives how long that took. */
export async function until(what: string, holds: () => boolean | Promise<boolean>, limitMs = 5000): Promise<number> {
  const startMs = performance.now();
  while (!(await holds())) {
    if (performance.now() - startMs > limitMs) throw new Error(`not within ${limitMs} ms: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  return performance.now() - startMs;
}
