import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { join } from "node:path";
import { describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import { countProcesses, sandboxWorkspace, untilProcesses } from "./sandbox-workspace.ts";

/** A length of sleep that nobody else asks for, to know the processes by. */
const uniqueSleep = () => `${1000 + randomInt(1_000_000)}.5`;

/** Six sleepers of one program: children, sessions of their own, twice forked; most ignore SIGTERM. */
const family = (sleep: string) => `
  sleep ${sleep} & (sleep ${sleep} &)
  setsid sleep ${sleep} &
  (setsid bash -c 'trap "" TERM; (sleep ${sleep} &) ; sleep ${sleep}; :' &)
  trap "" TERM
  echo begun
  sleep ${sleep}; sleep ${sleep}`;
const familySize = 6;
/** Two seconds, and something for a busy machine. */
const limitMs = 2500;

for (const kind of ["bwrap", "none"] as const) {
  describe(`a whole family of processes in a sandbox of kind ${kind}`, { concurrency: 2, timeout: 60_000 }, () => {
    test("is gone two seconds after its time is over, and its output is kept", async (context) => {
      const sleep = uniqueSleep();
      const { run } = sandboxWorkspace(context, { kind });
      const timeoutMs = 1500;
      const running = run(family(sleep), { timeoutMs });
      await untilProcesses(sleep, familySize);
      const { endedBy, output, durationMs } = await running;
      assert.equal(await countProcesses(sleep), 0);
      assert.deepEqual([endedBy, output], ["time", "begun\n"]);
      assert.ok(durationMs < timeoutMs + limitMs, `${durationMs} ms`);
    });

    test("is gone two seconds after it was stopped", async (context) => {
      const sleep = uniqueSleep();
      const { run } = sandboxWorkspace(context, { kind });
      const stop = new AbortController();
      const running = run(family(sleep), { signal: stop.signal });
      await untilProcesses(sleep, familySize);
      const stoppedAt = performance.now();
      stop.abort();
      const { endedBy, output } = await running;
      assert.equal(await countProcesses(sleep), 0);
      assert.deepEqual([endedBy, output], ["stop", "begun\n"]);
      assert.ok(performance.now() - stoppedAt < limitMs);
    });

    test("is asked to end first, and may", async (context) => {
      const sleep = uniqueSleep();
      const { run } = sandboxWorkspace(context, { kind });
      const stop = new AbortController();
      const command = `setsid bash -c 'trap "echo child ends; exit" TERM; sleep ${sleep} & wait' & trap "wait; echo ends; exit 3" TERM; wait`;
      const running = run(command, { signal: stop.signal });
      await untilProcesses(sleep, 1);
      stop.abort();
      const { exitCode, output, durationMs } = await running;
      assert.deepEqual([exitCode, output], [3, "child ends\nends\n"]);
      assert.equal(await countProcesses(sleep), 0);
      assert.ok(durationMs < 1400, "it was not waited for");
    });

    test("is gone when its first process has ended", async (context) => {
      const sleep = uniqueSleep();
      const { run } = sandboxWorkspace(context, { kind });
      const command = `(sleep ${sleep} &); setsid sleep ${sleep} & (setsid sleep ${sleep} &); echo done`;
      const { exitCode, output, endedBy } = await run(command);
      assert.equal(await countProcesses(sleep), 0);
      assert.deepEqual([exitCode, endedBy, output], [0, "itself", "done\n"]);
    });

    test("is gone when this server is killed", async (context) => {
      const sleep = uniqueSleep();
      const { base, workspace } = sandboxWorkspace(context);
      const load = (path: string) =>
        `await import(${JSON.stringify(pathToFileURL(join(import.meta.dirname, "../../src/tool", path)).href)})`;
      const options = {
        kind,
        dataDir: join(base, "data"),
        readable: [],
        writable: [],
        network: false,
        domains: [],
        env: {},
      };
      const program = {
        ...{ program: "bash", args: ["-c", family(sleep)], cwd: workspace, env: {}, timeoutMs: 60_000 },
        access: { writable: [workspace], readable: [], network: false },
      };
      const code = `const { createSandbox } = ${load("sandbox/create-sandbox.ts")};
        const { runProgram } = ${load("run-program.ts")};
        const signal = new AbortController().signal;
        await runProgram(createSandbox(${JSON.stringify(options)}), { ...${JSON.stringify(program)}, signal });`;
      const server = spawn(process.execPath, ["--input-type=module", "--eval", code], {
        stdio: "ignore",
        // What it leaves behind goes with the folder of the test.
        env: { ...process.env, TMPDIR: base },
      });
      context.after(() => server.kill("SIGKILL"));
      await untilProcesses(sleep, familySize);
      const killedAt = performance.now();
      server.kill("SIGKILL");
      await untilProcesses(sleep, 0);
      assert.ok(performance.now() - killedAt < limitMs);
    });
  });
}

test("who escapes where there are no walls does not keep its pipes open to us", async (context) => {
  const { run } = sandboxWorkspace(context, { kind: "none" });
  const { output, durationMs, exitCode } = await run("env -i setsid sleep 4 & sleep 0.1; echo done");
  assert.deepEqual([output, exitCode], ["done\n", 0]);
  assert.ok(durationMs < 3000, `${durationMs} ms`);
});

test("a storm of forks is ended with its time", async (context) => {
  const sleep = uniqueSleep();
  const { run } = sandboxWorkspace(context);
  const { endedBy, exitCode } = await run(`for i in {1..150}; do sleep ${sleep} & done; wait`, { timeoutMs: 1000 });
  assert.notEqual(exitCode, 0);
  assert.notEqual(endedBy, "itself");
  assert.equal(await countProcesses(sleep), 0);
});
