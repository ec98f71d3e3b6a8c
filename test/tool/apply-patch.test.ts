import assert from "node:assert/strict";
import { chmodSync, existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { createTwoFilesPatch, structuredPatch } from "diff";
import fc from "fast-check";
import { parsePatchText, patchedPaths } from "../../src/tool/patch-text.ts";
import { callLocal } from "./call-local.ts";
import { type Entry, temporaryWorkspace } from "./temporary-workspace.ts";

const marked = (text: string) => `*** Begin Patch\n${text}\n*** End Patch\n`;
const update = (text: string) => marked(`*** Update File: f\n${text}`);
const unified = (text: string) => `--- a/f\n+++ b/f\n${text}\n`;
const code = "class A:\n  def run():\n    pass\n\nclass B:\n  def run():\n    pass\n";

describe("what a hunk makes of a file", () => {
  const cases: readonly (readonly [title: string, before: string, patch: string, after: string])[] = [
    ["a line", "a\nb\nc\n", update("@@\n a\n-b\n+B\n c"), "a\nB\nc\n"],
    ["without @@", "a\nb\nc\n", update("-b\n+B\n+C"), "a\nB\nC\nc\n"],
    ["two hunks", "a\nb\nc\nd\n", update("@@\n-a\n@@\n c\n-d\n+D"), "b\nc\nD\n"],
    ["two hunks in the wrong order", "a\nb\nc\nd\n", update("@@\n-d\n+D\n@@\n-a\n+A"), "A\nb\nc\nD\n"],
    [
      "after a line that tells two places apart",
      code,
      update("@@ class B:\n-    pass\n+    go()"),
      code.replace(/pass\n$/, "go()\n"),
    ],
    [
      "after two lines",
      code,
      update("@@ class B:\n@@ def run():\n-    pass\n+    go()"),
      code.replace(/pass\n$/, "go()\n"),
    ],
    ["told apart by the hunk before", "x\na\nx\nb\n", update("@@\n-a\n+A\n@@\n-x\n+y"), "x\nA\ny\nb\n"],
    [
      "only new lines after a line",
      code,
      update("@@ class B:\n+  x = 1"),
      code.replace("class B:\n", "class B:\n  x = 1\n"),
    ],
    ["only new lines at the end", "a\n", update("@@\n+b\n*** End of File"), "a\nb\n"],
    ["into an empty file", "", update("@@\n+b"), "b\n"],
    ["the last of two places", "a\nb\na\n", update("@@\n-a\n+A\n*** End of File"), "a\nb\nA\n"],
    ["spaces at the end of lines are forgiven and stay", "a  \nb\t\nc\n", update("@@\n a\n-b\n+B\n c"), "a  \nB\nc\n"],
    ["an empty line without its space", "a\n\nb\n", update("@@\n a\n\n-b\n+B"), "a\n\nB\n"],
    ["empty lines before the end of the patch", "a\nb\n", update("@@\n-a\n+A\n\n"), "A\nb\n"],
    ["Windows line ends", "a\r\nb\r\nc\r\n", update("@@\n a\n-b\n+B\n+C"), "a\r\nB\r\nC\r\nc\r\n"],
    ["a patch with Windows line ends", "a\nb\n", update("@@\n-a\n+A").replaceAll("\n", "\r\n"), "A\nb\n"],
    ["no line end at the end stays so", "a\nb", update("@@\n-b\n+B\n+C"), "a\nB\nC"],
    ["a byte order mark stays", "\ufeffa\nb\n", update("@@\n-a\n+A"), "\ufeffA\nb\n"],
    ["within three backticks", "a\n", `\`\`\`diff\n${update("-a\n+A")}\`\`\`\n`, "A\n"],
    ["numbers of lines after @@", "a\nx\na\n", update("@@ -3,1 +3,1 @@\n-a\n+A"), "a\nx\nA\n"],
    ["unified", "a\nb\nc\n", unified("@@ -1,3 +1,3 @@\n a\n-b\n+B\n c"), "a\nB\nc\n"],
    ["unified, moved since", "n\nn\na\nb\nc\n", unified("@@ -1,3 +1,3 @@\n a\n-b\n+B\n c"), "n\nn\na\nB\nc\n"],
    ["unified, told apart by its number", "a\nb\na\nb\n", unified("@@ -3,2 +3,2 @@\n a\n-b\n+B"), "a\nb\na\nB\n"],
    ["unified, miscounted", "a\nb\nc\nd\n", unified("@@ -1,1 +1,9 @@\n a\n-b\n-c\n+B\n+C\n d"), "a\nB\nC\nd\n"],
    [
      "unified, a line that looks like a header",
      "a\n-- x\nb\n",
      unified("@@ -1,3 +1,3 @@\n a\n--- x\n+++ y\n b"),
      "a\n++ y\nb\n",
    ],
    [
      "unified, with a line end that comes",
      "a\nb",
      unified("@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b"),
      "a\nb\n",
    ],
    [
      "unified, with a line end that goes",
      "a\nb\n",
      unified("@@ -1,2 +1,2 @@\n a\n-b\n+b\n\\ No newline at end of file"),
      "a\nb",
    ],
    [
      "unified, sent by mail",
      "a\nb\n",
      `Subject: x\n\n---\n f | 2 +-\n\n${unified("@@ -1,2 +1,2 @@\n a\n-b\n+B")}-- \n2.43.0\n`,
      "a\nB\n",
    ],
  ];
  for (const [title, before, patch, after] of cases) {
    test(title, async (context) => {
      const workspace = temporaryWorkspace(context, { f: before });
      const result = await callLocal(workspace, "apply_patch", { patch });
      assert.equal(result.error, undefined);
      assert.equal(readFileSync(join(workspace, "f"), "utf8"), after);
      assert.match(result.output, /^M f \(\+\d+ -\d+\)$/);
    });
  }
});

describe("what does not fit, and what a model learns from it", () => {
  const cases: readonly (readonly [before: string, patch: string, problem: string, nearest?: string])[] = [
    [
      "a\nb\na\n",
      update("@@\n-a\n+A"),
      '"f": the hunk on line 3 of the patch fits in 2 places, at lines 1 and 3: put more lines around the change',
    ],
    [
      "a\nb\na\nb\n",
      unified("@@ -9,2 +9,2 @@\n a\n-b\n+B"),
      '"f": hunk 1 of the patch fits in 2 places, at lines 1 and 3: put more lines around the change',
    ],
    [
      "  alpha\nb\n",
      update("@@\n-alpha\n+A"),
      '"f": the hunk on line 3 of the patch has lines that do not stand in the file so; they differ only in indentation',
      "1\t  alpha",
    ],
    [
      "a\n",
      update("@@\n-zzz\n+A"),
      '"f": the hunk on line 3 of the patch has lines that do not stand in the file, nor anything like them',
    ],
    [
      "a\n",
      update("@@ class X\n-a\n+A"),
      '"f": the hunk on line 3 of the patch comes after "class X", which is no line of the file',
    ],
    [
      "a\nclass X\n",
      update("@@ class X\n-a\n+A"),
      '"f": the hunk on line 3 of the patch stands at line 1, but not after "class X"',
    ],
    [
      "a\nb\n",
      update("@@\n-a\n+A\n*** End of File"),
      '"f": the hunk on line 3 of the patch stands at line 1, but not at the end of the file',
    ],
    [
      "a\nb\n",
      update("@@\n-a\n+A\n@@\n-a\n b"),
      '"f": the hunk on line 6 of the patch stands at line 1, which an earlier hunk changes: put both into one hunk',
    ],
    [
      "a\n",
      update("@@\n+A"),
      '"f": the hunk on line 3 of the patch only adds lines, and nothing says where: put lines of the file around them',
    ],
    ["a\n", update("@@\n a"), "the patch changes nothing: what it wants is there already"],
    ["a\n", marked("*** Add File: f\n+a"), '"f" exists already; update it, or delete it first'],
    ["a\n", marked("*** Delete File: g"), '"g" does not exist'],
    ["a\n", marked("*** Update File: f\n*** Move to: k\n-a\n+b"), '"f" cannot be moved: "k" exists already'],
    [
      "a\n",
      "--- a/f\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-b\n",
      '"f": hunk 1 of the patch has lines that do not stand in the file, nor anything like them',
    ],
    ["a\nb\n", "--- a/f\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-a\n", '"f" has more lines than the patch deletes'],
    ["a\n", marked("*** Update File: ../out/secret.txt\n-SECRET\n+x"), '"../out/secret.txt" is outside the workspace'],
    ["a\n", marked("*** Update File: leaf-out\n-SECRET\n+x"), '"leaf-out" is outside the workspace'],
    ["a\n", marked("*** Add File: directory-out/x\n+x"), '"directory-out/x" is outside the workspace'],
    [
      "a\n",
      marked("*** Update File: f\n*** Move to: directory-out/x\n-a\n+x"),
      '"directory-out/x" is outside the workspace',
    ],
    ["a\n", marked("*** Delete File: leaf-out"), '"leaf-out" is a link'],
    ["a\n", marked("*** Delete File: d"), '"d" is a directory, not a regular file'],
    ["a\n", marked("*** Update File: pipe\n-a\n+x"), '"pipe" is a named pipe, not a regular file'],
    ["a\0\n", update("-a\n+b"), '"f" is a binary file; only text in UTF-8 can be edited'],
  ];
  for (const [before, patch, problem, nearest = ""] of cases) {
    test(problem.slice(0, 110), async (context) => {
      const entries: Readonly<Record<string, Entry>> = {
        f: before,
        k: "kept\n",
        d: "<directory>",
        pipe: "<pipe>",
        "leaf-out": { link: "../out/secret.txt" },
        "directory-out": { link: "../out" },
      };
      const workspace = temporaryWorkspace(context, entries);
      const { success, error = "", output } = await callLocal(workspace, "apply_patch", { patch });
      assert.equal(success, false);
      assert.equal(error.replace("the patch does not fit, and nothing was changed: ", ""), problem);
      assert.equal(output, nearest === "" ? "" : `${problem}:\n${nearest}`);
      assert.equal(readFileSync(join(workspace, "f"), "utf8"), before);
      assert.deepEqual(readdirSync(join(workspace, "../out")), ["secret.txt"]);
      assert.equal(readFileSync(join(workspace, "../out/secret.txt"), "utf8"), "SECRET\n");
    });
  }
});

describe("what is no patch", () => {
  const cases: readonly (readonly [patch: string, problem: RegExp])[] = [
    [" \n", /^the patch is empty; nothing was changed$/],
    ["*** Begin Patch\n*** Add File: x\n+a", /does not end with \*\*\* End Patch: it may have been cut/],
    [marked(""), /names no file/],
    [marked("*** Add File: x\na"), /^line 3 of the patch, "a", does not begin with \+/],
    [marked("*** Add File: "), /^line 2 of the patch, .* names no path/],
    [marked("*** Rename File: x"), /^line 2 of the patch, "\*\*\* Rename File: x", is no header/],
    [marked("*** Delete File: x\n-a"), /^line 3 of the patch, "-a", follows a file that is deleted/],
    [update("@@\n-a\nb"), /^line 5 of the patch, "b", begins with neither a space, \+ nor -/],
    [update("@@\n@@ x"), /^line 3 of the patch, "@@", begins a hunk without any line/],
    [marked("*** Update File: f"), /^line 2 of the patch, .* has no hunk/],
    ["@@ -1 +1 @@\n-a\n+b\n", /is neither a unified diff .* nor begins with \*\*\* Begin Patch/],
    ["--- a/f\n@@ -1 +1 @@\n-a\n+b\n", /cannot be read: Missing "\+\+\+ \.\.\."/],
    ["diff --git a/f b/f\nBinary files a/f and b/f differ\n", /"f": a diff of binary files cannot be applied/],
    ["diff --git a/f b/f\nold mode 100644\nnew mode 100755\n", /"f": permissions cannot be changed/],
    [
      "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n",
      /"l": only regular files/,
    ],
  ];
  for (const [patch, problem] of cases) {
    test(`${problem}`, async (context) => {
      const workspace = temporaryWorkspace(context, { f: "a\n" });
      const { success, error } = await callLocal(workspace, "apply_patch", { patch });
      assert.equal(success, false);
      assert.match(error ?? "", problem);
      assert.deepEqual(patchedPaths(patch), []);
      assert.equal(readFileSync(join(workspace, "f"), "utf8"), "a\n");
    });
  }
});

const whole = marked(`*** Update File: src/a.ts
*** Move to: lib/deep/a.ts
@@
-one
+ONE
*** Add File: n/e/w.txt
+new
*** Delete File: old.txt
*** Update File: b.ts
@@
-b
+B
*** Update File: b.ts
@@
-c
+C`);

test("several files at once", async (context) => {
  const workspace = temporaryWorkspace(context, { "src/a.ts": "one\ntwo\n", "old.txt": "o\n", "b.ts": "b\nc\n" });
  chmodSync(join(workspace, "src/a.ts"), 0o750);
  const { output, error, metadata } = await callLocal(workspace, "apply_patch", { patch: whole });
  assert.equal(error, undefined);
  assert.deepEqual(output.split("\n"), [
    "R src/a.ts -> lib/deep/a.ts (+1 -1)",
    "A n/e/w.txt (+1 -0)",
    "D old.txt (+0 -1)",
    "M b.ts (+2 -2)",
  ]);
  const files = readdirSync(workspace, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(workspace.length + 1));
  assert.deepEqual(files.sort(), ["b.ts", "lib/deep/a.ts", "n/e/w.txt"]);
  assert.equal(readFileSync(join(workspace, "b.ts"), "utf8"), "B\nC\n");
  assert.equal(readFileSync(join(workspace, "lib/deep/a.ts"), "utf8"), "ONE\ntwo\n");
  assert.equal(statSync(join(workspace, "lib/deep/a.ts")).mode & 0o777, 0o750);
  assert.match(
    metadata?.["diff"] ?? "",
    /^--- a\/src\/a\.ts\n\+\+\+ b\/lib\/deep\/a\.ts\n@@[\s\S]*\n--- \/dev\/null\n\+\+\+ b\/n\/e\/w\.txt\n/,
  );
});

test("git's headers: new programs, deleted and renamed files", async (context) => {
  const workspace = temporaryWorkspace(context, { gone: "g\n", "from here": "x\ny\n" });
  const patch = `diff --git a/run.sh b/run.sh
new file mode 100755
--- /dev/null
+++ b/run.sh
@@ -0,0 +1 @@
+#!/bin/sh
diff --git a/gone b/gone
deleted file mode 100644
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-g
diff --git a/from here b/to here
similarity index 50%
rename from from here
rename to to here
--- a/from here
+++ b/to here
@@ -1,2 +1,2 @@
 x
-y
+z
`;
  assert.deepEqual(patchedPaths(patch), ["run.sh", "gone", "from here", "to here"]);
  const { output, error } = await callLocal(workspace, "apply_patch", { patch });
  assert.equal(error, undefined);
  assert.equal(output, "A run.sh (+1 -0)\nD gone (+0 -1)\nR from here -> to here (+1 -1)");
  assert.equal(statSync(join(workspace, "run.sh")).mode & 0o111, 0o111);
  assert.deepEqual(readdirSync(workspace).sort(), ["run.sh", "to here"]);
});

test("one hunk that does not fit keeps all files as they are, and every one is named", async (context) => {
  const workspace = temporaryWorkspace(context, { "src/a.ts": "one\n", "old.txt": "o\n", "b.ts": "b\nx\n" });
  const patch = whole.replace("-b\n", "-nothing like it\n");
  const { error } = await callLocal(workspace, "apply_patch", { patch });
  assert.match(error ?? "", /nothing was changed: "b\.ts": the hunk on line 11 .*; "b\.ts": the hunk on line 15 /);
  assert.deepEqual(readdirSync(workspace, { recursive: true }).sort(), ["b.ts", "old.txt", "src", "src/a.ts"]);
});

test("after a failure in the middle what was written is put back", async (context) => {
  const long = "x".repeat(250);
  const workspace = temporaryWorkspace(context, { a: "a\n", b: "b\n", [long]: "<directory>" });
  chmodSync(join(workspace, "a"), 0o640);
  // The folder is wanted as a file too: only writing shows that both do not go together.
  const patch = marked(
    `*** Update File: a\n-a\n+A\n*** Add File: n/m/x\n+x\n*** Add File: n/m\n+x\n*** Delete File: b`,
  );
  const { error } = await callLocal(workspace, "apply_patch", { patch });
  assert.match(error ?? "", /^"n\/m" .*; nothing was changed$/);
  assert.deepEqual(readdirSync(workspace).sort(), ["a", "b", long].sort());
  assert.equal(readFileSync(join(workspace, "a"), "utf8"), "a\n");
  assert.equal(statSync(join(workspace, "a")).mode & 0o777, 0o640);
  assert.equal(existsSync(join(workspace, "n")), false);
});

test("the paths of a patch, each once, as rules judge them", () => {
  assert.deepEqual(patchedPaths(whole), ["src/a.ts", "lib/deep/a.ts", "n/e/w.txt", "old.txt", "b.ts"]);
  assert.deepEqual(patchedPaths(unified("@@ -1 +1 @@\n-a\n+b")), ["f"]);
  assert.deepEqual(patchedPaths("--- f\t2026-01-01\n+++ f\t2026-01-02\n@@ -1 +1 @@\n-a\n+b\n"), ["f"]);
  assert.deepEqual(patchedPaths("nothing"), []);
});

describe("a patch of the difference of two texts makes one of the other", () => {
  const line = fc.constantFrom("a", "b", "  a", "", "-- x", "++ y", "@@ z", "*** Add File: q", "é😀", "\\ x");
  const text = fc
    .tuple(fc.array(line, { maxLength: 20 }), fc.boolean())
    .map(([lines, isEnded]) => lines.join("\n") + (isEnded && lines.length > 0 ? "\n" : ""));

  for (const [title, lineEnd] of [
    ["unified", "\n"],
    ["unified, Windows line ends", "\r\n"],
  ] as const) {
    test(title, async (context) => {
      const workspace = temporaryWorkspace(context, {});
      const windows = (each: string) => each.replaceAll("\n", lineEnd);
      await fc.assert(
        fc.asyncProperty(text, text, async (before, after) => {
          fc.pre(before !== after && (lineEnd === "\n" || (before.includes("\n") && after.includes("\n"))));
          await callLocal(workspace, "write_file", { path: "f", content: windows(before) });
          const patch = createTwoFilesPatch("a/f", "b/f", before, after);
          const { error } = await callLocal(workspace, "apply_patch", { patch });
          assert.equal(error, undefined);
          assert.equal(readFileSync(join(workspace, "f"), "utf8"), windows(after));
        }),
        { numRuns: 80 },
      );
    });
  }

  test("with markers", async (context) => {
    const workspace = temporaryWorkspace(context, {});
    await fc.assert(
      fc.asyncProperty(text, text, async (one, other) => {
        // This form cannot say anything about the line end of the last line.
        const [before, after] = [`${one}\n`, `${other}\n`];
        fc.pre(before !== after);
        await callLocal(workspace, "write_file", { path: "f", content: before });
        const { hunks } = structuredPatch("f", "f", before, after, undefined, undefined, { context: 30 });
        const body = hunks.flatMap(({ lines }) => ["@@", ...lines, "*** End of File"]).join("\n");
        const { error } = await callLocal(workspace, "apply_patch", { patch: update(body) });
        assert.equal(error, undefined);
        assert.equal(readFileSync(join(workspace, "f"), "utf8"), after);
      }),
      { numRuns: 80 },
    );
  });

  test("whatever the text, reading it as a patch ends with files or with a sentence", () => {
    const piece = fc.constantFrom(
      "*** Begin Patch",
      "*** End Patch",
      "*** Update File: f",
      "*** Add File: g",
      "*** Move to: h",
      "*** End of File",
      "@@",
      "@@ -1,2 +1,2 @@",
      "@@ -1 +9999999 @@ x",
      "--- a/f",
      "+++ b/f",
      "diff --git a/f b/f",
      "rename from x",
      "-- ",
      "+a",
      "-a",
      " a",
      "",
      "\\ No newline at end of file",
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 25 }), (lines) => {
        const patch = lines.join("\n");
        const paths = patchedPaths(patch);
        if (paths.length === 0) assert.throws(() => parsePatchText(patch), { name: "PatchFault" });
      }),
      { numRuns: 2000 },
    );
  });
});
