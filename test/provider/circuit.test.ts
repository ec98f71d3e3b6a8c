import assert from "node:assert/strict";
import { test } from "node:test";
import { Circuits } from "../../src/provider/circuit.ts";
import { createProviderRegistry } from "../../src/provider/registry.ts";
import { type Answer, agentError, eventStream, hello, helloText, jsonAnswer, key, startUpstream } from "./upstream.ts";

const broken = jsonAnswer(503, { error: { message: "down" } });
const rejected = jsonAnswer(400, { error: { message: "no" } });
const limited = jsonAnswer(429, { error: { message: "slow down" } });
const cut: Answer = (_, response) =>
  response.writeHead(200, eventStream).end(helloText.slice(0, helloText.indexOf("\n\n") + 2));
const threeTimes = (answer: Answer) => [answer, answer, answer];

test("a model that gives no answer again and again is left alone; what shows that it lives does not count", async (context) => {
  const upstream = await startUpstream(context, [
    ...threeTimes(broken),
    cut,
    ...threeTimes(broken),
    rejected,
    ...threeTimes(broken),
    ...threeTimes(limited),
    ...threeTimes(broken),
    ...threeTimes(broken),
    hello,
    hello,
  ]);
  let nowMs = 1_000_000;
  const registry = createProviderRegistry({
    env: { FORWARD_BASE_URL: upstream.url, FORWARD_API_KEY: key },
    settings: { circuit: { failures: 2, openMs: 10_000 } },
    delay: async () => undefined,
    now: () => nowMs,
  });
  context.after(() => registry.close());
  const ask = async (model: string): Promise<string> => {
    const messages = [{ role: "user", blocks: [{ type: "text", text: "hi" }] }] as const;
    const request = { model: "", messages, tools: [], options: {} };
    const { signal } = new AbortController();
    try {
      for await (const _ of registry.streamChat(registry.resolve(model), request, { signal }));
      return "answered";
    } catch (error) {
      const { kind, retryAfterMs = 0 } = agentError(error);
      return `${kind} ${retryAfterMs}`;
    }
  };
  const down = "provider_unavailable 0";
  assert.equal(await ask("forward/a"), down);
  assert.equal(await ask("forward/a"), down, "the cut answer");
  assert.equal(await ask("forward/a"), down);
  assert.equal(await ask("forward/a"), "provider_rejected 0");
  assert.equal(await ask("forward/a"), down);
  assert.match(await ask("forward/a"), /^rate_limited/);
  assert.equal(await ask("forward/a"), down);
  assert.equal(await ask("forward/a"), down);
  assert.equal(await ask("forward/a"), "provider_unavailable 10000");
  assert.equal(upstream.requests.length, 20, "nobody was asked");
  assert.equal(registry.refusal(registry.resolve("forward/a"))?.kind, "provider_unavailable");
  assert.equal(await ask("forward/b"), "answered");
  nowMs += 10_000;
  assert.equal(await ask("forward/a"), "answered");
});

test("what opens a circuit, what closes it, and how long it stays open", () => {
  let nowMs = 0;
  const circuits = new Circuits({ failures: 3, openMs: 1000 }, () => nowMs);
  const call = (how: "answered" | "failed" | "leftAlone") => circuits.begin("p", "m")[how]();
  const refusal = () => circuits.refusal("p", "m");

  call("failed");
  call("failed");
  call("answered");
  call("failed");
  call("failed");
  call("leftAlone");
  assert.equal(refusal(), undefined, "an answer between begins the count anew");
  const late = circuits.begin("p", "m");
  call("failed");
  assert.equal(refusal()?.retryAfterMs, 1000);
  assert.match(refusal()?.message ?? "", /p gave no answer 3 times in a row for m; it is asked again in 1 s/);
  assert.equal(circuits.refusal("p", "other"), undefined, "it is the model's, not the provider's");
  late.failed();
  assert.equal(refusal()?.retryAfterMs, 1000, "calls that were under way change nothing");

  nowMs = 1000;
  assert.equal(refusal(), undefined);
  const probe = circuits.begin("p", "m");
  assert.equal(refusal()?.retryAfterMs, 1000, "one call finds out, the others wait");
  probe.failed();
  nowMs = 2000;
  assert.equal(refusal()?.retryAfterMs, 1000, "twice as long the second time");
  nowMs = 3000;
  circuits.begin("p", "m").leftAlone();
  assert.equal(refusal(), undefined, "a call that was given up says nothing");
  circuits.begin("p", "m").answered();
  call("failed");
  call("failed");
  assert.equal(refusal(), undefined);
  call("failed");
  assert.equal(refusal()?.retryAfterMs, 1000);
});

test("no circuit opens where none is wanted", () => {
  const circuits = new Circuits({ failures: 0, openMs: 1000 }, () => 0);
  for (let count = 0; count < 100; count++) circuits.begin("p", "m").failed();
  assert.equal(circuits.refusal("p", "m"), undefined);
});
