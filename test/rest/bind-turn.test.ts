import assert from "node:assert/strict";
import { test } from "node:test";
import type OpenAI from "openai";
import { responseId } from "../../src/convert/responses/response-id.ts";
import { TurnBinder } from "../../src/rest/bind-turn.ts";
import { startRestApp } from "./rest-app.ts";

const settings = `
profiles:
  reviewer:
    model: scripted/second
    system_prompt: You review.
`;
const script = `
- when: { model: second }
  text: reviewed
- text: answered
`;

test("turns begin in the sessions their requests name", async (context) => {
  const app = await startRestApp(context, { script, settings });
  const { openai, client } = app;
  const ask = (input: string, more: Partial<OpenAI.Responses.ResponseCreateParamsNonStreaming> = {}, key = "") =>
    openai.responses
      .create({ model: "scripted/test", input, ...more }, key === "" ? {} : { headers: { "idempotency-key": key } })
      .withResponse();
  const sessionOf = ({ response }: Awaited<ReturnType<typeof ask>>) => response.headers.get("x-session-id") ?? "";
  const historyOf = async (sessionId: string) =>
    (await client.listMessages({ sessionId })).messages.map(({ contentType }) => contentType.value).join(", ");

  await context.test(
    "asked several times at once after one answer, one goes on there and the others in forks",
    async () => {
      const first = await ask("one");
      const previous_response_id = first.data.id;
      const texts = ["a", "b", "c", "d", "e", "f"];
      const all = await Promise.all(texts.map((text) => ask(text, { previous_response_id })));
      const sessions = all.map(sessionOf);
      assert.equal(new Set(sessions).size, texts.length);
      assert.ok(sessions.includes(sessionOf(first)));
      const histories = await Promise.all(sessions.map(historyOf));
      assert.deepEqual(
        histories,
        texts.map((text) => `one, answered, ${text}, answered`),
      );
    },
  );

  await context.test("a session that is made has the question as its title", async () => {
    const asked = await ask("Why is  it so?\nTell me.");
    const { title } = await client.getSession({ sessionId: sessionOf(asked) });
    assert.equal(title, "Why is it so? Tell me.");
  });

  await context.test("a session keeps what it answers, so nobody is told that it is not kept", async () => {
    const body = { model: "scripted/test", input: "one", store: false };
    const unkept = openai.responses.create(body, { headers: { "x-session-id": "keeps" } });
    await assert.rejects(unkept, { status: 400, param: "store" });
    await assert.rejects(client.getSession({ sessionId: "keeps" }), { code: 5 });
  });

  await context.test("asked again under one key, a turn after an answer is joined, there or in its fork", async () => {
    const first = await ask("one", {}, "kept");
    assert.equal((await ask("one", {}, "kept")).data.id, first.data.id, "the session that is made is the same");
    const previous_response_id = first.data.id;
    for (const key of ["goes-on", "forks"]) {
      const asked = await ask("two", { previous_response_id }, key);
      const again = await ask("two", { previous_response_id }, key);
      assert.equal(again.data.id, asked.data.id, key);
      assert.equal(sessionOf(asked) === sessionOf(first), key === "goes-on");
    }
  });

  await context.test("an answer nobody gave is no request that can be met", async () => {
    await assert.rejects(ask("two", { previous_response_id: responseId("nowhere", "turn_1") }), {
      status: 400,
      param: "previous_response_id",
      code: "previous_response_not_found",
    });
  });

  await context.test(
    "a conversation that does not exist is not found, and two names of sessions are one too many",
    async () => {
      await assert.rejects(ask("hi", { conversation: "nowhere" }), { status: 404 });
      const twice = openai.responses.create(
        { model: "scripted/test", input: "hi", conversation: "nowhere" },
        { headers: { "x-session-id": "other" } },
      );
      await assert.rejects(twice, { status: 400, param: "x-session-id" });
    },
  );

  await context.test("what is refused leaves no session behind", async () => {
    const kept = async () => (await client.listSessions({ pageSize: 200 })).sessions.map(({ sessionId }) => sessionId);
    const before = await kept();
    await assert.rejects(ask("hi", { model: "nobody/knows" }), { status: 404 });
    const first = await ask("one");
    const previous_response_id = first.data.id;
    const second = await ask("two", { previous_response_id });
    assert.equal(sessionOf(second), sessionOf(first));
    await assert.rejects(ask("in a fork", { previous_response_id, model: "nobody/knows" }), { status: 404 });
    const headers = { "x-session-id": "never-made" };
    await assert.rejects(openai.responses.create({ model: "nobody/knows", input: "hi" }, { headers }), { status: 404 });
    const made = new Set(await kept());
    for (const sessionId of before) made.delete(sessionId);
    assert.deepEqual([...made], [sessionOf(first)]);
  });

  await context.test("a key that was used with another request is called what the client calls it", async () => {
    await ask("one", {}, "used");
    await assert.rejects(ask("another", {}, "used"), { status: 409, message: /Idempotency-Key: used was used with/ });
  });

  await context.test("who asks for a model nobody knows is told of the profiles", async () => {
    await assert.rejects(ask("hi", { model: "revewer" }), { message: /or a profile; configured are: reviewer/ });
    await assert.rejects(ask("hi", { model: "nobody/knows" }), ({ message }) => !message.includes("profile"));
  });

  await context.test("a profile is asked like a model, and listed as one", async () => {
    const { choices } = await openai.chat.completions.create({
      model: "reviewer",
      messages: [{ role: "user", content: "hi" }],
    });
    assert.equal(choices[0]?.message.content, "reviewed");
    const { data } = await openai.models.list();
    assert.deepEqual(data[0], { id: "reviewer", object: "model", created: 0, owned_by: "codeagent" });
  });
});

test("what is asked at once after one answer looks one after the other at whether it is the last", async () => {
  let isLast = true;
  const begun: string[] = [];
  const unplanned = async () => assert.fail("not planned");
  const sessions = {
    create: unplanned,
    admit: unplanned,
    delete: unplanned,
    knowsTurn: unplanned,
    async turnEnd() {
      const seen = { seq: 5, isLast };
      await new Promise((resolve) => setImmediate(resolve));
      return seen;
    },
    async startTurn(_: unknown, { sessionId }: { readonly sessionId: string }) {
      begun.push(sessionId);
      isLast = false;
      const waitingBytes = async () => 0;
      return { sessionId, turnId: "t", queued: false, headSeq: 0, earliestSeq: 0, read: noRecords, waitingBytes };
    },
    async fork() {
      return { ...view, sessionId: "forked" };
    },
  };
  const binder = new TurnBinder({ sessions, principal: { tenant: "", name: "" }, workspace: "" });
  const request = { sessionId: "", messages: [], model: "", options: {}, tools: [], requestId: "" };
  const binding = { type: "response", responseId: responseId("first", "turn_1") } as const;
  const answer = () => assert.fail("not planned");
  const asked = { request, stream: false, binding, answer };
  await Promise.all([1, 2, 3].map(() => binder.start(asked, {}, "responses")));
  assert.deepEqual(begun, ["first", "forked", "forked"]);
});

async function* noRecords() {}

const view = {
  config: { title: "", workspace: "", model: "", systemPrompt: "", initialMessages: [], metadata: {} },
  state: "idle",
  summary: { messageCount: 0, ranMs: 0, currentTurnId: "", requests: [] },
  headSeq: 0,
  parentId: "",
  parentSeq: 0,
  waitingTurns: 0,
  createdMs: 0,
  updatedMs: 0,
} as const;
