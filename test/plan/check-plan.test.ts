import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import type { PlanDraft, PlanStep } from "../../src/chat/plan.ts";
import { type CheckedPlan, checkPlan, isRunnable, orderOf, type PlanFunctions } from "../../src/plan/check-plan.ts";
import { planFromAnswer } from "../../src/plan/plan-schema.ts";
import type { FunctionDefinition } from "../../src/tool/function-provider.ts";
import * as arbitrary from "../convert/arbitrary.ts";

function definition(name: string, parameters: object, more: Partial<FunctionDefinition> = {}): FunctionDefinition {
  const text = JSON.stringify(parameters);
  return { name, description: "", parameters: text, source: "local", readOnly: true, timeoutMs: 1000, ...more };
}

const definitions: readonly FunctionDefinition[] = [
  definition("read_file", {
    type: "object",
    properties: { path: { type: "string", minLength: 1 }, lines: { type: "integer" } },
    required: ["path"],
    additionalProperties: false,
  }),
  definition("run_command", { type: "object", properties: { command: { type: "string" } } }),
  definition("choose", {
    type: "object",
    properties: { by: { anyOf: [{ type: "string" }, { type: "object", required: ["key"] }] } },
    oneOf: [{ required: ["by"] }, { required: ["all"] }],
  }),
  definition("ask_user", { type: "object" }, { asks: true }),
];
const functions: PlanFunctions = {
  definitions,
  find: (name) => {
    const found = definitions.find((one) => one.name === name);
    return found === undefined ? undefined : { definition: found };
  },
};

function draftOf(fields: object): PlanDraft {
  const answer = planFromAnswer({ goal: "g", success_criteria: [], complexity: "simple", ...fields }, "wanted");
  assert.ok(answer.ok, answer.ok ? "" : answer.faults.join("; "));
  return answer.draft;
}

const other: CheckedPlan = {
  planId: "other",
  inputSchema: '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}',
  steps: draftOf({ steps: [{ id: "s", kind: "sub_plan", sub_plan: { plan_id: "third" } }] }).steps,
};
const third: CheckedPlan = { planId: "third", inputSchema: "", steps: [] };
const looping: CheckedPlan = {
  planId: "looping",
  inputSchema: "",
  steps: draftOf({
    steps: [
      {
        id: "f",
        kind: "for_each",
        for_each: { items: [], steps: [{ id: "s", kind: "sub_plan", sub_plan: { plan_id: "own" } }] },
      },
    ],
  }).steps,
};
const plans = new Map([other, third, looping].map((plan) => [plan.planId, plan]));

async function check(fields: object) {
  const found = await checkPlan(draftOf(fields), {
    functions,
    plans: async (planId, version) => (version === undefined || version === 1 ? plans.get(planId) : undefined),
    planId: "own",
  });
  return {
    ...found,
    text: found.problems.map(({ code, message, field }) => `${code} ${field}: ${message}`).join("\n"),
  };
}

const run = (id: string, more: object = {}) => ({
  id,
  kind: "function_call",
  function: "run_command",
  parameters: { command: "x" },
  ...more,
});
const read = (id: string, parameters: unknown, more: object = {}) => ({
  id,
  kind: "function_call",
  function: "read_file",
  parameters,
  ...more,
});
const each = (id: string, steps: readonly object[], more: object = {}) => ({
  id,
  kind: "for_each",
  for_each: { items: [1], steps },
  ...more,
});
const ref = (text: string) => ({ ref: text });

describe("plans that can run", () => {
  const sound: readonly (readonly [string, readonly object[]])[] = [
    ["one step", [run("a")]],
    ["a reference is a dependency", [read("b", { path: ref("step.a.result.path") }), run("a")]],
    [
      "a step within another sees the lists around it",
      [
        run("a"),
        each("f", [
          run("b"),
          read("c", { path: ref("step.a.result"), lines: ref("index") }, { condition: "step.b.result.ok && item.x" }),
        ]),
      ],
    ],
    [
      "unknown parts of parameters fit",
      [run("a"), read("b", { path: ref("step.a.result"), lines: ref("step.a.result.n") })],
    ],
    [
      "a choice with an unknown part is not judged",
      [
        run("a"),
        { id: "b", kind: "function_call", function: "choose", parameters: { by: { inner: ref("step.a.result") } } },
      ],
    ],
    [
      "what undoes a step looks at what it did",
      [run("a", { compensation: { function: "run_command", parameters: { command: ref("step.a.result.undo") } } })],
    ],
    [
      "prompts refer to steps",
      [run("a"), { id: "m", kind: "model", model: { prompt: `Sum up \${step.a.result}`, schema: { type: "object" } } }],
    ],
    ["another plan with its input", [{ id: "s", kind: "sub_plan", sub_plan: { plan_id: "other", input: { n: 1 } } }]],
    [
      "the same plan twice",
      [
        { id: "s", kind: "sub_plan", sub_plan: { plan_id: "third" } },
        { id: "t", kind: "sub_plan", sub_plan: { plan_id: "third", version: 1 } },
      ],
    ],
    [
      "items of a reference",
      [run("a"), { id: "f", kind: "for_each", for_each: { items: ref("step.a.result"), steps: [run("b")] } }],
    ],
    [
      "an answer of a person",
      [{ id: "u", kind: "user_input", user_input: { prompt: "p", schema: { type: "object", properties: {} } } }],
    ],
  ];
  for (const [what, steps] of sound) {
    test(what, async () => {
      const found = await check({ steps });
      assert.equal(found.text, "");
      assert.ok(isRunnable(found));
    });
  }
});

describe("what is wrong with a plan is told", () => {
  const wrong: readonly (readonly [string, readonly object[], RegExp])[] = [
    ["no steps", [], /^EMPTY_PLAN steps:/],
    ["an id twice, nested", [run("a"), each("f", [run("a")])], /^DUPLICATE_STEP_ID id: there is more than one step a;/],
    [
      "an unknown dependency",
      [run("build"), run("b", { depends_on: ["biuld"] })],
      /^UNKNOWN_STEP depends_on\[0\]: the step b depends on "biuld", .*did you mean build\?/,
    ],
    ["a dependency on itself", [run("a", { depends_on: ["a"] })], /^SELF_DEPENDENCY depends_on\[0\]:/],
    [
      "a dependency into another list",
      [each("f", [run("b")]), run("a", { depends_on: ["b"] })],
      /^DEPENDENCY_OUT_OF_REACH/,
    ],
    [
      "a dependency on a step around",
      [run("a"), each("f", [run("b", { depends_on: ["a"] })])],
      /^DEPENDENCY_OUT_OF_REACH/,
    ],
    [
      "a cycle",
      [run("a", { depends_on: ["c"] }), run("b", { depends_on: ["a"] }), run("c", { depends_on: ["b"] })],
      /^DEPENDENCY_CYCLE depends_on: the steps a → c → b → a wait for each other: a depends on c, c depends on b, b depends on a;/,
    ],
    [
      "a cycle over a reference",
      [run("a", { depends_on: ["b"] }), run("b", { condition: "step.a.result.ok" })],
      /^DEPENDENCY_CYCLE .*a depends on b, b refers to a;/,
    ],
    [
      "a cycle over a step within",
      [each("a", [run("in", { condition: "step.b.result" })]), run("b", { condition: "step.a.result" })],
      /^DEPENDENCY_CYCLE .* a refers to b, b refers to a;/,
    ],
    [
      "a reference to itself",
      [read("a", { path: ref("step.a.result") })],
      /^SELF_REFERENCE parameters: parameters of the step a refers to the step itself/,
    ],
    [
      "a reference to a step around it",
      [each("f", [read("a", { path: ref("step.f.result") })])],
      /^REFERENCE_OUT_OF_REACH .*f, which it is a part of/,
    ],
    [
      "a reference into a loop",
      [each("f", [run("in")]), read("a", { path: ref("step.in.result") })],
      /^REFERENCE_OUT_OF_REACH .*in, which is within f and can't be seen from outside; refer to step\.f\.result/,
    ],
    [
      "a reference into another branch",
      [
        {
          id: "p",
          kind: "parallel",
          parallel: { branches: [{ steps: [run("x")] }, { steps: [read("y", { path: ref("step.x.result") })] }] },
        },
      ],
      /^REFERENCE_OUT_OF_REACH .*x, which is in another list of steps within p/,
    ],
    [
      "a case that looks into its steps",
      [{ id: "b", kind: "branch", branch: { cases: [{ condition: "step.x.result.ok", steps: [run("x")] }] } }],
      /^REFERENCE_OUT_OF_REACH branch\.cases\[0\]\.condition: .*x, which is in another list of steps within b/,
    ],
    [
      "a reference to nothing",
      [run("a", { condition: "step.gone.result.ok" })],
      /^UNKNOWN_STEP condition: .*"gone", which is no step/,
    ],
    [
      "a reference that can't be read",
      [read("a", { path: ref("stepp.b") })],
      /^INVALID_REFERENCE parameters: in parameters of the step a, the reference "stepp\.b" is no reference/,
    ],
    [
      "a prompt with another's characters",
      [{ id: "m", kind: "model", model: { prompt: `\${HOME}` } }],
      /^INVALID_REFERENCE model\.prompt: .*write \$\$\{/,
    ],
    ["an item outside", [read("a", { path: ref("item.name") })], /^NO_ITEM parameters:/],
    [
      "a condition that is none",
      [run("a", { condition: "1 + 1" })],
      /^INVALID_CONDITION condition: the condition "1 \+ 1" of the step a has to be true or false/,
    ],
    [
      "an item in a condition outside",
      [run("a", { condition: "item.ok" })],
      /^INVALID_CONDITION .*item is there only within for_each/,
    ],
    [
      "the condition of a case",
      [{ id: "b", kind: "branch", branch: { cases: [{ condition: "x y", steps: [run("x")] }] } }],
      /^INVALID_CONDITION branch\.cases\[0\]\.condition:/,
    ],
    [
      "a function that is missing",
      [run("a", { function: "run_comand" })],
      /^MISSING_FUNCTION function: .*"run_comand", .*did you mean run_command\?/,
    ],
    ["a function that asks", [run("a", { function: "ask_user" })], /^ASKS_PEOPLE function: .*user_input/],
    [
      "parameters that are no JSON",
      [read("a", "{path")],
      /^INVALID_PARAMETERS parameters: the parameters of the step a are not valid JSON/,
    ],
    ["parameters that are a list", [read("a", [1])], /^INVALID_PARAMETERS .*have to be a JSON object/],
    ["parameters that are a reference", [run("a"), read("b", ref("step.a.result"))], /^INVALID_PARAMETERS/],
    [
      "a parameter that is missing",
      [read("a", { lines: ref("input.n") })],
      /^PARAMETERS_DO_NOT_FIT parameters: .*do not fit read_file: "path" is missing/,
    ],
    [
      "a parameter of another type",
      [read("a", { path: 3 })],
      /^PARAMETERS_DO_NOT_FIT .*"path" must be string; 3 was given/,
    ],
    [
      "a parameter there is not",
      [read("a", { path: ref("index"), pat: ref("index") })],
      /PARAMETERS_DO_NOT_FIT .*"pat" is not a property/,
    ],
    [
      "a choice that can't fit",
      [{ id: "b", kind: "function_call", function: "choose", parameters: { by: 3 } }],
      /^PARAMETERS_DO_NOT_FIT/,
    ],
    [
      "what undoes it does not fit",
      [run("a", { compensation: { function: "read_file", parameters: {} } })],
      /^PARAMETERS_DO_NOT_FIT compensation\.parameters: .*"path" is missing/,
    ],
    [
      "what undoes it is missing",
      [run("a", { compensation: { function: "undo_all" } })],
      /^MISSING_FUNCTION compensation\.function:/,
    ],
    [
      "items that are none",
      [{ id: "f", kind: "for_each", for_each: { items: { a: 1 }, steps: [run("b")] } }],
      /^INVALID_ITEMS for_each\.items:/,
    ],
    [
      "an answer that is no object",
      [{ id: "u", kind: "user_input", user_input: { prompt: "p", schema: { type: "string" } } }],
      /^INVALID_SCHEMA user_input\.schema: .*"object"/,
    ],
    [
      "an answer without a form",
      [{ id: "u", kind: "user_input", user_input: { prompt: "p" } }],
      /^INVALID_SCHEMA .*it is empty/,
    ],
    [
      "a model's schema that is none",
      [{ id: "m", kind: "model", model: { prompt: "p", schema: { type: "strange" } } }],
      /^INVALID_SCHEMA model\.schema:/,
    ],
    [
      "a plan there is not",
      [{ id: "s", kind: "sub_plan", sub_plan: { plan_id: "gone", version: 2 } }],
      /^UNKNOWN_PLAN sub_plan\.plan_id: .*"gone in version 2"/,
    ],
    [
      "a plan that reaches itself",
      [{ id: "s", kind: "sub_plan", sub_plan: { plan_id: "looping" } }],
      /^PLAN_CYCLE .*reaches itself: own → looping → own;/,
    ],
    [
      "input that does not fit the other plan",
      [{ id: "s", kind: "sub_plan", sub_plan: { plan_id: "other", input: { n: "x" } } }],
      /^PARAMETERS_DO_NOT_FIT sub_plan\.input: .*"n" must be integer/,
    ],
  ];
  for (const [what, steps, wanted] of wrong) {
    test(what, async () => {
      const found = await check({ steps });
      assert.match(found.text, wanted);
      assert.ok(!isRunnable(found));
      assert.equal(found.problems[0]?.severity, "error");
    });
  }
});

describe("what is odd is a warning", () => {
  const odd: readonly (readonly [string, object, RegExp])[] = [
    [
      "a number with too many digits",
      { steps: [{ ...run("a"), parameters: '{"command": "x", "n": 9007199254740993}' }] },
      /^NUMBER_PRECISION parameters: .*9007199254740993/,
    ],
    [
      "input nobody gives",
      { steps: [read("a", { path: ref("input.path") })] },
      /^UNKNOWN_INPUT .*input\.path, .*input_schema has none/,
    ],
    [
      "input that is called otherwise",
      {
        input_schema: { type: "object", properties: { file: {} } },
        steps: [run("a", { condition: "input.path != null" })],
      },
      /^UNKNOWN_INPUT condition: .*it has: file/,
    ],
    ["no goal", { goal: "", steps: [run("a")] }, /^NO_GOAL goal:/],
    [
      "a criterion twice",
      { success_criteria: ["x", "x"], steps: [run("a")] },
      /^DUPLICATE_CRITERION success_criteria\[1\]:/,
    ],
    ["a loop without steps", { steps: [each("f", [])] }, /^NO_STEPS for_each\.steps:/],
  ];
  for (const [what, fields, wanted] of odd) {
    test(what, async () => {
      const found = await check(fields);
      assert.match(found.text, wanted);
      assert.equal(found.problems.length, 1);
      assert.ok(isRunnable(found));
    });
  }
});

test("the plan's input has to be an object", async () => {
  const found = await check({ input_schema: { type: "array" }, steps: [run("a")] });
  assert.match(found.text, /^INVALID_SCHEMA input_schema:/);
});

test("missing functions are told once, with what is known of them", async () => {
  const call = (id: string) => ({
    id,
    kind: "function_call",
    description: "Sends a mail",
    function: "send_mail",
    parameters: { to: ["a"], text: ref("input.t"), n: 1.5 },
  });
  const { missingFunctions } = await check({ steps: [call("a"), call("b")] });
  const parameters =
    '{"type":"object","properties":{"to":{"type":"array"},"text":{},"n":{"type":"number"}},"required":["to","text","n"]}';
  assert.deepEqual(missingFunctions, [
    { name: "send_mail", description: "Sends a mail", parameters, stepIds: ["a", "b"] },
  ]);
});

test("steps wait for those that they or the steps within them refer to", () => {
  const { steps } = draftOf({
    steps: [
      run("a"),
      run("b", { depends_on: ["a", "gone"], condition: "step.b.result == null" }),
      each("f", [run("in"), read("last", { path: ref("step.b.result") }, { condition: "step.in.result.ok" })]),
      run("c", { compensation: { function: "run_command", parameters: { command: ref("step.f.result") } } }),
    ],
  });
  assert.deepEqual(
    [...orderOf(steps)],
    [
      ["a", []],
      ["b", ["a"]],
      ["f", ["b"]],
      ["c", ["f"]],
    ],
  );
});

test("any plan is checked, and one that can run has an order", async () => {
  const empty = { definitions: [], find: () => undefined };
  const inOrder = (steps: readonly PlanStep[]) => {
    const order = orderOf(steps);
    const done = new Set<string>();
    for (let before = -1; before < done.size; ) {
      before = done.size;
      for (const [id, needed] of order) if (needed.every((one) => done.has(one))) done.add(id);
    }
    return done.size === order.size;
  };
  await fc.assert(
    fc.asyncProperty(arbitrary.planDraft, async (draft) => {
      const found = await checkPlan(draft, { functions: empty, plans: async () => undefined });
      const hasCycle = found.problems.some(({ code }) => code === "DEPENDENCY_CYCLE");
      assert.ok(hasCycle || inOrder(draft.steps));
      assert.ok(found.problems.every(({ message, code }) => message.length > 20 && /^[A-Z_]+$/.test(code)));
    }),
    { numRuns: 60 },
  );
});
