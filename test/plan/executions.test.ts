// biome-ignore-all lint/suspicious/noTemplateCurlyInString: prompts of plans have references of this form.
import assert from "node:assert/strict";
import { after, describe, type TestContext, test } from "node:test";
import { setImmediate as nextMoment, setTimeout as wait } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { type PlanEvent, PlanService, type PlanStepSchema } from "../../gen/codeagent/v1/plan_service_pb.ts";
import { noOutput } from "../../src/chat/tool-result.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";
import { collect } from "../support/grammar.ts";
import { noPostgres, stopTestDatabases, testDatabase } from "../support/postgres.ts";
import { startTestApp, type TestAppOptions } from "../support/test-app.ts";

type Step = MessageInitShape<typeof PlanStepSchema>;

/** Functions whose effects are counted; `hold` waits until it is let go or aborted. */
function sampleFunctions() {
  const ran: string[] = [];
  const aborted: string[] = [];
  let failuresLeft = 0;
  const names = ["look", "change", "fail", "hold", "flaky", "nothing", "quiet", "long"];
  const provider: FunctionProvider = {
    source: "local",
    list: async () =>
      names.map((name) => ({
        name,
        description: name,
        parameters: '{"type":"object"}',
        source: "local",
        readOnly: name !== "change" && name !== "hold",
        timeoutMs: 30_000,
      })),
    async call({ name, arguments: given }, { signal, onOutput }) {
      ran.push(`${name} ${JSON.stringify(given)}`);
      if (name === "fail") return { success: false, output: "", error: "it does not work" };
      if (name === "flaky" && failuresLeft-- > 0) return { success: false, output: "", error: "not now" };
      if (name === "nothing") return { success: true, output: "" };
      if (name === "quiet") return { success: true, output: noOutput };
      if (name === "long") return { success: true, output: "x".repeat(300_000) };
      if (name === "hold") {
        onOutput?.("stdout", "holding\n");
        try {
          await wait(20_000, undefined, { signal });
        } finally {
          aborted.push(JSON.stringify(given));
        }
      }
      return { success: true, output: JSON.stringify({ name, ...given }) };
    },
    close: async () => undefined,
  };
  return {
    provider,
    ran,
    aborted,
    failTimes: (count: number) => {
      failuresLeft = count;
    },
  };
}

const allowAll = { permissions: { allow: ["change", "hold"] } };

async function startSample(context: TestContext, options: TestAppOptions = {}) {
  const functions = sampleFunctions();
  const { flags = {}, ...others } = options;
  const sample = await startTestApp(context, {
    functions: [functions.provider],
    flags: { "permissions.allow": allowAll.permissions.allow, ...flags },
    ...others,
  });
  const plans = createClient(PlanService, sample.transport);
  return {
    ...sample,
    ...functions,
    plans,
    async make(steps: readonly Step[], more: { inputSchema?: string; successCriteria?: string[] } = {}) {
      const plan = await plans.createPlan({
        plan: { goal: "it works", requirement: "make it", steps: [...steps], ...more },
      });
      assert.deepEqual(
        plan.problems.filter(({ severity }) => severity === "error"),
        [],
      );
      assert.deepEqual(plan.missingFunctions, []);
      return plan.id;
    },
    async atRest() {
      while (sample.app.sessions.working > 0) await nextMoment();
    },
  };
}

type Sample = Awaited<ReturnType<typeof startSample>>;

/** What a stream of an execution says, as lines; the frames have to be in order. */
async function followed(stream: AsyncIterable<PlanEvent>, onEvent?: (event: PlanEvent) => Promise<void> | void) {
  const lines: string[] = [];
  let seq = 0n;
  let finished: Extract<PlanEvent["event"], { case: "finished" }>["value"] | undefined;
  for await (const frame of stream) {
    const { event } = frame;
    if (event.case === "streamReady" || event.case === "keepAlive" || event.case === "progress") {
      assert.equal(frame.seq, 0n);
      continue;
    }
    if (seq !== 0n) assert.equal(frame.seq, seq + 1n);
    seq = frame.seq;
    assert.equal(finished, undefined, "nothing follows the end");
    if (event.case === "stepChanged") {
      const { stepId, itemPath, state } = event.value;
      lines.push(`${stepId}${itemPath.length === 0 ? "" : `[${itemPath.join()}]`} ${state}`);
    }
    if (event.case === "finished") finished = event.value;
    await onEvent?.(frame);
  }
  return { lines, finished, seq };
}

function hasCode(code: Code, pattern = /./) {
  return (error: unknown) => {
    assert.ok(error instanceof ConnectError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.rawMessage, pattern);
    return true;
  };
}

const call = (id: string, name: string, given: object = {}, more: Step = {}): Step => ({
  id,
  kind: "function_call",
  function: name,
  parameters: JSON.stringify(given),
  ...more,
});

const modelStep = (id: string, value: { prompt: string; schema?: string }, more: Step = {}): Step => ({
  id,
  kind: "model",
  details: { case: "model", value },
  ...more,
});

describe("what an execution comes to", () => {
  const rows: readonly {
    readonly name: string;
    readonly steps: readonly Step[];
    readonly lines: readonly string[];
    readonly state?: string;
    readonly output?: unknown;
    readonly failed?: string;
    readonly ran?: readonly string[];
    readonly failTimes?: number;
  }[] = [
    {
      name: "a call, and one that takes its result",
      steps: [call("a", "look", { at: 1 }), call("b", "change", { from: { ref: "step.a.result.at" } })],
      lines: ["a running", "a completed", "b running", "b completed"],
      output: { name: "change", from: 1 },
      ran: ['look {"at":1}', 'change {"from":1}'],
    },
    {
      name: "a void result is null",
      steps: [call("a", "nothing"), call("b", "look", { from: { ref: "step.a.result" } })],
      lines: ["a running", "a completed", "b running", "b completed"],
      output: { name: "look", from: null },
    },
    {
      name: "what says that it wrote nothing has no result either",
      steps: [call("a", "quiet"), call("b", "look", { from: { ref: "step.a.result" } })],
      lines: ["a running", "a completed", "b running", "b completed"],
      output: { name: "look", from: null },
    },
    {
      name: "a failure ends it",
      steps: [call("a", "fail"), call("b", "look", {}, { dependsOn: ["a"] })],
      lines: ["a running", "a failed"],
      state: "failed",
      failed: "a",
    },
    {
      name: "a failure skips what depends on it",
      steps: [
        call("a", "fail", {}, { onError: "skip" }),
        call("b", "look", {}, { dependsOn: ["a"] }),
        call("c", "look", {}, { dependsOn: ["b"] }),
        call("d", "nothing"),
      ],
      lines: ["a running", "d running", "a failed", "d completed", "b skipped", "c skipped"],
      output: null,
    },
    {
      name: "a failure that does not matter",
      steps: [call("a", "fail", {}, { onError: "continue" }), call("b", "look", { got: { ref: "step.a.result" } })],
      lines: ["a running", "a failed", "b running", "b completed"],
      output: { name: "look", got: null },
    },
    {
      name: "a failure is tried again",
      steps: [call("a", "flaky", {}, { retry: { delayMs: 5n, maxAttempts: 3 } })],
      failTimes: 2,
      lines: ["a running", "a waiting", "a running", "a waiting", "a running", "a completed"],
      output: { name: "flaky" },
    },
    {
      name: "it is tried so often and not more",
      steps: [call("a", "fail", {}, { retry: { delayMs: 5n, maxAttempts: 2 } })],
      lines: ["a running", "a waiting", "a running", "a failed"],
      state: "failed",
      failed: "a",
    },
    {
      name: "a call that takes too long",
      steps: [call("a", "hold", {}, { timeoutMs: 30n })],
      lines: ["a running", "a failed"],
      state: "failed",
      failed: "a",
    },
    {
      name: "a condition that does not hold",
      steps: [call("a", "look", { at: 1 }), call("b", "look", {}, { condition: "step.a.result.at > 1" })],
      lines: ["a running", "a completed", "b skipped"],
      output: null,
    },
    {
      name: "one case of a branch",
      steps: [
        call("a", "look", { at: 2 }),
        {
          id: "br",
          kind: "branch",
          details: {
            case: "branch",
            value: {
              cases: [
                { condition: "step.a.result.at == 1", steps: [call("one", "look")] },
                { condition: "step.a.result.at == 2", steps: [call("two", "look", { n: 2 })] },
                { condition: "step.a.result.at >= 2", steps: [call("three", "look")] },
              ],
              otherwise: [call("other", "look")],
            },
          },
        },
      ],
      lines: ["a running", "a completed", "br running", "two running", "two completed", "br completed"],
      output: { name: "look", n: 2 },
    },
    {
      name: "each item once, and an empty list",
      steps: [
        {
          id: "each",
          kind: "for_each",
          details: {
            case: "forEach",
            value: { items: "[1,2]", steps: [call("in", "look", { it: { ref: "item" }, at: { ref: "index" } })] },
          },
        },
        {
          id: "none",
          kind: "for_each",
          details: { case: "forEach", value: { items: "[]", steps: [call("never", "look")] } },
          dependsOn: ["each"],
        },
        call("all", "look", { all: { ref: "step.each.result" }, none: { ref: "step.none.result" } }),
      ],
      lines: [
        "each running",
        "in[0] running",
        "in[0] completed",
        "in[1] running",
        "in[1] completed",
        "each completed",
        "none running",
        "none completed",
        "all running",
        "all completed",
      ],
      output: {
        name: "look",
        all: [
          { name: "look", it: 1, at: 0 },
          { name: "look", it: 2, at: 1 },
        ],
        none: [],
      },
    },
    {
      name: "what completed is undone in reverse",
      steps: [
        call(
          "a",
          "change",
          { n: 1 },
          { compensation: { function: "look", parameters: '{"undo":{"ref":"step.a.result.n"}}' } },
        ),
        call("b", "change", { n: 2 }, { dependsOn: ["a"], compensation: { function: "fail", parameters: "{}" } }),
        call("c", "fail", {}, { dependsOn: ["b"], compensation: { function: "look", parameters: "{}" } }),
      ],
      lines: [
        "a running",
        "a completed",
        "b running",
        "b completed",
        "c running",
        "c failed",
        "b compensating",
        "b compensation_failed",
        "a compensating",
        "a compensated",
      ],
      state: "failed",
      failed: "c",
      ran: ['change {"n":1}', 'change {"n":2}', "fail {}", "fail {}", 'look {"undo":1}'],
    },
    {
      name: "a model answers in text and in JSON",
      steps: [
        modelStep("say", { prompt: "say hello" }),
        modelStep("json", { prompt: "JSON for ${step.say.result}", schema: '{"type":"object","required":["n"]}' }),
        call("got", "look", { text: { ref: "step.say.result" }, n: { ref: "step.json.result.n" } }),
      ],
      lines: ["say running", "say completed", "json running", "json completed", "got running", "got completed"],
      output: { name: "look", text: "hello there", n: 7 },
    },
    {
      name: "a pause that is long enough to give its place up",
      steps: [call("a", "flaky", {}, { retry: { delayMs: 1100n } })],
      failTimes: 1,
      lines: ["a running", "a waiting", "a running", "a completed"],
      output: { name: "flaky" },
    },
    {
      name: "steps that together take too long",
      steps: [
        {
          id: "all",
          kind: "parallel",
          timeoutMs: 50n,
          onError: "continue",
          details: {
            case: "parallel",
            value: { branches: [{ name: "x", steps: [call("h", "hold"), call("n", "look")] }] },
          },
        },
        call("after", "look", { got: { ref: "step.all.result" } }),
      ],
      lines: [
        "all running",
        "h running",
        "n running",
        "n completed",
        "h cancelled",
        "all failed",
        "after running",
        "after completed",
      ],
      output: { name: "look", got: null },
    },
    {
      name: "a model that takes too long",
      steps: [modelStep("slow", { prompt: "be slow" }, { timeoutMs: 50n })],
      lines: ["slow running", "slow failed"],
      state: "failed",
      failed: "slow",
    },
    {
      name: "a model whose answer does not fit",
      steps: [modelStep("json", { prompt: "no JSON", schema: '{"type":"object"}' }, { onError: "skip" })],
      lines: ["json running", "json failed"],
      output: null,
    },
    {
      name: "items that are no list",
      steps: [
        {
          id: "each",
          kind: "for_each",
          details: { case: "forEach", value: { items: '{"ref":"input.list"}', steps: [call("in", "look")] } },
        },
      ],
      lines: ["each failed"],
      state: "failed",
      failed: "each",
    },
    {
      name: "a failure within a loop stops what runs beside it",
      steps: [
        {
          id: "both",
          kind: "parallel",
          details: {
            case: "parallel",
            value: {
              branches: [
                { name: "x", steps: [call("h", "hold")] },
                { name: "y", steps: [call("f", "fail")] },
              ],
            },
          },
        },
      ],
      lines: ["both running", "h running", "f running", "f failed", "h cancelled", "both failed"],
      state: "failed",
      failed: "f",
    },
  ];
  const script = `
- when: { text: JSON for hello there }
  text: '{"n":7}'
- when: { text: be slow }
  text: a long answer that takes its time
  chunk: 1
  delay_ms: 50
- { text: hello there, chunk: 4 }
`;
  for (const { name, steps, lines, state = "completed", output = null, failed = "", ran, failTimes = 0 } of rows) {
    test(name, async (context) => {
      const sample = await startSample(context, { script });
      sample.failTimes(failTimes);
      const planId = await sample.make(steps);
      const { lines: seen, finished } = await followed(sample.plans.executePlan({ planId }));
      assert.deepEqual(seen, lines);
      assert.deepEqual(
        [finished?.state, finished?.failedStepId],
        [state, failed],
        finished?.error?.message ?? "no error",
      );
      assert.deepEqual(JSON.parse(finished?.output ?? ""), state === "completed" ? output : null);
      if (ran !== undefined) assert.deepEqual(sample.ran, ran);
      const plan = await sample.plans.getPlan({ planId });
      assert.equal(plan.state, state);
      // The log behind it keeps the grammar of turns.
      await collect(sample.client.subscribeSession({ sessionId: plan.executionId }), 1n);
      await sample.atRest();
    });
  }
});

const schema = JSON.stringify({
  type: "object",
  properties: { name: { type: "string" }, count: { type: "integer", default: 3 } },
  required: ["name"],
  additionalProperties: false,
});
const ask = (id: string, more: Step = {}): Step => ({
  id,
  kind: "user_input",
  details: { case: "userInput", value: { prompt: "which one for ${input.what}?", schema } },
  ...more,
});
const withWhat = { inputSchema: '{"type":"object","properties":{"what":{"type":"string","default":"tea"}}}' };

/** Reads until a question or an approval waits. */
async function untilAsked(sample: Sample, planId: string) {
  const leave = new AbortController();
  let asked: { executionId: string; prompt: string; schema: string } | undefined;
  try {
    for await (const { event, executionId } of sample.plans.executePlan({ planId }, { signal: leave.signal })) {
      if (event.case === "inputRequested")
        asked = { executionId, prompt: event.value.prompt, schema: event.value.schema };
      if (event.case === "stepChanged" && event.value.state === "waiting")
        asked = { executionId, prompt: "", schema: "" };
      if (asked !== undefined) leave.abort();
      assert.notEqual(event.case, "finished");
    }
  } catch (error) {
    if (asked === undefined) throw error;
  }
  if (asked !== undefined) return asked;
  throw new Error("the stream ended");
}

test("values that a step asks for are given after a restart, with defaults, once", async (context) => {
  const first = await startSample(context);
  const planId = await first.make([ask("which"), call("use", "look", { got: { ref: "step.which.result" } })], withWhat);
  const { executionId, prompt, schema: shown } = await untilAsked(first, planId);
  assert.deepEqual([prompt, shown], ["which one for tea?", schema]);
  await first.atRest();
  assert.equal((await first.plans.getPlan({ planId })).state, "waiting");
  const { requests } = await first.client.listPendingRequests({ sessionId: executionId });
  assert.deepEqual(
    requests.map(({ kind, toolCallId }) => [kind, toolCallId]),
    [["question", "which"]],
  );
  await first.app.close(0);
  const second = await startSample(context, { dataDir: first.dataDir });
  const submit = (values: string, stepId = "which", itemPath: number[] = []) =>
    second.plans.submitPlanInput({ planId, stepId, itemPath, values });
  await assert.rejects(submit("{}"), hasCode(Code.InvalidArgument, /"name" is missing/));
  await assert.rejects(submit('{"name":1}'), hasCode(Code.InvalidArgument, /"name" must be string/));
  await assert.rejects(submit("no"), hasCode(Code.InvalidArgument, /no JSON/));
  await assert.rejects(submit("{}", "nobody"), hasCode(Code.NotFound));
  await assert.rejects(submit("{}", "use"), hasCode(Code.NotFound));
  await assert.rejects(submit("{}", "which", [1]), hasCode(Code.FailedPrecondition, /does not wait/));
  await assert.rejects(submit("{}", ""), hasCode(Code.InvalidArgument, /step_id: is empty; name a step/));
  const reading = followed(second.plans.executePlan({ planId, executionId }));
  const taken = await submit('{"name":"x"}');
  assert.deepEqual(JSON.parse(taken.values), { name: "x", count: 3 });
  const { lines, finished } = await reading;
  assert.deepEqual(lines, ["which running", "which completed", "use running", "use completed"]);
  assert.deepEqual(JSON.parse(finished?.output ?? ""), { name: "look", got: { name: "x", count: 3 } });
  await assert.rejects(submit('{"name":"x"}'), hasCode(Code.FailedPrecondition, /does not wait/));
});

test("an answer in any words that does not fit is asked for again", async (context) => {
  const sample = await startSample(context);
  const planId = await sample.make([ask("which")], withWhat);
  let answers = ["just tea", '{"name":"y"}'];
  const { finished } = await followed(sample.plans.executePlan({ planId }), async ({ event, executionId }) => {
    if (event.case !== "inputRequested") return;
    const { requests } = await sample.client.listPendingRequests({ sessionId: executionId });
    const [text = "", ...others] = answers;
    answers = others;
    const requestId = requests[0]?.requestId ?? "";
    await sample.client.respondToRequest({
      sessionId: executionId,
      responses: [{ requestId, decision: "answer", text }],
    });
  });
  assert.deepEqual(JSON.parse(finished?.output ?? ""), { name: "y", count: 3 });
});

test("a question that nobody answers in time fails the step", async (context) => {
  const sample = await startSample(context);
  const planId = await sample.make([ask("which", { timeoutMs: 30n })], withWhat);
  const { finished } = await followed(sample.plans.executePlan({ planId }));
  assert.deepEqual([finished?.state, finished?.failedStepId], ["failed", "which"]);
  assert.match(finished?.error?.message ?? "", /nobody answered in time/);
});

test("undoing is asked for where it needs approval, and what is denied is told", async (context) => {
  const sample = await startSample(context, { flags: { "permissions.allow": ["change(done)"] } });
  const compensation = { function: "change", parameters: '{"undo":true}' };
  const planId = await sample.make([
    call("a", "look", {}, { compensation }),
    call("b", "fail", {}, { dependsOn: ["a"] }),
  ]);
  const { lines, finished } = await followed(sample.plans.executePlan({ planId }), async ({ event, executionId }) => {
    if (event.case !== "stepChanged" || !event.value.reason.startsWith("change")) return;
    const { requests } = await sample.client.listPendingRequests({ sessionId: executionId });
    const [request] = requests;
    assert.equal(request?.toolCallId, "undo:a");
    const requestId = request?.requestId ?? "";
    await sample.client.respondToRequest({ sessionId: executionId, responses: [{ requestId, decision: "deny" }] });
  });
  assert.deepEqual(lines.slice(-4), ["b failed", "a compensating", "a compensating", "a compensation_failed"]);
  assert.equal(finished?.failedStepId, "b");
  assert.deepEqual(sample.ran, ["look {}", "fail {}"]);
});

test("a budget of tokens keeps the next model from being asked", async (context) => {
  const sample = await startSample(context, {
    script: "- { text: hello, usage: { prompt_tokens: 5, completion_tokens: 5 } }\n",
  });
  const planId = await sample.make([
    modelStep("a", { prompt: "one" }),
    modelStep("b", { prompt: "two" }, { dependsOn: ["a"] }),
  ]);
  const { lines, finished } = await followed(sample.plans.executePlan({ planId, budget: { maxTotalTokens: 1n } }));
  assert.deepEqual(lines, ["a running", "a completed", "b failed"]);
  assert.equal(finished?.error?.reason, "BUDGET_TOKENS");
  assert.equal(finished?.usage?.outputTokens, 5n);
});

test("a budget of time stops what runs and undoes what completed", async (context) => {
  const sample = await startSample(context);
  const compensation = { function: "look", parameters: '{"undo":1}' };
  const planId = await sample.make([
    call("a", "look", {}, { compensation }),
    call("h", "hold", {}, { dependsOn: ["a"] }),
  ]);
  const { lines, finished } = await followed(sample.plans.executePlan({ planId, budget: { maxDurationMs: 150n } }));
  assert.deepEqual(lines.slice(-3), ["h cancelled", "a compensating", "a compensated"]);
  assert.deepEqual([finished?.state, finished?.error?.reason], ["failed", "BUDGET_DURATION"]);
  assert.equal(sample.aborted.length, 1);
});

describe("a step that needs approval", () => {
  const rows = [
    { decision: "allow_once", state: "completed", ran: ['look {"n":1}', 'change {"n":2}'] },
    { decision: "deny", state: "failed", ran: ['look {"n":1}'] },
  ];
  for (const { decision, state, ran } of rows) {
    test(`${decision}, after a restart`, async (context) => {
      const flags = { "permissions.allow": [] };
      const first = await startSample(context, { flags });
      const planId = await first.make([call("c", "change", { n: 2 }), call("l", "look", { n: 1 })]);
      const { executionId } = await untilAsked(first, planId);
      await first.atRest();
      assert.deepEqual(first.ran, ['look {"n":1}']);
      assert.equal((await first.plans.getPlan({ planId })).state, "waiting");
      await first.app.close(0);
      const second = await startSample(context, { dataDir: first.dataDir, flags });
      const { requests } = await second.client.listPendingRequests({ sessionId: executionId });
      const [request] = requests;
      assert.deepEqual([request?.toolName, request?.toolCallId, request?.arguments], ["change", "c", '{"n":2}']);
      const requestId = request?.requestId ?? "";
      await second.client.respondToRequest({ sessionId: executionId, responses: [{ requestId, decision }] });
      const { finished } = await followed(second.plans.executePlan({ planId, executionId }));
      assert.equal(finished?.state, state);
      assert.deepEqual([...first.ran, ...second.ran], ran);
    });
  }
});

test("a cancelled execution stops what runs and undoes what completed", async (context) => {
  const sample = await startSample(context);
  const undo = { compensation: { function: "look", parameters: '{"undo":1}' } };
  const planId = await sample.make(
    [call("a", "change", {}, undo), call("h", "hold", {}, { dependsOn: ["a"] }), ask("q")],
    withWhat,
  );
  const { lines, finished } = await followed(sample.plans.executePlan({ planId }), async ({ event }) => {
    if (event.case !== "stepOutput") return;
    assert.deepEqual([event.value.stepId, event.value.stream, event.value.text], ["h", "stdout", "holding\n"]);
    const { wasRunning, executionId } = await sample.plans.cancelPlan({ planId });
    assert.ok(wasRunning);
    assert.match(executionId, /^exec_/);
  });
  assert.equal(finished?.state, "cancelled");
  assert.deepEqual(sample.aborted, ["{}"]);
  assert.deepEqual(lines.toSorted(), [
    "a compensated",
    "a compensating",
    "a completed",
    "a running",
    "h cancelled",
    "h running",
    "q cancelled",
    "q running",
  ]);
  const { wasRunning } = await sample.plans.cancelPlan({ planId });
  assert.equal(wasRunning, false);
});

test("an execution is joined by its request id, and read on from a cursor", async (context) => {
  const sample = await startSample(context);
  const planId = await sample.make([call("a", "change"), call("b", "look", {}, { dependsOn: ["a"] })]);
  const first = await followed(sample.plans.executePlan({ planId, requestId: "once" }));
  const again = await followed(sample.plans.executePlan({ planId, requestId: "once" }));
  assert.deepEqual(again, first);
  assert.deepEqual(sample.ran, ["change {}", "look {}"]);
  const later = await followed(sample.plans.executePlan({ planId, requestId: "once", afterSeq: 3n }));
  assert.deepEqual(later.lines, ["b running", "b completed"]);
  assert.deepEqual(later.finished, first.finished);
  const nothing = await followed(sample.plans.executePlan({ planId, requestId: "once", afterSeq: first.seq }));
  assert.deepEqual(nothing.lines, []);
  const read = (request: Parameters<typeof sample.plans.executePlan>[0]) => followed(sample.plans.executePlan(request));
  await assert.rejects(read({ planId, requestId: "once", input: "{ }" }), hasCode(Code.AlreadyExists));
  await assert.rejects(read({ planId, requestId: "once", afterSeq: 99n }), hasCode(Code.InvalidArgument, /after_seq/));
  await assert.rejects(read({ planId, input: '{"x":1}' }), hasCode(Code.InvalidArgument, /input/));
  await assert.rejects(read({ planId: "other" }), hasCode(Code.NotFound));
  await assert.rejects(read({ planId, executionId: "exec_none" }), hasCode(Code.NotFound));
  await assert.rejects(read({ planId, executionId: "exec_none", input: "{}" }), hasCode(Code.InvalidArgument, /input/));
});

test("an execution that was deleted while it ran is stopped, and the plan has none", async (context) => {
  const sample = await startSample(context);
  const planId = await sample.make([call("h", "hold"), call("z", "change", {}, { dependsOn: ["h"] })]);
  const reading = followed(sample.plans.executePlan({ planId }), async ({ event, executionId }) => {
    if (event.case === "stepOutput") await sample.client.deleteSession({ sessionId: executionId });
  });
  await assert.rejects(reading, hasCode(Code.NotFound));
  await sample.atRest();
  assert.deepEqual([sample.ran, sample.aborted], [["hold {}"], ["{}"]]);
  const { state, executionId } = await sample.plans.getPlan({ planId });
  assert.deepEqual([state, executionId], ["ready", ""]);
  const { $typeName: _, ...cancelled } = await sample.plans.cancelPlan({ planId });
  assert.deepEqual(cancelled, { executionId: "", wasRunning: false });
});

test("a plan that misses functions can't run", async (context) => {
  const { plans } = await startSample(context);
  const plan = await plans.createPlan({ plan: { goal: "g", requirement: "r", steps: [call("a", "nowhere")] } });
  await assert.rejects(followed(plans.executePlan({ planId: plan.id })), hasCode(Code.FailedPrecondition, /nowhere/));
});

test("what was interrupted is not tried again, but what only reads is", async (context) => {
  const first = await startSample(context);
  const planId = await first.make([
    call("h", "hold", { n: 1 }, { retry: { delayMs: 1n }, onError: "continue" }),
    call("b", "look", {}, { dependsOn: ["h"] }),
  ]);
  let executionId = "";
  for await (const frame of first.plans.executePlan({ planId })) {
    executionId = frame.executionId;
    if (frame.event.case === "stepOutput") break;
  }
  await first.app.close(0);
  const second = await startSample(context, { dataDir: first.dataDir });
  const { lines, finished } = await followed(second.plans.executePlan({ planId, executionId }));
  assert.deepEqual(lines, ["h running", "h failed", "b running", "b completed"]);
  assert.equal(finished?.state, "completed");
  assert.deepEqual([...first.ran, ...second.ran], ['hold {"n":1}', "look {}"]);
});

test("a plan runs another one, and its goals are judged", async (context) => {
  const script = `
- when: { text: "criterion: first" }
  text: '{"state":"met","evidence":"step sub shows 5"}'
- when: { text: "criterion: second" }
  text: '{"state":"not_met","evidence":"no step did it"}'
`;
  const sample = await startSample(context, { script });
  const inner = await sample.make([call("in", "look", { got: { ref: "input.n" } })], {
    inputSchema: '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}',
  });
  const sub: Step = {
    id: "sub",
    kind: "sub_plan",
    details: { case: "subPlan", value: { planId: inner, input: '{"n":5}' } },
  };
  const planId = await sample.make([sub], { successCriteria: ["first", "second"] });
  const { lines, finished } = await followed(sample.plans.executePlan({ planId }));
  assert.deepEqual(lines, ["sub running", "sub completed"]);
  assert.deepEqual(JSON.parse(finished?.output ?? ""), { name: "look", got: 5 });
  assert.deepEqual(
    finished?.goalChecks.map(({ criterion, state, evidence }) => [criterion, state, evidence]),
    [
      ["first", "met", "step sub shows 5"],
      ["second", "not_met", "no step did it"],
    ],
  );
  assert.equal(finished?.goalMet, false);
});

describe("two servers over one PostgreSQL", { skip: noPostgres, timeout: 60_000 }, () => {
  after(stopTestDatabases);

  test("the one goes on where the other stopped, and takes answers that came to it", async (context) => {
    const flags = { database_url: await testDatabase() };
    const first = await startSample(context, { flags });
    const second = await startSample(context, { flags });
    const planId = await first.make(
      [
        call("h", "hold", {}, { onError: "continue" }),
        ask("q"),
        call("l", "look", { got: { ref: "step.q.result.name" } }, { dependsOn: ["h"] }),
      ],
      withWhat,
    );
    let executionId = "";
    const broken = followed(first.plans.executePlan({ planId }), async (frame) => {
      ({ executionId } = frame);
      if (frame.event.case === "inputRequested")
        await second.plans.submitPlanInput({ planId, stepId: "q", values: '{"name":"x"}' });
      if (
        frame.event.case === "stepChanged" &&
        frame.event.value.stepId === "q" &&
        frame.event.value.state === "completed"
      )
        void first.app.close(0);
    });
    await assert.rejects(broken, hasCode(Code.Unavailable));
    const { lines, finished } = await followed(second.plans.executePlan({ planId, executionId }));
    assert.deepEqual(lines, ["h running", "q running", "q completed", "h failed", "l running", "l completed"]);
    assert.deepEqual(JSON.parse(finished?.output ?? ""), { name: "look", got: "x" });
    assert.deepEqual([...first.ran, ...second.ran].toSorted(), ["hold {}", 'look {"got":"x"}']);
  });
});
