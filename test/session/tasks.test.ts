import assert from "node:assert/strict";
import { after, describe, type TestContext, test } from "node:test";
import { setImmediate as nextMoment } from "node:timers/promises";
import { createClient } from "@connectrpc/connect";
import type { GenerateChunk, Session } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { ToolService } from "../../gen/codeagent/v1/tool_service_pb.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";
import { blowGround } from "../support/blow-ground.ts";
import { noPostgres, stopTestDatabases, testDatabase } from "../support/postgres.ts";
import { readAlong } from "../support/read-along.ts";
import { startTestApp, type TestAppOptions, user } from "../support/test-app.ts";

after(stopTestDatabases);

/** Tools of giver and task: one that reads, one that changes something, one that waits until it is let go. */
function sampleTools() {
  const ran: string[] = [];
  const letGo = Promise.withResolvers<void>();
  const functions: FunctionProvider = {
    source: "embedded",
    list: async () =>
      ["look", "change", "hold"].map((name) => ({
        name,
        description: name,
        parameters: '{"type":"object"}',
        source: "embedded",
        readOnly: name !== "change",
        timeoutMs: 30_000,
      })),
    async call({ name }, { sessionId, signal }) {
      ran.push(`${name} ${sessionId}`);
      const aborted = new Promise((_, reject) =>
        signal.addEventListener("abort", () => reject(signal.reason), { once: true }),
      );
      if (name === "hold") await Promise.race([letGo.promise, aborted]);
      return { success: true, output: `${name} done` };
    },
    close: async () => undefined,
  };
  return { functions, ran, letGo: () => letGo.resolve() };
}

interface GivenTask {
  readonly description?: string;
  readonly prompt?: string;
  readonly tools?: readonly string[];
  readonly model?: string;
}

const usage = "usage: { prompt_tokens: 60, completion_tokens: 40, total_tokens: 100 }";

/** Tasks do what their prompt says; whoever is told `go` hands these over, and says in the end that it is done. */
function giving(...tasks: readonly GivenTask[]): string {
  const calls = tasks.map((task) => {
    const given = JSON.stringify({ description: "a task", prompt: "answer", ...task });
    return `{ name: task, arguments: ${given} }`;
  });
  return `
- { when: { role: tool, text: is not allowed in this turn }, text: that is not allowed }
- { when: { tool: task }, text: the giver is done, ${usage} }
- { when: { role: tool, text: The user chose }, text: told what it asked }
- { when: { role: tool, text: denied }, text: it was denied }
- { when: { role: tool }, text: the task is done, ${usage} }
- { when: { text: { equals: answer } }, text: here you are, ${usage} }
- { when: { text: { equals: be silent } }, text: "" }
- { when: { text: { equals: look } }, text: I look, tool_calls: [{ name: look }], ${usage} }
- { when: { text: { equals: change } }, text: I change, tool_calls: [{ name: change }] }
- { when: { text: { equals: hold } }, text: I hold, tool_calls: [{ name: hold }] }
- { when: { text: { equals: hand on } }, tool_calls: [{ name: task, arguments: { description: a, prompt: answer } }] }
- { when: { text: { equals: ask } }, tool_calls: [{ name: ask_user, arguments: { question: "Why?", options: [so] } }] }
- { when: { text: go }, text: I hand over, tool_calls: [${calls.join(", ")}], ${usage} }
`;
}

async function startGiving(context: TestContext, tasks: readonly GivenTask[], options: TestAppOptions = {}) {
  const tools = sampleTools();
  const functions = [tools.functions];
  const sample = await startTestApp(context, { script: giving(...tasks), functions, ...options });
  const { client } = sample;
  return {
    ...sample,
    ...tools,
    give: async (session: Parameters<typeof client.createSession>[0] = {}, options = {}) => {
      const { sessionId } = await client.createSession(session);
      const reading = readAlong(client.streamGenerate({ sessionId, messages: [user("go")], options }));
      return { sessionId, reading };
    },
    /** What the giver's model was told of its tasks. */
    told: (sessionId: string) => told(client, sessionId),
    tasksOf: (sessionId: string) => tasksOf(client, sessionId),
  };
}

type Client = Awaited<ReturnType<typeof startTestApp>>["client"];

async function told(client: Client, sessionId: string) {
  const { messages } = await client.listMessages({ sessionId });
  return messages.filter(({ role }) => role === "tool").map(({ contentType }) => String(contentType.value));
}

/** The sessions of the tasks that a session has handed over. */
async function tasksOf(client: Client, sessionId: string): Promise<Session[]> {
  const { sessions } = await client.listSessions({});
  return sessions.filter(({ metadata }) => metadata["parent_session_id"] === sessionId);
}

function results(seen: readonly GenerateChunk[]) {
  return seen.flatMap(({ event }) =>
    event.case === "toolFinished" && event.value.name === "task" && event.value.result ? [event.value.result] : [],
  );
}

function progress(seen: readonly GenerateChunk[]): string {
  return seen.map(({ event }) => (event.case === "toolOutput" ? event.value.text : "")).join("");
}

/** How the only turn of a session ended, when it has. */
async function endOf(client: Client, sessionId: string): Promise<string> {
  const log = readAlong(client.subscribeSession({ sessionId, follow: true }));
  for (;;) {
    const last = log.seen.at(-1)?.event;
    if (last?.case === "turnFinished") return last.value.finishReason;
    await nextMoment();
  }
}

/** Waits for something that is to come. */
async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  const lateMs = performance.now() + 20_000;
  while (!(await isSo())) {
    assert.ok(performance.now() < lateMs, "it did not come");
    await nextMoment();
  }
}

test("a task works in a session of its own and comes back with its last answer", async (context) => {
  const {
    client,
    ran,
    give,
    told: heard,
    tasksOf: tasks,
  } = await startGiving(context, [{ description: "look about", prompt: "look" }]);
  const permissions = { mode: "read-only", allow: ["look"], deny: ["fetch_url"] };
  const { sessionId, reading } = await give({ permissions, systemPrompt: "Be brief." });
  const seen = await reading.end();
  const [child, ...others] = await tasks(sessionId);
  assert.ok(child !== undefined);
  assert.deepEqual(others, []);
  assert.deepEqual(await heard(sessionId), ["the task is done"]);
  assert.deepEqual(ran, [`look ${child.sessionId}`]);
  const { session_id, turn_id, ...facts } = results(seen)[0]?.metadata ?? {};
  assert.deepEqual([session_id, turn_id?.startsWith("turn_")], [child.sessionId, true]);
  assert.deepEqual(facts, {
    finish_reason: "stop",
    steps: "2",
    model: "scripted/test",
    input_tokens: "120",
    output_tokens: "80",
    total_tokens: "200",
  });
  const parent = await client.getSession({ sessionId });
  assert.deepEqual(
    [child.title, child.workspace, child.systemPrompt, child.state, child.usage?.totalTokens],
    ["look about", parent.workspace, "Be brief.", "idle", 200n],
  );
  assert.deepEqual(child.permissions, parent.permissions);
  assert.equal(parent.usage?.totalTokens, 200n, "what the task used is in its own session");
  assert.equal(progress(seen), `begins in session ${child.sessionId}\nstep 1\nruns look {}\nstep 2\n`);
  const started = seen.flatMap(({ event }) => (event.case === "toolStarted" ? [event.value.readOnly] : []));
  assert.deepEqual(started, [false]);
});

describe("what a task may", () => {
  const rows: [name: string, task: GivenTask, told: RegExp, tasks: number][] = [
    ["it can't hand on", { prompt: "hand on" }, /^that is not allowed$/, 1],
    ["it has the tools it was given", { prompt: "look", tools: ["look"] }, /^the task is done$/, 1],
    ["and no others", { prompt: "look", tools: ["hold"] }, /^that is not allowed$/, 1],
    ["none at all", { prompt: "look", tools: [] }, /^that is not allowed$/, 1],
    ["nobody can give task", { tools: ["look", "task"] }, /not begun: it can't be given task; what .*: .*look/, 0],
    ["nobody can give what is not there", { tools: ["fly"] }, /not begun: it can't be given fly;/, 0],
    ["a model that is there", { model: "scripted/other" }, /^here you are$/, 1],
    ["no model that is not", { model: "nobody/x" }, /^error: the task was not done: .*nobody/, 0],
    ["its model may fail", { prompt: "something nobody planned" }, /^error: the task was not done: .*no scripted/, 1],
    ["silence is no answer", { prompt: "be silent" }, /^error: the task was not done: it ended without an answer$/, 1],
    ["what is denied to its giver", { prompt: "change" }, /^it was denied$/, 1],
    ["words are wanted", { prompt: "" }, /^error: .*prompt/, 0],
  ];
  for (const [name, given, heard, count] of rows) {
    test(name, async (context) => {
      const { ran, give, told: said, tasksOf: tasks } = await startGiving(context, [given]);
      const { sessionId, reading } = await give({ permissions: { mode: "read-only" } });
      const last = (await reading.end()).at(-1)?.event;
      assert.equal(last?.case === "turnFinished" && last.value.finishReason, "stop");
      assert.match(String(await said(sessionId)), heard);
      assert.equal((await tasks(sessionId)).length, count);
      assert.deepEqual(
        ran.map((call) => call.split(" ")[0]),
        given.tools?.includes("look") === true && given.prompt === "look" ? ["look"] : [],
      );
    });
  }

  test("no more than its giver may in that turn", async (context) => {
    const { ran, give, told: said } = await startGiving(context, [{ prompt: "look" }, { tools: ["look"] }]);
    const { sessionId, reading } = await give({}, { allowedTools: ["task", "hold"] });
    await reading.end();
    const [first = "", second = ""] = await said(sessionId);
    assert.equal(first, "that is not allowed");
    assert.match(second, /can't be given look; what it can be given is: hold$/);
    assert.deepEqual(ran, []);
  });

  test("nothing, where its giver may do nothing but hand over", async (context) => {
    const { ran, give, told: said } = await startGiving(context, [{ prompt: "look" }]);
    const { sessionId, reading } = await give({}, { allowedTools: ["task"] });
    await reading.end();
    assert.deepEqual([ran, await said(sessionId)], [[], ["that is not allowed"]]);
  });

  test("rules can deny it and ask for it", async (context) => {
    const { client, give, told: said } = await startGiving(context, [{}]);
    const denied = await give({ permissions: { deny: ["task"] } });
    await denied.reading.end();
    assert.match(String(await said(denied.sessionId)), /denied by the policy/);
    const asked = await give({ permissions: { ask: ["task"] } });
    const [request] = await asked.reading.requests(1);
    const { requestId = "", kind } = request ?? {};
    assert.equal(kind, "approval");
    const responses = [{ requestId, decision: "allow_once" }];
    await client.respondToRequest({ sessionId: asked.sessionId, responses });
    await asked.reading.end();
    assert.deepEqual(await said(asked.sessionId), ["here you are"]);
  });
});

describe("a task that waits for people", () => {
  const rows: [prompt: string, decision: string, text: string, told: string][] = [
    ["change", "allow_once", "", "the task is done"],
    ["change", "deny", "", "it was denied"],
    ["ask", "answer", "so", "told what it asked"],
  ];
  for (const [prompt, decision, text, heard] of rows) {
    test(`${prompt}: ${decision}`, async (context) => {
      const { client, give, told: said, tasksOf: tasks } = await startGiving(context, [{ prompt }]);
      const { sessionId, reading } = await give();
      await until(() => /waits for an answer/.test(progress(reading.seen)));
      const { requests } = await client.listPendingRequests({});
      const [child] = await tasks(sessionId);
      assert.deepEqual(
        requests.map((request) => request.sessionId),
        [child?.sessionId],
      );
      const { requestId = "", title = "" } = requests[0] ?? {};
      const responses = [{ requestId, decision, text }];
      await client.respondToRequest({ sessionId: child?.sessionId ?? "", responses });
      const seen = await reading.end();
      const notices = seen.flatMap(({ event }) => (event.case === "notice" ? [event.value] : []));
      assert.deepEqual(
        notices.map(({ code }) => code),
        ["TASK_WAITS"],
      );
      assert.ok(notices[0]?.message.endsWith(`${title} (session ${child?.sessionId})`));
      assert.deepEqual(await said(sessionId), [heard]);
    });
  }
});

describe("with its giver ends a task", () => {
  test("that is cancelled", async (context) => {
    const { client, ran, give, tasksOf: tasks } = await startGiving(context, [{ prompt: "hold" }]);
    const { sessionId, reading } = await give();
    await until(() => ran.length > 0);
    await client.cancelTurn({ sessionId });
    const last = (await reading.end()).at(-1)?.event;
    assert.equal(last?.case === "turnFinished" && last.value.finishReason, "cancelled");
    assert.equal(await endOf(client, (await tasks(sessionId))[0]?.sessionId ?? ""), "cancelled");
  });

  test("that runs out of time", async (context) => {
    const { client, give, tasksOf: tasks } = await startGiving(context, [{ prompt: "change" }]);
    const { sessionId, reading } = await give({}, { timeoutMs: 500n });
    await reading.end();
    assert.equal(await endOf(client, (await tasks(sessionId))[0]?.sessionId ?? ""), "cancelled");
  });

  test("that ran out of time while no server ran", async (context) => {
    const first = await startGiving(context, [{ prompt: "change" }]);
    const { sessionId, reading } = await first.give({ approvalTimeoutMs: 86_400_000n }, { timeoutMs: 600_000n });
    await until(() => /waits for an answer/.test(progress(reading.seen)));
    await first.app.close(0);
    const now = () => Date.now() + 3_600_000;
    const { client, tasksOf: tasks } = await startGiving(context, [], { dataDir: first.dataDir, now });
    assert.equal(await endOf(client, sessionId), "error");
    assert.equal(await endOf(client, (await tasks(sessionId))[0]?.sessionId ?? ""), "cancelled");
  });

  test("that is deleted", async (context) => {
    const { client, ran, give, tasksOf: tasks } = await startGiving(context, [{ prompt: "hold" }]);
    const { sessionId, reading } = await give();
    await until(() => ran.length > 0);
    const [child] = await tasks(sessionId);
    await client.deleteSession({ sessionId });
    await assert.rejects(reading.end());
    assert.equal(await endOf(client, child?.sessionId ?? ""), "cancelled");
  });

  test("in a one-off turn, which leaves no session", async (context) => {
    const { app, client, ran } = await startGiving(context, [{ prompt: "hold" }]);
    const reading = readAlong(client.streamGenerate({ messages: [user("go")] }));
    await until(() => ran.length > 0);
    const child = endOf(client, ran[0]?.replace("hold ", "") ?? ""); // who reads it keeps it from ending by itself
    await client.cancelTurn({ sessionId: reading.seen[0]?.sessionId ?? "" });
    await reading.end();
    assert.equal(await child, "cancelled");
    assert.deepEqual((await client.listSessions({})).sessions, []);
    await app.close(0);
  });
});

test("tasks of one answer are worked on together, and each comes back to its call", async (context) => {
  const {
    ran,
    letGo,
    give,
    told: said,
  } = await startGiving(context, [{ prompt: "hold" }, { prompt: "answer" }, { prompt: "hold" }]);
  const { sessionId, reading } = await give();
  await until(() => ran.length === 2);
  letGo();
  await reading.end();
  assert.deepEqual(await said(sessionId), ["the task is done", "here you are", "the task is done"]);
});

test("a one-off turn hands its tasks to one-off turns", async (context) => {
  const { client } = await startGiving(context, [{ prompt: "ask" }]);
  const reading = readAlong(client.streamGenerate({ messages: [user("go")] }));
  await until(() => /waits for an answer/.test(progress(reading.seen)));
  const [request] = (await client.listPendingRequests({})).requests;
  const { requestId = "", sessionId = "" } = request ?? {};
  assert.notEqual(sessionId, reading.seen[0]?.sessionId);
  await client.respondToRequest({ sessionId, responses: [{ requestId, decision: "answer", text: "so" }] });
  const [result] = results(await reading.end());
  assert.deepEqual([result?.success, result?.output], [true, "told what it asked"]);
  assert.deepEqual((await client.listSessions({})).sessions, []);
});

test("a task that there is no room for fails at once, and leaves nothing", async (context) => {
  const flags = { "limits.max_turns_in_flight": 1 };
  const { give, told: said, tasksOf: tasks } = await startGiving(context, [{}], { flags });
  const { sessionId, reading } = await give();
  await reading.end();
  assert.match(String(await said(sessionId)), /^error: the task was not done: 1 turns run already/);
  assert.deepEqual(await tasks(sessionId), []);
});

describe("budgets", () => {
  test("tasks share what is left, and what they used counts", async (context) => {
    const { client, give, told: said, tasksOf: tasks } = await startGiving(context, [{ prompt: "look" }, {}]);
    // The giver's first answer takes 100: each task may have 150.
    const { sessionId, reading } = await give({}, { budget: { maxTotalTokens: 400n } });
    const last = (await reading.end()).at(-1)?.event;
    assert.deepEqual((await tasks(sessionId)).map(({ usage: used }) => used?.totalTokens).toSorted(), [100n, 200n]);
    const shares = await Promise.all(
      (await tasks(sessionId)).map(async (child) => {
        for await (const { event } of client.subscribeSession({ sessionId: child.sessionId }))
          if (event.case === "turnStarted") return event.value.options?.budget?.maxTotalTokens;
        return undefined;
      }),
    );
    assert.deepEqual(shares, [150n, 150n]);
    assert.deepEqual(await said(sessionId), ["the task is done", "here you are"]);
    assert.equal(last?.case === "turnFinished" && last.value.finishReason, "budget");
    assert.equal((await client.getSession({ sessionId })).usage?.totalTokens, 100n);
  });

  test("a task ends where its share does", async (context) => {
    const { give, told: said } = await startGiving(context, [{ prompt: "look" }]);
    const { sessionId, reading } = await give({ budget: { maxTotalTokens: 200n } });
    await reading.end();
    assert.match(String(await said(sessionId)), /I look\nerror: the task was not done: it ended early \(budget\)/);
  });

  test("with nothing left none is begun", async (context) => {
    const { give, told: said, tasksOf: tasks } = await startGiving(context, [{}]);
    const { sessionId, reading } = await give({ budget: { maxTotalTokens: 100n } });
    await reading.end();
    assert.match(String(await said(sessionId)), /no budget is left for it/);
    assert.deepEqual(await tasks(sessionId), []);
  });
});

test("outside a turn no task is handed over", async (context) => {
  const { transport } = await startGiving(context, []);
  const tools = createClient(ToolService, transport);
  const { result } = await tools.executeTool({ name: "task", arguments: '{"description":"a","prompt":"b"}' });
  assert.match(result?.error ?? "", /inside a turn only/);
});

test("a server that stops leaves a task to the next one", async (context) => {
  const first = await startGiving(context, [{ prompt: "change" }]);
  const { sessionId, reading } = await first.give();
  await until(() => /waits for an answer/.test(progress(reading.seen)));
  await first.app.close(0);
  const { client, ran, told: said } = await startGiving(context, [], { dataDir: first.dataDir });
  const [request] = (await client.listPendingRequests({})).requests;
  const { requestId = "", sessionId: child = "" } = request ?? {};
  await client.respondToRequest({ sessionId: child, responses: [{ requestId, decision: "allow_once" }] });
  assert.equal(await endOf(client, sessionId), "stop");
  assert.deepEqual(await said(sessionId), ["the task is done"]);
  assert.deepEqual([first.ran, ran], [[], [`change ${child}`]]);
});

test("a task that waits is taken over with its giver by the other server", { skip: noPostgres }, async (context) => {
  const flags = { database_url: await testDatabase(), "postgres.replica_ttl_ms": 3000 };
  const one = await startGiving(context, [{ prompt: "change" }], { flags });
  const other = await startGiving(context, [{ prompt: "change" }], { flags });
  const { sessionId, reading } = await one.give();
  await until(() => /waits for an answer/.test(progress(reading.seen)));
  await one.app.close(0);
  const [request] = (await other.client.listPendingRequests({})).requests;
  const { requestId = "", sessionId: child = "" } = request ?? {};
  await other.client.respondToRequest({ sessionId: child, responses: [{ requestId, decision: "allow_once" }] });
  assert.equal(await endOf(other.client, sessionId), "stop");
  assert.deepEqual(await other.told(sessionId), ["the task is done"]);
  assert.deepEqual([one.ran, other.ran], [[], [`change ${child}`]]);
});

/** A task that changes something and then answers slowly. */
const slowScript = `
- { when: { tool: task }, text: the giver is done }
- { when: { tool: change }, text: it is changed at last, chunk: 1, delay_ms: 40 }
- { when: { text: { equals: change } }, tool_calls: [{ name: change }] }
- { when: { text: go }, tool_calls: [{ name: task, arguments: { description: a task, prompt: change } }] }
`;

test("killed while its task works, a turn finds the task again, which changes nothing twice", async (context) => {
  const ground = blowGround(slowScript);
  context.after(() => ground.close());
  const sessionId = "giver";
  const first = await ground.start("data");
  await first.client.createSession({ sessionId, permissions: { mode: "bypass" } });
  const giving = readAlong(first.client.streamGenerate({ sessionId, messages: [user("go")] }));
  await until(() => /runs change/.test(progress(giving.seen)));
  const [child] = await tasksOf(first.client, sessionId);
  assert.ok(child !== undefined);
  const working = readAlong(first.client.subscribeSession({ sessionId: child.sessionId, follow: true }));
  await working.finished("change");
  await first.kill();

  const { client } = await ground.start("data");
  assert.equal(await endOf(client, sessionId), "stop");
  assert.deepEqual(await told(client, sessionId), ["it is changed at last"]);
  assert.deepEqual(
    (await tasksOf(client, sessionId)).map((task) => task.sessionId),
    [child.sessionId],
  );
  assert.deepEqual(ground.tools(), { toolsBegun: 1, toolsTwice: 0 });
  const { messages } = await client.listMessages({ sessionId: child.sessionId });
  assert.equal(messages.filter(({ role }) => role === "user").length, 1, "it was asked once");
});
