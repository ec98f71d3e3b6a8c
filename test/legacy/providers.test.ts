import assert from "node:assert/strict";
import { mkdir, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { status } from "@grpc/grpc-js";
import { startTestApp, type TestAppOptions, user } from "../support/test-app.ts";
import { at, type LegacyMessage, legacyClients } from "./legacy-client.ts";

async function startedApp(context: TestContext, options: TestAppOptions = {}) {
  const app = await startTestApp(context, options);
  return { ...app, call: legacyClients(context, app.app.url).L2.call };
}

async function refused(call: Promise<unknown>, code: status, words: RegExp): Promise<void> {
  await assert.rejects(call, (error) => {
    assert.equal(at(error, "code"), code, String(error));
    assert.match(String(at(error, "details")), words);
    return true;
  });
}

/** An endpoint that answers each Chat Completions request with a word, and notes what it was asked with. */
async function endpoint(context: TestContext) {
  const asked: { readonly url: string | undefined; readonly authorization: string | undefined }[] = [];
  const chunk = (delta: object, finish: string | null) =>
    `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
  const usage = { prompt_tokens: 1_000_000, completion_tokens: 0, total_tokens: 1_000_000 };
  const server = createServer((request: IncomingMessage, response) => {
    asked.push({ url: request.url, authorization: request.headers.authorization });
    request.resume();
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end(
      `${chunk({ role: "assistant", content: "here" }, null)}${chunk({}, "stop")}data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", choices: [], usage })}\n\ndata: [DONE]\n\n`,
    );
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  context.after(() => server.close());
  const address = server.address();
  assert.ok(typeof address === "object" && address !== null);
  return { asked, url: `http://127.0.0.1:${address.port}/v1` };
}

function names(answer: LegacyMessage): unknown[] {
  const list = answer["providers"];
  assert.ok(Array.isArray(list));
  return list.map((one) => at(one, "name"));
}

const key = "sk-added-0123456789";

test("providers and models as they are configured, without keys", async (context) => {
  const { call } = await startedApp(context, {
    env: { OPENAI_API_KEY: "sk-env-0123456789", ANTHROPIC_API_KEY: "sk-ant-0123456789" },
    settings: "providers:\n  corp: { dialect: openai-chat, base_url: 'http://me:pass@127.0.0.1:9/v1?key=1' }\n",
  });
  const listed = await call("ListProviders");
  assert.deepEqual(names(listed).sort(), ["anthropic", "corp", "openai", "openai-responses", "scripted"]);
  assert.deepEqual([listed["default_provider"], listed["default_model"]], ["scripted", "test"]);
  assert.doesNotMatch(JSON.stringify(listed), /sk-|pass|api_key":"[^"]/);
  const { provider } = await call("GetProvider", { name: "anthropic" });
  assert.equal(at(provider, "base_url"), "https://api.anthropic.com");
  const models: unknown = at(provider, "models");
  const sonnet = (Array.isArray(models) ? models : []).find((model) => at(model, "id") === "claude-sonnet-4-5");
  assert.deepEqual(at(sonnet, "cost"), { input: 3, output: 15, cache_read: 0.3, cache_write: 3.75 });
  assert.equal(at(sonnet, "tool_call"), true);
  assert.equal(at(sonnet, "limit.context"), 200_000);
  assert.deepEqual(at(sonnet, "modalities.input"), ["text", "image", "pdf"]);
  assert.equal(at(await call("GetProvider", { name: "corp" }), "provider.base_url"), "http://127.0.0.1:9/v1");
  await refused(call("GetProvider", { name: "nobody" }), status.NOT_FOUND, /nobody.*openai/);
  await refused(call("GetProvider", {}), status.INVALID_ARGUMENT, /name/);
  await refused(call("RemoveProvider", { name: "corp" }), status.FAILED_PRECONDITION, /corp.*configuration/);
  await refused(call("RemoveProvider", { name: "openai" }), status.FAILED_PRECONDITION, /openai.*environment/);
  await refused(
    call("UpdateProvider", { provider: { name: "openai", api_key: key } }),
    status.FAILED_PRECONDITION,
    /environment/,
  );
});

test("a provider added over RPC is asked, priced, kept over a restart, changed and removed", async (context) => {
  const dataDir = await mkdtemp(join(tmpdir(), "codeagent-data-"));
  context.after(() => rm(dataDir, { recursive: true, force: true }));
  const { asked, url } = await endpoint(context);
  const first = await startedApp(context, { dataDir });
  const model = {
    ...{ id: "big", name: "Big", cost: { input: 3, output: 15, cache_read: 0.5 } },
    limit: { context: 1000, output: 100 },
  };
  const provider = { name: "corp", base_url: url, api_key: key, models: [model] };
  const answered = await first.call("AddProvider", { provider });
  assert.equal(answered["success"], true);
  assert.doesNotMatch(JSON.stringify(answered), /sk-/);
  assert.equal(at(answered, "provider.models.0.name"), "Big");
  assert.deepEqual(at(answered, "provider.models.0.cost"), { input: 3, output: 15, cache_read: 0.5, cache_write: 3 });
  assert.deepEqual(at(answered, "provider.models.0.limit"), { context: 1000, output: 100 });

  const turn = await first.client.generate({ model: "corp/big", messages: [user("hi")] });
  assert.equal(turn.usage?.costNanoUsd, 3_000_000_000n, "it costs what was told of it");
  assert.deepEqual(asked, [{ url: "/v1/chat/completions", authorization: `Bearer ${key}` }]);

  const set = await first.call("SetDefaultModel", { provider: "corp", model: "big" });
  assert.deepEqual([set["success"], set["provider"], set["model"]], [true, "corp", "big"]);
  await first.client.generate({ messages: [user("hi")] });
  assert.equal(asked.length, 2, "the default is asked where nobody names a model");
  assert.equal((await first.client.getCapabilities({})).defaultModel, "corp/big");
  const file = join(dataDir, "providers.json");
  assert.equal((await stat(file)).mode & 0o777, 0o600);
  await first.app.close(0);

  const { call, client } = await startedApp(context, { dataDir });
  const kept = await call("GetDefaultModel");
  assert.deepEqual([kept["provider"], kept["model"]], ["corp", "big"]);
  await client.generate({ messages: [user("hi")] });
  assert.equal(asked.at(-1)?.authorization, `Bearer ${key}`);
  await refused(call("AddProvider", { provider }), status.ALREADY_EXISTS, /corp/);
  await refused(call("RemoveProvider", { name: "corp" }), status.FAILED_PRECONDITION, /default model/);
  const moved = { name: "corp", base_url: "http://127.0.0.1:1/v1" };
  await refused(call("UpdateProvider", { provider: moved }), status.INVALID_ARGUMENT, /api_key: is missing/);
  const other = `${url.replace("/v1", "/v2")}`;
  const updated = await call("UpdateProvider", { provider: { name: "corp", base_url: other } });
  assert.equal(at(updated, "provider.base_url"), other);
  assert.equal(at(updated, "provider.models.0.id"), "big", "what is not given stays");
  await client.generate({ messages: [user("hi")] });
  assert.deepEqual(asked.at(-1), { url: "/v2/chat/completions", authorization: `Bearer ${key}` });
  await call("UpdateProvider", { provider: { name: "corp", api_key: "" } });
  await client.generate({ messages: [user("hi")] });
  assert.equal(asked.at(-1)?.authorization, undefined, "a key can be taken away");

  const back = await call("SetDefaultModel", {});
  assert.deepEqual([back["provider"], back["model"]], ["scripted", "test"]);
  assert.equal((await call("RemoveProvider", { name: "corp" }))["success"], true);
  await refused(call("RemoveProvider", { name: "corp" }), status.NOT_FOUND, /corp/);
  await assert.rejects(client.generate({ model: "corp/big", messages: [user("hi")] }), /no known provider/);
  assert.deepEqual(JSON.parse(await readFile(file, "utf8")), { default_model: "", providers: {} });
});

test("what can't be a provider or a default is refused by its field", async (context) => {
  const { call } = await startedApp(context);
  const good = { name: "corp", base_url: "http://127.0.0.1:1/v1" };
  for (const [provider, words] of [
    [undefined, /provider: is missing/],
    [{ ...good, name: "" }, /provider.name/],
    [{ ...good, name: "Corp" }, /provider: a name of small letters/],
    [{ name: "corp" }, /provider.base_url: is missing/],
    [{ ...good, base_url: "ftp://x/" }, /provider.base_url: an http/],
    [{ ...good, base_url: "http://me:pass@127.0.0.1:1/v1" }, /provider.base_url: has a user name or password/],
    [{ ...good, api_key: "a b" }, /provider.api_key/],
    [{ ...good, models: [{ id: "" }] }, /provider.models\[0\].id/],
    [{ ...good, models: [{ id: "m", api_key: "x" }] }, /provider.models\[0\].api_key/],
    [{ ...good, models: [{ id: "m", cost: { input: -1 } }] }, /dollars per million/],
  ] as const)
    await refused(call("AddProvider", { provider }), status.INVALID_ARGUMENT, words);
  await refused(call("AddProvider", { provider: { ...good, name: "openai" } }), status.ALREADY_EXISTS, /openai/);
  const keyOnly = { name: "anthropic", api_key: key };
  await refused(call("AddProvider", { provider: keyOnly }), status.ALREADY_EXISTS, /anthropic already/);
  await refused(call("SetDefaultModel", { provider: "nobody", model: "x" }), status.NOT_FOUND, /nobody/);
  await refused(
    call("SetDefaultModel", { provider: "openai", model: "x" }),
    status.FAILED_PRECONDITION,
    /OPENAI_API_KEY/,
  );
  await refused(call("SetDefaultModel", { provider: "scripted" }), status.INVALID_ARGUMENT, /model: is empty/);
  await refused(call("SetDefaultModel", { provider: "a", model: "b,c" }), status.INVALID_ARGUMENT, /comma/);
});

test("who may not administer the server changes no provider, and agents don't read their keys", {
  timeout: 20_000,
}, async (context) => {
  const folder = await mkdtemp(join(tmpdir(), "codeagent-workspace-"));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const dataDir = join(folder, "data");
  await mkdir(dataDir, { mode: 0o700 });
  await writeFile(
    join(dataDir, "providers.json"),
    JSON.stringify({ providers: { corp: { base_url: "http://127.0.0.1:1", api_key: key } } }),
  );
  const script = `- tool_calls: [{ name: read_file, arguments: { path: data/providers.json } }]\n- text: done\n`;
  const { call, client, reports } = await startedApp(context, {
    ...{ dataDir, script },
    flags: { admin_api: "off", workspace: folder },
  });
  assert.ok(names(await call("ListProviders")).includes("corp"), JSON.stringify(reports));
  for (const rpc of ["AddProvider", "UpdateProvider", "RemoveProvider", "SetDefaultModel"])
    await refused(call(rpc, {}), status.PERMISSION_DENIED, /admin_api/);
  const turn = await client.generate({ messages: [user("read it")] });
  assert.doesNotMatch(
    JSON.stringify(turn, (_, value) => (typeof value === "bigint" ? String(value) : value)),
    /sk-added/,
  );
});

test("a file of providers that is damaged stops nothing and is set aside", async (context) => {
  const dataDir = await mkdtemp(join(tmpdir(), "codeagent-data-"));
  context.after(() => rm(dataDir, { recursive: true, force: true }));
  const file = join(dataDir, "providers.json");
  await writeFile(file, "{ half");
  const { call, reports } = await startedApp(context, { dataDir });
  assert.match(JSON.stringify(reports), /providers.json can't be read/);
  await call("SetDefaultModel", { provider: "scripted", model: "other" });
  assert.equal(await readFile(`${file}.damaged`, "utf8"), "{ half");
  const kept = await call("GetDefaultModel");
  assert.equal(kept["model"], "other");
});
