import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { runToEnd, start, startServe, temporaryFolder } from "./start-codeagent.ts";

const key = "sk-never-to-be-seen";
const prices = `
scripted/dear: { input: 3, output: 15.5, context_window: 200000, tiers: [{ from_input_tokens: 9, input: 6, output: 30 }] }
scripted/cheap: { input: 0.003625, output: 0.01, context_window: 1050000 }
scripted/unknown: {}
`;

/** A folder with a prices file, and the environment that names it. */
function pricedFolder(context: TestContext) {
  const folder = temporaryFolder(context);
  writeFileSync(join(folder, "prices.yaml"), prices);
  return { folder, env: { CODEAGENT_PRICES_FILE: join(folder, "prices.yaml") }, script: "- text: hi" };
}

/** A provider that answers each request with the status. */
async function provider(context: TestContext, status: number) {
  const server = createServer((_, response) => {
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify({ data: [{ id: "one" }] }));
  });
  context.after(() => server.close());
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  return { OPENAI_API_KEY: key, OPENAI_BASE_URL: `http://127.0.0.1:${address.port}/v1` };
}

describe("codeagent models", { timeout: 60_000, concurrency: 2 }, () => {
  test("shows what models read and cost, in columns", async (context) => {
    const { exit, stdout, stderr } = await runToEnd(context, ["models", "scripted"], pricedFolder(context));
    assert.deepEqual([exit, stderr], [0, ""]);
    const lines = stdout.split("\n").map((line) => line.replace(/ {2}streaming.*$/, ""));
    assert.deepEqual(lines, [
      "model             context     input  output  can",
      "scripted/cheap      1.05M  0.003625    0.01",
      "scripted/dear        200k     3.00+  15.50+",
      "scripted/unknown        -         -       -",
      "",
      "dollars per million tokens; + means that long inputs cost more; from prices file",
      "",
    ]);
  });

  test("shows the models of what is configured, and of all others on request", async (context) => {
    const options = { folder: temporaryFolder(context), env: { ANTHROPIC_API_KEY: key } };
    const configured = await runToEnd(context, ["models"], options);
    assert.match(configured.stdout, /^anthropic\/claude-sonnet-5 +1M +2\.00 +10\.00 +streaming/m);
    assert.doesNotMatch(configured.stdout, /^openai\//m);
    const all = await runToEnd(context, ["models", "--all"], options);
    assert.match(all.stdout, /^openai\/gpt-5\.4 +1\.05M +2\.50\+ +15\.00\+ +streaming/m);
    assert.deepEqual([configured.exit, all.exit], [0, 0]);
  });

  test("asks a running server, which has other settings", async (context) => {
    const { folder, env, script } = pricedFolder(context);
    const server = await startServe(context, [], { folder, env, script });
    const words = ["models", "scripted", "--json", "--server", server.url];
    const { exit, stdout } = await runToEnd(context, words, { folder: temporaryFolder(context) });
    assert.equal(exit, 0);
    const models = stdout
      .trimEnd()
      .split("\n")
      .map((line): unknown => JSON.parse(line));
    assert.equal(models.length, 3);
    assert.match(JSON.stringify(models[0]), /"name":"scripted\/cheap".*"inputNanoUsdPerMillionTokens":"3625000"/);
    server.child.kill("SIGTERM");
    assert.equal(await server.ended, 0);
  });

  const nothings: readonly { words: readonly string[]; exit: number; stdout: RegExp; stderr: RegExp }[] = [
    {
      words: ["models"],
      exit: 0,
      stdout: /^no provider is configured; set one of .*OPENAI_API_KEY.*; --all shows the models there are\n$/,
      stderr: /^$/,
    },
    {
      words: ["models", "forward"],
      exit: 0,
      stdout: /^no models are known of forward; .*forward\/model$/m,
      stderr: /^$/,
    },
    {
      words: ["models", "--validate"],
      exit: 0,
      stdout: /^no provider is configured; set one of .*OPENAI_API_KEY/,
      stderr: /^$/,
    },
    {
      words: ["models", "nobody"],
      exit: 1,
      stdout: /^$/,
      stderr: /^codeagent: there is no provider "nobody"; the providers are .*\n$/,
    },
    {
      words: ["models", "openai", "--validate"],
      exit: 1,
      stdout: /^not_configured +the provider openai has no key; set OPENAI_API_KEY\n$/,
      stderr: /^$/,
    },
  ];
  for (const { words, exit, stdout, stderr } of nothings) {
    test(`${words.join(" ")}, where nothing is configured`, async (context) => {
      const found = await runToEnd(context, words, { folder: temporaryFolder(context) });
      assert.equal(found.exit, exit);
      assert.match(found.stdout, stdout);
      assert.match(found.stderr, stderr);
    });
  }

  test("--validate asks each provider that is configured and exits 0 when all answer", async (context) => {
    const folder = temporaryFolder(context);
    const env = await provider(context, 200);
    const { exit, stdout, stderr } = await runToEnd(context, ["models", "--validate"], { folder, env });
    assert.deepEqual([exit, stderr], [0, ""]);
    assert.match(stdout, /^ok +openai answers and lists 1 model \(\d+ ms\)\nok +openai-responses answers and lists/);
    assert.doesNotMatch(stdout, /never-to-be-seen/);
  });

  test("asks the server that runs over the data directory, and leaves the directory to one that starts", async (context) => {
    const { folder, env, script } = pricedFolder(context);
    const called = Promise.withResolvers<ServerResponse>();
    const slow = createServer((_, response) => called.resolve(response));
    context.after(() => slow.close());
    await new Promise<void>((listening) => slow.listen(0, "127.0.0.1", listening));
    const address = slow.address();
    assert.ok(typeof address === "object" && address !== null);
    const FORWARD_BASE_URL = `http://127.0.0.1:${address.port}/v1`;
    const asking = start(context, ["models", "forward", "--validate"], { folder, env: { FORWARD_BASE_URL } });
    const response = await called.promise;
    const server = await startServe(context, [], { folder, env, script });
    response.writeHead(200, { "content-type": "application/json" }).end('{"data":[]}');
    assert.equal(await asking.ended, 0);
    assert.match(asking.stdout(), /^ok +forward answers and lists 0 models/);

    const listed = await runToEnd(context, ["models", "scripted"], { folder });
    assert.match(listed.stdout, /^scripted\/cheap/m);
    server.child.kill("SIGTERM");
    assert.equal(await server.ended, 0);
  });

  test("--validate exits 1 when one does not, also in JSON", async (context) => {
    const folder = temporaryFolder(context);
    const env = await provider(context, 401);
    const words = ["models", "openai", "--validate", "--json"];
    const { exit, stdout } = await runToEnd(context, words, { folder, env });
    assert.equal(exit, 1);
    assert.match(
      stdout,
      /^\{"provider":"openai","valid":false,"state":"unauthorized","message":"[^"]*\(check OPENAI_API_KEY\)","latencyMs":\d+,"upstreamStatus":401\}\n$/,
    );
  });

  test("a prices file that is wrong is told in one sentence", async (context) => {
    const { folder, env } = pricedFolder(context);
    writeFileSync(join(folder, "prices.yaml"), "openai/x: { input: 1 }");
    const { exit, stderr } = await runToEnd(context, ["models"], { folder, env });
    assert.equal(exit, 1);
    assert.match(stderr, /^codeagent: prices\.file: .*prices\.yaml: openai\/x\.output is missing; [^\n]*\n$/);
  });
});
