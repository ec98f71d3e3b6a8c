import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { dataOf, post, startRestApp } from "./rest-app.ts";

const script = `
- when: { text: hello }
  thinking: hm
  text: Hello to you.
  chunk: 4
  usage: { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 }
- when: { text: look around }
  tool_calls: [{ name: list_files, arguments: { pattern: "*" } }]
- when: { tool: list_files }
  text: There is a README.
- when: { text: weather }
  tool_calls: [{ id: call_1, name: get_weather, arguments: { city: Bern } }]
- when: { tool: get_weather }
  text: It rains.
- when: { text: as json }
  text: '{"a":1}'
- when: { text: busy }
  error: { status: 429, message: slow down, type: rate_limit_error, retry_after: 61 }
- when: { text: unwell }
  error: { status: 400, message: not so, type: invalid_request_error }
- when: { text: cut }
  text: this answer breaks off in its middle
  chunk: 5
  cut_after: 2
- when: { text: slowly }
  text: one two three four five six seven eight
  chunk: 4
  delay_ms: 100
- when: { text: picture }
  text: I see.
- when: { text: again }
  text: Once more.
- when: { tool: write_file, text: { contains: nobody can be asked } }
  text: I may not.
- when: { tool: ask_user, text: { contains: nobody can be asked } }
  text: I can't know.
- when: { text: write it down }
  tool_calls: [{ name: write_file, arguments: { path: a.txt, content: a } }]
- when: { text: which one }
  tool_calls: [{ name: ask_user, arguments: { question: Which one? } }]
`;

const weather = {
  type: "function",
  function: { name: "get_weather", parameters: { type: "object", properties: { city: { type: "string" } } } },
} as const;
const model = "scripted/test";
const user = (content: string) => ({ role: "user", content }) as const;

test("Chat Completions, asked for by OpenAI's client", async (context) => {
  const app = await startRestApp(context, { script, flags: { retry_cut_answers: false } });
  const { openai } = app;

  await context.test("what would have to be asked for is refused at once where nobody can be asked", async () => {
    for (const [question, answer] of [
      ["write it down", "I may not."],
      ["which one", "I can't know."],
    ] as const) {
      const { choices } = await openai.chat.completions.create({ model, messages: [user(question)] });
      assert.equal(choices[0]?.message.content, answer);
    }
  });

  await context.test("an answer", async () => {
    const { data, response } = await openai.chat.completions
      .create({ model, messages: [user("hello")] })
      .withResponse();
    assert.deepEqual(data.choices, [
      {
        index: 0,
        message: { role: "assistant", content: "Hello to you.", refusal: null, reasoning_content: "hm" },
        finish_reason: "stop",
        logprobs: null,
      },
    ]);
    assert.equal(data.object, "chat.completion");
    assert.equal(data.model, "scripted/test");
    assert.deepEqual(data.usage, { prompt_tokens: 7, completion_tokens: 3, total_tokens: 10 });
    assert.equal(`chatcmpl-${response.headers.get("x-request-id")}`, data.id);
    assert.equal(response.headers.get("x-session-id"), null, "nothing is kept");
  });

  await context.test("a stream: role, text, the end, usage, and [DONE] last", async () => {
    const body = { model, messages: [user("hello")], stream: true, stream_options: { include_usage: true } };
    const response = await post(`${app.url}/v1/chat/completions`, body);
    assert.equal(response.headers.get("content-type"), "text/event-stream; charset=utf-8");
    assert.equal(response.headers.get("cache-control"), "no-cache");
    assert.equal(response.headers.get("x-accel-buffering"), "no");
    const data = dataOf(await response.text());
    assert.equal(data.at(-1), "[DONE]");
    const chunks = data.slice(0, -1).map((text) => JSON.parse(text));
    assert.deepEqual(chunks[0].choices[0].delta, { role: "assistant", content: "" });
    assert.equal(chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join(""), "Hello to you.");
    assert.equal(chunks.map((chunk) => chunk.choices[0]?.delta.reasoning_content ?? "").join(""), "hm");
    assert.equal(chunks.at(-2).choices[0].finish_reason, "stop");
    assert.deepEqual(chunks.at(-1).choices, []);
    assert.equal(chunks.at(-1).usage.total_tokens, 10);
  });

  await context.test("the server's own tools run inside and are not shown as calls", async () => {
    const stream = openai.chat.completions.stream({ model, messages: [user("look around")] });
    const { choices } = await stream.finalChatCompletion();
    assert.equal(choices[0]?.message.content, "There is a README.");
    assert.equal(choices[0]?.message.tool_calls, undefined);
  });

  await context.test("a call of the caller's tool ends the turn, and its result goes on with it", async () => {
    const asked = { model, tools: [weather] };
    const first = await openai.chat.completions.create({ ...asked, messages: [user("weather")] });
    const message = first.choices[0]?.message;
    assert.equal(first.choices[0]?.finish_reason, "tool_calls");
    assert.deepEqual(message?.tool_calls, [
      { id: "call_1", type: "function", function: { name: "get_weather", arguments: '{"city":"Bern"}' } },
    ]);
    assert.ok(message);
    const result = { role: "tool", tool_call_id: "call_1", content: "rain" } as const;
    const second = await openai.chat.completions.create({ ...asked, messages: [user("weather"), message, result] });
    assert.equal(second.choices[0]?.message.content, "It rains.");
  });

  await context.test("JSON by a schema", async () => {
    const schema = { type: "object", properties: { a: { type: "integer" } }, required: ["a"] };
    const { choices } = await openai.chat.completions.create({
      model,
      messages: [user("as json")],
      response_format: { type: "json_schema", json_schema: { name: "n", schema } },
    });
    assert.equal(choices[0]?.message.content, '{"a":1}');
  });

  await context.test("an image is passed on", async () => {
    const url = "data:image/png;base64,iVBORw0KGgo=";
    const content = [
      { type: "text" as const, text: "picture" },
      { type: "image_url" as const, image_url: { url } },
    ];
    const { choices } = await openai.chat.completions.create({ model, messages: [{ role: "user", content }] });
    assert.equal(choices[0]?.message.content, "I see.");
  });

  const refused: [what: string, more: object, status: number, param: string | null, code: string | null][] = [
    ["no messages", { messages: [] }, 400, "messages", null],
    ["a role nobody knows", { messages: [{ role: "robot", content: "x" }] }, 400, "messages[0].role", null],
    ["several choices", { n: 2 }, 400, "n", null],
    ["probabilities", { logprobs: true }, 400, "logprobs", null],
    ["likely tokens", { top_logprobs: 2 }, 400, "top_logprobs", null],
    ["a spoken answer", { modalities: ["text", "audio"] }, 400, "modalities[1]", null],
    ["a penalty", { frequency_penalty: 0.5 }, 400, "frequency_penalty", null],
    ["a bias", { logit_bias: { 5: 1 } }, 400, "logit_bias", null],
    ["verbosity", { verbosity: "high" }, 400, "verbosity", null],
    ["the provider's search", { web_search_options: {} }, 400, "web_search_options", null],
    ["a custom tool", { tools: [{ type: "custom", custom: { name: "x" } }] }, 400, "tools[0].type", null],
    [
      "a schema that is none",
      { response_format: { type: "json_schema", json_schema: { name: "n", schema: { type: 5 } } } },
      400,
      "response_format.json_schema.schema",
      null,
    ],
    ["a model nobody has", { model: "nobody/x" }, 404, null, "model_not_found"],
  ];
  for (const [what, more, status, param, code] of refused)
    await context.test(`${what}: ${status} ${param ?? code}`, async () => {
      const response = await post(`${app.url}/v1/chat/completions`, { model, messages: [user("hello")], ...more });
      const { error } = await response.json();
      assert.deepEqual(
        [response.status, error.type, error.param, error.code],
        [status, "invalid_request_error", param, code],
        error.message,
      );
      assert.equal(response.headers.get("x-should-retry"), "false");
    });

  await context.test("neutral values of what is not passed on do", async () => {
    const more = { n: 1, frequency_penalty: 0, presence_penalty: 0, logit_bias: {}, verbosity: "medium", store: true };
    const response = await post(`${app.url}/v1/chat/completions`, {
      model,
      messages: [user("hello")],
      user: "ann",
      ...more,
    });
    assert.equal(response.status, 200, await response.text());
  });

  for (const stream of [false, true])
    await context.test(
      `a provider that wants a pause: 429 and how long, ${stream ? "also where a stream was asked for" : "told"}`,
      async () => {
        const response = await post(`${app.url}/v1/chat/completions`, { model, messages: [user("busy")], stream });
        const { error } = await response.json();
        assert.deepEqual([response.status, error.type, error.code], [429, "rate_limit_error", "rate_limit_exceeded"]);
        assert.equal(response.headers.get("retry-after"), "61");
        assert.equal(response.headers.get("retry-after-ms"), "61000");
        assert.equal(response.headers.get("x-should-retry"), "true");
      },
    );

  await context.test("what a provider rejects is no stream but its status", async () => {
    const refusal = openai.chat.completions.create({ model, messages: [user("unwell")], stream: true });
    await assert.rejects(refusal, (error) => error instanceof OpenAI.BadRequestError && /not so/.test(error.message));
  });

  await context.test("an answer that breaks off is the last event of its stream, without [DONE]", async () => {
    const body = { model, messages: [user("cut")], stream: true };
    const response = await post(`${app.url}/v1/chat/completions`, body);
    assert.equal(response.status, 200);
    const data = dataOf(await response.text());
    const last = JSON.parse(data.at(-1) ?? "");
    assert.equal(last.error.type, "server_error");
    assert.ok(data.length > 2, "what was said before is there");
    const stream = await openai.chat.completions.create({ model, messages: [user("cut")], stream: true });
    await assert.rejects(async () => {
      for await (const _ of stream);
    }, OpenAI.APIError);
  });

  await context.test(
    "the same Idempotency-Key joins one turn, whether streamed or not; another payload is a conflict",
    async () => {
      const url = `${app.url}/v1/chat/completions`;
      const headers = { "idempotency-key": "key-1" };
      const body = { model, messages: [user("hello")] };
      const [one, other] = await Promise.all([post(url, body, headers), post(url, { ...body, stream: true }, headers)]);
      const { id } = await one.json();
      assert.equal(JSON.parse(dataOf(await other.text())[0] ?? "").id, id);
      const conflict = await post(url, { ...body, messages: [user("again")] }, headers);
      const { error } = await conflict.json();
      assert.deepEqual([conflict.status, error.code], [409, "request_id_reused"]);
      assert.equal(conflict.headers.get("x-should-retry"), "false");
      const long = await post(url, body, { "idempotency-key": "k".repeat(300) });
      assert.equal((await long.json()).error.param, "Idempotency-Key");
    },
  );

  await context.test(
    "x-session-id: a session is made on the fly and takes what is new of the conversation",
    async () => {
      const headers = { "x-session-id": "from-chat" };
      const create = (messages: OpenAI.ChatCompletionMessageParam[], more = {}) =>
        openai.chat.completions.create({ model, messages }, { headers: { ...headers, ...more } }).withResponse();
      const system = { role: "system", content: "be brief" } as const;
      const firsts = await Promise.all(
        [1, 2].map(() => create([system, user("hello")], { "idempotency-key": "first" })),
      );
      assert.equal(firsts[0]?.data.id, firsts[1]?.data.id, "both who came first are in the one session");
      assert.equal(firsts[0]?.response.headers.get("x-session-id"), "from-chat");
      await create([system, user("hello"), { role: "assistant", content: "Hello to you." }, user("again")]);
      const { messages } = await app.client.listMessages({ sessionId: "from-chat" });
      assert.deepEqual(
        messages.map(({ role, contentType }) => `${role}: ${contentType.value}`),
        ["system: be brief", "user: hello", "assistant: Hello to you.", "user: again", "assistant: Once more."],
      );
      await assert.rejects(
        create([user("hello"), { role: "assistant", content: "Hello to you." }]),
        (error) => error instanceof OpenAI.BadRequestError && error.param === "messages",
      );
      await assert.rejects(
        openai.chat.completions.create({ model, messages: [user("hello")] }, { headers: { "x-session-id": "no/id" } }),
        (error) => error instanceof OpenAI.BadRequestError && error.param === "x-session-id",
      );
    },
  );

  await context.test("models: the server's own first, each by its id, slashes and all", async () => {
    const { data } = await openai.models.list();
    assert.deepEqual(data[0], { id: model, object: "model", created: 0, owned_by: "scripted" });
    assert.equal((await openai.models.retrieve(model)).id, model, "the client encodes the slash");
    assert.equal((await fetch(`${app.url}/v1/models/${model}`)).status, 200);
    await assert.rejects(openai.models.retrieve("no/such"), OpenAI.NotFoundError);
    const forAnthropic = await fetch(`${app.url}/v1/models`, { headers: { "anthropic-version": "2023-06-01" } });
    const listed = await forAnthropic.json();
    assert.deepEqual([listed.has_more, listed.first_id, listed.data[0].type], [false, model, "model"]);
  });
});
