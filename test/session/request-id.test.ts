import assert from "node:assert/strict";
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { describe, test } from "node:test";
import { toJson } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport, Http2SessionManager } from "@connectrpc/connect-node";
import {
  CancelTurnResponseSchema,
  CodeAgentService,
  DeleteSessionResponseSchema,
  SessionSchema,
} from "../../gen/codeagent/v1/code_agent_pb.ts";
import { ToolService } from "../../gen/codeagent/v1/tool_service_pb.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";
import { start } from "../cli/start-codeagent.ts";
import { call, providerAt, streamedAnswer, text } from "../provider/answers.ts";
import { type Answer, eventStream, startUpstream } from "../provider/upstream.ts";
import { startTestApp, user } from "../support/test-app.ts";

const inTime = { timeout: 60_000 };
const isReused = (error: unknown) =>
  error instanceof ConnectError && error.code === Code.AlreadyExists && /another payload/.test(error.message);
const hasCode = (code: Code) => (error: unknown) => error instanceof ConnectError && error.code === code;

/** Tools that count their runs; `change` waits until it is let go. */
function countedTools() {
  const runs: string[] = [];
  const gate = Promise.withResolvers<void>();
  const begun = Promise.withResolvers<void>();
  const provider: FunctionProvider = {
    source: "local",
    list: async () =>
      ["look", "change"].map((name) => ({
        ...{ name, description: name, parameters: "", source: "local", timeoutMs: 30_000 },
        readOnly: name === "look",
      })),
    async call({ name }) {
      runs.push(name);
      begun.resolve();
      if (name === "change") await gate.promise;
      return { success: true, output: `${name} ${runs.length}` };
    },
    close: async () => undefined,
  };
  return { provider, runs, release: gate.resolve, begun: begun.promise };
}

/** Answers as a model: a call of a tool, then text. */
const modelAnswers = (tool: string): Answer[] =>
  [[call("c1", tool)], [text("it is done")]].map((said) => (_request, response) => {
    response.writeHead(200, eventStream).end(streamedAnswer("openai-chat", said).events.join(""));
  });

describe("a turn asked for many times under one request id runs once", inTime, () => {
  for (const kind of ["session", "one-off"] as const) {
    test(`${kind}: ten at once and late ones get the same turn`, async (context) => {
      const upstream = await startUpstream(context, modelAnswers("look"));
      const { model, env } = providerAt("openai-chat", upstream.url);
      const { provider, runs } = countedTools();
      const options = { flags: { model }, env, functions: [provider] };
      const { app, client, dataDir, transport } = await startTestApp(context, options);
      const { sessionId } = kind === "session" ? await client.createSession({}) : { sessionId: "" };
      const others = [createGrpcTransport({ baseUrl: app.url }), transport].map((each) =>
        createClient(CodeAgentService, each),
      );
      const request = { sessionId, messages: [user("do it")], requestId: "r1" };
      const streamed = async (asking = client) => {
        let turnId = "";
        let last = "";
        for await (const chunk of asking.streamGenerate(request)) {
          turnId ||= chunk.turnId;
          assert.equal(chunk.turnId, turnId);
          last = chunk.event.case ?? "";
        }
        assert.equal(last, "turnFinished");
        return turnId;
      };
      const asked = async (asking = client) => {
        const { turnId, message } = await asking.generate(request);
        assert.equal(message?.contentType.value, "it is done");
        return turnId;
      };
      const turns = await Promise.all(
        Array.from({ length: 10 }, (_, at) => (at % 2 === 0 ? streamed : asked)(others[at % 3] ?? client)),
      );
      turns.push(await asked(), await streamed());
      const other = { ...request, messages: [user("do something else")] };
      await assert.rejects(client.generate(other), isReused);
      assert.equal(new Set(turns).size, 1);
      assert.deepEqual([upstream.requests.length, runs], [2, ["look"]]);
      if (kind === "one-off") return;
      await app.close(0);
      const { client: restarted } = await startTestApp(context, { ...options, dataDir });
      const late = await Promise.all([asked(restarted), streamed(restarted)]);
      assert.deepEqual(late, [turns[0], turns[0]]);
      await assert.rejects(restarted.generate(other), isReused);
      assert.deepEqual([upstream.requests.length, runs], [2, ["look"]]);
    });
  }

  test("a process that is killed after the answer, or in its middle, and asked again", async (context) => {
    const folder = mkdtempSync(join(tmpdir(), "codeagent-request-"));
    context.after(() => rmSync(folder, { recursive: true, force: true }));
    const begun = Promise.withResolvers<void>();
    const [callTool, answer] = modelAnswers("list_files");
    assert.ok(callTool !== undefined && answer !== undefined);
    const stuck: Answer = (_request, response) => {
      response.writeHead(200, eventStream).write(streamedAnswer("openai-chat", [text("it")]).events[0] ?? "");
      begun.resolve();
    };
    const upstream = await startUpstream(context, [callTool, stuck, answer]);
    const { model, env } = providerAt("openai-chat", upstream.url);
    const serve = async () => {
      const options = { folder, env: { ...env, CODEAGENT_MODEL: model, CODEAGENT_PORT: "0" } };
      const server = start(context, ["serve"], options);
      const [, url = ""] = await server.seen("stdout", /listening on (\S+)/);
      return { server, client: createClient(CodeAgentService, createGrpcTransport({ baseUrl: url })) };
    };
    const first = await serve();
    const { sessionId } = await first.client.createSession({});
    const ask = ({ client }: typeof first) => client.generate({ sessionId, messages: [user("list")], requestId: "r1" });
    const cut = Promise.allSettled(Array.from({ length: 5 }, () => ask(first)));
    await begun.promise;
    first.server.child.kill("SIGKILL");
    for (const { status } of await cut) assert.equal(status, "rejected");
    const second = await serve();
    const answers = await Promise.all(Array.from({ length: 5 }, () => ask(second)));
    second.server.child.kill("SIGKILL");
    await second.server.ended;
    answers.push(await ask(await serve()));
    assert.equal(new Set(answers.map(({ turnId }) => turnId)).size, 1);
    assert.deepEqual(
      answers.map(({ message }) => message?.contentType.value),
      answers.map(() => "it is done"),
    );
    assert.equal(upstream.requests.length, 3, "one call of a tool, one answer that was cut, one that was not");
  });
});

describe("changes asked for under one request id happen once", inTime, () => {
  type Clients = ReturnType<typeof clientOf>;
  const clientOf = (server: Awaited<ReturnType<typeof startTestApp>>) => server.client;
  /** Makes the change and says what was answered, as JSON. */
  const changes: Readonly<Record<string, (client: Clients, other: boolean) => Promise<unknown>>> = {
    createSession: async (client, other) =>
      toJson(SessionSchema, await client.createSession({ title: other ? "b" : "a", requestId: "r" })),
    updateSession: async (client, other) =>
      toJson(
        SessionSchema,
        await client.updateSession({ sessionId: "one", metadata: { at: other ? "b" : "a" }, requestId: "r" }),
      ),
    deleteSession: async (client, other) =>
      toJson(
        DeleteSessionResponseSchema,
        await client.deleteSession({ sessionId: other ? "two" : "one", requestId: "r" }),
      ),
    forkSession: async (client, other) =>
      toJson(SessionSchema, await client.forkSession({ sessionId: "one", title: other ? "b" : "a", requestId: "r" })),
    cancelTurn: async (client, other) =>
      toJson(CancelTurnResponseSchema, await client.cancelTurn({ sessionId: other ? "two" : "one", requestId: "r" })),
  };
  for (const [name, change] of Object.entries(changes)) {
    test(name, async (context) => {
      const server = await startTestApp(context);
      const { app, client, dataDir } = server;
      for (const sessionId of ["one", "two"]) await client.createSession({ sessionId });
      const answers = await Promise.all(Array.from({ length: 5 }, () => change(client, false)));
      const count = async (asking: Clients) => (await asking.listSessions({})).sessions.length;
      const sessions = await count(client);
      const expected: Readonly<Record<string, number>> = { createSession: 3, forkSession: 3, deleteSession: 1 };
      assert.equal(sessions, expected[name] ?? 2);
      await assert.rejects(change(client, true), isReused);
      for (const [otherName, other] of Object.entries(changes))
        if (otherName !== name) await assert.rejects(other(client, false), isReused, otherName);
      // What happened since does not show.
      if (name === "updateSession") await client.updateSession({ sessionId: "one", metadata: { at: "later" } });
      if (name === "createSession" || name === "forkSession") {
        for (const { sessionId, title } of (await client.listSessions({})).sessions)
          if (title === "a") await client.deleteSession({ sessionId });
      }
      const after = await count(client);
      answers.push(await change(client, false));
      await app.close(0);
      const { client: restarted } = await startTestApp(context, { dataDir });
      answers.push(await change(restarted, false));
      await assert.rejects(change(restarted, true), isReused);
      for (const answer of answers) assert.deepEqual(answer, answers[0]);
      assert.equal(await count(restarted), after);
      if (name === "updateSession")
        assert.equal((await restarted.getSession({ sessionId: "one" })).metadata["at"], "later");
    });
  }

  test("what failed is tried again; without an id every call is one of its own", async (context) => {
    const { client } = await startTestApp(context);
    const remove = { sessionId: "late", requestId: "r" };
    await assert.rejects(client.deleteSession(remove), hasCode(Code.NotFound));
    await client.createSession({ sessionId: "late" });
    await client.deleteSession(remove);
    await client.createSession({ sessionId: "late" });
    await client.deleteSession(remove);
    assert.equal((await client.getSession({ sessionId: "late" })).sessionId, "late", "it was not deleted twice");
    await client.deleteSession({ sessionId: "late" });
    await assert.rejects(client.deleteSession({ sessionId: "late" }), hasCode(Code.NotFound));
  });

  test("a day later the id is free", async (context) => {
    const clock = { nowMs: Date.UTC(2030, 0, 1) };
    const flags = { "retention.sweep_ms": 5 };
    const { client } = await startTestApp(context, { flags, now: () => clock.nowMs });
    const { sessionId } = await client.createSession({});
    const update = (title: string) => client.updateSession({ sessionId, title, requestId: "r" });
    await update("a");
    clock.nowMs += 86_400_001;
    const isFree = () =>
      update("b").then(
        () => true,
        () => false,
      );
    while (!(await isFree())) await new Promise((resolve) => setTimeout(resolve, 5));
    assert.equal((await client.getSession({ sessionId })).title, "b");
  });
});

describe("a tool executed under one request id runs once", inTime, () => {
  const request = { sessionId: "one", name: "change", arguments: "{}", requestId: "r" };

  test("who asks while it runs joins, who asks later gets its result, also after a restart", async (context) => {
    const { provider, runs, release, begun } = countedTools();
    const options = { functions: [provider] };
    const { app, client, transport, dataDir } = await startTestApp(context, options);
    await client.createSession({ sessionId: "one", permissions: { mode: "bypass" } });
    const tools = createClient(ToolService, transport);
    const leaving = new AbortController();
    const left = tools.executeTool(request, { signal: leaving.signal });
    await begun;
    const joined = Array.from({ length: 5 }, () => tools.executeTool(request));
    await assert.rejects(tools.executeTool({ ...request, arguments: '{"a":1}' }), isReused);
    leaving.abort();
    await assert.rejects(left, hasCode(Code.Canceled));
    release();
    const results = await Promise.all(joined);
    results.push(await tools.executeTool(request));
    await app.close(0);
    const again = await startTestApp(context, { ...options, dataDir });
    results.push(await createClient(ToolService, again.transport).executeTool(request));
    for (const { result } of results) assert.equal(result?.output, "change 1");
    assert.deepEqual(runs, ["change"]);
  });

  test("what can't run is not noted; a tool that took too long is not run again", async (context) => {
    const { provider, runs, release, begun } = countedTools();
    const { client, transport } = await startTestApp(context, { functions: [provider] });
    const tools = createClient(ToolService, transport);
    await assert.rejects(tools.executeTool(request), hasCode(Code.NotFound));
    await client.createSession({ sessionId: "one" });
    await assert.rejects(tools.executeTool(request), hasCode(Code.PermissionDenied));
    await client.updateSession({ sessionId: "one", permissions: { mode: "bypass" } });
    const short = { ...request, timeoutMs: 50n };
    await assert.rejects(tools.executeTool(short), hasCode(Code.DeadlineExceeded));
    await begun;
    release();
    const { result } = await tools.executeTool(short);
    assert.equal(result?.success, false);
    assert.match(result?.error ?? "", /interrupted, outcome unknown/);
    assert.deepEqual(runs, ["change"]);
  });

  test("after a kill in its middle: one that changes something is not run again, one that looks is", async (context) => {
    const folder = mkdtempSync(join(tmpdir(), "codeagent-request-"));
    const effects = join(folder, "effects");
    writeFileSync(effects, "");
    const serve = async () => {
      const server: ChildProcessByStdio<null, Readable, null> = spawn(
        process.execPath,
        [join(import.meta.dirname, "../support/serve-effects.ts")],
        {
          cwd: folder,
          stdio: ["ignore", "pipe", "inherit"],
          env: {
            PATH: process.env["PATH"],
            CODEAGENT_DATA_DIR: join(folder, "data"),
            CODEAGENT_PORT: "0",
            EFFECTS_FILE: effects,
          },
        },
      );
      context.after(() => server.kill("SIGKILL"));
      const [line]: unknown[] = await once(server.stdout.setEncoding("utf8"), "data");
      const sessionManager = new Http2SessionManager(String(line).trim());
      const transport = createGrpcTransport({ baseUrl: String(line).trim(), sessionManager });
      return { server, client: createClient(CodeAgentService, transport), tools: createClient(ToolService, transport) };
    };
    context.after(() => rmSync(folder, { recursive: true, force: true }));
    const first = await serve();
    await first.client.createSession({ sessionId: "one", permissions: { mode: "bypass" } });
    const look = { ...request, name: "look", requestId: "l" };
    const broken = Promise.allSettled([first.tools.executeTool(request), first.tools.executeTool(look)]);
    while (!readFileSync(effects, "utf8").includes("begin change")) await new Promise((done) => setImmediate(done));
    first.server.kill("SIGKILL");
    await broken;
    const second = await serve();
    const [changed, looked, changedAgain] = await Promise.all([
      second.tools.executeTool(request),
      second.tools.executeTool(look),
      second.tools.executeTool(request),
    ]);
    assert.match(changed.result?.error ?? "", /interrupted, outcome unknown/);
    assert.deepEqual(changedAgain, changed);
    assert.equal(looked.result?.output, "look done");
    assert.equal(readFileSync(effects, "utf8").split("begin change").length, 2);
    second.server.kill("SIGTERM");
    await once(second.server, "close");
  });
});
