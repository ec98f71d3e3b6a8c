import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { createClient } from "@connectrpc/connect";
import { type PlanEvent, PlanService } from "../../gen/codeagent/v1/plan_service_pb.ts";
import { createCodeAgentClient } from "../../sdk/index.ts";
import { executionEvents } from "../../src/cli/plan-events.ts";
import { startCuttingProxy } from "../sdk/cutting-proxy.ts";
import { startTestApp } from "../support/test-app.ts";

const script = `
- { text: "one word after the other, and none of them twice", chunk: 4, delay_ms: 2 }
`;
const steps = [
  {
    id: "each",
    kind: "for_each",
    details: {
      case: "forEach" as const,
      value: { items: "[1,2,3,4,5,6]", steps: [{ id: "list", kind: "function_call", function: "list_files" }] },
    },
  },
  {
    id: "say",
    kind: "model",
    dependsOn: ["each"],
    details: { case: "model" as const, value: { prompt: "say it" } },
  },
];
const asks = {
  id: "ask",
  kind: "user_input",
  dependsOn: ["say"],
  details: {
    case: "userInput" as const,
    value: { prompt: "go on?", schema: '{"type":"object","properties":{"why":{"type":"string"}}}' },
  },
};

async function start(context: TestContext, host: string, dataDir?: string) {
  const flags = { allowed_hosts: host };
  const sample = await startTestApp(context, { script, flags, ...(dataDir === undefined ? {} : { dataDir }) });
  return { ...sample, port: Number(new URL(sample.app.url).port), plans: createClient(PlanService, sample.transport) };
}

function checkWhole(events: readonly PlanEvent[]): void {
  const recorded = events.filter(({ seq }) => seq > 0n);
  assert.deepEqual(
    recorded.map(({ seq }) => Number(seq)),
    recorded.map((_, index) => index + 1),
  );
  assert.equal(recorded[0]?.event.case, "started");
  const last = recorded.at(-1)?.event;
  assert.ok(last?.case === "finished" && last.value.state === "completed");
  const said = recorded.flatMap(({ event }) => (event.case === "stepOutput" ? [event.value.text] : []));
  assert.equal(said.join(""), "one word after the other, and none of them twice");
}

for (const cuts of [[0], [700], [1500], [300, 900, 0, 1400], [2500, 2500]]) {
  test(`an execution is followed over connections that are cut after ${cuts.join(", ")} bytes`, async (context) => {
    await using proxy = await startCuttingProxy();
    const { plans, client, port } = await start(context, proxy.host);
    proxy.target = port;
    proxy.plan(cuts);
    const { id: planId } = await plans.createPlan({ plan: { goal: "g", requirement: "r", steps } });
    using cut = createCodeAgentClient({ baseUrl: proxy.url });
    const events: PlanEvent[] = [];
    for await (const event of executionEvents(cut, { planId, requestId: "once" }, AbortSignal.timeout(20_000)))
      events.push(event);
    assert.equal(proxy.cuts, cuts.length);
    checkWhole(events);
    assert.equal((await client.listSessions({})).sessions.length, 1, "it ran once");
  });
}

test("an execution is followed over a restart of the server", async (context) => {
  await using proxy = await startCuttingProxy();
  const first = await start(context, proxy.host);
  proxy.target = first.port;
  const plan = { goal: "g", requirement: "r", steps: [...steps, asks] };
  const { id: planId } = await first.plans.createPlan({ plan });
  using cut = createCodeAgentClient({ baseUrl: proxy.url });
  const events: PlanEvent[] = [];
  for await (const event of executionEvents(cut, { planId, requestId: "once" }, AbortSignal.timeout(20_000))) {
    events.push(event);
    if (event.event.case !== "inputRequested") continue;
    await first.app.close(0);
    const second = await start(context, proxy.host, first.dataDir);
    proxy.target = second.port;
    await second.plans.submitPlanInput({ planId, stepId: "ask", values: "{}" });
  }
  checkWhole(events);
});
