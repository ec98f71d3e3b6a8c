import assert from "node:assert/strict";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { status } from "@grpc/grpc-js";
import { skillText, toolsText, writeFiles } from "../skill/write-files.ts";
import { fileContext } from "../support/file-context.ts";
import { startTestApp } from "../support/test-app.ts";
import { at, type LegacyClient, type LegacyMessage, legacyClients } from "./legacy-client.ts";
import { listenToEvents } from "./listen-events.ts";

const script = `
- when: { role: user, text: run }
  tool_calls: [{ name: run_one, arguments: {} }]
- when: { role: tool }
  text: I am done
- text: hello
`;
const more = `version: 1.2\nlicense: MIT\nallowed-tools: [run_one, "read_file(docs/**)"]\ndisable-model-invocation: true\n`;

describe("skills of the earlier service", { timeout: 20_000 }, () => {
  const shared = fileContext();
  let app: Awaited<ReturnType<typeof startTestApp>>;
  let client: LegacyClient;

  before(async () => {
    app = await startTestApp(shared, {
      script,
      files: { ".codeagent/skills/theirs/SKILL.md": skillText("theirs") },
    });
    await writeFiles(join(app.dataDir, "skills"), {
      "one/SKILL.md": skillText("one", `${more}${toolsText({ run_one: "run.sh" })}`),
      "one/run.sh": "echo from the script\n",
      "broken/SKILL.md": "---\nname: broken\n---\n",
    });
    client = legacyClients(shared, app.app.url).L2;
    for (const session_id of ["s", "other"]) await client.call("CreateSession", { session_id });
  });

  const of = (rpc: string, skillName: string, rest: LegacyMessage = {}) =>
    client.call(rpc, { session_id: "s", skill_name: skillName, ...rest });
  const loaded = async (sessionId: string) =>
    at(await client.call("ListSkills", { session_id: sessionId }), "skills.0.metadata.loaded");

  test("those that work are listed, with their tools", async () => {
    const { skills } = await client.call("ListSkills");
    assert.deepEqual(skills, [
      {
        name: "one",
        description: "It does one",
        tools: ["run_one"],
        metadata: { version: "1.2", license: "MIT", author: "", scope: "user", state: "ready" },
      },
      {
        name: "theirs",
        description: "It does theirs",
        tools: [],
        metadata: { version: "", license: "", author: "", scope: "workspace", state: "ready" },
      },
    ]);
    assert.equal(await loaded("s"), "true");
  });

  test("their texts are told, of all or of one", async () => {
    const { skills } = await client.call("GetClaudeCodeSkills", { name: "one" });
    const [one, ...others] = Array.isArray(skills) ? skills : [];
    assert.deepEqual(others, []);
    assert.deepEqual(
      [at(one, "name"), at(one, "content"), at(one, "allowed_tools"), at(one, "disable_model_invocation")],
      ["one", "How to one.\n", "run_one, read_file(docs/**)", true],
    );
    assert.equal(at(await client.call("GetClaudeCodeSkills"), "skills.length"), 2);
  });

  test("what is unloaded can't be called in this session, and can when it is loaded again", async () => {
    const events = await listenToEvents(client, { session_id: "s" });
    await client.call("AddPermissionRule", { session_id: "s", rule_type: "allow", rule: "run_one" });
    const run = async () => {
      await client.call("Generate", { session_id: "s", messages: [{ role: "user", content: "run it" }] });
      const seen = events.seen.filter((event) => event["type"] === "EVENT_TYPE_TOOL_COMPLETED");
      return at(seen.at(-1), "data");
    };
    assert.match(String(at(await run(), "output")), /from the script/);
    assert.deepEqual(await of("UnloadSkill", "one"), { success: true, removed_tools: ["run_one"] });
    assert.deepEqual([await loaded("s"), await loaded("other")], ["false", "true"]);
    assert.match(String(at(await run(), "error")), /denied by the policy: the rule skill:one denies it/);
    await events.next("PERMISSION_DENIED");
    assert.deepEqual(await of("LoadSkill", "one"), { success: true, tool_names: ["run_one"] });
    assert.match(String(at(await run(), "output")), /from the script/);
    assert.equal(await loaded("s"), "true");
    events.cancel();
  });

  test("to load what was never unloaded says nothing of the session's permissions", async () => {
    await client.call("LoadSkill", { session_id: "other", skill_name: "one" });
    const { permissions } = await app.client.getSession({ sessionId: "other" });
    assert.equal(permissions, undefined);
  });

  test("what is unloaded stays so when the session is configured anew", async () => {
    await client.call("CreateSession", { session_id: "kept" });
    await client.call("UnloadSkill", { session_id: "kept", skill_name: "one" });
    await client.call("ConfigureSession", { session_id: "kept", config: { name: "new", auto_compact: true } });
    assert.equal(await loaded("kept"), "false");
  });

  for (const [name, rpc, request, code] of [
    ["a skill's text", "LoadSkill", { skill_name: "one", skill_content: skillText("one") }, status.UNIMPLEMENTED],
    ["a skill there is not", "LoadSkill", { skill_name: "none" }, status.NOT_FOUND],
    ["one that is broken", "LoadSkill", { skill_name: "broken" }, status.NOT_FOUND],
    ["a path", "UnloadSkill", { skill_name: "../one" }, status.NOT_FOUND],
    ["no name", "UnloadSkill", {}, status.INVALID_ARGUMENT],
    ["no such session", "LoadSkill", { session_id: "none", skill_name: "one" }, status.NOT_FOUND],
    ["skills of no session", "ListSkills", { session_id: "none" }, status.NOT_FOUND],
    ["a text there is not", "GetClaudeCodeSkills", { name: "none" }, status.NOT_FOUND],
  ] as const)
    test(`${name} is refused: ${rpc}`, async () => {
      await assert.rejects(client.call(rpc, { session_id: "s", ...request }), { code });
    });
});
