import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import type { ChatEvent } from "../../src/chat/event.ts";
import { type Config, readConfig } from "../../src/config.ts";
import { createProviderRegistry, type ProviderRegistry } from "../../src/provider/registry.ts";
import { type Answer, agentError, chunk, eventStream, jsonAnswer, startUpstream } from "./upstream.ts";

const userHi = { role: "user", blocks: [{ type: "text", text: "Hi" }] } as const;

function configOf(context: Pick<TestContext, "after">, yaml: string): Config {
  const folder = mkdtempSync(join(tmpdir(), "codeagent-endpoint-"));
  context.after(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, "codeagent.yaml"), yaml);
  return readConfig({ env: {}, workingDirectory: folder });
}

async function ask(registry: ProviderRegistry, model: string): Promise<ChatEvent[]> {
  const { signal } = new AbortController();
  const request = { model: "", messages: [userHi], tools: [], options: { maxTokens: 9 } };
  const events: ChatEvent[] = [];
  for await (const some of registry.streamChat(registry.resolve(model), request, { signal })) events.push(...some);
  return events;
}

const written = (fields: string) =>
  `providers:\n  mine:\n    dialect: openai-chat\n    base_url: http://h/v1\n${fields}`;

describe("an endpoint of the operator's own", { timeout: 20_000 }, () => {
  test("is asked with its key, headers and quirks, by its name", async (context) => {
    const content = "<think>Hm</think>Hello";
    const hello: Answer = (_, response) =>
      response.writeHead(200, eventStream).end(`${chunk({ content })}${chunk({}, "stop")}`);
    const upstream = await startUpstream(context, [hello]);
    const { providers } = configOf(
      context,
      `providers:
  mine:
    dialect: openai-chat
    base_url: ${upstream.url}
    api_key_env: MINE_API_KEY
    headers: { X-Team: blue-team }
    quirks: { think_tags: true, max_tokens_field: max_completion_tokens, empty_content: "" }
  other: { dialect: openai-responses, base_url: "http://h/v1" }
`,
    );
    const env = { MINE_API_KEY: "sk-mine-1234" };
    const registry = createProviderRegistry({ env, settings: { endpoints: providers } });
    context.after(() => registry.close());
    const events = await ask(registry, "mine/vendor/model");
    assert.deepEqual(
      events.filter(({ type }) => type.endsWith("-delta")),
      [
        { type: "thinking-delta", index: 0, text: "Hm" },
        { type: "text-delta", index: 1, text: "Hello" },
      ],
    );
    const [asked] = upstream.requests;
    assert.equal(asked?.url, "/v1/chat/completions");
    assert.equal(asked?.headers.authorization, "Bearer sk-mine-1234");
    assert.equal(asked?.headers["x-team"], "blue-team");
    const body = JSON.parse(asked?.body ?? "");
    assert.deepEqual([body.model, body.max_completion_tokens], ["vendor/model", 9]);

    const listed = registry.list().slice(-2);
    assert.deepEqual(
      listed.map(({ id, dialect, configured }) => [id, dialect, configured]),
      [
        ["mine", "openai-chat", true],
        ["other", "openai-responses", true],
      ],
    );
    assert.doesNotMatch(JSON.stringify(registry.list()), /sk-mine|blue-team/);
  });

  test("sends what its wire family needs, and shows neither key nor headers in errors", async (context) => {
    const upstream = await startUpstream(context, [
      jsonAnswer(400, { error: { message: "bad: sk-mine-1234, blue-team" } }),
    ]);
    const endpoint = `{dialect: anthropic-messages, base_url: "${new URL("/", upstream.url).href}", api_key_env: KEY, headers: {X-Gate-Token: blue-team}}`;
    const { providers } = configOf(context, `providers: {mine: ${endpoint}}`);
    const registry = createProviderRegistry({ env: { KEY: "sk-mine-1234" }, settings: { endpoints: providers } });
    context.after(() => registry.close());
    await assert.rejects(ask(registry, "mine/m"), (error) => {
      assert.match(agentError(error).message, /^mine answered HTTP 400: bad/);
      assert.doesNotMatch(agentError(error).message, /sk-mine|blue-team/);
      return true;
    });
    const [asked] = upstream.requests;
    assert.equal(asked?.headers["x-api-key"], "sk-mine-1234");
    assert.equal(asked?.headers["anthropic-version"], "2023-06-01");
  });

  test("without its key it is told which one to set", (context) => {
    const { providers } = configOf(context, written("    api_key_env: MINE_TOKEN\n"));
    const registry = createProviderRegistry({ env: {}, settings: { endpoints: providers } });
    assert.throws(
      () => registry.resolve("mine/m"),
      (error) => agentError(error).message === "the provider mine has no key; set MINE_TOKEN",
    );
    assert.throws(() => registry.resolve("nobody/m"), /scripted, mine$/);
  });

  const refusals: readonly { yaml: string; says: RegExp }[] = [
    { yaml: "providers: x", says: /providers: endpoints by their names are wanted/ },
    { yaml: "providers: {mine: x}", says: /providers\.mine: entries as "key: value" are wanted/ },
    { yaml: "providers: {mine: }", says: /providers\.mine: entries/ },
    { yaml: "providers: {mine: {base_url: 'http://h'}}", says: /providers\.mine\.dialect is missing/ },
    { yaml: "providers: {mine: {dialect: openai-chat}}", says: /providers\.mine\.base_url is missing/ },
    {
      yaml: "providers: {mine: {dialect: chat, base_url: 'http://h'}}",
      says: /mine\.dialect: one of "openai-chat", "openai-responses", "anthropic-messages" is wanted/,
    },
    {
      yaml: "providers: {mine: {dialect: openai-chat, base_url: 'file:///secret'}}",
      says: /mine\.base_url: an http: or https: URL is wanted/,
    },
    { yaml: written("    api_key: secret"), says: /mine: there is no api_key; there are: dialect, .*quirks$/ },
    { yaml: written("    api_key_env: sk-secret"), says: /mine\.api_key_env: the name of an environment variable/ },
    { yaml: written("    api_key_env: MINE"), says: /mine\.api_key_env: .* ends in _KEY/ },
    { yaml: written("    headers: [secret]"), says: /mine\.headers: entries/ },
    { yaml: written("    headers: {'a b': secret}"), says: /mine\.headers: "a b" is no header's name/ },
    { yaml: written("    headers: {Host: secret}"), says: /mine\.headers\.Host belongs to the connection/ },
    { yaml: written("    headers: {a: 1}"), says: /mine\.headers\.a: a text in ASCII on one line is wanted/ },
    { yaml: written('    headers: {a: "x\\nsecret"}'), says: /mine\.headers\.a: a text/ },
    {
      yaml: written("    quirks: {thinkTags: true}"),
      says: /mine\.quirks: there is no thinkTags; there are: .*think_tags/,
    },
    { yaml: written("    quirks: {think_tags: 'yes'}"), says: /mine\.quirks\.think_tags: true or false is wanted/ },
    {
      yaml: written("    quirks: {thinking_replay: some}"),
      says: /thinking_replay: one of "none", "tool-turn", "tool-turns", "all"/,
    },
    { yaml: written("    quirks: {thinking_field: 'a b'}"), says: /thinking_field: the name of a field is wanted/ },
    {
      yaml: written("    quirks: {efforts: [low, huge]}"),
      says: /mine\.quirks\.efforts: one of "none", "minimal", .*"max" is wanted/,
    },
    { yaml: written("    quirks: {efforts: low}"), says: /mine\.quirks\.efforts: a list of words is wanted/ },
    { yaml: written("    quirks: {empty_content: x}"), says: /empty_content: null or "" is wanted/ },
    { yaml: written("    quirks: {default_max_tokens: 0}"), says: /default_max_tokens: a whole number from 1/ },
    { yaml: "providers: {openai: {}}", says: /providers\.openai: openai is a provider of our own/ },
    { yaml: "providers: {My.One: {}}", says: /providers\.My\.One: a name of small letters/ },
    { yaml: "providers: {__proto__: {}}", says: /a name of small letters/ },
  ];
  for (const { yaml, says } of refusals) {
    test(`refused: ${yaml.replaceAll(/\s+/g, " ")}`, (context) => {
      assert.throws(
        () => configOf(context, yaml),
        (error) => {
          assert.ok(error instanceof Error);
          assert.match(error.message, says);
          assert.match(error.message, /codeagent\.yaml: /);
          assert.doesNotMatch(error.message, /secret/);
          return true;
        },
      );
    });
  }
});
