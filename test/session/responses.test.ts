import assert from "node:assert/strict";
import { test } from "node:test";
import { arrayOf, objectOf } from "../../src/dialect/json.ts";
import { memberSlices } from "../../src/dialect/json-slices.ts";
import { checkInput } from "../dialect/openai-responses-request.ts";
import { type Answer, eventStream, jsonAnswer, startUpstream } from "../provider/upstream.ts";
import { startTestApp, user } from "../support/test-app.ts";

function event(type: string, fields: string): string {
  return `event: ${type}\ndata: {"type":"${type}",${fields}}\n\n`;
}

/** A streamed answer of these items, each announced without what it ends with. */
function streamed(responseId: string, items: readonly string[]): Answer {
  const events = items.flatMap((item, index) => {
    const { type, id, call_id, name } = objectOf(JSON.parse(item));
    const announced = JSON.stringify({
      type,
      id,
      call_id,
      name,
      encrypted_content: type === "reasoning" ? "early" : undefined,
    });
    return [
      event("response.output_item.added", `"output_index":${index},"item":${announced}`),
      event("response.output_item.done", `"output_index":${index},"item":${item}`),
    ];
  });
  const response = `"response":{"id":"${responseId}","status":"completed","output":[]}`;
  return (_, out) => out.writeHead(200, eventStream).end(events.join("") + event("response.completed", response));
}

const reasoning = (id: string) =>
  `{"type":"reasoning","id":"${id}", "summary":[{"text":"caf\\u00e9","type":"summary_text"}],"encrypted_content":"final\\/${id}==","2":1.0,"1":12345678901234567890}`;
const sentReasoning = (id: string) => reasoning(id).replace(`"id":"${id}", `, "");
const call = (id: string) =>
  `{"type":"function_call","id":"fc_${id}","call_id":"${id}","name":"list_files","arguments":"{\\"path\\": \\".\\"}"}`;
const said = (text: string) =>
  `{"type":"message","id":"msg_1","role":"assistant","phase":"final_answer","content":[{"type":"output_text","text":"${text}"}]}`;
const whole =
  (responseId: string, items: readonly string[]): Answer =>
  (_, out) =>
    out
      .writeHead(200, { "content-type": "application/json" })
      .end(`{"id":"${responseId}","status":"completed","output":[${items.join(",")}]}`);

for (const [form, answer] of [
  ["streams", streamed],
  ["whole bodies", whole],
] as const) {
  test(`reasoning goes back to the Responses API byte for byte, from ${form}, in the turn and in later ones`, async (context) => {
    const upstream = await startUpstream(context, [
      answer("resp_1", [reasoning("rs_1"), call("call_1")]),
      answer("resp_2", [reasoning("rs_2"), said("Done.")]),
      answer("resp_3", [said("Bye.")]),
    ]);
    const env = { OPENAI_BASE_URL: upstream.url, OPENAI_API_KEY: "sk-1234" };
    const { client } = await startTestApp(context, { env });
    const { sessionId } = await client.createSession({ model: "openai-responses/m-1" });
    await client.generate({ sessionId, messages: [user("Go")] });
    await client.generate({ sessionId, messages: [user("On")] });

    assert.deepEqual(
      upstream.requests.map(({ url }) => url),
      Array(3).fill("/v1/responses"),
    );
    const inputs = upstream.requests.map(({ body }) => {
      checkInput(body);
      return memberSlices(body).get("input") ?? "";
    });
    assert.ok(inputs[1]?.includes(`,${sentReasoning("rs_1")},`));
    assert.ok(inputs[2]?.includes(`,${sentReasoning("rs_1")},`));
    assert.ok(inputs[2]?.includes(`,${sentReasoning("rs_2")},`));
    assert.deepEqual(
      arrayOf(JSON.parse(inputs[2] ?? "[]")).map((item) => [objectOf(item)["type"], objectOf(item)["phase"]]),
      [
        ["message", undefined],
        ["reasoning", undefined],
        ["function_call", undefined],
        ["function_call_output", undefined],
        ["reasoning", undefined],
        ["message", "final_answer"],
        ["message", undefined],
      ],
    );
    // What was sent once stays as it was, so that the provider can find it in its cache.
    for (const [index, input] of inputs.entries()) {
      assert.ok((inputs[index + 1] ?? input).startsWith(input.slice(0, -1)), `request ${index + 2}`);
    }
  });
}

test("an error of the Responses API is told in its own words", async (context) => {
  const error = { message: "no such model", type: "invalid_request_error", param: "model", code: "model_not_found" };
  const upstream = await startUpstream(context, [jsonAnswer(400, { error })]);
  const env = { OPENAI_BASE_URL: upstream.url, OPENAI_API_KEY: "sk-1234" };
  const { client } = await startTestApp(context, { env });
  await assert.rejects(
    client.generate({ messages: [user("Go")], model: "openai-responses/m-1" }),
    /openai-responses answered HTTP 400: no such model/,
  );
});

test("stateful: what the provider keeps is not sent again, in the turn and in the next one", async (context) => {
  const upstream = await startUpstream(context, [
    streamed("resp_1", [reasoning("rs_1"), said("Hello.")]),
    streamed("resp_2", [reasoning("rs_2"), call("call_1")]),
    streamed("resp_3", [said("Done.")]),
  ]);
  const env = { OPENAI_BASE_URL: upstream.url, OPENAI_API_KEY: "sk-1234" };
  const { client } = await startTestApp(context, { env });
  const { sessionId } = await client.createSession({ model: "openai-responses/m-1" });
  const first = await client.generate({ sessionId, messages: [user("Go")], options: { stateful: { store: true } } });
  assert.equal(first.responseId, "resp_1");
  const stateful = { store: true, previousResponseId: first.responseId };
  await client.generate({ sessionId, messages: [user("On")], options: { stateful } });

  const bodies = upstream.requests.map(({ body }) => objectOf(JSON.parse(body)));
  assert.deepEqual(
    bodies.map((body) => [body["store"], body["previous_response_id"]]),
    [
      [true, undefined],
      [true, "resp_1"],
      [true, "resp_2"],
    ],
  );
  assert.deepEqual(
    bodies.map((body) =>
      arrayOf(body["input"])
        .map(objectOf)
        .filter(({ role }) => role !== "system" && role !== "developer")
        .map(({ type }) => type),
    ),
    [["message"], ["message"], ["function_call_output"]],
  );
});
