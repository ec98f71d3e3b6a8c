import assert from "node:assert/strict";
import { PassThrough } from "node:stream";
import { describe, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { type ProgramRun, runProgram } from "../../src/tool/run-program.ts";
import type { Sandbox } from "../../src/tool/sandbox/sandbox.ts";
import { sandboxWorkspace } from "./sandbox-workspace.ts";

const mebibyte = 1024 * 1024;

for (const kind of ["bwrap", "none"] as const) {
  describe(`a program run in a sandbox of kind ${kind}`, () => {
    for (const [name, command, code, output] of [
      ["ends well", "echo out; echo error >&2; exit 0", 0, "out\nerror\n"],
      ["fails", "echo so far; exit 7", 7, "so far\n"],
      ["kills itself", "kill -TERM $$", 143, ""],
      ["does not exist", "no-such-program-at-all", 127, /not found/],
      ["has nothing to read", "cat; echo end", 0, "end\n"],
      ["opens its streams by name", "echo a >/dev/stdout; echo b >/dev/stderr; cat /dev/stdin", 0, "a\nb\n"],
      [
        "has only three descriptors",
        "for each in {0..9}; do [ -e /proc/$$/fd/$each ] && echo $each; done; :",
        0,
        "0\n1\n2\n",
      ],
    ] as const) {
      test(`that ${name}`, async (context) => {
        const result = await sandboxWorkspace(context, { kind }).run(command);
        assert.deepEqual([result.endedBy, result.exitCode, result.truncated], ["itself", code, false]);
        if (typeof output === "string")
          assert.equal(result.output.split("\n").sort().join(), output.split("\n").sort().join());
        else assert.match(result.output, output);
      });
    }

    test("its two streams are also told apart", async (context) => {
      const { stdout, stderr } = await sandboxWorkspace(context, { kind }).run("echo out; echo error >&2");
      assert.deepEqual([stdout, stderr], ["out\n", "error\n"]);
    });

    test("a program that can't be found ends with 127", async (context) => {
      const { exitCode, output } = await sandboxWorkspace(context, { kind }).run("", { program: "no-such", args: [] });
      assert.equal(exitCode, 127);
      assert.match(output, /no-such/);
    });

    test("its words are no shell's", async (context) => {
      const args = ["<%s>", "a  b", "$HOME", "`id`", "it's", "", "-n", "ü\n"];
      const { output } = await sandboxWorkspace(context, { kind }).run("", { program: "printf", args });
      assert.equal(output, "<a  b><$HOME><`id`><it's><><-n><ü\n>");
    });

    for (const [name, command, expected] of [
      ["whole", "wc -c", `${5 * mebibyte}\n`],
      ["in part", "head -c 3; sleep 0.1", "xxx"],
      ["not at all", "sleep 0.1; echo done", "done\n"],
      ["not at all, with it closed", "exec <&-; sleep 0.1; echo done", "done\n"],
    ] as const) {
      test(`reads ${name} what it is given`, async (context) => {
        const stdinText = "x".repeat(5 * mebibyte);
        const result = await sandboxWorkspace(context, { kind }).run(command, { stdinText });
        assert.deepEqual([result.endedBy, result.output], ["itself", expected]);
      });
    }
  });
}

describe("the output of a program", () => {
  test("comes while it runs, in whole characters and never half a line's end", async (context) => {
    const seen: string[] = [];
    const command = String.raw`printf 'a\xe2'; sleep 0.1; printf '\x82\xac'; sleep 0.1; printf '\r'; sleep 0.1; printf '\n\xf0\x9f'; sleep 0.1; printf '\x98\x80b'; sleep 0.1; printf '\xe2\x82'`;
    const { run } = sandboxWorkspace(context, { kind: "none" });
    const { output } = await run(command, { onOutput: (stream, text) => seen.push(`${stream} ${text}`) });
    assert.equal(output, "a€\r\n😀b\ufffd");
    assert.deepEqual(seen, ["stdout a", "stdout €", "stdout \r\n", "stdout 😀b", "stdout \ufffd"]);
  });

  test("is kept at both ends, and shown as far as its head is kept", async (context) => {
    let shown = "";
    const { run } = sandboxWorkspace(context, { kind: "none" });
    const { output, truncated, stderr } = await run("seq 1 100000; echo last; echo error >&2", {
      outputLimitBytes: 4096,
      onOutput: (_, text) => {
        shown += text;
      },
    });
    assert.ok(truncated);
    assert.ok(Buffer.byteLength(output) <= 4096);
    assert.match(output, /^1\n2\n3\n[\s\S]*\n\[\.\.\. 5\d{5} bytes left out \.\.\.\]\n[\s\S]*\nlast\n/);
    assert.ok(shown.startsWith("1\n2\n") && shown.length < 3072);
    assert.equal(stderr, "error\n");
  });

  for (const [name, command] of [
    ["yes", "yes"],
    ["one endless line", "tr '\\0' x < /dev/zero"],
    ["a gigabyte on both streams", "head -c 500M /dev/zero >&2 & head -c 500M /dev/zero; wait"],
    ["half characters", String.raw`yes $'\xe2\x82\xe2\x82\xe2\x82\xe2\x82' | tr -d '\n'`],
  ] as const) {
    test(`takes no memory: ${name}`, async (context) => {
      const { run } = sandboxWorkspace(context);
      await run("true");
      globalThis.gc?.();
      const before = process.memoryUsage().rss;
      let most = before;
      const timer = setInterval(() => {
        most = Math.max(most, process.memoryUsage().rss);
      }, 10);
      const result = await run(command);
      clearInterval(timer);
      assert.deepEqual([result.endedBy, result.exitCode === 0], ["output", false]);
      const keptBytes = Buffer.byteLength(result.output);
      assert.ok(result.truncated && keptBytes > 250_000 && keptBytes <= 256 * 1024, `${keptBytes} bytes`);
      const grown = Math.max(most, process.memoryUsage().rss) - before;
      assert.ok(grown < 64 * mebibyte, `it grew by ${Math.round(grown / mebibyte)} MiB`);
    });
  }
});

describe("many programs", () => {
  /** A sandbox whose programs end when they are told to. */
  function patientSandbox() {
    const running: (() => void)[] = [];
    const sandbox: Sandbox = {
      kind: "none",
      async start() {
        const { promise, resolve } = Promise.withResolvers<number>();
        const end = () => resolve(0);
        running.push(end);
        return { stdout: new PassThrough(), stderr: new PassThrough(), ended: promise, stop: async () => resolve(137) };
      },
    };
    const run = (more: Partial<ProgramRun> = {}) =>
      runProgram(sandbox, {
        program: "x",
        args: [],
        cwd: "/",
        env: {},
        access: { writable: [], readable: [], network: false },
        timeoutMs: 60_000,
        signal: new AbortController().signal,
        ...more,
      });
    return { running, run };
  }
  const settled = () => wait(1);

  test("run sixteen at once; the others wait in order, and their waiting counts", async () => {
    const { running, run } = patientSandbox();
    const results = Array.from({ length: 16 }, () => run());
    const first = run();
    const second = run();
    const impatient = await run({ timeoutMs: 5 });
    assert.deepEqual([impatient.endedBy, impatient.exitCode, impatient.output], ["time", 137, ""]);
    const stop = new AbortController();
    const stopped = run({ signal: stop.signal });
    stop.abort();
    assert.equal((await stopped).endedBy, "stop");
    await settled();
    assert.equal(running.length, 16);
    running[3]?.();
    await results[3];
    await settled();
    assert.equal(running.length, 17);
    running[16]?.();
    assert.equal((await first).exitCode, 0);
    for (const end of running) end();
    await settled();
    for (const end of running) end();
    assert.equal((await second).endedBy, "itself");
    await Promise.all(results);
  });

  test("one that was told to stop before it began is not started", async () => {
    const { running, run } = patientSandbox();
    const { endedBy } = await run({ signal: AbortSignal.abort() });
    assert.deepEqual([endedBy, running.length], ["stop", 0]);
  });
});
