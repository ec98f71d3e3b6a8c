import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { setImmediate as nextMoment, setTimeout as wait } from "node:timers/promises";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Code, ConnectError, createClient } from "@connectrpc/connect";
import { type PlanEvent, PlanService, type PlanStepSchema } from "../../gen/codeagent/v1/plan_service_pb.ts";
import type { FunctionProvider } from "../../src/tool/function-provider.ts";
import { startTestApp, type TestAppOptions } from "../support/test-app.ts";

type Step = MessageInitShape<typeof PlanStepSchema>;

/** Functions whose effects are counted; `hold` waits until it is let go or aborted. */
export function sampleFunctions() {
  const ran: string[] = [];
  const aborted: string[] = [];
  let failuresLeft = 0;
  const names = ["look", "change", "fail", "hold", "flaky", "nothing", "long"];
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

export type Sample = Awaited<ReturnType<typeof startSample>>;

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
  const ask: Step = {
    id: "ask",
    kind: "user_input",
    details: { case: "userInput", value: { prompt: "which?", schema: '{"type":"object"}' } },
  };
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
      await sample.atRest();
    });
  }
  void ask;
});
void hasCode;
