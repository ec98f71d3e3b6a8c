import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { setImmediate as nextMoment } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { CodeAgentService, type CreateSessionRequestSchema } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { ToolService } from "../../gen/codeagent/v1/tool_service_pb.ts";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { AgentError } from "../../src/chat/error.ts";
import type { LogEvent } from "../../src/chat/log-event.ts";
import { plainPermissions } from "../../src/chat/session-config.ts";
import { Tail } from "../../src/log/tail.ts";
import { LogWriter } from "../../src/session/log-writer.ts";
import { memoryLog } from "../../src/session/owned-log.ts";
import { defaultSessionLimits, type RunningSession, runTurn } from "../../src/session/run-turn.ts";
import { plainConfig } from "../../src/session/session-worker.ts";
import { emptyState, foldRecord } from "../../src/session/state.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";
import { FunctionSets } from "../../src/tool/function-sets.ts";
import { start, temporaryFolder } from "../cli/start-codeagent.ts";
import { readAlong } from "../support/read-along.ts";
import { startTestApp, type TestAppOptions, user } from "../support/test-app.ts";

type NewSession = MessageInitShape<typeof CreateSessionRequestSchema>;

/** A tool that only reads and one that changes something; both say what they were called with. */
function sampleTools() {
  const ran: string[] = [];
  const provider: FunctionProvider = {
    source: "local",
    list: async () =>
      ["look", "change"].map((name) => ({
        name,
        description: name,
        parameters: '{"type":"object"}',
        source: "local",
        readOnly: name === "look",
        timeoutMs: 30_000,
      })),
    async call({ name, arguments: given }) {
      ran.push(`${name} ${JSON.stringify(given)}`);
      return { success: true, output: `${name} done` };
    },
    close: async () => undefined,
  };
  return { provider, ran };
}

/** A script whose first answer makes these calls, and whose second one says that it is done. */
function calling(...calls: readonly (readonly [name: string, given: object])[]): string {
  const made = calls.map(([name, given]) => `{ name: ${name}, arguments: ${JSON.stringify(given)} }`);
  return `- { when: { role: tool }, text: that is all }\n- { text: I begin, tool_calls: [${made.join(", ")}] }\n`;
}

const oneChange = calling(["change", { at: 1 }]);

async function startSample(context: TestContext, options: TestAppOptions = {}) {
  const { provider, ran } = sampleTools();
  const sample = await startTestApp(context, { script: oneChange, functions: [provider], ...options });
  const { client, app } = sample;
  return {
    ...sample,
    ran,
    /** Begins a turn in a new session and waits for its requests. */
    async ask(session: NewSession = {}, count = 1) {
      const { sessionId } = await client.createSession(session);
      const reading = readAlong(client.streamGenerate({ sessionId, messages: [user("go")] }));
      return { sessionId, reading, requests: await reading.requests(count) };
    },
    respond: (sessionId: string, requestId: string, decision: string, text = "") =>
      client.respondToRequest({ sessionId, responses: [{ requestId, decision, text }] }),
    /** Waits until nobody works on any session. */
    async atRest() {
      while (app.sessions.working > 0) await nextMoment();
    },
    /** What the model was told of its calls, in order. */
    async told(sessionId: string) {
      const { messages } = await client.listMessages({ sessionId });
      return messages.filter(({ role }) => role === "tool").map(({ contentType }) => contentType.value);
    },
  };
}

function hasCode(code: Code, pattern = /./) {
  return (error: unknown) => {
    assert.ok(error instanceof ConnectError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.rawMessage, pattern);
    return true;
  };
}

describe("whether a call runs, is asked for or denied", () => {
  type Outcome = "ran" | "asked" | "denied";
  const rows: [mode: string, rules: NewSession["permissions"], look: Outcome, change: Outcome][] = [
    ["", {}, "ran", "asked"],
    ["ask", {}, "ran", "asked"],
    ["read-only", {}, "ran", "denied"],
    ["accept-edits", {}, "ran", "asked"],
    ["bypass", {}, "ran", "ran"],
    ["ask", { allow: ["change"] }, "ran", "ran"],
    ["read-only", { allow: ["change"] }, "ran", "ran"],
    ["ask", { ask: ["look"] }, "asked", "asked"],
    ["read-only", { ask: ["change"] }, "ran", "asked"],
    ["bypass", { ask: ["change", "look"] }, "asked", "asked"],
    ["ask", { deny: ["look"] }, "denied", "asked"],
    ["bypass", { deny: ["change"] }, "ran", "denied"],
    ["ask", { allow: ["change"], ask: ["change"] }, "ran", "asked"],
    ["ask", { allow: ["change"], ask: ["change"], deny: ["change"] }, "ran", "denied"],
  ];
  for (const [mode, rules, look, change] of rows) {
    test(`${mode || "no mode"} ${JSON.stringify(rules)}`, async (context) => {
      const { client, transport, ran } = await startSample(context, {
        script: calling(["look", {}], ["change", {}]),
      });
      const { sessionId } = await client.createSession({ permissions: { mode, ...rules } });
      const tools = createClient(ToolService, transport);
      const decisions = { ran: "allow", asked: "ask", denied: "deny" };
      for (const [name, outcome] of Object.entries({ look, change })) {
        const { decision, findings } = await tools.checkPermission({ sessionId, name });
        assert.equal(decision, decisions[outcome]);
        assert.deepEqual(
          findings.map((finding) => finding.decision),
          [decision],
        );
      }
      const outcomes: Record<string, string> = {};
      for await (const { event } of client.streamGenerate({ sessionId, messages: [user("go")] })) {
        if (event.case === "requestOpened") {
          const { requestId = "", toolName = "" } = event.value.request ?? {};
          outcomes[toolName] = "asked";
          await client.respondToRequest({ sessionId, responses: [{ requestId, decision: "deny" }] });
        } else if (event.case === "toolFinished" && outcomes[event.value.name] !== "asked") {
          const isDenied = /denied by the policy: /.test(event.value.result?.error ?? "");
          outcomes[event.value.name] = event.value.result?.success ? "ran" : isDenied ? "denied" : "failed";
        }
      }
      assert.deepEqual(outcomes, { look, change });
      assert.deepEqual(
        ran.map((call) => call.split(" ")[0]),
        Object.entries({ look, change }).flatMap(([name, outcome]) => (outcome === "ran" ? [name] : [])),
      );
    });
  }
});

describe("what becomes of an approval", () => {
  const rows: { decision: string; text?: string; ran: boolean; told: RegExp }[] = [
    { decision: "allow_once", ran: true, told: /^change done$/ },
    { decision: "allow_session", ran: true, told: /^change done$/ },
    { decision: "deny", ran: false, told: /^error: not run: the person who was asked denied it$/ },
    { decision: "deny", text: "use look", ran: false, told: /denied it, and says: use look$/ },
    { decision: "", ran: false, told: /^error: not run: nobody approved it in time$/ },
  ];
  for (const { decision, text = "", ran: runs, told } of rows) {
    test(`${decision || "nobody answers"} ${text}`.trim(), async (context) => {
      const { client, ran, ask, respond, told: heard } = await startSample(context);
      const isExpired = decision === "";
      const { sessionId, reading, requests } = await ask(isExpired ? { approvalTimeoutMs: 20n } : {});
      const [request] = requests;
      assert.deepEqual(
        [request?.title, request?.toolName, request?.arguments, request?.options, request?.kind],
        ['change {"at":1}', "change", '{"at":1}', ["allow_once", "allow_session", "deny"], "approval"],
      );
      assert.match(request?.explanation ?? "", /may change something/);
      const requestId = request?.requestId ?? "";
      if (!isExpired) {
        const { resolved } = await respond(sessionId, requestId, decision, text);
        assert.deepEqual(
          resolved.map((each) => [each.requestId, each.decision, each.author, each.text]),
          [[requestId, decision, "local", text]],
        );
      }
      const seen = await reading.end();
      const answers = seen.flatMap(({ event }) => (event.case === "requestResolved" ? [event.value] : []));
      assert.deepEqual(
        answers.map((each) => [each.requestId, each.decision, each.author, each.text]),
        [[requestId, decision || "expired", isExpired ? "" : "local", text]],
      );
      assert.deepEqual(ran, runs ? ['change {"at":1}'] : []);
      const results = await heard(sessionId);
      assert.equal(results.length, 1);
      assert.match(String(results[0]), told);
      assert.deepEqual((await client.listPendingRequests({ sessionId })).requests, []);
      assert.equal((await client.getSession({ sessionId })).state, "idle");
      if (isExpired)
        await assert.rejects(respond(sessionId, requestId, "allow_once"), hasCode(Code.FailedPrecondition, /expired/));
    });
  }

  test("it expires on time also after a restart", async (context) => {
    const first = await startSample(context);
    const { sessionId } = await first.ask({ approvalTimeoutMs: 300n });
    await first.app.close(0);
    const second = await startSample(context, { dataDir: first.dataDir });
    const log = readAlong(second.client.subscribeSession({ sessionId, follow: true }));
    await log.finished("change");
    assert.deepEqual([...first.ran, ...second.ran], []);
    await second.atRest();
    assert.match(String((await second.told(sessionId))[0]), /nobody approved it in time/);
  });
});

test("while a call waits the others run, and nothing is held for the session", async (context) => {
  const sample = await startSample(context, {
    script: calling(["look", { at: 1 }], ["change", { at: 2 }], ["look", { at: 3 }]),
  });
  const { client, ran, ask, respond, atRest } = sample;
  const { sessionId, reading, requests } = await ask();
  await reading.finished("look", 2);
  await atRest();
  assert.deepEqual(ran, ['look {"at":1}', 'look {"at":3}']);
  assert.equal((await client.getSession({ sessionId })).state, "waiting");
  await respond(sessionId, requests[0]?.requestId ?? "", "allow_once");
  await reading.end();
  assert.equal(ran.at(-1), 'change {"at":2}');
  assert.deepEqual(await sample.told(sessionId), ["look done", "change done", "look done"]);
});

describe("allowed for the session", () => {
  test("the same call is not asked for again, also after a restart and in a fork; another one is", async (context) => {
    const script = `
- { when: { role: tool }, text: that is all }
- { when: { text: other }, tool_calls: [{ name: change, arguments: { at: 2 } }] }
- { tool_calls: [{ name: change, arguments: { at: 1 } }] }
`;
    const first = await startSample(context, { script });
    const { sessionId, reading, requests } = await first.ask();
    await first.respond(sessionId, requests[0]?.requestId ?? "", "allow_session");
    await reading.end();
    await first.app.close(0);

    const { client, ran, respond, transport } = await startSample(context, { script, dataDir: first.dataDir });
    const fork = await client.forkSession({ sessionId });
    for (const id of [sessionId, fork.sessionId]) await client.generate({ sessionId: id, messages: [user("again")] });
    assert.deepEqual(ran, ['change {"at":1}', 'change {"at":1}']);
    const tools = createClient(ToolService, transport);
    const checked = await tools.checkPermission({ sessionId, name: "change", arguments: '{ "at": 1 }' });
    assert.deepEqual([checked.decision, checked.ruleSource], ["allow", "answer"]);
    const other = readAlong(client.streamGenerate({ sessionId, messages: [user("other")] }));
    const [request] = await other.requests(1);
    await respond(sessionId, request?.requestId ?? "", "deny");
    await other.end();
    assert.equal(ran.length, 2);
  });

  test("the same call beside it is allowed with it", async (context) => {
    const { ran, ask, respond } = await startSample(context, {
      script: calling(["change", { at: 1 }], ["change", { at: 2 }], ["change", { at: 1 }]),
    });
    const { sessionId, reading, requests } = await ask({}, 3);
    await respond(sessionId, requests[2]?.requestId ?? "", "allow_session");
    await reading.finished("change", 2);
    await respond(sessionId, requests[1]?.requestId ?? "", "deny");
    await reading.end();
    assert.deepEqual(ran, ['change {"at":1}', 'change {"at":1}']);
  });
});

describe("several answers", () => {
  test("of two people at once the first wins, and both are told what holds", async (context) => {
    const { client, ran, ask, respond } = await startSample(context);
    const { sessionId, reading, requests } = await ask();
    const requestId = requests[0]?.requestId ?? "";
    const words = ["allow_once", "deny", "allow_once", "deny"];
    const answers = await Promise.allSettled(words.map((decision) => respond(sessionId, requestId, decision)));
    const won = words.filter((_, index) => answers[index]?.status === "fulfilled");
    assert.equal(won.length, 2);
    assert.equal(new Set(won).size, 1);
    const winner = won[0] ?? "";
    for (const answer of answers) {
      if (answer.status === "fulfilled") {
        assert.equal(answer.value.resolved[0]?.decision, winner);
        continue;
      }
      hasCode(Code.FailedPrecondition, new RegExp(`was answered ${winner} by local`))(answer.reason);
      const [info] = ConnectError.from(answer.reason).findDetails(ErrorInfoSchema);
      assert.deepEqual(
        [info?.reason, info?.metadata["decision"], info?.metadata["author"]],
        ["REQUEST_RESOLVED", winner, "local"],
      );
    }
    await reading.end();
    assert.equal(ran.length, winner === "deny" ? 0 : 1);
    const again = await client.respondToRequest({ sessionId, responses: [{ requestId, decision: winner }] });
    assert.equal(again.resolved[0]?.decision, winner);
    const other = winner === "deny" ? "allow_once" : "deny";
    await assert.rejects(respond(sessionId, requestId, other), hasCode(Code.FailedPrecondition));
    assert.equal(ran.length, winner === "deny" ? 0 : 1);
  });

  test("of a batch all are taken, or none where one is to nothing", async (context) => {
    const { client, ran, ask } = await startSample(context, {
      script: calling(["change", { at: 1 }], ["change", { at: 2 }]),
    });
    const { sessionId, reading, requests } = await ask({}, 2);
    const [first, second] = requests.map(({ requestId }) => requestId);
    const responses = [first, second, "req_nobody"].map((requestId = "") => ({ requestId, decision: "allow_once" }));
    await assert.rejects(client.respondToRequest({ sessionId, responses }), hasCode(Code.NotFound, /req_nobody/));
    assert.equal((await client.listPendingRequests({ sessionId })).requests.length, 2);
    const { resolved } = await client.respondToRequest({ sessionId, responses: responses.slice(0, 2) });
    assert.deepEqual(
      resolved.map(({ requestId }) => requestId),
      [first, second],
    );
    await reading.end();
    assert.deepEqual(ran, ['change {"at":1}', 'change {"at":2}']);
  });

  test("the request of another session is not there", async (context) => {
    const { client, ask, respond } = await startSample(context);
    const { requests } = await ask();
    const { sessionId } = await client.createSession({});
    await assert.rejects(respond(sessionId, requests[0]?.requestId ?? "", "allow_once"), hasCode(Code.NotFound));
  });
});

test("what waits is listed, those that wait longest first, page by page, of one session or of all", async (context) => {
  const two = calling(["change", { at: 1 }], ["change", { at: 2 }]);
  const { client, ask, respond, atRest } = await startSample(context, { script: two });
  const asked = [await ask({}, 2), await ask({}, 2)];
  const oneOff = readAlong(client.streamGenerate({ messages: [user("go")] }));
  const wanted = [...asked.flatMap(({ requests }) => requests), ...(await oneOff.requests(2))];
  for (const pageSize of [0, 1, 3]) {
    const listed: string[] = [];
    let pageToken = "";
    do {
      const page = await client.listPendingRequests({ pageSize, pageToken });
      assert.ok(pageSize === 0 || page.requests.length <= pageSize);
      listed.push(...page.requests.map(({ requestId }) => requestId));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    assert.deepEqual(
      listed,
      wanted.map(({ requestId }) => requestId),
      `in pages of ${pageSize}`,
    );
  }
  const [first] = asked;
  const ofOne = await client.listPendingRequests({ sessionId: first?.sessionId ?? "" });
  assert.deepEqual(ofOne.requests, first?.requests);
  await respond(first?.sessionId ?? "", first?.requests[0]?.requestId ?? "", "deny");
  await first?.reading.finished("change");
  await atRest();
  const left = await client.listPendingRequests({ sessionId: first?.sessionId ?? "" });
  assert.deepEqual(left.requests, first?.requests.slice(1));
  const oneOffId = oneOff.seen[0]?.sessionId ?? "";
  assert.equal((await client.listPendingRequests({ sessionId: oneOffId })).requests.length, 2);
});

test("a turn without a session can be approved while somebody reads it", async (context) => {
  const { client, ran, respond } = await startSample(context);
  const reading = readAlong(client.streamGenerate({ messages: [user("go")] }));
  const [request] = await reading.requests(1);
  const { sessionId = "", requestId = "" } = request ?? {};
  await assert.rejects(respond(sessionId, "req_nobody", "deny"), hasCode(Code.NotFound));
  await respond(sessionId, requestId, "allow_once");
  await assert.rejects(respond(sessionId, requestId, "deny"), hasCode(Code.FailedPrecondition));
  await reading.end();
  assert.deepEqual(ran, ['change {"at":1}']);
});

describe("while a turn waits", () => {
  test("it can be cancelled, and the next turn works", async (context) => {
    const { client, ran, ask, respond, atRest, told } = await startSample(context);
    const { sessionId, reading, requests } = await ask();
    await atRest();
    assert.equal((await client.cancelTurn({ sessionId })).wasRunning, true);
    const seen = await reading.end();
    const ends = seen.slice(-2).map(({ event }) => event);
    assert.deepEqual(
      ends.map((event) =>
        event.case === "requestResolved"
          ? event.value.decision
          : event.case === "turnFinished" && event.value.finishReason,
      ),
      ["expired", "cancelled"],
    );
    const requestId = requests[0]?.requestId ?? "";
    await assert.rejects(respond(sessionId, requestId, "allow_once"), hasCode(Code.FailedPrecondition, /expired/));
    const next = readAlong(client.streamGenerate({ sessionId, messages: [user("again")] }));
    const [, again] = [requests[0], ...(await next.requests(1))];
    await respond(sessionId, again?.requestId ?? "", "deny");
    await next.end();
    assert.deepEqual(ran, []);
    assert.match(String((await told(sessionId))[0]), /not run: the turn ended \(cancelled\)/);
  });

  test("the next one waits its turn, is told so, and can be cancelled", async (context) => {
    const { client, ask, respond, atRest } = await startSample(context);
    const { sessionId, reading, requests } = await ask();
    await atRest();
    const second = readAlong(client.streamGenerate({ sessionId, messages: [user("second")] }));
    const third = readAlong(client.streamGenerate({ sessionId, messages: [user("third")] }));
    while (second.seen.length === 0 || third.seen.length === 0) await nextMoment();
    assert.deepEqual(
      [second, third].map(({ seen }) => seen[0]?.event.case),
      ["streamReady", "streamReady"],
    );
    await client.cancelTurn({ sessionId, turnId: third.seen[0]?.turnId ?? "" });
    await atRest();
    assert.equal((await client.getSession({ sessionId })).queuedTurns, 2);
    await respond(sessionId, requests[0]?.requestId ?? "", "allow_session");
    const ends = [await reading.end(), await second.end(), await third.end()].map((seen) => seen.at(-1)?.event);
    assert.deepEqual(
      ends.map((event) => event?.case === "turnFinished" && event.value.finishReason),
      ["stop", "stop", "cancelled"],
    );
  });

  test("the server ends at once", async (context) => {
    const { client, app, ask } = await startSample(context);
    await ask();
    const oneOff = readAlong(client.streamGenerate({ messages: [user("go")] }));
    await oneOff.requests(1);
    const beganMs = performance.now();
    await app.close(60_000);
    assert.ok(performance.now() - beganMs < 20_000, "it did not wait for an answer");
  });

  test("a time limit of the request holds", async (context) => {
    const { client, ran } = await startSample(context);
    const { sessionId } = await client.createSession({});
    const asked = client.generate({ sessionId, messages: [user("go")], options: { timeoutMs: 300n } });
    await assert.rejects(asked, hasCode(Code.DeadlineExceeded));
    assert.deepEqual((await client.listPendingRequests({})).requests, []);
    assert.deepEqual(ran, []);
  });

  test("a rule that denies comes before an approval", async (context) => {
    const { client, ran, ask, respond, told } = await startSample(context);
    const { sessionId, reading, requests } = await ask();
    await client.updateSession({ sessionId, permissions: { deny: ["change"] } });
    await respond(sessionId, requests[0]?.requestId ?? "", "allow_once");
    await reading.end();
    assert.deepEqual(ran, []);
    assert.match(String((await told(sessionId))[0]), /denied by the policy: the rule change denies it/);
  });

  test("its session can be deleted", async (context) => {
    const { client, ask } = await startSample(context);
    const { sessionId, reading } = await ask();
    await client.deleteSession({ sessionId });
    await assert.rejects(reading.end(), hasCode(Code.NotFound));
    assert.deepEqual((await client.listPendingRequests({})).requests, []);
  });
});

test("what can't run is not asked for", async (context) => {
  const script = calling(["fly", {}]).replace("arguments: {}", "arguments: {} }, { name: change, arguments: '{'");
  const { client, ran } = await startSample(context, { script });
  const answer = await client.generate({ messages: [user("go")] });
  assert.equal(answer.finishReason, "stop");
  assert.deepEqual(ran, []);
});

test("outside a turn nobody is asked: what is not allowed is refused", async (context) => {
  const { client, transport, ran } = await startSample(context);
  const tools = createClient(ToolService, transport);
  const { sessionId } = await client.createSession({ permissions: { deny: ["look"] } });
  const run = (name: string, session = sessionId) => tools.executeTool({ sessionId: session, name });
  await assert.rejects(run("look"), hasCode(Code.PermissionDenied, /the rule look denies it/));
  await assert.rejects(run("change"), hasCode(Code.PermissionDenied, /has to be approved/));
  await assert.rejects(run("change", ""), hasCode(Code.PermissionDenied, /has to be approved/));
  assert.deepEqual(ran, []);
  assert.equal((await run("look", "")).result?.success, true);
});

test("an answer after a kill and a restart goes on with the turn", { timeout: 60_000 }, async (context) => {
  const folder = temporaryFolder(context);
  const effectsFile = join(folder, "effects");
  writeFileSync(effectsFile, "");
  const program = fileURLToPath(new URL("../support/serve-effects.ts", import.meta.url));
  const serve = async () => {
    const env = { EFFECTS_FILE: effectsFile, CODEAGENT_PORT: "0" };
    const started = start(context, [], { folder, program, env, script: calling(["look", {}], ["change", {}]) });
    const [, baseUrl = ""] = await started.seen("stdout", /(http:\S+)\n/);
    return { started, client: createClient(CodeAgentService, createGrpcTransport({ baseUrl })) };
  };
  const sessionId = "killed-while-waiting";
  const first = await serve();
  await first.client.createSession({ sessionId });
  const reading = readAlong(first.client.streamGenerate({ sessionId, messages: [user("go")] }));
  const [request] = await reading.requests(1);
  await reading.finished("look");
  first.started.child.kill("SIGKILL");
  await first.started.ended;

  const second = await serve();
  const { requests } = await second.client.listPendingRequests({});
  assert.deepEqual(requests, [request]);
  const { requestId = "" } = request ?? {};
  await second.client.respondToRequest({ sessionId, responses: [{ requestId, decision: "allow_once" }] });
  const log = readAlong(second.client.subscribeSession({ sessionId, follow: true }));
  await log.finished("change");
  second.started.child.kill("SIGKILL");
  await second.started.ended;

  const third = await serve();
  const again = await third.client.respondToRequest({ sessionId, responses: [{ requestId, decision: "allow_once" }] });
  assert.equal(again.resolved[0]?.author, "local");
  const turn = readAlong(third.client.subscribeSession({ sessionId, follow: true }));
  while (turn.seen.at(-1)?.event.case !== "turnFinished") await nextMoment();
  const begun = readFileSync(effectsFile, "utf8")
    .split("\n")
    .filter((line) => line.startsWith("begin change"));
  assert.equal(begun.length, 1);
});

test("a turn that can't read its answers at the moment is not over", async () => {
  const state = emptyState([]);
  const call = { type: "tool_use", id: "a", name: "change", input: "{}" } as const;
  const before: LogEvent[] = [
    { type: "turn-started", requestId: "", principal: "", model: "p/m", messages: [], options: {}, tools: [] },
    { type: "step-started", step: 1, attempt: 1, model: "m", provider: "p" },
    { type: "block-stop", index: 0, block: call },
    { type: "step-finished", step: 1, attempt: 1, finishReason: "tool_calls", rawFinishReason: "" },
    {
      type: "request-opened",
      request: { requestId: "r", kind: "approval", title: "", toolCallId: "a", options: [], expireTimeMs: 1e15 },
    },
  ];
  for (const [index, event] of before.entries())
    foldRecord(state, { seq: index + 1, turnId: "turn", timeMs: Date.now(), event });
  const tail = new Tail(before.length, 10, 100_000);
  let isBroken = true;
  const session: RunningSession = {
    sessionId: "s",
    tenant: "t",
    isKept: true,
    isUnattended: false,
    config: plainConfig("/"),
    state,
    writer: new LogWriter(memoryLog(tail), before.length, Date.now),
    environment: {
      models: { find: () => assert.fail("no model is asked") },
      functions: new FunctionSets({ providers: [], now: Date.now }),
      permissions: { ...plainPermissions, sandbox: "none" },
      systemPrompt: "",
      profiles: new Map(),
      limits: defaultSessionLimits,
      now: Date.now,
      newId: (prefix) => prefix,
      report: () => undefined,
    },
    withContent: async (messages) => messages,
    noted: () => ({}),
    answers: async () => {
      if (isBroken) throw new AgentError("unavailable", "the store can't be reached");
      return [];
    },
    settle: async () => undefined,
    keysAnsweredAtEnd: () => [],
  };
  const { signal } = new AbortController();
  await assert.rejects(runTurn(session, signal), /the store can't be reached/);
  assert.equal(tail.headSeq, before.length, "nothing was written");
  isBroken = false;
  assert.deepEqual(await runTurn(session, signal), { wakeAtMs: 1e15 });
});
