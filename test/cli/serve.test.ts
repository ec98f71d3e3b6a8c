import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { describe, test } from "node:test";
import { setInterval as every } from "node:timers/promises";
import { createCodeAgentClient, streamTurn } from "../../sdk/index.ts";
import { nodes, start, startServe, temporaryFolder } from "./start-codeagent.ts";

const slowScript = `
- when: { text: for ever }
  first_delay_ms: 600000
  text: never said
- text: "slowly "
  repeat: 10
  chunk: 7
  delay_ms: 40
`;
const ask = (text: string) => [{ role: "user", contentType: { case: "content" as const, value: text } }];

describe("codeagent serve", { timeout: 120_000, concurrency: 2 }, () => {
  for (const { name, path } of nodes) {
    const skip = path === undefined ? "no Node older than 24 on this machine" : false;
    const node = path ?? "";

    test(`on ${name}: one line on stdout; SIGTERM lets a running turn finish, exit 0, no process left`, {
      skip,
    }, async (context) => {
      const folder = temporaryFolder(context);
      const server = await startServe(context, [], { folder, node, script: slowScript });
      using client = createCodeAgentClient({ baseUrl: server.url });
      const events: string[] = [];
      let said = "";
      let reason = "";
      for await (const { event } of streamTurn(client, { messages: ask("speak slowly") })) {
        events.push(event.case ?? "");
        if (event.case === "blockDelta" && event.value.delta.case === "text") {
          if (said === "") server.child.kill("SIGTERM");
          said += event.value.delta.value;
        }
        if (event.case === "turnFinished") reason = event.value.finishReason;
      }
      assert.equal(said, "slowly ".repeat(10));
      assert.equal(reason, "stop");
      assert.equal(await server.ended, 0);
      assert.equal(server.stdout(), `codeagent listening on ${server.url}\n`);
      assert.equal(server.stderr(), "");
      assert.equal(server.hasLeftProcesses(), false);
    });

    test(`on ${name}: a second signal ends the draining, still exit 0`, { skip }, async (context) => {
      const folder = temporaryFolder(context);
      const server = await startServe(context, ["--log-level", "info"], { folder, node, script: slowScript });
      using client = createCodeAgentClient({ baseUrl: server.url });
      const { sessionId } = await client.createSession({});
      const turn = streamTurn(client, { sessionId, messages: ask("for ever") }, { maxTries: 0 })[
        Symbol.asyncIterator
      ]();
      assert.equal((await turn.next()).value?.event.case, "turnStarted");
      server.child.kill("SIGINT");
      await server.seen("stderr", /"draining"/);
      let isOver = false;
      void server.ended.then(() => {
        isOver = true;
      });
      // What comes right after the first signal counts as the same one.
      for await (const _ of every(100)) {
        if (isOver) break;
        server.child.kill("SIGTERM");
      }
      assert.equal(await server.ended, 0);
      assert.equal(server.hasLeftProcesses(), false);
      await assert.rejects(async () => {
        while ((await turn.next()).done !== true);
      });
    });

    test(`on ${name}: SIGHUP, SIGUSR1 and a closed stdout do not end it`, { skip }, async (context) => {
      const folder = temporaryFolder(context);
      const server = await startServe(context, [], { folder, node, script: slowScript });
      server.child.stdout?.destroy();
      server.child.kill("SIGHUP");
      server.child.kill("SIGUSR1");
      using client = createCodeAgentClient({ baseUrl: server.url });
      assert.equal((await client.getCapabilities({})).defaultModel, "scripted/test");
      server.child.kill("SIGTERM");
      assert.equal(await server.ended, 0);
      assert.equal(server.stderr(), "", "no debugger was opened");
    });

    test(`on ${name}: a closed stderr does not end it`, { skip }, async (context) => {
      const folder = temporaryFolder(context);
      const server = await startServe(context, ["--log-level", "debug"], { folder, node, script: slowScript });
      server.child.stderr?.destroy();
      using client = createCodeAgentClient({ baseUrl: server.url });
      for (const sessionId of ["one", "two"]) await client.createSession({ sessionId });
      server.child.kill("SIGTERM");
      assert.equal(await server.ended, 0);
    });

    test(`on ${name}: a second process on the data directory is refused and told who has it`, {
      skip,
    }, async (context) => {
      const folder = temporaryFolder(context);
      const server = await startServe(context, [], { folder, node });
      const second = start(context, ["serve", "--port", "0"], { folder, node });
      assert.equal(await second.ended, 1);
      assert.match(second.stderr(), /^codeagent: the data directory .* is in use by process \d+ at [^\n]*\n$/);
      assert.ok(second.stderr().includes(`at ${server.url};`));
      assert.equal(second.stdout(), "");
    });
  }

  const failures: readonly { name: string; words: readonly string[]; yaml?: string; message: RegExp }[] = [
    {
      name: "a port that is no number",
      words: ["--port", "http"],
      message: /port \(command line\) is "http": a whole number/,
    },
    {
      name: "an unknown log level",
      words: ["--log-level", "loud"],
      message: /log_level \(command line\) is "loud": one of trace/,
    },
    { name: "an unknown setting", words: [], yaml: "prot: 1", message: /there is no setting prot; is port meant\?/ },
    {
      name: "an unknown section",
      words: [],
      yaml: "profile: { reviewer: { model: a/b } }",
      message: /there is no setting profile\.reviewer; is profiles meant\?/,
    },
    {
      name: "a setting like none",
      words: [],
      yaml: "elsewhere: 1",
      message: /setting elsewhere; there are: host, port/,
    },
    {
      name: "an unknown field of an MCP server",
      words: [],
      yaml: "mcp: { files: { comand: x } }",
      message: /mcp\.files: there is no field comand; there are: command/,
    },
    {
      name: "a file that is no YAML",
      words: [],
      yaml: 'token: "sesame\nhost: [',
      message: /codeagent\.yaml can't be read/,
    },
    { name: "an open address without a token", words: ["--host", "0.0.0.0"], message: /open to the network/ },
    { name: "a workspace that is not there", words: ["--workspace", "gone"], message: /gone/ },
    { name: "a script that is not there", words: ["--script", "gone.yaml"], message: /gone\.yaml cannot be read/ },
    { name: "a token file that is not there", words: ["--token-file", "gone"], message: /token_file: .*gone can't be/ },
  ];
  for (const { name, words, yaml, message } of failures) {
    test(`does not start with ${name}: one sentence, exit 1`, async (context) => {
      const folder = temporaryFolder(context);
      if (yaml !== undefined) writeFileSync(join(folder, "codeagent.yaml"), yaml);
      const server = start(context, ["serve", "--port", "0", ...words], { folder });
      assert.equal(await server.ended, 1);
      assert.match(server.stderr(), message);
      assert.match(server.stderr(), /^codeagent: [^\n]+\n$/);
      assert.doesNotMatch(server.stderr(), /sesame/);
      assert.equal(server.stdout(), "");
    });
  }

  test("does not start on a port that is taken", async (context) => {
    const folder = temporaryFolder(context);
    const taken = createServer();
    context.after(() => taken.close());
    await new Promise<void>((listening) => taken.listen(0, "127.0.0.1", listening));
    const address = taken.address();
    assert.ok(typeof address === "object" && address !== null);
    const server = start(context, ["serve", "--port", String(address.port)], { folder });
    assert.equal(await server.ended, 1);
    assert.match(server.stderr(), new RegExp(`^codeagent: [^\n]*port ${address.port}[^\n]* in use[^\n]*\n$`));
  });

  test("flags win over the environment, the environment over the file", async (context) => {
    const folder = temporaryFolder(context);
    mkdirSync(join(folder, "below"));
    writeFileSync(join(folder, "codeagent.yaml"), "model: forward/file\nworkspace: below\nlimits: { max_steps: 3 }\n");
    const env = { FORWARD_BASE_URL: "http://127.0.0.1:9", CODEAGENT_MODEL: "forward/environment" };
    const server = await startServe(context, ["--model", "forward/flag"], { folder, env });
    using client = createCodeAgentClient({ baseUrl: server.url });
    const { defaultModel, limits } = await client.getCapabilities({});
    assert.deepEqual([defaultModel, limits?.maxSteps], ["forward/flag", 3]);
    const { workspace } = await client.createSession({});
    assert.ok(workspace.endsWith("/below"));
  });

  for (const [name, fault] of [
    ["an error nobody caught", "process.on('SIGUSR2', () => { throw new Error(text()); });"],
    ["a rejection nobody caught", "process.on('SIGUSR2', () => { Promise.reject(new Error(text())); });"],
  ] as const) {
    test(`${name} is logged without secrets, which are out of the environment, and ends it with 1`, async (context) => {
      const folder = temporaryFolder(context);
      const secrets = { OPENAI_API_KEY: 'sk-"quoted"-key', CODEAGENT_TOKEN: "a-token-long-enough" };
      const text = `const text = () => 'boom ${Object.values(secrets).join(" ")} env: ' + process.env.OPENAI_API_KEY;`;
      writeFileSync(join(folder, "fault.mjs"), `${text}\n${fault}\n`);
      const env = { ...secrets, NODE_OPTIONS: `--import=${join(folder, "fault.mjs")}` };
      const server = await startServe(context, [], { folder, env, script: slowScript });
      using client = createCodeAgentClient({ baseUrl: server.url, token: secrets.CODEAGENT_TOKEN });
      const { sessionId } = await client.createSession({});
      const turn = streamTurn(client, { sessionId, messages: ask("for ever") }, { maxTries: 0 })[
        Symbol.asyncIterator
      ]();
      assert.equal((await turn.next()).value?.event.case, "turnStarted");
      server.child.kill("SIGUSR2");
      assert.equal(await server.ended, 1);
      const lines = server.stderr().trim().split("\n");
      const logged: unknown = JSON.parse(lines[0] ?? "");
      assert.ok(typeof logged === "object" && logged !== null && "error" in logged && "level" in logged);
      assert.equal(logged.level, "error");
      assert.match(JSON.stringify(logged.error), /boom \[hidden\] \[hidden\] env: undefined/);
      assert.doesNotMatch(server.stderr(), /quoted|long-enough/);
      await assert.rejects(async () => {
        while ((await turn.next()).done !== true);
      });
    });
  }

  test("the launcher says what to do where there is no Node new enough", async (context) => {
    const [, old] = nodes;
    if (old?.path === undefined) return context.skip("no Node older than 24 on this machine");
    const folder = temporaryFolder(context);
    mkdirSync(join(folder, "bin"));
    const program = join(folder, "bin", "codeagent.mjs");
    copyFileSync(new URL("../../bin/codeagent.js", import.meta.url), program);
    const alone = start(context, ["serve"], { folder, node: old.path, program });
    assert.equal(await alone.ended, 1);
    assert.match(alone.stderr(), /^codeagent needs Node\.js 24 or newer and runs on \d+[^\n]*\n$/);
  });
});
