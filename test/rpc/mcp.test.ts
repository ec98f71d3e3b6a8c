import assert from "node:assert/strict";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { type McpServerSchema, McpService } from "../../gen/codeagent/v1/mcp_service_pb.ts";
import { ToolService } from "../../gen/codeagent/v1/tool_service_pb.ts";
import { BadRequestSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { readAlong } from "../support/read-along.ts";
import { startTestApp, type TestAppOptions, user } from "../support/test-app.ts";
import { hostileServer, serverProgram } from "../tool/mcp/start-mcp-servers.ts";

type Server = MessageInitShape<typeof McpServerSchema>;

const everything: Server = {
  name: "everything",
  transport: {
    case: "stdio",
    value: { command: process.execPath, args: [serverProgram("everything")], env: { SECRET_OF_IT: "never-shown-1" } },
  },
};
const hostile = (mode: string): Server => ({
  name: "hostile",
  transport: { case: "stdio", value: { command: process.execPath, args: [hostileServer, mode] } },
});
/** Nobody listens there. */
const remote: Server = {
  name: "remote",
  transport: {
    case: "http",
    value: { url: "http://127.0.0.1:3/mcp?key=never-shown-2", headers: { "X-Key": "never-shown-3" } },
  },
};

async function startMcp(context: TestContext, options: TestAppOptions = {}) {
  const sample = await startTestApp(context, options);
  return {
    ...sample,
    mcp: createClient(McpService, sample.transport),
    tools: createClient(ToolService, sample.transport),
  };
}

function refusedWith(code: Code, field?: string) {
  return (error: unknown) => {
    assert.ok(error instanceof ConnectError);
    assert.equal(Code[error.code], Code[code], error.message);
    const violations = error.findDetails(BadRequestSchema).flatMap(({ fieldViolations }) => fieldViolations);
    if (field !== undefined) assert.equal(violations[0]?.field, field);
    assert.ok(!error.message.includes("never-shown"), error.message);
    return true;
  };
}

describe("McpService", () => {
  test("a server is added once, its tools are called by turns as the rules say, and go with it; its secrets stay inside", async (context) => {
    const script = `
- { when: { role: tool }, text: that is all }
- { text: I call, tool_calls: [{ name: mcp__everything__echo, arguments: { message: over MCP } }] }
`;
    const { client, mcp, tools, dataDir } = await startMcp(context, { script });
    const added = await mcp.addMcpServer({ server: everything, requestId: "one" });
    assert.deepEqual([added.state, added.error, added.source, added.timeoutMs], ["ready", "", "api", 60_000n]);
    assert.ok(added.toolNames.includes("mcp__everything__echo"));
    assert.equal(added.toolCount, added.toolNames.length);
    assert.deepEqual(added.transport.value, {
      $typeName: "codeagent.v1.McpStdioStatus",
      command: process.execPath,
      args: [serverProgram("everything")],
      envNames: ["SECRET_OF_IT"],
    });
    assert.deepEqual(await mcp.addMcpServer({ server: everything, requestId: "one" }), added);
    const same = await mcp.addMcpServer({ server: everything });
    assert.deepEqual(same.connectTime, added.connectTime, "the same server again is no other connection");
    const changed = { ...everything, timeoutMs: 5n };
    await assert.rejects(mcp.addMcpServer({ server: changed }), refusedWith(Code.AlreadyExists));
    assert.equal(statSync(join(dataDir, "mcp-servers.json")).mode & 0o777, 0o600);

    const listed = await tools.listTools({});
    const echo = listed.tools.find(({ name }) => name === "mcp__everything__echo");
    assert.deepEqual([echo?.source, echo?.readOnly], ["mcp:everything", false]);

    const { sessionId } = await client.createSession({});
    const asked = readAlong(client.streamGenerate({ sessionId, messages: [user("go")] }));
    const [request] = await asked.requests(1);
    await client.respondToRequest({
      sessionId,
      responses: [{ requestId: request?.requestId ?? "", decision: "allow_once" }],
    });
    const outputs = (chunks: Awaited<ReturnType<typeof asked.end>>) =>
      chunks.flatMap(({ event }) => (event.case === "toolFinished" ? [event.value.result?.output] : []));
    assert.deepEqual(outputs(await asked.end()), ["Echo: over MCP"]);

    const ruled = await client.createSession({ permissions: { allow: ["mcp__everything__echo"] } });
    const allowed = readAlong(client.streamGenerate({ sessionId: ruled.sessionId, messages: [user("go")] }));
    assert.deepEqual(outputs(await allowed.end()), ["Echo: over MCP"]);

    await mcp.removeMcpServer({ name: "everything", requestId: "two" });
    await mcp.removeMcpServer({ name: "everything", requestId: "two" });
    assert.deepEqual((await mcp.listMcpServers({})).servers, []);
    assert.ok(!(await tools.listTools({})).tools.some(({ source }) => source.startsWith("mcp:")));
    await assert.rejects(mcp.removeMcpServer({ name: "everything" }), refusedWith(Code.NotFound));
    await assert.rejects(mcp.reconnectMcpServer({ name: "everything" }), refusedWith(Code.NotFound));
  });

  test("what was added is there after a restart, reachable or not; a damaged file is set aside", async (context) => {
    const first = await startMcp(context);
    const { state, error, transport, nextAttemptTime } = await first.mcp.addMcpServer({ server: remote });
    assert.deepEqual([state, error, nextAttemptTime === undefined], ["failed", "the server can't be reached", false]);
    assert.deepEqual(transport.value, {
      $typeName: "codeagent.v1.McpHttpStatus",
      url: "http://127.0.0.1:3/mcp",
      headerNames: ["X-Key"],
    });
    await first.app.close(0);
    const { dataDir } = first;
    const second = await startMcp(context, { dataDir });
    const { servers } = await second.mcp.listMcpServers({});
    assert.deepEqual(
      servers.map(({ name, source }) => [name, source]),
      [["remote", "api"]],
    );
    const again = await second.mcp.addMcpServer({ server: remote });
    assert.equal(again.source, "api", "with its headers it is the same server");
    await second.app.close(0);
    writeFileSync(join(dataDir, "mcp-servers.json"), "{ half");
    const third = await startMcp(context, { dataDir });
    assert.deepEqual((await third.mcp.listMcpServers({})).servers, []);
    assert.equal(readFileSync(join(dataDir, "mcp-servers.json.damaged"), "utf8"), "{ half");
    assert.match(JSON.stringify(third.reports), /it is set aside/);
  });

  test("a server of the configuration can be reconnected, and is removed there", async (context) => {
    const settings = JSON.stringify({
      mcp: { hostile: { command: process.execPath, args: [hostileServer], allowed_tools: ["lists"] } },
    });
    const { mcp, tools } = await startMcp(context, { settings });
    const { tools: listed } = await tools.listTools({});
    assert.ok(
      listed.some(({ name }) => name === "mcp__hostile__lists"),
      "the first list after the start has them",
    );
    const [before] = (await mcp.listMcpServers({})).servers;
    const after = await mcp.reconnectMcpServer({ name: "hostile" });
    assert.deepEqual([after.state, after.source, after.toolNames], ["ready", "config", ["mcp__hostile__lists"]]);
    assert.notDeepEqual(after.connectTime, before?.connectTime);
    await assert.rejects(mcp.removeMcpServer({ name: "hostile" }), refusedWith(Code.FailedPrecondition));
  });

  test("whoever waits no longer than this for the first connection is told that it is under way", async (context) => {
    const { mcp } = await startMcp(context);
    const added = await mcp.addMcpServer({ server: hostile("silent"), connectTimeoutMs: 1n });
    assert.deepEqual([added.state, added.toolCount], ["connecting", 0]);
    await mcp.removeMcpServer({ name: "hostile" });
  });

  test("what cannot be a server is refused, with the field that is wrong, and nothing is kept", async (context) => {
    const { mcp } = await startMcp(context);
    const stdio = (value: object): Server => ({ name: "x", transport: { case: "stdio", value } });
    const http = (value: object): Server => ({ name: "x", transport: { case: "http", value } });
    const table: [server: Server | undefined, field: string][] = [
      [undefined, "server"],
      [{ ...remote, name: "" }, "server.name"],
      [{ ...remote, name: "a__b" }, "server.name"],
      [{ ...remote, name: "ä" }, "server.name"],
      [{ ...remote, name: "x".repeat(65) }, "server.name"],
      [{ name: "x" }, "server.transport"],
      [stdio({}), "server.stdio.command"],
      [stdio({ command: "./here" }), "server.stdio.command"],
      [stdio({ command: "a\0b" }), "server.stdio.command"],
      [stdio({ command: "a", args: ["fine", "a\0b"] }), "server.stdio.args[1]"],
      [stdio({ command: "a", args: Array.from({ length: 300 }, () => "") }), "server.stdio.args"],
      [stdio({ command: "a", env: { "A B": "" } }), "server.stdio.env[A B]"],
      ...["LD_PRELOAD", "NODE_OPTIONS", "BASH_ENV", "PYTHONPATH", "PATH", "DYLD_INSERT_LIBRARIES"].map(
        (name): [Server, string] => [stdio({ command: "a", env: { [name]: "x" } }), `server.stdio.env[${name}]`],
      ),
      [http({}), "server.http.url"],
      [http({ url: "file:///etc/passwd" }), "server.http.url"],
      [http({ url: "http://example.org/" }), "server.http.url"],
      [http({ url: "http://127.0.0.1.example.org/" }), "server.http.url"],
      [http({ url: "https://user:never-shown@example.org/" }), "server.http.url"],
      [http({ url: "https://example.org", headers: { "a b": "" } }), "server.http.headers[a b]"],
      [http({ url: "https://example.org", headers: { Host: "x" } }), "server.http.headers[Host]"],
      [http({ url: "https://example.org", headers: { "X-Key": "never-shown\r\nB: c" } }), "server.http.headers[X-Key]"],
      [{ ...remote, timeoutMs: 0n }, "server.timeout_ms"],
      [{ ...remote, timeoutMs: 600_001n }, "server.timeout_ms"],
    ];
    for (const [server, field] of table)
      await assert.rejects(
        mcp.addMcpServer(server === undefined ? {} : { server }),
        refusedWith(Code.InvalidArgument, field),
        `${field} is named`,
      );
    const late = mcp.addMcpServer({ server: remote, connectTimeoutMs: 60_001n });
    await assert.rejects(late, refusedWith(Code.InvalidArgument, "connect_timeout_ms"));
    await assert.rejects(mcp.removeMcpServer({}), refusedWith(Code.InvalidArgument, "name"));
    await assert.rejects(mcp.reconnectMcpServer({}), refusedWith(Code.InvalidArgument, "name"));
    assert.deepEqual((await mcp.listMcpServers({})).servers, []);
  });

  test("addresses of private networks and of cloud metadata are not asked", async (context) => {
    const { mcp } = await startMcp(context);
    for (const [index, host] of ["169.254.169.254", "10.0.0.1", "[::ffff:192.168.0.1]"].entries()) {
      const server: Server = { name: `p${index}`, transport: { case: "http", value: { url: `https://${host}/mcp` } } };
      const { state, error } = await mcp.addMcpServer({ server });
      assert.equal(state, "failed");
      assert.match(error, /may not be reached; net\.allow can name it/);
    }
  });

  for (const [admin_api, headers, allowed] of [
    ["local", {}, true],
    ["local", { "x-forwarded-for": "203.0.113.9" }, false],
    ["on", { "x-forwarded-for": "203.0.113.9" }, true],
    ["off", {}, false],
  ] as const) {
    test(`admin_api ${admin_api}: a call ${"x-forwarded-for" in headers ? "by a proxy" : "from here"} is ${allowed ? "served" : "refused"}`, async (context) => {
      const { mcp } = await startMcp(context, { flags: { admin_api } });
      assert.deepEqual((await mcp.listMcpServers({}, { headers })).servers, [], "the list is for all");
      const calls = [
        () => mcp.addMcpServer({ server: remote }, { headers }),
        () => mcp.reconnectMcpServer({ name: "remote" }, { headers }),
        () => mcp.removeMcpServer({ name: "remote" }, { headers }),
      ];
      for (const call of calls) {
        if (allowed) await call();
        else await assert.rejects(call(), refusedWith(Code.PermissionDenied));
      }
    });
  }
});
