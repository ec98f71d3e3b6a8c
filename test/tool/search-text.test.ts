import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { callLocal } from "./call-local.ts";
import { type Entry, temporaryWorkspace } from "./temporary-workspace.ts";

const tree: Readonly<Record<string, Entry>> = {
  "a.txt": "one\nTwo two\nthree\n",
  "src/b.ts": "const two = 2;\r\n",
  "src/c.ts": "nothing",
  "src/deep/d.md": "two",
  ".hidden": "two",
  ".git/config": "two",
  ".gitignore": "ignored/\n",
  "ignored/x.txt": "two",
  out: { link: "../out" },
  "leaf-out": { link: "../out/secret.txt" },
  "leaf-in": { link: "a.txt" },
  "wide.txt": Buffer.concat([Buffer.from([0xff, 0xfe]), Buffer.from("x\ntwo €\n", "utf16le")]),
  "latin.txt": Buffer.from([0x74, 0x77, 0x6f, 0xe4, 0x0a]),
  "binary.bin": Buffer.from("two\0two\n"),
  "-e": "two",
  "--pre=sh": "two",
};
const all = [
  "--pre=sh:1: two",
  "-e:1: two",
  ".hidden:1: two",
  "a.txt:2: Two two",
  "binary.bin: a binary file matches",
  "latin.txt:1: two\ufffd",
  "wide.txt:2: two €",
  "src/b.ts:1: const two = 2;",
  "src/deep/d.md:1: two",
];

describe("matches", () => {
  const cases: readonly (readonly [string, Readonly<Record<string, string>>, readonly string[]])[] = [
    ["everywhere", { pattern: "two" }, all],
    ["in a directory", { pattern: "two", path: "src" }, all.slice(7)],
    ["in a file", { pattern: "two", path: "a.txt" }, ["a.txt:2: Two two"]],
    ["in a file through a link", { pattern: "two", path: "leaf-in" }, ["a.txt:2: Two two"]],
    ["in what is ignored, if asked", { pattern: "two", path: "ignored" }, ["ignored/x.txt:1: two"]],
    ["by glob", { pattern: "two", glob: "*.{ts,md}" }, all.slice(7)],
    ["by glob within a directory", { pattern: "two", path: "src", glob: "src/*.ts" }, ["src/b.ts:1: const two = 2;"]],
    ["without case", { pattern: "(?i)^TWO" }, all.filter((line) => !line.startsWith("src/b"))],
    ["end of a Windows line", { pattern: "2;$" }, ["src/b.ts:1: const two = 2;"]],
    ["nothing", { pattern: "zzz" }, ["[no line matches]"]],
    ["a pattern like an option", { pattern: "--pre=sh" }, ["[no line matches]"]],
    ["a path like an option", { pattern: "two", path: "--pre=sh" }, ["--pre=sh:1: two"]],
    ["never outside", { pattern: "SECRET" }, ["[no line matches]"]],
    ["what would run for years elsewhere", { pattern: "(x+x+)+y" }, ["[no line matches]"]],
  ];
  for (const [title, given, expected] of cases) {
    test(title, { timeout: 10_000 }, async (context) => {
      const result = await callLocal(temporaryWorkspace(context, tree), "search_text", given);
      assert.equal(result.error, undefined);
      assert.deepEqual(result.output.split("\n"), expected);
    });
  }
});

describe("what cannot be searched", () => {
  const cases: readonly (readonly [Readonly<Record<string, string>>, RegExp])[] = [
    [{ pattern: "a[z-a]" }, /not a usable regular expression, at character 3: invalid character class range/],
    [{ pattern: "é(?=a)" }, /at character 2: look-around/],
    [{ pattern: "foo(bar" }, /at its end: unclosed group/],
    [{ pattern: "*" }, /at character 1: repetition operator missing expression/],
    [{ pattern: "a{99999999}" }, /not a usable regular expression: .+/],
    [{ pattern: "a\nb" }, /not a usable regular expression: the literal "\\n" is not allowed/],
    [{ pattern: "a\0" }, /NUL character/],
    [{ pattern: "a".repeat(5000) }, /5000 characters long; at most 4096/],
    [{ pattern: "a", path: "../out" }, /^"\.\.\/out" is outside the workspace$/],
    [{ pattern: "a", path: "out" }, /^"out" is outside the workspace$/],
    [{ pattern: "a", path: "leaf-out" }, /^"leaf-out" is outside the workspace$/],
    [{ pattern: "a", path: "none" }, /^"none" does not exist$/],
    [{ pattern: "a", glob: "x".repeat(1001) }, /glob is 1001 characters long/],
  ];
  for (const [given, expected] of cases) {
    test(`${expected}`, { timeout: 10_000 }, async (context) => {
      const result = await callLocal(temporaryWorkspace(context, tree), "search_text", given);
      assert.equal(result.success, false);
      assert.match(result.error ?? "", expected);
    });
  }
});

describe("bounds", () => {
  test("stops after 200 lines, over many files and within one", { timeout: 30_000 }, async (context) => {
    const workspace = temporaryWorkspace(context, { "one/f": "x\n".repeat(1000), "many/f": "" });
    for (let i = 0; i < 500; i++) writeFileSync(join(workspace, `many/f${i}`), "x\n");
    for (const path of ["one", "many"]) {
      const result = await callLocal(workspace, "search_text", { pattern: "x", path });
      const lines = result.output.split("\n");
      assert.equal(lines.length, 201);
      assert.match(lines[200] ?? "", /^\[stopped after 200 matching lines/);
      assert.equal(result.truncated, true);
    }
    const none = await callLocal(workspace, "search_text", { pattern: "y", path: "many" });
    assert.equal(none.output, "[no line matches]");
  });

  test("long lines are cut around the match; a monstrous one is counted", { timeout: 10_000 }, async (context) => {
    const workspace = temporaryWorkspace(context, {
      a: `${"€".repeat(5000)}needle${"y".repeat(5000)}\n`,
      b: `${"z".repeat(2 * 1024 * 1024)}needle\nneedle\n`,
    });
    const { output } = await callLocal(workspace, "search_text", { pattern: "needle" });
    assert.deepEqual(output.split("\n"), [
      `a:1: ...${"€".repeat(100)}needle${"y".repeat(294)}...`,
      "b:2: needle",
      "[1 matching lines are too long to be shown]",
    ]);
  });

  test("huge files are passed over and counted", { timeout: 10_000 }, async (context) => {
    const workspace = temporaryWorkspace(context, { a: "x\n", huge: "x\n" });
    truncateSync(join(workspace, "huge"), 10 * 1024 ** 3);
    const { output } = await callLocal(workspace, "search_text", { pattern: "x" });
    assert.equal(output, "a:1: x\n[1 files above 67108864 bytes were not searched]");
  });

  test("a hostile .gitignore neither steers nor stops it", { timeout: 10_000 }, async (context) => {
    const workspace = temporaryWorkspace(context, {
      ".gitignore": { link: "/dev/zero" },
      ".ignore": "a\n",
      ".rgignore": "a\n",
      a: "x",
      "ripgrep.conf": "--pre=sh",
      pipe: "<pipe>",
    });
    assert.equal((await callLocal(workspace, "search_text", { pattern: "x" })).output, "a:1: x");
  });

  test("an abort ends the program and leaves nothing open", { timeout: 30_000 }, async (context) => {
    const workspace = temporaryWorkspace(context, {});
    const random = randomBytes(4 * 1024 * 1024).map((byte) => 97 + (byte & 1));
    writeFileSync(join(workspace, "f"), random);
    const before = readdirSync("/proc/self/fd").length;
    const controller = new AbortController();
    const reason = new Error("enough");
    // A pattern of many states over random letters: many seconds even for a linear engine.
    const pattern = "(?:a[ab]{100}a[ab]{101}b[ab]{102}a){8}";
    const startMs = performance.now();
    const searching = callLocal(workspace, "search_text", { pattern }, controller.signal);
    setTimeout(() => controller.abort(reason), 300);
    await assert.rejects(searching, (error) => error === reason);
    assert.ok(performance.now() - startMs < 2500, "the program was not stopped");
    assert.deepEqual(childrenNamedRg(), []);
    assert.ok(readdirSync("/proc/self/fd").length <= before + 1);
  });
});

function childrenNamedRg(): string[] {
  const children = readFileSync(`/proc/self/task/${process.pid}/children`, "utf8").split(" ").filter(Boolean);
  return children.filter((pid) => readFileSync(`/proc/${pid}/comm`, "utf8").trim() === "rg");
}
