import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { ToolService } from "../../gen/codeagent/v1/tool_service_pb.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";
import { startTestApp } from "../support/test-app.ts";

const flags = {
  "permissions.mode": "accept-edits",
  "permissions.allow": "run_command(git status:*), run_command(wc:*)",
  "permissions.deny": ["run_command(rm:*)"],
};

describe("CheckPermission", () => {
  test("explains each part of a command by its own rule", async (context) => {
    const { client, transport } = await startTestApp(context, { flags });
    const tools = createClient(ToolService, transport);
    const { sessionId } = await client.createSession({
      permissions: { mode: "read-only", allow: ["run_command(ls:*)", "run_command(rm:*)"] },
    });
    const check = (command: string) =>
      tools.checkPermission({ sessionId, name: "run_command", arguments: JSON.stringify({ command }) });

    const { findings, ...whole } = await check("git status && ls | bash -c 'rm x'; make > out");
    assert.deepEqual(
      [whole.decision, whole.rule, whole.ruleSource, whole.mode],
      ["deny", "run_command(rm:*)", "server", "read-only"],
    );
    assert.equal(whole.explanation, "the rule run_command(rm:*) of the server denies it");
    assert.deepEqual(
      findings.map(({ subject, decision, rule, ruleSource }) => [subject, decision, rule, ruleSource]),
      [
        ["git status", "allow", "run_command(git status:*)", "server"],
        ["ls", "allow", "run_command(ls:*)", "session"],
        ["rm x", "deny", "run_command(rm:*)", "server"],
        ["make > out", "deny", "", "mode"],
        ["out", "deny", "", "mode"],
      ],
    );
    assert.equal((await check("git status; ls")).decision, "allow");
  });

  test("says what of a rule's command goes too far", async (context) => {
    const { transport } = await startTestApp(context, { flags });
    const tools = createClient(ToolService, transport);
    const given = { name: "run_command", arguments: JSON.stringify({ command: "git status --output=x" }) };
    const { decision, explanation, mode } = await tools.checkPermission(given);
    assert.deepEqual([decision, mode], ["ask", "accept-edits"]);
    assert.match(explanation, /a rule allows git, but --output=x gives it more power/);
  });

  test("without a session the server's mode and rules hold, for ExecuteTool too", async (context) => {
    const ran: string[] = [];
    const { transport } = await startTestApp(context, {
      functions: [changing(ran)],
      flags: { ...flags, "permissions.allow": "change" },
    });
    const tools = createClient(ToolService, transport);
    const arguments_ = JSON.stringify({ path: "a" });
    const checked = await tools.checkPermission({ name: "change", arguments: arguments_ });
    assert.deepEqual([checked.decision, checked.ruleSource, checked.mode], ["allow", "server", "accept-edits"]);
    await tools.executeTool({ name: "change", arguments: arguments_ });
    assert.deepEqual(ran, ["change"]);
    const command = JSON.stringify({ command: "ls; /bin/rm x" });
    await assert.rejects(tools.executeTool({ name: "run_command", arguments: command }), (error) => {
      const { code, rawMessage } = ConnectError.from(error);
      assert.deepEqual(
        [code, /denied by the policy.*run_command\(rm:\*\)/.test(rawMessage)],
        [Code.PermissionDenied, true],
      );
      return true;
    });
  });
});

test("a rule of the server that is none ends the start with a sentence", async (context) => {
  for (const [rule, why] of [
    ["run_command(", /permissions\.deny .*the rule run_command\( is no rule/],
    ["run_command(a > b:*)", /plain words of one command/],
  ] as const) {
    await assert.rejects(startTestApp(context, { flags: { "permissions.deny": [rule] } }), why);
  }
});

function changing(ran: string[]): FunctionProvider {
  return {
    source: "test",
    list: async () => [
      {
        name: "change",
        description: "changes",
        parameters: '{"type":"object","properties":{"path":{"type":"string"}}}',
        source: "test",
        readOnly: false,
        timeoutMs: 1000,
      },
    ],
    async call({ name }) {
      ran.push(name);
      return { success: true, output: "done" };
    },
    close: async () => {},
  };
}

test("a search leaves out files that rules keep from being read, in a turn and outside", async (context) => {
  const script =
    "- { when: { role: tool }, text: done }\n- tool_calls: [{ name: search_text, arguments: { pattern: word } }]\n";
  const { client, transport } = await startTestApp(context, {
    script,
    flags: { "permissions.deny": ["read_file(**/.env)"] },
    files: { "a.txt": "a word\n", "sub/.env": "a secret word\n", "sub/private.txt": "another word\n" },
  });
  const { sessionId } = await client.createSession({ permissions: { ask: ["read_file(sub/private.txt)"] } });
  const tools = createClient(ToolService, transport);
  const given = { sessionId, name: "search_text", arguments: '{"pattern":"word"}' };
  const { result } = await tools.executeTool(given);
  await client.generate({ sessionId, messages: [{ role: "user", contentType: { case: "content", value: "go" } }] });
  const { messages } = await client.listMessages({ sessionId });
  const told = String(messages.find(({ role }) => role === "tool")?.contentType.value);
  for (const output of [result?.output ?? "", told]) {
    assert.match(output, /^a\.txt:1: ?a word$/m);
    assert.ok(!output.includes("secret") && !output.includes("another"), output);
    assert.match(output, /left out, since rules keep them from being read: 2 of the files/);
  }
  const anybody = await tools.executeTool({ ...given, sessionId: "" });
  assert.match(anybody.result?.output ?? "", /sub\/private\.txt:1:/);
});
