import assert from "node:assert/strict";
import { after, describe, type TestContext, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { call, eventsThrough, says, text } from "../provider/answers.ts";
import { type Answer, eventStream, jsonAnswer, key, startUpstream } from "../provider/upstream.ts";
import { type Form, forms, type ReasoningCase, reasoningCases, saidIn } from "../session/reasoning-answers.ts";
import { answers, startModels } from "../session/reasoning-models.ts";
import { startTestApp } from "../support/test-app.ts";

// Anthropic's own client, over a socket.

const script = `
- when: { role: tool, text: sunny }
  text: It is sunny.
- when: { role: tool, text: a sample }
  text: It is a sample.
- when: { text: weather }
  thinking: I ask.
  text: Let me see.
  tool_calls: [{ name: get_weather, arguments: { city: Oslo } }]
- when: { text: nothing but the JSON }
  text: '{"a":1}'
- when: { role: user, text: JSON }
  text: no
- when: { text: file }
  text: Let me look.
  tool_calls: [{ name: read_file, arguments: { path: README.md } }]
- { text: hello, usage: { prompt_tokens: 20, completion_tokens: 5, prompt_tokens_details: { cached_tokens: 8 } } }
`;
const weather: Anthropic.Tool = {
  name: "get_weather",
  input_schema: { type: "object", properties: { city: { type: "string" } } },
};
const said = (content: Anthropic.MessageParam["content"]): Anthropic.MessageParam => ({ role: "user", content });

function clientOf(url: string): Anthropic {
  return new Anthropic({ baseURL: url, apiKey: "unused", maxRetries: 0, timeout: 20_000 });
}

const scripted = await startTestApp({ after: (close) => after(close as () => Promise<void>) }, { script });
const client = clientOf(scripted.app.url);

/** The service before one fake upstream that speaks Anthropic's format. */
async function startBefore(context: TestContext, planned: readonly Answer[]) {
  const upstream = await startUpstream(context, planned);
  const env = { ANTHROPIC_BASE_URL: upstream.url.replace(/\/v1$/, ""), ANTHROPIC_API_KEY: key };
  const { app } = await startTestApp(context, { env, flags: { model: "anthropic/claude-opus-4-5" } });
  return { app, client: clientOf(app.url), upstream, model: "anthropic/claude-opus-4-5" };
}

const short = { model: "scripted/test", max_tokens: 100 };

function textsOf({ content }: Anthropic.Message): string[] {
  return content.flatMap((block) => (block.type === "text" ? block.text : []));
}

describe("a turn", { timeout: 30_000 }, () => {
  test("is answered with one message", async () => {
    const message = await client.messages.create({ ...short, messages: [said("hi")] });
    assert.match(message.id, /^msg_/);
    assert.deepEqual(
      [message.type, message.role, message.model, message.stop_reason, message.stop_sequence],
      ["message", "assistant", "scripted/test", "end_turn", null],
    );
    assert.deepEqual(message.content, [{ type: "text", text: "hello", citations: null }]);
    const { input_tokens, cache_read_input_tokens, output_tokens } = message.usage;
    assert.deepEqual([input_tokens, cache_read_input_tokens, output_tokens], [12, 8, 5]);
  });

  test("is streamed under the vendor's names of events", async () => {
    const stream = client.messages.stream({ ...short, messages: [said("hi")] });
    let streamed = "";
    stream.on("text", (piece) => {
      streamed += piece;
    });
    const message = await stream.finalMessage();
    assert.equal(streamed, "hello");
    assert.deepEqual(textsOf(message), ["hello"]);
    assert.equal(message.stop_reason, "end_turn");

    const response = await fetch(`${scripted.app.url}/v1/messages?beta=true`, {
      method: "POST",
      headers: { "content-type": "application/json", "anthropic-version": "2023-06-01" },
      body: JSON.stringify({ ...short, messages: [said("hi")], stream: true }),
    });
    assert.match(response.headers.get("content-type") ?? "", /^text\/event-stream/);
    const events = (await response.text()).split("\n\n").filter((event) => event.startsWith("event:"));
    const names = events.map((event) => event.slice("event: ".length, event.indexOf("\n")));
    assert.deepEqual(
      names.filter((name, index) => name !== "ping" && name !== names[index - 1]),
      [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
      ],
    );
    for (const event of events) {
      const data: unknown = JSON.parse(event.slice(event.indexOf("data: ") + "data: ".length));
      assert.ok(event.startsWith(`event: ${Object(data).type}\n`), event);
    }
  });

  test("runs the server's tools, and remembers in the next one what they said", async () => {
    const first = said("read the file");
    const message = await client.messages.create({ ...short, messages: [first] });
    assert.deepEqual(textsOf(message), ["Let me look.", "It is a sample."]);
    assert.ok(message.content.every(({ type }) => type !== "tool_use"));
    assert.equal(message.stop_reason, "end_turn");
    const again = await client.messages.create({
      ...short,
      messages: [first, { role: "assistant", content: message.content }, said("thanks")],
    });
    assert.deepEqual(textsOf(again), ["hello"]);
  });

  test("ends with the client's calls, and goes on with their results", async () => {
    const question = said("how is the weather?");
    const tools = [weather];
    const stream = client.messages.stream({ ...short, tools, messages: [question] });
    const called = await stream.finalMessage();
    assert.equal(called.stop_reason, "tool_use");
    assert.deepEqual(
      called.content.map(({ type }) => type),
      ["thinking", "text", "tool_use"],
    );
    const use = called.content.find((block) => block.type === "tool_use");
    assert.deepEqual([use?.name, use?.input], ["get_weather", { city: "Oslo" }]);
    const result = { type: "tool_result", tool_use_id: use?.id ?? "", content: "sunny" } as const;
    const messages = [question, { role: "assistant", content: called.content } as const, said([result])];
    const answer = await client.messages.create({ ...short, tools, messages });
    assert.deepEqual(textsOf(answer), ["It is sunny."]);
  });
});

test("a session that a header names keeps the turn, and takes of the conversation what is new", async () => {
  const inSession = { headers: { "x-session-id": "kept" } };
  const first = said("read the file");
  const message = await client.messages.create({ ...short, messages: [first] }, inSession);
  assert.deepEqual(
    message.content.map(({ type }) => type),
    ["text", "text"],
  );
  const messages = [first, { role: "assistant", content: message.content } as const, said("thanks")];
  await client.messages.create({ ...short, messages }, inSession);
  const history = await scripted.client.listMessages({ sessionId: "kept" });
  assert.deepEqual(
    history.messages.map(({ role }) => role),
    ["user", "assistant", "tool", "assistant", "user", "assistant"],
  );
});

test("an answer in JSON is the only text", async () => {
  const schema = {
    type: "object",
    properties: { a: { type: "number" } },
    required: ["a"],
    additionalProperties: false,
  };
  const message = await client.messages
    .stream({ ...short, messages: [said("JSON")], output_config: { format: { type: "json_schema", schema } } })
    .finalMessage();
  assert.deepEqual(textsOf(message), ['{"a":1}']);
});

test("thinking and what came between go back to whoever wrote them, byte for byte", {
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
          const params = { model: `${one.provider}/${model}`, max_tokens: 5000 };
          models.plan(model, answers(one.callsTool.body, form), answers(one.ends.body, form));
          const first = said("Go");
          const message =
            way === "create"
              ? await client.messages.create({ ...params, messages: [first] })
              : await client.messages.stream({ ...params, messages: [first] }).finalMessage();
          assert.equal(message.stop_reason, "end_turn");
          models.plan(model, (request, response, body) =>
            says(dialectOfPath(request.url ?? ""), [text("Bye.")])(request, response, body),
          );
          const kept: unknown = JSON.parse(JSON.stringify(message.content));
          await client.messages.create({
            ...params,
            messages: [first, { role: "assistant", content: contentOf(kept) }, said("On")],
          });
          assert.deepEqual(saidIn(models.sentTo(model).at(-1) ?? ""), inNextTurn(one, form));
        }),
      ),
    ),
  );
  await Promise.all(tests);
});

function contentOf(kept: unknown): Anthropic.ContentBlockParam[] {
  assert.ok(Array.isArray(kept));
  return kept;
}

function dialectOfPath(path: string) {
  if (path.endsWith("/messages")) return "anthropic-messages";
  return path.endsWith("/responses") ? "openai-responses" : "openai-chat";
}

/** What the request of the next turn holds; Anthropic's format has no word for what a text is to its model. */
function inNextTurn({ callsTool, ends, saidLater }: ReasoningCase, form: Form): string[] {
  const [first, second] = [saidLater?.callsTool ?? callsTool.said[form], saidLater?.ends ?? ends.said[form]];
  const results = first.flatMap((what) => (what.startsWith("call ") ? [what.replace("call", "result")] : []));
  return ["user Go", ...first, ...results, ...second, "user On"].map((what) =>
    what.replace(/^text \((?:commentary|final_answer)\) /, "text "),
  );
}

describe("before a provider of the same format", { timeout: 30_000 }, () => {
  test("images and thinking of the vendor reach it as they came", async (context) => {
    const { client, upstream, model } = await startBefore(context, [says("anthropic-messages", [text("A cat.")])]);
    const source = { type: "base64", media_type: "image/png", data: "iVBORw0KGgo=" } as const;
    const thought = { type: "thinking", thinking: "Hm.", signature: "EqQBCgIYAhIM" } as const;
    await client.messages.create({
      model,
      max_tokens: 5000,
      thinking: { type: "enabled", budget_tokens: 1024 },
      system: "Be brief.",
      messages: [
        said("hi"),
        { role: "assistant", content: [thought, { type: "text", text: "Hello." }] },
        said([
          { type: "image", source },
          { type: "text", text: "What is it?" },
        ]),
      ],
    });
    const body: Anthropic.MessageCreateParams = JSON.parse(upstream.requests[0]?.body ?? "{}");
    assert.deepEqual(body.messages[1]?.content, [thought, { type: "text", text: "Hello." }]);
    const [image] = body.messages[2]?.content ?? [];
    assert.deepEqual(image, { type: "image", source });
    assert.deepEqual(body.thinking, { type: "enabled", budget_tokens: 1024 });
    assert.equal(body.max_tokens, 5000);
  });

  test("hanging up ends the request to it", async (context) => {
    const begun = eventsThrough("anthropic-messages", [text("Hello there.")], "content_block_delta");
    const closed = Promise.withResolvers<void>();
    const held: Answer = (_, response) => {
      response.once("close", closed.resolve).writeHead(200, eventStream).write(begun);
    };
    const { client, model } = await startBefore(context, [held]);
    const stream = client.messages.stream({ model, max_tokens: 100, messages: [said("hi")] });
    const shown = Promise.withResolvers<string>();
    stream.on("text", shown.resolve);
    assert.equal(await shown.promise, "Hello ");
    stream.abort();
    await assert.rejects(stream.finalMessage(), Anthropic.APIUserAbortError);
    await closed.promise;
  });

  test("its tokens are counted by it", async (context) => {
    const { client, upstream, model } = await startBefore(context, [jsonAnswer(200, { input_tokens: 42 })]);
    const counted = client.messages.countTokens({ model, messages: [said("hi")] });
    assert.deepEqual(await counted, { input_tokens: 42 });
    assert.equal((await counted.asResponse()).headers.get("x-codeagent-estimate"), null);
    assert.equal(upstream.requests[0]?.url, "/v1/messages/count_tokens");
    // The server's own functions are read as well.
    assert.match(upstream.requests[0]?.body ?? "", /"name":"read_file"/);
  });
});

test("tokens that nobody counts are estimated", async () => {
  const { data, response } = await client.messages
    .countTokens({ model: "scripted/test", messages: [said("hi")] })
    .withResponse();
  assert.ok(data.input_tokens > 100, "the server's prompt and functions are part of it");
  assert.equal(response.headers.get("x-codeagent-estimate"), "true");
});

describe("errors are the vendor's", { timeout: 30_000 }, () => {
  const refused: readonly {
    name: string;
    params: object;
    error: new (...args: never[]) => Error;
    type: string;
    words: RegExp;
  }[] = [
    {
      name: "a field that is missing",
      params: { max_tokens: undefined },
      error: Anthropic.BadRequestError,
      type: "invalid_request_error",
      words: /max_tokens: is missing/,
    },
    {
      name: "a tool of the vendor's",
      params: { tools: [{ type: "web_search_20250305", name: "web_search" }] },
      error: Anthropic.BadRequestError,
      type: "invalid_request_error",
      words: /tools\.0\.type: is "web_search_20250305"/,
    },
    {
      name: "a model nobody knows",
      params: { model: "nobody/x" },
      error: Anthropic.NotFoundError,
      type: "not_found_error",
      words: /nobody\/x/,
    },
  ];
  for (const { name, params, error, type, words } of refused) {
    for (const stream of [false, true]) {
      test(`${name}${stream ? ", of a stream" : ""}`, async () => {
        const body = { ...short, messages: [said("hi")], stream, ...params };
        await assert.rejects(
          client.messages.create(body as Anthropic.MessageCreateParams),
          (thrown) =>
            thrown instanceof error &&
            thrown instanceof Anthropic.APIError &&
            thrown.type === type &&
            words.test(thrown.apiMessage ?? ""),
        );
      });
    }
  }

  test("a provider that wants to be waited for", async (context) => {
    const limited = jsonAnswer(
      429,
      { type: "error", error: { type: "rate_limit_error", message: "slow down" } },
      {
        "retry-after": "3600",
      },
    );
    const { client, model } = await startBefore(context, [limited]);
    await assert.rejects(
      client.messages.create({ model, max_tokens: 100, messages: [said("hi")] }),
      (error) =>
        error instanceof Anthropic.RateLimitError &&
        error.type === "rate_limit_error" &&
        error.headers.get("retry-after") === "3600" &&
        /slow down/.test(error.message),
    );
  });

  test("a provider that breaks off after a call was shown", async (context) => {
    const begun = eventsThrough("anthropic-messages", [text("Hi"), call("c", "get_weather", '{"city":"x"}')], "city");
    const cut: Answer = (_, response) => {
      response.writeHead(200, eventStream).write(begun, () => response.destroy());
    };
    const { client, model } = await startBefore(context, [cut]);
    const stream = client.messages.stream({ model, max_tokens: 100, tools: [weather], messages: [said("hi")] });
    await assert.rejects(
      stream.finalMessage(),
      (error) => error instanceof Anthropic.APIError && error.type === "overloaded_error",
    );
  });
});
