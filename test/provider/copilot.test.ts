import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { copilot } from "../../src/provider/copilot.ts";
import { createCopilotCredentials } from "../../src/provider/copilot-credentials.ts";
import { endpointOf, isConfigured } from "../../src/provider/endpoint.ts";
import { createHttpSender } from "../../src/provider/http-request.ts";
import { defaultTimeouts, streamChat } from "../../src/provider/stream-chat.ts";
import { type GithubPlan, startFakeGithub } from "./fake-github.ts";
import { type Answer, agentError, hello, jsonAnswer, startUpstream, textOfEvents } from "./upstream.ts";

const githubToken = "gho_never_to_be_seen";
/** As the API refuses a token. */
const refusal: Answer = (_, response) => response.writeHead(401).end("unauthorized: token expired tid=a;exp=1\n");

/** Asks Copilot, played on loopback together with GitHub, for an answer to `hi`. */
async function ask(context: TestContext, answers: readonly Answer[], tokens: readonly string[]) {
  const github = await startFakeGithub(context);
  const upstream = await startUpstream(context, answers);
  const api = upstream.url.replace(/\/v1$/, "");
  const plans = tokens.map((token): GithubPlan => {
    return { json: { token: `tid=${token};exp=1`, refresh_in: 1500, endpoints: { api } } };
  });
  github.plan(...plans);
  const env = { COPILOT_GITHUB_TOKEN: githubToken, COPILOT_TOKEN_URL: github.url };
  const now = () => Date.UTC(2026, 0, 1);
  const sender = createHttpSender();
  context.after(() => sender.close());
  const credentials = createCopilotCredentials({ env, now });
  const endpoint = endpointOf(copilot, {}, { env, send: sender.send, now, credentials });
  assert.ok(isConfigured(endpoint));
  const means = { delay: async () => {}, random: () => 1, now, createToolCallId: () => "call_1" };
  let text = "";
  let error: unknown;
  try {
    const request = {
      model: "gpt-4.1",
      messages: [{ role: "user", blocks: [{ type: "text", text: "hi" }] }],
      tools: [],
      options: {},
    } as const;
    const signal = new AbortController().signal;
    for await (const events of streamChat(endpoint, request, signal, defaultTimeouts, means)) {
      text += textOfEvents(events);
    }
  } catch (thrown) {
    error = thrown;
  }
  return { text, error, requests: upstream.requests, trades: github.calls.length };
}

describe("copilot", { timeout: 20_000 }, () => {
  test("a call goes where GitHub says, with the traded token and the names the API wants", async (context) => {
    const { text, error, requests } = await ask(context, [hello], ["a"]);
    assert.deepEqual([text, error], ["Hello", undefined]);
    const [request] = requests;
    assert.equal(request?.url, "/chat/completions");
    assert.equal(request?.headers["authorization"], "Bearer tid=a;exp=1");
    for (const name of ["editor-version", "editor-plugin-version", "copilot-integration-id", "openai-intent"])
      assert.ok(request?.headers[name], name);
    assert.equal(request?.headers["x-initiator"], "user");
    assert.doesNotMatch(JSON.stringify(requests), /never_to_be_seen/);
  });

  test("a token the API refuses is traded anew, unseen by the caller", async (context) => {
    const { text, requests, trades } = await ask(context, [refusal, hello], ["a", "b"]);
    assert.equal(text, "Hello");
    assert.deepEqual(
      requests.map(({ headers }) => headers["authorization"]),
      ["Bearer tid=a;exp=1", "Bearer tid=b;exp=1"],
    );
    assert.equal(trades, 2);
  });

  test("a second refusal is told, without a token", async (context) => {
    const { error, requests } = await ask(context, [refusal, refusal], ["a", "b"]);
    assert.equal(agentError(error).kind, "provider_auth");
    assert.doesNotMatch(agentError(error).message, /tid=|never_to_be_seen/);
    assert.equal(requests.length, 2);
  });

  test("a limit is told with its wait and costs no other trade", async (context) => {
    const limit = jsonAnswer(429, { error: { message: "quota exceeded", code: "quota" } }, { "retry-after": "3600" });
    const { error, trades } = await ask(context, [limit], ["a"]);
    assert.deepEqual([agentError(error).kind, agentError(error).retryAfterMs, trades], ["rate_limited", 3_600_000, 1]);
  });
});
