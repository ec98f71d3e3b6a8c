import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { createServer, type IncomingHttpHeaders } from "node:http";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { runToEnd, startServe, temporaryFolder } from "./start-codeagent.ts";

const key = "sk-never-to-be-seen";

/** An endpoint that notes what it is sent. */
async function endpoint(context: TestContext) {
  const asked: { url: string | undefined; headers: IncomingHttpHeaders }[] = [];
  const server = createServer((request, response) => {
    asked.push({ url: request.url, headers: request.headers });
    response.writeHead(404).end();
  });
  context.after(() => server.close());
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  return { asked, port: address.port };
}

describe("codeagent doctor", { timeout: 60_000, concurrency: 2 }, () => {
  test("says what is configured and reachable, and neither shows nor sends a key", async (context) => {
    const folder = temporaryFolder(context);
    const { asked, port } = await endpoint(context);
    const env = {
      OPENAI_API_KEY: key,
      OPENAI_BASE_URL: `http://user:${key}@127.0.0.1:${port}/v1?key=${key}`,
      CODEAGENT_TOKEN: key,
      CODEAGENT_MODEL: "openai/some",
    };
    const { exit, stdout, stderr } = await runToEnd(context, ["doctor", "--port", "0"], { folder, env });
    assert.deepEqual([exit, stderr], [0, ""]);
    assert.match(stdout, /^ok +Node\.js: v\d+/m);
    assert.match(stdout, /^ok +data directory: .*\/data, will be made$/m);
    assert.match(stdout, /^- +in use by: nobody$/m);
    assert.match(stdout, /^ok +default model: openai\/some$/m);
    assert.match(
      stdout,
      new RegExp(`^ok +openai: configured, key set, http://127.0.0.1:${port}/v1 is reachable$`, "m"),
    );
    assert.match(stdout, /^- +forward: not configured: .*FORWARD_BASE_URL$/m);
    assert.match(stdout, /^ok +ripgrep: present$/m);
    assert.match(stdout, /^ok +sandbox: bubblewrap \(\S+\), without network$/m);
    assert.doesNotMatch(stdout, /never-to-be-seen/);
    assert.deepEqual(
      asked.map(({ url }) => url),
      // Two providers are at this address.
      ["/v1", "/v1"],
    );
    assert.doesNotMatch(JSON.stringify(asked), /never-to-be-seen|authorization/i);
  });

  test("tells which profiles and default models can't be asked", async (context) => {
    const folder = temporaryFolder(context);
    const profiles =
      "{ good: { model: 'openai/some' }, plain: { tools: [read_file] }, keyless: { model: 'kimi/some' } }";
    writeFileSync(join(folder, "codeagent.yaml"), `profiles: ${profiles}\n`);
    const env = { OPENAI_API_KEY: key, OPENAI_BASE_URL: "http://127.0.0.1:9/v1", CODEAGENT_MODEL: "openai/a, kimi/b" };
    const { stdout } = await runToEnd(context, ["doctor", "--port", "0"], { folder, env });
    assert.match(stdout, /^failed +default model: .*MOONSHOT_API_KEY$/m, "each of a list is looked at");
    assert.match(stdout, /^ok +profile good: openai\/some$/m);
    assert.match(stdout, /^ok +profile plain: the model that is asked otherwise$/m);
    assert.match(stdout, /^warning +profile keyless: the provider kimi has no key; set MOONSHOT_API_KEY$/m);
  });

  for (const [name, env, expected] of [
    ["can't be had", { PATH: "/nowhere" }, /^warning +sandbox: .*bubblewrap is not installed; install it .*, or set /m],
    ["is not wanted", { CODEAGENT_SANDBOX: "none" }, /^warning +sandbox: none: .*because the configuration says so$/m],
  ] as const) {
    test(`warns of a sandbox that ${name}`, async (context) => {
      const { stdout } = await runToEnd(context, ["doctor", "--port", "0"], { folder: temporaryFolder(context), env });
      assert.match(stdout, expected);
    });
  }

  test("names the server that uses the data directory, and takes its port for ours", async (context) => {
    const folder = temporaryFolder(context);
    const script = "- text: hi";
    const server = await startServe(context, [], { folder, script });
    const port = new URL(server.url).port;
    const { exit, stdout } = await runToEnd(context, ["doctor", "--port", port], { folder, script });
    assert.equal(exit, 0);
    const owner = `process ${server.child.pid} at ${server.url}`;
    assert.ok(stdout.includes(`in use by: ${owner}\n`));
    assert.ok(stdout.includes(`port ${port} on 127.0.0.1 is what ${owner} listens on\n`));
    server.child.kill("SIGTERM");
    assert.equal(await server.ended, 0);
  });

  const failures: readonly { name: string; words?: readonly string[]; env?: Record<string, string>; found: RegExp }[] =
    [
      { name: "no provider", found: /^failed +providers: none is configured/m },
      {
        name: "a model without a key",
        words: ["--model", "openai/x"],
        found: /^failed +default model: .*OPENAI_API_KEY/m,
      },
      {
        name: "the model's endpoint out of reach",
        words: ["--model", "forward/x"],
        env: { FORWARD_BASE_URL: "http://127.0.0.1:1/v1" },
        found: /^failed +forward: configured, no key, but http:\/\/127\.0\.0\.1:1\/v1 can't be reached/m,
      },
      { name: "a workspace that is not there", words: ["--workspace", "gone"], found: /^failed +workspace: .*gone/m },
      { name: "a script that can't be read", words: ["--script", "gone"], found: /^failed +script: .*gone/m },
      {
        name: "a data directory that is a file",
        words: ["--data-dir", "file"],
        found: /^failed +data directory: .*file/m,
      },
    ];
  for (const { name, words = [], env = {}, found } of failures) {
    test(`exits 1 with ${name}`, async (context) => {
      const folder = temporaryFolder(context);
      writeFileSync(join(folder, "file"), "");
      const { exit, stdout, stderr } = await runToEnd(context, ["doctor", "--port", "0", ...words], { folder, env });
      assert.deepEqual([exit, stderr], [1, ""]);
      assert.match(stdout, found);
    });
  }

  test("exits 1 when another program has the port", async (context) => {
    const folder = temporaryFolder(context);
    const { port } = await endpoint(context);
    const words = ["doctor", "--port", String(port)];
    const { exit, stdout } = await runToEnd(context, words, { folder, script: "- text: hi" });
    assert.equal(exit, 1);
    assert.match(stdout, new RegExp(`^failed +address: port ${port} on 127.0.0.1 can't be had`, "m"));
  });
});
