import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { draftToPlain } from "../../src/plan/plain-plan.ts";
import { planFromAnswer, planSchema } from "../../src/plan/plan-schema.ts";
import { planFromYaml, planToYaml } from "../../src/plan/plan-yaml.ts";
import { examplePlan } from "../../src/plan/planner-prompt.ts";
import { checkValue } from "../../src/tool/check-value.ts";
import * as arbitrary from "../convert/arbitrary.ts";

const readable = `goal: The build is green.
success_criteria:
  - No test fails.
complexity: medium
steps:
  - id: build
    kind: function_call
    description: Builds it
    function: run_command
    parameters:
      command: npm test
      big: 12345678901234567890
      when: 2026-01-02
  - id: each
    kind: for_each
    depends_on: [ build ]
    condition: step.build.result.failed > 0
    for_each:
      items:
        ref: step.build.result.files
      max_concurrency: 2
      steps:
        - id: ask
          kind: user_input
          user_input:
            prompt: |
              Really?
              Say so.
            schema:
              type: object
              properties:
                ok: { type: boolean }
    on_error: continue
`;

test("people write plans as YAML", () => {
  const draft = planFromYaml(readable);
  assert.equal(planToYaml(draft).replaceAll(/\[ build \]|\n\s+- build/g, "").length > 200, true);
  assert.deepEqual(planFromYaml(planToYaml(draft)), draft);
  const [build, each] = draft.steps;
  assert.deepEqual(build?.details, {
    kind: "function_call",
    function: "run_command",
    parameters: '{"command":"npm test","big":12345678901234567890,"when":"2026-01-02"}',
  });
  assert.equal(each?.details.kind === "for_each" && each.details.items, '{"ref":"step.build.result.files"}');
  assert.equal(each?.onError, "continue");
});

test("any plan is the same after YAML", () => {
  fc.assert(
    fc.property(arbitrary.planDraft, (draft) => {
      fc.pre(!Object.hasOwn(draft.metadata, "__proto__"));
      const yaml = planToYaml(draft);
      assert.deepEqual(planFromYaml(yaml), draft);
      assert.equal(planToYaml(planFromYaml(yaml)), yaml);
    }),
    { numRuns: 80 },
  );
});

test("any plan is the same after the form a model writes", () => {
  fc.assert(
    fc.property(arbitrary.planDraft, (draft) => {
      const answer = planFromAnswer(draftToPlain(draft), draft.requirement);
      assert.deepEqual(answer, { ok: true, draft });
    }),
    { numRuns: 100 },
  );
});

describe("YAML that is no plan names line and path", () => {
  const step = "steps:\n  - id: a\n    kind: function_call\n    function: f\n";
  const faults: readonly (readonly [string, string, RegExp])[] = [
    ["no mapping", "- a", /^plan: has to be fields with names; it is a list of 1 \(line 1\)/],
    ["broken YAML", "goal: [a\nsteps: ]", /^plan: is no YAML: .*\(line \d\)/],
    [
      "a field nobody knows",
      `${step}    paramters: {}`,
      /^steps\[0\]\.paramters: is no field here; there are: .*parameters.* \(line 5\)/,
    ],
    ["a field of another kind", `${step}    model: {prompt: x}`, /^steps\[0\]\.model: is no field here.*\(line 5\)/],
    [
      "an unknown kind",
      "steps:\n  - id: a\n    kind: dance\n",
      /^steps\[0\]\.kind: is "dance"; use one of .*\(line 3\)/,
    ],
    ["details that are missing", "steps:\n  - id: a\n    kind: model\n", /^steps\[0\]\.model: is missing \(line 2\)/],
    [
      "a number out of range",
      `${step}    retry: {max_attempts: 99}`,
      /^steps\[0\]\.retry\.max_attempts: is 99; must lie within 1 and 20 \(line 5\)/,
    ],
    ["no whole number", `${step}    timeout_ms: 1.5`, /has to be a whole number/],
    [
      "an id that is none",
      "steps:\n  - kind: function_call\n    id: a b\n    function: f\n",
      /^steps\[0\]\.id: is "a b".*\(line 3\)/,
    ],
    ["an alias", "goal: &g x\nrequirement: *g", /(anchors are not read|refers to another)/],
    ["a merge", "metadata:\n  <<: {a: b}", /<< merges values/],
    ["a tag", "goal: !!str x", /the type .* is not read/],
    ["an unknown tag", "goal: !secret x", /type/],
    ["a key twice", "goal: a\ngoal: b", /^goal: is there twice; keep one \(line 2\)/],
    ["__proto__", `${step}    parameters: {__proto__: {a: 1}}`, /__proto__ can't be the name of a field/],
    ["infinity", `${step}    parameters: {a: .inf}`, /no number that JSON has.* \(line 5\)/],
    ["two documents", "goal: a\n---\ngoal: b", /is no YAML/],
    ["too deep", `metadata: ${"[".repeat(2000)}${"]".repeat(2000)}`, /deep|no YAML/],
    ["too long", `goal: ${"x".repeat(1024 * 1024)}`, /at most 1048576/],
    ["a list for a text", "goal: [a]", /^goal: has to be a text; it is a list of 1 \(line 1\)/],
  ];
  for (const [what, text, wanted] of faults)
    test(what, () => assert.throws(() => planFromYaml(text), { message: wanted }));
});

describe("answers of models", () => {
  const schema = planSchema({ definitions: [] });
  const words = { whole: "the answer", property: "a property" };
  const fits = (answer: unknown) => checkValue(schema, answer, JSON.stringify(answer).length, words);

  test("the example fits the schema and is read", () => {
    assert.deepEqual(fits(examplePlan), { ok: true });
    assert.equal(planFromAnswer(examplePlan, "wanted").ok, true);
  });

  test("parameters may be JSON text", () => {
    const step = { id: "a", kind: "function_call", description: "d", function: "f", parameters: '{"a": 1}' };
    const answer = { goal: "g", success_criteria: [], complexity: "simple", steps: [step] };
    assert.deepEqual(fits(answer), { ok: true });
    const read = planFromAnswer(answer, "wanted");
    assert.ok(read.ok);
    assert.deepEqual(read.draft.steps[0]?.details, { kind: "function_call", function: "f", parameters: '{"a": 1}' });
    assert.equal(read.draft.requirement, "wanted");
  });

  test("all faults are told at once", () => {
    const answer = {
      goal: 1,
      steps: [
        { id: "a", kind: "dance" },
        { id: "b", kind: "model", model: { promt: "x" } },
      ],
    };
    const read = planFromAnswer(answer, "");
    assert.deepEqual(!read.ok && read.faults.map((fault) => fault.slice(0, 40)), [
      'steps[0].kind is "dance"; use one of fun',
      "steps[1].model.promt is no field here; t",
    ]);
    assert.deepEqual(planFromAnswer({ steps: [{ id: "a b", kind: "function_call", function: "f" }] }, ""), {
      ok: false,
      faults: ['steps[0].id is "a b"; an id has 1 to 64 of A-Z a-z 0-9 _ -'],
    });
    assert.deepEqual(planFromAnswer([], ""), {
      ok: false,
      faults: ["the answer has to be fields with names; it is a list of 0"],
    });
  });
});
