import assert from "node:assert/strict";
import { after, describe, type TestContext, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { type PlanEvent, PlanService, type PlanStepSchema } from "../../gen/codeagent/v1/plan_service_pb.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";
import { collect } from "../support/grammar.ts";
import { noPostgres, stopTestDatabases, testDatabase } from "../support/postgres.ts";
import { startTestApp } from "../support/test-app.ts";

type Step = MessageInitShape<typeof PlanStepSchema>;
type Finished = Extract<PlanEvent["event"], { case: "finished" }>["value"];

const names = ["work", "read", "fail", "hold", "watch"];

/** Functions that count their runs by the label they are given. Those of one row outlive its servers. */
function countingFunctions() {
  const ran: Record<string, number> = {};
  let holding = 0;
  const free = new AbortController();
  let held = Promise.withResolvers<void>();
  const provider: FunctionProvider = {
    source: "local",
    list: async () =>
      names.map((name) => ({
        name,
        description: name,
        parameters: '{"type":"object"}',
        source: "local",
        readOnly: name === "read" || name === "watch",
        timeoutMs: 30_000,
      })),
    async call({ name, arguments: given }, { signal, onOutput }) {
      const { at } = given;
      assert.ok(typeof at === "string");
      ran[at] = (ran[at] ?? 0) + 1;
      if (name === "fail") return { success: false, output: "", error: "it does not work" };
      if (!free.signal.aborted && (name === "hold" || name === "watch")) {
        holding++;
        onOutput?.("stdout", "holding\n");
        held.resolve();
        held = Promise.withResolvers();
        // Let go is how it completes; it is not to be mistaken for being ended.
        await wait(20_000, undefined, { signal: AbortSignal.any([signal, free.signal]) }).catch(() => undefined);
        holding--;
        signal.throwIfAborted();
      }
      return { success: true, output: JSON.stringify({ at }) };
    },
    close: async () => undefined,
  };
  return {
    provider,
    ran,
    get holding() {
      return holding;
    },
    /** Until so many are held at the same time. */
    async untilHeld(count: number) {
      while (holding < count) await held.promise;
    },
    /** What is held completes, and from now on nothing is held. */
    letGo() {
      free.abort();
    },
  };
}

const call = (id: string, name: string, more: Step = {}): Step => ({
  id,
  kind: "function_call",
  function: name,
  parameters: JSON.stringify({ at: id }),
  ...more,
});
const undoneBy = (at: string): Step => ({
  compensation: { function: "work", parameters: JSON.stringify({ at }) },
});
/** What is within a step: one that completes and can be undone, and the one that the row is about. */
const inner = (name: string): Step[] => [
  call("first", "work", undoneBy("undo first")),
  call("in", name, { dependsOn: ["first"] }),
];

const branch = (steps: Step[]): Step => ({
  kind: "branch",
  details: {
    case: "branch",
    value: { cases: [{ condition: "false", steps: [call("never", "work")] }], otherwise: steps },
  },
});
const forEach = (steps: Step[]): Step => ({
  kind: "for_each",
  details: { case: "forEach", value: { items: "[1,2]", steps } },
});
const parallel = (steps: Step[], side: Step): Step => ({
  kind: "parallel",
  details: {
    case: "parallel",
    value: {
      branches: [
        { name: "one", steps },
        { name: "two", steps: [side] },
      ],
    },
  },
});
const model = (prompt: string): Step => ({ kind: "model", details: { case: "model", value: { prompt } } });
const userInput: Step = {
  kind: "user_input",
  details: {
    case: "userInput",
    value: {
      prompt: "which?",
      schema: '{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}',
    },
  },
};
/** The id of the plan is known once that is made. */
const subPlan = (planId: string): Step => ({ kind: "sub_plan", details: { case: "subPlan", value: { planId } } });

interface Row {
  readonly kind: string;
  readonly outcome: "ok" | "fails" | "times out" | "cancelled" | "crashed";
  /** Where the outcome has another meaning than its word. */
  readonly note?: string;
  readonly step: Step | { readonly subPlan: readonly Step[] };
  readonly timeoutMs?: bigint;
  /** What has to have come about before anybody answers, cancels or crashes; a number of functions that are held. */
  readonly when?: number | "asked" | "speaks";
  readonly answer?: "values" | "refused";
  /** All states of the step. */
  readonly states: readonly string[];
  readonly reason?: RegExp;
  /** What the plan comes to; the error's word for programs where it failed. */
  readonly plan: "completed" | "cancelled" | { readonly failedStepId: string; readonly error: string };
  /** Runs of the functions within the step, by label. */
  readonly ran?: Readonly<Record<string, number>>;
  /** Last states of the steps within. */
  readonly within?: Readonly<Record<string, string>>;
  /** What the plan of the step comes to. */
  readonly inner?: string;
}

const isTooLate = /^it took longer than 400 ms$/;
const isBroken = /^interrupted: .*the outcome is unknown/;
const late = { outcome: "times out", timeoutMs: 400n } as const;
const failsAt = (failedStepId: string, error = "STEP_FAILED") => ({ failedStepId, error });
const undone = { first: 1, "undo first": 1 };

const rows: readonly Row[] = [
  {
    ...{ kind: "function_call", outcome: "ok", step: call("x", "work") },
    states: ["running", "completed"],
    plan: "completed",
    ran: { x: 1 },
  },
  {
    ...{ kind: "function_call", outcome: "fails", step: call("x", "fail") },
    states: ["running", "failed"],
    reason: /^it does not work$/,
    plan: failsAt("x"),
    ran: { x: 1 },
  },
  {
    ...{ kind: "function_call", ...late, step: call("x", "hold") },
    states: ["running", "failed"],
    reason: isTooLate,
    plan: failsAt("x", "STEP_TIMEOUT"),
    ran: { x: 1 },
  },
  {
    ...{ kind: "function_call", outcome: "cancelled", step: call("x", "hold"), when: 1 },
    states: ["running", "cancelled"],
    plan: "cancelled",
    ran: { x: 1 },
  },
  {
    ...{ kind: "function_call", outcome: "crashed", step: call("x", "hold"), when: 1 },
    note: "what may have changed something is not run again",
    states: ["running", "failed"],
    reason: isBroken,
    plan: failsAt("x", "INTERRUPTED"),
    ran: { x: 1 },
  },
  {
    ...{ kind: "function_call", outcome: "crashed", step: call("x", "watch"), when: 1 },
    note: "what only reads is run again",
    states: ["running", "completed"],
    plan: "completed",
    ran: { x: 2 },
  },
  {
    ...{ kind: "user_input", outcome: "ok", step: userInput, when: "asked", answer: "values" },
    states: ["running", "completed"],
    plan: "completed",
  },
  {
    ...{ kind: "user_input", outcome: "fails", step: userInput, when: "asked", answer: "refused" },
    note: "only people make it fail: they refuse to answer",
    states: ["running", "failed"],
    reason: /^the question was refused$/,
    plan: failsAt("x", "DENIED"),
  },
  {
    ...{ kind: "user_input", ...late, step: userInput },
    states: ["running", "failed"],
    reason: /^nobody answered in time$/,
    plan: failsAt("x", "INPUT_EXPIRED"),
  },
  {
    ...{ kind: "user_input", outcome: "cancelled", step: userInput, when: "asked" },
    states: ["running", "cancelled"],
    plan: "cancelled",
  },
  {
    ...{ kind: "user_input", outcome: "crashed", step: userInput, when: "asked", answer: "values" },
    note: "the question still waits, and is answered after",
    states: ["running", "completed"],
    plan: "completed",
  },
  {
    ...{ kind: "branch", outcome: "ok", step: branch(inner("work")) },
    states: ["running", "completed"],
    plan: "completed",
    ran: { first: 1, in: 1 },
    within: { first: "completed", in: "completed" },
  },
  {
    ...{ kind: "branch", outcome: "fails", step: branch(inner("fail")) },
    states: ["running", "failed"],
    reason: /^in failed: it does not work$/,
    plan: failsAt("in"),
    ran: { ...undone, in: 1 },
    within: { first: "compensated", in: "failed" },
  },
  {
    ...{ kind: "branch", ...late, step: branch(inner("hold")) },
    states: ["running", "failed"],
    reason: isTooLate,
    plan: failsAt("x", "STEP_TIMEOUT"),
    ran: { ...undone, in: 1 },
    within: { first: "compensated", in: "cancelled" },
  },
  {
    ...{ kind: "branch", outcome: "cancelled", step: branch(inner("hold")), when: 1 },
    states: ["running", "cancelled"],
    plan: "cancelled",
    ran: { ...undone, in: 1 },
    within: { first: "compensated", in: "cancelled" },
  },
  {
    ...{ kind: "branch", outcome: "crashed", step: branch(inner("hold")), when: 1 },
    note: "it keeps its case, and fails with what may have changed something in it",
    states: ["running", "failed"],
    reason: /^in failed: interrupted: .*the outcome is unknown/,
    plan: failsAt("in", "INTERRUPTED"),
    ran: { ...undone, in: 1 },
    within: { first: "compensated", in: "failed" },
  },
  {
    ...{ kind: "for_each", outcome: "ok", step: forEach(inner("work")) },
    states: ["running", "completed"],
    plan: "completed",
    ran: { first: 2, in: 2 },
    within: { "first[0]": "completed", "in[0]": "completed", "first[1]": "completed", "in[1]": "completed" },
  },
  {
    ...{ kind: "for_each", outcome: "fails", step: forEach(inner("fail")) },
    note: "the next item does not begin",
    states: ["running", "failed"],
    reason: /^in failed: it does not work$/,
    plan: failsAt("in"),
    ran: { ...undone, in: 1 },
    within: { "first[0]": "compensated", "in[0]": "failed" },
  },
  {
    ...{ kind: "for_each", ...late, step: forEach(inner("hold")) },
    states: ["running", "failed"],
    reason: isTooLate,
    plan: failsAt("x", "STEP_TIMEOUT"),
    ran: { ...undone, in: 1 },
    within: { "first[0]": "compensated", "in[0]": "cancelled" },
  },
  {
    ...{ kind: "for_each", outcome: "cancelled", step: forEach(inner("hold")), when: 1 },
    states: ["running", "cancelled"],
    plan: "cancelled",
    ran: { ...undone, in: 1 },
    within: { "first[0]": "compensated", "in[0]": "cancelled" },
  },
  {
    ...{ kind: "for_each", outcome: "crashed", step: forEach(inner("watch")), when: 1 },
    note: "the item that was read is read again, and the next one follows",
    states: ["running", "completed"],
    plan: "completed",
    ran: { first: 2, in: 3 },
    within: { "first[0]": "completed", "in[0]": "completed", "first[1]": "completed", "in[1]": "completed" },
  },
  {
    ...{ kind: "parallel", outcome: "ok", step: parallel(inner("work"), call("side", "read")) },
    states: ["running", "completed"],
    plan: "completed",
    ran: { first: 1, in: 1, side: 1 },
    within: { first: "completed", in: "completed", side: "completed" },
  },
  {
    ...{ kind: "parallel", outcome: "fails", step: parallel(inner("fail"), call("side", "hold")) },
    note: "the other branch is stopped",
    states: ["running", "failed"],
    reason: /^in failed: it does not work$/,
    plan: failsAt("in"),
    ran: { ...undone, in: 1, side: 1 },
    within: { first: "compensated", in: "failed", side: "cancelled" },
  },
  {
    ...{ kind: "parallel", ...late, step: parallel(inner("hold"), call("side", "watch")) },
    states: ["running", "failed"],
    reason: isTooLate,
    plan: failsAt("x", "STEP_TIMEOUT"),
    ran: { ...undone, in: 1, side: 1 },
    within: { first: "compensated", in: "cancelled", side: "cancelled" },
  },
  {
    ...{ kind: "parallel", outcome: "cancelled", step: parallel(inner("hold"), call("side", "watch")), when: 2 },
    states: ["running", "cancelled"],
    plan: "cancelled",
    ran: { ...undone, in: 1, side: 1 },
    within: { first: "compensated", in: "cancelled", side: "cancelled" },
  },
  {
    kind: "parallel",
    outcome: "crashed",
    note: "one branch is read again; what may have changed something in the other failed, which does not matter",
    step: parallel([call("in", "hold", { onError: "continue" })], call("side", "watch")),
    when: 2,
    states: ["running", "completed"],
    plan: "completed",
    ran: { in: 1, side: 2 },
    within: { in: "failed", side: "completed" },
  },
  {
    ...{ kind: "model", outcome: "ok", step: model("be quick") },
    states: ["running", "completed"],
    plan: "completed",
  },
  {
    ...{ kind: "model", outcome: "fails", step: model("be broken") },
    states: ["running", "failed"],
    reason: /no such luck/,
    plan: failsAt("x", "PROVIDER_REJECTED"),
  },
  {
    ...{ kind: "model", ...late, step: model("be slow") },
    states: ["running", "failed"],
    reason: isTooLate,
    plan: failsAt("x", "STEP_TIMEOUT"),
  },
  {
    ...{ kind: "model", outcome: "cancelled", step: model("be slow"), when: "speaks" },
    states: ["running", "cancelled"],
    plan: "cancelled",
  },
  {
    ...{ kind: "model", outcome: "crashed", step: model("be slow"), when: "speaks" },
    note: "it is asked again",
    states: ["running", "completed"],
    plan: "completed",
  },
  {
    ...{ kind: "sub_plan", outcome: "ok", step: { subPlan: inner("work") } },
    states: ["running", "completed"],
    plan: "completed",
    ran: { first: 1, in: 1 },
    inner: "completed",
  },
  {
    ...{ kind: "sub_plan", outcome: "fails", step: { subPlan: inner("fail") } },
    states: ["running", "failed"],
    reason: /^plan plan_\w+ failed: it does not work$/,
    plan: failsAt("x", "SUB_PLAN_FAILED"),
    ran: { ...undone, in: 1 },
    inner: "failed",
  },
  {
    ...{ kind: "sub_plan", ...late, step: { subPlan: inner("hold") } },
    note: "its execution is cancelled",
    states: ["running", "failed"],
    reason: isTooLate,
    plan: failsAt("x", "STEP_TIMEOUT"),
    ran: { ...undone, in: 1 },
    inner: "cancelled",
  },
  {
    ...{ kind: "sub_plan", outcome: "cancelled", step: { subPlan: inner("hold") }, when: 1 },
    note: "its execution is cancelled too, and undoes its own",
    states: ["running", "cancelled"],
    plan: "cancelled",
    ran: { ...undone, in: 1 },
    inner: "cancelled",
  },
  {
    ...{ kind: "sub_plan", outcome: "crashed", step: { subPlan: inner("watch") }, when: 1 },
    note: "its execution goes on, and is waited for again",
    states: ["running", "completed"],
    plan: "completed",
    ran: { first: 1, in: 2 },
    inner: "completed",
  },
];

const slowScript = `
- when: { text: be broken }
  error: { status: 400, message: no such luck }
- when: { text: be slow }
  text: a long answer that takes its time and more time than anybody has
  chunk: 1
  delay_ms: 100
- { text: done }
`;
const quickScript = "- { text: done }\n";

interface Place {
  /** Where another server has been. */
  readonly dataDir?: string;
  readonly database?: string;
}

async function start(
  context: TestContext,
  functions: ReturnType<typeof countingFunctions>,
  { dataDir, database }: Place = {},
) {
  const sample = await startTestApp(context, {
    functions: [functions.provider],
    script: dataDir === undefined ? slowScript : quickScript,
    flags: {
      "permissions.allow": ["work", "fail", "hold"],
      ...(database === undefined ? {} : { database_url: database }),
    },
    ...(dataDir === undefined ? {} : { dataDir }),
  });
  return { ...sample, plans: createClient(PlanService, sample.transport) };
}

type Server = Awaited<ReturnType<typeof start>>;

async function makePlan({ plans }: Pick<Server, "plans">, steps: Step[]): Promise<string> {
  const made = await plans.createPlan({ plan: { goal: "it works", requirement: "do it", steps } });
  assert.deepEqual([made.state, made.missingFunctions], ["ready", []], made.problems[0]?.message ?? "");
  return made.id;
}

/** Everything that was read of one execution, over the streams of several servers. */
function reader(planId: string) {
  let seq = 0n;
  let executionId = "";
  let finished: Finished | undefined;
  const changes: { key: string; state: string; reason: string; error: string }[] = [];
  const seen = {
    asked: Promise.withResolvers<void>(),
    speaks: Promise.withResolvers<void>(),
  };
  return {
    changes,
    lines: () => changes.map(({ key, state }) => `${key} ${state}`),
    seen,
    get executionId() {
      return executionId;
    },
    get finished() {
      return finished;
    },
    /** Reads on to the end of the execution or of the stream. */
    async read(plans: Server["plans"], known = executionId) {
      const request = { planId, executionId: known, afterSeq: seq };
      for await (const { seq: next, event, executionId: id } of plans.executePlan(request)) {
        executionId = id;
        if (event.case === "streamReady" || event.case === "keepAlive" || event.case === "progress") continue;
        assert.equal(next, seq + 1n, "no gap and no repetition");
        assert.equal(finished, undefined, "nothing follows the end");
        seq = next;
        assert.equal(event.case === "started", seq === 1n);
        if (event.case === "finished") finished = event.value;
        if (event.case === "inputRequested") seen.asked.resolve();
        if (event.case === "stepOutput") seen.speaks.resolve();
        if (event.case !== "stepChanged") continue;
        const { stepId, itemPath, state, reason, error } = event.value;
        const key = itemPath.length === 0 ? stepId : `${stepId}[${itemPath.join()}]`;
        changes.push({ key, state, reason, error: error?.reason ?? "" });
      }
    },
  };
}

/** The server went away while somebody read. */
function checkUnavailable(error: unknown): void {
  assert.ok(error instanceof ConnectError && error.code === Code.Unavailable, String(error));
}

async function answer({ plans, client }: Server, planId: string, executionId: string, kind: Row["answer"]) {
  if (kind === "values") await plans.submitPlanInput({ planId, stepId: "x", values: '{"name":"y"}' });
  if (kind !== "refused") return;
  const { requests } = await client.listPendingRequests({ sessionId: executionId });
  const requestId = requests[0]?.requestId ?? "";
  await client.respondToRequest({ sessionId: executionId, responses: [{ requestId, decision: "deny" }] });
}

async function checkInner(server: Server, executionId: string, planId: string, state: string) {
  const { sessions } = await server.client.listSessions({});
  const own = sessions.filter(({ metadata }) => metadata["parent_session_id"] === executionId);
  assert.equal(own.length, 1, "one execution for the step");
  const sessionId = own[0]?.sessionId ?? "";
  const whole = reader(planId);
  await whole.read(server.plans, sessionId);
  assert.equal(whole.finished?.state, state);
  await collect(server.client.subscribeSession({ sessionId }), 1n);
}

describe("what a step of each kind comes to", () => {
  for (const row of rows) {
    const { kind, outcome, note, step, timeoutMs, when, states, reason, plan, ran = {}, within } = row;
    test(`${kind} ${outcome}${note === undefined ? "" : `: ${note}`}`, async (context) => {
      const functions = countingFunctions();
      const first = await start(context, functions);
      const make = (steps: Step[]) => makePlan(first, steps);
      const innerId = "subPlan" in step ? await make([...step.subPlan]) : "";
      const planId = await make([
        call("before", "work", undoneBy("undo before")),
        {
          ...("subPlan" in step ? subPlan(innerId) : step),
          id: "x",
          dependsOn: ["before"],
          ...(timeoutMs === undefined ? {} : { timeoutMs }),
        },
        call("after", "read", { dependsOn: ["x"] }),
      ]);

      const whole = reader(planId);
      let server = first;
      const reading = whole.read(first.plans);
      const broken = reading.catch((error: unknown) => error);
      if (when !== undefined)
        await Promise.race([
          typeof when === "number" ? functions.untilHeld(when) : whole.seen[when].promise,
          reading.then(() => assert.fail(`it ended before it came to ${when}`)),
        ]);
      if (outcome === "cancelled") {
        const { wasRunning } = await first.plans.cancelPlan({ planId });
        assert.ok(wasRunning);
      }
      if (outcome === "crashed") {
        await first.app.close(0);
        checkUnavailable(await broken);
        functions.letGo();
        server = await start(context, functions, { dataDir: first.dataDir });
        if (when === "asked") assert.equal((await server.plans.getPlan({ planId })).state, "waiting");
      }
      await answer(server, planId, whole.executionId, row.answer);
      await (outcome === "crashed" ? whole.read(server.plans) : reading);

      const { finished, changes, executionId } = whole;
      if (row.inner !== undefined) await checkInner(server, executionId, innerId, row.inner);
      const own = changes.filter(({ key }) => key === "x");
      assert.deepEqual(
        own.map(({ state }) => state),
        states,
        JSON.stringify(changes),
      );
      assert.match(own.at(-1)?.reason ?? "", reason ?? /^$/);
      const isCompleted = plan === "completed";
      const failure = typeof plan === "string" ? { failedStepId: "", error: "" } : plan;
      const state = typeof plan === "string" ? plan : "failed";
      assert.deepEqual(
        [finished?.state, finished?.failedStepId, finished?.error?.reason ?? ""],
        [state, failure.failedStepId, failure.error],
      );
      assert.equal(own.at(-1)?.error, failure.error);
      assert.equal((await server.plans.getPlan({ planId })).state, state);
      const around = isCompleted ? { before: 1, after: 1 } : { before: 1, "undo before": 1 };
      assert.deepEqual(functions.ran, { ...ran, ...around });
      assert.equal(functions.holding, 0, "what ran was stopped");
      const last = Object.fromEntries(changes.map(({ key, state: each }) => [key, each]));
      const { x, before, after: next, ...inside } = last;
      assert.deepEqual(
        [x, before, next],
        [states.at(-1), isCompleted ? "completed" : "compensated", isCompleted ? "completed" : undefined],
      );
      assert.deepEqual(inside, within ?? {});
      const counts = Object.values(last).reduce<Record<string, number>>((sum, each) => {
        sum[each] = (sum[each] ?? 0) + 1;
        return sum;
      }, {});
      const { pending: _, ...counted } = finished?.stepCounts ?? {};
      assert.deepEqual(counted, counts);
      // The log behind it keeps the grammar of turns.
      await collect(server.client.subscribeSession({ sessionId: executionId }), 1n);
    });
  }
});

const oneAfterTheOther = [
  call("a", "hold"),
  call("b", "work", { dependsOn: ["a"] }),
  call("c", "work", { dependsOn: ["b"] }),
];
const theirChanges = ["a running", "a completed", "b running", "b completed", "c running", "c completed"];

test("a server that is to stop lets an execution that nobody else can go on with come to its end, and tells it", async (context) => {
  const functions = countingFunctions();
  const first = await start(context, functions);
  const planId = await makePlan(first, oneAfterTheOther);
  const whole = reader(planId);
  const read = whole.read(first.plans);
  await functions.untilHeld(1);
  const closed = first.app.close(10_000);
  functions.letGo();
  await Promise.all([read, closed]);
  assert.deepEqual(whole.lines(), theirChanges);
  assert.equal(whole.finished?.state, "completed");
  assert.deepEqual(functions.ran, { a: 1, b: 1, c: 1 });
});

test("a server whose time to stop is over leaves a step that reads to the next start", async (context) => {
  const functions = countingFunctions();
  const first = await start(context, functions);
  const planId = await makePlan(first, [call("a", "work"), call("b", "watch", { dependsOn: ["a"] })]);
  const whole = reader(planId);
  const broken = whole.read(first.plans).catch((error: unknown) => error);
  await functions.untilHeld(1);
  await first.app.close(50);
  checkUnavailable(await broken);
  functions.letGo();
  const second = await start(context, functions, { dataDir: first.dataDir });
  await whole.read(second.plans);
  assert.deepEqual(whole.lines(), ["a running", "a completed", "b running", "b completed"]);
  assert.deepEqual(functions.ran, { a: 1, b: 2 });
});

describe("two servers over one PostgreSQL", { skip: noPostgres, timeout: 60_000 }, () => {
  after(stopTestDatabases);

  test("one that is to stop hands an execution over between two steps, and none is run twice", async (context) => {
    const functions = countingFunctions();
    const elsewhere = countingFunctions();
    const database = await testDatabase();
    const first = await start(context, functions, { database });
    const second = await start(context, elsewhere, { database });
    const planId = await makePlan(first, oneAfterTheOther);
    const whole = reader(planId);
    const broken = whole.read(first.plans).catch((error: unknown) => error);
    await functions.untilHeld(1);
    const closed = first.app.close(10_000);
    functions.letGo();
    checkUnavailable(await broken);
    await closed;
    await whole.read(second.plans);
    assert.deepEqual(whole.lines(), theirChanges);
    assert.equal(whole.finished?.state, "completed");
    assert.deepEqual([functions.ran, elsewhere.ran], [{ a: 1 }, { b: 1, c: 1 }]);
    await collect(second.client.subscribeSession({ sessionId: whole.executionId }), 1n);
  });
});

test("a crash while a step is undone: that is not tried again, and the others are undone once", async (context) => {
  const functions = countingFunctions();
  const first = await start(context, functions);
  const undo = (at: string, name = "work"): Step => ({
    compensation: { function: name, parameters: JSON.stringify({ at }) },
  });
  const planId = await makePlan(first, [
    call("a", "work", undo("undo a")),
    call("b", "work", { ...undo("undo b", "hold"), dependsOn: ["a"] }),
    call("c", "work", { ...undo("undo c"), dependsOn: ["b"] }),
    call("d", "fail", { dependsOn: ["c"] }),
  ]);
  const whole = reader(planId);
  const broken = whole.read(first.plans).catch((error: unknown) => error);
  await functions.untilHeld(1);
  await first.app.close(0);
  checkUnavailable(await broken);
  functions.letGo();
  const second = await start(context, functions, { dataDir: first.dataDir });
  await whole.read(second.plans);
  assert.deepEqual(whole.lines().slice(-6), [
    "c compensating",
    "c compensated",
    "b compensating",
    "b compensation_failed",
    "a compensating",
    "a compensated",
  ]);
  assert.match(whole.changes.find(({ state }) => state === "compensation_failed")?.reason ?? "", isBroken);
  assert.deepEqual([whole.finished?.state, whole.finished?.failedStepId], ["failed", "d"]);
  const once = ["a", "b", "c", "d", "undo c", "undo b", "undo a"].map((at) => [at, 1]);
  assert.deepEqual(functions.ran, Object.fromEntries(once));
  await collect(second.client.subscribeSession({ sessionId: whole.executionId }), 1n);
});
