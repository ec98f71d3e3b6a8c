import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { status } from "@grpc/grpc-js";
import { fileContext } from "../support/file-context.ts";
import { startTestApp } from "../support/test-app.ts";
import { at, type LegacyClient, type LegacyMessage, legacyClients } from "./legacy-client.ts";
import { data, listenToEvents } from "./listen-events.ts";

const script = `
- when: { role: user, text: write }
  tool_calls: [{ name: write_file, arguments: { path: x.txt, content: x } }]
- when: { role: tool }
  text: I am done
- text: hello
`;
const rules = (...texts: string[]) => texts.map((rule) => ({ rule }));
const decision = (word: string) => `PERMISSION_DECISION_${word}`;

describe("permission rules of the earlier service", { timeout: 20_000 }, () => {
  const shared = fileContext();
  let app: Awaited<ReturnType<typeof startTestApp>>;
  let client: LegacyClient;
  let count = 0;

  before(async () => {
    app = await startTestApp(shared, { script });
    client = legacyClients(shared, app.app.url).L2;
  });

  const session = async (): Promise<string> => {
    const sessionId = `rules-${++count}`;
    await client.call("CreateSession", { session_id: sessionId });
    return sessionId;
  };
  const set = (sessionId: string, policy: LegacyMessage) =>
    client.call("SetPermissionPolicy", { session_id: sessionId, policy: { enabled: true, ...policy } });
  const policyOf = async (sessionId: string) =>
    (await client.call("GetPermissionPolicy", { session_id: sessionId }))["policy"];
  const check = async (sessionId: string, tool: string, given: object) => {
    const answer = await client.call("CheckPermission", {
      session_id: sessionId,
      tool_name: tool,
      arguments: JSON.stringify(given),
    });
    const found = answer["matching_rules"];
    const word = String(answer["decision"]).replace("PERMISSION_DECISION_", "");
    return [word, ...(Array.isArray(found) ? found.map(String) : [])].join(" ");
  };

  describe("what is set holds as CheckPermission says, in the order deny, ask, allow", () => {
    type Row = readonly [policy: LegacyMessage, tool: string, given: object, outcome: string];
    const git = { allow: rules("Bash(git status:*)", "Bash(npm test)"), deny: rules("bash(rm:*)") };
    const table: readonly Row[] = [
      [{}, "Read", { file_path: "README.md" }, "ALLOW"],
      [{}, "Write", { file_path: "a", content: "" }, "ASK"],
      [git, "Bash", { command: "git status --short" }, "ALLOW Bash(git status:*)"],
      [git, "run_command", { command: "git status --short" }, "ALLOW Bash(git status:*)"],
      [git, "Bash", { command: "git push" }, "ASK"],
      [git, "BASH", { command: "cd src; rm x" }, "DENY bash(rm:*)"],
      [{ allow: rules("Bash"), deny: rules("Bash(rm:*)") }, "Bash", { command: "rm x" }, "DENY Bash(rm:*)"],
      // There, allowing beats asking: kept where asking adds nothing, else the stricter holds.
      [{ allow: rules("Bash"), ask: rules("Bash") }, "Bash", { command: "ls" }, "ALLOW Bash"],
      [{ allow: rules("Bash(ls:*)"), ask: rules("Bash") }, "Bash", { command: "ls -l" }, "ALLOW Bash(ls:*)"],
      [{ allow: rules("Bash(ls:*)"), ask: rules("Bash") }, "Bash", { command: "touch x" }, "ASK"],
      [{ allow: rules("Bash"), ask: rules("Bash(sudo:*)") }, "Bash", { command: "sudo x" }, "ASK Bash(sudo:*) Bash"],
      [{ ask: rules("Read") }, "Read", { file_path: "README.md" }, "ASK Read"],
      [{ allow: rules("Write(src/**)") }, "Write", { file_path: "src/a.ts" }, "ALLOW Write(src/**)"],
      [{ allow: rules("Write(src/**)") }, "Write", { file_path: "src/../b.ts" }, "ASK"],
      [{ allow: rules("Write(*.md)") }, "Write", { file_path: "docs/a.md" }, "ASK"],
      [{ deny: rules("Edit") }, "apply_patch", { patch: "" }, "DENY Edit"],
      [{ deny: rules("Read(secrets/**)") }, "Grep", { pattern: "x", path: "secrets/a" }, "DENY Read(secrets/**)"],
      [{ deny: rules("LS(secrets/**)") }, "LS", { path: "secrets/a" }, "DENY LS(secrets/**)"],
      [{ deny: rules("Bash(*sudo*)") }, "Bash", { command: "ls" }, "ASK Bash(*sudo*)"],
      [{ allow: rules("mcp__github__list_*") }, "mcp__github__list_issues", {}, "ALLOW mcp__github__list_*"],
      [{ deny: rules("mcp__github") }, "mcp__github__delete", {}, "DENY mcp__github"],
      [{}, "mcp__github__delete", {}, "ASK"],
      [{ default_decision: decision("DENY") }, "Bash", { command: "ls" }, "DENY"],
      [{ default_decision: decision("DENY") }, "Read", { file_path: "a" }, "DENY Read"],
      [{ default_decision: decision("DENY"), allow: rules("Read") }, "Read", { file_path: "a" }, "ALLOW Read"],
      [{ default_decision: decision("DENY"), allow: rules("Read") }, "Glob", { pattern: "*" }, "DENY Glob"],
      [{ default_decision: decision("DENY"), ask: rules("Bash") }, "Bash", { command: "ls" }, "ASK Bash"],
      [{ enabled: false, allow: rules("Write"), deny: rules("Read") }, "Write", { file_path: "a" }, "ASK"],
      [{ enabled: false, allow: rules("Write"), deny: rules("Read") }, "Read", { file_path: "a" }, "ALLOW"],
    ];
    for (const [policy, tool, given, outcome] of table)
      test(`${JSON.stringify(policy)}: ${tool} ${JSON.stringify(given)}`, async () => {
        const sessionId = await session();
        await set(sessionId, policy);
        assert.equal(await check(sessionId, tool, given), outcome);
      });
  });

  test("GetPermissionPolicy tells what was set, rule by rule as it was written", async () => {
    const sessionId = await session();
    const policy = {
      deny: rules("Bash(rm -rf*)", "READ(secrets/**)"),
      allow: rules("Bash(cargo *)", "mcp__pencil__*", "Edit"),
      ask: rules("Write(**/*.ts)"),
      default_decision: decision("DENY"),
      enabled: true,
    };
    const answer = await set(sessionId, policy);
    assert.deepEqual([answer["success"], answer["policy"]], [true, policy]);
    assert.deepEqual(await policyOf(sessionId), policy);
    const fresh = { deny: [], allow: [], ask: [], default_decision: decision("ASK"), enabled: true };
    await set(sessionId, {});
    assert.deepEqual(await policyOf(sessionId), fresh);
    assert.equal(await check(sessionId, "Read", { file_path: "a" }), "ALLOW");
    assert.deepEqual(await policyOf(await session()), fresh);
  });

  test("it stays beside what else was said of the session", async () => {
    const sessionId = await session();
    await app.client.updateSession({
      sessionId,
      permissions: { mode: "accept-edits", allow: ["run_command(make)"], deny: ["fetch_url"] },
    });
    await set(sessionId, { allow: rules("Bash(ls:*)"), default_decision: decision("DENY") });
    await client.call("SetConfirmationPolicy", {
      session_id: sessionId,
      policy: { enabled: true, auto_approve_tools: ["Write"], default_timeout_ms: 5000 },
    });
    const allowed = ["Bash(ls:*)", "Bash(make)"];
    assert.deepEqual(at(await policyOf(sessionId), "allow"), rules(...allowed));
    assert.equal(await check(sessionId, "Bash", { command: "make" }), "ALLOW Bash(make)");
    assert.equal(await check(sessionId, "Write", { file_path: "a" }), "ALLOW Write");
    assert.equal(await check(sessionId, "WebFetch", { url: "https://a.example/" }), "DENY WebFetch");
    assert.equal(await check(sessionId, "Bash", { command: "touch a" }), "DENY");
    await set(sessionId, { enabled: false });
    await client.call("SetConfirmationPolicy", { session_id: sessionId, policy: {} });
    const { permissions, approvalTimeoutMs } = await app.client.getSession({ sessionId });
    assert.deepEqual(
      [permissions?.mode, permissions?.allow, permissions?.ask, permissions?.deny, approvalTimeoutMs],
      ["accept-edits", ["run_command(make)"], [], ["fetch_url"], undefined],
    );
  });

  test("to allow by default is the mode bypass where there is a sandbox, and to ask for confirmation is more", async (context) => {
    const sessionId = await session();
    await set(sessionId, { default_decision: decision("ALLOW") });
    assert.equal(at(await policyOf(sessionId), "default_decision"), decision("ALLOW"));
    assert.equal(await check(sessionId, "Bash", { command: "touch a" }), "ALLOW");
    const { policy: confirmation } = await client.call("GetConfirmationPolicy", { session_id: sessionId });
    assert.equal(at(confirmation, "enabled"), false);
    await client.call("SetConfirmationPolicy", { session_id: sessionId, policy: { enabled: true } });
    assert.equal(await check(sessionId, "Bash", { command: "touch a" }), "ASK");
    assert.equal(at(await policyOf(sessionId), "default_decision"), decision("ASK"));
    const open = await startTestApp(context, { flags: { sandbox: "none" } });
    const other = legacyClients(context, open.app.url).L2;
    await other.call("CreateSession", { session_id: "open" });
    const policy = { enabled: true, default_decision: decision("ALLOW") };
    await assert.rejects(other.call("SetPermissionPolicy", { session_id: "open", policy }), {
      code: status.FAILED_PRECONDITION,
    });
  });

  test("a rule that is added holds, in turns too", async () => {
    const sessionId = await session();
    const add = (ruleType: string, rule: string) =>
      client.call("AddPermissionRule", { session_id: sessionId, rule_type: ruleType, rule });
    assert.deepEqual(await add("Allow", "Bash(ls:*)"), { success: true, error: "" });
    assert.deepEqual(await add("deny", "Write(x*)"), { success: true, error: "" });
    const bad = await add("deny", "Bash(");
    assert.deepEqual([bad["success"], /rule/.test(String(bad["error"]))], [false, true]);
    await assert.rejects(add("maybe", "Bash"), { code: status.INVALID_ARGUMENT });
    assert.deepEqual(await policyOf(sessionId), {
      deny: rules("Write(x*)"),
      allow: rules("Bash(ls:*)"),
      ask: [],
      default_decision: decision("ASK"),
      enabled: true,
    });
    const events = await listenToEvents(client, { session_id: sessionId });
    await client.call("Generate", { session_id: sessionId, messages: [{ role: "user", content: "write it" }] });
    const denied = await events.next("PERMISSION_DENIED");
    assert.equal(data(denied, "tool_name"), "write_file");
    assert.equal(data(await events.next("TOOL_COMPLETED"), "success"), "false");
    events.cancel();
    await set(sessionId, { enabled: false, allow: rules("Bash") });
    const idle = await add("allow", "Write");
    assert.deepEqual([idle["success"], /not enabled/.test(String(idle["error"]))], [false, true]);
  });

  describe("bad calls", () => {
    const many = rules(...Array.from({ length: 1001 }, (_, index) => `tool_${index}`));
    const rows: readonly [name: string, rpc: string, request: LegacyMessage, code: number][] = [
      ["no such session", "SetPermissionPolicy", { session_id: "none", policy: {} }, status.NOT_FOUND],
      ["no session", "GetPermissionPolicy", { session_id: "" }, status.INVALID_ARGUMENT],
      ["no policy", "SetPermissionPolicy", {}, status.INVALID_ARGUMENT],
      ["a rule that is none", "SetPermissionPolicy", { policy: { allow: rules("a b") } }, status.INVALID_ARGUMENT],
      ["too many", "SetPermissionPolicy", { policy: { enabled: true, allow: many } }, status.INVALID_ARGUMENT],
      ["no JSON", "CheckPermission", { tool_name: "Bash", arguments: "{" }, status.INVALID_ARGUMENT],
      ["no tool", "CheckPermission", { arguments: "{}" }, status.INVALID_ARGUMENT],
    ];
    for (const [name, rpc, request, code] of rows)
      test(name, async () => {
        await assert.rejects(client.call(rpc, { session_id: await session(), ...request }), { code });
      });
  });
});
