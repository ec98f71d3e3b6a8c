import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { checkExchange } from "./check-exchange.ts";
import { readCorpus } from "./exchange.ts";
import { knownDifferences } from "./known-differences.ts";
import { type Replay, startReplay } from "./replay.ts";

const folder = resolve(process.env["CORPUS_DIR"] ?? join(import.meta.dirname, "../../../shared/corpus"));
const skip = existsSync(folder) ? false : `no recorded traffic at CORPUS_DIR or ${folder}`;

describe("recorded traffic", { skip }, () => {
  const { exchanges, unreadable } = skip ? { exchanges: [], unreadable: [] } : readCorpus(folder);
  const byId = new Map(exchanges.map((exchange) => [exchange.id, exchange]));
  // Of other recordings nobody has looked at the differences.
  const isKnown = Object.keys(knownDifferences).every((id) => byId.has(id));
  let replay: Replay;
  before(async () => {
    replay = await startReplay();
  });
  after(() => replay[Symbol.asyncDispose]());

  test("every file is an exchange", () => assert.deepEqual(unreadable, []));
  for (const exchange of exchanges) {
    test(`${exchange.id} is read as its tags say, and goes back as its client sent it`, async () => {
      const findings = await checkExchange(exchange, { exchangeOf: (id) => byId.get(id), replay });
      const wrong = findings.filter(({ kind }) => kind === "failure" || (isKnown && kind === "difference"));
      assert.deepEqual(
        wrong.map(({ what }) => what),
        [],
      );
    });
  }
});

interface Run {
  readonly code: number;
  readonly output: string;
}

function run(files: Readonly<Record<string, unknown>>, ...args: string[]): Promise<Run> {
  const corpus = mkdtempSync(join(tmpdir(), "corpus-"));
  for (const [name, content] of Object.entries(files)) {
    const path = join(corpus, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, typeof content === "string" ? content : JSON.stringify(content));
  }
  const program = join(import.meta.dirname, "corpus.ts");
  return new Promise((done) => {
    execFile(
      process.execPath,
      ["--disable-warning=ExperimentalWarning", program, ...args],
      { env: { ...process.env, CORPUS_DIR: corpus }, timeout: 60_000 },
      (error, stdout, stderr) => {
        rmSync(corpus, { recursive: true });
        done({ code: error === null ? 0 : Number(error.code), output: stdout + stderr });
      },
    );
  });
}

const chunk = (delta: object, word: string | null = null) =>
  `data: ${JSON.stringify({ id: "c-1", model: "m", choices: [{ index: 0, delta, finish_reason: word }] })}\n\n`;
const usage = `data: ${JSON.stringify({ choices: [], usage: { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 } })}\n\n`;
const call = { index: 0, id: "call-1", type: "function", function: { name: "look", arguments: '{"at":"🦉"}' } };

/** An exchange of a vendor and with tags that no other recording has. */
const strange = {
  id: "chat-strange-1",
  api: "openai-chat",
  vendor: "strange",
  status: 200,
  request: { model: "m", messages: [{ role: "user", content: "Go" }] },
  responseSse: `${chunk({ role: "assistant", content: "Ah, 🦉" })}${chunk({ tool_calls: [call] })}${chunk({}, "tool_calls")}${usage}data: [DONE]\n\n`,
  responseChunkBytes: [5, 100],
  tags: ["text", "tool_call", "finish:tool_calls", "a_tag_of_tomorrow"],
};
const next = {
  ...strange,
  id: "chat-strange-2",
  conversation: { id: "s-1", index: 1, of: 2, continues: strange.id },
  request: {
    model: "m",
    messages: [
      { role: "user", content: "Go" },
      { role: "assistant", content: "Ah, 🦉", tool_calls: [call] },
      { role: "tool", tool_call_id: "call-1", content: "nothing" },
    ],
  },
};

describe("the corpus program, on a folder it has never seen", () => {
  test("other vendors and tags pass, and a missing index is not missed", async () => {
    const { code, output } = await run({
      "exchanges/openai-chat/1.json": strange,
      "exchanges/openai-chat/2.json": next,
    });
    assert.equal(code, 0, output);
    assert.match(output, /openai-chat {2}strange\s+2\s+2/);
    assert.match(output, /a_tag_of_tomorrow\s+2\s+2/);
    assert.match(output, /2 of 2 exchanges passed/);
    assert.doesNotMatch(output, /Differences/);
  });

  test("a tag that what was read does not bear out is a failure with one line", async () => {
    const { code, output } = await run(
      { "1.json": { ...strange, tags: ["text", "finish:stop", "reasoning_tokens"] } },
      "--sizes",
      "64",
    );
    assert.equal(code, 1);
    assert.match(output, /^ {2}chat-strange-1: it ends with tool_calls, but its tags say stop$/m);
    assert.match(output, /^ {2}chat-strange-1: it has the tag reasoning_tokens, but read was no reasoning token$/m);
    assert.match(output, /openai-chat {2}strange\s+0\s+1 {2}<-/);
  });

  test("an answer that is not whole, and an error that is not told, are failures", async () => {
    const cut = { ...strange, id: "cut", responseSse: chunk({ content: "Ah" }) };
    const { responseSse: _, ...rest } = strange;
    const fault = { ...rest, id: "fault", status: 429, response: { error: { message: "slow" } }, tags: ["error"] };
    const untold = {
      ...rest,
      id: "untold",
      tags: ["error_in_200"],
      response: { choices: [{ message: { content: "Hi" } }] },
    };
    const { code, output } = await run({ "cut.json": cut, "fault.json": fault, "untold.json": untold });
    assert.equal(code, 1);
    assert.match(output, /^ {2}cut: provider_unavailable: /m);
    assert.match(output, /^ {2}untold: it has the tag error_in_200, but was read as an answer$/m);
    assert.match(output, /1 of 3 exchanges passed, 2 failed/);
  });

  test("a client that sends an answer back otherwise is a difference to look at, and no failure", async () => {
    const messages = next.request.messages.map((one) => (one.role === "assistant" ? { ...one, content: "Oh" } : one));
    const { code, output } = await run({ "1.json": strange, "2.json": { ...next, request: { model: "m", messages } } });
    assert.equal(code, 0, output);
    assert.match(output, /Differences to look at\n {2}chat-strange-2: it sends chat-strange-1 back otherwise: /);
  });

  test("files that are no exchanges are named, and an empty folder is no success", async () => {
    const { code, output } = await run({
      "a.json": "{",
      "b.json": { api: "brand-new" },
      "c.json": strange,
      "d.json": strange,
    });
    assert.equal(code, 1);
    assert.match(output, /unreadable: a\.json is no JSON object/);
    assert.match(output, /unreadable: b\.json is of the api "brand-new"/);
    assert.match(output, /unreadable: d\.json the id chat-strange-1 comes twice/);
    assert.equal((await run({})).code, 2);
  });
});
