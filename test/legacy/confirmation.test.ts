import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { status } from "@grpc/grpc-js";
import { skillText, toolsText } from "../skill/write-files.ts";
import { fileContext } from "../support/file-context.ts";
import { startTestApp } from "../support/test-app.ts";
import { type LegacyClient, type LegacyMessage, legacyClients } from "./legacy-client.ts";
import { data, listenToEvents } from "./listen-events.ts";

const script = `
- when: { role: user, text: "script" }
  tool_calls: [{ name: run_one, arguments: {} }]
- when: { role: user, text: "ask me" }
  tool_calls: [{ name: ask_user, arguments: { question: "Which one?" } }]
- when: { role: user, text: write alpha }
  tool_calls: [{ name: write_file, arguments: { path: alpha.txt, content: a } }]
- when: { role: user, text: write beta }
  tool_calls: [{ name: write_file, arguments: { path: beta.txt, content: b } }]
- when: { role: user, text: write gamma }
  tool_calls: [{ name: write_file, arguments: { path: gamma.txt, content: c } }]
- when: { role: user, text: write delta }
  tool_calls: [{ name: write_file, arguments: { path: delta.txt, content: d } }]
- when: { role: user, text: read }
  tool_calls: [{ name: read_file, arguments: { path: README.md } }]
- when: { role: tool }
  text: I am done
- text: hello
`;

describe("approvals of the earlier service", { timeout: 20_000 }, () => {
  const shared = fileContext();
  let app: Awaited<ReturnType<typeof startTestApp>>;
  let client: LegacyClient;
  let count = 0;

  before(async () => {
    app = await startTestApp(shared, {
      script,
      files: {
        ".codeagent/skills/one/SKILL.md": skillText("one", toolsText({ run_one: "run.sh" })),
        ".codeagent/skills/one/run.sh": "echo one\n",
      },
    });
    client = legacyClients(shared, app.app.url).L2;
  });

  const session = async (): Promise<string> => {
    const sessionId = `confirm-${++count}`;
    await client.call("CreateSession", { session_id: sessionId });
    return sessionId;
  };
  const generate = (sessionId: string, content: string) =>
    client.call("Generate", { session_id: sessionId, messages: [{ role: "user", content }] });
  const confirm = (sessionId: string, toolId: string, approved: boolean, reason?: string) =>
    client.call("ConfirmToolExecution", {
      session_id: sessionId,
      tool_id: toolId,
      approved,
      ...(reason === undefined ? {} : { reason }),
    });
  const setPolicy = (sessionId: string, policy: LegacyMessage) =>
    client.call("SetConfirmationPolicy", { session_id: sessionId, policy });
  const toldToModel = async (sessionId: string) =>
    JSON.stringify((await client.call("GetMessages", { session_id: sessionId }))["messages"]);

  test("what is approved by its request's id runs, once; answering again says what was answered", async () => {
    const sessionId = await session();
    const events = await listenToEvents(client, { session_id: sessionId });
    const turn = generate(sessionId, "write alpha");
    const asked = await events.next("CONFIRMATION_REQUIRED");
    assert.deepEqual(
      [data(asked, "tool_name"), JSON.parse(data(asked, "arguments")), data(asked, "tool_id")],
      ["write_file", { path: "alpha.txt", content: "a" }, data(asked, "request_id")],
    );
    assert.ok(!existsSync(join(app.workspace, "alpha.txt")));
    assert.deepEqual(await confirm(sessionId, data(asked, "tool_id"), true), { success: true, error: "" });
    await turn;
    assert.ok(existsSync(join(app.workspace, "alpha.txt")));
    assert.equal(data(await events.next("CONFIRMATION_RECEIVED"), "approved"), "true");
    for (const id of ["request_id", "tool_call_id"]) {
      const again = await confirm(sessionId, data(asked, id), false);
      assert.equal(again["success"], false);
      assert.match(String(again["error"]), /answered allow_once by local before/);
    }
    events.cancel();
  });

  test("what is denied by its call's id does not run, and the model reads the reason", async () => {
    const sessionId = await session();
    const events = await listenToEvents(client, { session_id: sessionId });
    const turn = generate(sessionId, "write beta");
    const asked = await events.next("CONFIRMATION_REQUIRED");
    const answer = await confirm(sessionId, data(asked, "tool_call_id"), false, "beta is not wanted");
    assert.deepEqual(answer, { success: true, error: "" });
    await turn;
    assert.ok(!existsSync(join(app.workspace, "beta.txt")));
    assert.match(await toldToModel(sessionId), /beta is not wanted/);
    events.cancel();
  });

  test("a timeout denies, also where the policy asks to approve then", async () => {
    const sessionId = await session();
    const events = await listenToEvents(client, { session_id: sessionId });
    const set = await setPolicy(sessionId, {
      enabled: true,
      default_timeout_ms: 60,
      timeout_action: "TIMEOUT_ACTION_AUTO_APPROVE",
    });
    assert.deepEqual(set["policy"], {
      enabled: true,
      auto_approve_tools: [],
      require_confirm_tools: [],
      default_timeout_ms: "60",
      timeout_action: "TIMEOUT_ACTION_REJECT",
      yolo_lanes: [],
    });
    await generate(sessionId, "write gamma");
    assert.ok(!existsSync(join(app.workspace, "gamma.txt")));
    const late = await events.next("CONFIRMATION_TIMEOUT");
    const answer = await confirm(sessionId, data(late, "request_id"), true);
    assert.equal(answer["success"], false);
    assert.match(String(answer["error"]), /expired/);
    events.cancel();
  });

  test("tools named in the policy are approved or asked for; one that is not enabled approves nothing else", async () => {
    const sessionId = await session();
    const events = await listenToEvents(client, { session_id: sessionId });
    const policy = {
      enabled: false,
      auto_approve_tools: ["WRITE"],
      require_confirm_tools: ["Read"],
      yolo_lanes: ["SESSION_LANE_EXECUTE", "SESSION_LANE_QUERY"],
    };
    const set = await setPolicy(sessionId, policy);
    const { policy: found } = await client.call("GetConfirmationPolicy", { session_id: sessionId });
    assert.deepEqual(set["policy"], found);
    assert.deepEqual(found, {
      enabled: true,
      auto_approve_tools: ["WRITE"],
      require_confirm_tools: ["Read"],
      default_timeout_ms: "300000",
      timeout_action: "TIMEOUT_ACTION_REJECT",
      yolo_lanes: [],
    });
    await generate(sessionId, "write delta");
    assert.ok(existsSync(join(app.workspace, "delta.txt")));
    assert.ok(!events.types().includes("CONFIRMATION_REQUIRED"));
    const turn = generate(sessionId, "read it");
    const asked = await events.next("CONFIRMATION_REQUIRED");
    assert.equal(data(asked, "tool_name"), "read_file");
    await confirm(sessionId, data(asked, "tool_id"), false);
    await turn;
    events.cancel();
  });

  test("what changed after it was approved is asked for again, and the call's id no longer says what is meant", async () => {
    const sessionId = await session();
    const events = await listenToEvents(client, { session_id: sessionId });
    const turn = generate(sessionId, "run the script");
    const first = await events.next("CONFIRMATION_REQUIRED");
    await writeFile(join(app.workspace, ".codeagent/skills/one/run.sh"), "echo two\n");
    assert.equal((await confirm(sessionId, data(first, "tool_call_id"), true))["success"], true);
    const second = await events.next("CONFIRMATION_REQUIRED", 2);
    assert.equal(data(second, "tool_call_id"), data(first, "tool_call_id"));
    const refused = await confirm(sessionId, data(first, "tool_call_id"), true);
    assert.equal(refused["success"], false);
    assert.match(String(refused["error"]), new RegExp(data(second, "request_id")));
    assert.equal((await confirm(sessionId, data(second, "request_id"), false))["success"], true);
    await turn;
    events.cancel();
  });

  test("a question is answered by the reason", async () => {
    const sessionId = await session();
    const events = await listenToEvents(client, { session_id: sessionId });
    const turn = generate(sessionId, "ask me");
    const asked = await events.next("CONFIRMATION_REQUIRED");
    assert.equal(data(asked, "kind"), "question");
    const bare = await confirm(sessionId, data(asked, "tool_id"), true);
    assert.deepEqual([bare["success"], /question/.test(String(bare["error"]))], [false, true]);
    assert.equal((await confirm(sessionId, data(asked, "tool_id"), true, "the blue one"))["success"], true);
    await turn;
    assert.match(await toldToModel(sessionId), /the blue one/);
    events.cancel();
  });

  describe("bad calls", () => {
    const rows: readonly [name: string, rpc: string, request: LegacyMessage, code: number][] = [
      ["nobody waits for it", "ConfirmToolExecution", { tool_id: "req_none", approved: true }, status.NOT_FOUND],
      ["no id", "ConfirmToolExecution", { approved: true }, status.INVALID_ARGUMENT],
      ["another session", "ConfirmToolExecution", { session_id: "none", tool_id: "x" }, status.NOT_FOUND],
      ["no policy", "SetConfirmationPolicy", {}, status.INVALID_ARGUMENT],
      [
        "too long a timeout",
        "SetConfirmationPolicy",
        { policy: { default_timeout_ms: "9007199254740993" } },
        status.INVALID_ARGUMENT,
      ],
      ["no tool's name", "SetConfirmationPolicy", { policy: { auto_approve_tools: ["a b"] } }, status.INVALID_ARGUMENT],
      ["no such session", "GetConfirmationPolicy", { session_id: "none" }, status.NOT_FOUND],
    ];
    for (const [name, rpc, request, code] of rows)
      test(name, async () => {
        await assert.rejects(client.call(rpc, { session_id: await session(), ...request }), { code });
      });
  });

  test("0 is the server's timeout again", async () => {
    const sessionId = await session();
    await setPolicy(sessionId, { enabled: true, default_timeout_ms: 1000 });
    await setPolicy(sessionId, { enabled: true });
    const { policy } = await client.call("GetConfirmationPolicy", { session_id: sessionId });
    assert.equal(Object(policy).default_timeout_ms, "300000");
  });
});
