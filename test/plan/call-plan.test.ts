import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { setImmediate as nextMoment } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import type { GenerateChunk, GenerateOptionsSchema } from "../../gen/codeagent/v1/code_agent_pb.ts";
import { PlanService } from "../../gen/codeagent/v1/plan_service_pb.ts";
import { ToolService } from "../../gen/codeagent/v1/tool_service_pb.ts";
import { planFunctionNames } from "../../src/tool/plan-functions.ts";
import { call, providerAt, says, text } from "../provider/answers.ts";
import { type Answer, startUpstream } from "../provider/upstream.ts";
import { readAlong } from "../support/read-along.ts";
import { startTestApp, type TestAppOptions, user } from "../support/test-app.ts";

const reads = { id: "read", kind: "function_call", function: "read_file", parameters: { path: "README.md" } };
const good = { goal: "It is read.", success_criteria: [], complexity: "simple", steps: [reads] };
const bad = { ...good, steps: [{ ...reads, function: "read_mind" }] };
const failing = { ...good, steps: [{ ...reads, parameters: { path: "gone.md" } }] };
const form = { prompt: "Which file?", schema: { type: "object", properties: { path: { type: "string" } } } };
const asking = {
  ...good,
  steps: [
    { id: "ask", kind: "user_input", user_input: form },
    { ...reads, depends_on: ["ask"], parameters: { path: { ref: "step.ask.result.path" } } },
  ],
};

const talks = (words: string): Answer => says("openai-chat", [text(words)]);
const writes = (plan: object): Answer => talks(JSON.stringify(plan));
const calls = (id: string, name: string, given: object): Answer =>
  says("openai-chat", [call(id, name, JSON.stringify(given))]);
const creates = calls("c1", "create_plan", { requirement: "Read the README." });
/** Runs the plan that it was told of last. */
const runs: Answer = (request, response, body) => {
  const planId = [...body.matchAll(/plan_[0-9a-f]{32}/g)].at(-1)?.[0] ?? "";
  calls("c2", "run_plan", { plan_id: planId })(request, response, body);
};

interface Sent {
  readonly tools: readonly string[];
  readonly choice: unknown;
  readonly system: string;
}

function sentIn(body: string): Sent {
  const { tools = [], tool_choice: choice, messages } = JSON.parse(body);
  return {
    tools: tools.map((tool: { function: { name: string } }) => tool.function.name),
    choice: typeof choice === "object" ? choice.function.name : choice,
    system: messages[0].content,
  };
}

type Options = MessageInitShape<typeof GenerateOptionsSchema>;

async function start(context: TestContext, answers: readonly Answer[], options: TestAppOptions = {}) {
  const upstream = await startUpstream(context, answers);
  const { model, env } = providerAt("openai-chat", upstream.url);
  const flags = { model, ...options.flags };
  const open = async (dataDir?: string) => {
    const app = await startTestApp(context, { ...options, env, flags, ...(dataDir === undefined ? {} : { dataDir }) });
    return { ...app, plans: createClient(PlanService, app.transport) };
  };
  const app = await open();
  return {
    ...app,
    open,
    sent: () => upstream.requests.map(({ body }) => sentIn(body)),
    ask: async (options: Options = { strategy: "planned" }) => {
      const { sessionId } = await app.client.createSession({});
      return {
        sessionId,
        reading: readAlong(app.client.streamGenerate({ sessionId, messages: [user("go")], options })),
      };
    },
  };
}

function results(seen: readonly GenerateChunk[]) {
  return seen.flatMap(({ event }) => (event.case === "toolFinished" ? [event.value] : []));
}

function endOf(seen: readonly GenerateChunk[]): string {
  const last = seen.at(-1)?.event;
  return last?.case === "turnFinished" ? last.value.finishReason : "";
}

async function until<Value>(find: () => Promise<Value | undefined>): Promise<Value> {
  const lateMs = performance.now() + 20_000;
  for (;;) {
    const found = await find();
    if (found !== undefined) return found;
    assert.ok(performance.now() < lateMs, "it did not come");
    await nextMoment();
  }
}

describe("a planned turn", { timeout: 60_000 }, () => {
  test("makes a plan, runs it, and answers from what it came to", async (context) => {
    const { ask, sent, plans, client } = await start(context, [creates, writes(good), runs, talks("done")]);
    const { sessionId, reading } = await ask();
    const seen = await reading.end();
    assert.equal(endOf(seen), "stop");
    const [created, ran] = results(seen);
    assert.deepEqual([created?.name, created?.result?.success], ["create_plan", true]);
    assert.deepEqual([ran?.name, ran?.result?.success], ["run_plan", true], ran?.result?.error ?? "");
    const came = JSON.parse(ran?.result?.output ?? "");
    assert.equal(came.state, "completed");
    assert.match(came.output, /a sample/);
    const [first, , second, third] = sent();
    assert.deepEqual([first?.tools, first?.choice], [["create_plan"], "create_plan"]);
    assert.deepEqual([second?.tools, second?.choice], [["run_plan"], "run_plan"]);
    assert.ok(third?.tools.includes("read_file") && third.tools.includes("update_plan"));
    assert.ok(first?.system.includes("This turn is planned") && first.system === third?.system);
    const { plans: found } = await plans.listPlans({ sessionId });
    assert.deepEqual(
      found.map((plan) => [plan.state, plan.executionId, plan.requirement]),
      [["completed", ran?.result?.metadata["execution_id"], "Read the README."]],
    );
    const { sessions } = await client.listSessions({});
    const execution = sessions.find((session) => session.sessionId === found[0]?.executionId);
    assert.equal(execution?.metadata["parent_session_id"], sessionId);
  });

  test("goes on directly when no plan can run, and says so", async (context) => {
    const answers = [creates, writes(bad), writes(bad), writes(bad), writes(bad), talks("by hand")];
    const { ask, sent } = await start(context, answers);
    const { reading } = await ask();
    const seen = await reading.end();
    assert.equal(endOf(seen), "stop");
    const notices = seen.flatMap(({ event }) => (event.case === "notice" ? [event.value] : []));
    assert.deepEqual(
      notices.map(({ code, level }) => [code, level]),
      [["NO_PLAN", "warning"]],
    );
    assert.match(notices[0]?.message ?? "", /goes on without one: .*read_mind/);
    const last = sent().at(-1);
    assert.ok(last?.choice !== "run_plan" && last?.tools.includes("read_file"));
  });

  test("tells the model which step failed, and lets it go on", async (context) => {
    const { ask } = await start(context, [creates, writes(failing), runs, talks("it failed")]);
    const { reading } = await ask();
    const ran = results(await reading.end()).at(-1)?.result;
    assert.equal(ran?.success, false);
    const { state, failed_step: step } = JSON.parse(ran?.output ?? "");
    assert.deepEqual([state, step], ["failed", "read"]);
  });

  test("that a server left in the middle is gone on with by the next one", async (context) => {
    const first = await start(context, [creates, writes(asking), runs, talks("done")]);
    const { sessionId, reading } = await first.ask();
    const waiting = await until(async () => (await first.client.listPendingRequests({})).requests[0]);
    await first.app.close(0);
    await reading.end().catch(() => undefined);
    const next = await first.open(first.dataDir);
    const [plan] = (await next.plans.listPlans({ sessionId })).plans;
    assert.equal(plan?.executionId, waiting.sessionId);
    const values = JSON.stringify({ path: "README.md" });
    await next.plans.submitPlanInput({ planId: plan?.id ?? "", stepId: "ask", values });
    const seen: GenerateChunk[] = [];
    for await (const chunk of next.client.subscribeSession({ sessionId, follow: true })) {
      seen.push(chunk);
      if (chunk.event.case === "turnFinished") break;
    }
    assert.equal(endOf(seen), "stop");
    const ran = results(seen).at(-1)?.result;
    assert.deepEqual([ran?.success, ran?.metadata["execution_id"]], [true, waiting.sessionId], ran?.error ?? "");
    assert.equal((await next.plans.listPlans({ sessionId })).plans.length, 1);
    const { sessions } = await next.client.listSessions({});
    assert.equal(sessions.length, 2, "the session and one execution");
  });

  test("cancelled, cancels the execution", async (context) => {
    const { ask, client, plans } = await start(context, [creates, writes(asking), runs]);
    const { sessionId, reading } = await ask();
    await until(async () => (await client.listPendingRequests({})).requests[0]);
    await client.cancelTurn({ sessionId });
    assert.equal(endOf(await reading.end()), "cancelled");
    await until(async () => (await plans.listPlans({ sessionId })).plans.find(({ state }) => state === "cancelled"));
  });

  test("plans over no more than the tools it may use, and spends no more than it may", async (context) => {
    const answers = [creates, writes(good), writes(good), writes(good), writes(good), talks("by hand")];
    const { ask } = await start(context, answers);
    const { reading } = await ask({ strategy: "planned", allowedTools: ["list_files"] });
    const [created] = results(await reading.end());
    assert.match(created?.result?.error ?? "", /may not call read_file/);
    const poor = await start(context, [creates, talks("by hand")]);
    const spent = await poor.ask({ strategy: "planned", budget: { maxTotalTokens: 1n } });
    assert.equal(endOf(await spent.reading.end()), "budget");
  });
});

describe("a turn", () => {
  test("with the strategy auto is offered plans besides the rest, and told of them", async (context) => {
    const { ask, sent } = await start(context, [talks("hello")]);
    const { reading } = await ask({ strategy: "auto", allowedTools: ["read_file"] });
    await reading.end();
    const [asked] = sent();
    assert.deepEqual(asked?.tools.toSorted(), ["create_plan", "read_file", "run_plan", "update_plan"]);
    assert.ok(asked?.choice === undefined && asked?.system.includes("You can make plans"));
  });

  test("that is direct is offered none, and can't call them", async (context) => {
    const { ask, sent } = await start(context, [creates, talks("hello")]);
    const { reading } = await ask({ strategy: "direct" });
    const [refused] = results(await reading.end());
    assert.match(refused?.result?.error ?? "", /create_plan is not offered in this turn/);
    assert.ok(sent().every(({ tools }) => planFunctionNames.every((name) => !tools.includes(name))));
  });

  test("runs no plan of another session", async (context) => {
    const foreign: Answer = (request, response, body) =>
      calls("c1", "run_plan", { plan_id: planId })(request, response, body);
    let planId = "";
    const { ask, plans } = await start(context, [foreign, talks("no")]);
    const steps = [{ ...reads, parameters: JSON.stringify(reads.parameters) }];
    planId = (await plans.createPlan({ plan: { goal: "It is read.", steps } })).id;
    const { reading } = await ask({ strategy: "auto" });
    assert.match(results(await reading.end())[0]?.result?.error ?? "", /does not belong to this session/);
  });
});

test("a one-off turn can't be planned", async (context) => {
  const { client } = await start(context, []);
  const asked = client.generate({ messages: [user("go")], options: { strategy: "auto" } });
  await assert.rejects(asked, /options\.strategy.*needs a session/);
});

test("outside of a turn no plan is made", async (context) => {
  const { transport } = await start(context, []);
  const tools = createClient(ToolService, transport);
  const { result } = await tools.executeTool({ name: "create_plan", arguments: '{"requirement":"a"}' });
  assert.match(result?.error ?? "", /inside the turn of a session only/);
});
