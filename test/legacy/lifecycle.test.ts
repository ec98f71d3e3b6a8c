import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { createClient } from "@connectrpc/connect";
import { status } from "@grpc/grpc-js";
import { ServerReflection } from "../../gen/grpc/reflection/v1/reflection_pb.ts";
import { version } from "../../src/version.ts";
import { fileContext } from "../support/file-context.ts";
import { startTestApp } from "../support/test-app.ts";
import { at, type Era, type LegacyClient, legacyClients } from "./legacy-client.ts";

describe("the life of a server, as clients of the earlier service see it", () => {
  const shared = fileContext();
  let started: Awaited<ReturnType<typeof startTestApp>>;
  let clients: Record<Era, LegacyClient>;
  let stops = 0;

  before(async () => {
    started = await startTestApp(shared, { requestStop: () => void stops++ });
    clients = legacyClients(shared, started.app.url);
  });

  test("HealthCheck", async () => {
    const answer = await clients.L1.call("HealthCheck");
    const details = { version, working_sessions: "0" };
    assert.deepEqual(answer, { status: "STATUS_HEALTHY", message: "the server is ready", details });
  });

  test("GetCapabilities", async () => {
    const answer = await clients.L2.call("GetCapabilities");
    assert.equal(at(answer, "info.name"), "codeagent");
    assert.equal(at(answer, "info.version"), version);
    const { tools } = answer;
    assert.ok(Array.isArray(tools));
    const search = tools.find((tool) => at(tool, "name") === "search_text");
    const names = at(search, "parameters");
    assert.ok(Array.isArray(names) && names.includes("pattern"), String(names));
    assert.equal(at(answer, "models.0.provider"), "scripted");
    assert.equal(at(answer, "models.0.model"), "test");
    assert.equal(at(answer, "limits.max_tools_per_request"), 64);
  });

  const rows = [
    { name: "nothing", request: {}, success: true, says: /^ready$/ },
    { name: "the server's own workspace", workspace: "", request: {}, success: true, says: /^ready$/ },
    { name: "a folder outside", request: { workspace: "/" }, success: false, says: /workspace/ },
    {
      name: "variables",
      request: { env: { A: "1", B: "2" } },
      success: true,
      says: /the 2 variables of env were not taken/,
    },
  ];
  for (const { name, workspace, request, success, says } of rows) {
    test(`Initialize: ${name}`, async () => {
      const whole = workspace === undefined ? request : { ...request, workspace: started.workspace };
      const answer = await clients.L2.call("Initialize", whole);
      assert.equal(answer["success"], success);
      assert.match(String(answer["message"]), says);
      assert.equal(at(answer, "info.name"), "codeagent");
    });
  }

  test("Shutdown is for who may administer", async () => {
    for (const field of ["x-forwarded-for", "forwarded", "via", "x-forwarded-host", "x-real-ip", "cf-connecting-ip"]) {
      const proxied = clients.L2.call("Shutdown", {}, { [field]: "192.0.2.7" });
      await assert.rejects(proxied, { code: status.PERMISSION_DENIED }, field);
    }
    assert.equal(stops, 0);
    const answer = await clients.L2.call("Shutdown");
    assert.equal(answer["success"], true);
    assert.equal(stops, 1);
  });

  test("reflection shows the service as its later clients know it, and no more", async () => {
    const reflection = createClient(ServerReflection, started.transport);
    const ask = async (symbol: string) => {
      const request = { messageRequest: { case: "fileContainingSymbol" as const, value: symbol } };
      async function* requests() {
        yield request;
      }
      for await (const { messageResponse } of reflection.serverReflectionInfo(requests())) return messageResponse.case;
      return undefined;
    };
    assert.equal(await ask("a3s.code.agent.v1.CodeAgentService.Generate"), "fileDescriptorResponse");
    assert.equal(await ask("a3s.code.agent.v1.Message.role"), "fileDescriptorResponse");
    assert.equal(await ask("codeagent.legacy.v1.Message"), "errorResponse");
  });
});

test("a server that is part of another program can't be ended by its clients", async (context) => {
  const { app } = await startTestApp(context);
  await assert.rejects(legacyClients(context, app.url).L2.call("Shutdown"), (error) => {
    assert.match(String(at(error, "details")), /part of another program/);
    return at(error, "code") === status.UNIMPLEMENTED;
  });
});

test("a server whose default model can't be asked tells what it can do", async (context) => {
  const { app } = await startTestApp(context, { flags: { model: "openai/gpt-5" } });
  const answer = await legacyClients(context, app.url).L2.call("GetCapabilities");
  assert.deepEqual(answer["models"], []);
});

test("a server that nobody may administer is not ended", async (context) => {
  const flags = { admin_api: "off" };
  const { app } = await startTestApp(context, { flags, requestStop: () => assert.fail("stopped") });
  await assert.rejects(legacyClients(context, app.url).L2.call("Shutdown"), { code: status.PERMISSION_DENIED });
});
