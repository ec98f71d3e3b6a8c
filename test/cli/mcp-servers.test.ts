import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fromJson } from "@bufbuild/protobuf";
import { McpServerStatusSchema } from "../../gen/codeagent/v1/mcp_service_pb.ts";
import { hostileServer, until } from "../tool/mcp/start-mcp-servers.ts";
import { runToEnd, startServe, temporaryFolder } from "./start-codeagent.ts";

/** The processes with a text in their command line. */
function processesWith(text: string): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(text);
      } catch {
        return false;
      }
    })
    .map(Number);
}

describe("MCP servers on the command line", { timeout: 60_000, concurrency: 2 }, () => {
  test("one can be added, listed, used by a turn and removed, and its variables are not shown", async (context) => {
    const folder = temporaryFolder(context);
    const script = `
- { when: { role: tool }, text: that is all }
- { text: I call, tool_calls: [{ name: mcp__own__lists, arguments: {} }] }
`;
    const env = { KEY_OF_IT: "never-to-be-seen" };
    const codeagent = (...words: string[]) => runToEnd(context, words, { folder, script, env });
    const words = ["mcp", "add", "own", "--env", "KEY_OF_IT", "--tool", "lists", process.execPath, hostileServer];
    const added = await codeagent(...words, "normal");
    assert.equal(added.exit, 0, added.stderr);
    assert.match(added.stdout, /^own {2}ready {2}api {2}\S+ \S+ ?.* {2}1 tools\n$/);
    const { stdout, exit } = await codeagent("mcp", "ls", "--json");
    const status = fromJson(McpServerStatusSchema, JSON.parse(stdout));
    assert.deepEqual([exit, status.state, status.toolNames], [0, "ready", ["mcp__own__lists"]]);
    const ran = await codeagent("run", "go", "--yes");
    assert.equal(ran.exit, 0, ran.stderr);
    assert.match(ran.stdout, /that is all/);
    assert.equal((await codeagent("mcp", "rm", "own")).exit, 0);
    const gone = await codeagent("mcp", "ls");
    assert.equal(gone.stdout, "there are no MCP servers\n");
    for (const text of [added.stdout, stdout, ran.stdout]) assert.ok(!text.includes("never-to-be-seen"));
  });

  test("doctor says which are there, and what one that is not has written", async (context) => {
    const folder = temporaryFolder(context);
    const command = process.execPath;
    const servers = {
      good: { command, args: [hostileServer] },
      bad: { command, args: [hostileServer, "exit"], env: { SECRET: "never-to-be-seen" } },
    };
    writeFileSync(join(folder, "codeagent.yaml"), JSON.stringify({ mcp: servers }));
    const { stdout } = await runToEnd(context, ["doctor", "--port", "0"], { folder });
    assert.match(stdout, /^ok +MCP server good: \d+ tools, hostile 1$/m);
    assert.match(
      stdout,
      /^warning +MCP server bad: failed: the server ended with exit code 7; .*it wrote:\n +started as exit, secret is \[hidden\]$/m,
    );
    assert.match(stdout, /^warning +MCP: tools of the MCP server good are left out: .*"remote" is left out: /m);
    assert.doesNotMatch(stdout, /never-to-be-seen/);
  });

  test("kill -9 of the service leaves no program of an MCP server", async (context) => {
    const folder = temporaryFolder(context);
    const mark = join(folder, "mark");
    const servers = { stubborn: { command: process.execPath, args: [hostileServer, "stubborn", mark] } };
    writeFileSync(join(folder, "codeagent.yaml"), JSON.stringify({ mcp: servers }));
    const { child, ended } = await startServe(context, [], { folder });
    await until("the program runs", () => processesWith(mark).length > 0);
    child.kill("SIGKILL");
    await ended;
    await until("the program is gone", () => processesWith(mark).length === 0, 3000);
  });
});
