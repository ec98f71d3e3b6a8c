import assert from "node:assert/strict";
import { readdirSync, truncateSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { callLocal } from "./call-local.ts";
import { type Entry, temporaryWorkspace } from "./temporary-workspace.ts";

const swapped = (text: string) => Buffer.from(text, "utf16le").swap16();
const mark = Buffer.from([0xff, 0xfe]);

describe("what a file reads as", () => {
  const cases: readonly (readonly [string, Entry, Readonly<Record<string, number>>, string])[] = [
    ["plain", "a\nb\n", {}, "1\ta\n2\tb"],
    ["no line end at the end", "a\nb", {}, "1\ta\n2\tb"],
    ["empty lines count", "\n\na\n", {}, "1\t\n2\t\n3\ta"],
    ["Windows line ends", "a\r\nb\r\n", {}, "1\ta\n2\tb"],
    ["UTF-8 mark", "\ufeffa\n", {}, "1\ta"],
    ["only a mark", "\ufeff", {}, "[the file is empty]"],
    ["UTF-16 little endian", Buffer.concat([mark, Buffer.from("aä\r\n😀", "utf16le")]), {}, "1\taä\n2\t😀"],
    ["UTF-16 big endian", swapped("\ufeffaä\n😀\n"), {}, "1\taä\n2\t😀"],
    ["not UTF-8", Buffer.from([0x61, 0xe4, 0x62]), {}, "1\ta\ufffdb"],
    ["control characters", "a\u001b[2Jb\u0007", {}, "1\ta␛[2Jb␇"],
    ["empty", "", {}, "[the file is empty]"],
    ["binary", Buffer.from([1, 0, 2]), {}, "[binary file: binary data, 3 bytes; it is not shown]"],
    ["picture", Buffer.from("89504e470d0a1a0a0000", "hex"), {}, "[binary file: PNG image, 10 bytes; it is not shown]"],
    ["first lines", "a\nb\nc\n", { end_line: 2 }, "1\ta\n2\tb"],
    ["middle", "a\nb\nc\n", { start_line: 2, end_line: 2 }, "2\tb"],
    ["to the end", "a\nb\nc\n", { start_line: 2 }, "2\tb\n3\tc"],
    ["range that ends beyond", "a\nb", { start_line: 2, end_line: 9 }, "2\tb"],
    ["long line", `${"x".repeat(5000)}\ny`, {}, `1\t${"x".repeat(4000)} [1000 more bytes in this line]\n2\ty`],
    ["long line, no halved character", "€".repeat(2000), {}, `1\t${"€".repeat(1333)} [2001 more bytes in this line]`],
  ];
  for (const [title, content, range, expected] of cases) {
    test(title, async (context) => {
      const workspace = temporaryWorkspace(context, { f: content });
      const result = await callLocal(workspace, "read_file", { path: "f", ...range });
      assert.equal(result.error, undefined);
      assert.equal(result.output, expected);
    });
  }
});

describe("what cannot be read", () => {
  const entries: Readonly<Record<string, Entry>> = {
    f: "a\nb\n",
    one: "a",
    d: "<directory>",
    pipe: "<pipe>",
    zero: { link: "/dev/zero" },
    out: { link: "../out/secret.txt" },
  };
  const cases: readonly (readonly [Readonly<Record<string, unknown>>, string])[] = [
    [{ path: "f", start_line: 3 }, "start_line 3 lies beyond the end: the file has 2 lines"],
    [{ path: "one", start_line: 7, end_line: 9 }, "start_line 7 lies beyond the end: the file has 1 line"],
    [{ path: "f", start_line: 3, end_line: 2 }, "end_line 2 lies before start_line 3"],
    [{ path: "none" }, '"none" does not exist'],
    [{ path: "d" }, '"d" is a directory, not a regular file'],
    [{ path: "pipe" }, '"pipe" is a named pipe, not a regular file'],
    [{ path: "zero" }, '"zero" is outside the workspace'],
    [{ path: "out" }, '"out" is outside the workspace'],
    [{ path: "../out/secret.txt" }, '"../out/secret.txt" is outside the workspace'],
    [{ path: "../out/none" }, '"../out/none" is outside the workspace'],
  ];
  for (const [given, expected] of cases) {
    test(expected, { timeout: 5000 }, async (context) => {
      const result = await callLocal(temporaryWorkspace(context, entries), "read_file", given);
      assert.deepEqual({ ...result, durationMs: 0 }, { success: false, output: "", error: expected, durationMs: 0 });
    });
  }
});

test("a full output says where to go on, and going on gives the rest", async (context) => {
  const lines = Array.from({ length: 6000 }, (_, index) => `line ${index + 1} ${"x".repeat(90)}`);
  const workspace = temporaryWorkspace(context, { f: lines.join("\n") });
  const seen: string[] = [];
  let startLine = 1;
  for (let part = 0; part < 10 && startLine > 0; part++) {
    const { output, truncated } = await callLocal(workspace, "read_file", { path: "f", start_line: startLine });
    assert.ok(Buffer.byteLength(output) <= 256 * 1024);
    const next = /\n\[stopped before line (\d+): .+; go on with start_line \1\]$/.exec(output);
    assert.equal(truncated, next === null ? undefined : true);
    const text = next === null ? output : output.slice(0, next.index);
    seen.push(...text.split("\n").map((line) => line.replace(/^\d+\t/, "")));
    startLine = Number(next?.[1] ?? 0);
  }
  assert.deepEqual(seen, lines);
});

test("ten gigabytes: the first lines come at once, the last need no memory, and the read can be stopped", async (context) => {
  const workspace = temporaryWorkspace(context, { f: `${"first\nsecond\n".padEnd(9000, "x")}\n` });
  truncateSync(join(workspace, "f"), 10 * 1024 ** 3);
  const startMs = performance.now();
  const result = await callLocal(workspace, "read_file", { path: "f", end_line: 2 });
  assert.equal(result.output, "1\tfirst\n2\tsecond");
  assert.ok(performance.now() - startMs < 1000);

  const controller = new AbortController();
  const reason = new Error("enough");
  const before = process.memoryUsage().rss;
  const reading = callLocal(workspace, "read_file", { path: "f", start_line: 100 }, controller.signal);
  setTimeout(() => controller.abort(reason), 300);
  const abortableMs = performance.now();
  await assert.rejects(reading, (error) => error === reason);
  assert.ok(performance.now() - abortableMs < 2000, "the read went on after the abort");
  assert.ok(process.memoryUsage().rss - before < 200 * 1024 ** 2);
});

test("no descriptor stays open", async (context) => {
  const workspace = temporaryWorkspace(context, { f: "a\n".repeat(100_000), b: Buffer.alloc(10) });
  const count = () => readdirSync("/proc/self/fd").length;
  await callLocal(workspace, "read_file", { path: "f" });
  const before = count();
  for (const path of ["f", "b", "none"]) await callLocal(workspace, "read_file", { path, end_line: 1 });
  assert.equal(count(), before);
});
