import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setInterval as every } from "node:timers/promises";
import { fromJson, type JsonValue } from "@bufbuild/protobuf";
import { createCodeAgentClient } from "../../sdk/index.ts";
import { type GenerateChunk, GenerateChunkSchema, MessageSchema, SessionSchema } from "../../sdk/proto.ts";
import { nodes, runToEnd, start, startServe, temporaryFolder } from "./start-codeagent.ts";

const script = `
- when: { text: for ever }
  text: "on and on "
  repeat: 100000
  delay_ms: 20
- when: { text: much }
  text: "0123456789"
  repeat: 50000
  chunk: 5000
- when: { text: break }
  error: { status: 400, message: the model is out of order }
- when: { text: wild }
  text: "safe \\e]52;c;ZXZpbA==\\a text \\u202e"
- when: { role: user, text: what is here }
  thinking: I should look.
  text: Let me look.
  tool_calls:
    - { name: list_files, arguments: { pattern: "*.txt" } }
    - { name: read_file, arguments: { path: gone.txt } }
  usage: { prompt_tokens: 1200, completion_tokens: 30, prompt_tokens_details: { cached_tokens: 1000 } }
- when: { role: tool }
  text: There is a file.
  usage: { prompt_tokens: 1300, completion_tokens: 12 }
- when: { text: again }
  text: You asked before.
`;

/** Looks again and again, for 20 seconds at most. */
async function until(isSo: () => boolean): Promise<void> {
  const signal = AbortSignal.timeout(20_000);
  for await (const _ of every(10, undefined, { signal })) if (isSo()) return;
}

function jsonLines(text: string): JsonValue[] {
  return text
    .trim()
    .split("\n")
    .map((line): JsonValue => JSON.parse(line));
}

describe("codeagent run", { timeout: 120_000, concurrency: 2 }, () => {
  for (const { name, path } of nodes) {
    const skip = path === undefined ? "no Node older than 24 on this machine" : false;
    test(`on ${name}: shows thinking, calls, results, answer, usage and time`, { skip }, async (context) => {
      const folder = temporaryFolder(context);
      writeFileSync(join(folder, "here.txt"), "here");
      const { exit, stdout, stderr } = await runToEnd(context, ["run", "what is here?"], {
        folder,
        script,
        node: path ?? "",
      });
      assert.equal(stderr, "");
      assert.equal(exit, 0);
      const lines = stdout.split("\n").map((line) => line.replace(/\d+ ms|\d+\.\d s|ses_\w+/g, "_"));
      const results = lines.splice(4, 2).sort();
      assert.deepEqual(lines, [
        "I should look.",
        "Let me look.",
        '→ list_files pattern="*.txt"',
        '→ read_file path="gone.txt"',
        "There is a file.",
        "stop · 2 model calls · 2,500 tokens in (1,000 from the cache), 42 out · _",
        "session _",
        "",
      ]);
      assert.match(results[0] ?? "", /^← list_files: here\.txt, _$/);
      assert.match(results[1] ?? "", /^← read_file: .*gone\.txt.* \(_\)$/);
    });
  }

  test("--json writes every event of the contract on a line, from turn_started to turn_finished", async (context) => {
    const folder = temporaryFolder(context);
    const { exit, stdout } = await runToEnd(context, ["run", "--json", "what is here?"], { folder, script });
    assert.equal(exit, 0);
    const chunks: GenerateChunk[] = jsonLines(stdout).map((line) => fromJson(GenerateChunkSchema, line));
    assert.deepEqual(
      chunks.map(({ seq }) => seq),
      chunks.map((_, position) => BigInt(position + 1)),
    );
    assert.equal(chunks.at(0)?.event.case, "turnStarted");
    assert.equal(chunks.at(-1)?.event.case, "turnFinished");
  });

  test("the prompt - is read from stdin", async (context) => {
    const folder = temporaryFolder(context);
    const { exit, stdout } = await runToEnd(context, ["run", "-"], { folder, script, stdin: "what is\nhere? again" });
    assert.equal(exit, 0);
    assert.match(stdout, /^You asked before\.$/m);
  });

  test("a long answer comes whole", async (context) => {
    const folder = temporaryFolder(context);
    const running = start(context, ["run", "much"], { folder, script });
    const [, id] = await running.seen("stdout", /^session (\S+)$/m);
    assert.equal(await running.ended, 0);
    const answer = "0123456789".repeat(50_000);
    assert.ok(running.stdout().startsWith(`${answer}\nstop · 1 model call · `));
    const shown = await runToEnd(context, ["sessions", "show", id ?? "", "--json"], { folder });
    const [, message] = jsonLines(shown.stdout).map((line) => fromJson(MessageSchema, line));
    assert.deepEqual(message?.contentType, { case: "content", value: answer });
  });

  test("what a model says can't steer the terminal", async (context) => {
    const folder = temporaryFolder(context);
    const { stdout } = await runToEnd(context, ["run", "wild"], { folder, script });
    assert.match(stdout, /^safe \ufffd\]52;c;ZXZpbA==\ufffd text \ufffd$/m);
    const [, id = ""] = /^session (\S+)$/m.exec(stdout) ?? [];
    const json = (await runToEnd(context, ["sessions", "show", id, "--json"], { folder })).stdout;
    assert.doesNotMatch(json, /\u202e/, "JSON has it as an escape");
    const [, message] = jsonLines(json).map((line) => fromJson(MessageSchema, line));
    assert.deepEqual(message?.contentType, { case: "content", value: "safe \u001b]52;c;ZXZpbA==\u0007 text \u202e" });
  });

  test("the first Ctrl-C cancels the turn, and that is seen", async (context) => {
    const folder = temporaryFolder(context);
    const running = start(context, ["run", "for ever"], { folder, script });
    await running.seen("stdout", /on and on/);
    running.child.kill("SIGINT");
    assert.equal(await running.ended, 1);
    assert.match(running.stdout(), /^cancelled · 1 model call/m);
    const listed = await runToEnd(context, ["sessions", "ls", "--json"], { folder });
    assert.deepEqual(
      jsonLines(listed.stdout).map((line) => fromJson(SessionSchema, line).state),
      ["idle"],
    );
  });

  const failures: readonly { name: string; words: readonly string[]; env?: Record<string, string>; message: RegExp }[] =
    [
      { name: "an empty prompt", words: [" "], message: /the prompt is empty/ },
      { name: "no model", words: ["hi"], env: { CODEAGENT_MODEL: "" }, message: /no model is named/ },
      { name: "an unknown provider", words: ["hi", "--model", "acme/1"], message: /no known provider/ },
      { name: "an unknown session", words: ["hi", "--session", "ses_none"], message: /no session ses_none/ },
      { name: "a server URL that is none", words: ["hi", "--server", "here"], message: /--server is "here"/ },
    ];
  for (const { name, words, env = {}, message } of failures) {
    test(`with ${name}: one sentence, exit 1, and no empty session stays`, async (context) => {
      const folder = temporaryFolder(context);
      const failed = await runToEnd(context, ["run", ...words], { folder, script, env });
      assert.equal(failed.exit, 1);
      assert.match(failed.stderr, message);
      assert.match(failed.stderr, /^codeagent: [^\n]+\n$/);
      const listed = await runToEnd(context, ["sessions", "ls"], { folder });
      assert.equal(listed.stdout, "there are no sessions\n");
    });
  }

  test("a turn that fails says why and exits 1", async (context) => {
    const folder = temporaryFolder(context);
    const { exit, stdout } = await runToEnd(context, ["run", "break"], { folder, script });
    assert.equal(exit, 1);
    assert.match(stdout, /the model is out of order/);
    assert.match(stdout, /^error · 1 model call/m);
  });

  test("talks to the server that has the data directory, or to the one named, with the token", async (context) => {
    const folder = temporaryFolder(context);
    const tokenFile = join(folder, "token");
    writeFileSync(tokenFile, "a-token-long-enough\n");
    const server = await startServe(context, ["--token-file", tokenFile], { folder, script });
    const token = { CODEAGENT_TOKEN_FILE: tokenFile };
    const found = await runToEnd(context, ["run", "again"], { folder, env: token });
    assert.deepEqual([found.exit, found.stderr], [0, ""]);
    assert.match(found.stdout, /^You asked before\.$/m);
    assert.ok(found.stdout.startsWith(`in ${folder}, by ${server.url}\n`));
    const elsewhere = temporaryFolder(context);
    const words = ["run", "again", "--server", server.url];
    const named = await runToEnd(context, [...words, "--token-file", tokenFile], { folder: elsewhere });
    assert.deepEqual([named.exit, named.stderr], [0, ""]);
    const refused = await runToEnd(context, words, { folder: elsewhere });
    assert.equal(refused.exit, 1);
    assert.match(refused.stderr, /^codeagent: [^\n]*token[^\n]*\n$/i);
    server.child.kill("SIGTERM");
    assert.equal(await server.ended, 0);
  });
});

describe("codeagent sessions", { timeout: 120_000 }, () => {
  test("a list longer than a pipe holds is not cut when the process ends", async (context) => {
    const folder = temporaryFolder(context);
    const server = await startServe(context, [], { folder });
    using client = createCodeAgentClient({ baseUrl: server.url });
    const title = "a long title ".repeat(40);
    const ids = Array.from({ length: 300 }, (_, number) => `session-${number}`);
    for (const sessionId of ids) await client.createSession({ sessionId, title });
    server.child.kill("SIGTERM");
    assert.equal(await server.ended, 0);
    const listing = start(context, ["sessions", "ls", "--json", "--limit", "1000"], { folder });
    const pipe = listing.child.stdout?.pause();
    // The file is there while the service runs in that process, and so when the list is written. Once it is gone the
    // process has nothing left to do but to get rid of its output.
    await until(() => (pipe?.readableLength ?? 0) > 0 && !existsSync(join(folder, "data", "owner")));
    pipe?.resume();
    assert.equal(await listing.ended, 0);
    const listed = jsonLines(listing.stdout()).map((line) => fromJson(SessionSchema, line).sessionId);
    assert.deepEqual(listed.sort(), ids.sort());
  });

  test("a session can be gone on with, listed, shown, forked and removed", async (context) => {
    const folder = temporaryFolder(context);
    const codeagent = async (...words: string[]) => {
      const { exit, stdout, stderr } = await runToEnd(context, words, { folder, script });
      assert.deepEqual([exit, stderr], [0, ""], words.join(" "));
      return stdout;
    };
    const [, id = ""] = /^session (\S+)$/m.exec(await codeagent("run", "what is here?")) ?? [];
    assert.match(await codeagent("run", "--session", id, "again"), /^You asked before\.$/m);

    const shown = await codeagent("sessions", "show", id);
    assert.match(shown, /^what is here\?$/m);
    assert.match(shown, /^→ list_files pattern="\*\.txt"$/m);
    assert.match(shown, /^You asked before\.$/m);
    const messages = jsonLines(await codeagent("sessions", "show", id, "--json"));
    assert.deepEqual(
      messages.map((line) => fromJson(MessageSchema, line).role),
      ["user", "assistant", "tool", "tool", "assistant", "user", "assistant"],
    );

    const fork = (await codeagent("sessions", "fork", id, "--title", "the other way")).trim();
    const listed = jsonLines(await codeagent("sessions", "ls", "--json")).map((line) => fromJson(SessionSchema, line));
    assert.deepEqual(
      listed.map(({ sessionId, title, messageCount }) => [sessionId, title, messageCount]),
      [
        [fork, "the other way", 7],
        [id, "what is here?", 7],
      ],
    );
    assert.match(await codeagent("sessions", "ls", "--limit", "1"), new RegExp(`^${fork}  idle  7 messages [^\n]*\n$`));
    const cut = start(context, ["sessions", "show", id], { folder });
    cut.child.stdout?.destroy();
    assert.equal(await cut.ended, 0);
    assert.equal(cut.stderr(), "", "a reader who leaves early does no harm");
    assert.equal(await codeagent("sessions", "rm", id), "");
    assert.match(await codeagent("sessions", "ls"), new RegExp(`^${fork} [^\n]*\n$`));
    const gone = await runToEnd(context, ["sessions", "show", id], { folder });
    assert.deepEqual([gone.exit, gone.stderr], [1, `codeagent: there is no session ${id}\n`]);
  });
});
