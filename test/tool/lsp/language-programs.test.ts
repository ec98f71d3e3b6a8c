import assert from "node:assert/strict";
import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { findLanguageProgram, languageNamed, languageOfFile } from "../../../src/tool/lsp/language-programs.ts";

test("languages by the names people give them", () => {
  for (const [name, id] of [
    ["TypeScript", "typescript"],
    [" jsx ", "typescript"],
    ["py", "python"],
    ["C++", "cpp"],
    ["golang", "go"],
    ["Rust", "rust"],
    ["cobol", undefined],
    ["", undefined],
  ] as const)
    assert.equal(languageNamed(name)?.id, id, name);
});

test("languages of files, and the protocol's words for them", () => {
  for (const [path, id] of [
    ["a/b.TSX", "typescriptreact"],
    ["/x/y.cjs", "javascript"],
    ["stub.pyi", "python"],
    ["x.h", "c"],
    ["x.hpp", "cpp"],
    ["Makefile", undefined],
    [".ts", undefined],
    ["x.toString", undefined],
  ] as const)
    assert.equal(languageOfFile(path)?.id, id, path);
});

test("programs are taken from the PATH and our own packages, never from the folder they look at", async (context) => {
  const folder = await realpath(await mkdtemp(join(tmpdir(), "codeagent-test-")));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const root = join(folder, "workspace");
  for (const path of [join(root, "bin"), join(folder, "links"), join(folder, "own")])
    await mkdir(path, { recursive: true });
  await writeFile(join(root, "bin/gopls"), "#!/bin/sh\n", { mode: 0o755 });
  await symlink(join(root, "bin/gopls"), join(folder, "links/gopls"));
  await writeFile(join(folder, "own/gopls"), "#!/bin/sh\n", { mode: 0o755 });
  const go = languageNamed("go") ?? assert.fail();
  const inside = `${join(root, "bin")}:bin:.:${join(folder, "links")}`;
  assert.equal(findLanguageProgram(go, inside, root), undefined);
  assert.equal(findLanguageProgram(go, undefined, root), undefined);
  const found = findLanguageProgram(go, `${inside}:${join(folder, "own")}`, root);
  assert.equal(found?.program, join(folder, "own/gopls"));
  const elsewhere = findLanguageProgram(go, inside, join(folder, "other"));
  assert.equal(elsewhere?.program, join(root, "bin/gopls"), "another folder has no say");

  const python = findLanguageProgram(languageNamed("python") ?? assert.fail(), "", root);
  assert.equal(python?.program, process.execPath);
  assert.match(String(python?.args), /langserver.*,--stdio$/);
  const typescript = findLanguageProgram(languageNamed("ts") ?? assert.fail(), "", root);
  assert.match(JSON.stringify(typescript?.initializationOptions), /tsserver\.js/);
});
