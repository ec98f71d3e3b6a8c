import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { TestContext } from "node:test";

/** What a path in a workspace is made as: a file with this text or these bytes, a link, a pipe, a directory. */
export type Entry = string | Uint8Array | { readonly link: string } | "<pipe>" | "<directory>";

/** Makes `<temporary>/ws` with the entries and `<temporary>/out/secret.txt` beside it; removed when the test ends. */
export function temporaryWorkspace(
  context: Pick<TestContext, "after">,
  entries: Readonly<Record<string, Entry>>,
): string {
  const base = realpathSync(mkdtempSync(join(tmpdir(), "workspace-")));
  context.after(() => rmSync(base, { recursive: true, force: true }));
  mkdirSync(join(base, "ws"));
  mkdirSync(join(base, "out"));
  writeFileSync(join(base, "out/secret.txt"), "SECRET\n");
  for (const [path, entry] of Object.entries(entries)) {
    const full = join(base, "ws", path);
    mkdirSync(dirname(full), { recursive: true });
    if (entry === "<directory>") mkdirSync(full);
    else if (entry === "<pipe>") execFileSync("mkfifo", [full]);
    else if (typeof entry === "string" || entry instanceof Uint8Array) writeFileSync(full, entry);
    else symlinkSync(entry.link, full);
  }
  return join(base, "ws");
}
