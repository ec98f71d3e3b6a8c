import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Client } from "@connectrpc/connect";
import type { CodeAgentService, GenerateChunk } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { startTestApp, user } from "../support/test-app.ts";
import { at, type LegacyClient, type LegacyMessage, legacyClients } from "./legacy-client.ts";

const script = `
- { when: { role: tool }, text: done }
- { when: { text: read }, tool_calls: [{ name: read_file, arguments: { path: README.md } }] }
- { when: { text: write }, tool_calls: [{ name: write_file, arguments: { path: a.txt, content: hello } }] }
- { when: { text: list }, tool_calls: [{ name: update_todos, arguments: { todos: [] } }] }
`;

const codes = { invalidArgument: 3, notFound: 5, unimplemented: 12 };
const cleanups: (() => unknown)[] = [];
const shared = { after: (cleanup: () => unknown) => void cleanups.push(cleanup) };
let client: LegacyClient;
let v1: Client<typeof CodeAgentService>;
let workspace: string;
let nowMs = Date.now();

describe("lanes of the earlier service", { timeout: 60_000 }, () => {
  before(async () => {
    const sample = await startTestApp(shared, { script, now: () => nowMs });
    v1 = sample.client;
    workspace = sample.workspace;
    client = legacyClients(shared, sample.app.url).L2;
  });
  after(async () => {
    for (const cleanup of cleanups.toReversed()) await cleanup();
  });

  const open = async (lane?: string, mode?: string, timeoutMs = 0, permissions = { mode: "accept-edits" }) => {
    const { sessionId } = await v1.createSession({ permissions });
    const config = { mode: `TASK_HANDLER_MODE_${mode}`, timeout_ms: timeoutMs };
    if (lane !== undefined)
      await client.call("SetLaneHandler", { session_id: sessionId, lane: `SESSION_LANE_${lane}`, config });
    return sessionId;
  };
  const tasksOf = async (sessionId: string): Promise<readonly LegacyMessage[]> => {
    const { tasks } = await client.call("ListPendingExternalTasks", { session_id: sessionId });
    return Array.isArray(tasks) ? tasks : [];
  };
  /** Begins a turn; resolves when it asks for something, or has ended. */
  const begin = async (sessionId: string, text: string): Promise<GenerateChunk[]> => {
    const seen: GenerateChunk[] = [];
    for await (const chunk of v1.streamGenerate({ sessionId, messages: [user(text)] })) {
      seen.push(chunk);
      if (chunk.event.case === "requestOpened") break;
    }
    return seen;
  };
  /** The results of the calls of a session, after its turn has ended. */
  const resultsOf = async (sessionId: string) => {
    const results: string[] = [];
    for await (const { event } of v1.subscribeSession({ sessionId, follow: true })) {
      if (event.case === "toolFinished") results.push(event.value.result?.output || event.value.result?.error || "");
      if (event.case === "turnFinished") return results;
    }
    assert.fail("the turn did not end");
  };

  test("are internal until something else is said, and say what they are then", async () => {
    const sessionId = await open();
    const laneOf = async (lane: string) =>
      (await client.call("GetLaneHandler", { session_id: sessionId, lane: `SESSION_LANE_${lane}` }))["config"];
    for (const lane of ["CONTROL", "QUERY", "EXECUTE", "GENERATE"])
      assert.deepEqual(await laneOf(lane), { mode: "TASK_HANDLER_MODE_INTERNAL", timeout_ms: "60000" }, lane);
    const config = { mode: "TASK_HANDLER_MODE_HYBRID", timeout_ms: "1000" };
    const set = { session_id: sessionId, lane: "SESSION_LANE_EXECUTE", config };
    assert.deepEqual(await client.call("SetLaneHandler", set), { success: true, config });
    const external = { mode: "TASK_HANDLER_MODE_EXTERNAL", timeout_ms: "60000" };
    await client.call("SetLaneHandler", { ...set, lane: "SESSION_LANE_QUERY", config: { mode: external.mode } });
    assert.deepEqual([await laneOf("EXECUTE"), await laneOf("QUERY")], [config, external]);
    const { lanes } = await v1.getSession({ sessionId });
    assert.deepEqual(
      [lanes?.execute?.mode, lanes?.execute?.timeoutMs, lanes?.query?.mode],
      ["hybrid", 1000n, "external"],
    );
    const calm = { ...set, lane: "SESSION_LANE_CONTROL", config: { mode: "TASK_HANDLER_MODE_INTERNAL" } };
    assert.equal((await client.call("SetLaneHandler", calm))["success"], true);
  });

  test("are refused where they can't be so", async () => {
    const sessionId = await open();
    const config = { mode: "TASK_HANDLER_MODE_EXTERNAL", timeout_ms: 5000 };
    const set = { session_id: sessionId, lane: "SESSION_LANE_QUERY", config };
    const refused: [request: object, code: number, message: RegExp][] = [
      [{ lane: "SESSION_LANE_GENERATE" }, codes.unimplemented, /the lane generate can't be external: asking the model/],
      [{ lane: "SESSION_LANE_CONTROL" }, codes.unimplemented, /the lane control can't be external/],
      [{ lane: "SESSION_LANE_UNKNOWN" }, codes.invalidArgument, /lane.* is not said/],
      [{ lane: 9 }, codes.invalidArgument, /lane.* is not said/],
      [{ config: { timeout_ms: 5000 } }, codes.invalidArgument, /config.mode.* is not said/],
      [
        { config: { ...config, timeout_ms: 999 } },
        codes.invalidArgument,
        /config.timeout_ms.* is 999; must be from 1000/,
      ],
      [{ config: { ...config, timeout_ms: 3_600_001 } }, codes.invalidArgument, /must be from 1000 to 3600000/],
      [{ session_id: "nobody" }, codes.notFound, /nobody/],
      [{ session_id: "" }, codes.invalidArgument, /session_id/],
    ];
    for (const [change, code, message] of refused)
      await assert.rejects(client.call("SetLaneHandler", { ...set, ...change }), { code, message });
    const { lanes: _, ...missing } = { lanes: 0, session_id: sessionId, lane: "SESSION_LANE_QUERY" };
    await assert.rejects(client.call("SetLaneHandler", missing), { code: codes.invalidArgument, message: /config/ });
    await assert.rejects(client.call("GetLaneHandler", { session_id: "nobody", lane: "SESSION_LANE_QUERY" }), {
      code: codes.notFound,
    });
    assert.equal((await v1.getSession({ sessionId })).lanes, undefined);
  });

  test("a call of an external lane is completed by a client, once", async () => {
    const sessionId = await open("QUERY", "EXTERNAL", 30_000);
    await begin(sessionId, "read");
    const [task, ...others] = await tasksOf(sessionId);
    assert.deepEqual(others, []);
    const { task_id: taskId, ...rest } = task ?? {};
    assert.deepEqual(rest, {
      session_id: sessionId,
      lane: "SESSION_LANE_QUERY",
      command_type: "read_file",
      payload: '{"path":"README.md"}',
      timeout_ms: "30000",
      remaining_ms: "30000",
    });
    nowMs += 2000;
    assert.equal(at(await tasksOf(sessionId), "0.remaining_ms"), "28000");
    const done = { session_id: sessionId, task_id: taskId, success: true, result: "from afar" };
    assert.deepEqual(await client.call("CompleteExternalTask", done), { success: true, error: "" });
    assert.deepEqual(await client.call("CompleteExternalTask", done), { success: true, error: "" });
    const { success, error } = await client.call("CompleteExternalTask", { ...done, result: "something else" });
    assert.equal(success, false);
    assert.match(String(error), /was answered .* before; that stays/);
    assert.deepEqual(await resultsOf(sessionId), ["from afar"]);
    assert.deepEqual(await tasksOf(sessionId), []);
    const { messages } = await v1.listMessages({ sessionId });
    assert.deepEqual(
      messages.filter(({ role }) => role === "tool").map(({ contentType }) => contentType.value),
      ["from afar"],
    );
  });

  test("a client says that it failed, and only the call fails", async () => {
    const sessionId = await open("QUERY", "EXTERNAL");
    await begin(sessionId, "read");
    const [task] = await tasksOf(sessionId);
    const failed = { session_id: sessionId, task_id: task?.["task_id"], success: false, result: "", error: "no disk" };
    assert.equal((await client.call("CompleteExternalTask", failed))["success"], true);
    assert.deepEqual(await resultsOf(sessionId), ["no disk"]);
  });

  test("nobody completes it: an external call fails, a hybrid one runs here", async () => {
    for (const [mode, expected] of [
      ["EXTERNAL", /^not run: nobody completed it within 5000 ms$/],
      ["HYBRID", /# a sample/],
    ] as const) {
      const sessionId = await open("QUERY", mode, 5000);
      await begin(sessionId, "read");
      const [task] = await tasksOf(sessionId);
      nowMs += 5000;
      const late = { session_id: sessionId, task_id: task?.["task_id"], success: true, result: "too late" };
      const { success } = await client.call("CompleteExternalTask", late);
      assert.equal(success, false, mode);
      assert.match((await resultsOf(sessionId)).join(), expected, mode);
    }
  });

  test("what is denied is refused, what is to be approved is approved first", async () => {
    const denied = await open("EXECUTE", "EXTERNAL", 0, { mode: "read-only" });
    const seen = await begin(denied, "write");
    assert.ok(seen.every(({ event }) => event.case !== "requestOpened"));
    assert.match((await resultsOf(denied)).join(), /^denied by the policy/);

    for (const mode of ["EXTERNAL", "HYBRID"]) {
      const sessionId = await open("EXECUTE", mode, 5000, { mode: "ask" });
      await begin(sessionId, "write");
      assert.deepEqual(await tasksOf(sessionId), []);
      const { requests } = await v1.listPendingRequests({ sessionId });
      const [approval] = requests;
      assert.equal(approval?.kind, "approval");
      const early = { session_id: sessionId, task_id: approval?.requestId, success: true, result: "x" };
      await assert.rejects(client.call("CompleteExternalTask", early), { code: codes.invalidArgument });
      const { requestId = "" } = approval ?? {};
      await v1.respondToRequest({ sessionId, responses: [{ requestId, decision: "allow_once" }] });
      while ((await tasksOf(sessionId)).length === 0) await new Promise(setImmediate);
      const written = () => readFile(join(workspace, "a.txt"), "utf8").catch(() => "");
      assert.equal(await written(), "");
      nowMs += 5000;
      const [waiting] = (await v1.listPendingRequests({ sessionId })).requests;
      assert.equal(waiting, undefined); // its time is over
      const late = { session_id: sessionId, task_id: "req_unknown", success: true, result: "x" };
      await assert.rejects(client.call("CompleteExternalTask", late), { code: codes.notFound });
      await v1.resumeSession({ sessionId }); // somebody looks at the session before the clock of the test would
      const [result = ""] = await resultsOf(sessionId);
      assert.match(result, mode === "EXTERNAL" ? /^not run: nobody completed it within 5000 ms/ : /a\.txt/);
      assert.equal(await written(), mode === "EXTERNAL" ? "" : "hello");
    }
  });

  test("what works on the session itself runs here", async () => {
    const sessionId = await open("QUERY", "EXTERNAL");
    await begin(sessionId, "list");
    assert.deepEqual(await resultsOf(sessionId), ["the list is empty"]);
  });

  test("other sessions' tasks, and unknown ones, are nobody's", async () => {
    const sessionId = await open("QUERY", "EXTERNAL");
    await begin(sessionId, "read");
    const [task] = await tasksOf(sessionId);
    const other = await open();
    const done = { session_id: other, task_id: task?.["task_id"], success: true, result: "x" };
    await assert.rejects(client.call("CompleteExternalTask", done), { code: codes.notFound });
    await assert.rejects(client.call("CompleteExternalTask", { ...done, task_id: "" }), {
      code: codes.invalidArgument,
    });
    await assert.rejects(client.call("ListPendingExternalTasks", { session_id: "nobody" }), { code: codes.notFound });
    await v1.cancelTurn({ sessionId });
    const gone = { session_id: sessionId, task_id: task?.["task_id"], success: true, result: "x" };
    await resultsOf(sessionId);
    assert.equal((await client.call("CompleteExternalTask", gone))["success"], false);
  });
});
