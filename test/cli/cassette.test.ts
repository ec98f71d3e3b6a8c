import assert from "node:assert/strict";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import type { GenerateChunk } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { type Answer, chunk, eventStream, hello, jsonAnswer, key, startUpstream } from "../provider/upstream.ts";
import { startTestApp, type TestAppOptions, user } from "../support/test-app.ts";
import { runToEnd, temporaryFolder } from "./start-codeagent.ts";

const files = { "README.md": "# a sample\n", "notes/today.txt": "buy milk\n" };

/** Calls without an id, and with one that comes again: our own server has to make new ones. */
const callTools: Answer = (_, response) => {
  const calls = [
    { index: 0, function: { name: "list_files", arguments: '{"pattern":"**/*.txt"}' } },
    { index: 1, id: "call_1", function: { name: "read_file", arguments: '{"path":"README.md"}' } },
  ];
  response.writeHead(200, eventStream).write(chunk({ content: "Let me look." }));
  for (const call of calls) response.write(chunk({ tool_calls: [call] }));
  response.end(`${chunk({}, "tool_calls")}data: [DONE]\n\n`);
};

const settings = { model: "forward/m-1" };

/** Two turns of one session, as a test of an agent has them. */
async function converse(context: TestContext, options: TestAppOptions) {
  const { client, reports } = await startTestApp(context, { files, ...options });
  const chunks: GenerateChunk[] = [];
  const { sessionId } = await client.createSession({});
  for (const text of ["what is here?", "thanks"])
    for await (const each of client.streamGenerate({ sessionId, messages: [user(text)] })) chunks.push(each);
  return { story: story(chunks), reports };
}

function story(chunks: readonly GenerateChunk[]): string[] {
  return chunks.flatMap(({ event }) => {
    if (event.case === "blockDelta") return [`delta ${JSON.stringify(event.value.delta.value)}`];
    if (event.case === "toolFinished") return [`result ${event.value.name} ${event.value.result?.output}`];
    if (event.case !== "turnFinished") return [event.case ?? ""];
    return [`end ${event.value.finishReason} ${event.value.error?.reason ?? ""} ${event.value.error?.message ?? ""}`];
  });
}

describe("codeagent serve --record and --replay", { timeout: 40_000 }, () => {
  test("a conversation with tools is the same without provider, key and address", async (context) => {
    const limited = jsonAnswer(429, { error: { message: "slow down" } }, { "retry-after": "1" });
    const upstream = await startUpstream(context, [callTools, limited, hello, callTools, hello]);
    const cassettes = join(temporaryFolder(context), "cassettes");
    const env = { FORWARD_BASE_URL: upstream.url, FORWARD_API_KEY: key };
    const recorded = await converse(context, { env, flags: { ...settings, record: cassettes } });
    assert.equal(upstream.requests.length, 5);
    assert.equal(recorded.story.filter((line) => line.startsWith("result ")).length, 4);
    const names = readdirSync(cassettes);
    assert.equal(names.length, 5);
    for (const name of names) assert.ok(!readFileSync(join(cassettes, name), "utf8").includes(key));

    // What a provider wants to be waited for is not waited for again.
    const limitedFile = join(cassettes, names.sort()[1] ?? "");
    const edited = readFileSync(limitedFile, "utf8").replace('"retry-after": "1"', '"retry-after": "55"');
    assert.match(edited, /"retry-after": "55"/);
    writeFileSync(limitedFile, edited);
    const replayed = await converse(context, { flags: { ...settings, replay: cassettes } });
    assert.deepEqual(replayed.story, recorded.story);
    assert.equal(upstream.requests.length, 5);
    assert.deepEqual(replayed.reports, recorded.reports);
  });

  test("a request that was not recorded fails its turn and shows what differs", async (context) => {
    const upstream = await startUpstream(context, [callTools, hello, hello]);
    const cassettes = join(temporaryFolder(context), "cassettes");
    const env = { FORWARD_BASE_URL: upstream.url };
    await converse(context, { env, flags: { ...settings, record: cassettes } });
    const { story } = await converse(context, {
      flags: { ...settings, replay: cassettes },
      files: { "README.md": "# a sample\n", "notes/tomorrow.txt": "rest\n" },
    });
    const ends = story.filter((line) => line.startsWith("end "));
    assert.match(ends[0] ?? "", /CASSETTE_MISS no recording answers the request to forward/);
    assert.match(ends[0] ?? "", /messages\[3\]\.content: recorded "notes\/today\.txt.*", asked "notes\/tomorrow\.txt/);
  });

  test("says at the start what is wrong with them", async (context) => {
    const folder = temporaryFolder(context);
    const cases = [
      { words: ["--record", "a", "--replay", "b"], says: /record and replay exclude each other/ },
      {
        words: ["--replay", "nowhere"],
        says: /replay \(--replay, CODEAGENT_REPLAY\): .*nowhere can't be used: it does not exist\n$/,
      },
    ];
    for (const { words, says } of cases) {
      const { exit, stderr } = await runToEnd(context, ["serve", "--port", "0", ...words], { folder });
      assert.equal(exit, 1);
      assert.match(stderr, says);
      assert.doesNotMatch(stderr, /\n {4}at /);
    }
  });
});
