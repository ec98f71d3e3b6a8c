import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { status } from "@grpc/grpc-js";
import { fileContext } from "../support/file-context.ts";
import { startTestApp } from "../support/test-app.ts";
import { serverProgram } from "../tool/mcp/start-mcp-servers.ts";
import { at, type LegacyClient, type LegacyMessage, legacyClients } from "./legacy-client.ts";

const script = `
- when: { role: tool }
  text: that is all
- text: I call
  tool_calls: [{ name: mcp__everything__echo, arguments: { message: over MCP } }]
`;
const secret = "never-shown-1";
const everything: LegacyMessage = {
  name: "everything",
  transport: { stdio: { command: process.execPath, args: [serverProgram("everything")] } },
  enabled: true,
  env: { SECRET_OF_IT: secret },
};
/** Nobody listens there. */
const remote: LegacyMessage = {
  name: "remote",
  transport: { http: { url: "http://127.0.0.1:3/mcp?key=never-shown-2", headers: { "X-Key": "never-shown-3" } } },
  enabled: true,
};

describe("MCP servers of the earlier service", { timeout: 30_000 }, () => {
  const shared = fileContext();
  let app: Awaited<ReturnType<typeof startTestApp>>;
  let client: LegacyClient;

  before(async () => {
    app = await startTestApp(shared, { script });
    client = legacyClients(shared, app.app.url).L2;
  });

  const register = (config: LegacyMessage) => client.call("RegisterMcpServer", { config });
  const servers = async () => (await client.call("ListMcpServers"))["servers"];

  test("a server is registered, connected, used by a turn, disconnected and connected again", async () => {
    const registered = await register(everything);
    assert.equal(registered["success"], true);
    const connected = await client.call("ConnectMcpServer", { name: "everything" });
    const { tool_names: toolNames } = connected;
    assert.ok(Array.isArray(toolNames) && toolNames.includes("mcp__everything__echo"));
    assert.deepEqual([connected["success"], connected["message"]], [true, ""]);
    assert.deepEqual(await servers(), [
      { name: "everything", connected: true, enabled: true, tool_count: toolNames.length },
    ]);
    const { tools } = await client.call("GetMcpTools", { server_name: "everything" });
    const echo = Array.isArray(tools) ? tools.find((tool) => at(tool, "tool_name") === "echo") : undefined;
    assert.deepEqual(
      [at(echo, "full_name"), at(echo, "server_name"), JSON.parse(String(at(echo, "input_schema"))).type],
      ["mcp__everything__echo", "everything", "object"],
    );
    assert.ok(!JSON.stringify([registered, connected, await servers(), tools]).includes(secret));

    await client.call("CreateSession", { session_id: "s" });
    await client.call("AddPermissionRule", { session_id: "s", rule_type: "allow", rule: "mcp__everything__*" });
    await client.call("Generate", { session_id: "s", messages: [{ role: "user", content: "go" }] });
    const { messages } = await client.call("GetMessages", { session_id: "s" });
    assert.match(JSON.stringify(messages), /Echo: over MCP/);

    assert.deepEqual(await client.call("DisconnectMcpServer", { name: "everything" }), { success: true });
    assert.deepEqual(await servers(), [{ name: "everything", connected: false, enabled: false, tool_count: 0 }]);
    assert.deepEqual(await client.call("GetMcpTools"), { tools: [] });
    assert.deepEqual(await client.call("DisconnectMcpServer", { name: "everything" }), { success: true });
    const again = await client.call("ConnectMcpServer", { name: "everything" });
    assert.deepEqual(again["tool_names"], toolNames);
    await client.call("DisconnectMcpServer", { name: "everything" });
  });

  test("one that can't be reached is told so, and nothing of its secrets", async () => {
    assert.equal((await register(remote))["success"], true);
    const connected = await client.call("ConnectMcpServer", { name: "remote" });
    assert.equal(connected["success"], false);
    assert.match(String(connected["message"]), /remote is not connected: the server can't be reached/);
    const listed = await servers();
    const found = Array.isArray(listed) ? listed.find((server) => at(server, "name") === "remote") : undefined;
    assert.deepEqual(
      [at(found, "connected"), at(found, "enabled"), at(found, "error")],
      [false, true, "the server can't be reached"],
    );
    assert.ok(!JSON.stringify([connected, listed]).includes("never-shown"));
    const other = { ...remote, transport: { http: { url: "http://127.0.0.1:4/mcp" } } };
    await assert.rejects(register(other), { code: status.ALREADY_EXISTS });
    await client.call("DisconnectMcpServer", { name: "remote" });
  });

  test("one that is registered and not enabled waits for being connected", async () => {
    const idle = { ...remote, name: "idle", enabled: false };
    await register(idle);
    const listed = await servers();
    const found = Array.isArray(listed) ? listed.find((server) => at(server, "name") === "idle") : undefined;
    assert.deepEqual([at(found, "connected"), at(found, "enabled"), at(found, "error")], [false, false, undefined]);
    assert.equal((await client.call("ConnectMcpServer", { name: "idle" }))["success"], false);
    await client.call("DisconnectMcpServer", { name: "idle" });
  });

  test("without the right to administer the server nothing is registered, connected or disconnected", async (context) => {
    const closed = await startTestApp(context, { flags: { admin_api: "off" } });
    const stranger = legacyClients(context, closed.app.url).L2;
    for (const [rpc, request] of [
      ["RegisterMcpServer", { config: everything }],
      ["ConnectMcpServer", { name: "everything" }],
      ["DisconnectMcpServer", { name: "everything" }],
    ] as const)
      await assert.rejects(stranger.call(rpc, request), { code: status.PERMISSION_DENIED }, rpc);
    assert.deepEqual(await stranger.call("ListMcpServers"), { servers: [] });
  });

  const stdio = (more: LegacyMessage) => ({ config: { ...everything, name: "bad", ...more } });
  for (const [name, rpc, request, code] of [
    ["no description", "RegisterMcpServer", {}, status.INVALID_ARGUMENT],
    ["no transport", "RegisterMcpServer", { config: { name: "bad", enabled: true } }, status.INVALID_ARGUMENT],
    ["a bad name", "RegisterMcpServer", stdio({ name: "a__b" }), status.INVALID_ARGUMENT],
    ["a variable that loads code", "RegisterMcpServer", stdio({ env: { LD_PRELOAD: "x" } }), status.INVALID_ARGUMENT],
    [
      "variables of an address",
      "RegisterMcpServer",
      { config: { ...remote, env: { A: "b" } } },
      status.INVALID_ARGUMENT,
    ],
    ["a server there is not", "ConnectMcpServer", { name: "none" }, status.NOT_FOUND],
    ["no name", "ConnectMcpServer", {}, status.INVALID_ARGUMENT],
    ["a server there is not", "DisconnectMcpServer", { name: "none" }, status.NOT_FOUND],
    ["tools of a server there is not", "GetMcpTools", { server_name: "none" }, status.NOT_FOUND],
  ] as const)
    test(`${name} is refused: ${rpc}`, async () => {
      await assert.rejects(client.call(rpc, request), { code });
    });
});
