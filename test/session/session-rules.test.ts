import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { ToolService } from "../../gen/codeagent/v1/tool_service_pb.ts";
import { temporaryFolder, writeFiles } from "../skill/write-files.ts";
import { startTestApp, type TestAppOptions, user } from "../support/test-app.ts";

const note = (name: string) => `---
name: ${name}
description: Keeps notes.
allowed-tools: write_file(notes/**)
---
Write notes into notes/.
`;

const script = `
- { when: { role: tool }, text: done }
- { when: { text: load }, tool_calls: [{ name: load_skill, arguments: { name: notes } }] }
- { text: nothing }
`;

async function startWithSkill(context: TestContext, where: "user" | "workspace", flags: TestAppOptions["flags"] = {}) {
  const folder = await temporaryFolder(context);
  if (where === "user") await writeFiles(folder, { "notes/SKILL.md": note("notes") });
  const files = where === "workspace" ? { ".codeagent/skills/notes/SKILL.md": note("notes") } : {};
  const sample = await startTestApp(context, { script, files, flags: { skills_dir: [folder], ...flags } });
  const { client, transport } = sample;
  const tools = createClient(ToolService, transport);
  return {
    ...sample,
    async load(sessionId: string) {
      const { finishReason } = await client.generate({ sessionId, messages: [user("load")] });
      assert.equal(finishReason, "stop");
    },
    async decisionOn(sessionId: string, path: string) {
      const given = { sessionId, name: "write_file", arguments: JSON.stringify({ path, content: "x" }) };
      const { decision, ruleSource } = await tools.checkPermission(given);
      return `${decision} ${ruleSource}`;
    },
  };
}

describe("what a loaded skill may use", () => {
  test("a skill of the operator's allows what it names, once it is loaded, in that session", async (context) => {
    const { client, load, decisionOn } = await startWithSkill(context, "user");
    const { sessionId } = await client.createSession({});
    assert.equal(await decisionOn(sessionId, "notes/a.md"), "ask mode");
    await load(sessionId);
    assert.equal(await decisionOn(sessionId, "notes/a.md"), "allow skill");
    assert.equal(await decisionOn(sessionId, "other.md"), "ask mode");
    const { sessionId: other } = await client.createSession({});
    assert.equal(await decisionOn(other, "notes/a.md"), "ask mode");
    const forked = await client.forkSession({ sessionId });
    assert.equal(await decisionOn(forked.sessionId, "notes/a.md"), "allow skill");
  });

  test("rules that deny or ask stand above it", async (context) => {
    const { client, load, decisionOn } = await startWithSkill(context, "user", {
      "permissions.ask": ["write_file(notes/x*)"],
    });
    const { sessionId } = await client.createSession({ permissions: { deny: ["write_file(notes/private/**)"] } });
    await load(sessionId);
    assert.equal(await decisionOn(sessionId, "notes/a.md"), "allow skill");
    assert.equal(await decisionOn(sessionId, "notes/private/a.md"), "deny session");
    assert.equal(await decisionOn(sessionId, "notes/x.md"), "ask server");
  });

  test("a skill of the workspace allows nothing", async (context) => {
    const { client, load, decisionOn } = await startWithSkill(context, "workspace");
    const { sessionId } = await client.createSession({});
    await load(sessionId);
    assert.equal(await decisionOn(sessionId, "notes/a.md"), "ask mode");
  });
});

test("permissions that name no mode have the server's", async (context) => {
  const { client } = await startTestApp(context, { flags: { "permissions.mode": "accept-edits" } });
  const { permissions, sessionId } = await client.createSession({ permissions: { deny: ["fetch_url"] } });
  assert.deepEqual([permissions?.mode, permissions?.deny], ["accept-edits", ["fetch_url"]]);
  const updated = await client.updateSession({ sessionId, permissions: { mode: "read-only" } });
  assert.equal(updated.permissions?.mode, "read-only");
});

test("the mode bypass is refused where no sandbox is in force", async (context) => {
  const { client } = await startTestApp(context, { flags: { sandbox: "none" } });
  const isRefused = (error: unknown) =>
    error instanceof ConnectError &&
    error.code === Code.FailedPrecondition &&
    /bypass needs a sandbox/.test(error.rawMessage);
  await assert.rejects(client.createSession({ permissions: { mode: "bypass" } }), isRefused);
  const { sessionId } = await client.createSession({ permissions: { mode: "accept-edits" } });
  await assert.rejects(client.updateSession({ sessionId, permissions: { mode: "bypass" } }), isRefused);
  assert.equal((await client.getSession({ sessionId })).permissions?.mode, "accept-edits");
  assert.equal((await client.getCapabilities({})).sandbox, "none");
  await assert.rejects(
    startTestApp(context, { flags: { sandbox: "none", "permissions.mode": "bypass" } }),
    /bypass needs a sandbox/,
  );
});

test("programs that reach the network can't answer for people", async (context) => {
  const flags = { sandbox_network: true };
  await assert.rejects(startTestApp(context, { flags }), /sandbox_network: .* set token_file/);
  await startTestApp(context, { flags: { ...flags, token: "a token of sixteen bytes" } });
});

test("what the server is configured by is read by no agent", async (context) => {
  const { client, transport } = await startTestApp(context, {
    settings: 'system_prompt: "a SECRET prompt"\n',
    files: { "own.txt": "no SECRET\n" },
    flags: { workspace: "." },
  });
  const { sessionId } = await client.createSession({ permissions: { mode: "bypass", allow: ["read_file"] } });
  const tools = createClient(ToolService, transport);
  const execute = async (name: string, given: object) => {
    const { result } = await tools.executeTool({ sessionId, name, arguments: JSON.stringify(given) });
    return `${result?.output} ${result?.error}`;
  };
  await assert.rejects(execute("read_file", { path: "codeagent.yaml" }), /denies it/);
  const found = await execute("search_text", { pattern: "SECRET" });
  assert.match(found, /workspace\/own\.txt:1: ?no SECRET/);
  assert.ok(!found.includes("prompt"), found);
  const seen = await execute("run_command", { command: "cat c*.yaml workspace/own.txt; ls" });
  assert.match(seen, /no SECRET/);
  assert.ok(!seen.includes("prompt") && seen.includes("codeagent.yaml"), seen);
});
