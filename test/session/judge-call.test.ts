import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import type { PendingRequest } from "../../gen/codeagent/v1/code_agent_pb.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";
import { startTestApp, type TestAppOptions, user } from "../support/test-app.ts";

/** `look` only reads, `script` runs a file; the digest of its definition and its files change when they are told to. */
function sampleTools() {
  const ran: string[] = [];
  const content = { definition: "d1", files: "f1", onChange: () => {} };
  const provider: FunctionProvider = {
    source: "local",
    list: async () => [
      { name: "look", description: "look", parameters, source: "local", readOnly: true, timeoutMs: 30_000 },
      {
        name: "script",
        description: "script",
        parameters,
        source: "local",
        readOnly: false,
        timeoutMs: 30_000,
        digest: content.definition,
      },
    ],
    async call({ name, arguments: given }) {
      ran.push(`${name} ${JSON.stringify(given)}`);
      return { success: true, output: `${name} done` };
    },
    fingerprint: async ({ name }) => (name === "script" ? content.files : ""),
    watch(onChange) {
      content.onChange = onChange;
      return () => undefined;
    },
    close: async () => undefined,
  };
  return {
    provider,
    ran,
    change(what: "definition" | "files") {
      content[what] = "changed";
      content.onChange();
    },
  };
}

const parameters = '{"type":"object"}';

/** A script that calls a function until it has been told something `times` times. */
function calling(name: string, times: number, given: (index: number) => object = () => ({ at: 1 })): string {
  const calls = Array.from(
    { length: times },
    (_, index) => `- once: true
  tool_calls: [{ name: ${name}, arguments: ${JSON.stringify(given(index))} }]
`,
  );
  return `${calls.join("")}- text: that is all\n`;
}

async function startSample(context: TestContext, script: string, options: TestAppOptions = {}) {
  const tools = sampleTools();
  const { client } = await startTestApp(context, { script, functions: [tools.provider], ...options });
  const { sessionId } = await client.createSession({});
  return {
    ...tools,
    sessionId,
    /** Runs a turn, answering each request; gives what was asked. */
    async turn(answer: (request: PendingRequest, count: number) => string) {
      const asked: PendingRequest[] = [];
      for await (const { event } of client.streamGenerate({ sessionId, messages: [user("go")] })) {
        if (event.case !== "requestOpened" || event.value.request === undefined) continue;
        asked.push(event.value.request);
        const { requestId } = event.value.request;
        const decision = answer(event.value.request, asked.length);
        await client.respondToRequest({ sessionId, responses: [{ requestId, decision }] });
      }
      return asked;
    },
    async told() {
      const { messages } = await client.listMessages({ sessionId });
      return messages.filter(({ role }) => role === "tool").map(({ contentType }) => String(contentType.value));
    },
  };
}

describe("an approval holds for the bytes it was asked for", () => {
  for (const what of ["definition", "files"] as const) {
    test(`${what} that change while the question is open are asked for again`, async (context) => {
      const { turn, ran, change } = await startSample(context, calling("script", 1));
      const asked = await turn((_request, count) => {
        if (count === 1) change(what);
        return "allow_once";
      });
      assert.equal(asked.length, 2);
      assert.deepEqual(ran, ['script {"at":1}']);
      for (const { contentSha256 } of asked) assert.match(contentSha256, /^[0-9a-f]{64}$/);
      assert.equal(new Set(asked.map(({ contentSha256 }) => contentSha256)).size, 2);
      assert.match(asked[1]?.explanation ?? "", /changed since it was approved/);
    });
  }

  test("a denial needs no second question", async (context) => {
    const { turn, ran, change } = await startSample(context, calling("script", 1));
    const asked = await turn(() => {
      change("files");
      return "deny";
    });
    assert.deepEqual([asked.length, ran.length], [1, 0]);
  });

  for (const what of ["definition", "files"] as const) {
    test(`what was allowed for the session is asked for again when its ${what} change`, async (context) => {
      const script = "- { when: { role: tool }, text: done }\n- tool_calls: [{ name: script, arguments: {} }]\n";
      const { turn, ran, change } = await startSample(context, script);
      assert.equal((await turn(() => "allow_session")).length, 1);
      assert.equal((await turn(() => "deny")).length, 0);
      change(what);
      assert.equal((await turn(() => "deny")).length, 1);
      assert.equal(ran.length, 2);
    });
  }
});

describe("a call made over and over is asked for", () => {
  const rows: [
    name: string,
    script: string,
    flags: NonNullable<TestAppOptions["flags"]>,
    asked: number,
    ran: number,
  ][] = [
    ["twice is nothing", calling("look", 2), {}, 0, 2],
    ["the third is asked for", calling("look", 3), {}, 1, 3],
    ["and each one after it", calling("look", 5), {}, 3, 5],
    ["other arguments between", calling("look", 6, (index) => ({ at: index % 2 })), {}, 0, 6],
    [
      "the same arguments in another order",
      calling("look", 3, (i) => (i === 1 ? { b: 1, a: 2 } : { a: 2, b: 1 })),
      {},
      1,
      3,
    ],
    ["as often as the operator says", calling("look", 5), { "limits.repeated_calls": 5 }, 1, 5],
    ["never, when the operator says so", calling("look", 6), { "limits.repeated_calls": 0 }, 0, 6],
  ];
  for (const [name, script, flags, count, runs] of rows) {
    test(name, async (context) => {
      const { turn, ran } = await startSample(context, script, { flags });
      const asked = await turn(() => "allow_once");
      assert.deepEqual([asked.length, ran.length], [count, runs]);
      for (const { explanation } of asked) assert.match(explanation, /times running with the same arguments/);
    });
  }

  test("three in one answer", async (context) => {
    const calls = "{ name: look, arguments: { at: 1 } }";
    const script = `- { when: { role: tool }, text: done }\n- tool_calls: [${calls}, ${calls}, ${calls}]\n`;
    const { turn, ran, told } = await startSample(context, script);
    assert.equal((await turn(() => "deny")).length, 1);
    assert.equal(ran.length, 2);
    assert.match((await told())[2] ?? "", /denied it/);
  });

  test("allowed for the session it goes on", async (context) => {
    const { turn, ran } = await startSample(context, calling("look", 6));
    assert.equal((await turn(() => "allow_session")).length, 1);
    assert.equal(ran.length, 6);
  });
});
