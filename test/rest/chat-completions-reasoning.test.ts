import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import {
  type ChatCompletionMessageParam,
  chatCompletion,
  createCodeAgentClient,
  messageFromResponse,
  streamChatCompletion,
} from "../../sdk/index.ts";
import { says, text } from "../provider/answers.ts";
import { type Form, forms, type ReasoningCase, reasoningCases, saidIn } from "../session/reasoning-answers.ts";
import { answers, startModels } from "../session/reasoning-models.ts";
import { startTestApp } from "../support/test-app.ts";

// A client that keeps the conversation itself and sends back the messages it got, as they are.

type Params = { readonly model: string; readonly messages: ChatCompletionMessageParam[] };

/** Asks for an answer and gives its message. */
type Way = (url: string, params: Params) => Promise<ChatCompletionMessageParam>;

function openAI(url: string): OpenAI {
  return new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused", maxRetries: 0, timeout: 20_000 });
}

/** OpenAI's own types, as its client takes them. */
function asTheirs(messages: Params["messages"]): OpenAI.ChatCompletionMessageParam[] {
  return messages.map((message) => ({ ...message }) as OpenAI.ChatCompletionMessageParam);
}

const ways: Readonly<Record<string, Way>> = {
  async "the openai package"(url, { model, messages }) {
    const { choices } = await openAI(url).chat.completions.create({ model, messages: asTheirs(messages) });
    assert.ok(choices[0]);
    return choices[0].message;
  },
  async "the openai package, put together from its stream"(url, { model, messages }) {
    const stream = openAI(url).chat.completions.stream({ model, messages: asTheirs(messages) });
    return (await stream.finalChatCompletion()).choices[0]?.message ?? assert.fail("there is no choice");
  },
  async "the SDK"(url, params) {
    using client = createCodeAgentClient({ baseUrl: url });
    return messageFromResponse(await chatCompletion(client, params));
  },
  async "the SDK's chunks, put together"(url, params) {
    using client = createCodeAgentClient({ baseUrl: url });
    const message = { role: "assistant", content: "", reasoning_details: [] as unknown[] } as const;
    let content = "";
    for await (const { choices } of streamChatCompletion(client, params)) {
      content += choices[0]?.delta.content ?? "";
      message.reasoning_details.push(...(choices[0]?.delta.reasoning_details ?? []));
    }
    return { ...message, content };
  },
};

test("reasoning and what came between go back to whoever wrote them, byte for byte", {
  concurrency: 8,
  timeout: 60_000,
}, async (context) => {
  const models = await startModels(context, 1);
  const { app } = await startTestApp(context, { env: models.env });
  const tests = Object.entries(ways).flatMap(([name, ask], way) =>
    reasoningCases.flatMap((one) =>
      forms.map((form) =>
        context.test(`${one.name}, ${form}, by ${name}`, async () => {
          const asked = `${one.model}-${form}-${way}-${one.provider}`;
          const model = `${one.provider}/${asked}`;
          models.plan(asked, answers(one.callsTool.body, form), answers(one.ends.body, form));
          const first = { role: "user", content: "Go" } as const;
          const kept = await ask(app.url, { model, messages: [first] });
          const message: ChatCompletionMessageParam = JSON.parse(JSON.stringify(kept));
          models.plan(asked, (request, response, body) =>
            says(dialectOfPath(request.url ?? ""), [text("Bye.")])(request, response, body),
          );
          await ask(app.url, { model, messages: [first, message, { role: "user", content: "On" }] });
          assert.deepEqual(saidIn(models.sentTo(asked).at(-1) ?? ""), inNextTurn(one, form));
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

const script = `
- when: { role: tool, text: a sample }
  text: It is a sample.
- when: { text: file }
  text: Let me look.
  tool_calls: [{ name: read_file, arguments: { path: README.md } }]
- text: hi
`;

test("what the server's tools did goes along, unless a session keeps it", { timeout: 30_000 }, async (context) => {
  const { app, client } = await startTestApp(context, { script });
  const openai = openAI(app.url);
  const params = { model: "scripted/test", messages: [{ role: "user", content: "read the file" } as const] };
  const detailsIn = (message: object | undefined) =>
    Object.entries(message ?? {}).filter(([name]) => /details/.test(name));

  await context.test("from a turn that leaves nothing behind it goes with the message into any session", async () => {
    const { choices } = await openai.chat.completions.create(params);
    const [choice] = choices;
    assert.ok(choice);
    assert.equal(detailsIn(choice.message).length, 1);
    const messages = [...params.messages, choice.message, { role: "user", content: "thanks" } as const];
    await openai.chat.completions.create({ ...params, messages }, { headers: { "x-session-id": "joined" } });
    const history = await client.listMessages({ sessionId: "joined" });
    assert.deepEqual(
      history.messages.map(({ role }) => role),
      ["user", "assistant", "tool", "assistant", "user", "assistant"],
    );
  });

  await context.test("a session keeps it", async () => {
    const kept = await openai.chat.completions.create(params, { headers: { "x-session-id": "kept" } });
    assert.deepEqual(detailsIn(kept.choices[0]?.message), []);
    const inSession = { headers: { "x-session-id": "kept-stream" } };
    const streamed = await openai.chat.completions.stream(params, inSession).finalChatCompletion();
    assert.deepEqual(detailsIn(streamed.choices[0]?.message), []);
    using sdk = createCodeAgentClient({ baseUrl: app.url });
    const { sessionId } = await sdk.createSession({});
    const bySdk = messageFromResponse(await chatCompletion(sdk, { ...params, session_id: sessionId }));
    assert.equal(bySdk.reasoning_details, undefined);
    for await (const { choices } of streamChatCompletion(sdk, { ...params, session_id: sessionId }))
      assert.equal(choices[0]?.delta.reasoning_details, undefined);
  });

  await context.test("it comes in one chunk, before the end", async () => {
    const chunks: OpenAI.ChatCompletionChunk[] = [];
    for await (const chunk of await openai.chat.completions.create({ ...params, stream: true })) chunks.push(chunk);
    const places = chunks.flatMap(({ choices }, index) => (detailsIn(choices[0]?.delta).length === 0 ? [] : [index]));
    assert.deepEqual(places, [chunks.length - 2]);
  });

  await context.test("damaged, it is refused by its path", async () => {
    const { choices } = await openai.chat.completions.create(params);
    const text = JSON.stringify(choices[0]?.message).replace(
      /"data":"([^"]+)"/,
      (_, data) => `"data":"${data.slice(0, -9)}"`,
    );
    const message: OpenAI.ChatCompletionMessage = JSON.parse(text);
    await assert.rejects(
      openai.chat.completions.create({ ...params, messages: [...params.messages, message] }),
      (error) =>
        error instanceof OpenAI.BadRequestError &&
        error.param === "messages[1].reasoning_details[0].data" &&
        /is damaged/.test(error.message),
    );
  });
});
