import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { type Walked, walkFiles } from "../../src/tool/walk-files.ts";
import { callLocal } from "./call-local.ts";
import { type Entry, temporaryWorkspace } from "./temporary-workspace.ts";

const tree: Readonly<Record<string, Entry>> = {
  "README.md": "",
  "src/main.ts": "",
  "src/main.test.ts": "",
  "src/deep/er/x.ts": "",
  "src/b/y.js": "",
  ".env": "",
  ".github/ci.yml": "",
  ".git/config": "secret",
  "sub/.git/config": "secret",
  "a b/ü.txt": "",
};

describe("globs", () => {
  const cases: readonly (readonly [string, readonly string[]])[] = [
    ["*.ts", ["src/deep/er/x.ts", "src/main.test.ts", "src/main.ts"]],
    ["./*.md", ["README.md"]],
    ["/*.ts", []],
    ["src/*.ts", ["src/main.test.ts", "src/main.ts"]],
    ["src/**/*.ts", ["src/deep/er/x.ts", "src/main.test.ts", "src/main.ts"]],
    ["**/*.{js,md}", ["README.md", "src/b/y.js"]],
    ["src/deep", ["src/deep/er/x.ts"]],
    ["src/b/", ["src/b/y.js"]],
    ["src", ["src/b/y.js", "src/deep/er/x.ts", "src/main.test.ts", "src/main.ts"]],
    ["main.ts", ["src/main.ts"]],
    [".env", [".env"]],
    ["**/config", []],
    ["*.yml", [".github/ci.yml"]],
    ["a b/*", ["a b/ü.txt"]],
    ["../**", []],
    ["[z-a]", []],
    ["./src/b/", ["src/b/y.js"]],
    [
      "!(x)",
      [
        ".env",
        ".github/ci.yml",
        "README.md",
        "a b/ü.txt",
        "src/b/y.js",
        "src/deep/er/x.ts",
        "src/main.test.ts",
        "src/main.ts",
      ],
    ],
    [
      "",
      [
        ".env",
        ".github/ci.yml",
        "README.md",
        "a b/ü.txt",
        "src/b/y.js",
        "src/deep/er/x.ts",
        "src/main.test.ts",
        "src/main.ts",
      ],
    ],
  ];
  for (const [pattern, expected] of cases) {
    test(pattern || "none", async (context) => {
      const { output } = await callLocal(temporaryWorkspace(context, tree), "list_files", { pattern });
      assert.deepEqual(output.split("\n"), expected.length === 0 ? [`[no file matches ${pattern}]`] : expected);
    });
  }

  test("a glob that would match for years is a result", { timeout: 5000 }, async (context) => {
    const workspace = temporaryWorkspace(context, { ["a".repeat(200)]: "" });
    const result = await callLocal(workspace, "list_files", { pattern: `${"*a".repeat(30)}b` });
    assert.match(result.error ?? "", /takes too long to match; simplify it/);
  });

  test("a glob that is too long is a result", async (context) => {
    const result = await callLocal(temporaryWorkspace(context, {}), "list_files", { pattern: "x".repeat(1001) });
    assert.match(result.error ?? "", /1001 characters long; at most 1000/);
  });

  test("an empty workspace says so", async (context) => {
    assert.equal((await callLocal(temporaryWorkspace(context, {}), "list_files", {})).output, "[there are no files]");
  });
});

describe("what .gitignore leaves out is what git leaves out", () => {
  const cases: Readonly<Record<string, Readonly<Record<string, Entry>>>> = {
    "names and directories": {
      ".gitignore": "*.log\nbuild/\n",
      "a.log": "",
      "d/b.log": "",
      "build/x": "",
      "d/build/y": "",
      c: "",
    },
    anchored: { ".gitignore": "/a\n/d/b\n", a: "", "d/a": "", "d/b": "", "e/d/b": "" },
    "taken back": { ".gitignore": "*.log\n!keep.log\n", "a.log": "", "keep.log": "", "d/keep.log": "" },
    "nested adds": { "d/.gitignore": "x\n/y\n", x: "", "d/x": "", "d/y": "", "d/e/x": "", "d/e/y": "" },
    "nested takes back": {
      ".gitignore": "*.log\n",
      "d/.gitignore": "!a.log\n",
      "a.log": "",
      "d/a.log": "",
      "d/b.log": "",
    },
    "not from an ignored directory": { ".gitignore": "d/\n", "d/.gitignore": "!*\n", "d/x": "", y: "" },
    "only the content": { ".gitignore": "d/*\n!d/keep\n", "d/keep": "", "d/x": "" },
    "comments, spaces, escapes": {
      ".gitignore": "# no\n\\#yes\nsp\\ \n\\!b\n",
      "# no": "",
      "#yes": "",
      "sp ": "",
      "!b": "",
    },
    "double stars": { ".gitignore": "**/x/**\na/**/b\n", "x/1": "", "q/x/1": "", "a/b": "", "a/1/2/b": "", "a/c": "" },
    "case counts": { ".gitignore": "Foo\n", foo: "", "d/Foo": "" },
    "file versus directory": { ".gitignore": "t/\n", t: "", "d/t/x": "" },
    "Windows line ends": { ".gitignore": "a\r\nb/\r\n", a: "", "b/c": "", d: "" },
  };
  for (const [title, entries] of Object.entries(cases)) {
    test(title, async (context) => {
      const workspace = temporaryWorkspace(context, entries);
      const git = (...words: string[]) =>
        execFileSync("git", ["-c", "core.excludesFile=/dev/null", ...words], { cwd: workspace, encoding: "utf8" });
      git("init", "-q");
      const expected = git("ls-files", "-z", "--others", "--exclude-per-directory=.gitignore")
        .split("\0")
        .filter(Boolean)
        .sort();
      assert.deepEqual((await callLocal(workspace, "list_files", {})).output.split("\n"), expected);
    });
  }

  test("a .gitignore that is a link, a pipe or endless does no harm", { timeout: 5000 }, async (context) => {
    const workspace = temporaryWorkspace(context, {
      "a/.gitignore": { link: "/dev/zero" },
      "a/x": "",
      "b/.gitignore": "<pipe>",
      "b/x": "",
      "c/.gitignore": { link: "../../out/secret.txt" },
      "c/SECRET": "",
      "d/.gitignore": "x\n".repeat(200_000),
      "d/x": "",
    });
    const { output } = await callLocal(workspace, "list_files", {});
    assert.deepEqual(output.split("\n"), [
      "a/.gitignore",
      "a/x",
      "b/x",
      "c/.gitignore",
      "c/SECRET",
      "d/.gitignore",
      "d/x",
      "[a .gitignore file of 400000 bytes was not applied]",
    ]);
  });

  test("patterns that would match for years are told and passed over", { timeout: 5000 }, async (context) => {
    const deep = `${"a/".repeat(50)}x`;
    const workspace = temporaryWorkspace(context, { ".gitignore": `${"a/**/".repeat(15)}b\n`, [deep]: "", y: "" });
    const { output } = await callLocal(workspace, "list_files", {});
    assert.deepEqual(output.split("\n"), [
      ".gitignore",
      deep,
      "y",
      "[the patterns of a .gitignore file take too long; what it leaves out is shown from there on]",
    ]);
  });
});

describe("the walk", () => {
  test("links are named, not followed", async (context) => {
    const workspace = temporaryWorkspace(context, {
      "d/x": "",
      "d/back": { link: ".." },
      inside: { link: "d" },
      outside: { link: "../out" },
      pipe: "<pipe>",
    });
    assert.equal((await callLocal(workspace, "list_files", {})).output, "d/back\nd/x\ninside\noutside");
  });

  test("many files: as many as are shown, the number of the rest, and no more entries than allowed", async (context) => {
    const workspace = temporaryWorkspace(context, {});
    for (let i = 0; i < 2500; i++) writeFileSync(join(workspace, `f${String(i).padStart(4, "0")}`), "");
    const result = await callLocal(workspace, "list_files", {});
    const lines = result.output.split("\n");
    assert.deepEqual(
      [lines[0], lines[1999], lines[2000]],
      ["f0000", "f1999", "[500 more files are not shown; use a narrower pattern]"],
    );
    assert.equal(result.truncated, true);

    const notes: string[] = [];
    let seen = 0;
    for await (const walked of walkFiles(workspace, { signal: new AbortController().signal, maxEntries: 100 })) {
      if (walked.type === "note") notes.push(walked.text);
      else seen += walked.names.length;
    }
    assert.equal(seen, 100);
    assert.deepEqual(notes, ["the walk stopped after 100 entries; not all files were seen"]);
  });

  test("a time limit of nothing stops at once", async (context) => {
    const workspace = temporaryWorkspace(context, { a: "" });
    const last: Walked[] = [];
    for await (const walked of walkFiles(workspace, { signal: new AbortController().signal, maxMs: -1 })) {
      last[0] = walked;
    }
    assert.deepEqual(last[0], { type: "note", text: "the walk stopped after -1 ms; not all files were seen" });
  });

  test("deep trees end, and names with line ends stay one line", async (context) => {
    const workspace = temporaryWorkspace(context, { "a\nb": "" });
    mkdirSync(join(workspace, "d/".repeat(80)), { recursive: true });
    writeFileSync(join(workspace, "d/".repeat(80), "x"), "");
    const { output } = await callLocal(workspace, "list_files", {});
    assert.equal(output, "a␊b\n[directories more than 64 levels deep were left out]");
  });

  test("an aborted walk throws the reason and closes everything", async (context) => {
    const workspace = temporaryWorkspace(context, { "a/b/c": "", "a/b/d/e": "" });
    const before = readdirSync("/proc/self/fd").length;
    const controller = new AbortController();
    const reason = new Error("enough");
    const walking = async () => {
      for await (const _ of walkFiles(workspace, { signal: controller.signal })) controller.abort(reason);
    };
    await assert.rejects(walking(), (error) => error === reason);
    assert.equal(readdirSync("/proc/self/fd").length, before);
  });
});
