import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import type { Message } from "../../src/chat/message.ts";
import { copilotHeaders } from "../../src/provider/copilot.ts";
import { type CopilotCredentialsOptions, createCopilotCredentials } from "../../src/provider/copilot-credentials.ts";
import { copilotLoginFile, readCopilotLogin, tokenUrlOf, writeCopilotLogin } from "../../src/provider/copilot-login.ts";
import type { Credential } from "../../src/provider/credentials.ts";
import { type GithubPlan, startFakeGithub } from "./fake-github.ts";
import { agentError } from "./upstream.ts";

const githubToken = "gho_never_to_be_seen";
const startMs = Date.UTC(2026, 0, 1);
const never = new AbortController().signal;

/** A token that lives for half an hour. */
function tokenNamed(name: string, more: object = {}): GithubPlan {
  const api = "https://api.business.githubcopilot.com";
  const json = {
    token: `tid=${name}`,
    expires_at: startMs / 1000 + 1800,
    refresh_in: 1500,
    endpoints: { api },
    ...more,
  };
  return { json };
}

function nameOf(credential: Credential): string | undefined {
  return credential.headers["authorization"]?.replace("Bearer tid=", "");
}

async function setUp(context: TestContext, more: Partial<CopilotCredentialsOptions> = {}) {
  const github = await startFakeGithub(context);
  const clock = { nowMs: startMs };
  const tokenUrl = `${github.url}/copilot_internal/v2/token`;
  const credentials = createCopilotCredentials({
    now: () => clock.nowMs,
    ...more,
    env: { COPILOT_GITHUB_TOKEN: githubToken, COPILOT_TOKEN_URL: tokenUrl, ...more.env },
  });
  const failure = async (signal = never) =>
    agentError(
      await credentials.take(signal).then(
        () => undefined,
        (error: unknown) => error,
      ),
    );
  return { github, clock, credentials, failure, taken: async () => nameOf(await credentials.take(never)) };
}

function loginFolder(context: TestContext) {
  const dataDir = mkdtempSync(join(tmpdir(), "codeagent-login-"));
  context.after(() => rmSync(dataDir, { recursive: true, force: true }));
  const file = copilotLoginFile(dataDir);
  mkdirSync(dirname(file));
  return { dataDir, file };
}

describe("credentials of Copilot", { timeout: 20_000 }, () => {
  test("trade the GitHub token for one that goes to the address GitHub names", async (context) => {
    const { github, credentials } = await setUp(context);
    github.plan(tokenNamed("a;exp=1:mac"));
    const credential = await credentials.take(never);
    assert.equal(credential.baseUrl?.href, "https://api.business.githubcopilot.com/");
    assert.deepEqual(credential.headers, { authorization: "Bearer tid=a;exp=1:mac" });
    assert.ok(credential.secrets.includes("tid=a;exp=1:mac") && credential.secrets.includes(githubToken));
    const [call] = github.calls;
    assert.deepEqual([call?.method, call?.path], ["GET", "/copilot_internal/v2/token"]);
    assert.equal(call?.headers["authorization"], `token ${githubToken}`);
    assert.match(String(call?.headers["editor-version"]), /\/\d/);
  });

  test("name the operator's address of the API, and none where nobody does", async (context) => {
    const own = await setUp(context, { env: { COPILOT_BASE_URL: "https://gateway.example/copilot" } });
    own.github.plan(tokenNamed("a"));
    assert.equal((await own.credentials.take(never)).baseUrl?.href, "https://gateway.example/copilot");
    const nobody = await setUp(context);
    nobody.github.plan(tokenNamed("a", { endpoints: undefined }));
    assert.equal("baseUrl" in (await nobody.credentials.take(never)), false);
  });

  const lives = [
    { name: "as soon as GitHub wants", more: { refresh_in: 600 }, goodMs: 599_000, renewedMs: 600_000 },
    { name: "five minutes before its end", more: { refresh_in: 9999 }, goodMs: 1_499_000, renewedMs: 1_500_000 },
    {
      name: "five minutes before its end, untold",
      more: { refresh_in: null },
      goodMs: 1_499_000,
      renewedMs: 1_500_000,
    },
    {
      name: "in the last fifth of a short life",
      more: { expires_at: startMs / 1000 + 10 },
      goodMs: 7_900,
      renewedMs: 8_000,
    },
    {
      name: "by GitHub's seconds where our clock is ahead",
      more: { expires_at: startMs / 1000 - 60, refresh_in: 1500 },
      goodMs: 1_499_000,
      renewedMs: 1_500_000,
    },
    {
      name: "after ten minutes where nothing is told",
      more: { expires_at: "soon", refresh_in: null },
      goodMs: 599_000,
      renewedMs: 600_000,
    },
  ];
  for (const { name, more, goodMs, renewedMs } of lives) {
    test(`renew a token ${name}`, async (context) => {
      const { github, clock, taken } = await setUp(context);
      github.plan(tokenNamed("a", more));
      assert.equal(await taken(), "a");
      clock.nowMs = startMs + goodMs;
      assert.equal(await taken(), "a");
      clock.nowMs = startMs + renewedMs;
      github.plan(tokenNamed("b", { expires_at: startMs / 1000 + 9999 }));
      assert.equal(await taken(), "b");
    });
  }

  test("a token that is still good is used while GitHub is away, and no longer", async (context) => {
    const { github, clock, taken, failure } = await setUp(context);
    github.plan(tokenNamed("a"));
    assert.equal(await taken(), "a");
    clock.nowMs = startMs + 1_600_000;
    github.plan({ status: 502, json: {} });
    assert.deepEqual([await taken(), await taken()], ["a", "a"]);
    clock.nowMs = startMs + 1_800_000;
    github.plan({ status: 502, json: {} });
    assert.equal((await failure()).kind, "provider_unavailable");
  });

  test("all calls that wait share one trade", async (context) => {
    const { github, taken } = await setUp(context);
    github.plan(tokenNamed("a"));
    assert.deepEqual(await Promise.all([taken(), taken(), taken()]), ["a", "a", "a"]);
    assert.equal(github.calls.length, 1);
  });

  test("one call given up leaves the trade to the others; the last one stops it", async (context) => {
    const { github, credentials, taken } = await setUp(context);
    let answer: (() => void) | undefined;
    github.plan((response) => {
      answer = () => response.end(JSON.stringify({ token: "tid=a", expires_at: 0, refresh_in: 1500 }));
    });
    const first = new AbortController();
    const both = [credentials.take(first.signal), credentials.take(never)] as const;
    await github.called(1);
    first.abort(new Error("first given up"));
    await assert.rejects(both[0], /first given up/);
    answer?.();
    assert.equal(nameOf(await both[1]), "a");

    credentials.refused(await both[1]);
    github.plan(() => {});
    const last = new AbortController();
    const alone = credentials.take(last.signal);
    await github.called(2);
    last.abort(new Error("last given up"));
    await assert.rejects(alone, /last given up/);
    await github.hungUp();
    github.plan(tokenNamed("b"));
    assert.equal(await taken(), "b");
  });

  test("a refused token is replaced once; the next refusal is the call's end", async (context) => {
    const { github, clock, credentials } = await setUp(context);
    github.plan(tokenNamed("a"), tokenNamed("b"), tokenNamed("c"), tokenNamed("d"));
    const first = await credentials.take(never);
    assert.deepEqual([credentials.refused(first), credentials.refused(first)], [startMs, startMs]);
    const second = await credentials.take(never);
    assert.equal(nameOf(second), "b");
    assert.equal(credentials.refused(second), undefined);
    // A later call begins anew, but is not tried twice while nothing works.
    const third = await credentials.take(never);
    assert.equal(nameOf(third), "c");
    assert.equal(credentials.refused(third), undefined);
    clock.nowMs += 61_000;
    const fourth = await credentials.take(never);
    assert.equal(nameOf(fourth), "d");
    assert.equal(credentials.refused(fourth), clock.nowMs);
  });

  test("a replaced token that worked for long is replaced again", async (context) => {
    const { github, clock, credentials } = await setUp(context);
    github.plan(tokenNamed("a"), tokenNamed("b"));
    assert.equal(credentials.refused(await credentials.take(never)), startMs);
    const second = await credentials.take(never);
    clock.nowMs += 600_000;
    assert.equal(credentials.refused(second), clock.nowMs);
  });

  test("a limit of the API is not evaded", async (context) => {
    const { github, credentials } = await setUp(context);
    github.plan(tokenNamed("a"));
    assert.equal(credentials.limited(await credentials.take(never), startMs + 1000), undefined);
  });

  const told = "No access to GitHub Copilot found.";
  const failures: readonly { name: string; plan: GithubPlan; kind: string; words: RegExp; retryAfterMs?: number }[] = [
    ...[401, 403, 404].map((status) => ({
      name: `HTTP ${status}`,
      plan: { status, json: { message: `Bad credentials ${githubToken}` } },
      kind: "provider_auth",
      words: new RegExp(`HTTP ${status} to the login \\("Bad credentials \\*{3}"\\): .*codeagent login copilot`),
    })),
    {
      name: "no subscription",
      plan: { status: 403, json: { error_details: { message: told }, message: "Resource not accessible" } },
      kind: "provider_auth",
      words: /"No access to GitHub Copilot found\.".*has no Copilot subscription/,
    },
    {
      name: "403 for too many requests",
      plan: {
        status: 403,
        json: { message: "API rate limit exceeded for user ID 1." },
        headers: { "x-ratelimit-reset": String(startMs / 1000 + 90) },
      },
      kind: "rate_limited",
      words: /asked too often/,
      retryAfterMs: 90_000,
    },
    {
      name: "429",
      plan: { status: 429, json: {}, headers: { "retry-after": "7" } },
      kind: "rate_limited",
      words: /HTTP 429/,
      retryAfterMs: 7000,
    },
    { name: "503", plan: { status: 503, json: {} }, kind: "provider_unavailable", words: /HTTP 503/ },
    {
      name: "a broken connection",
      plan: (response) => void response.destroy(),
      kind: "provider_unavailable",
      words: /127\.0\.0\.1:\d+ cannot be reached \(ECONNRESET\)/,
    },
    {
      name: "an answer that breaks off",
      plan: (response) => void response.writeHead(200, { "content-length": 99 }).write("{", () => response.destroy()),
      kind: "provider_unavailable",
      words: /cannot be reached/,
    },
    {
      name: "a redirect",
      plan: { status: 302, json: {}, headers: { location: "/elsewhere" } },
      kind: "provider_protocol",
      words: /HTTP 302.*not followed/,
    },
    { name: "no token", plan: { json: { expires_at: 1 } }, kind: "provider_protocol", words: /without a token/ },
    {
      name: "a token no header can carry",
      plan: { json: { token: "a\r\nb" } },
      kind: "provider_protocol",
      words: /without a token/,
    },
    {
      name: "an answer that is not JSON",
      plan: (response) => void response.end("<html>"),
      kind: "provider_protocol",
      words: /without a token/,
    },
    {
      name: "an answer without end",
      plan: (response) => void response.end("x".repeat(300_000)),
      kind: "provider_protocol",
      words: /longer than 262144 bytes/,
    },
    {
      name: "an address in the clear",
      plan: tokenNamed("a", { endpoints: { api: "http://api.githubcopilot.com" } }),
      kind: "provider_protocol",
      words: /no https: URL/,
    },
  ];
  for (const { name, plan, kind, words, retryAfterMs } of failures) {
    test(`${name}: ${kind}, without a token in the words`, async (context) => {
      const { github, failure } = await setUp(context);
      github.plan(plan);
      const error = await failure();
      assert.equal(error.kind, kind);
      assert.match(error.message, words);
      assert.equal(error.retryAfterMs, retryAfterMs);
      assert.equal(error.detail.provider, "copilot");
      assert.equal(error.detail.retryable, kind === "rate_limited" || kind === "provider_unavailable");
      assert.doesNotMatch(`${error.message} ${error.stack} ${JSON.stringify(error)}`, /never_to_be_seen|tid=/);
    });
  }

  test("nobody at the address", async (context) => {
    const server = createServer();
    await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
    const address = server.address();
    assert.ok(typeof address === "object" && address !== null);
    await new Promise((closed) => server.close(closed));
    const { failure } = await setUp(context, { env: { COPILOT_TOKEN_URL: `http://127.0.0.1:${address.port}/` } });
    const error = await failure();
    assert.equal(error.kind, "provider_unavailable");
    assert.match(error.message, /127\.0\.0\.1:\d+ cannot be reached \(ECONNREFUSED\)/);
  });

  for (const [name, plan] of [
    ["before its head", () => {}],
    ["in its body", (response) => void response.writeHead(200).write("{")],
  ] as const satisfies readonly (readonly [string, GithubPlan])[]) {
    test(`an answer that hangs ${name} ends at the limit`, async (context) => {
      const { github, failure } = await setUp(context, { limitMs: 100 });
      github.plan(plan);
      const error = await failure();
      assert.equal(error.kind, "provider_unavailable");
      assert.match(error.message, /did not answer within 100 ms/);
      await github.hungUp();
    });
  }

  test("an answer that hangs ends with the call", async (context) => {
    const { github, credentials } = await setUp(context);
    github.plan(() => {});
    const call = new AbortController();
    const taking = credentials.take(call.signal);
    await github.called(1);
    call.abort(new Error("the call was cancelled"));
    await assert.rejects(taking, /the call was cancelled/);
    await github.hungUp();
    await assert.rejects(credentials.take(call.signal), /the call was cancelled/);
  });

  const incomplete: readonly { name: string; env: Record<string, string>; words: RegExp }[] = [
    { name: "no login", env: {}, words: /has no login; run `codeagent login copilot`/ },
    { name: "a torn token", env: { COPILOT_GITHUB_TOKEN: "a b" }, words: /correct COPILOT_GITHUB_TOKEN/ },
    {
      name: "an address of the API in the clear",
      env: { COPILOT_GITHUB_TOKEN: githubToken, COPILOT_BASE_URL: "http://api.example" },
      words: /no https: URL; correct COPILOT_BASE_URL/,
    },
    {
      name: "an address of the trade in the clear",
      env: { COPILOT_GITHUB_TOKEN: githubToken, COPILOT_TOKEN_URL: "http://127.0.0.1.example/" },
      words: /no https: URL; correct COPILOT_TOKEN_URL/,
    },
  ];
  for (const { name, env, words } of incomplete) {
    test(`${name} is told before anything is sent`, async () => {
      const credentials = createCopilotCredentials({ env, now: () => startMs });
      assert.match(String(credentials.missing()), words);
      await assert.rejects(credentials.take(never), { kind: "failed_precondition", message: words });
    });
  }
});

describe("the login of the data directory", { timeout: 20_000 }, () => {
  const host = new URL("https://github.com");

  test("is used, and a change of it counts from the next call on", async (context) => {
    const { dataDir, file } = loginFolder(context);
    const { github, credentials, taken } = await setUp(context, { dataDir, env: { COPILOT_GITHUB_TOKEN: " " } });
    assert.match(String(credentials.missing()), /has no login/);
    writeCopilotLogin(file, { host, githubToken: "gho_first" });
    assert.equal(credentials.missing(), undefined);
    github.plan(tokenNamed("a"), tokenNamed("b"));
    assert.deepEqual([await taken(), await taken()], ["a", "a"]);
    writeCopilotLogin(file, { host, githubToken: "gho_other" });
    assert.equal(await taken(), "b");
    rmSync(file);
    await assert.rejects(taken(), { kind: "failed_precondition" });
    assert.deepEqual(
      github.calls.map(({ headers }) => headers["authorization"]),
      ["token gho_first", "token gho_other"],
    );
  });

  test("is read again when GitHub refuses it", async (context) => {
    const { dataDir, file } = loginFolder(context);
    const { github, taken } = await setUp(context, { dataDir, env: { COPILOT_GITHUB_TOKEN: "" } });
    writeCopilotLogin(file, { host, githubToken: "gho_first" });
    github.plan((response) => {
      writeCopilotLogin(file, { host, githubToken: "gho_other" });
      response.writeHead(401).end("{}");
    }, tokenNamed("b"));
    assert.equal(await taken(), "b");
    assert.equal(await taken(), "b");
  });

  test("is for its owner alone, whole or not there, and nothing else is taken for one", (context) => {
    const { file } = loginFolder(context);
    writeFileSync(`${file}.${process.pid}.new`, "left behind", { mode: 0o644 });
    writeCopilotLogin(file, { host, githubToken });
    assert.equal(statSync(file).mode & 0o777, 0o600);
    assert.deepEqual(readdirSync(dirname(file)), ["copilot.json"]);
    assert.deepEqual(readCopilotLogin(file), { host, githubToken });
    for (const text of [
      "",
      "null",
      '{"host":"https://github.com"}',
      '{"host":"http://github.com","github_token":"a"}',
      '{"host":"https://github.com","github_token":"a b"}',
    ]) {
      writeFileSync(file, text);
      assert.equal(readCopilotLogin(file), undefined, text);
    }
  });

  test("goes to the API of the host it was made at", () => {
    assert.equal(tokenUrlOf(host).href, "https://api.github.com/copilot_internal/v2/token");
    const enterprise = tokenUrlOf(new URL("https://company.ghe.com"));
    assert.equal(enterprise.href, "https://api.company.ghe.com/copilot_internal/v2/token");
    assert.equal(tokenUrlOf(new URL("http://127.0.0.1:8080")).host, "127.0.0.1:8080");
  });
});

describe("headers of a request to Copilot", () => {
  const prompt: Message = { role: "user", blocks: [{ type: "text", text: "hi" }] };
  const call: Message = { role: "assistant", blocks: [{ type: "tool_use", id: "1", name: "look", input: "{}" }] };
  const result = { type: "tool_result", toolUseId: "1", content: "seen" } as const;
  const image = { type: "image", url: "data:image/png;base64,AA==" } as const;
  const user = { "x-initiator": "user" };
  const agent = { "x-initiator": "agent" };
  const vision = { "copilot-vision-request": "true" };
  const cases: readonly { name: string; messages: readonly Message[]; headers: object }[] = [
    { name: "a prompt", messages: [prompt], headers: user },
    { name: "a second prompt", messages: [prompt, call, { role: "tool", blocks: [result] }, prompt], headers: user },
    { name: "tool results", messages: [prompt, call, { role: "tool", blocks: [result] }], headers: agent },
    { name: "tool results from a user", messages: [prompt, call, { role: "user", blocks: [result] }], headers: agent },
    { name: "an answer to go on with", messages: [prompt, call], headers: agent },
    {
      name: "instructions after a prompt",
      messages: [prompt, { role: "system", blocks: [{ type: "text", text: "be short" }] }],
      headers: user,
    },
    { name: "an image", messages: [{ role: "user", blocks: [image] }], headers: { ...user, ...vision } },
    {
      name: "an image in tool results",
      messages: [prompt, call, { role: "tool", blocks: [{ ...result, parts: [image] }] }],
      headers: { ...agent, ...vision },
    },
  ];
  for (const { name, messages, headers } of cases) {
    test(name, () => {
      assert.deepEqual(copilotHeaders({ model: "gpt-4.1", messages, tools: [], options: {} }), headers);
    });
  }
});
