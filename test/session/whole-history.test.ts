import assert from "node:assert/strict";
import { test } from "node:test";
import { Code, ConnectError } from "@connectrpc/connect";
import { startTestApp, user } from "../support/test-app.ts";

const script = `
- when: { role: user, text: first }
  text: one
- when: { role: user, text: second }
  text: two
`;
const said = (role: string, text: string) => ({ role, contentType: { case: "content" as const, value: text } });

test("a conversation that is sent whole each time is in the session's history once", async (context) => {
  const { client } = await startTestApp(context, { script });
  const { sessionId } = await client.createSession({ sessionId: "whole" });
  const begun = [said("system", "be short"), user("first")];
  const wholeHistory = true;
  await client.generate({ sessionId, messages: begun, wholeHistory });
  const goneOn = [...begun, said("assistant", "something the client made of it"), user("second")];
  const request = { sessionId, messages: goneOn, wholeHistory, requestId: "r" };
  const { turnId } = await client.generate(request);
  assert.equal((await client.generate(request)).turnId, turnId, "a repetition joins the turn");

  const { messages } = await client.listMessages({ sessionId });
  assert.deepEqual(
    messages.map(({ role, contentType }) => `${role}: ${contentType.value}`),
    ["system: be short", "user: first", "assistant: one", "user: second", "assistant: two"],
  );

  const answered = { sessionId, messages: [...goneOn, said("assistant", "two")], wholeHistory };
  await assert.rejects(client.generate(answered), (error) => {
    assert.ok(error instanceof ConnectError);
    assert.equal(error.code, Code.InvalidArgument);
    assert.match(error.rawMessage, /messages: hold nothing new/);
    return true;
  });
});

test("a turn that has nothing to say any more when it begins ends with an error, and the next one goes on", async (context) => {
  const { client } = await startTestApp(context, {
    script: `- { text: slow, first_delay_ms: 300 }`,
  });
  const { sessionId } = await client.createSession({ sessionId: "late" });
  const first = client.generate({ sessionId, messages: [user("first")] });
  const queued = [said("user", "first"), said("assistant", "prefilled")];
  // The session's history is empty while it is admitted, and no longer when it begins.
  const late = client.generate({ sessionId, messages: queued, wholeHistory: true });
  await first;
  await assert.rejects(late, /hold nothing new/);
  const { finishReason } = await client.generate({ sessionId, messages: [user("again")] });
  assert.equal(finishReason, "stop");
});
