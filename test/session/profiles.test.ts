import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { ToolService } from "../../gen/codeagent/v1/tool_service_pb.ts";
import type { GenerateOptions } from "../../src/chat/request.ts";
import { type Profile, turnTerms, withinProfile } from "../../src/session/profile.ts";
import { readProfile } from "../../src/session/read-profile.ts";
import { startTestApp, user } from "../support/test-app.ts";

describe("a profile as an operator writes it", () => {
  test("has a model, a prompt, functions and permissions", () => {
    const written = {
      model: "openai/gpt-5, anthropic/claude",
      system_prompt: "Review.",
      tools: ["read_file", "mcp_*"],
      permission: { mode: "read-only", deny: ["read_file(secret/**)"] },
    };
    assert.deepEqual(readProfile("code-reviewer_2", written, "profiles.x"), {
      name: "code-reviewer_2",
      model: "openai/gpt-5, anthropic/claude",
      systemPrompt: "Review.",
      tools: ["read_file", "mcp_*"],
      permissions: {
        profile: "code-reviewer_2",
        mode: "read-only",
        allow: [],
        ask: [],
        deny: ["read_file(secret/**)"],
      },
    });
    const { permissions } = readProfile("plain", { permission: "accept-edits" }, "profiles.plain");
    assert.equal(permissions?.mode, "accept-edits");
  });

  test("may have the name of a vendor's model", () => {
    assert.equal(readProfile("gpt-4.1-mini", { model: "a/b" }, "p").name, "gpt-4.1-mini");
  });

  const faults: [value: unknown, message: RegExp, name?: string][] = [
    ["read-only", /^p: fields as "key: value" are wanted$/],
    [{}, /^p is empty; there are: model, system_prompt, tools, permission$/],
    [{ prompt: "x" }, /^p: there is no field prompt; is system_prompt meant\?$|there are: model/],
    [{ model: "gpt" }, /^p\.model is "gpt": provider\/model is wanted$/],
    [{ model: 5 }, /^p\.model: a text is wanted$/],
    [{ system_prompt: " " }, /^p\.system_prompt: a text is wanted$/],
    [{ tools: "read_file" }, /^p\.tools: a list of names of functions is wanted$/],
    [{ tools: ["read_file(src/**)"] }, /^p\.tools\[0\]: the name of a function is wanted, with \* for any/],
    [{ permission: "lax" }, /^p\.permission is "lax": one of ask, read-only, accept-edits, bypass is wanted$/],
    [{ permission: { allow: "x" } }, /^p\.permission\.allow: a list of rules is wanted/],
    [{ permission: { deny: ["run_command("] } }, /^p\.permission\.deny\[0\]: the rule run_command\( /],
    [{ permission: { rules: [] } }, /^p\.permission: there is no field rules; there are: mode, allow, ask, deny$/],
    [{ model: "a/b" }, /^p: a name of small letters, digits, dots, - and _ is wanted/, "openai/gpt"],
    [{ model: "a/b" }, /^p: a name of small letters/, "Reviewer"],
    [{ model: "a/b" }, /^p: a name of small letters/, "a".repeat(65)],
  ];
  for (const [value, message, name = "reviewer"] of faults) {
    test(`is refused: ${name} ${JSON.stringify(value)}`, () => {
      assert.throws(() => readProfile(name, value, "p"), { message });
    });
  }
});

const profiles = new Map<string, Profile>(
  [
    { name: "reviewer", model: "p/own", systemPrompt: "" },
    { name: "plain", model: "", systemPrompt: "x" },
  ].map((profile) => [profile.name, profile]),
);

describe("what a turn asks for", () => {
  const cases: [model: string, profile: string, session: string, expected: [model: string, profile: string]][] = [
    ["", "", "", ["p/default", ""]],
    ["p/m", "", "reviewer", ["p/m", ""]],
    ["", "", "reviewer", ["p/own", "reviewer"]],
    ["reviewer", "", "p/session", ["p/own", "reviewer"]],
    ["plain", "", "p/session", ["p/session", "plain"]],
    ["plain", "", "reviewer", ["p/default", "plain"]],
    ["", "reviewer", "p/session", ["p/own", "reviewer"]],
    ["p/m", "reviewer", "p/session", ["p/m", "reviewer"]],
    ["", "unknown", "p/session", ["p/session", "unknown"]],
    ["reviewer", "reviewer", "", ["p/own", "reviewer"]],
  ];
  for (const [model, profile, session, [expected, expectedProfile]] of cases) {
    test(`model "${model}", profile "${profile}", session "${session}"`, () => {
      const options = profile === "" ? {} : { profile };
      const terms = turnTerms(profiles, { model, options }, session, "p/default");
      assert.deepEqual([terms.model, terms.options.profile ?? ""], [expected, expectedProfile]);
    });
  }

  test("two profiles are refused", () => {
    const asked = { model: "reviewer", options: { profile: "plain" } };
    assert.throws(() => turnTerms(profiles, asked, "", ""), /options.profile: is plain, and the model names/);
  });

  const names = ["read_file", "read_dir", "write_file"];
  const tools: [ofProfile: string[] | undefined, asked: string[] | undefined, expected: string[] | undefined][] = [
    [undefined, undefined, undefined],
    [undefined, ["write_file"], ["write_file"]],
    [["read_*"], undefined, ["read_file", "read_dir"]],
    [["*_file"], ["read_file", "read_dir"], ["read_file"]],
    [["read_file", "later"], undefined, ["read_file", "later"]],
    [["*"], ["write_file"], ["write_file"]],
    [["r*d*e"], undefined, ["read_file"]],
    [["read_file"], ["write_file"], ["(none)"]],
    [[], undefined, ["(none)"]],
    [["read_file*file"], undefined, ["(none)"]],
  ];
  for (const [ofProfile, allowedTools, expected] of tools) {
    test(`functions ${ofProfile} of the profile, ${allowedTools} of the request`, () => {
      const profile = {
        name: "p",
        model: "",
        systemPrompt: "",
        ...(ofProfile === undefined ? {} : { tools: ofProfile }),
      };
      const options: GenerateOptions = allowedTools === undefined ? {} : { allowedTools };
      assert.deepEqual(withinProfile(profile, options, names).allowedTools, expected);
    });
  }
});

/** A model that says one word, or calls `write_file` when asked to, and keeps what it was sent. */
async function startUpstream(context: TestContext) {
  const asked: { model: string; system: string; tools: string[] }[] = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const piece of request) body += piece;
    const { model, messages, tools = [] } = JSON.parse(body);
    const system = messages[0].role === "system" ? messages[0].content : "";
    asked.push({ model, system, tools: tools.map((tool: { function: { name: string } }) => tool.function.name) });
    const last = messages.at(-1);
    const call = {
      index: 0,
      id: "c1",
      type: "function",
      function: { name: "write_file", arguments: '{"path":"a","content":"b"}' },
    };
    const delta = last.role === "user" && last.content === "write" ? { tool_calls: [call] } : { content: "done" };
    const choice = { index: 0, delta, finish_reason: "tool_calls" in delta ? "tool_calls" : "stop" };
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.end(`data: ${JSON.stringify({ id: "r", model, choices: [choice] })}\n\ndata: [DONE]\n\n`);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  context.after(() => void server.close());
  const { port } = server.address() as AddressInfo;
  return { asked, port };
}

const settingsFor = (port: number, permission: string) => `
providers:
  mine: { dialect: openai-chat, base_url: "http://127.0.0.1:${port}/v1" }
profiles:
  reviewer:
    model: mine/reviewing
    system_prompt: You review code.
    tools: ["read_*", write_file]
    permission: ${permission}
`;

describe("turns with a profile", { timeout: 30_000 }, () => {
  test("run with its model, prompt and functions, wherever it is named", async (context) => {
    const { asked, port } = await startUpstream(context);
    const { client } = await startTestApp(context, { settings: settingsFor(port, "read-only") });
    const whole = { model: "reviewing", system: "You review code.", tools: ["read_file", "write_file"] };
    const { sessionId } = await client.createSession({ model: "reviewer", systemPrompt: "of the session" });
    const other = await client.createSession({ model: "scripted/x" });
    const requests = [
      { model: "reviewer" },
      { options: { profile: "reviewer" } },
      { sessionId },
      { sessionId: other.sessionId, model: "reviewer" },
      { sessionId: other.sessionId, options: { profile: "reviewer" } },
    ];
    for (const request of requests) {
      const { finishReason, model } = await client.generate({ ...request, messages: [user("hi")] });
      assert.deepEqual([finishReason, model], ["stop", "mine/reviewing"], JSON.stringify(request));
      assert.deepEqual(asked.pop(), whole, JSON.stringify(request));
    }
    const allowedTools = ["write_file", "run_command"];
    await client.generate({ model: "reviewer", options: { allowedTools }, messages: [user("hi")] });
    assert.deepEqual(asked.pop()?.tools, ["write_file"]);
    await client.generate({ sessionId, model: "mine/plain", messages: [user("hi")] });
    const { system, tools } = asked.pop() ?? { system: "", tools: [""] };
    assert.deepEqual([system, tools.includes("run_command")], ["of the session", true]);
  });

  test("hold its permissions, and those of the session and the server", async (context) => {
    const { port } = await startUpstream(context);
    const settings = settingsFor(port, "{ mode: accept-edits, deny: [write_file(secret/**)] }");
    const { client, transport } = await startTestApp(context, { settings });
    const tools = createClient(ToolService, transport);
    const decided = async (path: string, permissions?: { mode: string; deny?: string[] }) => {
      const created = await client.createSession({ model: "reviewer", ...(permissions && { permissions }) });
      const { sessionId } = created;
      const given = { sessionId, name: "write_file", arguments: JSON.stringify({ path, content: "x" }) };
      const { decision, ruleSource } = await tools.checkPermission(given);
      return `${decision} ${ruleSource}`;
    };
    assert.equal(await decided("a"), "allow mode");
    assert.equal(await decided("secret/a"), "deny profile");
    assert.equal(await decided("a", { mode: "bypass" }), "allow mode");
    assert.equal(await decided("secret/a", { mode: "bypass" }), "deny profile");
    assert.equal(await decided("a", { mode: "ask" }), "ask mode");
    assert.equal(await decided("a", { mode: "read-only" }), "deny mode");
    assert.equal(await decided("a", { mode: "accept-edits", deny: ["write_file(a)"] }), "deny session");
  });

  test("are judged by its permissions", async (context) => {
    const { port } = await startUpstream(context);
    const { client } = await startTestApp(context, { settings: settingsFor(port, "read-only") });
    const { sessionId } = await client.createSession({});
    const results: string[] = [];
    for await (const { event } of client.streamGenerate({ sessionId, model: "reviewer", messages: [user("write")] }))
      if (event.case === "toolFinished") results.push(event.value.result?.error ?? "");
    assert.match(results.join(), /^denied by the policy: write_file may change something, and the mode is read-only$/);
  });

  test("are refused where nobody knows the profile, and fail where it is gone", async (context) => {
    const { asked, port } = await startUpstream(context);
    const settings = settingsFor(port, "ask");
    const without = settings.slice(0, settings.indexOf("profiles:"));
    const first = await startTestApp(context, { settings });
    for (const request of [{ model: "reviwer" }, { options: { profile: "reviwer" } }]) {
      const error = await first.client.generate({ ...request, messages: [user("hi")] }).then(
        () => assert.fail("it was admitted"),
        (thrown: unknown) => ConnectError.from(thrown),
      );
      assert.equal(error.code, Code.NotFound, JSON.stringify(request));
    }
    const { sessionId } = await first.client.createSession({});
    const waiting = first.client.streamGenerate({ sessionId, model: "reviewer", messages: [user("write")] });
    for await (const { event } of waiting) if (event.case === "requestOpened") break;
    const { requests } = await first.client.listPendingRequests({ sessionId });
    await first.app.close(0);
    await writeFile(join(first.folder, "codeagent.yaml"), without);
    const again = await startTestApp(context, {
      dataDir: first.dataDir,
      settings: without,
    });
    const before = asked.length;
    const requestId = requests[0]?.requestId ?? "";
    await again.client.respondToRequest({ sessionId, responses: [{ requestId, decision: "allow_once" }] });
    const ends: string[] = [];
    for await (const { event } of again.client.subscribeSession({ sessionId, follow: true })) {
      if (event.case !== "turnFinished") continue;
      ends.push(`${event.value.error?.reason} ${event.value.error?.message}`);
      break;
    }
    assert.match(ends.join(), /^PROFILE_GONE the turn was begun with the profile reviewer, which this server's/);
    assert.equal(asked.length, before);
  });

  test("a profile whose provider nobody knows keeps the server from starting", async (context) => {
    const settings = "profiles: { reviewer: { model: opnai/gpt } }";
    await assert.rejects(
      startTestApp(context, { settings }),
      /^Error: profiles.reviewer.model: the model "opnai\/gpt"/,
    );
    await assert.rejects(
      startTestApp(context, { settings: "profiles: { reviewer: { modl: a/b } }" }),
      /modl; is model/,
    );
  });
});
