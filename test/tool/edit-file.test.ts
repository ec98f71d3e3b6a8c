import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import fc from "fast-check";
import { replaceText } from "../../src/tool/edit-file.ts";
import { callLocal } from "./call-local.ts";
import { inLoop } from "./other-process.ts";
import { type Entry, temporaryWorkspace } from "./temporary-workspace.ts";

describe("what an edit makes of a file", () => {
  const cases: readonly (readonly [
    title: string,
    before: string,
    oldText: string,
    newText: string,
    after: string,
    said: string,
    everywhere?: boolean,
  ])[] = [
    ["one line", "a\nb\nc\n", "b", "B", "a\nB\nc\n", "line 2 (+1 -1)"],
    ["several lines", "a\nb\nc\n", "a\nb\n", "x\n", "x\nc\n", "line 1 (+1 -2)"],
    ["nothing in its place", "a\nb\nc", "\nc", "", "a\nb", "line 2 (+1 -2)"],
    ["what looks like a pattern", "a $& (b)\n", "$& (b)", "$1 $& \\n", "a $1 $& \\n\n", "line 1 (+1 -1)"],
    ["everywhere", "a a\nb\na", "a", "aa", "aa aa\nb\naa", "3 places, lines 1 and 3 (+2 -2)", true],
    ["everywhere, once", "a\n", "a", "b", "b\n", "line 1 (+1 -1)", true],
    [
      "Windows line ends, found by \\n",
      "a\r\nb\r\nc\r\n",
      "a\nb\n",
      "x\ny\nz\n",
      "x\r\ny\r\nz\r\nc\r\n",
      "line 1 (+3 -2)",
    ],
    ["Windows line ends, a single line", "a\r\nb\r\n", "a", "x\ny", "x\r\ny\r\nb\r\n", "line 1 (+2 -1)"],
    ["Windows line ends on both sides", "a\r\nb\r\n", "a\r\nb", "x\r\ny", "x\r\ny\r\n", "line 1 (+2 -2)"],
    ["Unix line ends stay", "a\nb\n", "a\r\nb", "x\r\ny", "x\ny\n", "line 1 (+2 -2)"],
    ["mixed line ends stay where they are", "a\nb\r\nc\nd\n", "b\nc", "B\nC", "a\nB\r\nC\nd\n", "line 2 (+2 -2)"],
    ["mixed line ends before and after", "a\r\nb\nc\r\nd", "b\nc", "B\nC", "a\r\nB\nC\r\nd", "line 2 (+2 -2)"],
    ["a byte order mark stays", "\ufeffa\nb\n", "a", "é", "\ufeffé\nb\n", "line 1 (+1 -1)"],
    ["characters of two units", "😀a😀\n", "😀a", "é", "é😀\n", "line 1 (+1 -1)"],
  ];
  for (const [title, before, oldText, newText, after, said, everywhere] of cases) {
    test(title, async (context) => {
      const workspace = temporaryWorkspace(context, { f: before });
      const result = await callLocal(workspace, "edit_file", {
        path: "f",
        old_text: oldText,
        new_text: newText,
        ...(everywhere === undefined ? {} : { replace_all: everywhere }),
      });
      assert.equal(result.error, undefined);
      assert.equal(result.output, `edited f: ${said}`);
      assert.equal(readFileSync(join(workspace, "f"), "utf8"), after);
      assert.match(result.metadata?.["diff"] ?? "", /^--- a\/f\n\+\+\+ b\/f\n@@ /);
    });
  }
});

describe("what is not edited, and what a model learns from it", () => {
  const file = 'one\n  two = "x";\n  two = "y";\nthree\n\n\tfour\nthe five boxing wizards jump\nend  \n';
  const cases: readonly (readonly [oldText: string, newText: string, problem: string, nearest: string])[] = [
    [
      "two",
      "2",
      "old_text occurs 2 times, on lines 2 and 3; take more lines around it to say which, or set replace_all",
      "",
    ],
    ["one\n", "one\n", "old_text and new_text are the same, so that nothing changes", ""],
    ["    four", "4", "old_text does not occur exactly so; line 6 differs only in indentation", "6\t\tfour"],
    [
      "end \n",
      "x",
      "old_text does not occur exactly so; line 8 differs only in spaces at the ends of lines",
      "8\tend  ",
    ],
    [
      "  two = “x”;\n  two = “y”;",
      "x",
      "old_text does not occur exactly so; lines 2 and 3 differ only in the kind of quotation marks, dashes or spaces",
      '2\t  two = "x";\n3\t  two = "y";',
    ],
    ["THREE", "3", "old_text does not occur exactly so; line 4 differs only in upper and lower case", "4\tthree"],
    [
      "the five boxing wizard jumps",
      "x",
      "old_text does not occur exactly so; the nearest are shown",
      "7\tthe five boxing wizards jump",
    ],
    ["4\tthree", "x", "old_text does not occur; leave out the line numbers that read_file shows", ""],
    ["zzz qqq", "x", "old_text does not occur, nor anything like it; read the file again", ""],
    ["\n\n\n\n", "x", "old_text does not occur, nor anything like it; read the file again", ""],
  ];
  for (const [oldText, newText, problem, nearest] of cases) {
    test(problem.slice(0, 90), async (context) => {
      const workspace = temporaryWorkspace(context, { f: file });
      const given = { path: "f", old_text: oldText, new_text: newText };
      const { success, error, output } = await callLocal(workspace, "edit_file", given);
      assert.deepEqual({ success, error, output }, { success: false, error: `"f": ${problem}`, output: nearest });
      assert.equal(readFileSync(join(workspace, "f"), "utf8"), file);
    });
  }

  const entries: Readonly<Record<string, Entry>> = {
    binary: Buffer.from([97, 0, 98]),
    latin: Buffer.from([97, 0xe4]),
    wide: Buffer.from("\ufeffa", "utf16le"),
    out: { link: "../out/secret.txt" },
    pipe: "<pipe>",
    d: "<directory>",
    many: "a".repeat(1000),
    large: Buffer.alloc(8 * 1024 * 1024 + 1, "a"),
  };
  const refusals: readonly (readonly [path: string, said: string])[] = [
    ["binary", '"binary" is a binary file; only text in UTF-8 can be edited'],
    ["latin", '"latin" is not in UTF-8; only text in UTF-8 can be edited'],
    ["wide", '"wide" is text in UTF-16; only text in UTF-8 can be edited'],
    ["out", '"out" is outside the workspace'],
    ["pipe", '"pipe" is a named pipe, not a regular file'],
    ["d", '"d" is a directory, not a regular file'],
    ["none", '"none" does not exist; make it with write_file'],
    ["none/x", '"none/x" does not exist; make it with write_file'],
    [
      "many",
      '"many": old_text occurs more than 100 times, on line 1; take more lines around it to say which, or set replace_all',
    ],
    ["large", '"large" has 8388609 bytes; at most 8388608 can be edited'],
  ];
  for (const [path, said] of refusals) {
    test(said.slice(0, 70), { timeout: 5000 }, async (context) => {
      const workspace = temporaryWorkspace(context, entries);
      const result = await callLocal(workspace, "edit_file", { path, old_text: "a", new_text: "b" });
      assert.equal(result.error, said);
      assert.equal(readFileSync(join(workspace, "../out/secret.txt"), "utf8"), "SECRET\n");
    });
  }
});

test("an edit of a text that occurs once is String.replace", () => {
  const piece = fc.string({ unit: fc.constantFrom("a", "b", " ", "\n", "$", "&", "é", "😀", "\t"), maxLength: 30 });
  let replaced = 0;
  fc.assert(
    fc.property(
      piece,
      piece.filter((text) => text !== ""),
      piece,
      piece,
      (before, oldText, after, newText) => {
        const text = before + oldText + after;
        const isOnce = text.indexOf(oldText) === text.lastIndexOf(oldText);
        const edit = replaceText(text, oldText, newText);
        const expected = text.replace(oldText, () => newText);
        assert.equal(edit.ok, isOnce && expected !== text);
        if (edit.ok) {
          replaced++;
          assert.equal(edit.text, expected);
          const windows = replaceText(text.replaceAll("\n", "\r\n"), oldText, newText);
          assert.ok(windows.ok);
          // A file without any line end gets those of Unix.
          if (text.includes("\n")) assert.equal(windows.text, expected.replaceAll("\n", "\r\n"));
        }
        const everywhere = replaceText(text, oldText, newText, true);
        if (everywhere.ok)
          assert.equal(
            everywhere.text,
            text.replaceAll(oldText, () => newText),
          );
      },
    ),
    { numRuns: 500 },
  );
  assert.ok(replaced > 50, `only ${replaced} texts occurred once`);
});

test("what somebody else writes meanwhile is not lost", { timeout: 30_000 }, async (context) => {
  const workspace = temporaryWorkspace(context, { f: "count 0\nmine 0\n" });
  // Both write the whole file; whoever was overtaken has to begin anew, or its number is lost.
  const edits = async (name: string) => {
    let lost = 0;
    for (let number = 0; number < 30; ) {
      const given = { path: "f", old_text: `${name} ${number}\n`, new_text: `${name} ${number + 1}\n` };
      const { success, error } = await callLocal(workspace, "edit_file", given);
      if (success) number++;
      else {
        assert.match(error ?? "", /meanwhile/);
        lost++;
      }
    }
    return lost;
  };
  const overtaken = await Promise.all([edits("count"), edits("mine")]);
  assert.equal(readFileSync(join(workspace, "f"), "utf8"), "count 30\nmine 30\n");
  assert.ok(overtaken[0] + overtaken[1] > 0, "they never met");
});

test("a file in place of which another process puts a link again and again", { timeout: 30_000 }, async (context) => {
  const workspace = temporaryWorkspace(context, { f: "a", kept: "SECRET a" });
  writeFileSync(join(workspace, "../out/secret.txt"), "SECRET a");
  const stop = await inLoop(
    context,
    workspace,
    'unlinkSync("f"); symlinkSync("../out/secret.txt", "f"); renameSync("f", "g"); symlinkSync("kept", "h"); renameSync("h", "f");',
  );
  for (let round = 0; round < 60; round++) {
    await callLocal(workspace, "edit_file", { path: "f", old_text: "a", new_text: "ab" });
    await callLocal(workspace, "edit_file", { path: "f", old_text: "ab", new_text: "a" });
  }
  await stop();
  assert.equal(readFileSync(join(workspace, "../out/secret.txt"), "utf8"), "SECRET a");
  assert.deepEqual(readdirSync(join(workspace, "../out")), ["secret.txt"]);
});

test("no descriptor stays open", async (context) => {
  const workspace = temporaryWorkspace(context, { f: "a\n", d: "<directory>", out: { link: "../out" } });
  const count = () => readdirSync("/proc/self/fd").length;
  const edit = (path: string) => callLocal(workspace, "edit_file", { path, old_text: "a", new_text: "a a" });
  await edit("f");
  const before = count();
  for (const path of ["f", "d", "none", "none/x", "out/x", "f/x"]) {
    await edit(path);
    await callLocal(workspace, "write_file", { path, content: "a" });
    await callLocal(workspace, "apply_patch", {
      patch: `*** Begin Patch\n*** Update File: ${path}\n-a\n+b\n*** End Patch`,
    });
  }
  assert.equal(count(), before);
});
