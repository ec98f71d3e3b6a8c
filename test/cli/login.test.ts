import assert from "node:assert/strict";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { type DeviceCode, type DeviceLoginOptions, deviceLogin } from "../../src/cli/device-login.ts";
import { type GithubPlan, startFakeGithub } from "../provider/fake-github.ts";
import { runToEnd, start, temporaryFolder } from "./start-codeagent.ts";

const token = "gho_never_to_be_seen";
const code: GithubPlan = {
  json: {
    device_code: "device-1",
    user_code: "WDJB-MJHT",
    verification_uri: "https://github.com/login/device",
    expires_in: 900,
    interval: 5,
  },
};
const granted: GithubPlan = { json: { access_token: token, token_type: "bearer", scope: "read:user" } };
const pending: GithubPlan = { json: { error: "authorization_pending" } };

/** Logs in at a fake GitHub; time passes by waiting only. */
async function logIn(context: TestContext, plans: readonly GithubPlan[], more: Partial<DeviceLoginOptions> = {}) {
  const github = await startFakeGithub(context);
  github.plan(...plans);
  const shown: DeviceCode[] = [];
  const waits: number[] = [];
  let nowMs = 0;
  let result: string | Error;
  try {
    result = await deviceLogin({
      host: new URL(github.url),
      clientId: "app-1",
      show: (device) => void shown.push(device),
      signal: new AbortController().signal,
      delay: async (delayMs) => {
        waits.push(delayMs / 1000);
        nowMs += delayMs;
      },
      now: () => nowMs,
      ...more,
    });
  } catch (error) {
    assert.ok(error instanceof Error);
    result = error;
  }
  return { github, shown, waits, result };
}

function messageOf(result: string | Error): string {
  return result instanceof Error ? result.message : `logged in with ${result}`;
}

describe("a login by device code", { timeout: 20_000 }, () => {
  test("shows the code, polls as often as it may and gives the token", async (context) => {
    const { github, shown, waits, result } = await logIn(context, [code, pending, pending, granted]);
    assert.equal(result, token);
    assert.deepEqual(shown, [{ userCode: "WDJB-MJHT", url: "https://github.com/login/device", expiresInMs: 900_000 }]);
    assert.deepEqual(waits, [5, 5, 5]);
    assert.deepEqual(
      github.calls.map(({ method, path }) => `${method} ${path}`),
      ["POST /login/device/code", ...Array<string>(3).fill("POST /login/oauth/access_token")],
    );
    assert.deepEqual(github.calls[0]?.body, { client_id: "app-1", scope: "read:user" });
    assert.deepEqual(github.calls[1]?.body, {
      client_id: "app-1",
      device_code: "device-1",
      grant_type: "urn:ietf:params:oauth:grant-type:device_code",
    });
    assert.equal(github.calls[0]?.headers["accept"], "application/json");
  });

  const pauses: readonly { name: string; plan: GithubPlan; next: number }[] = [
    { name: "slow_down with a new interval", plan: { json: { error: "slow_down", interval: 12 } }, next: 12 },
    { name: "slow_down without one", plan: { json: { error: "slow_down" } }, next: 10 },
    { name: "slow_down beyond all measure", plan: { json: { error: "slow_down", interval: 1e9 } }, next: 60 },
    { name: "a server that is away", plan: { status: 502, json: {} }, next: 10 },
    { name: "a connection that breaks", plan: (response) => void response.destroy(), next: 10 },
  ];
  for (const { name, plan, next } of pauses) {
    test(`${name} lengthens the pause for good`, async (context) => {
      const { waits, result } = await logIn(context, [code, plan, pending, granted]);
      assert.equal(result, token);
      assert.deepEqual(waits, [5, next, next]);
    });
  }

  const ends: readonly { name: string; plans: readonly GithubPlan[]; words: RegExp }[] = [
    { name: "expired", plans: [code, { json: { error: "expired_token" } }], words: /not entered in time/ },
    { name: "expired, in GitHub's word", plans: [code, { json: { error: "token_expired" } }], words: /not entered/ },
    { name: "denied", plans: [code, { json: { error: "access_denied" } }], words: /refused in the browser/ },
    {
      name: "another error",
      plans: [code, { json: { error: "device_flow_disabled", error_description: "Not for this app" } }],
      words: /does not complete the login \(device_flow_disabled: Not for this app\)/,
    },
    { name: "no token and no error", plans: [code, { json: {} }], words: /\(HTTP 200\)/ },
    {
      name: "a token no header can carry",
      plans: [code, { json: { access_token: "a\nb" } }],
      words: /does not complete the login \(HTTP 200\)/,
    },
    { name: "no code", plans: [{ status: 404, json: {} }], words: /no code to log in with \(HTTP 404\); check --host/ },
    {
      name: "a redirect, which is not followed",
      plans: [{ status: 301, json: {}, headers: { location: "/elsewhere" } }],
      words: /HTTP 301/,
    },
    { name: "no server", plans: [(response) => void response.destroy()], words: /cannot be reached \(ECONNRESET\)/ },
  ];
  for (const { name, plans, words } of ends) {
    test(`${name}: ends with a sentence`, async (context) => {
      const { result } = await logIn(context, plans);
      assert.match(messageOf(result), words);
      assert.doesNotMatch(messageOf(result), /device-1|never_to_be_seen/);
    });
  }

  test("a code nobody enters ends by our own clock", async (context) => {
    const short = { json: { device_code: "d", user_code: "u", expires_in: 12 } };
    const { waits, shown, result } = await logIn(context, [short, pending, pending]);
    assert.match(messageOf(result), /not entered in time/);
    assert.deepEqual(waits, [5, 5, 5]);
    assert.match(String(shown[0]?.url), /^http:\/\/127\.0\.0\.1:\d+\/login\/device$/);
  });

  test("an address to open that is no web page is not shown", async (context) => {
    const odd = { json: { device_code: "d", user_code: "u", verification_uri: "javascript:alert(1)" } };
    const { shown } = await logIn(context, [odd, granted]);
    assert.match(String(shown[0]?.url), /^http:\/\/127\.0\.0\.1:\d+\/login\/device$/);
  });

  test("giving up ends the wait, and a request under way", async (context) => {
    const stop = new AbortController();
    const waiting = await logIn(context, [code], {
      signal: stop.signal,
      delay: async () => stop.abort(new Error("given up")),
    });
    assert.equal(messageOf(waiting.result), "given up");

    const github = await startFakeGithub(context);
    github.plan(() => {});
    const other = new AbortController();
    const asking = deviceLogin({
      host: new URL(github.url),
      clientId: "app-1",
      show: () => {},
      signal: other.signal,
      delay: async () => {},
      now: () => 0,
    });
    await github.called(1);
    other.abort(new Error("given up"));
    await assert.rejects(asking, /given up/);
    await github.hungUp();
  });

  test("a server that hangs is left at the limit", async (context) => {
    const { result } = await logIn(context, [() => {}], { limitMs: 100 });
    assert.match(messageOf(result), /did not answer within 100 ms/);
  });
});

describe("codeagent login and logout", { timeout: 60_000, concurrency: 2 }, () => {
  const quick: GithubPlan = { json: { device_code: "device-1", user_code: "WDJB-MJHT", interval: 1 } };

  test("keep the login for its owner alone, say where, and remove it", async (context) => {
    const folder = temporaryFolder(context);
    const github = await startFakeGithub(context);
    github.plan(quick, granted);
    const login = await runToEnd(context, ["login", "copilot", "--host", github.url], { folder });
    assert.deepEqual([login.exit, login.stderr], [0, ""]);
    const file = join(folder, "data", "logins", "copilot.json");
    assert.match(login.stdout, /^Open http:\S+\/login\/device in a browser and enter the code WDJB-MJHT$/m);
    assert.ok(login.stdout.includes(`the login is kept in ${file},`));
    assert.match(login.stdout, /codeagent run --model copilot\//);
    assert.doesNotMatch(login.stdout, /never_to_be_seen|COPILOT_GITHUB_TOKEN/);
    assert.deepEqual(JSON.parse(readFileSync(file, "utf8")), { host: github.url, github_token: token });
    assert.equal(statSync(file).mode & 0o777, 0o600);
    assert.equal(statSync(join(folder, "data", "logins")).mode & 0o777, 0o700);
    assert.deepEqual(readdirSync(join(folder, "data", "logins")), ["copilot.json"]);

    const logout = await runToEnd(context, ["logout", "copilot"], { folder });
    assert.deepEqual([logout.exit, logout.stderr], [0, ""]);
    assert.match(logout.stdout, /^Logged out here\./);
    assert.deepEqual(readdirSync(join(folder, "data", "logins")), []);
    const env = { COPILOT_GITHUB_TOKEN: token };
    const again = await runToEnd(context, ["logout", "copilot"], { folder, env });
    assert.equal(again.exit, 0);
    assert.match(again.stdout, /^There was no login\.\nCOPILOT_GITHUB_TOKEN is set and wins over a login/);
  });

  test("Ctrl-C gives up and leaves nothing behind", async (context) => {
    const folder = temporaryFolder(context);
    const github = await startFakeGithub(context);
    github.plan({ json: { device_code: "device-1", user_code: "WDJB-MJHT", interval: 60 } });
    const login = start(context, ["login", "copilot", "--host", github.url], { folder });
    await login.seen("stdout", /Waiting for that/);
    login.child.kill("SIGINT");
    assert.equal(await login.ended, 1);
    assert.equal(login.stderr(), "codeagent: the login was given up; nothing has changed\n");
    assert.deepEqual(readdirSync(join(folder, "data", "logins")), []);
  });

  const mistakes: readonly { name: string; words: readonly string[]; said: RegExp }[] = [
    { name: "no provider", words: ["login"], said: /missing required argument 'provider'/ },
    { name: "a provider without logins", words: ["login", "openai"], said: /Allowed choices are copilot/ },
    {
      name: "a host in the clear",
      words: ["login", "copilot", "--host", "http://company.example"],
      said: /--host is "http:\/\/company\.example": a name like company\.ghe\.com is wanted/,
    },
    { name: "a host that is none", words: ["login", "copilot", "--host", "a b"], said: /--host is "a b"/ },
  ];
  for (const { name, words, said } of mistakes) {
    test(`${name} is told`, async (context) => {
      const { exit, stderr } = await runToEnd(context, words, { folder: temporaryFolder(context) });
      assert.equal(exit, 1);
      assert.match(stderr, said);
    });
  }

  test("a place where nothing can be kept is told before anybody is asked to log in", async (context) => {
    const folder = temporaryFolder(context);
    const github = await startFakeGithub(context);
    const env = { CODEAGENT_DATA_DIR: "/dev/null/data" };
    const { exit, stderr } = await runToEnd(context, ["login", "copilot", "--host", github.url], { folder, env });
    assert.equal(exit, 1);
    assert.match(stderr, /data_dir: .* can't be made/);
    assert.equal(github.calls.length, 0);
  });
});
