import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import type { Responses } from "openai/resources/responses/responses";
import { partsOfResponseId } from "../../src/convert/responses/response-id.ts";
import { says, text } from "../provider/answers.ts";
import { type Form, forms, type ReasoningCase, reasoningCases, saidIn } from "../session/reasoning-answers.ts";
import { answers, startModels } from "../session/reasoning-models.ts";
import { startTestApp } from "../support/test-app.ts";

// OpenAI's own client, over a socket.

const script = `
- when: { role: tool, text: sunny }
  text: It is sunny.
- when: { role: tool, text: a sample }
  text: It is a sample.
- when: { text: weather }
  thinking: I ask.
  text: Let me see.
  tool_calls: [{ name: get_weather, arguments: { city: Oslo } }]
- when: { text: file }
  text: Let me look.
  tool_calls: [{ name: read_file, arguments: { path: README.md } }]
- when: { text: bad line }
  text: abcdefgh
  chunk: 4
  cut_after: 1
  once: true
- when: { text: bad line }
  text: abcdefgh
- when: { text: broken line }
  text: abcdefgh
  chunk: 4
  cut_after: 1
- when: { text: bad luck }
  error: { status: 400, message: no such luck, type: invalid_request_error }
- when: { text: slow }
  text: begun and never ended
  chunk: 5
  delay_ms: 600000
- when: { text: a colour }
  text: '{"colour":"red"}'
- when: { text: repeat }
  text: "a long answer "
  repeat: 20
- text: hello
  usage: { prompt_tokens: 20, completion_tokens: 5 }
`;
const weather: Responses.FunctionTool = {
  type: "function",
  name: "get_weather",
  parameters: { type: "object", properties: { city: { type: "string" } } },
  strict: false,
};
const model = "scripted/test";

function clientOf(url: string): OpenAI {
  return new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused", maxRetries: 0, timeout: 20_000 });
}

/** Items of an answer as a client keeps them and sends them back. */
function keptBy({ output }: Responses.Response): Responses.ResponseInputItem[] {
  const kept: unknown = JSON.parse(JSON.stringify(output));
  assert.ok(Array.isArray(kept));
  return kept;
}

test("the Responses API", { timeout: 30_000 }, async (context) => {
  const { app, client: service } = await startTestApp(context, { script });
  const { url } = app;
  const client = clientOf(url);

  await context.test("answers, and gives the answer again by its id", async () => {
    const response = await client.responses.create({ model, input: "hi", instructions: "be brief" });
    assert.match(response.id, /^resp_\w+$/);
    assert.deepEqual(
      [response.status, response.model, response.output_text, response.instructions, response.error],
      ["completed", "scripted/test", "hello", "be brief", null],
    );
    assert.deepEqual([response.usage?.input_tokens, response.usage?.output_tokens], [20, 5]);
    const again = await client.responses.retrieve(response.id);
    assert.deepEqual(again, response);
    const items = await client.responses.inputItems.list(response.id);
    assert.deepEqual(
      items.data.map((item) => item.type === "message" && item.content),
      [[{ type: "input_text", text: "hi" }]],
    );
  });

  await context.test("streams events that are named by their types and end in the whole answer", async () => {
    const response = await fetch(`${url}/v1/responses`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model, input: "repeat", stream: true }),
    });
    assert.match(response.headers.get("content-type") ?? "", /^text\/event-stream/);
    const frames = (await response.text()).split("\n\n").filter((frame) => frame.startsWith("event:"));
    const events = frames.map((frame) => {
      const [name = "", data = ""] = frame.split("\n");
      const event: { type: string; sequence_number: number } = JSON.parse(data.slice("data: ".length));
      assert.equal(name, `event: ${event.type}`);
      return event;
    });
    assert.deepEqual(
      events.map((event) => event.sequence_number),
      events.map((_, index) => index),
    );
    assert.deepEqual([events[0]?.type, events.at(-1)?.type], ["response.created", "response.completed"]);
    assert.ok(!frames.some((frame) => frame.includes("[DONE]")));

    let streamed = "";
    const stream = client.responses.stream({ model, input: "repeat" });
    stream.on("response.output_text.delta", ({ delta }) => {
      streamed += delta;
    });
    const whole = await stream.finalResponse();
    assert.equal(streamed, "a long answer ".repeat(20));
    assert.equal(whole.output_text, streamed);
  });

  await context.test("runs the server's own tools, and says only what the model said", async () => {
    const response = await client.responses.create({ model, input: "read the file" });
    assert.deepEqual(
      response.output.map(({ type }) => type),
      ["message", "message"],
    );
    assert.equal(response.output_text, "Let me look.It is a sample.");
  });

  await context.test("leaves the client's tools to the client, who answers in the next request", async () => {
    for (const way of ["create", "stream"] as const) {
      const params = { model, tools: [weather], input: "the weather?" };
      const response: Responses.Response =
        way === "create"
          ? await client.responses.create(params)
          : await client.responses.stream(params).finalResponse();
      const call = response.output.find((item) => item.type === "function_call");
      assert.deepEqual(
        response.output.map(({ type }) => type),
        ["reasoning", "message", "function_call"],
      );
      assert.deepEqual(
        [response.status, call?.name, JSON.parse(call?.arguments ?? "")],
        ["completed", "get_weather", { city: "Oslo" }],
      );
      const next = await client.responses.create({
        model,
        previous_response_id: response.id,
        input: [{ type: "function_call_output", call_id: call?.call_id ?? "", output: "sunny" }],
      });
      assert.equal(next.output_text, "It is sunny.");
      assert.equal(next.previous_response_id, response.id);
    }
  });

  await context.test("takes the whole conversation as input, where nothing is kept", async () => {
    const first = { role: "user", content: "the weather?" } as const;
    const params = { model, tools: [weather], store: false };
    const response = await client.responses.create({ ...params, input: [first] });
    const call = response.output.find((item) => item.type === "function_call");
    const output = { type: "function_call_output", call_id: call?.call_id ?? "", output: "sunny" } as const;
    const next = await client.responses.create({ ...params, input: [first, ...keptBy(response), output] });
    assert.equal(next.output_text, "It is sunny.");
    await assert.rejects(client.responses.retrieve(response.id), { status: 404 });
    await assert.rejects(client.responses.create({ model, input: "on", previous_response_id: response.id }), {
      status: 400,
    });
  });

  await context.test("goes on after an answer, and from an older one apart from what came after it", async () => {
    const first = await client.responses.create({ model, input: "one" });
    const second = await client.responses.create({ model, input: "two", previous_response_id: first.id });
    const branch = await client.responses.create({ model, input: "other", previous_response_id: first.id });
    const sessionOf = ({ id }: { id: string }) => partsOfResponseId(id)?.sessionId ?? "";
    assert.equal(sessionOf(first), sessionOf(second));
    assert.notEqual(sessionOf(first), sessionOf(branch));
    const said = async (session: string) => {
      const { data } = await client.conversations.items.list(session, { order: "asc" });
      return data.map((item) => item.type === "message" && item.content.map((part) => "text" in part && part.text)[0]);
    };
    assert.deepEqual(await said(sessionOf(first)), ["one", "hello", "two", "hello"]);
    assert.deepEqual(await said(sessionOf(branch)), ["one", "hello", "other", "hello"]);
  });

  await context.test("goes on in a conversation", async () => {
    const items = [{ type: "message", role: "user", content: "I am Ann." }] as const;
    const conversation = await client.conversations.create({ items: [...items], metadata: { topic: "names" } });
    assert.match(conversation.id, /^conv_\w+$/);
    assert.deepEqual(await client.conversations.retrieve(conversation.id), conversation);
    const response = await client.responses.create({ model, input: "hi", conversation: conversation.id });
    assert.equal(response.conversation?.id, conversation.id);
    const { data } = await client.conversations.items.list(conversation.id, { order: "asc", limit: 2 });
    assert.deepEqual(
      data.map((item) => item.type === "message" && item.role),
      ["user", "user"],
    );
    const updated = await client.conversations.update(conversation.id, { metadata: { topic: "Ann" } });
    assert.deepEqual(updated.metadata, { topic: "Ann" });
    await assert.rejects(client.responses.delete(response.id), { status: 400, code: "response_in_conversation" });
    assert.deepEqual(await client.conversations.delete(conversation.id), {
      id: conversation.id,
      object: "conversation.deleted",
      deleted: true,
    });
    await assert.rejects(client.conversations.retrieve(conversation.id), { status: 404 });
  });

  await context.test("leaves alone what other services keep beside a conversation's own metadata", async () => {
    const kept = { "legacy.policy": "{}", "codeagent.legacy": '{"temperature":0.5}' };
    const { sessionId } = await service.createSession({ sessionId: "shared", metadata: { topic: "a", ...kept } });
    assert.deepEqual((await client.conversations.retrieve(sessionId)).metadata, { topic: "a" });
    const updated = await client.conversations.update(sessionId, { metadata: { name: "b", "legacy.policy": "x" } });
    assert.deepEqual(updated.metadata, { name: "b" });
    assert.deepEqual((await service.getSession({ sessionId })).metadata, { name: "b", ...kept });
  });

  await context.test("forgets an answer on its own, not one that others go on from", async () => {
    const first = await client.responses.create({ model, input: "one" });
    const alone = await client.responses.create({ model, input: "one" });
    await client.responses.create({ model, input: "two", previous_response_id: first.id });
    await assert.rejects(client.responses.delete(first.id), { status: 400, code: "response_in_conversation" });
    await client.responses.delete(alone.id);
    await assert.rejects(client.responses.retrieve(alone.id), { status: 404, code: "response_not_found" });
  });

  await context.test("gives JSON where it is asked for, in one piece", async () => {
    const schema = { type: "object", properties: { colour: { type: "string" } }, required: ["colour"] };
    const format = { type: "json_schema", name: "colour", schema } as const;
    const response = await client.responses.parse({ model, input: "a colour", text: { format } });
    assert.deepEqual(response.output_parsed, { colour: "red" });
    const whole = await client.responses.stream({ model, input: "a colour", text: { format } }).finalResponse();
    assert.equal(whole.output_text, '{"colour":"red"}');
  });

  await context.test("says what is wrong in the vendor's shape", async () => {
    const refusals: [params: Responses.ResponseCreateParamsNonStreaming, error: object][] = [
      [
        { model, input: "hi", tools: [{ type: "web_search" }] },
        { status: 400, param: "tools[0].type" },
      ],
      [
        { model, input: "hi", background: true },
        { status: 400, param: "background" },
      ],
      [
        { model, input: "hi", previous_response_id: "resp_1" },
        { status: 400, param: "previous_response_id", code: "previous_response_not_found" },
      ],
      [
        { model, input: "bad luck" },
        { status: 400, type: "invalid_request_error" },
      ],
      [
        { model, input: "hi", text: { format: { type: "json_schema", name: "n", schema: { type: 7 } } } },
        { status: 400, param: "text.format.schema" },
      ],
      [{ model, input: "hi", conversation: "conv_none" }, { status: 404 }],
    ];
    for (const [params, error] of refusals) await assert.rejects(client.responses.create(params), error);
    await assert.rejects(client.responses.retrieve("resp_1"), { status: 404, code: "response_not_found" });
  });

  await context.test("streams an answer that was cut and asked for again as one", async () => {
    const stream = client.responses.stream({ model, input: "a bad line" });
    let streamed = "";
    stream.on("response.output_text.delta", ({ delta }) => {
      streamed += delta;
    });
    assert.equal((await stream.finalResponse()).output_text, "abcdefgh");
    assert.equal(streamed, "abcdefgh");
  });

  await context.test(
    "tells a stream that fails amid its text as a failed response, which can be asked for",
    async () => {
      const events: Responses.ResponseStreamEvent[] = [];
      const stream = await client.responses.create({ model, input: "a broken line", stream: true });
      for await (const event of stream) events.push(event);
      const last = events.at(-1);
      assert.ok(last?.type === "response.failed");
      assert.deepEqual([last.response.status, last.response.error?.code], ["failed", "server_error"]);
      assert.match(last.response.error?.message ?? "", /broke the connection/);
      const kept = await client.responses.retrieve(last.response.id);
      assert.deepEqual([kept.status, kept.error], ["failed", last.response.error]);
    },
  );

  await context.test("a caller who hangs up leaves a kept turn running, which can be looked at", async () => {
    const abort = new AbortController();
    const stream = await client.responses.create({ model, input: "slow", stream: true }, { signal: abort.signal });
    let id = "";
    for await (const event of stream) {
      if (event.type === "response.created") id = event.response.id;
      if (event.type === "response.output_text.delta") abort.abort();
    }
    assert.equal((await client.responses.retrieve(id)).status, "in_progress");
  });
});

test("reasoning and what came between, kept by a client, goes back to whoever wrote it, byte for byte", {
  concurrency: 8,
  timeout: 60_000,
}, async (context) => {
  const models = await startModels(context, 1);
  const { app } = await startTestApp(context, { env: models.env });
  const client = clientOf(app.url);
  const ways = ["create", "stream"] as const;
  const tests = ways.flatMap((way) =>
    reasoningCases.flatMap((one) =>
      forms.map((form) =>
        context.test(`${one.name}, ${form}, by ${way}`, async () => {
          const model = `${one.model}-${form}-${way}-${one.provider}`;
          const params = { model: `${one.provider}/${model}`, store: false };
          models.plan(model, answers(one.callsTool.body, form), answers(one.ends.body, form));
          const go = { role: "user", content: "Go" } as const;
          const response: Responses.Response =
            way === "create"
              ? await client.responses.create({ ...params, input: [go] })
              : await client.responses.stream({ ...params, input: [go] }).finalResponse();
          assert.equal(response.status, "completed");
          models.plan(model, (request, answer, body) =>
            says(dialectOfPath(request.url ?? ""), [text("Bye.")])(request, answer, body),
          );
          await client.responses.create({
            ...params,
            input: [go, ...keptBy(response), { role: "user", content: "On" }],
          });
          assert.deepEqual(saidIn(models.sentTo(model).at(-1) ?? ""), inNextTurn(one, form));
        }),
      ),
    ),
  );
  await Promise.all(tests);
});

function dialectOfPath(path: string) {
  if (path.endsWith("/messages")) return "anthropic-messages";
  return path.endsWith("/responses") ? "openai-responses" : "openai-chat";
}

/** What the request of the next turn holds. */
function inNextTurn({ callsTool, ends, saidLater }: ReasoningCase, form: Form): string[] {
  const [first, second] = [saidLater?.callsTool ?? callsTool.said[form], saidLater?.ends ?? ends.said[form]];
  const results = first.flatMap((what) => (what.startsWith("call ") ? [what.replace("call", "result")] : []));
  return ["user Go", ...first, ...results, ...second, "user On"];
}
