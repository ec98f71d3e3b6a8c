import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type OpenAI from "openai";
import {
  type ChatCompletion,
  type ChatCompletionChunk,
  type ChatCompletionMessageParam,
  type ChatCompletionParams,
  chatCompletion,
  createCodeAgentClient,
  streamChatCompletion,
} from "../../sdk/index.ts";
import { startTestServer } from "./start-app.ts";

/** Does not compile unless the first type is assignable to the second. */
type Assignable<From extends To, To> = From extends To ? true : never;

const types: [
  Assignable<ChatCompletion, OpenAI.ChatCompletion>,
  Assignable<ChatCompletionChunk, OpenAI.ChatCompletionChunk>,
  Assignable<OpenAI.ChatCompletionMessageParam, ChatCompletionMessageParam>,
  Assignable<OpenAI.ChatCompletionCreateParams, ChatCompletionParams>,
  // An answer goes back as a message of the next request.
  Assignable<ChatCompletion["choices"][number]["message"], ChatCompletionMessageParam>,
  Assignable<OpenAI.ChatCompletionMessage, ChatCompletionMessageParam>,
] = [true, true, true, true, true, true];

const transports = ["grpc", "connect", "grpc-web"] as const;
const weather = {
  type: "function",
  function: {
    name: "get_weather",
    description: "Weather of a place",
    parameters: { type: "object", properties: { place: { type: "string" } }, required: ["place"] },
  },
} as const satisfies OpenAI.ChatCompletionFunctionTool;
const script = `
- when: { tool: get_weather, text: { contains: sunny } }
  text: It is sunny.
  usage: { prompt_tokens: 30, completion_tokens: 4, total_tokens: 34 }
- when: { tool: list_files }
  text: There is nothing.
- when: { text: { contains: weather } }
  thinking: where?
  text: One moment.
  chunk: 6
  tool_calls:
    - { id: call_a, name: get_weather, arguments: { place: Basel } }
    - { id: call_b, name: get_weather, arguments: { place: "Zürich 🌞" } }
  usage: { prompt_tokens: 20, completion_tokens: 9, total_tokens: 29, prompt_tokens_details: { cached_tokens: 5 } }
- when: { text: { contains: files } }
  text: "I look. "
  tool_calls: [{ name: list_files, arguments: { pattern: "*.none" } }]
- when: { text: { contains: long } }
  text: cut
  finish_reason: length
- text: hi
`;
const question = { role: "user", content: "How is the weather?" } as const;

/** What a reader makes of chunks who knows OpenAI's stream: joins by index. */
function join(chunks: readonly OpenAI.ChatCompletionChunk[]) {
  const calls: { id: string; name: string; arguments: string }[] = [];
  let content = "";
  for (const { choices } of chunks) {
    for (const delta of choices[0]?.delta.tool_calls ?? []) {
      calls[delta.index] ??= { id: delta.id ?? "", name: delta.function?.name ?? "", arguments: "" };
      const call = calls[delta.index];
      if (call !== undefined) call.arguments += delta.function?.arguments ?? "";
    }
    content += choices[0]?.delta.content ?? "";
  }
  return { content, calls };
}

async function readAll<Item>(stream: AsyncIterable<Item>): Promise<Item[]> {
  const items: Item[] = [];
  for await (const item of stream) items.push(item);
  return items;
}

describe("OpenAI's shapes", { timeout: 30_000 }, () => {
  test("are those of the openai package, as the compiler sees them", () => assert.ok(types.every(Boolean)));

  for (const transport of transports) {
    test(`${transport}: a completion has every field OpenAI's has`, async () => {
      await using server = await startTestServer(script);
      using client = createCodeAgentClient({ baseUrl: server.url, transport });
      const before = Math.floor(Date.now() / 1000);
      const { id, created, ...rest }: OpenAI.ChatCompletion = await chatCompletion(client, {
        messages: [question],
        tools: [weather],
      });
      assert.match(id, /^chatcmpl-./);
      assert.ok(created >= before && created <= Date.now() / 1000);
      assert.deepEqual(rest, {
        object: "chat.completion",
        model: "scripted/demo",
        choices: [
          {
            index: 0,
            message: {
              role: "assistant",
              content: "One moment.",
              refusal: null,
              reasoning_content: "where?",
              tool_calls: [
                { id: "call_a", type: "function", function: { name: "get_weather", arguments: '{"place":"Basel"}' } },
                {
                  id: "call_b",
                  type: "function",
                  function: { name: "get_weather", arguments: '{"place":"Zürich 🌞"}' },
                },
              ],
            },
            finish_reason: "tool_calls",
            logprobs: null,
          },
        ],
        usage: {
          prompt_tokens: 20,
          completion_tokens: 9,
          total_tokens: 29,
          prompt_tokens_details: { cached_tokens: 5 },
        },
      });
    });

    test(`${transport}: a stream begins with the role and ends with the reason, then usage`, async () => {
      await using server = await startTestServer(script);
      using client = createCodeAgentClient({ baseUrl: server.url, transport });
      const params = { messages: [question], tools: [weather], stream_options: { include_usage: true } };
      const chunks: OpenAI.ChatCompletionChunk[] = await readAll(streamChatCompletion(client, params));
      assert.deepEqual(chunks[0]?.choices[0]?.delta, { role: "assistant", content: "" });
      assert.equal(chunks.filter((chunk) => chunk.choices[0]?.delta.role !== undefined).length, 1);
      assert.equal(new Set(chunks.map(({ id, created, model }) => `${id} ${created} ${model}`)).size, 1);
      assert.ok(chunks.every((chunk) => chunk.object === "chat.completion.chunk"));
      assert.deepEqual(join(chunks), {
        content: "One moment.",
        calls: [
          { id: "call_a", name: "get_weather", arguments: '{"place":"Basel"}' },
          { id: "call_b", name: "get_weather", arguments: '{"place":"Zürich 🌞"}' },
        ],
      });
      const named = chunks.flatMap((chunk) => chunk.choices[0]?.delta.tool_calls ?? []).filter((call) => call.id);
      assert.deepEqual(
        named.map((call) => [call.index, call.type]),
        [
          [0, "function"],
          [1, "function"],
        ],
      );
      assert.deepEqual(
        chunks.map((chunk) => chunk.choices[0]?.finish_reason ?? null).filter((reason) => reason !== null),
        ["tool_calls"],
      );
      assert.deepEqual(chunks.at(-2)?.choices[0]?.delta, {});
      assert.deepEqual(chunks.at(-1)?.choices, []);
      assert.equal(chunks.at(-1)?.usage?.total_tokens, 29);
      assert.ok(chunks.slice(0, -1).every((chunk) => chunk.usage === null));
      const plain = await readAll(streamChatCompletion(client, { messages: [question], tools: [weather] }));
      assert.ok(plain.every((chunk) => !("usage" in chunk) && chunk.choices.length === 1));
    });
  }

  for (const kind of ["one-off", "session"] as const) {
    test(`calls and their results go both ways, ${kind}`, async () => {
      await using server = await startTestServer(script);
      using client = createCodeAgentClient({ baseUrl: server.url });
      const session = kind === "session" ? { session_id: (await client.createSession({})).sessionId } : {};
      const first = await chatCompletion(client, { ...session, messages: [question], tools: [weather] });
      const [choice] = first.choices;
      assert.ok(choice);
      const results: OpenAI.ChatCompletionMessageParam[] = ["call_b", "call_a"].map((id) => ({
        role: "tool",
        tool_call_id: id,
        content: `${id}: sunny`,
      }));
      const messages = kind === "session" ? results : [question, choice.message, ...results];
      const second = await chatCompletion(client, { ...session, messages, tools: [weather] });
      assert.equal(second.choices[0]?.message.content, "It is sunny.");
      assert.equal(second.choices[0]?.finish_reason, "stop");
    });
  }

  test("images, files and audio reach the session as they were", async () => {
    await using server = await startTestServer(script);
    using client = createCodeAgentClient({ baseUrl: server.url });
    const { sessionId } = await client.createSession({});
    const content: OpenAI.ChatCompletionContentPart[] = [
      { type: "text", text: "look" },
      { type: "image_url", image_url: { url: "https://example.com/a.png", detail: "low" } },
      { type: "file", file: { file_data: "data:application/pdf;base64,AAAA", filename: "a.pdf" } },
      { type: "input_audio", input_audio: { data: "AAAA", format: "wav" } },
    ];
    const params: OpenAI.ChatCompletionCreateParams = { model: "", messages: [{ role: "user", content }] };
    await readAll(streamChatCompletion(client, { ...params, session_id: sessionId }));
    const { messages } = await client.listMessages({ sessionId });
    const blocks = messages[0]?.blocks.map(({ block }) => block);
    assert.deepEqual(
      blocks?.map((block) => block.case),
      ["text", "image", "file", "audio"],
    );
    const [, image, file, audio] = blocks ?? [];
    assert.ok(image?.case === "image" && file?.case === "file" && audio?.case === "audio");
    assert.deepEqual([image.value.url, image.value.detail], ["https://example.com/a.png", "low"]);
    assert.deepEqual([file.value.data, file.value.filename], ["data:application/pdf;base64,AAAA", "a.pdf"]);
    assert.deepEqual([audio.value.data, audio.value.format], ["AAAA", "wav"]);
  });

  test("what the server's own tools do is not shown, text of all steps is", async () => {
    await using server = await startTestServer(script);
    using client = createCodeAgentClient({ baseUrl: server.url });
    const params = { messages: [{ role: "user" as const, content: "files?" }] };
    const chunks = await readAll(streamChatCompletion(client, params));
    assert.deepEqual(join(chunks), { content: "I look. There is nothing.", calls: [] });
    assert.equal(chunks.at(-1)?.choices[0]?.finish_reason, "stop");
    const limited = await chatCompletion(client, { ...params, max_steps: 1 });
    assert.equal(limited.choices[0]?.finish_reason, "length");
    const cut = await chatCompletion(client, { messages: [{ role: "user", content: "long" }] });
    assert.equal(cut.choices[0]?.finish_reason, "length");
  });

  test("allowed_tools reach the server", async () => {
    await using server = await startTestServer(script);
    using client = createCodeAgentClient({ baseUrl: server.url });
    const { sessionId } = await client.createSession({});
    const params = { messages: [{ role: "user" as const, content: "hi" }], session_id: sessionId };
    await chatCompletion(client, { ...params, allowed_tools: ["read_file"], max_steps: 3 });
    const stream = client.subscribeSession({ sessionId });
    const events = (await readAll(stream)).map(({ event }) => event);
    const options = events.flatMap((event) => (event.case === "turnStarted" ? [event.value.options] : []));
    assert.deepEqual([options[0]?.allowedTools, options[0]?.maxSteps], [["read_file"], 3]);
  });

  test("the same request_id joins the same turn", async () => {
    await using server = await startTestServer(script);
    using client = createCodeAgentClient({ baseUrl: server.url });
    const { sessionId } = await client.createSession({});
    const params = { messages: [question], session_id: sessionId, request_id: "r1" };
    const [first, second] = await Promise.all([chatCompletion(client, params), chatCompletion(client, params)]);
    assert.deepEqual(first, second);
    assert.equal((await client.listMessages({ sessionId })).messages.filter(({ role }) => role === "user").length, 1);
    const other = await Promise.all([1, 2].map(() => chatCompletion(client, { messages: [question] })));
    assert.notEqual(other[0]?.id, other[1]?.id);
  });
});
