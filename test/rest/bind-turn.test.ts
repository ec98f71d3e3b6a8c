import assert from "node:assert/strict";
import { test } from "node:test";
import type OpenAI from "openai";
import { responseId } from "../../src/convert/responses/response-id.ts";
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

  await context.test("asked twice at once after one answer, one goes on there and the other in a fork", async () => {
    const first = await ask("one");
    const previous_response_id = first.data.id;
    const both = await Promise.all(["two", "three"].map((text) => ask(text, { previous_response_id })));
    const [here, there] = both.map(sessionOf).sort((id) => (id === sessionOf(first) ? -1 : 1));
    assert.equal(here, sessionOf(first));
    assert.notEqual(there, here);
    const histories = await Promise.all([historyOf(here ?? ""), historyOf(there ?? "")]);
    assert.deepEqual(histories.toSorted(), ["one, answered, three, answered", "one, answered, two, answered"]);
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

  await context.test("an answer nobody gave is not found", async () => {
    await assert.rejects(ask("two", { previous_response_id: responseId("nowhere", "turn_1") }), {
      status: 404,
      param: "previous_response_id",
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
