import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { createProviderRegistry, type ProviderRegistryOptions } from "../../src/provider/registry.ts";
import { agentError, hello, jsonAnswer, startUpstream } from "./upstream.ts";

const userHi = { role: "user", blocks: [{ type: "text", text: "Hi" }] } as const;
const configured = { OPENAI_API_KEY: "sk-1234", FORWARD_BASE_URL: "http://127.0.0.1:1/v1" };

describe("the registry of providers", () => {
  test("lists who there is and who can be called, without keys", () => {
    const listed = createProviderRegistry({ env: { OPENAI_API_KEY: "sk-1234" } }).list();
    assert.deepEqual(
      listed.map(({ id, configured }) => [id, configured]),
      [
        ["openai", true],
        ["openai-responses", true],
        ["anthropic", false],
        ["deepseek", false],
        ["kimi", false],
        ["copilot", false],
        ["forward", false],
        ["scripted", false],
      ],
    );
    assert.doesNotMatch(JSON.stringify(listed), /sk-1234/);
  });

  test("the model is all after the first slash", () => {
    const resolved = createProviderRegistry({ env: configured }).resolve("forward/vendor/model:free");
    assert.deepEqual(
      [resolved.provider, resolved.model, resolved.dialect],
      ["forward", "vendor/model:free", "openai-chat"],
    );
    assert.doesNotMatch(JSON.stringify(resolved), /sk-1234/);
  });

  const refusals: readonly { model: string; env?: ProviderRegistryOptions["env"]; kind: string; says: RegExp }[] = [
    { model: "", kind: "failed_precondition", says: /provider\/model/ },
    {
      model: "nobody/m",
      kind: "not_found",
      says: /"nobody\/m" has no known provider.*openai, openai-responses, anthropic, deepseek, kimi, copilot, forward, scripted/,
    },
    { model: "m", kind: "not_found", says: /no known provider/ },
    { model: "__proto__/m", kind: "not_found", says: /no known provider/ },
    { model: "openai", kind: "not_found", says: /names no model of openai/ },
    { model: "openai/", kind: "not_found", says: /names no model of openai/ },
    { model: "openai/m", env: {}, kind: "failed_precondition", says: /openai has no key; set OPENAI_API_KEY/ },
    { model: "openai/m", env: { OPENAI_API_KEY: " " }, kind: "failed_precondition", says: /no key/ },
    { model: "openai/m", env: { OPENAI_API_KEY: "a\nb" }, kind: "failed_precondition", says: /no header can carry/ },
    { model: "forward/m", env: {}, kind: "failed_precondition", says: /no base URL; set FORWARD_BASE_URL/ },
    { model: "forward/m", env: { FORWARD_BASE_URL: "x" }, kind: "failed_precondition", says: /no http: or https: URL/ },
    {
      model: "forward/m",
      env: { FORWARD_BASE_URL: "file:///etc" },
      kind: "failed_precondition",
      says: /no http: or https:/,
    },
    { model: "copilot/m", kind: "failed_precondition", says: /copilot has no login; run `codeagent login copilot`/ },
    { model: "scripted/m", kind: "failed_precondition", says: /scripted has no script; set scripted.file/ },
  ];
  for (const { model, env, kind, says } of refusals) {
    test(`${JSON.stringify(model)} with ${JSON.stringify(env ?? {})}: ${kind}`, () => {
      assert.throws(
        () => createProviderRegistry({ env: env ?? configured }).resolve(model),
        (error) => agentError(error).kind === kind && says.test(agentError(error).message),
      );
    });
  }

  test("settings win over the environment, and headers go along", async (context) => {
    const upstream = await startUpstream(context, [hello]);
    const registry = createProviderRegistry({
      env: { OPENAI_API_KEY: "sk-environment", OPENAI_BASE_URL: "http://127.0.0.1:1/v1" },
      settings: {
        providers: { openai: { apiKey: "sk-settings", baseUrl: upstream.url, headers: { "X-Team": "blue" } } },
      },
    });
    context.after(() => registry.close());
    const { signal } = new AbortController();
    const hi = { role: "user", blocks: [{ type: "text", text: "hi" }] } as const;
    const request = { model: "", messages: [hi], tools: [], options: { maxTokens: 5 } };
    for await (const _ of registry.streamChat(registry.resolve("openai/m"), request, { signal }));
    const [asked] = upstream.requests;
    assert.equal(asked?.headers.authorization, "Bearer sk-settings");
    assert.equal(asked?.headers["x-team"], "blue");
    assert.equal(JSON.parse(asked?.body ?? "").max_completion_tokens, 5);
  });

  test("Anthropic gets its key and its version in headers of its own", async (context) => {
    const upstream = await startUpstream(context, [
      jsonAnswer(200, { type: "message", content: [{ type: "text", text: "Hi" }], stop_reason: "end_turn" }),
    ]);
    const registry = createProviderRegistry({
      env: { ANTHROPIC_API_KEY: "sk-ant-1234", ANTHROPIC_BASE_URL: new URL("/gateway/", upstream.url).href },
    });
    context.after(() => registry.close());
    const { signal } = new AbortController();
    const request = { model: "", messages: [userHi], tools: [], options: {} };
    const events = [];
    for await (const some of registry.streamChat(registry.resolve("anthropic/m"), request, { signal })) {
      events.push(...some);
    }
    assert.deepEqual(events[0], { type: "text-delta", index: 0, text: "Hi" });
    const [asked] = upstream.requests;
    assert.equal(asked?.url, "/gateway/v1/messages");
    assert.equal(asked?.headers["x-api-key"], "sk-ant-1234");
    assert.equal(asked?.headers["anthropic-version"], "2023-06-01");
    assert.equal(asked?.headers.authorization, undefined);
  });

  test("a script that is not there is told at once", () => {
    assert.throws(
      () => createProviderRegistry({ env: {}, settings: { scripted: { file: "missing.yaml" } } }),
      (error) => /scripted.file: missing.yaml cannot be read \(ENOENT\)/.test(agentError(error).message),
    );
  });
});
