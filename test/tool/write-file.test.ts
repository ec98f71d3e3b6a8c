import assert from "node:assert/strict";
import { once } from "node:events";
import {
  chmodSync,
  lstatSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { type Expected, readWhole, replaceFile } from "../../src/tool/replace-file.ts";
import { findPlace } from "../../src/tool/workspace.ts";
import { callLocal } from "./call-local.ts";
import { inLoop, startProgram } from "./other-process.ts";
import { type Entry, temporaryWorkspace } from "./temporary-workspace.ts";

const entries: Readonly<Record<string, Entry>> = {
  "a.txt": "old\n",
  "d/b.txt": "deep\n",
  "to-a": { link: "a.txt" },
  "to-d": { link: "d" },
  "dangling-in": { link: "d/new.txt" },
  "dangling-out": { link: "../out/none.txt" },
  "leaf-out": { link: "../out/secret.txt" },
  "directory-out": { link: "../out" },
  zero: { link: "/dev/zero" },
  pipe: "<pipe>",
};

const outside = (workspace: string) => {
  const out = join(workspace, "../out");
  return [readdirSync(out), readFileSync(join(out, "secret.txt"), "utf8")];
};
const untouched = [["secret.txt"], "SECRET\n"];

describe("what is written", () => {
  const cases: readonly (readonly [path: string, content: string, said: string, file: string])[] = [
    ["new.txt", "a\nb\n", "created new.txt: 4 bytes, 2 lines", "new.txt"],
    ["new.txt", "", "created new.txt: 0 bytes, 0 lines", "new.txt"],
    ["a.txt", "one line, no end", "replaced a.txt: 16 bytes, 1 line", "a.txt"],
    ["./d//x/y/new.txt", "é😀\r\n", "created d/x/y/new.txt: 8 bytes, 1 line", "d/x/y/new.txt"],
    ["to-a", "through a link", "replaced a.txt: 14 bytes, 1 line", "a.txt"],
    ["to-d/x/new.txt", "x", "created d/x/new.txt: 1 byte, 1 line", "d/x/new.txt"],
    ["dangling-in", "x", "created d/new.txt: 1 byte, 1 line", "d/new.txt"],
    ["d/../q.txt", "\ufeffmark", "created q.txt: 7 bytes, 1 line", "q.txt"],
    ["~", "\u0000", "created ~: 1 byte, 1 line", "~"],
  ];
  for (const [path, content, said, file] of cases) {
    test(`${path}: ${said}`, async (context) => {
      const workspace = temporaryWorkspace(context, entries);
      const result = await callLocal(workspace, "write_file", { path, content });
      assert.equal(result.error, undefined);
      assert.equal(result.output, said);
      assert.equal(readFileSync(join(workspace, file), "utf8"), content);
      assert.ok(lstatSync(join(workspace, "to-a")).isSymbolicLink());
      assert.deepEqual(
        readdirSync(join(workspace, file, "..")).filter((name) => name.endsWith(".tmp")),
        [],
      );
    });
  }

  test("a lone surrogate becomes a character that UTF-8 has", async (context) => {
    const workspace = temporaryWorkspace(context, {});
    const result = await callLocal(workspace, "write_file", { path: "f", content: "a\ud800b" });
    assert.equal(readFileSync(join(workspace, "f"), "utf8"), "a\ufffdb");
    assert.match(result.metadata?.["diff"] ?? "", /^\+a\ufffdb$/m);
  });
});

describe("what is refused", () => {
  const cases: readonly (readonly [path: string, said: string])[] = [
    ["d", '"d" is a directory, not a regular file'],
    [".", '"." is a directory, not a regular file'],
    ["pipe", '"pipe" is a named pipe, not a regular file'],
    ["zero", '"zero" is outside the workspace'],
    ["leaf-out", '"leaf-out" is outside the workspace'],
    ["dangling-out", '"dangling-out" is outside the workspace'],
    ["directory-out/x/new.txt", '"directory-out/x/new.txt" is outside the workspace'],
    ["../out/new.txt", '"../out/new.txt" is outside the workspace'],
    ["../new/new.txt", '"../new/new.txt" is outside the workspace'],
    ["/etc/codeagent-test", '"<path>" is outside the workspace'],
    ["none/../new.txt", '"none/../new.txt" does not exist'],
    ["new/", '"new/" ends like a folder; name a file'],
    ["a.txt/new", '"a.txt/new": a part of the path is not a directory'],
    ["x\ny", '"x\ny": a new name has control characters'],
    [`q/${"x".repeat(256)}`, `"q/${"x".repeat(195)}...": a name in the path is too long`],
  ];
  for (const [path, said] of cases) {
    test(said.slice(0, 60), { timeout: 5000 }, async (context) => {
      const workspace = temporaryWorkspace(context, entries);
      const before = readdirSync(workspace, { recursive: true });
      const result = await callLocal(workspace, "write_file", { path, content: "x" });
      assert.equal(result.success, false);
      assert.equal(result.error, said);
      assert.deepEqual(outside(workspace), untouched);
      assert.deepEqual(readdirSync(workspace, { recursive: true }), before);
    });
  }
});

test("a file keeps its permissions; a new one has the usual ones", async (context) => {
  const workspace = temporaryWorkspace(context, { "run.sh": "#!/bin/sh\n" });
  chmodSync(join(workspace, "run.sh"), 0o751);
  await callLocal(workspace, "write_file", { path: "run.sh", content: "#!/bin/sh\ntrue\n" });
  await callLocal(workspace, "write_file", { path: "n/new.txt", content: "x" });
  writeFileSync(join(workspace, "usual"), "");
  const modeOf = (path: string) => statSync(join(workspace, path)).mode & 0o7777;
  assert.equal(modeOf("run.sh"), 0o751);
  assert.equal(modeOf("n/new.txt"), modeOf("usual"));
});

test("people see a diff, bounded", async (context) => {
  const lines = Array.from({ length: 9000 }, (_, index) => `line ${index}\n`);
  const workspace = temporaryWorkspace(context, { f: lines.join("") });
  const content = lines.with(5000, "other\n").join("");
  const small = await callLocal(workspace, "write_file", { path: "f", content });
  assert.deepEqual(small.metadata, {
    path: "f",
    diff: `--- a/f\n+++ b/f\n@@ -4998,7 +4998,7 @@\n line 4997\n line 4998\n line 4999\n-line 5000\n+other\n line 5001\n line 5002\n line 5003\n`,
  });
  const large = await callLocal(workspace, "write_file", { path: "f", content: content.replaceAll("line", "row") });
  assert.equal(large.metadata?.["diff_truncated"], "true");
  assert.ok(Buffer.byteLength(large.metadata?.["diff"] ?? "") <= 64 * 1024);
  assert.ok(large.metadata?.["diff"]?.endsWith("\n"));
  const binary = temporaryWorkspace(context, { f: Buffer.from([0, 1, 2]) });
  assert.deepEqual((await callLocal(binary, "write_file", { path: "f", content: "x" })).metadata, { path: "f" });
});

test("what a killed writer left goes after a while, nothing else does", async (context) => {
  const workspace = temporaryWorkspace(context, {});
  const [old, fresh, other] = [
    `.codeagent-${"a".repeat(24)}.tmp`,
    `.codeagent-${"b".repeat(24)}.tmp`,
    ".codeagent-notes.tmp",
  ];
  for (const name of [old, fresh, other]) writeFileSync(join(workspace, name), "");
  for (const name of [old, other]) utimesSync(join(workspace, name), 1000, 1000);
  await callLocal(workspace, "write_file", { path: "f", content: "x" });
  assert.deepEqual(readdirSync(workspace).sort(), [fresh, other, "f"].sort());
});

test("a file that changes between the look and the write is kept", async (context) => {
  const workspace = temporaryWorkspace(context, { f: "mine\n" });
  const place = await findPlace(workspace, "f");
  context.after(() => place.directory.handle.close());
  const found = await readWhole(place);
  assert.ok(found !== undefined);
  const { version } = found;
  const tryIt = (expected: Expected) => replaceFile(place, Buffer.from("new\n"), expected);
  writeFileSync(join(workspace, "f"), "your\n");
  await assert.rejects(tryIt(version), { problem: "changed" });
  await assert.rejects(tryIt("nothing"), { problem: "changed" });
  assert.equal(readFileSync(join(workspace, "f"), "utf8"), "your\n");
  unlinkSync(join(workspace, "f"));
  await assert.rejects(tryIt(version), { problem: "changed" });
  symlinkSync("../out/secret.txt", join(workspace, "f"));
  await assert.rejects(tryIt(version), { problem: "changed" });
  await assert.rejects(tryIt("nothing"), { problem: "changed" });
  assert.deepEqual([readdirSync(workspace), outside(workspace)], [["f"], untouched]);
});

test("a folder that is swapped for a link while files are written never leads outside", {
  timeout: 30_000,
}, async (context) => {
  const workspace = temporaryWorkspace(context, { "d/f": "mine\n" });
  const stop = await inLoop(
    context,
    workspace,
    // Each of both stays for up to 10 ms half of the time, so that no machine is too slow or too quick to meet it.
    `const rest = () => { const untilMs = performance.now() + Math.max(0, Math.random() - 0.5) * 20;
      while (performance.now() < untilMs); };
    rmSync("d", { recursive: true, force: true }); symlinkSync("../out", "d"); rest();
    unlinkSync("d"); mkdirSync("d"); rest();`,
  );
  const said = new Map<string, number>();
  const isEnough = () => said.has("written") && said.has("outside");
  for (let round = 0; round < 100 || (!isEnough() && round < 2000); round++) {
    const path = round % 2 === 0 ? "d/f" : `d/n${round}/f`;
    const { success, error = "" } = await callLocal(workspace, "write_file", { path, content: `${round}\n` });
    const what = success ? "written" : (/outside|does not exist|meanwhile|link/.exec(error)?.[0] ?? error);
    said.set(what, (said.get(what) ?? 0) + 1);
  }
  await stop();
  assert.deepEqual(outside(workspace), untouched);
  assert.deepEqual(
    [...said.keys()].filter((what) => !["written", "outside", "does not exist", "meanwhile", "link"].includes(what)),
    [],
  );
  assert.ok((said.get("written") ?? 0) > 0, "no file was ever written");
  assert.ok((said.get("outside") ?? 0) > 0, "the link was never met");
});

test("a reader sees the old or the new file, never a part", { timeout: 30_000 }, async (context) => {
  const content = (round: number) => `${round}\n`.repeat(40_000);
  const workspace = temporaryWorkspace(context, { f: content(1) });
  const reader = startProgram(
    context,
    workspace,
    `const seen = new Set(); process.stdin.on("end", () => { console.log("seen " + [...seen].join()); process.exit(); });
    process.stdin.resume();
    console.log("ready");
    setInterval(() => { for (let i = 0; i < 20; i++) {
      const text = readFileSync("f", "utf8");
      const [first] = text.split("\\n", 1);
      seen.add(text === (first + "\\n").repeat(40000) ? "whole" : "part " + text.length);
    } });`,
  );
  await once(reader.stdout, "data");
  let last = "";
  reader.stdout.on("data", (text) => {
    last += text;
  });
  for (let round = 1; round <= 12; round++) {
    assert.ok((await callLocal(workspace, "write_file", { path: "f", content: content(round) })).success);
  }
  reader.stdin.end();
  await once(reader, "close");
  assert.equal(last, "seen whole\n");
});

test("kill -9 in the middle leaves the old or the new file", { timeout: 30_000 }, async (context) => {
  const workspace = temporaryWorkspace(context, { f: "0\n".repeat(100_000) });
  const callLocalUrl = new URL("call-local.ts", import.meta.url).href;
  for (let round = 0; round < 3; round++) {
    const writer = startProgram(
      context,
      workspace,
      `import(${JSON.stringify(callLocalUrl)}).then(async ({ callLocal }) => {
        for (let n = 0; ; n++) {
          const { error } = await callLocal(process.argv[1], "write_file", { path: "f", content: (n % 10 + "\\n").repeat(100000) });
          if (error) console.log(error);
          if (n === ${round}) console.log("going");
        }
      });`,
    );
    const [said] = await once(writer.stdout, "data");
    assert.equal(String(said), "going\n");
    writer.kill("SIGKILL");
    await once(writer, "close");
    const text = readFileSync(join(workspace, "f"), "utf8");
    assert.ok(/^\d\n/.test(text) && text === text.slice(0, 2).repeat(100_000), `a part of ${text.length} characters`);
  }
});
