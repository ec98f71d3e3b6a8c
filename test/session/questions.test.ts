import assert from "node:assert/strict";
import { after, describe, type TestContext, test } from "node:test";
import { setImmediate as nextMoment } from "node:timers/promises";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import type { PendingRequest } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { ToolService } from "../../gen/codeagent/v1/tool_service_pb.ts";
import { blowGround } from "../support/blow-ground.ts";
import { noPostgres, stopTestDatabases, testDatabase } from "../support/postgres.ts";
import { readAlong } from "../support/read-along.ts";
import { startTestApp, type TestAppOptions, user } from "../support/test-app.ts";

after(stopTestDatabases);

/** A script whose first answer asks, and whose second one ends the turn. */
function asking(...questions: readonly object[]): string {
  const calls = questions.map((given) => `{ name: ask_user, arguments: ${JSON.stringify(given)} }`);
  return `- { when: { role: tool }, text: so be it }\n- { text: I ask, tool_calls: [${calls.join(", ")}] }\n`;
}

const colours = { question: "Which colour?\nYou decide.", options: ["red", "dark blue"] };

async function startAsking(context: TestContext, given: object = colours, options: TestAppOptions = {}) {
  const sample = await startTestApp(context, { script: asking(given), ...options });
  const { client } = sample;
  return {
    ...sample,
    async ask(session: Parameters<typeof client.createSession>[0] = {}) {
      const { sessionId } = await client.createSession(session);
      const reading = readAlong(client.streamGenerate({ sessionId, messages: [user("go")] }));
      const [request] = await reading.requests(1);
      assert.ok(request !== undefined);
      return { sessionId, reading, request };
    },
    answer: (request: PendingRequest, decision: string, text = "") => answer(client, request, decision, text),
    told: (sessionId: string) => told(client, sessionId),
  };
}

type Client = Awaited<ReturnType<typeof startTestApp>>["client"];

function answer(client: Client, { sessionId, requestId }: PendingRequest, decision: string, text = "") {
  return client.respondToRequest({ sessionId, responses: [{ requestId, decision, text }] });
}

/** What the model was told of its calls. */
async function told(client: Client, sessionId: string) {
  const { messages } = await client.listMessages({ sessionId });
  return messages.filter(({ role }) => role === "tool").map(({ contentType }) => String(contentType.value));
}

describe("what becomes of a question", () => {
  const free = { question: "Why?" };
  const several = { ...colours, multiple: true };
  const rows: [name: string, given: object, decision: string, text: string, heard: RegExp][] = [
    ["words", free, "answer", " because ", /^because$/],
    ["an option", colours, "answer", "dark blue", /^The user chose: dark blue$/],
    ["an option in other letters", colours, "answer", " RED\n", /^The user chose: red$/],
    ["something else", colours, "answer", "green", /^The user chose none of the options, and says: green$/],
    ["two where one is to be chosen", colours, "answer", "red, dark blue", /none of the options, and says: red, dark/],
    ["two of several", several, "answer", "dark blue\nred", /^The user chose:\n- dark blue\n- red$/],
    ["two of several in a line", several, "answer", "red,dark blue", /^The user chose:\n- red\n- dark blue$/],
    ["one of several", several, "answer", "red", /^The user chose: red$/],
    ["half of several", several, "answer", "red, green", /^The user chose none of the options, and says: red, green$/],
    ["control characters", free, "answer", "a\u001b[2Jb", /^a\u241b\[2Jb$/],
    ["no answer", free, "deny", "", /^error: the user does not answer this question$/],
    ["no answer with words", free, "deny", "ask Ann", /^error: the user .* question, and says: ask Ann$/],
    ["nobody", free, "", "", /^error: nobody answered in time; go on with what you know/],
  ];
  for (const [name, given, decision, text, heard] of rows) {
    test(name, async (context) => {
      const { client, ask, ...sample } = await startAsking(context, given);
      const { sessionId, reading, request } = await ask(decision === "" ? { approvalTimeoutMs: 20n } : {});
      if (decision !== "") {
        const { resolved } = await sample.answer(request, decision, text);
        assert.deepEqual([resolved[0]?.decision, resolved[0]?.author], [decision, "local"]);
      }
      await reading.end();
      const [result = "", ...others] = await sample.told(sessionId);
      assert.match(result, heard);
      assert.deepEqual(others, []);
      assert.deepEqual((await client.listPendingRequests({})).requests, []);
      assert.equal((await client.getSession({ sessionId })).state, "idle");
    });
  }
});

test("who lists it sees what is asked, and nobody works on it meanwhile", async (context) => {
  const { app, client, ask, answer: say } = await startAsking(context);
  const { sessionId, reading, request } = await ask();
  while (app.sessions.working > 0) await nextMoment();
  assert.deepEqual((await client.listPendingRequests({})).requests, [request]);
  assert.deepEqual(
    [request.kind, request.title, request.options, request.toolName, request.arguments, request.explanation],
    [
      "question",
      "Which colour? You decide.",
      colours.options,
      "ask_user",
      JSON.stringify(colours),
      "the agent asks: choose one, or answer in your own words",
    ],
  );
  assert.equal((await client.getSession({ sessionId })).state, "waiting");
  await say(request, "answer", "red");
  const seen = await reading.end();
  const finished = seen.flatMap(({ event }) => (event.case === "toolFinished" ? [event.value] : []));
  assert.deepEqual(
    finished.map(({ result }) => [result?.success, result?.metadata]),
    [[true, { chosen: '["red"]' }]],
  );
});

describe("answers that are refused", () => {
  const rows: [decision: string, text: string, field: RegExp][] = [
    ["answer", "", /responses\[0\]\.text: is empty; say the answer, or deny/],
    ["answer", " \n", /responses\[0\]\.text: is empty/],
    ["allow_once", "", /responses\[0\]\.decision: is "allow_once"; to a question say one of: answer, deny/],
    ["allow_session", "", /to a question say one of: answer, deny/],
    ["maybe", "", /say one of/],
  ];
  for (const isKept of [true, false]) {
    test(isKept ? "in a session" : "in a one-off turn", async (context) => {
      const { client, ...sample } = await startAsking(context);
      const { sessionId } = isKept ? await client.createSession({}) : { sessionId: "" };
      const reading = readAlong(client.streamGenerate({ sessionId, messages: [user("go")] }));
      const [request] = await reading.requests(1);
      assert.ok(request !== undefined);
      for (const [decision, text, message] of rows) {
        await assert.rejects(sample.answer(request, decision, text), (error) => {
          assert.ok(error instanceof ConnectError);
          assert.equal(error.code, Code.InvalidArgument);
          assert.match(error.rawMessage, message);
          return true;
        });
      }
      await sample.answer(request, "answer", "red");
      await sample.answer(request, "answer", "red");
      await assert.rejects(sample.answer(request, "answer", "blue"), /was answered|there is no session/);
      const seen = await reading.end();
      const results = seen.flatMap(({ event }) => (event.case === "toolFinished" ? [event.value.result?.output] : []));
      assert.deepEqual(results, ["The user chose: red"]);
    });
  }
});

test("rules and modes don't ask for a question, and a rule can deny it", async (context) => {
  const { client, ...sample } = await startAsking(context);
  for (const mode of ["ask", "read-only", "accept-edits", "bypass"]) {
    const { reading, request } = await sample.ask({ permissions: { mode, ask: ["ask_user"] } });
    assert.equal(request.kind, "question");
    await sample.answer(request, "answer", "red");
    await reading.end();
  }
  const { sessionId } = await client.createSession({ permissions: { deny: ["ask_user"] } });
  await client.generate({ sessionId, messages: [user("go")] });
  assert.match(String(await sample.told(sessionId)), /denied by the policy/);
});

test("several questions wait together, and a bad one fails by itself", async (context) => {
  const script = asking({ question: "One?" }, { question: "" }, { question: "Two?", options: ["yes", "no"] });
  const { client, ...sample } = await startAsking(context, {}, { script });
  const { sessionId } = await client.createSession({});
  const reading = readAlong(client.streamGenerate({ sessionId, messages: [user("go")] }));
  const [one, two] = await reading.requests(2);
  assert.ok(one !== undefined && two !== undefined);
  await sample.answer(two, "answer", "no");
  await sample.answer(one, "deny");
  await reading.end();
  const [first, second, third] = await sample.told(sessionId);
  assert.match(first ?? "", /does not answer/);
  assert.match(second ?? "", /^error: .*question/);
  assert.equal(third, "The user chose: no");
});

test("outside a turn there is nobody to be asked", async (context) => {
  const { transport } = await startAsking(context);
  const tools = createClient(ToolService, transport);
  const { result } = await tools.executeTool({ name: "ask_user", arguments: JSON.stringify(colours) });
  assert.match(result?.error ?? "", /inside a turn only/);
});

test("a question outlasts a kill", { timeout: 60_000 }, async (context) => {
  const ground = blowGround(asking(colours));
  context.after(() => ground.close());
  const sessionId = "asked";
  const first = await ground.start("data");
  await first.client.createSession({ sessionId, approvalTimeoutMs: 600_000n });
  const [request] = await readAlong(first.client.streamGenerate({ sessionId, messages: [user("go")] })).requests(1);
  await first.kill();

  const second = await ground.start("data");
  assert.deepEqual((await second.client.listPendingRequests({})).requests, [request]);
  assert.ok(request !== undefined);
  await answer(second.client, request, "answer", "red");
  const log = readAlong(second.client.subscribeSession({ sessionId, follow: true }));
  await log.finished("ask_user");
  while (log.seen.at(-1)?.event.case !== "turnFinished") await nextMoment();
  assert.deepEqual(await told(second.client, sessionId), ["The user chose: red"]);
});

test("of two servers one asks and the other one takes the answer", { skip: noPostgres }, async (context) => {
  const flags = { database_url: await testDatabase() };
  const one = await startAsking(context, colours, { flags });
  const other = await startAsking(context, colours, { flags });
  const { sessionId, reading, request } = await one.ask();
  await answer(other.client, request, "answer", "dark blue");
  await reading.end();
  assert.deepEqual(await told(other.client, sessionId), ["The user chose: dark blue"]);
});
