import assert from "node:assert/strict";
import { test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import { createCodeAgentClient, responseText } from "../../sdk/index.ts";
import { at, legacyClients } from "../legacy/legacy-client.ts";
import { call, says, text } from "../provider/answers.ts";
import { startRestService, token } from "./rest-service.ts";

// One session, written through every protocol in turn, each going on where the one before it ended.

const weather = { type: "object", properties: { city: { type: "string" } } };

test("one session over all protocols", { timeout: 30_000 }, async (context) => {
  const service = await startRestService(context);
  const { url, upstreamModel: model } = service;
  const sessionId = "of-all";
  const plan = (...said: Parameters<typeof says>[1]) => service.plan(says("openai-chat", said));

  const sdk = createCodeAgentClient({ baseUrl: url, token });
  await sdk.createSession({ sessionId, model });
  const inSession = { headers: { "x-session-id": sessionId } };
  const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: token, maxRetries: 0, timeout: 8000 });
  const anthropic = new Anthropic({ baseURL: url, apiKey: token, maxRetries: 0, timeout: 8000 });
  const legacy = legacyClients(context, url);
  const authorized = { authorization: `Bearer ${token}` };

  await context.test("gRPC begins it, and the server's tool runs", async () => {
    plan(text("I look. "), call("c1", "read_file", '{"path":"README.md"}'));
    plan(text("It is a sample."));
    const answer = await sdk.generate({
      sessionId,
      model,
      messages: [{ role: "user", contentType: { case: "content", value: "What is it?" } }],
    });
    assert.equal(responseText(answer), "It is a sample.");
  });

  await context.test("Chat Completions goes on in a stream, and its tool is called", async () => {
    plan(text("I ask. "), call("c2", "get_weather", '{"city":"Bern"}'));
    const whole = await openai.chat.completions
      .stream(
        {
          model,
          messages: [
            { role: "user", content: "What is it?" },
            { role: "assistant", content: "It is a sample." },
            { role: "user", content: "And the weather?" },
          ],
          tools: [{ type: "function", function: { name: "get_weather", parameters: weather } }],
        },
        inSession,
      )
      .finalChatCompletion();
    assert.equal(whole.choices[0]?.finish_reason, "tool_calls");
    assert.equal(whole.choices[0]?.message.tool_calls?.[0]?.id, "c2");
  });

  await context.test("the Responses API tells what that tool came to", async () => {
    plan(text("It rains."));
    const response = await openai.responses.create({
      model,
      conversation: sessionId,
      input: [{ type: "function_call_output", call_id: "c2", output: "rain" }],
    });
    assert.equal(response.output_text, "It rains.");
    assert.equal(response.conversation?.id, sessionId);
  });

  for (const era of ["L1", "L2"] as const)
    await context.test(`a client of the earlier service (${era}) goes on`, async () => {
      plan(text(`Heard ${era}.`));
      const role = era === "L1" ? "ROLE_USER" : "user";
      const messages = [{ role, content: `From ${era}.` }];
      const answer = await legacy[era].call("Generate", { session_id: sessionId, messages }, authorized);
      assert.equal(at(answer, "message.content"), `Heard ${era}.`);
    });

  await context.test("Messages ends it", async () => {
    plan(text("Goodbye."));
    const stream = anthropic.messages.stream(
      {
        model,
        max_tokens: 100,
        messages: [
          { role: "user", content: "What is it?" },
          { role: "assistant", content: "whatever was said" },
          { role: "user", content: "Goodbye?" },
        ],
      },
      inSession,
    );
    assert.equal(await stream.finalText(), "Goodbye.");
    assert.equal(stream.response?.headers.get("x-session-id"), sessionId);
  });

  await context.test("the model saw all of it, in its order", () => {
    const said = messagesOf(service.lastAsked()).map(({ role, content, tool_calls: calls }) =>
      [role, textOf(content), ...(calls ?? []).map(({ function: { name } }) => `calls ${name}`)].join(": "),
    );
    assert.match(said.shift() ?? "", /^system: /);
    assert.match(said[2] ?? "", /^tool: .*a sample/s);
    said[2] = "tool: the file";
    assert.deepEqual(said, [
      "user: What is it?",
      "assistant: I look. : calls read_file",
      "tool: the file",
      "assistant: It is a sample.",
      "user: And the weather?",
      "assistant: I ask. : calls get_weather",
      "tool: rain",
      "assistant: It rains.",
      "user: From L1.",
      "assistant: Heard L1.",
      "user: From L2.",
      "assistant: Heard L2.",
      "user: Goodbye?",
    ]);
  });

  await context.test("gRPC, Conversations and both eras tell the same history", async () => {
    const { messages } = await sdk.listMessages({ sessionId });
    const told = messages.map(({ id, role }) => `${role} ${id}`);
    assert.equal(told.length, 14);
    for (const era of ["L1", "L2"] as const) {
      const history = await legacy[era].call("GetMessages", { session_id: sessionId }, authorized);
      const theirs = history["messages"];
      assert.ok(Array.isArray(theirs));
      const roleOf = (role: string) => role.toLowerCase().replace(/^role_/, "");
      assert.deepEqual(
        theirs.map(({ id, role }) => `${roleOf(role)} ${id}`),
        told,
      );
    }
    const items: string[] = [];
    for await (const item of openai.conversations.items.list(sessionId, { order: "asc", limit: 3 })) {
      if (item.type === "message") items.push(item.content.map((part) => ("text" in part ? part.text : "")).join(""));
      else if (item.type === "function_call") items.push(`calls ${item.name}`);
      else items.push(item.type);
    }
    assert.deepEqual(items, [
      ...["What is it?", "I look. ", "calls read_file", "function_call_output", "It is a sample."],
      ...["And the weather?", "I ask. ", "calls get_weather", "function_call_output", "It rains."],
      ...["From L1.", "Heard L1.", "From L2.", "Heard L2.", "Goodbye?", "Goodbye."],
    ]);
  });
});

interface AskedMessage {
  readonly role: string;
  readonly content?: unknown;
  readonly tool_calls?: readonly { readonly function: { readonly name: string } }[];
}

function messagesOf(asked: unknown): AskedMessage[] {
  assert.ok(typeof asked === "object" && asked !== null && "messages" in asked && Array.isArray(asked.messages));
  return asked.messages;
}

function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  return Array.isArray(content) ? content.map((part) => part.text).join("") : "";
}
