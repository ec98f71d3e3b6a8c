import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { createClient } from "@connectrpc/connect";
import { status } from "@grpc/grpc-js";
import { CodeAgentService as LegacyService } from "../../gen/a3s/code/agent/v1/code_agent_pb.ts";
import { PlanService } from "../../gen/codeagent/v1/plan_service_pb.ts";
import { startTestApp, type TestAppOptions } from "../support/test-app.ts";
import { at, legacyClients } from "./legacy-client.ts";

const plan = {
  goal: "The read me is known.",
  success_criteria: ["Its first line was seen."],
  complexity: "medium",
  steps: [
    {
      ...{ id: "read", kind: "function_call", description: "Read it.", function: "read_file" },
      parameters: { path: "README.md" },
    },
    {
      ...{ id: "again", kind: "function_call", description: "Read it again.", function: "read_file" },
      ...{ depends_on: ["read"], parameters: { path: "missing.md" }, on_error: "continue" },
    },
    {
      ...{ id: "never", kind: "function_call", description: "Search it.", function: "search_text" },
      ...{ depends_on: ["again"], parameters: { pattern: "x" }, condition: "false" },
    },
  ],
};
const goal = { description: "Tests are green.", success_criteria: ["No test fails.", "None is skipped."] };
const judged = (state: string) => JSON.stringify({ state, evidence: "It says so." });

const script = `
- when: { text: write me a plan }
  text: ${JSON.stringify(JSON.stringify(plan))}
- when: { text: nothing to plan }
  text: ${JSON.stringify(JSON.stringify({ ...plan, steps: [] }))}
- when: { text: make the tests green }
  text: ${JSON.stringify(JSON.stringify(goal))}
- when: { text: no goal in here }
  text: I can't.
- when: { text: "The criterion: No test fails." }
  text: ${JSON.stringify(judged("met"))}
- when: { text: all is well }
  text: ${JSON.stringify(judged("met"))}
- when: { text: break down }
  error: { status: 400, message: not today }
- text: ${JSON.stringify(judged("unknown"))}
`;

async function startedApp(context: TestContext, options: TestAppOptions = {}) {
  const app = await startTestApp(context, { script, ...options });
  const { sessionId } = await app.client.createSession({});
  assert.notEqual(sessionId, "");
  return { ...app, session_id: sessionId, call: legacyClients(context, app.app.url).L2.call };
}

async function refused(call: Promise<unknown>, code: status, words: RegExp): Promise<void> {
  await assert.rejects(call, (error) => {
    assert.equal(at(error, "code"), code, String(error));
    assert.match(String(at(error, "details")), words);
    return true;
  });
}

const steps = (statuses: readonly string[]) => [
  {
    id: "read",
    description: "Read it.",
    tool: "read_file",
    dependencies: [],
    status: statuses[0],
    success_criteria: [],
  },
  {
    ...{ id: "again", description: "Read it again.", tool: "read_file", dependencies: ["read"], status: statuses[1] },
    success_criteria: [],
  },
  {
    ...{ id: "never", description: "Search it.", tool: "search_text", dependencies: ["again"], status: statuses[2] },
    success_criteria: [],
  },
];

test("a plan has a goal and steps, an id in a header, and tells how far it has come", async (context) => {
  const { call, session_id, transport } = await startedApp(context);
  await refused(call("GetPlan", { session_id }), status.NOT_FOUND, /has no plan/);
  const created = await call("CreatePlan", { session_id, prompt: "write me a plan", context: "in short" });
  const pending = "STEP_STATUS_PENDING";
  const expected = {
    goal: "The read me is known.",
    steps: steps([pending, pending, pending]),
    complexity: "COMPLEXITY_MEDIUM",
    required_tools: ["read_file", "search_text"],
    estimated_steps: 3,
  };
  assert.deepEqual(created["plan"], expected);
  assert.deepEqual((await call("GetPlan", { session_id }))["plan"], expected, "the newest of the session");

  const legacy = createClient(LegacyService, transport);
  let planId = "";
  const onHeader = (headers: Headers) => {
    planId = headers.get("x-plan-id") ?? "";
  };
  await legacy.createPlan({ sessionId: session_id, prompt: "write me a plan" }, { onHeader });
  assert.match(planId, /^plan_/);
  for await (const event of createClient(PlanService, transport).executePlan({ planId }))
    if (event.event.case === "finished") break;
  const { plan: executed } = await call("GetPlan", { session_id, plan_id: planId });
  const ended = ["STEP_STATUS_COMPLETED", "STEP_STATUS_FAILED", "STEP_STATUS_SKIPPED"];
  assert.deepEqual(at(executed, "steps"), steps(ended));
  assert.deepEqual((await call("GetPlan", { plan_id: planId }))["plan"], executed, "without its session too");

  await refused(call("GetPlan", { session_id: "other", plan_id: planId }), status.NOT_FOUND, /other has no plan/);
  await refused(call("GetPlan", { session_id, plan_id: "plan_none" }), status.NOT_FOUND, /plan_none/);
  await refused(call("GetPlan", { session_id: "nobody" }), status.NOT_FOUND, /nobody/);
  await refused(call("GetPlan", {}), status.INVALID_ARGUMENT, /plan_id/);
});

test("what can't be planned is an error, never a plan without steps", async (context) => {
  const { call, session_id } = await startedApp(context);
  await refused(call("CreatePlan", { session_id: "nobody", prompt: "x" }), status.NOT_FOUND, /nobody/);
  await refused(call("CreatePlan", { session_id, prompt: " " }), status.INVALID_ARGUMENT, /prompt: is empty/);
  await refused(call("CreatePlan", { prompt: "x" }), status.INVALID_ARGUMENT, /session_id/);
  await refused(call("CreatePlan", { session_id, prompt: "nothing to plan" }), status.INTERNAL, /step/);
  await refused(call("CreatePlan", { session_id, prompt: "break down" }), status.INVALID_ARGUMENT, /not today/);
});

test("goals are told from a wish, and judged criterion by criterion", async (context) => {
  const nowMs = Date.UTC(2030, 0, 1);
  const { call, session_id } = await startedApp(context, { now: () => nowMs });
  const { goal: extracted } = await call("ExtractGoal", { session_id, prompt: "make the tests green" });
  assert.deepEqual(extracted, { ...goal, progress: 0, achieved: false, created_at: String(nowMs) });
  const check = { session_id, goal: extracted, current_state: "412 tests pass, 3 are skipped." };
  assert.deepEqual(await call("CheckGoalAchievement", check), {
    ...{ achieved: false, progress: 0.5, remaining_criteria: ["None is skipped."] },
  });
  const done = { session_id, goal: { description: "all is well" } };
  assert.deepEqual(
    await call("CheckGoalAchievement", done),
    { achieved: true, progress: 1, remaining_criteria: [] },
    "a goal without criteria is one itself, and nothing may be told of the state",
  );

  await refused(call("ExtractGoal", { session_id, prompt: "" }), status.INVALID_ARGUMENT, /prompt/);
  await refused(call("ExtractGoal", { session_id: "nobody", prompt: "x" }), status.NOT_FOUND, /nobody/);
  await refused(
    call("ExtractGoal", { session_id, prompt: "no goal in here" }),
    status.INTERNAL,
    /no answer in the form/,
  );
  await refused(call("CheckGoalAchievement", { session_id }), status.INVALID_ARGUMENT, /goal: is missing/);
  await refused(
    call("CheckGoalAchievement", { session_id, goal: {} }),
    status.INVALID_ARGUMENT,
    /goal.description: is empty/,
  );
  await refused(
    call("CheckGoalAchievement", { session_id, goal: { success_criteria: ["x", ""] } }),
    status.INVALID_ARGUMENT,
    /goal.success_criteria\[1\]/,
  );
  await refused(call("CheckGoalAchievement", { ...check, session_id: "nobody" }), status.NOT_FOUND, /nobody/);
  const broken = { session_id, goal: { success_criteria: ["break down"] } };
  await refused(call("CheckGoalAchievement", broken), status.INVALID_ARGUMENT, /not today/);
});
