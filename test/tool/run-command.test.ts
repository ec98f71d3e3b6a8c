import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { indexFunctions } from "../../src/tool/function-index.ts";
import type { FunctionContext } from "../../src/tool/function-provider.ts";
import { localFunctions } from "../../src/tool/local.ts";
import { runCommand } from "../../src/tool/run-command.ts";
import { runFunction } from "../../src/tool/run-function.ts";
import type { ServerSandbox } from "../../src/tool/sandbox/sandbox.ts";
import { sandboxWorkspace } from "./sandbox-workspace.ts";

/** Runs the function as a model would. */
async function call(
  place: { readonly workspace: string; readonly sandbox: ServerSandbox },
  given: Readonly<Record<string, unknown>>,
  more: Partial<FunctionContext> = {},
) {
  const functions = await indexFunctions([localFunctions([runCommand(place.sandbox)])]);
  return runFunction(
    functions,
    { name: "run_command", argumentsText: JSON.stringify(given) },
    {
      ...{ sessionId: "s", turnId: "t", toolCallId: "c", workspace: place.workspace },
      signal: new AbortController().signal,
      ...more,
    },
  );
}

describe("run_command", () => {
  for (const [name, command, expected] of [
    ["works in the workspace", "pwd -P > here; basename $PWD", { success: true, output: "ws\n" }],
    ["says so when there is no output", "true", { success: true, output: "[no output]" }],
    ["is a shell", "echo a | tr a b && (exit 0); echo $((6*7))", { success: true, output: "b\n42\n" }],
    ["tells the exit code, with the output", "echo so far; exit 3", { success: false, output: "so far\n" }],
    ["tells of a program that is not there", "no-such-program", { success: false, output: /not found/ }],
  ] as const) {
    test(name, async (context) => {
      const result = await call(sandboxWorkspace(context), { command });
      assert.equal(result.success, expected.success);
      if (typeof expected.output === "string") assert.equal(result.output, expected.output);
      else assert.match(result.output, expected.output);
    });
  }

  test("a failure has its exit code and duration for the model and for programs", async (context) => {
    const { success, error, metadata, durationMs } = await call(sandboxWorkspace(context), { command: "exit 3" });
    assert.equal(success, false);
    assert.match(error ?? "", /^exit code 3 after \d+ ms$/);
    assert.deepEqual([metadata?.["exit_code"], metadata?.["ended_by"]], ["3", "itself"]);
    assert.ok((durationMs ?? 0) > 0);
  });

  test("is stopped after timeout_ms, and keeps what it wrote", async (context) => {
    const { success, output, error, metadata } = await call(sandboxWorkspace(context), {
      command: "echo begun; sleep 60",
      timeout_ms: 500,
    });
    assert.deepEqual([success, output, metadata?.["ended_by"]], [false, "begun\n", "time"]);
    assert.match(error ?? "", /stopped after 500 ms; give a timeout_ms of at most 600000/);
  });

  test("shows its output while it runs, and ends with the turn", async (context) => {
    const stop = new AbortController();
    const seen: string[] = [];
    const running = call(
      sandboxWorkspace(context),
      { command: "echo shown; echo also >&2; sleep 60" },
      {
        signal: stop.signal,
        onOutput(stream, text) {
          seen.push(`${stream} ${text}`);
          if (seen.length === 2) stop.abort(new Error("enough"));
        },
      },
    );
    await assert.rejects(running, /enough/);
    assert.deepEqual(seen.sort(), ["stderr also\n", "stdout shown\n"]);
  });

  for (const [name, given, expected] of [
    ["no command", {}, /command/],
    ["an empty one", { command: "" }, /command/],
    ["a time above ten minutes", { command: "true", timeout_ms: 600_001 }, /timeout_ms/],
    ["a NUL character", { command: "echo a\0b" }, /NUL/],
    ["more than a program can be given", { command: `: ${"x".repeat(110_000)}` }, /110002 bytes long.*102400/],
  ] as const) {
    test(`refuses ${name}`, async (context) => {
      const { success, error } = await call(sandboxWorkspace(context, { kind: "none" }), { ...given });
      assert.equal(success, false);
      assert.match(error ?? "", expected);
    });
  }

  test("without a sandbox nothing runs, and the model is told why", async (context) => {
    const place = sandboxWorkspace(context, { env: { PATH: "/nowhere" } });
    const { success, error } = await call(place, { command: "touch ran" });
    assert.equal(success, false);
    assert.match(error ?? "", /bubblewrap is not installed/);
    assert.throws(() => readFileSync(join(place.workspace, "ran")), /ENOENT/);
  });

  test("what somebody approves holds for the bytes of the files it runs", async (context) => {
    const { workspace, sandbox } = sandboxWorkspace(context);
    const provider = localFunctions([runCommand(sandbox)]);
    const fingerprint = async (command: string) =>
      provider.fingerprint?.({ name: "run_command", arguments: { command } }, { workspace });
    writeFileSync(join(workspace, "a.sh"), "echo good\n");
    writeFileSync(join(workspace, "b.py"), "print(1)\n");
    const commands = ["sh a.sh", "./a.sh x", "python3 b.py && bash a.sh", "true; (source a.sh)"];
    const before = await Promise.all(commands.map(fingerprint));
    for (const each of before) assert.match(each ?? "", /^[0-9a-f]{64}$/);
    assert.deepEqual(await Promise.all(commands.map(fingerprint)), before);
    writeFileSync(join(workspace, "a.sh"), "echo evil\n");
    const after = await Promise.all(commands.map(fingerprint));
    for (const [index, each] of after.entries()) assert.notEqual(each, before[index], commands[index] ?? "");
    assert.equal(await fingerprint("ls -l"), "");
    assert.equal(await fingerprint("sh missing.sh"), "");
  });
});
