import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { type Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createCodeAgentClient } from "../../sdk/index.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";
import { startTestApp, type TestAppOptions, user } from "../support/test-app.ts";
import { type ClientOptions, call, connected, eras, script } from "./mcp-client.ts";

/** A function that changes something, so that it has to be approved; and what it was called with. */
function changing() {
  const runs: string[] = [];
  const provider: FunctionProvider = {
    source: "local",
    list: async () => [
      {
        name: "change_it",
        description: "Changes it.",
        parameters: JSON.stringify({ type: "object", properties: { to: { type: "string" } } }),
        source: "local",
        readOnly: false,
        timeoutMs: 5000,
      },
    ],
    async call({ arguments: given }) {
      runs.push(JSON.stringify(given));
      return { success: true, output: "done" };
    },
    async close() {},
  };
  return { runs, provider };
}

async function start(context: TestContext, options: TestAppOptions = {}) {
  const { runs, provider } = changing();
  const files = { "here.txt": "here" };
  const started = await startTestApp(context, { script, files, functions: [provider], ...options });
  const url = new URL("/mcp", started.app.url);
  return {
    ...started,
    url,
    runs,
    async client(clientOptions: ClientOptions = {}): Promise<Client> {
      const client = await connected(new StreamableHTTPClientTransport(url), clientOptions);
      context.after(() => client.close());
      return client;
    },
  };
}

for (const era of eras) {
  describe(`MCP over HTTP, ${era}`, { timeout: 60_000, concurrency: 2 }, () => {
    test("the tools say what they do and whether they only look", async (context) => {
      const client = await (await start(context)).client({ era });
      const { tools } = await client.listTools();
      assert.deepEqual(
        tools.map(({ name, annotations }) => [name, annotations?.readOnlyHint]),
        [
          ["run_agent", false],
          ["list_sessions", true],
          ["get_session", true],
        ],
      );
      assert.match(client.getInstructions() ?? "", /run_agent/);
    });

    test("a turn is run, told of in lines, and gone on with", async (context) => {
      const client = await (await start(context)).client({ era });
      const first = await call(client, "run_agent", { prompt: "what is here?" });
      const { session_id: sessionId, turn_id: turnId, ...rest } = first.structured;
      assert.deepEqual(first.texts, ["There is\na file.", `session_id: ${sessionId}`]);
      assert.match(String(turnId), /^turn_/);
      assert.deepEqual(rest, { finish_reason: "stop", steps: 2, usage: { input_tokens: 2500, output_tokens: 42 } });
      const lines = first.progress.map(({ message }) => message?.replace(/\d+ ms/, "_"));
      for (const wanted of [
        "asking scripted/test",
        "Let me look.",
        '→ list_files {"pattern":"*.txt"}',
        "← list_files, _",
      ])
        assert.ok(lines.includes(wanted), `${wanted} in ${JSON.stringify(lines)}`);
      const steps = first.progress.map(({ progress }) => progress);
      assert.deepEqual(
        steps,
        [...new Set(steps)].sort((a, b) => a - b),
      );
      const second = await call(client, "run_agent", { prompt: "again", session_id: sessionId });
      assert.deepEqual(second.texts, ["You asked before.", `session_id: ${sessionId}`]);
      const shown = await call(client, "get_session", { session_id: sessionId });
      assert.match(
        shown.texts[0] ?? "",
        /"state":"idle".*user:\nwhat is here\?.*→ list_files .*← here\.txt.*assistant:\nYou asked before\.$/s,
      );
      const listed = await call(client, "list_sessions", {});
      assert.match(listed.texts[0] ?? "", new RegExp(`^{"session_id":"${sessionId}","title":"what is here\\?"`));
    });

    const answers = [
      {
        name: "allowed",
        answer: { action: "accept", content: { decision: "allow_once" } },
        said: "It is changed.",
        runs: 1,
      },
      {
        name: "denied with words",
        answer: { action: "accept", content: { decision: "deny", words: "no" } },
        said: "It was refused.",
        runs: 0,
      },
      { name: "declined", answer: { action: "decline" }, said: "It was refused.", runs: 0 },
      { name: "closed", answer: { action: "cancel" }, said: "It was refused.", runs: 0 },
    ] as const;
    for (const { name, answer, said, runs: wanted } of answers) {
      test(`what needs approval is asked of the client's user: ${name}`, async (context) => {
        const { client, runs } = await start(context);
        const asked: string[] = [];
        const asking = await client({
          era,
          answer(message) {
            asked.push(message);
            return { ...answer };
          },
        });
        const { texts, isError } = await call(asking, "run_agent", { prompt: "change it" });
        assert.deepEqual([texts[0], isError, runs.length], [said, false, wanted]);
        assert.equal(asked.length, 1);
        assert.match(asked[0] ?? "", /change_it \{"to":"new"\}/);
      });
    }

    test("a client that can't ask has it denied", async (context) => {
      const { client, runs } = await start(context);
      const { texts } = await call(await client({ era }), "run_agent", { prompt: "change it" });
      assert.deepEqual([texts[0], runs.length], ["It was refused.", 0]);
    });

    test("a cancelled call cancels the turn", async (context) => {
      const { client, client: connect, app: _, ...started } = await start(context);
      const cancel = new AbortController();
      const cancelling = call(
        await connect({ era }),
        "run_agent",
        { prompt: "for ever" },
        {
          signal: cancel.signal,
          onProgress: ({ message }) => {
            if (message?.startsWith("on and on")) cancel.abort("enough");
          },
        },
      );
      await assert.rejects(cancelling);
      const service = started.transport;
      assert.ok(service);
      const looking = await client({ era });
      const ends = AbortSignal.timeout(10_000);
      for (;;) {
        ends.throwIfAborted();
        const { texts } = await call(looking, "list_sessions", {});
        if (texts[0]?.includes('"state":"idle"')) break;
      }
    });

    const failures = [
      {
        name: "no prompt",
        tool: "run_agent",
        given: {},
        message: /^the arguments do not fit run_agent: "prompt" is missing$/,
      },
      { name: "a blank prompt", tool: "run_agent", given: { prompt: " " }, message: /^the prompt is blank/ },
      {
        name: "an unknown argument",
        tool: "run_agent",
        given: { prompt: "x", yolo: true },
        message: /"yolo" is not an argument it has/,
      },
      {
        name: "an unknown session",
        tool: "run_agent",
        given: { prompt: "x", session_id: "ses_none" },
        message: /ses_none/,
      },
      {
        name: "an odd session id",
        tool: "run_agent",
        given: { prompt: "x", session_id: "../x" },
        message: /session_id/,
      },
      {
        name: "a folder that is none of its roots",
        tool: "run_agent",
        given: { prompt: "x", workspace: "/etc" },
        message: /\/etc/,
      },
      {
        name: "a workspace for a session that has one",
        tool: "run_agent",
        given: { prompt: "x", session_id: "a", workspace: "b" },
        message: /leave it out/,
      },
      { name: "an unknown model", tool: "run_agent", given: { prompt: "x", model: "nobody/x" }, message: /nobody/ },
      {
        name: "a model that fails",
        tool: "run_agent",
        given: { prompt: "break" },
        message: /^the turn ended: .*out of order/,
      },
      {
        name: "a session to look at that is not there",
        tool: "get_session",
        given: { session_id: "ses_none" },
        message: /ses_none/,
      },
      { name: "too many sessions", tool: "list_sessions", given: { limit: 1e6 }, message: /"limit" must be <= 200/ },
    ];
    test("what can't be is said in a sentence", async (context) => {
      const { client, app } = await start(context);
      const calling = await client({ era });
      for (const { name, tool, given, message } of failures) {
        const { texts, isError } = await call(calling, tool, given);
        assert.equal(isError, true, name);
        assert.match(texts[0] ?? "", message, name);
        assert.doesNotMatch(texts[0] ?? "", /\n {4}at |codeagent-test-/, name);
      }
      const { sessions } = await app.sessions.list({ tenant: "default", name: "local" }, undefined, 10);
      assert.equal(sessions.length, 1, "only the session whose turn began is kept");
    });

    test("a long answer is cut in its middle", async (context) => {
      const client = await (await start(context)).client({ era });
      const { texts } = await call(client, "run_agent", { prompt: "much" });
      assert.match(texts[0] ?? "", /^0123456789.*\[\.\.\. 237856 bytes left out \.\.\.\].*0123456789$/s);
    });

    test("functions are offered where the settings say so, and run under the permissions", async (context) => {
      const { client, runs } = await start(context, {
        flags: { "mcp_server.tools": true, "permissions.allow": ["edit_file"] },
      });
      const calling = await client({ era });
      const { tools } = await calling.listTools();
      const found = tools.find(({ name }) => name === "list_files");
      assert.equal(found?.annotations?.readOnlyHint, true);
      const needTurn = tools.filter(({ name }) => ["ask_user", "update_todos", "task", "run_plan"].includes(name));
      assert.deepEqual(needTurn, [], "what works inside a turn only");
      assert.deepEqual((await call(calling, "list_files", { pattern: "*.txt" })).texts, ["here.txt"]);
      const refused = await call(calling, "change_it", { to: "new" });
      assert.deepEqual([refused.isError, runs.length], [true, 0]);
      assert.match(refused.texts[0] ?? "", /change_it has to be approved/);
      const failed = await call(calling, "edit_file", { path: "here.txt", old_text: "hers", new_text: "there" });
      assert.match(
        failed.texts[0] ?? "",
        /here[\s\S]*old_text does not occur/,
        "what it says of why it failed, and that it did",
      );
    });
  });
}

test("an agent calls another agent as its MCP server", { timeout: 30_000 }, async (context) => {
  const inner = await startTestApp(context, { script: "- text: hello from within\n" });
  const { app } = await startTestApp(context, {
    script: `
- when: { role: user }
  tool_calls: [{ name: mcp__inner__run_agent, arguments: { prompt: hello } }]
- when: { text: hello from within }
  text: It said hello.
`,
    flags: { "permissions.allow": ["mcp__inner__run_agent"] },
  });
  using client = createCodeAgentClient({ baseUrl: app.url });
  await client.mcp.addMcpServer({
    server: { name: "inner", transport: { case: "http", value: { url: `${inner.app.url}/mcp` } } },
  });
  const answer = await client.generate({ messages: [user("delegate")] });
  assert.equal(answer.message?.contentType.value, "It said hello.");
});
