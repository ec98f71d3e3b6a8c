import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { Client } from "@connectrpc/connect";
import type { CodeAgentService } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { startTestApp, user } from "../support/test-app.ts";
import { at, type LegacyClient, legacyClients } from "./legacy-client.ts";

const script = `
- { when: { text: write }, tool_calls: [{ name: write_file, arguments: { path: a.txt, content: hello } }] }
- { text: answered }
`;

const cleanups: (() => unknown)[] = [];
const shared = { after: (cleanup: () => unknown) => void cleanups.push(cleanup) };
let clients: ReturnType<typeof legacyClients>;
let client: LegacyClient;
let v1: Client<typeof CodeAgentService>;

describe("control of the earlier service", { timeout: 30_000 }, () => {
  before(async () => {
    const sample = await startTestApp(shared, { script });
    v1 = sample.client;
    clients = legacyClients(shared, sample.app.url);
    client = clients.L2;
  });
  after(async () => {
    for (const cleanup of cleanups.toReversed()) await cleanup();
  });

  test("a session is paused, tells so, and is resumed", async () => {
    for (const era of [clients.L1, clients.L2]) {
      const { sessionId } = await v1.createSession({});
      const call = { session_id: sessionId };
      const state = async () => at(await era.call("GetSession", call), "session.state");
      assert.deepEqual(await era.call("Pause", call), { success: true });
      assert.equal(await state(), "SESSION_STATE_PAUSED");
      const waiting = v1.generate({ sessionId, messages: [user("hi")] });
      while ((await v1.getSession({ sessionId })).queuedTurns === 0) await new Promise(setImmediate);
      assert.deepEqual(await era.call("Resume", call), { success: true });
      assert.equal((await waiting).finishReason, "stop");
      assert.equal(await state(), "SESSION_STATE_ACTIVE");
      assert.deepEqual(await era.call("Resume", call), { success: true });
    }
  });

  test("cancel says whether something was cancelled, also while paused", async () => {
    const { sessionId } = await v1.createSession({});
    const call = { session_id: sessionId };
    assert.deepEqual(await client.call("Cancel", call), { success: false });
    let turnId = "";
    for await (const chunk of v1.streamGenerate({ sessionId, messages: [user("write")] })) {
      ({ turnId } = chunk);
      if (chunk.event.case === "requestOpened") break;
    }
    await client.call("Pause", call);
    assert.deepEqual(await client.call("Cancel", { ...call, operation_id: turnId }), { success: true });
    for await (const { event } of v1.subscribeSession({ sessionId, follow: true }))
      if (event.case === "turnFinished") {
        assert.equal(event.value.finishReason, "cancelled");
        break;
      }
    assert.deepEqual(await client.call("Cancel", { ...call, operation_id: turnId }), { success: false });
    await assert.rejects(client.call("Cancel", { ...call, operation_id: "turn_unknown" }), { code: 5 });
  });

  test("sessions that nobody knows are not found, empty ids are no ids", async () => {
    for (const rpc of ["Cancel", "Pause", "Resume"]) {
      await assert.rejects(client.call(rpc, { session_id: "nobody" }), { code: 5, message: /nobody/ }, rpc);
      await assert.rejects(client.call(rpc, {}), { code: 3, message: /session_id/ }, rpc);
    }
  });
});
