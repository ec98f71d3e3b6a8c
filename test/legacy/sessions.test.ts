import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { status } from "@grpc/grpc-js";
import { fileContext } from "../support/file-context.ts";
import { startTestApp } from "../support/test-app.ts";
import { at, type Era, type LegacyClient, type LegacyMessage, legacyClients } from "./legacy-client.ts";
import { listenToEvents } from "./listen-events.ts";

const script = `
- when: { text: { contains: look }, role: user }
  text: "I look. "
  tool_calls: [{ name: list_files, arguments: { pattern: "*.md" } }]
- when: { tool: list_files }
  text: There is one.
- text: hello
`;

describe("sessions of the earlier service", () => {
  const shared = fileContext();
  let started: Awaited<ReturnType<typeof startTestApp>>;
  let clients: Record<Era, LegacyClient>;
  let count = 0;

  before(async () => {
    started = await startTestApp(shared, { script });
    clients = legacyClients(shared, started.app.url);
  });

  const create = async (config: LegacyMessage = {}, rest: LegacyMessage = {}): Promise<string> => {
    const sessionId = `s${++count}`;
    await clients.L2.call("CreateSession", { session_id: sessionId, config, ...rest });
    return sessionId;
  };
  const generate = (sessionId: string, content: string) =>
    clients.L2.call("Generate", { session_id: sessionId, messages: [{ role: "user", content }] });

  test("what is set is told back, but the key", async () => {
    const config = {
      name: "mine",
      workspace: started.workspace,
      llm: {
        provider: "scripted",
        model: "small",
        api_key: "sk-secret",
        base_url: "",
        temperature: 0.7,
        max_tokens: 50,
      },
      system_prompt: "Be short.",
      max_context_length: 1000,
      auto_compact: true,
      storage_type: "STORAGE_TYPE_FILE",
    };
    const asked = { ...config, llm: { ...config.llm, api_key: "" } };
    const answer = await clients.L1.call("CreateSession", { session_id: "whole", config });
    const [found, list] = await Promise.all([
      clients.L2.call("GetSession", { session_id: "whole" }),
      clients.L2.call("ListSessions"),
    ]);
    assert.equal(answer["session_id"], "whole");
    for (const session of [at(answer, "session"), at(found, "session"), at(list, "sessions.0")]) {
      const llm = at(session, "config.llm");
      assert.ok(typeof llm === "object" && llm !== null && "temperature" in llm);
      assert.ok(Math.abs(Number(llm.temperature) - 0.7) < 1e-6);
      assert.deepEqual(at(session, "config"), { ...asked, llm: { ...asked.llm, temperature: llm.temperature } });
      assert.equal(at(session, "state"), "SESSION_STATE_ACTIVE");
      assert.ok(Math.abs(Number(at(session, "created_at")) - Date.now()) < 60_000, "in milliseconds");
    }
    const stored = await started.client.getSession({ sessionId: "whole" });
    assert.equal(
      JSON.stringify(stored, (_, value) => (typeof value === "bigint" ? String(value) : value)).includes("sk-secret"),
      false,
    );
    assert.equal(stored.model, "scripted/small");
    assert.equal(stored.title, "mine");
  });

  test("temperature and max_tokens hold for the turns of the session", async () => {
    const sessionId = await create({ llm: { temperature: 0.7, max_tokens: 50 } });
    await generate(sessionId, "hello");
    const turn = (await Array.fromAsync(started.client.subscribeSession({ sessionId }))).find(
      ({ event }) => event.case === "turnStarted",
    );
    assert.ok(turn?.event.case === "turnStarted");
    assert.equal(turn.event.value.options?.temperature, 0.7);
    assert.equal(turn.event.value.options?.maxTokens, 50n);
  });

  test("a session made is in the list at once, a destroyed one is nowhere", async () => {
    const sessionId = await create({ name: "short-lived" });
    const ids = async () => {
      const { sessions } = await clients.L2.call("ListSessions");
      return Array.isArray(sessions) ? sessions.map((session) => at(session, "session_id")) : [];
    };
    assert.ok((await ids()).includes(sessionId));
    assert.deepEqual(await clients.L2.call("DestroySession", { session_id: sessionId }), { success: true });
    assert.equal((await ids()).includes(sessionId), false);
    for (const rpc of ["GetSession", "DestroySession", "GetMessages", "ConfigureSession", "GetContextUsage"])
      await assert.rejects(clients.L2.call(rpc, { session_id: sessionId }), { code: status.NOT_FOUND }, rpc);
    for (const rpc of ["Generate", "GenerateStructured"]) {
      const request = { session_id: sessionId, messages: [{ role: "user", content: "hello" }], schema: "{}" };
      await assert.rejects(clients.L2.call(rpc, request), { code: status.NOT_FOUND }, rpc);
    }
  });

  test("listeners hear of sessions made and destroyed, and of a key that was dropped", async () => {
    const events = await listenToEvents(clients.L2);
    const sessionId = await create({ name: "heard", llm: { model: "scripted/test", api_key: "sk-secret" } });
    const created = await events.next("SESSION_CREATED");
    assert.equal(created["session_id"], sessionId);
    assert.equal(at(created, "data.name"), "heard");
    const warning = await events.next("WARNING");
    assert.equal(at(warning, "data.field"), "config.llm.api_key");
    const own = await listenToEvents(clients.L2, { session_id: sessionId });
    await clients.L2.call("DestroySession", { session_id: sessionId });
    assert.equal((await events.next("SESSION_DESTROYED"))["session_id"], sessionId);
    await own.end();
    assert.deepEqual(own.types(), ["SESSION_DESTROYED"]);
    assert.equal(JSON.stringify(events.seen).includes("sk-secret"), false);
    events.cancel();
    await assert.rejects(events.end(), { code: status.CANCELLED });
  });

  test("what a configuration leaves out stays", async () => {
    const sessionId = await create({
      name: "one",
      system_prompt: "Be short.",
      llm: { temperature: 1 },
      auto_compact: true,
    });
    const first = { session_id: sessionId, config: { name: "two", llm: { provider: "scripted", model: "other" } } };
    const { session } = await clients.L2.call("ConfigureSession", first);
    assert.equal(at(session, "config.name"), "two");
    assert.equal(at(session, "config.system_prompt"), "Be short.");
    assert.equal(at(session, "config.llm.model"), "other");
    assert.equal(at(session, "config.llm.temperature"), 1);
    assert.equal(at(session, "config.auto_compact"), true);
    const same = { session_id: sessionId, config: { workspace: started.workspace } };
    assert.equal(at(await clients.L2.call("ConfigureSession", same), "session.config.name"), "two");
  });

  const badConfigs: { name: string; config: LegacyMessage; code?: status; says: RegExp }[] = [
    { name: "workspace outside", config: { workspace: "/" }, code: status.PERMISSION_DENIED, says: /workspace/ },
    {
      name: "base_url",
      config: { llm: { base_url: "http://elsewhere" } },
      says: /^.*config\.llm\.base_url: is not the conf/,
    },
    { name: "no model", config: { llm: { provider: "scripted" } }, says: /config\.llm\.model: is empty/ },
    { name: "provider", config: { llm: { provider: "nobody", model: "m" } }, code: status.NOT_FOUND, says: /nobody/ },
    { name: "temperature", config: { llm: { temperature: 3 } }, says: /config\.llm\.temperature: is 3/ },
    { name: "name", config: { name: "x".repeat(1001) }, says: /config\.name: has 1001 characters/ },
  ];
  for (const { name, config, code = status.INVALID_ARGUMENT, says } of badConfigs) {
    test(`a configuration that can't be: ${name}`, async () => {
      const sessionId = await create();
      const isRight = (error: unknown) => {
        assert.match(String(at(error, "details")), says);
        assert.ok(at(error, "code") === code, `${at(error, "code")} ${at(error, "details")}`);
        return true;
      };
      await assert.rejects(clients.L2.call("CreateSession", { config }), isRight);
      await assert.rejects(clients.L2.call("ConfigureSession", { session_id: sessionId, config }), isRight);
    });
  }

  test("ids: a bad one, one that is taken, none", async () => {
    const call = (session_id: string) => clients.L2.call("CreateSession", { session_id });
    await assert.rejects(call("../etc"), { code: status.INVALID_ARGUMENT });
    await create();
    await assert.rejects(call(`s${count}`), { code: status.ALREADY_EXISTS });
    assert.match(String((await clients.L2.call("CreateSession"))["session_id"]), /^ses_/);
  });

  test("another workspace is not taken by a session that has one", async () => {
    const sessionId = await create();
    const config = { workspace: `${started.workspace}/nowhere` };
    await assert.rejects(clients.L2.call("ConfigureSession", { session_id: sessionId, config }));
  });

  for (const era of ["L1", "L2"] as const) {
    test(`initial context and history, ${era}`, async () => {
      const role = (word: string) => (era === "L1" ? `ROLE_${word.toUpperCase()}` : word);
      const sessionId = `history-${era}`;
      await clients[era].call("CreateSession", {
        session_id: sessionId,
        initial_context: [
          { role: role("system"), content: "Speak plainly." },
          { role: role("user"), content: "Hi." },
          { role: role("assistant"), content: "Hello." },
        ],
      });
      await clients[era].call("Generate", {
        session_id: sessionId,
        messages: [{ role: role("user"), content: "look" }],
      });
      const all = await clients[era].call("GetMessages", { session_id: sessionId });
      const { messages } = all;
      assert.ok(Array.isArray(messages));
      const roles = messages.map((message) => at(message, "role"));
      assert.deepEqual(roles, ["system", "user", "assistant", "user", "assistant", "tool", "assistant"]);
      assert.equal(all["total_count"], 7);
      assert.equal(all["has_more"], false);
      assert.equal(at(messages, "2.content.0.text.text"), "Hello.");
      assert.equal(at(messages, "4.content.1.tool_use.name"), "list_files");
      assert.equal(at(messages, "5.content.0.tool_result.tool_use_id"), at(messages, "4.content.1.tool_use.id"));
      assert.match(String(at(messages, "5.content.0.tool_result.content")), /README\.md/);
      assert.ok(Number(at(messages, "3.timestamp")) > 1.6e12, "in milliseconds");

      const page = await clients[era].call("GetMessages", { session_id: sessionId, offset: 2, limit: 3 });
      assert.deepEqual(page["messages"], messages.slice(2, 5));
      assert.equal(page["total_count"], 7);
      assert.equal(page["has_more"], true);
      const end = await clients[era].call("GetMessages", { session_id: sessionId, offset: 99 });
      assert.deepEqual(end, { messages: [], total_count: 7, has_more: false });
    });
  }

  test("a long history comes in answers that clients take", async () => {
    const initial_context = Array.from({ length: 5 }, () => ({ role: "user", content: "字".repeat(350_000) }));
    const sessionId = await create({}, { initial_context });
    const first = await clients.L2.call("GetMessages", { session_id: sessionId });
    const { messages } = first;
    assert.ok(Array.isArray(messages));
    assert.equal(messages.length, 2);
    assert.equal(first["total_count"], 5);
    assert.equal(first["has_more"], true);
    const last = await clients.L2.call("GetMessages", { session_id: sessionId, offset: 4 });
    assert.equal(last["has_more"], false);
    assert.equal(String(at(last, "messages.0.content.0.text.text")).length, 350_000);
  });

  test("a session that is paused says so", async () => {
    const sessionId = await create();
    const state = async () => at(await clients.L1.call("GetSession", { session_id: sessionId }), "session.state");
    await clients.L1.call("Pause", { session_id: sessionId });
    assert.equal(await state(), "SESSION_STATE_PAUSED");
    await clients.L1.call("Resume", { session_id: sessionId });
    assert.equal(await state(), "SESSION_STATE_ACTIVE");
  });

  test("a cleared context is empty, and the session goes on", async () => {
    const sessionId = await create({ name: "kept" });
    await generate(sessionId, "hello");
    assert.deepEqual(await clients.L2.call("ClearContext", { session_id: sessionId }), { success: true });
    const { usage } = await clients.L2.call("GetContextUsage", { session_id: sessionId });
    assert.deepEqual(usage, { total_tokens: 0, prompt_tokens: 0, completion_tokens: 0, message_count: 0 });
    const { session } = await clients.L2.call("GetSession", { session_id: sessionId });
    assert.equal(at(session, "config.name"), "kept");
    await generate(sessionId, "hello again");
    assert.equal((await clients.L2.call("GetMessages", { session_id: sessionId }))["total_count"], 2);
    await assert.rejects(clients.L2.call("ClearContext", { session_id: "nobody" }), { code: status.NOT_FOUND });
  });

  test("roles of an initial context are checked like those of a turn", async () => {
    const initial_context = [{ role: "boss", content: "hello" }];
    await assert.rejects(clients.L2.call("CreateSession", { initial_context }), (error) => {
      assert.match(String(at(error, "details")), /^initial_context\[0\]\.role: is "boss"/);
      return at(error, "code") === status.INVALID_ARGUMENT;
    });
  });

  test("what the context takes, before and after it is compacted", async () => {
    const initial_context = Array.from({ length: 12 }, (_, index) => ({
      role: index % 2 === 0 ? "user" : "assistant",
      content: `number ${index} ${"word ".repeat(400)}`,
    }));
    const sessionId = await create({}, { initial_context });
    const { usage } = await clients.L2.call("GetContextUsage", { session_id: sessionId });
    assert.equal(at(usage, "message_count"), 12);
    assert.ok(Number(at(usage, "prompt_tokens")) > 2000);
    assert.equal(
      Number(at(usage, "prompt_tokens")) + Number(at(usage, "completion_tokens")),
      Number(at(usage, "total_tokens")),
    );
    const { session } = await clients.L2.call("GetSession", { session_id: sessionId });
    assert.deepEqual(at(session, "context_usage"), usage);
    await generate(sessionId, "hello");
    const compacted = await clients.L2.call("CompactContext", { session_id: sessionId });
    assert.equal(compacted["success"], true);
    assert.equal(at(compacted, "before.message_count"), 14);
    assert.ok(Number(at(compacted, "after.total_tokens")) < Number(at(compacted, "before.total_tokens")));
    const after = await clients.L2.call("GetContextUsage", { session_id: sessionId });
    assert.deepEqual(after["usage"], compacted["after"]);
    await assert.rejects(clients.L2.call("CompactContext", { session_id: "nobody" }), { code: status.NOT_FOUND });
  });
});
