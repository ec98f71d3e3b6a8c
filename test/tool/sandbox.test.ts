import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, readdirSync, readFileSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { promisify } from "node:util";
import { createSandbox } from "../../src/tool/sandbox/create-sandbox.ts";
import { ProgramRefusedError, SandboxUnavailableError } from "../../src/tool/sandbox/sandbox.ts";
import { type RunOptions, type SandboxWorkspace, sandboxWorkspace } from "./sandbox-workspace.ts";

interface Case {
  readonly name: string;
  readonly command: (place: SandboxWorkspace & { readonly port: number }) => string;
  /** What the output has to say. */
  readonly says?: RegExp;
  /** Must fail; default: must go well. */
  readonly fails?: true;
  readonly options?: (place: SandboxWorkspace) => RunOptions;
}

async function listeningPort(context: TestContext): Promise<number> {
  const server = createServer((socket) => socket.end("hello from outside\n"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  context.after(() => server.close());
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  return address.port;
}

function failing(cases: readonly Case[], options?: Case["options"]): Case[] {
  return cases.map((each) => ({ ...each, fails: true, ...(options === undefined ? {} : { options }) }));
}

const gone = /No such file|Permission denied|cannot access/;
const readOnly = /Read-only file system|Permission denied|Device or resource busy|Not a directory|Is a directory/;
const everything = (): RunOptions => ({ access: { readsEverything: true } });

const impossible: readonly Case[] = failing([
  { name: "read the data directory", command: ({ dataDir }) => `cat ${dataDir}/secret`, says: gone },
  { name: "list the data directory", command: ({ dataDir }) => `ls ${dataDir}/secret`, says: gone },
  { name: "read what lies beside the workspace", command: ({ base }) => `cat ${base}/outside`, says: gone },
  { name: "read it by a path that climbs", command: () => "cat ../outside", says: gone },
  { name: "read a key in the home", command: ({ home }) => `cat ${home}/.ssh/key`, says: gone },
  { name: "read the passwords", command: () => "cat /etc/shadow", says: gone },
  { name: "write to the system", command: () => "echo x > /usr/local/bin/x", says: readOnly },
  { name: "write to the root", command: () => "echo x > /x", says: readOnly },
  { name: "write to /dev", command: () => "echo x > /dev/x", says: readOnly },
  {
    name: "set what the kernel does",
    command: () => 'now=$(cat /proc/sys/kernel/panic); echo "$now" > /proc/sys/kernel/panic',
    says: readOnly,
  },
  { name: "add a hook", command: () => "echo x > .git/hooks/pre-commit", says: readOnly },
  { name: "change the configuration of git", command: () => "echo x >> .git/config", says: readOnly },
  { name: "move .git away", command: () => "mv .git old", says: readOnly },
  { name: "remove .git", command: () => "rm -r .git", says: readOnly },
  { name: "create .codeagent", command: () => "mkdir -p .codeagent/skills/x", says: readOnly },
  { name: "put something else for .codeagent", command: () => "rmdir .codeagent", says: readOnly },
  { name: "create .mcp.json", command: () => "echo '{}' > .mcp.json", says: readOnly },
  { name: "move something to .mcp.json", command: () => "echo '{}' > x && mv -f x .mcp.json", says: readOnly },
  { name: "remove .mcp.json", command: () => "rm -f .mcp.json", says: readOnly },
  { name: "create codeagent.yaml", command: () => "echo 'sandbox: none' > codeagent.yaml", says: readOnly },
  { name: "link another file to it", command: () => "ln -sf /tmp/x codeagent.yaml", says: readOnly },
  {
    name: "unmount what protects it",
    command: () => "umount .git",
    says: /must be superuser|not permitted|denied|failed/,
  },
  {
    name: "mount over it",
    command: () => "mount -t tmpfs none .git",
    says: /must be superuser|not permitted|denied|failed/,
  },
  {
    name: "unmount it in a namespace of its own",
    command: () => "unshare -Urm umount .git && echo x > .git/config",
    says: /./,
  },
  {
    name: "have rights",
    command: () => "grep Cap /proc/self/status | grep -v -E '0{16}$'",
    says: /^$/,
  },
  {
    name: "reach a server on this machine",
    command: ({ port }) => `cat < /dev/tcp/127.0.0.1/${port}`,
    says: /refused/,
  },
  { name: "reach the network", command: () => "cat < /dev/tcp/192.0.2.1/80", says: /unreachable|refused/ },
  { name: "see a process of the server", command: () => `cat /proc/${process.pid}/environ`, says: gone },
  {
    name: "see what runs beside it",
    command: () => '[ "$(ls /proc | grep -c "^[0-9]")" -lt 8 ] && echo few; false',
    says: /few/,
  },
  { name: "signal the server", command: () => `kill -0 ${process.pid}`, says: /No such process|not permitted/ },
  { name: "find the parent's secrets", command: () => "cat /proc/*/environ | tr '\\0' '\\n' | grep SECRET" },
  { name: "find secrets in its environment", command: () => "env | grep -i -e secret -e openai" },
  {
    name: "write a file of more than 1 GiB",
    command: () => "dd if=/dev/zero of=big bs=1 count=1 seek=1100000000",
  },
  {
    name: "take more than 2 GiB of memory",
    command: () => `node -e 'Buffer.alloc(3 * 1024 ** 3, 1); console.log("got it")'`,
    says: /allocat|memory/i,
  },
  {
    name: "fill memory by way of /tmp",
    command: () =>
      "for i in 1 2 3; do dd if=/dev/zero of=/tmp/$i bs=1 count=1 seek=1000000000 2>&1; fallocate -l 500M /tmp/f$i || exit 1; done",
    says: /No space left/,
  },
  {
    name: "start processes without end",
    command: () => "for i in {1..900}; do sleep 8 & done 2>/dev/null; wait; echo all of them",
  },
]);

const everywhereImpossible: readonly Case[] = failing(
  [
    { name: "read the data directory", command: ({ dataDir }) => `cat ${dataDir}/secret`, says: gone },
    { name: "write into its place", command: ({ dataDir }) => `echo x > ${dataDir}/new`, says: readOnly },
    { name: "read a key in the home", command: ({ home }) => `cat ${home}/.ssh/key`, says: gone },
    { name: "read the passwords", command: () => "cat /etc/shadow", says: gone },
    { name: "find sockets in /run", command: () => "find /run -type s | grep .", says: /^$/ },
    { name: "write anywhere else", command: ({ base }) => `echo x > ${base}/new`, says: readOnly },
    { name: "write to /tmp", command: () => "echo x > /tmp/new-file-of-a-test", says: readOnly },
    {
      name: "set what the kernel does",
      command: () => 'now=$(cat /proc/sys/kernel/panic); echo "$now" > /proc/sys/kernel/panic',
      says: readOnly,
    },
    { name: "add a hook", command: () => "echo x > .git/hooks/pre-commit", says: readOnly },
    { name: "create .mcp.json", command: () => "echo '{}' > .mcp.json", says: readOnly },
  ],
  everything,
);

const possible: readonly Case[] = [
  { name: "write in the workspace", command: () => "mkdir -p a/b && echo text > a/b/c && cat a/b/c", says: /^text$/m },
  { name: "write beside the workspace, where nothing remains", command: ({ base }) => `echo x > ${base}/new` },
  { name: "read .git", command: () => "cat .git/HEAD", says: /refs/ },
  {
    name: "use /tmp and its own home",
    command: () => 'echo a > "$TMPDIR/a" && cat "$TMPDIR/a" > ~/a && cat ~/a',
    says: /a/,
  },
  { name: "run node", command: () => "node -p '6 * 7'", says: /^42$/m },
  { name: "write to /dev/stderr", command: () => "echo loud > /dev/stderr", says: /loud/ },
  { name: "talk to itself over loopback or at least know it", command: () => "cat /proc/net/dev", says: /lo:/ },
  {
    name: "read what it is given to read",
    command: ({ base }) => `cat ${base}/outside`,
    says: /SECRET outside/,
    options: ({ base }) => ({ access: { readable: [join(base, "outside")] } }),
  },
  {
    name: "read the whole system, where it may",
    command: ({ base }) => `cat ${base}/outside && echo x > "$TMPDIR/x" && echo y > ~/y && echo z > z`,
    says: /SECRET outside/,
    options: everything,
  },
  {
    name: "reach the network, where it may",
    command: ({ port }) => `cat < /dev/tcp/127.0.0.1/${port}`,
    says: /hello from outside/,
    options: () => ({ access: { network: true } }),
  },
  {
    name: "be given variables",
    command: () => 'echo "$ARG_NAME"',
    says: /a "b" \$c/,
    options: () => ({ env: { ARG_NAME: 'a "b" $c' } }),
  },
];

describe("a program within bubblewrap's walls", { concurrency: 2 }, () => {
  for (const [can, cases] of [
    ["can't", impossible],
    ["that may read everything can't", everywhereImpossible],
    ["can", possible],
  ] as const) {
    for (const each of cases) {
      test(`${can} ${each.name}`, async (context) => {
        const place = { ...sandboxWorkspace(context), port: await listeningPort(context) };
        const result = await place.run(each.command(place), each.options?.(place));
        assert.equal(result.endedBy, "itself", result.output);
        assert.equal(result.exitCode !== 0, each.fails === true, `exit code ${result.exitCode}: ${result.output}`);
        assert.match(result.output, each.says ?? /^/);
        if (each.fails) assert.doesNotMatch(result.output, /SECRET|got it|all of them|hello/);
        assert.deepEqual(readdirSync(place.base).sort(), ["data", "home", "outside", "ws"]);
      });
    }
  }

  test("finds the data directory empty where that lies in its workspace", async (context) => {
    const { run, dataDir } = sandboxWorkspace(context, { dataDirIn: "workspace" });
    const { output, exitCode } = await run("cat data/secret; ls -A data; echo x > data/x");
    assert.match(output, /No such file.*Read-only file system/s);
    assert.equal(exitCode, 1);
    assert.deepEqual(readdirSync(dataDir), ["secret"]);
  });

  test("changes what the operator lets every program change, also .git", async (context) => {
    const place = sandboxWorkspace(context);
    const sandbox = sandboxWorkspace(context, { writable: [join(place.workspace, ".git")] });
    const { output } = await sandbox.run(`echo x > ${place.workspace}/.git/index && echo written`, {
      access: { writable: [place.workspace] },
      cwd: place.workspace,
    });
    assert.equal(output, "written\n");
  });
});

describe("what protects files that are not there", () => {
  test("is gone with the last program that needs it, and never with what somebody has written", async (context) => {
    const { run, workspace } = sandboxWorkspace(context);
    const first = run("touch began; while [ ! -e end ]; do sleep 0.02; done; echo x > .mcp.json");
    while (!existsSync(join(workspace, "began"))) await new Promise((resolve) => setTimeout(resolve, 5));
    const second = await run("mkdir .codeagent/skills");
    assert.match(second.output, /Read-only file system/);
    assert.ok(existsSync(join(workspace, ".mcp.json")), "the first program still needs it");
    writeFileSync(join(workspace, "codeagent.yaml"), "model: a/b\n");
    writeFileSync(join(workspace, "end"), "");
    assert.match((await first).output, /Read-only file system/);
    assert.deepEqual(readdirSync(workspace).sort(), [".git", "began", "codeagent.yaml", "end"]);
    assert.equal(readFileSync(join(workspace, "codeagent.yaml"), "utf8"), "model: a/b\n");
  });

  test("stays while a program of another server needs it", async (context) => {
    const { run, workspace, dataDir } = sandboxWorkspace(context);
    const options = { kind: "bwrap", dataDir, readable: [], writable: [], network: false, domains: [], env: {} };
    const program = {
      program: "bash",
      args: ["-c", "touch began; while [ ! -e end ]; do sleep 0.02; done; echo x > codeagent.yaml; ls -a"],
      ...{
        cwd: workspace,
        env: {},
        access: { writable: [workspace], readable: [], network: false },
        timeoutMs: 20_000,
      },
    };
    const source = (name: string) => JSON.stringify(new URL(`../../src/tool/${name}.ts`, import.meta.url).href);
    const other = promisify(execFile)(process.execPath, [
      ...["--input-type=module", "-e"],
      `import { createSandbox } from ${source("sandbox/create-sandbox")};
       import { runProgram } from ${source("run-program")};
       const sandbox = createSandbox({ ...${JSON.stringify(options)}, env: process.env });
       const signal = new AbortController().signal;
       console.log((await runProgram(sandbox, { ...${JSON.stringify(program)}, signal })).output);`,
    ]);
    while (!existsSync(join(workspace, "began"))) await new Promise((resolve) => setTimeout(resolve, 5));
    await run("true");
    assert.ok(existsSync(join(workspace, "codeagent.yaml")), "the other server still needs it");
    writeFileSync(join(workspace, "end"), "");
    assert.match((await other).stdout, /Read-only file system/);
    assert.deepEqual(readdirSync(workspace).sort(), [".git", "began", "end"]);
  });

  test("that a crash left behind goes with the next program", async (context) => {
    const { run, workspace } = sandboxWorkspace(context);
    await run("touch -d @0 left-behind");
    writeFileSync(join(workspace, ".mcp.json"), "");
    utimesSync(join(workspace, ".mcp.json"), 0, 0);
    await run("true");
    assert.deepEqual(readdirSync(workspace).sort(), [".git", "left-behind"]);
  });

  test("can't be a link: nothing is started", async (context) => {
    const { run, workspace } = sandboxWorkspace(context);
    symlinkSync("/tmp", join(workspace, ".codeagent"));
    await assert.rejects(run("echo started"), (error: Error) => {
      assert.ok(error instanceof SandboxUnavailableError);
      assert.match(error.message, /^\.codeagent in the workspace is a link/);
      return true;
    });
    assert.deepEqual(readdirSync(workspace).sort(), [".codeagent", ".git"]);
  });
});

describe("a sandbox", () => {
  test("that can't be had starts nothing and says what to install or set", async (context) => {
    const { run, sandbox, workspace } = sandboxWorkspace(context, { env: { PATH: workspacePath } });
    const expected = /bubblewrap is not installed; install it \(apt install bubblewrap.*, or set "sandbox: none"/;
    await assert.rejects(run("touch started"), (error: Error) => {
      assert.ok(error instanceof SandboxUnavailableError);
      assert.match(error.message, expected);
      return true;
    });
    const { kind, isReady, detail } = await sandbox.describe();
    assert.deepEqual([kind, isReady], ["bwrap", false]);
    assert.match(detail, expected);
    assert.deepEqual(readdirSync(workspace), [".git"]);
  });

  for (const name of [
    "LD_PRELOAD",
    "NODE_OPTIONS",
    "BASH_ENV",
    "PYTHONPATH",
    "PS4",
    "BASH_FUNC_ls%%",
    "PATH",
    "IFS",
    "a b",
  ]) {
    for (const kind of ["bwrap", "none"] as const) {
      test(`of kind ${kind} refuses a program the variable ${name}`, async (context) => {
        const { run } = sandboxWorkspace(context, { kind });
        await assert.rejects(run("true", { env: { [name]: "x" } }), ProgramRefusedError);
      });
    }
  }

  test("of kind none says so, hides the environment all the same and leaves no folder", async (context) => {
    const { run, sandbox } = sandboxWorkspace(context, { kind: "none" });
    assert.deepEqual((await sandbox.describe()).isReady, true);
    const { output } = await run('env; ulimit -c; umask; echo "$HOME" > seen; ls -d "$HOME" "$TMPDIR"');
    assert.doesNotMatch(output, /SECRET|OPENAI/);
    assert.match(output, /^PATH=.*^0$.*^0077$/ms);
    const folder = output.trim().split("\n").at(-1) ?? "";
    assert.match(folder, /codeagent-program-/);
    while (existsSync(folder)) await new Promise((resolve) => setTimeout(resolve, 5));
  });
});

const workspacePath = "/nowhere";

const canRunRuntime = createSandbox({
  kind: "srt",
  dataDir: "/nowhere",
  readable: [],
  writable: [],
  network: false,
  domains: [],
  env: process.env,
});
const runtime = await canRunRuntime.describe();
await canRunRuntime.close();

describe("a program within the sandbox runtime", { skip: runtime.isReady ? false : runtime.detail }, () => {
  for (const [name, command, says, code] of [
    ["writes in the workspace", "echo text > a && cat a", /^text$/m, 0],
    ["does not change .git", "echo x > .git/config", readOnly, 1],
    ["does not create .mcp.json", "echo x > .mcp.json", readOnly, 1],
    [
      "does not set what the kernel does",
      'a=$(cat /proc/sys/kernel/panic); echo "$a" > /proc/sys/kernel/panic',
      readOnly,
      1,
    ],
    ["does not read beside the workspace", "cat ../outside ../data/secret", gone, 1],
    ["does not reach this machine", "cat < /dev/tcp/127.0.0.1/1", /refused/, 1],
    ["has no secrets", "env | grep -c SECRET", /^0$/m, 1],
    ["has a folder for temporary files", 'echo a > "$TMPDIR/a" && cat "$TMPDIR/a"', /^a$/m, 0],
    ["gets its words whole", "printf '<%s>' \"it's\" 'a  b' '$HOME'", /<it's><a {2}b><\$HOME>/, 0],
  ] as const) {
    test(name, async (context) => {
      const { run } = sandboxWorkspace(context, { kind: "srt" });
      const { output, exitCode } = await run(command);
      assert.match(output, says);
      assert.equal(exitCode, code, output);
    });
  }
});
