import assert from "node:assert/strict";
import { after, describe, type TestContext, test } from "node:test";
import type { JsonObject } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { PlanService } from "../../gen/codeagent/v1/plan_service_pb.ts";
import { BadRequestSchema, ErrorInfoSchema } from "../../gen/google/rpc/error_details_pb.ts";
import { Health } from "../../gen/grpc/health/v1/health_pb.ts";
import { ServingStatus } from "../../src/rpc/health.ts";
import { type DialectId, dialectIds, providerAt, says, text } from "../provider/answers.ts";
import { type Answer, startUpstream } from "../provider/upstream.ts";
import { noPostgres, stopTestDatabases, testDatabase } from "../support/postgres.ts";
import { startTestApp, type TestAppOptions } from "../support/test-app.ts";

after(stopTestDatabases);

/** The service with a model that gives these answers in their order. */
async function start(
  context: TestContext,
  answers: readonly Answer[],
  { dialect = "openai-chat", ...options }: TestAppOptions & { readonly dialect?: DialectId } = {},
) {
  const upstream = await startUpstream(context, answers);
  const { model, env } = providerAt(dialect, upstream.url);
  const started = await startTestApp(context, { env, ...options, flags: { model, ...options.flags } });
  const plans = createClient(PlanService, started.transport);
  return { ...started, plans, model, sent: () => upstream.requests.map(({ body }) => body) };
}

const writes = (plan: unknown, dialect: DialectId = "openai-chat") => says(dialect, [text(JSON.stringify(plan))]);
const talks = (words: string): Answer => says("openai-chat", [text(words)]);
const nobody: readonly Answer[] = [];

const read = { id: "read", kind: "function_call", description: "Read it.", function: "read_file" };
const good = {
  goal: "It is read.",
  success_criteria: ["The text is there."],
  complexity: "simple",
  steps: [{ ...read, parameters: { path: "README.md" } }],
};
const step = (id: string, parameters: object, more: object = {}) => ({ ...read, id, parameters, ...more });
/** Each of its steps is wrong in another way. */
const bad = {
  ...good,
  steps: [
    step("mail", { to: "me" }, { function: "send_mail", description: "Send it." }),
    step("typed", { path: 5 }),
    step("one", { path: "a" }, { depends_on: ["two"] }),
    step("two", { path: "a" }, { depends_on: ["one"] }),
    step("forward", { path: { ref: "step.nowhere.result.path" } }),
  ],
};
const stillBad = { ...good, goal: "Fewer faults.", steps: [step("typed", { path: 5 })] };

/** As a caller hands it in. */
const handedIn = {
  goal: "It is read.",
  steps: [{ ...read, parameters: '{"path":"README.md"}' }],
};

async function failure(
  call: Promise<unknown>,
): Promise<{ code: Code; reason: string; fields: string[]; says: string }> {
  const error = await call.then(
    () => assert.fail("the call succeeded"),
    (thrown: unknown) => ConnectError.from(thrown),
  );
  return {
    code: error.code,
    reason: error.findDetails(ErrorInfoSchema)[0]?.reason ?? "",
    fields: error
      .findDetails(BadRequestSchema)
      .flatMap(({ fieldViolations }) => fieldViolations.map((one) => one.field)),
    says: error.rawMessage,
  };
}

/** Text as it stands within a request's body. */
const asSent = (words: string) => JSON.stringify(words).slice(1, -1);

describe("a plan that a model writes", { timeout: 60_000 }, () => {
  for (const dialect of dialectIds) {
    test(`is repaired when it was told what is wrong: ${dialect}`, async (context) => {
      const answers = [writes(bad, dialect), writes(good, dialect)];
      const { plans, sent, model } = await start(context, answers, { dialect });
      const plan = await plans.createPlan({
        requirement: "Read the <README>.",
        context: "It is a sample.",
        metadata: { by: "me" },
      });
      assert.deepEqual([plan.state, plan.version, plan.missingFunctions, plan.goal], ["ready", 1, [], "It is read."]);
      assert.deepEqual([plan.requirement, plan.metadata, plan.model], ["Read the <README>.", { by: "me" }, model]);
      assert.deepEqual(JSON.parse(plan.steps[0]?.parameters ?? ""), { path: "README.md" });
      assert.deepEqual([plan.usage?.inputTokens, plan.usage?.outputTokens], [14n, 10n], "both answers are counted");
      const [first = "", second = ""] = sent();
      assert.equal(sent().length, 2);
      for (const words of ["Read the <README>.", "It is a sample.", '"name":"read_file"'])
        assert.ok(first.includes(asSent(words)), `the first request says ${words}`);
      // The same plan handed in by somebody has the same problems: each of them was told, and the answer itself.
      const { steps } = bad;
      const same = { ...bad, steps: steps.map((one) => ({ ...one, parameters: JSON.stringify(one.parameters) })) };
      const { problems } = await plans.createPlan({ plan: planOf(same) });
      const codes = new Set(problems.map(({ code }) => code));
      for (const code of ["MISSING_FUNCTION", "PARAMETERS_DO_NOT_FIT", "DEPENDENCY_CYCLE", "UNKNOWN_STEP"])
        assert.ok(codes.has(code), code);
      for (const { message, severity } of problems)
        if (severity === "error") assert.ok(second.includes(asSent(message)), `the second request says: ${message}`);
      assert.ok(second.includes("send_mail") && !first.includes("send_mail"));
      assert.deepEqual(await plans.getPlan({ planId: plan.id }), plan);
    });
  }

  test("and stays wrong comes back with its faults: the one of all tries with the fewest", async (context) => {
    const { plans, sent } = await start(
      context,
      [bad, stillBad, bad, bad].map((plan) => writes(plan)),
    );
    const plan = await plans.createPlan({ requirement: "Read it." });
    assert.equal(sent().length, 4);
    assert.deepEqual([plan.state, plan.goal, plan.problems.length > 0], ["invalid", "Fewer faults.", true]);
    assert.equal(plan.usage?.totalTokens, 48n);
  });

  test("for which functions are missing says which, after as many repairs as are set", async (context) => {
    const { plans, sent } = await start(context, [writes(bad), writes(bad)], { flags: { "plan.max_repairs": 1 } });
    const plan = await plans.createPlan({ requirement: "Mail it." });
    assert.equal(sent().length, 2);
    assert.equal(plan.state, "invalid");
    assert.deepEqual(
      plan.missingFunctions.map(({ name, stepIds, description }) => [name, stepIds, description]),
      [["send_mail", ["mail"], "Send it."]],
    );
    assert.equal((await plans.getPlan({ planId: plan.id })).state, "invalid");
  });

  test("is asked for again when the answer is none", async (context) => {
    const answers = [talks("Sure, here is your plan:"), talks(""), talks('{"goal":"x"}'), writes(good)];
    const { plans, sent } = await start(context, answers);
    const plan = await plans.createPlan({ requirement: "Read it." });
    assert.deepEqual([plan.state, plan.usage?.totalTokens], ["ready", 48n]);
    assert.ok(sent()[1]?.includes("Sure, here is your plan") && sent()[1]?.includes("is no JSON"));
    assert.ok(sent()[2]?.includes("is empty") && !sent()[2]?.includes("Sure, here"), "only the last answer goes along");
  });

  test("that never comes is an error, and no plan is kept", async (context) => {
    const { plans, sent } = await start(
      context,
      Array.from({ length: 4 }, () => talks("I can't.")),
    );
    const failed = await failure(plans.createPlan({ requirement: "Read it." }));
    assert.deepEqual([failed.reason, sent().length], ["ANSWER_INVALID", 4]);
    assert.match(failed.says, /no plan was written after being told 3 times: the answer is no JSON/);
    assert.deepEqual((await plans.listPlans({})).plans, []);
  });

  test("may call the functions that are allowed, and is shown only those", async (context) => {
    const { plans, sent } = await start(context, [writes(good), writes({ ...good, goal: "Listed." })], {
      flags: { "plan.max_repairs": 1 },
    });
    const plan = await plans.createPlan({ requirement: "Read it.", allowedFunctions: ["list_files", "search_text"] });
    assert.ok(
      sent()[0]?.includes(asSent('{"name":"list_files"')) && !sent()[0]?.includes(asSent('{"name":"read_file"')),
    );
    assert.deepEqual([plan.state, plan.problems[0]?.code], ["invalid", "FUNCTION_NOT_ALLOWED"]);
    assert.match(plan.problems[0]?.message ?? "", /may not call read_file; it may call list_files, search_text/);
    assert.ok(sent()[1]?.includes("may not call read_file"));
    const unknown = await failure(plans.createPlan({ requirement: "x", allowedFunctions: ["list_files", "fly"] }));
    assert.deepEqual([unknown.code, unknown.fields], [Code.InvalidArgument, ["allowed_functions[1]"]]);
  });

  test("is paid for within its budget", async (context) => {
    const silent: Answer = () => undefined;
    const { plans, sent } = await start(context, [writes(bad), talks("no"), silent]);
    const stopped = await plans.createPlan({ requirement: "Read it.", budget: { maxTotalTokens: 12n } });
    assert.equal(sent().length, 1);
    assert.equal(stopped.state, "invalid");
    assert.deepEqual([stopped.problems.at(-1)?.code, stopped.problems.at(-1)?.severity], ["BUDGET_TOKENS", "warning"]);
    const none = await failure(plans.createPlan({ requirement: "Read it.", budget: { maxTotalTokens: 12n } }));
    assert.deepEqual([none.code, none.reason, sent().length], [Code.ResourceExhausted, "BUDGET_TOKENS", 2]);
    const late = await failure(plans.createPlan({ requirement: "Read it.", budget: { maxDurationMs: 100n } }));
    assert.deepEqual([late.code, late.reason, sent().length], [Code.ResourceExhausted, "BUDGET_DURATION", 3]);
    const unpriced = await failure(plans.createPlan({ requirement: "x", budget: { maxCostNanoUsd: 1n } }));
    assert.deepEqual([unpriced.code, unpriced.reason], [Code.FailedPrecondition, "PRICE_UNKNOWN"]);
    assert.equal(sent().length, 3);
  });

  test("ends with its caller, and without a request id nothing is left of it", async (context) => {
    const asked = Promise.withResolvers<void>();
    const closed = Promise.withResolvers<void>();
    const silent: Answer = (_, response) => {
      response.on("close", () => closed.resolve());
      asked.resolve();
    };
    const { plans } = await start(context, [silent]);
    const abort = new AbortController();
    const call = plans.createPlan({ requirement: "Read it." }, { signal: abort.signal });
    await asked.promise;
    abort.abort();
    assert.equal((await failure(call)).code, Code.Canceled);
    await closed.promise;
    assert.deepEqual((await plans.listPlans({})).plans, []);
  });

  test("that nobody waits for any more does not keep the server from stopping", async (context) => {
    const asked = Promise.withResolvers<void>();
    const { app, plans } = await start(context, [() => asked.resolve()]);
    const abort = new AbortController();
    const call = plans.createPlan({ requirement: "Read it.", requestId: "r1" }, { signal: abort.signal });
    await asked.promise;
    abort.abort();
    assert.equal((await failure(call)).code, Code.Canceled);
    await app.close();
  });

  test("with a request id goes on without its caller, who can come back for it", async (context) => {
    const asked = Promise.withResolvers<void>();
    const go = Promise.withResolvers<void>();
    const slow: Answer = async (...exchange) => {
      asked.resolve();
      await go.promise;
      writes(good)(...exchange);
    };
    const { plans, sent } = await start(context, [slow]);
    const request = { requirement: "Read it.", requestId: "r1" };
    const abort = new AbortController();
    const call = plans.createPlan(request, { signal: abort.signal });
    await asked.promise;
    abort.abort();
    assert.equal((await failure(call)).code, Code.Canceled);
    const again = plans.createPlan(request);
    go.resolve();
    const plan = await again;
    assert.equal(plan.state, "ready");
    assert.deepEqual(await plans.createPlan(request), plan);
    assert.deepEqual([(await plans.listPlans({})).plans.length, sent().length], [1, 1]);
    const other = await failure(plans.createPlan({ ...request, context: "more" }));
    assert.equal(other.code, Code.AlreadyExists);
  });

  test("is not begun without a model, and a model that is not to be had is an error", async (context) => {
    const { plans } = await start(context, nobody, { flags: { model: "" } });
    assert.equal((await failure(plans.createPlan({ requirement: "x" }))).reason, "NO_MODEL");
    assert.equal((await failure(plans.createPlan({ requirement: "x", model: "nowhere/m" }))).code, Code.NotFound);
  });
});

function planOf({ steps, goal }: { readonly steps: readonly JsonObject[]; readonly goal: string }) {
  return {
    goal,
    steps: steps.map(({ id, kind, description, function: name, parameters, depends_on }) => ({
      id: String(id),
      kind: String(kind),
      description: String(description),
      function: String(name),
      parameters: String(parameters),
      dependsOn: Array.isArray(depends_on) ? depends_on.map(String) : [],
    })),
  };
}

describe("a plan that is changed", { timeout: 60_000 }, () => {
  test("by words is written anew from what it was, and its versions stay", async (context) => {
    const better = { ...good, goal: "It is read twice." };
    const { plans, sent } = await start(context, [writes(better)]);
    const first = await plans.createPlan({ requirement: "Read it.", plan: handedIn, metadata: { by: "me" } });
    assert.deepEqual([first.state, first.version, first.model, first.usage], ["ready", 1, "", undefined]);
    const second = await plans.refinePlan({ planId: first.id, version: 1, feedback: "Twice, please." });
    assert.deepEqual([second.id, second.version, second.goal], [first.id, 2, "It is read twice."]);
    assert.deepEqual([second.requirement, second.metadata], ["Read it.", { by: "me" }]);
    assert.deepEqual([second.createTime, second.usage?.totalTokens], [first.createTime, 12n]);
    for (const words of ["It is read.", "README.md", "Twice, please.", "Read it."])
      assert.ok(sent()[0]?.includes(asSent(words)), words);
    assert.deepEqual(await plans.getPlan({ planId: first.id, version: 1 }), first);
    assert.deepEqual(await plans.getPlan({ planId: first.id }), second);
    const [listed] = (await plans.listPlans({})).plans;
    assert.deepEqual(listed, second);
  });

  test("by hand is taken over whole and checked", async (context) => {
    const { plans, sent } = await start(context, nobody);
    const first = await plans.createPlan({ requirement: "Read it.", plan: handedIn, metadata: { by: "me" } });
    const edited = { ...handedIn, goal: "New.", metadata: { edited: "yes" }, successCriteria: ["It is new."] };
    const second = await plans.refinePlan({ planId: first.id, plan: edited });
    assert.deepEqual(
      [second.version, second.state, second.goal, second.metadata],
      [2, "ready", "New.", { edited: "yes" }],
    );
    assert.deepEqual([second.requirement, second.successCriteria], ["Read it.", ["It is new."]]);
    const broken = { goal: "x", steps: [{ ...read, parameters: '{"path":5}' }] };
    const third = await plans.refinePlan({ planId: first.id, version: 2, plan: broken });
    assert.deepEqual([third.version, third.state, third.problems[0]?.code], [3, "invalid", "PARAMETERS_DO_NOT_FIT"]);
    const old = await failure(plans.refinePlan({ planId: first.id, version: 2, plan: edited }));
    assert.deepEqual([old.code, old.reason], [Code.FailedPrecondition, "PLAN_CHANGED"]);
    assert.match(old.says, /version 2 of plan \w+ is not the newest, 3 is/);
    assert.equal(sent().length, 0);
  });

  test("twice at once is changed once", async (context) => {
    const both = Promise.withResolvers<void>();
    let waiting = 0;
    const together: Answer = async (...exchange) => {
      if (++waiting === 2) both.resolve();
      await both.promise;
      writes(good)(...exchange);
    };
    const { plans } = await start(context, [together, together]);
    const { id } = await plans.createPlan({ plan: handedIn });
    const calls = ["a", "b"].map((feedback) => plans.refinePlan({ planId: id, feedback }));
    const [one, other] = await Promise.allSettled(calls);
    const statuses = [one?.status, other?.status].toSorted();
    assert.deepEqual(statuses, ["fulfilled", "rejected"]);
    const late = one?.status === "rejected" ? one : other;
    assert.equal(late?.status === "rejected" && ConnectError.from(late.reason).code, Code.FailedPrecondition);
    assert.equal((await plans.getPlan({ planId: id })).version, 2);
  });

  test("with a request id is changed once, however often it is asked for", async (context) => {
    const { plans, sent } = await start(context, [writes(good)]);
    const { id } = await plans.createPlan({ plan: handedIn });
    const request = { planId: id, version: 1, feedback: "Better.", requestId: "r1" };
    const [one, two] = await Promise.all([plans.refinePlan(request), plans.refinePlan(request)]);
    assert.deepEqual(one, two);
    assert.deepEqual(await plans.refinePlan(request), one);
    assert.deepEqual([one?.version, sent().length], [2, 1]);
  });
});

describe("plans", { timeout: 60_000 }, () => {
  const databases = [
    { name: "SQLite", skip: false, flags: async () => ({}) },
    { name: "PostgreSQL", skip: noPostgres, flags: async () => ({ database_url: await testDatabase() }) },
  ];
  for (const { name, skip, flags } of databases) {
    test(`stay over a restart, and their sessions' end: ${name}`, { skip }, async (context) => {
      const options = { flags: await flags() };
      const first = await start(context, nobody, options);
      await first.client.createSession({ sessionId: "one" });
      const made = await first.plans.createPlan({ plan: handedIn, sessionId: "one", requestId: "r1" });
      const changed = await first.plans.refinePlan({ planId: made.id, plan: { ...handedIn, goal: "Changed." } });
      await first.client.deleteSession({ sessionId: "one" });
      await first.app.close();
      const { plans } = await start(context, nobody, { ...options, dataDir: first.dataDir });
      assert.deepEqual(await plans.getPlan({ planId: made.id }), changed);
      assert.deepEqual(await plans.getPlan({ planId: made.id, version: 1 }), made);
      assert.deepEqual(await plans.createPlan({ plan: handedIn, sessionId: "one", requestId: "r1" }), made);
      assert.equal((await plans.listPlans({ sessionId: "one" })).plans.length, 1);
      const gone = await failure(plans.refinePlan({ planId: made.id, plan: handedIn }));
      assert.equal(gone.code, Code.NotFound);
    });
  }

  test("are listed newest first, a page at a time, of one session when asked", async (context) => {
    const { plans, client } = await start(context, nobody);
    await client.createSession({ sessionId: "one" });
    const ids: string[] = [];
    for (const sessionId of ["", "one", "", "one", ""])
      ids.push((await plans.createPlan({ plan: handedIn, sessionId })).id);
    const seen: string[] = [];
    let pageToken = "";
    do {
      const page = await plans.listPlans({ pageSize: 2, pageToken });
      assert.ok(page.plans.length <= 2);
      seen.push(...page.plans.map(({ id }) => id));
      pageToken = page.nextPageToken;
    } while (pageToken !== "");
    assert.deepEqual(seen.toSorted(), ids.toSorted());
    const times = (await plans.listPlans({})).plans.map(({ createTime }) => Number(createTime?.seconds));
    assert.deepEqual(
      times,
      times.toSorted((one, other) => other - one),
    );
    const ofOne = (await plans.listPlans({ sessionId: "one" })).plans.map(({ id }) => id);
    assert.deepEqual(ofOne.toSorted(), [ids[1], ids[3]].toSorted());
  });

  test("of a session are checked with what that session has", async (context) => {
    const { plans, client, model } = await start(context, [writes(good)], { flags: { model: "" } });
    await client.createSession({ sessionId: "one", model, budget: { maxCostNanoUsd: 1n } });
    const plan = await plans.createPlan({ requirement: "Read it.", sessionId: "one" });
    assert.deepEqual([plan.sessionId, plan.model, plan.state], ["one", model, "ready"]);
  });

  test("that are too large are refused", async (context) => {
    const { plans } = await start(context, nobody);
    const steps = Array.from({ length: 20 }, (_, index) => ({
      ...handedIn.steps[0],
      id: `s${index}`,
      description: "x".repeat(40_000),
    }));
    const large = await failure(plans.createPlan({ plan: { ...handedIn, steps } }));
    assert.deepEqual([large.code, large.reason], [Code.ResourceExhausted, "PLAN_TOO_LARGE"]);
  });

  test("are served, as health says", async (context) => {
    const { transport } = await start(context, nobody);
    const { status } = await createClient(Health, transport).check({ service: PlanService.typeName });
    assert.equal(status, ServingStatus.SERVING);
  });

  test("that are not there are not found", async (context) => {
    const { plans } = await start(context, nobody);
    const { id } = await plans.createPlan({ plan: handedIn });
    for (const call of [
      plans.getPlan({ planId: "none" }),
      plans.refinePlan({ planId: "none", feedback: "x" }),
      plans.createPlan({ sessionId: "none", plan: handedIn }),
      plans.createPlan({ sessionId: "none", requirement: "x" }),
    ])
      assert.equal((await failure(call)).code, Code.NotFound);
    const version = await failure(plans.getPlan({ planId: id, version: 2 }));
    assert.deepEqual([version.code, version.reason], [Code.NotFound, "PLAN_VERSION_NOT_FOUND"]);
  });
});

test("requests that make no sense name the field", async (context) => {
  const { plans } = await start(context, nobody);
  const { id: planId } = await plans.createPlan({ plan: handedIn });
  const [whole] = handedIn.steps;
  const nested = {
    id: "each",
    kind: "for_each",
    details: { case: "forEach" as const, value: { items: "[]", steps: [{}] } },
  };
  const create: Parameters<typeof plans.createPlan>[0][] = [
    {},
    { requirement: " \n" },
    { requirement: "x".repeat(100_001) },
    { requirement: "x", context: "x".repeat(100_001) },
    { requirement: "x", sessionId: "a/b" },
    { requirement: "x", requestId: "r".repeat(257) },
    { requirement: "x", budget: { maxDurationMs: 2n ** 40n } },
    { requirement: "x", metadata: { key: "v".repeat(70_000) } },
    { requirement: "x", allowedFunctions: [""] },
    { requirement: "x", model: "m".repeat(1001) },
    { plan: { steps: [{ ...whole, kind: "fly" }] } },
    { plan: { steps: [{ ...whole, id: "a b" }] } },
    { plan: { steps: [nested] } },
    { plan: { ...handedIn, complexity: "huge" } },
  ];
  const fields = [
    ...["requirement", "requirement", "requirement", "context", "session_id", "request_id"],
    ...["budget.max_duration_ms", "metadata", "allowed_functions[0]", "model", "plan.steps[0].kind"],
    ...["plan.steps[0].id", "plan.steps[0].for_each.steps[0].id", "plan.complexity"],
  ];
  const calls = [
    ...create.map((request, index) => [fields[index], plans.createPlan(request)] as const),
    ["plan_id", plans.getPlan({})] as const,
    ["plan_id", plans.getPlan({ planId: "a/b" })] as const,
    ["version", plans.getPlan({ planId, version: 0 })] as const,
    ["page_size", plans.listPlans({ pageSize: 1001 })] as const,
    ["page_token", plans.listPlans({ pageToken: "!" })] as const,
    ["page_token", plans.listPlans({ pageToken: Buffer.from('["a"]').toString("base64url") })] as const,
    ["session_id", plans.listPlans({ sessionId: "a/b" })] as const,
    ["plan_id", plans.refinePlan({ feedback: "x" })] as const,
    ["feedback", plans.refinePlan({ planId })] as const,
    ["feedback", plans.refinePlan({ planId, feedback: "x", plan: handedIn })] as const,
    ["version", plans.refinePlan({ planId, version: 0, feedback: "x" })] as const,
    ["plan.steps[0].kind", plans.refinePlan({ planId, plan: { steps: [{ ...whole, kind: "" }] } })] as const,
    [
      "budget.max_duration_ms",
      plans.refinePlan({ planId, feedback: "x", budget: { maxDurationMs: 2n ** 40n } }),
    ] as const,
  ];
  for (const [field, call] of calls) {
    const failed = await failure(call);
    assert.deepEqual([failed.code, failed.fields], [Code.InvalidArgument, [field]], failed.says);
  }
  assert.equal((await plans.listPlans({})).plans.length, 1);
});
