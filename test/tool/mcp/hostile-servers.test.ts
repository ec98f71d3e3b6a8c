import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { ToolResult } from "../../../src/chat/tool-result.ts";
import { functionName } from "../../../src/tool/mcp/mcp-tools.ts";
import { readMcpServer } from "../../../src/tool/mcp/read-mcp-server.ts";
import { callContext, hostileServer, isRunning, ManualClock, startMcpServers, until } from "./start-mcp-servers.ts";

type Started = Awaited<ReturnType<typeof startMcpServers>>;
const hostile = (mode: string, more: Readonly<Record<string, unknown>> = {}) => ({
  command: process.execPath,
  args: [hostileServer, mode],
  connect_timeout_ms: 15_000,
  ...more,
});

describe("a server that is strange, but answers", () => {
  let started: Started;
  const ends: (() => Promise<void>)[] = [];
  before(async () => {
    const servers = { odd: hostile("normal", { timeout_ms: 700, env: { SECRET: "abcdefgh" } }) };
    started = await startMcpServers({ after: (end) => void ends.push(end) }, { servers });
  });
  after(async () => {
    for (const end of ends) await end();
  });
  const call = (tool: string, more = {}): Promise<ToolResult> =>
    started.servers.call({ name: functionName("odd", tool), arguments: {} }, callContext(started.folder, more));

  test("each tool has a name that every model takes, and the name leads back to it", async () => {
    const names = (await started.servers.list()).map(({ name }) => name);
    assert.equal(new Set(names).size, names.length);
    for (const name of names) assert.match(name, /^[A-Za-z0-9_-]{1,64}$/);
    const odd = ["with space", "with_space", "with.space", "naïve/größe", "a__b", "long".repeat(40), "__proto__"];
    for (const tool of [...odd, `${"long".repeat(39)}lang`]) {
      const name = functionName("odd", tool);
      assert.ok(names.includes(name), `${tool} is offered as ${name}`);
      assert.equal((await call(tool)).output, `called ${tool}`);
    }
    assert.equal(functionName("odd", "with_space"), "mcp__odd__with_space");
    assert.equal(functionName("odd", "a__b"), "mcp__odd__a__b");
  });

  test("names of two servers never meet", () => {
    const pairs = [
      ["a", "_b"],
      ["a_", "b"],
      ["a", "b c"],
      ["a", "b_c"],
      ["a-", "b"],
      ["_", "_"],
      ["a", "x".repeat(60)],
      ["a", "x".repeat(61)],
    ] as const;
    const names = pairs.map(([server, tool]) => functionName(server, tool));
    assert.equal(new Set(names).size, pairs.length);
  });

  test("what cannot be used is left out, and the operator is told why", async () => {
    const names = (await started.servers.list()).map(({ name }) => name);
    for (const tool of ["remote", "no schema", "nested"]) assert.ok(!names.includes(functionName("odd", tool)), tool);
    const told = JSON.stringify(started.reports);
    for (const why of [
      "refers to https://example.org/schema",
      "no schema of its arguments",
      "nested more than",
      "another of this name",
    ])
      assert.ok(told.includes(why), why);
  });

  test("a server's word that a tool only reads does not count", async () => {
    const reads = (await started.servers.list()).find(({ name }) => name === "mcp__odd__reads");
    assert.deepEqual([reads?.readOnly, reads?.openWorld], [false, true]);
    assert.match(reads?.digest ?? "", /^[0-9a-f]{64}$/);
  });

  test("texts of a server cannot steer a terminal", async () => {
    const titled = (await started.servers.list()).find(({ name }) => name === functionName("odd", "__proto__"));
    assert.equal(titled?.title, "␛[31mred");
  });

  test("a call that is cancelled is cancelled at the server, and one that takes too long too", async () => {
    const stop = new AbortController();
    const hanging = call("hang", { signal: stop.signal });
    stop.abort(new Error("not wanted any more"));
    await assert.rejects(hanging, /not wanted any more/);
    const late = await call("hang");
    assert.equal(late.error, "the MCP server odd did not answer the call within 700 ms");
    assert.equal(JSON.parse((await call("cancelled")).output).length, 2);
  });

  test("neither our models nor our people are asked", async () => {
    assert.deepEqual(JSON.parse((await call("ask")).output), [-32601, -32601]);
  });

  test("a failure that a tool reports is a failure with its words", async () => {
    const failed = await call("fail");
    assert.deepEqual(failed, {
      success: false,
      output: "called fail",
      error: "the tool of the MCP server odd reports a failure",
    });
  });

  test("200 words that the tools have changed are one look at them, or two", async () => {
    const listsBefore = Number((await call("lists")).output);
    let changes = 0;
    const stop = started.servers.watch(() => changes++);
    assert.equal((await call("change")).output, "changed");
    await until("the new tool is there", () => changes > 0);
    stop();
    assert.ok((await started.servers.list()).some(({ name }) => name === "mcp__odd__new"));
    assert.equal(changes, 1);
    // The list has three pages.
    const pages = Number((await call("lists")).output) - listsBefore;
    assert.ok(pages <= 6, `${pages} pages were asked for`);
  });

  test("20 MB of complaints on the standard error are kept to their end, without the values of its environment", async () => {
    assert.equal((await call("complain")).output, "complained");
    const kept = started.servers.errorText("odd");
    assert.ok(kept.length <= 64 * 1024 && kept.endsWith("complaint \n"), `${kept.length} characters are kept`);
  });

  test("an answer that is nested too deep is an answer", async () => {
    const deep = await call("deep");
    assert.ok(deep.success === false || deep.output.length < 1_000_000);
    assert.equal((await call("lists")).success, true);
  });

  test("a program is given what was configured, and none of our own variables", async () => {
    process.env["MCP_TEST_SECRET"] = "of the server";
    const given = JSON.parse((await call("environment")).output);
    delete process.env["MCP_TEST_SECRET"];
    assert.deepEqual([given.SECRET, given.MCP_TEST_SECRET], ["abcdefgh", undefined]);
  });
});

describe("a server that fails", { concurrency: true }, () => {
  test("one that says nothing has failed after its time, and its program is gone", async (context) => {
    const servers = { mute: hostile("silent", { connect_timeout_ms: 1000 }) };
    const { servers: mcp, processes } = await startMcpServers(context, { servers });
    const [view] = mcp.views();
    assert.equal(view?.state, "failed");
    assert.match(view?.error ?? "", /^the server (was not ready|did not greet us) within 1000 ms$/);
    await processes[0]?.ended;
    assert.equal(processes.length, 1);
  });

  test("one that ends at once is named with its last words, without secrets, and tried again later and later", async (context) => {
    const clock = new ManualClock();
    const env = { TOKEN: "tell-nobody" };
    const servers = { gone: hostile("exit", { env: { SECRET: ["$", "{env:TOKEN}"].join("") } }) };
    const { servers: mcp, started } = await startMcpServers(context, { servers, clock, env });
    assert.equal(
      mcp.views()[0]?.error,
      "the server ended with exit code 7; its last words: started as exit, secret is [hidden]",
    );
    const waits: number[] = [];
    for (let attempt = 1; attempt <= 4; attempt++) {
      const next = mcp.views()[0]?.nextAttemptMs ?? 0;
      waits.push(next - clock.now());
      clock.advance(next - clock.now() - 1);
      assert.equal(started.length, attempt, "nothing is started before its time");
      clock.advance(1);
      await until("it has failed again", () => mcp.views()[0]?.state === "failed");
      assert.equal(started.length, attempt + 1, "one program a time");
    }
    assert.deepEqual(waits, [1000, 1500, 3000, 6000]);
  });

  test("one that crashes in a call fails the call with its last words, is there again, and a call meanwhile says so", async (context) => {
    const clock = new ManualClock();
    const {
      servers: mcp,
      folder,
      started,
    } = await startMcpServers(context, { servers: { weak: hostile("normal") }, clock });
    const call = (tool: string) => mcp.call({ name: `mcp__weak__${tool}`, arguments: {} }, callContext(folder));
    const crashed = await call("crash");
    assert.match(crashed.error ?? "", /^the MCP server weak ended with exit code 3; its last words: worse than death$/);
    await until("the crash is seen", () => mcp.views()[0]?.state === "failed");
    assert.deepEqual(await mcp.list(), []);
    assert.match(
      (await call("lists")).error ?? "",
      /^the MCP server weak is not connected: .*; it is tried again in 1 s$/,
    );
    clock.advance(1000);
    assert.equal((await call("lists")).output, "3", "a call waits for a connection that is being made");
    assert.equal(started.length, 2);
  });

  for (const [tool, why] of [
    ["long-line", "sent a message of more than 4194304 bytes"],
    ["garbage", "wrote more than 1048576 bytes to its standard output that are no messages"],
  ] as const) {
    test(`${tool}: the connection ends, the program too, and memory stays flat`, async (context) => {
      const { servers: mcp, folder } = await startMcpServers(context, {
        servers: { loud: hostile("normal") },
        clock: new ManualClock(),
      });
      const call = (name: string) => mcp.call({ name: `mcp__loud__${name}`, arguments: {} }, callContext(folder));
      const pid = Number((await call("child")).output.split(" ")[0]);
      const bytesBefore = process.memoryUsage().rss;
      const result = await call(tool);
      assert.ok(result.error?.startsWith(`the MCP server loud ${why}`), result.error ?? "no error");
      await until("the program is gone", () => !isRunning(pid));
      assert.ok(process.memoryUsage().rss - bytesBefore < 150 * 1024 * 1024);
    });
  }

  test("one that ignores the end of its input and SIGTERM is gone when it is removed", async (context) => {
    const { servers: mcp, folder } = await startMcpServers(context);
    const view = await mcp.add(readMcpServer("stubborn", hostile("stubborn"), folder, "test"), 15_000);
    assert.equal(view.state, "ready");
    const { output } = await mcp.call({ name: "mcp__stubborn__child", arguments: {} }, callContext(folder));
    // Its child is in a session of its own.
    const pids = output.split(" ").map(Number);
    assert.ok(pids.every(isRunning));
    const startMs = performance.now();
    await mcp.remove("stubborn");
    await until("the program and its child are gone", () => !pids.some(isRunning), 1000);
    assert.ok(performance.now() - startMs < 5000);
    assert.deepEqual(await mcp.list(), []);
    assert.match(
      (await mcp.call({ name: "mcp__stubborn__child", arguments: {} }, callContext(folder))).error ?? "",
      /was removed/,
    );
  });
});
