import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { firstFileDescriptor, spawnSupervised } from "../../src/tool/supervise.ts";

const env = { PATH: process.env["PATH"] ?? "" };
const start = (script: string, ...args: string[]) =>
  spawnSupervised("sh", ["-c", script, "sh", ...args], { cwd: "/", env });

async function textOf(stream: AsyncIterable<unknown>): Promise<string> {
  let text = "";
  for await (const piece of stream) text += String(piece);
  return text;
}

async function folderFor(context: TestContext): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "codeagent-supervise-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** What is killed and not yet collected by its parent does nothing any more. */
async function isAlive(pid: number): Promise<boolean> {
  const status = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => undefined);
  return status !== undefined && !/\) [ZX] /.test(status);
}

/** Writes its own process id and that of a grandchild into the file, then both go on for ever. */
const family = 'sleep 1000 & echo "$$ $!" > "$1"; while :; do sleep 0.02; done';

async function pidsIn(file: string): Promise<number[]> {
  for (;;) {
    const text = await readFile(file, "utf8").catch(() => "");
    if (text.endsWith("\n")) return text.trim().split(" ").map(Number);
    await wait(5);
  }
}

async function allGone(pids: readonly number[]): Promise<void> {
  for (const pid of pids) while (await isAlive(pid)) await wait(5);
}

describe("a supervised program", () => {
  for (const [name, script, code] of [
    ["ends well", "exit 0", 0],
    ["fails", "exit 7", 7],
    ["is killed from outside", "kill -TERM $$", 143],
  ] as const) {
    test(`that ${name}: its code comes through`, async () => {
      const program = start(script);
      const [output] = await Promise.all([textOf(program.stdout), textOf(program.stderr)]);
      assert.equal(await program.ended, code);
      assert.equal(output, "");
      await program.stop();
    });
  }

  test("its output comes through whole, and it has no input", async () => {
    const program = start('cat; echo out; echo "$1" >&2; head -c 300000 /dev/zero | tr "\\0" x', "a b'c");
    const [out, error] = await Promise.all([textOf(program.stdout), textOf(program.stderr)]);
    assert.equal(out.length, 300_004);
    assert.equal(error, "a b'c\n");
    assert.equal(await program.ended, 0);
  });

  test("it gets the files that are handed to it, and not the lifeline", async (context) => {
    const file = join(await folderFor(context), "given");
    await writeFile(file, "what is in it");
    const descriptor = openSync(file, "r");
    context.after(() => closeSync(descriptor));
    const program = spawnSupervised(
      "sh",
      ["-c", `cat <&${firstFileDescriptor}; [ -e /proc/self/fd/3 ] && echo lifeline; :`],
      {
        cwd: "/",
        env,
        files: [descriptor],
      },
    );
    const [out] = await Promise.all([textOf(program.stdout), textOf(program.stderr)]);
    assert.equal(out, "what is in it");
  });

  test("it is stopped with all it started", async (context) => {
    const file = join(await folderFor(context), "pids");
    const program = start(family, file);
    const pids = await pidsIn(file);
    assert.equal(pids.length, 2);
    await program.stop();
    assert.equal(await program.ended, 137);
    await allGone(pids);
    await program.stop();
  });

  test("it dies with the process that started it, however that ends", async (context) => {
    const file = join(await folderFor(context), "pids");
    const module = pathToFileURL(join(import.meta.dirname, "../../src/tool/supervise.ts")).href;
    const code = `const { spawnSupervised } = await import(${JSON.stringify(module)});
      spawnSupervised("sh", ["-c", ${JSON.stringify(family)}, "sh", ${JSON.stringify(file)}], { cwd: "/", env: process.env });`;
    const owner = spawn(process.execPath, ["--input-type=module", "--eval", code], { env, stdio: "ignore" });
    context.after(() => owner.kill("SIGKILL"));
    const pids = await pidsIn(file);
    assert.deepEqual(await Promise.all(pids.map(isAlive)), [true, true]);
    owner.kill("SIGKILL");
    await allGone(pids);
  });

  test("one that can't be started says so", async () => {
    const program = spawnSupervised("sh", [], { cwd: "/nowhere/at/all", env });
    await assert.rejects(program.ended, /ENOENT/);
    await program.stop();
  });
});
