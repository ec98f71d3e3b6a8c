import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import type { Readable, Writable } from "node:stream";
import type { TestContext } from "node:test";

/** Runs a program with the functions of `node:fs` at hand, in the workspace; killed when the test ends. */
export function startProgram(
  context: Pick<TestContext, "after">,
  workspace: string,
  program: string,
): ChildProcessByStdio<Writable, Readable, null> {
  const whole = `const { mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, unlinkSync } = require("node:fs");
    process.chdir(process.argv[1]);
    ${program}`;
  const child = spawn(process.execPath, ["-e", whole, workspace], { stdio: ["pipe", "pipe", "inherit"] });
  context.after(() => child.kill("SIGKILL"));
  return child;
}

/** Runs file operations over and over in another process, in the workspace, until the function it gives is called. */
export async function inLoop(
  context: Pick<TestContext, "after">,
  workspace: string,
  operations: string,
): Promise<() => Promise<void>> {
  const child = startProgram(
    context,
    workspace,
    `process.stdout.write("ready"); for (;;) try { ${operations} } catch {}`,
  );
  const closed = once(child, "close");
  await once(child.stdout, "data");
  return async () => {
    child.kill("SIGKILL");
    await closed;
  };
}
