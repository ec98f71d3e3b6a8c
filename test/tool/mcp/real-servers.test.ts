import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { callContext, serverProgram, startMcpServers, until } from "./start-mcp-servers.ts";

const node = process.execPath;

/** A port that was free a moment ago: the servers of the package name no port they have found themselves. */
async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  return typeof address === "object" && address !== null ? address.port : 0;
}

/** Starts the package's server on a port; resolves when it listens. */
async function startHttpServer(port: number) {
  const child = spawn(node, [serverProgram("everything"), "streamableHttp"], {
    env: { PATH: process.env["PATH"], PORT: String(port) },
    stdio: ["ignore", "ignore", "pipe"],
  });
  await new Promise<void>((resolve, reject) => {
    child.once("exit", () => reject(new Error("the server has ended")));
    child.stderr.on("data", (text: Buffer) => {
      if (text.includes("listening")) resolve();
    });
  });
  return {
    async stop() {
      child.kill("SIGKILL");
      await once(child, "exit");
    },
  };
}

describe("servers of the npm packages", () => {
  type Started = Awaited<ReturnType<typeof startMcpServers>>;
  let started: Started;
  let http: Awaited<ReturnType<typeof startHttpServer>>;
  let port = 0;
  const ends: (() => Promise<void>)[] = [];
  before(async () => {
    port = await freePort();
    http = await startHttpServer(port);
    const servers = {
      everything: { command: node, args: [serverProgram("everything"), "stdio"] },
      elsewhere: { command: node, args: [serverProgram("filesystem"), "."], cwd: "/usr" },
      remote: { url: `http://127.0.0.1:${port}/mcp` },
      files: {
        command: node,
        args: [serverProgram("filesystem"), "."],
        trust_hints: true,
        allowed_tools: ["write_file", "read_text_file"],
      },
      memory: { command: node, args: [serverProgram("memory")], read_only_tools: ["read_*"] },
    };
    started = await startMcpServers({ after: (end) => void ends.push(end) }, { servers });
  });
  after(async () => {
    await http.stop();
    for (const end of ends) await end();
  });
  const call = (name: string, args: Readonly<Record<string, unknown>> = {}, more = {}) =>
    started.servers.call({ name, arguments: args }, callContext(started.folder, more));

  test("are ready, and say who they are", () => {
    const views = started.servers.views();
    assert.deepEqual(
      views.map(({ server, state, error }) => [server.name, state, error]),
      [
        ["elsewhere", "ready", ""],
        ["everything", "ready", ""],
        ["files", "ready", ""],
        ["memory", "ready", ""],
        ["remote", "ready", ""],
      ],
    );
    for (const { serverInfo, protocolVersion } of views) {
      assert.match(serverInfo, /\S \d/);
      assert.match(protocolVersion, /^20\d\d-\d\d-\d\d$/);
    }
  });

  for (const server of ["everything", "remote"]) {
    test(`${server}: texts, pictures, structured content, progress and bad arguments come as a model can read them`, async () => {
      const tool = (name: string) => `mcp__${server}__${name}`;
      assert.equal((await call(tool("echo"), { message: "grüße\n" })).output, "Echo: grüße\n");
      const picture = await call(tool("get-tiny-image"));
      assert.match(picture.output, /\n\[image, image\/png, \d+ bytes, not shown\]\n/);
      assert.ok(picture.output.length < 200);
      const weather = await call(tool("get-structured-content"), { location: "New York" });
      assert.equal(typeof JSON.parse(weather.output).temperature, "number");
      const resource = await call(tool("get-resource-reference"), { resourceType: "Text", resourceId: 1 });
      assert.match(resource.output, /\[resource demo:\/\/resource\/dynamic\/text\/1, text\/plain\]\n/);
      const heard: string[] = [];
      const long = tool("trigger-long-running-operation");
      const done = await call(
        long,
        { duration: 0.3, steps: 3 },
        { onOutput: (stream: string, text: string) => heard.push(`${stream} ${text}`) },
      );
      assert.equal(done.success, true);
      // What comes shortly after another one, or with the answer, may be left out.
      assert.equal(heard[0], "progress 1/3");
      const wrong = await call(tool("get-sum"), { a: "one" });
      assert.equal(wrong.success, false);
      assert.match(wrong.output, /expected number/);
    });
  }

  test("a program is told its root, a server elsewhere nothing of our files", async () => {
    const roots = await call("mcp__everything__get-roots-list");
    assert.ok(roots.output.includes(`file://${started.folder}`), roots.output);
    const elsewhere = await call("mcp__elsewhere__list_allowed_directories");
    assert.match(elsewhere.output, /\/usr$/, "where the configuration has it work");
    assert.ok(!elsewhere.output.includes(started.folder));
    assert.ok(!started.servers.views().some(({ toolNames }) => toolNames.includes("mcp__remote__get-roots-list")));
  });

  test("a file that the filesystem server writes is in the workspace, and nothing beyond it is written", async () => {
    const write = (path: string) => call("mcp__files__write_file", { path, content: "written over MCP\n" });
    assert.equal((await write(join(started.folder, "note.txt"))).success, true);
    assert.equal(await readFile(join(started.folder, "note.txt"), "utf8"), "written over MCP\n");
    const outside = await write(join(started.folder, "../outside.txt"));
    assert.equal(outside.success, false);
    assert.match(outside.output, /denied/i);
  });

  test("only the tools that are allowed are offered, and hints count where the operator trusts them", async () => {
    const definitions = await started.servers.list();
    const ofSource = (source: string) => definitions.filter((each) => each.source === source);
    assert.deepEqual(
      ofSource("mcp:files").map(({ name, readOnly }) => [name, readOnly]),
      [
        ["mcp__files__read_text_file", true],
        ["mcp__files__write_file", false],
      ],
    );
    const readOnly = ofSource("mcp:memory").filter((each) => each.readOnly);
    assert.deepEqual(
      readOnly.map(({ name }) => name),
      ["mcp__memory__read_graph"],
    );
  });

  test("an HTTP server that comes back is called again, though it knows the session no more", async () => {
    await http.stop();
    const broken = await call("mcp__remote__echo", { message: "nobody" });
    assert.equal(broken.success, false);
    await until("it has failed", () => started.servers.views().some(({ state }) => state === "failed"));
    http = await startHttpServer(port);
    const view = await started.servers.reconnect("remote", 10_000);
    assert.deepEqual([view.state, view.error], ["ready", ""]);
    assert.equal((await call("mcp__remote__echo", { message: "again" })).output, "Echo: again");
  });
});
