import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { toBinary } from "@bufbuild/protobuf";
import { GenerateChunkSchema } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { says, text } from "../provider/answers.ts";
import { type Answer, eventStream, startUpstream } from "../provider/upstream.ts";
import { collect } from "../support/grammar.ts";
import { startTestApp, user } from "../support/test-app.ts";

const picture = `{"type":"image_generation_call", "id":"ig_1","status":"completed","result":"${"QUJD".repeat(400_000)}"}`;
const call = '{"type":"function_call","call_id":"c1","name":"list_dir","arguments":"{}"}';

/** A Responses answer with a picture of 1.6 MB, a text and perhaps a call. */
function draws(...more: readonly string[]): Answer {
  const words = '{"type":"message","id":"m_1","content":[{"type":"output_text","text":"Drawn."}]}';
  const events = [picture, words, ...more].map(
    (item, place) => `data: {"type":"response.output_item.done","output_index":${place},"item":${item}}\n\n`,
  );
  const end = 'data: {"type":"response.completed","response":{"id":"r_1","status":"completed","output":[]}}\n\n';
  return (_, response) => response.writeHead(200, eventStream).end(events.join("") + end);
}

describe("a picture of a model that is larger than an event", () => {
  const fine = says("openai-responses", [text("Fine.")]);
  const model = "openai-responses/m";
  const environment = (url: string) => ({ env: { OPENAI_BASE_URL: url, OPENAI_API_KEY: "k" } });

  test("fails no turn, and goes back byte for byte in the next one, also after a restart", async (context) => {
    const upstream = await startUpstream(context, [draws(), fine, fine]);
    const { client, app, dataDir } = await startTestApp(context, environment(upstream.url));
    const { sessionId } = await client.createSession({ model });
    const chunks = await collect(client.streamGenerate({ sessionId, messages: [user("draw")] }), 1n);
    const last = chunks.at(-1)?.event;
    assert.equal(last?.case === "turnFinished" ? last.value.finishReason : last?.case, "stop");
    for (const chunk of chunks) assert.ok(toBinary(GenerateChunkSchema, chunk).length <= 1_000_000);

    await client.generate({ sessionId, messages: [user("again")] });
    assert.ok(upstream.requests.at(-1)?.body.includes(picture), "the next turn sends it back");

    await app.close(0);
    const restarted = await startTestApp(context, { ...environment(upstream.url), dataDir });
    await restarted.client.generate({ sessionId, messages: [user("and again")] });
    assert.equal(upstream.requests.length, 3);
    assert.ok(upstream.requests.at(-1)?.body.includes(picture), "a turn after a restart sends it back");
  });

  test("goes back within a turn that has no session", async (context) => {
    const upstream = await startUpstream(context, [draws(call), fine]);
    const { client } = await startTestApp(context, environment(upstream.url));
    const answer = await client.generate({ model, messages: [user("draw")] });
    assert.equal(answer.message?.contentType.value, "Fine.");
    assert.equal(upstream.requests.length, 2);
    assert.ok(upstream.requests.at(-1)?.body.includes(picture));
  });
});
