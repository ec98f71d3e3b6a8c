import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { arrayOf, objectOf } from "../../src/dialect/json.ts";
import { call, type DialectId, dialectIds, providerAt, type Said, says, text } from "../provider/answers.ts";
import { type Answer, startUpstream } from "../provider/upstream.ts";
import { collect } from "../support/grammar.ts";
import { startTestApp, user } from "../support/test-app.ts";

const schema = JSON.stringify({
  type: "object",
  properties: { city: { type: "string" }, people: { type: "integer", minimum: 1 } },
  required: ["city", "people"],
  additionalProperties: false,
});
const asSchema = { type: "json_schema", jsonSchema: { name: "city", schema } };
const good = '{"city":"Bern","people":134000}';
const answer = (dialect: DialectId, words: string): Answer => says(dialect, [text(words)]);

async function start(context: TestContext, dialect: DialectId, answers: readonly Answer[]) {
  const upstream = await startUpstream(context, answers);
  const { model, env } = providerAt(dialect, upstream.url);
  const { client } = await startTestApp(context, { env, flags: { model } });
  return { client, upstream };
}

/** Reason of an error, and what it says. */
function told(error: unknown): { reason: string | undefined; code: Code; message: string } {
  const failure = ConnectError.from(error);
  const info = failure.findDetails(ErrorInfoSchema)[0];
  return { reason: info?.reason, code: failure.code, message: failure.rawMessage };
}

for (const dialect of dialectIds) {
  describe(`JSON by a schema from ${dialect}`, () => {
    test("a fitting answer is given as it came", async (context) => {
      const { client, upstream } = await start(context, dialect, [answer(dialect, good)]);
      const given = await client.generate({ messages: [user("Go")], options: { responseFormat: asSchema } });
      assert.equal(given.message?.contentType.value, good);
      assert.equal(given.finishReason, "stop");
      assert.equal(upstream.requests.length, 1);
    });

    test("a wrong one is sent back with what is wrong, and the next one counts", async (context) => {
      const wrong = '{"city":"Bern","people":"many"}';
      const { client, upstream } = await start(context, dialect, [
        answer(dialect, "Here you are:"),
        answer(dialect, wrong),
        answer(dialect, good),
      ]);
      const { sessionId } = await client.createSession({});
      const asked = { sessionId, messages: [user("Go")], options: { responseFormat: asSchema } };
      const chunks = await collect(client.streamGenerate(asked));
      const notices = chunks.flatMap(({ event }) => (event.case === "notice" ? [event.value] : []));
      assert.deepEqual(
        notices.map(({ code }) => code),
        ["ANSWER_REJECTED", "ANSWER_REJECTED"],
      );
      assert.match(notices[1]?.message ?? "", /"people" must be integer; "many" was given/);
      assert.equal(upstream.requests.length, 3);
      assert.match(upstream.requests[2]?.body ?? "", /must be integer/);
      const { messages } = await client.listMessages({ sessionId });
      assert.deepEqual(
        messages.map(({ role, metadata }) => [role, metadata["codeagent.notice"]]),
        [
          ["user", undefined],
          ["assistant", undefined],
          ["user", "ANSWER_REJECTED"],
          ["assistant", undefined],
          ["user", "ANSWER_REJECTED"],
          ["assistant", undefined],
        ],
      );
      assert.equal(messages.at(-1)?.contentType.value, good);
    });

    test("a model that gives none makes the turn fail, after so many repairs", async (context) => {
      const { client, upstream } = await start(context, dialect, Array(3).fill(answer(dialect, "no")));
      await assert.rejects(
        client.generate({ messages: [user("Go")], options: { responseFormat: asSchema } }),
        (error) => {
          const { reason, code, message } = told(error);
          assert.deepEqual([reason, code], ["ANSWER_INVALID", Code.Internal]);
          assert.match(
            message,
            /gave no answer in the form that was asked for after being told 2 times: it is no JSON/,
          );
          return true;
        },
      );
      assert.equal(upstream.requests.length, 3);
    });

    test("an answer that was cut at the bound of tokens is none", async (context) => {
      const cut: readonly Said[] = [text('{"city":"Be')];
      const { client, upstream } = await start(context, dialect, [says(dialect, cut, "length")]);
      await assert.rejects(
        client.generate({ messages: [user("Go")], options: { responseFormat: asSchema } }),
        (error) => told(error).reason === "ANSWER_INVALID" && /cut at the most tokens/.test(told(error).message),
      );
      assert.equal(upstream.requests.length, 1);
    });

    test("tools run before the answer is looked at", async (context) => {
      const { client } = await start(context, dialect, [
        says(dialect, [text("Let me look."), call("c1", "list_files", '{"pattern":"*"}')]),
        answer(dialect, good),
      ]);
      const given = await client.generate({ messages: [user("Go")], options: { responseFormat: asSchema } });
      assert.equal(given.message?.contentType.value, good);
    });

    test("any JSON object", async (context) => {
      const { client, upstream } = await start(context, dialect, [answer(dialect, "[1]"), answer(dialect, '{"a":1}')]);
      const options = { responseFormat: { type: "json_object" } };
      const given = await client.generate({ messages: [user("Go as JSON")], options });
      assert.equal(given.message?.contentType.value, '{"a":1}');
      assert.equal(upstream.requests.length, 2);
    });
  });
}

test("a schema that can't be used is refused before anything is sent", async (context) => {
  const { client, upstream } = await start(context, "openai-chat", []);
  const unusable = { type: "json_schema", jsonSchema: { name: "x", schema: '{"type":"nothing"}' } };
  await assert.rejects(
    client.generate({ messages: [user("Go")], options: { responseFormat: unusable } }),
    (error) =>
      told(error).code === Code.InvalidArgument &&
      /^options.response_format.json_schema.schema: can't be used/.test(told(error).message),
  );
  assert.equal(upstream.requests.length, 0);
});

test("where the provider knows no schemas, the prompt has it", async (context) => {
  const upstream = await startUpstream(context, [answer("openai-chat", good)]);
  const env = { DEEPSEEK_BASE_URL: upstream.url, DEEPSEEK_API_KEY: "sk-deep-1234" };
  const { client } = await startTestApp(context, { env });
  const options = { responseFormat: asSchema };
  await client.generate({ messages: [user("Go")], model: "deepseek/m", options });
  const body = objectOf(JSON.parse(upstream.requests[0]?.body ?? ""));
  assert.deepEqual(body["response_format"], { type: "json_object" });
  const system = objectOf(arrayOf(body["messages"])[0]);
  assert.equal(system["role"], "system");
  assert.ok(String(system["content"]).includes(schema));
});
