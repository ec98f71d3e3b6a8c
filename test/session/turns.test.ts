import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type MessageInitShape, toJson } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import {
  type GenerateChunk,
  GenerateChunkSchema,
  type GenerateRequestSchema,
} from "../../gen/codeagent/v1/code_agent_pb.ts";
import { ToolService } from "../../gen/codeagent/v1/tool_service_pb.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";
import { chunk, eventStream, startUpstream } from "../provider/upstream.ts";
import { collect } from "../support/grammar.ts";
import { startTestApp, user } from "../support/test-app.ts";

type Request = MessageInitShape<typeof GenerateRequestSchema>;

/** The events of a stream in short: what a person would call what happened. */
function story(chunks: readonly GenerateChunk[]): string[] {
  const told: string[] = [];
  for (const { event } of chunks) {
    if (event.case === "stepStarted") told.push(`step ${event.value.step}`);
    else if (event.case === "blockStop") {
      const block = event.value.block?.block;
      if (block?.case === "text") told.push(`text ${block.value.text}`);
      else if (block?.case === "thinking") told.push(`thinking ${block.value.thinking}`);
      else if (block?.case === "toolUse") told.push(`call ${block.value.name} ${block.value.input}`);
    } else if (event.case === "toolFinished") told.push(`result ${event.value.name} ${event.value.result?.success}`);
    else if (event.case === "turnFinished")
      told.push(`end ${event.value.finishReason} ${event.value.error?.reason ?? ""}`.trim());
  }
  return told;
}

const cases: { name: string; script: string; request?: Request; story: string[] }[] = [
  {
    name: "text",
    script: "- text: hello\n",
    story: ["step 1", "text hello", "end stop"],
  },
  {
    name: "thinking comes before the text it led to",
    script: "- { thinking: hm, text: hello }\n",
    story: ["step 1", "thinking hm", "text hello", "end stop"],
  },
  {
    name: "tools run and their results go back in the order of the calls",
    script: `
- when: { tool: read_file, text: sample }
  text: read both
- when: { role: user }
  tool_calls:
    - { name: list_files, arguments: { pattern: "*.md" } }
    - { name: read_file, arguments: { path: README.md } }
`,
    story: [
      "step 1",
      'call list_files {"pattern":"*.md"}',
      'call read_file {"path":"README.md"}',
      "result list_files true",
      "result read_file true",
      "step 2",
      "text read both",
      "end stop",
    ],
  },
  {
    name: "a tool nobody has is told to the model",
    script: `
- when: { tool: fly, text: { regex: "no (tool|function)" } }
  text: I can't
- tool_calls: [{ name: fly, arguments: {} }]
`,
    story: ["step 1", "call fly {}", "result fly false", "step 2", "text I can't", "end stop"],
  },
  {
    name: "arguments that are no JSON are told to the model",
    script: `
- when: { tool: read_file, text: JSON }
  text: I see
- tool_calls: [{ name: read_file, arguments: '{"path": ' }]
`,
    story: ["step 1", 'call read_file {"path": ', "result read_file false", "step 2", "text I see", "end stop"],
  },
  {
    name: "a call of a client's tool ends the turn",
    script: "- { text: asking, tool_calls: [{ name: ask_editor, arguments: { line: 3 } }] }\n",
    request: { tools: [{ name: "ask_editor", description: "asks", parameters: '{"type":"object"}' }] },
    story: ["step 1", "text asking", 'call ask_editor {"line":3}', "end tool_calls"],
  },
  {
    name: "the server's calls run before the client's end the turn",
    script: `
- tool_calls:
    - { name: ask_editor, arguments: {} }
    - { name: list_files, arguments: {} }
`,
    request: { tools: [{ name: "ask_editor", description: "asks", parameters: '{"type":"object"}' }] },
    story: ["step 1", "call ask_editor {}", "call list_files {}", "result list_files true", "end tool_calls"],
  },
  {
    name: "an endless loop of tools ends at max_steps",
    script: "- tool_calls: [{ name: list_files, arguments: {} }]\n",
    request: { options: { maxSteps: 2 } },
    story: ["step 1", "call list_files {}", "result list_files true", "step 2", "call list_files {}", "end max_steps"],
  },
  {
    name: "a budget of tokens ends the turn before the next call",
    script: `
- tool_calls: [{ name: list_files, arguments: {} }]
  usage: { prompt_tokens: 90, completion_tokens: 20, total_tokens: 110 }
`,
    request: { options: { budget: { maxTotalTokens: 100n } } },
    story: ["step 1", "call list_files {}", "result list_files true", "end budget"],
  },
  {
    name: "a tool that is not allowed is not run",
    script: `
- when: { tool: list_files, text: not allowed }
  text: then not
- tool_calls: [{ name: list_files, arguments: {} }]
`,
    request: { options: { allowedTools: ["read_file"] } },
    story: ["step 1", "call list_files {}", "result list_files false", "step 2", "text then not", "end stop"],
  },
  {
    name: "a cut call is never run",
    script: `
- tool_calls: [{ name: read_file, arguments: '{"path": "READ' }]
  finish_reason: length
`,
    story: ["step 1", 'call read_file {"path": "READ', "end length"],
  },
  {
    name: "an upstream that refuses ends the turn with its error",
    script: "- error: { status: 401, message: bad key, type: auth }\n",
    story: ["step 1", "end error PROVIDER_AUTH"],
  },
  {
    name: "a stream that is cut keeps what came",
    script: "- { text: hello world and more, chunk: 5, delay_ms: 1, cut_after: 2 }\n",
    story: ["step 1", "step 1", "text hello worl", "end error PROVIDER_UNAVAILABLE"],
  },
  {
    name: "an answer cut after a call was named is not asked for again",
    script: `
- { text: hm, tool_calls: [{ name: list_files, arguments: { pattern: "*.md" } }], chunk: 2, delay_ms: 1, cut_after: 2 }
`,
    story: ["step 1", "text hm", "call list_files ", "end error PROVIDER_UNAVAILABLE"],
  },
];

describe("a turn", () => {
  for (const { name, script, request, story: told } of cases) {
    test(name, async (context) => {
      const { client } = await startTestApp(context, { script });
      const { sessionId } = await client.createSession({});
      const asked: Request = { messages: [user("go")], ...request };
      const chunks = await collect(client.streamGenerate({ ...asked, sessionId }), 1n);
      assert.deepEqual(story(chunks), told);
      const again = await collect(client.subscribeSession({ sessionId }), 1n);
      const shown = (all: readonly GenerateChunk[]) =>
        all.filter((chunk) => chunk.seq > 0n).map((chunk) => toJson(GenerateChunkSchema, chunk));
      assert.deepEqual(shown(again), shown(chunks), "the log replays what was streamed");
      const oneOff = await collect(client.streamGenerate(asked), 1n);
      assert.deepEqual(story(oneOff), told, "a one-off turn goes the same way");
    });
  }
});

test("a cut answer is asked for once more, and what it showed is void", async (context) => {
  const { client } = await startTestApp(context, {
    script: `
- { text: hello world and more, chunk: 5, delay_ms: 1, cut_after: 2, once: true }
- { text: hello again }
`,
  });
  const { sessionId } = await client.createSession({});
  const chunks = await collect(client.streamGenerate({ sessionId, messages: [user("go")] }), 1n);
  assert.deepEqual(
    chunks.flatMap(({ event }) => (event.case === "stepStarted" ? [[event.value.step, event.value.attempt]] : [])),
    [
      [1, 1],
      [1, 2],
    ],
  );
  const { messages } = await client.listMessages({ sessionId });
  assert.deepEqual(
    messages.map((message) => message.contentType.value),
    ["go", "hello again"],
  );
});

test("Generate answers with what StreamGenerate streams", async (context) => {
  const { client } = await startTestApp(context, {
    script: `
- when: { tool: list_files }
  thinking: done
  text: all listed
  usage: { prompt_tokens: 20, completion_tokens: 5 }
- tool_calls: [{ name: list_files, arguments: {} }]
  usage: { prompt_tokens: 10, completion_tokens: 3 }
`,
  });
  const answer = await client.generate({ messages: [user("list")], options: { metadata: { mine: "kept" } } });
  assert.equal(answer.message?.contentType.value, "all listed");
  assert.deepEqual(
    answer.message?.blocks.map((block) => block.block.case),
    ["thinking", "text"],
  );
  assert.equal(answer.usage?.inputTokens, 30n);
  assert.equal(answer.usage?.outputTokens, 8n);
  assert.equal(answer.finishReason, "stop");
  assert.equal(answer.steps, 2);
  assert.deepEqual({ ...answer.metadata }, { mine: "kept", "codeagent.provider": "scripted" });
});

test("results of tools reach the model in the order of the calls, whichever ended first", async (context) => {
  const release = Promise.withResolvers<void>();
  const functions: FunctionProvider = {
    source: "local",
    list: async () =>
      ["slow", "quick"].map((name) => ({
        name,
        description: name,
        parameters: '{"type":"object"}',
        source: "local",
        readOnly: true,
        timeoutMs: 30_000,
      })),
    async call({ name }) {
      if (name === "slow") await release.promise;
      else release.resolve();
      return { success: true, output: `${name} done` };
    },
    close: async () => undefined,
  };
  const { client } = await startTestApp(context, {
    functions: [functions],
    script: `
- when: { role: tool, text: quick done }
  text: both
- tool_calls: [{ name: slow, arguments: {} }, { name: quick, arguments: {} }]
`,
  });
  const { sessionId } = await client.createSession({});
  const answer = await client.generate({ sessionId, messages: [user("go")] });
  assert.equal(answer.message?.contentType.value, "both");
  const { messages } = await client.listMessages({ sessionId });
  assert.deepEqual(
    messages.filter((message) => message.role === "tool").map((message) => message.contentType.value),
    ["slow done", "quick done"],
  );
});

test("turns of one session wait for each other, in order", async (context) => {
  const { client } = await startTestApp(context, {
    script: "- { text: one after the other, chunk: 4, delay_ms: 2 }\n",
  });
  const { sessionId } = await client.createSession({});
  const turns = await Promise.all(
    ["a", "b", "c"].map((text) => client.generate({ sessionId, messages: [user(text)], requestId: text })),
  );
  const log = await collect(client.subscribeSession({ sessionId }), 1n);
  const order = log.flatMap((chunk) => (chunk.event.case === "turnFinished" ? [chunk.turnId] : []));
  assert.deepEqual(new Set(order), new Set(turns.map((turn) => turn.turnId)));
  const { messages } = await client.listMessages({ sessionId });
  assert.deepEqual(
    messages.map((message) => message.role),
    ["user", "assistant", "user", "assistant", "user", "assistant"],
  );
});

test("the same request id joins the same turn, another payload is refused", async (context) => {
  const { client } = await startTestApp(context, { script: "- { text: slowly said, chunk: 2, delay_ms: 2 }\n" });
  for (const session of ["", (await client.createSession({})).sessionId]) {
    const ask = () => client.generate({ sessionId: session, messages: [user("once")], requestId: `id-${session}` });
    const answers = await Promise.all([ask(), ask(), ask()]);
    answers.push(await ask());
    assert.equal(new Set(answers.map((answer) => answer.turnId)).size, 1);
    await assert.rejects(
      client.generate({ sessionId: session, messages: [user("other")], requestId: `id-${session}` }),
      (error) => error instanceof ConnectError && error.code === Code.AlreadyExists,
    );
  }
});

describe("cancelling", () => {
  const script = "- { text: a long answer that never ends, chunk: 1, delay_ms: 20, repeat: 1000 }\n";

  test("ends a session turn with what came, and the next turn works", async (context) => {
    const { client } = await startTestApp(context, { script });
    const { sessionId } = await client.createSession({});
    const chunks: GenerateChunk[] = [];
    for await (const chunk of client.streamGenerate({ sessionId, messages: [user("go")] })) {
      chunks.push(chunk);
      if (chunk.event.case === "blockDelta" && chunks.length < 8) {
        const { wasRunning } = await client.cancelTurn({ sessionId });
        assert.equal(wasRunning, true);
      }
    }
    assert.equal(chunks.at(-1)?.event.case, "turnFinished");
    assert.match(story(chunks).at(-1) ?? "", /^end cancelled$/);
    const { messages } = await client.listMessages({ sessionId });
    assert.deepEqual(
      messages.map((message) => message.role),
      ["user", "assistant"],
    );
    assert.equal((await client.getSession({ sessionId })).state, "idle");
    assert.deepEqual(await client.cancelTurn({ sessionId }).then(({ wasRunning }) => wasRunning), false);
  });

  test("ends a turn that waits without asking the model", async (context) => {
    const { client } = await startTestApp(context, { script });
    const { sessionId } = await client.createSession({});
    const first = client.streamGenerate({ sessionId, messages: [user("first")] })[Symbol.asyncIterator]();
    await first.next();
    const second = client.streamGenerate({ sessionId, messages: [user("second")] })[Symbol.asyncIterator]();
    const { value: ready } = await second.next();
    assert.equal(ready?.event.case, "streamReady", "a turn that waits is known by its id at once");
    assert.equal((await client.getSession({ sessionId })).queuedTurns, 1);
    await client.cancelTurn({ sessionId, turnId: ready?.turnId ?? "" });
    await client.cancelTurn({ sessionId });
    for (;;) if ((await first.next()).done) break;
    const rest: GenerateChunk[] = [];
    for (;;) {
      const { value, done } = await second.next();
      if (done) break;
      rest.push(value);
    }
    assert.deepEqual(story(rest), ["end cancelled"]);
  });

  test("a one-off turn ends when its caller goes away", async (context) => {
    const closed = Promise.withResolvers<void>();
    const upstream = await startUpstream(context, [
      (_request, response) => {
        response.on("close", closed.resolve);
        response.writeHead(200, eventStream).write(chunk({ content: "Hel" }));
      },
    ]);
    const { client } = await startTestApp(context, { env: { FORWARD_BASE_URL: upstream.url } });
    const abort = new AbortController();
    await assert.rejects(async () => {
      const stream = client.streamGenerate({ messages: [user("go")], model: "forward/m" }, { signal: abort.signal });
      for await (const { event } of stream) if (event.case === "blockDelta") abort.abort();
    });
    await closed.promise;
  });
});

test("a request's time limit ends the turn with DEADLINE_EXCEEDED", async (context) => {
  const { client } = await startTestApp(context, { script: "- { text: slow, first_delay_ms: 60000 }\n" });
  await assert.rejects(
    client.generate({ messages: [user("go")], options: { timeoutMs: 50n } }),
    (error) => error instanceof ConnectError && error.code === Code.DeadlineExceeded,
  );
});

test("a client's tool is answered in the next request", async (context) => {
  const { client } = await startTestApp(context, {
    script: `
- when: { tool: ask_editor, text: line 3 is empty }
  text: so it is
- tool_calls: [{ name: ask_editor, arguments: { line: 3 }, id: call_abc }]
`,
  });
  const tools = [{ name: "ask_editor", description: "asks", parameters: '{"type":"object"}' }];
  const { sessionId } = await client.createSession({});
  const first = await client.generate({ sessionId, messages: [user("look")], tools });
  assert.deepEqual(
    first.toolCalls.map(({ id, name, arguments: text }) => ({ id, name, text })),
    [{ id: "call_abc", name: "ask_editor", text: '{"line":3}' }],
  );
  const second = await client.generate({
    sessionId,
    tools,
    messages: [{ role: "tool", toolCallId: "call_abc", contentType: { case: "content", value: "line 3 is empty" } }],
  });
  assert.equal(second.message?.contentType.value, "so it is");
});

test("a message larger than an event is kept whole", async (context) => {
  const { client } = await startTestApp(context, { script: "- when: { text: { regex: 'end$' } }\n  text: read it\n" });
  const { sessionId } = await client.createSession({});
  const long = `${"x".repeat(3_000_000)} end`;
  const chunks = await collect(client.streamGenerate({ sessionId, messages: [user(long)] }), 1n);
  assert.deepEqual(story(chunks), ["step 1", "text read it", "end stop"]);
  const { messages } = await client.listMessages({ sessionId });
  assert.equal(messages[0]?.contentType.value, long);
  assert.deepEqual({ ...messages[0]?.metadata }, {});
});

test("ListTools names the tools and ExecuteTool runs one", async (context) => {
  const { transport } = await startTestApp(context, { files: { "a.txt": "needle\n" } });
  const tools = createClient(ToolService, transport);
  const { tools: listed } = await tools.listTools({});
  const readers = ["list_files", "read_file", "search_text"];
  assert.deepEqual(
    listed.flatMap(({ name, source, readOnly }) => (readers.includes(name) ? [{ name, source, readOnly }] : [])),
    readers.map((name) => ({ name, source: "local", readOnly: true })),
  );
  const { result } = await tools.executeTool({ name: "search_text", arguments: '{"pattern":"needle"}' });
  assert.equal(result?.success, true);
  assert.match(result?.output ?? "", /a\.txt/);
  await assert.rejects(
    tools.executeTool({ name: "fly" }),
    (error) => error instanceof ConnectError && error.code === Code.NotFound,
  );
});
